//! `larderd`: the words for people, and the daemon that records for sandboxes. The wrapper executes it in its own place
//! for `larder stats` and the like, as `argv[0]` = `larder`, with `LARDER_WRAPPER` naming the wrapper's real file.
//!
//! | file | holds |
//! |---|---|
//! | `cli.rs` | what can be typed: words, options, aliases that other caches use |
//! | `help.rs` | what help says beyond that: examples, variables, keys |
//! | `surroundings.rs` | environment and configuration, read once |
//! | `say.rs` | text for people: sizes, durations, names without control characters, one-line errors |
//! | `words/` | a file a word |
//! | `serve/` | taking what wrappers hand over that cannot write to the store |
//! | `remote/` | remotes: fetching for wrappers, sending what they recorded |
//! | `units.rs` | files for systemd and launchd |
//! | `allocator.rs` | another allocator, where a feature asks for one |
//!
//! Nothing here decides what a build gets: all of it can be missing, and builds go on.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod allocator;
#[cfg(target_os = "linux")]
mod cli;
#[cfg(target_os = "linux")]
mod help;
#[cfg(target_os = "linux")]
mod remote;
#[cfg(target_os = "linux")]
mod say;
#[cfg(target_os = "linux")]
mod serve;
#[cfg(target_os = "linux")]
mod surroundings;
#[cfg(target_os = "linux")]
mod units;
#[cfg(target_os = "linux")]
mod words;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    let mut code = 0;
    for arguments in cli::commands(std::env::args_os().skip(1).collect()) {
        code = match cli::parse(arguments) {
            Ok(word) => say::ended(answer(word)),
            Err(usage) => say::usage(&usage),
        };
        if code != 0 {
            break;
        }
    }
    code.into()
}

/// Do what the word asks for, and return the exit code.
#[cfg(target_os = "linux")]
fn answer(word: cli::Word) -> anyhow::Result<u8> {
    use cli::Word;
    let around = surroundings::Surroundings::read();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let code = match word {
        Word::Stats(options) => words::stats::run(&around, &options, &mut out),
        Word::Explain(options) => words::explain::run(&around, options, &mut out),
        Word::Doctor(options) => words::doctor::run(&around, &options, &mut out),
        Word::Config(options) => words::config::run(&around, &options, &mut out),
        Word::Evict(options) => words::evict::run(&around, &options, &mut out),
        Word::Fsck(options) => words::fsck::run(&around, &options, &mut out),
        Word::Clear => words::clear::run(&around, &mut out),
        Word::Daemon(options) => words::daemon::run(&around, &options, &mut out),
        Word::Remote(options) => words::remote::run(&around, &options, &mut out),
        Word::Record(options) => words::record::run(&around, options, &mut out),
        Word::Compare(options) => words::compare::run(&around, &options, &mut out),
        Word::Report(options) => words::report::run(&around, &options, &mut out),
        Word::Image(options) => words::image::run(&around, &options, &mut out),
        Word::Serve(options) => serve::run(&around, &options),
        Word::Gate { rescue } => words::gate::run(rescue),
        Word::Run(_) => words::run::run(&around),
        Word::Completions(options) => words::completions::run(&options, &mut out),
        Word::Man(options) => words::man::run(&options, &mut out),
        Word::Version => words::version::run(&mut out),
    }?;
    std::io::Write::flush(&mut out)?;
    Ok(code)
}

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    eprintln!("larder: not on this platform yet: tools run untouched, and there is nothing to show");
    std::process::ExitCode::FAILURE
}
