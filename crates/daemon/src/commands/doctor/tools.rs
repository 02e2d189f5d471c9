//! Checks which programs the names of compilers lead to along `PATH`: larder, another cache or the
//! real compiler, and in which order.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use larder_compiler::{Family, family_of};
use larder_lookup::find;
use larder_observe::{Program, inspect_program};

use super::check::{Check, note, ok, problem};
use super::compiling;
use crate::say;
use crate::surroundings::{Surroundings, nobody};

/// The names under which builds call compilers.
const NAMES: [&str; 6] = ["gcc", "g++", "cc", "c++", "clang", "clang++"];

/// What a name leads to in one directory of `PATH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leads {
    Us,
    AnotherCache,
    Compiler,
}

/// A program with one of the names, found along `PATH`.
struct FoundProgram {
    path: Vec<u8>,
    leads: Leads,
}

pub(super) fn checks(around: &Surroundings) -> Vec<Check> {
    let named: Vec<(&str, Vec<FoundProgram>)> = NAMES.iter().map(|name| (*name, along_path(name, around))).collect();
    let mut checks: Vec<Check> = named.iter().filter_map(|(name, found)| order(name, found)).collect();
    if !named.iter().flat_map(|(_, found)| found).any(|found| found.leads == Leads::Us) {
        checks.push(ok(
            "masquerade",
            "no compiler name on PATH leads to larder: run `larder init` in a project, or put larder in front, as in \
             `larder gcc -c x.c`",
        ));
    }
    checks.extend(compilers(around, &named));
    checks
}

fn along_path(name: &str, around: &Surroundings) -> Vec<FoundProgram> {
    let path = around.variable(b"PATH").unwrap_or_default();
    let found = |directory: &[u8]| {
        let tool = find(name.as_bytes(), Some(directory), &nobody(), false)?;
        let leads = if around.ourselves.is(&tool) {
            Leads::Us
        } else if find(name.as_bytes(), Some(directory), &nobody(), true).is_none() {
            Leads::AnotherCache
        } else {
            Leads::Compiler
        };
        Some(FoundProgram { path: tool.path, leads })
    };
    path.split(|&b| b == b':').filter_map(found).collect()
}

/// Checks that a name that leads to larder in some directory leads to larder first, and to a
/// compiler after it.
fn order(name: &str, found: &[FoundProgram]) -> Option<Check> {
    let what = "masquerade";
    let shown = |found: &FoundProgram| say::clean(&found.path);
    let first = found.first()?;
    let ours = found.iter().position(|f| f.leads == Leads::Us);
    let real = found.iter().find(|f| f.leads == Leads::Compiler);
    Some(match (ours, real) {
        (None, _) if first.leads == Leads::AnotherCache => note(
            "other cache",
            format!(
                "{name} leads to another cache, {}: with larder in front, both would cache; give the compiler's full path",
                shown(first)
            ),
        ),
        (None, _) => return None,
        (Some(_), None) => problem(
            what,
            format!("{name} leads to larder, and to no compiler after it: install one, or add its directory to PATH"),
        ),
        (Some(0), Some(real)) => ok(what, format!("{name} leads to larder, then to {}", shown(real))),
        (Some(at), Some(_)) => problem(
            what,
            format!("{name} leads to {} before larder: put {} first in PATH", shown(first), directory_of(&found[at])),
        ),
    })
}

fn directory_of(found: &FoundProgram) -> String {
    let end = found.path.iter().rposition(|&b| b == b'/').unwrap_or(0);
    say::clean(&found.path[..end])
}

/// Checks each real compiler once, even if it has several names.
fn compilers(around: &Surroundings, named: &[(&str, Vec<FoundProgram>)]) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut seen: Vec<PathBuf> = Vec::new();
    let all = named.iter().flat_map(|(_, found)| found).filter(|found| found.leads == Leads::Compiler);
    for found in all {
        let Ok(real) = std::fs::canonicalize(Path::new(OsStr::from_bytes(&found.path))) else { continue };
        if !seen.contains(&real) {
            checks.push(compiler(around, &found.path, &real));
            seen.push(real);
        }
    }
    if checks.is_empty() {
        checks.push(note("compilers", "none of the usual names was found along PATH"));
    }
    checks
}

fn compiler(around: &Surroundings, path: &[u8], real: &Path) -> Check {
    let name = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
    let real = real.as_os_str().as_bytes();
    let shown = if real == path { say::clean(path) } else { format!("{} → {}", say::clean(path), say::clean(real)) };
    let family = match family_of(name) {
        Some(family) => family,
        None => Family::Generic,
    };
    let kind = match inspect_program(path) {
        (Program::Dynamic { .. }, true) => "a script, keyed with its whole environment".to_owned(),
        (Program::Dynamic { .. }, false) => format!("family {}", family.name()),
        (Program::NotPreloadable, _) => "static, set-user-id, sanitized or of another machine".to_owned(),
    };
    compiling::check(around, path, &shown, &kind)
}

#[cfg(test)]
mod tests {
    use super::super::check::State;
    use super::*;

    #[test]
    fn the_order_on_path() {
        use Leads::{AnotherCache, Compiler, Us};
        let check = |leads: &[Leads], expect: Option<State>| {
            let found: Vec<FoundProgram> =
                leads.iter().map(|&leads| FoundProgram { path: b"/d/gcc".to_vec(), leads }).collect();
            assert_eq!(order("gcc", &found).map(|check| check.state), expect, "{leads:?}");
        };
        check(&[], None);
        check(&[Compiler], None);
        check(&[Us, Compiler], Some(State::Ok));
        check(&[Us, AnotherCache, Compiler], Some(State::Ok));
        check(&[Compiler, Us], Some(State::Problem));
        check(&[AnotherCache, Us, Compiler], Some(State::Problem));
        check(&[Us], Some(State::Problem));
        check(&[Us, AnotherCache], Some(State::Problem));
        check(&[AnotherCache, Compiler], Some(State::Note));
    }
}
