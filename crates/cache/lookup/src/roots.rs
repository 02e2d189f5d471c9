//! Finds the roots of a command: the directories whose paths differ between two checkouts of the
//! same build. They need no configuration. In this order, the sources are:
//!
//! 1. the directories that a person named (`LARDER_ROOTS`),
//! 2. what the build system says in its environment, or by the shape of its directories (Bazel's
//!    execution root),
//! 3. the top of the checkout that the working directory is in, or else the top of the build tree,
//!    or else the working directory itself,
//! 4. source trees named by absolute paths on the command line,
//! 5. other paths of these directories, through symbolic links.
//!
//! The order numbers the roots, so it must be the same in all checkouts of a build. A path is kept
//! as it is written: if a link leads from it to another path, both are roots.
//!
//! Unaware of: which texts the roots are replaced in.

use std::cell::RefCell;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use larder_compiler::searched_directory;
use larder_model::path::{is_in, join, without_slashes};
use larder_model::{Roots, contains};
use larder_store::StatCache;
use larder_sys::{Dir, FileType, Opening, Stat};

use crate::chance;
use crate::place::Place;
use crate::search_path::first_present;

/// Variables in which CI services name the directory of a checkout, as each service documents:
/// GitHub, GitLab, Buildkite, Azure (two), Travis, Drone, Bitbucket, AWS CodeBuild, AppVeyor,
/// Cirrus. Those of Jenkins and CircleCI need a condition and are handled in `build_systems`.
const CHECKOUTS: [&[u8]; 11] = [
    b"GITHUB_WORKSPACE",
    b"CI_PROJECT_DIR",
    b"BUILDKITE_BUILD_CHECKOUT_PATH",
    b"BUILD_SOURCESDIRECTORY",
    b"PIPELINE_WORKSPACE",
    b"TRAVIS_BUILD_DIR",
    b"DRONE_WORKSPACE",
    b"BITBUCKET_CLONE_DIR",
    b"CODEBUILD_SRC_DIR",
    b"APPVEYOR_BUILD_FOLDER",
    b"CIRRUS_WORKING_DIR",
];

/// Variables that Bazel's rules_foreign_cc sets for the builds that it runs.
const FOREIGN_CC: [&[u8]; 4] = [b"EXT_BUILD_ROOT", b"EXT_BUILD_DEPS", b"BUILD_TMPDIR", b"INSTALLDIR"];

/// Version control directories at the top of a checkout.
const TOPS: [&[u8]; 3] = [b".git", b".jj", b".hg"];

/// Files that CMake, Meson, Ninja and autoconf leave at the top of a build tree.
const BUILD_TOPS: [&[u8]; 4] = [b"CMakeCache.txt", b"config.status", b"meson-private", b"build.ninja"];

/// Files that show the top of a project's sources.
const SOURCE_TOPS: [&[u8]; 5] = [b"configure", b"configure.ac", b"CMakeLists.txt", b"meson.build", b"BUILD.bazel"];

/// Names of build directories inside their sources, as CMake's manual and many projects have them.
const BUILD_NAMES: [&[u8]; 6] = [b"_build", b"bld", b"build", b"builddir", b"obj", b"out"];

/// Directories that many builds share. None of them becomes a root, unless a person named it or it
/// is the working directory.
const SHARED: [&[u8]; 24] = [
    b"/bin",
    b"/boot",
    b"/dev",
    b"/etc",
    b"/gnu",
    b"/home",
    b"/lib",
    b"/lib32",
    b"/lib64",
    b"/libx32",
    b"/media",
    b"/mnt",
    b"/nix",
    b"/opt",
    b"/proc",
    b"/run",
    b"/sbin",
    b"/snap",
    b"/srv",
    b"/sys",
    b"/tmp",
    b"/usr",
    b"/var",
    b"/var/tmp",
];

/// Directories below which everything is shared as well.
const SYSTEM: [&[u8]; 14] = [
    b"/bin/",
    b"/boot/",
    b"/dev/",
    b"/etc/",
    b"/gnu/",
    b"/lib/",
    b"/lib32/",
    b"/lib64/",
    b"/libx32/",
    b"/nix/",
    b"/opt/",
    b"/proc/",
    b"/sbin/",
    b"/usr/",
];

