//! A TCP proxy between a client and a server. A test can make it delay bytes, stall, or cut
//! connections at any moment.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The treatment of bytes and connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Delays bytes so that a request and its answer together take this much longer.
    Late(Duration),
    /// Lets no bytes pass, but keeps all connections open.
    Stalled,
    /// Cuts new connections at once, and existing ones when the next bytes arrive.
    Cut,
    /// Lets at most this many bytes pass from the server to the client, then none.
    StalledAfter(u64),
}

/// A proxy that listens until the process ends.
pub struct Proxy {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    connections: Arc<AtomicUsize>,
}

struct State {
    way: Way,
    /// Bytes that came from the server since `way` was set.
    came: u64,
}

/// The pause between two checks whether a stalled connection may continue.
const LOOK_EVERY: Duration = Duration::from_millis(2);
const BUFFER_BYTES: usize = 64 << 10;

impl Proxy {
    /// Starts a proxy on a free port that forwards connections to `to`.
    pub fn before(to: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("cannot listen on a free port");
        let address = listener.local_addr().expect("the listener has no address");
        let state = Arc::new(Mutex::new(State { way: Way::Late(Duration::ZERO), came: 0 }));
        let shared = Arc::clone(&state);
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::Relaxed);
                match TcpStream::connect(to) {
                    Ok(server) if way(&shared) != Way::Cut => join(client, server, &shared),
                    _ => drop(client),
                }
            }
        });
        Proxy { address, state, connections }
    }

    /// Returns how many connections clients have made.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Returns the address that the proxy listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes what the proxy does from now on, also for existing connections.
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

/// Forwards bytes in one direction. One thread reads and another one writes, so that the delay of
/// one piece does not delay the next piece further.
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
