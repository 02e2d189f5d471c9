//! Whether the times of files, or the numbers of processes, could reach a result by way of a script or an archive.
//!
//! Unaware of: what becomes of the answer.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use larder_compiler::{
    AWK_WORDS, CLOCK_WORDS, DATE_WORDS, DIRECTORY_BEFORE, Family, HASH_WORDS, LIST_OF_VARIABLES, Language,
    MEMORY_WORDS, Named, OWN_PROCESS, PERL_CLOCK_WORDS, PERL_HASH_WORDS, ROFF_WORDS, SHELL_TIME_WORDS, TIME_WORDS,
    calculates_with_own_process, compiled_names_other_processes, is_compiler_part, is_left_out, is_makefile, is_shell,
    lists_shell_variables, names_cmake_clocks, names_inodes, names_other_processes, names_own_process_alone,
    names_shell_clocks, runs_meson, runs_no_script,
};
use larder_lookup::Request;
use larder_observe::{Kind, OpenFlags, Trace, Who, arguments};

use crate::typed::file_name;

/// A text longer than this is not searched, and counts as if it named times. A makefile of automake's can have 95 MB
/// (curl's
/// `tests/libtest`).
const TEXT_BYTES_MAX: u64 = 256 << 20;
/// Where texts lie that come with the system: an interpreter's own library would name everything.
const SYSTEM: [&[u8]; 8] =
    [b"/usr/bin/", b"/usr/lib", b"/usr/share/", b"/usr/include/", b"/lib/", b"/lib64/", b"/bin/", b"/etc/"];

/// What the texts of a command hold by way of words.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts {
    /// Words by which scripts get at times, clocks, seeds and addresses, in texts that anybody may take for a script.
    named: Named,
    /// The same, of texts that only programs of one language read.
    own: [Named; Language::COUNT],
    /// A word by which scripts get at the number of their process.
    name_own_process: bool,
    /// The same, not as a part of a name.
    pub(crate) name_own_process_alone: bool,
    /// The same, in a calculation.
    pub(crate) calculate_with_own_process: bool,
    /// A word by which they get at those of others.
    name_processes: bool,
    /// What is compiled has such a word.
    compiled_name_processes: bool,
    /// Ways to the number of an inode: autoconf's, and others.
    name_inodes: (bool, bool),
    /// A way to all variables.
    pub(crate) list_variables: bool,
    /// Variables that are left out of the key, and are named here.
    pub(crate) variables: BTreeSet<Vec<u8>>,
}

impl Texts {
    /// Of the arguments of a command that is no compiler, of its standard input, and of what it read.
    pub(crate) fn of(request: &Request, trace: &Trace) -> Texts {
        let mut found = Texts::default();
        let read = texts(trace);
        let compiled = read.iter().filter(|(_, by)| by.contains(&Reader::Compiler));
        // A compiler that was called itself writes down no number that it does not read.
        let may_be_run = request.family == Family::Command;
        for (path, _) in compiled {
            let (dates, processes) = (!found.named.dates_compared, may_be_run && !found.compiled_name_processes);
            if !dates && !processes {
                break;
            }
            let text = whole(path);
            found.named.dates_compared |= dates && text.as_ref().is_none_or(|text| holds(text, DATE_WORDS));
            found.compiled_name_processes |= processes && text.as_ref().is_none_or(|text| compiled_names(text));
        }
        if matches!(request.family, Family::Command | Family::Generic) {
            let mut search = |text: &[u8]| found.search(text, &[Reader::Other], false);
            search(&request.action.argv.join(&b' '));
            // Each may be a whole script.
            search(&request.action.argv.join(&b'\n'));
            search(&request.input);
            told_to_shells(trace).into_iter().for_each(&mut search);
            request.action.environment.iter().for_each(|variable| search(&variable.value));
            read.iter().for_each(|(path, by)| found.search_file(path, by));
        }
        found
    }

    /// What concerns the program of this file name.
    pub(crate) fn named(&self, program: &[u8]) -> Named {
        Language::of(program).map_or(self.named, |language| self.named | self.own[language as usize])
    }

    /// A number of an inode that a program wrote down may come to anything, in two runs to the same.
    pub(crate) fn use_inodes(&self) -> bool {
        self.name_inodes != (true, false)
    }

