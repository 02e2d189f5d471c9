//! What every benchmark needs: clocks, numbers drawn from a seed, and what many samples say.
//!
//! `clock` reads CPU and wall time, `drawn` is a source of numbers that are the same for the same seed, `quantiles`
//! makes one number with an interval of many. Unaware of: what is measured.
#![forbid(unsafe_code)]

#[cfg(unix)]
mod clock;
mod drawn;
mod quantiles;

#[cfg(unix)]
pub use clock::cpu_of_process;
pub use drawn::{Drawn, mixed};
pub use quantiles::{Interval, median, quantile, ratio};
