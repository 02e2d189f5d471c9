//! Runs `larder image` as people and CI jobs type it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use larder_testkit::{Place, Ran, Run, STORE_VERSION, Tree, files_below, larder, larder_text};
use serde_json::Value;

const KEY: &str = "deps-{{os}}-{{hash lock}}";

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:#?}"))
}

/// Creates a project with a lock file and a directory of installed files.
fn project() -> Place {
    let place = Place::new();
    place.put("lock", "one");
    for (name, bytes) in [("deps/a/index.js", "a"), ("deps/a/b/x.js", "x"), ("deps/empty", "")] {
        place.put(name, bytes);
    }
    fs::set_permissions(place.path("work/deps/a/index.js"), fs::Permissions::from_mode(0o755))
        .expect("cannot set the mode");
    std::os::unix::fs::symlink("a/index.js", place.path("work/deps/run")).expect("cannot create the link");
    place
}

#[test]
fn exact_fallback_and_miss() {
    let place = project();
    let before = Tree::of(&place.path("work/deps"));
    let miss = place.image(&["restore", "--key", KEY, "--json"]).run().ends(11);
    assert_eq!(json(&miss)["outcome"], "miss");
    let said = place.image(&["save", "--key", KEY, "deps"]).run().quiet();
    assert!(said.starts_with("saved deps-linux-") && said.contains("3 files"), "{said}");
    fs::remove_dir_all(place.path("work/deps")).expect("cannot remove the directory");
    let exact = place.image(&["restore", "--key", KEY, "--json"]).run().ends(0);
    assert_eq!((json(&exact)["outcome"].as_str(), json(&exact)["files"].as_u64()), (Some("exact"), Some(3)));
    assert_eq!(Tree::of(&place.path("work/deps")), before);
    place.put("lock", "two");
    let words = ["restore", "--key", KEY, "--fallback", "no-", "--fallback", "deps-{{os}}-", "other"];
    let fallback = place.image(&words).run().ends(10);
    assert!(fallback.stdout.starts_with("fallback: deps-linux-"), "{fallback:#?}");
    assert_eq!(Tree::of(&place.path("work/other")), before);
    place.image(&["restore", "--key", KEY, "--policy", "push"]).run().ends(11);
}

#[test]
fn what_is_missing_is_made_and_saved() {
    let place = project();
    fs::remove_dir_all(place.path("work/deps")).expect("cannot remove the directory");
    let words =
        ["restore", "--key", KEY, "--if-missing", "mkdir deps && echo made > deps/x && echo run >> log", "deps"];
    for _ in 0..3 {
        place.image(&words).run().ends(0);
        assert_eq!(fs::read(place.path("work/deps/x")).expect("cannot read the file"), b"made\n");
        fs::remove_dir_all(place.path("work/deps")).expect("cannot remove the directory");
    }
    assert_eq!(place.read("log"), b"run\n");
    let failing = ["restore", "--key", "other-1", "--if-missing", "exit 7", "deps"];
    place.image(&failing).run().ends(7);
    place.image(&["show", "other-1"]).run().ends(11);
    let pulled = ["restore", "--key", "other-1", "--policy", "pull", "--if-missing", "mkdir deps", "deps"];
    place.image(&pulled).run().ends(0);
    place.image(&["show", "other-1"]).run().ends(11);
    let read_only = place.image(&["save", "--key", "other-1", "deps"]).env("LARDER_READ_ONLY", "1").run().ends(0);
    assert!(read_only.stdout.contains("LARDER_READ_ONLY"), "{read_only:#?}");
    place.image(&["show", "other-1"]).run().ends(11);
}

#[test]
fn trouble_is_a_miss_unless_it_is_strict() {
    let place = project();
    place.image(&["save", "--key", KEY, "deps"]).run().quiet();
    let in_the_way = place.image(&["restore", "--key", KEY]).run().ends(11);
    assert!(in_the_way.stderr.contains("--replace"), "{in_the_way:#?}");
    assert!(
        in_the_way.stdout.starts_with("miss: deps-linux-") && in_the_way.stdout.ends_with(" could not be provided\n")
    );
    place.image(&["restore", "--key", KEY, "--strict"]).run().ends(1);
    place.image(&["restore", "--key", KEY, "--replace"]).run().ends(0);
    let gone = place.image(&["save", "--key", "k-1", "none"]).run().ends(0);
    assert!(gone.stderr.contains("none") && gone.stderr.matches("os error").count() == 1, "{gone:#?}");
    place.image(&["save", "--key", "k-1", "--strict", "none"]).run().ends(1);
    for (words, piece) in [
        (&["save", "--key", "k-{{hash nothing}}", "deps"][..], "no such file"),
        (&["save", "--key", "k-{{what}}", "deps"], "{{hash FILE...}}"),
        (&["save", "--key", "", "deps"], "empty"),
        (&["restore", "--key", "k-1", "--fallback", "{{env NONE}}"], "the fallback `{{env NONE}}`"),
        (&["save", "--key", "k-1", "--strict", "deps", "deps/a"], "deps/a lies in deps"),
        (&["save", "--key", "k-1", "--strict", "lock", "./lock"], "lock lies in"),
    ] {
        let wrong = place.image(words).run().ends(1);
        assert!(wrong.stderr.contains(piece) && wrong.stderr.lines().count() == 1, "{wrong:#?}");
    }
}

