//! The priority classes of Windows, which children inherit.

use std::ffi::c_void;
use std::os::windows::process::CommandExt;
use std::process::Command;

use crate::Class;

#[link(name = "kernel32")]
unsafe extern "system" {
    /// Returns a number that stands for this process. No handle is opened.
    fn GetCurrentProcess() -> *mut c_void;
    /// Returns the priority class of a process, or 0 if it cannot be determined.
    fn GetPriorityClass(process: *mut c_void) -> u32;
}

/// `BELOW_NORMAL_PRIORITY_CLASS` and `IDLE_PRIORITY_CLASS`, as `CreateProcess` takes them.
const BELOW_NORMAL: u32 = 0x4000;
const IDLE: u32 = 0x40;

/// Lets the program start in this class. If this process is idle, its child is idle too unless flags
/// say otherwise, and `BELOW_NORMAL` would raise it.
pub(super) fn set_class(command: &mut Command, class: Class) {
    // SAFETY: both calls take no pointer of ours and change nothing.
    let inherited = unsafe { GetPriorityClass(GetCurrentProcess()) };
    command.creation_flags(match class {
        Class::Inherit => 0,
        Class::Utility if inherited == IDLE => 0,
        Class::Utility => BELOW_NORMAL,
        Class::Background => IDLE,
    });
}
