//! A place with several stores, as if they belonged to several machines, and a remote.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use larder_testkit::{Place, Proxy, Run, Server, larder, larder_text};
use serde_json::Value;

/// A compiler whose output is too large to be kept inside a record, and depends only on the source.
/// It writes the output in two parts, with a pause between them that the source states in seconds.
/// It leaves a temporary file if it is killed.
const COMPILER: &str = "t=$(mktemp -p . part.XXXXXX); cat x.c x.c > $t; cat $t > x.o; sleep $(sed -n 's/^.. //p' x.c); \
    for i in 1 2 3 4 5 6 7 8 9; do cat $t; done >> x.o; rm $t";
/// The store of the machine that records, and the store of the one that comes after it.
pub(crate) const FIRST: &str = "first";
pub(crate) const SECOND: &str = "second";
/// How often a fetch is repeated because larder gave it up.
const FETCHES_MAX: u32 = 20;

/// A place with a remote. Every `larderd` there is stopped when the value is dropped.
pub(crate) struct Far {
    pub(crate) place: Place,
    pub(crate) url: String,
    pub(crate) proxy: Option<Proxy>,
    _server: Option<Server>,
    variables: &'static [(&'static str, &'static str)],
}

impl Drop for Far {
    fn drop(&mut self) {
        for store in [FIRST, SECOND] {
            let _ = self.larder(store, &["daemon", "stop"]).run();
        }
    }
}

impl Far {
    /// Creates a place whose remote is a directory.
    pub(crate) fn directory() -> Far {
        let place = Place::new();
        let url = format!("file://{}", place.text("far"));
        Far::with(place, url, None, None)
    }

    /// Creates a place whose remote is Redis behind a proxy. Returns `None`, and prints the reason,
    /// if Redis is not installed.
    pub(crate) fn redis() -> Option<Far> {
        let place = Place::new();
        let Some(server) = Server::redis(None) else {
            eprintln!("skipped: redis-server is not installed");
            return None;
        };
        let proxy = Proxy::before(server.address());
        let url = format!("redis://{}", proxy.address());
        Some(Far::with(place, url, Some(proxy), Some(server)))
    }

    /// Creates a place whose remote is this server, with the variables that hold its credentials.
    /// Returns `None`, and prints the reason, if the server is not installed.
    pub(crate) fn at(
        name: &str,
        server: Option<Server>,
        url: impl Fn(u16) -> String,
        variables: &'static [(&'static str, &'static str)],
    ) -> Option<Far> {
        let Some(server) = server else {
            eprintln!("skipped: {name} is not installed");
            return None;
        };
        let mut far = Far::with(Place::new(), url(server.port), None, Some(server));
        far.variables = variables;
        Some(far)
    }

    /// Creates a place with the remote at this URL.
    pub(crate) fn at_url(url: String) -> Far {
        Far::with(Place::new(), url, None, None)
    }

    fn with(place: Place, url: String, proxy: Option<Proxy>, server: Option<Server>) -> Far {
        place.tool("work/gcc", COMPILER);
        let far = Far { place, url, proxy, _server: server, variables: &[] };
        far.source(0.0, 1);
        far
    }