/// Without `--anywhere`, the paths in an image are restored below the working directory only, and
/// never into a `.git` directory.
#[test]
fn an_image_goes_below_the_working_directory_only() {
    let place = Place::new();
    let home = place.path("home");
    fs::create_dir_all(place.path("out/sub")).expect("cannot create the directory");
    fs::create_dir_all(home.join(".ssh")).expect("cannot create the directory");
    for path in [home.join(".ssh/authorized_keys"), place.path("out/x"), place.path("out/sub/x")] {
        fs::write(path, "evil").expect("cannot write the file");
    }
    place.put("repo/.git/config", "evil");
    place.put(".git/hooks/pre-commit", "evil");
    place.put("linked/x", "evil");
    place.put("fine/x", "fine");
    let at_home = |words: &[&str]| place.image(words).env("HOME", &home);
    let absolute = place.path("out/sub");
    let absolute = absolute.to_str().expect("not UTF-8");
    let ssh = home.join(".ssh");
    for (key, path) in [
        ("home", ssh.to_str().expect("not UTF-8")),
        ("absolute", absolute),
        ("up", "../out/x"),
        ("hooks", ".git/hooks"),
        ("repository", "repo"),
        ("linked", "linked/x"),
    ] {
        at_home(&["save", "--strict", "--key", key, "fine", path]).run().quiet();
    }
    let before = Tree::of(&place.path("out"));
    for name in ["fine", "linked", "repo", ".git"] {
        fs::remove_dir_all(place.path("work").join(name)).expect("cannot remove the directory");
    }
    std::os::unix::fs::symlink(place.path("out"), place.path("work/linked")).expect("cannot create the link");
    let hostile = ["home", "absolute", "up", "hooks", "repository", "linked"];
    for word in ["restore", "mount"] {
        for key in hostile {
            let refused = at_home(&[word, "--strict", "--replace", "--key", key]).run().ends(1);
            assert!(refused.stderr.contains("--anywhere"), "{key}: {refused:#?}");
            assert!(!place.path("work/fine").exists(), "{word} {key}: a part of the image was restored");
            assert_eq!(Tree::of(&place.path("out")), before, "{word} {key}");
        }
    }
    for key in hostile {
        at_home(&["run", "--key", key, "--", "sh", "-c", "! [ -e fine/x ]"]).run().ends(0);
    }
    // With a path on the command line, or with `--anywhere`, the image is restored there.
    fs::remove_dir_all(&ssh).expect("cannot remove the directory");
    at_home(&["restore", "--strict", "--key", "home", ssh.to_str().expect("not UTF-8")]).run().quiet();
    assert_eq!(fs::read_to_string(ssh.join("authorized_keys")).expect("cannot read the file"), "evil");
    fs::remove_dir_all(&ssh).expect("cannot remove the directory");
    at_home(&["restore", "--strict", "--anywhere", "--key", "home"]).run().quiet();
    assert!(ssh.join("authorized_keys").exists() && place.path("work/fine/x").exists());
    at_home(&["restore", "--strict", "--key", "repository", "repo"]).run().quiet();
    assert!(place.path("work/repo/.git/config").exists());
}

/// `--if-missing` must not replace an image that was found, if only an existing directory kept it
/// from being restored.
#[test]
fn what_was_in_the_way_is_not_saved() {
    let place = project();
    place.image(&["save", "--key", "k-1", "deps"]).run().quiet();
    let good = Tree::of(&place.path("work/deps"));
    fs::remove_dir_all(place.path("work/deps")).expect("cannot remove the directory");
    for (key, fallback) in [("k-1", "none-"), ("k-2", "k-")] {
        place.put("deps/stale", "stale");
        let words = ["restore", "--key", key, "--fallback", fallback, "--if-missing", "touch deps/new", "deps"];
        let ran = place.image(&words).run().ends(0);
        assert!(ran.stderr.contains("nothing is saved under k-") && ran.stderr.contains("--replace"), "{ran:#?}");
        assert!(place.path("work/deps/new").exists(), "the command ran");
        fs::remove_dir_all(place.path("work/deps")).expect("cannot remove the directory");
    }
    place.image(&["show", "k-2"]).run().ends(11);
    place.image(&["restore", "--strict", "--key", "k-1", "deps"]).run().quiet();
    assert_eq!(Tree::of(&place.path("work/deps")), good);
    // With `--replace` the image is restored.
    place.put("deps/stale", "stale");
    let words = ["restore", "--key", "k-1", "--replace", "--if-missing", "touch deps/new", "deps"];
    place.image(&words).run().ends(0);
    assert_eq!(Tree::of(&place.path("work/deps")), good);
}

/// If a killed larder had moved a directory aside, the next run puts it back or prints where it is.
#[test]
fn what_was_moved_aside_is_put_back() {
    let place = project();
    place.image(&["save", "--key", "k", "deps"]).run().quiet();
    let left = "work/.larder-0123456789abcdef";
    for there in [false, true] {
        fs::create_dir_all(place.path(left).join("old")).expect("cannot create the directory");
        fs::write(place.path(left).join("old/file"), "hand-made").expect("cannot write the file");
        fs::write(place.path(left).join("belongs-to"), "mine").expect("cannot write the file");
        fs::remove_dir_all(place.path("work/other")).unwrap_or_default();
        let ran = place.image(&["restore", "--key", "k", "other"]).run().ends(0);
        assert!(ran.stderr.contains(if there { "move them back" } else { "restored to its old state" }), "{ran:#?}");
        assert_eq!(place.path(left).join("old/file").exists(), there);
        assert_eq!(place.read("mine/file"), b"hand-made");
    }
}

#[test]
fn the_working_directory_is_filled() {
    let place = project();
    let before = Tree::of(&place.path("work/deps"));
    place.image(&["save", "--key", "k", "."]).cwd(place.path("work/deps")).run().quiet();
    fs::create_dir(place.path("work/to")).expect("cannot create the directory");
    let number = || fs::metadata(place.path("work/to")).expect("cannot stat the file").ino();
    let first = number();
    let words = ["restore", "--strict", "--key", "k", "--replace", "."];
    for words in [&words[..4], &words] {
        place.image(words).cwd(place.path("work/to")).run().quiet();
        assert_eq!((Tree::of(&place.path("work/to")), number()), (before.clone(), first));
        place.put("to/new", "goes");
    }
    place.image(&["restore", "--strict", "--key", "k", "other/."]).run().quiet();
    assert_eq!(Tree::of(&place.path("work/other")), before);
}

