//! The flow of a request: this module decides what happens next, and other modules do it.
//!
//! Unaware of: how each step is done.

use larder_lookup::{Answer, Known, Ourselves, Rejected, Request, Scope, ScopeError, Tool, ask, find, relocated};
use larder_model::{Bypass, Fallback, Manifest, Outcome};
use larder_observe::file_name;
use larder_spawn::{Command, Token};
use larder_store::{Effort, Stamps, Store, Turn};

use crate::account::{By, account};
use crate::caller::caller;
use crate::context::Context;
use crate::fetch::{self, Asking, Fetched, fetch};
use crate::hit::NotPlaced;
use crate::miss::{self, Ended, Why};
use crate::own_file::OWN_FILE;
use crate::start::{NOT_EXECUTABLE, NOT_FOUND, start};
use crate::turn::{self, Next, Waited};
use crate::typed::{Typed, understand};
use crate::{handover, hit, outer, token, warn, words};

/// The exit code for wrong options.
const USAGE: i32 = 2;
/// The exit code if some outputs are in place and others cannot be written.
const HALF_PLACED: i32 = 1;

/// Does what the arguments ask for. Returns the exit code.
pub fn run(arguments: Vec<Vec<u8>>) -> i32 {
    match understand(arguments) {
        Typed::Word(words) => words::answer(words),
        Typed::Tool { argv, masquerading, any_command } => wrap(argv, masquerading, any_command),
        Typed::Wrong(wrong) => not_an_option(&wrong),
    }
}

fn wrap(argv: Vec<Vec<u8>>, masquerading: bool, any_command: Option<Scope>) -> i32 {
    let Some(mut context) = Context::read() else { return without_context(argv) };
    let understand = if any_command.is_some() { Request::of_any_command } else { Request::new };
    context.place.scope = any_command.unwrap_or_default();
    let name = if masquerading { file_name(&argv[0]).to_vec() } else { argv[0].clone() };
    let path = context.place.variable(b"PATH");
    let Some(tool) = find(&name, path, &context.ourselves, masquerading) else {
        return not_a_tool(&context, argv, &name, masquerading);
    };
    let argv = with_first_argument(argv, &tool);
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
                account(&context, None, Outcome::Fallback(error.fallback()), By::tool(&argv[0]), &error.to_string());
                let command = Command::new(tool.path, argv, context.place.environment_block());
                return token::start_named(&context, &command, true);
            }
        },
    };
    warn::of_settings(&context, &store);
    if !larder_sys::standard_descriptors_open() {
        return untouched(&context, Some(&store), tool, argv, Outcome::Bypass(Bypass::ClosedDescriptor));
    }
    let stamps = Stamps::open(&store, !settings.read_only);
    let request = match understand(tool.clone(), argv.clone(), &context.place, &stamps) {
        Ok(request) => request,
        Err(reason) => return untouched(&context, Some(&store), tool, argv, Outcome::Bypass(reason)),
    };
    context.recorded(|recording| recording.key(&request));
    if request.is_kept_from_terminal && larder_sys::end_standard_input().is_err() {
        return untouched(&context, Some(&store), tool, argv, Outcome::Bypass(Bypass::StandardInput));
    }
    answer(&context, &store, &stamps, &request, SoFar::default())
}

/// Reports wrong options of `larder run`. Nothing is run, because we do not know what the caller
/// wants.
fn not_an_option(wrong: &ScopeError) -> i32 {
    let shown = |word: &[u8]| String::from_utf8_lossy(word).replace(char::is_control, "?");
    match wrong {
        ScopeError::Unknown(word) => eprintln!("larder: run: `{}`: unknown option", shown(word)),
        ScopeError::NoValue(name) => eprintln!("larder: run: `{}`: needs a value", shown(name)),
        ScopeError::Help => {}
    }
    eprintln!("larder: run: see `larder help run` for the options; put the command after `--`");
    USAGE
}

