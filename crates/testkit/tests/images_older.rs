//! Imitates older kernels with `older.c`: calls that such a kernel refuses fail with its own error
//! codes. larder must then choose the next way to mount by itself.

use std::path::{Path, PathBuf};

use larder_testkit::{Place, Ran, has, is_root, larder_text, older, probe_skip};

/// A kernel, and the ways to mount an image that it has.
struct Kernel {
    name: &'static str,
    /// The best way on this kernel.
    best: &'static str,
    /// Some ways, and parts of doctor's lines about them.
    ways: &'static [(&'static str, &'static str)],
}

const KERNELS: [Kernel; 4] = [
    Kernel {
        name: "5.10",
        best: "mount",
        ways: &[
            ("lazy", "not possible"),
            ("lazy-fuse", "larder's own FUSE server"),
            (
                "mount",
                "EROFS in one file, by a loop device; only for jobs of root (jobs of other users need Linux 5.19)",
            ),
            ("squashfs", "squashfs by a loop device; only for jobs of root (jobs of other users need Linux 6.2)"),
        ],
    },
    Kernel {
        name: "6.1",
        best: "mount",
        ways: &[
            ("lazy", "not possible"),
            ("mount", "EROFS by a loop device: this method is used for images"),
            ("squashfs", "squashfs by a loop device; only for jobs of root (jobs of other users need Linux 6.2)"),
        ],
    },
    Kernel {
        name: "6.12",
        best: "lazy",
        ways: &[("lazy", "EROFS from files, filled when they are read: this method is used for images")],
    },
    Kernel {
        name: "6.14",
        best: "lazy",
        ways: &[("lazy", "EROFS from files, filled when they are read: this method is used for images")],
    },
];

/// Creates a place with a saved directory, and the program `older`.
fn saved() -> Option<(Place, PathBuf)> {
    let place = Place::new();
    let older = older(&place.path("."))?;
    for number in 0..60 {
        place.put(&format!("deps/{}/{number}", number % 7), format!("{number} ").repeat(number * 97));
    }
    // These files consist of several pieces. The second piece of `two` equals the content of `one`.
    let bytes = |seed: u32, count: u32| (0..count).map(|at| (at / 7 * seed % 251) as u8).collect::<Vec<_>>();
    let (first, second) = (bytes(3, 1 << 20), bytes(5, 1 << 20));
    place.put("deps/one", second.clone());
    place.put("deps/two", [first, second, bytes(7, 70_000)].concat());
    let sparse = std::fs::File::create(place.path("work/deps/sparse")).expect("cannot create the file");
    sparse.set_len(5 << 20).expect("cannot extend the file");
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"middle", 2_500_000).expect("cannot write the file");
    words(&place, &["image", "save", "--key", "k-1", "deps"]).quiet();
    Some((place, older))
}

fn words(place: &Place, words: &[&str]) -> Ran {
    place.word(words).run()
}

/// Runs `larder` as on this kernel.
fn as_on(place: &Place, older: &Path, kernel: &str, words: &[&str]) -> Ran {
    let first = [older.to_str().expect("not UTF-8"), kernel, larder_text()];
    place.run(&[&first, words].concat()).run()
}

fn json(ran: Ran) -> serde_json::Value {
    let ran = ran.ends(0);
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:#?}"))
}

/// Returns doctor's line about a way.
fn said<'a>(ran: &'a Ran, way: &str) -> &'a str {
    let line = ran.stdout.lines().find(|line| line.contains(&format!("via {way} ")));
    line.unwrap_or_else(|| panic!("nothing of {way}: {ran:#?}"))
}

/// Returns the mounts in this place. Other tests mount in their own places at the same time.
fn mounts_below(place: &Place) -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("cannot read the file");
    let top = place.path(".").canonicalize().expect("cannot resolve the path");
    let top = format!(" {}/", top.to_str().expect("not UTF-8"));
    mounts.lines().filter(|line| line.contains(&top)).map(str::to_owned).collect()
}

