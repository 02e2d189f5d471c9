//! Tries the preloaded library with one dynamic loader, on a program that does what every tool
//! does.
//!
//! A loader may refuse the library, its libc may lack functions that the library calls, or it may
//! ignore `LD_PRELOAD`. Then every tool of that loader would fail or would not be observed. So the
//! library is used with a loader only after this self-test has passed.
//!
//! Unaware of: which tool is to be observed, where the outcome is stored.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{PreloadObserver, log};
use crate::EventKind;

/// The program of the self-test, as `build.rs` compiled it.
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/self-test"));
/// The path in that program that is replaced by the loader's.
const LOADER_ROOM: &[u8] = env!("LARDER_LOADER_ROOM").as_bytes();
/// The exit code of the program if every step went as without the library.
const SUCCESS: i32 = 42;
/// The program takes about a millisecond.
const DEADLINE: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_micros(200);

impl PreloadObserver {
    /// Identifies this build of the library and of the self-test.
    pub const LIBRARY_ID: &[u8] = env!("LARDER_LIBRARY_ID").as_bytes();

    /// Tries the library on a program that `loader` loads. `library_path` is the program's
    /// `LD_LIBRARY_PATH`. The error says what failed. The cost is about that of running
    /// `/bin/true`.
    pub fn try_out(loader: &[u8], library_path: Option<&[u8]>) -> io::Result<()> {
        let mut written = larder_sys::memory_file("larder-self-test", true)?;
        written.write_all(&with_loader(loader)?)?;
        // The kernel executes no file that is open for writing, so it is opened again for reading.
        let program = File::open(super::path_of(&written))?;
        drop(written);
        let observer = PreloadObserver::new()?;
        let library_path = library_path.map(|path| ("LD_LIBRARY_PATH", OsStr::from_bytes(path)));
        let mut child = Command::new(super::path_of(&program))
            .env_clear()
            .envs(library_path)
            .env("LARDER_SELF_TEST", "1")
            .env("LD_PRELOAD", super::path_of(&observer.library))
            .env("LARDER_PRELOAD_LOG", super::path_of(&observer.log))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let end = wait(&mut child)?;
        if end.code() != Some(SUCCESS) {
            return Err(io::Error::other(format!(
                "a test program of this loader fails with the preloaded library: {end}"
            )));
        }
        let trace = log::read(&observer.log)?;
        let saw = |kind: fn(EventKind) -> bool, path: &[u8], error: i32| {
            trace.iter().any(|event| kind(event.kind) && event.error == error && event.path.ends_with(path))
        };
        let seen = saw(|kind| kind == EventKind::Start, b"", 0)
            && saw(|kind| matches!(kind, EventKind::Open(_)), b"/proc/self/exe", 0)
            && saw(|kind| kind == EventKind::Access, b"/larder/self-test/nothing", libc::ENOENT)
            && saw(|kind| kind == EventKind::GetEnvironment, b"LARDER_SELF_TEST", 0);
        if seen && !trace.incomplete {
            return Ok(());
        }
        Err(io::Error::other(
            "the preloaded library does not see a test program of this loader, so LD_PRELOAD is ignored",
        ))
    }
}

fn wait(child: &mut Child) -> io::Result<ExitStatus> {
    let began = Instant::now();
    loop {
        if let Some(end) = child.try_wait()? {
            return Ok(end);
        }
        if began.elapsed() > DEADLINE {
            let _ = child.kill();
            let _ = child.wait();
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "a test program of this loader hangs with the preloaded library",
            ));
        }
        sleep(LOOK_AGAIN);
    }
}

fn with_loader(loader: &[u8]) -> io::Result<Vec<u8>> {
    let room = memchr::memmem::find(PROGRAM, LOADER_ROOM)
        .filter(|_| loader.len() <= LOADER_ROOM.len())
        .ok_or_else(|| io::Error::other("the path of the loader is too long"))?;
    let mut program = PROGRAM.to_vec();
    program[room..room + LOADER_ROOM.len()].fill(0);
    program[room..room + loader.len()].copy_from_slice(loader);
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Program, inspect_program};

    #[test]
    fn this_systems_loader_passes_and_others_do_not() {
        let (Program::Dynamic { loader }, _) = inspect_program(b"/bin/sh") else {
            panic!("/bin/sh is dynamically linked")
        };
        let tried = PreloadObserver::try_out(&loader, None);
        assert!(tried.is_ok(), "{}: {tried:?}", String::from_utf8_lossy(&loader));
        assert!(PreloadObserver::try_out(b"/nonexistent/loader", None).is_err());
        // It is a program, but no loader.
        assert!(PreloadObserver::try_out(b"/bin/true", None).is_err());
        assert!(PreloadObserver::try_out(&[b'x'; 1000], None).is_err());
    }
}
