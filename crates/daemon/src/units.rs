//! The files by which systemd and launchd start `larderd`: made from those in `units/`, with the paths of this place.
//!
//! Unaware of: whether either is there. Nothing is enabled; what to type is said.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use larder_config::{Setting, Source};
use larder_store::Store;

use crate::cli::DaemonInstall;
use crate::say;
use crate::surroundings::Surroundings;
use crate::words::FINE;

const SOCKET: &str = include_str!("../units/larderd.socket");
const SERVICE: &str = include_str!("../units/larderd.service");
const BROKER: &str = include_str!("../units/larder-broker.service");
const PLIST: &str = include_str!("../units/larderd.plist");

/// What systemd takes for a socket's path.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Where an administrator's units are.
const SYSTEM: &str = "/etc/systemd/system";

/// Settings that larderd goes by, beside the store's place.
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

/// A file's name and text.
type Unit = (&'static str, String);

/// Write the files, or print them, and say what to type then.
pub(crate) fn install(
    around: &Surroundings,
    store: &Store,
    options: &DaemonInstall,
    out: &mut dyn Write,
) -> Result<u8> {
    let program = std::env::current_exe().context("the file of larderd cannot be found")?;
    let dir = std::path::absolute(store.directory())?;
    let socket = dir.join(store.daemon_socket().strip_prefix(store.directory())?);
    let launchd = options.launchd || cfg!(target_os = "macos");
    let units = match (launchd, options.broker) {
        (true, _) => vec![plist(text(&program)?, text(&dir)?)],
        (false, true) => vec![broker(text(&program)?, text(&dir)?, &options.target)?],
        (false, false) => systemd(text(&program)?, text(&dir)?, text(&socket)?)?,
    };
    for setting in only_here(around) {
        say::tell(&format!("{} is set here alone: set {} in larder.toml as well", setting.variable, setting.key));
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
    let directory = directory.context("no place for the files is known: set HOME")?;
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

/// What the environment sets, which is not that of whatever these files start.
fn only_here(around: &Surroundings) -> Vec<&'static Setting> {
    let values = around.loaded.values().into_iter();
    let set = values.filter(|value| GOES_BY.contains(&value.name) && matches!(value.source, Source::Environment(_)));
    set.filter_map(|value| Setting::by_key(value.name)).collect()
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is no text that a unit file can hold", path.display()))
}

/// Where a user's files of that kind are.
fn directory(around: &Surroundings, launchd: bool) -> Option<PathBuf> {
    let variable = |name: &[u8]| around.variable(name).and_then(|value| std::str::from_utf8(value).ok());
    let home = || variable(b"HOME").filter(|home| home.starts_with('/')).map(PathBuf::from);
    if launchd {
        return Some(home()?.join("Library/LaunchAgents"));
    }
    let set = variable(b"XDG_CONFIG_HOME").filter(|set| set.starts_with('/')).map(PathBuf::from);
    Some(set.or_else(|| Some(home()?.join(".config")))?.join("systemd/user"))
}

fn systemd(program: &str, dir: &str, socket: &str) -> Result<Vec<Unit>> {
    if socket.len() > SOCKET_PATH_BYTES_MAX {
        bail!("{socket} is too long a path for systemd: use `larder daemon start`, or set LARDER_DIR to a shorter one");
    }
    no_control(&[program, dir])?;
    let service = SERVICE
        .replace("@LARDERD@", &quoted(program).replace('$', "$$"))
        .replace("@VARIABLE@", &quoted(&format!("LARDER_DIR={dir}")));
    let socket = SOCKET.replace("@SOCKET@", &plain(socket));
    Ok(vec![("larderd.socket", socket), ("larderd.service", service)])
}

/// What mounts for all jobs of the machine.
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
        bail!("a path with control characters cannot stand in a unit file: use `larder daemon start`");
    }
    Ok(())
}

/// Specifiers begin with a per cent sign; quoted words have escapes; a dollar sign begins a variable.
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
        assert!(!units.iter().chain(&[plist("/l", "/s")]).any(|(_, text)| text.contains('@')), "all are filled in");
    }
}
