//! Processes for images that cannot give up their rights, and the key that they do not have.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use larder_testkit::{
    Place, Ran, Run, STORE_VERSION, Tree, can_mount, files_below, has, is_root, larder, larder_text, older, probe_skip,
};

use super::{far_image, has_no_rights, image, processes};

/// The exit code of a fetcher that could not give up its rights.
const UNCONFINED: i32 = 77;
/// The message of a process that could not.
const SAID: &str = "cannot give up its rights";

/// Starts a fetcher as a broker does, but without a connection to a broker. It ends at the latest
/// when it needs that, which is after it has given up its rights.
fn by_hand(place: &Place, before: &[&str], options: &[&str]) -> Ran {
    let (larder, store) = (larder_text(), place.text("store"));
    let argv = [before, &[larder, "image", "fetch", "--store", &store], options].concat();
    place.run(&argv).run()
}

fn store() -> (Place, String) {
    let place = Place::new();
    place.put("deps/x", "x");
    image(&place, &["save", "--strict", "--key", "k", "deps"]).run().ends(0);
    (place, format!("lazy 0 {} k", "07".repeat(32)))
}

/// A process that lacks the rights to give up its rights ends before it reads anything.
#[test]
fn a_process_that_cannot_give_up_its_rights_ends() {
    probe_skip!(is_root() && has("setpriv"), "only root can start such a process, by setpriv");
    let (place, name) = store();
    let can = by_hand(&place, &[], &["--", &name]);
    assert!(can.code == Some(1) && !can.stderr.contains(SAID), "it can: {can:#?}");
    by_hand(&place, &[], &["--evict"]).ends(0);
    for right in ["-sys_admin", "-setuid", "-setgid"] {
        let without = ["setpriv", "--bounding-set", right];
        let fetching = by_hand(&place, &without, &["--", &name]).ends(UNCONFINED);
        let evicting = by_hand(&place, &without, &["--evict"]).ends(1);
        for ran in [fetching, evicting] {
            assert!(ran.stderr.contains(SAID) && ran.stdout.is_empty(), "{right}: {ran:#?}");
        }
    }
}

/// Before Linux 5.12 there are no ID-mapped mounts, so the process would stay user 0.
#[test]
fn a_process_that_would_stay_user_0_ends_unless_it_may() {
    probe_skip!(is_root(), "only root can start such a process");
    let (place, name) = store();
    let Some(older) = older(&place.path("tmp")) else { return };
    let as_on_5_10 = [older.to_str().expect("not UTF-8"), "5.10"];
    let fetching = by_hand(&place, &as_on_5_10, &["--", &name]).ends(UNCONFINED);
    let evicting = by_hand(&place, &as_on_5_10, &["--evict"]).ends(1);
    for ran in [fetching, evicting] {
        assert!(ran.stderr.contains(SAID) && ran.stderr.contains("another owner"), "{ran:#?}");
    }
    let fetching = by_hand(&place, &as_on_5_10, &["--user-0", "--", &name]);
    assert!(fetching.code == Some(1) && !fetching.stderr.contains(SAID), "{fetching:#?}");
    let evicting = by_hand(&place, &as_on_5_10, &["--user-0", "--evict"]).ends(0);
    for ran in [fetching, evicting] {
        assert!(ran.stderr.contains("as user 0"), "{ran:#?}");
    }
}

/// A broker for other users whose store is on a file system without ID-mapped mounts (ramfs).
#[test]
fn a_broker_for_others_mounts_nothing_by_processes_of_user_0() {
    probe_skip!(is_root() && can_mount(), "only root can mount without a broker");
    for (option, code) in [("", 1), ("--fetcher-user-0", 0)] {
        let (place, before) = far_image();
        let script = format!(
            "cd \"$TMPDIR\" && mkdir -p \"$LARDER_DIR\" && mount -t ramfs -o mode=700 none \"$LARDER_DIR\" || exit 99\n\
             '{larder}' image broker {option} --target / --socket \"$TMPDIR/b.sock\" & broker=$!\n\
             until [ -S b.sock ]; do kill -0 $broker || exit 98; sleep 0.05; done\n\
             ln -s \"$TMPDIR/b.sock\" \"$LARDER_DIR/{STORE_VERSION}/images/broker.sock\"; cd ../work\n\
             '{larder}' image mount --strict --key k --via lazy-fuse m; code=$?\n\
             [ $code -ne 0 ] || {{ cp -a m back; '{larder}' image unmount m; }}\n\
             kill $broker; wait $broker; exit $code",
            larder = larder().display()
        );
        let run = place.run(&["unshare", "-m", "sh", "-c", &script]);
        let ran = run.env("LARDER_REMOTE", format!("file://{}", place.text("far"))).run();
        probe_skip!(ran.code != Some(99), "no ramfs can be mounted here: {}", ran.stderr);
        let ran = ran.ends(code);
        match code {
            0 => assert_eq!(Tree::of(&place.path("work/back")), before, "{ran:#?}"),
            _ => assert!(ran.stderr.contains(SAID), "{ran:#?}"),
        }
    }
}

