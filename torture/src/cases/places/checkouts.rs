//! The checkouts of a case, and the steps that run its command in each.

use crate::case::{Case, case};
use crate::change::{Change, dir, nothing, put};

/// The path of a second checkout, which is longer and deeper than that of the first.
pub(super) const FAR: &str = "bb/another-and-longer/123/x";
/// The path of a third checkout, whose length is between those of the others.
pub(super) const THIRD: &str = "c/third";
pub(super) const SOURCE: (&str, &str) = ("src/x.c", "#include \"h.h\"\nint f(int a){return a + H;}\n");
pub(super) const NAMES_ITSELF: (&str, &str) =
    ("src/x.c", "#include \"h.h\"\nconst char *p = __FILE__;\nint f(int a){return a + H;}\n");
pub(super) const HEADER: (&str, &str) = ("inc/h.h", "#define H 42\nstatic inline int g(void){return H;}\n");
pub(super) const RELATIVE: &str = "-Iinc -c src/x.c -o out/x.o";
pub(super) const ABSOLUTE: &str = "-I{cwd}/inc -c {cwd}/src/x.c -o {cwd}/out/x.o";

/// The expectation when a result of one checkout is requested in another one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Far {
    /// The result does not depend on the checkout's path in a way that larder cannot handle, so a
    /// hit is expected.
    Hits,
    /// The result depends on the checkout's path, so no hit is expected.
    Differs,
}
/// Makes the files of a checkout. `@PLACE@` in a file stands for the checkout's path.
pub(super) fn fill(place: &str, files: &[(&str, &str)]) -> Change {
    let one = |(path, text): &(&str, &str)| {
        put(format!("{place}/{path}"), text.replace("@PLACE@", &format!("@ROOT@/{place}")))
    };
    let made = files.iter().map(one).chain([dir(format!("{place}/out"))]);
    Change::All(made.collect())
}

/// Runs a command in a first checkout, in a second one, in the first one again, and in a third one.
pub(super) fn in_places(name: &str, files: &[(&str, &str)], cmd: &str, far: Far) -> Case {
    in_two(case(format!("B/{name}")).both(), files, cmd, far, FAR)
}

pub(super) fn in_two(case: Case, files: &[(&str, &str)], cmd: &str, far: Far, other: &str) -> Case {
    let with = case.setup(fill("a", files)).setup(fill(other, files)).setup(fill(THIRD, files));
    let with = with.cmd(cmd).cwd("a").twice();
    let with = with.cwd(other).then("elsewhere", nothing());
    let with = if far == Far::Hits { with.hits() } else { with };
    let with = with.again().cwd("a").back("first place again", nothing());
    let with = with.cwd(THIRD).then("in a third place", nothing());
    if far == Far::Hits { with.hits() } else { with }
}
