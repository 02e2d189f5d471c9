//! A miss: runs the tool under an observer, records what it read and wrote, and exits as the tool
//! did.
//!
//! Unaware of: how a tool is observed, how a record is made.

use std::time::{Duration, Instant};

use larder_compiler::Family;
use larder_lookup::{Abilities, Request, choose_observer, kind, subject};
use larder_model::{ActionResult, Bypass, Digest, Fallback, Judgement, Outcome, Unrecorded};
use larder_observe::{Observed, RunModel};
use larder_spawn::{Command, Finished, Token};
use larder_store::{StatCache, Turn};
use larder_sys::{ChildEnd, Opening, Rival, Stat, TerminalWatch, Trust};

use crate::build_script;
use crate::caller::caller;
use crate::fetch::{Fetched, Race, note_recorded};
use crate::record::{NotRecorded, Recorded, Run, keep_within_limit};
use crate::recorder::Recorder;
use crate::request_context::RequestContext;
use crate::run::observed_run::{ObservationStrategy, ObservedRun, closing};
use crate::run::observer_trust::ObserverTrust;
use crate::run::pre_run_snapshot::PreRunSnapshot;
use crate::run::undo::undo;
use crate::run::{job_slot, parent_run, start};
use crate::say::say;
use crate::stats::{By, log, note, report, say_if_not_cached};

/// Why the tool runs, and what was acquired for it.
#[derive(Default)]
pub(super) struct RunReason<'m, 'r> {
    /// A record existed but could not be used, for this reason.
    pub(super) trouble: Option<Fallback>,
    /// A record would have been used. The run verifies it.
    pub(super) verify: Option<ActionResult<'m>>,
    /// The single-flight lock. Other processes wait until it is dropped.
    pub(super) turn: Option<Turn>,
    /// A fetch in progress, which may be faster than the tool.
    pub(super) race: Option<Race<'r>>,
    /// True if another process held the single-flight lock.
    pub(super) other_runs: bool,
    /// The job slot, if it was acquired already.
    pub(super) token: Option<Box<Token>>,
}

