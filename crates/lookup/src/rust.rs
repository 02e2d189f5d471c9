//! A crate that rustc compiles: the root of its paths, and whether rustc has a session of it.
//!
//! The only root is cargo's target directory. The working directory is none, because rustc puts it
//! into the hash of the crate: the same crate has other bytes in another checkout. cargo compiles
//! the crates of a registry in the directory of their sources, which all checkouts of a machine
//! share.
//!
//! Unaware of: what a result holds.

use larder_compiler::Rust;
use larder_model::Roots;
use larder_model::path::file_name;

use crate::Tool;
use crate::paths::absolute;

/// Files that cargo writes into the target directory.
const TOPS: [&[u8]; 2] = [b"/CACHEDIR.TAG", b"/.rustc_info.json"];
/// How many levels the outputs lie below the target directory, at most: for example,
/// `TARGET/x86_64-unknown-linux-gnu/debug/build/a-1f`.
const LEVELS_MAX: usize = 5;

/// Returns true if the tool is rustup, which finds out which toolchain applies and starts its rustc.
/// cargo does that by itself and names the toolchain's rustc.
pub(crate) fn is_proxy(tool: &Tool) -> bool {
    let end = tool.path.len() - file_name(&tool.path).len();
    let rustup = larder_sys::look_through(&[&tool.path[..end], b"rustup"].concat());
    rustup.is_ok_and(|rustup| (rustup.device, rustup.inode) == (tool.look.device, tool.look.inode))
}

/// Returns what the command line names. `argv` contains `argv[0]`.
pub(crate) fn named(argv: &[Vec<u8>]) -> Rust<'_> {
    larder_compiler::rust(&argv[1..])
}

/// Returns the target directory as the only root, if there is one.
///
/// A path with other characters than those below may be written in another form, for example in a
/// dependency file or in JSON. It is no root then, so results stay in this target directory.
pub(crate) fn roots(rust: &Rust, cwd: &[u8]) -> Roots {
    let is_plain = |path: &[u8]| path.iter().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+@,~".contains(byte));
    let top = rust.out_dir.map(|directory| absolute(cwd, directory)).filter(|path| is_plain(path));
    let top = top.and_then(|directory| target_directory(&directory).map(<[u8]>::to_vec));
    Roots::new(top)
}

fn target_directory(out_dir: &[u8]) -> Option<&[u8]> {
    let mut level = out_dir;
    for _ in 0..LEVELS_MAX {
        level = &level[..level.iter().rposition(|&byte| byte == b'/').filter(|at| *at > 0)?];
        if TOPS.iter().any(|name| larder_sys::look(&[level, name].concat()).is_ok()) {
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
    larder_sys::look(&depfile).is_ok()
        && larder_sys::Dir::open(&absolute(cwd, sessions), false)
            .and_then(|directory| directory.names())
            .is_ok_and(|names| names.iter().any(|(there, _)| there.starts_with(&name)))
}
