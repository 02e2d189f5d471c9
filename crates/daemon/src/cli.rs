//! What can be typed: the words, their options, and the aliases that people know from other caches.
//!
//! Unaware of: what a word does.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::help;

mod daemon;
mod image;
mod record;
mod remote;
pub(crate) use daemon::{Daemon, DaemonInstall, DaemonStart, DaemonStatus, DaemonWord, IDLE_S, Serve};
pub(crate) use image::{
    ImageAttach, ImageBroker, ImageDrop, ImageExport, ImageImport, ImageList, ImageMount, ImageRestore, ImageRun,
    ImageSave, ImageServe, ImageShow, ImageUnmount, ImageWanted, Images, ImagesWord, Policy, Via, ViaFile,
};
pub(crate) use record::{
    CompareTwo, Form, Judging, OutputTo, RecordExport, RecordOptions, RecordWord, Records, Report, TraceWhen,
};
pub(crate) use remote::{Remotes, RemotesCheck, RemotesFlush, RemotesWord};

#[derive(Parser)]
#[command(name = "larder", version, about = "A build cache: a result is used again when everything that it relied on is as it was", long_about = None)]
#[command(override_usage = help::USAGE, max_term_width = 110, subcommand_value_name = "WORD", subcommand_help_heading = "Words")]
struct Cli {
    #[command(subcommand)]
    word: Word,
}

/// A word and its options.
#[derive(Subcommand)]
pub(crate) enum Word {
    /// Show hits, misses, bypasses and fallbacks, and why
    #[command(after_help = help::STATS)]
    Stats(Stats),
    /// Say what would happen to a command now, hit or miss, and why; runs nothing
    #[command(after_help = help::EXPLAIN)]
    Explain(Explain),
    /// Check that larder can work here, and say what to do where it cannot
    #[command(after_help = help::DOCTOR)]
    Doctor(Doctor),
    /// Show every setting, its value and where that comes from
    #[command(after_help = help::CONFIG)]
    Config(Config),
    /// Remove the least recently used until the store is within its limit
    #[command(after_help = help::EVICT)]
    Evict(Evict),
    /// Verify every record and every byte in the store
    #[command(after_help = help::FSCK)]
    Fsck(Fsck),
    /// Remove everything from the store; asks no question
    #[command(after_help = help::CLEAR)]
    Clear,
    /// Start, stop, or install larderd, which records for sandboxes that may only read the store
    #[command(after_help = help::DAEMON)]
    Daemon(Daemon),
    /// Check remotes, send to them, fetch from them, wait until all is sent
    #[command(after_help = help::REMOTE)]
    Remote(Remotes),
    /// Record a build: what it was, every process, what became of each command
    #[command(after_help = help::RECORD)]
    Record(Records),
    /// Compare two records: is one faster, and where did the difference go
    #[command(after_help = help::COMPARE)]
    Compare(CompareTwo),
    /// Make a page of a record
    #[command(after_help = help::REPORT)]
    Report(Report),
    /// Save directories under a key, and have them again, here or elsewhere
    #[command(after_help = help::IMAGE)]
    Image(Images),
    /// What `daemon start`, systemd and launchd start
    #[command(hide = true, after_help = help::SERVE)]
    Serve(Serve),
    /// What holds reads of a lazily mounted image back; larderd starts it
    #[command(hide = true, after_help = "Started with a socket as its standard input; not for people")]
    Gate {
        /// How a filler is started if there is none: directory, program, arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rescue: Vec<OsString>,
    },
    /// Run any command through larder, also one whose name is a word
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
    /// Set the counters to zero; with --json, print what they were before
    #[arg(long)]
    pub(crate) zero: bool,
    /// Show the last build that was recorded instead
    #[arg(long, conflicts_with = "zero")]
    pub(crate) last_build: bool,
    /// Print Markdown, for the summary of a CI job
    #[arg(long, requires = "last_build", conflicts_with = "json")]
    pub(crate) markdown: bool,
    /// As in `ccache -svv`: everything is shown anyway.
    #[arg(short, long, hide = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// Options of `explain`.
#[derive(Args)]
pub(crate) struct Explain {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// List every fact that the record relies on
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Explain as for a build whose messages go to no terminal
    #[arg(long)]
    pub(crate) no_terminal: bool,
    /// Say why commands of the last build that was recorded were no hits, by first cause
    #[arg(long, conflicts_with_all = ["verbose", "no_terminal", "command"])]
    pub(crate) last_build: bool,
    /// Print Markdown, for the summary of a CI job
    #[arg(long, requires = "last_build", conflicts_with = "json")]
    pub(crate) markdown: bool,
    /// The command, as it is typed in the build
    #[arg(
        required_unless_present = "last_build",
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
    /// Only try the ways to mount images in this directory, among mounts of its own; doctor starts it
    #[arg(long, hide = true, value_name = "DIR")]
    pub(crate) ways_in: Option<PathBuf>,
}

/// Options of `config`.
#[derive(Args)]
pub(crate) struct Config {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `evict`.
#[derive(Args)]
pub(crate) struct Evict {
    /// Keep at most this much instead of what the settings say, such as 5G or 500 MB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) max_size: Option<u64>,
    /// Remove what was not used for so long (and an hour more), such as 7d or 12h; also as `larder --evict-older-than AGE`
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) older_than: Option<Duration>,
    /// Images alone: what is kept at most, and for how long, is theirs
    #[arg(long)]
    pub(crate) images: bool,
    /// Say nothing; the wrapper starts it so once the store has outgrown its limit
    #[arg(long)]
    pub(crate) background: bool,
}

/// Options of `fsck`.
#[derive(Args)]
pub(crate) struct Fsck {
    /// Remove what is damaged, so that it is made again
    #[arg(long)]
    pub(crate) repair: bool,
}

/// What `run` takes: for its help only, the wrapper does it.
#[derive(Args)]
pub(crate) struct Run {
    /// Key this variable, which is left out otherwise; may be given several times, as all of these
    #[arg(long, value_name = "NAME")]
    _env: Vec<OsString>,
    /// Leave this variable out of the key
    #[arg(long, value_name = "NAME")]
    _no_env: Vec<OsString>,
    /// Count this file or directory as read, whether the command reads it or not
    #[arg(long, value_name = "PATH")]
    _input: Vec<OsString>,
    /// Do not count what is at or below this path, whatever the command does with it
    #[arg(long, value_name = "PATH")]
    _no_input: Vec<OsString>,
    /// Let the command write at or below this path
    #[arg(long, value_name = "PATH")]
    _output: Vec<OsString>,
    /// Let the command find nothing to read on a terminal: one that may read there is not recorded
    #[arg(long)]
    _no_terminal: bool,
    /// The command
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    _command: Vec<OsString>,
}

/// Options of `completions`.
#[derive(Args)]
pub(crate) struct Completions {
    /// For which shell
    pub(crate) shell: Shell,
}

/// Shells that completions are made for.
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
    /// The word whose page is printed, such as `stats` or `remote check`; without it, the page of larder itself
    pub(crate) word: Vec<String>,
    /// Write all pages into this directory
    #[arg(long, value_name = "DIR", conflicts_with = "word")]
    pub(crate) dir: Option<PathBuf>,
}

