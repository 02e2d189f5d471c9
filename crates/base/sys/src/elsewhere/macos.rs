//! macOS: tools are started untouched, with a quality-of-service class.
//!
//! The class is a clamp that children inherit and that no process can raise. Only `posix_spawn` can
//! set it for a new program. On Apple silicon, the background class means that only the slow cores
//! are used. So nothing is set unless the user asks for it.

use std::ffi::{CString, c_char};
use std::io;

use crate::Class;

/// Returns the quality of service for a class.
fn quality(class: Class) -> Option<libc::qos_class_t> {
    match class {
        Class::Inherit => None,
        Class::Utility => Some(libc::qos_class_t::QOS_CLASS_UTILITY),
        Class::Background => Some(libc::qos_class_t::QOS_CLASS_BACKGROUND),
    }
}

/// Runs the program at `path`, and exits with its exit code. Returns only if the program cannot be
/// started.
pub fn run_and_end(path: &[u8], argv: &[Vec<u8>], environment: &[Vec<u8>], class: Class) -> io::Error {
    match start(path, argv, environment, class).and_then(wait) {
        Ok(code) => std::process::exit(code),
        Err(error) => error,
    }
}

fn start(path: &[u8], argv: &[Vec<u8>], environment: &[Vec<u8>], class: Class) -> io::Result<libc::pid_t> {
    let string = |bytes: &[u8]| CString::new(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
    let strings = |all: &[Vec<u8>]| all.iter().map(|one| string(one)).collect::<io::Result<Vec<_>>>();
    let (path, argv, environment) = (string(path)?, strings(argv)?, strings(environment)?);
    let pointers = |all: &[CString]| -> Vec<*mut c_char> {
        all.iter().map(|one| one.as_ptr().cast_mut()).chain([std::ptr::null_mut()]).collect()
    };
    let (argv, environment) = (pointers(&argv), pointers(&environment));
    // SAFETY: the attributes are initialised before use and destroyed once. The arrays and their
    // strings are null-terminated and live during the call.
    unsafe {
        let mut attributes: libc::posix_spawnattr_t = std::mem::zeroed();
        check(libc::posix_spawnattr_init(&mut attributes))?;
        // The function returns its error. A class that cannot be set is no reason not to run the
        // program.
        let _ = quality(class).map(|class| libc::posix_spawnattr_set_qos_class_np(&mut attributes, class));
        let mut pid = 0;
        let started = check(libc::posix_spawn(
            &mut pid,
            path.as_ptr(),
            std::ptr::null(),
            &attributes,
            argv.as_ptr(),
            environment.as_ptr(),
        ));
        libc::posix_spawnattr_destroy(&mut attributes);
        started.map(|()| pid)
    }
}

fn check(code: i32) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

/// Waits for a child. Returns its exit code, or 128 plus the signal that ended it, as a shell does.
fn wait(pid: libc::pid_t) -> io::Result<i32> {
    let mut status = 0;
    loop {
        // SAFETY: waits for our own child, writes to our own integer.
        if unsafe { libc::waitpid(pid, &mut status, 0) } == pid {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let signalled = libc::WIFSIGNALED(status);
    Ok(if signalled { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) })
}
