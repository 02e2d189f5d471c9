//! The explanation of a command.
//!
//! Unaware of: how it is found, and how it is printed.

use larder_model::{Bypass, Fallback};
use larder_store::Effort;

use super::facts::FactCounts;
use super::fields::FieldDifference;

/// The explanation of a command.
pub(super) struct Explanation {
    /// The program that would run.
    pub(super) tool: String,
    /// The command itself, if larder caches commands of this tool.
    pub(super) about: Option<About>,
    pub(super) verdict: Verdict,
    /// Settings and circumstances that change what a wrapper would do.
    pub(super) notes: Vec<&'static str>,
}

pub(super) struct About {
    pub(super) source: String,
    pub(super) output: Option<String>,
    /// The roots: directories whose paths may differ in another checkout.
    pub(super) roots: Vec<String>,
    pub(super) fingerprint: String,
}

pub(super) enum Verdict {
    /// The tool runs untouched.
    Bypass(Bypass),
    /// The tool runs because something failed.
    Fallback(Fallback, String),
    Hit(Hit),
    Miss(Miss),
}

pub(super) struct Hit {
    /// The position of the record in the manifest, from 1, newest first.
    pub(super) record: usize,
    pub(super) records: usize,
    pub(super) observer: &'static str,
    pub(super) run_time_us: u64,
    pub(super) exit_code: u8,
    pub(super) outputs: Vec<OutputLine>,
    pub(super) counts: FactCounts,
    pub(super) effort: Effort,
    /// Why the record is valid only in this checkout, if so.
    pub(super) bound: Option<String>,
    pub(super) rejected: Vec<RejectedLine>,
    /// One line for each fact; only with `--verbose`.
    pub(super) facts: Vec<String>,
}

pub(super) struct OutputLine {
    pub(super) path: String,
    pub(super) kind: &'static str,
    pub(super) size_bytes: Option<u64>,
}

pub(super) struct RejectedLine {
    pub(super) record: usize,
    pub(super) observer: &'static str,
    pub(super) subject: String,
    pub(super) what: String,
}

pub(super) struct Miss {
    pub(super) rejected: Vec<RejectedLine>,
    pub(super) nearest: Nearest,
    pub(super) observer: Option<&'static str>,
    /// Another process runs this action now.
    pub(super) running: bool,
    /// Only headers have changed, and the wrapper would run the preprocessor to see whether a record
    /// can be used.
    pub(super) by_text: bool,
    pub(super) facts: Vec<String>,
}

/// The nearest record: one of the same source and output, if there is none of the fingerprint.
pub(super) enum Nearest {
    /// Not searched, because there are records of the fingerprint itself.
    Itself,
    /// Nothing was recorded for this source and output.
    Nothing,
    /// A record existed but was evicted or cleared.
    Gone,
    /// The record came from a remote, so the fields of its action are not known.
    Fetched,
    /// The differences, in the order of the fields.
    Differs(Vec<FieldDifference>),
}