/// A secret key, and its public key: the first test of RFC 8032, section 7.1.
const SECRET: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
const PUBLIC: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

/// Returns the path and the content of every file below a directory.
fn files(top: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let read = |path: PathBuf| (path.clone(), fs::read(path).expect("cannot read the file"));
    files_below(top).into_iter().map(read).collect()
}

/// A fetcher stores what jobs read first with the image, and sends it to remotes. It does not have
/// the secret key, so if that is set, it sends nothing, and the signed record stays as it is.
#[test]
fn a_fetcher_has_no_key_and_replaces_nothing_that_is_signed() {
    probe_skip!(is_root(), "only root can mount without a broker");
    for signs in [false, true] {
        let place = Place::new();
        // A directory that the fetcher sees.
        fs::create_dir(place.path("home/.aws")).expect("cannot create the directory");
        let key = place.path("home/.aws/team.key");
        fs::write(&key, SECRET).expect("cannot write the file");
        let signed = |run: Run| match signs {
            true => run.env("LARDER_REMOTE_SIGN_WITH", &key).env("LARDER_REMOTE_TRUST", PUBLIC),
            false => run,
        };
        place.put("deps/x", "x".repeat(5000));
        signed(image(&place, &["save", "--strict", "--key", "k", "deps"])).run().ends(0);
        fs::remove_dir_all(place.path("store")).expect("cannot remove the store");
        let (far, records) = (place.path("far"), place.store().join("images/records"));
        let sent = files(&far);
        let mounted = signed(image(&place, &["mount", "--strict", "--key", "k", "--via", "lazy", "m"])).run();
        probe_skip!(mounted.code == Some(0), "nothing can be mounted lazily here: {}", mounted.stderr);
        let brought = files(&records);
        let tested = std::panic::catch_unwind(|| {
            let fetching = processes(&place, "fetch");
            assert_eq!(fetching.len(), 1, "{fetching:?}");
            let seen = fetching[0].join("root").join(key.strip_prefix("/").expect("is absolute"));
            let bytes = fs::read(&seen);
            assert_eq!(bytes.is_ok_and(|bytes| bytes == SECRET.as_bytes()), !signs, "the key is hidden if it is one");
            assert_eq!(place.read("m/x"), "x".repeat(5000).as_bytes());
        });
        signed(image(&place, &["unmount", "m"])).run();
        tested.expect("an assertion on the mount failed");
        let until = Instant::now() + Duration::from_secs(60);
        let is_done = || files(&records) != brought && processes(&place, "fetch").is_empty();
        while !is_done() {
            assert!(Instant::now() < until, "what was read is not stored");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(files(&far) == sent, signs, "it is sent unless records are signed");
        // The record on the remote is still believed.
        fs::remove_dir_all(place.path("store")).expect("cannot remove the store");
        let restored = signed(image(&place, &["restore", "--strict", "--key", "k", "back"])).run();
        restored.ends(0);
    }
}

/// The capabilities that the broker's unit for systemd leaves are enough to mount, and for fetchers
/// to give up their rights.
#[test]
fn the_rights_of_the_unit_are_enough() {
    probe_skip!(is_root() && has("setpriv"), "only root can start such a process, by setpriv");
    let unit = larder_testkit::workspace().join("crates/daemon/units/larder-broker.service");
    let unit = fs::read_to_string(unit).expect("cannot read the unit");
    let rights = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=CAP_")).expect("is limited");
    let rights = format!("-all,+{}", rights.replace(" CAP_", ",+").to_lowercase());
    let limited = ["setpriv", "--bounding-set", &rights, "--no-new-privs"];
    let larder = larder_text();
    for (via, word) in [("lazy", "fetch"), ("lazy-fuse", "serve")] {
        let (place, before) = far_image();
        let words = [larder, "image", "mount", "--strict", "--key", "k", "--via", via, "m"];
        let run = place.run(&[&limited[..], &words].concat());
        let mounted = run.env("LARDER_REMOTE", format!("file://{}", place.text("far"))).run();
        if mounted.stderr.contains("Linux") {
            eprintln!("skipped: {via}: {}", mounted.stderr);
            continue;
        }
        mounted.ends(0);
        let tested = std::panic::catch_unwind(|| {
            let found = processes(&place, word);
            assert_eq!(found.len(), 1, "{found:?}");
            has_no_rights(&place, &found[0]);
            assert_eq!(Tree::of(&place.path("work/m")), before);
        });
        image(&place, &["unmount", "m"]).run();
        tested.expect("an assertion on the mount failed");
    }
}
