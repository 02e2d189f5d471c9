//! Who else had the processors while something ran: a figure that was taken beside somebody else's work says so.

use anyhow::{Context, Result};
use std::fs;
use std::time::Instant;

/// Ticks of a processor's time in a second, as `/proc` counts them (`USER_HZ`, the same on all of Linux).
const TICKS_PER_S: f64 = 100.0;

/// The moment at which it began.
pub(super) struct Others {
    processors: u32,
    began: Instant,
    busy: u64,
    ours: u64,
}

impl Others {
    /// From now on, on the first so many processors.
    pub(super) fn begin(processors: u32) -> Result<Self> {
        Ok(Self { processors, began: Instant::now(), busy: busy(processors)?, ours: ours()? })
    }

    /// The share of these processors' time that neither this program nor any that it waited for had; all of those are
    /// taken to have run there.
    pub(super) fn share(self) -> Result<f64> {
        let busy = busy(self.processors)?.saturating_sub(self.busy);
        let ours = ours()?.saturating_sub(self.ours);
        let all = self.began.elapsed().as_secs_f64() * TICKS_PER_S * f64::from(self.processors);
        Ok(busy.saturating_sub(ours) as f64 / all.max(1.0))
    }
}

fn busy(processors: u32) -> Result<u64> {
    let text = fs::read_to_string("/proc/stat").context("cannot see what the processors do")?;
    Ok((0..processors).filter_map(|number| busy_in(&text, number)).sum())
}

/// All but idle and waiting for disks; what is stolen from a virtual machine is somebody else's too.
fn busy_in(text: &str, processor: u32) -> Option<u64> {
    const IDLE: [usize; 2] = [3, 4];
    const GUESTS_FROM: usize = 8;
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("cpu{processor} ")))?;
    let fields = line.split_ascii_whitespace().take(GUESTS_FROM).enumerate();
    Some(fields.filter(|(at, _)| !IDLE.contains(at)).filter_map(|(_, field)| field.parse::<u64>().ok()).sum())
}

/// Of this program and those that it waited for.
fn ours() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/stat").context("cannot see what this program used")?;
    ours_in(&text).context("/proc/self/stat does not say what this program used")
}

fn ours_in(text: &str) -> Option<u64> {
    // Of the fields after the name, counted from the state: user and system time, and the same of children.
    let fields = text.rsplit_once(')')?.1.split_ascii_whitespace().skip(11).take(4);
    fields.map(|field| field.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_system_says() {
        let text = "cpu  1 1 1 1\ncpu0 10 20 30 1000 2000 40 50 60 7 8\ncpu1 1 0 0 9 9 0 0 0 0 0\n";
        assert_eq!((busy_in(text, 0), busy_in(text, 1), busy_in(text, 2)), (Some(210), Some(1), None));
        assert_eq!(ours_in("5 (a) b) S 1 2 3 4 5 6 7 8 9 10 100 20 3 4 0 0"), Some(127));
        assert_eq!(ours_in("5 (a"), None);
    }

    #[test]
    fn our_own_work_is_not_others() {
        assert!(busy(1).expect("is said") > 0 && ours().is_ok());
    }
}
