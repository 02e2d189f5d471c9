//! The progress bar, which is silent where standard error is not a terminal: there one line a step says the same.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// A bar for one step of known or unknown length.
pub(crate) struct Bar {
    bar: ProgressBar,
}

impl Bar {
    /// `total` is how many things the step makes.
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
        Self { bar }
    }

    /// So many are done.
    pub(crate) fn at(&self, position: u64) {
        self.bar.set_position(position);
    }

    /// Ends the bar; `line` stays on the screen.
    pub(crate) fn end(self, line: &str) {
        self.bar.finish_and_clear();
        eprintln!("{line}");
    }
}
