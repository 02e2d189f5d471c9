//! `larderd`: the subcommands for people, and the daemon. See `larder_daemon` for what it does.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    larder_daemon::main()
}
