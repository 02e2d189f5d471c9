//! Remotes that are silent, dead, cut off or wrong, and a `larderd` that is killed. Builds go on
//! and have the right result.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use larder_testkit::{S3_KEYS, Server, Way, larder_text};

use crate::far::{FIRST, Far, SECOND};

#[test]
fn stalled_at_any_byte() {
    let Some(far) = Far::redis() else { return };
    far.record();
    far.learn(SECOND);
    far.source(0.0, 1);
    for after in [0, 1, 40, 300, 2000, 4200] {
        far.larder(SECOND, &["clear"]).run().ends(0);
        far.proxy().set(Way::StalledAfter(after));
        let log = far.compile(SECOND);
        assert!(log.contains("miss: x.c"), "{after}: {log}");
    }
    far.proxy().set(Way::Late(Duration::ZERO));
    // A remote that was silent is asked again after a while.
    let log = far.compile_until_fetched(SECOND);
    assert!(log.contains("fetched from a remote"), "{log} {}", far.daemon_log(SECOND));
}

#[test]
fn dead_or_cut_off() {
    let Some(far) = Far::redis() else { return };
    far.record();
    far.proxy().set(Way::Cut);
    for which in 1..6 {
        far.source(0.0, which);
        assert!(far.compile(SECOND).contains("miss"));
    }
    let checked = far.larder(SECOND, &["remote", "check"]).run();
    assert!(checked.code == Some(1) && checked.stdout.contains("problem: "), "{checked:?}");
    far.proxy().set(Way::Late(Duration::ZERO));
    let checked = far.larder(SECOND, &["remote", "check", "--json"]).run().ends(0);
    assert!(
        checked.stdout.contains("\"problem\": null") && checked.stdout.contains("write_bytes_per_s"),
        "{checked:?}"
    );
}

#[test]
fn larderd_is_killed_while_it_fetches() {
    let Some(far) = Far::redis() else { return };
    far.learn(SECOND);
    far.source(2.0, 1);
    far.record();
    far.proxy().set(Way::Stalled);
    let larder = larder_text();
    far.place.remove(&["x.o"]);
    far.larder(SECOND, &["daemon", "start"]).run().ends(0);
    let mut run = far.command(SECOND, &[larder, "./gcc", "-c", "x.c", "-o", "x.o"]);
    run.command.process_group(0);
    let child = run.start();
    // The tool has begun, so larderd still fetches.
    far.until("the tool begins", || far.place.path("work/x.o").exists());
    far.place.run(&["kill", "-9", &far.pid(SECOND).to_string()]).run().ends(0);
    assert_eq!(larder_testkit::Ran::of(child).quiet(), "");
    assert!(far.place.read("x.o") == far.place.read("x.c").repeat(20));
    far.proxy().set(Way::Late(Duration::ZERO));
    let log = far.compile_until_fetched(SECOND);
    assert!(log.contains("fetched from a remote"), "another larderd must be started: {log}");
}

/// `larderd` may not yet have noted every record that it was told to upload.
#[test]
fn a_larderd_that_hangs_has_not_sent_all() {
    let far = Far::directory();
    far.larder(FIRST, &["daemon", "start"]).run().ends(0);
    let pid = far.pid(FIRST).to_string();
    far.place.run(&["kill", "-STOP", &pid]).run().ends(0);
    let flushed = far.larder(FIRST, &["remote", "flush", "--timeout", "1"]).run();
    far.place.run(&["kill", "-CONT", &pid]).run().ends(0);
    assert!(flushed.code == Some(1) && flushed.stderr.contains("larderd does not answer"), "{flushed:?}");
    far.larder(FIRST, &["remote", "flush"]).run().ends(0);
}

/// `larder remote flush` must not keep a stopped `larderd` alive. Otherwise that `larderd` would
/// stay without a socket for up to a minute, and no other could start.
#[test]
fn who_waits_until_all_is_sent_does_not_keep_larderd() {
    let Some(far) = Far::redis() else { return };
    far.learn(FIRST);
    far.proxy().set(Way::Cut);
    far.source(0.0, 4);
    far.compile(FIRST);
    let flush = far.larder(FIRST, &["remote", "flush", "--timeout", "60"]).start();
    std::thread::sleep(Duration::from_millis(500));
    far.larder(FIRST, &["daemon", "stop"]).run().ends(0);
    let flushed = larder_testkit::Ran::of(flush);
    assert!(flushed.code == Some(1) && flushed.stdout.contains(" 1 left"), "{flushed:?}");
}

