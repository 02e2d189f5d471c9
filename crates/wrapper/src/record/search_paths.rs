//! Decides how `PATH` and other search paths count: by what the run looked for along them, or by
//! their text.
//!
//! Unaware of: how the directories of `PATH` are searched at the next lookup (`lookup`).

use std::collections::BTreeSet;
use std::io::ErrorKind;

use larder_compiler::{
    Family, Language, is_build_tool, is_compiler_part, is_of_job, is_plain_system_script, is_search_path,
    is_search_path_of_compilers, is_shell, search_paths, shows_what_it_searches,
};
use larder_lookup::{is_searched, left_out, searched_by_compilers};
use larder_model::Observer::Kernel;
use larder_model::path::{absolute, file_name, is_in, join, parent};
use larder_model::{ALL_VARIABLES, Change, JOB_VARIABLES, Looked, SIGNALS, Seen, contains, found_along_path};
use larder_observe::{Folded, Open, OpenFlags, Start, arguments};
use larder_portability::{SEARCHED_BYTES_MAX, ScriptScan, outside_the_system};
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
    /// - So do the variables of CI services. The values of those that differ between jobs count until
    ///   a run with others gave the same result.
    /// - Otherwise `PATH` counts by the programs that were looked for along it: the record holds if
    ///   no more directories than in this run have one of these programs. Directories of the system
    ///   count by their path.
    /// - Ignored signals and the niceness count if a program ran that may read variables unseen, or
    ///   if a text lists traps.
    #[inline(never)]
    pub(super) fn add_search_paths(&self, scripts: &ScriptScan, seen: &mut Seen) {
        let ignored = &self.request.scope.no_env;
        let is_left_out = |name: &Vec<u8>| is_search_path(name) || is_of_job(name);
        seen.environment.retain(|(name, _)| !(is_left_out(name) && ignored.contains(name)));
        let place = &self.context.place;
        let (starts, ours) = (&self.model.starts, own_path());
        let may_be_read = self.observer == Kernel
            || scripts.computes_search_paths
            || !starts.iter().all(|start| shows_its_searches(start, &ours));
        if may_be_read {
            self.add_variables_in_programs(seen);
        }
        let lists_all = seen.environment.iter().any(|(name, _)| name == ALL_VARIABLES);
        if may_be_read && !lists_all {
            seen.environment.push((JOB_VARIABLES.to_vec(), place.asked(JOB_VARIABLES)));
            seen.environment.extend(self.history());
        }
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

    /// Adds the values of the variables of CI services whose names are in a program that may have read
    /// them unseen. That two jobs gave the same result proves nothing about these.
    fn add_variables_in_programs(&self, seen: &mut Seen) {
        let (place, ours) = (&self.context.place, own_path());
        let names: Vec<&[u8]> = place.history_variables().filter(|name| is_of_job(name)).collect();
        if names.is_empty() {
            return;
        }
        let programs: BTreeSet<&[u8]> = self.model.starts.iter().map(|start| start.program).collect();
        // bash, for example, has `HOSTNAME` in it, which it sets itself.
        let is_known = |program: &[u8]| !outside_the_system(program) && shows_what_it_searches(file_name(program));
        for program in programs.into_iter().filter(|program| *program != ours && !is_known(program)) {
            let bytes = larder_sys::read_at_most(program, SEARCHED_BYTES_MAX).ok().flatten();
            let is_in = |name: &&&[u8]| bytes.as_ref().is_none_or(|bytes| contains(bytes, **name));
            let named = names.iter().filter(is_in).map(|name| (name.to_vec(), place.asked(name)));
            seen.environment.extend(named);
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

/// Returns true if make prints its variables, which include those of the environment.
pub(super) fn prints_variables(start: &Start) -> bool {
    // The rest of a word is the value of one of these options.
    let has_value = |option: &u8| b"CEIOWfjlo".contains(option);
    let is_set = |cluster: &[u8]| cluster.iter().take_while(|option| !has_value(option)).any(|option| *option == b'p');
    let prints = |word: &[u8]| match word.strip_prefix(b"-") {
        Some(long) if long.starts_with(b"-") => long.starts_with(b"-print-d"),
        cluster => cluster.is_some_and(is_set),
    };
    is_build_tool(file_name(start.program)) && arguments(start.arguments).is_none_or(|mut words| words.any(prints))
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
    let Some(words) = arguments(start.arguments).map(Iterator::collect::<Vec<_>>) else {
        return !is_shell(name) && !is_build_tool(name);
    };
    if !is_shell(name) {
        let is_stream =
            |word: &&[u8]| *word == b"-" || word.ends_with(b"f-") || word.ends_with(b"=-") || is_of_kernel(word);
        let runs_text = is_build_tool(name) || Language::of(name) == Some(Language::Awk);
        return !(prints_variables(start) || runs_text && words.iter().any(is_stream));
    }
    // The scripts of the system's packages are not searched for names of variables, and the text that
    // comes through a pipe is not known.
    let is_plain =
        |script: &[u8]| !script.starts_with(b"/") || outside_the_system(script) || is_plain_system_script(script);
    let at = words.iter().position(|word| !word.starts_with(b"-"));
    let reads_pipe = |word: &&[u8]| *word == b"-s" || *word == b"-";
    at.is_some_and(|at| !words[..at].iter().any(reads_pipe) && !is_of_kernel(words[at]) && is_plain(words[at]))
}

/// Returns true for a path that leads to what the process has open, such as `/dev/stdin`.
fn is_of_kernel(path: &[u8]) -> bool {
    path.starts_with(b"/dev/") || path.starts_with(b"/proc/")
}
