//! Waits with jitter, so that clients that failed at the same moment do not all retry at the same
//! moment.

use std::time::Duration;

use parking_lot::Mutex;

/// A source of random waits, made from one seed.
pub(crate) struct Wait {
    state: Mutex<u64>,
}

impl Wait {
    pub(crate) fn new(seed: u64) -> Self {
        Wait { state: Mutex::new(seed | 1) }
    }

    /// Returns a number below `count` (SplitMix64).
    pub(crate) fn below(&self, count: u64) -> u64 {
        let mut state = self.state.lock();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % count.max(1)
    }

    /// Waits for one to two times `wait`.
    pub(crate) async fn about(&self, wait: Duration) {
        let more = self.below(wait.as_micros() as u64 + 1);
        tokio::time::sleep(wait + Duration::from_micros(more)).await;
    }

    /// Waits for a random time of up to `first * 2^attempt`, at most `most`.
    pub(crate) async fn backoff(&self, attempt: u32, first: Duration, most: Duration) {
        tokio::time::sleep(self.backed_off(attempt, first, most)).await;
    }

    pub(crate) fn backed_off(&self, attempt: u32, first: Duration, most: Duration) -> Duration {
        let bound = first.saturating_mul(1 << attempt.min(16)).min(most);
        Duration::from_micros(self.below(bound.as_micros() as u64 + 1))
    }
}
