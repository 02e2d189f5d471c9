//! A request: from the arguments to the tool and its key. Then `flow` answers it, and `miss` runs
//! the tool if no record does.
//!
//! Unaware of: how each step is done.

mod by_text;
mod flow;
mod miss;

use larder_lookup::{Ourselves, Place, Request, Scope, ScopeError, Tool, find, remapped};
use larder_model::path::file_name;
use larder_model::{Bypass, Fallback, Outcome};
use larder_spawn::Command;
use larder_store::{StatCache, Store};

use crate::args::{Args, parse};
use crate::context::Context;
use crate::own_file::OWN_FILE;
use crate::request_context::RequestContext;
use crate::run::start::{NOT_EXECUTABLE, NOT_FOUND, start};
use crate::run::{job_slot, parent_run};
use crate::say::say;
use crate::stats::{By, report};
use crate::{build_script, commands, suggest, warn};

/// The exit code for wrong options.
const USAGE: i32 = 2;
/// Does what the arguments ask for. Returns the exit code.
pub fn run(arguments: Vec<Vec<u8>>) -> i32 {
    match parse(arguments) {
        Args::Subcommand(words) => {
            commands::report_question(&words);
            commands::answer(words)
        }
        Args::Tool { argv, any_command: Some(scope), .. } => wrap(argv, Called::ByRun(scope)),
        Args::Tool { argv, masquerading: true, .. } => wrap(argv, Called::Masquerading),
        Args::Tool { argv, .. } => wrap(argv, Called::Named),
        Args::BuildScript(argv) => run_build_script(argv),
        Args::Wrong(wrong) => not_an_option(&wrong),
    }
}

/// Makes a request of a command line.
type MakeRequest = fn(Tool, Vec<Vec<u8>>, &Place, &StatCache) -> Result<Request, Bypass>;

/// How larder was called for a tool.
enum Called {
    /// By the name of the tool, as in `larder gcc`.
    Named,
    /// Under the name of the tool, through a link.
    Masquerading,
    /// By `larder run` with these options.
    ByRun(Scope),
    /// By the launcher of a build script, which is this program.
    ByLauncher(Vec<u8>),
}

/// Runs the build script whose launcher is `argv[0]`.
fn run_build_script(argv: Vec<Vec<u8>>) -> i32 {
    let launcher = String::from_utf8_lossy(&argv[0]).into_owned();
    match build_script::program_of(&argv[0]) {
        Ok(program) if larder_sys::stat(&program).is_ok() => wrap(argv, Called::ByLauncher(program)),
        Ok(program) => {
            let program = String::from_utf8_lossy(&program);
            say(&format!("{program}: is missing, and {launcher} would start it; run `cargo clean` and build again"));
            NOT_FOUND
        }
        Err(error) => {
            say(&format!("{launcher}: {error}"));
            NOT_EXECUTABLE
        }
    }
}

