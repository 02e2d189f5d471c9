//! Whatever is wrong with the store, the tool's own result and exit code arrive. If the store can
//! still count, the cause is counted.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::{Path, PathBuf};

use larder_testkit::{
    Place, Ran, Run, STORE_VERSION, can_mount, copy_program, files_below, has, is_root, larder, larder_text,
    probe_skip, set_mode,
};

/// Output that is large enough for blobs, messages on both streams, and an unusual exit code.
const SCRIPT: &str = "cat x.c; echo warning >&2; i=0; while [ $i -lt 400 ]; do echo 0123456789abcdef; i=$((i+1)); done > x.o; \
    echo dep > x.d; exit 3";

fn place() -> Place {
    let place = Place::new();
    place.tool("work/mycc", SCRIPT);
    place.put("x.c", "int a;\n");
    place
}

fn compile(place: &Place) -> Run {
    place.larder(&["./mycc", "-c", "x.c", "-o", "x.o"])
}

/// Asserts that a run gave the result of the tool, and removes its outputs.
#[track_caller]
fn right(place: &Place, ran: &Ran, what: &str) {
    let expect = ("int a;\n", "warning\n", Some(3));
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str(), ran.code), expect, "{what}");
    let object = place.read("x.o");
    assert!(object == b"0123456789abcdef\n".repeat(400) && place.read("x.d") == b"dep\n", "{what}: wrong outputs");
    place.remove(&["x.o", "x.d"]);
}

#[track_caller]
fn runs_right(place: &Place, change: impl Fn(Run) -> Run, what: &str) {
    for _ in 0..2 {
        right(place, &change(compile(place)).run(), what);
    }
}

/// Returns a compile for which file modes count: the superuser gives up the capabilities that
/// override them.
fn fenced(place: &Place) -> Run {
    place.settle();
    let words = [larder_text(), "./mycc", "-c", "x.c", "-o", "x.o"];
    if !is_root() {
        return place.run(&words);
    }
    place.run(&[&["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--"], &words[..]].concat())
}

#[test]
fn stores_that_cannot_be_used() {
    type Break = fn(&Path);
    let rows: &[(&str, Break)] = &[
        ("a file", |store| fs::write(store, "").expect("cannot write the file")),
        ("a link to nothing", |store| {
            std::os::unix::fs::symlink("/nonexistent/x", store).expect("cannot create the link")
        }),
        ("a link to itself", |store| std::os::unix::fs::symlink(store, store).expect("cannot create the link")),
        ("a device", |store| std::os::unix::fs::symlink("/dev/full", store).expect("cannot create the link")),
        ("others can write to it", |store| {
            fs::create_dir(store).expect("cannot create the directory");
            set_mode(store, 0o777);
        }),
        ("its group can write to it", |store| {
            fs::create_dir(store).expect("cannot create the directory");
            set_mode(store, 0o775);
        }),
        ("what is inside is a file", |store| {
            fs::create_dir(store).expect("cannot create the directory");
            fs::write(store.join(STORE_VERSION), "").expect("cannot write the file");
        }),
    ];
    for (what, spoil) in rows {
        let place = place();
        spoil(&place.path("store"));
        let log = place.path("log");
        runs_right(&place, |run| run.env("LARDER_LOG", &log), what);
        let text = fs::read_to_string(&log).expect("cannot read the log");
        assert_eq!(text.matches(" fallback: ").count(), 2, "{what}: {text}");
        let doctor = place.larder(&["doctor"]).run();
        assert!(doctor.code == Some(1), "{what}: doctor says {doctor:?}");
    }
}

#[test]
fn a_store_without_permissions() {
    let place = place();
    let store = place.path("store");
    fs::create_dir(&store).expect("cannot create the directory");
    for bits in [0o555, 0o000, 0o400, 0o333] {
        set_mode(&store, bits);
        for _ in 0..2 {
            right(&place, &fenced(&place).run(), &format!("{bits:o}"));
        }
    }
    set_mode(&store, 0o700);
    right(&place, &compile(&place).run(), "usable again");
    // A store with records that can only be read must still answer.
    for path in files_below(&store) {
        set_mode(path.parent().expect("no parent directory"), 0o555);
        set_mode(&path, 0o444);
    }
    let log = place.path("log");
    let ran = fenced(&place).env("LARDER_LOG", &log).run();
    for path in files_below(&store) {
        set_mode(path.parent().expect("no parent directory"), 0o700);
    }
    right(&place, &ran, "read-only");
    let text = fs::read_to_string(&log).expect("cannot read the log");
    assert!(text.contains(" hit: "), "{text}");
}

