//! Kills `larder image` at random moments. An image must never be half saved, half restored or left
//! mounted.
//!
//! The moments come from a seed, and are spread over the time that the same command took when it
//! was not killed.

use std::fs;
use std::time::{Duration, Instant, SystemTime};

use larder_testkit::{Place, Ran, Tree};

const SEED: u64 = 0x1a2d_e26c_0ffe;
/// How often each command is killed.
const KILLS: u32 = 16;
/// How often it is killed at most until it is killed before its end. The measured time is too long
/// if the machine was busy only then.
const KILLS_MAX: u32 = 200;

/// Random moments that a seed determines.
struct Moments(u64);

impl Moments {
    fn new(name: &str) -> Moments {
        println!("seed {SEED:#x}, {name}");
        Moments(name.bytes().fold(SEED, |sum, byte| sum.rotate_left(7) ^ u64::from(byte)))
    }

    /// Returns a moment before `end`, or up to 10 % after it.
    fn before(&mut self, end: Duration) -> Duration {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        end.mul_f64((self.0 >> 33) as f64 / f64::from(1u32 << 31) * 1.1)
    }
}

fn project() -> Place {
    let place = Place::new();
    for number in 0..500 {
        place.put(&format!("deps/{}/{number}", number % 40), format!("{number} ").repeat(number % 400));
    }
    place.put("deps/big", vec![7; 3 << 20]);
    place
}

/// Runs a command to its end, and returns how long that took.
fn left_alone(place: &Place, words: &[&str]) -> Duration {
    let began = Instant::now();
    place.image(words).run().ends(0);
    began.elapsed()
}

/// Starts a command and kills it after the time `at`, unless it has ended by then.
fn killed(place: &Place, words: &[&str], at: Duration) -> Ran {
    let mut child = place.image(words).start();
    std::thread::sleep(at);
    let _ = child.kill();
    Ran::of(child)
}

fn is_sound(place: &Place) {
    let said = place.word(&["fsck"]).run().quiet();
    assert!(said.contains("all sound"), "{said}");
}

/// Sets the mtime of directories that killed commands left in `work` back, so that the next command
/// may remove them. Returns their number.
fn age_what_is_left(place: &Place) -> usize {
    let old = SystemTime::now() - Duration::from_secs(600);
    let names = fs::read_dir(place.path("work")).expect("cannot list the directory").flatten();
    let left: Vec<_> = names.filter(|entry| entry.file_name().to_string_lossy().starts_with(".larder-")).collect();
    for entry in &left {
        fs::File::open(entry.path()).and_then(|dir| dir.set_modified(old)).expect("cannot set the mtime");
    }
    left.len()
}

#[test]
fn a_save_that_is_killed_saves_all_or_nothing() {
    let (place, mut moments) = (project(), Moments::new("save"));
    let long = left_alone(&place, &["save", "--strict", "--key", "before", "deps"]);
    let (mut saved, mut not) = (0, 0);
    for round in 0..KILLS_MAX {
        if round >= KILLS && not > 0 {
            break;
        }
        let key = format!("k-{round}");
        for number in 0..200 {
            place.put(&format!("deps/new/{number}"), format!("{round} {number}").repeat(300));
        }
        killed(&place, &["save", "--strict", "--key", &key, "deps"], moments.before(long));
        let restored = place.image(&["restore", "--strict", "--key", &key, "back"]).run();
        match restored.code {
            Some(0) => {
                assert_eq!(Tree::of(&place.path("work/back")), Tree::of(&place.path("work/deps")), "round {round}");
                fs::remove_dir_all(place.path("work/back")).expect("cannot remove the directory");
                saved += 1;
            }
            Some(11) => not += 1,
            _ => panic!("round {round}: {restored:#?}"),
        }
    }
    println!("{saved} saved, {not} not");
    is_sound(&place);
    place.image(&["save", "--strict", "--key", "after", "deps"]).run().ends(0);
    assert!(not > 0, "no command was killed before its end");
}

