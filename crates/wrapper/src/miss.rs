//! A miss: the tool runs, observed; what it looked at is witnessed, what it wrote is kept, and the caller is let go.

use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use larder_compiler::{
    Family, LISTS_VARIABLES, SERVED, Told, adds_execute, getenv_is_covered, habit, is_compiler_part,
    matters_on_terminal_only, replaces_output, unlinks_output,
};
use larder_lookup::{Request, choose_observer, kind, secret, subject};
use larder_model::Observer::Kernel;
use larder_model::{
    ALL_VARIABLES as ALL, ActionResult, Bound, Bypass, Change, Entry, Fallback, Fingerprint, HOST, Habit, Looked, Made,
    ObservationSet, Outcome, Prior, SOCKETS, Seen, Terminal, Times, UMASK, Unrecorded,
};
use larder_observe::{Folded, Kind, Observed, Policy, Trace, fold, loader_looks};
use larder_spawn::{Command, Finished, Token, Written};
use larder_store::{Bounds, Counters, Stamps, Store, StoreError, Turn, Witness};
use larder_sys::ChildEnd;

use crate::account::{By, account, log};
use crate::before::Before;
use crate::context::Context;
use crate::dates::Dates;
use crate::fetch::{Fetched, Race, note_recorded};
use crate::keep::{Kept, KeptKind, KeptOutput, KeptStreams};
use crate::reach::{Reach, Reached};
use crate::real::RealPaths;
use crate::sink::Sink;
use crate::texts::{Texts, archive_has_none, holds_a_process};
use crate::typed::file_name;
use crate::undo::undo;
use crate::watch::{Eyes, Programs, Watched};
use crate::{outer, recording, summon, token, words};

/// Why the tool runs.
#[derive(Default)]
pub(crate) struct Why<'m, 'r> {
    /// A record that was there did not serve.
    pub(crate) trouble: Option<Fallback>,
    /// A record would have served, and is to be compared.
    pub(crate) verify: Option<ActionResult<'m>>,
    /// Others wait until it is dropped.
    pub(crate) turn: Option<Turn>,
    /// A fetch that may be faster.
    pub(crate) race: Option<Race<'r>>,
    /// Another process had the turn.
    pub(crate) other_runs: bool,
    /// Leave to run it, where that was waited for already.
    pub(crate) token: Option<Box<Token>>,
}

/// How it ended.
pub(crate) enum Ended {
    /// With this exit code.
    Code(i32),
    /// A fetch was faster: the tool was stopped, and what it left is gone.
    Overtaken(Fetched, Option<Turn>),
    /// While it waited for a token another process may have run it: the token is there now.
    LookAgain(Box<Token>),
}

/// A tool that waited for less was hardly run by somebody else meanwhile.
const WORTH_A_LOOK: Duration = Duration::from_millis(50);

