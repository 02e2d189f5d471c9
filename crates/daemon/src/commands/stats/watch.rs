//! `larder stats --watch`: what the running build gets from the store, as bars that move.
//!
//! Unaware of: which build it is. It shows everything that is counted since it was started.

use std::time::Duration;

use anyhow::{Result, ensure};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use larder_store::{Counters, Saved, Store, Totals};

use super::saved::{Clock, percent, total};
use crate::say;

/// The interval between two views.
const INTERVAL: Duration = Duration::from_millis(200);

/// The longest bar, and the columns beside it: the name of the row, the count and the rate.
const BAR_COLUMNS_MAX: usize = 40;
const OTHER_COLUMNS: usize = 29;
/// The width of a terminal that does not say how wide it is.
const USUAL_COLUMNS: usize = 80;

/// The rows with bars.
const ROWS: [&str; 4] = ["hit", "miss", "bypass", "fallback"];

/// Draws until the process is interrupted.
pub(super) fn run(store: &Store) -> Result<u8> {
    let bars = MultiProgress::new();
    ensure!(
        !bars.is_hidden(),
        "stats: --watch needs a terminal on standard error, and TERM must say which one: use `larder stats`, or `larder \
         stats --json` in a loop"
    );
    let (clock, began) = (Clock::measured(), Counters::read(store));
    let add = |template: &str| -> Result<ProgressBar> {
        Ok(bars.add(ProgressBar::new(1).with_style(ProgressStyle::with_template(template)?)))
    };
    let counts = ROWS.map(|row| add("{prefix:9}").map(|bar| bar.with_prefix(row)));
    let lines = [add("{prefix:9} {msg}")?.with_prefix("saved"), add("{prefix:9} {msg}")?.with_prefix("last")];
    let mut before = Totals { hit: u64::MAX, ..Totals::default() };
    let mut columns_before = 0;
    loop {
        let (now, columns) = (Counters::read(store), columns());
        if columns != columns_before {
            let style = style(columns)?;
            for bar in counts.iter().flatten() {
                bar.set_style(style.clone());
            }
        }
        if now != before || columns != columns_before {
            columns_before = columns;
            let new = since(&now, &began);
            let all = new.iter().sum::<u64>().max(1);
            for (bar, count) in counts.iter().zip(new) {
                let Ok(bar) = bar else { continue };
                bar.set_length(all);
                bar.set_position(count);
            }
            if let (Ok(bar), Some(rate)) = (&counts[0], percent(new[0], new[1])) {
                bar.set_message(format!("{rate:.1} %"));
            }
            let (sum, first) = (total(&now), total(&began));
            let saved = Saved {
                run_time_us: sum.run_time_us.saturating_sub(first.run_time_us),
                ticks: sum.ticks.saturating_sub(first.ticks),
                ..Saved::default()
            };
            lines[0].set_message(format!("{} of tool time", say::span_us(clock.saved_us(&saved))));
            lines[1].set_message(last(store, columns));
            before = now;
        }
        std::thread::sleep(INTERVAL);
    }
}

/// Returns the width of the terminal.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    size.ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(USUAL_COLUMNS)
}

/// Returns the style of a row with a bar. Without room for a bar, the row has only numbers.
fn style(columns: usize) -> Result<ProgressStyle> {
    let template = match columns.saturating_sub(OTHER_COLUMNS).min(BAR_COLUMNS_MAX) {
        0 => "{prefix:9} {pos:>8}  {msg}".to_owned(),
        bar => format!("{{prefix:9}} {{bar:{bar}}} {{pos:>8}}  {{msg}}"),
    };
    Ok(ProgressStyle::with_template(&template)?.progress_chars("█▉▊▋▌▍▎▏ "))
}

/// Returns the counts of each row since the view began. Counters that were set to zero meanwhile
/// count from zero.
fn since(now: &Totals, began: &Totals) -> [u64; 4] {
    let rows = |totals: &Totals| [totals.hit, totals.miss, totals.bypass, totals.fallback];
    let (now, began) = (rows(now), rows(began));
    std::array::from_fn(|row| now[row].checked_sub(began[row]).unwrap_or(now[row]))
}

/// Describes the last command that was no hit, in one line that fits the terminal.
fn last(store: &Store, columns: usize) -> String {
    let recents = Counters::recents(store);
    let missed = recents.iter().map(|found| found.recent()).find(|recent| !recent.cause.is_empty());
    missed.map_or(String::new(), |recent| {
        let text = format!("{}: {}", say::clean(recent.source), say::clean(recent.cause));
        say::shortened(&text, columns.clamp(15, USUAL_COLUMNS) - 14)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_counts_from_its_beginning() {
        let totals = |hit, miss| Totals { hit, miss, ..Totals::default() };
        assert_eq!(since(&totals(5, 7), &totals(2, 7)), [3, 0, 0, 0]);
        assert_eq!(since(&totals(1, 0), &totals(2, 7)), [1, 0, 0, 0], "the counters were set to zero");
    }
}
