//! A file mapped as shared 64-bit words, for counters and the stat cache. Many processes read and
//! write them without a lock.
//!
//! The kernel raises SIGBUS if a process touches a page that the file no longer has, or that the
//! disk cannot read. A build must not die of that. So the signal handler maps a page of zeros
//! there, and the process goes on, with a few counts or stat cache entries lost.
//!
//! Unaware of: what the words mean.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// How many mappings are guarded at once. A process maps the counters, the stat cache, and for a
/// moment a table that grows.
const GUARDED_MAX: usize = 8;
/// A mapping up to this size, in bytes, gets all of its pages at once, because a page fault for
/// each touched page costs more.
const AT_ONCE_BYTES_MAX: usize = 1 << 20;
/// The start and end of each guarded mapping. An end of zero means that the mapping is not guarded.
static GUARDED: [(AtomicUsize, AtomicUsize); GUARDED_MAX] =
    [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; GUARDED_MAX];
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(4096);
static HANDLE_ONCE: Once = Once::new();

/// A mapped file as atomic 64-bit words. Other processes may change them at any moment. If the file
/// was truncated meanwhile, the words read as zero.
pub struct Words {
    start: NonNull<AtomicU64>,
    count: usize,
    guard: usize,
}

// SAFETY: atomics may be used from any thread, and the mapping belongs to the process.
unsafe impl Send for Words {}
// SAFETY: atomics may be shared between threads, and the mapping belongs to the process.
unsafe impl Sync for Words {}

impl Words {
    /// Maps the first `count` words of `file`. Fails if the file is shorter. `size_bytes` is its
    /// size, as the caller has just found it.
    pub fn map(file: &File, size_bytes: u64, count: usize, writable: bool) -> io::Result<Words> {
        let bytes = count * 8;
        if bytes == 0 || size_bytes < bytes as u64 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        HANDLE_ONCE.call_once(handle_lost_pages);
        let access = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let at_once = if bytes <= AT_ONCE_BYTES_MAX { MapFlags::POPULATE } else { MapFlags::empty() };
        // SAFETY: this is a new mapping at an address that the kernel chooses. It is not used after
        // `drop` unmaps it.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED | at_once, file, 0)? };
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("the file was mapped at address 0"))?;
        match guard(start.as_ptr() as usize, bytes) {
            Some(guard) => Ok(Words { start, count, guard }),
            None => {
                // SAFETY: this is exactly the mapping that was just made, and there is no reference
                // to it.
                unsafe { munmap(start.as_ptr().cast(), bytes)? };
                Err(io::Error::from(io::ErrorKind::OutOfMemory))
            }
        }
    }

    /// Returns the words. Storing to them kills the process if the mapping is not writable.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping holds `count` words, page-aligned, for as long as `self` lives.
        // Because they are atomics, other processes may change them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // The guard ends before the mapping does. After it, another mapping may get the same
        // address, and the handler must not touch that.
        GUARDED[self.guard].1.store(0, SeqCst);
        // SAFETY: this is exactly the mapping that `map` made, and no reference to it is left.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.count * 8) };
        GUARDED[self.guard].0.store(0, SeqCst);
    }
}

/// Guards the mapping from `start` on. Returns its index in the table, or `None` if the table is
/// full.
fn guard(start: usize, bytes: usize) -> Option<usize> {
    let free = |place: &(AtomicUsize, AtomicUsize)| place.0.compare_exchange(0, start, SeqCst, SeqCst).is_ok();
    let at = GUARDED.iter().position(free)?;
    GUARDED[at].1.store(start + bytes, SeqCst);
    Some(at)
}

/// Installs the handler, unless the process was started with SIGBUS ignored. The tool would inherit
/// that setting, so it stays, and nothing is guarded.
fn handle_lost_pages() {
    // SAFETY: only reads what the kernel said when the program was started. rustix would ask the
    // kernel again, and `sysconf` has a table of its own.
    let page_bytes = unsafe { libc::getauxval(libc::AT_PAGESZ) } as usize;
    PAGE_BYTES.store(if page_bytes == 0 { 4096 } else { page_bytes }, SeqCst);
    // SAFETY: the structures are initialised. The handler only touches atomics and makes system
    // calls.
    unsafe {
        let (mut new, mut old) = (std::mem::zeroed::<libc::sigaction>(), std::mem::zeroed::<libc::sigaction>());
        new.sa_sigaction = lost_page as *const () as usize;
        new.sa_flags = libc::SA_SIGINFO;
        if libc::sigaction(libc::SIGBUS, &new, &mut old) == 0 && old.sa_sigaction == libc::SIG_IGN {
            libc::sigaction(libc::SIGBUS, &old, std::ptr::null_mut());
        }
    }
}

/// Handles the signal: maps a page of zeros if a page of a guarded mapping was lost. In all other
/// cases the signal has its default effect, for example if another process sent it.
extern "C" fn lost_page(_signal: i32, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo; mmap and signal are system calls. The replaced
    // page lies in a mapping of ours, which holds only atomics, and every value is valid for them.
    unsafe {
        let address = (*info).si_addr() as usize;
        let page_bytes = PAGE_BYTES.load(SeqCst);
        let page = address & !(page_bytes - 1);
        let is_fault = (*info).si_code > 0;
        let ours =
            is_fault && GUARDED.iter().any(|(start, end)| (start.load(SeqCst)..end.load(SeqCst)).contains(&address));
        let fixed = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let patched = ours && libc::mmap(page as *mut c_void, page_bytes, access, fixed, -1, 0) as usize == page;
        if !patched {
            libc::signal(libc::SIGBUS, libc::SIG_DFL);
            libc::raise(libc::SIGBUS);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn words_of_a_file_that_was_cut_are_zero() {
        const WORDS: usize = 4096;
        let file = crate::memory_file("words", false).expect("can be made");
        file.set_len(WORDS as u64 * 8).expect("grows");
        for _ in 0..2 * GUARDED_MAX {
            let words = Words::map(&file, WORDS as u64 * 8, WORDS, true).expect("maps");
            words.words()[WORDS - 1].store(7, Relaxed);
            file.set_len(0).expect("is cut");
            assert!(words.words().iter().all(|word| word.load(Relaxed) == 0));
            words.words()[0].fetch_add(1, Relaxed);
            assert_eq!(words.words()[0].load(Relaxed), 1, "the word is kept in memory, but not in the file");
            file.set_len(WORDS as u64 * 8).expect("grows");
            drop(words);
            assert_eq!(Words::map(&file, WORDS as u64 * 8, WORDS, true).expect("maps").words()[0].load(Relaxed), 0);
        }
    }
}
