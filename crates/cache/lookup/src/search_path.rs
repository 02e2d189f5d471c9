//! Reduces `PATH` to the directories that matter to a compiler: those with at least one of the
//! programs that compilers look for along `PATH`.
//!
//! For example, pip puts a directory with a random name first in `PATH`. It has no compiler,
//! assembler or linker, so it is left out of the cache key, and the next build hits.
//!
//! Unaware of: which of these programs a compiler starts. The observer sees that.

use std::io::ErrorKind;

use larder_model::path::{file_name, is_in, join};
use larder_model::{Digest, names_digest};
use larder_store::StatCache;
use larder_sys::{Dir, FileType, Stat, Trust};

/// A directory that changed within this time is likely to change again, so we do not note which
/// names it lacks.
const SETTLED_NS: i64 = 1_000_000_000;

/// The programs that gcc and clang look for along `PATH`, besides their own name.
const SEARCHED: [&[u8]; 29] = [
    b"ar",
    b"as",
    b"c++",
    b"cc",
    b"cc1",
    b"cc1plus",
    b"clang",
    b"clang++",
    b"collect-ld",
    b"collect2",
    b"cpp",
    b"dwp",
    b"g++",
    b"gcc",
    b"gld",
    b"gnm",
    b"gstrip",
    b"ld",
    b"ld.bfd",
    b"ld.gold",
    b"ld.lld",
    b"ld.mold",
    b"lto-wrapper",
    b"nm",
    b"objcopy",
    b"ptxas",
    b"ranlib",
    b"real-ld",
    b"strip",
];

/// Directories of the system. They are the same for all builds of a machine, so they are kept
/// whatever they hold.
const SYSTEM: [&[u8]; 10] =
    [b"/usr/", b"/bin", b"/sbin", b"/opt/", b"/nix/", b"/gnu/", b"/lib/", b"/snap/", b"/etc/", b"/run/"];

/// Returns true if a compiler called `name` may look for this program along `PATH`.
pub fn is_searched(program: &[u8], name: &[u8]) -> bool {
    SEARCHED.contains(&program) || program == file_name(name)
}

/// Returns `path` without the directories that have none of the programs that a compiler called
/// `name` looks for.
pub(crate) fn reduced(path: &[u8], name: &[u8], stat_cache: &StatCache) -> Vec<u8> {
    let mut names = SEARCHED.to_vec();
    if !names.contains(&file_name(name)) {
        names.push(file_name(name));
    }
    let digest = names_digest(&names);
    along(path, |directory| !lacks_all(directory, (&names, &digest), stat_cache))
}

/// Returns the directories of `path` that are relative or belong to the system.
pub(crate) fn system_part(path: &[u8]) -> Vec<u8> {
    along(path, |_| false)
}

/// Returns `path` without the directories that have none of these programs. Directories in `cwd`
/// stay, because a command may make programs there.
pub(crate) fn with_any<'n>(path: &[u8], names: impl Iterator<Item = &'n [u8]>, cwd: &[u8]) -> Vec<u8> {
    let names: Vec<&[u8]> = names.collect();
    let digest = names_digest(&names);
    let lacks_all = |directory: &[u8]| names.is_empty() || lacks_all(directory, (&names, &digest), &StatCache::none());
    along(path, |directory| is_in(directory, cwd) || !lacks_all(directory))
}

/// Returns the programs that gcc and clang look for along `PATH`, besides their own name.
pub fn searched_by_compilers() -> impl Iterator<Item = &'static [u8]> {
    SEARCHED.into_iter()
}

/// Returns `path` with the directories for which `is_kept` is true, those of the system, and
/// relative ones. A directory that is named twice is kept once, because nothing is found in the
/// second place.
fn along(path: &[u8], is_kept: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let directories = || path.split(|&byte| byte == b':');
    let kept = directories().enumerate().filter(|&(at, directory)| {
        let is_plain = directory.first() == Some(&b'/');
        let is_of_system = SYSTEM.iter().any(|system| directory.starts_with(system));
        !directories().take(at).any(|earlier| earlier == directory) && (!is_plain || is_of_system || is_kept(directory))
    });
    let kept: Vec<&[u8]> = kept.map(|(_, directory)| directory).collect();
    // An empty `PATH` would mean the working directory.
    if kept.is_empty() { b"/dev/null".to_vec() } else { kept.join(&b':') }
}

/// Returns the directories that [`reduced`] left out.
pub fn left_out<'p>(path: &'p [u8], reduced: &'p [u8]) -> impl Iterator<Item = &'p [u8]> {
    let is_kept = move |directory: &&[u8]| !reduced.split(|&byte| byte == b':').any(|kept| kept == *directory);
    path.split(|&byte| byte == b':').filter(is_kept)
}

