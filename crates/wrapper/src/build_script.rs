//! The launchers of build scripts, for the setting `rust_build_scripts`.
//!
//! cargo has no hook for the *run* of a build script: it links the program that rustc made to
//! `build-script-build` in the same directory, and starts that. So after such a compile:
//!
//! 1. The program gets a second name beside it, `build_script_build-0123456789abcdef.larder`.
//! 2. A launcher with the program's mtime and mode is renamed over the program. It is a text file:
//!
//!    ```text
//!    #!/usr/local/bin/larder --run-build-script
//!    program: build_script_build-0123456789abcdef.larder
//!    ```
//!
//! The kernel then starts larder itself with the launcher's path. No shell is involved, because a
//! shell drops variables whose names are no identifiers, such as `DEP_X_core:window`. cargo compares
//! mtimes, so a link to larder would not do.
//!
//! Nothing here is recorded: the store has the program that rustc made. A launcher stays right if the
//! setting is switched off, because it then runs the program.
//!
//! Unaware of: how the run of a build script is cached.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

use larder_compiler::{CrateKind, Family, crate_kind, is_masquerade_name, rust};
use larder_lookup::Place;
use larder_model::path::{absolute, file_name, join, parent};
use larder_sys::{FileType, as_path};

use crate::request_context::RequestContext;
use crate::run::parent_run;

/// The option with which a launcher starts larder. The path of the launcher follows.
pub(crate) const OPTION: &[u8] = b"--run-build-script";

/// The ending of the second name of the program.
const ENDING: &[u8] = b".larder";
/// The line of a launcher that names the program.
const NAMES: &[u8] = b"\nprogram: ";
/// How many bytes of the first line the kernel reads. Before Linux 5.1 it cut longer lines.
const FIRST_LINE_MAX: usize = 126;
/// Launchers are smaller than this, in bytes.
const LAUNCHER_BYTES_MAX: u64 = 4096;

/// Puts a launcher in the place of the build script that this command compiled. Does nothing if the
/// setting is off or the command compiled something else. If a step fails, the program stays where it
/// is.
pub(crate) fn launch_by_larder(RequestContext { context, request, .. }: RequestContext) {
    // A run that contains this one does not expect that larder changes the output.
    if !context.loaded.settings.run_build_scripts || request.family != Family::Rustc || parent_run::is_around() {
        return;
    }
    if let Some(program) = compiled(&request.action.argv[1..], &context.place) {
        let _ = put_launcher(&program);
    }
}

/// Returns the program of a build script that cargo compiles by these arguments, which do not contain
/// `argv[0]`. A program, test or example may be called `build_script_x` as well, but only a build
/// script is compiled into a directory such as `build/PACKAGE-0123456789abcdef`.
fn compiled(arguments: &[Vec<u8>], place: &Place) -> Option<Vec<u8>> {
    let named = rust(arguments);
    let is_by_cargo =
        place.variable(b"CARGO_CRATE_NAME") == Some(named.crate_name) && place.variable(b"CARGO_BIN_NAME").is_none();
    if crate_kind(arguments) != CrateKind::BuildScript || !is_by_cargo || !named.outputs.is_empty() {
        return None;
    }
    let directory = absolute(&place.cwd, named.out_dir?);
    let package = file_name(&directory).strip_prefix(place.variable(b"CARGO_PKG_NAME")?)?;
    let is_of_build_scripts = package.starts_with(b"-") && file_name(parent(&directory)?) == b"build";
    is_of_build_scripts.then(|| join(&directory, &named.stem()))
}

/// Gives the program its second name, and puts the launcher in its place.
fn put_launcher(program: &[u8]) -> io::Result<()> {
    let Some(first_line) = first_line()? else { return Ok(()) };
    let stat = larder_sys::lstat(program)?;
    if stat.kind != FileType::File || !is_elf(program)? {
        return Ok(());
    }
    let second = [program, ENDING].concat();
    let temporary = [&second[..], format!(".{}", larder_sys::process_id()).as_bytes()].concat();
    let placed = (|| {
        let modified = fs::metadata(as_path(program))?.modified()?;
        let text = [&first_line[..], NAMES, file_name(&second), b"\n"].concat();
        // Each file is complete before it gets its name, so cargo finds either of both at any time.
        fs::hard_link(as_path(program), as_path(&temporary))?;
        fs::rename(as_path(&temporary), as_path(&second))?;
        let mut launcher = OpenOptions::new().write(true).create_new(true).mode(0o700).open(as_path(&temporary))?;
        launcher.write_all(&text)?;
        launcher.set_permissions(Permissions::from_mode(stat.mode & 0o777))?;
        launcher.set_modified(modified)?;
        drop(launcher);
        fs::rename(as_path(&temporary), as_path(program))
    })();
    if placed.is_err() {
        let _ = fs::remove_file(as_path(&temporary));
    }
    placed
}

/// Returns the first line of a launcher, or `None` if the kernel could not start larder by it.
fn first_line() -> io::Result<Option<Vec<u8>>> {
    let (path, stat) = larder_sys::own_program()?;
    let line = [b"#!", &path[..], b" ", OPTION].concat();
    // A program that was removed meanwhile has a path that leads elsewhere.
    let is_here = larder_sys::stat(&path).is_ok_and(|there| there.file_id() == stat.file_id());
    let is_plain = path.starts_with(b"/") && !path.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0);
    // Under a compiler's name, larder would take the option for one of the compiler.
    let starts = is_here && is_plain && line.len() <= FIRST_LINE_MAX && !is_masquerade_name(file_name(&path));
    Ok(starts.then_some(line))
}

/// Returns true if the file is a program and not, for example, an earlier launcher.
fn is_elf(path: &[u8]) -> io::Result<bool> {
    let mut start = [0; 4];
    let count = std::os::unix::fs::FileExt::read_at(&File::open(as_path(path))?, &mut start, 0)?;
    Ok(start[..count] == *b"\x7fELF")
}

/// Returns the program of a launcher.
pub(crate) fn program_of(launcher: &[u8]) -> io::Result<Vec<u8>> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "is no launcher of a build script");
    let text = larder_sys::read_at_most(launcher, LAUNCHER_BYTES_MAX)?.ok_or_else(damaged)?;
    let name = named(&text).ok_or_else(damaged)?;
    Ok(join(parent(launcher).unwrap_or(b"."), name))
}

/// Returns the program's name in the text of a launcher.
fn named(text: &[u8]) -> Option<&[u8]> {
    let at = memchr::memmem::find(text, NAMES)? + NAMES.len();
    let name = text[at..].strip_suffix(b"\n")?;
    (name.ends_with(ENDING) && !name.contains(&b'/') && !name.contains(&b'\n')).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn texts_of_launchers() {
        assert_eq!(named(b"#!/a --b\nprogram: x-1.larder\n"), Some(&b"x-1.larder"[..]));
        for text in [
            &b""[..],
            b"#!/a --b\n",
            b"#!/a\nprogram: x-1.larder",
            b"#!/a\nprogram: ../x.larder\n",
            b"#!/a\nprogram: x\n",
            b"#!/a\nprogram: x.larder\nmore.larder\n",
        ] {
            assert_eq!(named(text), None, "{}", String::from_utf8_lossy(text));
        }
    }
}
