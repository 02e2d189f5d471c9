//! A mounted image behaves like a plain directory: system calls by `probe.py`, and git, npm, pip and
//! cargo by `judges.sh`. docs/mounting.md has the differences that are left.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;

use larder_testkit::{Place, Ran, has, is_root, larder_text, probe_skip};

/// The kernel shows a mapping of a file as it was when it was mapped, if that was before the first
/// write.
const OF_ALL: &[&str] = &["a mapping made before the file is first written"];

/// squashfuse gives each name of a hard link a number of its own.
const OF_SQUASHFUSE: &[&str] =
    &["a file with two hard links is written", "listed and looked up inode numbers are equal"];

/// An ordinary user's overlay has neither redirections nor an index.
const OF_USERS: &[&str] = &[
    "a directory is renamed",
    "it is renamed again, into a new directory",
    "a directory gets its old name",
    "two directories are exchanged",
    "a file with two hard links is written",
    "a file gets a hard link and is written",
    "all is on one device",
];

/// Returns the path of a file of this test.
fn own(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images_alike").join(name);
    path.to_str().expect("not UTF-8").to_owned()
}

/// Runs a command in a plain directory that `make` filled, at the path at which the image of the same
/// content is mounted afterwards. Returns what it printed.
fn in_plain(place: &Place, make: &[&str], act: &[&str]) -> Ran {
    let tree = place.path("work/tree");
    fs::create_dir(&tree).expect("cannot create the directory");
    place.with_cargo(place.run(make)).cwd(&tree).run().ends(0);
    place.image(&["save", "--strict", "--key", "k", "tree"]).run().ends(0);
    let plain = place.with_cargo(place.run(act)).cwd(&tree).run();
    fs::remove_dir_all(&tree).expect("cannot remove the directory");
    plain
}

/// Returns the names of the lines that differ.
fn differing(plain: &str, mounted: &str) -> Vec<String> {
    let lines = |text: &str| -> Vec<(String, String)> {
        let pairs = text.lines().filter_map(|line| line.split_once(": "));
        pairs.map(|(name, result)| (name.to_owned(), result.to_owned())).collect()
    };
    let (plain, mounted) = (lines(plain), lines(mounted));
    assert!(plain.len() > 20, "{plain:?}");
    assert_eq!(plain.len(), mounted.len(), "{mounted:?}");
    let differ = plain.iter().zip(&mounted).filter(|(plain, mounted)| plain != mounted);
    differ.map(|(_, (name, _))| name.clone()).collect()
}

/// Returns all names of the lists, in the order of the probe.
fn expected(lists: &[&[&str]], plain: &str) -> Vec<String> {
    let names = plain.lines().filter_map(|line| line.split_once(": ").map(|(name, _)| name));
    names.filter(|name| lists.iter().any(|list| list.contains(name))).map(str::to_owned).collect()
}

#[test]
fn system_calls_do_the_same() {
    probe_skip!(is_root(), "only root can mount without a broker");
    probe_skip!(has("python3"), "python3 is not installed");
    let place = Place::new();
    let (make, probe) = (own("make.sh"), own("probe.py"));
    let plain = in_plain(&place, &["sh", &make], &["python3", &probe]).ends(0).stdout;
    for via in ["lazy", "mount", "lazy-fuse", "squashfs", "fuse"] {
        let mounted = place.image(&["mount", "--key", "k", "--via", via, "--strict", "tree"]).run();
        if mounted.code == Some(1) {
            eprintln!("skipped: {via}: {}", mounted.stderr);
            continue;
        }
        let ran = place.run(&["python3", &probe]).cwd(place.path("work/tree")).run();
        place.image(&["unmount", "--strict", "tree"]).run().ends(0);
        let lists = if via == "fuse" { &[OF_ALL, OF_SQUASHFUSE][..] } else { &[OF_ALL] };
        let mounted = ran.ends(0).stdout;
        assert_eq!(differing(&plain, &mounted), expected(lists, &plain), "{via}: {mounted}\nplain: {plain}");
    }
}

/// The kernel gives an ordinary user's overlay less.
#[test]
fn system_calls_of_an_ordinary_user_differ_as_documented() {
    probe_skip!(is_root(), "only root can become another user");
    probe_skip!(has("python3") && has("setpriv"), "python3 or setpriv is not installed");
    let place = Place::new();
    let (make, probe) = (own("make.sh"), place.text("work/probe.py"));
    fs::copy(own("probe.py"), &probe).expect("cannot copy the file");
    let plain = in_plain(&place, &["sh", &make], &["python3", &probe]).ends(0).stdout;
    // Every user may open this copy of /dev/fuse, as on most machines.
    let script = "mknod -m 666 ../fuse c 10 229 && mount --bind ../fuse /dev/fuse && chown -R 1234:1234 .. && \
        exec setpriv --reuid=1234 --regid=1234 --clear-groups \"$@\"";
    let larder = larder_text();
    let words =
        ["image", "run", "--strict", "--key", "k", "tree", "--", "sh", "-c", "cd tree && exec python3 ../probe.py"];
    let ran = place.run(&[&["unshare", "-m", "sh", "-c", script, "sh", larder], &words[..]].concat()).run();
    probe_skip!(ran.stderr.contains("by lazy-fuse"), "no overlay for ordinary users here: {}", ran.stderr);
    let mounted = ran.ends(0).stdout;
    assert_eq!(differing(&plain, &mounted), expected(&[OF_ALL, OF_USERS], &plain), "{mounted}\nplain: {plain}");
}

#[test]
fn programs_do_the_same() {
    probe_skip!(is_root(), "only root can mount without a broker");
    let judges = own("judges.sh");
    for judge in ["git", "npm", "pip", "cargo"] {
        let place = Place::new();
        let needed = if judge == "pip" { "python3" } else { judge };
        let is_there = place.with_cargo(place.run(&[needed, "--version"])).run().code == Some(0);
        if !is_there {
            eprintln!("skipped: {judge} is not installed");
            continue;
        }
        let plain = in_plain(&place, &["sh", &judges, judge, "make"], &["sh", &judges, judge, "act"]);
        assert!(plain.code == Some(0) && plain.stdout.lines().count() > 3, "{judge}: {plain:#?}");
        let mounted = place.image(&["mount", "--key", "k", "--strict", "tree"]).run();
        if mounted.stdout.contains("unpacked") || mounted.code != Some(0) {
            eprintln!("skipped: {judge}: nothing can be mounted here: {}", mounted.stderr);
            continue;
        }
        let act = place.run(&["sh", &judges, judge, "act"]);
        let ran = place.with_cargo(act).cwd(place.path("work/tree")).run();
        place.image(&["unmount", "--strict", "tree"]).run().ends(0);
        assert_eq!((ran.code, &ran.stdout), (plain.code, &plain.stdout), "{judge}: {ran:#?}");
    }
}
