//! When two wrappers run the same action, as far as is known before either has run it: so that the second can wait for
//! the first, and find its record.
//!
//! Being wrong here costs time and nothing else: who waited looks up again, and uses only a record that holds.
//!
//! ```text
//! key = weak fingerprint · whether standard output and error are one file · [roots of the place] · [first difference]
//! ```
//! The place counts where what is made there is not expected to serve elsewhere: for all but a compiler's compiles, and
//! where the newest record is bound to its place. The first difference is why the newest record does not hold, with
//! what is there now: two places with different headers have different ones, and wait for different actions.
//!
//! Unaware of: who runs what, how long anybody waits.

use larder_model::{Digest, Fingerprint, Manifest, Writer};
use larder_store::{Stamps, Store};

use crate::{Place, Rejected, Request, roots_digest, subject};

/// What the records of a fingerprint say of an action that none of them answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    run_time_us: Option<u64>,
    bound: bool,
    difference: Option<Vec<u8>>,
}

impl Known {
    /// From the records, and why they do not answer.
    pub fn of(manifest: &Manifest, rejected: &[Rejected]) -> Known {
        let newest = manifest.entries.first();
        Known {
            run_time_us: newest.map(|entry| entry.run_time_us),
            bound: newest.is_some_and(|entry| entry.bound.is_some()),
            difference: rejected.first().map(|rejected| rejected.why.subject.clone()),
        }
    }

    /// How long the nearest record's tool ran, in microseconds: of this fingerprint, or of the same source and output.
    pub fn run_time_us(&self, request: &Request, store: &Store) -> Option<u64> {
        self.run_time_us.or_else(|| near_run_time_us(&store.near(&subject(request))?, store))
    }

    /// What an action must have in common with another that runs, so that its record may answer.
    pub fn turn(&self, request: &Request, place: &Place, stamps: &Stamps) -> Digest {
        let mut w = Writer::default();
        w.digest(&request.weak);
        w.u8(place.destinations.same.into());
        if self.bound || !is_compile(request) {
            w.digest(&roots_digest(&request.roots));
        }
        if let Some(subject) = &self.difference {
            let mut encoded = Vec::new();
            request.roots.encode_path(subject, &mut encoded);
            w.bytes(&encoded);
            w.bytes(&present(subject, place, stamps));
        }
        Digest::of(&w.bytes)
    }
}

/// Whether its tool starts none behind larder: a compiler that does not link. Others may wait for it wherever they are.
pub fn is_compile(request: &Request) -> bool {
    request.invocation.compiles()
}

/// Actions whose tools need about as much of the machine: of the same tool, going as far, from the same kind of source.
pub fn kind(request: &Request) -> Digest {
    let source = &request.invocation.source;
    let ending = source.iter().rposition(|&b| b == b'.').map_or(&b""[..], |dot| &source[dot..]);
    let mut w = Writer::default();
    w.digest(&request.action.tool);
    w.u8(request.invocation.stage as u8);
    w.bytes(if ending.contains(&b'/') { b"" } else { ending });
    Digest::of(&w.bytes)
}

fn near_run_time_us(weak: &Fingerprint, store: &Store) -> Option<u64> {
    let file = store.read_manifest(weak, false).ok()??;
    Manifest::decode(&file.bytes).ok()?.entries.first().map(|entry| entry.run_time_us)
}

/// What is at a path, or in a variable, as far as one look tells.
fn present(subject: &[u8], place: &Place, stamps: &Stamps) -> Vec<u8> {
    if !subject.starts_with(b"/") {
        return place.asked(subject).unwrap_or_default();
    }
    match larder_sys::look_through(subject) {
        Err(error) => error.raw_os_error().unwrap_or(0).to_le_bytes().to_vec(),
        // Where no stamp tells, it changed just now: then nothing is known of it.
        Ok(look) => stamps.content(&look).map_or_else(Vec::new, |content| content.0.to_vec()),
    }
}
