//! The files with which systemd and launchd start `larderd`: the templates in `units/`, with this
//! machine's paths filled in.
//!
//! Unaware of: whether systemd or launchd is installed. Nothing is enabled; the commands to do so
//! are printed.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use larder_config::{Setting, Source};
use larder_store::Store;

use crate::cli::DaemonInstall;
use crate::commands::FINE;
use crate::say;
use crate::surroundings::{Surroundings, own_program};

const SOCKET: &str = include_str!("../units/larderd.socket");
const SERVICE: &str = include_str!("../units/larderd.service");
const BROKER: &str = include_str!("../units/larder-broker.service");
const PLIST: &str = include_str!("../units/larderd.plist");

/// The longest path of a socket that systemd accepts, in bytes.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The directory of an administrator's systemd units.
const SYSTEM: &str = "/etc/systemd/system";

/// The settings besides the store's directory that larderd reads.
const GOES_BY: [&str; 10] = [
    "handover",
    "image_max_days",
    "image_max_size",
    "max_size",
    "remote",
    "remote_handover",
    "remote_namespace",
    "remote_rw_mode",
    "remote_sign_with",
    "remote_trust",
];

/// The name and the text of a file.
type Unit = (&'static str, String);

/// Writes the files, or prints them, and prints the commands to run next.
pub(crate) fn install(
    around: &Surroundings,
    store: &Store,
    options: &DaemonInstall,
    out: &mut dyn Write,
) -> Result<u8> {
    let program = own_program()?;
    let dir = std::path::absolute(store.directory())?;
    let socket = dir.join(store.daemon_socket().strip_prefix(store.directory())?);
    let launchd = options.launchd || cfg!(target_os = "macos");
    let units = match (launchd, options.broker) {
        (true, _) => vec![plist(text(&program)?, text(&dir)?)],
        (false, true) => vec![broker(text(&program)?, text(&dir)?, &options.target)?],
        (false, false) => systemd(text(&program)?, text(&dir)?, text(&socket)?)?,
    };
    for setting in only_here(around) {
        say::tell(&format!(
            "{} is set only in this environment: set {} in larder.toml as well",
            setting.variable, setting.key
        ));
    }
    if options.print {
        for (name, text) in &units {
            writeln!(out, "# {name}\n{text}")?;
        }
        return Ok(FINE);
    }
    let directory = match options.broker {
        true => Some(PathBuf::from(SYSTEM)),
        false => directory(around, launchd),
    };
    let directory = directory.context("the directory for the files is not known: set HOME")?;
    let writing = |path: &Path| format!("{} cannot be written: see `larder daemon install --print`", path.display());
    std::fs::create_dir_all(&directory).with_context(|| writing(&directory))?;
    for (name, text) in &units {
        let path = directory.join(name);
        std::fs::write(&path, text).with_context(|| writing(&path))?;
        writeln!(out, "{}", path.display())?;
    }
    match (launchd, options.broker) {
        (true, _) => writeln!(out, "now type: launchctl load {}", directory.join("larderd.plist").display())?,
        (false, true) => {
            writeln!(out, "now type: systemctl daemon-reload && systemctl enable --now larder-broker.service")?;
        }
        (false, false) => {
            writeln!(out, "now type: systemctl --user daemon-reload && systemctl --user enable --now larderd.socket")?;
        }
    }
    Ok(FINE)
}

/// Returns the settings that come from the environment. The started larderd will not see that
/// environment.
fn only_here(around: &Surroundings) -> Vec<&'static Setting> {
    let values = around.loaded.values().into_iter();
    let set = values.filter(|value| GOES_BY.contains(&value.name) && matches!(value.source, Source::Environment(_)));
    set.filter_map(|value| Setting::by_key(value.name)).collect()
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not valid UTF-8, so a unit file cannot contain it", path.display()))
}

