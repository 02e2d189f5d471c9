//! `larder`: the program in front of a compiler. See `larder_wrapper` for what it does.
//!
//! It has its own `main` symbol, so that Rust's start-up, which takes signals, descriptors and a thread's worth of work
//! that a wrapper should not touch, does not run (50 µs of a hit; SIGPIPE stays as the caller set it).
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
fn main() {
    larder_wrapper::run_untouched()
}
