//! `larder`: the program in front of a compiler. See `larder_wrapper` for what it does.
//!
//! It defines the C symbol `main` itself, so that Rust's start-up code does not run. That code
//! would ignore SIGPIPE, check the standard descriptors and set up the main thread, which takes 50
//! µs of a hit.
#![cfg_attr(target_os = "linux", no_main)]

#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: larder_sys::Arena = larder_sys::Arena::new();

#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "the C entry point; arguments are read as C passes them")]
mod entry {
    use std::ffi::{CStr, c_char, c_int};

    #[unsafe(no_mangle)]
    extern "C" fn main(argc: c_int, argv: *const *const c_char) -> c_int {
        let count = usize::try_from(argc).unwrap_or(0);
        // SAFETY: the C runtime passes `argc` pointers to null-terminated strings.
        let arguments = (0..count).map(|i| unsafe { CStr::from_ptr(*argv.add(i)) }.to_bytes().to_vec()).collect();
        larder_wrapper::run(arguments)
    }
}

#[cfg(not(target_os = "linux"))]
mod untouched;

#[cfg(not(target_os = "linux"))]
fn main() {
    untouched::run()
}
