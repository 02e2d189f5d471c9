//! Pseudo-random numbers from a seed (SplitMix64).

/// A generator. The same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Drawn(u64);

impl Drawn {
    /// Returns the generator for `seed`.
    pub fn from(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        finished(self.0)
    }

    /// Returns a number from 0 to `limit - 1`, or 0 if `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        // `limit` is so far below 2^64 that the bias of the remainder does not matter.
        (self.number() % limit.max(1) as u64) as usize
    }

    /// Shuffles `order`.
    pub fn shuffle<T>(&mut self, order: &mut [T]) {
        for last in (1..order.len()).rev() {
            order.swap(last, self.below(last + 1));
        }
    }
}

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns a pseudo-random number that depends only on `number`.
pub fn mixed(number: u64) -> u64 {
    finished(number.wrapping_add(STEP))
}

fn finished(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shuffle_gives_an_order_of_its_own() {
        let (mut drawn, mut order) = (Drawn::from(1), (0..30).collect::<Vec<_>>());
        drawn.shuffle(&mut order);
        let first = order.clone();
        drawn.shuffle(&mut order);
        assert_ne!(order, first);
        order.sort_unstable();
        assert_eq!(order, (0..30).collect::<Vec<_>>());
    }

    #[test]
    fn a_seed_is_a_sequence() {
        let take = |seed| {
            let mut drawn = Drawn::from(seed);
            [(); 3].map(|()| drawn.number())
        };
        assert_eq!(take(7), take(7));
        assert_ne!(take(7), take(8));
        assert_eq!(mixed(7), take(7)[0]);
    }
}