/// At most this many roots are found by paths on a command line.
const TOLD_MAX: usize = 4;
/// Returns the roots of a command that runs in `place` with these arguments. `apparent` is the path
/// of the working directory in `PWD`, if it differs from the kernel's. `links` is true for a link,
/// because the objects name the sources that they were compiled from.
pub(crate) fn find(
    place: &Place,
    apparent: Option<&[u8]>,
    arguments: &[Vec<u8>],
    links: bool,
    stat_cache: &StatCache,
) -> Roots {
    let mut search = Search { place, stat_cache, found: Vec::new(), looked: RefCell::default() };
    place.roots.named.iter().for_each(|root| search.add_any(root));
    if place.roots.find {
        search.build_systems();
        search.around(&place.cwd, links);
        search.told(arguments);
    }
    search.other_names(apparent);
    let roots = Roots::new(search.found);
    if !place.roots.find {
        return roots;
    }
    let directories = [&place.cwd[..]].into_iter().chain(apparent);
    let names = chance::names(&roots, |name| place.variable(name), directories, arguments);
    roots.with_names(names)
}

struct Search<'a> {
    place: &'a Place,
    stat_cache: &'a StatCache,
    found: Vec<Vec<u8>>,
    /// Results of `stat` on directories, because most directories lie above several others.
    looked: RefCell<Vec<(Vec<u8>, Stat)>>,
}

impl Search<'_> {
    fn add_any(&mut self, path: &[u8]) {
        let path = without_slashes(path);
        if path.first() == Some(&b'/') && !self.found.iter().any(|found| found == path) {
            self.found.push(path.to_vec());
        }
    }

    /// Adds a root that was found, not named by a person. Shared directories are left out, and so
    /// are paths inside a known root.
    fn add(&mut self, path: &[u8]) {
        let path = without_slashes(path);
        let plain = path.split(|&b| b == b'/').skip(1).all(|part| !matches!(part, b"" | b"." | b".."));
        if plain && !is_shared(path) && !self.holds(path) {
            self.add_any(path);
        }
    }

    fn holds(&self, path: &[u8]) -> bool {
        self.found.iter().any(|root| is_in(path, root))
    }

    fn build_systems(&mut self) {
        let place = self.place;
        if let Some(root) = execution_root(&place.cwd) {
            self.add(root);
        }
        let mut directory = |name: &[u8]| {
            if let Some(path) = place.variable(name).filter(|path| path.starts_with(b"/"))
                && larder_sys::stat(path).is_ok_and(|stat| stat.kind == FileType::Directory)
            {
                self.add(path);
            }
        };
        if place.variable(FOREIGN_CC[0]).is_some() {
            FOREIGN_CC.into_iter().for_each(&mut directory);
        }
        CHECKOUTS.into_iter().for_each(&mut directory);
        if [&b"JENKINS_URL"[..], b"JENKINS_HOME"].iter().any(|name| place.variable(name).is_some()) {
            directory(b"WORKSPACE");
        }
        // CircleCI's value may begin with a tilde: `~/project`.
        match place.variable(b"CIRCLE_WORKING_DIRECTORY").map(|path| (path, path.strip_prefix(b"~"))) {
            Some((_, Some(rest))) => {
                let path = [place.variable(b"HOME").unwrap_or_default(), rest].concat();
                self.add(&path);
            }
            Some((path, None)) if path.starts_with(b"/") => self.add(path),
            _ => {}
        }
    }

    /// Adds the root that contains the working directory.
    fn around(&mut self, cwd: &[u8], links: bool) {
        if self.holds(cwd) {
            return;
        }
        let checkout = self.checkout(cwd);
        let top = checkout.or_else(|| self.highest(cwd, &BUILD_TOPS));
        match top {
            Some(top) if !is_shared(top) => self.add(top),
            // Every command has a root, even if it is a shared directory.
            _ => self.add_any(cwd),
        }
        let build = top.unwrap_or(cwd);
        if links && checkout.is_none() && self.is_build_directory(build) {
            self.add(above(build));
        }
    }

    /// Returns true for a build directory inside its sources, by its name or by what is beside it.
    fn is_build_directory(&self, path: &[u8]) -> bool {
        let sources = above(path);
        let name = larder_model::path::file_name(path);
        !is_shared(sources) && (BUILD_NAMES.contains(&name) || self.first_of(sources, &SOURCE_TOPS).is_some())
    }

    /// Adds roots for absolute paths among the arguments. For example, `/src/p/configure` makes
    /// `/src/p` a root.
    fn told(&mut self, arguments: &[Vec<u8>]) {
        let mut left = TOLD_MAX;
        for argument in arguments {
            let Some(path) = told_path(argument) else { continue };
            if left == 0 {
                return;
            }
            if is_shared(path) || self.holds(path) || SYSTEM.iter().any(|system| path.starts_with(system)) {
                continue;
            }
            let directory = match larder_sys::stat(path) {
                Ok(stat) if stat.kind == FileType::Directory => path,
                Ok(_) => above(path),
                // A directory that does not exist yet, as with `--prefix=/b/out` or
                // `-DCMAKE_INSTALL_PREFIX=/b/out`.
                Err(_) if is_setting(argument) => match levels(path).find(|level| is_directory(level)) {
                    Some(there) if there.len() > 1 => there,
                    _ => continue,
                },
                Err(_) => continue,
            };
            let top = self.checkout(directory).or_else(|| self.highest(directory, &SOURCE_TOPS));
            let top = top.filter(|top| !is_shared(top)).or_else(|| shared_above(directory, &self.place.cwd));
            left -= 1;
            self.add(top.unwrap_or(directory));
        }
    }

    /// Returns the top of the checkout that contains `directory`. For a submodule that is the top
    /// of the outermost repository.
    fn checkout<'p>(&self, directory: &'p [u8]) -> Option<&'p [u8]> {
        let mut top = None;
        for level in levels(directory) {
            let Some((name, stat)) = self.first_of(level, &TOPS) else { continue };
            top = Some(level);
            if name != b".git" || stat.kind != FileType::File || !is_submodule(level) {
                break;
            }
        }
        top
    }

    /// Returns the highest directory, at or above `directory`, that contains one of `names`.
    fn highest<'p>(&self, directory: &'p [u8], names: &[&[u8]]) -> Option<&'p [u8]> {
        levels(directory).filter(|level| !is_shared(level) && self.first_of(level, names).is_some()).last()
    }

    /// Returns the first of `names` that exists in a directory, with its `lstat` result. If none
    /// does, the stat cache remembers that for the directory. The working directory is an
    /// exception, because a build creates files there all the time.
    fn first_of<'n>(&self, directory: &[u8], names: &[&'n [u8]]) -> Option<(&'n [u8], Stat)> {
        let stat = match directory == self.place.cwd {
            true => None,
            false => Some(self.look_at(directory)?),
        };
        first_present(directory, stat, names, self.stat_cache)
    }

    fn look_at(&self, directory: &[u8]) -> Option<Stat> {
        let mut looked = self.looked.borrow_mut();
        if let Some((_, stat)) = looked.iter().find(|(known, _)| known == directory) {
            return Some(*stat);
        }
        let stat = larder_sys::stat(directory).ok()?;
        looked.push((directory.to_vec(), stat));
        Some(stat)
    }

    /// Adds further paths of the same directories: a root as `PWD` spells it, and a root with its
    /// links resolved.
    fn other_names(&mut self, apparent: Option<&[u8]>) {
        let cwd = &self.place.cwd;
        for root in self.found.clone() {
            if let Some(apparent) = apparent
                && let Some(rest) = cwd.strip_prefix(&root[..])
                && let Some(name) = apparent.strip_suffix(rest)
                && !name.starts_with(b"/proc/")
            {
                self.add_any(name);
            }
            // Not needed above `cwd`, because the kernel reports the working directory without
            // links.
            if !is_in(cwd, &root)
                && Dir::open(&root, true).is_err()
                && let Ok(real) = Dir::open(&root, false).and_then(|dir| dir.real_path())
            {
                self.add_any(&real);
            }
        }
    }
}

