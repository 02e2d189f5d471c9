//! `memcpy`, `memmove`, `memcmp` and `bcmp` for static x86-64 programs, because musl's are slow.
//!
//! musl's `memcpy` uses the processor's string instruction even for a few bytes, and its `memcmp`
//! goes byte by byte. They take 33 to 38 ns for 8 to 136 bytes, and glibc takes 2 ns (a loop over
//! each size, on a processor with ERMS and FSRM). A miss of a small compile moves bytes some 16,000
//! times.
//!
//! These functions move 16 bytes at a time, which every x86-64 processor can do. They are in
//! assembly, because a compiler may turn the same code in Rust into a call of the function itself.
//!
//! Unaware of: what is moved.

use std::arch::global_asm;

// The System V calling convention: rdi is the destination or the first operand, rsi is the source
// or the second operand, rdx is the count. All xmm registers, rcx and r8 to r10 may be changed.
global_asm!(
    ".globl larder_move",
    ".type larder_move, @function",
    ".p2align 5",
    // `memmove`: returns the destination. The operands may overlap, because each piece is read
    // completely before any of it is written.
    "larder_move:",
    "mov rax, rdi",
    "cmp rdx, 16",
    "jb 20f",
    "cmp rdx, 32",
    "ja 11f",
    // 16 to 32 bytes.
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + rdx - 16]",
    "movups [rdi], xmm0",
    "movups [rdi + rdx - 16], xmm1",
    "ret",
    "11:",
    "cmp rdx, 64",
    "ja 12f",
    // 33 to 64 bytes.
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + rdx - 32]",
    "movups xmm3, [rsi + rdx - 16]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + rdx - 32], xmm2",
    "movups [rdi + rdx - 16], xmm3",
    "ret",
    "12:",
    "mov rcx, rdi",
    "sub rcx, rsi",
    "cmp rcx, rdx",
    "jb 15f",
    // The string instruction is slow to start, so it is used for large counts only.
    "cmp rdx, {much}",
    "jae 14f",
    // Goes forward. The last 64 bytes are read first, before the loop may write over them.
    "movups xmm4, [rsi + rdx - 64]",
    "movups xmm5, [rsi + rdx - 48]",
    "movups xmm6, [rsi + rdx - 32]",
    "movups xmm7, [rsi + rdx - 16]",
    "lea rcx, [rdi + rdx - 64]",
    "13:",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + 32]",
    "movups xmm3, [rsi + 48]",
    "add rsi, 64",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + 32], xmm2",
    "movups [rdi + 48], xmm3",
    "add rdi, 64",
    "cmp rdi, rcx",
    "jb 13b",
    "movups [rcx], xmm4",
    "movups [rcx + 16], xmm5",
    "movups [rcx + 32], xmm6",
    "movups [rcx + 48], xmm7",
    "ret",
    "14:",
    "mov rcx, rdx",
    "rep movsb",
    "ret",
    // Goes backward if going forward would write over bytes that are still to be read. The first 64
    // bytes are read first.
    "15:",
    "movups xmm4, [rsi]",
    "movups xmm5, [rsi + 16]",
    "movups xmm6, [rsi + 32]",
    "movups xmm7, [rsi + 48]",
    "lea rsi, [rsi + rdx - 64]",
    "lea rdi, [rdi + rdx - 64]",
    "16:",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + 32]",
    "movups xmm3, [rsi + 48]",
    "sub rsi, 64",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + 32], xmm2",
    "movups [rdi + 48], xmm3",
    "sub rdi, 64",
    "cmp rdi, rax",
    "ja 16b",
    "movups [rax], xmm4",
    "movups [rax + 16], xmm5",
    "movups [rax + 32], xmm6",
    "movups [rax + 48], xmm7",
    "ret",
    "20:",
    "cmp rdx, 8",
    "jb 21f",
    // 8 to 15 bytes.
    "mov rcx, [rsi]",
    "mov r8, [rsi + rdx - 8]",
    "mov [rdi], rcx",
    "mov [rdi + rdx - 8], r8",
    "ret",
    "21:",
    "cmp rdx, 4",
    "jb 22f",
    // 4 to 7 bytes.
    "mov ecx, [rsi]",
    "mov r8d, [rsi + rdx - 4]",
    "mov [rdi], ecx",
    "mov [rdi + rdx - 4], r8d",
    "ret",
    "22:",
    "test rdx, rdx",
    "je 23f",
    // 1 to 3 bytes: the first one, the middle one, and the last one.
    "mov r10, rdx",
    "shr r10",
    "movzx ecx, byte ptr [rsi]",
    "movzx r8d, byte ptr [rsi + r10]",
    "movzx r9d, byte ptr [rsi + rdx - 1]",
    "mov [rdi], cl",
    "mov [rdi + r10], r8b",
    "mov [rdi + rdx - 1], r9b",
    "23:",
    "ret",
    ".size larder_move, . - larder_move",
    // `memcmp`: returns a negative number, 0, or a positive number.
    ".globl larder_compare",
    ".type larder_compare, @function",
    ".p2align 5",
    "larder_compare:",
    "cmp rdx, 16",
    "jb 40f",
    "lea r8, [rdx - 16]",
    "xor ecx, ecx",
    "31:",
    "movups xmm0, [rdi + rcx]",
    "movups xmm1, [rsi + rcx]",
    "pcmpeqb xmm0, xmm1",
    "pmovmskb eax, xmm0",
    "sub eax, 0xffff",
    "jne 32f",
    "cmp rcx, r8",
    "je 33f",
    // The next 16 bytes. If fewer are left, the last 16 bytes, some of which are compared again.
    "add rcx, 16",
    "cmp rcx, r8",
    "cmova rcx, r8",
    "jmp 31b",
    // The lowest bit that is set belongs to the first byte that differs.
    "32:",
    "bsf eax, eax",
    "add rcx, rax",
    "movzx eax, byte ptr [rdi + rcx]",
    "movzx edx, byte ptr [rsi + rcx]",
    "sub eax, edx",
    "33:",
    "ret",
    "40:",
    "cmp rdx, 8",
    "jb 42f",
    // 8 to 15 bytes.
    "mov rax, [rdi]",
    "mov rcx, [rsi]",
    "cmp rax, rcx",
    "jne 41f",
    "mov rax, [rdi + rdx - 8]",
    "mov rcx, [rsi + rdx - 8]",
    "cmp rax, rcx",
    "jne 41f",
    "xor eax, eax",
    "ret",
    // The bytes are reversed, so that the first byte is the most significant.
    "41:",
    "bswap rax",
    "bswap rcx",
    "cmp rax, rcx",
    "sbb eax, eax",
    "or eax, 1",
    "ret",
    "42:",
    "cmp rdx, 4",
    "jb 43f",
    // 4 to 7 bytes.
    "mov eax, [rdi]",
    "mov ecx, [rsi]",
    "cmp eax, ecx",
    "jne 41b",
    "mov eax, [rdi + rdx - 4]",
    "mov ecx, [rsi + rdx - 4]",
    "cmp eax, ecx",
    "jne 41b",
    "xor eax, eax",
    "ret",
    // 1 to 3 bytes.
    "43:",
    "xor ecx, ecx",
    "44:",
    "cmp rcx, rdx",
    "je 45f",
    "movzx eax, byte ptr [rdi + rcx]",
    "movzx r8d, byte ptr [rsi + rcx]",
    "inc rcx",
    "sub eax, r8d",
    "je 44b",
    "ret",
    "45:",
    "xor eax, eax",
    "ret",
    ".size larder_compare, . - larder_compare",
    much = const 8192,
);