fn wrap(argv: Vec<Vec<u8>>, called: Called) -> i32 {
    let Some(mut context) = Context::read(parent_run::find) else {
        return match called {
            Called::ByLauncher(program) => start(&Command::new(program, argv, environment_block())),
            _ => without_context(argv),
        };
    };
    context.is_asked_by_a_person = matches!(called, Called::ByRun(_))
        && !context.loaded.settings.quiet
        && !parent_run::is_around()
        && context.place.destinations.stderr.is_some();
    let masquerading = matches!(called, Called::Masquerading);
    let (request, name): (MakeRequest, Vec<u8>) = match called {
        Called::Named => (Request::new, argv[0].clone()),
        Called::Masquerading => (Request::new, file_name(&argv[0]).to_vec()),
        Called::ByRun(scope) => {
            context.place.scope = scope;
            (Request::of_any_command, argv[0].clone())
        }
        Called::ByLauncher(program) => {
            let settings = &context.loaded.settings;
            // A run that contains this one observes the program itself.
            if !settings.run_build_scripts || settings.disable || parent_run::is_around() {
                parent_run::reads(&argv[0]);
                return start(&Command::new(program, argv, context.place.environment_block()));
            }
            context.place.scope.outputs.extend(context.place.variable(b"OUT_DIR").map(<[u8]>::to_vec));
            (Request::of_build_script, program)
        }
    };
    let path = context.place.variable(b"PATH");
    let Some(tool) = find(&name, path, &context.ourselves, masquerading) else {
        return not_a_tool(&context, argv, &name, masquerading);
    };
    let argv = with_first_argument(argv, &tool);
    let argv = if context.loaded.settings.disable { argv } else { remapped(argv, &tool, &context.place) };
    run_the_tool_on_panic(&tool, &argv);
    let settings = &context.loaded.settings;
    if larder_sys::file_size_is_limited() {
        return untouched(&context, None, tool, argv, Outcome::Bypass(Bypass::Limited));
    }
    if settings.disable {
        return untouched(&context, None, tool, argv, Outcome::Bypass(Bypass::Disabled));
    }
    let store = match &settings.dir {
        None => return untouched(&context, None, tool, argv, Outcome::Fallback(Fallback::NoStore)),
        Some(dir) => match Store::open(dir) {
            Ok(store) => store,
            Err(error) => {
                report(&context, None, Outcome::Fallback(error.fallback()), By::tool(&argv[0]), &error.to_string());
                let command = Command::new(tool.path, argv, context.place.environment_block());
                return job_slot::start_named(&context, &command, true);
            }
        },
    };
    warn::of_settings(&context, &store);
    if !larder_sys::standard_descriptors_open() {
        return untouched(&context, Some(&store), tool, argv, Outcome::Bypass(Bypass::ClosedDescriptor));
    }
    let stat_cache = StatCache::open(&store, !settings.read_only);
    let request = match request(tool.clone(), argv.clone(), &context.place, &stat_cache) {
        Ok(request) => request,
        Err(reason) => {
            let outcome = Outcome::Bypass(reason);
            if reason == Bypass::UnknownTool && !masquerading {
                let command = Command::new(tool.path.clone(), argv.clone(), Vec::new());
                if let Some(code) = suggest::run_mistyped(&name, &command) {
                    report(&context, Some(&store), outcome, By::tool(&argv[0]), "");
                    return code;
                }
            }
            return untouched(&context, Some(&store), tool, argv, outcome);
        }
    };
    context.recorded(|recording| recording.key(&request));
    if request.is_kept_from_terminal && larder_sys::end_standard_input().is_err() {
        return untouched(&context, Some(&store), tool, argv, Outcome::Bypass(Bypass::StandardInput));
    }
    flow::answer(RequestContext { context: &context, store: &store, stat_cache: &stat_cache, request: &request })
}

/// Reports wrong options of `larder run`. Nothing is run, because we do not know what the caller
/// wants.
fn not_an_option(wrong: &ScopeError) -> i32 {
    let shown = String::from_utf8_lossy;
    match wrong {
        ScopeError::Unknown(word) => say(&format!("run: `{}`: unknown option", shown(word))),
        ScopeError::NoValue(name) => say(&format!("run: `{}`: needs a value", shown(name))),
        ScopeError::Help => {}
    }
    eprintln!("larder: run: see `larder help run` for the options; put the command after `--`");
    USAGE
}

/// Makes a panic run the tool, because a bug in larder must not fail a build. In force until the
/// tool has run.
fn run_the_tool_on_panic(tool: &Tool, argv: &[Vec<u8>]) {
    let (program, argv) = (tool.path.clone(), argv.to_vec());
    std::panic::set_hook(Box::new(move |_| {
        let command = Command::new(program.clone(), argv.clone(), environment_block());
        larder_sys::end_process(start(&command) as u8);
    }));
}

fn environment_block() -> Vec<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    std::env::vars_os().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat()).collect()
}

