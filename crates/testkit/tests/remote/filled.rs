//! Stores that are filled from a remote only.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use larder_testkit::{AZURE_KEYS, NGINX_PUT, S3_KEYS, Server, Way, can_mount, has, larder_text, probe_skip};

use crate::far::{FIRST, Far, SECOND};
use crate::trouble::files;

fn a_second_store_is_filled(far: &Far) {
    far.record();
    let log = far.fetch(SECOND);
    assert!(log.contains(" hit: ") && log.contains("fetched from a remote"), "{log} {}", far.daemon_log(SECOND));
    // The second time, the record is in the store itself.
    assert!(!far.compile(SECOND).contains("fetched"));
    let stats = far.stats(SECOND);
    assert_eq!((&stats["hit"], &stats["remote_hit"]), (&2.into(), &1.into()));
    assert!(stats["miss"].as_u64() <= stats["remote"]["races"].as_u64(), "{stats}");
    assert!(
        stats["remote"]["bytes_in"].as_u64() > Some(4096) && stats["remote"]["fetch_median_us"].is_u64(),
        "{stats}"
    );
    assert!(far.larder(SECOND, &["fsck"]).run().ends(0).stdout.contains("all sound"));
    assert!(far.stats(FIRST)["remote"]["sent"].as_u64() >= Some(1));
}

#[test]
fn from_a_directory() {
    a_second_store_is_filled(&Far::directory());
}

#[test]
fn from_redis() {
    let Some(far) = Far::redis() else { return };
    a_second_store_is_filled(&far);
}

#[test]
fn from_each_other_service() {
    let at = |name: &str, server: Option<Server>, url: &str, variables| {
        Far::at(name, server, |port| url.replace("PORT", &port.to_string()), variables)
    };
    for far in [
        at("memcached", Server::memcached(), "memcached://127.0.0.1:PORT/team", &[]),
        at("nginx", Server::nginx(NGINX_PUT), "http://me:hush@127.0.0.1:PORT/team", &[]),
        at("versitygw", Server::s3(), "s3://team/some/prefix?endpoint=http://127.0.0.1:PORT", S3_KEYS),
        at("fake-gcs-server", Server::gcs(), "gs://team/larder?anonymous=yes&endpoint=http://127.0.0.1:PORT", &[]),
        at(
            "azurite-blob",
            Server::azurite(),
            "azblob://team/larder?endpoint=http://127.0.0.1:PORT/devstoreaccount1",
            AZURE_KEYS,
        ),
        at("buildbox-casd", Server::casd(), "grpc://127.0.0.1:PORT", &[]),
    ] {
        far.iter().for_each(a_second_store_is_filled);
    }
}

/// No `larderd` runs yet. One of the commands starts it, and the others wait for it.
#[test]
fn those_who_begin_together_all_hit() {
    let far = Far::directory();
    far.learn(FIRST);
    let places = ["a", "b", "c", "d", "e", "f"];
    for (number, place) in places.iter().enumerate() {
        far.place.put(&format!("{place}/x.c"), format!("// 0.0\nint together{number};\n"));
    }
    far.larder(FIRST, &["daemon", "start"]).run().ends(0);
    let start = |store: &str, place: &str| {
        let run = far.larder(store, &["../gcc", "-c", "x.c", "-o", "x.o"]);
        // Only the first machine uploads.
        let mode = if store == FIRST { "READ_WRITE" } else { "READ_ONLY" };
        let mut command = run.env("LARDER_REMOTE_RW_MODE", mode).command;
        command.current_dir(far.place.path(format!("work/{place}")));
        command.spawn().expect("cannot start the command")
    };
    for place in places {
        for _ in 0..4 {
            assert!(start(FIRST, place).wait().expect("cannot wait for the command").success());
        }
    }
    assert!(far.larder(FIRST, &["remote", "flush"]).run().ends(0).stdout.contains(" 0 left"));
    // On a busy machine a fetch may take so long that the tool also runs and ends first. There must
    // be no other miss, unless larderd started so slowly that the commands did not wait for it.
    let mut seen = Vec::new();
    let all_hit = (0..10).any(|_| {
        let all: Vec<_> = places.iter().map(|place| start(SECOND, place)).collect();
        all.into_iter().for_each(|mut one| assert!(one.wait().expect("cannot wait for the command").success()));
        let stats = far.stats(SECOND);
        far.larder(SECOND, &["daemon", "stop"]).run().ends(0);
        fs::remove_dir_all(far.place.path(SECOND)).expect("cannot remove the directory");
        let number = |value: &serde_json::Value| value.as_u64().unwrap_or_default();
        let lost = number(&stats["remote"]["races"]) - number(&stats["remote"]["races_won"]);
        let (hits, misses) = (number(&stats["hit"]), number(&stats["miss"]));
        assert_eq!(hits + misses, places.len() as u64, "{stats}");
        seen.push(stats);
        misses <= lost
    });
    assert!(all_hit, "{seen:?}");
}