/// Returns Bazel's execution root that contains `path`: `…/execroot/WORKSPACE`, with or without a
/// sandbox.
fn execution_root(path: &[u8]) -> Option<&[u8]> {
    const NAME: &[u8] = b"/execroot/";
    let at = path.windows(NAME.len()).rposition(|part| part == NAME)? + NAME.len();
    let length = path[at..].iter().position(|&b| b == b'/').unwrap_or(path.len() - at);
    (length > 0).then(|| &path[..at + length])
}

/// Returns true if a directory is inside one of Bazel's sandboxes: `…/linux-sandbox/N/execroot/…`.
pub(crate) fn is_sandbox(path: &[u8]) -> bool {
    let parts: Vec<&[u8]> = path.split(|&b| b == b'/').collect();
    parts.windows(3).any(|part| {
        let [strategy, number, name] = [part[0], part[1], part[2]];
        let is_number = !number.is_empty() && number.iter().all(u8::is_ascii_digit);
        name == b"execroot" && is_number && strategy.ends_with(b"sandbox")
    })
}

/// Returns true if `top` is a submodule. Its `.git` is a file that points into `modules` of the
/// outer repository; the `.git` file of a worktree points into `worktrees`.
fn is_submodule(top: &[u8]) -> bool {
    let mut text = Vec::new();
    let read =
        larder_sys::open(&join(top, b".git"), Opening::Read).and_then(|file| file.take(4096).read_to_end(&mut text));
    read.is_ok() && contains(&text, "/modules/")
}

