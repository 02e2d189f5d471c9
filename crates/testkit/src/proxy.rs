//! A server of TCP between two others, which lets bytes pass late, or not at all, as the test says at each moment.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What becomes of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// They take so much longer, there and back together.
    Late(Duration),
    /// Nothing passes, and nothing ends.
    Stalled,
    /// Connections are cut, old and new.
    Cut,
    /// So many bytes come back yet; then nothing passes.
    StalledAfter(u64),
}

/// It listens until the process ends.
pub struct Proxy {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

struct State {
    way: Way,
    /// Bytes that came back since `way` was set.
    came: u64,
}

/// Between two looks at a way that has changed.
const LOOK_EVERY: Duration = Duration::from_millis(2);
const BUFFER_BYTES: usize = 64 << 10;

impl Proxy {
    /// Listen on a port of its own, and pass on to `to`.
    pub fn before(to: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("has one");
        let state = Arc::new(Mutex::new(State { way: Way::Late(Duration::ZERO), came: 0 }));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                match TcpStream::connect(to) {
                    Ok(server) if way(&shared) != Way::Cut => join(client, server, &shared),
                    _ => drop(client),
                }
            }
        });
        Proxy { address, state }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on so.
    pub fn set(&self, way: Way) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State { way, came: 0 };
    }
}

fn way(state: &Mutex<State>) -> Way {
    state.lock().unwrap_or_else(PoisonError::into_inner).way
}

fn join(client: TcpStream, server: TcpStream, state: &Arc<Mutex<State>>) {
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let clones = client.try_clone().and_then(|client| Ok((client, server.try_clone()?)));
    let Ok((client_too, server_too)) = clones else { return };
    pump(client, server_too, state, false);
    pump(server, client_too, state, true);
}

/// Two threads, so that what is late does not make what follows later.
fn pump(mut from: TcpStream, to: TcpStream, state: &Arc<Mutex<State>>, back: bool) {
    let (send, receive) = channel();
    let shared = Arc::clone(state);
    thread::spawn(move || {
        let mut buffer = vec![0; BUFFER_BYTES];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let late = if let Way::Late(time) = way(&shared) { time / 2 } else { Duration::ZERO };
            if send.send((Instant::now() + late, buffer[..count].to_vec())).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Read);
    });
    let shared = Arc::clone(state);
    thread::spawn(move || {
        let _ = deliver(&receive, &to, &shared, back);
        let _ = to.shutdown(Shutdown::Both);
    });
}

fn deliver(
    from: &Receiver<(Instant, Vec<u8>)>,
    mut to: &TcpStream,
    state: &Mutex<State>,
    back: bool,
) -> std::io::Result<()> {
    while let Ok((due, bytes)) = from.recv() {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        loop {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            match state.way {
                Way::Late(_) => break,
                Way::Cut => return Ok(()),
                Way::StalledAfter(most) if !back || state.came + bytes.len() as u64 <= most => {
                    state.came += if back { bytes.len() as u64 } else { 0 };
                    break;
                }
                Way::Stalled | Way::StalledAfter(_) => drop(state),
            }
            thread::sleep(LOOK_EVERY);
        }
        to.write_all(&bytes)?;
    }
    Ok(())
}
