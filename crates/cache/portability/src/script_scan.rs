//! Searches scripts and other texts of a command for words by which mtimes, clocks, random values,
//! process ids or inode numbers may reach the result.
//!
//! Unaware of: what is done with the answer.

use std::collections::{BTreeSet, HashMap, HashSet};

use larder_compiler::{
    AWK_WORDS, CLOCK_WORDS, CMAKE_MEMORY_WORDS, DATE_WORDS, DIRECTORY_BEFORE, Family, HASH_WORDS, LIST_OF_VARIABLES,
    Language, MEMORY_WORDS, Named, OWN_MEMORY_WORDS, OwnProcess, PERL_CLOCK_WORDS, PERL_HASH_WORDS, ROFF_WORDS,
    SHELL_TIME_WORDS, Signs, TIME_WORDS, compares_no_dates, compiled_names_other_processes, computes_search_paths,
    draws_numbers, holds_own_process, is_build_tool, is_compiler_part, is_left_out, is_makefile, is_of_job,
    is_search_path, is_shell, is_standard_library, lists_shell_variables, names_cmake_clocks, names_inodes,
    names_other_processes, names_shell_clocks, names_shell_status, names_sizes, names_times_in_perl, names_zsh_clocks,
    own_process, runs_meson, runs_no_script, shows_ignored_signals, times_commands, unpacks, without_repeats,
};
use larder_model::path::file_name;
use larder_model::{Identity, contains, contains_any, is_in_word};
use larder_observe::{OpenFlags, RunModel, arguments};
use larder_relocate::{hides_its_text, is_compressed};

use crate::facts::CommandFacts;
use crate::status::programs_without_status;
use crate::volatile_ids::{VolatileIds, may_be_printed, outside_the_system, ran_what_names_processes};

/// A longer text is not searched, in bytes, and counts as if it held every word. Automake makes
/// large makefiles: curl's `tests/libtest` has one of 95 MB.
const TEXT_BYTES_MAX: u64 = 256 << 20;

/// How the texts of a command may show the name of the host, which shells such as bash know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostName {
    /// A text names the variable, or the texts were not searched.
    #[default]
    Named,
    /// A text may compute the name of the variable, or list all.
    Computed,
    /// No text can show it.
    Unused,
}

/// What the texts of a command mention.
#[derive(Clone, Debug, Default)]
pub struct ScriptScan {
    /// The texts that the compilers of a compile read. See [`ScriptScan::find_dates`].
    compiled: Vec<Vec<u8>>,
    /// Words that stand for times, clocks, seeds and addresses, in texts that may be scripts of any
    /// language.
    named: Named,
    /// Such words in texts that only interpreters of one language read.
    own: [Named; Language::COUNT],
    /// What scripts do with their own process id (`$$`).
    pub own_process: OwnProcess,
    /// A text mentions a way to read other process ids.
    name_processes: bool,
    /// Compiled code mentions such a way.
    compiled_name_processes: bool,
    /// A text asks for an inode number: as autoconf's `configure` does, and in another way.
    name_inodes: (bool, bool),
    /// A text mentions a way to list all variables.
    pub list_variables: bool,
    /// The command is one of `larder run`.
    is_whole_command: bool,
    /// A text is compressed.
    is_hidden: bool,
    /// Variables that are mentioned and that the key leaves out.
    pub variables: BTreeSet<Vec<u8>>,
    /// The file names of programs that cannot ask for the status of a file.
    without_status: HashSet<Vec<u8>>,
    /// How shells may show the name of the host.
    pub host_name: HostName,
    names_host: bool,
    /// A text may show which signals are ignored.
    pub shows_ignored_signals: bool,
    /// A text may put the name of a search path or of a variable of a CI service together, or cannot be
    /// searched.
    pub computes_search_paths: bool,
}

impl ScriptScan {
    /// Searches the arguments, the standard input and the files read by a command. If a compiler is
    /// the command, only what it compiled is searched.
    pub fn of(command: &CommandFacts, run: &RunModel) -> ScriptScan {
        let read = texts(run);
        if command.family.is_gcc_or_clang() {
            let compiled = read.iter().filter(|(_, by)| by.contains(&Reader::Compiler));
            return ScriptScan { compiled: compiled.map(|(path, _)| path.clone()).collect(), ..ScriptScan::default() };
        }
        ScriptScan::of_other(command, run, &read)
    }

