//! Breaker: stops sending requests to a remote that failed often, and probes it later.
//!
//! ```text
//! closed    ── enough failures within a window ──► open, for a while
//! open      ── the time is over ──► half-open: one request is sent
//! half-open ── the probe succeeds ──► closed
//!           ── the probe fails ──► open, for twice as long, up to a limit
//! ```
//! Only failures of the whole service count, not those of one object (damaged, too large). A
//! success resets the window. An upload that is denied, or fails for an unknown reason, counts as
//! neither, because a client with read access only may still read.
//!
//! By default three failures within 10 s open it for 5 s, and later for up to 2 min.
//!
//! Unaware of: which service it is, what is stored.

use super::guard::Guard;
use crate::{Abilities, Answer, Body, Fetched, Key, Mark, Put, Remote, RemoteError, Stored, Trouble};
use bytes::Bytes;
use futures::stream::StreamExt;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// When the breaker opens, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct BreakerPolicy {
    /// It opens after this many failures …
    pub failures: u32,
    /// … within this time.
    pub window: Duration,
    /// How long it stays open the first time.
    pub open: Duration,
    /// How long it stays open at most.
    pub open_max: Duration,
}

impl Default for BreakerPolicy {
    fn default() -> Self {
        BreakerPolicy {
            failures: 3,
            window: Duration::from_secs(10),
            open: Duration::from_secs(5),
            open_max: Duration::from_secs(120),
        }
    }
}

/// The state of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Requests are sent.
    Closed,
    /// No requests are sent for this long.
    Open(Duration),
    /// One request is sent as a probe; the others fail at once.
    HalfOpen,
}

/// A decorator that stops sending requests after several failures.
pub struct Breaker {
    inner: Arc<dyn Remote>,
    switch: Arc<Switch>,
}

/// The state machine of the breaker. It takes the time as an argument.
pub struct Switch {
    name: Arc<str>,
    policy: BreakerPolicy,
    state: Mutex<State>,
}

struct State {
    failed: Vec<Instant>,
    open_until: Option<Instant>,
    open_for: Duration,
    probing: bool,
    /// The last failure that waiting does not mend. It is said again while the breaker is open.
    for_people: Option<RemoteError>,
}

impl Switch {
    /// Returns a closed breaker for the remote `name`.
    pub fn new(name: &str, policy: BreakerPolicy) -> Self {
        let state =
            State { failed: Vec::new(), open_until: None, open_for: policy.open, probing: false, for_people: None };
        Switch { name: name.into(), policy, state: Mutex::new(state) }
    }

    /// Returns the current state.
    pub fn state(&self, now: Instant) -> BreakerState {
        match self.state.lock().open_until {
            None => BreakerState::Closed,
            Some(until) if now < until => BreakerState::Open(until - now),
            Some(_) => BreakerState::HalfOpen,
        }
    }

    /// Returns an error if a request must not be sent now. In the half-open state the first request
    /// is sent as the probe.
    fn pass(&self, now: Instant) -> Result<(), RemoteError> {
        let mut state = self.state.lock();
        let why = match state.open_until {
            None => return Ok(()),
            Some(until) if now < until => {
                format!("it failed often and is tried again in {:.1} s", (until - now).as_secs_f64())
            }
            Some(_) if state.probing => "it failed often, and another request is probing it now".to_owned(),
            Some(_) => {
                state.probing = true;
                return Ok(());
            }
        };
        Err(state.for_people.clone().unwrap_or_else(|| RemoteError::failed(&self.name, None, Trouble::Open, why)))
    }

    /// Remembers the error of a request if only a person can mend it.
    fn note<T>(&self, outcome: &Result<T, RemoteError>) {
        let error = outcome.as_ref().err();
        self.state.lock().for_people =
            error.filter(|error| error.trouble().is_some_and(Trouble::is_for_people)).cloned();
    }

    fn ended(&self, now: Instant, outcome: Outcome) {
        let mut state = self.state.lock();
        match outcome {
            Outcome::Well => {
                state.failed.clear();
                state.open_until = None;
                state.open_for = self.policy.open;
                state.probing = false;
            }
            Outcome::Badly if state.probing => {
                state.probing = false;
                state.open_for = (state.open_for * 2).min(self.policy.open_max);
                state.open_until = Some(now + state.open_for);
            }
            Outcome::Badly => {
                state.failed.retain(|at| now.duration_since(*at) < self.policy.window);
                state.failed.push(now);
                if state.failed.len() >= self.policy.failures as usize && state.open_until.is_none() {
                    state.open_until = Some(now + state.open_for);
                }
            }
            // The caller dropped the request. The next request is the probe.
            Outcome::Unknown => state.probing = false,
        }
    }

    /// Counts a failure: a caller gave up waiting for an answer.
    pub(crate) fn late(&self, now: Instant) {
        self.ended(now, Outcome::Badly);
    }
}

