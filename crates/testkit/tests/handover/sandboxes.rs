//! Builds in sandboxes: the records that they make, and their behaviour if no `larderd` runs.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use larder_testkit::{can_mount, has, is_root, larder_text, probe_skip};

use crate::here::{Here, SANDBOX};

#[test]
fn a_sandbox_records_and_hits() {
    probe_skip!(can_mount(), "no mount namespaces here");
    let here = Here::new();
    here.start();
    assert!(here.compile().contains("recorded · handed over to larderd"), "{}", here.log());
    here.wait_recorded(1);
    assert!(here.compile().contains(" hit: "), "{}", here.log());
    let counted = here.counted();
    assert_eq!((&counted["miss"], &counted["hit"]), (&1.into(), &0.into()), "hits in a sandbox are not counted");
    assert!(here.larder(&["fsck"]).ends(0).stdout.contains("all sound"));
    assert_eq!(here.status()["refused"], 0, "{}", here.daemon_log());
}

#[test]
fn what_is_learned_of_programs_is_handed_over() {
    probe_skip!(can_mount(), "no mount namespaces here");
    let here = Here::new();
    here.start();
    here.compile();
    here.wait_recorded(1);
    let explain = "\"$LARDER\" explain --no-terminal -- ./mycc -c x.c -o x.o";
    let explained = here.sandbox_command(explain).run();
    assert!(explained.stdout.starts_with("Hit"), "{explained:?}");
    let explained = here.larder(&["explain", "--no-terminal", "--", "./mycc", "-c", "x.c", "-o", "x.o"]).stdout;
    assert!(explained.starts_with("Miss"), "outside of a sandbox the record must not answer: {explained}");
    // Only sandboxes use what another sandbox learned about how programs can be observed.
    let judged = fs::read_dir(here.inside("judged-handed-over")).expect("cannot list the judgements").count();
    assert!(judged > 0 && !here.inside("judged").exists());
    // `larderd` writes stamps of the system's files, because a sandbox cannot write them.
    here.wait("stamps are written", |here| {
        fs::read_dir(here.inside("stamps")).is_ok_and(|mut list| list.next().is_some())
    });
    // A run that is not recorded also teaches how its programs can be observed, and is counted.
    here.place.tool("work/clock", "date +%s%N > x.o; echo said");
    let log = here.sandbox("exec \"$LARDER\" run -- ./clock");
    assert!(log.contains("not recorded"), "{log}");
    here.wait_recorded(2);
    assert_eq!(here.counted()["unrecorded_reasons"]["clock"], 1);
}

#[test]
fn the_caller_strips_and_renames_the_next_moment() {
    probe_skip!(can_mount() && has("gcc") && has("strip"), "no compiler, or no mount namespaces here");
    let here = Here::new();
    here.start();
    here.place.put("y.c", (0..800).map(|i| format!("int function_{i}(void) {{ return {i}; }}\n")).collect::<String>());
    let compile = "\"$LARDER\" gcc -c y.c -o y.o && cp y.o kept.o && strip y.o && mv y.o z.o && : > z.o && echo said";
    here.sandbox(compile);
    here.wait_recorded(1);
    let plain = here.run(&["gcc", "-c", "y.c", "-o", "plain.o"]);
    assert_eq!(plain.code, Some(0), "{plain:?}");
    let log = here.sandbox("\"$LARDER\" gcc -c y.c -o y.o && echo said");
    assert!(log.contains(" hit: "), "{log}");
    assert!(
        here.place.read("y.o") == here.place.read("plain.o"),
        "the record must hold what the compiler wrote, not what strip left"
    );
    assert!(here.place.read("kept.o") == here.place.read("plain.o"));
}

#[test]
fn without_larderd_nothing_is_recorded_and_everything_works() {
    probe_skip!(can_mount(), "no mount namespaces here");
    let here = Here::new();
    let miss = |log: &str| {
        assert!(log.contains("miss, not recorded"), "{log}");
        assert!(log.contains("the store cannot be written, and no larderd listens"), "{log}");
    };
    miss(&here.compile());
    miss(&here.compile());
    // A store that cannot be written still answers.
    here.place.remove(&["x.o"]);
    assert_eq!(here.larder(&["./mycc", "-c", "x.c", "-o", "x.o"]).stdout, "said\n");
    assert!(here.compile().contains(" hit: "), "{}", here.log());
    // `larderd` cannot be started from inside the sandbox, and the message says so.
    let ran = here.sandbox_command("\"$LARDER\" daemon start").run();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("outside of the sandbox"), "{ran:?}");
    let doctor = here.sandbox_command("\"$LARDER\" doctor").run();
    assert!(doctor.code == Some(1) && doctor.stdout.contains("larder daemon start"), "{doctor:?}");
    // Outside of the sandbox, doctor says in advance that no `larderd` runs.
    assert!(here.larder(&["doctor"]).stdout.contains("note     larderd"));
    here.start();
    assert!(here.larder(&["doctor"]).stdout.contains("ok       larderd"));
    let doctor = here.sandbox_command("\"$LARDER\" doctor").run();
    assert!(doctor.stdout.contains("read-only here; larderd accepts"), "{doctor:?}");
}

