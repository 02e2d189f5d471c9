//! A progress bar. If standard error is not a terminal, a line is printed now and then instead.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The time between two lines if there is no terminal.
const LINES_EVERY: Duration = Duration::from_secs(30);

/// A progress bar for one step.
pub(crate) struct Bar {
    bar: ProgressBar,
    /// The time of the last line, if there is no terminal.
    written: Option<Mutex<Instant>>,
}

impl Bar {
    /// Starts a bar. `total` is the number of things that the step makes.
    pub(crate) fn new(label: &str, total: u64) -> Self {
        let visible = std::io::stderr().is_terminal();
        let target = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let template = "{spinner} {msg:<34} {bar:30} {percent:>3} % of {len}, {elapsed}";
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(total);
        bar.set_draw_target(target);
        bar.set_style(style);
        bar.set_message(label.to_owned());
        bar.enable_steady_tick(Duration::from_millis(120));
        Self { bar, written: (!visible).then(|| Mutex::new(Instant::now())) }
    }

    /// Sets the number of things that are done.
    pub(crate) fn at(&self, position: u64) {
        self.bar.set_position(position);
        let Some(mut written) = self.written.as_ref().and_then(|written| written.lock().ok()) else { return };
        if written.elapsed() >= LINES_EVERY {
            *written = Instant::now();
            eprintln!("{}: {position} of {}", self.bar.message(), self.bar.length().unwrap_or_default());
        }
    }

    /// Ends the bar and prints `line`.
    pub(crate) fn end(self, line: &str) {
        self.bar.finish_and_clear();
        eprintln!("{line}");
    }
}
