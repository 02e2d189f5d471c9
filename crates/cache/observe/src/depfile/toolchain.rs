//! The programs behind a compiler driver: which they are, where else they would have been looked
//! up, and their libraries.
//!
//! Unaware of: sources and headers.

use larder_model::DepfilePlan;
use larder_model::path::{absolute, file_name, join, parent};
use larder_spawn::Command;
use larder_sys::Opening;
use object::elf::{FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, ReadCache};

use super::looks::{Looks, PathKind};
use super::query::{Search, ask, libraries};
use super::reason::{Reason, text};
use crate::{Program, inspect_program};

/// The programs that later steps need.
pub(super) struct Programs {
    /// The program that writes the object file.
    pub(super) writer: Vec<u8>,
}

/// Stats every program of the toolchain, and every place before it where it could have been.
pub(super) fn programs(
    plan: &DepfilePlan,
    command: &Command,
    search: &Search,
    looks: &mut Looks,
) -> Result<Programs, Reason> {
    let tool = absolute(&plan.cwd, &command.program);
    program(&search.compiler, command, looks)?;
    if plan.clang {
        program(&tool, command, looks)?;
        clang(&tool, search, looks)?;
        return Ok(Programs { writer: search.compiler.clone() });
    }
    if search.installed.is_some() {
        return Err(format!("{}: this is clang under a name of gcc", text(&tool)));
    }
    program(&tool, command, looks)?;
    let directories = gcc_directories(plan, command, looks)?;
    let (answer, _) = ask(plan, &command.program, command, &[b"-print-prog-name=as"], true)?;
    let target_assembler = [&search.target[..], b"-as"].concat();
    let places = Places { directories: &directories, target_assembler: &target_assembler };
    let assembler = assembler(plan, answer.trim_ascii_end(), &places, command, looks)?;
    program(&assembler, command, looks)?;
    Ok(Programs { writer: assembler })
}

/// Reads a program and the libraries that its loader loads.
fn program(path: &[u8], command: &Command, looks: &mut Looks) -> Result<(), Reason> {
    if !matches!(looks.look(path)?, PathKind::File(..)) {
        return Err(format!("{}: not a program", text(path)));
    }
    let (kind, script) = inspect_program(path);
    if script {
        return Err(format!("{}: a script, not a program", text(path)));
    }
    if matches!(kind, Program::Dynamic { .. }) {
        for library in libraries(path, command)? {
            looks.look(&library)?;
        }
    } else if !is_static(path) {
        return Err(format!("{}: the libraries of this program cannot be determined", text(path)));
    }
    Ok(())
}

/// Returns true if a 64-bit ELF program needs no loader.
fn is_static(path: &[u8]) -> bool {
    let Ok(file) = larder_sys::open(path, Opening::Read) else { return false };
    let cache = ReadCache::new(file);
    let Ok(header) = FileHeader64::<Endianness>::parse(&cache) else { return false };
    let Ok(endian) = header.endian() else { return false };
    let segments = header.program_headers(endian, &cache).unwrap_or_default();
    !segments.is_empty() && segments.iter().all(|segment| segment.p_type(endian) != PT_INTERP)
}

/// Returns the directories in which gcc looks for programs. Refuses if one of them has a specs
/// file. (If gcc has read one already, `query` has refused.)
fn gcc_directories(plan: &DepfilePlan, command: &Command, looks: &mut Looks) -> Result<Vec<Vec<u8>>, Reason> {
    let (answer, _) = ask(plan, &command.program, command, &[b"-print-search-dirs"], true)?;
    let line = |start: &[u8]| -> Vec<Vec<u8>> {
        let line = answer.split(|&b| b == b'\n').find_map(|line| line.strip_prefix(start));
        line.map(|line| line.split(|&b| b == b':').map(<[u8]>::to_vec).collect()).unwrap_or_default()
    };
    let (programs, libraries) = (line(b"programs: ="), line(b"libraries: ="));
    if programs.is_empty() || libraries.is_empty() {
        return Err("the answer to -print-search-dirs was not understood".to_owned());
    }
    let proper: &[u8] = if plan.cxx { b"cc1plus" } else { b"cc1" };
    for directory in programs.iter().chain(&libraries) {
        looks.look(directory.strip_suffix(b"/").unwrap_or(directory))?;
        if looks.look(&join(directory, b"specs"))? != PathKind::Absent {
            return Err(format!("{}/specs: a specs file", text(directory)));
        }
    }
    for directory in &programs {
        looks.look(&join(directory, proper))?;
    }
    Ok(programs)
}

