//! Which of the system calls that larder uses, and that not every system has, are missing or
//! refused here.
//!
//! Each call is made with arguments for which it does nothing.
//!
//! Unaware of: what is done without the call (`docs/platforms.md`).

use std::io;

use libc::{c_long, c_ulong};

/// A system call, and arguments with which it fails without any effect.
struct Asked {
    name: &'static str,
    number: c_long,
    arguments: [c_ulong; 6],
}

const NO_DESCRIPTOR: c_ulong = -1i32 as c_ulong;
const NO_FLAGS: c_ulong = u32::MAX as c_ulong;
const NOWHERE: c_ulong = 0;
const HERE: c_ulong = libc::AT_FDCWD as c_ulong;

/// The calls that kernels got after 3.10, and calls that the seccomp profiles of containers refuse.
const ASKED: &[Asked] = &[
    asked("openat2", libc::SYS_openat2, [NO_DESCRIPTOR, NOWHERE, NOWHERE, 0, 0, 0]),
    asked("statx", libc::SYS_statx, [HERE, NOWHERE, 0, 0, NOWHERE, 0]),
    asked("faccessat2", libc::SYS_faccessat2, [NO_DESCRIPTOR, NOWHERE, 0, NO_FLAGS, 0, 0]),
    asked("close_range", libc::SYS_close_range, [1, 0, 0, 0, 0, 0]),
    asked("memfd_create", libc::SYS_memfd_create, [NOWHERE, NO_FLAGS, 0, 0, 0, 0]),
    asked("pidfd_open", libc::SYS_pidfd_open, [0, NO_FLAGS, 0, 0, 0, 0]),
    asked("pidfd_send_signal", libc::SYS_pidfd_send_signal, [NO_DESCRIPTOR, 0, NOWHERE, NO_FLAGS, 0, 0]),
    asked("process_vm_readv", libc::SYS_process_vm_readv, [0, NOWHERE, 0, NOWHERE, 0, NO_FLAGS]),
    asked("ptrace", libc::SYS_ptrace, [libc::PTRACE_DETACH as c_ulong, c_ulong::MAX, 0, 0, 0, 0]),
    asked("seccomp", libc::SYS_seccomp, [NO_FLAGS, 0, NOWHERE, 0, 0, 0]),
    asked("copy_file_range", libc::SYS_copy_file_range, [NO_DESCRIPTOR, NOWHERE, NO_DESCRIPTOR, NOWHERE, 1, NO_FLAGS]),
    asked("renameat2", libc::SYS_renameat2, [NO_DESCRIPTOR, NOWHERE, NO_DESCRIPTOR, NOWHERE, NO_FLAGS, 0]),
    asked("getrandom", libc::SYS_getrandom, [NOWHERE, 0, NO_FLAGS, 0, 0, 0]),
    asked("kcmp", libc::SYS_kcmp, [0, 0, NO_FLAGS, 0, 0, 0]),
    asked("fallocate", libc::SYS_fallocate, [NO_DESCRIPTOR, 0, 0, 0, 0, 0]),
    asked("flock", libc::SYS_flock, [NO_DESCRIPTOR, 0, 0, 0, 0, 0]),
    asked("prctl", libc::SYS_prctl, [libc::PR_GET_CHILD_SUBREAPER as c_ulong, NOWHERE, 0, 0, 0, 0]),
];

const fn asked(name: &'static str, number: c_long, arguments: [c_ulong; 6]) -> Asked {
    Asked { name, number, arguments }
}

/// Returns the names of the optional system calls that are missing or refused here.
pub fn refused_calls() -> Vec<&'static str> {
    ASKED.iter().filter(|asked| asked.is_refused()).map(|asked| asked.name).collect()
}

/// Returns true if a seccomp filter applies to this process, as in a container. EPERM may then come
/// from the filter and not from the kernel.
pub fn calls_may_be_refused() -> bool {
    // SAFETY: asks about this process; no pointers.
    let mode = unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) };
    // A kernel without seccomp fails with EINVAL.
    mode > 0 || mode == -1 && io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL)
}

/// Returns text that differs between processes for which different calls are refused.
///
/// It holds the seccomp state, and yama's rule for which processes may be traced. Under a seccomp
/// filter it also holds the pid namespace, because two containers may have the same number of
/// filters.
pub fn sandbox() -> Vec<u8> {
    use std::os::unix::fs::MetadataExt;
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let status = read("/proc/self/status");
    let mut said: Vec<&str> = status.lines().filter(|line| line.starts_with("Seccomp")).collect();
    let scope = read("/proc/sys/kernel/yama/ptrace_scope");
    said.push(&scope);
    let is_filtered = said.iter().any(|line| line.split_whitespace().eq(["Seccomp:", "2"]));
    let namespace = std::fs::metadata("/proc/self/ns/pid").ok().filter(|_| is_filtered);
    format!("{} {}", said.join(" "), namespace.map_or(0, |look| look.ino())).into_bytes()
}

impl Asked {
    fn is_refused(&self) -> bool {
        let [a, b, c, d, e, f] = self.arguments;
        // SAFETY: the arguments make the call fail, and no pointer in them is valid.
        let done = unsafe { libc::syscall(self.number, a, b, c, d, e, f) };
        done == -1 && super::newer::is_refusal(&io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kernel that the tests run on has these calls, and no sandbox refuses them.
    #[test]
    fn nothing_old_is_missing() {
        let refused = refused_calls();
        assert!(!["flock", "fallocate", "prctl"].iter().any(|old| refused.contains(old)), "{refused:?}");
        let unknown = asked("unknown", 0xffff, [0; 6]);
        assert!(unknown.is_refused());
    }
}