/// Returns the directory and all directories above it, without `/`.
fn levels(directory: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(directory), |level| Some(above(level))).take_while(|level| level.len() > 1)
}

fn is_directory(path: &[u8]) -> bool {
    larder_sys::stat(path).is_ok_and(|stat| stat.kind == FileType::Directory)
}

fn above(path: &[u8]) -> &[u8] {
    &path[..path.iter().rposition(|&b| b == b'/').unwrap_or(0)]
}

/// Returns the deepest directory that contains both paths, unless it is shared or lies directly
/// below `/`.
fn shared_above<'p>(a: &'p [u8], b: &[u8]) -> Option<&'p [u8]> {
    levels(a).find(|level| is_in(b, level)).filter(|level| !is_shared(level) && above(level).len() > 1)
}

/// Returns the absolute path in an argument that names a source file or a source directory, or in
/// the value of a setting.
fn told_path(argument: &[u8]) -> Option<&[u8]> {
    if let Some(at) = argument.iter().position(|&b| b == b'=').filter(|_| is_setting(argument)) {
        return Some(&argument[at + 1..]).filter(|value| value.starts_with(b"/"));
    }
    let value = searched_directory(argument).unwrap_or(argument);
    value.starts_with(b"/").then_some(value)
}

/// Returns true for `--NAME=VALUE` and `-DNAME=VALUE`.
fn is_setting(argument: &[u8]) -> bool {
    argument.starts_with(b"--") || argument.starts_with(b"-D")
}

fn is_shared(path: &[u8]) -> bool {
    SHARED.contains(&path) || path.len() < 2 || is_home(path)
}

/// Returns true for `/home/NAME`, because one home directory holds many builds.
fn is_home(path: &[u8]) -> bool {
    path.strip_prefix(b"/home/").is_some_and(|name| !name.contains(&b'/'))
}