#[test]
fn images_are_listed_shown_and_dropped() {
    let place = project();
    assert!(place.image(&["list"]).run().quiet().contains("no images"));
    place.image(&["save", "--key", "a-1", "deps"]).run().quiet();
    place.image(&["save", "--key", "b-1", "deps", "lock"]).run().quiet();
    let listed = json(&place.image(&["list", "--json"]).run().ends(0));
    let keys: Vec<&str> =
        listed["images"].as_array().expect("not a list").iter().filter_map(|i| i["key"].as_str()).collect();
    assert_eq!(keys, ["b-1", "a-1"]);
    assert_eq!(json(&place.image(&["list", "a-", "--json"]).run().ends(0))["images"].as_array().map(Vec::len), Some(1));
    assert!(place.image(&["list", "c-"]).run().quiet().contains("starts with c-"));
    let shown = place.image(&["show", "b-1"]).run().quiet();
    assert!(shown.contains("all of it in the store") && shown.contains("lock"), "{shown}");
    assert!(place.image(&["drop", "a-1"]).run().quiet().contains("dropped a-1"));
    place.image(&["drop", "a-1"]).run().ends(11);
    place.image(&["restore", "--key", "a-1", "x"]).run().ends(11);
    let words = ["restore", "--key", "b-1", "elsewhere"];
    let unknown = place.image(&words).run().ends(11);
    assert!(unknown.stderr.contains("holds deps, lock"), "{unknown:#?}");
    let sound = place.word(&["fsck"]).run().quiet();
    assert!(sound.contains("all sound"), "{sound}");
}

/// Returns a run as on another machine: it shares only the remote.
fn elsewhere(place: &Place, words: &[&str]) -> Run {
    place
        .image(words)
        .env("LARDER_DIR", place.path("second"))
        .env("LARDER_REMOTE", format!("file://{}", place.text("far")))
}

fn here(place: &Place, words: &[&str]) -> Run {
    place.image(words).env("LARDER_REMOTE", format!("file://{}", place.text("far")))
}

#[test]
fn another_machine_has_it_through_a_remote() {
    let place = project();
    for number in 0..300 {
        place.put(&format!("deps/many/{number}"), format!("{number}").repeat(500));
    }
    let before = Tree::of(&place.path("work/deps"));
    let saved = json(&here(&place, &["save", "--key", "d-x-1", "--json", "deps"]).run().ends(0));
    assert!(saved["sent_bytes"].as_u64().is_some_and(|bytes| bytes > 1000), "{saved}");
    fs::remove_dir_all(place.path("work/deps")).expect("cannot remove the directory");
    assert_eq!(elsewhere(&place, &["show", "d-x-1"]).run().ends(0).stderr, "");
    let words = ["restore", "--key", "d-x-2", "--fallback", "d-x-", "--json"];
    let came = json(&elsewhere(&place, &words).run().ends(10));
    assert!(came["fetched_bytes"].as_u64().is_some_and(|bytes| bytes > 1000), "{came}");
    assert_eq!(Tree::of(&place.path("work/deps")), before);
    // Only the changed file is uploaded, even from a machine that never had the packs.
    place.put("deps/many/7", "other");
    let again = place.image(&["save", "--key", "d-x-1", "--json", "deps"]).env("LARDER_DIR", place.path("third"));
    let again = again.env("LARDER_REMOTE", format!("file://{}", place.text("far"))).run().ends(0);
    let new = json(&again)["new_bytes"].as_u64().expect("not a number");
    assert!(new < 200, "{again:#?}");
    fs::remove_dir_all(place.path("work/deps")).expect("cannot remove the directory");
    let words = ["restore", "--key", "d-x-1", "--json"];
    let fresh = place.image(&words).env("LARDER_DIR", place.path("fourth"));
    let fresh = fresh.env("LARDER_REMOTE", format!("file://{}", place.text("far"))).run().ends(0);
    assert_eq!(json(&fresh)["outcome"], "exact");
    assert_eq!(place.read("deps/many/7"), b"other");
    assert_eq!(place.read("deps/many/8"), "8".repeat(500).as_bytes());
}

/// A secret key and its public key, and the public key of another team: RFC 8032, section 7.1.
const SECRET: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
const PUBLIC: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
const ANOTHER: &str = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";

/// Saves and restores with a signed remote. Two things are refused: an old list that an attacker
/// without a key puts back, and an image that was fetched before its key was removed from
/// `remote_trust`.
#[test]
fn a_signed_image_is_neither_rolled_back_nor_kept_for_a_revoked_key() {
    let place = project();
    let key = place.path("team.key");
    fs::write(&key, SECRET).expect("cannot write the file");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("cannot set the mode");
    let save = |text: &str| {
        place.put("deps/a/index.js", text);
        here(&place, &["save", "--key", "d-1", "deps"]).env("LARDER_REMOTE_SIGN_WITH", &key).run().ends(0);
    };
    let restore = |trust: &str, words: &[&str]| {
        let _ = fs::remove_dir_all(place.path("work/deps"));
        let words = [&["restore", "--key", "d-1"], words].concat();
        elsewhere(&place, &words).env("LARDER_REMOTE_TRUST", trust).run()
    };
    let lists = place.path("far");
    let copy = |from: &str, to: &str| {
        let script = format!("for d in {lists}/v*/i; do rm -rf {to}; cp -a {from} {to}; done", lists = lists.display());
        assert!(Command::new("sh").arg("-c").arg(script).status().expect("cannot start the command").success());
    };
    save("v1 with a hole");
    copy("$d", "$d.old");
    save("v2");
    restore(PUBLIC, &[]).ends(0);
    assert_eq!(place.read("deps/a/index.js"), b"v2");
    copy("$d.old", "$d");
    // Removes the fetched image, but not the memory of which version was seen.
    let dropped = |place: &Place| {
        for entry in fs::read_dir(place.path("second")).expect("cannot list the directory").flatten() {
            let _ = fs::remove_dir_all(entry.path().join("images/records"));
        }
    };
    dropped(&place);
    let rolled_back = restore(PUBLIC, &[]).ends(11);
    assert!(rolled_back.stderr.contains("older than one that was seen here"), "{rolled_back:?}");
    // After `drop`, the older version is accepted.
    elsewhere(&place, &["drop", "d-1"]).run();
    restore(PUBLIC, &[]).ends(0);
    assert_eq!(place.read("deps/a/index.js"), b"v1 with a hole");
    // The signature is not valid in another namespace.
    let _ = fs::remove_dir_all(place.path("work/deps"));
    dropped(&place);
    let other = elsewhere(&place, &["restore", "--key", "d-1"]).env("LARDER_REMOTE_TRUST", PUBLIC);
    other.env("LARDER_REMOTE_NAMESPACE", "b").run().ends(11);
    restore(PUBLIC, &[]).ends(0);
    // The image is in the store now, and then its key is revoked.
    let revoked = restore(ANOTHER, &[]).ends(11);
    assert!(revoked.stderr.contains("none of the keys in remote_trust signed it"), "{revoked:?}");
}

