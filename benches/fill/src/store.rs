//! Writes records. Each has a blob, an observation set of a few hundred bytes, a note for
//! `explain`, and two stamps of files that do not exist, as for a source and its object.

use crate::made;
use anyhow::{Context, Result};
use clap::Parser;
use larder_samples::cpu_of_process;
use larder_store::{Counters, StatCache, Store};
use larder_sys::{FileType, Stat, Trust};
use rustix::fs::{FallocateFlags, fallocate};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Cursor;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

#[derive(Parser)]
pub(crate) struct Options {
    /// The store's directory
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    /// The number of the first record. Another call with other numbers adds other records
    #[arg(long, default_value_t = 0, value_name = "N")]
    first: u64,
    /// The number of records
    #[arg(long, value_name = "N")]
    records: u64,
    /// Bytes of each record's blob
    #[arg(long, default_value_t = 6000, value_name = "N")]
    blob_bytes: usize,
    /// Make only the first bytes of each blob non-zero, and leave the rest as a hole in the file
    #[arg(long)]
    sparse: bool,
}

/// The number of records whose CPU time is measured together. After each group the stamp table may
/// grow.
const GROUP: u64 = 100;
const STAMPS_A_RECORD: u64 = 2;
const HEADERS: u64 = 8;
/// The number of non-zero bytes in a sparse blob.
const SPARSE_HEAD_BYTES: usize = 4096;

/// Fills the store. Returns by how many bytes it grew, and for each group the CPU time of a record
/// in µs.
pub(crate) fn store(options: &Options) -> Result<Value> {
    let store = Store::open(&options.store).context("cannot open the store")?;
    let counters = Counters::open(&store).context("cannot write to the store")?;
    let (mut groups_us, mut grown) = (Vec::new(), 0);
    let mut content = vec![0; options.blob_bytes];
    for group in (0..options.records).step_by(GROUP as usize) {
        let stat_cache = StatCache::open(&store, true);
        let began = cpu_of_process();
        let records = GROUP.min(options.records - group);
        for number in group..group + records {
            grown += record(&store, &stat_cache, options.first + number, &mut content, options.sparse)?;
        }
        groups_us.push((cpu_of_process() - began).as_secs_f64() * 1e6 / records as f64);
        stat_cache.settle(&store).context("cannot enlarge the stamp table")?;
    }
    counters.grew(grown);
    Ok(json!({ "records": options.records, "grown_bytes": grown, "record_us": groups_us }))
}

/// Writes one record and what belongs to it. Returns by how many bytes the store grew.
fn record(store: &Store, stat_cache: &StatCache, number: u64, content: &mut [u8], sparse: bool) -> Result<u64> {
    let varied = if sparse { content.len().min(SPARSE_HEAD_BYTES) } else { content.len() };
    made::content(number, &mut content[..varied]);
    let blob = store.put_blob(&mut Cursor::new(&*content))?;
    if sparse {
        let opened = store.open_blob(&blob, stat_cache)?;
        dig(&opened.file, varied as u64, blob.size_bytes).context("this file system has no sparse files")?;
    }
    let grown = made::record(number, HEADERS, blob, |weak, walk, entry| {
        store.note_neighbour(&made::subject(number), weak)?;
        store.record(weak, walk, entry)
    })?;
    for stamp in 0..STAMPS_A_RECORD {
        let trust = Trust { files: true, directories: true };
        stat_cache.keep_absent(
            &stat(number * STAMPS_A_RECORD + stamp),
            larder_sys::now_coarse_ns(),
            &blob.digest,
            || trust,
        );
    }
    Ok(grown + blob.size_bytes)
}

/// Frees the blocks after the first bytes, which hold zeros.
fn dig(file: &File, from: u64, to: u64) -> Result<()> {
    let name = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let writable = File::options().write(true).open(name)?;
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(fallocate(&writable, how, from, to.saturating_sub(from))?)
}

/// Returns the metadata of a file that does not exist. No device has this number.
fn stat(inode: u64) -> Stat {
    Stat {
        kind: FileType::Directory,
        mode: 0o755,
        volume: u64::from(u32::MAX) << 16,
        device: 0,
        inode,
        size_bytes: 0,
        modified_ns: 1,
        changed_ns: 1,
        links: 1,
        owner: 0,
        group: 0,
    }
}
