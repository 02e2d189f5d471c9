//! A place with a store, a sandbox that may only read the store, and the `larderd` outside of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use larder_testkit::{Place, Ran, larder, larder_text};
use serde_json::Value;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// A shell command that makes the store read-only, for a sandbox with its own mounts, network and
/// processes.
pub(crate) const SANDBOX: &str =
    "mount --bind \"$LARDER_DIR\" \"$LARDER_DIR\" && mount -o remount,bind,ro \"$LARDER_DIR\" && ";

/// A place with a store. Its `larderd` is stopped when the value is dropped.
pub(crate) struct Here {
    pub(crate) place: Place,
    pub(crate) store: PathBuf,
}

impl Drop for Here {
    fn drop(&mut self) {
        let _ = self.larder(&["daemon", "stop"]);
    }
}

impl Here {
    pub(crate) fn new() -> Here {
        Here::with_store("store")
    }

    pub(crate) fn with_store(name: &str) -> Here {
        let place = Place::new();
        // The output depends only on the source, and is too large to be kept inside a record.
        place.tool("work/mycc", "for i in 1 2 3 4 5 6 7 8 9; do cat x.c x.c x.c x.c x.c x.c; done > x.o; echo said");
        place.put("x.c", "int a;\n".repeat(40));
        let store = place.path(name);
        fs::create_dir_all(&store).expect("cannot create the directory");
        fs::set_permissions(&store, fs::Permissions::from_mode(0o700)).expect("cannot set the mode");
        Here { place, store }
    }

    pub(crate) fn run(&self, argv: &[&str]) -> Ran {
        self.command(argv).run()
    }

    pub(crate) fn command(&self, argv: &[&str]) -> larder_testkit::Run {
        self.place.settle();
        let run = self.place.run(argv).env("LARDER_DIR", &self.store).env("LARDER_LOG", self.place.path("log"));
        run.env("LARDER", larder())
    }

    pub(crate) fn larder(&self, words: &[&str]) -> Ran {
        self.run(&[&[larder_text()], words].concat())
    }

    pub(crate) fn sandbox_command(&self, script: &str) -> larder_testkit::Run {
        let whole = format!("{SANDBOX} {script}");
        self.command(&["unshare", "-m", "-n", "-p", "-f", "--mount-proc", "sh", "-c", &whole])
    }

    /// Runs a script in a sandbox, and returns what larder logged meanwhile.
    pub(crate) fn sandbox(&self, script: &str) -> String {
        let _ = fs::remove_file(self.place.path("log"));
        let ran = self.sandbox_command(script).run();
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        assert_eq!(ran.stdout, "said\n");
        self.log()
    }

    pub(crate) fn compile(&self) -> String {
        self.place.remove(&["x.o"]);
        let log = self.sandbox("exec \"$LARDER\" ./mycc -c x.c -o x.o");
        self.right();
        log
    }

    #[track_caller]
    pub(crate) fn right(&self) {
        let source = self.place.read("x.c");
        assert!(self.place.read("x.o") == source.repeat(54), "x.o has wrong content");
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.place.path("log")).unwrap_or_default()
    }

    pub(crate) fn daemon_log(&self) -> String {
        fs::read_to_string(self.inside("daemon.log")).unwrap_or_default()
    }

    /// Returns a path in the store, below the directory of its format version.
    pub(crate) fn inside(&self, name: &str) -> PathBuf {
        let base = fs::read_dir(&self.store)
            .expect("cannot list the directory")
            .next()
            .expect("the directory is empty")
            .expect("cannot list the directory");
        base.path().join(name)
    }

    pub(crate) fn start(&self) -> u64 {
        self.larder(&["daemon", "start"]).ends(0);
        let pid = self.status()["pid"].as_u64().expect("not a number");
        assert!(pid > 0);
        pid
    }

    pub(crate) fn status(&self) -> Value {
        serde_json::from_str(&self.larder(&["daemon", "status", "--json"]).stdout).expect("not JSON")
    }

    #[track_caller]
    pub(crate) fn wait(&self, what: &str, holds: impl Fn(&Here) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(Instant::now() < until, "timed out waiting until {what}: {} {}", self.status(), self.daemon_log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn wait_recorded(&self, count: u64) {
        self.wait("larderd has taken the records", |here| here.status()["recorded"] == count);
    }

    pub(crate) fn counted(&self) -> Value {
        serde_json::from_str(&self.larder(&["stats", "--json"]).ends(0).stdout).expect("not JSON")
    }
}
