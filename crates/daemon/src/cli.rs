//! The command line of `larderd`: its subcommands ("words"), their options, and the aliases known
//! from ccache and sccache.
//!
//! Unaware of: what a subcommand does.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::help;

mod as_json;
mod daemon;
mod image;
mod init;
mod record;
mod remote;
pub(crate) use as_json::AsJson;
pub(crate) use daemon::{Daemon, DaemonInstall, DaemonStart, DaemonWord, Serve};
pub(crate) use image::{
    ImageAttach, ImageBroker, ImageDrop, ImageExport, ImageFetch, ImageImport, ImageList, ImageLocate, ImageMount,
    ImagePreset, ImageRestore, ImageRun, ImageSave, ImageServe, ImageShow, ImageUnmount, ImageWanted, Images,
    ImagesWord, Limits, Policy, Preset, ViaFile,
};
pub(crate) use init::{BuildTool, Init};
pub(crate) use record::{
    CompareTwo, Form, Judging, OutputTo, RecordExport, RecordOptions, RecordWord, Records, Report, TraceWhen,
};
pub(crate) use remote::{Remotes, RemotesFlush, RemotesWord};

#[derive(Parser)]
#[command(name = "larder", version, about = "A build cache: reuses the result of a command if everything that the command relied on is unchanged", long_about = None)]
#[command(override_usage = help::USAGE, max_term_width = 110, subcommand_value_name = "SUBCOMMAND", subcommand_help_heading = "Subcommands")]
struct Cli {
    #[command(subcommand)]
    word: Word,
}

/// A subcommand and its options.
#[derive(Subcommand)]
pub(crate) enum Word {
    /// Show the counts of hits, misses, bypasses and fallbacks, and their reasons
    #[command(after_help = help::STATS)]
    Stats(Stats),
    /// Say whether a command would be a hit or a miss now, and why, without running it
    #[command(after_help = help::EXPLAIN)]
    Explain(Explain),
    /// Put larder in front of the build tools of this directory, after showing what changes
    #[command(after_help = help::INIT)]
    Init(Init),
    /// Check that larder works on this machine, and say how to fix what does not
    #[command(after_help = help::DOCTOR)]
    Doctor(Doctor),
    /// Show every setting, its value, and the source of the value
    #[command(after_help = help::CONFIG)]
    Config(AsJson),
    /// Remove the least recently used entries until the store is within its limit
    #[command(after_help = help::EVICT)]
    Evict(Evict),
    /// Verify every record and every byte in the store
    #[command(after_help = help::FSCK)]
    Fsck(Fsck),
    /// Remove everything from the store, without asking for confirmation
    #[command(after_help = help::CLEAR)]
    Clear,
    /// Start, stop or install larderd, which records for sandboxes that can only read the store
    #[command(after_help = help::DAEMON)]
    Daemon(Daemon),
    /// Check remotes, upload to them, download from them, or wait until all uploads are done
    #[command(after_help = help::REMOTE)]
    Remote(Remotes),
    /// Record a build: the machine and settings, every process, and the outcome of each command
    #[command(after_help = help::RECORD)]
    Record(Records),
    /// Compare two records: whether one is faster, and where the difference comes from
    #[command(after_help = help::COMPARE)]
    Compare(CompareTwo),
    /// Write an HTML page about a record
    #[command(after_help = help::REPORT)]
    Report(Report),
    /// Save directories under a key, and restore or mount them, here or on another machine
    #[command(after_help = help::IMAGE)]
    Image(Images),
    /// Run the daemon; `daemon start`, systemd and launchd start it
    #[command(hide = true, after_help = help::SERVE)]
    Serve(Serve),
    /// Hold back reads of a lazily mounted image until the data is there; larderd starts it
    #[command(hide = true, after_help = "Started with a socket as its standard input; not for people")]
    Gate {
        /// The command that starts a filler if none runs: directory, program, arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rescue: Vec<OsString>,
    },
    /// Cache any command as a whole, with all processes that it starts
    #[command(after_help = help::RUN)]
    Run(Run),
    /// Print completions for a shell
    #[command(after_help = help::COMPLETIONS)]
    Completions(Completions),
    /// Print or write man pages
    #[command(after_help = help::MAN)]
    Man(Man),
    /// Print larder's version
    #[command(after_help = "Example:\n  larder version")]
    Version,
}

