//! Fetches a whole data file before it is mounted, for systems where files cannot be read before
//! their bytes are local.
//!
//! Unaware of: how it is mounted.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::directory::{forget_complete, make, note_complete, others_fill, try_lock, was_completed};
use super::fill_queue::piece_of;
use super::outage::Outage;
use super::units::{UNIT_BYTES, Units};
use crate::{Fill, MountError};

/// How long this waits for another process that fills the file. A job waits a little longer for an
/// image.
const PATIENCE: Duration = Duration::from_secs(570);
const PAUSE: Duration = Duration::from_millis(20);

/// Fills the file `data` of `size_bytes`, which is created if it does not exist, by `workers`
/// fetches at once. The state is kept in `directory`, as for `Lazy::begin`. If the file is complete
/// already, this does nothing. If another process is filling it, this waits for that. Fails if
/// another process does not finish in time, if a fetch fails, or if the file cannot be written.
pub fn fill_whole(
    directory: &Path,
    data: &Path,
    size_bytes: u64,
    fill: &dyn Fill,
    workers: usize,
) -> Result<(), MountError> {
    fs::create_dir_all(directory).map_err(MountError::path(directory, "cannot be made"))?;
    let Some(_lock) = turn(directory, data, size_bytes)? else { return Ok(()) };
    forget_complete(directory)?;
    make(data, size_bytes).map_err(MountError::path(data, "cannot be made"))?;
    let file = File::options().read(true).write(true).open(data).map_err(MountError::path(data, "cannot be opened"))?;
    fetch(&file, size_bytes, fill, workers).map_err(MountError::path(data, "cannot be filled"))?;
    let noted = file.sync_data().and_then(|()| note_complete(directory, size_bytes));
    noted.map_err(MountError::path(directory, "cannot be written"))
}

/// Waits for the lock of the filler. Returns `None` once the file is complete.
fn turn(directory: &Path, data: &Path, size_bytes: u64) -> Result<Option<File>, MountError> {
    let until = Instant::now() + PATIENCE;
    while !was_completed(directory, data, size_bytes) {
        if let Some(lock) = try_lock(directory)? {
            // The process that held the lock may just have completed the file.
            return Ok((!was_completed(directory, data, size_bytes)).then_some(lock));
        }
        if Instant::now() >= until {
            return Err(others_fill(directory));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(None)
}

fn fetch(file: &File, size_bytes: u64, fill: &dyn Fill, workers: usize) -> io::Result<()> {
    let units = Units::none(size_bytes, UNIT_BYTES);
    let mut from = 0;
    let pieces = std::iter::from_fn(move || {
        (from < size_bytes).then(|| {
            let piece = piece_of(&units, &|offset| fill.piece(offset), from / UNIT_BYTES);
            let bytes = units.bytes(&piece);
            from = bytes.end;
            bytes
        })
    });
    let pieces: Vec<_> = pieces.collect();
    let (next, failed, trouble) = (Mutex::new(pieces.into_iter()), AtomicBool::new(false), Mutex::new(Ok(())));
    let outage = Outage::default();
    let work = || {
        while !failed.load(Relaxed) {
            let Some(bytes) = next.lock().next() else { return };
            if let Err(error) = outage.fill(fill, &bytes, file.as_fd(), || failed.load(Relaxed)) {
                failed.store(true, Relaxed);
                *trouble.lock() = Err(error);
            }
        }
    };
    std::thread::scope(|scope| (0..workers.max(1)).for_each(|_| drop(scope.spawn(work))));
    trouble.into_inner()
}