#[derive(Clone, Copy)]
enum Outcome {
    Well,
    Badly,
    Unknown,
}

/// Returns how a request other than an upload counts.
fn of<T>(outcome: &Result<T, RemoteError>) -> Outcome {
    match outcome.as_ref().err().map(RemoteError::trouble) {
        Some(Some(trouble)) if trouble.is_of_service() => Outcome::Badly,
        Some(None) => Outcome::Unknown,
        _ => Outcome::Well,
    }
}

/// Returns how an upload counts.
fn of_upload<T>(outcome: &Result<T, RemoteError>) -> Outcome {
    match outcome.as_ref().err().and_then(RemoteError::trouble) {
        Some(Trouble::Denied | Trouble::Other) => Outcome::Unknown,
        _ => of(outcome),
    }
}

/// Returns the time of the runtime's clock, which tests can stop.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

impl Breaker {
    /// Returns a breaker around `inner`.
    pub fn new(inner: Arc<dyn Remote>, policy: BreakerPolicy) -> Self {
        let switch = Arc::new(Switch::new(inner.name(), policy));
        Breaker { inner, switch }
    }

    /// Returns the state machine.
    pub fn switch(&self) -> &Arc<Switch> {
        &self.switch
    }

    /// Lets a request through unless the breaker is open. `of` says how its outcome counts.
    fn judged<'a, T: Send + 'a>(
        &'a self,
        of: fn(&Result<T, RemoteError>) -> Outcome,
        work: Answer<'a, T>,
    ) -> Answer<'a, T> {
        Box::pin(async move {
            self.switch.pass(now())?;
            let switch = self.switch.clone();
            let mut guard = Guard::new(move || switch.ended(now(), Outcome::Unknown));
            let outcome = work.await;
            guard.disarm();
            self.switch.note(&outcome);
            self.switch.ended(now(), of(&outcome));
            outcome
        })
    }
}

impl Remote for Breaker {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn abilities(&self) -> Abilities {
        self.inner.abilities()
    }

    fn get(&self, key: Key) -> Answer<'_, Fetched> {
        Box::pin(async move {
            let found = self.judged(of, self.inner.get(key)).await?;
            let switch = self.switch.clone();
            let watch = move |next: &Result<Bytes, RemoteError>| {
                if matches!(of(next), Outcome::Badly) {
                    switch.ended(now(), Outcome::Badly);
                }
            };
            Ok(found.map(|(size, body)| (size, body.inspect(watch).boxed())))
        })
    }

    fn put(&self, key: Key, size: u64, body: Body, how: Put) -> Answer<'_, Stored> {
        self.judged(of_upload, self.inner.put(key, size, body, how))
    }

    fn has<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<bool>> {
        self.judged(of, self.inner.has(keys))
    }

    fn get_small<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<Option<Bytes>>> {
        self.judged(of, self.inner.get_small(keys))
    }

    fn put_small<'a>(&'a self, objects: &'a [(Key, Bytes)], how: Put) -> Answer<'a, Vec<Stored>> {
        self.judged(of_upload, self.inner.put_small(objects, how))
    }

    fn get_marked(&self, key: Key) -> Answer<'_, Option<(Bytes, Mark)>> {
        self.judged(of, self.inner.get_marked(key))
    }

    fn swap(&self, key: Key, bytes: Bytes, seen: Option<Mark>) -> Answer<'_, bool> {
        self.judged(of_upload, self.inner.swap(key, bytes, seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_probes_and_closes() {
        let policy = BreakerPolicy::default();
        let switch = Switch::new("r", policy);
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        for second in [0, 1, 20] {
            assert!(switch.pass(at(second)).is_ok());
            switch.ended(at(second), Outcome::Badly);
            assert_eq!(switch.state(at(second)), BreakerState::Closed, "failures far apart do not open the breaker");
        }
        switch.ended(at(21), Outcome::Badly);
        switch.ended(at(22), Outcome::Badly);
        let error = switch.pass(at(23)).expect_err("it is open");
        assert_eq!(error.trouble(), Some(Trouble::Open));
        assert_eq!(switch.state(at(27)), BreakerState::HalfOpen);
        assert!(switch.pass(at(27)).is_ok(), "the probe");
        assert!(switch.pass(at(27)).is_err(), "only one");
        switch.ended(at(28), Outcome::Badly);
        assert_eq!(switch.state(at(28)), BreakerState::Open(policy.open * 2));
        assert!(switch.pass(at(39)).is_ok());
        switch.ended(at(39), Outcome::Unknown);
        assert!(switch.pass(at(39)).is_ok(), "a dropped probe neither opens nor closes the breaker");
        switch.ended(at(40), Outcome::Well);
        assert_eq!(switch.state(at(40)), BreakerState::Closed);
    }
}
