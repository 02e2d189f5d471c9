//! Turns the trace of a run into what the run relied on and what it changed. It applies what is
//! known of the programs (`habit`) and the options of `larder run`, and adds what no observer can
//! see.

use larder_compiler::{
    Family, LISTS_VARIABLES, SERVED, Told, adds_execute, configures, getenv_is_covered, habit, host_fields,
    is_compiler_part, is_shell, is_standard_library, matters_on_terminal_only, opens_output, replaces_output,
    rewrites_output, source_of_bytecode, unlinks_output,
};
use larder_model::Observer::Kernel;
use larder_model::path::{file_name, is_in};
use larder_model::{
    ALL_VARIABLES as ALL, Change, HOST_IF_COMPUTED, HOST_NAME, Habit, INHERITED, JOB_VARIABLES, Looked, OfHistory,
    SIGNALS, SOCKETS, Seen, Terminal, Times, UMASK, Unrecorded, contains, host_field,
};
use larder_observe::{Folded, Observed, Origin, Policy, Start, fold, loader_looks};
use larder_portability::{HostName, ScriptScan, outside_the_system};
use larder_store::Bounds;
use larder_sys::FileType;

use super::archive_times::archive_has_none;
use super::canonical_paths::CanonicalPaths;
use super::entry::Run;
use super::not_recorded::NotRecorded;
use super::search_paths::prints_variables;
use crate::own_file::own_path;
use crate::run::observed_run::ObservedRun;

