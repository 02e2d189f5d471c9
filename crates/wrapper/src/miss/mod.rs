//! A miss: runs the tool under an observer, records what it read and wrote, and exits as the tool
//! did.
//!
//! | file | does |
//! |---|---|
//! | `ordinary` | decides whether the run ended as it will the next time |
//! | `counts` | turns the trace into what the run relied on and changed |
//! | `record` | makes a record of that |
//! | `limit` | keeps the store within its size limit |

mod counts;
mod limit;
mod ordinary;
mod record;

use std::time::{Duration, Instant};

use larder_compiler::Family;
use larder_lookup::{Abilities, Request, choose_observer, kind, subject};
use larder_model::{ActionResult, Bypass, Digest, Fallback, Judgement, Outcome, Unrecorded};
use larder_observe::RunModel;
use larder_spawn::{Finished, Token};
use larder_store::{Stamps, Store, Turn};
use larder_sys::ChildEnd;

use self::limit::keep_within_limit;
pub(crate) use self::record::NotRecorded;
use self::record::{Recorded, Run};
use crate::account::{By, account, log};
use crate::before::Before;
use crate::context::Context;
use crate::fetch::{Fetched, Race, note_recorded};
use crate::sink::Sink;
use crate::undo::undo;
use crate::watch::{Eyes, Programs, closing};
use crate::{flow, outer, recording, token};

/// Why the tool runs, and what was acquired for it.
#[derive(Default)]
pub(crate) struct Why<'m, 'r> {
    /// A record existed but could not be used, for this reason.
    pub(crate) trouble: Option<Fallback>,
    /// A record would have been used. The run verifies it.
    pub(crate) verify: Option<ActionResult<'m>>,
    /// The single-flight lock. Other processes wait until it is dropped.
    pub(crate) turn: Option<Turn>,
    /// A fetch in progress, which may be faster than the tool.
    pub(crate) race: Option<Race<'r>>,
    /// True if another process held the single-flight lock.
    pub(crate) other_runs: bool,
    /// The job slot, if it was acquired already.
    pub(crate) token: Option<Box<Token>>,
}

/// How a miss ended.
pub(crate) enum Ended {
    /// Exit with this code.
    Code(i32),
    /// The fetch was faster. The tool was stopped, and the files that it created were removed.
    Overtaken(Fetched, Option<Turn>),
    /// We waited for a job slot, and another process may have run the action meanwhile. The slot is
    /// acquired.
    LookAgain(Box<Token>),
}

/// After a shorter wait for a job slot we do not look up again, because hardly any tool ends within
/// it.
const WORTH_A_LOOK: Duration = Duration::from_millis(50);

