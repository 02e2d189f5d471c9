//! Tools that start larder again. The inner larders use the token of the outer one, and it is
//! enough for all of them.

use larder_testkit::{Place, Ran, larder};

use crate::support::{compile, nobody_gave_up, sources, start, timed, wrapped};

/// Creates a place whose compiler runs this shell script. `L` in it is larder.
fn place(script: &str) -> Place {
    let place = Place::new();
    timed(&place, "mycc", "0.1");
    place.tool("work/outer-cc", &script.replace("L ", &format!("{} ", larder().display())));
    sources(&place, 6);
    place
}

#[track_caller]
fn ends(place: &Place, observer: &str) {
    Ran::of(start(wrapped(place, &compile("outer-cc", 5), "1").env("LARDER_OBSERVER", observer))).ends(0);
    nobody_gave_up(place);
    for number in 0..2 {
        assert_eq!(place.read(&format!("{number}.o")), b"made\n");
    }
}

const ONE_AFTER_THE_OTHER: &str = "L ./mycc -c 0.c -o 0.o; L ./mycc -c 1.c -o 1.o; : > 5.o";
const AT_ONCE: &str = "for i in 0 1 2 3; do L ./mycc -c $i.c -o $i.o & done; wait; : > 5.o";
/// The environment is empty, so nothing in it says that there is an outer larder.
const EMPTIED: &str = "for i in 0 1; do env -i PATH=\"$PATH\" LARDER_DIR=\"$LARDER_DIR\" LARDER_JOBS=1 \
    LARDER_TOKENS_FILE=\"$LARDER_TOKENS_FILE\" LARDER_LOG=\"$LARDER_LOG\" L ./mycc -c $i.c -o $i.o & done; wait; : > 5.o";

#[test]
fn each_observer() {
    for script in [ONE_AFTER_THE_OTHER, AT_ONCE, EMPTIED] {
        for observer in ["auto", "kernel"] {
            ends(&place(script), observer);
        }
    }
}

/// Three levels deep: the larder in the middle passes on the token that it was lent.
#[test]
fn inside_of_what_is_inside() {
    let place = place("L ./middle-cc -c 4.c -o 4.o; : > 5.o");
    let inner = AT_ONCE.replace("5.o", "4.o").replace("L ", &format!("{} ", larder().display()));
    place.tool("work/middle-cc", &inner);
    place.settle();
    ends(&place, "auto");
}

/// Other larders wait in the queue for the token of the outer larder. Its inner larders must not
/// wait behind them.
#[test]
fn not_behind_those_who_wait_for_it() {
    let place = place(&format!("sleep 0.5; {AT_ONCE}"));
    let outer = start(wrapped(&place, &compile("outer-cc", 5), "1"));
    std::thread::sleep(std::time::Duration::from_millis(200));
    place.put("8.c", "int a8;\n");
    place.put("9.c", "int a9;\n");
    place.settle();
    let others = [8, 9].map(|number| start(wrapped(&place, &compile("mycc", number), "1")));
    Ran::of(outer).ends(0);
    others.into_iter().for_each(|child| drop(Ran::of(child).ends(0)));
    nobody_gave_up(&place);
}

/// The inner larders run in their own PID namespace. They cannot see the outer process, and know
/// only that there is one.
#[test]
fn in_a_namespace_of_their_own() {
    larder_testkit::probe_skip!(larder_testkit::can_mount(), "no namespaces here");
    const ALONE: &str = "unshare -p -f";
    let script = ONE_AFTER_THE_OTHER.replace("L ", &format!("{ALONE} L "));
    ends(&place(&script), "auto");
}

/// A compiler that runs `make`, whose jobs run through larder.
#[test]
fn a_compiler_that_runs_make() {
    larder_testkit::probe_skip!(larder_testkit::has("make"), "make is not installed");
    let place = place("make -s -j4 -f inner.mk; : > 5.o");
    let rules = format!("all: 0.o 1.o 2.o 3.o\n%.o: %.c\n\t{} ./mycc -c $< -o $@\n", larder().display());
    place.put("inner.mk", rules);
    place.settle();
    ends(&place, "auto");
}
