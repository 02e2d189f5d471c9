//! Looks into the files of plugins and procedural macros for the names of what they use. They run in
//! the process of a compiler, and the preloaded library does not see all that they ask for.
//!
//! Unaware of: what they asked for by calls that the library sees.

use std::collections::BTreeSet;
use std::fs::File;

use larder_compiler::{is_rustc, may_load_plugins};
use larder_model::path::file_name;
use larder_model::{Unrecorded, contains, contains_any};
use larder_observe::{Folded, imported_symbols, linked_names, own_symbols};
use larder_sys::Opening;

use super::entry::Run;
use super::not_recorded::NotRecorded;

/// Symbols by which code can read all variables without a call that we see.
const LISTS_VARIABLES: [&[u8]; 3] = [b"environ", b"__environ", b"_environ"];
/// Functions whose results differ from run to run.
const DIFFER: [&[u8]; 2] = [b"getpid", b"getppid"];
/// Parts of the mangled names of `std::env::args` and `std::env::args_os`, by which a macro reads
/// the command line without a call that we see.
const READ_ARGUMENTS: [&[u8]; 2] = [b"3std3env4args", b"3std3env7args_os"];
/// Functions and variables of libc and the loader by which a macro learns the path of its own file, or
/// reaches the command line.
const LEARN_PATHS: [&[u8]; 9] = [
    b"__libc_stack_end",
    b"_dl_argv",
    b"_dl_find_object",
    b"_r_debug",
    b"backtrace_symbols",
    b"backtrace_symbols_fd",
    b"dladdr",
    b"dladdr1",
    b"dlinfo",
];
/// A part of the mangled name of `proc_macro::Span::local_file`, which returns the path of a source as
/// it is on this machine.
const TELL_SOURCE: &[u8] = b"4Span10local_file";
/// Functions that tell something about the machine or the process which we do not observe, and libc's
/// stream of standard input.
const UNOBSERVED: [&[u8]; 35] = [
    b"clock",
    b"fstatfs",
    b"fstatfs64",
    b"fstatvfs",
    b"fstatvfs64",
    b"get_nprocs",
    b"get_nprocs_conf",
    b"getchar",
    b"getchar_unlocked",
    b"getegid",
    b"geteuid",
    b"getgid",
    b"getgroups",
    b"getloadavg",
    b"getlogin",
    b"getlogin_r",
    b"getpriority",
    b"getpwnam",
    b"getpwnam_r",
    b"getpwuid",
    b"getpwuid_r",
    b"getrlimit",
    b"getrlimit64",
    b"getrusage",
    b"getuid",
    b"scanf",
    b"sched_getaffinity",
    b"sched_getcpu",
    b"statfs",
    b"statfs64",
    b"statvfs",
    b"statvfs64",
    b"stdin",
    b"sysinfo",
    b"times",
];

/// Directories of libraries of the system.
const SYSTEM: [&[u8]; 5] = [b"/gnu/", b"/lib", b"/nix/", b"/opt/", b"/usr/lib"];

impl Run<'_> {
    /// Adds what plugins of gcc and clang, and procedural macros, may use without a call that we
    /// see. A library of the system that a plugin links counts only by its calls: the C++ library
    /// takes the number of processors from libc for plugins that never ask for it.
    pub(super) fn add_uses_of_plugins(&self, folded: &mut Folded) -> Result<(), NotRecorded> {
        let is_compilers = |program: &[u8]| is_rustc(file_name(program)) || may_load_plugins(file_name(program));
        let late = self.model.plugins.iter().filter(|(program, _)| is_compilers(program));
        let late: BTreeSet<(&[u8], &[u8])> = late.copied().collect();
        let mut linked: Option<Vec<Vec<u8>>> = None;
        for &(program, path) in &late {
            let not_read = || NotRecorded::Because(Unrecorded::InputChanged, path.to_vec());
            let file = opened(path).ok_or_else(not_read)?;
            let of_rustc = is_rustc(file_name(program));
            if !of_rustc && SYSTEM.iter().any(|directory| path.starts_with(directory)) {
                let linked = linked.get_or_insert_with(|| {
                    late.iter().filter_map(|(_, path)| opened(path)).filter_map(|file| linked_names(&file)).collect()
                });
                let name = [b"\0", file_name(path), b"\0"].concat();
                if linked.iter().any(|names| contains(names, &name)) {
                    continue;
                }
            }
            let symbols = imported_symbols(&file).ok_or_else(not_read)?;
            if of_rustc {
                let own = own_symbols(&file);
                // Without a table we cannot tell.
                let may_use = |parts: &[&[u8]]| own.as_ref().is_none_or(|names| contains_any(names, parts));
                folded.reads_arguments_late |= may_use(&READ_ARGUMENTS);
                folded.asks_directory_late |= may_use(&[TELL_SOURCE]);
            }
            let imports = |names: &[&[u8]]| symbols.iter().any(|symbol| names.contains(&&symbol[..]));
            if imports(&UNOBSERVED) {
                return Err(NotRecorded::Because(Unrecorded::NotObserved, path.to_vec()));
            }
            folded.reads_arguments_late |= of_rustc && imports(&LEARN_PATHS);
            if imports(&LISTS_VARIABLES) {
                folded.foreign_program.get_or_insert_with(|| path.to_vec());
            }
            if imports(&DIFFER) {
                folded.chance_program.get_or_insert_with(|| path.to_vec());
            }
        }
        Ok(())
    }
}

fn opened(path: &[u8]) -> Option<File> {
    larder_sys::open(path, Opening::Read).ok()
}
