//! Fetches a result from a remote, through `larderd`, if no record of the store answers. We wait
//! about as long as such fetches usually take, and then start the tool beside the fetch (a race).
//!
//! Nothing that arrives is used from here. `larderd` puts it into the store, and the action is then
//! looked up again like any other. So a fetch changes only the time that a build takes, never its
//! result.
//!
//! Unaware of: what a remote is, how the tool is run.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use larder_ipc::{Fetching, IpcError, Told};
use larder_lookup::{EarlierRecords, first_that_holds, is_compile, subject};
use larder_model::Manifest;
use larder_store::{Counters, Store};
use larder_sys::Rival;

use crate::caller::caller;
use crate::context::Context;
use crate::daemon_autostart::ensure_daemon;
use crate::fetch_timeout::{UNKNOWN, fetch_timeout};
use crate::request_context::RequestContext;
use crate::run::parent_run;

/// What comes next for an action that no record answers.
pub(crate) enum Next<'a> {
    /// Run the tool. If there is a race, a fetch goes on beside it.
    Run(Option<Race<'a>>),
    /// Look up again, because the result may be in the store now.
    LookAgain(Fetched),
}

/// A fetch that ended with something in the store. There is at most one for each request.
#[derive(Clone, Copy)]
pub(crate) struct Fetched {
    took: Duration,
    /// True if the tool had been started and was stopped.
    raced: bool,
}

impl Fetched {
    /// Returns the text for the log.
    pub(crate) fn message(&self) -> String {
        let raced = if self.raced { ", before the tool had ended" } else { "" };
        format!("fetched from a remote in {:.3} s{raced}", self.took.as_secs_f64())
    }

    /// Counts a hit that came from a remote.
    pub(crate) fn count(&self, store: &Store) {
        if let Ok(counters) = Counters::open(store) {
            counters.count_remote_hit();
        }
    }
}

/// Fetches the result, if the settings name remotes. Returns when the fetch has ended or when the
/// tool should start.
pub(crate) fn fetch<'a>(cx: RequestContext<'a>, known: &EarlierRecords) -> Next<'a> {
    let settings = &cx.context.loaded.settings;
    if settings.remote.is_empty() || settings.read_only || settings.recache {
        return Next::Run(None);
    }
    let Some(fetching) = begin(cx) else { return Next::Run(None) };
    let run = known.run_time_us(cx.request, cx.store).map(Duration::from_micros);
    let race = Race { cx, fetching: Some(fetching), began: Instant::now(), run, until: UNKNOWN, stage: Instant::now() };
    race.wait()
}

fn begin(cx: RequestContext) -> Option<Fetching> {
    let ask = || {
        let directory = &cx.context.place.cwd;
        Fetching::begin(&cx.store.daemon_socket(), caller(&cx.context.loaded.settings), &cx.request.weak, directory)
    };
    match ask() {
        Ok(fetching) => Some(fetching),
        Err(IpcError::Io(_)) if ensure_daemon(cx.context, cx.store) => ask().ok(),
        Err(_) => None,
    }
}

/// Returns true if the tool may be started beside the fetch and be stopped later. It must be a
/// compile that does not read standard input, and not part of a `larder run`. Such a tool never
/// reads what it writes and never starts larder.
fn may_race(cx: RequestContext) -> bool {
    is_compile(cx.request) && cx.request.input.is_empty() && !parent_run::is_there()
}

/// The effect of a message from `larderd`.
enum FetchProgress {
    GoOn,
    /// The result is in the store.
    Won,
    /// There is no result, or the fetch failed.
    Over,
}

/// A fetch in progress.
pub(crate) struct Race<'a> {
    cx: RequestContext<'a>,
    /// `None` once nothing can come of it. `larderd` then drops the fetch.
    fetching: Option<Fetching>,
    began: Instant,
    /// How long the tool is expected to run.
    run: Option<Duration>,
    /// How long to wait in the present stage before the tool is started.
    until: Duration,
    /// When the present stage began. The first stage fetches the records, the second what one of
    /// them needs.
    stage: Instant,
}

