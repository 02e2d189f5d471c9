//! Checks whether another compiler cache is put before the compiler: by a variable, by cargo's
//! configuration, or by Meson itself. Then both would cache, and larder would see the other cache
//! as the tool.

use std::path::PathBuf;

use larder_lookup::find;

use super::check::{Check, note};
use crate::commands::{below, project_text};
use crate::say;
use crate::surroundings::{Surroundings, nobody};

/// Caches by their program's name. `distcc` and `icecc` distribute compiles and do not cache, so
/// they may stay.
const CACHES: &[&str] = &["buildcache", "cachepot", "ccache", "kache", "sccache"];

/// The variables with which build tools call a compiler or put a program before it.
const VARIABLES: &[&str] = &[
    "CARGO_BUILD_RUSTC_WORKSPACE_WRAPPER",
    "CARGO_BUILD_RUSTC_WRAPPER",
    "CC",
    "CMAKE_CXX_COMPILER_LAUNCHER",
    "CMAKE_C_COMPILER_LAUNCHER",
    "CXX",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
];

pub(super) fn checks(around: &Surroundings) -> Vec<Check> {
    let mut checks: Vec<Check> = VARIABLES.iter().filter_map(|name| variable(around, name)).collect();
    checks.extend(of_targets(around));
    checks.extend(cargo(around));
    checks.extend(cmake(around));
    checks.extend(meson(around));
    checks
}

/// Returns the cache that a command line or a path names first.
fn cache_in(value: &str) -> Option<&'static str> {
    let first = value.split_whitespace().next()?;
    let name = first.rsplit('/').next()?;
    CACHES.iter().copied().find(|cache| *cache == name)
}

/// Returns a note if this variable names another cache.
fn variable(around: &Surroundings, name: &str) -> Option<Check> {
    let value = around.text(name.as_bytes())?;
    let cache = cache_in(value)?;
    let instead = match name {
        _ if name.starts_with("CC") || name.starts_with("CXX") => {
            format!("{name}=\"larder {}\"", value.split_whitespace().nth(1).unwrap_or("COMPILER"))
        }
        _ => format!("{name}=larder"),
    };
    Some(note("other cache", format!("{name} calls {cache}: set {instead} in its place")))
}

/// Checks the variables with which build scripts of cargo choose the compiler of one target, such as
/// `CC_x86_64_unknown_linux_gnu`.
fn of_targets(around: &Surroundings) -> Vec<Check> {
    let names = around.environment.iter().filter_map(|(name, _)| std::str::from_utf8(name).ok());
    let is_of_target =
        |name: &&str| (name.starts_with("CC_") || name.starts_with("CXX_")) && *name != "CC_KNOWN_WRAPPER_CUSTOM";
    names.filter(is_of_target).filter_map(|name| variable(around, name)).collect()
}

/// Checks the wrappers of rustc in the configuration of cargo: here, in the directories above, and the
/// user's.
fn cargo(around: &Surroundings) -> Vec<Check> {
    let above = around.cwd.iter().flat_map(|cwd| cwd.ancestors().map(|directory| directory.join(".cargo")));
    let home = || around.text(b"HOME").map(|home| PathBuf::from(home).join(".cargo"));
    let own = around.text(b"CARGO_HOME").map(PathBuf::from).or_else(home);
    let mut directories: Vec<PathBuf> = above.chain(own).collect();
    directories.dedup();
    let files = directories.iter().flat_map(|directory| ["config", "config.toml"].map(|name| directory.join(name)));
    let check = |file: PathBuf| {
        let document: toml_edit::DocumentMut = project_text(&file).parse().ok()?;
        let of_key = |key: &str| cache_in(document.get("build")?.get(key)?.as_str()?);
        let keys = ["rustc-wrapper", "rustc-workspace-wrapper"].into_iter();
        let (key, cache) = keys.filter_map(|key| Some((key, of_key(key)?))).next()?;
        let instead = match key {
            "rustc-wrapper" => "set rustc-wrapper = \"larder\" in its place",
            _ => "remove rustc-workspace-wrapper, and set rustc-wrapper = \"larder\"",
        };
        Some(note("other cache", say::one_line(&format!("{} calls {cache}: {instead}", file.display()))))
    };
    files.filter_map(check).collect()
}

