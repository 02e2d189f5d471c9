//! Fills a store with records as wrappers make them, through the store's own functions, and says what one costs by then.
//!
//! Each record has a weak fingerprint and a blob of its own, a set of a few hundred bytes, a note for `explain`, and two stamps of files that
//! are nowhere else, as a source and its object have. Prints, tab separated: records, bytes that the store grew by, and the middle and lower
//! quartile of the CPU time of a record in microseconds, over groups of a hundred.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

use std::io::Cursor;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use larder_model::{
    ActionResult, Content, Digest, DirFacts, Entry, ExplainWalk, Fact, FileMode, Made, ModeRule, NamedFact,
    ObservationSet, Observer, Output, OutputKind, Placement, Rewrite, Streams, Walk,
};
use larder_store::{Counters, Stamps, Store};
use larder_sys::{Kind, Look, Trust};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

#[derive(Parser)]
struct Options {
    /// The store's directory
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    /// The number of the first record: another call with other numbers adds others
    #[arg(long, default_value_t = 0, value_name = "N")]
    first: u64,
    /// How many
    #[arg(long, value_name = "N")]
    records: u64,
    /// Bytes of each record's blob
    #[arg(long, default_value_t = 6000, value_name = "N")]
    blob_bytes: usize,
}

/// Records whose CPU time is taken together, and after which the table of stamps may grow.
const GROUP: u64 = 100;
const STAMPS_A_RECORD: u64 = 2;

fn main() -> Result<()> {
    let options = Options::parse();
    let store = Store::open(&options.store).context("the store cannot be opened")?;
    let counters = Counters::open(&store).context("the store cannot be written")?;
    let (mut groups_us, mut grown) = (Vec::new(), 0);
    let mut content = vec![0; options.blob_bytes];
    for group in (0..options.records).step_by(GROUP as usize) {
        let stamps = Stamps::open(&store, true);
        let began = cpu_us()?;
        for number in group..(group + GROUP).min(options.records) {
            grown += record(&store, &stamps, options.first + number, &mut content)?;
        }
        groups_us.push((cpu_us()? - began) as f64 / GROUP.min(options.records - group) as f64);
        stamps.settle(&store).context("the table of stamps cannot grow")?;
    }
    counters.grew(grown);
    groups_us.sort_by(f64::total_cmp);
    let at = |over: usize, under: usize| groups_us.get(groups_us.len() * over / under).copied().unwrap_or(0.0);
    println!("{}\t{grown}\t{:.1}\t{:.1}", options.records, at(1, 2), at(1, 4));
    Ok(())
}

/// One record and what goes with it. Returns by how much the store grew.
fn record(store: &Store, stamps: &Stamps, number: u64, content: &mut [u8]) -> Result<u64> {
    for (part, at) in content.chunks_exact_mut(8).zip(0u64..) {
        part.copy_from_slice(&mixed(number << 20 | at).to_le_bytes());
    }
    let blob = store.put_blob(&mut Cursor::new(&*content))?;
    let name = |what: &str| format!("\0\u{1}/project/{what}{number}").into_bytes();
    let digest = |what: &str| Digest::of(&name(what));
    let weak = digest("action");
    let mut walk = ExplainWalk::default();
    for field in ["tool", "arguments", "working directory", "environment", "source"] {
        walk.field(field, &[name(field), vec![b'x'; 100]].concat());
    }
    let headers: Vec<Vec<u8>> = (0..8).map(|at| format!("header{at}_{number}.h").into_bytes()).collect();
    let fact = |name| {
        let content = Fact::Content { digest: weak, executable: false, plain: false, rooted: None };
        NamedFact { name, fact: content }
    };
    let facts = headers.iter().map(|name| fact(name)).collect();
    let directory = DirFacts { path: b"\0\x01/include", facts, ..DirFacts::default() };
    let set = ObservationSet { directories: vec![directory], ..ObservationSet::default() };
    let (output, content) = (name("object"), Content::Blob(blob));
    let mode = FileMode { bits: 0o666, rule: ModeRule::Masked };
    let kind = OutputKind::File { placement: Placement::Replace, mode, rewrite: Rewrite::None, content };
    let streams = Streams::Apart { stdout: Content::EMPTY, stderr: Content::EMPTY };
    let result = ActionResult { outputs: vec![Output { path: &output, kind }], ..ActionResult::of(streams) };
    let (made, mut body) = (Made { made_in: digest("roots"), bound: None }, Vec::new());
    let entry = Entry::new(&weak, Observer::Preload, 50_000, &made, &set, &result, &mut body);
    let grown = store.record(&weak, &walk, entry)?;
    store.note_near(&digest("subject"), &weak)?;
    for stamp in 0..STAMPS_A_RECORD {
        let trust = Trust { files: true, directories: true };
        stamps.keep_absent(&look(number * STAMPS_A_RECORD + stamp), larder_sys::now_coarse_ns(), &weak, || trust);
    }
    Ok(grown + blob.size_bytes)
}

/// Of a file that is nowhere: no device has this number.
fn look(inode: u64) -> Look {
    Look {
        kind: Kind::Directory,
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

/// SplitMix64, so that no two blobs are equal and none can be compressed.
fn mixed(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

fn cpu_us() -> Result<i64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).context("cannot read our own CPU time")?;
    Ok(usage.user_time().num_microseconds() + usage.system_time().num_microseconds())
}
