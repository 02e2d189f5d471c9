//! Grows to a size, starts a program that does nothing in every way there is, and says how long each took and what it
//! left to pay for. `cargo xtask bench spawn` runs it once for each size.
//!
//! `ways` are the ways, `grown` the memory; both are the only unsafe code.

mod grown;
mod ways;

use anyhow::{Context, Result};
use clap::Parser;
use grown::Grown;
use serde_json::json;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Instant;
use ways::{Child, WAYS};

/// Start a program from a process of some size in every way, and print what each start cost: one JSON object a line for
/// each way.
#[derive(Parser)]
struct Options {
    /// How much memory is touched before
    #[arg(long, value_name = "MB")]
    size_mb: usize,
    /// Whether that memory may be in huge pages
    #[arg(long)]
    huge: bool,
    /// How often each way is run
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The program, which is started without arguments
    #[arg(long)]
    child: PathBuf,
}

/// What the runs of one way cost, each.
#[derive(Default)]
struct Lane {
    call_ns: Vec<u128>,
    ended_ns: Vec<u128>,
    cpu_us: Vec<u64>,
    faults: Vec<u64>,
    touch_ns: Vec<u128>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let path = CString::new(options.child.as_os_str().as_bytes()).context("the child's path has a zero byte")?;
    let child = Child::new(&path);
    let mut grown = Grown::to(options.size_mb << 20, options.huge)?;
    let huge_kb = grown::huge_kb()?;
    let mut lanes: Vec<Lane> = WAYS.iter().map(|_| Lane::default()).collect();
    // `fork` leaves caches and tables in a state that the next one pays for: each follows each as often.
    let mut order: Vec<usize> = (0..WAYS.len()).collect();
    for _ in 0..options.rounds {
        fastrand::shuffle(&mut order);
        for &at in &order {
            let (name, start) = WAYS[at];
            let (cpu_before, before) = (grown::cpu_us(), Instant::now());
            let pid = start(&child).with_context(|| name.to_owned())?;
            let called = before.elapsed();
            ways::wait(pid).with_context(|| format!("{name}: the child"))?;
            let ended = before.elapsed();
            lanes[at].cpu_us.push(grown::cpu_us() - cpu_before);
            let (faults_before, touching) = (grown::faults(), Instant::now());
            grown.touch();
            lanes[at].touch_ns.push(touching.elapsed().as_nanos());
            lanes[at].faults.push(grown::faults() - faults_before);
            lanes[at].call_ns.push(called.as_nanos());
            lanes[at].ended_ns.push(ended.as_nanos());
        }
    }
    for ((name, _), lane) in WAYS.iter().zip(lanes) {
        let line = json!({
            "way": name,
            "size_mb": options.size_mb,
            "huge": options.huge,
            "huge_kb": huge_kb,
            "call_ns": lane.call_ns,
            "ended_ns": lane.ended_ns,
            "cpu_us": lane.cpu_us,
            "faults_after": lane.faults,
            "touch_ns": lane.touch_ns,
        });
        println!("{line}");
    }
    Ok(())
}