#[test]
fn a_remote_that_lies_restores_nothing() {
    let place = project();
    here(&place, &["save", "--key", "d-1", "deps"]).run().ends(0);
    fs::remove_dir_all(place.path("work/deps")).expect("cannot remove the directory");
    let blobs = Command::new("find")
        .arg(place.path("far"))
        .args(["-path", "*/b/*", "-type", "f"])
        .output()
        .expect("cannot start the command");
    for blob in String::from_utf8(blobs.stdout).expect("not UTF-8").lines() {
        let mut bytes = fs::read(blob).expect("cannot read the file");
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(blob, bytes).expect("cannot write the file");
    }
    let ran = elsewhere(&place, &["restore", "--key", "d-1"]).run().ends(11);
    assert!(ran.stderr.contains("continuing without it"), "{ran:#?}");
    assert!(!place.path("work/deps").exists());
}

/// Returns for some paths: mode, number of hard links, mtime in seconds (squashfs stores no
/// fractions), and owners.
fn looks(place: &Place, top: &str) -> Vec<(u32, u64, i64, u32, u32)> {
    use std::os::unix::fs::MetadataExt;
    let look =
        |name: &str| fs::symlink_metadata(place.path(format!("work/{top}/{name}"))).expect("cannot stat the file");
    let names = ["", "a", "a/index.js", "many/1", "again", "run", "empty"];
    // The link count of a directory differs between file systems.
    let links = |look: &fs::Metadata| if look.is_dir() { 0 } else { look.nlink() };
    let all = names.iter().map(|name| look(name));
    all.map(|look| (look.mode(), links(&look), look.mtime(), look.uid(), look.gid())).collect()
}

#[test]
fn an_image_is_mounted_and_written_to() {
    larder_testkit::probe_skip!(larder_testkit::is_root(), "only root can mount without a broker");
    for via in ["lazy", "mount", "lazy-fuse", "squashfs", "fuse"] {
        let place = project();
        for number in 0..200 {
            place.put(&format!("deps/many/{number}"), format!("{number}").repeat(900));
        }
        fs::hard_link(place.path("work/deps/many/1"), place.path("work/deps/again"))
            .expect("cannot create the hard link");
        fs::set_permissions(place.path("work/deps"), fs::Permissions::from_mode(0o751)).expect("cannot set the mode");
        let before = Tree::of(&place.path("work/deps"));
        let looks = looks(&place, "deps");
        place.image(&["save", "--key", KEY, "deps"]).run().quiet();
        let words = ["mount", "--key", KEY, "--via", via, "--strict", "--json", "one"];
        let mounted = place.image(&words).run();
        if mounted.code == Some(1) {
            eprintln!("skipped: {via}: {}", mounted.stderr);
            continue;
        }
        assert_eq!(json(&mounted.ends(0))["via"], via);
        place.image(&["mount", "--key", KEY, "--via", via, "--strict", "two"]).run().ends(0);
        let there = std::panic::catch_unwind(|| {
            assert_eq!(place.mounts(), 2);
            assert_eq!(Tree::of(&place.path("work/one")), before);
            assert_eq!(self::looks(&place, "one"), looks);
            fs::write(place.path("work/one/many/7"), "ours").expect("cannot write the file");
            fs::remove_file(place.path("work/one/empty")).expect("cannot remove the file");
            assert_eq!(Tree::of(&place.path("work/two")), before, "each mount has its own changes");
        });
        let unmounted = place.image(&["unmount", "one", "two"]).run();
        there.expect("the mounted tree differs from the saved one");
        unmounted.ends(0);
        assert_eq!(place.mounts(), 0);
        assert!(!place.path("work/one").exists());
    }
}

#[test]
fn a_mount_ends_with_the_process_that_it_is_for() {
    larder_testkit::probe_skip!(larder_testkit::is_root(), "only root can mount without a broker");
    let place = project();
    place.image(&["save", "--key", KEY, "deps"]).run().quiet();
    let mut job = Command::new("sleep").arg("100").spawn().expect("cannot start the command");
    let pid = job.id().to_string();
    let mounted = place.image(&["mount", "--key", KEY, "--for", &pid, "--via", "mount", "--strict", "one"]).run();
    let there = place.mounts();
    job.kill().and_then(|()| job.wait()).expect("cannot end the command");
    larder_testkit::probe_skip!(mounted.code == Some(0), "nothing can be mounted here: {}", mounted.stderr);
    assert_eq!(there, 1);
    let ended = (0..1200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        place.mounts() == 0
    });
    assert!(ended, "the image is still mounted after its process ended");
    let nobody = place.image(&["mount", "--key", KEY, "--for", &pid, "--strict", "two"]).run();
    assert!(nobody.code == Some(0) && nobody.stderr.contains("does not exist"), "unpacked: {nobody:#?}");
}

