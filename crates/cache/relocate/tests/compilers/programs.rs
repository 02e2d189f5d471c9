//! Programs and shared libraries linked by real compilers and GNU ld in two places. Relocating from
//! the first place must give the bytes made in the second.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use larder_relocate::{Places, Rule, can_be_relocated, relocate};

use crate::support::{Place, is_there};

/// The directories of two places.
const PLACES: [(&str, &str); 6] = [
    ("a", "a-longer-name/and/deeper"),
    ("some/where/deep/below", "b"),
    ("one", "two"),
    ("c", "c/c"),
    ("p", "pq"),
    ("name", "name-and-more"),
];

const FLAGS: [&[&str]; 8] = [
    &["-g", "-O2"],
    &["-g"],
    &["-g", "-O2", "-static"],
    &["-g", "-no-pie"],
    &["-g", "-shared", "-fPIC"],
    &["-g1", "-O1"],
    &["-ggdb3"],
    &["-g", "-Wl,--build-id"],
];

const MAIN: &str = "#include <stdio.h>\n#include \"inner.h\"\nextern int small(int);\n__attribute__((weak)) int small(int a) { return a; }\n\
                    int main(int count, char **words) { puts(words[0]); return inner(count) + small(2); }\n";

/// Links in `build`. Returns `None` if the command fails.
pub(crate) fn link(
    place: &Place,
    compiler: &str,
    flags: &[&str],
    sources: &[&str],
    is_absolute: bool,
) -> Option<Vec<u8>> {
    fs::write(place.sources.join("main.c"), MAIN).expect("a source");
    let output = Command::new(compiler)
        .args(flags)
        .arg("-I")
        .arg(place.base.join("inc"))
        .args(["-o", "x"])
        .args(sources.iter().map(|source| place.source(source, is_absolute)))
        .current_dir(place.base.join("build"))
        .output()
        .expect("a compiler");
    if !output.status.success() {
        println!("{compiler} {flags:?} {sources:?}: {}", String::from_utf8_lossy(&output.stderr));
        return None;
    }
    Some(fs::read(place.base.join("build/x")).expect("a program"))
}

/// For each compiler: how many results were equal, and how many were refused.
type Counts = BTreeMap<String, [usize; 2]>;

fn judge(base: &Path, compiler: &str, flags: &[&str], sources: &[&str], number: usize, counts: &mut Counts) {
    for (at, (from, to)) in PLACES.into_iter().enumerate().filter(|(at, _)| (at + number).is_multiple_of(2)) {
        let place = |name: &str| Place::whole(&base.join(format!("{number}-{at}")).join(name));
        let (from, to) = (place(from), place(to));
        from.fill();
        to.fill();
        let is_absolute = (number + at / 2).is_multiple_of(2);
        let make = |place: &Place| link(place, compiler, flags, sources, is_absolute);
        let (Some(here), Some(there)) = (make(&from), make(&to)) else { panic!("{compiler} {flags:?}") };
        let places = Places { from: &[from.base.as_os_str().as_bytes()], to: &[to.base.as_os_str().as_bytes()] };
        let name = format!("{compiler} {flags:?} {sources:?} {from:?} {to:?}", from = from.base, to = to.base);
        let counts = counts.entry(compiler.to_owned()).or_default();
        match relocate(Rule::Object, &here, &places) {
            Some(made) => {
                assert!(made == there, "{name} differs");
                assert!(can_be_relocated(Rule::Object, &here, places.from), "{name}: can_be_relocated is false");
                counts[0] += 1;
            }
            None => {
                println!("refused: {name}");
                counts[1] += 1;
            }
        }
    }
}

fn check(c: &str, cxx: &str) {
    if !is_there(c) || !is_there(cxx) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let base = dir.path().canonicalize().expect("a directory");
    let mut counts = Counts::new();
    let mut number = 0;
    for flags in FLAGS {
        for (sources, compiler) in
            [(&["main.c"][..], c), (&["main.c", "small.c", "list.c"], c), (&["main.c", "plain.cc"], cxx)]
        {
            number += 1;
            judge(&base, compiler, flags, sources, number, &mut counts);
        }
    }
    for (name, [equal, refused]) in counts {
        println!("| {name}, linked | {equal} | {refused} |");
        assert_eq!(refused, 0, "{name}");
    }
}

#[test]
fn programs_of_gcc() {
    check("gcc", "g++");
}

#[test]
fn programs_of_clang() {
    check("clang", "clang++");
}

/// Files that are not understood are refused: other linkers, other versions of DWARF, compression,
/// `__FILE__`, a run path.
#[test]
fn refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let base = dir.path().canonicalize().expect("a directory");
    let place = Place::whole(&base.join("here"));
    place.fill();
    let run_path = format!("-Wl,-rpath,{}/lib", place.base.display());
    let cases: [(&[&str], &[&str]); 9] = [
        (&["-g", "-fuse-ld=gold"], &["main.c", "list.c"]),
        (&["-g", "-fuse-ld=lld"], &["main.c", "list.c"]),
        (&["-gdwarf-4"], &["main.c"]),
        (&["-g", "-gz"], &["main.c"]),
        (&["-g", "-flto"], &["main.c", "list.c"]),
        (&["-g", "-Wl,--build-id=md5"], &["main.c"]),
        (&["-g", "-Wl,--emit-relocs"], &["main.c"]),
        (&["-g"], &["main.c", "file.c"]),
        (&["-g", &run_path], &["main.c"]),
    ];
    for (flags, sources) in cases {
        let Some(here) = link(&place, "gcc", flags, sources, true) else { continue };
        let roots = [place.base.as_os_str().as_bytes()];
        assert!(!can_be_relocated(Rule::Object, &here, &roots), "{flags:?} {sources:?}");
    }
}