/// Options of `stats`.
#[derive(Args)]
pub(crate) struct Stats {
    /// Print one JSON object, with the counts in integers
    #[arg(long)]
    pub(crate) json: bool,
    /// Set the counters to zero; with --json, print their previous values
    #[arg(long)]
    pub(crate) zero: bool,
    /// Show what a running build gets from the store, until you press Ctrl-C
    #[arg(long, conflicts_with_all = ["json", "zero", "last_build", "markdown"])]
    pub(crate) watch: bool,
    /// Show the last recorded build instead
    #[arg(long, conflicts_with = "zero")]
    pub(crate) last_build: bool,
    /// Print Markdown, for the summary of a CI job
    #[arg(long, requires = "last_build", conflicts_with = "json")]
    pub(crate) markdown: bool,
    /// Accepted for compatibility with `ccache -svv`. It has no effect, because everything is shown
    /// anyway.
    #[arg(short, long, hide = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// Options of `explain`.
#[derive(Args)]
pub(crate) struct Explain {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Add the details, and every fact that the record relies on
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Explain for a build whose output does not go to a terminal
    #[arg(long)]
    pub(crate) no_terminal: bool,
    /// Say why the last command that ran in this directory was a hit or not
    #[arg(long, conflicts_with_all = ["no_terminal", "last_build", "command"])]
    pub(crate) last: bool,
    /// Say why commands of the last recorded build were not hits, grouped by first cause
    #[arg(long, conflicts_with_all = ["verbose", "no_terminal", "command"])]
    pub(crate) last_build: bool,
    /// Print Markdown, for the summary of a CI job
    #[arg(long, requires = "last_build", conflicts_with = "json")]
    pub(crate) markdown: bool,
    /// The command, as the build runs it, or a file that a command wrote
    #[arg(
        required_unless_present_any = ["last", "last_build"],
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub(crate) command: Vec<OsString>,
}

/// Options of `doctor`.
#[derive(Args)]
pub(crate) struct Doctor {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Only try the mount methods in this directory, in a mount namespace of its own; doctor starts
    /// this itself
    #[arg(long, hide = true, value_name = "DIR")]
    pub(crate) ways_in: Option<PathBuf>,
}

/// Options of `evict`.
#[derive(Args)]
pub(crate) struct Evict {
    /// The size to keep at most, such as 5G or 500 MB, instead of the configured limit
    #[arg(long, value_name = "SIZE", value_parser = larder_config::parse_size)]
    pub(crate) max_size: Option<u64>,
    /// Remove entries that were not used for this time plus one hour, such as 7d or 12h; also
    /// `larder --evict-older-than AGE`
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) older_than: Option<Duration>,
    /// Evict only images, by their own size and age limits
    #[arg(long)]
    pub(crate) images: bool,
    /// Print nothing; the wrapper starts this when the store exceeds its limit
    #[arg(long)]
    pub(crate) background: bool,
}

/// Options of `fsck`.
#[derive(Args)]
pub(crate) struct Fsck {
    /// Remove damaged entries, so that builds create them again
    #[arg(long)]
    pub(crate) repair: bool,
}

