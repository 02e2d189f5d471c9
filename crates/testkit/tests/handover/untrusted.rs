//! Jobs that are not trusted, in a sandbox that may only read the store. The records that they hand
//! over to `larderd` answer other sandboxes only, are never signed, and are sent only if
//! `larderd`'s own settings say so. The jobs can neither end `larderd` nor make it read files for
//! them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use larder_testkit::{Run, can_mount, is_root, larder_text, probe_skip};

use crate::here::Here;

const COMPILE: [&str; 5] = ["./mycc", "-c", "x.c", "-o", "x.o"];
/// A secret key and its public key: the first test of RFC 8032, section 7.1.
const SECRET: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
const PUBLIC: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

/// Compiles outside of the sandbox, and returns what larder logged.
fn compile_outside(here: &Here) -> String {
    here.place.remove(&["x.o"]);
    let _ = fs::remove_file(here.place.path("log"));
    assert_eq!(here.larder(&COMPILE).stdout, "said\n");
    here.right();
    here.log()
}

/// Starts `larderd` with these arguments. `change` can add settings.
fn start_with(here: &Here, words: &[&str], change: impl Fn(Run) -> Run) {
    let words = [&[larder_text(), "daemon", "start"], words].concat();
    change(here.command(&words)).run().ends(0);
}

#[test]
fn what_is_handed_over_answers_sandboxes_alone() {
    probe_skip!(can_mount(), "no mount namespaces here");
    let here = Here::new();
    here.start();
    here.compile();
    here.wait_recorded(1);
    assert!(here.compile().contains(" hit: "), "{}", here.log());
    let log = compile_outside(&here);
    assert!(log.contains(" miss: x.c"), "outside of a sandbox, a record of a sandbox must not answer: {log}");
    let log = compile_outside(&here);
    assert!(log.contains(" hit: "), "the first compile outside recorded its result: {log}");
    assert!(here.compile().contains(" hit: "), "the record from outside must answer the sandbox: {}", here.log());
    assert!(here.larder(&["fsck"]).ends(0).stdout.contains("all sound"));
}

#[test]
fn larderds_own_setting_widens_that() {
    probe_skip!(can_mount(), "no mount namespaces here");
    let here = Here::new();
    start_with(&here, &[], |run| run.env("LARDER_HANDOVER", "trusted"));
    here.compile();
    here.wait_recorded(1);
    assert!(compile_outside(&here).contains(" hit: "), "{}", here.log());
}

/// The setting of the client has no effect.
#[test]
fn a_sandbox_cannot_widen_it() {
    probe_skip!(can_mount(), "no mount namespaces here");
    let here = Here::new();
    here.start();
    let log = here.sandbox("export LARDER_HANDOVER=trusted; exec \"$LARDER\" ./mycc -c x.c -o x.o");
    assert!(log.contains("handed over to larderd"), "{log}");
    here.wait_recorded(1);
    assert!(compile_outside(&here).contains(" miss: x.c"), "{}", here.log());
}

#[test]
fn hits_only_takes_nothing() {
    probe_skip!(can_mount(), "no mount namespaces here");
    let here = Here::new();
    compile_outside(&here);
    start_with(&here, &["--hits-only"], |run| run);
    assert!(here.compile().contains(" hit: "), "{}", here.log());
    here.place.put("x.c", "int b;\n".repeat(40));
    let log = here.compile();
    assert!(log.contains("miss, not recorded") && log.contains("it gives hits only"), "{log}");
    assert_eq!(here.status()["recorded"], 0);
    assert!(!here.inside("handed-over").exists() && !here.inside("judged-handed-over").exists());
    // A `larderd` that is started without `--hits-only` takes records again.
    here.larder(&["daemon", "stop"]).ends(0);
    here.start();
    assert!(here.compile().contains("handed over to larderd"), "{}", here.log());
}

#[test]
fn a_sandbox_cannot_end_larderd() {
    probe_skip!(can_mount(), "no mount namespaces here");
    let here = Here::new();
    let pid = here.start();
    let ran = here.sandbox_command("\"$LARDER\" daemon stop").run();
    assert!(ran.code == Some(1) && ran.stderr.contains("who can write to its store"), "{ran:?}");
    assert_eq!(here.status()["pid"], pid);
    // Send the bare message, without the descriptor that proves the right to send it. Its bytes are
    // the length (two), the version and the kind.
    let refused = here.status()["refused"].as_u64().expect("not a number");
    let base = here.inside("").to_string_lossy().into_owned();
    let version: u8 = Path::new(&base)
        .file_name()
        .and_then(|name| name.to_str()?.strip_prefix('v')?.parse().ok())
        .expect("the directory name is not `vN`");
    let mut stream = std::os::unix::net::UnixStream::connect(here.inside("daemon.sock")).expect("cannot connect");
    std::io::Write::write_all(&mut stream, &[2, 0, version, 5]).expect("cannot send");
    here.wait("is refused", |here| here.status()["refused"].as_u64() > Some(refused));
    assert_eq!(here.status()["pid"], pid);
    assert!(here.daemon_log().contains("asked larderd to stop"), "{}", here.daemon_log());
    here.larder(&["daemon", "stop"]).ends(0);
    assert_eq!(here.larder(&["daemon", "status"]).code, Some(1));
}

/// Returns the number of objects of one kind in a remote that is a directory. The kind `m` is lists
/// of records, and `b` is blobs.
fn objects(remote: &Path, kind: &str) -> usize {
    let versions = fs::read_dir(remote).into_iter().flatten().flatten();
    let shards = versions.flat_map(|version| fs::read_dir(version.path().join(kind)).into_iter().flatten().flatten());
    shards.flat_map(|shard| fs::read_dir(shard.path()).into_iter().flatten().flatten()).count()
}

