//! Files that are refused, and why; and places with several roots.

use std::ffi::OsStr;
use std::io::Cursor;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use larder_relocate::{Places, Rule, can_be_relocated, hides_its_text, holds_a_root, leads_a_linker, relocate};

use crate::support::{Place, is_there};

fn roots(paths: &[&Path]) -> Vec<Vec<u8>> {
    paths.iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect()
}

/// Compiles in both places and relocates. A result that is not refused must be equal to what the
/// other place made.
fn check(from: &[&Path], to: &[&Path], here: &[u8], there: &[u8], expect: bool, what: &str) {
    let (from, to) = (roots(from), roots(to));
    let from: Vec<&[u8]> = from.iter().map(Vec::as_slice).collect();
    let to: Vec<&[u8]> = to.iter().map(Vec::as_slice).collect();
    let made = relocate(Rule::Object, here, &Places { from: &from, to: &to });
    assert_eq!(made.is_some(), expect, "{what}");
    assert!(made.is_none_or(|made| made == there), "{what} differs");
}

#[test]
fn names_that_no_string_holds_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let base = dir.path().canonicalize().expect("a directory");
    let place = Place::whole(&base.join("here"));
    place.fill();
    let root = place.base.as_os_str().as_bytes();
    let cases: [(&str, &[&str], &str); 13] = [
        ("gcc", &["-g", "-gz"], "list.c"),
        ("gcc", &["-g", "-gsplit-dwarf"], "list.c"),
        ("gcc", &["-gdwarf-4", "-gsplit-dwarf"], "list.c"),
        ("gcc", &["-g", "-fdebug-types-section"], "list.c"),
        ("gcc", &["-g", "-flto"], "list.c"),
        ("gcc", &["-g", "--coverage"], "list.c"),
        ("gcc", &["-g"], "file.c"),
        ("gcc", &[], "file.c"),
        ("clang", &["-g", "-gsplit-dwarf"], "list.c"),
        ("clang", &["-gdwarf-4", "-gsplit-dwarf"], "list.c"),
        ("clang", &["-g", "-flto"], "list.c"),
        ("clang++", &["-gdwarf-5", "-gpubnames"], "stl.cc"),
        ("clang", &["-g", "-fprofile-instr-generate", "-fcoverage-mapping"], "list.c"),
    ];
    for (compiler, flags, source) in cases {
        if !is_there(compiler) {
            continue;
        }
        let is_hidden = flags.iter().any(|flag| ["-gz", "-flto"].contains(flag));
        let Some(object) = place.compile(compiler, flags, source, true) else { continue };
        assert_eq!(hides_its_text(&object), is_hidden, "{compiler} {flags:?} {source}");
        for rule in [Rule::Object, Rule::ObjectInAnyOrder] {
            assert!(!can_be_relocated(rule, &object, &[root]), "{compiler} {flags:?} {source}");
        }
    }
}

#[test]
fn places_of_two_roots() {
    let dir = tempfile::tempdir().expect("a directory");
    let base = dir.path().canonicalize().expect("a directory");
    for compiler in ["gcc", "clang"] {
        if !is_there(compiler) {
            continue;
        }
        // The sources are below the build in the old place, and outside it in the new one.
        let from = Place { base: base.join("w"), sources: base.join("w/deep/src") };
        let to = Place { base: base.join("other/w"), sources: base.join("s") };
        from.fill();
        to.fill();
        for flags in [&["-g"][..], &["-g", "-O2"], &["-O2"]] {
            let make = |place: &Place| place.compile(compiler, flags, "list.c", true).expect("a sound source");
            let (here, there) = (make(&from), make(&to));
            // clang splits paths after the part that they share, which is longer in the old place.
            let expect = compiler == "gcc" || !flags.contains(&"-g");
            let what = format!("{compiler} {flags:?}");
            check(&[&from.base, &from.sources], &[&to.base, &to.sources], &here, &there, expect, &what);
        }
        // Both roots move together.
        let to = Place { base: base.join("x/y/z"), sources: base.join("x/y/z/deep/src") };
        to.fill();
        let make = |place: &Place| place.compile(compiler, &["-g"], "list.c", true).expect("a sound source");
        let (here, there) = (make(&from), make(&to));
        check(&[&from.base, &from.sources], &[&to.base, &to.sources], &here, &there, true, compiler);
        check(&[&from.base], &[&to.base], &here, &there, true, compiler);
    }
}

#[test]
fn clang_shares_names_with_the_system() {
    if !is_there("clang") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let place = Place::whole(&dir.path().canonicalize().expect("a directory").join("here"));
    place.fill();
    let object = place.compile("clang", &["-g"], "list.c", true).expect("a sound source");
    let root = place.base.as_os_str().as_bytes();
    let to = |to: &str| relocate(Rule::Object, &object, &Places { from: &[root], to: &[to.as_bytes()] });
    assert!(to("/elsewhere").is_some());
    // In that place clang would write `/usr` and `include/stdio.h`.
    assert!(to("/usr/src").is_none());
}

