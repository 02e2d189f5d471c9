//! Attacks on a build through larder by other users, hostile checkouts and unusual files.
//! docs/security.md says what must hold. Forged records are tested in the wrapper's
//! `tests/records.rs`.
#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use larder_testkit::{
    Place, Ran, Run, copy_program, files_below, has, is_root, larder, larder_text, probe_skip, set_mode,
};

/// The user ID of `nobody`, another user.
const OTHER: u32 = 65534;
const COMMAND: &[&str] = &["./mycc", "-c", "x.c", "-o", "x.o"];

fn place() -> Place {
    let place = Place::new();
    place.tool("work/mycc", "i=0; while [ $i -lt 400 ]; do echo 0123456789abcdef; i=$((i+1)); done > x.o; echo said");
    place.put("x.c", "int a;\n");
    place
}

fn compile(place: &Place) -> Run {
    place.remove(&["x.o"]);
    place.larder(COMMAND)
}

/// Asserts that the tool's result is right, whatever larder did. Returns what larder printed to
/// standard error.
#[track_caller]
fn right(place: &Place, ran: &Ran, what: &str) -> String {
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "said\n"), "{what}: {ran:?}");
    assert!(place.read("x.o") == b"0123456789abcdef\n".repeat(400), "{what}: x.o has wrong content");
    ran.stderr.clone()
}

/// Runs the compile and returns its outcome.
#[track_caller]
fn outcome(place: &Place) -> String {
    let (ran, outcome) = place.counted(compile(place));
    assert_eq!(right(place, &ran, &outcome), "");
    outcome
}

fn give(path: &Path) {
    lchown(path, Some(OTHER), Some(OTHER)).expect("cannot change the owner");
}

/// Returns the files of the store below its directory `kind`.
fn kept(place: &Place, kind: &str) -> Vec<PathBuf> {
    let is_kind = |path: &PathBuf| path.components().any(|part| part.as_os_str() == kind);
    files_below(&place.path("store")).into_iter().filter(is_kind).collect()
}

fn word(place: &Place, words: &[&str]) -> Ran {
    place.larder(words).run()
}

/// Asserts that an unsafe store does not disturb a build: the tool runs and prints only its own
/// messages. The log and the subcommands for people say what is wrong with which path.
#[track_caller]
fn warns(place: &Place, path: &Path, why: &str) {
    let log = place.path("log");
    assert_eq!(right(place, &compile(place).env("LARDER_LOG", &log).run(), why), "");
    let said = fs::read_to_string(&log).expect("cannot read the log");
    fs::remove_file(&log).expect("cannot remove the file");
    assert!(said.contains(why) && said.contains(path.to_str().expect("not UTF-8")), "{said}");
    for words in [&["doctor"][..], &["stats"], &["evict"], &["clear"], &["fsck"]] {
        let ran = word(place, words);
        assert_eq!(ran.code, Some(1), "{words:?}: {ran:?}");
        assert!(format!("{}{}", ran.stdout, ran.stderr).contains(why), "{words:?}: {ran:?}");
    }
}

#[test]
fn others_can_write_to_the_store() {
    for bits in [0o777, 0o775, 0o1777, 0o2770] {
        let place = place();
        assert_eq!(outcome(&place), "miss");
        set_mode(&place.path("store"), bits);
        warns(&place, &place.path("store"), "others than its owner can write to it");
        set_mode(&place.path("store"), 0o755);
        assert_eq!(outcome(&place), "hit", "{bits:o}: the mode was corrected as the message says");
        set_mode(&place.store(), bits);
        warns(&place, &place.store(), "others than its owner can write to it");
    }
}

#[test]
fn others_can_write_above_the_store() {
    let place = place();
    let note = "other users can rename its contents";
    assert!(!word(&place, &["doctor"]).stdout.contains(note));
    for made in [false, true] {
        fs::create_dir_all(place.path(if made { "open/store" } else { "open" })).expect("cannot create the directory");
        set_mode(&place.path("open"), 0o777);
        let doctor = || place.larder(&["doctor"]).env("LARDER_DIR", place.path("open/store")).run().stdout;
        assert!(doctor().contains(&format!("{}: {note}", place.text("open"))), "{}", doctor());
        set_mode(&place.path("open"), 0o1777);
        assert!(!doctor().contains(note), "doctor must accept a sticky directory");
    }
}