/// Run the tool and record its result where that can be done.
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
    let sink = match Sink::open(store) {
        Ok(sink) => sink,
        Err(closed) => {
            account(context, Some(store), closed.outcome(), By::request(request), &closed.detail());
            return Ended::Code(token::start(context, &request.command, request.family, true));
        }
    };
    if larder_sys::is_odd_output(1) || larder_sys::is_odd_output(2) {
        return untouched(Outcome::Bypass(Bypass::OutputToStdout));
    }
    let choice = choose_observer(request, &context.place, store, settings.observer).map_err(Outcome::Bypass);
    let eyes = match choice.and_then(Eyes::of) {
        Ok(eyes) => eyes,
        Err(outcome) => return untouched(outcome),
    };
    if request.family == Family::Command {
        skip_process_numbers();
    }
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
    let command = Command { manner: token::manner(settings, request.family, &mut token), ..request.command.clone() };
    let before = Before::note(request, stamps);
    let started_ns = larder_sys::now_coarse_ns();
    let began = Instant::now();
    let programs = programs(context, &sink, stamps, request);
    let watched = match eyes.run(&command, &context.place.destinations, race.as_mut(), &programs) {
        Ok(watched) => watched,
        Err(_) => return untouched(Outcome::Fallback(Fallback::ObserverFailed)),
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
    outer::ran(context, request, watched.observed.finished.pid, &watched.observed.trace);
    let run_time_us = began.elapsed().as_micros() as u64;
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
    };
    if let Some(odd) = programs.learn(&watched) {
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

/// In a namespace of its own, as in a sandbox, a command has the same process numbers in each run, and no second run
/// would show that they are not in its result. A thread takes a number too.
fn skip_process_numbers() {
    const SKIPPED_MAX: u64 = 60;
    if larder_sys::process_id() > 4096 {
        return;
    }
    for _ in 0..=larder_sys::random_u64() % SKIPPED_MAX {
        if let Ok(thread) = std::thread::Builder::new().spawn(|| {}) {
            let _ = thread.join();
        }
    }
}

/// A fault of larder's own must not fail a build: now that the tool has run, a panic ends as it did.
fn end_as_the_tool_on_panic(end: ChildEnd) {
    std::panic::set_hook(Box::new(move |_| match end {
        ChildEnd::Exited(code) => larder_sys::end_process(code),
        ChildEnd::Signalled(signal) => larder_sys::die_by(signal),
    }));
}

/// End as the tool did.
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

/// A run was recorded.
struct Recorded {
    /// By how many bytes the store grew.
    grown: u64,
    /// Which entry it is.
    strong: Fingerprint,
    /// How the result differs from the record that it was compared with.
    difference: Option<String>,
}

/// Why a run was not recorded.
pub(crate) enum NotRecorded {
    Because(Unrecorded, Vec<u8>),
    Store(StoreError),
}

impl NotRecorded {
    fn detail(&self) -> String {
        match self {
            NotRecorded::Because(_, path) => String::from_utf8_lossy(path).into_owned(),
            NotRecorded::Store(error) => error.to_string(),
        }
    }
}

impl From<StoreError> for NotRecorded {
    fn from(error: StoreError) -> Self {
        NotRecorded::Store(error)
    }
}

/// A run that has ended.
struct Run<'a> {
    context: &'a Context,
    sink: &'a Sink<'a>,
    stamps: &'a Stamps,
    request: &'a Request,
    command: &'a Command,
    before: Before,
    started_ns: i64,
    run_time_us: u64,
    observer: larder_model::Observer,
}

