//! The exact bytes of every format in this crate. `crates/testkit/src/golden.rs` says how to renew
//! the files. If a format changes, raise `FORMAT_VERSION`: then stores get a new directory, and
//! keys and records change.

use std::path::{Path, PathBuf};

use larder_model::{
    Action, ActionResult, Age, Blob, Bound, Bypass, Content, DecodeError, Digest, DirFacts, Entry, EnvFact,
    ExplainWalk, FORMAT_VERSION, Fact, Fallback, FileMode, Links, Made, Manifest, ModeRule, Modified, NamedFact,
    ObservationSet, Observer, Output, OutputKind, Placement, PreprocessedText, Reader, Rewrite, Roots, Status, Streams,
    Terminal, Twins, UMASK, Unrecorded, Variable, Writer, names_digest,
};
use larder_testkit::{golden, golden_bytes};

/// The weak fingerprint of `action` in `roots`.
const WEAK: &str = "fa28eab30b17a799950be63abf629c00411eb692bb090c73f347c2b70ed3ee59";
/// The digest of the absences `a` and `b`.
const NAMES: &str = "e0c139dc242c586c490d83b04d5c9f87794bba81526db0ca6404f162ef8750da";

fn file(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden")).join(name)
}

fn roots() -> Roots {
    Roots::new([b"/w".to_vec(), b"/src".to_vec()])
}

fn action() -> Action {
    let variable = |name: &str, value: &str| Variable { name: name.into(), value: value.into() };
    Action {
        family: "gcc",
        tool: Digest([0x11; 32]),
        tool_path: b"/usr/bin/gcc".to_vec(),
        argv: ["gcc", "-c", "/src/x.c", "-I/w/inc", ""].map(|argument| argument.as_bytes().to_vec()).to_vec(),
        cwd: b"/w".to_vec(),
        apparent_cwd: Some(b"/link".to_vec()),
        environment: vec![variable("LANG", "C"), variable("PATH", "/w/bin:/bin")],
        terminal: Terminal::Some { stdout: false, stderr: true, columns: 80, rows: 24 },
        processor: b"cpu".to_vec(),
        inherited: b"limits".to_vec(),
        standard_input: b"nothing".to_vec(),
        source: Some(Digest([0x22; 32])),
    }
}

/// Returns a set with each kind of fact and each value of each bit.
fn set() -> ObservationSet<'static> {
    let facts = [
        Fact::Content { digest: Digest([1; 32]), executable: false, plain: false, rooted: None },
        Fact::Content { digest: Digest([2; 32]), executable: true, plain: false, rooted: None },
        Fact::Content { digest: Digest([3; 32]), executable: false, plain: true, rooted: Some(Digest([11; 32])) },
        Fact::Directory,
        Fact::Link(b"\0\x02/to"),
        Fact::Error { operation: 0, errno: 13 },
        Fact::Error { operation: Fact::ACCESS | 4, errno: 300 },
        Fact::Listing(Digest([4; 32])),
        Fact::Other(2),
        Fact::Modified(-1),
        Fact::Status(Status {
            mode: 0o100_644,
            owner: 1000,
            group: 100,
            links: 2,
            inode: 4,
            modified_ns: 1 << 60,
            size_bytes: 4096,
            blocks: 8,
        }),
        Fact::Belongs { owner: 1000, group: 100, links: Some(2) },
        Fact::Ordered(Digest([8; 32])),
        Fact::Kinds(Digest([12; 32])),
    ];
    let none = DirFacts { path: b"/usr/include", links: Links::None, class: 2, ..DirFacts::default() };
    ObservationSet {
        directories: vec![
            DirFacts {
                path: b"\0\x01/inc",
                links: Links::Real(b"/real"),
                class: 1,
                facts: facts.into_iter().map(|fact| NamedFact { name: b"n", fact }).collect(),
                absent: vec![b"a", b"b"],
            },
            DirFacts { path: b"/", links: Links::Any, class: 0, facts: Vec::new(), absent: vec![b"x.h"] },
            none,
        ],
        environment: vec![
            EnvFact { name: b"", value: Some(Digest([5; 32])) },
            EnvFact { name: b"CPATH", value: None },
            EnvFact { name: UMASK, value: Some(Digest([9; 32])) },
            EnvFact { name: b"\0host n", value: Some(Digest([10; 32])) },
        ],
        twins: vec![
            Twins { paths: [b"\0\x01/a.h", b"\0\x01/b.h"], same_file: true, same_time: true },
            Twins { paths: [b"c", b"d"], same_file: false, same_time: false },
        ],
        ages: vec![Age { path: b"\0\x01/a.c", same: false }, Age { path: b"c", same: true }],
    }
}

