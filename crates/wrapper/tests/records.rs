//! Forged records, such as anything that can write to the store may put there. Each must be refused
//! before anything is written. The tool then runs, and files outside of the command's own
//! directories stay as they are.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use larder_model::{
    ActionResult, Blob, Content, Digest, Entry, ExplainWalk, Field, FileMode, Made, Manifest, ModeRule, Output,
    OutputKind, Placement, Rewrite, Streams,
};
use larder_store::Store;
use larder_testkit::{Place, Ran, Tree};

/// The working directory as it is encoded in a record.
const HERE: &str = "\0\u{1}";
const COMMAND: &[&str] = &["./mycc", "-c", "x.c", "-o", "x.o"];

fn place() -> Place {
    let place = Place::new();
    place.tool("work/mycc", "echo object > x.o; echo said");
    place.put("x.c", "int a;\n");
    fs::write(place.path("home/rc"), "mine").expect("writes");
    symlink("../home", place.path("work/lane")).expect("links");
    symlink("../home/rc", place.path("work/rc")).expect("links");
    symlink("../home/new", place.path("work/dangling")).expect("links");
    compile(&place).1.ends(0);
    place
}

fn compile(place: &Place) -> (String, Ran) {
    place.remove(&["x.o"]);
    let (ran, outcome) = place.counted(place.larder(COMMAND));
    (outcome, ran)
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(directory).expect("can be listed").map(|entry| entry.expect("can be read").path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Leaks the bytes, so that they live as long as the test.
fn kept(bytes: impl Into<Vec<u8>>) -> &'static [u8] {
    Box::leak(bytes.into().into_boxed_slice())
}

/// Encodes a path below the working directory, as in a record.
fn here(name: &str) -> &'static [u8] {
    kept(format!("{HERE}{name}"))
}

/// Changes the only record of the store.
fn forge(place: &Place, change: impl Fn(&mut ActionResult<'static>)) {
    let store = Store::open(&place.path("store")).expect("opens");
    let is_manifest = |path: &PathBuf| path.components().any(|part| part.as_os_str() == "manifests");
    let path = files(&place.path("store")).into_iter().find(is_manifest).expect("something is recorded");
    let manifest = Manifest::decode(kept(fs::read(path).expect("can be read"))).expect("is whole");
    let old = &manifest.entries[0];
    let (set, mut result) = old.open().expect("is whole");
    change(&mut result);
    let field = |(name, value): &(&[u8], &[u8])| Field {
        name: String::from_utf8_lossy(name).into_owned(),
        value: value.to_vec(),
    };
    let walk = ExplainWalk { fields: manifest.fields.iter().map(field).collect() };
    let mut body = Vec::new();
    let made = Made { made_in: old.made_in, bound: old.bound.map(|why| (why, old.bound_by.to_vec())) };
    let entry = Entry::new(&manifest.weak, old.observer, 1, &made, &set, &result, &mut body);
    store.record(&manifest.weak, &walk, entry).expect("is recorded");
}

fn file(bits: u32, placement: Placement) -> OutputKind<'static> {
    let mode = FileMode { bits, rule: ModeRule::Set };
    OutputKind::File { placement, mode, rewrite: Rewrite::None, content: Content::Inline(b"forged") }
}

const FILE: OutputKind = OutputKind::File {
    placement: Placement::Truncate,
    mode: FileMode { bits: 0o644, rule: ModeRule::Masked },
    rewrite: Rewrite::None,
    content: Content::Inline(b"forged"),
};
const DIRECTORY: OutputKind = OutputKind::Directory(FileMode { bits: 0o755, rule: ModeRule::Masked });

/// Checks that the record is refused and that everything is as without it.
#[track_caller]
fn refused(place: &Place, what: &str, cause: &str) {
    let before = Tree::of(&place.path("home"));
    let (outcome, ran) = compile(place);
    assert_eq!(outcome, format!("fallback:{cause}"), "{what}");
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "said\n", ""), "{what}");
    assert_eq!(place.read("x.o"), b"object\n", "{what}");
    assert!(Tree::of(&place.path("home")).difference(&before).is_none(), "{what}: something outside was touched");
    for made in ["out", "new"] {
        assert!(!place.path("work").join(made).exists(), "{what}: {made} was made");
    }
    assert_eq!(compile(place).0, "hit", "{what}: the run was recorded anew");
}