fn lacks_all(directory: &[u8], names: (&[&[u8]], &Digest), stat_cache: &StatCache) -> bool {
    match larder_sys::stat(directory) {
        Ok(stat) if stat.kind == FileType::Directory => {
            // A change of its mode makes the entry of the stat cache invalid.
            stat_cache.names_absent(&stat, names.1)
                || is_sure_of(directory, names.0) && first_of(directory, Some(stat), names, stat_cache).is_none()
        }
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

/// Returns false if `lstat` of a name in this directory fails for another reason than that the name
/// does not exist, for example because the directory may not be searched.
fn is_sure_of(directory: &[u8], names: &[&[u8]]) -> bool {
    let any = names.first().map(|name| larder_sys::lstat(&join(directory, name)));
    !matches!(any, Some(Err(error)) if error.kind() != ErrorKind::NotFound)
}

/// Returns the first of `names` that exists in a directory, with its `lstat` result.
///
/// `stat` is the directory's own `stat` result. If it is given and no name exists, the stat cache
/// remembers that, so the next call needs no `lstat`.
pub(crate) fn first_present<'n>(
    directory: &[u8],
    stat: Option<Stat>,
    names: &[&'n [u8]],
    stat_cache: &StatCache,
) -> Option<(&'n [u8], Stat)> {
    let digest = names_digest(names);
    if stat.is_some_and(|stat| stat_cache.names_absent(&stat, &digest)) {
        return None;
    }
    first_of(directory, stat, (names, &digest), stat_cache)
}

/// Like [`first_present`], without asking the stat cache. `digest` is that of the names.
fn first_of<'n>(
    directory: &[u8],
    stat: Option<Stat>,
    (names, digest): (&[&'n [u8]], &Digest),
    stat_cache: &StatCache,
) -> Option<(&'n [u8], Stat)> {
    let now_ns = if stat.is_some() { larder_sys::now_coarse_ns() } else { 0 };
    let mut all_missing = true;
    for name in names {
        match larder_sys::lstat(&join(directory, name)) {
            Ok(found) => return Some((name, found)),
            Err(error) => all_missing &= error.kind() == ErrorKind::NotFound,
        }
    }
    if let Some(stat) = stat.filter(|stat| all_missing && now_ns - stat.changed_ns > SETTLED_NS) {
        let trust = || Dir::open(directory, false).and_then(|dir| dir.trust()).unwrap_or(Trust::NONE);
        stat_cache.keep_absent(&stat, now_ns, digest, trust);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_without_a_compiler() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name).to_str().expect("is text").to_owned();
        for name in ["tools", "compilers"] {
            std::fs::create_dir(at(name)).expect("makes");
        }
        std::fs::write(at("tools/cmake"), "").expect("writes");
        std::fs::write(at("compilers/ld"), "").expect("writes");
        let path = [at("gone"), at("tools"), at("compilers"), "/usr/bin".to_owned(), ".".to_owned()].join(":");
        let expect = [at("compilers"), "/usr/bin".to_owned(), ".".to_owned()].join(":");
        let kept = reduced(path.as_bytes(), b"gcc", &StatCache::none());
        assert_eq!(String::from_utf8_lossy(&kept), expect);
        let left: Vec<&[u8]> = left_out(path.as_bytes(), &kept).collect();
        assert_eq!(left, [at("gone").as_bytes(), at("tools").as_bytes()]);
        std::fs::write(at("tools/mycc-12"), "").expect("writes");
        assert_eq!(reduced(at("tools").as_bytes(), b"/x/mycc-12", &StatCache::none()), at("tools").as_bytes());
        let none = [&at("gone")[..], ""].map(|path| reduced(path.as_bytes(), b"gcc", &StatCache::none()));
        assert_ne!(none[0], none[1]);
        let of = |names: &[&'static [u8]], cwd: &str| with_any(path.as_bytes(), names.iter().copied(), cwd.as_bytes());
        assert_eq!(of(&[b"ld"], dir.path().to_str().expect("is text")), path.as_bytes());
        assert_eq!(of(&[b"ld"], "/w"), [at("compilers"), "/usr/bin:.".to_owned()].join(":").as_bytes());
        assert_eq!(of(&[], "/w"), b"/usr/bin:.");
        assert!(is_searched(b"as", b"gcc") && is_searched(b"mycc", b"/x/mycc") && !is_searched(b"mycc", b"gcc"));
    }
}