    pub(crate) fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().expect("this place has no proxy")
    }

    /// Writes a source whose compile takes this long. `which` makes its content unique.
    pub(crate) fn source(&self, seconds: f64, which: u32) {
        let lines = format!("// {seconds}\n") + &format!("int a{which};\n").repeat(40);
        self.place.put("x.c", lines);
    }

    /// Returns a command with the store of this name.
    pub(crate) fn command(&self, store: &str, argv: &[&str]) -> Run {
        self.place.settle();
        let run = self.place.run(argv).env("LARDER_DIR", self.place.path(store)).env("LARDER", larder());
        let run = run.env("LARDER_LOG", self.place.path("log")).env("LARDER_REMOTE", &self.url);
        self.variables.iter().fold(run, |run, (name, value)| run.env(name, value))
    }

    pub(crate) fn larder(&self, store: &str, words: &[&str]) -> Run {
        self.command(store, &[&[larder_text()], words].concat())
    }

    /// Compiles. Returns what larder logged, and how long it took.
    #[track_caller]
    pub(crate) fn compile_by(&self, store: &str, change: impl Fn(Run) -> Run) -> (String, Duration) {
        self.place.remove(&["x.o"]);
        let _ = fs::remove_file(self.place.path("log"));
        let run = change(self.larder(store, &["./gcc", "-c", "x.c", "-o", "x.o"]));
        let began = Instant::now();
        assert_eq!(run.run().quiet(), "");
        let took = began.elapsed();
        let source = self.place.read("x.c");
        assert!(self.place.read("x.o") == source.repeat(20), "x.o has wrong content");
        let left = fs::read_dir(self.place.path("work"))
            .expect("cannot list the directory")
            .flatten()
            .map(|entry| entry.file_name());
        let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with("part.")).collect();
        assert!(left.is_empty(), "temporary files are left: {left:?}");
        (fs::read_to_string(self.place.path("log")).expect("cannot read the log"), took)
    }

    #[track_caller]
    pub(crate) fn compile(&self, store: &str) -> String {
        self.compile_by(store, |run| run).0
    }

    /// Compiles with what the remote has, and uploads nothing. Returns what larder logged.
    ///
    /// On a busy machine larder may give up waiting for the remote and run the tool, which may be
    /// faster. Then the store is emptied and the compile repeated. If larder did not give up, the
    /// log is returned whatever happened.
    #[track_caller]
    pub(crate) fn fetch_by(&self, store: &str, change: impl Fn(Run) -> Run) -> String {
        // A wrapper waits only half a second for a `larderd` that starts.
        change(self.larder(store, &["daemon", "start"])).run().ends(0);
        let mut tries = 0;
        loop {
            let before = self.races(store);
            let (log, _) = self.compile_by(store, |run| change(run).env("LARDER_REMOTE_RW_MODE", "READ_ONLY"));
            tries += 1;
            if log.contains("fetched from a remote") || tries == FETCHES_MAX || !self.gave_up(store, before) {
                return log;
            }
            self.larder(store, &["clear"]).run().ends(0);
        }
    }

    #[track_caller]
    pub(crate) fn fetch(&self, store: &str) -> String {
        self.fetch_by(store, |run| run)
    }

    /// Returns how often larder started a tool because a fetch took too long.
    fn races(&self, store: &str) -> u64 {
        self.stats(store)["remote"]["races"].as_u64().expect("not a number")
    }

    /// Waits until this is true.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let until = Instant::now() + Duration::from_secs(60);
        while !holds() {
            assert!(Instant::now() < until, "timed out waiting until {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns true if there are more races than before. `larderd` counts them, and may be late.
    fn gave_up(&self, store: &str, before: u64) -> bool {
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until {
            if self.races(store) > before {
                return true;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    }

    /// Empties the store and compiles, again and again, until larder fetches the result. A remote
    /// that failed is not asked for some seconds, and then larder also runs the tool, which may be
    /// faster than the remote. Returns the last log, for half a minute at most.
    pub(crate) fn compile_until_fetched(&self, store: &str) -> String {
        let began = Instant::now();
        loop {
            self.larder(store, &["clear"]).run().ends(0);
            let log = self.compile(store);
            if log.contains("fetched from a remote") || began.elapsed() > Duration::from_secs(30) {
                return log;
            }
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// Compiles without remotes until larder has learned how to observe the tool. From then on only
    /// the library watches the tool, so a fetch can race with it.
    pub(crate) fn learn(&self, store: &str) {
        for which in 1000..1003 {
            self.source(0.0, which);
            self.compile_by(store, |run| run.without("LARDER_REMOTE"));
        }
    }

    /// Records the current source in the first store, and uploads it.
    #[track_caller]
    pub(crate) fn record(&self) {
        // Without a `larderd`, a record is noted for upload only if one starts fast enough.
        self.larder(FIRST, &["daemon", "start"]).run().ends(0);
        let recorded = (0..8).any(|_| self.compile(FIRST).contains(" hit: "));
        assert!(recorded, "nothing is recorded");
        let flushed = self.larder(FIRST, &["remote", "flush"]).run().ends(0);
        assert!(flushed.stdout.contains(" 0 left"), "{flushed:?}");
    }

    pub(crate) fn stats(&self, store: &str) -> Value {
        serde_json::from_str(&self.larder(store, &["stats", "--json"]).run().ends(0).stdout).expect("not JSON")
    }

    pub(crate) fn daemon_log(&self, store: &str) -> String {
        fs::read_to_string(self.inside(store, "daemon.log")).unwrap_or_default()
    }

    /// Returns a path in a store, below the directory of its format version.
    pub(crate) fn inside(&self, store: &str, name: &str) -> PathBuf {
        let mut entries = fs::read_dir(self.place.path(store)).expect("cannot list the directory");
        entries.next().expect("the directory is empty").expect("cannot list the directory").path().join(name)
    }

    pub(crate) fn pid(&self, store: &str) -> i32 {
        let status = self.larder(store, &["daemon", "status", "--json"]).run().stdout;
        let status: Value = serde_json::from_str(&status).expect("not JSON");
        status["pid"].as_i64().expect("not a number") as i32
    }
}
