//! Damages every byte of every file of a store in turn, cuts files, exchanges them, and replaces
//! them by something else. A run of larder must then give the result of the tool, to the byte.
//! `LARDER_TEST_FULL=1` damages every byte; otherwise only some of them.
//! `crates/cache/store/tests/corruption.rs` always damages every byte, without running programs.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use larder_testkit::{Place, Ran, files_below, is_full, larder_text};

/// Standard output and the object are stored as blobs; the depfile and standard error are kept
/// inside the record.
const SCRIPT: &str = "read line < $2; printf \"%s%05000d\" \"$line\" 1; echo warning $2 >&2; \
    printf \"$2%06000d\" 7 > $2.o; echo dep > $2.d; exit 3";
const SOURCES: [&str; 2] = ["x.c", "y.c"];
/// How many bytes of a file the quick tests damage, for each kind of damage.
const QUICK: usize = 45;

/// The result of a run: messages and exit code, object, depfile.
type Given = (Ran, Option<Vec<u8>>, Option<Vec<u8>>);

struct Bench {
    place: Place,
    plain: [Given; 2],
    kept: Vec<(PathBuf, Vec<u8>)>,
    runs: usize,
}

/// Runs one of the two commands, and removes its outputs.
fn given(place: &Place, words: &[&str], source: &str) -> Given {
    let argv: Vec<&str> = words.iter().copied().chain(["./mycc", "-c", source]).collect();
    let ran = place.run(&argv).run();
    let outputs = ["o", "d"].map(|ending| place.path(format!("work/{source}.{ending}")));
    let [object, depfile] = outputs.each_ref().map(|path| fs::read(path).ok());
    outputs.iter().for_each(|path| drop(fs::remove_file(path)));
    (ran, object, depfile)
}

impl Bench {
    /// Creates a store with two records.
    fn new() -> Bench {
        let place = Place::new();
        place.tool("work/mycc", SCRIPT);
        for source in SOURCES {
            place.put(source, format!("int {source};\n"));
        }
        place.settle();
        let plain = SOURCES.map(|source| given(&place, &[], source));
        let mut bench = Bench { place, plain, kept: Vec::new(), runs: 0 };
        for _ in 0..2 {
            SOURCES.iter().for_each(|source| bench.right(source, "before any damage"));
        }
        let store = bench.place.path("store");
        bench.kept = files_below(&store)
            .into_iter()
            .map(|path| (path.clone(), fs::read(path).expect("cannot read the file")))
            .collect();
        let blobs = bench.kept.iter().filter(|(path, _)| kind(path) == "blobs");
        assert_eq!(blobs.count(), 4, "two objects and two standard outputs");
        bench
    }

    #[track_caller]
    fn right(&mut self, source: &str, what: &str) {
        let at = SOURCES.iter().position(|known| *known == source).expect("an unknown source");
        let given = given(&self.place, &[larder_text()], source);
        self.runs += 1;
        assert!(
            given == self.plain[at],
            "{what}, {source}: the result is {:?} instead of {:?}",
            given.0,
            self.plain[at].0
        );
    }

    /// Returns the source whose command needs this file.
    fn user_of(&self, path: &Path, bytes: &[u8]) -> &'static str {
        let of_other = |manifest: &[u8]| holds(manifest, b"y.c.o");
        let is_other = match kind(path) {
            "manifests" => of_other(bytes),
            "blobs" => {
                let digest = digest_of(path);
                let mut manifests = self.kept.iter().filter(|(path, _)| kind(path) == "manifests");
                manifests.any(|(_, bytes)| of_other(bytes) && holds(bytes, &digest))
            }
            _ => false,
        };
        SOURCES[usize::from(is_other)]
    }

    /// Restores all files that have changed.
    fn put_back(&self) {
        for (path, bytes) in &self.kept {
            if path.is_symlink() || path.is_dir() {
                let _ = fs::remove_file(path).or_else(|_| fs::remove_dir(path));
            }
            // Counters are increased by each run, and stamps are updated by each stat, so these
            // files may differ.
            let may_differ = matches!(kind(path), "counters" | "stamps") && is_whole(path, bytes);
            if !may_differ && fs::read(path).ok().as_ref() != Some(bytes) {
                fs::create_dir_all(path.parent().expect("no parent directory")).expect("cannot create the directory");
                fs::write(path, bytes).expect("cannot write the file");
            }
        }
    }
}

