//! Kernels and container engines, each as the set of system calls that it refuses.

use larder_testkit::is_full;

use crate::Trial;
use crate::bench::numbers;
use crate::tables::{Command, NEWEST_LAST, RECORDED};

const EPERM: u32 = 1;
const EIO: u32 = 5;
const EBUSY: u32 = 16;
const EINVAL: u32 = 22;
const ENOSYS: u32 = 38;

/// `SECCOMP_FILTER_FLAG_NEW_LISTENER` and `…_WAIT_KILLABLE_RECV`.
const NEW_LISTENER: u32 = 1 << 3;
const WAIT_KILLABLE: u32 = 1 << 5;
const GET_SYSCALL_INFO: u32 = 0x420e;
/// `SECCOMP_IOCTL_NOTIF_SEND`.
const NOTIF_SEND: u32 = 0xc018_2101;
/// The flags of `clone` that make namespaces.
const CLONE_NEW: u32 = 0x7e02_0000;

/// Nothing works by which a whole command could be observed, but an earlier record still hits.
const BYPASSED: &str = "bypass:cannot-observe / hit";

struct Profile {
    name: &'static str,
    refusals: Vec<String>,
    /// The outcomes of a compile, and of a whole command.
    expected: [&'static str; 2],
}

pub(crate) fn trials() -> Vec<Trial> {
    let commands: &[Command] =
        if is_full() { &[Command::Gcc, Command::Clang, Command::Script] } else { &[Command::Gcc, Command::Script] };
    let of = |profile: Profile| {
        commands.iter().map(move |command| Trial {
            name: profile.name.to_owned(),
            refusals: profile.refusals.clone(),
            command: *command,
            expected: profile.expected[usize::from(*command == Command::Script)].to_owned(),
        })
    };
    all().into_iter().flat_map(of).collect()
}

fn all() -> Vec<Profile> {
    vec![
        Profile { name: "Linux 5.4", refusals: linux_5_4(), expected: [RECORDED; 2] },
        Profile { name: "Linux 3.10", refusals: linux_3_10(), expected: [RECORDED, BYPASSED] },
        // `ls` prints that it cannot stat the directory.
        Profile { name: "Docker of 2018", refusals: docker_of_2018(), expected: [RECORDED, "miss:refused / hit"] },
        Profile { name: "Docker", refusals: docker(), expected: [RECORDED; 2] },
        Profile { name: "gVisor", refusals: gvisor(), expected: [RECORDED; 2] },
        Profile { name: "systemd-nspawn", refusals: nspawn(), expected: [RECORDED, "miss:unjudged miss hit / hit"] },
        // Inside a container whose engine has a seccomp listener itself, a process cannot have a
        // second one.
        Profile {
            name: "another listener",
            refusals: vec![if_bits("seccomp", 1, NEW_LISTENER, EBUSY)],
            expected: [RECORDED, RECORDED],
        },
        Profile {
            name: "no io_uring, no namespaces",
            refusals: [
                newer(425, 427, EPERM),
                vec![if_bits("clone", 0, CLONE_NEW, EPERM)],
                each(&["unshare", "setns"], EPERM),
            ]
            .concat(),
            expected: [RECORDED; 2],
        },
    ]
}

fn each(calls: &[&str], error: u32) -> Vec<String> {
    calls.iter().filter_map(|call| numbers().get(*call)).map(|number| format!("{number}={error}")).collect()
}

fn newer(first: u32, last: u32, error: u32) -> Vec<String> {
    vec![format!("{first}-{last}={error}")]
}

/// Refuses a call if an argument has one of these bits.
fn if_bits(call: &str, argument: u32, bits: u32, error: u32) -> String {
    format!("{}@{argument}&{bits}={error}", numbers()[call])
}

/// Refuses a call if an argument has this value.
fn if_value(call: &str, argument: u32, value: u32, error: u32) -> String {
    format!("{}@{argument}:{value}={error}", numbers()[call])
}

/// Refuses what the kernel of Ubuntu 20.04 lacks. Since Linux 5.5 a listener may let the call go on
/// (`SECCOMP_USER_NOTIF_FLAG_CONTINUE`). larder gives no other answer, so refusing all answers has
/// the same effect.
fn linux_5_4() -> Vec<String> {
    let answers = vec![if_value("ioctl", 1, NOTIF_SEND, EINVAL), if_bits("seccomp", 1, WAIT_KILLABLE, EINVAL)];
    [newer(436, NEWEST_LAST, ENOSYS), answers].concat()
}

/// The kernel of CentOS 7, which has no call that is newer than `finit_module`.
fn linux_3_10() -> Vec<String> {
    const SINCE: &[&str] = &[
        "sched_setattr",
        "sched_getattr",
        "renameat2",
        "seccomp",
        "getrandom",
        "memfd_create",
        "kexec_file_load",
        "bpf",
        "execveat",
        "userfaultfd",
        "membarrier",
        "mlock2",
        "copy_file_range",
        "preadv2",
        "pwritev2",
        "pkey_mprotect",
        "pkey_alloc",
        "pkey_free",
        "statx",
        "io_pgetevents",
        "rseq",
    ];
    // `PTRACE_GET_SYSCALL_INFO` exists since Linux 5.3.
    [each(SINCE, ENOSYS), newer(424, NEWEST_LAST, ENOSYS), vec![if_value("ptrace", 0, GET_SYSCALL_INFO, EIO)]].concat()
}

/// Refuses what Docker 18.03 with libseccomp 2.3 refuses. Every call that it does not know fails
/// with EPERM, including `statx` and `clone3`.
fn docker_of_2018() -> Vec<String> {
    const REFUSED: &[&str] = &[
        "statx",
        "io_pgetevents",
        "rseq",
        "pkey_mprotect",
        "pkey_alloc",
        "pkey_free",
        "ptrace",
        "process_vm_readv",
        "process_vm_writev",
        "kcmp",
        "keyctl",
        "add_key",
        "request_key",
        "userfaultfd",
        "perf_event_open",
        "bpf",
        "mount",
        "umount2",
        "unshare",
        "setns",
        "name_to_handle_at",
        "open_by_handle_at",
        "fanotify_init",
        "pivot_root",
        "move_pages",
        "mbind",
        "get_mempolicy",
        "set_mempolicy",
        "quotactl",
        "acct",
        "reboot",
        "swapon",
        "swapoff",
        "vmsplice",
    ];
    [each(REFUSED, EPERM), newer(424, NEWEST_LAST, EPERM), vec![if_bits("clone", 0, CLONE_NEW, EPERM)]].concat()
}

/// Refuses what the default profile of Docker, containerd and Podman refuses since 2021. Calls
/// newer than the profile fail with ENOSYS, and calls that need privileges fail with EPERM.
fn docker() -> Vec<String> {
    const REFUSED: &[&str] = &[
        "keyctl",
        "add_key",
        "request_key",
        "userfaultfd",
        "perf_event_open",
        "bpf",
        "mount",
        "umount2",
        "unshare",
        "setns",
        "open_by_handle_at",
        "fanotify_init",
        "pivot_root",
        "move_mount",
        "open_tree",
        "fsopen",
        "fsmount",
        "fspick",
        "fsconfig",
        "mount_setattr",
        "quotactl",
        "quotactl_fd",
        "acct",
        "reboot",
        "swapon",
        "swapoff",
        "vmsplice",
        "io_uring_setup",
        "io_uring_enter",
        "io_uring_register",
    ];
    let clone3 = each(&["clone3"], ENOSYS);
    [each(REFUSED, EPERM), clone3, newer(451, NEWEST_LAST, ENOSYS), vec![if_bits("clone", 0, CLONE_NEW, EPERM)]]
        .concat()
}

/// gVisor's runsc. It has no seccomp notifications, cannot read the memory of other processes, and
/// lacks the newer calls that name a process or resolve a path.
fn gvisor() -> Vec<String> {
    const MISSING: &[&str] = &[
        "openat2",
        "pidfd_open",
        "pidfd_send_signal",
        "pidfd_getfd",
        "process_vm_readv",
        "process_vm_writev",
        "kcmp",
        "bpf",
        "copy_file_range",
        "name_to_handle_at",
        "open_by_handle_at",
        "fanotify_init",
        "userfaultfd",
        "perf_event_open",
        "io_uring_setup",
        "io_uring_enter",
        "io_uring_register",
        "open_tree",
        "move_mount",
        "fsopen",
        "fsconfig",
        "fsmount",
        "fspick",
        "mount_setattr",
        "process_madvise",
        "memfd_secret",
        "sched_setattr",
    ];
    [each(MISSING, ENOSYS), newer(444, NEWEST_LAST, ENOSYS), vec![if_bits("seccomp", 1, NEW_LISTENER, EINVAL)]].concat()
}

/// Refuses what `systemd-nspawn` and `SystemCallFilter=@system-service` refuse. Calls that they
/// know and do not allow fail with EPERM.
fn nspawn() -> Vec<String> {
    const REFUSED: &[&str] = &[
        "ptrace",
        "process_vm_readv",
        "process_vm_writev",
        "kcmp",
        "pidfd_getfd",
        "perf_event_open",
        "bpf",
        "userfaultfd",
        "keyctl",
        "add_key",
        "request_key",
        "fanotify_init",
        "open_by_handle_at",
        "quotactl",
        "kexec_load",
        "init_module",
        "io_uring_setup",
        "io_uring_enter",
        "io_uring_register",
    ];
    [each(REFUSED, EPERM), newer(455, NEWEST_LAST, ENOSYS)].concat()
}
