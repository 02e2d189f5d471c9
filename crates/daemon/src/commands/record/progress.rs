//! The progress display of a recording session. If the command itself writes to the terminal,
//! nothing is drawn.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use larder_record::schema::Run;
use larder_record::{Listener, Output, Planned};

use crate::say;

/// The time between two steps of the spinner.
const TICK: Duration = Duration::from_millis(200);
/// The number of new processes after which the display is updated.
const EVERY: u64 = 64;

/// The progress display.
pub(super) struct Progress {
    /// `None` if the command's own output is shown.
    bar: Option<ProgressBar>,
    at: String,
    /// True with more than one run: then each finished run prints a line.
    tells: bool,
}

impl Progress {
    pub(super) fn new(output: Output, runs: u32) -> Progress {
        let bar = (output != Output::Shown).then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} · {elapsed}") {
                bar.set_style(style);
            }
            bar
        });
        Progress { bar, at: String::new(), tells: runs > 1 }
    }

    pub(super) fn finish(&self) {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
    }
}

impl Listener for Progress {
    fn begins(&mut self, planned: &Planned, at: usize, of: usize) {
        let side =
            planned.pair.map(|pair| format!(", pair {pair} {}", ["A", "B"][planned.side.min(1)])).unwrap_or_default();
        let followed = if planned.traced { ", traced" } else { "" };
        self.at = format!("run {at} of {of}{side}{followed}");
        if let Some(bar) = &self.bar {
            bar.set_message(self.at.clone());
            bar.enable_steady_tick(TICK);
        }
    }

    fn processes(&mut self, count: u64) {
        if let Some(bar) = self.bar.as_ref().filter(|_| count.is_multiple_of(EVERY)) {
            bar.set_message(format!("{} · {count} processes", self.at));
        }
    }

    fn ended(&mut self, _planned: &Planned, run: &Run) {
        let Some(end) = run.end.as_ref().filter(|_| self.tells) else { return };
        let foreign = if end.foreign_share > 0.05 {
            format!(", other processes used {:.0} %", end.foreign_share * 100.0)
        } else {
            String::new()
        };
        let failed = if end.exit_code == 0 { String::new() } else { format!(", exit code {}", end.exit_code) };
        let line = format!("{}: {}{foreign}{failed}", self.at, say::duration_us(end.wall_ns / 1000));
        match &self.bar {
            Some(bar) => bar.suspend(|| say::tell(&line)),
            None => say::tell(&line),
        }
    }
}
