//! The processes without rights that fetch, decode and serve images for a broker of root.

mod rights;
mod servers;

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use larder_testkit::{Place, Ran, Run, STORE_VERSION, Tree, is_root, probe_skip};

/// The number of the user whom these processes become.
const USER: &str = "65533";

fn image(place: &Place, words: &[&str]) -> Run {
    place.image(words).env("LARDER_REMOTE", format!("file://{}", place.text("far")))
}

/// A project whose image `k` only the remote has.
fn far_image() -> (Place, Tree) {
    let place = Place::new();
    for number in 0..48u8 {
        place.put(&format!("deps/large/{number}"), noise(number, 1 << 20));
    }
    place.put("deps/secret", "of the job");
    let before = Tree::of(&place.path("work/deps"));
    image(&place, &["save", "--strict", "--key", "k", "deps"]).run().ends(0);
    fs::remove_dir_all(place.path("store")).expect("cannot remove the store");
    fs::remove_dir_all(place.path("work/deps")).expect("cannot remove the directory");
    (place, before)
}

/// Bytes that differ and cannot be compressed.
fn noise(seed: u8, length: usize) -> Vec<u8> {
    let mut state = u64::from(seed) + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Returns the processes of this place's store with this word among their arguments, without those
/// that evict.
fn processes(place: &Place, word: &str) -> Vec<PathBuf> {
    let store = place.text("store");
    let all = fs::read_dir("/proc").expect("cannot list the directory").flatten().map(|entry| entry.path());
    let is_one = |process: &PathBuf| {
        let arguments = fs::read(process.join("cmdline")).unwrap_or_default();
        let has = |word: &str| arguments.split(|byte| *byte == 0).any(|part| part == word.as_bytes());
        has("image") && has(word) && has(&store) && !has("--evict")
    };
    all.filter(is_one).collect()
}

fn status(process: &Path, name: &str) -> String {
    let text = fs::read_to_string(process.join("status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim));
    line.unwrap_or_default().to_owned()
}

/// Checks that a process has neither rights nor a view of the machine.
fn has_no_rights(place: &Place, process: &Path) {
    let ids = [USER; 4].join("\t");
    assert_eq!(
        (status(process, "Uid"), status(process, "Gid"), status(process, "Groups")),
        (ids.clone(), ids, String::new())
    );
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(status(process, set), "0000000000000000", "{set}");
    }
    assert_eq!((status(process, "NoNewPrivs"), status(process, "Seccomp")), ("1".to_owned(), "2".to_owned()));
    let limits = fs::read_to_string(process.join("limits")).expect("cannot read the limits");
    let memory = limits.lines().find(|line| line.starts_with("Max data size")).expect("there is no such limit");
    assert!(memory.contains(&(7u64 << 30).to_string()), "{memory}");
    let seen = |path: &str| fs::symlink_metadata(process.join("root").join(path.trim_start_matches('/'))).is_ok();
    let store = place.text(&format!("store/{STORE_VERSION}"));
    assert!(seen(&format!("{store}/blobs")));
    for hidden in [
        "/etc/shadow",
        "/root",
        "/home",
        "/proc/1",
        "/sys/fs",
        &place.text("work"),
        &format!("{store}/images/mounts"),
        &format!("{store}/locks/broker"),
        &format!("{store}/manifests"),
    ] {
        assert!(!seen(hidden), "{hidden} is seen");
    }
    let own = |name: &str| fs::read_link(process.join("ns").join(name)).expect("cannot read the link");
    assert_ne!(own("mnt"), fs::read_link("/proc/self/ns/mnt").expect("cannot read the link"));
}

/// Returns the owners of all files below a directory.
fn owners(top: &Path) -> HashSet<u32> {
    let mut found = HashSet::new();
    for entry in fs::read_dir(top).expect("cannot list the directory").flatten() {
        let look = entry.metadata().expect("cannot stat");
        found.insert(look.uid());
        if look.is_dir() {
            found.extend(owners(&entry.path()));
        }
    }
    found
}

/// Runs `test` while the image is mounted, or says why it cannot be.
fn mounted(place: &Place, words: &[&str], test: impl FnOnce() + std::panic::UnwindSafe) {
    let mounted = image(place, &[&["mount", "--strict", "--key", "k", "m"], words].concat()).run();
    if mounted.code != Some(0) {
        eprintln!("skipped: {words:?}: {}", mounted.stderr);
        return;
    }
    let tested = std::panic::catch_unwind(test);
    image(place, &["unmount", "m"]).run();
    tested.expect("an assertion on the mount failed");
}

#[test]
fn what_fetches_and_serves_has_no_rights() {
    probe_skip!(is_root(), "only root can mount without a broker");
    for (via, word) in [("lazy", "fetch"), ("lazy-fuse", "serve")] {
        let (place, before) = far_image();
        mounted(&place, &["--via", via], || {
            let found = processes(&place, word);
            assert_eq!(found.len(), 1, "{found:?}");
            has_no_rights(&place, &found[0]);
            assert_eq!(Tree::of(&place.path("work/m")), before);
            // On the disk, nothing belongs to the other user.
            assert_eq!(owners(&place.path("store")), HashSet::from([0]));
        });
    }
}

/// Every method gives the right tree, and the packs come through processes without rights.
#[test]
fn every_method_gives_what_was_saved() {
    probe_skip!(is_root(), "only root can mount without a broker");
    for via in ["lazy", "mount", "lazy-fuse", "squashfs", "fuse"] {
        let (place, before) = far_image();
        mounted(&place, &["--via", via], || assert_eq!(Tree::of(&place.path("work/m")), before, "{via}"));
    }
}

#[test]
fn a_fetcher_that_is_killed_is_replaced() {
    probe_skip!(is_root(), "only root can mount without a broker");
    let (place, before) = far_image();
    mounted(&place, &["--via", "lazy"], || {
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let killed = std::thread::scope(|scope| {
            let killing = scope.spawn(|| {
                let mut killed = HashSet::new();
                // On a busy machine a fetcher may need longer to serve one request, so the pause
                // grows.
                let mut pause = Duration::from_millis(150);
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    for process in processes(&place, "fetch") {
                        let pid = process.file_name().expect("has a name").to_string_lossy().into_owned();
                        let _ = std::process::Command::new("kill")
                            .args(["-KILL", &pid])
                            .stderr(std::process::Stdio::null())
                            .status();
                        killed.insert(pid);
                    }
                    std::thread::sleep(pause);
                    pause = pause.mul_f64(1.1).min(Duration::from_secs(3));
                }
                killed
            });
            // A read fails if the fetcher is killed three times during one request. It never gives
            // other bytes.
            for round in 0..3 {
                for number in 0..48u8 {
                    let path = place.path(format!("work/m/large/{number}"));
                    let read = (0..100).find_map(|_| fs::read(&path).ok()).expect("cannot be read at all");
                    assert!(read == noise(number, 1 << 20), "round {round}: {number} has other bytes");
                }
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            killing.join().expect("ends")
        });
        assert!(!killed.is_empty());
        assert_eq!(Tree::of(&place.path("work/m")), before);
    });
}

/// An image that needs more memory than a fetcher may use fails alone.
#[test]
fn an_image_that_takes_too_much_memory_fails_alone() {
    probe_skip!(is_root(), "only root can mount without a broker");
    let place = Place::new();
    place.put("deps/secret", "of the job");
    place.put("deps/a/b", "x");
    let before = Tree::of(&place.path("work/deps"));
    image(&place, &["save", "--strict", "--key", "k", "deps"]).run().ends(0);
    // The targets of links are in the tree, which has 72 MB.
    fs::create_dir_all(place.path("work/many")).expect("cannot create the directory");
    let noise = noise(0, 18_000 * 2000);
    let digit = |half: u8| char::from(b"0123456789abcdef"[usize::from(half)]);
    for (number, bytes) in noise.chunks(2000).enumerate() {
        let text: String = bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect();
        let link = place.path(format!("work/many/{number}"));
        std::os::unix::fs::symlink(format!("{number}{text}"), link).expect("cannot create the link");
    }
    image(&place, &["save", "--strict", "--key", "many", "many"]).run().ends(0);
    let socket = place.path("tmp/other.sock");
    // This broker also serves the store, whose own socket is not used.
    let words = ["broker", "--fetcher-memory", "96", "--target", "/", "--socket"];
    let words = [&words[..], &[socket.to_str().expect("not UTF-8")]].concat();
    let mut broker = image(&place, &words).start();
    let own = place.store().join("images/broker.sock");
    let listens = (0..12_000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        std::os::unix::net::UnixStream::connect(&socket).is_ok()
    });
    assert!(listens, "the broker does not listen");
    std::os::unix::fs::symlink(&socket, &own).expect("cannot link the socket");
    let tested = std::panic::catch_unwind(|| {
        mounted(&place, &["--via", "lazy"], || {
            let large = image(&place, &["mount", "--strict", "--key", "many", "--via", "lazy", "n"]).run().ends(1);
            let why = &large.stderr;
            assert!(why.contains("memory") || why.contains("hostile"), "{large:#?}");
            assert_eq!(Tree::of(&place.path("work/m")), before, "the other mount goes on");
        });
    });
    let ended = broker.try_wait().expect("cannot query the process");
    let _ = broker.kill();
    let ran = Ran::of(broker);
    tested.expect("an assertion failed");
    assert!(ended.is_none(), "the broker ended: {ran:#?}");
}
