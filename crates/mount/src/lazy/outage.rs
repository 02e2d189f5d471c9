//! Waiting for where bytes come from: if it is away for a moment, a reader waits, as it would for a slow one.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::Fill;

/// Bytes are asked for again for so long. The last try may take a few seconds more, and a reader waits a minute at most.
const AWAY_MAX: Duration = Duration::from_secs(45);
/// Once it was away for longer, a try is made no more often than this, and what comes in between fails at once.
const TRY_EVERY: Duration = Duration::from_secs(5);
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How often it is looked whether to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Since when all that was asked for failed, and when that was tried last.
#[derive(Default)]
pub(super) struct Outage(Mutex<Option<(Instant, Instant)>>);

impl Outage {
    /// Fill these bytes. If `fill` says that they cannot be reached now, it is asked again, until it was away for too long
    /// or `is_stopped`.
    pub(super) fn fill(
        &self,
        fill: &dyn Fill,
        bytes: &Range<u64>,
        into: BorrowedFd<'_>,
        is_stopped: impl Fn() -> bool,
    ) -> io::Result<()> {
        let (began, mut pause) = (Instant::now(), PAUSE_FIRST);
        loop {
            if self.is_long() {
                return Err(io::ErrorKind::HostUnreachable.into());
            }
            let error = match self.try_once(fill, bytes, into) {
                Err(error) if error.kind() == io::ErrorKind::HostUnreachable => error,
                done => return done,
            };
            if began.elapsed() >= AWAY_MAX || self.since().is_some_and(|since| since.elapsed() >= AWAY_MAX) {
                return Err(error);
            }
            let until = Instant::now() + pause;
            while Instant::now() < until {
                if is_stopped() {
                    return Err(error);
                }
                std::thread::sleep(LOOK_EVERY.min(pause));
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Fill them, or not: nothing waits for these.
    pub(super) fn try_once(&self, fill: &dyn Fill, bytes: &Range<u64>, into: BorrowedFd<'_>) -> io::Result<()> {
        let filled = fill.fill(bytes.start, bytes.end - bytes.start, into);
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = match (&filled, *state) {
            (Err(error), before) if error.kind() == io::ErrorKind::HostUnreachable => {
                let now = Instant::now();
                Some((before.map_or(now, |(since, _)| since), now))
            }
            _ => None,
        };
        filled
    }

    fn since(&self) -> Option<Instant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).map(|(since, _)| since)
    }

    /// Whether it was away for too long, and somebody tried just now.
    fn is_long(&self) -> bool {
        let state = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_some_and(|(since, tried)| since.elapsed() >= AWAY_MAX && tried.elapsed() < TRY_EVERY)
    }
}
