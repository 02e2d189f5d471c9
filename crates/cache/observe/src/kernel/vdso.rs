//! The functions of the vDSO that read the clock: finds them, and overwrites them in a process by
//! system calls. The vDSO is code that the kernel maps into each process.
//!
//! Unaware of: when a process may be changed.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use object::read::elf::{FileHeader, Sym};
use object::{Endianness, elf};

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
    pub(super) fn write(&self, process: u32, waits: &dyn Fn() -> bool) -> Option<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernels_functions_are_found() {
        let patches = Patches::find().expect("there is a vDSO");
        assert!(patches.0.iter().all(|(offset, _)| *offset > 0));
    }
}