/// Every file of the remote is changed, cut, emptied, or swapped with another one.
#[test]
fn a_remote_that_lies_gives_a_miss() {
    let far = Far::directory();
    far.record();
    far.source(0.0, 2);
    far.record();
    far.source(0.0, 1);
    let files = files(&far.place.path("far"));
    assert!(files.len() >= 3, "{files:?}");
    let before: Vec<Vec<u8>> = files.iter().map(|path| fs::read(path).expect("cannot read the file")).collect();
    for lie in ["flipped", "cut", "swapped", "emptied"] {
        for (at, (path, bytes)) in files.iter().zip(&before).enumerate() {
            let lied = match lie {
                "flipped" => bytes.iter().map(|byte| byte ^ 0x20).collect(),
                "cut" => bytes[..bytes.len() / 2].to_vec(),
                "swapped" => before[(at + 1) % before.len()].clone(),
                _ => Vec::new(),
            };
            fs::write(path, lied).expect("cannot write the file");
        }
        let log = far.compile(SECOND);
        assert!(log.contains("miss: x.c"), "{lie}: {log}");
        assert!(far.larder(SECOND, &["fsck"]).run().ends(0).stdout.contains("all sound"));
        far.larder(SECOND, &["daemon", "stop"]).run().ends(0);
        fs::remove_dir_all(far.place.path(SECOND)).expect("cannot remove the directory");
    }
    files.iter().zip(&before).for_each(|(path, bytes)| fs::write(path, bytes).expect("cannot write the file"));
    assert!(far.fetch(SECOND).contains("fetched from a remote"));
}

/// For each server, the bytes that it sends first, and the bytes that it then sends again and again.
const WITHOUT_END: [(&str, &[u8]); 4] = [
    ("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", &[0; 65536]),
    ("HTTP/1.1 200 OK\r\nContent-Length: 1000000000000000\r\n\r\n", &[0; 65536]),
    ("HTTP/1.1 200 OK\r\n", b"X-Y: zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz\r\n"),
    ("HTTP/1.1 200 OK\r\nX-Y: ", &[b'z'; 65536]),
];
/// The most memory of a larderd that reads such answers, in kB.
const MEMORY_MAX_KB: u64 = 64 << 10;

/// Answers every request by `answer`, until the client closes the connection.
fn serve_without_end((begin, more): (&'static str, &'static [u8])) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("cannot listen");
    let port = listener.local_addr().expect("it listens").port();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut request = [0; 4096];
                let _ = client.read(&mut request);
                let mut sent = client.write_all(begin.as_bytes());
                while sent.is_ok() {
                    sent = client.write_all(more);
                }
            });
        }
    });
    port
}

#[test]
fn a_server_that_sends_without_end_gives_a_miss() {
    for answer in WITHOUT_END {
        let far = Far::at_url(format!("http://127.0.0.1:{}/larder", serve_without_end(answer)));
        far.learn(FIRST);
        far.source(0.0, 1);
        let log = far.compile(FIRST);
        assert!(log.contains("miss: x.c"), "{}: {log}", answer.0);
        let checked = far.larder(FIRST, &["remote", "check"]).run();
        assert!(checked.code == Some(1) && checked.stdout.contains("problem: "), "{checked:?}");
        let status = fs::read_to_string(format!("/proc/{}/status", far.pid(FIRST))).expect("larderd runs");
        let peak =
            status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
        assert!(peak.is_some_and(|peak: u64| peak < MEMORY_MAX_KB), "{}: {peak:?} kB", answer.0);
    }
}

/// Answers every request by a status without a body: `other` to `PUT`, and `get` to the rest.
/// Returns the port, and all heads of requests so far.
fn serve_refusals(get: &'static str, other: &'static str) -> (u16, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("cannot listen");
    let port = listener.local_addr().expect("it listens").port();
    let heads = Arc::new(Mutex::new(String::new()));
    let all = Arc::clone(&heads);
    let answer = move |client: TcpStream| -> std::io::Result<()> {
        let (mut reader, mut head) = (BufReader::new(&client), String::new());
        while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head)? > 0 {}
        let head = head.to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        reader.read_exact(&mut vec![0; length.unwrap_or(0)])?;
        let status = if head.starts_with("put ") { other } else { get };
        all.lock().expect("no thread panics").push_str(&head);
        write!(&client, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    };
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || answer(client));
        }
    });
    (port, heads)
}

