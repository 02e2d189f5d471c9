//! A fetch from a remote, by `larderd`, for an action that no record of the store answers: waited for about as long as
//! such fetches take, then raced with the tool.
//!
//! Nothing that comes is used from here. What is wanted `larderd` puts into the store, and then it is looked up again
//! as any record is: so a fetch, whoever wins, decides about time only.
//!
//! Unaware of: what a remote is, how the tool is run.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use larder_ipc::{Fetching, IpcError, Told};
use larder_lookup::{Known, Request, first_that_holds, is_compile, subject};
use larder_model::Manifest;
use larder_store::{Counters, Stamps, Store};
use larder_sys::Rival;

use crate::context::Context;
use crate::patience::{UNKNOWN, patience};
use crate::token::caller;
use crate::{outer, summon};

/// What comes next for an action that no record answers.
pub(crate) enum Next<'a> {
    /// Run it, raced by what may still come.
    Run(Option<Race<'a>>),
    /// It may be in the store now.
    LookAgain(Fetched),
}

/// Something was fetched, and nothing is fetched again.
#[derive(Clone, Copy)]
pub(crate) struct Fetched {
    took: Duration,
    /// The tool had been started and was stopped.
    raced: bool,
}

impl Fetched {
    /// For the log.
    pub(crate) fn words(&self) -> String {
        let raced = if self.raced { ", before the tool had ended" } else { "" };
        format!("fetched from a remote in {:.3} s{raced}", self.took.as_secs_f64())
    }

    /// Count a hit that came of it.
    pub(crate) fn count(&self, store: &Store) {
        if let Ok(counters) = Counters::open(store) {
            counters.count_remote_hit();
        }
    }
}

/// A request, and what it is answered with.
#[derive(Clone, Copy)]
pub(crate) struct Asking<'a> {
    pub(crate) context: &'a Context,
    pub(crate) store: &'a Store,
    pub(crate) stamps: &'a Stamps,
    pub(crate) request: &'a Request,
}

/// Fetch it, where there are remotes.
pub(crate) fn fetch<'a>(asking: Asking<'a>, known: &Known) -> Next<'a> {
    let settings = &asking.context.loaded.settings;
    if settings.remote.is_empty() || settings.read_only || settings.recache {
        return Next::Run(None);
    }
    let Some(fetching) = asking.begin() else { return Next::Run(None) };
    let run = known.run_time_us(asking.request, asking.store).map(Duration::from_micros);
    let race =
        Race { asking, fetching: Some(fetching), began: Instant::now(), run, until: UNKNOWN, stage: Instant::now() };
    race.wait()
}

impl Asking<'_> {
    fn begin(&self) -> Option<Fetching> {
        let ask = || {
            let directory = &self.context.place.cwd;
            Fetching::begin(
                &self.store.daemon_socket(),
                caller(&self.context.loaded.settings),
                &self.request.weak,
                directory,
            )
        };
        match ask() {
            Ok(fetching) => Some(fetching),
            Err(IpcError::Io(_)) if summon::summon(self.context, self.store) => ask().ok(),
            Err(_) => None,
        }
    }

    /// Whether the tool may be stopped: it reads nothing that it writes, starts no larder, and is observed by none
    /// above.
    fn may_race(&self) -> bool {
        is_compile(self.request) && self.request.input.is_empty() && !outer::is_there()
    }
}

/// What became of a word of `larderd`.
enum Step {
    GoOn,
    /// What was wanted is in the store.
    Won,
    /// Nothing comes.
    Over,
}

/// A fetch under way.
pub(crate) struct Race<'a> {
    asking: Asking<'a>,
    /// `None` once nothing can come of it any more: `larderd` then drops it.
    fetching: Option<Fetching>,
    began: Instant,
    /// How long the tool is expected to run.
    run: Option<Duration>,
    /// How long the present stage is waited for before the tool is started.
    until: Duration,
    /// When that stage began: first the records are asked for, then what one of them needs.
    stage: Instant,
}

impl<'a> Race<'a> {
    /// Before the tool is started.
    fn wait(mut self) -> Next<'a> {
        loop {
            let Some(fetching) = &mut self.fetching else { return Next::Run(None) };
            let told = fetching.next(self.until.saturating_sub(self.stage.elapsed()));
            let Ok(Some(told)) = told else {
                return Next::Run(if told.is_ok() { self.run_beside() } else { None });
            };
            match self.step(told) {
                Step::GoOn => {}
                Step::Won => return Next::LookAgain(self.fetched(false)),
                Step::Over => return Next::Run(None),
            }
        }
    }

    /// It takes longer than such fetches do.
    fn run_beside(self) -> Option<Race<'a>> {
        let said = self.fetching.as_ref().is_some_and(|fetching| fetching.say_running().is_ok());
        (said && self.asking.may_race()).then_some(self)
    }

    fn step(&mut self, told: Told) -> Step {
        let Some(fetching) = &self.fetching else { return Step::Over };
        match told {
            Told::Expect(expect) => {
                self.until = patience(&expect, self.run, larder_sys::processor_is_free());
                Step::GoOn
            }
            Told::Found(bytes) => {
                let Asking { context, stamps, request, .. } = self.asking;
                let Ok(manifest) = Manifest::decode(&bytes) else { return Step::Over };
                if manifest.weak != request.weak {
                    return Step::Over;
                }
                let Some(entry) = first_that_holds(&manifest, request, &context.place, stamps) else {
                    return Step::Over;
                };
                self.run = Some(Duration::from_micros(entry.run_time_us));
                (self.stage, self.until) = (Instant::now(), UNKNOWN);
                if fetching.want(&entry.strong, &subject(request)).is_ok() { Step::GoOn } else { Step::Over }
            }
            Told::Fetched(_) => Step::Won,
            Told::Nothing(_) => Step::Over,
        }
    }

    /// It won.
    pub(crate) fn fetched(&self, raced: bool) -> Fetched {
        Fetched { took: self.began.elapsed(), raced }
    }
}

impl Rival for Race<'_> {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.fetching.as_ref().map(Fetching::descriptor)
    }

    /// What has come, without waiting for more.
    fn hear(&mut self) -> bool {
        while let Some(fetching) = &mut self.fetching {
            match fetching.next(Duration::ZERO).map(|told| told.map(|told| self.step(told))) {
                Ok(None) => return false,
                Ok(Some(Step::GoOn)) => {}
                Ok(Some(Step::Won)) => return true,
                Ok(Some(Step::Over)) | Err(_) => self.lose(),
            }
        }
        false
    }

    fn lose(&mut self) {
        self.fetching = None;
    }
}

/// Have what was recorded sent to the remotes, some time.
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
        && summon::summon(context, store)
    {
        let _ = note();
    }
}
