//! Links with compilers' names, and the lines in the shell's profile that put them first in `PATH`.
//! They serve every build tool that calls compilers by name.
//!
//! Unaware of: which build tool it is.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use larder_compiler::is_masquerade_name;
use larder_lookup::find;

use super::plan::{Places, Plan};
use crate::surroundings::{Surroundings, nobody};

/// Plans the links and the profile. Does nothing if compilers' names lead to larder already by
/// other links. Returns from when on the names lead to larder, as the beginning of a sentence.
pub(super) fn plan(around: &Surroundings, places: &Places, plan: &mut Plan) -> Result<String> {
    if let Some(link) = present(around, places) {
        plan.note(format!("compilers are called through larder already, by {}", link.display()));
        return Ok("now".to_owned());
    }
    let names = names(around, places)?;
    for name in &names {
        plan.link(places.links().join(name), places.larder.clone())?;
    }
    let (profile, lines) = profile(around, places)?;
    let from = from_when(around, places, &profile);
    plan.text(profile, "the lines", |before| Ok(appended(before, &lines)))?;
    Ok(from)
}

/// Returns from when on the links are in `PATH`.
fn from_when(around: &Surroundings, places: &Places, profile: &Path) -> String {
    let path = around.text(b"PATH").unwrap_or_default();
    if path.split(':').any(|directory| Path::new(directory) == places.links()) {
        return "now".to_owned();
    }
    // Only a login shell reads it, and a new terminal often starts none.
    let is_of_login = profile.ends_with(".profile");
    let when = if is_of_login { "after the next login" } else { "in a new shell" };
    let source = if profile.ends_with("larder.fish") { "source" } else { "." };
    format!("{when}, or after `{source} {}`", places.shown(profile))
}

/// Plans one link, for a tool that is told its compiler by path. Returns the link's path.
pub(super) fn plan_one(around: &Surroundings, places: &Places, plan: &mut Plan) -> Result<PathBuf> {
    let names = names(around, places)?;
    let usual = ["gcc", "clang", "cc"].iter().find(|name| names.contains(**name));
    let Some(name) = usual else { bail!("no gcc, clang or cc is on PATH: install a compiler") };
    let link = places.links().join(name);
    plan.link(link.clone(), places.larder.clone())?;
    Ok(link)
}

/// Returns a link of someone else's making through which `cc` or `gcc` already leads to larder.
fn present(around: &Surroundings, places: &Places) -> Option<PathBuf> {
    let first = |name: &[u8]| find(name, around.variable(b"PATH"), &nobody(), false);
    let ours = [&b"cc"[..], b"gcc"].into_iter().filter_map(first).find(|tool| around.ourselves.is(tool))?;
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(&ours.path));
    (path.parent() != Some(&*places.links())).then_some(path)
}

/// Returns the names of all compilers on `PATH` for which larder can stand.
fn names(around: &Surroundings, places: &Places) -> Result<BTreeSet<String>> {
    let path = around.variable(b"PATH").unwrap_or_default();
    let directories = path.split(|&byte| byte == b':').filter(|directory| directory.starts_with(b"/"));
    let mut names = BTreeSet::new();
    for directory in directories.map(|directory| Path::new(std::ffi::OsStr::from_bytes(directory))) {
        if directory == places.links() {
            continue;
        }
        let listed = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let listed = listed.filter_map(|entry| entry.file_name().into_string().ok());
        // A name that leads to nothing but larder or another cache must not become a link.
        let is_compiler = |name: &String| {
            is_masquerade_name(name.as_bytes()) && find(name.as_bytes(), Some(path), &around.ourselves, true).is_some()
        };
        names.extend(listed.filter(is_compiler));
    }
    ensure!(!names.is_empty(), "no compiler is on PATH: install gcc or clang, then try again");
    Ok(names)
}

/// Returns the file that the user's shell reads when it starts, and the lines for it.
fn profile(around: &Surroundings, places: &Places) -> Result<(PathBuf, String)> {
    let links = places.links().display().to_string();
    let is_plain = |char: char| char.is_alphanumeric() || "/._-+@".contains(char);
    ensure!(links.chars().all(is_plain), "{links} has characters that a shell treats specially: set XDG_DATA_HOME");
    // `SHELL` is often unset in a container, although its shell is bash.
    let shell = around.text(b"SHELL").filter(|shell| !shell.is_empty()).map(PathBuf::from);
    let shell = shell.or_else(larder_sys::shell_of_user);
    let shell = shell.as_ref().and_then(|shell| shell.file_name()?.to_str()).unwrap_or_default();
    let (begin, end) = ("# >>> larder init: compilers are called through larder", "# <<< larder init");
    if shell == "fish" {
        let file = places.config.join("fish/conf.d/larder.fish");
        return Ok((file, format!("{begin}\nfish_add_path --path --move {links}\n{end}\n")));
    }
    let file = match shell {
        "bash" => places.home.join(".bashrc"),
        "zsh" => around.text(b"ZDOTDIR").map_or(places.home.clone(), PathBuf::from).join(".zshrc"),
        _ => places.home.join(".profile"),
    };
    let lines = format!(
        "{begin}\ncase \":$PATH:\" in\n    *:{links}:*) ;;\n    *) export PATH=\"{links}:$PATH\" ;;\nesac\n{end}\n"
    );
    Ok((file, lines))
}

/// Returns the text with the lines at its end, or `None` if it has them.
pub(super) fn appended(before: Option<&str>, lines: &str) -> Option<String> {
    let before = before.unwrap_or_default();
    let gap = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
    (!before.contains(lines)).then(|| format!("{before}{gap}{lines}"))
}