#[test]
fn the_store_is_reached_through_a_link() {
    let place = place();
    fs::create_dir_all(place.path("elsewhere")).expect("cannot create the directory");
    set_mode(&place.path("elsewhere"), 0o700);
    symlink("elsewhere", place.path("store")).expect("cannot create the link");
    assert_eq!(outcome(&place), "miss");
    assert_eq!(outcome(&place), "hit", "a symbolic link of the same user is followed");
    probe_skip!(is_root(), "only the superuser can give a link away");
    give(&place.path("store"));
    warns(&place, &place.path("store"), "is a symbolic link of another user");
}

#[test]
fn files_of_another_user_are_not_believed() {
    probe_skip!(is_root(), "only the superuser can give files away");
    let place = place();
    assert_eq!(outcome(&place), "miss");
    for (kind, expect) in [("manifests", "fallback:store-unusable"), ("blobs", "fallback:store-unusable")] {
        kept(&place, kind).iter().for_each(|path| give(path));
        assert_eq!(outcome(&place), expect, "{kind}");
        assert!(kept(&place, kind).iter().all(|path| path.metadata().is_ok_and(|meta| meta.uid() == 0)), "{kind}");
        assert_eq!(outcome(&place), "hit", "{kind}: the result must have been recorded again");
    }
    kept(&place, "stamps").iter().for_each(|path| give(path));
    assert_eq!(outcome(&place), "hit");
    assert!(
        kept(&place, "stamps").iter().all(|path| path.metadata().is_ok_and(|meta| meta.uid() == 0)),
        "the stat cache of another user is replaced"
    );

    kept(&place, "manifests").iter().for_each(|path| give(path));
    let fsck = word(&place, &["fsck"]);
    assert!(fsck.code == Some(1) && fsck.stdout.contains("belongs to another user"), "{fsck:?}");

    give(&place.store().join("blobs"));
    for words in [&["doctor"][..], &["fsck"], &["evict"], &["clear"]] {
        let ran = word(&place, words);
        let said = format!("{}{}", ran.stdout, ran.stderr);
        assert!(ran.code == Some(1) && said.contains("blobs: belongs to another user"), "{words:?}: {ran:?}");
    }
}

#[test]
fn another_user_cannot_use_or_harm_a_store() {
    probe_skip!(is_root() && has("setpriv"), "only the superuser can become another user, by setpriv");
    let place = place();
    assert_eq!(outcome(&place), "miss");
    // The directories are open to everyone, so that only larder itself can stop the other user.
    for name in ["", "work", "tmp"] {
        set_mode(&place.path(name), 0o777);
    }
    copy_program(larder(), place.path("larder"));
    let before = files_below(&place.path("store"));
    let theirs = || {
        place.remove(&["x.o"]);
        place.settle();
        let become_other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
        place.run(&[&become_other[..], &[&place.text("larder")], COMMAND].concat()).run()
    };
    for bits in [0o700, 0o755] {
        set_mode(&place.path("store"), bits);
        place.remove(&["x.o"]);
        let said = right(&place, &theirs(), "as another user");
        assert_eq!(said, "", "{bits:o}");
    }
    assert_eq!(files_below(&place.path("store")), before);
    place.remove(&["x.o"]);
    assert_eq!(outcome(&place), "hit", "the owner's store is unchanged");
}

fn old_file(path: &Path) {
    fs::write(path, "mine").expect("cannot write the file");
    let long_ago = SystemTime::now() - Duration::from_secs(90 * 24 * 3600);
    File::options().append(true).open(path).and_then(|file| file.set_modified(long_ago)).expect("cannot set the mtime");
}