/// What has been done for a request before it is looked up again.
#[derive(Default)]
struct SoFar {
    /// We waited for another process that ran the same action.
    waited: Option<Waited>,
    /// A fetch from a remote ended.
    fetched: Option<Fetched>,
    /// The single-flight lock, on which other processes wait.
    turn: Option<Turn>,
    /// A job slot, already acquired.
    token: Option<Box<Token>>,
    /// The store's own records do not answer, and this process cannot write the store. So the
    /// records that other such processes handed over to `larderd` are asked next.
    handed_over: bool,
    /// The entries that do not hold, newest first, and how many parts of the manifest have been
    /// read for them.
    rejected: Vec<Rejected>,
    parts: u32,
}

/// Answers a request from the store, from a remote, or by running the tool. It calls itself to look
/// up again: in a further part of the manifest, in records that were handed over, once after
/// waiting for another process, and once after a fetch.
fn answer(context: &Context, store: &Store, stamps: &Stamps, request: &Request, so_far: SoFar) -> i32 {
    let SoFar { waited, fetched, turn, token, handed_over, mut rejected, parts } = so_far;
    let (mut trouble, mut known) = (None, Known::default());
    let settings = &context.loaded.settings;
    if !settings.recache {
        let file = match handed_over {
            false => store.read_manifest_start(&request.weak, !settings.read_only, parts),
            true => store.read_handed_over(&request.weak, !settings.read_only),
        };
        let is_part = file.as_ref().is_ok_and(|file| file.as_ref().is_some_and(|file| !file.whole));
        let decode = if is_part { Manifest::decode_start } else { Manifest::decode };
        match file.as_ref().map(|file| file.as_ref().map(|file| decode(&file.bytes))) {
            Ok(None) => context.recorded(|recording| recording.missed(request, store, &[])),
            Ok(Some(Ok(mut manifest))) if manifest.weak == request.weak => {
                manifest.keep_believed(&settings.remote_trust);
                let mut effort = Effort::default();
                let place = &context.place;
                let found = ask(&manifest, request, place, store, stamps, &mut rejected, &mut effort);
                context.phase("lookup");
                if let Some(Answer { set, result, rewritten, .. }) = found {
                    let result = relocated::apply(&result, &rewritten);
                    context.recorded(|recording| recording.result(&result));
                    if is_verified(settings.verify) && !settings.read_only {
                        let why = Why { verify: Some(result), ..Why::default() };
                        return ended(miss::run(context, store, stamps, request, why), context, store, stamps, request);
                    }
                    let before = outer::Before::of(&result, &request.roots);
                    let told = before.map(|before| set.whole().map(|set| (before, set))).transpose();
                    let told = told.map_err(|_| NotPlaced::ToolRuns(Fallback::Damaged));
                    match told.and_then(|told| Ok((told, hit::replay(store, stamps, request, &result)?))) {
                        Ok((told, code)) => {
                            context.phase("place");
                            if let Some((before, set)) = told {
                                outer::answered(&context.place, request, &set, &result, &before);
                            }
                            if file.as_ref().is_ok_and(|file| file.as_ref().is_some_and(|file| file.overdue)) {
                                handover::note_use(store, caller(settings), &request.weak);
                            }
                            waited.iter().for_each(|waited| waited.count(store));
                            fetched.iter().for_each(|fetched| fetched.count(store));
                            let detail = fetched.map(|fetched| fetched.words()).or(waited.map(|waited| waited.words()));
                            let detail = detail.unwrap_or_default();
                            account(context, Some(store), Outcome::Hit, By::request(request), &detail);
                            let _ = stamps.settle(store);
                            // Leave without dropping anything, because the kernel frees it all at
                            // once.
                            larder_sys::end_process(code as u8);
                        }
                        Err(NotPlaced::ToolRuns(cause)) => trouble = Some(cause),
                        Err(NotPlaced::Half) => {
                            outer::is_lost();
                            let outcome = Outcome::Fallback(Fallback::HalfPlaced);
                            account(context, Some(store), outcome, By::request(request), "");
                            return HALF_PLACED;
                        }
                    }
                } else if is_part {
                    let so_far = SoFar { waited, fetched, turn, token, handed_over, rejected, parts: parts + 1 };
                    return answer(context, store, stamps, request, so_far);
                }
                context.recorded(|recording| recording.missed(request, store, &rejected));
                known = Known::of(&manifest, &rejected);
            }
            Ok(Some(_)) if is_part => {
                let so_far = SoFar { waited, fetched, turn, token, handed_over, rejected, parts: parts + 1 };
                return answer(context, store, stamps, request, so_far);
            }
            Ok(Some(_)) => trouble = Some(Fallback::Damaged),
            Err(error) => trouble = Some(error.fallback()),
        }
    }
    if !settings.recache && !handed_over && trouble.is_none() && store.is_only_read() {
        let so_far = SoFar { waited, fetched, turn, token, handed_over: true, ..SoFar::default() };
        return answer(context, store, stamps, request, so_far);
    }
    let run = |why| ended(miss::run(context, store, stamps, request, why), context, store, stamps, request);
    if fetched.is_some() {
        return run(Why { trouble, turn, ..Why::default() });
    }
    if token.is_some() {
        return run(Why { trouble, token, ..Why::default() });
    }
    let other_ran = waited.is_some();
    let turn = match turn::take(context, store, stamps, request, &known, waited) {
        Next::LookAgain(waited) => {
            context.recorded(|recording| recording.after("wait", "waited"));
            return answer(context, store, stamps, request, SoFar { waited: Some(waited), ..SoFar::default() });
        }
        Next::Run(turn) => turn,
    };
    match fetch(Asking { context, store, stamps, request }, &known) {
        fetch::Next::LookAgain(fetched) => {
            context.recorded(|recording| recording.after("fetch", "fetched"));
            answer(context, store, stamps, request, SoFar { waited, fetched: Some(fetched), turn, ..SoFar::default() })
        }
        fetch::Next::Run(race) => {
            let other_runs = other_ran && turn.is_none();
            run(Why { trouble, turn, race, other_runs, ..Why::default() })
        }
    }
}