/// Returns the directory of a user's unit files.
fn directory(around: &Surroundings, launchd: bool) -> Option<PathBuf> {
    let home = || around.absolute(b"HOME");
    if launchd {
        return Some(home()?.join("Library/LaunchAgents"));
    }
    let config = around.absolute(b"XDG_CONFIG_HOME").or_else(|| Some(home()?.join(".config")));
    Some(config?.join("systemd/user"))
}

fn systemd(program: &str, dir: &str, socket: &str) -> Result<Vec<Unit>> {
    if socket.len() > SOCKET_PATH_BYTES_MAX {
        bail!(
            "the path {socket} is too long for systemd: use `larder daemon start`, or set LARDER_DIR to a shorter one"
        );
    }
    no_control(&[program, dir])?;
    let service = SERVICE
        .replace("@LARDERD@", &quoted(program).replace('$', "$$"))
        .replace("@VARIABLE@", &quoted(&format!("LARDER_DIR={dir}")));
    let socket = SOCKET.replace("@SOCKET@", &plain(socket));
    Ok(vec![("larderd.socket", socket), ("larderd.service", service)])
}

/// Returns the unit of the broker, which mounts images for all jobs of the machine.
fn broker(program: &str, dir: &str, targets: &[PathBuf]) -> Result<Unit> {
    no_control(&[program, dir])?;
    let mut words = String::new();
    for target in targets {
        let target = text(target)?;
        no_control(&[target])?;
        words.push_str(&format!(" --target {}", quoted(target).replace('$', "$$")));
    }
    let service = BROKER
        .replace("@LARDERD@", &quoted(program).replace('$', "$$"))
        .replace("@VARIABLE@", &quoted(&format!("LARDER_DIR={dir}")))
        .replace("@TARGETS@", &words);
    Ok(("larder-broker.service", service))
}

fn no_control(paths: &[&str]) -> Result<()> {
    if paths.iter().any(|path| path.contains(char::is_control)) {
        bail!("a unit file cannot contain a path with control characters: use `larder daemon start`");
    }
    Ok(())
}

/// Escapes `%`, which starts a specifier in a unit file.
fn plain(path: &str) -> String {
    path.replace('%', "%%")
}

fn quoted(word: &str) -> String {
    format!("\"{}\"", plain(word).replace('\\', "\\\\").replace('"', "\\\""))
}

fn plist(program: &str, dir: &str) -> Unit {
    let escaped = |path: &str| path.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    ("larderd.plist", PLIST.replace("@LARDERD@", &escaped(program)).replace("@DIR@", &escaped(dir)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted() {
        let units = systemd("/opt/a b/$x/larderd", "/s/50%\"", "/s/50%\"/v2/daemon.sock").expect("fits");
        assert!(units[0].1.contains("\nListenStream=/s/50%%\"/v2/daemon.sock\n"), "{}", units[0].1);
        assert!(units[1].1.contains("\nExecStart=\"/opt/a b/$$x/larderd\" serve\n"), "{}", units[1].1);
        assert!(units[1].1.contains("\nEnvironment=\"LARDER_DIR=/s/50%%\\\"\"\n"), "{}", units[1].1);
        assert!(systemd("/larderd", "/s", &format!("/{}", "s".repeat(107))).is_err(), "too long");
        let (_, unit) = broker("/opt/a b/larderd", "/s", &["/ci/jobs".into(), "/a$b".into()]).expect("fits");
        let line = "ExecStart=\"/opt/a b/larderd\" image broker --socket /run/larder/broker.sock --target \"/ci/jobs\" \
                    --target \"/a$$b\"\n";
        assert!(
            unit.contains(line)
                && unit.contains("\nKillMode=process\n")
                && unit.contains("\nOOMScoreAdjust=-999\n")
                && unit.contains("\nLimitNOFILE=65536\n")
                && unit.contains("\nMemoryMax=")
                && !unit.contains('@'),
            "{unit}"
        );
        assert!(plist("/a&b", "/<s>").1.contains("<string>/a&amp;b</string>"));
        assert!(
            !units.iter().chain(&[plist("/l", "/s")]).any(|(_, text)| text.contains('@')),
            "all placeholders are filled in"
        );
    }
}
