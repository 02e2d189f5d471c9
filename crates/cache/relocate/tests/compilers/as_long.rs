//! Objects, programs and libraries that contain the path of their place for their own use. They are
//! made in two places whose paths have the same length. Relocating from the first place must give
//! the bytes made in the second.

use std::os::unix::ffi::OsStrExt;

use larder_relocate::{Places, Rule, relocate};

use crate::programs::link;
use crate::support::{Place, is_there};

/// The directories of two places.
const PLACES: [(&str, &str); 4] = [("11", "12"), ("sandbox/7/run", "sandbox/8/run"), ("one", "two"), ("a/b", "c/d")];

const FLAGS: [&[&str]; 6] =
    [&["-O2"], &["-g", "-O2"], &["-g"], &["-g", "-shared", "-fPIC"], &["-no-pie"], &["-g", "-Wl,--build-id"]];

fn check(compiler: &str) {
    if !is_there(compiler) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let base = dir.path().canonicalize().expect("a directory");
    let mut equal = 0;
    for (number, flags) in FLAGS.into_iter().enumerate() {
        for (from, to) in PLACES {
            let place = |name: &str| Place::whole(&base.join(number.to_string()).join(name));
            let (from, to) = (place(from), place(to));
            let places = Places { from: &[from.base.as_os_str().as_bytes()], to: &[to.base.as_os_str().as_bytes()] };
            let make = |place: &Place| {
                place.fill();
                let run_path = format!("-Wl,-rpath,{}/lib:/usr/lib", place.base.display());
                let flags: Vec<&str> = flags.iter().copied().chain([run_path.as_str()]).collect();
                let program = link(place, compiler, &flags, &["main.c", "file.c", "list.c"], true);
                [program, place.compile(compiler, &flags[..flags.len() - 1], "file.c", true)]
            };
            for (here, there) in make(&from).into_iter().zip(make(&to)) {
                let name = format!("{compiler} {flags:?} {:?} {:?}", from.base, to.base);
                let (here, there) = (here.expect(&name), there.expect(&name));
                assert_ne!(here, there, "{name}");
                assert!(
                    relocate(Rule::Object, &here, &places).is_none(),
                    "{name}: Rule::Object is enough, so this tests nothing"
                );
                let made = relocate(Rule::AsLong, &here, &places);
                assert!(made.expect(&name) == there, "{name} differs");
                equal += 1;
            }
        }
    }
    println!("| {compiler}, places as long as each other | {equal} |");
}

#[test]
fn files_of_gcc() {
    check("gcc");
}

#[test]
fn files_of_clang() {
    check("clang");
}
