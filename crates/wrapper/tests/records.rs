//! Records that no run of larder makes: whoever can write to the store may put them there. Each is refused before anything
//! is touched, the tool runs, and what is outside the command's own directories is as it was.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use larder_model::{
    ActionResult, Blob, Content, Digest, Entry, ExplainWalk, Field, FileMode, Manifest, ModeRule, Output, OutputKind,
    Placement, Streams,
};
use larder_store::Store;
use larder_testkit::{Place, Ran, Tree};

/// The working directory, as a record has it.
const HERE: &str = "\0\u{1}";

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
    let (ran, outcome) = place.counted(place.larder(&["./mycc", "-c", "x.c", "-o", "x.o"]));
    (outcome, ran)
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(directory).expect("can be listed").map(|entry| entry.expect("can be read").path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Change the one record that there is.
fn forge(place: &Place, change: impl Fn(&mut ActionResult)) {
    let store = Store::open(&place.path("store")).expect("opens");
    let is_manifest = |path: &PathBuf| path.components().any(|part| part.as_os_str() == "manifests");
    let path = files(&place.path("store")).into_iter().find(is_manifest).expect("something is recorded");
    let bytes = fs::read(path).expect("can be read");
    let manifest = Manifest::decode(&bytes).expect("is whole");
    let old = &manifest.entries[0];
    let (set, mut result) = old.open().expect("is whole");
    change(&mut result);
    let field = |(name, value): &(&[u8], &[u8])| Field {
        name: String::from_utf8_lossy(name).into_owned(),
        value: value.to_vec(),
    };
    let walk = ExplainWalk { fields: manifest.fields.iter().map(field).collect() };
    let mut body = Vec::new();
    let entry = Entry::new(&manifest.weak, old.observer, 1, old.bound, &set, &result, &mut body);
    store.record(&manifest.weak, &walk, entry).expect("is recorded");
}

fn file(bits: u32, placement: Placement) -> OutputKind<'static> {
    let mode = FileMode { bits, rule: ModeRule::Set };
    OutputKind::File { placement, mode, content: Content::Inline(b"forged") }
}

const FILE: OutputKind = OutputKind::File {
    placement: Placement::Truncate,
    mode: FileMode { bits: 0o644, rule: ModeRule::Masked },
    content: Content::Inline(b"forged"),
};
const DIRECTORY: OutputKind = OutputKind::Directory(FileMode { bits: 0o755, rule: ModeRule::Masked });

/// The record is refused, with everything as it would be without it.
#[track_caller]
fn refused(place: &Place, what: &str, cause: &str) {
    let before = Tree::of(&place.path("home"));
    let (outcome, ran) = compile(place);
    assert_eq!(outcome, format!("fallback:{cause}"), "{what}");
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "said\n", ""), "{what}");
    assert_eq!(place.read("x.o"), b"object\n", "{what}");
    assert_eq!(Tree::of(&place.path("home")).difference(&before), None, "{what}: something outside was touched");
    for made in ["out", "new"] {
        assert!(!place.path("work").join(made).exists(), "{what}: {made} was made");
    }
    assert_eq!(compile(place).0, "hit", "{what}: the run was recorded anew");
}

#[test]
fn what_is_forged_well_is_believed() {
    let place = place();
    let within = format!("{HERE}/deep/er/extra");
    let (deep, deeper) = (format!("{HERE}/deep"), format!("{HERE}/deep/er"));
    forge(&place, |result| {
        for directory in [&deep, &deeper] {
            result.outputs.push(Output { path: directory.as_bytes(), kind: DIRECTORY });
        }
        result.outputs.push(Output { path: within.as_bytes(), kind: FILE });
    });
    assert_eq!(compile(&place).0, "hit");
    assert_eq!(place.read("deep/er/extra"), b"forged");
}