/// Returns a result with each kind of output, content and placement.
fn result(together: bool) -> ActionResult<'static> {
    let blob = Content::Blob(Blob { digest: Digest([6; 32]), size_bytes: 70_000 });
    let mode = |bits, rule| FileMode { bits, rule };
    let written = |placement, mode, content| {
        let rewrite = if placement == Placement::Rename { Rewrite::Object } else { Rewrite::None };
        OutputKind::File { placement, mode, rewrite, content }
    };
    let kinds = [
        OutputKind::Directory(mode(0o777, ModeRule::Masked)),
        written(Placement::Truncate, mode(0o666, ModeRule::Masked), Content::Inline(b"object")),
        written(Placement::Replace, mode(0o666, ModeRule::Exact), blob),
        written(Placement::Rename, mode(0o755, ModeRule::Set), Content::EMPTY),
        written(Placement::Unlink, mode(0o4755, ModeRule::Executable), blob),
        OutputKind::Link(b"x.o"),
        OutputKind::Removed,
    ];
    let streams = match together {
        true => Streams::Together(blob),
        false => Streams::Apart { stdout: Content::EMPTY, stderr: Content::Inline(b"warning\n") },
    };
    let mut outputs: Vec<_> = kinds.into_iter().map(|kind| Output::new(b"\0\x01/o", kind)).collect();
    outputs[1].modified = Modified::As(b"\0\x01/x.c");
    outputs[2].modified = Modified::At(1_700_000_000_000_000_000);
    outputs[4].modified = Modified::WrittenWithPrevious;
    let (exit_code, consumed_bytes) = if together { (255, 300) } else { (0, 0) };
    let origin = if together { Vec::new() } else { vec![&b"/w"[..], b"/src"] };
    let messages = [Rewrite::None, if together { Rewrite::GccDepfile } else { Rewrite::Text }];
    let text = PreprocessedText {
        headers: vec![b"\0\x01/c.h", b"/usr/include/d.h"],
        failures: 3,
        took_us: 12_345,
        digest: Some(Digest([0x33; 32])),
    };
    let text = (!together).then_some(text);
    ActionResult { exit_code, repeatable: together, consumed_bytes, origin, messages, streams, outputs, text }
}

fn encoded(of: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut w = Writer::default();
    of(&mut w);
    w.bytes
}

fn manifest(check: impl FnOnce(&Manifest)) {
    let (mut walk, roots) = (ExplainWalk::default(), roots());
    action().walk(&roots, &mut walk);
    let weak = action().fingerprint(&roots);
    let mut manifest = Manifest::new(weak, &walk);
    let (mut older, mut newer) = (Vec::new(), Vec::new());
    let free = Made { made_in: Digest([12; 32]), bound: None };
    manifest.add(Entry::new(&weak, Observer::Depfile, 0, &free, &ObservationSet::default(), &result(true), &mut older));
    let bound = Made { made_in: Digest([7; 32]), bound: Some((Bound::Argument, b"-DX=/w".to_vec())) };
    manifest.add(Entry::new(&weak, Observer::Preload, 123_456, &bound, &set(), &result(false), &mut newer));
    check(&manifest);
}

#[test]
fn golden_fingerprints() {
    assert_eq!(action().fingerprint(&roots()).hex(), WEAK, "the keys of actions changed: raise FORMAT_VERSION");
    assert_eq!(names_digest(&[b"a", b"b"]).hex(), NAMES, "absences have other digests: raise stamps/table.rs' VERSION");
}

#[test]
fn golden_records() {
    golden(&file("observations.hex"), "a set of observations", &encoded(|w| set().encode(w)));
    golden(&file("result_apart.hex"), "a result, streams apart", &encoded(|w| result(false).encode(w)));
    golden(&file("result_together.hex"), "a result, streams together", &encoded(|w| result(true).encode(w)));
    manifest(|manifest| golden(&file("manifest.hex"), "a manifest of two entries", &manifest.encode()));
}

/// The order of reasons, which is the order of their counters on disk. If a row is removed, the
/// numbers of the rows after it change: raise `VERSION` in `counters.rs` of `larder-store`. If a
/// row is added at the end, only renew the file.
#[test]
fn golden_reasons() {
    let codes = |all: &mut dyn Iterator<Item = &str>| all.collect::<Vec<_>>().join(" ");
    let all = [
        codes(&mut Bypass::ALL.iter().map(|reason| reason.code())),
        codes(&mut Fallback::ALL.iter().map(|reason| reason.code())),
        codes(&mut Unrecorded::ALL.iter().map(|reason| reason.code())),
    ];
    golden(&file("reasons.hex"), "codes of all reasons, in their order", all.join("\n").as_bytes());
}

#[test]
fn golden_files_are_read() {
    let (bytes, again) = (golden_bytes(&file("observations.hex")), set());
    assert_eq!(ObservationSet::decode(&mut Reader::new(&bytes)), Ok(again));
    for (name, together) in [("result_apart.hex", false), ("result_together.hex", true)] {
        assert_eq!(ActionResult::decode(&mut Reader::new(&golden_bytes(&file(name)))), Ok(result(together)));
    }
    let bytes = golden_bytes(&file("manifest.hex"));
    manifest(|manifest| assert_eq!(Manifest::decode(&bytes).as_ref(), Ok(manifest)));
}

#[test]
fn another_version_is_not_read() {
    let bytes = golden_bytes(&file("manifest.hex"));
    for version in (0..=u8::MAX).filter(|version| *version != FORMAT_VERSION) {
        // A file that is valid apart from its version, and one that is not.
        let body = [&[version], &bytes[1..bytes.len() - 32]].concat();
        let mut w = Writer::default();
        w.bytes.extend_from_slice(&body);
        assert_eq!(Manifest::decode(&w.seal()).err(), Some(DecodeError::Version(version)));
        assert_eq!(Manifest::decode(&body).err(), Some(DecodeError::Version(version)));
    }
}

#[test]
fn what_was_never_written_is_not_read() {
    // Each value has one encoding, so whatever can be decoded must encode to the same bytes.
    for (name, what) in [("result_apart.hex", "result"), ("observations.hex", "set")] {
        let bytes = golden_bytes(&file(name));
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                let mut r = Reader::new(&damaged);
                let again = match what {
                    "set" => ObservationSet::decode(&mut r).map(|set| encoded(|w| set.encode(w))),
                    _ => ActionResult::decode(&mut r).map(|result| encoded(|w| result.encode(w))),
                };
                let taken = r.position();
                if let Ok(again) = again {
                    assert!(again == damaged[..taken], "{what}: bit {bit} of byte {at} is another form of a value");
                }
            }
        }
    }
}