/// Checks the launchers in the caches and the presets of CMake, in the working directory and one
/// level below it.
fn cmake(around: &Surroundings) -> Vec<Check> {
    let Some(cwd) = &around.cwd else { return Vec::new() };
    let of_cache = |directory: PathBuf| {
        let file = directory.join("CMakeCache.txt");
        let text = project_text(&file);
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let mut launchers = lines.filter(|(name, _)| is_launcher(name));
        let cache = launchers.find_map(|(_, value)| cache_in(after_type(value)))?;
        Some(format!(
            "{} calls {cache}: configure again with -DCMAKE_C_COMPILER_LAUNCHER=larder and the same for CXX",
            file.display()
        ))
    };
    let of_presets = |name: &str| {
        let file = cwd.join(name);
        let cache = launcher_in(&serde_json::from_str(&project_text(&file)).ok()?)?;
        Some(format!("{} calls {cache}: use another preset, such as that of `larder init cmake`", file.display()))
    };
    let presets = ["CMakePresets.json", "CMakeUserPresets.json"].into_iter().filter_map(of_presets);
    let found = below(cwd).filter_map(of_cache).chain(presets);
    found.map(|found| note("other cache", say::one_line(&found))).collect()
}

/// Returns true for the name of a variable such as `CMAKE_CXX_COMPILER_LAUNCHER`.
fn is_launcher(name: &str) -> bool {
    name.starts_with("CMAKE_") && name.ends_with("_COMPILER_LAUNCHER")
}

/// Returns the value in what follows a name in `CMakeCache.txt`. For example, `STRING=ccache`.
fn after_type(text: &str) -> &str {
    text.split_once('=').map_or("", |(_, value)| value)
}

/// Returns the cache that a launcher names anywhere in a file of presets.
fn launcher_in(value: &serde_json::Value) -> Option<&'static str> {
    use serde_json::Value;
    match value {
        Value::Object(members) => members.iter().find_map(|(name, value)| match value {
            Value::String(text) if is_launcher(name) => cache_in(text),
            Value::Object(typed) if is_launcher(name) => cache_in(typed.get("value")?.as_str()?),
            _ => launcher_in(value),
        }),
        Value::Array(elements) => elements.iter().find_map(launcher_in),
        _ => None,
    }
}

/// Returns a note if Meson would put a cache before the compiler. It does so with any that it finds
/// on `PATH`, without being told to.
fn meson(around: &Surroundings) -> Option<Check> {
    let path = around.variable(b"PATH");
    let is_there = |name: &&&str| find(name.as_bytes(), path, &nobody(), false).is_some();
    find(b"meson", path, &nobody(), false)?;
    let cache = ["sccache", "ccache"].iter().find(is_there)?;
    let found = format!(
        "Meson calls {cache} by itself, because it is on PATH: use `larder init meson`, then `meson setup --native-file larder`"
    );
    Some(note("other cache", found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_recognised_by_the_first_word() {
        assert_eq!(cache_in("ccache gcc"), Some("ccache"));
        assert_eq!(cache_in("/usr/bin/sccache"), Some("sccache"));
        for other in ["", "gcc", "larder gcc", "gcc --with ccache", "/opt/ccache/gcc"] {
            assert_eq!(cache_in(other), None, "{other}");
        }
    }

    #[test]
    fn launchers_of_presets_are_found_at_any_depth() {
        let found = |text: &str| launcher_in(&serde_json::from_str(text).expect("is JSON"));
        let preset = |value: &str| {
            format!(r#"{{"configurePresets": [{{"cacheVariables": {{"CMAKE_C_COMPILER_LAUNCHER": {value}}}}}]}}"#)
        };
        assert_eq!(found(&preset(r#""/usr/bin/ccache""#)), Some("ccache"));
        assert_eq!(found(&preset(r#"{"type": "STRING", "value": "sccache"}"#)), Some("sccache"));
        assert_eq!(found(&preset(r#""larder""#)), None);
    }
}
