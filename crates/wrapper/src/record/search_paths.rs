//! Decides how `PATH` and other search paths count: by what the run looked for along them, or by
//! their text.
//!
//! Unaware of: how the directories of `PATH` are searched at the next lookup (`lookup`).

use std::collections::BTreeSet;
use std::io::ErrorKind;

use larder_compiler::{
    Family, is_compiler_part, is_plain_system_script, is_search_path, is_search_path_of_compilers, is_shell,
    search_paths, shows_what_it_searches,
};
use larder_lookup::{is_searched, left_out, searched_by_compilers};
use larder_model::Observer::Kernel;
use larder_model::path::{absolute, file_name, is_in, join, parent};
use larder_model::{ALL_VARIABLES, Change, Looked, SIGNALS, Seen, found_along_path};
use larder_observe::{Folded, Open, OpenFlags, Start, arguments};
use larder_portability::{ScriptScan, outside_the_system};
use larder_sys::FileType;

use super::entry::Run;
use crate::own_file::own_path;

impl Run<'_> {
    /// Removes the absences of parts of a compiler in directories of `PATH` that are not in the key.
    ///
    /// They need no observation, because the next lookup leaves a directory out of the key only if
    /// it has none of these programs. If the run looked for another program there, or if a program
    /// ran that is no part of a compiler, the text of `PATH` counts instead.
    pub(super) fn leave_out_search_path(&self, folded: &mut Folded) {
        if self.request.family == Family::Command {
            return;
        }
        let name = |variable: &&larder_model::Variable| variable.name == b"PATH";
        let Some(path) = self.context.place.variable(b"PATH") else { return };
        let Some(kept) = self.request.action.environment.iter().find(name).filter(|kept| kept.value != path) else {
            return;
        };
        let left_out: Vec<&[u8]> = left_out(path, &kept.value).collect();
        let is_in_one = |path: &[u8]| left_out.iter().any(|directory| parent(path) == Some(directory));
        let tool = &self.request.action.tool_path;
        let is_expected = |path: &[u8], looked: &Looked| is_absent(looked) && is_searched(file_name(path), tool);
        let looked = &mut folded.seen.looked;
        let is_odd = |(path, looked): &(Vec<u8>, Looked)| is_in_one(path) && !is_expected(path, looked);
        if folded.foreign_program.is_some() || looked.iter().any(is_odd) {
            folded.seen.environment.push((b"PATH".to_vec(), Some(path.to_vec())));
        } else {
            looked.retain(|(path, _)| !is_in_one(path));
        }
    }

    /// Adds what a whole command relied on of the search paths that its key leaves out.
    ///
    /// - The value of a variable counts if a text names the variable or a program asked for it. Such
    ///   variables are already in `seen`. If a program ran that may read variables unseen, the values
    ///   of all search paths count.
    /// - Otherwise `PATH` counts by the programs that were looked for along it: the record holds if
    ///   no more directories than in this run have one of these programs. Directories of the system
    ///   count by their path.
    /// - Ignored signals and the niceness count if a program ran that may read variables unseen, or
    ///   if a text lists traps.
    pub(super) fn add_search_paths(&self, scripts: &ScriptScan, seen: &mut Seen) {
        if self.request.family != Family::Command {
            return;
        }
        let ignored = &self.request.scope.no_env;
        seen.environment.retain(|(name, _)| !(is_search_path(name) && ignored.contains(name)));
        let place = &self.context.place;
        let (starts, ours) = (&self.model.starts, own_path());
        let may_be_read = self.observer == Kernel
            || scripts.computes_search_paths
            || !starts.iter().all(|start| shows_its_searches(start, &ours));
        if may_be_read || scripts.shows_ignored_signals {
            seen.environment.push((SIGNALS.to_vec(), place.asked(SIGNALS)));
        }
        let compiles = starts.iter().any(|start| compiles(start, &ours));
        for name in search_paths().filter(|name| may_be_read || compiles && is_search_path_of_compilers(name)) {
            if !ignored.iter().any(|ignored| ignored == name) {
                seen.environment.push((name.to_vec(), place.asked(name)));
            }
        }
        let counts_as_text = |(name, _): &(Vec<u8>, Option<Vec<u8>>)| name == b"PATH" || name == ALL_VARIABLES;
        let is_ignored = ignored.iter().any(|name| name == b"PATH");
        let Some(path) = place.variable(b"PATH") else { return };
        if compiles {
            self.add_parts_of_compilers(path, seen);
        }
        if is_ignored || seen.environment.iter().any(counts_as_text) {
            return;
        }
        let along: Vec<&[u8]> = path.split(|&byte| byte == b':').collect();
        let is_along = |path: &[u8]| along.iter().any(|directory| parent(path) == Some(directory));
        let looked = seen.looked.iter().map(|(path, _)| path.as_slice()).filter(|path| is_along(path));
        let mut programs: BTreeSet<Vec<u8>> = looked.map(|path| file_name(path).to_vec()).collect();
        if compiles {
            programs.extend(searched_by_compilers().map(<[u8]>::to_vec));
        }
        let name = found_along_path(programs.iter().map(Vec::as_slice));
        let kept = place.asked(&name).unwrap_or_default();
        let left_out: Vec<&[u8]> = left_out(path, &kept).collect();
        let is_in_one = |path: &[u8]| left_out.iter().any(|directory| parent(path) == Some(directory));
        let is_one = |path: &[u8]| left_out.contains(&path);
        let is_odd = |(path, looked): &(Vec<u8>, Looked)| is_in_one(path) && !is_absent(looked) || is_one(path);
        let is_told = !along.iter().all(|directory| is_plain(directory)) || seen.looked.iter().any(is_odd);
        if is_told || self.makes_programs(&programs, seen) {
            seen.environment.push((b"PATH".to_vec(), Some(path.to_vec())));
        } else {
            seen.looked.retain(|(path, _)| !is_in_one(path));
            seen.environment.push((name, Some(kept)));
        }
    }

    /// Adds that directories of `PATH` in the working directory have no part of a compiler.
    ///
    /// A nested hit reports no lookups of these programs: its record has none of these absences,
    /// because the key of the compile covers them. The key of a whole command does not cover them: it
    /// keeps such directories whatever they hold.
    fn add_parts_of_compilers(&self, path: &[u8], seen: &mut Seen) {
        let cwd = &self.request.action.cwd;
        let directories = path.split(|&byte| byte == b':').map(|directory| absolute(cwd, directory));
        let parts = directories
            .filter(|directory| is_in(directory, cwd))
            .flat_map(|directory| searched_by_compilers().map(move |name| join(&directory, name)).collect::<Vec<_>>());
        let is_absent = |path: &[u8]| larder_sys::lstat(path).is_err_and(|error| error.kind() == ErrorKind::NotFound);
        let known: BTreeSet<&[u8]> = seen.looked.iter().map(|(path, _)| path.as_slice()).collect();
        let new: Vec<Vec<u8>> = parts.filter(|part| !known.contains(part.as_slice()) && is_absent(part)).collect();
        seen.looked.extend(new.into_iter().map(|path| (path, Looked::absent())));
    }

    /// Returns true if the command made a file with one of these names, or a link to a directory.
    /// In another `PATH`, that may be a program that is found.
    fn makes_programs(&self, names: &BTreeSet<Vec<u8>>, seen: &Seen) -> bool {
        let is_one = |path: &[u8]| names.contains(file_name(path));
        let creates = |open: &Open| open.flags.has(OpenFlags::CREATE) && is_one(open.path);
        seen.names.iter().any(|(path, _)| is_one(path))
            || seen.changed.iter().any(|change| is_one(&change.0) || leads_to_directory(change))
            || self.model.opens.iter().any(creates)
    }
}