/// Continues after the tool has ended, or after a fetch made it unnecessary.
fn ended(end: Ended, context: &Context, store: &Store, stamps: &Stamps, request: &Request) -> i32 {
    match end {
        Ended::Code(code) => code,
        Ended::Overtaken(fetched, turn) => {
            context.recorded(|recording| recording.after("race", "raced"));
            answer(context, store, stamps, request, SoFar { fetched: Some(fetched), turn, ..SoFar::default() })
        }
        Ended::LookAgain(token) => {
            answer(context, store, stamps, request, SoFar { token: Some(token), ..SoFar::default() })
        }
    }
}

/// Returns true for a random one in `every` hits, which is then verified by a run of the tool
/// (`LARDER_VERIFY`).
fn is_verified(every: u64) -> bool {
    every > 0 && larder_sys::random_u64().is_multiple_of(every)
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
    account(context, store, outcome, By::tool(&argv[0]), "");
    let command = Command::new(tool.path, argv, context.place.environment_block());
    match outcome {
        Outcome::Bypass(Bypass::Disabled) => start(&command),
        // The process that writes our input may itself be waiting for a job slot, so we must not
        // wait for one.
        outcome => {
            let reads_others = outcome == Outcome::Bypass(Bypass::StandardInput) || names_a_pipe(&command.argv);
            token::start_named(context, &command, !reads_others)
        }
    }
}

/// `S_IFIFO`, shifted right by 12.
const PIPE_TYPE: u8 = 0o1;

/// Returns true if an argument names a pipe, as a shell's `<(…)` does.
fn names_a_pipe(argv: &[Vec<u8>]) -> bool {
    let starts = [&b"/dev/fd/"[..], b"/proc/self/fd/"];
    let is_pipe = |name: &Vec<u8>| {
        let is_kind = |look: larder_sys::Look| look.kind == larder_sys::Kind::Other(PIPE_TYPE);
        starts.iter().any(|start| name.starts_with(start)) || larder_sys::look_through(name).is_ok_and(is_kind)
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
    match larder_sys::look_through(name) {
        Ok(look) if name.contains(&b'/') => {
            let directory = look.kind == larder_sys::Kind::Directory;
            eprintln!("larder: {shown}: {}", if directory { "Is a directory" } else { "Permission denied" });
            NOT_EXECUTABLE
        }
        _ => {
            eprintln!(
                "larder: {shown}: command not found (searched PATH; see `larder help` for larder's own subcommands)"
            );
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
            eprintln!("larder: {}: command not found", String::from_utf8_lossy(&name));
            NOT_FOUND
        }
    }
}
