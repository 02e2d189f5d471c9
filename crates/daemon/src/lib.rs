//! `larderd`: the subcommands for people, and the daemon that records for sandboxes and talks to
//! remotes. For subcommands such as `larder stats`, the wrapper executes `larderd` with `argv[0]` =
//! `larder` and `LARDER_WRAPPER` set to the path of the wrapper's real file.
//!
//! | file | holds |
//! |---|---|
//! | `cli.rs` | the command line: subcommands, options, aliases from other caches |
//! | `help.rs` | the rest of the help: examples, variables, configuration keys |
//! | `surroundings.rs` | environment and configuration, read once |
//! | `say.rs` | output for people: sizes, durations, escaped paths, one-line errors |
//! | `commands/` | one file per subcommand |
//! | `serve/` | the daemon: it records for wrappers that cannot write to the store |
//! | `remote/` | remotes: downloads for wrappers, uploads of their records |
//! | `units.rs` | unit files for systemd and launchd |
//!
//! Nothing here decides what a build gets: builds go on even if `larderd` is not installed.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod cli;
#[cfg(target_os = "linux")]
mod commands;
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

/// Runs the command line of this process, and returns its exit code.
#[cfg(target_os = "linux")]
pub fn main() -> std::process::ExitCode {
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

/// Runs a subcommand and returns its exit code.
#[cfg(target_os = "linux")]
fn answer(word: cli::Word) -> anyhow::Result<u8> {
    use cli::Word;
    let around = surroundings::Surroundings::read();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let code = match word {
        Word::Stats(options) => commands::stats::run(&around, &options, &mut out),
        Word::Explain(options) => commands::explain::run(&around, options, &mut out),
        Word::Init(options) => commands::init::run(&around, &options, &mut out),
        Word::Doctor(options) => commands::doctor::run(&around, &options, &mut out),
        Word::Config(options) => commands::config::run(&around, &options, &mut out),
        Word::Evict(options) => commands::evict::run(&around, &options, &mut out),
        Word::Fsck(options) => commands::fsck::run(&around, &options, &mut out),
        Word::Clear => commands::clear::run(&around, &mut out),
        Word::Daemon(options) => commands::daemon::run(&around, &options, &mut out),
        Word::Remote(options) => commands::remote::run(&around, &options, &mut out),
        Word::Record(options) => commands::record::run(&around, options, &mut out),
        Word::Compare(options) => commands::compare::run(&around, &options, &mut out),
        Word::Report(options) => commands::report::run(&around, &options, &mut out),
        Word::Image(options) => commands::image::run(&around, &options, &mut out),
        Word::Serve(options) => serve::run(&around, &options),
        Word::Gate { rescue } => commands::gate::run(rescue),
        Word::Run(_) => commands::run::run(&around),
        Word::Completions(options) => commands::completions::run(&options, &mut out),
        Word::Man(options) => commands::man::run(&options, &mut out),
        Word::Version => commands::version::run(&mut out),
    }?;
    std::io::Write::flush(&mut out)?;
    Ok(code)
}

/// Says that there is nothing to run on this platform.
#[cfg(not(target_os = "linux"))]
pub fn main() -> std::process::ExitCode {
    eprintln!("larder: this platform is not supported yet: tools run without caching, so there is nothing to show");
    std::process::ExitCode::FAILURE
}
