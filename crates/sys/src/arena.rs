//! The wrapper's allocator: a short-lived process has no use for giving memory back.
//!
//! Small allocations come one after the other from a static block that costs no system call and no page before it is
//! touched; what is large, or comes when the block is full, is the system allocator's.
//!
//! The block belongs to one thread, the first that allocates. Another thread gets all of its memory from the system
//! allocator. If it frees memory of the block, nothing happens: that memory is not given out again.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

const BLOCK_BYTES: usize = 4 << 20;
const LARGE_BYTES: usize = 256 << 10;
/// What malloc gives too: some libraries rely on it for bytes.
const ALIGN_BYTES: usize = 16;

#[repr(align(64))]
struct Block(UnsafeCell<[u8; BLOCK_BYTES]>);

/// The allocator.
pub struct Arena {
    /// The thread that has the block: the address of a variable of its own, or 0 before the first allocation.
    owner: AtomicUsize,
    used: UnsafeCell<usize>,
    /// So much of the block was given back at some time: what is behind that and not in use is zero.
    touched: UnsafeCell<usize>,
}

// In a section of its own: between other variables it would keep these on pages apart.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".bss.larder_arena"))]
static BLOCK: Block = Block(UnsafeCell::new([0; BLOCK_BYTES]));

// SAFETY: bytes of it are given out once at a time, and only an arena's owner decides which.
unsafe impl Sync for Block {}
// SAFETY: only the thread that `owner` names touches `used` and `touched` (`is_owner` comes before), and `owner` is set once.
unsafe impl Sync for Arena {}

impl Arena {
    /// An empty arena. There must be only one.
    #[allow(clippy::new_without_default, reason = "a static needs a const function, and there is one static")]
    pub const fn new() -> Arena {
        Arena { owner: AtomicUsize::new(0), used: UnsafeCell::new(0), touched: UnsafeCell::new(0) }
    }

    /// Returns whether the calling thread has the block. The first that asks gets it.
    ///
    /// A thread is known by the address of a variable of its own. Another thread may have that address once the first has ended;
    /// then the block is its successor's alone, as it was its own.
    #[inline]
    fn is_owner(&self) -> bool {
        // It has no destructor and a constant value, so that it is there without an allocation.
        thread_local!(static HERE: u8 = const { 0 });
        let this = HERE.with(|here| std::ptr::from_ref(here) as usize);
        match self.owner.load(Relaxed) {
            0 => self.owner.compare_exchange(0, this, Relaxed, Relaxed).is_ok(),
            owner => owner == this,
        }
    }

    fn start() -> *mut u8 {
        BLOCK.0.get().cast()
    }

    fn holds(pointer: *mut u8) -> bool {
        (Self::start() as usize..Self::start() as usize + BLOCK_BYTES).contains(&(pointer as usize))
    }

    /// # Safety
    ///
    /// The caller is the owner; nothing that is behind `end` is in use any more.
    // Never inlined: it would be at a thousand places, and pages of code cost more than a call.
    #[inline(never)]
    unsafe fn give_back_to(&self, end: usize) {
        // SAFETY: the owner alone is here.
        unsafe {
            let used = self.used.get();
            *self.touched.get() = (*used).max(*self.touched.get());
            *used = end;
        }
    }

    /// Whether `pointer`, of `size` bytes, is the newest allocation, and the caller may change that.
    fn is_last(&self, pointer: *mut u8, size: usize) -> bool {
        // SAFETY: `used` is read by the owner alone.
        let end = || Self::start() as usize + unsafe { *self.used.get() };
        Self::holds(pointer) && self.is_owner() && pointer as usize + size == end()
    }
}