/// `PATH` contains a directory that may not be searched. For example, `su` without `-` leaves
/// root's own directories in `PATH`.
#[test]
fn a_directory_of_the_search_path_may_not_be_searched() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = Place::new();
    place.put("x.c", "int a;\n");
    let barred = place.path("barred");
    fs::create_dir_all(barred.join("bin")).expect("cannot create the directory");
    set_mode(&barred, 0o000);
    let log = place.path("log");
    let without_rights = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--"];
    let words = [larder_text(), "gcc", "-c", "x.c", "-o", "x.o"];
    let words = if is_root() { [&without_rights, &words[..]].concat() } else { words.to_vec() };
    for _ in 0..2 {
        place.settle();
        let run = place.run(&words).env("PATH", format!("{}/bin:/usr/bin:/bin", barred.display()));
        run.env("LARDER_LOG", &log).run().ends(0);
        place.remove(&["x.o"]);
    }
    set_mode(&barred, 0o700);
    let text = fs::read_to_string(&log).expect("cannot read the log");
    assert!(text.lines().last().is_some_and(|line| line.contains(" hit: ")), "{text}");
}

#[test]
fn places_that_are_not_there() {
    for (name, value) in
        [("LARDER_DIR", "/proc/nowhere/store"), ("LARDER_DIR", "/dev/null/store"), ("LARDER_DIR", "relative/store")]
    {
        runs_right(&place(), |run| run.env(name, value), value);
    }
    let place = place();
    runs_right(&place, |run| run.env("LARDER_DIR", place.path("a/b/c/store")), "missing parents are made");
    assert!(place.path("a/b/c/store").is_dir());
}

#[test]
fn without_a_home_the_password_database_says() {
    let place = place();
    for home in [None, Some(""), Some("/nonexistent"), Some("/dev/null"), Some("relative")] {
        // The store is then in the home directory of the real user, so the test must not write to
        // it.
        let change = |run: Run| {
            let run = run.without("LARDER_DIR").env("LARDER_READ_ONLY", "1");
            match home {
                Some(home) => run.env("HOME", home),
                None => run.without("HOME"),
            }
        };
        runs_right(&place, change, &format!("{home:?}"));
    }
}

#[test]
fn no_place_for_temporary_files() {
    for value in ["/nonexistent", "/dev/null", "/proc"] {
        let place = place();
        for outcome in ["miss", "hit"] {
            let (ran, found) = place.counted(compile(&place).env("TMPDIR", value));
            right(&place, &ran, value);
            assert_eq!(found, outcome, "{value}");
        }
    }
    probe_skip!(can_mount(), "no mount namespaces here");
    let place = Place::new();
    place.tool("work/mycc", "echo object > x.o; exit 3");
    place.put("x.c", "int a;\n");
    // This place is in /tmp as well. So it is mounted elsewhere before /tmp becomes empty and
    // read-only.
    let script = "mkdir -p /run/larder-here && mount --bind \"$TOP\" /run/larder-here && mount -t tmpfs -o ro none /tmp && \
        mkdir -p /dev/shm && mount -t tmpfs -o ro none /dev/shm && cp_larder=/run/larder-here/larder && \
        cd /run/larder-here/work && export LARDER_DIR=/run/larder-here/store TMPDIR= && \
        for i in 1 2; do \"$cp_larder\" ./mycc -c x.c; echo $?; cat x.o; rm x.o; done";
    copy_program(larder(), place.path("larder"));
    place.settle();
    let ran = place.run(&["unshare", "-m", "sh", "-c", script]).env("TOP", place.path("")).run();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("3\nobject\n3\nobject\n", ""), "{ran:?}");
}

#[test]
fn a_store_of_somebody_else() {
    probe_skip!(is_root(), "only the superuser can give a directory away");
    let place = place();
    runs_right(&place, |run| run, "a store of this user");
    std::os::unix::fs::chown(place.path("store"), Some(65534), Some(65534)).expect("cannot change the owner");
    runs_right(&place, |run| run, "a store of another user");
    let doctor = place.larder(&["doctor"]).run();
    assert_eq!(doctor.code, Some(1), "{doctor:?}");
}