    /// Numbers of processes that a script of the command could have been told, in digits.
    pub(crate) fn process_numbers(&self, trace: &Trace) -> HashSet<Vec<u8>> {
        let any = self.name_processes || self.compiled_name_processes;
        if !any && !self.name_own_process {
            return HashSet::new();
        }
        let mut numbers = HashSet::from([larder_sys::process_id(), larder_sys::parent_process_id()]);
        let mut who = Who::default();
        for event in trace.iter() {
            who.learn(&event);
            let program = file_name(who.runs(event.pid).program);
            // Shells hand their own number on to what they fork.
            if any || !runs_no_script(program) && (event.kind == Kind::Start || !is_shell(program)) {
                numbers.insert(event.pid);
            }
        }
        numbers.into_iter().map(|number| number.to_string().into_bytes()).collect()
    }

    fn search(&mut self, text: &[u8], by: &[Reader], is_makefile: bool) {
        let holds = |words: &[&str]| holds(text, words);
        let named = Named {
            times: holds(TIME_WORDS),
            shell_times: holds(SHELL_TIME_WORDS),
            shell_clocks: names_shell_clocks(text),
            // What others read of C that is called so (`rand(`) is no script of awk's.
            awk_clocks: by.contains(&Reader::Script(Language::Awk)) && holds(AWK_WORDS),
            roff_clocks: holds(ROFF_WORDS),
            cmake_clocks: names_cmake_clocks(text),
            clocks: holds(CLOCK_WORDS),
            hashes: holds(HASH_WORDS),
            perl_clocks: holds(PERL_CLOCK_WORDS),
            perl_hashes: holds(PERL_HASH_WORDS),
            memory: holds(MEMORY_WORDS),
            dates_compared: false,
        };
        self.add(named, by);
        self.name_own_process = self.name_own_process || holds(OWN_PROCESS);
        self.name_own_process_alone = self.name_own_process_alone || names_own_process_alone(text, is_makefile);
        self.calculate_with_own_process |= calculates_with_own_process(text, is_makefile);
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
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let names: HashSet<&[u8]> = text.split(|byte| !is_part(byte)).collect();
        self.variables.extend(names.into_iter().filter(|name| is_left_out(name)).map(<[u8]>::to_vec));
    }

    fn add(&mut self, named: Named, by: &[Reader]) {
        for reader in by {
            match reader {
                Reader::Compiler => {}
                Reader::Other => self.named = self.named | named,
                Reader::Script(language) => {
                    let own = &mut self.own[*language as usize];
                    *own = *own | named;
                }
            }
        }
    }

    fn search_file(&mut self, path: &[u8], by: &[Reader]) {
        if by == [Reader::Compiler] {
            return;
        }
        let Ok(file) = File::open(Path::new(OsStr::from_bytes(path))) else { return };
        let mut bytes = Vec::new();
        match file.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes) {
            // The words of a program, or of an archive of such, are no script's.
            Ok(_) if is_machine_code(&bytes) => {}
            Ok(count) if count as u64 <= TEXT_BYTES_MAX => self.search(&bytes, by, is_makefile(path)),
            _ => {
                self.add(Named::ANYTHING, by);
                self.name_processes = true;
                self.name_own_process_alone = true;
                self.name_inodes.1 = true;
            }
        }
    }
}

/// A program, an object file, or an archive of such.
fn is_machine_code(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF") || bytes.starts_with(b"!<arch>\n")
}

/// Whether what a compiler read names a way to the numbers of processes.
fn compiled_names(bytes: &[u8]) -> bool {
    if is_machine_code(bytes) { compiled_names_other_processes(bytes) } else { names_other_processes(bytes) }
}

fn holds(text: &[u8], words: &[&str]) -> bool {
    words.iter().any(|word| memchr::memmem::find(text, word.as_bytes()).is_some())
}

/// None where it is too long to be searched.
fn whole(path: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let Ok(file) = File::open(Path::new(OsStr::from_bytes(path))) else { return Some(bytes) };
    let count = file.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
    (count as u64 <= TEXT_BYTES_MAX).then_some(bytes)
}