fn size(text: &str) -> Result<u64, larder_config::NotASize> {
    larder_config::parse_size(text)
}

/// As jiff reads it: `7d`, `12h`, `1h 30m`; a day has 24 hours.
fn age(text: &str) -> Result<Duration, String> {
    let span: jiff::Span = text.parse().map_err(|_| "write a time such as 7d, 12h or 90m".to_owned())?;
    let length = span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).map_err(|error| error.to_string())?;
    length.try_into().map_err(|_| "a time back from now is meant, which is above zero".to_owned())
}

/// Options of ccache and sccache, and the words that do the same here.
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

/// Options of theirs that have no word here, and what to do instead.
const INSTEAD: &[(&str, &str)] = &[
    ("--config-path", "set LARDER_CONFIG to the file"),
    ("--dir", "set LARDER_DIR to the directory"),
    ("--get-config", "`larder config` shows every setting"),
    ("--max-files", "files are not limited; set max_size in larder.toml, or LARDER_MAX_SIZE"),
    ("--max-size", "set max_size in larder.toml, or LARDER_MAX_SIZE; see `larder help config`"),
    ("--print-stats", "`larder stats --json` is for programs"),
    ("--set-config", "write it into larder.toml; see `larder help config`"),
    ("--show-adv-stats", "`larder stats` shows everything"),
    ("--start-server", "larder needs no server but in sandboxes: see `larder help daemon`"),
    ("--stop-server", "larder needs no server but in sandboxes: see `larder help daemon`"),
    ("-F", "files are not limited; set max_size in larder.toml, or LARDER_MAX_SIZE"),
    ("-M", "set max_size in larder.toml, or LARDER_MAX_SIZE; see `larder help config`"),
    ("-d", "set LARDER_DIR to the directory"),
    ("-k", "`larder config` shows every setting"),
    ("-o", "write it into larder.toml; see `larder help config`"),
];

/// What was typed as one or several commands: `-C -z` are two, as they are for ccache.
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

/// `-sz` as `-s` and `-z`.
fn letters(argument: &OsString) -> Option<Vec<OsString>> {
    let letters = argument.to_str()?.strip_prefix('-').filter(|letters| letters.len() > 1)?;
    let known = letters.chars().all(|letter| "Ccpsvz".contains(letter));
    known.then(|| letters.chars().map(|letter| OsString::from(format!("-{letter}"))).collect())
}

/// The whole description, also for help, completions and man pages.
pub(crate) fn description() -> clap::Command {
    let command = <Cli as clap::CommandFactory>::command();
    command.after_help(help::top_short()).after_long_help(help::top_long())
}

/// Understand one command.
pub(crate) fn parse(arguments: Vec<OsString>) -> Result<Word, Usage> {
    if let Some(first) = arguments.first().and_then(|first| first.to_str()) {
        // As in `--max-size=5G` and `-M5G`.
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

/// The word that was typed, if it is one.
fn word_of(command: &clap::Command, argv: &[OsString]) -> Option<String> {
    let word = argv.get(1)?.to_str()?;
    command.find_subcommand(word).map(|word| word.get_name().to_owned())
}

/// The words that may follow a word.
pub(crate) fn words_of(word: &str) -> Vec<String> {
    let command = description();
    let below = command.find_subcommand(word).into_iter().flat_map(clap::Command::get_subcommands);
    below.filter(|word| !word.is_hide_set()).map(|word| word.get_name().to_owned()).collect()
}

/// Why there is nothing to do: help was asked for, or what was typed cannot be understood.
pub(crate) enum Usage {
    /// In clap's words, and of which word it is.
    Clap(clap::Error, Option<String>),
    /// An option of another cache.
    Instead(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_is_sound() {
        description().debug_assert();
    }

    #[test]
    fn aliases() {
        let check = |typed: &str, expect: &[&str]| {
            let found = commands(typed.split(' ').map(OsString::from).collect());
            let found: Vec<String> =
                found.iter().map(|c| c.join(" ".as_ref()).into_string().expect("is text")).collect();
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
