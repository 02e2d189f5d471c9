//! Makes reads of the clock visible. Programs read the clock by code that the kernel maps into each
//! process (the vDSO), without a system call. So in the copy of a new program, the beginning of
//! each such function is overwritten by the system call of the same name.
//!
//! This happens when the program makes its first observed call. That is before any code of its own:
//! its loader looks for libraries, or its libc sets up the first thread. If it is not possible, the
//! program counts as one that reads the clock often.
//!
//! Unaware of: which programs may read the clock.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use object::read::elf::{FileHeader, Sym};
use object::{Endianness, elf};

use super::process::Caller;
use super::settle::Expected;
use super::watch::Watch;
use crate::Kind;

/// The `extra` of a `Kind::Clock` event for `clock_gettime`.
const CLOCK_GETTIME: u32 = 3;
/// More reads than any known program makes in every run (`LARDER_FEW` in `preload/log.h`).
const OFTEN: usize = 4;
/// The vDSO is at most this long.
const VDSO_BYTES: usize = 64 << 10;
const PAGE_BYTES: usize = 4096;
/// The key of the vDSO's address in the auxiliary vector.
const AT_SYSINFO_EHDR: u64 = 33;

/// The functions of the vDSO, and the machine code of the system call that replaces each.
#[cfg(target_arch = "x86_64")]
const CALLS: &[(&[u8], &[u8])] = &[
    // mov eax, number; syscall; ret
    (b"__vdso_clock_gettime", &[0xb8, 228, 0, 0, 0, 0x0f, 0x05, 0xc3]),
    (b"__vdso_gettimeofday", &[0xb8, 96, 0, 0, 0, 0x0f, 0x05, 0xc3]),
    (b"__vdso_time", &[0xb8, 201, 0, 0, 0, 0x0f, 0x05, 0xc3]),
];
#[cfg(target_arch = "aarch64")]
const CALLS: &[(&[u8], &[u8])] = &[
    // bti c; mov x8, number; svc 0; ret. If the kernel is built with branch target identification,
    // each of these functions begins with `bti c`, and calling one without it ends the program.
    // Older processors take it for a no-op.
    (b"__kernel_clock_gettime", &[0x5f, 0x24, 3, 0xd5, 0x28, 0x0e, 0x80, 0xd2, 1, 0, 0, 0xd4, 0xc0, 3, 0x5f, 0xd6]),
    (b"__kernel_gettimeofday", &[0x5f, 0x24, 3, 0xd5, 0x28, 0x15, 0x80, 0xd2, 1, 0, 0, 0xd4, 0xc0, 3, 0x5f, 0xd6]),
];

/// The offsets in the vDSO that are overwritten, with the new machine code.
#[derive(Clone)]
pub(super) struct Patches(Vec<(u64, &'static [u8])>);

impl Patches {
    /// Finds the offsets in this process's own vDSO. Every process of this kernel has the same.
    pub(super) fn find() -> Option<Patches> {
        let base = place("self")?;
        let memory = File::open("/proc/self/mem").ok()?;
        let mut image = Vec::new();
        while image.len() < VDSO_BYTES {
            let mut page = [0; PAGE_BYTES];
            if memory.read_exact_at(&mut page, base + image.len() as u64).is_err() {
                break;
            }
            image.extend(page);
        }
        let image = &image[..];
        let header = elf::FileHeader64::<Endianness>::parse(image).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, image).ok()?;
        let symbols = sections.symbols(endian, image, elf::SHT_DYNSYM).ok()?;
        let mut patches = Vec::new();
        for symbol in symbols.iter() {
            let name = symbol.name(endian, symbols.strings()).ok()?;
            patches.extend(CALLS.iter().filter(|(n, _)| *n == name).map(|(_, code)| (symbol.st_value(endian), *code)));
        }
        Some(Patches(patches)).filter(|patches| patches.0.len() == CALLS.len())
    }

    /// Writes the code into a process that has only one thread and that waits for an answer.
    /// `waits` is asked once the process's memory is open, so that the memory is not that of a
    /// later process with the same pid.
    fn write(&self, process: u32, waits: &dyn Fn() -> bool) -> Option<()> {
        // A process without a vDSO can only read the clock by system calls.
        let Some(base) = place(&process.to_string()) else { return Some(()) };
        let memory = OpenOptions::new().write(true).open(format!("/proc/{process}/mem")).ok()?;
        if !waits() {
            return None;
        }
        self.0.iter().try_for_each(|(offset, code)| memory.write_all_at(code, base + offset)).ok()
    }
}

/// Returns the address of a process's vDSO.
fn place(process: &str) -> Option<u64> {
    let vector = std::fs::read(format!("/proc/{process}/auxv")).ok()?;
    let mut entries = vector.chunks_exact(16).map(|entry| entry.split_at(8));
    let number = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
    entries.find(|(kind, _)| number(kind) == AT_SYSINFO_EHDR).map(|(_, value)| number(value))
}

impl Watch {
    /// Notes that a program is about to begin in a process, so that its vDSO is not patched yet.
    pub(super) fn clock_is_hidden(&mut self, caller: Caller) {
        self.hidden_clocks.insert(caller.process);
    }

    /// If a calling process has begun a new program, patches the vDSO of that program.
    pub(super) fn show_clock(&mut self, caller: Caller, waits: &dyn Fn() -> bool) {
        let begun = caller.thread == caller.process && self.hidden_clocks.contains(&caller.process);
        let unsure = |watch: &Watch| {
            let runs = |p: &super::settle::Pending| matches!(p.expected, Expected::Runs { .. });
            watch.pending.iter().any(|p| p.caller.process == caller.process && runs(p))
        };
        if !begun || unsure(self) {
            return;
        }
        self.hidden_clocks.remove(&caller.process);
        let patches = self.patches.get_or_insert_with(Patches::find);
        if patches.as_ref().and_then(|patches| patches.write(caller.process, waits)).is_none() {
            self.clock_was_hidden(caller.process);
        }
    }

    /// Counts a program that was replaced or has ended before its first call as one that reads the
    /// clock often, because its reads were not visible.
    pub(super) fn hidden_clock_is_gone(&mut self, process: u32) {
        if self.hidden_clocks.remove(&process) {
            self.clock_was_hidden(process);
        }
    }

    /// Counts all programs whose vDSO was not patched by the end of the run as such.
    pub(super) fn hidden_clocks_are_gone(&mut self) {
        for process in std::mem::take(&mut self.hidden_clocks) {
            self.clock_was_hidden(process);
        }
    }

    fn clock_was_hidden(&mut self, process: u32) {
        let caller = Caller { thread: process, process };
        (0..OFTEN).for_each(|_| self.number_event(caller, Kind::Clock, CLOCK_GETTIME, b""));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernels_functions_are_found() {
        let patches = Patches::find().expect("there is a vDSO");
        assert!(patches.0.iter().all(|(offset, _)| *offset > 0));
    }
}