    /// Searches what another command than a compiler read. It is a function of its own so that a miss of
    /// a compiler does not load its pages.
    #[inline(never)]
    fn of_other(command: &CommandFacts, run: &RunModel, read: &HashMap<Vec<u8>, Vec<Reader>>) -> ScriptScan {
        let mut found = ScriptScan::default();
        // A compiler by itself never writes a process id into its output that was not in its input.
        let may_be_run = command.family == Family::Command;
        for (path, by) in read.iter().filter(|(_, by)| by.iter().any(Reader::compiles)) {
            let dates = by.contains(&Reader::Compiler) && !found.named.dates_compared;
            let processes = may_be_run && !found.compiled_name_processes;
            if !dates && !processes {
                continue;
            }
            let text = whole(path);
            found.named.dates_compared |= dates && text.as_ref().is_none_or(|text| compares_dates(text));
            found.compiled_name_processes |= processes && text.as_ref().is_none_or(|text| compiled_names(text));
        }
        found.is_whole_command = may_be_run;
        if may_be_run {
            found.without_status = programs_without_status(run);
        }
        if matches!(command.family, Family::Command | Family::Generic) {
            let mut search = |text: &[u8]| found.search(text, &[Reader::Other], b"");
            search(&command.action.argv.join(&b' '));
            // Each argument may be a whole script, so they are also searched one per line.
            search(&command.action.argv.join(&b'\n'));
            search(command.input);
            told_to_shells(run).into_iter().for_each(&mut search);
            command.action.environment.iter().for_each(|variable| search(&variable.value));
            read.iter().for_each(|(path, by)| found.search_file(path, by));
            for (_, by) in read.iter().filter(|(path, by)| is_gone_python(path, by, run)) {
                found.add(Named { python_draws: true, ..Named::default() }, by);
            }
            found.computes_search_paths |= a_script_is_gone(run);
            let unpacked = if found.is_hidden { unpacked_and_gone(run) } else { HashSet::new() };
            let of_these = read.iter().filter(|(path, _)| unpacked.contains(path.as_slice()));
            of_these.for_each(|(_, by)| found.may_hold_anything(by));
            for text in given_to_shells(run) {
                found
                    .variables
                    .extend(words(text).filter(|name| is_search_path(name) || is_of_job(name)).map(<[u8]>::to_vec));
                found.named.shell_clocks |= times_commands(text);
                found.add_own(own_process(text, Signs::Number));
            }
        }
        if may_be_run {
            found.host_name = match found.names_host {
                true => HostName::Named,
                false if found.computes_search_paths || found.list_variables => HostName::Computed,
                false => HostName::Unused,
            };
        }
        found
    }

    /// Returns true, and notes it, if a compile may compare mtimes because of a pragma in a text.
    /// `inputs_do` says so for the files that are inputs. So only the others are read here, such as
    /// the `x.i` of `-save-temps`.
    pub fn find_dates(&mut self, inputs_do: bool, is_input: &dyn Fn(&[u8]) -> bool) -> bool {
        let mut others = self.compiled.iter().filter(|path| !is_input(path));
        let found = inputs_do && !self.compiled.is_empty()
            || others.any(|path| whole(path).is_none_or(|text| compares_dates(&text)));
        self.named.dates_compared = found;
        found
    }

    /// Returns the words that matter for the program of this file name.
    pub fn named(&self, program: &[u8]) -> Named {
        Language::of(program).map_or(self.named, |language| self.named | self.own[language as usize])
    }

    /// Returns true if no program of the command with this file name can ask for mtimes, inode
    /// numbers or owners of files.
    pub fn is_without_status(&self, program: &[u8]) -> bool {
        self.without_status.contains(program)
    }

    /// Returns false if inode numbers are mentioned only as in `configure`, which compares two of
    /// them. Otherwise a program may derive anything from them, and the result may be the same in
    /// two runs by chance.
    pub fn use_inodes(&self) -> bool {
        self.name_inodes != (true, false)
    }

    /// Returns the process ids that a script of the command may have read, and the inode numbers
    /// that were shown.
    pub fn numbers(&self, run: &RunModel, inodes: &BTreeSet<u64>) -> VolatileIds {
        let any = self.name_processes || self.compiled_name_processes && ran_what_names_processes(run);
        let OwnProcess { named, before, .. } = &self.own_process;
        let processes = if any || *named || !before.is_empty() { processes(run, any) } else { HashSet::new() };
        VolatileIds {
            processes: processes.into_iter().map(|number| number.to_string().into_bytes()).collect(),
            anywhere: any || *named,
            before: before.clone(),
            inodes: inodes.iter().map(|inode| inode.to_string().into_bytes()).collect(),
            printed: if self.is_whole_command { may_be_printed(run) } else { HashSet::new() },
        }
    }

