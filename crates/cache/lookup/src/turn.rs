//! The key for single-flight: two wrappers with the same key run the same action, as far as that is
//! known before either has run it. The second wrapper waits for the first and then finds its
//! record.
//!
//! A wrong key costs time and nothing else, because the wrapper that waited looks up again and uses
//! only a record whose observations hold.
//!
//! ```text
//! key = weak fingerprint · whether stdout and stderr are one file · [roots] · [first difference]
//! ```
//! - The roots are part of the key if the result is not expected to be reusable in another
//!   checkout. That is so for everything but compiles (`is_compile`), and if the newest record is
//!   bound to its checkout.
//! - The first difference is the path or variable because of which the newest record does not hold,
//!   with its present content. For example, two checkouts that changed `x.h` differently get
//!   different keys and do not wait for each other.
//!
//! Unaware of: which process runs the action, how long a process waits.

use larder_compiler::Family;
use larder_model::path::ending;
use larder_model::{Digest, Fingerprint, Manifest, Writer};
use larder_store::{StatCache, Store};

use crate::{Place, Rejected, Request, roots_digest, subject};

/// What the records of a fingerprint tell about an action, if none of them answers it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EarlierRecords {
    run_time_us: Option<u64>,
    bound: bool,
    difference: Option<Vec<u8>>,
}

impl EarlierRecords {
    /// Derives it from the records and from the reasons why they do not hold.
    pub fn of(manifest: &Manifest, rejected: &[Rejected]) -> EarlierRecords {
        let newest = manifest.entries.first();
        EarlierRecords {
            run_time_us: newest.map(|entry| entry.run_time_us),
            bound: newest.is_some_and(|entry| entry.bound.is_some()),
            difference: rejected.first().map(|rejected| rejected.why.subject.clone()),
        }
    }

    /// Returns how long the tool ran in the newest record of this fingerprint, in microseconds. If
    /// there is none, the record of the same source and output with other flags is used.
    pub fn run_time_us(&self, request: &Request, store: &Store) -> Option<u64> {
        self.run_time_us.or_else(|| near_run_time_us(&store.neighbour(&subject(request))?, store))
    }

    /// Returns the single-flight key: two actions with equal keys may be answered by one record.
    pub fn turn(&self, request: &Request, place: &Place, stat_cache: &StatCache) -> Digest {
        let mut w = Writer::default();
        w.digest(&request.weak);
        w.u8(place.destinations.same.into());
        // A crate may be linked, but its result holds in another target directory unless a record
        // says that it is bound.
        if self.bound || !is_compile(request) && request.family != Family::Rustc {
            w.digest(&roots_digest(&request.roots));
        }
        if let Some(subject) = &self.difference {
            w.bytes(&request.roots.encoded_path(subject));
            w.bytes(&present(subject, place, stat_cache));
        }
        Digest::of(&w.bytes)
    }
}

/// Returns true for a compile that does not link. Such a tool never starts larder again, so waiting
/// for it cannot deadlock.
pub fn is_compile(request: &Request) -> bool {
    request.invocation.compiles()
}

/// Returns a digest that is equal for actions that need about as much memory: those with the same
/// tool, the same last stage and the same file name extension of the source.
pub fn kind(request: &Request) -> Digest {
    let source = &request.invocation.source;
    let mut w = Writer::default();
    w.digest(&request.action.tool);
    w.u8(request.invocation.stage as u8);
    w.bytes(ending(source));
    Digest::of(&w.bytes)
}

fn near_run_time_us(weak: &Fingerprint, store: &Store) -> Option<u64> {
    let file = store.read_manifest(weak, false).ok()??;
    Manifest::decode(&file.bytes).ok()?.entries.first().map(|entry| entry.run_time_us)
}

/// Returns the present content of a path (its digest, or the `stat` error) or the present value of
/// a variable.
fn present(subject: &[u8], place: &Place, stat_cache: &StatCache) -> Vec<u8> {
    if !subject.starts_with(b"/") {
        return place.asked(subject).unwrap_or_default();
    }
    match larder_sys::stat(subject) {
        Err(error) => error.raw_os_error().unwrap_or(0).to_le_bytes().to_vec(),
        // Without an entry in the stat cache the file was changed just now, so its content is left
        // open.
        Ok(stat) => stat_cache.content(&stat).map_or_else(Vec::new, |content| content.0.to_vec()),
    }
}
