//! Makes a record with a command, headers and an object of its own.

use larder_model::{
    ActionResult, Blob, Content, Digest, DirFacts, Entry, ExplainWalk, Fact, FileMode, Fingerprint, Made, ModeRule,
    NamedFact, ObservationSet, Observer, Output, OutputKind, Placement, Rewrite, Streams, Walk,
};
use larder_samples::mixed;

/// Fills `bytes` with content that no other record has and that cannot be compressed.
pub(crate) fn content(number: u64, bytes: &mut [u8]) {
    for (part, at) in bytes.chunks_exact_mut(8).zip(0u64..) {
        part.copy_from_slice(&mixed(number << 20 | at).to_le_bytes());
    }
}

/// Calls `to` with the record of command `number`, which read `headers` headers (10 at most) and
/// made `blob`.
pub(crate) fn record<T>(
    number: u64,
    headers: u64,
    blob: Blob,
    to: impl FnOnce(&Fingerprint, &ExplainWalk, Entry) -> T,
) -> T {
    let name = |what: &str| format!("\0\u{1}/project/{what}{number}").into_bytes();
    let digest = |what: &str| Digest::of(&name(what));
    let weak = digest("action");
    let mut walk = ExplainWalk::default();
    for field in ["tool", "arguments", "working directory", "environment", "source"] {
        walk.field(field, &[name(field), vec![b'x'; 100]].concat());
    }
    let own: Vec<Vec<u8>> = (0..headers).map(|at| format!("header{at}_{number}.h").into_bytes()).collect();
    let fact = |name| {
        let content = Fact::Content { digest: weak, executable: false, plain: false, rooted: None };
        NamedFact { name, fact: content }
    };
    let directories = vec![DirFacts {
        path: b"\0\x01/include",
        facts: own.iter().map(|name| fact(name)).collect(),
        ..DirFacts::default()
    }];
    let set = ObservationSet { directories, ..ObservationSet::default() };
    let (output, content) = (name("object"), Content::Blob(blob));
    let mode = FileMode { bits: 0o666, rule: ModeRule::Masked };
    let kind = OutputKind::File { placement: Placement::Replace, mode, rewrite: Rewrite::None, content };
    let streams = Streams::Apart { stdout: Content::EMPTY, stderr: Content::EMPTY };
    let result = ActionResult { outputs: vec![Output::new(&output, kind)], ..ActionResult::of(streams) };
    let made = Made { made_in: digest("roots"), bound: None };
    let mut body = Vec::new();
    to(&weak, &walk, Entry::new(&weak, Observer::Preload, 50_000, &made, &set, &result, &mut body))
}

/// Returns the subject by which `explain` finds the record of command `number`.
pub(crate) fn subject(number: u64) -> Digest {
    Digest::of(format!("\0\u{1}/project/subject{number}").as_bytes())
}
