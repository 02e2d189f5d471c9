//! Windows: tools are started untouched, in a priority class that their children inherit; blocks of files are shared.

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
    /// A number that stands for this process; nothing is opened.
    fn GetCurrentProcess() -> *mut c_void;
    /// The priority class of a process; 0 where it cannot be told.
    fn GetPriorityClass(process: *mut c_void) -> u32;
    /// Asks a file system for what has no call of its own; 0 where it refuses.
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

/// `FSCTL_DUPLICATE_EXTENTS_TO_FILE`: ReFS and its Dev Drives share blocks; NTFS refuses.
const SHARE_BLOCKS: u32 = 0x0009_8344;
/// `DUPLICATE_EXTENTS_DATA`.
#[repr(C)]
struct Blocks {
    from: *mut c_void,
    from_offset: i64,
    to_offset: i64,
    count: i64,
}

/// What is shared begins and ends where blocks do, which have 4 or 64 kB.
const BLOCK_BYTES_MAX: u64 = 64 << 10;
/// Less than 4 GB are shared at once.
const SHARED_BYTES_MAX: u64 = 1 << 30;

/// `BELOW_NORMAL_PRIORITY_CLASS` and `IDLE_PRIORITY_CLASS`, as `CreateProcess` takes them.
const BELOW_NORMAL: u32 = 0x4000;
const IDLE: u32 = 0x40;

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

    /// A child whose parent is idle is so by itself, unless it is told otherwise: `BELOW_NORMAL` would raise it.
    fn flags(&self) -> u32 {
        // SAFETY: both take no pointer of ours and change nothing.
        let inherited = unsafe { GetPriorityClass(GetCurrentProcess()) };
        match self.class {
            Class::Inherit => 0,
            Class::Utility if inherited == IDLE => 0,
            Class::Utility => BELOW_NORMAL,
            Class::Background => IDLE,
        }
    }
}

/// Run the program at `path` and end as it ends. Returns only when it cannot be started.
pub fn run_and_end(path: &[u8], argv: &[Vec<u8>], _environment: &[Vec<u8>], manner: &Manner) -> io::Error {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut command = std::process::Command::new(text(path));
    command.args(argv.iter().skip(1).map(|argument| text(argument))).creation_flags(manner.flags());
    match command.status() {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) => error,
    }
}

/// Copy `count` bytes from the start of `from`, wherever that was read to, to the empty file `to`; they are shared where
/// the file system can. Returns how many there were. `CopyFile` would do the same, but opens both by name once more.
/// Never measured: `cargo run -p larder-copy` does that, there.
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

/// All of the first `count` bytes or an error. The file must be as long before.
fn share(from: &File, to: &File, count: u64) -> io::Result<()> {
    to.set_len(count)?;
    let mut done = 0;
    while done < count {
        let step = (count - done).min(SHARED_BYTES_MAX);
        let offset = done as i64;
        let blocks = Blocks { from: from.as_raw_handle(), from_offset: offset, to_offset: offset, count: step as i64 };
        let mut returned = 0;
        // SAFETY: both handles are open during the call; the input is as large as is said and nothing is put out; where
        // nothing overlaps, the count of what was is written to our own number.
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