/// Converts a configured path to bytes.
pub fn named_root(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::RootRules;
    use larder_spawn::Destinations;
    use std::fs;

    /// A temporary directory with files and directories in it: `*.txt` and `configure` are files,
    /// all else is a directory.
    struct There {
        dir: tempfile::TempDir,
    }

    impl There {
        fn with(names: &[&str]) -> There {
            let there = There { dir: tempfile::tempdir().expect("a directory") };
            for name in names {
                let path = there.path(name);
                let is_file = name.ends_with(".txt") || name.ends_with("/configure");
                fs::create_dir_all(if is_file { path.parent().expect("is below") } else { &path }).expect("makes");
                if is_file {
                    fs::write(&path, "").expect("writes");
                }
            }
            there
        }

        fn path(&self, name: &str) -> std::path::PathBuf {
            self.dir.path().canonicalize().expect("is there").join(name)
        }

        fn text(&self, name: &str) -> String {
            self.path(name).to_string_lossy().into_owned()
        }

        /// Returns the roots of a command that runs in `cwd`. `@` stands for the path of this
        /// directory, in arguments and results.
        fn roots(&self, cwd: &str, environment: &[(&str, &str)], named: &[&str], arguments: &[&str]) -> Vec<String> {
            let top = self.text("");
            let top = top.trim_end_matches('/');
            let at = |text: &str| text.replace('@', top).into_bytes();
            let place = Place {
                environment: environment.iter().map(|(name, value)| (name.as_bytes().to_vec(), at(value))).collect(),
                oddities: Vec::new(),
                cwd: at(cwd),
                roots: RootRules { named: named.iter().map(|root| at(root)).collect(), find: true, remap_rust: false },
                ephemeral: false,
                destinations: Destinations::now(),
                scope: crate::Scope::default(),
                ignores_sigpipe_itself: false,
            };
            let arguments: Vec<Vec<u8>> = arguments.iter().map(|argument| at(argument)).collect();
            let apparent = place.variable(b"PWD").map(<[u8]>::to_vec);
            let roots = find(&place, apparent.as_deref(), &arguments, false, &StatCache::none());
            roots.paths().iter().map(|root| String::from_utf8_lossy(root).replace(top, "@")).collect()
        }
    }

    #[test]
    fn checkouts() {
        let there = There::with(&["c/.git", "c/sub/d", "j/.jj", "j/x", "h/.hg", "w/x", "bare"]);
        assert_eq!(there.roots("@/c/sub/d", &[], &[], &[]), ["@/c"]);
        assert_eq!(there.roots("@/j/x", &[], &[], &[]), ["@/j"]);
        assert_eq!(there.roots("@/h", &[], &[], &[]), ["@/h"]);
        // A worktree inside another checkout has a root of its own, a submodule has not.
        fs::create_dir_all(there.path("c/tree/s")).expect("makes");
        fs::write(there.path("c/tree/.git"), "gitdir: ../.git/worktrees/tree\n").expect("writes");
        assert_eq!(there.roots("@/c/tree/s", &[], &[], &[]), ["@/c/tree"]);
        fs::write(there.path("c/sub/.git"), "gitdir: ../.git/modules/sub\n").expect("writes");
        assert_eq!(there.roots("@/c/sub/d", &[], &[], &[]), ["@/c"]);
        assert_eq!(there.roots("@/bare", &[], &[], &[]), ["@/bare"]);
    }

    #[test]
    fn what_build_systems_say() {
        let there = There::with(&[
            "o/sandbox/linux-sandbox/12/execroot/ws/b",
            "o/execroot/ws",
            "ci/sub",
            "d",
            "r/c/.git",
            "r/c/x",
        ]);
        let sandbox = "@/o/sandbox/linux-sandbox/12/execroot/ws";
        assert_eq!(there.roots(&format!("{sandbox}/b"), &[], &[], &[]), [sandbox]);
        assert_eq!(there.roots("@/o/execroot/ws", &[], &[], &[]), ["@/o/execroot/ws"]);
        assert!(is_sandbox(sandbox.as_bytes()) && !is_sandbox(b"/o/execroot/ws") && !is_sandbox(b"/x/3/execroot/w"));
        let foreign = [("EXT_BUILD_ROOT", sandbox), ("EXT_BUILD_DEPS", "@/d"), ("INSTALLDIR", "/usr")];
        assert_eq!(there.roots(&format!("{sandbox}/b"), &foreign, &[], &[]), [sandbox, "@/d"]);
        assert_eq!(there.roots("@/d", &[("GITHUB_WORKSPACE", "@/ci/")], &[], &[]), ["@/ci", "@/d"]);
        assert_eq!(there.roots("@/ci/sub", &[("CI_PROJECT_DIR", "@/ci")], &[], &[]), ["@/ci"]);
        assert_eq!(there.roots("@/ci", &[("CI_PROJECT_DIR", "@/gone")], &[], &[]), ["@/ci"]);
        assert_eq!(there.roots("@/d", &[("WORKSPACE", "@/ci")], &[], &[]), ["@/d"]);
        assert_eq!(there.roots("@/d", &[("WORKSPACE", "@/ci"), ("JENKINS_URL", "x")], &[], &[]), ["@/ci", "@/d"]);
        let circle = [("CIRCLE_WORKING_DIRECTORY", "~/ci"), ("HOME", "@")];
        assert_eq!(there.roots("@/ci/sub", &circle, &[], &[]), ["@/ci"]);
        assert_eq!(there.roots("@/r/c/x", &[("GITHUB_WORKSPACE", "@/r")], &[], &[]), ["@/r"]);
    }

    #[test]
    fn builds_without_a_checkout() {
        let there = There::with(&["p/build/CMakeCache.txt", "p/build/sub", "p/src/configure", "p/src/lib/x", "q/inc"]);
        assert_eq!(there.roots("@/p/build/sub", &[], &[], &["-I@/p/src/lib", "-c"]), ["@/p/build", "@/p/src"]);
        assert_eq!(there.roots("@/q", &[], &[], &["-I", "@/q/inc", "-I/usr/include"]), ["@/q"]);
        assert_eq!(there.roots("@/q/inc", &[], &[], &["@/p/none"]), ["@/q/inc"]);
        let setting = "-DCMAKE_INSTALL_PREFIX:PATH=@/p/installed";
        assert_eq!(there.roots("@/p/build", &[], &[], &["@/p/src", setting]), ["@/p/build", "@/p/src", "@/p"]);
    }

    #[test]
    fn named_ones_and_links() {
        let there = There::with(&["real/w/s", "x"]);
        std::os::unix::fs::symlink("real", there.path("link")).expect("links");
        assert_eq!(there.roots("@/real/w/s", &[], &["@/real", "@/real/w", "@/real/w"], &[]), ["@/real", "@/real/w"]);
        assert_eq!(there.roots("@/x", &[], &["@/link/"], &[]), ["@/link", "@/x", "@/real"]);
        assert_eq!(there.roots("@/real/w/s", &[("PWD", "@/link/w/s")], &["@/real/w"], &[]), ["@/real/w", "@/link/w"]);
    }
}
