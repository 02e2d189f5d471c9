//! A download over the loopback, paced to 200 MB/s.

use anyhow::{Context, Result};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

const BYTES_PER_S: f64 = 200e6;
const CHUNK_BYTES: usize = 256 << 10;
/// A network does not make up for more than its buffers hold.
const CATCH_UP: Duration = Duration::from_millis(20);

pub(crate) struct Sender(TcpStream);
pub(crate) struct Receiver(TcpStream);

/// Both ends of a connection.
pub(crate) fn begin() -> Result<(Sender, Receiver)> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on the loopback")?;
    let receiver = TcpStream::connect(listener.local_addr()?)?;
    let (sender, _) = listener.accept()?;
    Ok((Sender(sender), Receiver(receiver)))
}

impl Sender {
    /// Send as fast as is allowed, until it is over.
    pub(crate) fn send(mut self, over: &AtomicBool) {
        let chunk = vec![0; CHUNK_BYTES];
        let pause = Duration::from_secs_f64(CHUNK_BYTES as f64 / BYTES_PER_S);
        let mut due = Instant::now();
        while !over.load(Relaxed) && self.0.write_all(&chunk).is_ok() {
            let now = Instant::now();
            due = (due + pause).max(now - CATCH_UP);
            sleep(due.saturating_duration_since(now));
        }
    }
}

impl Receiver {
    /// All bytes until the sender is gone.
    pub(crate) fn receive(mut self) -> Result<u64> {
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut all = 0;
        loop {
            match self.0.read(&mut buffer)? {
                0 => return Ok(all),
                count => all += count as u64,
            }
        }
    }
}