#[test]
fn doctor_says_what_a_kernel_lacks_and_what_is_used_instead() {
    probe_skip!(is_root(), "only root can mount");
    let Some((place, older)) = saved() else { return };
    let here = words(&place, &["doctor"]);
    probe_skip!(
        said(&here, "lazy").contains("this method is used"),
        "not possible here anyway: {}",
        said(&here, "lazy")
    );
    for Kernel { name: kernel, best, ways } in KERNELS {
        let ran = as_on(&place, &older, kernel, &["doctor"]);
        assert!(said(&ran, best).contains("this method is used"), "as on {kernel}: {ran:#?}");
        for (way, expect) in ways {
            assert!(said(&ran, way).contains(expect), "as on {kernel}, {way}: {ran:#?}");
        }
    }
    assert_eq!(mounts_below(&place), [""; 0], "doctor left a mount behind");
}

#[test]
fn every_way_of_an_older_kernel_gives_the_same_tree() {
    probe_skip!(is_root(), "only root can mount without a broker");
    for Kernel { name: kernel, best, .. } in KERNELS {
        // Each kernel has its own broker, which runs as on that kernel.
        let Some((place, older)) = saved() else { return };
        let here = words(&place, &["doctor"]);
        probe_skip!(
            said(&here, "lazy").contains("this method is used"),
            "not possible here anyway: {}",
            said(&here, "lazy")
        );
        for via in [None, Some("mount"), Some("lazy-fuse"), Some("squashfs"), Some("fuse")] {
            let needs = via.filter(|via| matches!(*via, "squashfs" | "fuse")).map(|_| "mksquashfs");
            let program = via.filter(|via| *via == "fuse").map(|_| "squashfuse");
            if needs.iter().chain(&program).any(|program| !has(program)) {
                eprintln!("skipped: as on {kernel}, {via:?}: mksquashfs or squashfuse is not installed");
                continue;
            }
            let asked = ["image", "mount", "--strict", "--key", "k-1", "--json", "there"];
            let words_of: Vec<&str> = match via {
                Some(via) => [&asked[..2], &["--via", via], &asked[2..]].concat(),
                None => asked.to_vec(),
            };
            let object = json(as_on(&place, &older, kernel, &words_of));
            assert_eq!(object["via"], via.unwrap_or(best), "as on {kernel}: {object}");
            place.run(&["diff", "-r", "deps", "there"]).run().quiet();
            place.run(&["sh", "-c", "echo more >> there/two; rm there/one; mkdir there/new"]).run().quiet();
            as_on(&place, &older, kernel, &["image", "unmount", "--strict", "there"]).ends(0);
            assert!(!place.path("work/there").exists(), "unmounting must remove the directory that mounting made");
        }
        let inside = ["image", "run", "--strict", "--key", "k-1", "there", "--", "diff", "-r", "deps", "there"];
        as_on(&place, &older, kernel, &inside).ends(0);
        words(&place, &["fsck"]).ends(0);
    }
}

/// An image of more than 32 MiB is not written out before a job can begin. If the user asks for
/// `mount`, it is written out, and later mounts use that file.
#[test]
fn a_large_image_is_served_until_it_is_written_out() {
    probe_skip!(is_root(), "only root can mount without a broker");
    let Some((place, older)) = saved() else { return };
    let here = words(&place, &["doctor"]);
    probe_skip!(
        said(&here, "lazy").contains("this method is used"),
        "not possible here anyway: {}",
        said(&here, "lazy")
    );
    let large: Vec<u8> = (0..33_u32 << 20).map(|at| (at >> 12) as u8).collect();
    place.put("deps/large", large);
    words(&place, &["image", "save", "--key", "k-2", "deps"]).quiet();
    let kernel =
        KERNELS.iter().find(|kernel| kernel.best == "mount").expect("no kernel has `mount` as its best way").name;
    let mut used = Vec::new();
    for asked in [&[][..], &["--via", "mount"], &[]] {
        let line = [&["image", "mount", "--strict", "--key", "k-2", "--json"], asked, &["there"]].concat();
        used.push(json(as_on(&place, &older, kernel, &line))["via"].clone());
        place.run(&["diff", "-r", "deps", "there"]).run().quiet();
        as_on(&place, &older, kernel, &["image", "unmount", "--strict", "there"]).ends(0);
    }
    assert_eq!(used, ["lazy-fuse", "mount", "mount"]);
}

