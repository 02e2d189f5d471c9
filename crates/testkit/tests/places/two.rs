//! Runs a build by shell commands in one place and then in another, first without larder and then
//! through it. Both begin with the same files at the same paths.

use std::fs;
use std::path::Path;

use larder_testkit::{Counters, Place, Run, Tree, larder};

/// A build in two places.
pub(crate) struct Case<'a> {
    /// The name in messages.
    pub name: &'a str,
    /// The files before the first build: paths and contents.
    pub files: &'a [(&'a str, &'a str)],
    /// The shell commands of the first build. Both builds find their compilers in `CC` and `CXX`.
    pub first: &'a str,
    /// The shell commands of the second build.
    pub second: &'a str,
    /// The directory whose files are compared after the second build.
    pub compared: &'a str,
    /// Names of files and directories that are not compared, because they hold times or logs.
    pub left_out: &'a [&'a str],
    /// The fewest commands of the second build that must hit. Raise it when larder improves.
    pub least_hits: u64,
}

/// The counters of larder for the second build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    pub hits: u64,
    pub misses: u64,
}

impl Case<'_> {
    /// Builds without larder and then through larder, at the same path, and compares the results.
    #[track_caller]
    pub(crate) fn check(&self) -> Counted {
        self.check_by(|run| run)
    }

    /// Does what [`Case::check`] does, and applies `change` to the run of the second build.
    #[track_caller]
    pub(crate) fn check_by(&self, change: impl Fn(Run) -> Run) -> Counted {
        let place = Place::new();
        self.lay_out(&place, false);
        self.build(&place, "plain", self.first, |run| run);
        self.build(&place, "plain", self.second, &change);
        let plain = self.left(&place);
        fs::remove_dir_all(place.path("work")).expect("cannot remove the directory");
        self.lay_out(&place, true);
        self.build(&place, "larder", self.first, |run| run);
        let before = counters(&place);
        self.build(&place, "larder", self.second, &change);
        let after = counters(&place);
        if let Some(difference) = self.left(&place).difference(&plain) {
            panic!("{}: files differ (with larder / without): {difference}", self.name);
        }
        let grown = |name: &str| after.get(name) - before.get(name);
        let counted = Counted { hits: grown("hit"), misses: grown("miss") };
        eprintln!("{}: {} hits, {} misses in the second place", self.name, counted.hits, counted.misses);
        assert_eq!(grown("fallback"), 0, "{}", self.name);
        assert!(counted.hits >= self.least_hits, "{}: {counted:?}, expected {} hits", self.name, self.least_hits);
        counted
    }

    fn lay_out(&self, place: &Place, through_larder: bool) {
        fs::create_dir_all(place.path("work")).expect("cannot create the directory");
        for (path, text) in self.files {
            place.put(path, text);
        }
        // Both compilers have the same path, because build systems write it into files.
        for name in ["gcc", "g++"] {
            let path = place.path("cc").join(name);
            if through_larder {
                fs::remove_file(&path).expect("cannot remove the file");
                place.link(&format!("cc/{name}"));
            } else {
                place.tool(&format!("cc/{name}"), &format!("exec /usr/bin/{name} \"$@\""));
            }
        }
    }

    #[track_caller]
    fn build(&self, place: &Place, how: &str, commands: &str, change: impl Fn(Run) -> Run) {
        place.settle();
        let run = place.run(&["sh", "-euc", commands]);
        let run = run.env("CC", place.path("cc/gcc")).env("CXX", place.path("cc/g++"));
        let ran = change(run).run();
        assert_eq!(ran.code, Some(0), "{} ({how}): {ran:#?}", self.name);
    }

    fn left(&self, place: &Place) -> Tree {
        let mut tree = Tree::of(&place.path("work").join(self.compared));
        assert!(tree.0.keys().any(|path| is_object(path)), "{}: the build made no object", self.name);
        let is_left_out = |path: &Path| path.iter().any(|part| self.left_out.iter().any(|name| part == *name));
        tree.0.retain(|path, _| !is_left_out(path));
        tree
    }
}

/// Returns the counters of the place's store.
fn counters(place: &Place) -> Counters {
    Counters::parse(&place.run(&[larder().as_os_str(), "stats".as_ref(), "--json".as_ref()]).run().ends(0).stdout)
}

fn is_object(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "o")
}
