//! macOS: tools are started untouched, in a class of quality of service.
//!
//! The class is a clamp that children inherit and nobody raises. It is set by `posix_spawn` and by nothing else that
//! starts a program. On Apple silicon the lower of the two means the slow cores only, so nothing is set unless somebody
//! asks.

use std::ffi::{CString, c_char};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::Class;
use crate::pieces::copy_pieces;

/// How a program is scheduled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    class: Class,
}

impl Manner {
    /// Of a class; there are no cgroups here.
    pub fn of(class: Class, _cgroup: Option<&Path>) -> Manner {
        Manner { class }
    }

    /// Whether a child has nothing to set.
    pub fn is_inherited(&self) -> bool {
        self.class == Class::Inherit
    }

    fn quality(&self) -> Option<libc::qos_class_t> {
        match self.class {
            Class::Inherit => None,
            Class::Utility => Some(libc::qos_class_t::QOS_CLASS_UTILITY),
            Class::Background => Some(libc::qos_class_t::QOS_CLASS_BACKGROUND),
        }
    }
}

/// Run the program at `path` and end as it ends. Returns only when it cannot be started.
pub fn run_and_end(path: &[u8], argv: &[Vec<u8>], environment: &[Vec<u8>], manner: &Manner) -> io::Error {
    match start(path, argv, environment, manner).and_then(wait) {
        Ok(code) => std::process::exit(code),
        Err(error) => error,
    }
}

fn start(path: &[u8], argv: &[Vec<u8>], environment: &[Vec<u8>], manner: &Manner) -> io::Result<libc::pid_t> {
    let string = |bytes: &[u8]| CString::new(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
    let strings = |all: &[Vec<u8>]| all.iter().map(|one| string(one)).collect::<io::Result<Vec<_>>>();
    let (path, argv, environment) = (string(path)?, strings(argv)?, strings(environment)?);
    let pointers = |all: &[CString]| -> Vec<*mut c_char> {
        all.iter().map(|one| one.as_ptr().cast_mut()).chain([std::ptr::null_mut()]).collect()
    };
    let (argv, environment) = (pointers(&argv), pointers(&environment));
    // SAFETY: the attributes are initialised before use and destroyed once; null-terminated arrays of null-terminated
    // strings, all alive during the call.
    unsafe {
        let mut attributes: libc::posix_spawnattr_t = std::mem::zeroed();
        check(libc::posix_spawnattr_init(&mut attributes))?;
        // Its errors are what it returns. A class that cannot be set is no reason not to run.
        let _ = manner.quality().map(|class| libc::posix_spawnattr_set_qos_class_np(&mut attributes, class));
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

/// Copy `count` bytes from the start of `from`, wherever that was read to, to the empty file `to`. Returns how many there
/// were. By `copyfile` where all of it is wanted. Blocks are not shared: APFS shares those of whole files by name only
/// (`clonefile`), and `to` is made by whoever calls. Never measured: `cargo run -p larder-copy` does that, there.
pub fn copy_bytes(from: &File, to: &File, count: u64) -> io::Result<u64> {
    if from.metadata()?.len() == count {
        // It goes on from where the file was read to.
        io::Seek::rewind(&mut &*from)?;
        // SAFETY: two descriptors that stay open, and no state.
        let code =
            unsafe { libc::fcopyfile(from.as_raw_fd(), to.as_raw_fd(), std::ptr::null_mut(), libc::COPYFILE_DATA) };
        if code == 0 {
            return Ok(to.metadata()?.len());
        }
        to.set_len(0)?;
    }
    copy_pieces(from, to, 0, count)
}

fn check(code: i32) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

/// The code that it ended with, as a shell says it where a signal ended it.
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

/// Remove the file, link or directory at `path` with all that is in it. It is no error if there is nothing.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let removed = match std::fs::symlink_metadata(path) {
        Ok(there) if there.is_dir() => std::fs::remove_dir_all(path),
        _ => std::fs::remove_file(path),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
