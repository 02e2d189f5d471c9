//! `fill hand`: hands over what the compiles of a build leave, several at a time, as `make -j` in a sandbox does.

use crate::Which;
use crate::made::{self, OfSystem};
use anyhow::{Context, Result, bail};
use clap::Args;
use larder_ipc::{Caller, Handed, Parcel, State, ask, hand_over};
use larder_model::{Blob, Digest, Manifest, Outcome};
use larder_store::Store;
use serde_json::{Value, json};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use std::{fs, thread};

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    which: Which,
    /// How many compiles there are at once
    #[arg(long, default_value_t = 8, value_name = "N")]
    jobs: usize,
    /// Headers of the system that each one read
    #[arg(long, default_value_t = 220, value_name = "N")]
    headers: usize,
}

/// Sizes of objects in bytes as they follow each other: of each eight of a build of C and C++ one is large.
const SIZES_BYTES: &[usize] = &[6_000, 9_000, 14_000, 20_000, 40_000, 90_000, 250_000, 1_500_000];
const OWN_HEADERS: u64 = 10;
const SYSTEM: &str = "/usr/include";
/// A larderd that has no room lets a wrapper go without; here it is asked again.
const AGAIN: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(120);

/// Hands over and waits until all is recorded. Says how long both took, and what could not be handed over at first.
pub(crate) fn hand(options: &Options) -> Result<Value> {
    let store = Store::open(&options.which.store).context("the store cannot be opened")?;
    let socket = store.daemon_socket();
    let of_system = of_system(options.headers)?;
    let before = state(&socket)?;
    let (next, again) = (AtomicU64::new(0), AtomicU64::new(0));
    let began = Instant::now();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..options.jobs)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    loop {
                        let number = next.fetch_add(1, Relaxed);
                        if number >= options.which.records {
                            return Ok(());
                        }
                        one(&socket, options.which.first + number, &of_system, &again)?;
                    }
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|_| bail!("a thread panicked")))
    })?;
    let handed = began.elapsed();
    let is_done =
        |state: &State| state.recorded - before.recorded + state.refused - before.refused >= options.which.records;
    let after = loop {
        match state(&socket) {
            Ok(state) if is_done(&state) => break state,
            Err(error) if began.elapsed() > PATIENCE => return Err(error),
            Ok(_) if began.elapsed() > PATIENCE => bail!("larderd has not recorded all after {} s", PATIENCE.as_secs()),
            // Not yet, or it has so much to do that it lets nobody in.
            _ => thread::sleep(AGAIN),
        }
    };
    if after.refused > before.refused {
        bail!("larderd refused {} of {}", after.refused - before.refused, options.which.records);
    }
    Ok(json!({
        "records": options.which.records,
        "handed_s": handed.as_secs_f64(),
        "recorded_s": began.elapsed().as_secs_f64(),
        "again": again.into_inner(),
    }))
}

fn state(socket: &Path) -> Result<State> {
    ask(socket).context("larderd does not answer")
}

fn one(socket: &Path, number: u64, of_system: &[OfSystem], again: &AtomicU64) -> Result<()> {
    let mut object = vec![0; SIZES_BYTES[(number % SIZES_BYTES.len() as u64) as usize]];
    made::content(number, &mut object);
    let blob = Blob { digest: Digest::of(&object), size_bytes: object.len() as u64 };
    let manifest = made::record(number, OWN_HEADERS, of_system, blob, |weak, walk, entry| {
        let mut manifest = Manifest::new(*weak, walk);
        manifest.add(entry);
        manifest.encode()
    });
    let record = Handed { manifest: &manifest, subject: made::subject(number), blobs: vec![blob] };
    let bytes = Parcel { outcome: Outcome::Miss(None), judgements: Vec::new(), record: Some(record) }.encode();
    let began = Instant::now();
    loop {
        let parcel = larder_sys::sealed_memory_file("larder-parcel", &bytes)?;
        let mut memory = larder_sys::growing_memory_file("larder-blob")?;
        memory.write_all(&object)?;
        match hand_over(socket, Caller::ANYBODY, &parcel, bytes.len() as u64, &[memory]) {
            Ok(()) => return Ok(()),
            Err(error) if began.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) => {
                again.fetch_add(1, Relaxed);
                thread::sleep(AGAIN);
            }
        }
    }
}

/// So many headers of the system with their directories, in order.
fn of_system(wanted: usize) -> Result<Vec<OfSystem>> {
    let (mut found, mut pending, mut left) = (Vec::new(), vec![PathBuf::from(SYSTEM)], wanted);
    while let Some(dir) = pending.pop().filter(|_| left > 0) {
        let mut names = Vec::new();
        for entry in fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                pending.push(entry.path());
            } else if kind.is_file() && left > 0 {
                names.push(entry.file_name().as_bytes().to_vec());
                left -= 1;
            }
        }
        names.sort_unstable();
        if !names.is_empty() {
            found.push((dir.as_os_str().as_bytes().to_vec(), names));
        }
    }
    found.sort_unstable();
    Ok(found)
}