#[test]
fn without_the_calls_of_mounting_it_is_unpacked() {
    probe_skip!(is_root(), "only root can mount without a broker");
    probe_skip!(has("strace"), "strace is not installed");
    let Some((place, _)) = saved() else { return };
    // `fsopen` fails with ENOSYS before Linux 5.2 and in many sandboxes. Output goes to files,
    // because the process that mounts keeps running, and strace with it.
    let script =
        "strace -D -f -q -o /dev/null --seccomp-bpf --trace=fsopen --inject=fsopen:error=ENOSYS \"$@\" > out 2> err";
    let program = larder_text();
    let without = |words: &[&str]| place.run(&[&["sh", "-c", script, "sh", program], words].concat()).run();
    let ran = without(&["doctor"]);
    let text = |name: &str| String::from_utf8_lossy(&place.read(name)).into_owned();
    let ran = Ran { stdout: text("out"), stderr: text("err"), ..ran };
    probe_skip!(!ran.stderr.starts_with("strace:"), "{}", ran.stderr);
    for way in ["lazy", "mount", "lazy-fuse", "squashfs", "fuse"] {
        assert!(said(&ran, way).contains("not possible"), "{ran:#?}");
    }
    assert!(said(&ran, "unpack").contains("this method is used"), "{ran:#?}");
    without(&["image", "mount", "--strict", "--key", "k-1", "--json", "there"]).ends(0);
    let object: serde_json::Value = serde_json::from_slice(&place.read("out")).expect("not JSON");
    assert_eq!(object["via"], "unpack", "{object}");
    assert!(object["passed_over"].as_str().is_some_and(|why| why.contains("`mount`: ")), "{object}");
    place.run(&["diff", "-r", "deps", "there"]).run().quiet();
}

#[test]
fn doctor_tries_the_ways_before_there_is_a_store() {
    let place = Place::new();
    let ran = words(&place, &["doctor"]);
    assert!(said(&ran, "unpack").contains("files made from the image"), "{ran:#?}");
    assert!(!place.path("store").exists(), "doctor must not create a store");
    let left = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("cannot list the directory").file_name();
    let left: Vec<_> = std::fs::read_dir(place.path(".")).expect("cannot list the directory").map(left).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with(".larder-trial")), "{left:?}");
}

/// Runs a command as an ordinary user in its own mount namespace, where every user may open
/// `/dev/fuse`, as on most machines.
fn as_user(place: &Place, words: &[&str]) -> Ran {
    let script = "mknod -m 666 ../fuse c 10 229 2>/dev/null; mount --bind ../fuse /dev/fuse || exit 90; \
        exec setpriv --reuid=1234 --regid=1234 --clear-groups \"$@\"";
    place.run(&[&["unshare", "-m", "sh", "-c", script, "sh"], words].concat()).run()
}

/// Returns why `as_user` cannot be used here.
fn is_ordinary_user_possible(place: &Place) -> Result<(), String> {
    place.run(&["chmod", "-R", "a+rwX", place.path(".").to_str().expect("not UTF-8")]).run().quiet();
    let program = larder_text();
    let works = |words: &[&str]| as_user(place, words).code == Some(0);
    match () {
        () if !works(&["dd", "if=/dev/fuse", "count=0"]) => Err("/dev/fuse cannot be opened here".to_owned()),
        () if !works(&[program, "version"]) => Err(format!("another user cannot run {program}")),
        () => Ok(()),
    }
}

#[test]
fn an_ordinary_user_is_told_what_image_run_can_do() {
    probe_skip!(is_root(), "only root can become another user");
    probe_skip!(has("setpriv") && has("squashfuse"), "setpriv or squashfuse is not installed");
    let place = Place::new();
    let program = larder_text();
    if let Err(why) = is_ordinary_user_possible(&place) {
        eprintln!("skipped: {why}");
        return;
    }
    let as_user = |words: &[&str]| as_user(&place, words);
    place.put("deps/a", "a");
    as_user(&[program, "image", "save", "--strict", "--key", "k-1", "deps"]).quiet();
    let told = as_user(&[program, "doctor"]);
    let script = "cat to/a; grep ' /.*/to ' /proc/self/mounts";
    let ran = as_user(&[program, "image", "run", "--key", "k-1", "to", "--", "sh", "-c", script]);
    let is_mounted = ran.stdout.starts_with('a') && ran.stdout.contains("overlay");
    let has_namespaces = as_user(&["unshare", "--user", "--map-root-user", "--mount", "true"]).code == Some(0);
    assert!(is_mounted || !has_namespaces, "{told:#?} {ran:#?}");
    assert_eq!(said(&told, "lazy-fuse").contains("this method is used for images"), is_mounted, "{told:#?} {ran:#?}");
    assert_eq!(mounts_below(&place), [""; 0], "doctor left a mount behind");
    // Only root has this way. The message says so, and does not mention ways that were not tried.
    let ran = as_user(&[program, "image", "run", "--key", "k-1", "--via", "mount", "to", "--", "true"]);
    assert!(ran.stderr.contains("only root can mount") && !ran.stderr.contains(";:"), "{ran:#?}");
}