impl Run<'_> {
    /// Returns what the run relied on and changed, or why it must not be recorded.
    pub(super) fn folded(&self, observed_run: &ObservedRun, scripts: &ScriptScan) -> Result<Folded, NotRecorded> {
        let mut folded = self.fold(&observed_run.observed, scripts);
        let refusals = std::mem::take(&mut folded.refusals);
        if let Some((why, path)) = refusals.first() {
            if *why == Unrecorded::NotObserved {
                self.trust.leave_to_the_kernel(observed_run, path);
            }
            let changed = refusals.iter().filter(|(why, _)| *why == Unrecorded::UpdatesFile);
            self.trust.learn_changes(changed.map(|(_, path)| path.as_slice()));
            return Err(NotRecorded::Because(*why, path.clone()));
        }
        if let Some((path, _)) = folded.seen.looked.iter().find(|(path, looked)| self.checks_times_of(path, looked)) {
            return Err(NotRecorded::Because(Unrecorded::ComparesTimes, path.clone()));
        }
        let is_written = |path: &[u8]| !self.before.is_as_it_was(path, self.started_ns);
        folded.seen.changed.retain(|(path, change)| !matches!(change, Change::File { .. }) || is_written(path));
        self.narrow_and_widen(&mut folded.seen);
        if !self.is_keyed_whole() {
            // Variables that code of the build asked for in a compiler's process.
            let asked = folded.late_variables.iter().map(|name| (name.clone(), self.context.place.asked(name)));
            folded.seen.environment.extend(asked);
            self.add_uses_of_plugins(&mut folded)?;
        }
        if self.request.family == Family::Rustc {
            self.of_a_crate(observed_run, &mut folded);
        }
        self.leave_out_links_above_roots(&mut folded);
        self.leave_out_directory_of_caller(&mut folded);
        self.leave_out_search_path(&mut folded);
        Ok(folded)
    }

    /// Leaves out that a compiler looked at the directory in `PWD`, if that is not the working
    /// directory. For example, `make -C src` starts compilers with the `PWD` of its caller.
    ///
    /// Compilers only test whether both are the same directory, and if so, its path is in the key.
    /// Otherwise the `stat` has no effect, and in another place `PWD` is another path.
    fn leave_out_directory_of_caller(&self, folded: &mut Folded) {
        let action = &self.request.action;
        if !self.request.family.is_gcc_or_clang() || folded.foreign_program.is_some() || action.apparent_cwd.is_some() {
            return;
        }
        let Some(pwd) = self.context.place.variable(b"PWD").filter(|pwd| pwd.len() > 1 && *pwd != action.cwd) else {
            return;
        };
        // The directory may also be one that the command line or another variable names.
        let values = action.environment.iter().map(|variable| &variable.value);
        let names_it = |text: &Vec<u8>| text.first() == Some(&b'@') || names_directory(text, pwd);
        if action.argv.iter().skip(1).chain(values).any(names_it) {
            return;
        }
        let matters = |looked: &Looked| {
            let is_only_looked_at = Looked { kind: false, absent: false, failed: None, ..looked.clone() };
            is_only_looked_at != Looked { identity: looked.identity, ..Looked::default() }
        };
        folded.seen.looked.retain(|(path, looked)| path != pwd || matters(looked));
    }

    /// Leaves out that a compiler found no link in the path above a root. `realpath` calls `readlink`
    /// for each directory of a path, which an observer of system calls sees.
    ///
    /// If the root itself was looked at in this way, its record says that no link is in its path, in
    /// whatever place. The directories above it are others in another place.
    fn leave_out_links_above_roots(&self, folded: &mut Folded) {
        if !self.request.family.is_gcc_or_clang() || folded.foreign_program.is_some() {
            return;
        }
        let looked = &mut folded.seen.looked;
        let is_resolved = |root: &&Vec<u8>| looked.iter().any(|(path, looked)| path == *root && looked.link);
        let roots = self.request.roots.paths();
        let resolved: Vec<&Vec<u8>> = roots.iter().filter(is_resolved).collect();
        let is_above = |path: &[u8]| {
            let is_below = |root: &&Vec<u8>| root.strip_prefix(path).is_some_and(|rest| rest.starts_with(b"/"));
            resolved.iter().any(is_below) && !roots.iter().any(|root| root == path)
        };
        let is_directory = |path: &[u8]| larder_sys::lstat(path).is_ok_and(|stat| stat.kind == FileType::Directory);
        for (_, looked) in
            looked.iter_mut().filter(|(path, looked)| looked.link && is_above(path) && is_directory(path))
        {
            looked.link = false;
        }
        looked.retain(|(path, looked)| *looked != Looked::default() || !is_above(path));
    }

    /// Adds what no observer saw: the files that loader and libc read, and variables and properties
    /// of the host that a program may have read without a call that we see.
    pub(super) fn add_what_nobody_saw(
        &self,
        observed_run: &ObservedRun,
        scripts: &ScriptScan,
        folded: &mut Folded,
    ) -> Result<(), NotRecorded> {
        let unseen =
            self.trust.unseen(observed_run, self.model).map_err(|(why, path)| NotRecorded::Because(why, path))?;
        let place = &self.context.place;
        let seen = &mut folded.seen;
        seen.looked.extend(unseen);
        // A program that is no part of a compiler may ask for all that it inherits.
        let is_other = |start: &Start| !is_compiler_part(file_name(start.program));
        let any_inherited = !self.is_keyed_whole() && self.model.starts.iter().any(is_other);
        let any_variable = folded.foreign_program.is_some() || self.observer == Kernel;
        let inherited = [
            (!self.is_keyed_whole() && any_variable, &b""[..]),
            (any_inherited, INHERITED),
            (any_inherited, SIGNALS),
            (seen.umask, UMASK),
            (seen.sockets, SOCKETS),
        ];
        self.add_variables_left_out(scripts, seen);
        let of_host = seen.host.iter().map(|letter| match *letter {
            HOST_IF_COMPUTED => {
                OfHistory::Value(place.history_value(HOST_NAME).map(|name| name.len())).fact_name(HOST_NAME)
            }
            letter => host_field(letter),
        });
        seen.environment.extend(of_host.map(|name| (name.clone(), place.asked(&name))));
        for (_, name) in inherited.into_iter().filter(|(asked, _)| *asked) {
            seen.environment.push((name.to_vec(), place.asked(name)));
        }
        let mut looks = loader_looks(place.variable(b"LD_LIBRARY_PATH"), &place.cwd);
        self.name_what_the_loader_looks_for(&mut looks);
        seen.looked.extend(looks);
        if self.request.family == Family::Command {
            self.add_search_paths(scripts, seen);
        }
        Ok(())
    }

    /// Returns true for a precompiled header that clang reads, because clang compares the mtimes of
    /// the headers it was made from.
    fn checks_times_of(&self, path: &[u8], looked: &Looked) -> bool {
        let precompiled = [&b".pch"[..], b".gch", b".pcm"].iter().any(|suffix| path.ends_with(suffix));
        looked.content && precompiled && self.request.family != Family::Gcc
    }

    fn fold(&self, observed: &Observed, scripts: &ScriptScan) -> Folded {
        let (place, family) = (&self.context.place, self.request.family);
        let on_terminal = self.request.action.terminal != Terminal::None;
        let real = CanonicalPaths::default();
        let sessions = self.sessions();
        let policy = Policy {
            replaces_output: &replaces_output,
            unlinks_output: &unlinks_output,
            rewrites_output: &rewrites_output,
            opens_output: &opens_output,
            adds_execute: &adds_execute,
            variable_is_covered: &|name| {
                getenv_is_covered(family, name) || !on_terminal && matters_on_terminal_only(family, name)
            },
            // A nested wrapper may also report what else it inherited.
            variable: &|name| match name {
                SIGNALS | JOB_VARIABLES => place.asked(name),
                name => place.variable(name).map(<[u8]>::to_vec),
            },
            host_fields: &|program, kept| host_fields_shown(program, kept, scripts),
            is_compiler_part: &is_compiler_part,
            habit: &|program, kept, origin| self.habit(program, kept, origin, scripts),
            configures: &|program, kept| {
                larder_observe::arguments(kept).is_some_and(|words| configures(program, &words.collect::<Vec<_>>()))
            },
            is_standard_library: &is_standard_library,
            reads_clock_at_import: &reads_clock_at_import,
            wrapper: &own_path(),
            before: &|opened| self.before.of(opened),
            target_before: &|path| self.before.target(path),
            real: &|path| real.of(path),
            is_log: &larder_compiler::is_log,
            may_write: &|path| self.request.may_write(path),
            is_private: &|path| sessions.iter().any(|sessions| is_in(path, sessions)),
            first_pid: Some(observed.finished.pid),
            chance_is_compared: !matches!(family, Family::Generic | Family::Command),
        };
        fold(&observed.trace, &policy)
    }

    /// Applies the options `--input` and `--no-input`.
    fn narrow_and_widen(&self, seen: &mut Seen) {
        let (scope, cwd) = (&self.request.scope, &self.request.action.cwd);
        seen.looked.retain(|(path, _)| !scope.leaves_out(path, cwd));
        for input in &scope.inputs {
            let looked = Looked { content: true, kind: true, listed: true, ..Looked::default() };
            seen.looked.push((self.request.absolute(input), looked));
        }
    }

    /// Adds variables that the key of an unknown tool leaves out, if a text names them or a program
    /// is known to use them.
    fn add_variables_left_out(&self, scripts: &ScriptScan, seen: &mut Seen) {
        let place = &self.context.place;
        let mut names = scripts.variables.clone();
        let mut all = scripts.list_variables;
        for start in &self.model.starts {
            let program = String::from_utf8_lossy(file_name(start.program)).into_owned();
            let served = SERVED.iter().filter(|(name, _)| *name == program);
            names.extend(served.flat_map(|(_, names)| names.iter()).map(|name| name.as_bytes().to_vec()));
            all |= LISTS_VARIABLES.contains(&program.as_str()) || prints_variables(start);
        }
        if all && !seen.environment.iter().any(|(name, _)| name == ALL) {
            seen.environment.push((ALL.to_vec(), place.asked(ALL)));
            seen.environment.extend(self.history());
        }
        seen.environment.extend(names.into_iter().map(|name| (name.clone(), place.asked(&name))));
    }

    /// Returns the observations of the variables whose values count until a run with others gave the
    /// same result.
    pub(super) fn history(&self) -> impl Iterator<Item = (Vec<u8>, Option<Vec<u8>>)> {
        let place = &self.context.place;
        place.history_variables().map(|variable| {
            let value = place.variable(variable);
            let name = OfHistory::Value(value.map(<[u8]>::len)).fact_name(variable);
            (name, value.map(<[u8]>::to_vec))
        })
    }

    /// Returns what a program is known to do in every run. An archiver that writes no times and
    /// owners, which is the default on most systems, does not depend on them.
    fn habit(&self, program: &[u8], kept: &[u8], origin: Origin, scripts: &ScriptScan) -> Habit {
        let is_set = |name: &[u8]| self.context.place.variable(name).is_some_and(|value| value != b"random");
        let words: Option<Vec<&[u8]>> = larder_observe::arguments(kept).map(Iterator::collect);
        let is_made_to_ask = origin == Origin::MadeToAsk;
        let (arguments, named) = (words.as_deref(), scripts.named(program));
        let told = Told { arguments, named, is_set: &is_set, is_made_to_ask };
        let mut usual = habit(program, told);
        usual.asks_sizes = named.sizes;
        // As for a procedural macro: `HashMap` draws random numbers, and mostly they reach no result.
        usual.draws_are_compared |=
            self.request.is_build_script && program == file_name(&self.request.action.tool_path);
        if scripts.is_without_status(program) {
            usual.times = Times::Blind;
        }
        let arguments = &self.request.action.argv[1..];
        let itself = self.request.family == Family::Binutils && usual.times == Times::Files;
        let archive = if itself { larder_compiler::archive(program, arguments) } else { None };
        match archive {
            Some(path) if archive_has_none(&self.request.absolute(path)) => {
                Habit { times: Times::Blind, clock_reads: u32::MAX, ..usual }
            }
            _ => usual,
        }
    }
}