/// How a miss ended.
pub(super) enum RunEnd {
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
pub(super) fn run(
    cx: RequestContext,
    RunReason { trouble, verify, turn, mut race, other_runs, token }: RunReason,
) -> RunEnd {
    let RequestContext { context, store, stat_cache, request } = cx;
    let recorder = match recorder(cx, trouble, verify.is_some()) {
        Ok(recorder) => recorder,
        Err(end) => return end,
    };
    let known = |key: &Digest| recorder.judgement(key);
    let keep = |key: &Digest, judgement: &Judgement| recorder.keep_judgement(key, judgement);
    let abilities = Abilities::new(&context.place, &known, &keep);
    let strategy = match strategy(cx, &abilities) {
        Ok(strategy) => strategy,
        Err(outcome) => return unrecorded(cx, outcome, ""),
    };
    let numbers_differ = request.family != Family::Command || skip_process_numbers();
    let Some(mut token) = token.or_else(|| job_slot::take(cx, rival(&mut race)).map(Box::new)) else {
        return match race {
            Some(race) => RunEnd::Overtaken(race.fetched(false), turn),
            None => RunEnd::Code(job_slot::start(context, &request.command, request.family, true)),
        };
    };
    if other_runs && token.waited() >= WORTH_A_LOOK {
        return RunEnd::LookAgain(token);
    }
    let command = job_slot::as_set(&context.loaded.settings, request.family, &request.command, &mut token);
    let trust = ObserverTrust::new(context, &recorder, stat_cache, request, &abilities);
    let before = PreRunSnapshot::note(request, &trust.changes(), stat_cache);
    let started_ns = after_inputs(request, stat_cache);
    let began = Instant::now();
    let (observed_run, used_terminal) = match observe(cx, strategy, &command, &trust, rival(&mut race)) {
        Ok(observed) => observed,
        Err(outcome) => {
            report(context, Some(store), outcome, By::request(request), "");
            // The job slot is already held, so this must not wait for another one.
            return RunEnd::Code(start::start_with(&command, &token));
        }
    };
    if let (true, Some(race)) = (observed_run.observed.finished.stopped, &race) {
        undo(&observed_run.observed.trace);
        return RunEnd::Overtaken(race.fetched(true), turn);
    }
    drop(race);
    context.phase("run");
    let Finished { used, took, .. } = observed_run.observed.finished;
    token.note_usage(used, took);
    let _ = store.note_needed(&subject(request), &kind(request), used.peak_kb);
    end_as_the_tool_on_panic(observed_run.observed.finished.end);
    let run_time_us = began.elapsed().as_micros() as u64;
    let model = RunModel::of(&observed_run.observed.trace);
    learn_and_report(cx, &trust, &observed_run, &model);
    let run = Run {
        context,
        recorder: &recorder,
        stat_cache,
        request,
        command: &command,
        before,
        started_ns,
        run_time_us,
        observer: observed_run.observer,
        numbers_differ,
        trust: &trust,
        model: &model,
        used_terminal,
    };
    conclude(cx, &run, &observed_run, trouble, verify.as_ref(), turn, token);
    if observed_run.observed.finished.end == ChildEnd::Exited(0) {
        build_script::launch_by_larder(cx);
    }
    RunEnd::Code(leave(observed_run.observed.finished))
}

/// Waits until the clock of file times is past the times of the inputs that are known by now, and
/// returns its time. An input as new as the run is refused where file times are coarse: in a
/// container, which has overlayfs, and before Linux 6.13. But `configure` compiles each test as soon as
/// it is written, and cargo starts rustc as soon as the crates that it needs are there.
///
/// The known inputs are the files that the command line names. A whole command may read any file in
/// its working directory.
fn after_inputs(request: &Request, stat_cache: &StatCache) -> i64 {
    const TICK_MAX: Duration = Duration::from_millis(10);
    let now_ns = larder_sys::now_coarse_ns();
    let is_coarse = |path: &[u8], stat: &Stat| {
        let ask = || larder_sys::open(path, Opening::Read).and_then(larder_sys::file_trust).unwrap_or(Trust::NONE);
        !stat_cache.times_are_exact(stat, ask)
    };
    let is_as_new = |path: &[u8]| {
        let path = request.absolute(path);
        let stat = larder_sys::stat(&path).ok().filter(|stat| stat.changed_ns >= now_ns);
        stat.is_some_and(|stat| is_coarse(&path, &stat))
    };
    let cwd = &request.action.cwd;
    let must_wait = match request.family {
        Family::Command => larder_sys::stat(cwd).is_ok_and(|stat| is_coarse(cwd, &stat)),
        _ => request.action.argv[1..].iter().filter_map(|word| path_in(word)).any(is_as_new),
    };
    let began = Instant::now();
    while must_wait && larder_sys::now_coarse_ns() == now_ns && began.elapsed() < TICK_MAX {
        std::thread::sleep(Duration::from_micros(500));
    }
    larder_sys::now_coarse_ns()
}

/// Returns the part of a word of a command line that may be a path, as in `x.c`, `@file` and
/// `--extern=a=liba.rlib`.
fn path_in(word: &[u8]) -> Option<&[u8]> {
    let behind_equals = word.iter().rposition(|&byte| byte == b'=').map(|at| &word[at + 1..]);
    let whole = word.strip_prefix(b"@").unwrap_or(word);
    behind_equals.or(Some(whole).filter(|word| !word.starts_with(b"-")))
}

/// Chooses how to observe the tool.
fn strategy(cx: RequestContext, abilities: &Abilities) -> Result<ObservationStrategy, Outcome> {
    let RequestContext { context, store, stat_cache, request } = cx;
    let wanted = context.loaded.settings.observer;
    let choice = choose_observer(request, &context.place, (store, stat_cache), wanted, abilities);
    ObservationStrategy::of(choice.map_err(Outcome::Bypass)?, closing(request.family))
}

/// Runs the tool under its observer. The second value is true if the tool used the terminal on
/// standard input. Returns an error if the tool was not started.
fn observe(
    RequestContext { context, request, .. }: RequestContext,
    strategy: ObservationStrategy,
    command: &Command,
    trust: &ObserverTrust,
    race: Option<&mut dyn Rival>,
) -> Result<(ObservedRun, bool), Outcome> {
    let terminal = request.watches_terminal.then(TerminalWatch::begin).transpose();
    let terminal = terminal.map_err(|_| Outcome::Bypass(Bypass::StandardInput))?;
    let observed_run = strategy.run(command, &context.place.destinations, race, &|path| trust.interest(path));
    let observed_run = observed_run.map_err(|_| Outcome::Fallback(Fallback::ObserverFailed))?;
    Ok((observed_run, terminal.is_some_and(TerminalWatch::was_used)))
}

/// Learns from the run how far its observer can be trusted, and reports the run to the outer run.
fn learn_and_report(cx: RequestContext, trust: &ObserverTrust, observed_run: &ObservedRun, model: &RunModel) {
    let RequestContext { context, request, .. } = cx;
    let odd = trust.learn(observed_run, model);
    let is_depfile = observed_run.observer == larder_model::Observer::Depfile;
    let unseen = || trust.unseen(observed_run, model).ok().filter(|_| !is_depfile);
    let Observed { finished, trace, .. } = &observed_run.observed;
    parent_run::ran(&context.place, request, finished.pid, trace, unseen);
    if let Some(odd) = odd {
        log(context, Outcome::Miss(Some(Unrecorded::Unjudged)), request.subject(), &odd);
    }
}

/// Returns where the run is recorded. If it must not be recorded, or if a whole command would not
/// be recorded as in its last runs, runs the tool without. `verifies` is true if the run is to verify
/// a record.
fn recorder(cx: RequestContext<'_>, trouble: Option<Fallback>, verifies: bool) -> Result<Recorder<'_>, RunEnd> {
    let settings = &cx.context.loaded.settings;
    if settings.read_only {
        let outcome = trouble.map_or(Outcome::Miss(Some(Unrecorded::ReadOnly)), Outcome::Fallback);
        return Err(unrecorded(cx, outcome, ""));
    }
    let recorder = Recorder::open(cx.store, caller(settings))
        .map_err(|closed| unrecorded(cx, closed.outcome(), &closed.detail()))?;
    if larder_sys::is_odd_output(1) || larder_sys::is_odd_output(2) {
        return Err(unrecorded(cx, Outcome::Bypass(Bypass::OutputToStdout), ""));
    }
    let is_new = settings.recache || verifies || trouble.is_some() || cx.request.family != Family::Command;
    let known = || cx.store.need_not_observe(&cx.request.weak, larder_sys::now_coarse_ns());
    match if is_new { None } else { known() } {
        Some(reason) => Err(unrecorded(cx, Outcome::Miss(Some(reason)), "as in its last runs, so it was not observed")),
        None => Ok(recorder),
    }
}

/// Reports the outcome and runs the tool without recording it.
fn unrecorded(cx: RequestContext, outcome: Outcome, detail: &str) -> RunEnd {
    let RequestContext { context, store, request, .. } = cx;
    report(context, Some(store), outcome, By::request(request), detail);
    RunEnd::Code(job_slot::start(context, &request.command, request.family, true))
}

/// Records a run that has ended, and reports the outcome.
fn conclude(
    cx: RequestContext,
    run: &Run,
    observed_run: &ObservedRun,
    trouble: Option<Fallback>,
    verify: Option<&ActionResult>,
    turn: Option<Turn>,
    token: Box<Token>,
) {
    let (RequestContext { context, store, stat_cache, request }, recorder) = (cx, run.recorder);
    let recorded = run.record(observed_run, verify);
    let outcome = outcome(&recorded, trouble, verify.is_some(), request.subject());
    let (outcome, word) = recorder.finish(outcome);
    if let Recorder::Store { counters, .. } = recorder {
        if let (Family::Command, Outcome::Miss(unrecorded)) = (request.family, outcome) {
            store.note_observed(&request.weak, unrecorded, larder_sys::now_coarse_ns());
        }
        note(context, counters, outcome, By::request(request), run.run_time_us, larder_sys::now_coarse_ns());
    }
    context.recorded(|recording| {
        recording.grown(recorded.as_ref().map_or(0, |recorded| recorded.grown));
        recording.phase("keep");
    });
    drop(turn);
    let detail = match &recorded {
        Ok(recorded) => recorded.difference.clone().unwrap_or(word),
        Err(why) => why.detail(),
    };
    context.recorded(|recording| {
        recording.note(outcome, &request.action.argv[0], request.subject(), &detail, &context.place.cwd);
    });
    say_if_not_cached(context, outcome, &request.action.argv[0], &detail);
    log(context, outcome, request.subject(), &job_slot::message(&token, detail));
    drop(token);
    let _ = stat_cache.settle(store);
    if let Ok(recorded) = recorded {
        if let (ChildEnd::Exited(0), Outcome::Miss(None)) = (observed_run.observed.finished.end, outcome) {
            note_recorded(context, store, &request.weak, &recorded.strong);
        }
        if let Recorder::Store { counters, .. } = recorder {
            keep_within_limit(context, counters, recorded.grown);
        }
    }
}

/// Returns the outcome to count. `verifies` is true if the run was to verify a record.
fn outcome(
    recorded: &Result<Recorded, NotRecorded>,
    trouble: Option<Fallback>,
    verifies: bool,
    source: &[u8],
) -> Outcome {
    match (recorded, trouble) {
        (_, Some(cause)) => Outcome::Fallback(cause),
        (Ok(Recorded { difference: Some(what), .. }), None) => {
            say(&format!("warning: the record of {} was wrong: {what}", String::from_utf8_lossy(source)));
            Outcome::Fallback(Fallback::Verify)
        }
        (Ok(_), None) if verifies => Outcome::Hit,
        (Ok(_), None) => Outcome::Miss(None),
        (Err(NotRecorded::Because(why, _)), None) => Outcome::Miss(Some(*why)),
        (Err(NotRecorded::Store(error)), None) => Outcome::Fallback(error.fallback()),
    }
}

fn rival<'a>(race: &'a mut Option<Race>) -> Option<&'a mut dyn Rival> {
    race.as_mut().map(|race| race as &mut dyn Rival)
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