#[test]
fn a_restore_that_is_killed_restores_all_or_nothing() {
    let (place, mut moments) = (project(), Moments::new("restore"));
    let before = Tree::of(&place.path("work/deps"));
    place.image(&["save", "--strict", "--key", "k", "deps"]).run().ends(0);
    let long = left_alone(&place, &["restore", "--strict", "--key", "k", "first"]);
    let (mut there, mut not, mut left) = (0, 0, 0);
    for round in 0..KILLS_MAX {
        if round >= KILLS && not > 0 {
            break;
        }
        let is_replacing = round % 2 == 1;
        let _ = fs::remove_dir_all(place.path("work/to"));
        let mut words = vec!["restore", "--strict", "--key", "k", "to"];
        if is_replacing {
            place.put("to/old", "old");
            words.push("--replace");
        }
        let old = is_replacing.then(|| Tree::of(&place.path("work/to")));
        killed(&place, &words, moments.before(long));
        match place.path("work/to").exists().then(|| Tree::of(&place.path("work/to"))) {
            Some(found) if found == before => there += 1,
            found => {
                assert_eq!(found, old, "round {round}: the directory has neither its old content nor the whole image");
                not += 1;
            }
        }
        left += age_what_is_left(&place);
    }
    println!("{there} restored, {not} not, {left} directories left on the way");
    assert!(not > 0, "no command was killed before its end");
    place.image(&["restore", "--strict", "--key", "k", "--replace", "to"]).run().ends(0);
    assert_eq!((Tree::of(&place.path("work/to")), age_what_is_left(&place)), (before, 0));
    is_sound(&place);
}

#[test]
fn an_import_that_is_killed_saves_all_or_nothing() {
    let (place, mut moments) = (project(), Moments::new("import"));
    let before = Tree::of(&place.path("work/deps"));
    place.image(&["save", "--strict", "--key", "k", "deps"]).run().ends(0);
    let written = left_alone(&place, &["export", "--key", "k", "deps.tar.zst"]);
    for _ in 0..KILLS / 4 {
        place.remove(&["to.tar.zst"]);
        killed(&place, &["export", "--key", "k", "to.tar.zst"], moments.before(written));
        if place.path("work/to.tar.zst").exists() {
            assert!(place.read("to.tar.zst") == place.read("deps.tar.zst"), "the archive is incomplete");
        }
        age_what_is_left(&place);
    }
    let long = left_alone(&place, &["import", "--key", "again", "deps.tar.zst"]);
    for round in 0..KILLS / 2 {
        let key = format!("k-{round}");
        killed(&place, &["import", "--key", &key, "deps.tar.zst"], moments.before(long));
        let restored = place.image(&["restore", "--strict", "--key", &key, "back"]).run();
        assert!(matches!(restored.code, Some(0 | 11)), "round {round}: {restored:#?}");
        if restored.code == Some(0) {
            assert_eq!(Tree::of(&place.path("work/back")), before, "round {round}");
            fs::remove_dir_all(place.path("work/back")).expect("cannot remove the directory");
        }
    }
    is_sound(&place);
}

/// Returns the process IDs of the brokers of this place's store. A gate is no broker, although its
/// arguments end with the command that starts one.
fn brokers(place: &Place) -> Vec<String> {
    let store = format!("LARDER_DIR={}", place.text("store"));
    let processes = fs::read_dir("/proc").expect("cannot list the directory").flatten();
    let names = processes.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_one = |pid: &String| {
        let of = |what: &str| fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
        let has = |bytes: &[u8], word: &[u8]| bytes.split(|&byte| byte == 0).any(|part| part == word);
        let arguments = of("cmdline");
        has(&arguments, b"broker") && !has(&arguments, b"gate") && has(&of("environ"), store.as_bytes())
    };
    names.filter(|name| name.parse::<u32>().is_ok()).filter(is_one).collect()
}

fn kill(pid: &str) {
    let _ = std::process::Command::new("kill").args(["-KILL", pid]).status();
}