/// Returns true if Python code at `path` reads the clock once when it is imported, for
/// [`Policy::reads_clock_at_import`].
fn reads_clock_at_import(program: &[u8], path: &[u8]) -> bool {
    const SOURCE_BYTES_MAX: u64 = 1 << 20;
    let source = source_of_bytecode(path).filter(|source| is_standard_library(program, source));
    let text = source.and_then(|source| larder_sys::read_at_most(&source, SOURCE_BYTES_MAX).ok().flatten());
    text.is_some_and(|text| larder_compiler::reads_clock_at_import(&text))
}

/// Returns true if a text may name `directory` itself. A path that goes on below it does not, for
/// example `/job/src/build/x.c` for `/job/src`, unless it may lead back with `..`.
fn names_directory(text: &[u8], directory: &[u8]) -> bool {
    memchr::memmem::find_iter(text, directory).any(|at| {
        let Some(below) = text[at + directory.len()..].strip_prefix(b"/") else { return true };
        matches!(below.first(), None | Some(b'/' | b'.')) || contains(below, "..")
    })
}

/// Returns what a program may show of the answer of `uname`: letters as in [`Seen::host`].
fn host_fields_shown(program: &[u8], kept: &[u8], scripts: &ScriptScan) -> Vec<u8> {
    let words: Option<Vec<&[u8]>> = larder_observe::arguments(kept).map(Iterator::collect);
    let trusted = if outside_the_system(program) { &b""[..] } else { program };
    if !is_shell(file_name(trusted)) {
        return host_fields(trusted, words.as_deref());
    }
    match scripts.host_name {
        HostName::Named => b"n".to_vec(),
        HostName::Computed => vec![HOST_IF_COMPUTED],
        HostName::Unused => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_named_unless_the_path_goes_on() {
        let check = |text: &str, expected| assert_eq!(names_directory(text.as_bytes(), b"/j/s"), expected, "{text}");
        check("/j/s/b/x.c", false);
        check("-I/j/s/b", false);
        check("/j/x.c", false);
        for text in ["-I/j/s", "/j/s/", "/j/s//", "/j/s/.", "/j/s/./", "/j/s/b/..", "/j/s:/x", "/j/s/b:/j/s", "/j/sb"] {
            check(text, true);
        }
    }
}