#[test]
fn where_counting_is_possible_the_reason_is_counted() {
    probe_skip!(!is_root(), "the superuser may write everywhere");
    let here = Here::new();
    here.larder(&["./mycc", "-c", "x.c", "-o", "x.o"]);
    fs::set_permissions(here.inside("tmp"), fs::Permissions::from_mode(0o555)).expect("cannot set the mode");
    here.place.put("x.c", "int b;\n".repeat(40));
    here.larder(&["./mycc", "-c", "x.c", "-o", "x.o"]);
    assert_eq!(here.counted()["unrecorded_reasons"]["no-daemon"], 1);
}

#[test]
fn sixteen_at_once() {
    probe_skip!(can_mount(), "no mount namespaces here");
    let here = Here::new();
    here.start();
    let loop_ = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do \
        mkdir -p d$i && cp -p mycc d$i/ && (cat x.c; echo \"int n$i;\") > d$i/x.c && touch -d '1 hour ago' d$i/x.c; done; sleep 0.1; \
        for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do (cd d$i && \"$LARDER\" ./mycc -c x.c -o x.o > /dev/null) & done; \
        wait; echo said";
    let log = here.sandbox(loop_);
    let recorded = log.lines().filter(|line| line.contains("handed over to larderd")).count();
    // The first few may not be recorded, because larder must first learn how the shell can be
    // observed.
    here.wait_recorded(recorded as u64);
    assert_eq!(log.lines().count(), 16, "{log}");
    let log = here.sandbox(loop_);
    assert_eq!(log.lines().filter(|line| line.contains(" hit: ")).count(), 16, "{log}");
    assert_eq!(here.status()["refused"], 0, "{}", here.daemon_log());
    assert!(here.larder(&["fsck"]).ends(0).stdout.contains("all sound"));
}

#[test]
fn a_store_deep_down() {
    probe_skip!(can_mount(), "no mount namespaces here");
    let here = Here::with_store(&format!("{}/store", "deep".repeat(40)));
    here.start();
    assert!(here.inside("daemon.sock").as_os_str().len() > 108);
    here.compile();
    here.wait_recorded(1);
    assert!(here.compile().contains(" hit: "), "{}", here.log());
    let install = here.larder(&["daemon", "install", "--print"]);
    assert!(install.code == Some(1) && install.stderr.contains("too long"), "{install:?}");
}

/// A user namespace is a sandbox that needs no superuser rights.
#[test]
fn in_a_user_namespace() {
    let here = Here::new();
    here.start();
    let compile = "exec \"$LARDER\" ./mycc -c x.c -o x.o";
    let as_root = ["unshare", "--map-root-user", "-m", "-n", "-p", "-f", "--mount-proc", "sh", "-c"];
    let ran = here.command(&[&as_root[..], &[&format!("{SANDBOX} {compile}")]].concat()).run();
    probe_skip!(ran.code == Some(0), "no user namespaces here: {ran:?}");
    assert!(here.log().contains("handed over to larderd"), "{}", here.log());
    here.wait_recorded(1);
    assert_eq!(here.status()["refused"], 0, "{}", here.daemon_log());
    // The user ID inside differs from the one outside.
    probe_skip!(can_mount(), "no mount namespaces here");
    here.place.put("x.c", "int b;\n".repeat(40));
    let log = here.sandbox(&format!("exec unshare --map-user=1000 --map-group=1000 -n sh -c '{compile}'"));
    assert!(log.contains("handed over to larderd"), "{log}");
    here.wait_recorded(2);
}

#[test]
fn what_a_sandbox_uses_is_noted() {
    probe_skip!(can_mount(), "no mount namespaces here");
    let here = Here::new();
    here.larder(&["./mycc", "-c", "x.c", "-o", "x.o"]);
    let shard = fs::read_dir(here.inside("manifests"))
        .expect("cannot list the directory")
        .next()
        .expect("the directory is empty")
        .expect("cannot list the directory");
    let manifest = fs::read_dir(shard.path())
        .expect("cannot list the directory")
        .next()
        .expect("the directory is empty")
        .expect("cannot list the directory")
        .path();
    let two_hours_ago = std::time::SystemTime::now() - Duration::from_secs(7200);
    let used = || manifest.metadata().expect("cannot stat the file").modified().expect("cannot get the mtime");
    fs::File::options()
        .write(true)
        .open(&manifest)
        .expect("cannot open the file")
        .set_modified(two_hours_ago)
        .expect("cannot set the mtime");
    assert!(here.compile().contains(" hit: "), "{}", here.log());
    assert!(used() == two_hours_ago, "without larderd the use is not noted");
    here.start();
    assert!(here.compile().contains(" hit: "), "{}", here.log());
    here.wait("the use is noted", |_| used() > two_hours_ago);
}

#[test]
fn a_bazel_sandbox_records() {
    probe_skip!(is_root() && has("bazel") && has("gcc"), "no Bazel, no compiler, or no sandbox for this user");
    // Bazel's sandbox lets jobs write to /tmp, so a store there would be writable too.
    let apart = tempfile::tempdir_in("/var/tmp").expect("cannot create a temporary directory");
    let mut here = Here::new();
    here.store = apart.path().to_owned();
    let larder = larder_text();
    let log = here.place.text("log");
    let store = here.store.to_str().expect("not UTF-8");
    here.place.put("WORKSPACE", "");
    here.place.put("x.c", (0..800).map(|i| format!("int function_{i}(void) {{ return {i}; }}\n")).collect::<String>());
    let command = format!("LARDER_DIR={store} LARDER_LOG={log} {larder} gcc -c $< -o $@ && strip $@");
    let rule = format!("genrule(name = \"x\", srcs = [\"x.c\"], outs = [\"x.o\"], cmd = \"{command}\")\n");
    here.place.put("BUILD", rule);
    here.start();
    let output = format!("--output_user_root={}", here.place.text("bazel"));
    let words = ["bazel", "--batch", &output, "build", "--spawn_strategy=linux-sandbox", "--nosandbox_debug", "//:x"];
    let ran = here.run(&words);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(here.log().contains("recorded · handed over to larderd"), "{} {ran:?}", here.log());
    here.wait_recorded(1);
    assert_eq!((&here.counted()["miss"], &here.status()["refused"]), (&1.into(), &0.into()));
    // Bazel leaves directories that their owner cannot write to.
    here.run(&["chmod", "-R", "u+w", &here.place.text("bazel")]).ends(0);
}

/// Returns niceness and scheduling policy of each thread of a process, the main thread first.
fn threads_of(pid: u64) -> Vec<(i32, u32)> {
    // The indices of these fields of /proc/PID/stat, counted from the state, the first field after
    // the name.
    const NICE: usize = 16;
    const POLICY: usize = 38;
    let manner = |tid: &str| -> Option<(i32, u32)> {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        Some((fields.get(NICE)?.parse().ok()?, fields.get(POLICY)?.parse().ok()?))
    };
    let names = fs::read_dir(format!("/proc/{pid}/task")).expect("cannot list the directory").flatten();
    let mut tids: Vec<u64> = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    tids.sort_by_key(|tid| (*tid != pid, *tid));
    tids.iter().filter_map(|tid| manner(&tid.to_string())).collect()
}

/// Waits until this many misses are counted. Returns false if that takes too long.
fn counts(here: &Here, misses: u64) -> bool {
    let until = std::time::Instant::now() + 3 * crate::here::PATIENCE;
    while here.counted()["miss"] != misses {
        if std::time::Instant::now() > until {
            return false;
        }
        // Asking `larderd` for its status would also be work for it.
        std::thread::sleep(Duration::from_millis(100));
    }
    true
}

/// `larderd` records the result of a background build at background priority, and its main thread
/// keeps its own priority.
#[test]
fn the_callers_class_comes_with_what_it_hands_over() {
    const IDLE: u32 = 5;
    probe_skip!(can_mount(), "no mount namespaces here");
    let here = Here::new();
    // A large output keeps `larderd` at work for a while.
    here.place.tool("work/mycc", "{ cat x.c; head -c 30000000 /dev/zero; } > x.o; echo said");
    let pid = here.start();
    let before = threads_of(pid)[0];
    probe_skip!(before.1 == 0, "this test itself does not run with the default scheduling policy");
    for (round, class) in ["inherit", "utility", "background"].into_iter().enumerate() {
        here.place.put("x.c", format!("int a{round};\n"));
        let script = "exec \"$LARDER\" ./mycc -c x.c -o x.o";
        let build = here.sandbox_command(script).env("LARDER_CLASS", class).start();
        let is_done = AtomicBool::new(false);
        let seen = std::thread::scope(|scope| {
            let looking = scope.spawn(|| {
                let mut seen = BTreeSet::new();
                while !is_done.load(Relaxed) {
                    seen.extend(threads_of(pid));
                }
                seen
            });
            let counted = counts(&here, round as u64 + 1);
            is_done.store(true, Relaxed);
            assert!(counted, "{class}: {}", here.daemon_log());
            looking.join().expect("the observing thread panicked")
        });
        larder_testkit::Ran::of(build).ends(0);
        let lowered = match class {
            "inherit" => before,
            "utility" => (before.0.max(10), 0),
            _ => (before.0.max(10), IDLE),
        };
        assert!(seen.contains(&lowered), "{class}: {lowered:?} is none of {seen:?}");
        // A thread that is being lowered changes its niceness before its policy.
        assert!(seen.iter().all(|one| *one == before || one.0 == lowered.0), "{class}: {seen:?}");
        assert_eq!(threads_of(pid)[0], before, "{class}");
    }
}
