//! The state machine of a request. [`State`] lists the states, and [`step`] does what a state asks
//! for and returns the next one:
//!
//! ```text
//! start ──► LookUp ──► ShareRun ──► Fetch ──► Run ──► Exit
//! ```
//!
//! - A hit ends the process in `LookUp`.
//! - `LookUp` repeats itself for a further part of the manifest, and for records that were handed
//!   over.
//! - `ShareRun`, `Fetch` and `Run` go back to `LookUp` if the result may be in the store by now: we
//!   waited for another process, a fetch ended, or the job slot came late.
//! - `Run` first tries to answer by the preprocessed text, if only headers have changed (`by_text`).
//! - After a fetch, or with a job slot, `LookUp` goes to `Run` directly. So no request waits or
//!   fetches for ever.
//!
//! Unaware of: how each step is done.

use larder_lookup::{Answer, EarlierRecords, Rejected, ask, relocated};
use larder_model::{ActionResult, Fallback, Manifest, Outcome, SetReader};
use larder_spawn::Token;
use larder_store::{Effort, ManifestFile, Turn};

use super::by_text;
use super::miss::{self, RunEnd, RunReason};
use crate::build_script;
use crate::caller::caller;
use crate::fetch::{self, Fetched, fetch};
use crate::hit::{self, NotPlaced};
use crate::recorder::daemon_record;
use crate::recording::cause;
use crate::request_context::RequestContext;
use crate::run::parent_run;
use crate::run::single_flight::{self, Waited};
use crate::stats::{By, Hit, report, report_hit};

/// The exit code if some outputs are in place and others cannot be written.
const HALF_PLACED: i32 = 1;

/// What is done next for a request.
#[allow(clippy::large_enum_variant, reason = "there is one at a time, and a box would cost an allocation")]
pub(super) enum State<'a> {
    /// Look the request up in the store. If a record answers, put its result in place.
    LookUp(LookUp),
    /// No record answers. Take the single-flight lock, or wait for the process that holds it.
    ShareRun(Unanswered),
    /// Fetch the result from a remote.
    Fetch(Unanswered, Option<Turn>),
    /// Run the tool and record its result.
    Run(RunReason<'static, 'a>),
    /// Exit with this code.
    Exit(i32),
}

