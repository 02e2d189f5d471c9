//! Compiles one line twice with each compiler, in a store of its own. The first run must be
//! recorded, the second must be a hit, and the object must equal the one that the compiler makes
//! without larder.

use std::ffi::{OsStr, OsString};
use std::fs::{File, FileTimes};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime};

use super::check::{Check, note, ok, problem};
use crate::say;
use crate::surroundings::Surroundings;

const WHAT: &str = "compiler";
const SOURCE: &str = "one-line.c";
const OBJECT: &str = "one-line.o";
/// The time limit of a compile, which normally takes some milliseconds.
const DEADLINE: Duration = Duration::from_secs(60);
/// The age of the source file, because inputs that are as new as the run are not recorded.
const AGE: Duration = Duration::from_secs(3600);

/// The result of one compile.
struct Compiled {
    status: ExitStatus,
    object: Option<Vec<u8>>,
}

/// Checks `compiler`, which is printed as `shown`. Returns `kind`, a description of the program,
/// and the result of the compiles.
pub(super) fn check(around: &Surroundings, compiler: &[u8], shown: &str, kind: &str) -> Check {
    let Some(wrapper) = &around.wrapper else {
        return note(WHAT, format!("{shown}: {kind}; not tested, because larder is not beside larderd"));
    };
    let compiler = PathBuf::from(OsString::from_vec(compiler.to_vec()));
    match twice(around, wrapper, &compiler) {
        Ok(tried) => tried.check(shown, kind),
        Err(error) => note(WHAT, format!("{shown}: {kind}; not tested: {error}")),
    }
}

/// Three compiles, one without larder and two with it, and what larder logged about the latter.
struct Tried {
    plain: Compiled,
    first: Compiled,
    second: Compiled,
    log: Vec<String>,
}

impl Tried {
    fn check(&self, shown: &str, kind: &str) -> Check {
        if !self.plain.status.success() {
            return note(WHAT, format!("{shown}: cannot compile one line by itself ({})", self.plain.status));
        }
        for compiled in [&self.first, &self.second] {
            if !compiled.status.success() || compiled.object != self.plain.object {
                return problem(
                    WHAT,
                    format!(
                        "{shown}: {kind}; compiling one line with larder gave another result than without ({}): set \
                         LARDER_DISABLE=1, and report this",
                        compiled.status
                    ),
                );
            }
        }
        let said = self.log.last().map_or("larder logged nothing", String::as_str);
        match said.starts_with("hit") {
            true => ok(WHAT, format!("{shown}: {kind}; one line was compiled, recorded, and answered from the store")),
            false => problem(
                WHAT,
                format!("{shown}: {kind}; one line was compiled twice, and the second was no hit: {said}"),
            ),
        }
    }
}

fn twice(around: &Surroundings, wrapper: &Path, compiler: &Path) -> io::Result<Tried> {
    let place = tempfile::Builder::new().prefix("larder-doctor-").tempdir()?;
    std::fs::write(place.path().join(SOURCE), "int larder_doctor;\n")?;
    let before = FileTimes::new().set_modified(SystemTime::now() - AGE);
    File::options().write(true).open(place.path().join(SOURCE))?.set_times(before)?;
    let log = place.path().join("log");
    let plain = compile(Command::new(compiler), place.path())?;
    let by_larder = || {
        let mut command = Command::new(wrapper);
        command.arg(compiler);
        for (name, _) in around.environment.iter().filter(|(name, _)| name.starts_with(b"LARDER_")) {
            command.env_remove(OsString::from_vec(name.clone()));
        }
        // The user's setting for the observer is kept, because it is part of the test.
        if let Some(observer) = around.settings().observer {
            command.env("LARDER_OBSERVER", observer.name());
        }
        command.env("LARDER_CONFIG", "/dev/null").env("LARDER_DIR", place.path().join("store")).env("LARDER_LOG", &log);
        compile(command, place.path())
    };
    let (first, second) = (by_larder()?, by_larder()?);
    let log = std::fs::read_to_string(log).unwrap_or_default();
    Ok(Tried { plain, first, second, log: log.lines().map(outcome).collect() })
}

/// Returns a line of the log without the time and the process.
fn outcome(line: &str) -> String {
    line.splitn(3, ' ').last().unwrap_or(line).to_owned()
}

fn compile(mut command: Command, place: &Path) -> io::Result<Compiled> {
    let object = place.join(OBJECT);
    let _ = std::fs::remove_file(&object);
    command.args(["-c", SOURCE, "-o", OBJECT]).current_dir(place);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = wait(command.spawn()?, command.get_program())?;
    Ok(Compiled { status, object: std::fs::read(object).ok() })
}

fn wait(mut child: Child, program: &OsStr) -> io::Result<ExitStatus> {
    const LOOK_AGAIN: Duration = Duration::from_millis(1);
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if began.elapsed() > DEADLINE {
            let _ = child.kill();
            let _ = child.wait();
            let hangs = format!("{} did not end within {} s", program.to_string_lossy(), DEADLINE.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, say::clean(hangs.as_bytes())));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}
