//! Builds the workspace in examples/bazel with Bazel. With larder as the toolchain's compiler,
//! every output has the digest that it has without, in the first sandboxes and in new ones.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::{Path, PathBuf};

use larder_testkit::{Counters, Place, Tree, TreeKind, copy_program, has, larder, probe_skip, workspace};

/// The builds with larder, and the fewest commands of each that must hit. Raise the numbers when
/// larder improves.
const BUILDS: &[(&str, u64)] = &[("first sandboxes", 0), ("fresh sandboxes", 4), ("fresh sandboxes again", 8)];

/// The parts of the example that are built here. The packages in //foreign need sources that would
/// have to be downloaded.
const PARTS: &[&str] = &[".bazelrc", "BUILD", "WORKSPACE", "cc", "no_coverage", "rules_cc"];
/// Rules that Debian's Bazel finds on disk instead of downloading them.
const RULES: &[&str] = &["/usr/share/bazel/tools/skylib/WORKSPACE", "/usr/share/bazel/rules/java/WORKSPACE"];

/// A workspace with a Bazel server, which is shut down when the value is dropped.
struct Bazel {
    place: Place,
}

impl Drop for Bazel {
    fn drop(&mut self) {
        self.run("shutdown", &[]);
    }
}

impl Bazel {
    fn new() -> Bazel {
        let place = Place::new();
        let example = workspace().join("examples/bazel");
        PARTS.iter().for_each(|part| copy(&example.join(part), &place.path("work").join(part)));
        // No variable is set where the actions run, so larder finds its store by the file beside
        // it.
        fs::create_dir(place.path("opt")).expect("cannot create the directory");
        for name in ["larder", "larderd"] {
            copy_program(larder().with_file_name(name), place.path("opt").join(name));
        }
        fs::write(place.path("opt/larder.toml"), format!("dir = \"{}\"\n", place.text("store")))
            .expect("cannot write the file");
        Bazel { place }
    }

    fn run(&self, word: &str, words: &[&str]) -> larder_testkit::Ran {
        let root = format!("--output_user_root={}", self.place.text("bazel"));
        let run = self.place.run(&[&["bazel", &root, word], words].concat()).env("USER", "larder");
        run.without("LARDER_DIR").without("TMPDIR").run()
    }

    /// Builds everything by new actions, with the compiler at this path, and returns the files.
    #[track_caller]
    fn build(&self) -> Tree {
        self.run("clean", &[]).ends(0);
        let compiler = format!("--repo_env=CC={}", self.place.text("cc/gcc"));
        self.run("test", &[&compiler, "//cc/..."]).ends(0);
        let made = fs::canonicalize(self.place.path("work/bazel-bin/cc")).expect("Bazel built nothing");
        let mut tree = Tree::of(&made);
        tree.0.retain(|_, entry| matches!(entry.kind, TreeKind::File(_)));
        assert!(tree.0.keys().filter(|path| path.extension().is_some_and(|end| end == "o")).count() >= 4, "{tree:?}");
        tree
    }

    fn counters(&self) -> Counters {
        let program = self.place.path("opt/larder");
        let words = [program.as_os_str(), "stats".as_ref(), "--json".as_ref()];
        Counters::parse(&self.place.run(&words).run().ends(0).stdout)
    }
}

fn copy(from: &Path, to: &Path) {
    if !from.is_dir() {
        fs::copy(from, to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        return;
    }
    fs::create_dir_all(to).expect("cannot create the directory");
    for entry in fs::read_dir(from).expect("cannot list the directory") {
        let entry = entry.expect("cannot list the directory");
        copy(&entry.path(), &to.join(entry.file_name()));
    }
}

#[test]
fn outputs_have_the_same_digests() {
    probe_skip!(
        has("bazel") && RULES.iter().all(|file| PathBuf::from(file).exists()),
        "Debian's Bazel is not installed"
    );
    let bazel = Bazel::new();
    // Both compilers have the same path, because Bazel passes the compiler's directory to the
    // linker.
    bazel.place.tool("cc/gcc", "exec /usr/bin/gcc \"$@\"");
    let plain = bazel.build();
    fs::remove_file(bazel.place.path("cc/gcc")).expect("cannot remove the file");
    std::os::unix::fs::symlink("../opt/larder", bazel.place.path("cc/gcc")).expect("cannot create the link");
    for &(what, least_hits) in BUILDS {
        let before = bazel.counters();
        assert_eq!(bazel.build().difference(&plain), None, "{what}: files differ (with larder / without)");
        let after = bazel.counters();
        let grown = |name: &str| after.get(name) - before.get(name);
        eprintln!("{what}: {} hits, {} misses ({})", grown("hit"), grown("miss"), after.since(&before));
        assert!(grown("hit") + grown("miss") >= 8, "{what}: larder ran for fewer than 8 commands");
        assert!(grown("hit") >= least_hits, "{what}: {} hits, expected {least_hits}", grown("hit"));
    }
}
