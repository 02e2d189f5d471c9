//! How `larderd` deals with nonsense, with other users, with full disks, and with being killed.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Child;

use larder_testkit::{Ran, can_mount, has, is_root, larder_text, probe_skip};

use crate::here::{Here, SANDBOX};

/// The user ID of `nobody`, another user.
const OTHER: u32 = 65534;

fn connect(here: &Here) -> UnixStream {
    UnixStream::connect(here.inside("daemon.sock")).expect("cannot connect")
}

/// Returns a request for a download: a length, the version of the formats, the kind, a fingerprint,
/// and a directory.
fn fetch_frame(here: &Here) -> Vec<u8> {
    let inside = here.inside("");
    let version = inside.file_name().and_then(|name| name.to_str()?.strip_prefix('v')?.parse().ok());
    [&[36, 0, version.expect("the directory has its version"), 7][..], &[7; 32], b"\x01/"].concat()
}

#[test]
fn killed_while_a_tool_runs() {
    probe_skip!(can_mount(), "no mount namespaces here");
    let here = Here::new();
    let pid = here.start();
    here.place.tool("work/slow", "echo begun > begun; sleep 4; cat x.c > x.o; echo said");
    let child: Child = here.sandbox_command("exec \"$LARDER\" run -- ./slow < /dev/null").start();
    here.wait("the tool begins", |here| here.place.path("work/begun").exists());
    assert_eq!(here.run(&["kill", "-9", &pid.to_string()]).code, Some(0));
    here.wait("larderd is killed", |here| here.status()["runs"] == false);
    let ran = Ran::of(child);
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "said\n", ""));
    assert!(here.log().contains("no larderd listens"), "{}", here.log());
    assert!(here.compile().contains("no larderd listens"), "{}", here.log());
    // The socket of the killed `larderd` still exists, and the next `larderd` replaces it.
    assert!(here.inside("daemon.sock").exists());
    here.start();
    here.compile();
    here.wait_recorded(1);
    assert!(here.compile().contains(" hit: "), "{}", here.log());
}

#[test]
fn clients_that_send_nonsense() {
    let here = Here::new();
    here.start();
    let before = here.status()["refused"].as_u64().expect("not a number");
    connect(&here).write_all(b"GET / HTTP/1.1\r\nHost: larder\r\n\r\n").expect("cannot send");
    connect(&here).write_all(&[0xff; 4096]).unwrap_or_default();
    // A frame that ends in its middle, and a hand-over without descriptors.
    connect(&here).write_all(&[4, 0, 2]).expect("cannot send");
    connect(&here).write_all(&[4, 0, 2, 1, 9, 0]).expect("cannot send");
    // Clients that send nothing are dropped after a while, and do not block other clients.
    let silent: Vec<UnixStream> = (0..8).map(|_| connect(&here)).collect();
    here.wait("the nonsense is refused", |here| here.status()["refused"].as_u64() >= Some(before + 4));
    if can_mount() {
        here.compile();
        here.wait_recorded(1);
    }
    here.wait("silent clients are dropped", |here| here.status()["refused"].as_u64() >= Some(before + 12));
    drop(silent);
    assert!(here.daemon_log().contains("refused: "), "{}", here.daemon_log());
}

/// A client may hold the connection of a download for minutes. Other requests have places of their
/// own.
#[test]
fn clients_that_hold_downloads_keep_no_other_request_waiting() {
    probe_skip!(can_mount(), "no mount namespaces here");
    let here = Here::new();
    let remote = format!("file://{}", here.place.path("far").display());
    let start = here.command(&[larder_text(), "daemon", "start"]);
    start.env("LARDER_REMOTE", remote).run().ends(0);
    let frame = fetch_frame(&here);
    let held: Vec<UnixStream> = (0..200).map(|_| connect(&here)).collect();
    for mut client in &held {
        // One that is refused is closed.
        let _ = client.write_all(&frame);
    }
    here.compile();
    here.wait_recorded(1);
    let refused = "too many clients hold a download";
    here.wait("the clients hold downloads", |here| here.daemon_log().contains(refused));
    drop(held);
}

/// A sandbox holds connections of downloads. Clients outside of it, and in other sandboxes, have places
/// of their own.
#[test]
fn a_sandbox_that_holds_downloads_leaves_places_for_others() {
    probe_skip!(can_mount(), "no mount namespaces here");
    probe_skip!(has("python3"), "python3 is not installed");
    let here = Here::new();
    let remote = format!("file://{}", here.place.path("far").display());
    let start = here.command(&[larder_text(), "daemon", "start"]);
    start.env("LARDER_REMOTE", remote).run().ends(0);
    let frame = fetch_frame(&here);
    here.place.put("hold.py", HOLD);
    let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
    let socket = here.inside("daemon.sock");
    let script = format!("exec python3 hold.py {} {hex}", socket.display());
    let holding: Vec<Child> = (0..2).map(|_| here.sandbox_command(&script).start()).collect();
    // 2 × 60 connections, of which each sandbox has 32 places.
    here.wait("the sandboxes hold all that they may", |here| here.status()["refused"].as_u64() >= Some(2 * 28));
    // The kind of frame for "nothing", and the code for "failed".
    const REFUSED: [u8; 2] = [10, 3];
    let mut own: Vec<UnixStream> = (0..30).map(|_| connect(&here)).collect();
    for client in &mut own {
        client.write_all(&frame).expect("cannot send");
        let mut reply = [0; 5];
        client.read_exact(&mut reply).expect("cannot receive");
        assert_ne!(reply[3..], REFUSED, "{}", here.daemon_log());
    }
    drop(own);
    fs::write(here.place.path("work/end"), "").expect("cannot write the file");
    holding.into_iter().for_each(|child| assert_eq!(Ran::of(child).code, Some(0)));
}