/// Options of `run`. They are declared only for `--help`, because the wrapper handles `run` itself.
#[derive(Args)]
pub(crate) struct Run {
    /// Include this variable in the key, although larder leaves it out, such as MAKEFLAGS; may be
    /// repeated
    #[arg(long, value_name = "NAME")]
    _env: Vec<OsString>,
    /// Leave this variable out of the key
    #[arg(long, value_name = "NAME")]
    _no_env: Vec<OsString>,
    /// Treat this file or directory as read, even if the command does not read it
    #[arg(long, value_name = "PATH")]
    _input: Vec<OsString>,
    /// Ignore accesses to this path and everything below it
    #[arg(long, value_name = "PATH")]
    _no_input: Vec<OsString>,
    /// Allow the command to write to this path and everything below it
    #[arg(long, value_name = "PATH")]
    _output: Vec<OsString>,
    /// If standard input is a terminal, give the command an empty input instead, because a command
    /// that read from a terminal is not recorded
    #[arg(long)]
    _no_terminal: bool,
    /// The command
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    _command: Vec<OsString>,
}

/// Options of `completions`.
#[derive(Args)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: Shell,
}

/// The shells that `completions` supports.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Shell {
    /// GNU Bash
    Bash,
    /// Z shell
    Zsh,
    /// Fish
    Fish,
}

/// Options of `man`.
#[derive(Args)]
pub(crate) struct Man {
    /// The subcommand whose page is printed, such as `stats` or `remote check`; without it,
    /// larder's own page
    pub(crate) word: Vec<String>,
    /// Write all pages into this directory
    #[arg(long, value_name = "DIR", conflicts_with = "word")]
    pub(crate) dir: Option<PathBuf>,
}

/// Parses a duration in jiff's format, for example `7d`, `12h` or `1h 30m`. A day has 24 hours.
fn age(text: &str) -> Result<Duration, String> {
    let span: jiff::Span = text.parse().map_err(|_| "write a time such as 7d, 12h or 90m".to_owned())?;
    let length = span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).map_err(|error| error.to_string())?;
    length.try_into().map_err(|_| "the time must be greater than zero".to_owned())
}

/// Options of ccache and sccache, each with the subcommand that does the same here.
const ALIASES: &[(&str, &[&str])] = &[
    ("--cleanup", &["evict"]),
    ("--clear", &["clear"]),
    ("--evict-older-than", &["evict", "--older-than"]),
    ("--show-config", &["config"]),
    ("--show-stats", &["stats"]),
    ("--zero-stats", &["stats", "--zero"]),
    ("-C", &["clear"]),
    ("-c", &["evict"]),
    ("-p", &["config"]),
    ("-s", &["stats"]),
    ("-z", &["stats", "--zero"]),
];

/// Options of ccache and sccache without an equivalent here, each with what to do instead.
const INSTEAD: &[(&str, &str)] = &[
    ("--config-path", "set LARDER_CONFIG to the file"),
    ("--debug-preprocessor-cache", "`larder explain --verbose -- COMMAND` shows what a record relies on"),
    ("--dir", "set LARDER_DIR to the directory"),
    ("--dist-auth", NO_DISTRIBUTION),
    ("--dist-status", NO_DISTRIBUTION),
    ("--evict-namespace", "there are no namespaces: `larder evict` takes sizes and ages"),
    ("--get-config", "`larder config` shows every setting"),
    ("--hash-file", "`larder explain --verbose -- COMMAND` shows what a record relies on"),
    ("--inspect", "`larder explain --verbose -- COMMAND` shows what a record relies on"),
    ("--max-files", "files are not limited; set max_size in larder.toml, or LARDER_MAX_SIZE"),
    ("--max-size", "set max_size in larder.toml, or LARDER_MAX_SIZE; see `larder help config`"),
    ("--package-toolchain", NO_DISTRIBUTION),
    ("--print-stats", "`larder stats --json` is for programs"),
    ("--recompress", NO_COMPRESSION),
    ("--set-config", "write it into larder.toml; see `larder help config`"),
    ("--show-adv-stats", "`larder stats` shows everything"),
    ("--show-compression", NO_COMPRESSION),
    ("--show-log-stats", "`larder record -- make`, then `larder stats --last-build`, shows one build"),
    ("--start-server", "larder needs no server except for sandboxes: see `larder help daemon`"),
    ("--stats-format", "`larder stats --json` is for programs"),
    ("--stop-server", "larder needs no server except for sandboxes: see `larder help daemon`"),
    ("--trim-dir", "larder deletes nothing on a remote: remove old files of a shared directory with `find`"),
    ("-F", "files are not limited; set max_size in larder.toml, or LARDER_MAX_SIZE"),
    ("-M", "set max_size in larder.toml, or LARDER_MAX_SIZE; see `larder help config`"),
    ("-X", NO_COMPRESSION),
    ("-d", "set LARDER_DIR to the directory"),
    ("-k", "`larder config` shows every setting"),
    ("-o", "write it into larder.toml; see `larder help config`"),
    ("-x", NO_COMPRESSION),
];

