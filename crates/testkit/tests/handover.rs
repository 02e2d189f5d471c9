//! Builds in sandboxes that may only read the store, and the `larderd` outside that records for them.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use larder_testkit::{Place, Ran, can_mount, has, is_root, larder, probe_skip};
use serde_json::Value;

/// Another user: nobody.
const OTHER: u32 = 65534;
const PATIENCE: Duration = Duration::from_secs(20);
/// Mounts, network and processes of its own, and a store that can only be read.
const SANDBOX: &str = "mount --bind \"$LARDER_DIR\" \"$LARDER_DIR\" && mount -o remount,bind,ro \"$LARDER_DIR\" && ";

/// A place with a store, and a `larderd` that ends with it.
struct Here {
    place: Place,
    store: PathBuf,
}

impl Drop for Here {
    fn drop(&mut self) {
        let _ = self.larder(&["daemon", "stop"]);
    }
}

impl Here {
    fn new() -> Here {
        Here::with_store("store")
    }

    fn with_store(name: &str) -> Here {
        let place = Place::new();
        // Fixed bytes, more than stand in a record; the name of the source decides which.
        place.tool("work/mycc", "for i in 1 2 3 4 5 6 7 8 9; do cat x.c x.c x.c x.c x.c x.c; done > x.o; echo said");
        place.put("x.c", "int a;\n".repeat(40));
        let store = place.path(name);
        fs::create_dir_all(&store).expect("makes");
        fs::set_permissions(&store, fs::Permissions::from_mode(0o700)).expect("is ours");
        Here { place, store }
    }

    fn run(&self, argv: &[&str]) -> Ran {
        self.command(argv).run()
    }

    fn command(&self, argv: &[&str]) -> larder_testkit::Run {
        self.place.settle();
        let run = self.place.run(argv).env("LARDER_DIR", &self.store).env("LARDER_LOG", self.place.path("log"));
        run.env("LARDER", larder())
    }

    fn larder(&self, words: &[&str]) -> Ran {
        self.run(&[&[larder().to_str().expect("is text")], words].concat())
    }

    fn sandbox_command(&self, script: &str) -> larder_testkit::Run {
        let whole = format!("{SANDBOX} {script}");
        self.command(&["unshare", "-m", "-n", "-p", "-f", "--mount-proc", "sh", "-c", &whole])
    }

    /// In a sandbox; gives what larder logged meanwhile.
    fn sandbox(&self, script: &str) -> String {
        let _ = fs::remove_file(self.place.path("log"));
        let ran = self.sandbox_command(script).run();
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        assert_eq!(ran.stdout, "said\n");
        self.log()
    }

    fn compile(&self) -> String {
        self.place.remove(&["x.o"]);
        let log = self.sandbox("exec \"$LARDER\" ./mycc -c x.c -o x.o");
        self.right();
        log
    }

    #[track_caller]
    fn right(&self) {
        let source = self.place.read("x.c");
        assert!(self.place.read("x.o") == source.repeat(54), "the output");
    }

    fn log(&self) -> String {
        fs::read_to_string(self.place.path("log")).unwrap_or_default()
    }

    fn daemon_log(&self) -> String {
        fs::read_to_string(self.inside("daemon.log")).unwrap_or_default()
    }

    /// A path in the store, whatever its format is called.
    fn inside(&self, name: &str) -> PathBuf {
        let base = fs::read_dir(&self.store).expect("is there").next().expect("has one").expect("can be read");
        base.path().join(name)
    }