/// Two places side by side, with a header next to both, and built from the directory above them.
#[test]
fn places_below_one_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let base = dir.path().canonicalize().expect("a directory");
    let (from, to) = (Place::whole(&base.join("one")), Place::whole(&base.join("other/two")));
    let beside = Place::whole(&base.join("three"));
    let common = base.join("common");
    std::fs::create_dir_all(&common).expect("a directory");
    std::fs::write(common.join("common.h"), "static inline int common(int a) { return a; }\n").expect("a header");
    let header = common.join("common.h");
    let header = header.to_str().expect("a plain name");
    for compiler in ["gcc", "clang"].into_iter().filter(|compiler| is_there(compiler)) {
        let flags = ["-g", "-include", header];
        let make = |place: &Place| {
            place.fill();
            place.compile(compiler, &flags, "small.c", true).expect("a sound source")
        };
        let here = make(&from);
        check(&[&from.base], &[&beside.base], &here, &make(&beside), true, compiler);
        // In that place the paths share one more directory.
        check(&[&from.base], &[&to.base], &here, &make(&to), true, compiler);
        let above = |place: &Place| {
            let source = place.source("small.c", true);
            let status = Command::new(compiler).args(["-g", "-c", "-o", "x.o"]).arg(source).current_dir(&base).status();
            assert!(status.expect("a compiler").success());
            std::fs::read(base.join("x.o")).expect("an object")
        };
        let here = above(&from);
        assert!(holds_a_root(&here, &[from.base.as_os_str().as_bytes()]), "{compiler}");
        check(&[&from.base], &[&beside.base], &here, &above(&beside), compiler == "gcc", compiler);
    }
}

/// The assembler does not use a hash table for its own debug information.
#[test]
fn sources_of_the_assembler() {
    let dir = tempfile::tempdir().expect("a directory");
    let base = dir.path().canonicalize().expect("a directory");
    let (from, to) = (Place::whole(&base.join("a")), Place::whole(&base.join("longer/b")));
    for place in [&from, &to] {
        place.fill();
        std::fs::write(place.sources.join("x.s"), ".text\n.globl f\nf: nop\n ret\n").expect("a source");
        std::fs::write(place.sources.join("y.S"), "#define G g\n.text\n.globl G\nG: nop\n ret\n").expect("a source");
    }
    for compiler in ["gcc", "clang"].into_iter().filter(|compiler| is_there(compiler)) {
        for flags in [&["-g"][..], &["-gdwarf-4"], &["-gdwarf-5"]] {
            for (source, is_absolute) in [("x.s", true), ("x.s", false), ("y.S", true), ("y.S", false)] {
                let make = |place: &Place| place.compile(compiler, flags, source, is_absolute).expect("a sound source");
                let what = format!("{compiler} {flags:?} {source} {is_absolute}");
                // clang writes these paths into `.debug_info` itself.
                check(&[&from.base], &[&to.base], &make(&from), &make(&to), compiler == "gcc", &what);
            }
        }
    }
}

#[test]
fn bytes_that_are_no_objects_are_refused() {
    let root = OsStr::new("/w").as_bytes();
    for bytes in [&b""[..], b"\x7fELF", b"/w/x.c", b"!<arch>\n"] {
        assert!(!can_be_relocated(Rule::Object, bytes, &[root]));
    }
}

#[test]
fn libraries_that_lead_a_linker() {
    if !is_there("gcc") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let here = dir.path().canonicalize().expect("a directory");
    let script = "echo 'int f(void) { return 1; }' > x.c; mkdir l; gcc -g -c x.c
        gcc -g -shared -fPIC x.c -o l/plain.so; ar rc plain.a x.o; ar rcT near.a x.o
        gcc -shared -fPIC x.c l/plain.so -o near.so -Wl,-rpath,'$ORIGIN/l'
        gcc -shared -fPIC x.c l/plain.so -o runpath.so -Wl,-rpath,/usr/no:\"$PWD/l\"
        gcc -shared -fPIC x.c l/plain.so -o rpath.so -Wl,--disable-new-dtags,-rpath,\"$PWD/l\"
        gcc -shared -fPIC x.c -Wl,--no-as-needed \"$PWD/l/plain.so\" -o needed.so";
    let status = Command::new("sh").args(["-ec", script]).current_dir(&here).status().expect("a shell");
    assert!(status.success());
    let check = |name: &str, expect: bool| {
        let file = std::fs::File::open(here.join(name)).expect("a file");
        assert_eq!(leads_a_linker(file, &[here.as_os_str().as_bytes()]), expect, "{name}");
    };
    for name in ["x.c", "x.o", "plain.a", "l/plain.so", "near.so", "near.a"] {
        check(name, false);
    }
    for name in ["runpath.so", "rpath.so", "needed.so"] {
        check(name, true);
    }
    let thin = |member: &str| leads_a_linker(Cursor::new(format!("!<thin>\n{member}/\n")), &[b"/w/a"]);
    assert!(thin("/w/a/x.o") && !thin("/w/b/x.o"));
}