/// A job that changes, removes and moves files in its own mount of an image.
const A_JOB: &str = "cat one/a/index.js && echo new > one/new && rm one/run && mv one/a one/c && rm -r one/c/b && \
                     echo changed > one/c/index.js && ls one && exit 3";
const SEEN_BY_IT: &str = "ac\nempty\nmany\nnew\n";

/// Returns the number of entries in a directory.
fn count(place: &Place, directory: &str) -> usize {
    fs::read_dir(place.path(directory)).expect("cannot list the directory").count()
}

fn saved_for_jobs() -> (Place, Tree) {
    let place = project();
    for number in 0..200 {
        place.put(&format!("deps/many/{number}"), format!("{number}").repeat(900));
    }
    let before = Tree::of(&place.path("work/deps"));
    place.image(&["save", "--key", KEY, "deps"]).run().quiet();
    fs::remove_dir_all(place.path("work/deps")).expect("cannot remove the directory");
    (place, before)
}

#[test]
fn a_command_has_an_image_for_itself() {
    larder_testkit::probe_skip!(larder_testkit::is_root(), "only root can mount without a broker");
    for via in ["lazy", "mount", "lazy-fuse", "squashfs", "fuse"] {
        let (place, before) = saved_for_jobs();
        let words = ["run", "--key", KEY, "--via", via, "--strict", "one", "--", "sh", "-c", A_JOB];
        let ran = place.image(&words).run();
        if ran.code == Some(1) {
            eprintln!("skipped: {via}: {}", ran.stderr);
            continue;
        }
        assert_eq!(ran.ends(3).stdout, SEEN_BY_IT, "{via}");
        assert_eq!((count(&place, "work/one"), place.mounts()), (0, 0), "{via}: nothing may be left");
        let copy = ["run", "--key", KEY, "--via", via, "--strict", "one", "--", "cp", "-a", "one", "copy"];
        place.image(&copy).run().ends(0);
        assert_eq!(Tree::of(&place.path("work/copy")), before, "{via}: the image must be unchanged");
    }
}

#[test]
fn a_command_runs_whatever_becomes_of_its_image() {
    let (place, before) = saved_for_jobs();
    let ran = place.image(&["run", "--key", "none", "one", "--", "sh", "-c", "echo ran; exit 4"]).run().ends(4);
    assert!(ran.stdout == "ran\n" && ran.stderr.contains("miss: nothing under none"), "{ran:#?}");
    let made = ["run", "--key", "k-2", "--if-missing", "mkdir made && echo x > made/x", "made", "--", "cat", "made/x"];
    assert_eq!(place.image(&made).run().ends(0).stdout, "x\n");
    place.image(&["show", "k-2"]).run().ends(0);
    let pulled = ["run", "--policy", "pull", "--key", "k-3", "--if-missing", "true", "made", "--", "cat", "made/x"];
    assert_eq!(place.image(&pulled).run().ends(0).stdout, "x\n");
    place.image(&["show", "k-3"]).run().ends(11);
    place.image(&["run", "--key", KEY, "--", "no-such-command"]).run().ends(127);
    place.image(&["run", "--key", KEY, "--via", "unpack", "there", "--", "true"]).run().ends(0);
    assert_eq!(Tree::of(&place.path("work/there")), before);
    // A directory from an earlier run is in the way.
    place.put("there/a/index.js", "old");
    let again = ["run", "--key", KEY, "--via", "unpack", "there", "--", "cat", "there/a/index.js"];
    let kept = place.image(&again).run().ends(0);
    assert!(kept.stdout == "old" && kept.stderr.contains("--replace"), "{kept:#?}");
    let replaced = place.image(&[&["run", "--replace"][..], &again[1..]].concat()).run().ends(0);
    assert_eq!((replaced.stdout.as_str(), Tree::of(&place.path("work/there"))), ("a", before));
    let killed = place.image(&["run", "--key", KEY, "--", "sh", "-c", "kill -TERM $$"]).run();
    assert_eq!((killed.code, killed.signal), (None, Some(15)), "{killed:#?}");
    let piped = ["run", "--key", KEY, "--", "sh", "-c", "yes | head -n 1"];
    assert_eq!(place.image(&piped).run().ends(0).stderr.lines().count(), 1, "a broken pipe must not be reported");
    place.image(&["run", "--key", KEY]).run().ends(2);
}

/// The user has no broker, so larder uses a new mount namespace with its own FUSE server, or
/// squashfuse.
#[test]
fn a_command_of_an_ordinary_user_has_an_image_for_itself() {
    larder_testkit::probe_skip!(larder_testkit::is_root(), "only root can become another user");
    let (place, before) = saved_for_jobs();
    // On some machines every user may open /dev/fuse, and on others none. This one is open to all.
    let prepared = "mknod fuse c 10 229 && chmod 666 fuse && mount --bind fuse /dev/fuse && chown -R 1000:1000 . ../store && \
                    exec setpriv --reuid 1000 --regid 1000 --clear-groups \"$@\"";
    let binary = larder();
    let user = |words: &[&str]| {
        let first = ["unshare", "--mount", "sh", "-c", prepared, "sh", binary.to_str().expect("not UTF-8"), "image"];
        let argv: Vec<&str> = first.into_iter().chain(words.iter().copied()).collect();
        let ran = place.run(&argv).run();
        fs::remove_file(place.path("work/fuse")).ok();
        ran
    };
    for via in ["lazy-fuse", "fuse"] {
        let copy = ["run", "--key", KEY, "--via", via, "--strict", "one", "--", "cp", "-a", "one", "copy"];
        let copied = user(&copy);
        if via == "fuse" && !larder_testkit::has("squashfuse") {
            eprintln!("skipped: {via}: {}", copied.stderr);
            continue;
        }
        larder_testkit::probe_skip!(copied.code == Some(0), "no mounts for ordinary users here: {}", copied.stderr);
        assert_eq!(Tree::of(&place.path("work/copy")), before, "{via}");
        fs::remove_dir_all(place.path("work/copy")).expect("cannot remove the directory");
    }
    let job = format!("test $(id -u) = 1000 && test -O one/a/index.js && {A_JOB}");
    let ran = user(&["run", "--key", KEY, "--strict", "one", "--", "sh", "-c", &job]).ends(3);
    assert_eq!((ran.stdout.as_str(), ran.stderr.contains("by lazy-fuse")), (SEEN_BY_IT, true), "{ran:#?}");
    assert_eq!(
        (count(&place, "work/one"), count(&place, &format!("store/{STORE_VERSION}/images/mounts"))),
        (0, 0),
        "nothing may be left"
    );
}

