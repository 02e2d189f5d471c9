//! The ways to start a program. Each returns when it can: `fork` before the child runs the program, the others after.
#![allow(unsafe_code, reason = "system calls that return twice, and C's arrays of arguments")]

use larder_sys::{Class, Manner, SignalForwarding};
use std::ffi::CStr;
use std::io;
use std::ptr::{null, null_mut};

/// A program to start, without arguments or environment.
pub(crate) struct Child<'a> {
    path: &'a CStr,
    argv: [*const libc::c_char; 2],
    envp: [*const libc::c_char; 1],
}

impl<'a> Child<'a> {
    pub(crate) fn new(path: &'a CStr) -> Self {
        Self { path, argv: [path.as_ptr(), null()], envp: [null()] }
    }
}

type Start = fn(&Child<'_>) -> io::Result<libc::pid_t>;

/// All ways, with what they are called in tables.
pub(crate) const WAYS: &[(&str, Start)] = &[
    ("posix_spawn", posix_spawn),
    ("vfork, exec", vfork),
    ("clone3(CLONE_VM | CLONE_VFORK), exec", clone3),
    ("fork, exec", fork),
    ("larder, inherit", |child| larder(child, Class::Inherit)),
    ("larder, utility", |child| larder(child, Class::Utility)),
    ("larder, background", |child| larder(child, Class::Background)),
];

/// What a child exits with that could not become the program.
const NOT_STARTED: libc::c_int = 127;

/// Wait until it has ended; an error where it did not become the program.
pub(crate) fn wait(pid: libc::pid_t) -> io::Result<()> {
    let mut status = 0;
    // SAFETY: writes into that.
    let waited = unsafe { libc::waitpid(pid, &mut status, 0) };
    if waited != pid {
        return Err(io::Error::last_os_error());
    }
    match libc::WIFEXITED(status) && libc::WEXITSTATUS(status) != NOT_STARTED {
        true => Ok(()),
        false => Err(io::Error::other("the program was not started")),
    }
}

fn posix_spawn(child: &Child<'_>) -> io::Result<libc::pid_t> {
    let mut pid = 0;
    // SAFETY: arrays that end with a null pointer, and live longer than the call.
    let error = unsafe {
        let (argv, envp) = (child.argv.as_ptr().cast(), child.envp.as_ptr().cast());
        libc::posix_spawn(&mut pid, child.path.as_ptr(), null(), null_mut::<libc::posix_spawnattr_t>(), argv, envp)
    };
    if error == 0 { Ok(pid) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// As the wrapper starts a tool, with what it asks about itself before: but for pipes and what is kept of messages.
fn larder(child: &Child<'_>, class: Class) -> io::Result<libc::pid_t> {
    let manner = Manner::of(class, None);
    let path = child.path.to_bytes();
    let forwarding = SignalForwarding::prepare()?;
    let started = larder_sys::spawn(path, &[path.to_vec()], &[], &[], &forwarding, &manner);
    forwarding.unblock();
    started.map(|child| child.pid)
}

fn fork(child: &Child<'_>) -> io::Result<libc::pid_t> {
    // SAFETY: the child only calls functions that are safe after fork, and the process has one thread.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: as above; arrays that end with a null pointer.
        0 => unsafe {
            libc::execve(child.path.as_ptr(), child.argv.as_ptr(), child.envp.as_ptr());
            libc::_exit(NOT_STARTED)
        },
        pid => Ok(pid),
    }
}

/// The arguments of clone3 (`struct clone_args`), as far as its first version has them.
#[repr(C)]
#[derive(Default)]
struct CloneArguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
}

fn vfork(child: &Child<'_>) -> io::Result<libc::pid_t> {
    borrowing(libc::SYS_vfork, 0, 0, child)
}

fn clone3(child: &Child<'_>) -> io::Result<libc::pid_t> {
    let flags = (libc::CLONE_VM | libc::CLONE_VFORK) as u64;
    let arguments = CloneArguments { flags, exit_signal: libc::SIGCHLD as u64, ..CloneArguments::default() };
    borrowing(libc::SYS_clone3, (&raw const arguments) as u64, size_of::<CloneArguments>() as u64, child)
}

/// A system call whose child borrows our memory, stack included, until it has become the program. No compiler of Rust
/// knows that such a call returns twice, so all that the child does is written here: it touches no memory, only
/// registers.
#[cfg(target_arch = "x86_64")]
fn borrowing(call: libc::c_long, first: u64, second: u64, child: &Child<'_>) -> io::Result<libc::pid_t> {
    let result: i64;
    // SAFETY: the child runs the lines up to `2:` and never leaves them; we run again when it has become the program or
    // ended, and find our stack as it was. The arrays end with a null pointer.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "mov eax, {execve}",
            "mov rdi, r12",
            "mov rsi, r13",
            "mov rdx, r14",
            "syscall",
            "mov eax, {exit}",
            "mov edi, {not_started}",
            "syscall",
            "ud2",
            "2:",
            execve = const libc::SYS_execve,
            exit = const libc::SYS_exit,
            not_started = const NOT_STARTED,
            inlateout("rax") call => result,
            in("rdi") first,
            in("rsi") second,
            in("r12") child.path.as_ptr(),
            in("r13") child.argv.as_ptr(),
            in("r14") child.envp.as_ptr(),
            out("rcx") _,
            out("r11") _,
        );
    }
    match result {
        ..0 => Err(io::Error::from_raw_os_error(-result as i32)),
        pid => Ok(pid as libc::pid_t),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn borrowing(_: libc::c_long, _: u64, _: u64, _: &Child<'_>) -> io::Result<libc::pid_t> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}
