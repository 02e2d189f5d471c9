//! Numbers from a seed (SplitMix64).

/// A source of numbers: the same seed gives the same ones.
#[derive(Clone, Debug)]
pub struct Drawn(u64);

impl Drawn {
    /// The source that `seed` names.
    pub fn from(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        finished(self.0)
    }

    /// A number from 0 to `limit - 1`; 0 where `limit` is.
    pub fn below(&mut self, limit: usize) -> usize {
        // So far from 2^64 that no remainder is likelier than another by more than can be seen.
        (self.number() % limit.max(1) as u64) as usize
    }

    /// Puts `order` into another one.
    pub fn shuffle<T>(&mut self, order: &mut [T]) {
        for last in (1..order.len()).rev() {
            order.swap(last, self.below(last + 1));
        }
    }
}

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A number that looks drawn, for each number one.
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
