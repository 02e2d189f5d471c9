//! Finds the program that a command names: the first match along `PATH` that is neither larder nor
//! another compiler cache. Skipping both means that nested wrappers never call each other in a
//! loop.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use larder_compiler::{Family, family_of};
use larder_model::path::file_name;
use larder_sys::{FileType, Stat};

/// File names of other caches that are installed as links with compilers' names. For example, `gcc`
/// may be a link to `ccache`.
const OTHER_CACHES: [&[u8]; 7] = [b"ccache", b"sccache", b"kache", b"distcc", b"icecc", b"buildcache", b"colorgcc"];
/// The value that a shell uses if `PATH` is not set.
const PATH_DEFAULT: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

/// The wrapper's own executable, so that links to it and copies of it are recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ourselves {
    file: Option<(Vec<u8>, Stat)>,
}

/// A program that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    /// The path by which it is executed.
    pub path: Vec<u8>,
    /// The result of `stat` (links followed).
    pub stat: Stat,
    /// True if larder comes before this program under the same name along `PATH`. A tool that
    /// searches `PATH` for itself, as gcc does to find its parts, must then get its full path as
    /// `argv[0]`.
    pub hidden: bool,
}

impl Tool {
    /// Returns the family of tools whose rules apply if the tool is started with these arguments, by
    /// its name on the command line or by its file's. Returns `None` if there is none.
    pub(crate) fn family(&self, argv: &[Vec<u8>]) -> Option<Family> {
        let name = argv.first().map(|name| file_name(name)).unwrap_or_default();
        family_of(name).or_else(|| family_of(file_name(&self.path)))
    }

    /// Returns the `argv[0]` for the tool. `typed` is the name on the command line.
    pub fn first_argument(&self, typed: &[u8]) -> Vec<u8> {
        if self.hidden { self.path.clone() } else { typed.to_vec() }
    }
}

impl Ourselves {
    /// Makes it from a path that leads to the running program.
    pub fn at(path: &Path) -> Ourselves {
        let path = path.as_os_str().as_bytes();
        Ourselves::here(path, larder_sys::stat(path).ok())
    }

    /// Makes it from a path that leads to the running program, and the `stat` result of that path.
    pub fn here(path: &[u8], stat: Option<Stat>) -> Ourselves {
        Ourselves { file: stat.map(|stat| (path.to_vec(), stat)) }
    }

    /// Returns true if `tool` is the wrapper itself or a copy of it.
    pub fn is(&self, tool: &Tool) -> bool {
        let Some((path, own)) = &self.file else { return false };
        let (own_id, its_id) = (own.file_id(), tool.stat.file_id());
        own_id == its_id || own.size_bytes == tool.stat.size_bytes && same_bytes(path, &tool.path)
    }
}

fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    let read = |path: &[u8]| std::fs::read(larder_sys::as_path(path)).ok();
    read(a).is_some_and(|a| Some(a) == read(b))
}

/// Returns the program that `name` means. A name with a slash is a path; any other name is searched
/// along `path`, the value of `PATH`. With `masquerading` (larder was started as `gcc`, through a
/// link), links to other caches are skipped as well.
pub fn find(name: &[u8], path: Option<&[u8]>, ourselves: &Ourselves, masquerading: bool) -> Option<Tool> {
    if name.contains(&b'/') {
        return program(name.to_vec()).filter(|tool| !ourselves.is(tool));
    }
    let directories = path.unwrap_or(PATH_DEFAULT).split(|&b| b == b':');
    // With `masquerading`, the tool would find larder's link if it searched `PATH` for itself.
    let mut hidden = masquerading;
    for tool in directories.filter_map(|directory| candidate(directory, name)) {
        if ourselves.is(&tool) {
            hidden = true;
        } else if !(masquerading && leads_to_another_cache(&tool.path)) {
            return Some(Tool { hidden, ..tool });
        }
    }
    None
}

fn candidate(directory: &[u8], name: &[u8]) -> Option<Tool> {
    let directory = if directory.is_empty() { b"." } else { directory };
    let mut path = directory.to_vec();
    path.push(b'/');
    path.extend_from_slice(name);
    program(path)
}

fn program(path: Vec<u8>) -> Option<Tool> {
    let stat = larder_sys::stat(&path).ok()?;
    (stat.kind == FileType::File && stat.mode & 0o111 != 0).then_some(Tool { path, stat, hidden: false })
}

fn leads_to_another_cache(path: &[u8]) -> bool {
    let real = std::fs::canonicalize(larder_sys::as_path(path));
    let name = real.ok().and_then(|real| real.file_name().map(|name| name.to_os_string().into_vec()));
    name.is_some_and(|name| OTHER_CACHES.contains(&name.as_slice()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_and_other_caches_are_passed_over() {
        let dir = std::env::temp_dir().join(format!("larder-find-{}", std::process::id()));
        let write = |rel: &str| {
            let path = dir.join(rel);
            std::fs::create_dir_all(path.parent().expect("has one")).expect("makes");
            std::fs::write(&path, rel).expect("writes");
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("sets");
            path
        };
        let (us, ccache, real) = (write("bin/larder"), write("bin/ccache"), write("c/gcc"));
        for (at, to) in [("a", &us), ("b", &ccache)] {
            std::fs::create_dir_all(dir.join(at)).expect("makes");
            std::os::unix::fs::symlink(to, dir.join(at).join("gcc")).expect("links");
        }
        let path = ["a", "b", "c"].map(|d| dir.join(d).to_str().expect("text").to_owned()).join(":");
        let found = find(b"gcc", Some(path.as_bytes()), &Ourselves::at(&us), true).expect("found");
        assert_eq!(found.path, real.as_os_str().as_bytes());
        assert_eq!(found.first_argument(b"gcc"), found.path);
        assert_eq!(find(b"nowhere", Some(path.as_bytes()), &Ourselves::at(&us), true), None);
        assert_eq!(find(us.as_os_str().as_bytes(), None, &Ourselves::at(&us), false), None);
        std::fs::remove_dir_all(dir).expect("removes");
    }
}