    fn start(&self) -> u64 {
        self.larder(&["daemon", "start"]).ends(0);
        let pid = self.status()["pid"].as_u64().expect("is a number");
        assert!(pid > 0);
        pid
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.larder(&["daemon", "status", "--json"]).stdout).expect("JSON")
    }

    #[track_caller]
    fn wait(&self, what: &str, holds: impl Fn(&Here) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(Instant::now() < until, "{what}: {} {}", self.status(), self.daemon_log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn wait_recorded(&self, count: u64) {
        self.wait("is recorded", |here| here.status()["recorded"] == count);
    }

    fn counted(&self) -> Value {
        serde_json::from_str(&self.larder(&["stats", "--json"]).ends(0).stdout).expect("JSON")
    }
}

fn connect(here: &Here) -> UnixStream {
    UnixStream::connect(here.inside("daemon.sock")).expect("connects")
}

#[test]
fn a_sandbox_records_and_hits() {
    probe_skip!(can_mount(), "no mounts of one's own here");
    let here = Here::new();
    here.start();
    assert!(here.compile().contains("recorded · handed over to larderd"), "{}", here.log());
    here.wait_recorded(1);
    assert!(here.compile().contains(" hit: "), "{}", here.log());
    // Outside the same.
    here.place.remove(&["x.o"]);
    let _ = fs::remove_file(here.place.path("log"));
    assert_eq!(here.larder(&["./mycc", "-c", "x.c", "-o", "x.o"]).stdout, "said\n");
    here.right();
    assert!(here.log().contains(" hit: "), "{}", here.log());
    let counted = here.counted();
    assert_eq!((&counted["miss"], &counted["hit"]), (&1.into(), &1.into()), "hits in a sandbox are not counted");
    assert!(here.larder(&["fsck"]).ends(0).stdout.contains("all sound"));
    assert_eq!(here.status()["refused"], 0, "{}", here.daemon_log());
}

#[test]
fn what_is_learned_of_programs_is_handed_over() {
    probe_skip!(can_mount(), "no mounts of one's own here");
    let here = Here::new();
    here.start();
    here.compile();
    here.wait_recorded(1);
    let explained = here.larder(&["explain", "--no-terminal", "--", "./mycc", "-c", "x.c", "-o", "x.o"]).stdout;
    assert!(explained.contains("hit"), "{explained}");
    let judged = fs::read_dir(here.inside("judged")).expect("there are judgements").count();
    assert!(judged > 0);
    // An unrecorded run teaches as well, and is counted.
    here.place.tool("work/clock", "date +%s%N > x.o; echo said");
    let log = here.sandbox("exec \"$LARDER\" run -- ./clock");
    assert!(log.contains("not recorded"), "{log}");
    here.wait_recorded(2);
    assert_eq!(here.counted()["unrecorded_reasons"]["clock"], 1);
}

#[test]
fn the_caller_strips_and_renames_the_next_moment() {
    probe_skip!(can_mount() && has("gcc") && has("strip"), "no compiler, or no mounts of one's own here");
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
    assert!(here.place.read("y.o") == here.place.read("plain.o"), "what the compiler wrote, not what strip left");
    assert!(here.place.read("kept.o") == here.place.read("plain.o"));
}

#[test]
fn without_larderd_nothing_is_recorded_and_everything_works() {
    probe_skip!(can_mount(), "no mounts of one's own here");
    let here = Here::new();
    let miss = |log: &str| {
        assert!(log.contains("miss, not recorded"), "{log}");
        assert!(log.contains("the store cannot be written, and no larderd listens"), "{log}");
    };
    miss(&here.compile());
    miss(&here.compile());
    // Hits as before.
    here.place.remove(&["x.o"]);
    assert_eq!(here.larder(&["./mycc", "-c", "x.c", "-o", "x.o"]).stdout, "said\n");
    assert!(here.compile().contains(" hit: "), "{}", here.log());
    // It cannot be started from in there, and that is said.
    let ran = here.sandbox_command("\"$LARDER\" daemon start").run();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("outside of the sandbox"), "{ran:?}");
    let doctor = here.sandbox_command("\"$LARDER\" doctor").run();
    assert!(doctor.code == Some(1) && doctor.stdout.contains("larder daemon start"), "{doctor:?}");
    // Outside, doctor says so beforehand.
    assert!(here.larder(&["doctor"]).stdout.contains("note     larderd"));
    here.start();
    assert!(here.larder(&["doctor"]).stdout.contains("ok       larderd"));
    let doctor = here.sandbox_command("\"$LARDER\" doctor").run();
    assert!(doctor.stdout.contains("only read from here; larderd takes"), "{doctor:?}");
}

#[test]
fn where_counting_is_possible_the_reason_is_counted() {
    probe_skip!(!is_root(), "the superuser may write everywhere");
    let here = Here::new();
    here.larder(&["./mycc", "-c", "x.c", "-o", "x.o"]);
    fs::set_permissions(here.inside("tmp"), fs::Permissions::from_mode(0o555)).expect("is ours");
    here.place.put("x.c", "int b;\n".repeat(40));
    here.larder(&["./mycc", "-c", "x.c", "-o", "x.o"]);
    assert_eq!(here.counted()["unrecorded_reasons"]["no-daemon"], 1);
}

