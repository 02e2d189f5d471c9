//! Bytes and manifests for tests.

use bytes::Bytes;
use larder_model::{
    ActionResult, Blob, Content, Digest, Entry, EnvFact, ExplainWalk, FileMode, Made, Manifest, ModeRule,
    ObservationSet, Observer, Output, OutputKind, Placement, Rewrite, Streams, Walk,
};
use larder_remote::{Options, PackPolicy};
use std::sync::Arc;
use std::time::Duration;

/// Returns bytes that cannot be compressed, different for each seed.
pub(crate) fn bytes(seed: &str, length: usize) -> Bytes {
    let mut made = Vec::with_capacity(length + 32);
    let mut block = Digest::of(seed.as_bytes());
    while made.len() < length {
        made.extend_from_slice(&block.0);
        block = Digest::of(&block.0);
    }
    made.truncate(length);
    made.into()
}

/// Returns options with these environment variables. A server may be silent for a long time, because
/// the machine may be busy, and stalled requests have their own tests.
pub(crate) fn options(seed: u64, variables: &'static [(&str, &str)]) -> Options {
    let variable = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
    let packs = PackPolicy {
        gather: Duration::from_millis(20),
        stale: Duration::ZERO,
        minute: Duration::from_secs(1),
        ..PackPolicy::default()
    };
    Options { variable: Arc::new(variable), seed, packs, stall: Duration::from_secs(120), ..Options::default() }
}

/// A run for [`manifest`]: its name, exit code and output.
pub(crate) struct Run<'a> {
    pub(crate) name: &'a str,
    pub(crate) exit_code: u8,
    pub(crate) output: Option<Blob>,
}

/// Returns a manifest with one entry for each run. Each run read a different environment variable.
pub(crate) fn manifest(weak: &Digest, runs: &[Run<'_>]) -> Vec<u8> {
    let mut walk = ExplainWalk::default();
    walk.field("argument", b"-c");
    let made = Made { made_in: Digest::of(b"roots"), bound: None };
    let mut bodies = vec![Vec::new(); runs.len()];
    let mut manifest = Manifest::new(*weak, &walk);
    for (run, body) in runs.iter().zip(&mut bodies) {
        let looked = EnvFact { name: run.name.as_bytes(), value: Some(Digest::of(run.name.as_bytes())) };
        let set = ObservationSet { environment: vec![looked], ..ObservationSet::default() };
        let streams = Streams::Apart { stdout: Content::Inline(run.name.as_bytes()), stderr: Content::EMPTY };
        let mut result = ActionResult { exit_code: run.exit_code, repeatable: true, ..ActionResult::of(streams) };
        let mode = FileMode { bits: 0o644, rule: ModeRule::Masked };
        result.outputs.extend(run.output.map(|blob| {
            let (placement, rewrite, content) = (Placement::Truncate, Rewrite::None, Content::Blob(blob));
            Output::new(b"x.o", OutputKind::File { placement, mode, rewrite, content })
        }));
        manifest.add(Entry::new(weak, Observer::Preload, 1000, &made, &set, &result, body));
    }
    manifest.encode()
}

/// Returns the names of the runs in a manifest, sorted.
pub(crate) fn names(manifest: &[u8]) -> Vec<String> {
    let manifest = Manifest::decode(manifest).expect("a manifest");
    let name = |entry: &Entry<'_>| match entry.open().expect("an entry").1.streams {
        Streams::Apart { stdout: Content::Inline(name), .. } => String::from_utf8_lossy(name).into_owned(),
        _ => panic!("the entry was not made by `manifest`"),
    };
    let mut names: Vec<String> = manifest.entries.iter().map(name).collect();
    names.sort();
    names
}
