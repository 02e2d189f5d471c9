//! Command-line options of `record`, `compare` and `report`.
//!
//! Unaware of: what the subcommands do.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Arguments of `record`: a command after `--`, or a subcommand.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_value_name = "SUBCOMMAND")]
pub(crate) struct Records {
    #[command(subcommand)]
    pub(crate) word: Option<RecordWord>,
    #[command(flatten)]
    pub(crate) options: RecordOptions,
}

/// Subcommands of `record`, for existing records.
#[derive(Subcommand)]
pub(crate) enum RecordWord {
    /// Show a record: how its runs ended, and why commands were not hits
    Show(RecordShow),
    /// List all records, the oldest first
    List,
    /// Write a record in another format
    Export(RecordExport),
}

/// Options of `record`.
#[derive(Args)]
pub(crate) struct RecordOptions {
    /// Time this many runs; with more than one, an additional run is traced
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) runs: u32,
    /// The name of the record; by default, it is derived from the command
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Run this in a shell before each run; its time is not counted
    #[arg(long, value_name = "COMMAND")]
    pub(crate) prepare: Option<String>,
    /// Alternate between two configuration files, and record both sides
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    pub(crate) ab: Option<Vec<PathBuf>>,
    /// Alternate between two commands, each run by a shell, and record both sides; for example with
    /// other flags, or another larder
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["ab", "command"])]
    pub(crate) ab_commands: Option<Vec<OsString>>,
    /// The runs whose processes are traced
    #[arg(long, value_name = "WHEN", default_value = "once")]
    pub(crate) trace: TraceWhen,
    /// The destination of the command's output: by default shown for one run, kept in the record
    /// for several
    #[arg(long, value_name = "WHERE")]
    pub(crate) output: Option<OutputTo>,
    /// Sample stacks with perf this many times a second, in the run that is traced
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) sample: Option<u32>,
    /// Take this file into the record after each run, and its spans onto the timeline if it is a
    /// report of a build tool; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) attach: Vec<PathBuf>,
    /// Count commits since this revision
    #[arg(long, value_name = "REVISION")]
    pub(crate) base: Option<String>,
    /// Put the record into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Pack the record into one file, NAME.tar.zst
    #[arg(long)]
    pub(crate) pack: bool,
    /// Continue after a run that failed
    #[arg(long)]
    pub(crate) keep_going: bool,
    /// The command
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// The runs whose processes are traced.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum TraceWhen {
    /// The only run, or an additional run after several
    Once,
    /// Every run
    All,
    /// None
    Never,
}

/// The destination of the command's output.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputTo {
    /// To standard output and standard error
    Shown,
    /// Into the record
    Kept,
    /// Nowhere
    Dropped,
}

/// Options of `record show`.
#[derive(Args)]
pub(crate) struct RecordShow {
    /// A name, a path, or `last`
    #[arg(value_name = "RECORD", default_value = "last")]
    pub(crate) record: String,
    /// Print one JSON object with everything in it
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `record export`.
#[derive(Args)]
pub(crate) struct RecordExport {
    /// A name, a path, or `last`
    #[arg(value_name = "RECORD", default_value = "last")]
    pub(crate) record: String,
    /// The format
    #[arg(long = "as", value_name = "FORM")]
    pub(crate) form: Form,
    /// The output file; by default, standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Export formats of a record.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// A trace for ui.perfetto.dev
    Perfetto,
    /// Chrome's trace events
    Chrome,
    /// A summary for CI
    Markdown,
    /// Everything, as JSON for programs
    Json,
    /// The record packed into one file
    Archive,
}

/// Options of `compare`.
#[derive(Args)]
pub(crate) struct CompareTwo {
    /// A name, a path, or `last`
    #[arg(value_name = "A")]
    pub(crate) a: String,
    /// The record that is compared with A
    #[arg(value_name = "B")]
    pub(crate) b: String,
    #[command(flatten)]
    pub(crate) judging: Judging,
    /// Exit with code 1 if B takes longer
    #[arg(long)]
    pub(crate) check: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Print Markdown, for the summary of a CI job
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,
}

/// What a verdict treats as equal.
#[derive(Args)]
pub(crate) struct Judging {
    /// Ignore differences of up to this many per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = percent)]
    pub(crate) margin: f64,
    /// This part is expected to differ: machine, tools, or project
    #[arg(long, value_name = "PART")]
    pub(crate) expect: Vec<String>,
    /// Give a verdict no matter what differs
    #[arg(long)]
    pub(crate) anyway: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|number| (0.0..=100.0).contains(number))
        .ok_or_else(|| "write a number from 0 to 100".into())
}

/// Options of `report`.
#[derive(Args)]
pub(crate) struct Report {
    /// A name, a path, or `last`
    #[arg(value_name = "RECORD", default_value = "last")]
    pub(crate) record: String,
    /// The output file; by default, NAME.html in the working directory
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Compare it with this record
    #[arg(long, value_name = "RECORD")]
    pub(crate) against: Option<String>,
    #[command(flatten)]
    pub(crate) judging: Judging,
}
