//! Archives of objects by real compilers, made in two places.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use larder_relocate::{Places, Rule, can_be_relocated, relocate};

use crate::support::{Place, is_there};

/// The members: names with an even and an odd number of characters, and one that must go into the
/// table of long names.
const MEMBERS: [(&str, &str); 3] =
    [("small.c", "a.o"), ("data.c", "of_data.o"), ("list.c", "a_name_that_is_longer_than_a_header_holds.o")];

/// Makes an archive of objects compiled with `flags`, and of a text. Returns `None` if the archiver
/// fails.
fn archive(place: &Place, ar: &str, how: &str, flags: &[&str], text: Option<&str>) -> Option<Vec<u8>> {
    place.fill();
    let build = place.base.join("build");
    let mut names = Vec::new();
    for (source, name) in MEMBERS {
        let object = place.compile("gcc", flags, source, true).expect("compiles");
        fs::write(build.join(name), object).expect("an object");
        names.push(name);
    }
    if let Some(text) = text {
        fs::write(build.join("notes"), text.replace("PLACE", place.base.to_str().expect("is text"))).expect("a file");
        names.push("notes");
    }
    let archive = build.join("lib.a");
    let _ = fs::remove_file(&archive);
    let made = Command::new(ar).arg(how).arg("lib.a").args(names).current_dir(&build).status().expect("runs");
    made.success().then(|| fs::read(archive).expect("an archive"))
}

#[test]
fn archives_of_objects() {
    if !is_there("gcc") || !is_there("ar") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let base = dir.path().canonicalize().expect("a directory");
    let (here, there) = (Place::whole(&base.join("one")), Place::whole(&base.join("a/longer/one")));
    let places = Places { from: &[here.base.as_os_str().as_bytes()], to: &[there.base.as_os_str().as_bytes()] };
    let check = |ar: &str, how: &str, flags: &[&str], text: Option<&str>, is_relocated: bool| {
        if !is_there(ar) {
            return;
        }
        let make = |place: &Place| archive(place, ar, how, flags, text).expect("an archive");
        let (one, other) = (make(&here), make(&there));
        let made = relocate(Rule::Object, &one, &places);
        let name = format!("{ar} {how} {flags:?} {text:?}");
        assert_eq!(made.is_some(), is_relocated, "{name}");
        assert_eq!(can_be_relocated(Rule::Object, &one, places.from), is_relocated, "{name}");
        assert!(made.is_none_or(|made| made == other), "{name}");
    };
    for ar in ["ar", "llvm-ar", "llvm-ar-14"] {
        check(ar, "crD", &["-g"], None, true);
        check(ar, "crD", &["-g", "-O2"], Some("a text\n"), true);
        // An archive without a table of symbols.
        check(ar, "crSD", &["-g"], None, true);
        check(ar, "crD", &[], None, true);
        check(ar, "crD", &["-g"], Some("made in PLACE\n"), false);
        check(ar, "crD", &["-g", "-gz"], None, false);
        check(ar, "crDT", &["-g"], None, false);
    }
}