/// Whether a text holds one of these numbers, by itself.
pub(crate) fn holds_a_number(text: &[u8], numbers: &HashSet<Vec<u8>>) -> bool {
    // The longest is that of an inode.
    let runs = text.split(|byte| !byte.is_ascii_digit()).filter(|run| (1..=20).contains(&run.len()));
    let is_one = |run: &[u8]| {
        let zeros = run.iter().take_while(|digit| **digit == b'0').count();
        numbers.contains(&run[zeros.min(run.len() - 1)..])
    };
    runs.into_iter().any(is_one)
}

/// Who reads a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    Compiler,
    /// One that runs scripts of its own language only.
    Script(Language),
    /// A shell, or one that hands on what it reads.
    Other,
}

fn is_meson(kept: &[u8]) -> bool {
    arguments(kept).is_some_and(|words| runs_meson(&words.collect::<Vec<_>>()))
}

/// Texts that were read, and by whom.
fn texts(trace: &Trace) -> HashMap<Vec<u8>, Vec<Reader>> {
    let mut who = Who::default();
    let mut found: HashMap<Vec<u8>, Vec<Reader>> = HashMap::new();
    for event in trace.iter() {
        who.learn(&event);
        let opened = matches!(event.kind, Kind::Open(flags) if flags.has(OpenFlags::READ));
        if opened && event.error == 0 && event.mode >> 12 == 0o10 && outside_the_system(event.path) {
            let program = who.runs(event.pid).program;
            let program = program.rsplit(|&b| b == b'/').next().unwrap_or(program);
            let reader = match Language::of(program) {
                _ if is_compiler_part(program) => Reader::Compiler,
                // In its language there are no clocks and no order that hangs on a seed.
                Some(Language::Python) if is_meson(who.runs(event.pid).arguments) => Reader::Compiler,
                Some(language) => Reader::Script(language),
                None => Reader::Other,
            };
            match found.get_mut(event.path) {
                Some(by) if by.contains(&reader) => {}
                Some(by) => by.push(reader),
                None => drop(found.insert(event.path.to_vec(), vec![reader])),
            }
        }
    }
    found
}

/// What programs that do not come with the system had shells run: no other text holds it.
fn told_to_shells(trace: &Trace) -> HashSet<&[u8]> {
    let mut who = Who::default();
    let mut told = HashSet::new();
    for event in trace.iter() {
        if event.kind == Kind::Start && is_shell(file_name(event.path)) {
            // A process that was no other's child before runs another program from now on.
            let parent = if event.extra == 0 { event.pid } else { event.extra };
            let program = who.runs(parent).program;
            if !program.is_empty() && outside_the_system(program) {
                told.insert(event.path2);
            }
        }
        who.learn(&event);
    }
    told
}

/// Whether a file does not come with the system.
fn outside_the_system(path: &[u8]) -> bool {
    !SYSTEM.iter().any(|system| path.starts_with(system))
}

/// Whether the archive at `path` was written without times and owners: `ar`'s member headers are text, the time 12
/// characters from the 16th on, then owner and group, 6 each (System V's `ar.h`).
pub(crate) fn archive_has_none(path: &[u8]) -> bool {
    members_have_none(path).unwrap_or(false)
}

fn members_have_none(path: &[u8]) -> io::Result<bool> {
    const HEADER_BYTES: usize = 60;
    let mut file = File::open(Path::new(OsStr::from_bytes(path)))?;
    let mut magic = [0; 8];
    file.read_exact(&mut magic)?;
    let thin = &magic == b"!<thin>\n";
    if &magic != b"!<arch>\n" && !thin {
        return Ok(false);
    }
    let mut header = [0; HEADER_BYTES];
    loop {
        match file.read_exact(&mut header) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(true),
            Err(error) => return Err(error),
        }
        let field = |from: usize, to: usize| std::str::from_utf8(&header[from..to]).unwrap_or("?").trim_end();
        if ![field(16, 28), field(28, 34), field(34, 40)].iter().all(|number| matches!(*number, "" | "0")) {
            return Ok(false);
        }
        let own_bytes = !thin || header[0] == b'/' && !header[1].is_ascii_digit();
        let size = field(48, 58).parse::<u32>().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        if own_bytes {
            file.seek(SeekFrom::Current(i64::from(size) + i64::from(size % 2)))?;
        }
    }
}
