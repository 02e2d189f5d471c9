//! Retries while the source of the bytes cannot be reached. A reader then waits, as it would for a
//! slow source.
//!
//! Unaware of: what the source is.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::Fill;

/// How long a fetch is retried. The last try may take a few seconds more, so a reader waits at most
/// a minute.
const AWAY_MAX: Duration = Duration::from_secs(45);
/// After an outage of that length, a fetch is tried at most this often. Fetches in between fail at
/// once.
const TRY_EVERY: Duration = Duration::from_secs(5);
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How often a waiting thread checks whether it should stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// While all fetches fail: when the first one failed, and when the last one was tried.
#[derive(Default)]
pub(super) struct Outage(Mutex<Option<(Instant, Instant)>>);

impl Outage {
    /// Fetches these bytes. If the source cannot be reached (`HostUnreachable`), it retries until
    /// the outage is too long or `is_stopped` returns true.
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

    /// Fetches these bytes once, without a retry, because no reader waits for them.
    pub(super) fn try_once(&self, fill: &dyn Fill, bytes: &Range<u64>, into: BorrowedFd<'_>) -> io::Result<()> {
        let filled = fill.fill(bytes.start, bytes.end - bytes.start, into);
        let mut state = self.0.lock();
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
        self.0.lock().map(|(since, _)| since)
    }

    /// Returns true if the outage is longer than `AWAY_MAX` and a fetch was tried within
    /// `TRY_EVERY`.
    fn is_long(&self) -> bool {
        let state = *self.0.lock();
        state.is_some_and(|(since, tried)| since.elapsed() >= AWAY_MAX && tried.elapsed() < TRY_EVERY)
    }
}
