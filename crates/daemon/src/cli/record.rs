//! What can be typed about records.
//!
//! Unaware of: what is done then.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// What `record` takes: a command after `--`, or a word.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_value_name = "WORD")]
pub(crate) struct Records {
    #[command(subcommand)]
    pub(crate) word: Option<RecordWord>,
    #[command(flatten)]
    pub(crate) options: RecordOptions,
}

/// What is done with records that there are.
#[derive(Subcommand)]
pub(crate) enum RecordWord {
    /// Show a record: how its runs ended, and why commands were no hits
    Show(RecordShow),
    /// List the records that there are, the oldest first
    List,
    /// Write a record in another form
    Export(RecordExport),
}

/// Options of `record`.
#[derive(Args)]
pub(crate) struct RecordOptions {
    /// Take the time of so many runs; with more than one, one more is followed
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) runs: u32,
    /// Call the record so; without it, after the command
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Run this by a shell before each run; its time does not count
    #[arg(long, value_name = "COMMAND")]
    pub(crate) prepare: Option<String>,
    /// Run with one configuration file and with another in turn, and record both
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    pub(crate) ab: Option<Vec<PathBuf>>,
    /// Run one command and another in turn, each by a shell, and record both: other flags, another larder
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["ab", "command"])]
    pub(crate) ab_commands: Option<Vec<OsString>>,
    /// Which runs are followed, process by process
    #[arg(long, value_name = "WHEN", default_value = "once")]
    pub(crate) trace: TraceWhen,
    /// Where the command's messages go: shown by default for one run, kept in the record for more
    #[arg(long, value_name = "WHERE")]
    pub(crate) output: Option<OutputTo>,
    /// Sample stacks so often a second in the run that is followed, by perf
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) sample: Option<u32>,
    /// Count commits from this revision
    #[arg(long, value_name = "REVISION")]
    pub(crate) base: Option<String>,
    /// Put the record into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Put the record into one file, NAME.tar.zst
    #[arg(long)]
    pub(crate) pack: bool,
    /// Go on after a run that failed
    #[arg(long)]
    pub(crate) keep_going: bool,
    /// The command
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Which runs are followed.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum TraceWhen {
    /// The only run, or one more after several
    Once,
    /// Every run
    All,
    /// None
    Never,
}

/// Where messages go.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputTo {
    /// To the caller
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
    /// In which form
    #[arg(long = "as", value_name = "FORM")]
    pub(crate) form: Form,
    /// Where to; without it, to standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Forms of a record.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// A trace that ui.perfetto.dev opens
    Perfetto,
    /// Chrome's trace events
    Chrome,
    /// A summary for CI
    Markdown,
    /// Everything, for programs
    Json,
    /// The record in one file
    Archive,
}

/// Options of `compare`.
#[derive(Args)]
pub(crate) struct CompareTwo {
    /// A name, a path, or `last`
    #[arg(value_name = "A")]
    pub(crate) a: String,
    /// What is compared with it
    #[arg(value_name = "B")]
    pub(crate) b: String,
    #[command(flatten)]
    pub(crate) judging: Judging,
    /// Exit with 1 when B takes longer
    #[arg(long)]
    pub(crate) check: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Print Markdown, for the summary of a CI job
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,
}

/// What a verdict takes for the same.
#[derive(Args)]
pub(crate) struct Judging {
    /// A difference of so many per cent is none
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = percent)]
    pub(crate) margin: f64,
    /// This is meant to differ: machine, tools, project
    #[arg(long, value_name = "PART")]
    pub(crate) expect: Vec<String>,
    /// Give a verdict whatever differs
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
    /// Where to; without it, NAME.html in the working directory
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Compare it with this record
    #[arg(long, value_name = "RECORD")]
    pub(crate) against: Option<String>,
    #[command(flatten)]
    pub(crate) judging: Judging,
}
