//! Systems without an observer: tools are started untouched, in a scheduling class if the system has
//! classes.

#[cfg(target_os = "macos")]
mod macos;
#[cfg(windows)]
mod windows;

#[cfg(target_os = "macos")]
pub use macos::run_and_end;

/// Runs the program at `path`, and exits with its exit code. Returns only if the program cannot be
/// started.
#[cfg(not(target_os = "macos"))]
#[cfg_attr(not(windows), allow(unused_variables, reason = "other systems have no classes"))]
pub fn run_and_end(path: &[u8], argv: &[Vec<u8>], _environment: &[Vec<u8>], class: crate::Class) -> std::io::Error {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut command = std::process::Command::new(text(path));
    command.args(argv.iter().skip(1).map(|argument| text(argument)));
    #[cfg(windows)]
    windows::set_class(&mut command, class);
    match command.status() {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) => error,
    }
}

/// Returns the address of a variable of the calling thread.
pub(crate) fn thread_local_address() -> usize {
    // The variable has no destructor and a constant value, so it exists without an allocation.
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here) as usize)
}
