//! Making the clock visible. Programs read it in code that the kernel lends them (the vDSO), without a system call; in
//! the copy that a new program has, the beginning of each such function is overwritten by the system call of its name.
//!
//! That is done when the program makes its first watched call, which is before any code of its own: its loader looks
//! for libraries, or its libc sets up the thread. Where it cannot be done, the program counts as one that reads the
//! clock often.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use object::read::elf::{FileHeader, Sym};
use object::{Endianness, elf};

use super::process::Caller;
use super::settle::Expected;
use super::watch::Watch;
use crate::Kind;

/// In a `Kind::Clock`.
const CLOCK_GETTIME: u32 = 3;
/// More often than any program asks for the clock by habit (`LARDER_FEW`).
const OFTEN: usize = 4;
/// The vDSO is at most so long.
const VDSO_BYTES: usize = 64 << 10;
const PAGE_BYTES: usize = 4096;
/// The vDSO's place in the auxiliary vector.
const AT_SYSINFO_EHDR: u64 = 33;

/// Functions of the vDSO, and the system call in their place.
#[cfg(target_arch = "x86_64")]
const CALLS: &[(&[u8], &[u8])] = &[
    // mov eax, number; syscall; ret
    (b"__vdso_clock_gettime", &[0xb8, 228, 0, 0, 0, 0x0f, 0x05, 0xc3]),
    (b"__vdso_gettimeofday", &[0xb8, 96, 0, 0, 0, 0x0f, 0x05, 0xc3]),
    (b"__vdso_time", &[0xb8, 201, 0, 0, 0, 0x0f, 0x05, 0xc3]),
];
#[cfg(target_arch = "aarch64")]
const CALLS: &[(&[u8], &[u8])] = &[
    // bti c; mov x8, number; svc 0; ret. A kernel built with branch target identification has `bti c` at the beginning of
    // each of these functions, and calling one without it ends the program. Older processors take it for a no-op.
    (b"__kernel_clock_gettime", &[0x5f, 0x24, 3, 0xd5, 0x28, 0x0e, 0x80, 0xd2, 1, 0, 0, 0xd4, 0xc0, 3, 0x5f, 0xd6]),
    (b"__kernel_gettimeofday", &[0x5f, 0x24, 3, 0xd5, 0x28, 0x15, 0x80, 0xd2, 1, 0, 0, 0xd4, 0xc0, 3, 0x5f, 0xd6]),
];

/// Where in the vDSO what is to be written.
#[derive(Clone)]
pub(super) struct Patches(Vec<(u64, &'static [u8])>);

impl Patches {
    /// From this process's own vDSO: every process of this kernel has the same.
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

    /// Write them into a process that has but one thread, and that waits, which is made sure of once its memory is
    /// open.
    fn write(&self, process: u32, waits: &dyn Fn() -> bool) -> Option<()> {
        // Without a vDSO there is nothing to read the clock by but system calls.
        let Some(base) = place(&process.to_string()) else { return Some(()) };
        let memory = OpenOptions::new().write(true).open(format!("/proc/{process}/mem")).ok()?;
        if !waits() {
            return None;
        }
        self.0.iter().try_for_each(|(offset, code)| memory.write_all_at(code, base + offset)).ok()
    }
}

/// Where a process has its vDSO.
fn place(process: &str) -> Option<u64> {
    let vector = std::fs::read(format!("/proc/{process}/auxv")).ok()?;
    let mut entries = vector.chunks_exact(16).map(|entry| entry.split_at(8));
    let number = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
    entries.find(|(kind, _)| number(kind) == AT_SYSINFO_EHDR).map(|(_, value)| number(value))
}

impl Watch {
    /// A program is about to begin in a process: its clock is hidden yet.
    pub(super) fn clock_is_hidden(&mut self, caller: Caller) {
        self.hidden_clocks.insert(caller.process);
    }

    /// A process calls: if it has begun a new program, make its clock visible.
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

    /// A program that is replaced, or has ended, without a call.
    pub(super) fn hidden_clock_is_gone(&mut self, process: u32) {
        if self.hidden_clocks.remove(&process) {
            self.clock_was_hidden(process);
        }
    }

    /// All that are left at the end.
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