#[test]
fn nothing_is_removed_that_is_not_the_stores() {
    let place = place();
    assert_eq!(outcome(&place), "miss");
    for name in ["tmp", "notes", "stamps", "manifests", "blobs"] {
        let (directory, aside) = (place.store().join(name), place.path("aside"));
        fs::create_dir_all(&directory).expect("cannot create the directory");
        fs::rename(&directory, &aside).expect("cannot rename the file");
        symlink(place.path("home"), &directory).expect("cannot create the link");
        fs::create_dir_all(place.path("home/ab")).expect("cannot create the directory");
        let treasures = ["0123456789abcdef", "treasure", &format!("ab/{}", "c".repeat(62)), "0123456789abcdef-0123"];
        treasures.iter().for_each(|treasure| old_file(&place.path("home").join(treasure)));
        for words in [&["evict", "--max-size", "1kB"][..], &["fsck", "--repair"], &["clear"]] {
            let ran = word(&place, words);
            assert!(ran.code == Some(1) && ran.stderr.contains("is a symbolic link"), "{name} {words:?}: {ran:?}");
        }
        for treasure in treasures {
            assert_eq!(
                fs::read(place.path("home").join(treasure)).expect("cannot read the file"),
                b"mine",
                "{name}: {treasure}"
            );
        }
        fs::remove_file(&directory).expect("cannot remove the file");
        fs::rename(&aside, &directory).expect("cannot rename the file");
    }
    // Files that did not come from larder stay. Temporary files that a killed larder left are
    // removed.
    old_file(&place.store().join("tmp/treasure"));
    old_file(&place.store().join("tmp/0123456789abcdef"));
    old_file(&place.store().join("stamps/treasure"));
    word(&place, &["evict"]).ends(0);
    assert!(!place.store().join("tmp/0123456789abcdef").exists());
    assert!(place.store().join("stamps/treasure").exists());
    word(&place, &["clear"]).ends(0);
    assert!(place.store().join("tmp/treasure").exists());
}

#[test]
fn words_on_a_directory_that_is_no_store() {
    let place = place();
    for name in ["blobs/ab", "tmp", "manifests"] {
        fs::create_dir_all(place.path("home").join(name)).expect("cannot create the directory");
    }
    for name in ["blobs/ab/c", "tmp/0123456789abcdef", "manifests/x", "counters", "x"] {
        old_file(&place.path("home").join(name));
    }
    let before = files_below(&place.path("home"));
    for words in [&["clear"][..], &["evict", "--max-size", "1kB"], &["fsck", "--repair"]] {
        place.larder(words).env("LARDER_DIR", place.path("home")).run().ends(0);
        assert_eq!(files_below(&place.path("home")), before, "{words:?}");
    }
}

/// Runs a compile with this log. It must end within 20 seconds.
fn logged(place: &Place, log: &Path) -> String {
    place.remove(&["x.o"]);
    place.settle();
    let words = [&["timeout", "20", larder_text()], COMMAND].concat();
    right(place, &place.run(&words).env("LARDER_LOG", log).run(), &log.display().to_string())
}

#[test]
fn a_log_never_stops_a_build() {
    let place = place();
    assert_eq!(outcome(&place), "miss");
    let fifo = place.path("fifo");
    place.run(&["mkfifo", &place.text("fifo")]).run().ends(0);
    assert_eq!(logged(&place, &fifo), "", "a FIFO without a reader");
    let reader = File::options().read(true).write(true).open(&fifo).expect("cannot open the file");
    for _ in 0..3 {
        assert_eq!(logged(&place, &fifo), "", "a FIFO with a reader");
    }
    let full = "head -c 1000000 /dev/zero > \"$FIFO\" & sleep 0.3; kill $!";
    place.run(&["sh", "-c", full]).env("FIFO", &fifo).run();
    assert_eq!(logged(&place, &fifo), "", "a FIFO that is full");
    drop(reader);
    for path in ["/dev/full", "/dev/null", "/proc/nowhere/log", "/dev/null/log"] {
        assert_eq!(logged(&place, Path::new(path)), "");
    }
    assert_eq!(logged(&place, &place.path("home")), "", "a directory");
    symlink("self", place.path("self")).expect("cannot create the link");
    assert_eq!(logged(&place, &place.path("self")), "", "a link to itself");
    let long = place.path("long");
    fs::write(&long, vec![b'x'; 200_000]).expect("cannot write the file");
    place.remove(&["x.o"]);
    let limited = format!("ulimit -f 100; exec \"$LARDER\" {}", COMMAND.join(" "));
    let ran = place.run(&["sh", "-c", &limited]).env("LARDER", larder()).env("LARDER_LOG", &long).run();
    assert_eq!(right(&place, &ran, "longer than files may be"), "");
    assert_eq!(outcome(&place), "hit");
}