    /// Searches a text. `by` are its readers, and `path` is its file, which may be empty.
    fn search(&mut self, text: &[u8], by: &[Reader], path: &[u8]) {
        let is_makefile = is_makefile(path);
        let holds = |words: &[&str]| contains_any(text, words);
        let named = Named {
            times: match by {
                [Reader::Script(Language::Perl)] => names_times_in_perl(text),
                _ => holds(TIME_WORDS),
            },
            shell_times: holds(SHELL_TIME_WORDS),
            shell_status: names_shell_status(text),
            sizes: names_sizes(text),
            // `time` is an ordinary English word, so it counts only in scripts.
            shell_clocks: names_shell_clocks(text) || text.starts_with(b"#!") && times_commands(text),
            // `rand(` is also C, so it counts only in texts that awk reads.
            awk_clocks: by.contains(&Reader::Script(Language::Awk)) && holds(AWK_WORDS),
            roff_clocks: holds(ROFF_WORDS),
            cmake_clocks: names_cmake_clocks(text),
            cmake_memory: holds(CMAKE_MEMORY_WORDS),
            clocks: holds(CLOCK_WORDS),
            hashes: holds(HASH_WORDS),
            perl_clocks: holds(PERL_CLOCK_WORDS),
            perl_hashes: holds(PERL_HASH_WORDS),
            // A compressed text may be code.
            python_draws: draws_numbers(text) || hides_its_text(text),
            zsh_clocks: names_zsh_clocks(text),
            memory: holds(MEMORY_WORDS),
            own_memory: holds(OWN_MEMORY_WORDS),
            dates_compared: false,
        };
        self.add(named, by);
        let own = match is_makefile || path.ends_with(b".ninja") && by == [Reader::Build] {
            true => own_process(text, Signs::One),
            false => own_process(text, Signs::Number),
        };
        // If another program than make reads a makefile, it may pass lines to a shell in which `$$`
        // is the process id. A template (`*.in`) is for make as well.
        let is_for_make = by == [Reader::Build] || path.ends_with(b".in");
        self.own_process.named |= is_makefile && !is_for_make && holds_own_process(text);
        self.add_own(own);
        let lists = !is_makefile && lists_shell_variables(text);
        self.list_variables = self.list_variables || lists || holds(LIST_OF_VARIABLES);
        if holds(DIRECTORY_BEFORE) || text.ends_with(b"cd -") {
            self.variables.insert(b"OLDPWD".to_vec());
        }
        self.name_processes = self.name_processes || lists || names_other_processes(text);
        match names_inodes(text) {
            Some(true) => self.name_inodes.0 = true,
            Some(false) => self.name_inodes.1 = true,
            None => {}
        }
        let names: HashSet<&[u8]> = words(text).collect();
        let is_meant = |name: &&[u8]| is_left_out(name) || is_search_path(name) || is_of_job(name);
        // `${PS1@P}` and prompts of an interactive shell show it as well.
        let is_host = |name: &&[u8]| matches!(*name, b"HOST" | b"HOSTNAME" | b"PS1" | b"PS4" | b"PROMPT");
        self.names_host |= names.iter().any(is_host) || contains(text, "@P}");
        self.variables.extend(names.into_iter().filter(is_meant).map(<[u8]>::to_vec));
        self.shows_ignored_signals |= shows_ignored_signals(text);
        self.computes_search_paths |= computes_search_paths(text);
    }

    fn add_own(&mut self, OwnProcess { named, before, alone, calculated }: OwnProcess) {
        let own = &mut self.own_process;
        (own.named, own.alone, own.calculated) = (own.named | named, own.alone | alone, own.calculated | calculated);
        own.before.extend(before);
    }

    fn add(&mut self, named: Named, by: &[Reader]) {
        for reader in by {
            match reader {
                Reader::Compiler | Reader::Linker => {}
                Reader::Build | Reader::Other => self.named = self.named | named,
                Reader::Script(language) => {
                    let own = &mut self.own[*language as usize];
                    *own = *own | named;
                }
            }
        }
    }

    fn search_file(&mut self, path: &[u8], by: &[Reader]) {
        if by.iter().all(Reader::compiles) {
            return;
        }
        match whole(path) {
            // Words in a program, an object or an archive of objects are not a script's.
            Some(bytes) if is_machine_code(&bytes) || is_metadata_of_crate(&bytes) => {}
            // Nor are words that compressed data contain by chance, such as `$$`. What is packed
            // counts if it is unpacked: see `unpacked_and_gone`.
            Some(bytes) if is_compressed(&bytes) => {
                self.is_hidden = true;
                self.add(Named { python_draws: true, ..Named::default() }, by);
            }
            Some(bytes) => {
                self.is_hidden |= hides_its_text(&bytes);
                self.search(&without_repeats(&bytes), by, path);
            }
            None => self.may_hold_anything(by),
        }
    }