/// Returns true for an absolute path without `.`, `..` and repeated slashes. Only then the paths that
/// the run looked at begin with the directory as it is written in `PATH`.
fn is_plain(directory: &[u8]) -> bool {
    let mut parts = directory.split(|&byte| byte == b'/');
    parts.next() == Some(b"") && parts.all(|part| !matches!(part, b"" | b"." | b".."))
}

/// Returns true for a link that leads to a directory.
fn leads_to_directory(change: &(Vec<u8>, Change)) -> bool {
    let is_directory = |path: &[u8]| larder_sys::stat(path).is_ok_and(|stat| stat.kind == FileType::Directory);
    matches!(change.1, Change::Link) && is_directory(&change.0)
}

/// Returns true for a path that was looked for, did not exist, and was not used in any other way.
fn is_absent(looked: &Looked) -> bool {
    *looked == Looked::absent()
}

/// Returns true for a compiler, and for larder, which may answer for one.
fn compiles(start: &Start, ours: &[u8]) -> bool {
    is_compiler_part(file_name(start.program)) || start.program == ours
}

/// Returns true if everything that a program does with search paths can be seen: in the texts of the
/// command, in calls of `getenv`, and in the paths that it looks for.
fn shows_its_searches(start: &Start, ours: &[u8]) -> bool {
    let name = file_name(start.program);
    if start.program == ours {
        return true;
    }
    if outside_the_system(start.program) || !shows_what_it_searches(name) {
        return false;
    }
    // The scripts of the system's packages are not searched for names of variables.
    let is_plain =
        |script: &[u8]| !script.starts_with(b"/") || outside_the_system(script) || is_plain_system_script(script);
    let script = arguments(start.arguments).map(|mut words| words.find(|word| !word.starts_with(b"-")));
    !is_shell(name) || script.is_some_and(|script| script.is_none_or(is_plain))
}
