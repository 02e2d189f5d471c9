//! A crate that rustc compiles: the roots of its paths, and whether rustc has a session of it.
//!
//! cargo's target directory is a root. The working directory is none by default, because rustc puts
//! it into the hash of the crate: the same crate has other bytes in another checkout. cargo compiles
//! the crates of a registry in the directory of their sources, which all checkouts of a machine
//! share.
//!
//! With the setting `rust_paths = "remap"`, rustc is told to replace the paths of both directories
//! ([`remapped`]), and both are roots.
//!
//! Unaware of: what a result holds.

use larder_compiler::{Family, REMAP, Rust};
use larder_model::Roots;
use larder_model::path::{absolute, has_parents};

use crate::{Place, Tool};

/// Files that cargo writes into the target directory.
const TOPS: [&[u8]; 2] = [b"/CACHEDIR.TAG", b"/.rustc_info.json"];
/// How many levels the outputs lie below the target directory, at most: for example,
/// `TARGET/x86_64-unknown-linux-gnu/debug/build/a-1f`.
const LEVELS_MAX: usize = 5;

/// Returns what the command line names. `argv` contains `argv[0]`.
pub(crate) fn named(argv: &[Vec<u8>]) -> Rust<'_> {
    larder_compiler::rust(&argv[1..])
}

/// The path that stands for the target directory if paths are remapped, as in cargo's own
/// `trim-paths`.
const TARGET_DIRECTORY: &[u8] = b"/cargo/build-dir";

/// Returns the command line with options that make rustc replace the paths of the working directory
/// and of the target directory, if the setting `rust_paths` says so and `argv` starts rustc.
///
/// The options come first, so those that the caller gives are stronger. The working directory
/// becomes `.` if the source is named relative to it, as for a crate of a workspace. Otherwise it is
/// the directory of a package from elsewhere, and becomes `NAME-VERSION`.
pub fn remapped(mut argv: Vec<Vec<u8>>, tool: &Tool, place: &Place) -> Vec<Vec<u8>> {
    if !place.roots.remap_rust || tool.family(&argv) != Some(Family::Rustc) {
        return argv;
    }
    let rust = named(&argv);
    if matches!(rust.source, b"" | b"-") {
        return argv;
    }
    let variable = |name: &[u8]| place.variable(name).filter(|value| !value.is_empty());
    let package = variable(b"CARGO_PKG_NAME").zip(variable(b"CARGO_PKG_VERSION"));
    let to = match package.filter(|_| rust.source.starts_with(b"/")) {
        Some((name, version)) => [name, b"-", version].concat(),
        None => b".".to_vec(),
    };
    let option = |from: &[u8], to: &[u8]| [REMAP, from, b"=", to].concat();
    let mut options = vec![option(&place.cwd, &to)];
    let target = rust.out_dir.map(|directory| absolute(&place.cwd, directory));
    options.extend(target.as_deref().and_then(target_directory).map(|from| option(from, TARGET_DIRECTORY)));
    let at = 1 + larder_compiler::words_before_options(&argv[1..]);
    argv.splice(at..at, options);
    argv
}

/// Returns the target directory, and also the working directory if its path is remapped.
///
/// A path with other characters than those below may be written in another form, for example in a
/// dependency file or in JSON. It is no root then, so results stay in this directory.
///
/// If the path of the target directory has `..` in it, its real path is a root as well, because rustc
/// and the C library resolve some paths. Other outputs with `..` stay in this directory.
pub(crate) fn roots(rust: &Rust, place: &Place) -> Roots {
    let cwd = &place.cwd;
    let is_plain = |path: &Vec<u8>| path.iter().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+@,~".contains(byte));
    let top = rust.out_dir.map(|directory| absolute(cwd, directory));
    let top = top.and_then(|directory| target_directory(&directory).map(<[u8]>::to_vec));
    let real = top.as_ref().filter(|top| has_parents(top)).map(|top| real_path(top).filter(is_plain));
    let is_resolved = top.is_some() && real != Some(None);
    let climbs = rust.out_dir.is_some_and(has_parents) && !is_resolved;
    if climbs || rust.outputs.iter().any(|path| has_parents(path)) {
        return Roots::default();
    }
    let remapped = place.roots.remap_rust.then(|| cwd.clone());
    Roots::new(top.into_iter().chain(remapped).chain(real.flatten()).filter(is_plain))
}

fn real_path(directory: &[u8]) -> Option<Vec<u8>> {
    larder_sys::Dir::open(directory, false).and_then(|directory| directory.real_path()).ok()
}

/// Returns true if the path is in a target directory of cargo.
pub fn is_in_target_directory(path: &[u8]) -> bool {
    target_directory(path).is_some()
}

fn target_directory(out_dir: &[u8]) -> Option<&[u8]> {
    let mut level = out_dir;
    for _ in 0..LEVELS_MAX {
        let at = level.iter().rposition(|&byte| byte == b'/').filter(|at| *at > 0)?;
        // `TARGET/..` is another directory.
        if &level[at..] == b"/.." || level[..at].ends_with(b"/..") {
            return None;
        }
        level = &level[..at];
        if TOPS.iter().any(|name| larder_sys::lstat(&[level, name].concat()).is_ok()) {
            return Some(level);
        }
    }
    None
}

/// Returns true if rustc has compiled the crate into this directory and kept a session for
/// incremental compilation. It then compiles less than a recording run would.
///
/// A session without the crate's dependency file is one of another crate of that name, or of a
/// compile that failed. A result that a session had a part in is not recorded (`record` in the
/// wrapper).
pub(crate) fn has_session(rust: &Rust, cwd: &[u8]) -> bool {
    let (Some(sessions), Some(out_dir)) = (rust.incremental, rust.out_dir) else { return rust.incremental.is_some() };
    let name = [rust.crate_name, b"-"].concat();
    let depfile = [&absolute(cwd, out_dir), &b"/"[..], &rust.stem(), b".d"].concat();
    larder_sys::lstat(&depfile).is_ok()
        && larder_sys::Dir::open(&absolute(cwd, sessions), false)
            .and_then(|directory| directory.names())
            .is_ok_and(|names| names.iter().any(|(there, _)| there.starts_with(&name)))
}
