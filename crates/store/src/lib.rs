//! The store: content-addressed blobs, the action cache, stamps and counters, as plain files in one directory.
//!
//! ```text
//! DIR/v10/
//!   manifests/ab/cd…   Manifest of the weak fingerprint abcd… (larder_model::Manifest draws its bytes); its
//!                      modification time is its last use, an hour coarse
//!   handed-over/ab/cd… the same of what processes handed over that cannot write the store; only such read it
//!   blobs/ab/cd…       bytes whose digest is abcd…, uncompressed, mode 0600
//!   near               the weak fingerprints last recorded for each source file, for `explain` (near.rs draws it)
//!   needs              how much memory tools needed (needs.rs)
//!   judged/ab/cd…     how well a program is observed by the preloaded library (larder_model::Judgement)
//!   judged-handed-over/ab/cd… the same as processes said that cannot write the store; only such read it
//!   stamps/BOOT-ID     what `stat` said of files whose content is known (stamps/table.rs draws it)
//!   counters           outcomes and reasons (counters.rs draws it)
//!   locks/ab           taken while a manifest ab… is replaced; locks/evict while something is evicted
//!   locks/turns        a byte of it is locked while an action runs (turns.rs)
//!   locks/image-ab     shared by whoever uses an image ab…
//!   daemon.sock        where larderd listens, while it runs; daemon.log what went wrong for it; locks/daemon is its lock;
//!                      locks/hits-only says that it takes nothing
//!   uploads/…          records that are to be sent to remotes (uploads.rs)
//!   notes/…            faults in the settings that were warned of, by digest, so that they are not said twice
//!   images/            records of images, and the files that are mounted (images.rs)
//!   tmp/               what is being written; renamed into place, or left by a killed writer and swept later
//! ```
//!
//! Files are written under a temporary name and renamed; blobs before the manifest that names them. Readers take no
//! lock, and every byte read is checked: manifests by the digest at their end, blobs by their name. Any process may
//! die at any instant. Nothing outside this crate builds a path inside the store.
//!
//! Unaware of: tools, observers, remotes.
#![forbid(unsafe_code)]
// Linux by nature so far: elsewhere tools run untouched, and nothing of this is there.
#![cfg(target_os = "linux")]

mod blobs;
mod check;
mod counters;
mod daemon;
mod earlier;
mod error;
mod evict;
mod fsck;
mod handed;
mod images;
mod judgements;
mod layout;
mod manifests;
mod materialise;
mod near;
mod needs;
mod newest;
mod scan;
mod stage;
mod stamps;
mod turns;
mod uploads;
mod witness;

pub use blobs::OpenBlob;
pub use check::{Checker, Difference, Effort};
pub use counters::{Counters, Remote, Totals};
pub use daemon::{StoreSocket, Summoned};
pub use error::StoreError;
pub use evict::{EVICT_TO_PERCENT, Eviction, Keep};
pub use fsck::FsckReport;
pub use handed::{Came, NotTaken, Receiving};
pub use images::{Lease, Live, StoredImage};
pub use layout::{Contents, Store};
pub use manifests::ManifestFile;
pub use materialise::{Bounds, MaterialiseError, finished, permitted};
pub use scan::{
    Anywhere, FILE_FUNCTIONS, FILE_WORDS, Forms, Uncut, content_anywhere, is_blank, is_in_word, names_files, splices,
};
pub use stamps::{STAMP_AGE_MIN_NS, SharedStamps, Stamps};
pub use turns::{Asked, Running, Turn};
pub use uploads::Upload;
pub use witness::{Carried, Refusal, Witness, Witnessed};
