//! Checks whether another compiler cache is put before the compiler: by a variable, by cargo's
//! configuration, or by Meson itself. Then both would cache, and larder would see the other cache
//! as the tool.

use std::path::PathBuf;

use larder_lookup::find;

use super::check::{Check, note};
use crate::say;
use crate::surroundings::{Surroundings, nobody};

/// Caches by their program's name. `distcc` and `icecc` distribute compiles and do not cache, so
/// they may stay.
const CACHES: &[&str] = &["buildcache", "cachepot", "ccache", "kache", "sccache"];

/// The variables with which build tools call a compiler or put a program before it.
const VARIABLES: &[&str] = &[
    "CC",
    "CMAKE_CXX_COMPILER_LAUNCHER",
    "CMAKE_C_COMPILER_LAUNCHER",
    "CXX",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
];

pub(super) fn checks(around: &Surroundings) -> Vec<Check> {
    let mut checks: Vec<Check> = VARIABLES.iter().filter_map(|name| variable(around, name)).collect();
    checks.extend(cargo(around));
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
        "CC" | "CXX" => format!("{name}=\"larder {}\"", value.split_whitespace().nth(1).unwrap_or("COMPILER")),
        _ => format!("{name}=larder"),
    };
    Some(note("other cache", format!("{name} calls {cache}: set {instead} in its place")))
}

/// Checks `rustc-wrapper` in the configuration of cargo: here, in the directories above, and the
/// user's.
fn cargo(around: &Surroundings) -> Vec<Check> {
    let above = around.cwd.iter().flat_map(|cwd| cwd.ancestors().map(|directory| directory.join(".cargo")));
    let home = || around.text(b"HOME").map(|home| PathBuf::from(home).join(".cargo"));
    let own = around.text(b"CARGO_HOME").map(PathBuf::from).or_else(home);
    let mut directories: Vec<PathBuf> = above.chain(own).collect();
    directories.dedup();
    let check = |directory: &PathBuf| {
        let file = directory.join("config.toml");
        let document: toml_edit::DocumentMut = std::fs::read_to_string(&file).ok()?.parse().ok()?;
        let cache = cache_in(document.get("build")?.get("rustc-wrapper")?.as_str()?)?;
        let found = format!("{} calls {cache}: set rustc-wrapper = \"larder\" in its place", file.display());
        Some(note("other cache", say::one_line(&found)))
    };
    directories.iter().filter_map(check).collect()
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
}