/// The attack that would get any record signed: a job that has no key and names no remote hands
/// over a record, and `larderd` signs and sends it.
#[test]
fn what_is_handed_over_is_neither_sent_nor_signed() {
    probe_skip!(can_mount(), "no mount namespaces here");
    for (handover, remote_handover, is_sent) in
        [("apart", "off", false), ("trusted", "off", false), ("apart", "unsigned", true), ("trusted", "unsigned", true)]
    {
        let here = Here::new();
        let (key, remote) = (here.place.path("team.key"), here.place.path("far"));
        fs::write(&key, SECRET).expect("cannot write the file");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("cannot set the mode");
        let url = format!("file://{}", remote.display());
        let with = |run: Run| {
            let run = run.env("LARDER_REMOTE", &url).env("LARDER_REMOTE_SIGN_WITH", &key);
            run.env("LARDER_HANDOVER", handover).env("LARDER_REMOTE_HANDOVER", remote_handover)
        };
        start_with(&here, &[], with);
        // Compile once without naming a remote, and once with a remote, as a job that would upload.
        here.compile();
        here.wait_recorded(1);
        let with_remote = format!("export LARDER_REMOTE={url}; exec \"$LARDER\" ./mycc -c x.c -o x.o");
        here.place.put("x.c", "int b;\n".repeat(40));
        here.place.remove(&["x.o"]);
        here.sandbox(&with_remote);
        here.wait_recorded(2);
        let larder = larder_text();
        let word = |words: &[&str]| with(here.command(&[&[larder], words].concat())).run();
        word(&["remote", "flush"]).ends(0);
        let what = format!("{handover}, {remote_handover}: {}", here.daemon_log());
        assert_eq!(
            objects(&remote, "m"),
            usize::from(is_sent),
            "a record that was handed over is sent only if `remote_handover` allows it: {what}"
        );
        // `larder remote push` must not send it either.
        word(&["remote", "push"]);
        // Another machine, which trusts the team's key and has an empty store.
        let (other, log) = (here.place.path("other"), here.place.path("log"));
        for trust in [Some(PUBLIC), None] {
            let expect = is_sent && trust.is_none();
            let is_fetched = || {
                let run = |words: &[&str]| {
                    let run = here.command(&[&[larder], words].concat()).env("LARDER_REMOTE", &url);
                    let run = run.env("LARDER_DIR", &other).env("LARDER_REMOTE_RW_MODE", "read_only");
                    trust.iter().fold(run, |run, key| run.env("LARDER_REMOTE_TRUST", key)).run().ends(0)
                };
                here.place.remove(&["x.o"]);
                run(&["daemon", "start"]);
                let _ = fs::remove_file(&log);
                run(&COMPILE);
                let fetched = here.log().contains("fetched from a remote");
                run(&["daemon", "stop"]);
                let _ = fs::remove_dir_all(&other);
                fetched
            };
            // On a busy machine the tool may be faster than the remote.
            let fetched = (0..if expect { 20 } else { 1 }).any(|_| is_fetched());
            assert_eq!(fetched, expect, "{trust:?}: {what} {}", here.log());
        }
    }
}

/// The attack that reads a file which the sandbox cannot see: a record names the file, `larderd`
/// hashes it, and the digest appears in the stamps, which the sandbox can read.
#[test]
fn a_sandbox_has_nothing_read_that_it_cannot_see() {
    probe_skip!(can_mount() && is_root(), "no mount namespaces here");
    let here = Here::new();
    here.start();
    let secret = tempfile::tempdir_in("/var/tmp").expect("cannot create a temporary directory");
    let file = secret.path().join("pin.h");
    fs::write(&file, "PIN=4711\n").expect("cannot write the file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("cannot set the mode");
    // Inside the sandbox another file is mounted over it, and the record describes that one.
    let dir = secret.path().display();
    here.place.tool("work/mycc", &format!("cat {dir}/pin.h x.c x.c > x.o; echo said"));
    let script = format!(
        "mount -t tmpfs none {dir}; echo guess > {dir}/pin.h; chmod 644 {dir}/pin.h; sleep 0.1; \
         exec \"$LARDER\" ./mycc -c x.c -o x.o"
    );
    let log = here.sandbox(&script);
    assert!(log.contains("handed over to larderd"), "{log}");
    here.wait_recorded(1);
    // The stamps hold the system's files, so `larderd` has checked the record.
    let is_stamped = |here: &Here, bytes: &[u8]| {
        let digest = *blake3::hash(bytes).as_bytes();
        let stamps = fs::read_dir(here.inside("stamps")).into_iter().flatten().flatten();
        stamps.filter_map(|file| fs::read(file.path()).ok()).any(|all| all.windows(32).any(|window| window == digest))
    };
    let cat = fs::read("/bin/cat").expect("cannot read the file");
    here.wait("the stamps hold the system's files", |here| is_stamped(here, &cat));
    assert!(!is_stamped(&here, b"PIN=4711\n"), "the stamps hold the digest of a file that the sandbox cannot see");
    // `larderd` must not keep a directory open.
    let pid = here.status()["pid"].as_u64().expect("not a number");
    let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("cannot list the directory").flatten();
    let open: Vec<_> =
        open.filter_map(|fd| fs::read_link(fd.path()).ok()).filter(|path| path.starts_with("/usr")).collect();
    assert!(open.is_empty(), "{open:?}");
}