/// Before Linux 5.11 the kernel makes no overlay in a user namespace.
#[test]
fn an_ordinary_user_of_linux_5_10_writes_by_fuse_overlayfs() {
    probe_skip!(is_root(), "only root can become another user");
    probe_skip!(has("setpriv") && has("fuse-overlayfs"), "setpriv or fuse-overlayfs is not installed");
    let Some((place, older)) = saved() else { return };
    // This store belongs to root.
    place.run(&["rm", "-r", "../store"]).run().quiet();
    let possible = is_ordinary_user_possible(&place);
    probe_skip!(possible.is_ok(), "{possible:?}");
    let has_namespaces = ["unshare", "--user", "--map-root-user", "--mount", "true"];
    probe_skip!(as_user(&place, &has_namespaces).code == Some(0), "an ordinary user cannot make namespaces here");
    let (older, program) = (older.to_str().expect("not UTF-8"), larder_text());
    let on_5_10 = |words: &[&str]| as_user(&place, &[&[older, "5.10", program], words].concat());
    place.run(&["chmod", "0640", "deps/1/1"]).run().quiet();
    place.run(&["ln", "-s", "one", "deps/link"]).run().quiet();
    place.run(&["ln", "deps/two", "deps/hard"]).run().quiet();
    place.run(&["chown", "-R", "1234:1234", "deps"]).run().quiet();
    on_5_10(&["image", "save", "--strict", "--key", "k-2", "deps"]).quiet();
    let told = on_5_10(&["doctor"]);
    let how = "larder's own FUSE server, files filled when they are read; written to by fuse-overlayfs";
    assert!(said(&told, "lazy-fuse").contains(how), "{told:#?}");

    // Prints the kind of the mount, then checks the tree, and that it can be written to.
    let script = "grep -o ' /.*/to [^ ]*' /proc/self/mounts | sed 's/.* //'
        looks() { (cd $1 && find . -printf '%p %y %m %u %g %n %l %T@\\n' -type d -o -printf '%s\\n' | sort); }
        diff -r --no-dereference deps to && looks deps > ../one && looks to > ../two && diff ../one ../two || exit 1
        echo more >> to/two && tail -c 5 to/two && rm to/one && mkdir to/new && mv to/1 to/new/ && ls to/new to/new/1
        chmod 600 to/2/2 && touch -d '2001-02-03 04:05:06' to/2/2 && stat -c '%a %Y' to/2/2 && rm -r to/3 && ls to";
    let ran = on_5_10(&["image", "run", "--strict", "--key", "k-2", "to", "--", "sh", "-c", script]).ends(0);
    assert!(ran.stderr.contains("by lazy-fuse"), "{ran:#?}");
    // The same changes in a plain directory print the same. Only the mount point is left.
    place.run(&["rmdir", "to"]).run().quiet();
    place.run(&["cp", "-a", "deps", "to"]).run().quiet();
    let plain = as_user(&place, &["sh", "-c", script]).ends(0);
    assert_eq!(ran.stdout.strip_prefix("fuse.fuse-overlayfs\n"), Some(&*plain.stdout));
    // Nothing is left: no mount, no program, and nothing of what was written.
    assert_eq!(mounts_below(&place), [""; 0]);
    let left = "find ../store -name upper -o -name merged; n=0
        while ps -u 1234 -o stat=,comm= | grep '^[^Z].*fuse-over'; do
            n=$((n + 1)); [ $n = 300 ] && break; sleep 0.1
        done > alive
        [ $n -lt 300 ] || cat alive";
    let left = as_user(&place, &["sh", "-c", left]);
    assert_eq!(left.stdout, "", "{left:#?}");
    on_5_10(&["fsck"]).ends(0);
}