#[test]
fn a_full_disk() {
    probe_skip!(can_mount(), "no mount namespaces here");
    for size in ["4k", "32k", "64k", "128k", "256k"] {
        let place = Place::new();
        place.tool("work/mycc", "head -c 60000 /dev/zero | tr '\\0' \"$3\" > x.o; exit 3");
        place.put("x.c", "int a;\n");
        fs::create_dir(place.path("store")).expect("cannot create the directory");
        let script = "mount -t tmpfs -o mode=700,size=$SIZE none \"$LARDER_DIR\" || exit 9; \
            for i in a b c d e f a b; do \"$LARDER\" ./mycc -c x.c $i; echo $? $(head -c 3 x.o) $(wc -c < x.o); rm x.o; done; \
            \"$LARDER\" stats --json > ../stats; \"$LARDER\" fsck > /dev/null; \"$LARDER\" evict > /dev/null; exit 0";
        place.settle();
        let ran = place.run(&["unshare", "-m", "sh", "-c", script]).env("SIZE", size).env("LARDER", larder()).run();
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{size}: {ran:?}");
        let lines: Vec<&str> = ran.stdout.lines().collect();
        assert!(
            lines.len() == 8 && lines.iter().all(|line| line.starts_with("3 ") && line.ends_with(" 60000")),
            "{size}: {ran:?}"
        );
        fs::read_to_string(place.path("stats")).expect("cannot read the statistics");
    }
}

#[test]
fn every_file_of_the_store_damaged_in_turn() {
    type Damage = fn(&mut Vec<u8>);
    let damages: &[(&str, Damage)] = &[
        ("emptied", |bytes| bytes.clear()),
        ("cut", |bytes| bytes.truncate(bytes.len() / 2)),
        ("last byte gone", |bytes| bytes.truncate(bytes.len().saturating_sub(1))),
        ("first bit flipped", |bytes| bytes.iter_mut().take(1).for_each(|b| *b ^= 1)),
        ("a bit in the middle flipped", |bytes| {
            let middle = bytes.len() / 2;
            bytes.iter_mut().skip(middle).take(1).for_each(|b| *b ^= 0x10);
        }),
        ("last bit flipped", |bytes| bytes.iter_mut().last().into_iter().for_each(|b| *b ^= 0x80)),
        ("overwritten", |bytes| bytes.iter_mut().for_each(|b| *b = 0xff)),
        ("longer", |bytes| bytes.extend([0; 100])),
    ];
    let place = place();
    let store = place.path("store");
    right(&place, &compile(&place).run(), "first");
    let kept: Vec<_> =
        files_below(&store).into_iter().map(|path| (fs::read(&path).expect("cannot read the file"), path)).collect();
    assert!(
        kept.iter().any(|(_, path)| path.components().any(|part| part.as_os_str() == "blobs")),
        "the store has no blob"
    );
    let restore = || {
        fs::remove_dir_all(&store).expect("cannot remove the directory");
        for (bytes, path) in &kept {
            fs::create_dir_all(path.parent().expect("no parent directory")).expect("cannot create the directory");
            fs::write(path, bytes).expect("cannot write the file");
        }
        set_mode(&store, 0o700);
    };
    for (bytes, path) in &kept {
        for (damage, spoil) in damages {
            restore();
            let mut spoilt = bytes.clone();
            spoil(&mut spoilt);
            // The file is changed in place and its mtime restored, as a failing disk would do.
            let modified = fs::metadata(path).and_then(|meta| meta.modified()).expect("cannot get the mtime");
            fs::write(path, spoilt).expect("cannot write the file");
            fs::File::options()
                .append(true)
                .open(path)
                .and_then(|file| file.set_modified(modified))
                .expect("cannot set the mtime");
            let what = format!("{} {damage}", path.strip_prefix(&store).expect("not below this directory").display());
            for _ in 0..2 {
                right(&place, &compile(&place).run(), &what);
            }
            let (ran, outcome) = place.counted(compile(&place));
            right(&place, &ran, &what);
            assert_eq!(outcome, "hit", "{what}: the result must have been recorded again");
        }
        restore();
        fs::remove_file(path).expect("cannot remove the file");
        right(&place, &compile(&place).run(), &format!("{} removed", path.display()));
    }
}

#[test]
fn a_killed_larder_leaves_nothing_wrong() {
    let place = Place::new();
    place.tool("work/mycc", "echo object > x.o; test ! -e slow || sleep 0.3; echo more >> x.o; exit 3");
    place.put("x.c", "int a;\n");
    place.put("slow", "");
    for wait_ms in [0, 1, 2, 5, 10, 50, 100, 200, 290, 300, 310, 320, 340] {
        let mut child = compile(&place).start();
        std::thread::sleep(std::time::Duration::from_millis(wait_ms));
        child.kill().expect("cannot kill the process");
        child.wait().expect("cannot wait for the command");
    }
    // Tools of killed larders may still write for a moment.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while place.is_worked_in() {
        assert!(std::time::Instant::now() < until, "a tool does not end");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    place.remove(&["x.o"]);
    for _ in 0..2 {
        compile(&place).run().ends(3);
        assert_eq!(place.read("x.o"), b"object\nmore\n");
        place.remove(&["x.o"]);
    }
    place.larder(&["fsck"]).run().ends(0);
}