/// Opens 60 connections that ask for a download, and holds them until there is a file `end`.
const HOLD: &str = "
import os, socket, sys, time
held = []
for _ in range(60):
    held.append(socket.socket(socket.AF_UNIX))
    held[-1].connect(sys.argv[1])
    try: held[-1].sendall(bytes.fromhex(sys.argv[2]))
    except BrokenPipeError: pass
while not os.path.exists('end'): time.sleep(.02)
";

#[test]
fn another_user_is_refused() {
    probe_skip!(is_root(), "only the superuser can become another user");
    let here = Here::new();
    here.start();
    let socket = here.inside("daemon.sock");
    assert_eq!(socket.metadata().expect("cannot stat the file").mode() & 0o777, 0o600);
    let connects = |socket: PathBuf| {
        let thread = std::thread::spawn(move || {
            let other = rustix::process::Uid::from_raw(OTHER);
            rustix::thread::set_thread_res_uid(other, other, other).expect("cannot become another user");
            UnixStream::connect(socket)
        });
        thread.join().expect("the thread panicked")
    };
    assert!(connects(socket.clone()).is_err(), "the store's directory is closed to others");
    // Repeat with permissions that let the other user reach the socket.
    for path in socket.ancestors().skip(1).take_while(|path| path.starts_with(here.place.path(""))) {
        let mode = path.metadata().expect("cannot stat the file").mode() | 0o111;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("cannot set the mode");
    }
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).expect("cannot set the mode");
    let mut stream = connects(socket).expect("cannot connect");
    let _ = stream.write_all(&[2, 0, 2, 3]);
    here.wait("user is refused", |here| here.daemon_log().contains(&format!("refused: user {OTHER} connected")));
}

#[test]
fn a_listener_of_another_user_gets_nothing() {
    probe_skip!(is_root() && can_mount(), "only the superuser can become another user");
    let here = Here::new();
    here.start();
    let socket = here.inside("daemon.sock");
    here.larder(&["daemon", "stop"]).ends(0);
    let listener = UnixListener::bind(&socket).expect("cannot listen");
    let listener = std::thread::spawn(move || {
        let other = rustix::process::Uid::from_raw(OTHER);
        rustix::thread::set_thread_res_uid(other, other, other).expect("cannot become another user");
        // The kernel tells a client which user called this last.
        rustix::net::listen(&listener, 8).expect("cannot listen");
        listener
    });
    let listener = listener.join().expect("the thread panicked");
    here.compile();
    listener.set_nonblocking(true).expect("cannot set the mode");
    let mut sent = Vec::new();
    while let Ok((mut client, _)) = listener.accept() {
        client.read_to_end(&mut sent).expect("cannot receive");
    }
    assert_eq!(sent, b"", "{}", here.log());
}

#[test]
fn the_store_is_kept_within_its_limit() {
    probe_skip!(can_mount(), "no mount namespaces here");
    let here = Here::new();
    let start = here.command(&[larder_text(), "daemon", "start"]).env("LARDER_MAX_SIZE", "60kB");
    start.run().ends(0);
    for round in 0..6 {
        here.place.put("x.c", format!("int a{round};\n").repeat(40));
        here.compile();
        here.wait_recorded(round + 1);
    }
    here.wait("the store is evicted", |here| here.counted()["store_bytes"].as_u64() < Some(60_000));
}

#[test]
fn a_full_disk_is_survived() {
    probe_skip!(can_mount(), "no mount namespaces here");
    let here = Here::new();
    let until_in = "until_in() { n=0; until \"$LARDER\" $2 $3 --json | grep -Eq \"$1\" || [ $n = 600 ]; do \
                    sleep 0.1; n=$((n + 1)); done; }";
    let script = format!(
        "{until_in}; mount -t tmpfs -o mode=700,size=256k none \"$LARDER_DIR\" || exit 9; \"$LARDER\" daemon start > /dev/null || exit 8; \
         head -c 1000000 /dev/zero > \"$LARDER_DIR\"/filler 2> /dev/null; sleep 0.1; \
         unshare -m -n -p -f --mount-proc sh -c '{SANDBOX} exec \"$LARDER\" ./mycc -c x.c -o x.o'; \
         until_in '\"(recorded|refused)\": 1' daemon status; \"$LARDER\" daemon status > status; rm \"$LARDER_DIR\"/filler; \
         unshare -m -n -p -f --mount-proc sh -c '{SANDBOX} exec \"$LARDER\" ./mycc -c x.c -o x.o'; \
         until_in '\"miss\": 1' stats; cat \"$LARDER_DIR\"/*/daemon.log > daemon.log; \
         \"$LARDER\" stats --json > stats; \"$LARDER\" daemon stop"
    );
    let ran = here.command(&["unshare", "-m", "sh", "-c", &script]).run();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let text = |name: &str| String::from_utf8_lossy(&here.place.read(name)).into_owned();
    assert!(text("status").contains("larderd runs"), "{}", text("status"));
    assert!(text("stats").contains("\"miss\": 1"), "{} {}", text("stats"), here.log());
    here.right();
}