#[test]
fn what_is_forged_well_is_believed() {
    let place = place();
    forge(&place, |result| {
        for (name, kind) in [("/deep", DIRECTORY), ("/deep/er", DIRECTORY), ("/deep/er/extra", FILE)] {
            result.outputs.push(Output::new(here(name), kind));
        }
    });
    assert_eq!(compile(&place).0, "hit");
    assert_eq!(place.read("deep/er/extra"), b"forged");
}

#[test]
fn places_outside() {
    let paths: &[(&str, &str)] = &[
        ("an absolute path", "HOME/.ssh-authorized_keys"),
        ("an absolute path of a file that is there", "HOME/rc"),
        ("up and down", "HERE/../home/new"),
        ("up and down, of a file that is there", "HERE/../home/rc"),
        ("a relative path", "../home/new"),
        ("a relative path within", "new"),
        ("no path", ""),
        ("the working directory", "HERE"),
        ("its parent", "HERE/.."),
        ("through a link to a directory", "HERE/lane/new"),
        ("through a link, in disguise", "HERE/.//lane/./new"),
        ("through a link that goes up", "HERE/lane/../home/new"),
        ("a device", "/dev/shm/larder-test-new"),
        ("an unknown root", "\0\u{5}/new"),
        ("a NUL", "HERE/a\0b"),
        ("a hook of the repository", "HERE/.git/hooks/pre-commit"),
        ("a repository's configuration", "HERE/sub/.GIT/config"),
        ("a repository", "HERE/.git"),
    ];
    let place = place();
    let link = OutputKind::Link(kept(place.text("home/rc")));
    for (what, path) in paths {
        let path = kept(path.replace("HOME", &place.text("home")).replace("HERE", HERE));
        for kind in [FILE, DIRECTORY, OutputKind::Removed, link, file(0o755, Placement::Rename)] {
            forge(&place, |result| result.outputs.push(Output::new(path, kind)));
            refused(&place, &format!("{what}: {kind:?}"), "materialise");
        }
    }
    assert!(!Path::new("/dev/shm/larder-test-new").exists());
}

/// Paths below the working directory that this compiler never writes for this command.
#[test]
fn what_no_compiler_makes() {
    let place = Place::new();
    place.put("x.c", "#include \"x.h\"\nint a;\n");
    place.put("x.h", "");
    place.put("Makefile", "all:\n");
    place.put(".git/hooks/there", "#!/bin/sh\n");
    place.settle();
    let compile = || place.counted(place.larder(&["gcc", "-c", "x.c", "-o", "x.o"]));
    compile().0.ends(0);
    assert_eq!(compile().1, "hit");
    let theirs = ["x.c", "x.h", "Makefile", "GNUmakefile", ".git/hooks/there", ".git/hooks/pre-commit", "y.o", "x.py"];
    for name in theirs {
        let read = || fs::read(place.path("work").join(name)).ok();
        let before = read();
        for kind in [FILE, OutputKind::Removed, file(0o755, Placement::Rename)] {
            forge(&place, |result| result.outputs.push(Output::new(here(&format!("/{name}")), kind)));
            assert_eq!(compile().1, "fallback:materialise", "{name}, {kind:?}");
            assert_eq!(read(), before, "{name}, {kind:?}");
            assert_eq!(compile().1, "hit", "{name}, {kind:?}: the run was recorded anew");
        }
    }
    for name in ["x.su", "x.gcno", "x.c.234t.optimized"] {
        forge(&place, |result| result.outputs.push(Output::new(here(&format!("/{name}")), FILE)));
        assert_eq!(compile().1, "hit", "{name}");
        assert_eq!(place.read(name), b"forged");
    }
}

