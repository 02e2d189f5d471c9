//! A progress bar, which is hidden if standard error is no terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use larder_image::{Progress, Step};

/// The interval between two updates of the bar.
const TICK: Duration = Duration::from_millis(100);

/// Runs `work` and shows its progress.
pub(super) fn during<T>(work: impl FnOnce(&Progress) -> T) -> T {
    let progress = Arc::new(Progress::default());
    let ended = Arc::new(AtomicBool::new(false));
    let bar = ProgressBar::new(0);
    if bar.is_hidden() {
        return work(&progress);
    }
    let drawing = {
        let (progress, ended) = (progress.clone(), ended.clone());
        thread::spawn(move || {
            while !ended.load(Relaxed) {
                draw(&bar, progress.now());
                thread::park_timeout(TICK);
            }
            bar.finish_and_clear();
        })
    };
    let done = work(&progress);
    ended.store(true, Relaxed);
    drawing.thread().unpark();
    let _ = drawing.join();
    done
}

fn draw(bar: &ProgressBar, (step, done, all): (Step, u64, u64)) {
    let (doing, template) = match step {
        Step::Scan => ("listing files", "{msg} {pos}"),
        Step::Stat => ("checking for changes", "{msg} {wide_bar} {pos}/{len}"),
        Step::Compare => ("comparing", BYTES),
        Step::Pack => ("packing", BYTES),
        Step::Unpack => ("unpacking", BYTES),
        Step::Fetch => ("downloading", BYTES),
        Step::Send => ("uploading", "{msg} {bytes}, {bytes_per_sec}"),
        Step::Wait => ("mounting", "{msg} {elapsed}"),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(doing);
    bar.set_length(all);
    bar.set_position(done);
}

const BYTES: &str = "{msg} {wide_bar} {bytes}/{total_bytes}, {bytes_per_sec}";
