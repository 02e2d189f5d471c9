//! `floor PLAN`: what a warm hit cannot do without, and nothing else. `cargo xtask bench hit` writes the plan from a
//! trace of larder's own hit, and quotes larder as a multiple of this.
//!
//! Started as the wrapper is: static, with its own `main` symbol. It reads one file, makes the looks that it lists,
//! compares what they say, and puts the outputs in place. Unaware of: commands, keys, settings, formats, counters. The
//! plan, a byte per kind in front, numbers little-endian, texts ended by a zero byte:
//!
//! ```text
//! D where links path                     open a directory; where 1: from the current one; links 1: refuse them. It is current now
//! U number:u32                           the directory that was opened as this one, from 0, is current again
//! S where follow expect [stamp] name     look; where 1: in the current directory; expect 0: missing, 1: there, 2: as stamped
//! L name target                          read a link in the current directory
//! I mode:u32 path size:u64 bytes         make a file of these bytes
//! C how mode:u32 path size:u64 step:u64 blob    make a file of another one's bytes; how: see `move_bytes`
//! E                                      the end; anything may follow
//! stamp = inode:u64 size:u64 modified_ns:u64 changed_ns:u64
//! ```
#![cfg_attr(target_os = "linux", no_main)]

#[cfg(target_os = "linux")]
mod plan;
#[cfg(target_os = "linux")]
mod steps;

#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "the C entry point; arguments are read as C passes them")]
mod entry {
    use std::ffi::{CStr, c_char, c_int};

    #[unsafe(no_mangle)]
    extern "C" fn main(argc: c_int, argv: *const *const c_char) -> c_int {
        if argc != 2 {
            return 2;
        }
        // SAFETY: the C runtime passes `argc` pointers to null-terminated strings.
        let plan = unsafe { CStr::from_ptr(*argv.add(1)) };
        match crate::steps::follow(plan) {
            Ok(()) => 0,
            Err(error) => {
                for part in [b"floor: ", error.what.as_bytes(), b": ", error.name.to_bytes(), b"\n"] {
                    let _ = rustix::io::write(rustix::stdio::stderr(), part);
                }
                1
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {}