/// Waiting does not help against a wrong password, or a server that takes nothing: a flush does not
/// use up its time, and says that not all is shared.
#[test]
fn a_flush_ends_at_once_if_waiting_does_not_help() {
    let (none, denied) = ("404 Not Found", "401 Unauthorized");
    for (get, put, expect) in [
        (denied, denied, "denied: 401"),
        (none, "405 Method Not Allowed", "1 record not shared"),
        (none, "413 Content Too Large", "1 record not shared"),
    ] {
        let (port, heads) = serve_refusals(get, put);
        let far = Far::at_url(format!("http://127.0.0.1:{port}/larder"));
        far.source(0.0, 1);
        far.compile(FIRST);
        let began = Instant::now();
        let flushed = far.larder(FIRST, &["remote", "flush", "--timeout", "120"]).run();
        assert!(began.elapsed() < Duration::from_secs(60), "{put}: {flushed:?}");
        let said = format!("{}{}", flushed.stdout, flushed.stderr);
        assert!(flushed.code == Some(1) && said.contains(expect), "{put}: {flushed:?}");
        let heads = heads.lock().expect("no thread panics");
        assert!(heads.contains("put ") || put == denied, "{heads}");
        // A compressed answer could unpack to any size.
        assert!(heads.contains("get ") && !heads.contains("accept-encoding"), "{heads}");
    }
}

/// If a remote is full, uploads wait until there is room, and what it holds is still fetched.
#[test]
fn a_full_remote_is_read_and_written_later() {
    let Some(far) = Far::redis() else { return };
    // Each is fetched at most once, because on a busy machine the tool may be faster.
    let held = [1, 3, 4, 5, 6, 7, 8, 9];
    for which in held {
        far.source(0.0, which);
        far.record();
    }
    far.learn(SECOND);
    let memory_max = |bytes: u32| {
        let mut redis = TcpStream::connect(far.proxy().address()).expect("cannot connect");
        redis.write_all(format!("CONFIG SET maxmemory {bytes}\r\n").as_bytes()).expect("cannot send");
        assert_eq!(redis.read(&mut [0; 5]).expect("no answer"), 5, "+OK");
    };
    memory_max(1);
    far.source(0.0, 2);
    far.compile(SECOND);
    let flushed = far.larder(SECOND, &["remote", "flush", "--timeout", "2"]).run();
    assert!(flushed.code == Some(1) && flushed.stdout.contains(" 1 left"), "{flushed:?}");
    let checked = far.larder(SECOND, &["remote", "check"]).run().ends(1).stdout;
    assert!(checked.contains("full: ") && checked.contains("until it has free space"), "{checked}");
    let is_fetched = |which: &u32| {
        far.source(0.0, *which);
        let (log, _) = far.compile_by(SECOND, |run| run.env("LARDER_REMOTE_RW_MODE", "READ_ONLY"));
        log.contains("fetched from a remote")
    };
    assert!(held.iter().any(is_fetched), "{}", far.daemon_log(SECOND));
    memory_max(0);
    let flushed = far.larder(SECOND, &["remote", "flush"]).run().ends(0);
    assert!(flushed.stdout.contains("1 record sent, 0 left"), "{flushed:?}");
}

#[test]
fn check_says_what_is_wrong_and_what_to_do() {
    const WRONG: &[(&str, &str)] = &[("AWS_ACCESS_KEY_ID", "larder"), ("AWS_SECRET_ACCESS_KEY", "s3cret")];
    for (bucket, keys, said) in [
        ("none", S3_KEYS, ["NoSuchBucket", "ask the administrator of the service"]),
        ("team", WRONG, ["SignatureDoesNotMatch", "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"]),
    ] {
        let url = |port: u16| format!("s3://{bucket}/larder?endpoint=http://127.0.0.1:{port}");
        let Some(far) = Far::at("versitygw", Server::s3(), url, keys) else { return };
        let checked = far.larder(FIRST, &["remote", "check"]).run().ends(1).stdout;
        assert!(said.iter().all(|said| checked.contains(said)) && !checked.contains("s3cret"), "{checked}");
    }
    let far = Far::directory();
    let key = far.place.put("team.key", "07".repeat(32));
    let checked = far.larder(FIRST, &["remote", "check"]).env("LARDER_REMOTE_SIGN_WITH", &key).run().ends(0);
    assert!(checked.stderr.contains("every user of this machine can read it: chmod 600"), "{checked:?}");
}

#[test]
fn credentials_are_not_shown() {
    let mut far = Far::directory();
    far.url = "redis://user:s3cret@127.0.0.1:1/0,file:///proc/nothing".to_owned();
    far.compile(FIRST);
    let config = far.larder(FIRST, &["config"]).run().ends(0).stdout;
    assert!(config.contains("redis://***@127.0.0.1:1/0"), "{config}");
    let checked = far.larder(FIRST, &["remote", "check"]).run();
    assert_eq!(checked.code, Some(1));
    let flushed = far.larder(FIRST, &["remote", "flush", "--timeout", "1"]).run();
    for said in [config, checked.stdout, checked.stderr, flushed.stdout, flushed.stderr, far.daemon_log(FIRST)] {
        assert!(!said.contains("s3cret"), "{said}");
    }
}

pub(crate) fn files(dir: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<_> = entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect();
    found.retain(|path| !path.components().any(|part| part.as_os_str() == "locks"));
    found.sort();
    found
}