// These replace musl's functions. glibc's are better than these.
#[cfg(target_env = "musl")]
global_asm!(
    ".globl memcpy, memmove, memcmp, bcmp",
    ".set memcpy, larder_move",
    ".set memmove, larder_move",
    ".set memcmp, larder_compare",
    ".set bcmp, larder_compare",
);

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;
    use std::ffi::c_int;

    unsafe extern "C" {
        fn larder_move(to: *mut u8, from: *const u8, count: usize) -> *mut u8;
        fn larder_compare(one: *const u8, other: *const u8, count: usize) -> c_int;
    }

    const SIZES: [usize; 12] = [300, 511, 512, 513, 1000, 4095, 4096, 8191, 8192, 8193, 20_000, 70_001];

    fn sizes() -> impl Iterator<Item = usize> {
        (0..=200).chain(SIZES)
    }

    fn pattern(count: usize) -> Vec<u8> {
        (0..count).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    #[test]
    fn bytes_are_moved_and_no_others() {
        for size in sizes() {
            for (to, from) in [(0, 0), (1, 0), (0, 3), (5, 9)] {
                let source = pattern(size + from);
                let mut made = vec![0xee; size + to + 64];
                // SAFETY: both have this many bytes from there on, and they do not overlap.
                let end = unsafe { larder_move(made.as_mut_ptr().add(to), source.as_ptr().add(from), size) };
                assert_eq!(end as usize - made.as_ptr() as usize, to);
                assert!(made[to..to + size] == source[from..], "{size} bytes from {from} to {to}");
                assert!(
                    made[..to].iter().chain(&made[to + size..]).all(|byte| *byte == 0xee),
                    "{size} bytes: other bytes were written, too"
                );
            }
        }
    }

    /// Operands lie between two pages that cannot be accessed: right behind the one, and right
    /// before the other. No sanitizer checks assembly.
    #[test]
    fn no_byte_beside_the_operands_is_touched() {
        use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
        const PAGE: usize = 4096;
        const ROOM: usize = 24 * PAGE;
        let guarded = || {
            // SAFETY: this is a new mapping, and only its first and last page become inaccessible.
            unsafe {
                let access = ProtFlags::READ | ProtFlags::WRITE;
                let map = mmap_anonymous(std::ptr::null_mut(), ROOM + 2 * PAGE, access, MapFlags::PRIVATE);
                let start = map.expect("maps");
                mprotect(start, PAGE, MprotectFlags::empty()).expect("protects");
                mprotect(start.byte_add(PAGE + ROOM), PAGE, MprotectFlags::empty()).expect("protects");
                start.cast::<u8>().add(PAGE)
            }
        };
        let (one, other) = (guarded(), guarded());
        for size in sizes() {
            for (from, to) in [(0, 0), (ROOM - size, ROOM - size), (0, ROOM - size), (ROOM - size, 0)] {
                // SAFETY: both ranges lie in the accessible part of their own mapping.
                unsafe {
                    one.add(from).write_bytes(7, size);
                    larder_move(other.add(to), one.add(from), size);
                    assert_eq!(larder_compare(other.add(to), one.add(from), size), 0, "{size} bytes");
                }
            }
            // SAFETY: both ranges lie in the accessible part of one mapping. They may overlap.
            unsafe {
                larder_move(one, one.add(ROOM - size), size);
                larder_move(one.add(ROOM - size), one, size);
            }
        }
        for map in [one, other] {
            // SAFETY: this is exactly the mapping that was made, and nothing refers to it.
            unsafe { munmap(map.sub(PAGE).cast(), ROOM + 2 * PAGE) }.expect("unmaps");
        }
    }

    #[test]
    fn bytes_that_overlap() {
        for size in sizes() {
            for apart in [0, 1, 2, 7, 15, 16, 17, 31, 63, 64, 65, 100, 127, 4096] {
                for forward in [true, false] {
                    let mut made = pattern(size + apart);
                    let mut expected = made.clone();
                    let (to, from) = if forward { (0, apart) } else { (apart, 0) };
                    expected.copy_within(from..from + size, to);
                    // SAFETY: both ranges are within the vector; they may overlap.
                    unsafe { larder_move(made.as_mut_ptr().add(to), made.as_ptr().add(from), size) };
                    assert!(made == expected, "{size} bytes from {from} to {to}");
                }
            }
        }
    }

    #[test]
    fn the_first_byte_that_differs_decides() {
        let compare = |one: &[u8], other: &[u8]| {
            // SAFETY: both have this many bytes.
            let result = unsafe { larder_compare(one.as_ptr(), other.as_ptr(), one.len()) };
            result.cmp(&0)
        };
        for size in sizes() {
            let one = pattern(size);
            assert_eq!(compare(&one, &one.clone()), Ordering::Equal, "{size} bytes");
            let step = (size / 150).max(1);
            for at in (0..size).step_by(step) {
                for other_byte in [0, 0x7f, 0x80, 0xff] {
                    let mut other = one.clone();
                    other[at] = other_byte;
                    // A later byte is greater in the other operand, which must not count.
                    if let Some(last) = other.get_mut(at + 1..).and_then(|rest| rest.last_mut()) {
                        *last = 0xff;
                    }
                    assert_eq!(compare(&one, &other), one.cmp(&other), "{size} bytes, at {at}");
                    assert_eq!(compare(&other, &one), other.cmp(&one), "{size} bytes, at {at}");
                }
            }
        }
    }
}