/// Runs the tool, and records its result if possible.
pub(crate) fn run(
    context: &Context,
    store: &Store,
    stamps: &Stamps,
    request: &Request,
    Why { trouble, verify, turn, mut race, other_runs, token }: Why,
) -> Ended {
    let source = request.subject();
    let settings = &context.loaded.settings;
    let untouched = |outcome: Outcome| {
        account(context, Some(store), outcome, By::request(request), "");
        Ended::Code(token::start(context, &request.command, request.family, true))
    };
    if settings.read_only {
        return untouched(trouble.map_or(Outcome::Miss(Some(Unrecorded::ReadOnly)), Outcome::Fallback));
    }
    let sink = match Sink::open(store, token::caller(&context.loaded.settings)) {
        Ok(sink) => sink,
        Err(closed) => {
            account(context, Some(store), closed.outcome(), By::request(request), &closed.detail());
            return Ended::Code(token::start(context, &request.command, request.family, true));
        }
    };
    if larder_sys::is_odd_output(1) || larder_sys::is_odd_output(2) {
        return untouched(Outcome::Bypass(Bypass::OutputToStdout));
    }
    let known = |key: &Digest| sink.judgement(key);
    let keep = |key: &Digest, judgement: &Judgement| sink.keep_judgement(key, judgement);
    let abilities = Abilities::new(&context.place, &known, &keep);
    let choice = choose_observer(request, &context.place, store, settings.observer, &abilities);
    let choice = choice.map_err(Outcome::Bypass);
    let eyes = match choice.and_then(|choice| Eyes::of(choice, closing(request.family))) {
        Ok(eyes) => eyes,
        Err(outcome) => return untouched(outcome),
    };
    let numbers_differ = request.family != Family::Command || skip_process_numbers();
    let token = match token {
        Some(token) => Some(token),
        None => token::take(context, store, request, race.as_mut()).map(Box::new),
    };
    let Some(mut token) = token else {
        return match race {
            Some(race) => Ended::Overtaken(race.fetched(false), turn),
            None => Ended::Code(token::start(context, &request.command, request.family, true)),
        };
    };
    if other_runs && token.waited() >= WORTH_A_LOOK {
        return Ended::LookAgain(token);
    }
    let command = token::as_set(settings, request.family, &request.command, &mut token);
    let programs = Programs::new(context, &sink, stamps, request, &abilities);
    let before = Before::note(request, &programs.changes(), stamps);
    let started_ns = larder_sys::now_coarse_ns();
    let began = Instant::now();
    let watched = match eyes.run(&command, &context.place.destinations, race.as_mut(), &programs) {
        Ok(watched) => watched,
        Err(_) => {
            let outcome = Outcome::Fallback(Fallback::ObserverFailed);
            account(context, Some(store), outcome, By::request(request), "");
            // The job slot is already held, so this must not wait for another one.
            return Ended::Code(flow::start_with(&command, &token));
        }
    };
    if let (true, Some(race)) = (watched.observed.finished.stopped, &race) {
        undo(&watched.observed.trace);
        return Ended::Overtaken(race.fetched(true), turn);
    }
    drop(race);
    context.phase("run");
    let Finished { used, took, .. } = watched.observed.finished;
    token.fared(used, took);
    let _ = store.note_needed(&subject(request), &kind(request), used.peak_kb);
    end_as_the_tool_on_panic(watched.observed.finished.end);
    let run_time_us = began.elapsed().as_micros() as u64;
    let model = RunModel::of(&watched.observed.trace);
    let odd = programs.learn(&watched, &model);
    let unseen =
        || programs.unseen(&watched, &model).ok().filter(|_| watched.observer != larder_model::Observer::Depfile);
    outer::ran(context, request, watched.observed.finished.pid, &watched.observed.trace, unseen);
    let run = Run {
        context,
        sink: &sink,
        stamps,
        request,
        command: &command,
        before,
        started_ns,
        run_time_us,
        observer: watched.observer,
        numbers_differ,
        programs: &programs,
        model: &model,
    };
    if let Some(odd) = odd {
        log(context, Outcome::Miss(Some(Unrecorded::Unjudged)), source, &odd);
    }
    let recorded = run.record(&watched, verify.as_ref());
    let outcome = match (&recorded, trouble) {
        (_, Some(cause)) => Outcome::Fallback(cause),
        (Ok(Recorded { difference: Some(what), .. }), None) => {
            eprintln!("larder: warning: the record of {} was wrong: {what}", String::from_utf8_lossy(source));
            Outcome::Fallback(Fallback::Verify)
        }
        (Ok(_), None) if verify.is_some() => Outcome::Hit,
        (Ok(_), None) => Outcome::Miss(None),
        (Err(NotRecorded::Because(why, _)), None) => Outcome::Miss(Some(*why)),
        (Err(NotRecorded::Store(error)), None) => Outcome::Fallback(error.fallback()),
    };
    let (outcome, word) = sink.finish(outcome);
    context.recorded(|recording| {
        recording.grown(recorded.as_ref().map_or(0, |recorded| recorded.grown));
        recording.phase("keep");
    });
    drop(turn);
    let detail = match &recorded {
        Ok(recorded) => recorded.difference.clone().unwrap_or(word),
        Err(why) => why.detail(),
    };
    recording::note(context, outcome, &request.action.argv[0], source, &detail);
    log(context, outcome, source, &token::said(&token, detail));
    drop(token);
    let _ = stamps.settle(store);
    if let Ok(recorded) = recorded {
        if let (ChildEnd::Exited(0), Outcome::Miss(None)) = (watched.observed.finished.end, outcome) {
            note_recorded(context, store, &request.weak, &recorded.strong);
        }
        if let Sink::Store { counters, .. } = &sink {
            keep_within_limit(context, counters, recorded.grown);
        }
    }
    Ended::Code(leave(watched.observed.finished))
}

/// Makes the process ids of the command different from those of its last run. Returns false if it
/// could not.
///
/// In a PID namespace of its own, as in a sandbox, a command gets the same process ids in each run.
/// Then a second run would not show that they are in the result. So we start and join a random
/// number of threads first, because each takes an id. If threads are refused, a result that may
/// hold a process id is not recorded.
fn skip_process_numbers() -> bool {
    const SKIPPED_MAX: u64 = 60;
    const STACK_BYTES: usize = 64 << 10;
    if larder_sys::process_id() > 4096 {
        return true;
    }
    let thread = || std::thread::Builder::new().stack_size(STACK_BYTES).spawn(|| {});
    (0..=larder_sys::random_u64() % SKIPPED_MAX).all(|_| thread().is_ok_and(|thread| thread.join().is_ok()))
}

/// Makes a panic end as the tool ended, because a bug in larder must not fail a build.
fn end_as_the_tool_on_panic(end: ChildEnd) {
    std::panic::set_hook(Box::new(move |_| match end {
        ChildEnd::Exited(code) => larder_sys::end_process(code),
        ChildEnd::Signalled(signal) => larder_sys::die_by(signal),
    }));
}

/// Ends as the tool did.
fn leave(finished: Finished) -> i32 {
    let end = match (&finished.failure, finished.end) {
        (Some(error), ChildEnd::Exited(0)) => {
            eprintln!("larder: write error: {error}");
            ChildEnd::Exited(1)
        }
        (_, end) => end,
    };
    finished.leave_relay_behind();
    match end {
        ChildEnd::Exited(code) => i32::from(code),
        ChildEnd::Signalled(signal) => larder_sys::die_by(signal),
    }
}