#[test]
fn a_log_in_a_directory_of_everybodys() {
    let place = place();
    let log = place.path("tmp/log");
    fs::write(place.path("home/mine"), "").expect("cannot write the file");
    symlink(place.path("home/mine"), &log).expect("cannot create the link");
    logged(&place, &log);
    assert!(
        fs::read_to_string(place.path("home/mine")).expect("cannot read the file").contains(" miss: x.c"),
        "the log is a symbolic link of the same user"
    );
    probe_skip!(is_root(), "only the superuser can give links away");
    fs::write(place.path("home/mine"), "").expect("cannot write the file");
    give(&log);
    logged(&place, &log);
    assert_eq!(
        fs::read(place.path("home/mine")).expect("cannot read the file"),
        b"",
        "the log is a symbolic link of another user"
    );
    fs::remove_file(&log).expect("cannot remove the file");
    fs::write(&log, "").expect("cannot write the file");
    set_mode(&log, 0o666);
    give(&log);
    logged(&place, &log);
    assert_eq!(fs::read(&log).expect("cannot read the file"), b"", "the log is a file of another user");
    chown(&log, Some(0), Some(0)).expect("cannot change the owner");
    logged(&place, &log);
    assert!(fs::read_to_string(&log).expect("cannot read the file").contains(" hit: x.c"));
}

#[test]
fn no_name_begins_a_line_of_the_log() {
    let place = place();
    let name = "a\n0.000 1 hit: \u{1b}[31mforged.c";
    place.put(name, "int a;\n");
    let log = place.path("log");
    for _ in 0..2 {
        place.larder(&["./mycc", "-c", name, "-o", "x.o"]).env("LARDER_LOG", &log).run().ends(0);
    }
    // A path that a tool chose must not begin a line either.
    place.tool("work/mycc", "echo object > '../home/b\n0.000 1 hit: \u{1b}[31mforged.c'");
    place.larder(COMMAND).env("LARDER_LOG", &log).run().ends(0);
    let text = fs::read_to_string(log).expect("cannot read the file");
    assert!(text.lines().count() == 3 && text.contains("/home/b?0.000") && !text.contains('\u{1b}'), "{text:?}");
}

#[test]
fn no_name_changes_what_a_terminal_shows() {
    let place = place();
    let name = "a\u{1b}[31m.c";
    place.put(name, "int a;\n");
    let ran = place.larder(&["./none\u{1b}[31m"]).run().ends(127);
    assert_eq!(
        ran.stderr.lines().next(),
        Some("larder: ./none?[31m: command not found (searched PATH; see `larder help` for larder's own subcommands)")
    );
    probe_skip!(has("gcc"), "gcc is not installed");
    // gcc writes a new stamp into coverage notes each time.
    let verified = || place.larder(&["gcc", "-c", name, "-o", "x.o", "--coverage"]).env("LARDER_VERIFY", "1").run();
    verified().ends(0);
    let said = verified().ends(0).stderr;
    assert!(said.contains("the record of a?[31m.c was wrong") && !said.contains('\u{1b}'), "{said:?}");
}

#[test]
fn secrets_are_neither_kept_nor_shown() {
    let place = place();
    let secrets = ["hunter2-of-the-variable", "hunter2-of-the-argument", "hunter2-in-two-words", "hunter2-of-a-url"];
    let log = place.path("log");
    let run = |last: &str, token: &str| {
        let url = format!("https://me:{}@host/x", secrets[3]);
        let arguments = [&format!("-DAPI_TOKEN={}", secrets[1]), "--password", secrets[2], last];
        let words = [COMMAND, &arguments].concat();
        let change = |run: Run| run.env("LARDER_LOG", &log).env("GITHUB_TOKEN", token).env("INDEX", &url);
        let explained = [&["explain", "--verbose", "--no-terminal", "--"], &words[..]].concat();
        let said = change(place.larder(&explained)).run().ends(0).stdout;
        let json = [&["explain", "--json", "--no-terminal", "--"], &words[..]].concat();
        let json = change(place.larder(&json)).run().ends(0).stdout;
        let (ran, outcome) = place.counted(change(place.larder(&words)));
        right(&place, &ran, &outcome);
        (outcome, said + &json + &ran.stderr)
    };
    let runs =
        [run("-DA", secrets[0]), run("-DA", secrets[0]), run("-DB", secrets[0]), run("-DB", "hunter2-of-another")];
    let outcomes: Vec<&str> = runs.iter().map(|(outcome, _)| outcome.as_str()).collect();
    assert_eq!(outcomes, ["miss", "hit", "miss", "miss"], "the secrets are part of the key");
    assert!(
        runs[3].1.contains("environment GITHUB_TOKEN: was (not shown"),
        "explain must say that the variable changed: {}",
        runs[3].1
    );
    let mut texts: Vec<Vec<u8>> = runs.iter().map(|(_, said)| said.clone().into_bytes()).collect();
    texts.push(fs::read(&log).expect("cannot read the file"));
    texts.extend(files_below(&place.path("store")).iter().map(|path| fs::read(path).expect("cannot read the file")));
    assert!(texts.iter().any(|text| holds(text, b"-DAPI_TOKEN=")), "the rest of the argument is kept");
    assert!(texts.iter().all(|text| !holds(text, b"hunter2")));
}