impl Run<'_> {
    /// Record it, after comparing it with what was recorded before.
    fn record(&self, watched: &Watched, before: Option<&ActionResult>) -> Result<Recorded, NotRecorded> {
        let observed = &watched.observed;
        let programs = programs(self.context, self.sink, self.stamps, self.request);
        let exit_code = self.must_be_ordinary(&observed.finished)?;
        let texts = Texts::of(self.request, &observed.trace);
        let mut folded = self.fold(observed, &texts);
        if let Some((why, path)) = std::mem::take(&mut folded.refusals).into_iter().next() {
            if why == Unrecorded::NotObserved {
                programs.leave_to_the_kernel(watched, &path);
            }
            return Err(NotRecorded::Because(why, path));
        }
        if let Some(path) = folded.seen.looked.iter().find(|(path, looked)| self.checks_times_of(path, looked)) {
            return Err(NotRecorded::Because(Unrecorded::ComparesTimes, path.0.clone()));
        }
        self.narrow_and_widen(&mut folded.seen);
        let dates = Dates::of(&mut folded.seen, &self.request.roots, self.started_ns)?;
        let unseen = programs.unseen(watched).map_err(|(why, path)| NotRecorded::Because(why, path))?;
        folded.seen.looked.extend(unseen);
        let place = &self.context.place;
        let whole = self.request.invocation.environment == larder_compiler::EnvironmentRule::Whole;
        let inherited = [
            (!whole && (folded.foreign_program.is_some() || self.observer == Kernel), &b""[..]),
            (folded.seen.umask, UMASK),
            (folded.seen.host, HOST),
            (folded.seen.sockets, SOCKETS),
        ];
        self.add_variables_left_out(&texts, &observed.trace, &mut folded.seen);
        for (_, name) in inherited.into_iter().filter(|(asked, _)| *asked) {
            folded.seen.environment.push((name.to_vec(), place.asked(name)));
        }
        folded.seen.looked.extend(loader_looks(place.variable(b"LD_LIBRARY_PATH"), &place.cwd));
        let anywhere = |bytes: &[u8]| self.request.object_anywhere(bytes);
        let witness = Witness {
            objects: self.request.links().then_some(&anywhere),
            roots: &self.request.roots,
            stamps: self.stamps,
            started_ns: self.started_ns,
            identities_are_the_tools: self.observer != larder_model::Observer::Depfile,
        };
        let witnessed =
            witness.witness(&folded.seen).map_err(|refusal| NotRecorded::Because(refusal.why, refusal.path))?;
        // The dependency file's observer does not see files being closed.
        let knows_closed = self.observer != larder_model::Observer::Depfile;
        let closed = knows_closed.then_some(folded.seen.closed.as_slice());
        let (umask_was_set, owners_were_set) = (folded.seen.umask_is_set, folded.seen.owners_set);
        let mut kept = Kept { sink: self.sink, grown: 0, closed, umask_was_set, owners_were_set };
        let mut outputs = self.keep_outputs(&folded.seen.changed, dates, &mut kept)?;
        let streams = kept.streams(&observed.finished.written)?;
        let holds = |what: &dyn Fn(&[u8]) -> bool| self.holds(&outputs, &streams, what);
        let named = texts.name_processes && holds(&|text| text.contains(&0) || holds_a_process(text, &observed.trace));
        let by_chance = named || folded.by_chance;
        if by_chance && !whole {
            return Err(NotRecorded::Because(Unrecorded::Random, b"the number of a process".to_vec()));
        }
        for name in &folded.random_names {
            if holds(&|text| text.windows(name.len()).any(|part| part == name)) {
                return Err(NotRecorded::Because(Unrecorded::Random, name.clone()));
            }
        }
        let reach = Reach {
            sink: self.sink,
            stamps: self.stamps,
            request: self.request,
            command: self.command,
            relocates_debug: self.context.loaded.settings.relocate_debug,
            carried: witnessed.carried(),
            environment: &folded.seen.environment,
            looked: &folded.seen.looked,
            foreign_program: folded.foreign_program.is_some(),
            gcc_ran: folded
                .seen
                .looked
                .iter()
                .any(|(path, looked)| looked.content && file_name(path).starts_with(b"cc1")),
            failed: exit_code != 0,
        };
        let Reached { mut made, mut messages } = reach.decide(&mut outputs, &streams);
        let set = witnessed.set();
        if by_chance && made.bound.as_ref().is_none_or(|(bound, _)| *bound == Bound::SeenOnce) {
            made.bound = Some((Bound::Chance, observed.finished.pid.to_string().into_bytes()));
        }
        let result = self.result(exit_code, is_repeatable(&folded.seen), &outputs, &streams);
        if let Some((bound, rewrites)) = reach.lifted(&made, &set, &result) {
            made.bound = bound;
            messages = rewrites.messages;
            outputs.iter_mut().zip(rewrites.outputs).for_each(|(output, rewrite)| output.is_rewritten(rewrite));
        }
        let mut result = self.result(exit_code, is_repeatable(&folded.seen), &outputs, &streams);
        result.messages = messages;
        if result.is_rewritten() || made.bound.is_some() {
            result.origin = self.request.roots.all().map(Vec::as_slice).collect();
        }
        let difference = before.and_then(|before| crate::verify::difference(before, &result, self.sink, self.stamps));
        let (grown, strong) = self.write(&set, &made, &result)?;
        Ok(Recorded { grown: kept.grown + grown, strong, difference })
    }

    /// clang compares the times of headers with those that a precompiled header was made from.
    fn checks_times_of(&self, path: &[u8], looked: &Looked) -> bool {
        let precompiled = [&b".pch"[..], b".gch", b".pcm"].iter().any(|suffix| path.ends_with(suffix));
        looked.content && precompiled && self.request.family != Family::Gcc
    }

    fn result<'k>(
        &self,
        exit_code: u8,
        repeatable: bool,
        outputs: &'k [KeptOutput],
        streams: &'k KeptStreams,
    ) -> ActionResult<'k> {
        let left = if !self.request.input.is_empty() { larder_sys::standard_input_left().unwrap_or(0) } else { 0 };
        ActionResult {
            exit_code,
            repeatable,
            consumed_bytes: (self.request.input.len() as u64).saturating_sub(left),
            outputs: outputs.iter().map(KeptOutput::borrowed).collect(),
            ..ActionResult::of(streams.borrowed())
        }
    }

    /// Write the record. Returns by how much the store grew, and which entry it is.
    fn write(
        &self,
        set: &ObservationSet,
        made: &Made,
        result: &ActionResult,
    ) -> Result<(u64, Fingerprint), NotRecorded> {
        let request = self.request;
        let walk = secret::explained(request);
        let mut body = Vec::new();
        if result_is_too_large(result, self.context.loaded.settings.max_size_bytes) {
            return Err(NotRecorded::Because(Unrecorded::TooLarge, Vec::new()));
        }
        let entry = Entry::new(&request.weak, self.observer, self.run_time_us, made, set, result, &mut body);
        let strong = entry.strong;
        Ok((self.sink.record(&request.weak, &walk, entry, &subject(request))?, strong))
    }

    /// Only an ordinary exit is recorded, and only when nothing that might not happen again had a part in it.
    fn must_be_ordinary(&self, finished: &Finished) -> Result<u8, NotRecorded> {
        let because = |why| Err(NotRecorded::Because(why, Vec::new()));
        let ChildEnd::Exited(code) = finished.end else { return because(Unrecorded::Signal) };
        if finished.outlived {
            return because(Unrecorded::Outlives);
        }
        if finished.disturbed {
            return because(Unrecorded::Signal);
        }
        if code != 0
            && let Some(why) = extraordinary(code, &finished.written)
        {
            return because(why);
        }
        Ok(code)
    }

    fn fold(&self, observed: &Observed, texts: &Texts) -> Folded {
        let (place, family) = (&self.context.place, self.request.family);
        let on_terminal = self.request.action.terminal != Terminal::None;
        let real = RealPaths::default();
        let policy = Policy {
            replaces_output: &replaces_output,
            unlinks_output: &unlinks_output,
            adds_execute: &adds_execute,
            variable_is_covered: &|name| {
                getenv_is_covered(family, name) || !on_terminal && matters_on_terminal_only(family, name)
            },
            variable: &|name| place.variable(name).map(<[u8]>::to_vec),
            is_compiler_part: &is_compiler_part,
            habit: &|program, kept| self.habit(program, kept, texts),
            before: &|opened| self.before.of(opened),
            names_by_number: texts.name_processes,
            real: &|path| real.of(path),
            may_write: &|path| self.request.may_write(path),
            first_pid: Some(observed.finished.pid),
        };
        fold(&observed.trace, &policy)
    }

    /// What the caller says counts as read, or does not.
    fn narrow_and_widen(&self, seen: &mut Seen) {
        let (scope, cwd) = (&self.request.scope, &self.request.action.cwd);
        seen.looked.retain(|(path, _)| !scope.leaves_out(path, cwd));
        for input in &scope.inputs {
            let looked = Looked { content: true, kind: true, listed: true, ..Looked::default() };
            seen.looked.push((self.request.absolute(input), looked));
        }
    }

    /// Variables that an unknown tool's key leaves out, where a text names them, or a program is known to use them.
    fn add_variables_left_out(&self, texts: &Texts, trace: &Trace, seen: &mut Seen) {
        let place = &self.context.place;
        let mut names = texts.variables.clone();
        for event in trace.iter().filter(|event| event.kind == Kind::Start) {
            let program = String::from_utf8_lossy(file_name(event.path)).into_owned();
            let served = SERVED.iter().filter(|(name, _)| *name == program);
            names.extend(served.flat_map(|(_, names)| names.iter()).map(|name| name.as_bytes().to_vec()));
            if LISTS_VARIABLES.contains(&program.as_str()) && !seen.environment.iter().any(|(name, _)| name == ALL) {
                seen.environment.push((ALL.to_vec(), place.asked(ALL)));
            }
        }
        seen.environment.extend(names.into_iter().map(|name| (name.clone(), place.asked(&name))));
    }

    /// Whether a message, an output or its name is such.
    fn holds(&self, outputs: &[KeptOutput], streams: &KeptStreams, what: &dyn Fn(&[u8]) -> bool) -> bool {
        let contents = outputs.iter().filter_map(KeptOutput::content).chain(streams.contents());
        let texts = contents.map(|content| self.sink.content_bytes(&content.borrowed(), self.stamps));
        // Where one begins with a root, a zero says so.
        let name = |path: &[u8]| path.strip_prefix(b"\0").unwrap_or(path).to_vec();
        let names = outputs.iter().map(|output| Ok(name(&output.path)));
        texts.chain(names).any(|text| text.is_ok_and(|text| what(&text)))
    }

    /// An archiver that leaves out times and owners, as it does by default on most systems, is blind for them.
    fn habit(&self, program: &[u8], kept: &[u8], texts: &Texts) -> Habit {
        let is_set = |name: &[u8]| self.context.place.variable(name).is_some_and(|value| value != b"random");
        let words: Option<Vec<&[u8]>> = larder_observe::arguments(kept).map(Iterator::collect);
        let told = Told { arguments: words.as_deref(), named: texts.named(program), is_set: &is_set };
        let usual = habit(program, told);
        let arguments = &self.request.action.argv[1..];
        let itself = self.request.family == Family::Binutils && usual.times == Times::Files;
        let archive = if itself { larder_compiler::archive(program, arguments) } else { None };
        match archive {
            Some(path) if archive_has_none(&self.request.absolute(path)) => {
                Habit { times: Times::Blind, clock_reads: u32::MAX, ..usual }
            }
            _ => usual,
        }
    }

    fn keep_outputs(
        &self,
        changed: &[(Vec<u8>, Change)],
        mut dates: Dates,
        kept: &mut Kept,
    ) -> Result<Vec<KeptOutput>, NotRecorded> {
        let mut outputs = Vec::new();
        for (path, change) in changed {
            let mut encoded = Vec::new();
            self.request.roots.encode_path(path, &mut encoded);
            let modified = dates.take(path);
            outputs.push(KeptOutput { path: encoded, kind: kept.output(path, change)?, modified });
        }
        // Directories first, so that what goes into them finds them; files as they were finished, so that the newer
        // of two stays the newer.
        outputs.sort_by_key(|output| match output.kind {
            KeptKind::Directory(_) => i64::MIN,
            KeptKind::File { modified_ns, .. } => modified_ns,
            KeptKind::Link(_) | KeptKind::Removed => i64::MAX,
        });
        Ok(outputs)
    }
}