const NO_COMPRESSION: &str = "the store is not compressed: `larder stats` shows its size";
const NO_DISTRIBUTION: &str = "larder distributes no compiles";

/// Splits the arguments into one or several commands. For example, `-C -z` is two commands, as it
/// is for ccache.
pub(crate) fn commands(typed: Vec<OsString>) -> Vec<Vec<OsString>> {
    if typed.first().is_none_or(|first| meant_by(first).is_none() && letters(first).is_none()) {
        return vec![typed];
    }
    let mut commands: Vec<Vec<OsString>> = Vec::new();
    for argument in typed {
        for argument in letters(&argument).unwrap_or(vec![argument]) {
            match (meant_by(&argument), commands.last_mut()) {
                (Some(words), _) => commands.push(words.iter().map(OsString::from).collect()),
                (None, Some(command)) => command.push(argument),
                (None, None) => commands.push(vec![argument]),
            }
        }
    }
    commands
}

fn meant_by(argument: &OsString) -> Option<&'static [&'static str]> {
    ALIASES.iter().find(|(alias, _)| argument == alias).map(|(_, words)| *words)
}

/// Splits combined one-letter options: `-sz` becomes `-s` and `-z`.
fn letters(argument: &OsString) -> Option<Vec<OsString>> {
    let letters = argument.to_str()?.strip_prefix('-').filter(|letters| letters.len() > 1)?;
    let known = letters.chars().all(|letter| "Ccpsvz".contains(letter));
    known.then(|| letters.chars().map(|letter| OsString::from(format!("-{letter}"))).collect())
}

/// The whole command-line description, from which help, completions and man pages are made as well.
pub(crate) fn description() -> clap::Command {
    let command = <Cli as clap::CommandFactory>::command();
    command.after_help(help::top_short()).after_long_help(help::top_long())
}

/// Parses one command.
pub(crate) fn parse(arguments: Vec<OsString>) -> Result<Word, Usage> {
    if let Some(first) = arguments.first().and_then(|first| first.to_str()) {
        // Cuts the value off, as in `--max-size=5G` and `-M5G`.
        let short = first.get(..2).filter(|_| !first.starts_with("--"));
        let name = short.or(first.split('=').next()).unwrap_or(first);
        if let Some((_, instead)) = INSTEAD.iter().find(|(option, _)| *option == name) {
            return Err(Usage::Instead(format!("{name}: {instead}")));
        }
    }
    let bare = arguments.is_empty() || arguments == ["--"];
    let typed = if bare { vec!["help".into()] } else { arguments };
    let argv: Vec<OsString> = std::iter::once(OsString::from("larder")).chain(typed).collect();
    let command = description();
    let word = word_of(&command, &argv);
    let matches = command.try_get_matches_from(argv);
    let understood = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    understood.map(|cli| cli.word).map_err(|error| Usage::Clap(error, word))
}