#[test]
fn killed_while_a_tool_runs() {
    probe_skip!(can_mount(), "no mounts of one's own here");
    let here = Here::new();
    let pid = here.start();
    here.place.tool("work/slow", "echo begun > begun; sleep 1; cat x.c > x.o; echo said");
    let child: Child = here.sandbox_command("exec \"$LARDER\" run -- ./slow < /dev/null").start();
    here.wait("begins", |here| here.place.path("work/begun").exists());
    assert_eq!(here.run(&["kill", "-9", &pid.to_string()]).code, Some(0));
    here.wait("is killed", |here| here.status()["runs"] == false);
    let ran = Ran::of(child);
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "said\n", ""));
    assert!(here.log().contains("no larderd listens"), "{}", here.log());
    assert!(here.compile().contains("no larderd listens"), "{}", here.log());
    // Its socket is still there, and is replaced.
    assert!(here.inside("daemon.sock").exists());
    here.start();
    here.compile();
    here.wait_recorded(1);
    assert!(here.compile().contains(" hit: "), "{}", here.log());
}

#[test]
fn sixteen_at_once() {
    probe_skip!(can_mount(), "no mounts of one's own here");
    let here = Here::new();
    here.start();
    let loop_ = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do \
        mkdir -p d$i && cp -p mycc d$i/ && (cat x.c; echo \"int n$i;\") > d$i/x.c && touch -d '1 hour ago' d$i/x.c; done; sleep 0.1; \
        for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do (cd d$i && \"$LARDER\" ./mycc -c x.c -o x.o > /dev/null) & done; \
        wait; echo said";
    let log = here.sandbox(loop_);
    let recorded = log.lines().filter(|line| line.contains("handed over to larderd")).count();
    // The first few may each be told to wait for what is learned of the shell.
    here.wait_recorded(recorded as u64);
    assert_eq!(log.lines().count(), 16, "{log}");
    let log = here.sandbox(loop_);
    assert_eq!(log.lines().filter(|line| line.contains(" hit: ")).count(), 16, "{log}");
    assert_eq!(here.status()["refused"], 0, "{}", here.daemon_log());
    assert!(here.larder(&["fsck"]).ends(0).stdout.contains("all sound"));
}

#[test]
fn clients_that_send_nonsense() {
    let here = Here::new();
    here.start();
    let before = here.status()["refused"].as_u64().expect("is a number");
    connect(&here).write_all(b"GET / HTTP/1.1\r\nHost: larder\r\n\r\n").expect("sends");
    connect(&here).write_all(&[0xff; 4096]).unwrap_or_default();
    // A frame that ends in its middle; a hand-over without descriptors.
    connect(&here).write_all(&[4, 0, 2]).expect("sends");
    connect(&here).write_all(&[4, 0, 2, 1, 9, 0]).expect("sends");
    // Those who say nothing are not waited for, and stop nobody else.
    let silent: Vec<UnixStream> = (0..8).map(|_| connect(&here)).collect();
    here.wait("are refused", |here| here.status()["refused"].as_u64() >= Some(before + 4));
    if can_mount() {
        here.compile();
        here.wait_recorded(1);
    }
    here.wait("are not waited for", |here| here.status()["refused"].as_u64() >= Some(before + 12));
    drop(silent);
    assert!(here.daemon_log().contains("refused: "), "{}", here.daemon_log());
}

#[test]
fn another_user_is_refused() {
    probe_skip!(is_root(), "only the superuser can become somebody else");
    let here = Here::new();
    here.start();
    let socket = here.inside("daemon.sock");
    assert_eq!(socket.metadata().expect("is there").mode() & 0o777, 0o600);
    let connects = |socket: PathBuf| {
        let thread = std::thread::spawn(move || {
            let other = rustix::process::Uid::from_raw(OTHER);
            rustix::thread::set_thread_res_uid(other, other, other).expect("becomes somebody else");
            UnixStream::connect(socket)
        });
        thread.join().expect("ends")
    };
    assert!(connects(socket.clone()).is_err(), "the store's directory is closed to others");
    // As if it were not.
    for path in socket.ancestors().skip(1).take_while(|path| path.starts_with(here.place.path(""))) {
        let mode = path.metadata().expect("is there").mode() | 0o111;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("can be set");
    }
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).expect("can be set");
    let mut stream = connects(socket).expect("connects");
    let _ = stream.write_all(&[2, 0, 2, 3]);
    here.wait("is refused", |here| here.daemon_log().contains(&format!("refused: user {OTHER} connected")));
}

#[test]
fn it_leaves_when_nobody_comes() {
    let here = Here::new();
    here.larder(&["daemon", "start", "--idle", "1"]).ends(0);
    let until = Instant::now() + PATIENCE;
    // Asking would keep it.
    while here.inside("daemon.sock").exists() {
        assert!(Instant::now() < until, "{}", here.daemon_log());
        std::thread::sleep(Duration::from_millis(50));
    }
    here.wait("ends", |here| here.status()["runs"] == false);
    assert!(here.daemon_log().contains("nobody came"), "{}", here.daemon_log());
    assert_eq!(here.larder(&["daemon", "status"]).code, Some(1));
    assert_eq!(here.larder(&["daemon", "stop"]).code, Some(0), "is no error");
}

