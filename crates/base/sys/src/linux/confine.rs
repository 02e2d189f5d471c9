//! Giving up rights: a process that parses bytes from outside gives up its user, capabilities,
//! system calls, memory and most of the file system before it reads the first one.
//!
//! Unaware of: what the process does, and which directories it needs.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags, mount_remount, unmount};
use rustix::process::{Resource, Rlimit, fchdir, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use super::filter::{ARCHITECTURE, FilterStep};

/// The number of bits in a set of capabilities.
const CAPABILITIES: u32 = 64;

/// The first number that no system call had in Linux 6.10. What later calls do is unknown here. On
/// x86-64, the numbers of another table (x32) are above it as well.
const NUMBERS_END: u32 = 463;

/// The calls that are refused with EPERM. A process without capabilities may make some of them, but
/// it needs none of them to fetch and decode: they act on other processes, load code into the kernel,
/// or reach parts of the kernel in which most holes are found.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_kill,
    libc::SYS_mknodat,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_move_pages,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_personality,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_tgkill,
    libc::SYS_tkill,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

/// The flags of `clone` that make a new namespace.
const NEW_NAMESPACES: u32 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u32;

/// The most that a process may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Its memory, in bytes.
    pub memory_bytes: u64,
    /// Its open descriptors.
    pub descriptors: u64,
    /// Processes and threads of its user, in all processes together.
    pub threads: u64,
}

/// Limits what this process and its children may use. They also leave no core files. A limit that
/// is lower already stays, because only a process with `CAP_SYS_RESOURCE` may raise it.
pub fn limit_ourselves(limits: &Limits) -> io::Result<()> {
    let one = |resource, most: u64| {
        let most = getrlimit(resource).maximum.map_or(most, |held| held.min(most));
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })
    };
    one(Resource::Data, limits.memory_bytes)?;
    one(Resource::As, limits.memory_bytes.saturating_mul(2))?;
    one(Resource::Nofile, limits.descriptors)?;
    one(Resource::Nproc, limits.threads)?;
    Ok(one(Resource::Core, 0)?)
}

/// Makes the directory `root`, which is the root of a mount in our mount namespace, the root of
/// the file system for this process. Nothing outside of it can be reached by a path from then on.
/// The process must have one thread, and a mount namespace of its own.
pub fn enter_root(root: impl AsFd) -> io::Result<()> {
    let before = super::open_place(Path::new("/"))?;
    fchdir(&root)?;
    match rustix::process::pivot_root(c".", c".") {
        Ok(()) => {
            // The former root is now mounted over the new one.
            fchdir(&before)?;
            unmount(c".", UnmountFlags::DETACH)?;
        }
        // The root is an initramfs, or the root of a `chroot` that is no mount.
        Err(_) => rustix::process::chroot(c".")?,
    }
    std::env::set_current_dir("/")
}

/// Makes a mount read-only or otherwise harmless. The mount is attached in our mount namespace.
/// Before Linux 5.12 this is the only way to do so for a copy of a mount.
pub fn restrict_mount(mount: impl AsFd, attributes: super::MountAttributes) -> io::Result<()> {
    let mut flags = MountFlags::BIND;
    flags.set(MountFlags::RDONLY, attributes.read_only);
    flags.set(MountFlags::NOSUID, attributes.no_suid);
    flags.set(MountFlags::NODEV, attributes.no_devices);
    let path = format!("/proc/self/fd/{}", mount.as_fd().as_raw_fd());
    Ok(mount_remount(path, flags, "")?)
}

/// Gives up all capabilities for good, and becomes another user and group if `user` says so.
/// Programs that this process executes cannot gain rights either. The process must have one thread.
pub fn give_up_rights(user: Option<u32>) -> io::Result<()> {
    set_no_new_privs(true)?;
    for bit in 0..CAPABILITIES {
        // A kernel does not know all of the numbers.
        let _ = remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << bit));
    }
    if let Some(user) = user {
        let (group, user) = (Gid::from_raw(user), Uid::from_raw(user));
        set_thread_groups(&[])?;
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(user, user, user)?;
    }
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}