/// Returns the subcommand that was typed, if it exists, such as `stats` or `image restore`.
fn word_of(command: &clap::Command, argv: &[OsString]) -> Option<String> {
    let found = |command: &clap::Command, at: usize| command.find_subcommand(argv.get(at)?).cloned();
    let word = found(command, 1)?;
    let below = found(&word, 2).map(|below| format!(" {}", below.get_name())).unwrap_or_default();
    Some(format!("{}{below}", word.get_name()))
}

/// Returns the names of the visible subcommands of a subcommand.
pub(crate) fn words_of(word: &str) -> Vec<String> {
    let command = description();
    let below = command.find_subcommand(word).into_iter().flat_map(clap::Command::get_subcommands);
    below.filter(|word| !word.is_hide_set()).map(|word| word.get_name().to_owned()).collect()
}

/// The reason why no subcommand runs: help was requested, or the arguments are wrong.
pub(crate) enum Usage {
    /// clap's error or help text, and the subcommand that it is about.
    Clap(clap::Error, Option<String>),
    /// A message about an option of another cache.
    Instead(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_is_sound() {
        description().debug_assert();
    }

    /// Subcommands with subcommands of their own have pages of their own, which list the options.
    #[test]
    fn the_reference_lists_every_subcommand() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md"));
        let page = page.expect("cannot read docs/commands.md");
        for word in description().get_subcommands().filter(|word| !word.is_hide_set()) {
            let name = word.get_name();
            let row = |line: &&str| line.starts_with('|') && line.contains(&format!("`larder {name}"));
            let rows: String = page.lines().filter(row).collect();
            assert!(!rows.is_empty(), "docs/commands.md has no row for `larder {name}`");
            let below = words_of(name);
            for below in &below {
                let is_named =
                    rows.contains(&format!("`{below}`")) || rows.contains(&format!("`larder {name} {below}"));
                assert!(is_named, "docs/commands.md does not name `larder {name} {below}`");
            }
            let options = word.get_arguments().filter(|option| below.is_empty() && !option.is_hide_set());
            for long in options.filter_map(clap::Arg::get_long) {
                assert!(page.contains(&format!("`--{long}")), "docs/commands.md does not name --{long} of {name}");
            }
        }
    }

    #[test]
    fn aliases() {
        let check = |typed: &str, expect: &[&str]| {
            let found = commands(typed.split(' ').map(OsString::from).collect());
            let found: Vec<String> =
                found.iter().map(|c| c.join(" ".as_ref()).into_string().expect("valid UTF-8")).collect();
            assert_eq!(found, expect, "{typed}");
        };
        check("-s", &["stats"]);
        check("-s --json", &["stats --json"]);
        check("-sv", &["stats -v"]);
        check("-Cz", &["clear", "stats --zero"]);
        check("--clear -z", &["clear", "stats --zero"]);
        check("-c --max-size 5G", &["evict --max-size 5G"]);
        check("--evict-older-than 7d", &["evict --older-than 7d"]);
        check("explain -s -c x.c", &["explain -s -c x.c"]);
        check("-x -s", &["-x -s"]);
        check("--help", &["--help"]);
    }

    #[test]
    fn options_of_others_say_what_to_do() {
        for typed in ["-x", "-X5", "-M5G", "--recompress=3", "--inspect", "--dist-status", "--stats-format=json"] {
            let parsed = parse(vec![typed.into(), "x".into()]);
            assert!(matches!(parsed, Err(Usage::Instead(line)) if line.contains(": ")), "{typed}");
        }
    }

    #[test]
    fn ages() {
        let check = |typed: &str, expect: Option<u64>| {
            assert_eq!(age(typed).ok().map(|age| age.as_secs()), expect, "{typed}");
        };
        check("7d", Some(7 * 86_400));
        check("2w", Some(14 * 86_400));
        check("12h", Some(43_200));
        check("1h 30m", Some(5_400));
        check("10s", Some(10));
        check("-1d", None);
        check("7", None);
        check("soon", None);
    }
}