#[test]
fn through_what_the_record_makes_itself() {
    let place = place();
    let link = OutputKind::Link(kept(place.text("home")));
    let cases: &[&[(&str, OutputKind<'static>)]] = &[
        &[("/out", link), ("/out/made", FILE)],
        &[("/out/made", FILE), ("/out", link)],
        &[("/out", link), ("/.//out/./made", FILE)],
        &[("/out", link), ("/out/made", OutputKind::Link(b"rc"))],
        &[("/out", link), ("/out/rc", OutputKind::Removed)],
        &[("/out", link), ("/out/made", DIRECTORY)],
        &[("/new", DIRECTORY), ("/new/../../home/made", FILE)],
    ];
    for case in cases {
        forge(&place, |result| {
            result.outputs.extend(case.iter().map(|&(path, kind)| Output::new(here(path), kind)));
        });
        refused(&place, &format!("{case:?}"), "materialise");
    }
}

#[test]
fn links_that_are_there_already() {
    let place = place();
    for (name, placement) in
        [("/rc", Placement::Truncate), ("/dangling", Placement::Truncate), ("/dangling", Placement::Replace)]
    {
        forge(&place, |result| result.outputs.push(Output::new(here(name), file(0o644, placement))));
        refused(&place, &format!("{name}, {placement:?}"), "materialise");
    }
    // A link that the command names as its output is written through, as the tool would do.
    forge(&place, |result| result.outputs.iter_mut().for_each(|output| output.kind = FILE));
    place.remove(&["x.o"]);
    symlink("../home/rc", place.path("work/x.o")).expect("links");
    let (_, outcome) = place.counted(place.larder(COMMAND));
    assert_eq!(outcome, "hit");
    assert_eq!(fs::read(place.path("home/rc")).expect("is there"), b"forged");
}

/// Such a result has an outcome of its own, and an outer run is not recorded.
#[test]
fn a_result_that_is_put_in_place_by_half() {
    let place = place();
    // The path stands in the script, because a variable more would change the inner command's key.
    let script = format!("{} ./mycc -c x.c -o x.o; echo $? > code", larder_testkit::larder().display());
    let outer = || place.counted(place.larder(&["run", "--", "sh", "-c", &script]));
    let forged = || {
        // The second removal fails, because the first one has removed the file.
        let twice = [Output::new(here("/gone"), OutputKind::Removed), Output::new(here("/gone"), OutputKind::Removed)];
        forge(&place, |result| {
            result.repeatable = false;
            result.outputs.extend(twice);
        });
        place.put("gone", "x");
        place.settle();
    };
    forged();
    let (outcome, ran) = compile(&place);
    assert_eq!((outcome.as_str(), ran.code, ran.stdout.as_str()), ("fallback:half-placed", Some(1), ""));
    assert!(ran.stderr.contains("some outputs of the command are in place"), "{ran:#?}");
    for _ in 0..3 {
        place.remove(&["x.o"]);
        forged();
        let (_, outcome) = outer();
        assert_eq!(place.read("code"), b"1\n");
        assert!(outcome.contains("half-placed") && outcome.contains("miss:incomplete"), "{outcome}");
    }
}

#[test]
fn rights_sizes_and_standard_input() {
    let place = place();
    for bits in [0o4755, 0o2755, 0o6711] {
        for placement in [Placement::Truncate, Placement::Replace, Placement::Rename, Placement::Unlink] {
            let kind = file(bits, placement);
            forge(&place, |result| result.outputs = vec![Output::new(here("/x.o"), kind)]);
            refused(&place, &format!("{bits:o} {placement:?}"), "materialise");
        }
    }
    let huge = Content::Blob(Blob { digest: Digest::of(b"huge"), size_bytes: 1 << 40 });
    forge(&place, |result| result.streams = Streams::Apart { stdout: huge, stderr: Content::EMPTY });
    refused(&place, "a message of a tebibyte", "damaged");
    forge(&place, |result| result.consumed_bytes = u64::MAX);
    refused(&place, "all of standard input", "damaged");
}
