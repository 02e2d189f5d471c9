//! Runs the other tests again under an emulation of older kernels: system calls and options that
//! those kernels refuse are refused with the same errors (`older.c` in larder-testkit). This covers
//! code for older kernels that this kernel would never reach.

use std::process::Command;

use larder_mount::{Backend, ladder};
use larder_testkit::older;

use crate::fixture::{Fixture, Test};
use crate::{backends, broker, lazy, served, state};

pub(crate) const TESTS: &[Test] = &[
    // Linux 5.10 cannot map owners, so a broker only serves jobs of root there.
    ("as_on_linux_5_10", || as_on("5.10", &[Backend::Lazy], &["rungs", "state", "served"])),
    ("as_on_linux_6_1", || as_on("6.1", &[Backend::Lazy], &["rungs", "state", "served", "broker"])),
    ("as_on_linux_6_12", || as_on("6.12", &[], &["rungs", "state", "served", "broker", "lazy"])),
    ("as_on_linux_6_14", || as_on("6.14", &[], &["rungs", "state", "broker", "lazy"])),
];

/// Runs groups of tests as on this kernel. `lacks` are the backends that it does not have although
/// this machine has them.
fn as_on(kernel: &str, lacks: &[Backend], groups: &[&str]) {
    let fixture = Fixture::new();
    let Some(older) = older(&fixture.make("older")) else { return };
    let program = std::env::current_exe().expect("is known");
    let possible = |command: &mut Command| {
        let done = command.arg("role-rungs").output().expect("starts");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).expect("is text")
    };
    let here = possible(&mut Command::new(&program));
    let there = possible(Command::new(&older).arg(kernel).arg(&program));
    let is_expected = |line: &&str| lacks.iter().all(|backend| backend.word() != *line);
    let expected: Vec<&str> = here.lines().filter(is_expected).collect();
    assert_eq!(there.lines().collect::<Vec<_>>(), expected, "as on {kernel}; here: {here}");
    let done = Command::new(&older).arg(kernel).arg(&program).arg("role-tests").args(groups).output().expect("starts");
    // A skip under the emulation is not a skip of this machine, so the word is replaced.
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace("skipped:", "not there:");
    println!("    as on {kernel}:\n{}", text(&done.stdout));
    assert!(done.status.success(), "as on {kernel}: {}", text(&done.stderr));
}

/// Prints a line for each backend that works.
pub(crate) fn tell_rungs() {
    let steps = ladder(&Fixture::new().make("images"));
    steps.iter().filter(|step| step.found.is_ok()).for_each(|step| println!("{}", step.backend));
}

/// Runs the tests of these groups.
pub(crate) fn run_groups(names: &[String]) {
    larder_sys::own_mounts().expect("works, as it did without the emulation");
    let of = |name: &String| match name.as_str() {
        "rungs" => backends::TESTS,
        "state" => state::TESTS,
        "lazy" => lazy::TESTS,
        "served" => served::TESTS,
        "broker" => broker::TESTS,
        _ => panic!("no such group: {name}"),
    };
    crate::run(names.iter().flat_map(of).copied());
}