fn programs<'a>(context: &'a Context, sink: &'a Sink, stamps: &'a Stamps, request: &'a Request) -> Programs<'a> {
    let preload_is_forced = context.loaded.settings.observer == Some(larder_model::Observer::Preload);
    Programs { sink, stamps, place: &context.place, request, preload_is_forced }
}

/// Whether the tool could run again on what it left.
fn is_repeatable(seen: &Seen) -> bool {
    let plain = |change: &Change| matches!(change, Change::File { .. } | Change::Link);
    let reads = |looked: &Looked| matches!(looked.prior, Some(Prior::File { .. }));
    seen.changed.iter().all(|(_, change)| plain(change)) && !seen.looked.iter().any(|(_, looked)| reads(looked))
}

/// More than the whole store may hold would only drive everything else out.
fn result_is_too_large(result: &ActionResult, limit_bytes: u64) -> bool {
    limit_bytes > 0 && result.blobs().map(|blob| blob.size_bytes).sum::<u64>() > limit_bytes
}

/// Signs in a failed run's messages that it would not fail so again: an internal error, a shortage, a killed child.
fn extraordinary(code: u8, written: &Written) -> Option<Unrecorded> {
    const SIGNS: &[(&str, Unrecorded)] = &[
        ("internal compiler error", Unrecorded::InternalError),
        ("PLEASE submit a bug report", Unrecorded::InternalError),
        ("signal terminated program", Unrecorded::Signal),
        ("terminated with signal", Unrecorded::Signal),
        ("due to signal", Unrecorded::Signal),
        ("No space left on device", Unrecorded::Shortage),
        ("Cannot allocate memory", Unrecorded::Shortage),
        ("memory exhausted", Unrecorded::Shortage),
        ("out of memory", Unrecorded::Shortage),
        ("Too many open files", Unrecorded::Shortage),
        ("Resource temporarily unavailable", Unrecorded::Shortage),
        ("Disk quota exceeded", Unrecorded::Shortage),
        ("Input/output error", Unrecorded::Shortage),
    ];
    if code >= 128 {
        return Some(Unrecorded::Signal);
    }
    let texts: [&[u8]; 2] = match written {
        Written::Apart { stdout, stderr } => [stdout, stderr],
        Written::Together(both) => [both, b""],
    };
    let holds = |sign: &str| texts.iter().any(|text| text.windows(sign.len()).any(|w| w == sign.as_bytes()));
    SIGNS.iter().find(|(sign, _)| holds(sign)).map(|(_, why)| *why)
}

// ---------------------------------------------------------------- the size limit

/// Once the store is over its limit, have `larderd` evict in the background; where it is not installed, evict now.
fn keep_within_limit(context: &Context, counters: &Counters, grown: u64) {
    let limit = context.loaded.settings.max_size_bytes;
    let size = counters.grew(grown);
    if limit == 0 || size <= limit {
        return;
    }
    let own = context.own_directory.clone().unwrap_or_default().join("larder");
    let started = words::candidates(&own).into_iter().any(|path| {
        let argv = [&b"larder"[..], b"evict", b"--background"].map(<[u8]>::to_vec).to_vec();
        let program = path.as_os_str().as_bytes().to_vec();
        larder_spawn::start_apart(&Command::new(program, argv, summon::environment(context))).is_ok()
    });
    if !started
        && let Some(dir) = &context.loaded.settings.dir
        && let Ok(store) = Store::open(dir)
    {
        let _ = store.evict(limit / 100 * larder_store::EVICT_TO_PERCENT);
    }
}