    /// Notes a text that cannot be searched, so that it counts as if it held every word.
    fn may_hold_anything(&mut self, by: &[Reader]) {
        self.add(Named::ANYTHING, by);
        (self.name_processes, self.computes_search_paths, self.shows_ignored_signals) = (true, true, true);
        self.names_host = true;
        (self.own_process.named, self.own_process.alone) = (true, true);
        self.name_inodes.1 = true;
    }
}

/// Returns true for a program, an object file or an archive of objects.
fn is_machine_code(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF") || bytes.starts_with(b"!<arch>\n")
}

/// Returns true for a file `libx.rmeta` of rustc. A nested wrapper that answers a compile reports that
/// it read such files.
fn is_metadata_of_crate(bytes: &[u8]) -> bool {
    bytes.starts_with(b"rust\0\0\0")
}

/// Returns true if a text or object that a compiler read mentions a way to read process ids.
fn compiled_names(bytes: &[u8]) -> bool {
    if is_machine_code(bytes) { compiled_names_other_processes(bytes) } else { names_other_processes(bytes) }
}

/// Returns true if a text may contain a pragma with which gcc and clang compare the mtimes of two
/// files.
pub fn compares_dates(text: &[u8]) -> bool {
    contains_any(text, DATE_WORDS)
}

/// Returns the words of a text, as names of variables are.
fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| !is_in_word(*byte))
}

/// Returns the bytes of a file, or `None` if it is too large to be searched. A file that cannot be
/// read counts as empty.
fn whole(path: &[u8]) -> Option<Vec<u8>> {
    match larder_sys::read_at_most(path, TEXT_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(_) => Some(Vec::new()),
    }
}

/// Returns the ids of the processes that run scripts, or of all processes if `any` is true.
fn processes(run: &RunModel, any: bool) -> HashSet<u32> {
    let mut numbers = HashSet::from([larder_sys::process_id(), larder_sys::parent_process_id()]);
    for phase in &run.phases {
        let program = file_name(phase.running.program);
        // In what a shell forks, `$$` is still the shell's own id.
        if any || !runs_no_script(program) && (phase.began || !is_shell(program)) {
            numbers.insert(phase.pid);
        }
    }
    numbers
}

/// The kind of program that reads a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// It may compare mtimes because of a pragma in a text.
    Compiler,
    /// A linker, an assembler or rustc. No text makes it compare mtimes.
    Linker,
    /// An interpreter of one language.
    Script(Language),
    /// A build tool. It passes lines to shells after replacing `$$` by `$`.
    Build,
    /// A shell, or a program that may pass what it reads to one.
    Other,
}

impl Reader {
    fn compiles(&self) -> bool {
        matches!(self, Reader::Compiler | Reader::Linker)
    }
}

fn is_meson(kept: &[u8]) -> bool {
    arguments(kept).is_some_and(|words| runs_meson(&words.collect::<Vec<_>>()))
}

/// Returns the files that were read, each with its kinds of readers.
fn texts(run: &RunModel) -> HashMap<Vec<u8>, Vec<Reader>> {
    let mut found: HashMap<Vec<u8>, Vec<Reader>> = HashMap::new();
    for open in &run.opens {
        if open.flags.has(OpenFlags::READ) && !open.failed && open.is_regular && outside_the_system(open.path) {
            let running = run.opener(open);
            if is_standard_library(running.program, open.path) {
                continue;
            }
            let program = file_name(running.program);
            let reader = match Language::of(program) {
                _ if compares_no_dates(program) => Reader::Linker,
                _ if is_compiler_part(program) => Reader::Compiler,
                // Meson's language has no clock and no order that depends on a seed.
                Some(Language::Python) if is_meson(running.arguments) => Reader::Compiler,
                Some(language) => Reader::Script(language),
                None if is_build_tool(program) => Reader::Build,
                None => Reader::Other,
            };
            match found.get_mut(open.path) {
                Some(by) if by.contains(&reader) => {}
                Some(by) => by.push(reader),
                None => drop(found.insert(open.path.to_vec(), vec![reader])),
            }
        }
    }
    found
}