// SAFETY: each allocation is a range of the block that no other has until it is given back, or the system's.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !self.is_owner() {
            // SAFETY: as the caller promises.
            return unsafe { System.alloc(layout) };
        }
        // SAFETY: the owner alone is here; the range stays within the block.
        unsafe {
            let used = self.used.get();
            let at = (*used).next_multiple_of(layout.align().max(ALIGN_BYTES));
            if layout.size() > LARGE_BYTES || at + layout.size() > BLOCK_BYTES || layout.align() > 64 {
                return System.alloc(layout);
            }
            *used = at + layout.size();
            Self::start().add(at)
        }
    }

    /// Buffers are asked for so, and much of them is never used: pages that nobody touched are not touched here.
    #[inline(never)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !self.is_owner() {
            // SAFETY: as the caller promises.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: the owner alone is here; what is written is within the new allocation.
        unsafe {
            let touched = *self.touched.get();
            let new = self.alloc(layout);
            let in_block = (new as usize).wrapping_sub(Self::start() as usize);
            let dirty = if Self::holds(new) { touched.saturating_sub(in_block) } else { layout.size() };
            if !new.is_null() {
                new.write_bytes(0, dirty.min(layout.size()));
            }
            new
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if !Self::holds(pointer) {
            // SAFETY: came from the system's allocator.
            return unsafe { System.dealloc(pointer, layout) };
        }
        if self.is_last(pointer, layout.size()) {
            // SAFETY: `is_last` says that the owner is here; the newest allocation ends the used part.
            unsafe { self.give_back_to(*self.used.get() - layout.size()) };
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let start = pointer as usize - if Self::holds(pointer) { Self::start() as usize } else { 0 };
        if self.is_last(pointer, layout.size()) && start + new_size <= BLOCK_BYTES && new_size <= LARGE_BYTES {
            // SAFETY: `is_last` says that the owner is here; grows or shrinks the newest allocation within the block.
            unsafe { self.give_back_to(start + new_size) };
            return pointer;
        }
        if !Self::holds(pointer) {
            // SAFETY: came from the system's allocator.
            return unsafe { System.realloc(pointer, layout, new_size) };
        }
        // SAFETY: a new allocation does not overlap the old one, which is given back after the copy.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(new_size, layout.align()));
            if !new.is_null() {
                std::ptr::copy_nonoverlapping(pointer, new, layout.size().min(new_size));
                self.dealloc(pointer, layout);
            }
            new
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_zero_is_zero() {
        let arena = Arena::new();
        let layout = |size| Layout::from_size_align(size, 8).expect("is one");
        let zeroed = |size| {
            // SAFETY: the layout has a size, and no other test uses the block.
            let pointer = unsafe { arena.alloc_zeroed(layout(size)) };
            // SAFETY: so many bytes were just handed out.
            let bytes = unsafe { std::slice::from_raw_parts_mut(pointer, size) };
            assert!(bytes.iter().all(|&byte| byte == 0), "{size}");
            bytes.fill(0xff);
            pointer
        };
        // SAFETY: as above; each allocation is given back once, with its size.
        unsafe {
            let first = zeroed(1000);
            let kept = arena.alloc(layout(100));
            kept.write_bytes(0xff, 100);
            let grown = arena.realloc(kept, layout(100), 5000);
            grown.write_bytes(0xff, 5000);
            assert_eq!(grown, kept, "the newest grows where it is");
            arena.dealloc(grown, layout(5000));
            // Over what was used before, and beyond it.
            let second = zeroed(9000);
            arena.dealloc(second, layout(9000));
            arena.dealloc(first, layout(1000));
            let large = zeroed(LARGE_BYTES + 1);
            arena.dealloc(large, layout(LARGE_BYTES + 1));
            zeroed(64);
        }
    }

    /// The test above has the block; this one looks at an arena that another thread owns, and never gets bytes of it.
    #[test]
    fn another_thread_has_nothing_of_the_block() {
        let arena = Arena::new();
        let layout = Layout::from_size_align(100, 8).expect("is one");
        assert!(std::thread::scope(|scope| scope.spawn(|| arena.is_owner()).join().expect("ends")));
        assert!(!arena.is_owner());
        // SAFETY: each allocation is given back once, with its size.
        unsafe {
            let first = arena.alloc(layout);
            assert!(!first.is_null() && !Arena::holds(first));
            let zeroed = arena.alloc_zeroed(layout);
            assert!(!Arena::holds(zeroed) && *zeroed == 0);
            let grown = arena.realloc(first, layout, 5000);
            assert!(!Arena::holds(grown));
            arena.dealloc(zeroed, layout);
            arena.dealloc(grown, Layout::from_size_align_unchecked(5000, 8));
            // Bytes of the block that it was handed are copied, and are not given out again.
            let of_block = Arena::start().add(BLOCK_BYTES - 128);
            let copy = arena.realloc(of_block, layout, 200);
            assert!(!Arena::holds(copy));
            arena.dealloc(of_block, layout);
            assert_eq!((*arena.used.get(), *arena.touched.get()), (0, 0));
            arena.dealloc(copy, Layout::from_size_align_unchecked(200, 8));
        }
    }
}