#[test]
fn there_is_only_one() {
    let here = Here::new();
    let starts: Vec<Child> =
        (0..6).map(|_| here.command(&[larder().to_str().expect("is text"), "daemon", "start"]).start()).collect();
    let pids: Vec<String> = starts
        .into_iter()
        .map(|child| Ran::of(child).ends(0).stdout.chars().filter(char::is_ascii_digit).collect())
        .collect();
    let pid = here.status()["pid"].to_string();
    assert!(pids.iter().all(|found| *found == pid), "{pids:?} {pid}");
    let second = here.run(&[larder().with_file_name("larderd").to_str().expect("is text"), "serve"]);
    assert!(second.code == Some(1) && second.stderr.contains("runs already"), "{second:?}");
    here.larder(&["daemon", "stop"]).ends(0);
    assert!(!here.inside("daemon.sock").exists());
    assert_eq!(here.status()["runs"], false);
}

#[test]
fn it_holds_nothing_of_the_builds() {
    let here = Here::new();
    let secret = here.place.put("held", "x");
    let script = "exec 7< held 8> written; exec \"$LARDER\" daemon start";
    here.run(&["sh", "-c", script]).ends(0);
    let pid = here.status()["pid"].to_string();
    let proc = |name: &str| PathBuf::from(format!("/proc/{pid}/{name}"));
    for entry in fs::read_dir(proc("fd")).expect("is there") {
        let leads_to = fs::read_link(entry.expect("can be read").path()).expect("is a link");
        let own = leads_to.starts_with(&here.store) || leads_to.starts_with("/dev/null");
        let text = leads_to.to_string_lossy();
        assert!(own || text.starts_with("socket:") || text.starts_with("pipe:"), "{text} {}", secret.display());
    }
    assert_eq!(fs::read_link(proc("cwd")).expect("is a link"), PathBuf::from("/"));
    let stat = fs::read_to_string(proc("stat")).expect("is there");
    let session = stat.rsplit(')').next().and_then(|rest| rest.split(' ').nth(4)).map(str::to_owned);
    assert_eq!(session.as_ref(), Some(&pid), "a session of its own");
    let environment = fs::read(proc("environ")).expect("is there");
    assert!(!environment.windows(7).any(|part| part == b"LC_ALL="), "nothing of the build's environment");
}

#[test]
fn a_store_deep_down() {
    probe_skip!(can_mount(), "no mounts of one's own here");
    let here = Here::with_store(&format!("{}/store", "deep".repeat(40)));
    here.start();
    assert!(here.inside("daemon.sock").as_os_str().len() > 108);
    here.compile();
    here.wait_recorded(1);
    assert!(here.compile().contains(" hit: "), "{}", here.log());
    let install = here.larder(&["daemon", "install", "--print"]);
    assert!(install.code == Some(1) && install.stderr.contains("too long"), "{install:?}");
}

/// A sandbox of one's own needs no superuser.
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
    // With another number in there than outside.
    probe_skip!(can_mount(), "no mounts of one's own here");
    here.place.put("x.c", "int b;\n".repeat(40));
    let log = here.sandbox(&format!("exec unshare --map-user=1000 --map-group=1000 -n sh -c '{compile}'"));
    assert!(log.contains("handed over to larderd"), "{log}");
    here.wait_recorded(2);
}

#[test]
fn the_store_is_kept_within_its_limit() {
    probe_skip!(can_mount(), "no mounts of one's own here");
    let here = Here::new();
    let start = here.command(&[larder().to_str().expect("is text"), "daemon", "start"]).env("LARDER_MAX_SIZE", "60kB");
    start.run().ends(0);
    for round in 0..6 {
        here.place.put("x.c", format!("int a{round};\n").repeat(40));
        here.compile();
        here.wait_recorded(round + 1);
    }
    here.wait("is evicted", |here| here.counted()["store_bytes"].as_u64() < Some(60_000));
}

