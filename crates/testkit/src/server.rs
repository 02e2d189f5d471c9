//! Real servers for a test, on ports and in directories of their own, that end with it.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// A server that runs.
pub struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    /// Redis, keeping what it has in memory only; `None` where it is not installed.
    pub fn redis(dir: &Path) -> Option<Server> {
        let port = free_port();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        command.arg("--dir").arg(dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().ok()?;
        let server = Server { child, address: ([127, 0, 0, 1], port).into() };
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(server.address).is_err() {
            assert!(Instant::now() < until, "the server does not begin");
            sleep(Duration::from_millis(10));
        }
        Some(server)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port of this machine that nobody listens on.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("has one").port()
}
