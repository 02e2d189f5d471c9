//! The store: content-addressed blobs, the action cache, the stat cache and counters, as plain
//! files in one directory.
//!
//! ```text
//! DIR/vN/
//!   manifests/ab/cd…   the manifest of the weak fingerprint abcd… (larder_model::Manifest); its
//!                      mtime is its last use, updated at most once an hour
//!   handed-over/ab/cd… manifests of records that were handed over by processes that cannot write
//!                      the store; only such processes read them
//!   blobs/ab/cd…       bytes whose digest is abcd…, uncompressed, mode 0600
//!   near               the weak fingerprint last recorded for each source file, for `explain`
//!                      (format: neighbours.rs)
//!   needs              how much memory tools needed (needs.rs)
//!   judged/ab/cd…      whether the preloaded library sees all of a program
//!                      (larder_model::Judgement)
//!   judged-handed-over/ab/cd… judgements that such processes handed over; only they read them
//!   stamps/BOOT-ID     the stat cache: what `stat` said of files whose content is known
//!                      (format: stat_cache/table.rs)
//!   counters           outcomes, reasons, and the most recent commands (formats: counters.rs,
//!                      recent.rs)
//!   locks/ab           locked while a manifest ab… is replaced
//!   locks/evict        locked while something is evicted
//!   locks/turns        one byte of it is locked while an action runs (turns.rs)
//!   locks/image-ab     locked shared by each process that uses an image ab…
//!   locks/broker       locked by the process that mounts images for this user
//!   locks/daemon       locked by larderd while it runs
//!   locks/hits-only    exists while larderd accepts no records
//!   locks/summoned     its mtime is when a process last tried to start larderd
//!   daemon.sock        the socket of larderd
//!   daemon.log         the errors of larderd
//!   remotes.json       how each remote answered, for `larder stats`
//!   uploads/…          records to be sent to remotes (uploads.rs)
//!   notes/…            warnings that were shown already, by digest, so that each is shown once
//!   images/            records of images, and files for mounts (images.rs)
//!   tmp/               files that are being written; an eviction removes what killed writers left
//! ```
//!
//! Files are written under a temporary name and then renamed. Blobs are written before the manifest
//! that names them. Readers take no lock and check every byte that they read: manifests have
//! digests inside, blobs are named by theirs. So any process may die at any instant. No code
//! outside this crate builds a path inside the store.
//!
//! Unaware of: tools, observers, remotes.
#![forbid(unsafe_code)]
// The store exists on Linux only. On other systems tools run untouched, and this crate is empty.
#![cfg(target_os = "linux")]

mod blobs;
mod check;
mod counters;
mod current;
mod daemon;
mod error;
mod evict;
mod fsck;
mod git_index;
mod handed;
mod images;
mod judgements;
mod layout;
mod manifests;
mod materialise;
mod needs;
mod neighbours;
mod newest;
mod old_formats;
mod recent;
mod scan;
mod slots;
mod stage;
mod stat_cache;
mod turns;
mod unrecorded;
mod uploads;
mod verify_inputs;
mod write_output;

pub use blobs::OpenBlob;
pub use check::{Checker, Difference, Effort};
pub use counters::{Counters, HitCount, Remote, Saved, Totals};
pub use daemon::{StoreSocket, Summoned};
pub use error::StoreError;
pub use evict::{EVICT_TO_PERCENT, Eviction, Keep};
pub use fsck::FsckReport;
pub use handed::{Came, NotTaken, Receiving};
pub use images::{FetcherView, Lease, Live, StoredImage};
pub use larder_model::is_in_word;
pub use layout::{Contents, Store, forget_user};
pub use manifests::ManifestFile;
pub use materialise::{Bounds, MaterialiseError, finished, permitted};
pub use recent::{FoundCommand, Recent, Wanted};
pub use scan::{Anywhere, Forms, Uncut, Words, content_anywhere};
pub use stat_cache::{STAMP_AGE_MIN_NS, SharedStatCache, StatCache};
pub use turns::{Asked, Running, Turn};
pub use uploads::Upload;
pub use verify_inputs::{InputVerifier, Refusal, VerifiedInputs};
