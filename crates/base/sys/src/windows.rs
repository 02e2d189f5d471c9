//! Windows: tools are started untouched, in a priority class that their children inherit. Copies
//! share blocks if the file system can.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::windows::io::AsRawHandle;
use std::os::windows::process::CommandExt;
use std::path::Path;

use crate::Class;
use crate::pieces::copy_pieces;

#[link(name = "kernel32")]
unsafe extern "system" {
    /// Returns a number that stands for this process. No handle is opened.
    fn GetCurrentProcess() -> *mut c_void;
    /// Returns the priority class of a process, or 0 if it cannot be determined.
    fn GetPriorityClass(process: *mut c_void) -> u32;
    /// Sends a request to the file system that has no call of its own. Returns 0 if it is refused.
    fn DeviceIoControl(
        file: *mut c_void,
        code: u32,
        input: *const c_void,
        input_bytes: u32,
        output: *mut c_void,
        output_bytes: u32,
        returned_bytes: *mut u32,
        overlapped: *mut c_void,
    ) -> i32;
}

/// `FSCTL_DUPLICATE_EXTENTS_TO_FILE`. ReFS and its Dev Drives share blocks; NTFS refuses.
const SHARE_BLOCKS: u32 = 0x0009_8344;
/// `DUPLICATE_EXTENTS_DATA`.
#[repr(C)]
struct Blocks {
    from: *mut c_void,
    from_offset: i64,
    to_offset: i64,
    count: i64,
}

/// The largest block size, in bytes. Shared ranges begin and end at block borders, and ReFS has
/// blocks of 4 or 64 kB.
const BLOCK_BYTES_MAX: u64 = 64 << 10;
/// The most bytes that are shared by one request. The limit of Windows is 4 GB.
const SHARED_BYTES_MAX: u64 = 1 << 30;

/// `BELOW_NORMAL_PRIORITY_CLASS` and `IDLE_PRIORITY_CLASS`, as `CreateProcess` takes them.
const BELOW_NORMAL: u32 = 0x4000;
const IDLE: u32 = 0x40;

/// The scheduling of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchedPolicy {
    class: Class,
}

impl SchedPolicy {
    /// Returns the scheduling for a class. There are no cgroups here.
    pub fn of(class: Class, _cgroup: Option<&Path>) -> SchedPolicy {
        SchedPolicy { class }
    }

    /// Returns true if a child has nothing to set.
    pub fn is_inherited(&self) -> bool {
        self.class == Class::Inherit
    }

    /// Returns the creation flags for a child. If this process is idle, its child is idle too
    /// unless flags say otherwise, and `BELOW_NORMAL` would raise it.
    fn flags(&self) -> u32 {
        // SAFETY: both calls take no pointer of ours and change nothing.
        let inherited = unsafe { GetPriorityClass(GetCurrentProcess()) };
        match self.class {
            Class::Inherit => 0,
            Class::Utility if inherited == IDLE => 0,
            Class::Utility => BELOW_NORMAL,
            Class::Background => IDLE,
        }
    }
}

/// Runs the program at `path`, and exits with its exit code. Returns only if the program cannot be
/// started.
pub fn run_and_end(path: &[u8], argv: &[Vec<u8>], _environment: &[Vec<u8>], sched_policy: &SchedPolicy) -> io::Error {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut command = std::process::Command::new(text(path));
    command.args(argv.iter().skip(1).map(|argument| text(argument))).creation_flags(sched_policy.flags());
    match command.status() {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) => error,
    }
}

/// Copies `count` bytes from the start of `from` to the empty file `to`, whatever the read position
/// of `from` is. Returns how many bytes there were.
///
/// Blocks are shared if the file system can. `CopyFile` would do the same, but it would open both
/// files by path once more. This was never measured.
pub fn copy_bytes(from: &File, to: &File, count: u64) -> io::Result<u64> {
    let there = from.metadata()?.len().min(count);
    let whole = there - there % BLOCK_BYTES_MAX;
    let shared = match share(from, to, whole) {
        Ok(()) => whole,
        Err(_) => {
            to.set_len(0)?;
            0
        }
    };
    Ok(shared + copy_pieces(from, to, shared, count)?)
}

/// Shares the blocks of the first `count` bytes, or fails. Both files get that length first.
fn share(from: &File, to: &File, count: u64) -> io::Result<()> {
    to.set_len(count)?;
    let mut done = 0;
    while done < count {
        let step = (count - done).min(SHARED_BYTES_MAX);
        let offset = done as i64;
        let blocks = Blocks { from: from.as_raw_handle(), from_offset: offset, to_offset: offset, count: step as i64 };
        let mut returned = 0;
        // SAFETY: both handles are open during the call. The input has the size that is passed, and
        // there is no output buffer. Because nothing overlaps, the count is written to our own
        // integer.
        let shared = unsafe {
            DeviceIoControl(
                to.as_raw_handle(),
                SHARE_BLOCKS,
                (&raw const blocks).cast(),
                size_of::<Blocks>() as u32,
                std::ptr::null_mut(),
                0,
                &mut returned,
                std::ptr::null_mut(),
            )
        };
        if shared == 0 {
            return Err(io::Error::last_os_error());
        }
        done += step;
    }
    Ok(())
}
