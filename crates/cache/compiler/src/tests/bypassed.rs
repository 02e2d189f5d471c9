//! Command lines that larder bypasses, and the reasons.

use super::{Files, words};
use crate::{Family, parse};
use larder_model::Bypass;

#[rustfmt::skip]
const ROWS: &[(&str, Bypass)] = &[
    ("-c x.c -fmodules-ts", Bypass::TooHard),
    ("-c x.cc -fmodules", Bypass::TooHard),
    ("-c x.cc -fmodule-file=m.pcm", Bypass::TooHard),
    ("-c x.cc -fcxx-modules", Bypass::TooHard),
    ("-c x.cc -Xclang -fmodules", Bypass::TooHard),
    ("-c x.c -Xclang -emit-pch", Bypass::TooHard),
    ("-c x.c -include-pch x.pch", Bypass::TooHard),
    ("-c x.c -emit-ast", Bypass::TooHard),
    ("-c x.c -ftime-report", Bypass::TooHard),
    ("-c x.cc -fstats", Bypass::TooHard),
    ("x.c -o x -ftime-report", Bypass::TooHard),
    ("-c x.c -Wp,-ftime-report", Bypass::TooHard),
    ("-c x.c -Xpreprocessor -ftime-report", Bypass::TooHard),
    ("-c x.c -Wp,-MD,x.d,-ftime-report", Bypass::TooHard),
    ("-c x.c -fdiagnostics-format=sarif-file", Bypass::TooHard),
    ("-c x.c -fdiagnostics-format=sarif-stderr", Bypass::TooHard),
    ("-c x.c -fdiagnostics-add-output=sarif:file=x", Bypass::TooHard),
    ("-c x.c -fdiagnostics-set-output=sarif", Bypass::TooHard),
    ("-c x.c -ftime-trace=t.json", Bypass::TooHard),
    ("x.c -o x -Wl,--perf", Bypass::TooHard),
    ("x.c -o x -Wl,--time-trace-file=x.json", Bypass::TooHard),
    ("x.c -o x -Wl,-O1,@statistics", Bypass::TooHard),
    ("x.c -o x -Wl,-mllvm,-time-passes", Bypass::TooHard),
    ("x.c -o x -Wl,-plugin-opt=-time-passes", Bypass::TooHard),
    ("-c x.c -fproc-stat-report=x", Bypass::TooHard),
    ("-c x.c -Xclang -stats-file-timers", Bypass::TooHard),
    ("-c x.c -save-stats=obj", Bypass::TooHard),
    ("-c x.c -mllvm -time-passes", Bypass::TooHard),
    ("-c --driver-mode=cl x.c", Bypass::TooHard),
    ("-c x.c @missing", Bypass::ResponseFile),
    ("-c x.c @loop", Bypass::ResponseFile),
];

/// With compilers other than gcc, a precompiled header or module contains the mtimes of the
/// headers.
#[rustfmt::skip]
const NOT_GCC: &[(&str, Bypass)] = &[
    ("-c x.h", Bypass::TooHard),
    ("-c -x c++-header x.h", Bypass::TooHard),
    ("-c -x c++-header y.cc", Bypass::TooHard),
    ("-c x.cppm", Bypass::TooHard),
];

/// Options of programs other than compiler drivers.
const NOT_DRIVERS: &[(Family, &str)] = &[
    (Family::Binutils, "a.o --stats"),
    (Family::Binutils, "@statistics"),
    (Family::Rustc, "x.rs -C link-arg=-Wl,--perf"),
    (Family::Rustc, "x.rs -Clink-args=-s␣-Wl,--time-trace-file=x"),
];

#[test]
fn statistics() {
    for (family, line) in NOT_DRIVERS {
        assert_eq!(parse(*family, &words(line), &Files), Err(Bypass::TooHard), "{line}");
    }
    assert!(parse(Family::Binutils, &words("a.o @rsp"), &Files).is_ok());
}

#[test]
fn reasons() {
    let not_gcc = [Family::Clang, Family::Generic];
    for (families, rows) in [(&[Family::Gcc, Family::Clang, Family::Generic][..], ROWS), (&not_gcc, NOT_GCC)] {
        for (family, (line, expect)) in families.iter().flat_map(|family| rows.iter().map(move |row| (*family, row))) {
            let outcome = parse(family, &words(line), &Files);
            assert_eq!(outcome.as_ref().err(), Some(expect), "{family:?} {line}: {outcome:?}");
        }
    }
}
