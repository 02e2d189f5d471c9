//! What people have beside a build: a service that is asked, a download, a picture that is drawn sixty times a second;
//! or a program that wants a whole processor. Runs until its standard input is closed, and then says how it fared.
//!
//! `cargo xtask bench class` runs it beside builds.

mod download;
mod frames;
mod service;

use anyhow::Result;
use clap::Parser;
use serde_json::json;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

/// Do what people do beside a build until standard input is closed, and print how that went as a JSON object.
#[derive(Parser)]
struct Options {
    /// Instead keep a processor busy
    #[arg(long)]
    hog: bool,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let working = if options.hog { None } else { Some(Working::begin(scope, &over)?) };
        if options.hog {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        // Whoever started us closes it, or is gone.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        over.store(true, Relaxed);
        working.map_or(Ok(()), Working::end)
    })
}

/// All three at work.
struct Working<'scope> {
    began: Instant,
    pings: thread::ScopedJoinHandle<'scope, Result<Vec<u64>>>,
    received: thread::ScopedJoinHandle<'scope, Result<u64>>,
    frames: thread::ScopedJoinHandle<'scope, frames::Frames>,
}

impl<'scope> Working<'scope> {
    fn begin(scope: &'scope thread::Scope<'scope, '_>, over: &'scope AtomicBool) -> Result<Self> {
        let began = Instant::now();
        let (server, pings) = service::begin()?;
        scope.spawn(move || server.answer());
        let (sender, receiver) = download::begin()?;
        scope.spawn(move || sender.send(over));
        Ok(Self {
            began,
            pings: scope.spawn(move || pings.ask(over)),
            received: scope.spawn(move || receiver.receive()),
            frames: scope.spawn(|| frames::draw(over)),
        })
    }

    fn end(self) -> Result<()> {
        let died = |_| anyhow::anyhow!("a part of it died");
        let pings = self.pings.join().map_err(died)??;
        let received = self.received.join().map_err(died)??;
        let frames = self.frames.join().map_err(died)?;
        let seconds = self.began.elapsed().as_secs_f64();
        println!(
            "{}",
            json!({ "seconds": seconds, "pings_us": pings, "received_bytes": received, "frames": frames.all, "missed": frames.missed })
        );
        Ok(())
    }
}