/// Refuses system calls that act on other processes or that are new, by a seccomp filter. The
/// process must have one thread and must have given up its rights. Does nothing on a machine whose
/// calls have no table here.
pub fn refuse_calls() -> io::Result<()> {
    if ARCHITECTURE == 0 {
        return Ok(());
    }
    let filter = filter();
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut().cast() };
    // SAFETY: the filter has the kernel's form and outlives the call.
    let done = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program, 0, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn filter() -> Vec<FilterStep> {
    let is_call = |number: libc::c_long, count| FilterStep::unless(FilterStep::EQUAL, number as u32, count);
    let unknown = FilterStep::answer(libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32);
    let refused = FilterStep::answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
    let mut steps = FilterStep::first(FilterStep::answer(libc::SECCOMP_RET_KILL_PROCESS)).to_vec();
    steps.extend([FilterStep::unless(FilterStep::AT_LEAST, NUMBERS_END, 1), unknown]);
    // Its flags are in memory, where a filter cannot read them. The C library uses `clone` instead.
    steps.extend([is_call(libc::SYS_clone3, 1), unknown]);
    steps.extend(REFUSED.iter().flat_map(|&number| [is_call(number, 1), refused]));
    steps.extend([
        is_call(libc::SYS_clone, 3),
        FilterStep::load_argument(0),
        FilterStep::unless(FilterStep::ANY_BIT, NEW_NAMESPACES, 1),
        refused,
        FilterStep::ALLOW,
    ]);
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    /// The name of the variable that says what a child of this test does.
    const ROLE: &str = "LARDER_TEST_CONFINED";
    /// The exit code of a child whose checks succeeded. A test program that found no test has 0.
    const ALL_RIGHT: u8 = 7;

    fn child(role: &str) -> std::process::ExitStatus {
        let own = std::env::current_exe().expect("has a program");
        let mut command = std::process::Command::new(own);
        command.args(["--exact", "linux::confine::tests::in_a_child", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).stdout(std::process::Stdio::null()).status().expect("starts")
    }

    /// Does nothing unless another test of this file starts it.
    #[test]
    fn in_a_child() {
        let Ok(role) = std::env::var(ROLE) else { return };
        // The harness may have other threads, so the limits are checked in this one.
        match &*role {
            "rights" => {
                let is_root = crate::effective_user() == 0;
                give_up_rights(is_root.then_some(65_533)).expect("gives up");
                refuse_calls().expect("refuses");
                let status = std::fs::read_to_string("/proc/thread-self/status").expect("reads");
                let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
                for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
                    assert_eq!(value(set), Some("0000000000000000"), "{set}");
                }
                assert_eq!((value("NoNewPrivs:"), value("Seccomp:")), (Some("1"), Some("2")));
                if is_root {
                    assert_eq!(value("CapBnd:"), Some("0000000000000000"));
                    assert_eq!(value("Uid:"), Some("65533\t65533\t65533\t65533"));
                    assert!(rustix::thread::set_thread_uid(Uid::ROOT).is_err());
                }
                // SAFETY: asks for a namespace, which is refused; no pointers.
                let made = unsafe { libc::syscall(libc::SYS_clone, libc::CLONE_NEWUSER | libc::SIGCHLD, 0, 0, 0, 0) };
                assert_eq!((made, io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EPERM)));
                // SAFETY: sends no signal, and asks with invalid arguments; no pointers.
                let (sent, asked) = unsafe { (libc::kill(libc::getpid(), 0), libc::syscall(libc::SYS_clone3, 0, 0)) };
                assert_eq!((sent, asked), (-1, -1));
                assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::ENOSYS));
                assert_eq!(std::thread::spawn(|| 7).join().expect("threads can be started"), 7);
            }
            "lower" => {
                let wanted = Limits { memory_bytes: 1 << 30, descriptors: 64, threads: 1 << 15 };
                let both = |most| Rlimit { current: Some(most), maximum: Some(most) };
                setrlimit(Resource::Nofile, both(32)).expect("sets");
                setrlimit(Resource::Nproc, both(1 << 13)).expect("sets");
                // Without its capabilities the process cannot raise them.
                give_up_rights((crate::effective_user() == 0).then_some(65_533)).expect("gives up");
                limit_ourselves(&wanted).expect("limits");
                assert_eq!(getrlimit(Resource::Nofile), both(32));
                assert_eq!(getrlimit(Resource::Nproc), both(1 << 13));
                assert_eq!(getrlimit(Resource::Data), both(1 << 30));
            }
            _ => {
                let limits = Limits { memory_bytes: 256 << 20, descriptors: 64, threads: 1 << 15 };
                limit_ourselves(&limits).expect("limits");
                let mut bytes = Vec::<u8>::new();
                assert!(bytes.try_reserve_exact(512 << 20).is_err());
                assert!(bytes.try_reserve_exact(16 << 20).is_ok());
            }
        }
        super::super::end_process(ALL_RIGHT);
    }

    #[test]
    fn rights_are_given_up_for_good() {
        assert_eq!(child("rights").code(), Some(i32::from(ALL_RIGHT)));
    }

    /// A small machine, a container or a service may have lower limits.
    #[test]
    fn lower_limits_stay() {
        assert_eq!(child("lower").code(), Some(i32::from(ALL_RIGHT)));
    }

    #[test]
    fn memory_has_a_limit() {
        let ended = child("limits");
        assert_eq!((ended.code(), ended.signal()), (Some(i32::from(ALL_RIGHT)), None));
    }
}
