//! Computes one number from many samples, and an interval around it.
//!
//! Medians and quartiles are used instead of means, because disturbances only add time, and
//! sometimes much. Intervals come from the bootstrap (samples are drawn again from the samples),
//! because the distribution of disturbances is unknown.

use fastrand::Rng;

/// The number of draws. With it, the ends of an interval vary by about a percent.
const DRAWS: usize = 1000;
/// The number of draws that an interval leaves out at each end: 2.5 %.
const LEFT_OUT: usize = DRAWS / 40;
/// An arbitrary seed, so that the same samples give the same interval.
const SEED: u64 = 20_261_122;

/// A number, and a confidence interval of 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Interval {
    /// A number that was counted and has no spread.
    pub(crate) fn exact(value: f64) -> Self {
        Self { value, low: value, high: value }
    }
}

/// Returns the value at the quantile `over / under`, to the nearest sample. Returns the default
/// value if there are no values.
pub(crate) fn quantile<T: Copy + Default + PartialOrd>(mut values: Vec<T>, over: usize, under: usize) -> T {
    values.sort_unstable_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    let last = values.len().saturating_sub(1);
    values.get((last * over + under / 2) / under).copied().unwrap_or_default()
}

/// Returns the median with its interval, or `None` if there are no samples.
pub(crate) fn median(samples: &[f64]) -> Option<Interval> {
    if samples.is_empty() {
        return None;
    }
    let pick = |picks: &[usize]| quantile(picks.iter().map(|&at| samples[at]).collect(), 1, 2);
    let all: Vec<usize> = (0..samples.len()).collect();
    Some(interval(pick(&all), |drawn| pick(&again(drawn, samples.len()))))
}

/// Returns the median of `these` ÷ the median of `those`.
///
/// If both have the same number of samples, sample n of each belongs to round n, and whole rounds
/// are drawn again, because a disturbance affects both. Returns `None` if one side is empty, or if
/// the divisor is not above zero.
pub(crate) fn ratio(these: &[f64], those: &[f64]) -> Option<Interval> {
    let middle = |samples: &[f64], picks: &[usize]| quantile(picks.iter().map(|&at| samples[at]).collect(), 1, 2);
    let (all, base) = ((0..these.len()).collect::<Vec<_>>(), (0..those.len()).collect::<Vec<_>>());
    let value = middle(these, &all) / middle(those, &base);
    if these.is_empty() || those.is_empty() || !value.is_finite() {
        return None;
    }
    Some(interval(value, |drawn| {
        let picks = again(drawn, these.len());
        let others = if these.len() == those.len() { picks.clone() } else { again(drawn, those.len()) };
        middle(these, &picks) / middle(those, &others)
    }))
}

/// Draws as many indices as there are samples, with replacement.
fn again(drawn: &mut Rng, samples: usize) -> Vec<usize> {
    (0..samples).map(|_| drawn.usize(..samples)).collect()
}

fn interval(value: f64, mut draw: impl FnMut(&mut Rng) -> f64) -> Interval {
    let mut drawn = Rng::with_seed(SEED);
    let mut values: Vec<f64> = (0..DRAWS).map(|_| draw(&mut drawn)).collect();
    values.sort_unstable_by(f64::total_cmp);
    Interval { value, low: values[LEFT_OUT].min(value), high: values[DRAWS - 1 - LEFT_OUT].max(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let check = |values: &[u64], over, under, expected| {
            assert_eq!(quantile(values.to_vec(), over, under), expected);
        };
        check(&[], 1, 2, 0);
        check(&[7], 1, 4, 7);
        check(&[5, 1, 3], 1, 2, 3);
        check(&[9, 1, 5, 3, 7], 1, 4, 3);
    }

    #[test]
    fn an_interval_holds_its_number_and_grows_with_the_spread() {
        let calm: Vec<f64> = (0..40).map(|at| 100.0 + f64::from(at % 3)).collect();
        let wild: Vec<f64> = (0..40).map(|at| 100.0 + f64::from(at % 20) * 10.0).collect();
        let width = |samples: &[f64]| {
            let found = median(samples).expect("there are samples");
            assert!(found.low <= found.value && found.value <= found.high, "{found:?}");
            found.high - found.low
        };
        assert!(width(&calm) < width(&wild));
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(Interval::exact(3.0)));
    }

    #[test]
    fn what_disturbs_both_does_not_widen_a_ratio() {
        let base: Vec<f64> = (0..50).map(|at| 10.0 + f64::from(at * 7 % 13)).collect();
        let twice: Vec<f64> = base.iter().map(|sample| sample * 2.0).collect();
        assert_eq!(ratio(&twice, &base), Some(Interval::exact(2.0)));
        let apart = ratio(&twice[1..], &base).expect("both have samples");
        assert!(apart.low < 2.0 && apart.high > 2.0, "{apart:?}");
        assert_eq!(ratio(&[], &base), None);
        assert_eq!(ratio(&base, &[0.0]), None);
    }
}