/// A record that one machine fetched from the far remote is copied to the near remote for the next
/// machine.
#[test]
fn from_a_near_one_that_another_filled() {
    let mut far = Far::directory();
    far.record();
    let near = far.place.path("near");
    let url = format!("file://{}", near.display());
    far.url = format!("{url},{}", far.url);
    let log = far.fetch(SECOND);
    assert!(log.contains("fetched from a remote"), "{log}");
    let is_list = |path: &PathBuf| path.parent().and_then(Path::parent).is_some_and(|kind| kind.ends_with("m"));
    let began = Instant::now();
    while !files(&near).iter().any(is_list) {
        assert!(began.elapsed() < Duration::from_secs(20), "{:?} {}", files(&near), far.daemon_log(SECOND));
        std::thread::sleep(Duration::from_millis(10));
    }
    far.larder(SECOND, &["daemon", "stop"]).run().ends(0);
    fs::remove_dir_all(far.place.path(SECOND)).expect("cannot remove the directory");
    far.url = url;
    let log = far.fetch(SECOND);
    assert!(log.contains("fetched from a remote"), "{log} {}", far.daemon_log(SECOND));
}

#[test]
fn from_one_that_is_slow() {
    let Some(far) = Far::redis() else { return };
    far.record();
    far.proxy().set(Way::Late(Duration::from_millis(100)));
    a_second_store_is_filled(&far);
}

#[test]
fn what_others_wrote_stays_there() {
    let far = Far::directory();
    far.record();
    far.source(0.0, 2);
    far.record();
    far.source(0.0, 1);
    assert!(far.fetch(SECOND).contains("fetched from a remote"));
    far.source(0.0, 2);
    assert!(far.fetch(SECOND).contains("fetched from a remote"));
}

#[test]
fn a_scope_that_only_reads() {
    let far = Far::directory();
    let read_only = |run: larder_testkit::Run| run.env("LARDER_REMOTE_RW_MODE", "READ_ONLY");
    far.compile_by(FIRST, read_only);
    far.compile_by(FIRST, read_only);
    read_only(far.larder(FIRST, &["remote", "flush"])).run().ends(0);
    assert!(!far.place.path("far").exists(), "nothing may be uploaded");
    let pushed = read_only(far.larder(FIRST, &["remote", "push"])).run();
    assert!(pushed.code == Some(1) && pushed.stderr.contains("read_only"), "{pushed:?}");
    far.larder(FIRST, &["daemon", "stop"]).run().ends(0);
    assert!(far.larder(FIRST, &["remote", "push"]).run().ends(0).stdout.contains("1 record sent"));
    let again = far.larder(FIRST, &["remote", "push"]).run().ends(0).stdout;
    assert!(again.contains("0 records sent") && again.contains("1 already there"), "{again}");
    // The remote can still be read.
    let log = far.fetch_by(SECOND, read_only);
    assert!(log.contains("fetched from a remote"), "{log}");
}

#[test]
fn what_was_not_sent_is_sent_by_the_next_one() {
    let Some(far) = Far::redis() else { return };
    far.learn(FIRST);
    far.source(0.0, 7);
    far.proxy().set(Way::Stalled);
    far.compile(FIRST);
    let flushed = far.larder(FIRST, &["remote", "flush", "--timeout", "1"]).run();
    assert!(flushed.code == Some(1) && flushed.stdout.contains(" 1 left"), "{flushed:?}");
    far.place.run(&["kill", "-9", &far.pid(FIRST).to_string()]).run().ends(0);
    far.proxy().set(Way::Late(Duration::ZERO));
    let flushed = far.larder(FIRST, &["remote", "flush"]).run().ends(0);
    assert!(flushed.stdout.contains("1 record sent, 0 left"), "{flushed:?}");
    assert!(far.fetch(SECOND).contains("fetched from a remote"), "{}", far.daemon_log(SECOND));
}