fn with_first_argument(mut argv: Vec<Vec<u8>>, tool: &Tool) -> Vec<Vec<u8>> {
    argv[0] = tool.first_argument(&argv[0]);
    argv
}

/// Counts the outcome and becomes the tool.
fn untouched(context: &Context, store: Option<&Store>, tool: Tool, argv: Vec<Vec<u8>>, outcome: Outcome) -> i32 {
    report(context, store, outcome, By::tool(&argv[0]), "");
    let command = Command::new(tool.path, argv, context.place.environment_block());
    match outcome {
        Outcome::Bypass(Bypass::Disabled) => start(&command),
        // The process that writes our input may itself be waiting for a job slot, so we must not
        // wait for one.
        outcome => {
            let reads_others = outcome == Outcome::Bypass(Bypass::StandardInput) || names_a_pipe(&command.argv);
            job_slot::start_named(context, &command, !reads_others)
        }
    }
}

/// `S_IFIFO`, shifted right by 12.
const PIPE_TYPE: u8 = 0o1;

/// Returns true if an argument names a pipe, as a shell's `<(…)` does.
fn names_a_pipe(argv: &[Vec<u8>]) -> bool {
    let starts = [&b"/dev/fd/"[..], b"/proc/self/fd/"];
    let is_pipe = |name: &Vec<u8>| {
        let is_kind = |stat: larder_sys::Stat| stat.kind == larder_sys::FileType::Other(PIPE_TYPE);
        starts.iter().any(|start| name.starts_with(start)) || larder_sys::stat(name).is_ok_and(is_kind)
    };
    argv.iter().skip(1).filter(|argument| !argument.starts_with(b"-")).any(is_pipe)
}

/// Handles a name that is no other program. It may be larder itself, as in `larder larder gcc`:
/// then the inner command is run.
fn not_a_tool(context: &Context, argv: Vec<Vec<u8>>, name: &[u8], masquerading: bool) -> i32 {
    let found = find(name, context.place.variable(b"PATH"), &Ourselves::at("/nonexistent".as_ref()), false);
    if !masquerading && found.is_some_and(|tool| context.ourselves.is(&tool)) {
        return run(argv);
    }
    let shown = String::from_utf8_lossy(name).into_owned();
    match larder_sys::stat(name) {
        Ok(stat) if name.contains(&b'/') => {
            let directory = stat.kind == larder_sys::FileType::Directory;
            say(&format!("{shown}: {}", if directory { "Is a directory" } else { "Permission denied" }));
            NOT_EXECUTABLE
        }
        _ => {
            let hint = match suggest::near(name) {
                _ if masquerading => {
                    "PATH has only links to larder with this name: install the tool, or put its directory in PATH"
                        .to_owned()
                }
                Some(meant) => format!("did you mean `larder {meant}`?"),
                None => "searched PATH; see `larder help` for larder's own subcommands".to_owned(),
            };
            say(&format!("{shown}: command not found ({hint})"));
            NOT_FOUND
        }
    }
}

/// Runs the tool as a shell would, because without a working directory no key can be made.
fn without_context(argv: Vec<Vec<u8>>) -> i32 {
    use std::os::unix::ffi::OsStrExt;
    let environment = environment_block();
    let path = std::env::var_os("PATH");
    let ourselves = Ourselves::at(OWN_FILE.as_ref());
    let name = file_name(&argv[0]).to_vec();
    let name =
        if argv[0].contains(&b'/') && !larder_compiler::is_masquerade_name(&name) { argv[0].clone() } else { name };
    match find(&name, path.as_ref().map(|p| p.as_bytes()), &ourselves, true) {
        Some(tool) => start(&Command::new(tool.path.clone(), with_first_argument(argv, &tool), environment)),
        None => {
            say(&format!("{}: command not found", String::from_utf8_lossy(&name)));
            NOT_FOUND
        }
    }
}
