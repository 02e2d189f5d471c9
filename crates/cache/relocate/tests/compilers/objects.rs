//! Objects of real compilers, made in two places. Relocating from the first place must give the
//! bytes made in the second.
//!
//! `cargo test -p larder-relocate --test compilers -- --nocapture` prints the counts. The variable
//! `OTHER_COMPILERS` adds compilers, for example `gcc-11,g++-11 clang-19,clang++-19`.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use larder_relocate::{Places, Rule, can_be_relocated, relocate};

use crate::support::{Place, is_there};

/// The directories of two places. The last two begin alike.
const PLACES: [(&str, &str); 5] = [
    ("a", "a-longer-name/and/deeper"),
    ("some/where/deep/below", "b"),
    ("one", "two"),
    ("c", "c/c"),
    ("name", "name-and-more"),
];

const DEBUG: [&[&str]; 7] = [
    &[],
    &["-g"],
    &["-g", "-O2"],
    &["-gdwarf-4"],
    &["-gdwarf-5", "-O1"],
    &["-g1"],
    &["-g", "-O2", "-fno-ident", "-fPIC"],
];

/// More flags, which are tried with fewer sources because they take long.
const MORE_DEBUG: [&[&str]; 6] = [
    &["-ggdb3"],
    &["-gdwarf-4", "-ggdb3"],
    &["-gdwarf-2"],
    &["-gdwarf-3", "-O2"],
    &["-g", "-ffunction-sections", "-fdata-sections"],
    &["-g", "-O2", "-fno-asynchronous-unwind-tables", "-pthread"],
];

#[derive(Default)]
struct Counts {
    equal: usize,
    /// Only in another order, and otherwise equal.
    reordered: usize,
    refused: usize,
}

/// One compile in both places.
struct Case<'a> {
    compiler: &'a str,
    flags: Vec<&'a str>,
    source: &'a str,
    is_absolute: bool,
}

fn cases<'a>(c: &'a str, cxx: &'a str) -> Vec<Case<'a>> {
    let mut cases = Vec::new();
    let sources = [("small.c", c), ("data.c", c), ("list.c", c), ("math.c", c), ("plain.cc", cxx)];
    for (number, flags) in DEBUG.iter().chain(&MORE_DEBUG).enumerate() {
        for (source, compiler) in sources {
            let both = [true, false];
            let chosen = if number < DEBUG.len() { &both[..] } else { &both[number % 2..][..1] };
            cases.extend(chosen.iter().map(|&is_absolute| Case {
                compiler,
                flags: flags.to_vec(),
                source,
                is_absolute,
            }));
        }
    }
    if c.ends_with("clang") {
        let flags = ["-g", "--target=aarch64-linux-gnu"];
        let both = [true, false];
        cases.extend(both.map(|is_absolute| Case {
            compiler: c,
            flags: flags.to_vec(),
            source: "small.c",
            is_absolute,
        }));
    }
    for flags in [&["-g"][..], &["-gdwarf-4", "-O2"]] {
        cases.push(Case { compiler: cxx, flags: flags.to_vec(), source: "stl.cc", is_absolute: true });
    }
    cases
}

/// Compares one case, and counts the result.
fn judge(case: &Case<'_>, number: usize, base: &Path, counts: &Mutex<BTreeMap<String, Counts>>) {
    let (from, to) = PLACES[number % PLACES.len()];
    let place = |name: &str| Place::whole(&base.join(number.to_string()).join(name));
    let (from, to) = (place(from), place(to));
    from.fill();
    to.fill();
    let make = |place: &Place| place.compile(case.compiler, &case.flags, case.source, case.is_absolute);
    let (Some(here), Some(there)) = (make(&from), make(&to)) else { panic!("{} {:?}", case.compiler, case.flags) };
    let places = Places { from: &[from.base.as_os_str().as_bytes()], to: &[to.base.as_os_str().as_bytes()] };
    let name = format!("{} {} {}", case.compiler, case.flags.join(" "), case.source);
    let version = if case.flags.iter().any(|flag| flag.starts_with("-gdwarf-") && !flag.ends_with('5')) {
        "DWARF 2 to 4"
    } else if case.flags.iter().any(|flag| flag.starts_with("-g")) {
        "DWARF 5"
    } else {
        "no debug information"
    };
    let mut counts = counts.lock().expect("no panic");
    let counts = counts.entry(format!("{} {version}", case.compiler)).or_default();
    match relocate(Rule::Object, &here, &places) {
        Some(made) => {
            assert!(made == there, "{name}, number {number}, differs");
            assert!(can_be_relocated(Rule::Object, &here, places.from), "{name}, {number}: can_be_relocated is false");
            counts.equal += 1;
        }
        None => match relocate(Rule::ObjectInAnyOrder, &here, &places) {
            Some(made) => {
                assert_eq!(made.len(), there.len(), "{name}, number {number}, differs");
                assert_eq!(shown(&made, &to.base), shown(&there, &to.base), "{name}, number {number}, differs");
                counts.reordered += 1;
            }
            None => {
                println!("refused: {name}, number {number}");
                counts.refused += 1;
            }
        },
    }
}

/// Returns what readelf prints about an object's debug information, without the offsets of strings.
/// Returns `None` without readelf.
fn shown(object: &[u8], dir: &Path) -> Option<String> {
    let file = dir.join("shown.o");
    std::fs::write(&file, object).expect("a file");
    let output = Command::new("readelf").args(["--debug-dump=info,macro,line", "-W"]).arg(file).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mask = |line: &str| match line.split_once("offset: ") {
        Some((before, after)) => {
            format!("{before}{}", after.trim_start_matches(|c: char| c.is_ascii_hexdigit() || c == 'x'))
        }
        None => line.to_string(),
    };
    Some(text.lines().map(mask).collect::<Vec<_>>().join("\n"))
}

fn check(c: &str, cxx: &str) {
    if !is_there(c) || !is_there(cxx) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let base = dir.path().canonicalize().expect("a directory");
    let cases = cases(c, cxx);
    let counts = Mutex::new(BTreeMap::new());
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(case) = cases.get(number) else { return };
                    judge(case, number, &base, &counts);
                }
            });
        }
    });
    for (name, Counts { equal, reordered, refused }) in counts.into_inner().expect("no panic") {
        println!("| {name} | {equal} | {reordered} | {refused} |");
        assert_eq!(refused, 0, "{name}");
    }
}

#[test]
fn objects_of_gcc() {
    check("gcc", "g++");
}

#[test]
fn objects_of_clang() {
    check("clang", "clang++");
}

#[test]
fn objects_of_others() {
    let others = std::env::var("OTHER_COMPILERS").unwrap_or_default();
    for (c, cxx) in others.split_whitespace().filter_map(|pair| pair.split_once(',')) {
        check(c, cxx);
    }
}
