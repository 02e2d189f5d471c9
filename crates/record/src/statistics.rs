//! Decides from few and disturbed samples whether one side is faster than the other.
//!
//! * **Estimate.** The estimated value is the logarithm of the ratio B ÷ A: of each pair if the
//!   runs were paired, else of the middle values of both sides. The estimate is the mean of the
//!   middle half of all differences (the interquartile mean). Disturbed runs do not move it, and it
//!   is more precise than the median.
//! * **Interval.** The confidence interval comes from resampling the differences (the bootstrap).
//!   With few samples such an interval is too narrow, so it is not enough for a verdict.
//! * **Test.** A difference counts only if chance makes one as large in at most one of a hundred
//!   cases. This is a permutation test: the sides within pairs are swapped at random, or unpaired
//!   samples are dealt to the sides at random. It is valid for any kind of disturbance, because the
//!   runs are paired and their order is random.
//! * **Ranks.** The test adds up ranks, capped at half of the highest rank. So a strongly disturbed
//!   run counts no more than a slightly disturbed one.

/// The part of all resamples that the interval leaves out, at both ends together. It is also the
/// largest probability of chance that a verdict allows.
const CHANCE_MAX: f64 = 0.01;
/// The number of resamples for an interval.
const DRAWS: usize = 1000;
/// The number of random permutations for a test. For few pairs, all permutations are used instead.
const TURNS: usize = 5000;
/// The smallest number of pairs for a verdict. With n pairs the rarest outcome has probability 2 ÷
/// 2ⁿ, and n = 8 is the first for which that is below one in a hundred.
pub const PAIRS_MIN: usize = 8;
/// Up to this number of pairs, all permutations are tried.
const ALL_WAYS_MAX: usize = 13;
/// Ranks are capped at this part of the highest rank.
const RANK_MAX: f64 = 0.5;
/// More additional runs than this are not proposed.
const MORE_MAX: f64 = 1000.0;

/// The estimated ratio B ÷ A.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The ratio.
    pub ratio: f64,
    /// The lower bound of its confidence interval.
    pub low: f64,
    /// The upper bound of its confidence interval.
    pub high: f64,
    /// The probability that chance alone makes a difference as large, from 0 to 1.
    pub chance: f64,
    /// The number of samples per side; without pairs, the smaller one.
    pub samples: usize,
    /// True if the samples were paired.
    pub paired: bool,
}

/// The conclusion from an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// B needs less.
    Less,
    /// B needs more.
    More,
    /// They differ by less than the margin.
    Equal,
    /// There is no conclusion. Holds how many more runs per side would allow one, or `None` if that
    /// is not practical.
    CannotTell(Option<usize>),
}

impl Verdict {
    /// Returns its name, as it is written and shown.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Less => "less",
            Verdict::More => "more",
            Verdict::Equal => "equal",
            Verdict::CannotTell(_) => "cannot tell",
        }
    }
}

/// Returns the estimate for paired samples, or `None` if there are none or a sample is not above
/// zero.
pub fn paired(a: &[f64], b: &[f64]) -> Option<Estimate> {
    let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| (b / a).ln()).collect();
    if differences.is_empty() || differences.iter().any(|difference| !difference.is_finite()) {
        return None;
    }
    let mut random = fastrand::Rng::with_seed(SEED);
    let value = middle(&differences);
    let (low, high) = interval(value, || {
        let again: Vec<f64> = (0..differences.len()).map(|_| differences[random.usize(..differences.len())]).collect();
        middle(&again)
    });
    let chance = chance_of_signs(&differences);
    Some(Estimate {
        ratio: value.exp(),
        low: low.exp(),
        high: high.exp(),
        chance,
        samples: differences.len(),
        paired: true,
    })
}

/// Returns the estimate for unpaired samples, or `None` if a side has none or a sample is not above
/// zero.
pub fn unpaired(a: &[f64], b: &[f64]) -> Option<Estimate> {
    let logarithms = |samples: &[f64]| samples.iter().map(|sample| sample.ln()).collect::<Vec<f64>>();
    let (a, b) = (logarithms(a), logarithms(b));
    if a.is_empty() || b.is_empty() || a.iter().chain(&b).any(|sample| !sample.is_finite()) {
        return None;
    }
    let mut random = fastrand::Rng::with_seed(SEED);
    let shift = |a: &[f64], b: &[f64]| middle(b) - middle(a);
    let value = shift(&a, &b);
    let (low, high) = interval(value, || {
        let mut again = |of: &[f64]| (0..of.len()).map(|_| of[random.usize(..of.len())]).collect::<Vec<_>>();
        let (a, b) = (again(&a), again(&b));
        shift(&a, &b)
    });
    let chance = chance_of_deal(&a, &b);
    let samples = a.len().min(b.len());
    Some(Estimate { ratio: value.exp(), low: low.exp(), high: high.exp(), chance, samples, paired: false })
}

/// A fixed seed, so that equal samples give equal answers.
const SEED: u64 = 20_261_122;

