//! Windows: tools are started untouched, in a priority class that their children inherit.

use std::io;
use std::os::windows::process::CommandExt;
use std::path::Path;

use crate::Class;

#[link(name = "kernel32")]
unsafe extern "system" {
    /// A number that stands for this process; nothing is opened.
    fn GetCurrentProcess() -> *mut std::ffi::c_void;
    /// The priority class of a process; 0 where it cannot be told.
    fn GetPriorityClass(process: *mut std::ffi::c_void) -> u32;
}

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