/// Mounts the whole image and unmounts it, which must work after any kill.
fn mounts_still(place: &Place, before: &Tree, round: u32) {
    let mounted = place.image(&["mount", "--strict", "--key", "k", "--via", "lazy", "last"]).run();
    let same = std::panic::catch_unwind(|| {
        assert_eq!(mounted.code, Some(0), "round {round}: {mounted:#?}");
        assert_eq!(&Tree::of(&place.path("work/last")), before, "round {round}");
    });
    place.image(&["unmount", "last"]).run();
    same.expect("the mounted tree differs from the saved one");
}

#[test]
fn a_mount_that_is_killed_is_whole_or_not_there() {
    larder_testkit::probe_skip!(larder_testkit::is_root(), "only root can mount without a broker");
    let (place, mut moments) = (project(), Moments::new("mount"));
    let before = Tree::of(&place.path("work/deps"));
    place.image(&["save", "--strict", "--key", "k", "deps"]).run().ends(0);
    let words = ["mount", "--strict", "--key", "k", "--via", "lazy", "m"];
    let began = Instant::now();
    let tried = place.image(&words).run();
    larder_testkit::probe_skip!(tried.code == Some(0), "nothing can be mounted lazily here: {}", tried.stderr);
    let long = began.elapsed();
    place.image(&["unmount", "m"]).run().ends(0);
    let tested = std::panic::catch_unwind(move || {
        for round in 0..KILLS {
            let is_broker = round % 3 == 2;
            let mut child = place.image(&words).start();
            std::thread::sleep(moments.before(long));
            match is_broker {
                true => brokers(&place).iter().for_each(|pid| kill(pid)),
                false => drop(child.kill()),
            }
            Ran::of(child);
            // The broker may have gone on and mounted the image. Then the mount must be complete.
            std::thread::sleep(Duration::from_millis(20));
            if place.mounts() > 0 && !is_broker {
                assert_eq!(Tree::of(&place.path("work/m")), before, "round {round}");
            }
            mounts_still(&place, &before, round);
            // A broker that went on may mount the image after that.
            let until = Instant::now() + Duration::from_secs(60);
            while place.image(&["unmount", "m"]).run().code.is_some() && place.mounts() > 0 {
                assert!(Instant::now() < until, "round {round}");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        is_sound(&place);
        brokers(&place).iter().for_each(|pid| kill(pid));
        assert_eq!(place.mounts(), 0);
    });
    tested.expect("an assertion on the mounts failed");
}

#[test]
fn a_broker_that_comes_back_knows_its_image() {
    larder_testkit::probe_skip!(larder_testkit::is_root(), "only root can mount without a broker");
    let place = project();
    for number in 0..40u8 {
        place.put(&format!("deps/large/{number}"), vec![number; 1 << 20]);
    }
    let before = Tree::of(&place.path("work/deps"));
    place.image(&["save", "--strict", "--key", "k", "deps"]).run().ends(0);
    let mounted = place.image(&["mount", "--strict", "--key", "k", "--via", "lazy", "m"]).run();
    larder_testkit::probe_skip!(mounted.code == Some(0), "nothing can be mounted lazily here: {}", mounted.stderr);
    brokers(&place).iter().for_each(|pid| kill(pid));
    let tested = std::panic::catch_unwind(|| {
        place.put("other/x", "another image");
        let save = ["save", "--strict", "--key", "k", "other"];
        place.image(&save).run().ends(0);
        // After the kill no process holds the mounted image. The record of the mount alone must
        // protect it from this eviction.
        place.larder(&["evict", "--images", "--max-size", "0"]).run().ends(0);
        place.image(&save).run().ends(0);
        // This starts a broker that finds what the killed one mounted.
        place.image(&["mount", "--strict", "--key", "k", "--via", "lazy", "n"]).run().ends(0);
        assert_eq!(place.read("n/x"), b"another image");
        assert_eq!(Tree::of(&place.path("work/m")), before);
    });
    place.image(&["unmount", "m", "n"]).run();
    tested.expect("an assertion on the mounts failed");
    assert_eq!(place.mounts(), 0);
}
