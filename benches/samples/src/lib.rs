//! Statistics for benchmarks: a CPU clock, numbers from a seed, and medians and ratios with
//! intervals.
//!
//! `clock` reads the CPU time, `drawn` is a generator with a seed, `quantiles` computes one number
//! with an interval from many samples. Unaware of: what is measured.
#![forbid(unsafe_code)]

#[cfg(unix)]
mod clock;
mod drawn;
mod quantiles;

#[cfg(unix)]
pub use clock::cpu_of_process;
pub use drawn::{Drawn, mixed};
pub use quantiles::{Interval, median, quantile, ratio};