#[test]
fn a_mount_brings_its_bytes_from_a_remote() {
    larder_testkit::probe_skip!(larder_testkit::is_root(), "only root can mount without a broker");
    let place = project();
    for number in 0..200 {
        place.put(&format!("deps/many/{number}"), format!("{number}").repeat(900));
    }
    let before = Tree::of(&place.path("work/deps"));
    here(&place, &["save", "--key", "d-1", "deps"]).run().ends(0);
    for via in ["lazy", "lazy-fuse"] {
        let of = |words: &[&str]| elsewhere(&place, words).env("LARDER_DIR", place.path(via)).run();
        let mounted = of(&["mount", "--key", "d-1", "--via", via, "--strict", "there"]);
        if mounted.code == Some(1) {
            eprintln!("skipped: {via}: {}", mounted.stderr);
            continue;
        }
        let there = std::panic::catch_unwind(|| assert_eq!(Tree::of(&place.path("work/there")), before, "{via}"));
        of(&["unmount", "there"]).ends(0);
        there.expect("the mounted tree differs from the saved one");
        let copy = ["run", "--key", "d-1", "--via", via, "--strict", "there", "--", "cp", "-a", "there", "copy"];
        of(&copy).ends(0);
        assert_eq!(Tree::of(&place.path("work/copy")), before, "{via}");
        fs::remove_dir_all(place.path("work/copy")).expect("cannot remove the directory");
    }
}

/// Removes every other pack of a remote directory, as a remote does that deletes unused objects.
fn forget_packs(place: &Place) {
    let mut packs = Vec::new();
    for entry in files_below(&place.path("far")) {
        if fs::metadata(&entry).expect("cannot stat the file").len() > 100_000 {
            packs.push(entry);
        }
    }
    assert!(packs.len() > 3, "{packs:?}");
    packs.into_iter().step_by(2).for_each(|pack| fs::remove_file(pack).expect("cannot remove the file"));
}

#[test]
fn what_a_remote_has_no_more_is_a_miss_and_saved_again() {
    let place = Place::new();
    for number in 0..40 {
        place.put(&format!("deps/{number}"), noise(number, 100_000));
    }
    let before = Tree::of(&place.path("work/deps"));
    here(&place, &["save", "--key", "k-1", "deps"]).run().ends(0);
    let make = "cp -a deps made";
    for (number, word) in ["mount", "run"].into_iter().enumerate() {
        forget_packs(&place);
        let machine = |words: &[&str]| here(&place, words).env("LARDER_DIR", place.path(format!("machine-{number}")));
        let command: &[&str] = if word == "run" { &["--", "true"] } else { &[] };
        let miss = machine(&[&[word, "--key", "k-1", "made"], command].concat()).run();
        assert!(miss.stderr.contains("on no remote any more"), "{miss:#?}");
        machine(&[&[word, "--key", "k-1", "--if-missing", make, "made"], command].concat()).run().ends(0);
        assert_eq!(Tree::of(&place.path("work/made")), before, "the command ran");
        fs::remove_dir_all(place.path("work/made")).expect("cannot remove the directory");
        // The next machine finds the whole image on the remote.
        let next = here(&place, &["restore", "--key", "k-1", "made"]);
        next.env("LARDER_DIR", place.path(format!("next-{number}"))).run().ends(0);
        assert_eq!(Tree::of(&place.path("work/made")), before);
        fs::remove_dir_all(place.path("work/made")).expect("cannot remove the directory");
    }
}

/// Returns the sizes of a store's blobs, in the order in which they were written.
fn blobs_in_order(store: &std::path::Path) -> Vec<u64> {
    let words = ["-path", "*/blobs/*", "-type", "f", "-printf", "%T@ %s\\n"];
    let found = Command::new("find").arg(store).args(words).output().expect("cannot start the command");
    let mut all: Vec<(f64, u64)> = String::from_utf8(found.stdout)
        .expect("not UTF-8")
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(at, size)| (at.parse().expect("not a number"), size.parse().expect("not a number")))
        .collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all.into_iter().map(|(_, size)| size).collect()
}

/// Returns bytes that cannot be compressed.
fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed << 1 | 1;
    let next = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    });
    next.take(count).collect()
}