#[test]
fn a_full_disk_is_survived() {
    probe_skip!(can_mount(), "no mounts of one's own here");
    let here = Here::new();
    let script = format!(
        "mount -t tmpfs -o mode=700,size=256k none \"$LARDER_DIR\" || exit 9; \"$LARDER\" daemon start > /dev/null || exit 8; \
         head -c 1000000 /dev/zero > \"$LARDER_DIR\"/filler 2> /dev/null; sleep 0.1; \
         unshare -m -n -p -f --mount-proc sh -c '{SANDBOX} exec \"$LARDER\" ./mycc -c x.c -o x.o'; \
         for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1; done; \"$LARDER\" daemon status > status; rm \"$LARDER_DIR\"/filler; \
         unshare -m -n -p -f --mount-proc sh -c '{SANDBOX} exec \"$LARDER\" ./mycc -c x.c -o x.o'; \
         for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1; done; cat \"$LARDER_DIR\"/*/daemon.log > daemon.log; \
         \"$LARDER\" stats --json > stats; \"$LARDER\" daemon stop"
    );
    let ran = here.command(&["unshare", "-m", "sh", "-c", &script]).run();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let text = |name: &str| String::from_utf8_lossy(&here.place.read(name)).into_owned();
    assert!(text("status").contains("larderd runs"), "{}", text("status"));
    assert!(text("stats").contains("\"miss\": 1"), "{} {}", text("stats"), here.log());
    here.right();
}

#[test]
fn systemd_listens_for_it() {
    probe_skip!(can_mount() && has("systemd-socket-activate"), "no systemd, or no mounts of one's own here");
    let here = Here::new();
    let units = here.larder(&["daemon", "install", "--print"]).ends(0).stdout;
    let socket = units.lines().find_map(|line| line.strip_prefix("ListenStream=")).expect("is said").to_owned();
    fs::create_dir_all(PathBuf::from(&socket).parent().expect("has one")).expect("makes");
    fs::set_permissions(PathBuf::from(&socket).parent().expect("has one"), fs::Permissions::from_mode(0o700))
        .expect("is ours");
    let larderd = larder().with_file_name("larderd");
    let variable = format!("--setenv=LARDER_DIR={}", here.store.display());
    let words = ["systemd-socket-activate", &variable, "-l", &socket, larderd.to_str().expect("is text"), "serve"];
    let listener = here.command(&words).start();
    here.wait("listens", |here| PathBuf::from(&socket).exists() && here.status()["runs"] != Value::Null);
    here.compile();
    here.wait_recorded(1);
    assert!(here.compile().contains(" hit: "), "{}", here.log());
    assert!(here.larder(&["daemon", "start"]).ends(0).stdout.contains("already"));
    here.larder(&["daemon", "stop"]).ends(0);
    assert!(PathBuf::from(&socket).exists(), "it is not larderd's to remove");
    assert_eq!(Ran::of(listener).code, Some(0));
}

#[test]
fn what_a_sandbox_uses_is_noted() {
    probe_skip!(can_mount(), "no mounts of one's own here");
    let here = Here::new();
    here.larder(&["./mycc", "-c", "x.c", "-o", "x.o"]);
    let shard = fs::read_dir(here.inside("manifests")).expect("is there").next().expect("has one").expect("reads");
    let manifest = fs::read_dir(shard.path()).expect("is there").next().expect("has one").expect("reads").path();
    let two_hours_ago = std::time::SystemTime::now() - Duration::from_secs(7200);
    let used = || manifest.metadata().expect("is there").modified().expect("is known");
    fs::File::options().write(true).open(&manifest).expect("opens").set_modified(two_hours_ago).expect("is ours");
    assert!(here.compile().contains(" hit: "), "{}", here.log());
    assert!(used() == two_hours_ago, "nobody listens");
    here.start();
    assert!(here.compile().contains(" hit: "), "{}", here.log());
    here.wait("is noted", |_| used() > two_hours_ago);
}

#[test]
fn a_bazel_sandbox_records() {
    probe_skip!(is_root() && has("bazel") && has("gcc"), "no Bazel, no compiler, or no sandbox for this user");
    // In Bazel's sandbox /tmp can be written, and so could a store in it.
    let apart = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let mut here = Here::new();
    here.store = apart.path().to_owned();
    let larder = larder().to_str().expect("is text");
    let log = here.place.text("log");
    let store = here.store.to_str().expect("is text");
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
    // Bazel leaves directories that their owner may not write to.
    here.run(&["chmod", "-R", "u+w", &here.place.text("bazel")]).ends(0);
}

#[test]
fn units_are_written() {
    let here = Here::new();
    here.larder(&["daemon", "install"]).ends(0);
    let text = |name: &str| fs::read_to_string(here.place.path(name)).expect("is written");
    assert!(text("home/.config/systemd/user/larderd.socket").contains("SocketMode=0600"));
    let service = text("home/.config/systemd/user/larderd.service");
    assert!(service.contains(&here.store.display().to_string()) && service.contains("larderd\" serve"), "{service}");
    here.larder(&["daemon", "install", "--launchd"]).ends(0);
    assert!(text("home/Library/LaunchAgents/larderd.plist").contains("<string>serve</string>"));
}
