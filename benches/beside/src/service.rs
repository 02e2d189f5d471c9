//! A service on the loopback that answers at once, and a client that asks it every 2 ms.

use anyhow::{Context, Result};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(2);
const PING_BYTES: usize = 64;

pub(crate) struct Server(TcpStream);
pub(crate) struct Client(TcpStream);

/// Both ends of a connection.
pub(crate) fn begin() -> Result<(Server, Client)> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on the loopback")?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    Ok((Server(server), Client(client)))
}

impl Server {
    /// Until the client is gone.
    pub(crate) fn answer(mut self) {
        let mut ping = [0; PING_BYTES];
        while self.0.read_exact(&mut ping).and_then(|()| self.0.write_all(&ping)).is_ok() {}
    }
}

impl Client {
    /// Ask until it is over; how long each answer took, from when it should have been asked, in µs.
    pub(crate) fn ask(mut self, over: &AtomicBool) -> Result<Vec<u64>> {
        let mut took = Vec::new();
        let mut ping = [0; PING_BYTES];
        while !over.load(Relaxed) {
            let due = Instant::now() + EVERY;
            sleep(EVERY);
            self.0.write_all(&ping)?;
            self.0.read_exact(&mut ping)?;
            took.push(due.elapsed().as_micros() as u64);
        }
        Ok(took)
    }
}