/// Returns true if a shell, a build tool or awk read a file that is gone, or if a shell or awk read one
/// that has changed since. The text that they read cannot be searched then. make reads dependency
/// files, which compilers replace.
fn a_script_is_gone(run: &RunModel) -> bool {
    let is_awk = |program: &[u8]| Language::of(program) == Some(Language::Awk);
    let reads = run.opens.iter().filter(|open| open.flags.has(OpenFlags::READ) && !open.failed && open.is_regular);
    let mut scripts = HashSet::new();
    for open in reads.filter(|open| outside_the_system(open.path)) {
        let program = file_name(run.opener(open).program);
        let is_one = is_shell(program) || is_awk(program);
        if is_one || is_build_tool(program) {
            scripts.insert((open.path, open.identity.filter(|_| is_one).map(version)));
        }
    }
    scripts.into_iter().any(|(path, then)| match larder_sys::stat(path) {
        Ok(now) => then.is_some_and(|then| then != (now.inode, now.size_bytes, now.modified_ns)),
        Err(_) => true,
    })
}

fn version(file: Identity) -> (u64, u64, i64) {
    (file.inode, file.size_bytes, file.modified_ns)
}

/// Returns the files that only shells read, to run them, among those for which `is_one` is true.
/// How their lines are split then does not matter.
pub fn run_by_shells_alone<'t>(run: &RunModel<'t>, is_one: fn(&[u8]) -> bool) -> HashSet<&'t [u8]> {
    let (mut scripts, mut read) = (HashSet::new(), HashSet::new());
    for open in run.opens.iter().filter(|open| open.flags.has(OpenFlags::READ) && is_one(open.path)) {
        let running = run.opener(open);
        let words = arguments(running.arguments).filter(|_| is_shell(file_name(running.program)));
        let script = words.and_then(|mut words| words.next()).filter(|word| is_one(word));
        let _ = if script.is_some() { scripts.insert(open.path) } else { read.insert(open.path) };
    }
    scripts.difference(&read).copied().collect()
}

/// Returns files that were unpacked from an archive, were read by a program that may run them, and
/// are gone.
fn unpacked_and_gone<'t>(run: &RunModel<'t>) -> HashSet<&'t [u8]> {
    let (mut unpacked, mut gone) = (HashSet::new(), HashSet::new());
    for open in &run.opens {
        let Some(file) = open.identity.map(|opened| opened.file_id()) else { continue };
        let program = file_name(run.opener(open).program);
        if open.flags.has(OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNCATE) {
            // The inode number of a deleted file may be used again.
            let _ = if unpacks(program) { unpacked.insert(file) } else { unpacked.remove(&file) };
        } else if unpacked.contains(&file) && !runs_no_script(program) && !is_compiler_part(program) {
            let now = larder_sys::stat(open.path);
            if !now.is_ok_and(|now| now.file_id() == file) {
                gone.insert(open.path);
            }
        }
    }
    gone
}

/// Returns true for code that Python ran, by its extension or as an argument, and that is gone, so
/// that it cannot be searched.
fn is_gone_python(path: &[u8], by: &[Reader], run: &RunModel) -> bool {
    let is_argument = |kept: &[u8]| {
        arguments(kept).is_none_or(|mut words| words.any(|word| !word.is_empty() && path.ends_with(word)))
    };
    by.contains(&Reader::Script(Language::Python))
        && larder_sys::lstat(path).is_err()
        && ([&b".py"[..], b".pyc"].iter().any(|end| path.ends_with(end))
            || run.starts.iter().any(|start| is_argument(start.arguments)))
}

/// Returns the scripts that programs outside of the system's packages passed to shells, which no
/// other text contains, and those that interpreters of other languages passed to shells. Texts that
/// only such an interpreter reads are not searched for what shells do.
fn told_to_shells<'t>(run: &RunModel<'t>) -> HashSet<&'t [u8]> {
    let shells = run.starts.iter().filter(|start| is_shell(file_name(start.program)));
    let passes = |starter: &[u8]| outside_the_system(starter) || Language::of(file_name(starter)).is_some();
    let told = shells.filter(|start| !start.starter.is_empty() && passes(start.starter));
    told.map(|start| start.arguments).collect()
}

/// Returns everything that shells were given to run. It includes what make and ninja made of their
/// input.
fn given_to_shells<'t>(run: &RunModel<'t>) -> HashSet<&'t [u8]> {
    let shells = run.starts.iter().filter(|start| is_shell(file_name(start.program)));
    shells
        .flat_map(|start| match arguments(start.arguments) {
            Some(words) => words.collect::<Vec<_>>(),
            None => vec![start.arguments],
        })
        .collect()
}
