//! The values larder works with: digests, actions, fingerprints, observations, manifests, results
//! and images, and the bytes of each on disk.
//!
//! A lookup uses them as follows:
//! 1. An [`Action`] is a command with its environment and working directory. Its digest is the
//!    *weak fingerprint*.
//! 2. The [`Manifest`] of that fingerprint has one [`Entry`] (also called a *record*) for each
//!    recorded run.
//! 3. An entry has an [`ObservationSet`]: the facts that the run relied on, for example the content
//!    of an included header. If all of them hold, the entry answers.
//! 4. Its [`ActionResult`] says which outputs and messages the run left. Larger contents are
//!    [`Blob`]s.
//!
//! A *place* is where a build runs, such as a checkout. Its [`Roots`] are replaced in keys and in
//! the paths of records, so that another checkout can use the record.
//!
//! No I/O, no clock, no environment: every item here is a value, a walk over a value, or an
//! encoding.
//! Unaware of: where anything is stored, how a tool is observed, how compilers differ.
#![forbid(unsafe_code)]

mod action;
mod bound;
mod depfile_plan;
mod digest;
mod encoding;
mod fact;
mod fingerprint;
mod image;
mod judgement;
mod listed;
mod looked;
mod manifest;
mod observation;
mod origin;
mod outcome;
pub mod path;
pub mod quick;
mod result;
mod roots;
mod single;
mod text;

pub use action::{Action, Terminal, Variable};
pub use bound::{Bound, Carried, Rewrite, Shared, alike, is_alike, lengths, names};
pub use depfile_plan::DepfilePlan;
pub use digest::{Blob, Digest, DigestWriter, ParseDigestError};
pub use encoding::{DecodeError, Reader, Writer};
pub use fact::{Fact, Status};
pub use fingerprint::{ExplainWalk, Field, Fingerprint, FingerprintWalk, ValueKey, Walk};
pub use image::{
    AccessTrace, BLOCK_BYTES, IMAGE_KEY_BYTES_MAX, IMAGE_VERSION, ImageKey, ImageRecord, NotAKey, PACK_BLOCKS_MAX,
    PIECE_BYTES, Pack, PackList, PieceList, SAVED_PATHS_MAX, SavedPath, is_saved_name, listed_prefix,
};
pub use judgement::{Judgement, Unseen, Way};
pub use looked::{
    Belongs, Change, DateSource, DirectoryChecks, DirectoryTimes, Git, HOST_IF_COMPUTED, Habit, Identity, Looked,
    Prior, Seen, Times, is_name_of_tempfile,
};
pub use manifest::{Entry, MANIFEST_ENTRIES_MAX, Made, Manifest, NotBound};
pub use observation::{
    ALL_VARIABLES, Age, DirFacts, EnvFact, HISTORY_VARIABLES, HOST_FIELDS, HOST_NAME, INHERITED, INTERNAL_VARIABLES,
    JOB_VARIABLES, Links, NamedFact, ObservationSet, OfHistory, SIGNALS, SOCKETS, SetReader, Twins, UMASK, Unread,
    found_along_path, host_field, looked_for_along_path, names_digest, of_host_field,
};
pub use origin::Origin;
pub use outcome::{Bypass, Fallback, Observer, Outcome, Unrecorded};
pub use result::{
    ActionResult, CHANGING_HEADERS_MAX, Content, FileMode, INLINE_BYTES_MAX, ModeRule, Modified, Output, OutputKind,
    Placement, PreprocessedText, Streams,
};
pub use roots::{PLACEHOLDER, Roots, is_above_root, is_encoded};
pub use single::{NotSingle, Single};
pub use text::{contains, contains_any, is_in_word, leading_word, trailing_word};

/// The version of every format in this crate. It is part of each weak fingerprint and the first
/// byte of each file. So a store of another version is never misread: its records are simply not
/// found.
pub const FORMAT_VERSION: u8 = 18;