impl Estimate {
    /// Returns the conclusion. A difference below `margin` (0.01 is 1 %) counts as equal.
    pub fn verdict(&self, margin: f64) -> Verdict {
        let is_real = self.samples >= PAIRS_MIN && self.chance <= CHANCE_MAX;
        let edge = margin.ln_1p();
        if self.samples >= PAIRS_MIN && self.low.ln() >= -edge && self.high.ln() <= edge {
            return Verdict::Equal;
        }
        match () {
            () if is_real && self.high < 1.0 => Verdict::Less,
            () if is_real && self.low > 1.0 => Verdict::More,
            () => Verdict::CannotTell(self.more(edge)),
        }
    }

    /// Returns how many more runs per side would settle it. The interval shrinks with the square
    /// root of the number of samples. It is settled when the interval excludes 1 or fits into the
    /// margin, whichever comes first.
    fn more(&self, edge: f64) -> Option<usize> {
        if self.samples < PAIRS_MIN {
            return Some(PAIRS_MIN - self.samples);
        }
        let (effect, half) = (self.ratio.ln().abs(), (self.high.ln() - self.low.ln()) / 2.0);
        let target = effect.max(edge - effect).max(f64::MIN_POSITIVE);
        let needed = self.samples as f64 * (half / target).powi(2) * 1.1;
        let more = (needed - self.samples as f64).ceil().max(1.0);
        (more <= MORE_MAX).then_some(more as usize)
    }
}

/// Returns the interquartile mean: the mean of the middle half, whose first and last sample may
/// count in part.
fn middle(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let (from, to) = (sorted.len() as f64 / 4.0, sorted.len() as f64 * 3.0 / 4.0);
    let share = |at: usize| ((at + 1) as f64).min(to) - (at as f64).max(from);
    let weighed = sorted.iter().enumerate().map(|(at, sample)| (share(at).max(0.0), sample));
    let (sum, all) = weighed.fold((0.0, 0.0), |(sum, all), (share, sample)| (sum + share * sample, all + share));
    if all > 0.0 { sum / all } else { 0.0 }
}

/// Returns the median, or 0 if there are no values.
pub fn median(mut values: Vec<f64>) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let (half, is_odd) = (values.len() / 2, values.len() % 2 == 1);
    let (below, middle, _) = values.select_nth_unstable_by(half, f64::total_cmp);
    match below.iter().copied().max_by(f64::total_cmp) {
        Some(before) if !is_odd => (before + *middle) / 2.0,
        _ => *middle,
    }
}

fn interval(value: f64, mut draw: impl FnMut() -> f64) -> (f64, f64) {
    let mut values: Vec<f64> = (0..DRAWS).map(|_| draw()).collect();
    values.sort_unstable_by(f64::total_cmp);
    let left_out = (DRAWS as f64 * CHANCE_MAX / 2.0) as usize;
    (values[left_out].min(value), values[DRAWS - 1 - left_out].max(value))
}

/// Returns how often the sum of the ranks with random signs is at least as far from zero as the
/// found sum.
fn chance_of_signs(differences: &[f64]) -> f64 {
    let magnitudes: Vec<f64> = differences.iter().map(|difference| difference.abs()).collect();
    let highest = (differences.len() as f64 * RANK_MAX).max(1.0);
    let ranks: Vec<f64> = ranks(&magnitudes).into_iter().map(|rank| rank.min(highest)).collect();
    let found: f64 =
        ranks.iter().zip(differences).map(|(rank, d)| if *d == 0.0 { 0.0 } else { rank * d.signum() }).sum();
    let is_as_far = |sum: f64| sum.abs() >= found.abs() - 1e-9;
    let sum_with = |signs: &dyn Fn(usize) -> bool| {
        ranks.iter().enumerate().map(|(at, rank)| if signs(at) { *rank } else { -rank }).sum::<f64>()
    };
    if differences.len() <= ALL_WAYS_MAX {
        let ways = 1usize << differences.len();
        let far = (0..ways).filter(|way| is_as_far(sum_with(&|at| way >> at & 1 == 1))).count();
        return far as f64 / ways as f64;
    }
    let mut random = fastrand::Rng::with_seed(SEED);
    let far =
        (0..TURNS).filter(|_| is_as_far(ranks.iter().map(|rank| if random.bool() { *rank } else { -rank }).sum()));
    (far.count() + 1) as f64 / (TURNS + 1) as f64
}

/// Returns how often the sum of B's ranks, with samples dealt out at random, is at least as far
/// from its expectation as the found sum.
fn chance_of_deal(a: &[f64], b: &[f64]) -> f64 {
    let mut ranks = ranks(&[a, b].concat());
    let expected = ranks.iter().sum::<f64>() * b.len() as f64 / ranks.len() as f64;
    let found = (ranks[a.len()..].iter().sum::<f64>() - expected).abs();
    let mut random = fastrand::Rng::with_seed(SEED);
    let far = (0..TURNS).filter(|_| {
        random.shuffle(&mut ranks);
        (ranks[a.len()..].iter().sum::<f64>() - expected).abs() >= found - 1e-9
    });
    (far.count() + 1) as f64 / (TURNS + 1) as f64
}