/// Returns the digest that is the name of a blob.
fn digest_of(path: &Path) -> Vec<u8> {
    let text = path.to_str().expect("not UTF-8").replace('/', "");
    let digits: Vec<u32> = text[text.len() - 64..].chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Returns the name of the store's directory that a file is in, or the file's own name if it is in
/// none.
fn kind(path: &Path) -> &str {
    let below = path.components().skip_while(|part| part.as_os_str() != "store").nth(2);
    below.and_then(|part| part.as_os_str().to_str()).expect("the path is not in a store")
}

fn is_whole(path: &Path, bytes: &[u8]) -> bool {
    fs::read(path).is_ok_and(|now| now.len() == bytes.len() && now[..16] == bytes[..16])
}

/// Returns the positions at which a file is damaged: all, or some that include the first and the
/// last ones. Of the empty slots in the stamps only some are damaged, because all are alike.
fn places(path: &Path, bytes: &[u8]) -> Vec<usize> {
    let told = |at: &usize| kind(path) != "stamps" || *at < 80 || bytes[at / 80 * 80..(at / 80 + 1) * 80] != [0; 80];
    let (told, empty): (Vec<usize>, Vec<usize>) = (0..bytes.len()).partition(told);
    let spread = |all: Vec<usize>, count: usize| {
        let step = all.len().div_ceil(count).max(1);
        let ends = all.iter().copied().take(2).chain(all.iter().copied().rev().take(2));
        let mut some: Vec<usize> = all.iter().copied().step_by(step).chain(ends).collect();
        some.sort_unstable();
        some.dedup();
        some
    };
    let told = if is_full() { told } else { spread(told, QUICK) };
    told.into_iter().chain(spread(empty, if is_full() { 4 * QUICK } else { 10 })).collect()
}

/// Damages every file at each position that `places` returns, and runs the command after each.
fn sweep(what: &str, damage: impl Fn(&mut Vec<u8>, usize)) {
    let mut bench = Bench::new();
    let mut damaged = 0;
    for (path, bytes) in bench.kept.clone() {
        let user = bench.user_of(&path, &bytes);
        for at in places(&path, &bytes) {
            let mut other = fs::read(&path).expect("the file was not restored");
            damage(&mut other, at.min(bytes.len() - 1));
            fs::write(&path, other).expect("cannot write the file");
            bench.right(user, &format!("{} {what} at {at}", path.display()));
            bench.put_back();
            damaged += 1;
        }
    }
    println!("{what}: {damaged} bytes, {} runs", bench.runs);
    let fsck = bench.place.word(&["fsck"]).run();
    assert_eq!(fsck.code, Some(0), "every file was restored: {fsck:?}");
}

#[test]
fn a_bit_is_flipped() {
    sweep("flipped", |bytes, at| bytes[at] ^= 1 << (at % 8));
}

#[test]
fn a_file_is_cut() {
    sweep("cut", |bytes, at| bytes.truncate(at));
}

#[test]
fn a_byte_is_all_ones() {
    sweep("set", |bytes, at| bytes[at] = if bytes[at] == 0xff { 0 } else { 0xff });
}

#[test]
fn files_are_exchanged() {
    let mut bench = Bench::new();
    let kept = bench.kept.clone();
    for (at, (a, a_bytes)) in kept.iter().enumerate() {
        for (b, b_bytes) in &kept[at + 1..] {
            // Exchange by content, and by renaming, which also exchanges the mtimes.
            for by_name in [false, true] {
                if by_name {
                    let aside = a.with_extension("aside");
                    fs::rename(a, &aside)
                        .and_then(|()| fs::rename(b, a))
                        .and_then(|()| fs::rename(&aside, b))
                        .expect("cannot rename the files");
                } else {
                    fs::write(a, b_bytes).and_then(|()| fs::write(b, a_bytes)).expect("cannot write the files");
                }
                for source in SOURCES {
                    bench.right(source, &format!("{} and {} exchanged", a.display(), b.display()));
                }
                bench.put_back();
            }
        }
    }
    println!("{} runs", bench.runs);
}

#[test]
fn files_are_something_else() {
    type Replace = fn(&Path);
    let rows: &[(&str, Replace)] = &[
        ("gone", |_| {}),
        ("a directory", |path| fs::create_dir(path).expect("cannot create the directory")),
        ("a link to nothing", |path| symlink("/nonexistent/x", path).expect("cannot create the link")),
        ("a link to itself", |path| symlink(path, path).expect("cannot create the link")),
        ("a device without end", |path| symlink("/dev/zero", path).expect("cannot create the link")),
        ("a device that is full", |path| symlink("/dev/full", path).expect("cannot create the link")),
    ];
    let mut bench = Bench::new();
    for (path, bytes) in bench.kept.clone() {
        let user = bench.user_of(&path, &bytes);
        for (what, replace) in rows {
            fs::remove_file(&path).expect("cannot remove the file");
            replace(&path);
            for _ in 0..2 {
                bench.right(user, &format!("{} is {what}", path.display()));
            }
            let words = [larder_text(), "fsck", "--repair"];
            let fsck = bench.place.run(&words).run();
            assert!(matches!(fsck.code, Some(0 | 1)), "{} is {what}: {fsck:?}", path.display());
            bench.put_back();
        }
    }
}
