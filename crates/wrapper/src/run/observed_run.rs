//! Runs a tool under the chosen observers.
//!
//! Unaware of: what the run is recorded for, whether it will be recorded.

use std::io;

use larder_compiler::Family;
use larder_lookup::Choice;
use larder_model::{Fallback, Outcome};
use larder_observe::{
    AccessKind, BothObservers, Closing, DepfileObserver, Interest, KernelObserver, Observed, Observer, PreloadObserver,
    RunModel, Sample, SampledObserver, Verdict,
};
use larder_spawn::{Command, Destinations};
use larder_sys::Rival;

/// The error number of a system call that Linux does not have or a filter refuses.
const ENOSYS: i32 = 38;

/// The observers of a run.
pub(crate) enum ObservationStrategy {
    One(Box<dyn Observer>),
    Both(BothObservers),
    Samples(SampledObserver),
}

/// A run that was observed.
pub(crate) struct ObservedRun {
    pub(crate) observed: Observed,
    /// The observer whose trace it is.
    pub(crate) observer: larder_model::Observer,
    /// The comparison of the two observers, if both watched.
    pub(crate) verdict: Option<Verdict>,
    /// The comparisons for the sampled processes, if samples were taken.
    pub(crate) samples: Option<Vec<Sample>>,
}

impl ObservedRun {
    /// Returns a path or a sentence if observing may have changed what the tool did. Such a run is
    /// not recorded.
    ///
    /// For example, the loader ends a program whose libc lacks something that the preloaded library
    /// needs.
    pub(crate) fn sign_of_harm(&self, run: &RunModel, exit_code: u8) -> Option<Vec<u8>> {
        let verdict = self.verdict.as_ref();
        // The library reported a call that failed with ENOSYS, and the kernel observer saw no such
        // call.
        let made_up = verdict.and_then(|v| v.invented.iter().find(|access| access.kind == AccessKind::Failed(ENOSYS)));
        if let Some(access) = made_up {
            return Some(access.path.clone());
        }
        if exit_code == 0 {
            return None;
        }
        if verdict.is_some_and(|verdict| !verdict.alike) {
            return Some(b"the preloaded library and the kernel observer saw different things".to_vec());
        }
        let first = self.observed.finished.pid;
        let began = run.starts.iter().any(|start| start.pid == first);
        if self.observer == larder_model::Observer::Preload && !began {
            return Some(b"the tool did not begin".to_vec());
        }
        run.first_unknown_call.map(<[u8]>::to_vec)
    }
}

/// Returns whether the kernel observer watches `close`. It must not do so for scripts, because
/// interpreters may handle signals, and a handler interrupts the observed call.
pub(crate) fn closing(family: Family) -> Closing {
    match family {
        Family::Gcc | Family::Clang | Family::Binutils => Closing::Asked,
        // rustc's job server sends a signal to a thread of its own.
        Family::Generic | Family::Command | Family::Rustc => Closing::Unasked,
    }
}

impl ObservationStrategy {
    /// Starts the observers of `choice`.
    pub(crate) fn of(choice: Choice, closing: Closing) -> Result<ObservationStrategy, Outcome> {
        let failed = |_| Outcome::Fallback(Fallback::ObserverFailed);
        Ok(match choice {
            Choice::Preload => ObservationStrategy::One(Box::new(PreloadObserver::new().map_err(failed)?)),
            Choice::Kernel => ObservationStrategy::One(Box::new(KernelObserver::new(closing))),
            Choice::Depfile(plan) => ObservationStrategy::One(Box::new(DepfileObserver::new(*plan))),
            Choice::Both => ObservationStrategy::Both(BothObservers::new(closing).map_err(failed)?),
            Choice::Samples => ObservationStrategy::Samples(SampledObserver::new().map_err(failed)?),
        })
    }

    /// Runs the tool, unless the race ends first. `interest` says of which programs samples are
    /// taken. On an error the tool was not started and can still be.
    pub(crate) fn run(
        &self,
        command: &Command,
        to: &Destinations,
        race: Option<&mut dyn Rival>,
        interest: &dyn Fn(&[u8]) -> Interest,
    ) -> io::Result<ObservedRun> {
        let both = match self {
            ObservationStrategy::One(observer) => {
                // The depfile does not say which files the tool created, so they could not be
                // removed if the race ended first.
                let race = race.filter(|_| observer.name() != larder_model::Observer::Depfile);
                let observed = observer.run(command, to, race)?;
                return Ok(ObservedRun { observed, observer: observer.name(), verdict: None, samples: None });
            }
            ObservationStrategy::Samples(samples) => {
                let sampled = samples.run(command, to, race, interest)?;
                let (observed, samples) = (sampled.observed, Some(sampled.samples));
                return Ok(ObservedRun { observed, observer: larder_model::Observer::Preload, verdict: None, samples });
            }
            // The verdict needs a complete run, so there is no race. The kernel observer fails to
            // start if another seccomp listener exists. Then the library watches alone.
            ObservationStrategy::Both(both) => match both.run(command, to, None) {
                Ok(both) => both,
                Err(_) => {
                    let alone = ObservationStrategy::of(Choice::Preload, Closing::Unasked)
                        .map_err(|_| io::ErrorKind::Unsupported)?;
                    return alone.run(command, to, None, interest);
                }
            },
        };
        let verdict = Some(both.verdict());
        let alike = verdict.as_ref().is_some_and(|verdict| verdict.alike);
        let (observed, observer) = match alike {
            true => (both.observed, larder_model::Observer::Preload),
            false => (both.by_kernel(), larder_model::Observer::Kernel),
        };
        Ok(ObservedRun { observed, observer, verdict, samples: None })
    }
}