/// Returns the assembler that gcc runs. gcc looks for the target's assembler before the plain one,
/// first in its own directories and then in those of `PATH`. All candidates are read. The last one
/// is the one that gcc's answer (`named`) names.
fn assembler(
    plan: &DepfilePlan,
    named: &[u8],
    places: &Places,
    command: &Command,
    looks: &mut Looks,
) -> Result<Vec<u8>, Reason> {
    if named.contains(&b'/') {
        for directory in places.directories {
            looks.look(&absolute(directory, places.target_assembler))?;
            looks.look(&join(directory, b"as"))?;
        }
        return Ok(absolute(&plan.cwd, named));
    }
    for name in [places.target_assembler, named] {
        if places.directories.iter().any(|directory| looks.look(&absolute(directory, name)) != Ok(PathKind::Absent)) {
            return Err("gcc's own directories have an assembler, but gcc does not name it".to_owned());
        }
        if let Some(found) = along_path(plan, name, command, looks)? {
            program(&found, command, looks)?;
        }
    }
    along_path(plan, named, command, looks)?.ok_or_else(|| format!("{}: PATH has no such assembler", text(named)))
}

/// Where gcc looks for its assembler.
struct Places<'a> {
    directories: &'a [Vec<u8>],
    target_assembler: &'a [u8],
}

/// Returns the first program of this name in the directories of `PATH`.
fn along_path(
    plan: &DepfilePlan,
    name: &[u8],
    command: &Command,
    looks: &mut Looks,
) -> Result<Option<Vec<u8>>, Reason> {
    let path = command.environment.iter().find_map(|variable| variable.strip_prefix(b"PATH="));
    let Some(path) = path else { return Ok(None) };
    for directory in path.split(|&b| b == b':') {
        let candidate = absolute(&absolute(&plan.cwd, directory), name);
        let executable = || larder_sys::stat(&candidate).is_ok_and(|stat| stat.mode & 0o111 != 0);
        if matches!(looks.look(&candidate)?, PathKind::File(..)) && executable() {
            return Ok(Some(candidate));
        }
    }
    Ok(None)
}

/// The paths by which clang finds out which distribution it runs on, and which compilers are
/// installed beside the system's.
const DISTRIBUTION: [&[u8]; 8] = [
    b"/opt",
    b"/opt/rh",
    b"/etc/env.d/gcc",
    b"/etc/lsb-release",
    b"/etc/os-release",
    b"/etc/redhat-release",
    b"/etc/debian_version",
    b"/etc/SuSE-release",
];

/// Reads what clang's driver reads to find the newest GCC, whose headers and libstdc++ it then
/// uses. Refuses if there is a configuration file. Because directories are listed, a GCC that is
/// installed or removed later invalidates the record.
fn clang(tool: &[u8], search: &Search, looks: &mut Looks) -> Result<(), Reason> {
    const LIBRARIES: [&[u8]; 4] = [b"lib", b"lib64", b"lib32", b"libx32"];
    let installed = search.installed.clone().ok_or("clang does not say where it is installed")?;
    let real = parent(&search.compiler).unwrap_or(b".").to_vec();
    let prefixes = [join(&installed, b".."), join(&real, b".."), b"/usr".to_vec(), b"/".to_vec()];
    for prefix in &prefixes {
        for library in LIBRARIES {
            let library = join(prefix, library);
            for directory in [&b"gcc"[..], b"gcc-cross"] {
                installations(&join(&library, directory), looks)?;
            }
        }
        looks.list(&join(prefix, b"include/c++"))?;
    }
    for path in DISTRIBUTION {
        looks.list(path)?;
    }
    for installation in &search.installations {
        looks.list(installation)?;
        let above = absolute(&join(installation, b"../../../.."), &search.target);
        looks.look(&above)?;
    }
    configurations(tool, &[&[installed, real], &search.configurations[..]].concat(), search, looks)
}

/// Lists a directory that has a directory for each target, and each of those, which have one for
/// each version.
fn installations(directory: &[u8], looks: &mut Looks) -> Result<(), Reason> {
    looks.list(directory)?;
    let Ok(open) = larder_sys::Dir::open(directory, false) else { return Ok(()) };
    for (target, _) in open.names().map_err(|error| format!("{}: {error}", text(directory)))? {
        looks.list(&join(directory, &target))?;
    }
    Ok(())
}

fn configurations(tool: &[u8], places: &[Vec<u8>], search: &Search, looks: &mut Looks) -> Result<(), Reason> {
    let names = [file_name(tool), b"clang", b"clang++", b"clang-cpp", &search.target];
    for place in places {
        for name in names {
            for name in [[name, b".cfg"].concat(), [&search.target, &b"-"[..], name, b".cfg"].concat()] {
                let path = absolute(place, &name);
                if looks.look(&path)? != PathKind::Absent {
                    return Err(format!("{}: a configuration file", text(&path)));
                }
            }
        }
    }
    Ok(())
}