/// A lookup, and what has been done for the request before it.
#[derive(Default)]
pub(super) struct LookUp {
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

/// What is known about a request that no record answers.
pub(super) struct Unanswered {
    /// A record existed but could not be used, for this reason.
    trouble: Option<Fallback>,
    known: EarlierRecords,
    waited: Option<Waited>,
}

/// Answers a request from the store, from a remote, or by running the tool. Returns the exit code.
pub(super) fn answer(cx: RequestContext) -> i32 {
    let mut state = State::LookUp(LookUp::default());
    loop {
        state = match state {
            State::Exit(code) => return code,
            state => step(cx, state),
        };
    }
}

/// Does what the state asks for, and returns the next state.
fn step<'a>(cx: RequestContext<'a>, state: State<'a>) -> State<'a> {
    match state {
        State::LookUp(lookup) => look_up(cx, lookup),
        State::ShareRun(unanswered) => match single_flight::take(cx, &unanswered.known, unanswered.waited) {
            single_flight::Next::LookAgain(waited) => {
                cx.context.recorded(|recording| recording.after("wait", "waited"));
                State::LookUp(LookUp { waited: Some(waited), ..LookUp::default() })
            }
            single_flight::Next::Run(turn) => State::Fetch(unanswered, turn),
        },
        State::Fetch(Unanswered { trouble, known, waited }, turn) => match fetch(cx, &known) {
            fetch::Next::LookAgain(fetched) => {
                cx.context.recorded(|recording| recording.after("fetch", "fetched"));
                State::LookUp(LookUp { waited, fetched: Some(fetched), turn, ..LookUp::default() })
            }
            fetch::Next::Run(race) => {
                let other_runs = waited.is_some() && turn.is_none();
                State::Run(RunReason { trouble, turn, race, other_runs, ..RunReason::default() })
            }
        },
        State::Run(mut reason) => {
            match by_text::answer(cx, &mut reason) {
                Ok(()) => {}
                Err(NotPlaced::ToolRuns(cause)) => reason.trouble = Some(cause),
                Err(NotPlaced::Half) => return half_placed(cx),
            }
            after_run(cx, miss::run(cx, reason))
        }
        State::Exit(code) => State::Exit(code),
    }
}

/// Returns the state after the tool has ended, or after a fetch made it unnecessary.
fn after_run<'a>(cx: RequestContext, end: RunEnd) -> State<'a> {
    match end {
        RunEnd::Code(code) => State::Exit(code),
        RunEnd::Overtaken(fetched, turn) => {
            cx.context.recorded(|recording| recording.after("race", "raced"));
            State::LookUp(LookUp { fetched: Some(fetched), turn, ..LookUp::default() })
        }
        RunEnd::LookAgain(token) => State::LookUp(LookUp { token: Some(token), ..LookUp::default() }),
    }
}

/// Looks the request up in one part of its manifest, and answers it if an entry holds.
fn look_up<'a>(cx: RequestContext, mut lookup: LookUp) -> State<'a> {
    let RequestContext { context, store, stat_cache, request } = cx;
    let settings = &context.loaded.settings;
    if settings.recache {
        return not_found(cx, lookup, None, EarlierRecords::default());
    }
    let file = match lookup.handed_over {
        false => store.read_manifest_start(&request.weak, !settings.read_only, lookup.parts),
        true => store.read_handed_over(&request.weak, !settings.read_only),
    };
    let is_part = matches!(&file, Ok(Some(ManifestFile { whole: false, .. })));
    let decode = if is_part { Manifest::decode_start } else { Manifest::decode };
    match file.as_ref().map(|file| file.as_ref().map(|file| (file, decode(&file.bytes)))) {
        Ok(None) => {
            note_cause(cx, &[]);
            not_found(cx, lookup, None, EarlierRecords::default())
        }
        Ok(Some((file, Ok(mut manifest)))) if manifest.weak == request.weak => {
            manifest.keep_believed(&settings.remote_trust);
            let mut effort = Effort::default();
            let found = ask(&manifest, request, &context.place, store, stat_cache, &mut lookup.rejected, &mut effort);
            context.phase("lookup");
            let mut trouble = None;
            if let Some(Answer { set, result, rewritten, run_time_us, .. }) = found {
                let result = relocated::apply(&result, &rewritten);
                context.recorded(|recording| recording.result(&result));
                if is_verified(settings.verify) && !settings.read_only {
                    // The result borrows the manifest, so the tool is run from here.
                    return after_run(cx, miss::run(cx, RunReason { verify: Some(result), ..RunReason::default() }));
                }
                match place(cx, &lookup, set, &result, run_time_us, file) {
                    NotPlaced::ToolRuns(cause) => trouble = Some(cause),
                    NotPlaced::Half => return half_placed(cx),
                }
            } else if is_part {
                return next_part(lookup);
            }
            note_cause(cx, &lookup.rejected);
            let known = EarlierRecords::of(&manifest, &lookup.rejected);
            not_found(cx, lookup, trouble, known)
        }
        Ok(Some(_)) if is_part => next_part(lookup),
        Ok(Some(_)) => not_found(cx, lookup, Some(Fallback::Damaged), EarlierRecords::default()),
        Err(error) => not_found(cx, lookup, Some(error.fallback()), EarlierRecords::default()),
    }
}

/// Reports that some outputs are in place and others cannot be written.
fn half_placed<'a>(RequestContext { context, store, request, .. }: RequestContext) -> State<'a> {
    parent_run::is_lost();
    let outcome = Outcome::Fallback(Fallback::HalfPlaced);
    report(context, Some(store), outcome, By::request(request), "");
    State::Exit(HALF_PLACED)
}

fn next_part<'a>(lookup: LookUp) -> State<'a> {
    State::LookUp(LookUp { parts: lookup.parts + 1, ..lookup })
}

/// Puts a result in place, reports the hit and ends the process. Returns only if the result cannot
/// be put in place. `run_time_us` is how long the recorded run took.
fn place(
    cx: RequestContext,
    lookup: &LookUp,
    set: SetReader,
    result: &ActionResult,
    run_time_us: u64,
    file: &ManifestFile,
) -> NotPlaced {
    let RequestContext { context, store, stat_cache, request } = cx;
    let before = parent_run::Before::of(result, &request.roots);
    let Ok(told) = before.map(|before| set.whole().map(|set| (before, set))).transpose() else {
        return NotPlaced::ToolRuns(Fallback::Damaged);
    };
    let code = match hit::replay(store, stat_cache, request, result) {
        Ok(code) => code,
        Err(why) => return why,
    };
    if code == 0 {
        build_script::launch_by_larder(cx);
    }
    context.phase("place");
    if let Some((before, set)) = &told {
        parent_run::answered(&context.place, request, set, result, before);
    }
    if file.overdue {
        daemon_record::note_use(store, caller(&context.loaded.settings), &request.weak);
    }
    lookup.waited.iter().for_each(|waited| waited.count(store));
    lookup.fetched.iter().for_each(|fetched| fetched.count(store));
    let detail = lookup.fetched.map(|fetched| fetched.message()).or(lookup.waited.map(|waited| waited.message()));
    report_hit(cx, Hit { run_time_us, bytes: result.size_bytes(), at_ns: file.read_ns }, &detail.unwrap_or_default());
    let _ = stat_cache.settle(store);
    // Leave without dropping anything, because the kernel frees it all at once.
    larder_sys::end_process(code as u8);
}

/// Notes why these records do not answer.
fn note_cause(cx: RequestContext, rejected: &[Rejected]) {
    let cause = cause(cx.request, cx.store, rejected);
    cx.context.recorded(|recording| recording.missed(&cause));
    cx.context.cause.replace(cause);
}

/// Returns the next state for a request that these records do not answer.
fn not_found<'a>(cx: RequestContext, lookup: LookUp, trouble: Option<Fallback>, known: EarlierRecords) -> State<'a> {
    let LookUp { waited, fetched, turn, token, handed_over, .. } = lookup;
    if !cx.context.loaded.settings.recache && !handed_over && trouble.is_none() && cx.store.is_only_read() {
        return State::LookUp(LookUp { waited, fetched, turn, token, handed_over: true, ..LookUp::default() });
    }
    if fetched.is_some() {
        return State::Run(RunReason { trouble, turn, ..RunReason::default() });
    }
    if token.is_some() {
        return State::Run(RunReason { trouble, token, ..RunReason::default() });
    }
    State::ShareRun(Unanswered { trouble, known, waited })
}

/// Returns true for a random one in `every` hits, which is then verified by a run of the tool
/// (`LARDER_VERIFY`).
fn is_verified(every: u64) -> bool {
    every > 0 && larder_sys::random_u64().is_multiple_of(every)
}