#[test]
fn a_sandbox_without_network_is_served() {
    probe_skip!(can_mount(), "no mount namespaces here");
    let Some(far) = Far::redis() else { return };
    far.record();
    let store = far.place.path(SECOND);
    fs::create_dir_all(&store).expect("cannot create the directory");
    far.place.run(&["chmod", "700", store.to_str().expect("not UTF-8")]).run().ends(0);
    far.larder(SECOND, &["daemon", "start"]).run().ends(0);
    let script = "mount --bind \"$LARDER_DIR\" \"$LARDER_DIR\" && mount -o remount,bind,ro \"$LARDER_DIR\" && \
        exec \"$LARDER\" ./gcc -c x.c -o x.o";
    let compile = || {
        far.larder(SECOND, &["clear"]).run().ends(0);
        far.place.remove(&["x.o"]);
        let _ = fs::remove_file(far.place.path("log"));
        let words = ["unshare", "-m", "-n", "-p", "-f", "--mount-proc", "sh", "-c", script];
        let ran = far.command(SECOND, &words).env("LARDER_REMOTE_RW_MODE", "READ_ONLY").run();
        assert_eq!(ran.quiet(), "");
        fs::read_to_string(far.place.path("log")).expect("cannot read the log")
    };
    // On a busy machine the tool may be faster than the remote.
    let mut log = compile();
    for _ in 0..10 {
        if !log.contains("fetched from a remote") {
            log = compile();
        }
    }
    assert!(log.contains(" hit: ") && log.contains("fetched from a remote"), "{log} {}", far.daemon_log(SECOND));
    assert!(far.place.read("x.o") == far.place.read("x.c").repeat(20));
}

/// `larderd` prefetches what an earlier build of this commit used.
#[test]
fn a_commit_that_was_built_elsewhere() {
    probe_skip!(has("git"), "git is not installed");
    let far = Far::directory();
    let git = |words: &[&str]| {
        let identity = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "init.defaultBranch=main"];
        far.place.run(&[&identity, words].concat()).run().ends(0);
    };
    let all: Vec<String> = (1..=12).map(|n| format!("d{n}")).collect();
    for (at, name) in all.iter().enumerate() {
        far.place.tool(&format!("work/{name}/mycc"), "cat x.c x.c > x.o");
        far.place.put(&format!("{name}/x.c"), format!("int a{at};\n").repeat(300));
    }
    git(&["init", "-q"]);
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "one"]);
    let build = |store: &str| {
        let _ = fs::remove_file(far.place.path("log"));
        let larder = larder_text();
        for name in &all {
            let run = far.command(store, &[larder, "./mycc", "-c", "x.c", "-o", "x.o"]);
            // Only the first machine uploads.
            let run = run.env("LARDER_REMOTE_RW_MODE", if store == FIRST { "READ_WRITE" } else { "READ_ONLY" });
            run.cwd(far.place.path("work").join(name)).run().quiet();
        }
        fs::read_to_string(far.place.path("log")).expect("cannot read the log")
    };
    far.larder(FIRST, &["daemon", "start"]).run().ends(0);
    assert!((0..5).any(|_| build(FIRST).matches(" hit: ").count() == all.len()), "not all commands are recorded");
    far.larder(FIRST, &["remote", "flush"]).run().ends(0);
    // A second commit, of which the remote knows nothing yet.
    git(&["commit", "-q", "--allow-empty", "-m", "two"]);
    let mut seen = Vec::new();
    // On a busy machine a command may ask before its record is there, and its tool may be faster
    // than the remote.
    let is_prefetched = (0..10).any(|_| {
        far.larder(SECOND, &["daemon", "start"]).run().ends(0);
        let log = build(SECOND);
        let stats = far.stats(SECOND);
        let (asked, ahead) = (stats["remote_hit"].as_u64(), stats["remote"]["prefetched"].as_u64());
        let all_hit = log.matches(" hit: ").count() == all.len();
        seen.push(format!("{log} {stats} {}", far.daemon_log(SECOND)));
        far.larder(SECOND, &["daemon", "stop"]).run().ends(0);
        fs::remove_dir_all(far.place.path(SECOND)).expect("cannot remove the directory");
        all_hit && ahead >= Some(10) && asked <= Some(4)
    });
    assert!(is_prefetched, "{}", seen.join("\n"));
    // `larder remote pull` prefetches as well.
    assert!(far.larder(SECOND, &["remote", "pull"]).run().ends(0).stdout.contains("12 records fetched"));
}