#[test]
fn places_outside() {
    let elsewhere = |place: &Place, name: &str| place.text("home").into_bytes().into_iter().chain(name.bytes()).collect();
    type Path = fn(&dyn Fn(&str) -> Vec<u8>) -> Vec<u8>;
    let paths: &[(&str, Path)] = &[
        ("an absolute path", |home| home("/.ssh-authorized_keys")),
        ("an absolute path of a file that is there", |home| home("/rc")),
        ("up and down", |_| format!("{HERE}/../home/new").into_bytes()),
        ("up and down, of a file that is there", |_| format!("{HERE}/../home/rc").into_bytes()),
        ("a relative path", |_| b"../home/new".to_vec()),
        ("a relative path within", |_| b"new".to_vec()),
        ("no path", |_| Vec::new()),
        ("the working directory", |_| HERE.into()),
        ("its parent", |_| format!("{HERE}/..").into_bytes()),
        ("through a link to a directory", |_| format!("{HERE}/lane/new").into_bytes()),
        ("through a link, in disguise", |_| format!("{HERE}/.//lane/./new").into_bytes()),
        ("through a link that goes up", |_| format!("{HERE}/lane/../home/new").into_bytes()),
        ("a device", |_| b"/dev/shm/larder-test-new".to_vec()),
        ("a descriptor", |_| b"/proc/self/cwd/new".to_vec()),
        ("an unknown root", |_| b"\0\x05/new".to_vec()),
        ("a NUL", |_| format!("{HERE}/a\0b").into_bytes()),
    ];
    let link = |place: &Place| OutputKind::Link(Box::leak(place.text("home/rc").into_bytes().into_boxed_slice()));
    for (what, path) in paths {
        let place = place();
        let path = path(&|name| elsewhere(&place, name));
        for kind in [FILE, DIRECTORY, OutputKind::Removed, link(&place), file(0o755, Placement::Rename)] {
            forge(&place, |result| result.outputs.push(Output { path: &path, kind }));
            refused(&place, &format!("{what}: {kind:?}"), "materialise");
        }
    }
    assert!(!Path::new("/dev/shm/larder-test-new").exists());
}

#[test]
fn through_what_the_record_makes_itself() {
    let place = place();
    let home = place.text("home");
    let link = OutputKind::Link(home.as_bytes());
    let new = format!("{HERE}/new/../../home/made");
    let cases: &[&[(&str, OutputKind)]] = &[
        &[(&format!("{HERE}/out"), link), (&format!("{HERE}/out/made"), FILE)],
        &[(&format!("{HERE}/out/made"), FILE), (&format!("{HERE}/out"), link)],
        &[(&format!("{HERE}/out"), link), (&format!("{HERE}/.//out/./made"), FILE)],
        &[(&format!("{HERE}/out"), link), (&format!("{HERE}/out/made"), OutputKind::Link(b"rc"))],
        &[(&format!("{HERE}/out"), link), (&format!("{HERE}/out/rc"), OutputKind::Removed)],
        &[(&format!("{HERE}/out"), link), (&format!("{HERE}/out/made"), DIRECTORY)],
        &[(&format!("{HERE}/new"), DIRECTORY), (&new, FILE)],
    ];
    for case in cases {
        forge(&place, |result| {
            result.outputs.extend(case.iter().map(|&(path, kind)| Output { path: path.as_bytes(), kind }));
        });
        refused(&place, &format!("{case:?}"), "materialise");
    }
}

#[test]
fn links_that_are_there_already() {
    let place = place();
    for name in ["rc", "dangling"] {
        for placement in [Placement::Truncate, Placement::Replace] {
            let path = format!("{HERE}/{name}");
            let kind = if name == "rc" { file(0o644, Placement::Truncate) } else { file(0o644, placement) };
            forge(&place, |result| result.outputs.push(Output { path: path.as_bytes(), kind }));
            refused(&place, &format!("{name}, {placement:?}"), "materialise");
        }
    }
    // What the command names is written through, as the tool would.
    fs::write(place.path("work/real"), "").expect("writes");
    forge(&place, |result| result.outputs.iter_mut().for_each(|output| output.kind = FILE));
    place.remove(&["x.o"]);
    symlink("../home/rc", place.path("work/x.o")).expect("links");
    let (_, outcome) = place.counted(place.larder(&["./mycc", "-c", "x.c", "-o", "x.o"]));
    assert_eq!(outcome, "hit");
    assert_eq!(fs::read(place.path("home/rc")).expect("is there"), b"forged");
}

#[test]
fn rights_sizes_and_standard_input() {
    let place = place();
    let path = format!("{HERE}/x.o");
    for bits in [0o4755, 0o2755, 0o6711] {
        for placement in [Placement::Truncate, Placement::Replace, Placement::Rename, Placement::Unlink] {
            let kind = file(bits, placement);
            forge(&place, |result| result.outputs = vec![Output { path: path.as_bytes(), kind }]);
            refused(&place, &format!("{bits:o} {placement:?}"), "materialise");
        }
    }
    let huge = Content::Blob(Blob { digest: Digest::of(b"huge"), size_bytes: 1 << 40 });
    forge(&place, |result| result.streams = Streams::Apart { stdout: huge, stderr: Content::EMPTY });
    refused(&place, "a message of a tebibyte", "damaged");
    forge(&place, |result| result.consumed_bytes = u64::MAX);
    refused(&place, "all of standard input", "damaged");
}
