//! A fresh directory for each test, with its own home, store, working directory and `PATH`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The directory of a test, which is removed afterwards.
pub(crate) struct Here {
    top: PathBuf,
    _dir: TempDir,
}

/// The result of a run of `larderd`.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Here {
    pub(crate) fn new() -> Here {
        let dir = TempDir::new().expect("a directory");
        let top = dir.path().canonicalize().expect("is there");
        for name in ["home", "work", "bin"] {
            std::fs::create_dir(top.join(name)).expect("makes");
        }
        Here { top, _dir: dir }
    }

    pub(crate) fn path(&self, rel: &str) -> PathBuf {
        self.top.join(rel)
    }

    pub(crate) fn write(&self, rel: &str, text: &str) {
        std::fs::write(self.path(rel), text).expect("writes");
    }

    /// Creates a program called `gcc` on `PATH` that is dynamically linked and compiles nothing.
    pub(crate) fn fake_gcc(&self) {
        larder_testkit::copy_program("/bin/true", self.path("bin/gcc"));
    }

    pub(crate) fn environment(&self) -> Vec<(OsString, OsString)> {
        let variable = |name: &str, path: &str| (name.into(), self.path(path).into_os_string());
        vec![variable("HOME", "home"), variable("PATH", "bin"), variable("LARDER_DIR", "store")]
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.program(env!("CARGO_BIN_EXE_larderd"), arguments);
        command.arg0("larder");
        command
    }

    pub(crate) fn program(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.path("work")).stdin(Stdio::null());
        command.env_clear().envs(self.environment());
        command
    }

    pub(crate) fn larder(&self, arguments: &[&str]) -> Ran {
        self.larder_with(&[], arguments)
    }

    pub(crate) fn larder_with(&self, environment: &[(&str, &str)], arguments: &[&str]) -> Ran {
        let mut command = self.command(arguments);
        let output = command.envs(environment.iter().copied()).output().expect("larderd runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("is text");
        let ran = Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) };
        assert!(!ran.err.contains("panicked"), "{ran:?}");
        ran
    }
}

impl Ran {
    /// Checks the exit code.
    #[track_caller]
    pub(crate) fn ends(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn says(self, piece: &str) -> Ran {
        assert!(self.out.contains(piece), "{piece:?} is not in {self:#?}");
        self
    }

    /// Checks that standard error has one line, by `larder`, which contains `piece`.
    #[track_caller]
    pub(crate) fn complains(self, piece: &str) -> Ran {
        assert!(self.err.starts_with("larder: ") && self.err.lines().count() == 1, "{self:#?}");
        assert!(self.err.contains(piece), "{piece:?} is not in {self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

pub(crate) fn bytes_of(path: &Path) -> Vec<u8> {
    path.as_os_str().to_owned().into_vec()
}