#[test]
fn sixteen_writers_of_one_key() {
    const WRITERS: usize = 16;
    let place = place();
    for number in 0..WRITERS {
        place.tool(&format!("w{number}/mycc"), SCRIPT);
        fs::write(place.path(format!("w{number}/x.c")), "int a;\n").expect("cannot write the file");
    }
    place.settle();
    let start = |directory: PathBuf| compile(&place).cwd(directory).start();
    // First all run in one directory, so that their keys are equal to the last bit. Then each runs
    // in its own.
    for apart in [false, true] {
        let directory = |number| if apart { place.path(format!("w{number}")) } else { place.path("work") };
        let children: Vec<_> = (0..WRITERS).map(|number| start(directory(number))).collect();
        for child in children {
            let ran = Ran::of(child);
            assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(3), "int a;\n", "warning\n"));
        }
    }
    assert_eq!(place.counters().total(), 2 * WRITERS as u64);
    right(&place, &compile(&place).run(), "afterwards");
    place.larder(&["fsck"]).run().ends(0);
    for number in 0..WRITERS {
        let object = fs::read(place.path(format!("w{number}/x.o"))).expect("cannot read the file");
        assert!(object == b"0123456789abcdef\n".repeat(400));
    }
}

#[test]
fn eviction_while_compiling() {
    let place = Place::new();
    place.tool("work/mycc", "head -c 100000 /dev/zero | tr '\\0' \"$3\" > x$3.o; exit 3");
    place.put("x.c", "int a;\n");
    let letters: Vec<String> = ('a'..='t').map(|letter| letter.to_string()).collect();
    for _ in 0..3 {
        for pair in letters.chunks(4) {
            place.settle();
            let one = |letter: &String| {
                let words = [larder_text(), "./mycc", "-c", "x.c", letter];
                place.run(&words).env("LARDER_MAX_SIZE", "500kB").start()
            };
            let children: Vec<_> = pair.iter().map(one).collect();
            for (child, letter) in children.into_iter().zip(pair) {
                let ran = Ran::of(child);
                assert_eq!((ran.code, ran.stderr.as_str()), (Some(3), ""), "{letter}");
                assert!(place.read(&format!("x{letter}.o")) == letter.repeat(100_000).as_bytes(), "{letter}");
                place.remove(&[&format!("x{letter}.o")]);
            }
        }
    }
    place.larder(&["evict", "--max-size", "500kB"]).run().ends(0);
    let held: u64 = files_below(&place.path(format!("store/{STORE_VERSION}/blobs")))
        .iter()
        .map(|path| path.metadata().map_or(0, |meta| meta.len()))
        .sum();
    assert!(held <= 500_000, "the blobs have {held} bytes, which is more than the limit");
    place.larder(&["fsck"]).run().ends(0);
}

#[test]
fn a_limit_smaller_than_one_result() {
    let place = place();
    runs_right(&place, |run| run.env("LARDER_MAX_SIZE", "1kB"), "1 kB");
    runs_right(&place, |run| run.env("LARDER_MAX_SIZE", "0"), "no limit");
}

#[test]
fn a_working_directory_that_is_gone() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = place();
    let tool = place.tool("bin/mycc", "echo ran \"$@\"; exit 3");
    let line = |larder: &str| format!("mkdir gone && cd gone && rmdir ../gone && exec {larder} {tool} -c x.c");
    let plain = place.run(&["sh", "-c", &line("")]).run();
    let ran = place.run(&["sh", "-c", &line(larder_text())]).run();
    assert_eq!(ran, plain);
}

#[test]
fn the_words_without_larderd() {
    let place = place();
    let alone = place.text("bin/larder");
    copy_program(larder(), &alone);
    let ran = place.run(&[&*alone, "stats"]).run().ends(127);
    assert!(ran.stderr.contains("larderd"), "{ran:?}");
    for _ in 0..2 {
        place.settle();
        right(&place, &place.run(&[&*alone, "./mycc", "-c", "x.c", "-o", "x.o"]).run(), "compiles need no larderd");
    }
}