/// Returns the rank of each value, from 1, in order of size. Equal values share the average of
/// their ranks.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut from = 0;
    while from < order.len() {
        let same = order[from..].iter().take_while(|&&at| values[at] == values[order[from]]).count();
        let rank = from as f64 + (same as f64 + 1.0) / 2.0;
        order[from..from + same].iter().for_each(|&at| ranks[at] = rank);
        from += same;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A simulated machine: a build takes 100 s, with 1 % noise, a slow drift, and one run in
    /// twenty slower by up to 10 %.
    struct Machine(fastrand::Rng, f64);

    impl Machine {
        fn noise(&mut self) -> f64 {
            (0..12).map(|_| self.0.f64()).sum::<f64>() - 6.0
        }

        /// Returns `pairs` pairs of times, in which B takes `factor` times as long as A.
        fn pairs(&mut self, pairs: usize, factor: f64) -> (Vec<f64>, Vec<f64>) {
            let mut one = |factor: f64| {
                self.1 += self.noise() * 0.002;
                let disturbed = if self.0.u32(..20) == 0 { self.0.f64() * 0.1 } else { 0.0 };
                100.0 * factor * (1.0 + self.1 + self.noise() * 0.01 + disturbed)
            };
            (0..pairs)
                .map(|_| {
                    let a = one(1.0);
                    (a, one(factor))
                })
                .unzip()
        }
    }

    /// Returns how many of 100 comparisons say (less, more, equal, cannot tell).
    fn said(pairs: usize, factor: f64, is_paired: bool) -> [usize; 4] {
        let mut said = [0; 4];
        for seed in 0..100 {
            let mut machine = Machine(fastrand::Rng::with_seed(seed), 0.0);
            let (a, b) = machine.pairs(pairs, factor);
            let estimate = if is_paired { paired(&a, &b) } else { unpaired(&a, &b) };
            let verdict = estimate.expect("there are samples").verdict(0.01);
            said[match verdict {
                Verdict::Less => 0,
                Verdict::More => 1,
                Verdict::Equal => 2,
                Verdict::CannotTell(_) => 3,
            }] += 1;
        }
        said
    }

    #[test]
    fn the_same_with_itself_is_no_difference() {
        for pairs in [8, 20] {
            let [less, more, ..] = said(pairs, 1.0, true);
            assert!(less + more <= 5, "{pairs} pairs: {less} less, {more} more");
            let [less, more, ..] = said(pairs, 1.0, false);
            assert!(less + more <= 5, "{pairs} samples: {less} less, {more} more");
        }
    }

    #[test]
    fn three_per_cent_are_found_with_twenty_pairs() {
        let [less, more, ..] = said(20, 1.03, true);
        assert!(more >= 95 && less == 0, "{less} less, {more} more");
        let [less, more, ..] = said(20, 0.97, true);
        assert!(less >= 95 && more == 0, "{less} less, {more} more");
    }

    #[test]
    fn many_pairs_of_the_same_are_equal() {
        let [less, more, equal, _] = said(100, 1.0, true);
        assert!(less + more <= 5 && equal >= 60, "{less} less, {more} more, {equal} equal");
    }

    #[test]
    fn few_runs_cannot_tell_and_say_how_many_would() {
        let three = paired(&[1.0, 1.1, 1.0], &[2.0, 2.1, 2.0]).expect("there are samples");
        assert_eq!(three.verdict(0.01), Verdict::CannotTell(Some(5)));
        assert!(three.low <= three.ratio && three.ratio <= three.high);
        assert_eq!(paired(&[], &[]), None);
        assert_eq!(paired(&[0.0], &[1.0]), None);
        let mut machine = Machine(fastrand::Rng::with_seed(3), 0.0);
        let (a, b) = machine.pairs(10, 1.005);
        let Verdict::CannotTell(more) = paired(&a, &b).expect("there are samples").verdict(0.01) else {
            panic!("ten pairs do not tell half a per cent")
        };
        assert!(more.is_some_and(|more| more > 5), "{more:?}");
    }

    #[test]
    fn eight_pairs_that_agree_are_enough() {
        let a: Vec<f64> = (0..8).map(|at| 100.0 + f64::from(at) / 10.0).collect();
        let b: Vec<f64> = a.iter().enumerate().map(|(at, a)| a * (0.9 + at as f64 / 1000.0)).collect();
        let estimate = paired(&a, &b).expect("there are samples");
        assert_eq!(estimate.verdict(0.01), Verdict::Less);
        assert!((estimate.ratio - 0.9035).abs() < 0.002, "{estimate:?}");
    }

    #[test]
    fn middles_and_ranks() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!([median(vec![7.0]), median(vec![])], [7.0, 0.0]);
        assert_eq!(ranks(&[5.0, 1.0, 5.0, 2.0]), [3.5, 1.0, 3.5, 2.0]);
        assert_eq!(middle(&[0.0, 1.0, 2.0, 100.0]), 1.5);
        assert_eq!([middle(&[3.0]), middle(&[])], [3.0, 0.0]);
    }
}
