//! Breaker: a remote that failed often just now is left alone for a while; then one request tries it.
//!
//! ```text
//! closed ── so many failures of the service within a window ──► open, for a while
//! open   ── that while is over ──► half-open: one request goes through, the others fail at once
//! half-open ── it succeeds ──► closed;   it fails ──► open, for twice as long, up to a limit
//! ```
//! A failure of one object (damaged, too large) is none of the service. A success closes the window anew. Who may read
//! and not write is refused each upload, and goes on reading: that counts as neither.

use super::guard::Guard;
use crate::{Abilities, Body, Key, Mark, Put, Remote, RemoteError, Stored, Trouble};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::StreamExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// When it opens, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct BreakerPolicy {
    /// So many failures …
    pub failures: u32,
    /// … within this open it.
    pub window: Duration,
    /// For so long at first.
    pub open: Duration,
    /// And for so long at most.
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

/// What it does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Requests go through.
    Closed,
    /// None does, for so long still.
    Open(Duration),
    /// One goes through.
    HalfOpen,
}

/// Leaves a failing remote alone.
pub struct Breaker {
    inner: Arc<dyn Remote>,
    switch: Arc<Switch>,
}

/// What is decided, apart from what is asked: a clock is its argument.
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
}

impl Switch {
    /// A closed one.
    pub fn new(name: &str, policy: BreakerPolicy) -> Self {
        let state = State { failed: Vec::new(), open_until: None, open_for: policy.open, probing: false };
        Switch { name: name.into(), policy, state: Mutex::new(state) }
    }

    /// What it does now.
    pub fn state(&self, now: Instant) -> BreakerState {
        match self.locked().open_until {
            None => BreakerState::Closed,
            Some(until) if now < until => BreakerState::Open(until - now),
            Some(_) => BreakerState::HalfOpen,
        }
    }

    /// May a request go through? In the half-open state the first that asks is the probe.
    fn pass(&self, now: Instant) -> Result<(), RemoteError> {
        let mut state = self.locked();
        let why = match state.open_until {
            None => return Ok(()),
            Some(until) if now < until => {
                format!("it failed often; asked again in {:.1} s", (until - now).as_secs_f64())
            }
            Some(_) if state.probing => "it failed often; one request tries it now".to_owned(),
            Some(_) => {
                state.probing = true;
                return Ok(());
            }
        };
        Err(RemoteError::failed(&self.name, None, Trouble::Open, why))
    }

    fn ended(&self, now: Instant, outcome: Outcome) {
        let mut state = self.locked();
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
            // Nobody waited for the end: the next request is the probe.
            Outcome::Unknown => state.probing = false,
        }
    }

    /// Somebody waited for it in vain, and did not wait for its end.
    pub(crate) fn late(&self, now: Instant) {
        self.ended(now, Outcome::Badly);
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Copy)]
enum Outcome {
    Well,
    Badly,
    Unknown,
}

fn of<T>(outcome: &Result<T, RemoteError>) -> Outcome {
    match outcome.as_ref().err().map(RemoteError::trouble) {
        Some(Some(trouble)) if trouble.is_of_service() => Outcome::Badly,
        Some(None) => Outcome::Unknown,
        _ => Outcome::Well,
    }
}

/// The same of what puts something there.
fn of_upload<T>(outcome: &Result<T, RemoteError>) -> Outcome {
    match outcome.as_ref().err().and_then(RemoteError::trouble) {
        Some(Trouble::Denied | Trouble::Other) => Outcome::Unknown,
        _ => of(outcome),
    }
}

/// The runtime's clock, which tests can stop.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

impl Breaker {
    /// Around this.
    pub fn new(inner: Arc<dyn Remote>, policy: BreakerPolicy) -> Self {
        let switch = Arc::new(Switch::new(inner.name(), policy));
        Breaker { inner, switch }
    }

    /// What decides.
    pub fn switch(&self) -> &Arc<Switch> {
        &self.switch
    }

    async fn guarded<T>(&self, work: impl Future<Output = Result<T, RemoteError>>) -> Result<T, RemoteError> {
        self.judged(work, of).await
    }

    async fn uploaded<T>(&self, work: impl Future<Output = Result<T, RemoteError>>) -> Result<T, RemoteError> {
        self.judged(work, of_upload).await
    }

    async fn judged<T>(
        &self,
        work: impl Future<Output = Result<T, RemoteError>>,
        of: impl Fn(&Result<T, RemoteError>) -> Outcome,
    ) -> Result<T, RemoteError> {
        self.switch.pass(now())?;
        let switch = self.switch.clone();
        let mut guard = Guard::new(move || switch.ended(now(), Outcome::Unknown));
        let outcome = work.await;
        guard.disarm();
        self.switch.ended(now(), of(&outcome));
        outcome
    }
}

impl Remote for Breaker {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn abilities(&self) -> Abilities {
        self.inner.abilities()
    }

    fn get(&self, key: Key) -> BoxFuture<'_, Result<Option<(Option<u64>, Body)>, RemoteError>> {
        Box::pin(async move {
            let found = self.guarded(self.inner.get(key)).await?;
            let switch = self.switch.clone();
            let watch = move |next: &Result<Bytes, RemoteError>| {
                if matches!(of(next), Outcome::Badly) {
                    switch.ended(now(), Outcome::Badly);
                }
            };
            Ok(found.map(|(size, body)| (size, body.inspect(watch).boxed())))
        })
    }

    fn put(&self, key: Key, size: u64, body: Body, how: Put) -> BoxFuture<'_, Result<Stored, RemoteError>> {
        Box::pin(self.uploaded(self.inner.put(key, size, body, how)))
    }

    fn has<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<bool>, RemoteError>> {
        Box::pin(self.guarded(self.inner.has(keys)))
    }

    fn get_small<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Bytes>>, RemoteError>> {
        Box::pin(self.guarded(self.inner.get_small(keys)))
    }

    fn put_small<'a>(
        &'a self,
        objects: &'a [(Key, Bytes)],
        how: Put,
    ) -> BoxFuture<'a, Result<Vec<Stored>, RemoteError>> {
        Box::pin(self.uploaded(self.inner.put_small(objects, how)))
    }

    fn get_marked(&self, key: Key) -> BoxFuture<'_, Result<Option<(Bytes, Mark)>, RemoteError>> {
        Box::pin(self.guarded(self.inner.get_marked(key)))
    }

    fn swap(&self, key: Key, bytes: Bytes, seen: Option<Mark>) -> BoxFuture<'_, Result<bool, RemoteError>> {
        Box::pin(self.uploaded(self.inner.swap(key, bytes, seen)))
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
            assert_eq!(switch.state(at(second)), BreakerState::Closed, "failures too far apart do not open it");
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
        assert!(switch.pass(at(39)).is_ok(), "a probe that nobody waited for is no answer");
        switch.ended(at(40), Outcome::Well);
        assert_eq!(switch.state(at(40)), BreakerState::Closed);
    }
}