#[test]
fn what_a_job_touched_comes_first_for_the_next() {
    larder_testkit::probe_skip!(larder_testkit::is_root(), "only root can mount without a broker");
    let place = Place::new();
    const PACKS: u64 = 40;
    for number in 0..PACKS {
        place.put(&format!("deps/{number:02}"), noise(number + 1, 1 << 20));
    }
    // This file is recognised by the size of its pack, which lies between those of the other packs
    // and of the small objects.
    place.put("deps/needed", [noise(99, 300_000), vec![0; 700_000]].concat());
    let is_needed = |size: &u64| (200_000..500_000).contains(size);
    here(&place, &["save", "--key", "d-1", "deps"]).run().ends(0);
    let of = |store: &str, words: &[&str]| elsewhere(&place, words).env("LARDER_DIR", place.path(store)).run();
    let is_traced = |store: &str| json(&of(store, &["show", "--json", "d-1"]).ends(0))["traced"] == true;
    assert!(!is_traced("third"));
    let mounted = of("second", &["mount", "--key", "d-1", "--via", "lazy", "--strict", "there"]);
    larder_testkit::probe_skip!(mounted.code == Some(0), "nothing can be mounted lazily here: {}", mounted.stderr);
    let read = fs::read(place.path("work/there/needed"));
    of("second", &["unmount", "there"]).ends(0);
    assert_eq!(read.expect("cannot read the file").len(), 1_000_000);
    // The process that mounted the image uploads the list of what was read, after the unmount.
    for _ in 0..1200 {
        if is_traced("third") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(is_traced("third"), "the list of what was read was not uploaded");
    of("third", &["mount", "--key", "d-1", "--via", "lazy", "--strict", "again"]).ends(0);
    let mut order = Vec::new();
    for _ in 0..1200 {
        order = blobs_in_order(&place.path("third"));
        if order.iter().filter(|size| **size > 1_000_000).count() as u64 == PACKS {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    of("third", &["unmount", "again"]).ends(0);
    let packs: Vec<u64> = order.into_iter().filter(|size| *size > 200_000).collect();
    let at = packs.iter().position(is_needed).expect("the needed pack was not fetched");
    assert_eq!(packs.len() as u64, PACKS + 1);
    assert!(
        (at as u64) < PACKS / 2,
        "the needed pack was fetched as number {at} of {}; it must come early",
        packs.len()
    );
    // An image that is saved later inherits the list.
    fs::remove_dir_all(place.path("work/there")).ok();
    place.put("deps/00", "changed");
    of("third", &["save", "--key", "d-2", "deps"]).ends(0);
    let shown = json(&of("third", &["show", "--json", "d-2"]).ends(0));
    assert_eq!(shown["traced"], true, "{shown}");
}

#[test]
fn archives_go_in_and_out() {
    let place = project();
    let before = Tree::of(&place.path("work/deps"));
    place.image(&["save", "--key", "a-1", "deps"]).run().quiet();
    for file in ["x.tar.zst", "x.tar.lz4", "x.zip"] {
        let out = json(&place.image(&["export", "--key", "a-1", "--json", file]).run().ends(0));
        assert_eq!((out["outcome"].as_str(), out["archive_bytes"].as_u64() > Some(100)), (Some("exact"), true));
        let said = place.image(&["import", "--key", file, file]).run().quiet();
        assert!(said.contains("3 files"), "{said}");
        place.image(&["import", "--key", "named", "--as", "other/deps", file]).run().quiet();
        fs::remove_dir_all(place.path("work/deps")).expect("cannot remove the directory");
        place.image(&["restore", "--key", file]).run().ends(0);
        assert_eq!(Tree::of(&place.path("work/deps")), before, "{file}");
    }
    place.image(&["restore", "--key", "named"]).run().ends(0);
    assert_eq!(Tree::of(&place.path("work/other/deps/deps")), before);
    place.image(&["export", "--key", "none", "y.tar"]).run().ends(11);
    place.image(&["export", "--key", "none", "--fallback", "a-", "y.tar"]).run().ends(10);
    let odd = place.image(&["export", "--key", "a-1", "y.rar"]).run().ends(1);
    assert!(odd.stderr.contains(".tar.zst") && odd.stderr.lines().count() == 1, "{odd:#?}");
    place.put("cut.zip", "PK");
    let cut = place.image(&["import", "--key", "cut", "cut.zip"]).run().ends(1);
    assert!(cut.stderr.contains("cut.zip") && cut.stderr.lines().count() == 1, "{cut:#?}");
    place.image(&["show", "cut"]).run().ends(11);
}

#[test]
fn what_was_unpacked_instead_of_mounted_says_why() {
    larder_testkit::probe_skip!(larder_testkit::is_root(), "only root can give up its rights");
    larder_testkit::probe_skip!(larder_testkit::has("setpriv"), "setpriv is not installed");
    let place = project();
    let before = Tree::of(&place.path("work/deps"));
    place.image(&["save", "--key", "a-1", "deps"]).run().quiet();
    let program = larder_text();
    // A superuser without CAP_SYS_ADMIN cannot mount.
    let words = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", program, "image", "mount", "--json"];
    let mounted = place.run(&[&words[..], &["--key", "a-1", "there"]].concat()).run().ends(0);
    let said = json(&mounted);
    assert_eq!((said["via"].as_str(), said["outcome"].as_str()), (Some("unpack"), Some("exact")), "{mounted:#?}");
    assert!(said["passed_over"].as_str().is_some_and(|why| why.contains("cannot be mounted")), "{said}");
    assert!(mounted.stderr.contains("could not be mounted"), "{mounted:#?}");
    assert_eq!(Tree::of(&place.path("work/there")), before);
}

/// Runs in its own mount namespace, so that the broker's socket in /run belongs to this test.
#[test]
fn a_socket_at_which_nobody_listens_is_no_broker() {
    larder_testkit::probe_skip!(larder_testkit::is_root(), "only root can mount without a broker");
    let (place, _) = saved_for_jobs();
    let script = "mount -t tmpfs larder-test /run && mkdir /run/larder || exit 77; \
                  socket=/run/larder/broker.sock; n=0; \
                  LARDER_DIR=\"$PWD/other\" \"$0\" image broker --socket $socket & \
                  until test -S $socket || test $n = 600; do sleep 0.1; n=$((n + 1)); done; kill -9 $!; wait; \
                  test -S $socket && \"$0\" image list --mounted && \"$0\" image mount --key \"$1\" one && \
                  \"$0\" image unmount one";
    let job = ["unshare", "--mount", "sh", "-c", script, larder_text(), KEY];
    let ran = place.run(&job).run();
    larder_testkit::probe_skip!(ran.code != Some(77), "no mount namespaces here: {}", ran.stderr);
    let ran = ran.ends(0);
    assert!(ran.stdout.starts_with("no image is mounted") && !ran.stderr.contains("Connection refused"), "{ran:#?}");
}

#[test]
fn what_is_not_mounted_needs_not_be_unmounted() {
    let place = project();
    let unpacked = place.image(&["unmount", "--strict", "deps"]).run().ends(0);
    assert!(unpacked.stdout.contains("deps: no image is mounted there"), "{unpacked:#?}");
    assert!(place.path("work/deps/run").exists());
    let none = place.image(&["unmount", "none", "deps"]).run().ends(0);
    assert!(none.stderr.contains("none: not unmounted") && none.stdout.contains("deps"), "{none:#?}");
    place.image(&["unmount", "--strict", "none"]).run().ends(1);
}

/// Returns the names in `work`, which include directories that were moved aside.
fn names(place: &Place) -> Vec<String> {
    let names = fs::read_dir(place.path("work")).expect("cannot list the directory");
    let mut names: Vec<_> =
        names.map(|name| name.expect("cannot list the directory").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn what_cannot_be_mounted_replaces_nothing() {
    larder_testkit::probe_skip!(larder_testkit::is_root(), "only root can give up its rights");
    larder_testkit::probe_skip!(larder_testkit::has("setpriv"), "setpriv is not installed");
    let place = project();
    place.image(&["save", "--key", "a-1", "deps"]).run().quiet();
    place.put("there/old", "old");
    let before = names(&place);
    let program = larder_text();
    let words = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", program, "image", "mount"];
    for path in ["there", "new"] {
        let more = ["--key", "a-1", "--strict", "--via", "mount", "--replace", path];
        place.run(&[&words[..], &more].concat()).run().ends(1);
        assert_eq!((place.read("there/old"), names(&place)), (b"old".to_vec(), before.clone()), "{path}");
    }
}

/// Returns the working directory of this place's broker.
fn broker_works_in(place: &Place) -> std::path::PathBuf {
    let store = format!("LARDER_DIR={}", place.text("store"));
    let processes = fs::read_dir("/proc").expect("cannot list the directory").flatten().map(|entry| entry.path());
    let is_one = |process: &std::path::PathBuf| {
        let has = |name: &str, word: &[u8]| {
            let bytes = fs::read(process.join(name)).unwrap_or_default();
            bytes.split(|&byte| byte == 0).any(|part| part == word)
        };
        has("cmdline", b"broker") && has("environ", store.as_bytes())
    };
    let process = processes.into_iter().find(is_one).expect("no broker runs");
    fs::read_link(process.join("cwd")).expect("cannot read the link")
}

#[test]
fn a_mount_replaces_what_is_there() {
    larder_testkit::probe_skip!(larder_testkit::is_root(), "only root can mount without a broker");
    let place = project();
    let before = Tree::of(&place.path("work/deps"));
    place.image(&["save", "--key", "a-1", "deps"]).run().quiet();
    place.put("there/old", "old");
    let there = names(&place);
    let words = ["mount", "--key", "a-1", "--via", "mount", "--strict", "--json", "--replace", "there"];
    let mounted = place.image(&words).run();
    larder_testkit::probe_skip!(mounted.code == Some(0), "nothing can be mounted here: {}", mounted.stderr);
    let tested = std::panic::catch_unwind(|| {
        assert!(
            json(&mounted).get("fetched_bytes").is_none(),
            "the broker fetches the bytes, not this process: {mounted:#?}"
        );
        assert_eq!((Tree::of(&place.path("work/there")), place.mounts()), (before.clone(), 1));
        place.put("there/new", "ours");
        // A mount over a mounted image removes that one, together with what was written there.
        place.image(&words).run().ends(0);
        assert_eq!((Tree::of(&place.path("work/there")), place.mounts()), (before.clone(), 1));
        assert_eq!(names(&place), there);
        let listed = json(&place.image(&["list", "--mounted", "--json"]).run().ends(0));
        let expect = serde_json::json!([{ "path": place.text("work/there"), "key": "a-1", "via": "mount" }]);
        assert_eq!(listed["mounts"], expect, "{listed}");
        assert!(place.image(&["list", "--mounted"]).run().quiet().contains("a-1"));
        // `larder clear` must not remove what a job has written.
        place.put("there/new", "ours");
        place.word(&["clear"]).run().ends(0);
        assert_eq!((place.read("there/new"), place.read("there/a/index.js")), (b"ours".to_vec(), b"a".to_vec()));
        // The broker must not keep the job's directory in use.
        assert_eq!(broker_works_in(&place), std::path::Path::new("/"));
    });
    let unmounted = place.image(&["unmount", "--strict", "there"]).run();
    tested.expect("an assertion on the mount failed");
    assert!(unmounted.ends(0).stdout.starts_with("unmounted "));
    assert_eq!((place.mounts(), place.path("work/there").exists()), (0, false));
    assert!(place.image(&["list", "--mounted"]).run().quiet().contains("no image is mounted"));
}

#[test]
fn a_broker_does_not_end_while_somebody_is_connected() {
    let place = project();
    let socket = place.path("tmp/broker.sock");
    let words = ["broker", "--idle", "1", "--socket", socket.to_str().expect("not UTF-8")];
    let mut broker = place.image(&words).start();
    let connected = (0..12_000).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(5));
        std::os::unix::net::UnixStream::connect(&socket).ok()
    });
    // The broker checks for idleness every two seconds, and drops a silent client after five.
    std::thread::sleep(std::time::Duration::from_millis(3500));
    let ended = broker.try_wait().expect("cannot query the process");
    drop(connected.expect("the broker does not listen"));
    assert!(broker.wait().expect("cannot wait for the command").success());
    assert!(ended.is_none() && !socket.exists(), "{ended:?}");
}