impl<'a> Race<'a> {
    /// Waits before the tool is started.
    fn wait(mut self) -> Next<'a> {
        loop {
            let Some(fetching) = &mut self.fetching else { return Next::Run(None) };
            let told = fetching.next(self.until.saturating_sub(self.stage.elapsed()));
            let Ok(Some(told)) = told else {
                return Next::Run(if told.is_ok() { self.run_beside() } else { None });
            };
            match self.step(told) {
                FetchProgress::GoOn => {}
                FetchProgress::Won => return Next::LookAgain(self.fetched(false)),
                FetchProgress::Over => return Next::Run(None),
            }
        }
    }

    /// Tells `larderd` that the tool starts, because the fetch takes longer than usual. Returns the
    /// race if the tool may be stopped.
    fn run_beside(self) -> Option<Race<'a>> {
        let said = self.fetching.as_ref().is_some_and(|fetching| fetching.say_running().is_ok());
        (said && may_race(self.cx)).then_some(self)
    }

    fn step(&mut self, told: Told) -> FetchProgress {
        let Some(fetching) = &self.fetching else { return FetchProgress::Over };
        match told {
            Told::Expect(expect) => {
                self.until = fetch_timeout(&expect, self.run, larder_sys::processor_is_free());
                FetchProgress::GoOn
            }
            Told::Found(bytes) => {
                let RequestContext { context, stat_cache, request, .. } = self.cx;
                let Ok(manifest) = Manifest::decode(&bytes) else { return FetchProgress::Over };
                if manifest.weak != request.weak {
                    return FetchProgress::Over;
                }
                let Some(entry) = first_that_holds(&manifest, request, &context.place, stat_cache) else {
                    return FetchProgress::Over;
                };
                self.run = Some(Duration::from_micros(entry.run_time_us));
                (self.stage, self.until) = (Instant::now(), UNKNOWN);
                if fetching.want(&entry.strong, &subject(request)).is_ok() {
                    FetchProgress::GoOn
                } else {
                    FetchProgress::Over
                }
            }
            Told::Fetched(_) => FetchProgress::Won,
            Told::Nothing(_) => FetchProgress::Over,
        }
    }

    /// Returns what to report if the fetch has won.
    pub(crate) fn fetched(&self, raced: bool) -> Fetched {
        Fetched { took: self.began.elapsed(), raced }
    }
}

impl Rival for Race<'_> {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.fetching.as_ref().map(Fetching::descriptor)
    }

    /// Handles the messages that have arrived, without waiting. Returns true if the result is in
    /// the store.
    fn hear(&mut self) -> bool {
        while let Some(fetching) = &mut self.fetching {
            match fetching.next(Duration::ZERO).map(|told| told.map(|told| self.step(told))) {
                Ok(None) => return false,
                Ok(Some(FetchProgress::GoOn)) => {}
                Ok(Some(FetchProgress::Won)) => return true,
                Ok(Some(FetchProgress::Over)) | Err(_) => self.lose(),
            }
        }
        false
    }

    fn lose(&mut self) {
        self.fetching = None;
    }
}

/// Asks `larderd` to upload a new record to the remotes later.
pub(crate) fn note_recorded(
    context: &Context,
    store: &Store,
    weak: &larder_model::Fingerprint,
    strong: &larder_model::Fingerprint,
) {
    let settings = &context.loaded.settings;
    if settings.remote.is_empty() || settings.remote_read_only {
        return;
    }
    let caller = caller(settings);
    let note = || larder_ipc::note_recorded(&store.daemon_socket(), caller, weak, strong, &context.place.cwd);
    if let Err(IpcError::Io(_)) = note()
        && ensure_daemon(context, store)
    {
        let _ = note();
    }
}