fn holds(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[test]
fn a_projects_file_sets_nothing_that_matters() {
    let place = place();
    let home = place.text("home");
    let file = format!("dir = '{home}/d'\nlog = '{home}/log'\nmax_size = '1'\nunknown = 1\n");
    place.put("larder.toml", &file);
    let (ran, outcome) = place.counted(compile(&place));
    assert_eq!(outcome, "miss");
    for key in ["dir", "log", "max_size"] {
        assert!(ran.stderr.contains(&format!("a project's own file cannot set {key}")), "{key}: {ran:?}");
    }
    assert_eq!(right(&place, &compile(&place).run(), "again"), "", "the warning is printed once only");
    assert_eq!(files_below(&place.path("home")), Vec::<PathBuf>::new());
    // A project's file can make builds slower, but it can do nothing worse.
    for (line, expect) in [
        ("disable = true", "nothing"),
        ("recache = true", "miss"),
        ("verify = 1", "hit"),
        ("read_only = true", "nothing"),
        ("observer = 'depfile'", "hit"),
    ] {
        place.put("larder.toml", line);
        let (ran, found) = place.counted(compile(&place));
        right(&place, &ran, line);
        assert_eq!(found, expect, "{line}");
    }
    // The file may be of any type.
    for target in ["/dev/zero", "/dev/full", "/proc/self/mem", "larder.toml", "/"] {
        place.remove(&["larder.toml"]);
        symlink(target, place.path("work/larder.toml")).expect("cannot create the link");
        right(&place, &compile(&place).run(), target);
    }
    place.remove(&["larder.toml"]);
    place.run(&["mkfifo", "larder.toml"]).run().ends(0);
    right(&place, &compile(&place).run(), "a FIFO");
}

#[test]
fn nothing_is_executed_from_the_working_directory() {
    let place = place();
    let alone = place.text("bin/larder");
    copy_program(larder(), &alone);
    place.tool("work/larderd", "echo executed > ../home/executed");
    place.settle();
    for path in [":/usr/bin:/bin", ".:/usr/bin:/bin", "/usr/bin::/bin", "work:../work:/bin"] {
        let ran = place.run(&[alone.as_str(), "stats"]).env("PATH", path).run();
        assert_eq!(ran.code, Some(127), "{path}: {ran:?}");
        let compile = [&[alone.as_str()], COMMAND].concat();
        place.run(&compile).env("PATH", path).env("LARDER_MAX_SIZE", "1").run().ends(0);
    }
    std::thread::sleep(Duration::from_millis(200));
    assert!(!place.path("home/executed").exists());
}

#[test]
fn tables_that_are_cut_while_they_are_used() {
    let place = place();
    assert_eq!(outcome(&place), "miss");
    let tables = [kept(&place, "stamps"), vec![place.store().join("counters")]].concat();
    assert_eq!(tables.len(), 2);
    let cut = |until: Instant| {
        while Instant::now() < until {
            for table in &tables {
                // The table may just have been replaced.
                let _ = File::options().write(true).open(table).and_then(|table| table.set_len(0));
            }
        }
    };
    let build = |number: usize, until: Instant| {
        let directory = place.path(format!("work{number}"));
        while Instant::now() < until {
            let words = [&[larder_text()], COMMAND].concat();
            let ran = place.run(&words).cwd(&directory).run();
            assert_eq!((ran.code, ran.signal, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), None, "said\n", ""));
            assert!(
                fs::read(directory.join("x.o")).expect("cannot read the file") == b"0123456789abcdef\n".repeat(400)
            );
            fs::remove_file(directory.join("x.o")).expect("cannot remove the file");
        }
    };
    for number in 0..4 {
        fs::create_dir(place.path(format!("work{number}"))).expect("cannot create the directory");
        place.run(&["cp", "-p", "mycc", "x.c", &place.text(&format!("work{number}"))]).run().ends(0);
    }
    let until = Instant::now() + Duration::from_secs(3);
    std::thread::scope(|scope| {
        scope.spawn(move || cut(until));
        (0..4).for_each(|number| drop(scope.spawn(move || build(number, until))));
    });
}
