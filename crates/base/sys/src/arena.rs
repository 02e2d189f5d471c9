//! The wrapper's allocator. A short-lived process gains nothing from giving memory back.
//!
//! Small allocations come one after the other from a static block of 4 MiB. They cost no system
//! call, and no page before it is touched. The system allocator serves large allocations, and all
//! of them once the block is full.
//!
//! The block belongs to one thread, which is the first that allocates. Other threads get all of
//! their memory from the system allocator. If another thread frees memory of the block, nothing
//! happens, and that memory is not reused.
//!
//! Unaware of: what is allocated.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

#[cfg(not(target_os = "linux"))]
use crate::elsewhere::thread_local_address;
#[cfg(target_os = "linux")]
use crate::linux::thread_local_address;

const BLOCK_BYTES: usize = 4 << 20;
const LARGE_BYTES: usize = 256 << 10;
/// The minimum alignment, which is `malloc`'s, too. Some libraries rely on it even for bytes.
const ALIGN_BYTES: usize = 16;

#[repr(align(64))]
struct Block(UnsafeCell<[u8; BLOCK_BYTES]>);

/// The allocator. See the module's documentation.
pub struct Arena {
    /// The thread that owns the block, as the address of a thread-local variable. It is 0 before
    /// the first allocation.
    owner: AtomicUsize,
    used: UnsafeCell<usize>,
    /// The highest offset that was used and given back at some time. Unused bytes of the block
    /// beyond it are zero.
    touched: UnsafeCell<usize>,
}

// It has a section of its own, because between other variables it would keep them on pages far
// apart.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".bss.larder_arena"))]
static BLOCK: Block = Block(UnsafeCell::new([0; BLOCK_BYTES]));

// SAFETY: each byte belongs to at most one allocation at a time, and only the arena's owner decides
// which.
unsafe impl Sync for Block {}
// SAFETY: only the thread that `owner` names touches `used` and `touched`, because `is_owner` is
// checked first. `owner` is set once.
unsafe impl Sync for Arena {}

impl Arena {
    /// Returns an empty arena. A program must have only one, because all of them would use one
    /// block.
    #[allow(clippy::new_without_default, reason = "a static needs a const function, and there is one static")]
    pub const fn new() -> Arena {
        Arena { owner: AtomicUsize::new(0), used: UnsafeCell::new(0), touched: UnsafeCell::new(0) }
    }

    /// Returns true if the calling thread owns the block. The first thread that asks gets it.
    ///
    /// A thread is identified by the address of a thread-local variable. After the owner has ended,
    /// another thread may get that address. It then owns the block alone, as the first thread did.
    #[inline]
    fn is_owner(&self) -> bool {
        let this = thread_local_address();
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

    /// Makes `end` the end of the used part.
    ///
    /// # Safety
    ///
    /// The caller is the owner, and no memory of the block beyond `end` is in use.
    // It is never inlined, because a thousand copies would need more pages of code than the calls
    // cost.
    #[inline(never)]
    unsafe fn give_back_to(&self, end: usize) {
        // SAFETY: only the owner gets here.
        unsafe {
            let used = self.used.get();
            *self.touched.get() = (*used).max(*self.touched.get());
            *used = end;
        }
    }

    /// Returns true if `pointer` is the newest allocation, has `size` bytes, and belongs to the
    /// calling thread's block.
    fn is_last(&self, pointer: *mut u8, size: usize) -> bool {
        // SAFETY: only the owner reads `used`.
        let end = || Self::start() as usize + unsafe { *self.used.get() };
        Self::holds(pointer) && self.is_owner() && pointer as usize + size == end()
    }
}

// SAFETY: an allocation is a range of the block that no other allocation has until it is given
// back, or it comes from the system allocator.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !self.is_owner() {
            // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
            return unsafe { System.alloc(layout) };
        }
        // SAFETY: only the owner gets here, and the range stays within the block.
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

    /// Clears only bytes that were used before. Large buffers are often requested this way and used
    /// in part, so pages that were never touched stay untouched.
    #[inline(never)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !self.is_owner() {
            // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc_zeroed`.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: only the owner gets here, and only bytes of the new allocation are written.
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
            // SAFETY: the memory came from the system allocator.
            return unsafe { System.dealloc(pointer, layout) };
        }
        if self.is_last(pointer, layout.size()) {
            // SAFETY: `is_last` returned true, so this is the owner. The newest allocation ends the
            // used part.
            unsafe { self.give_back_to(*self.used.get() - layout.size()) };
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let start = pointer as usize - if Self::holds(pointer) { Self::start() as usize } else { 0 };
        if self.is_last(pointer, layout.size()) && start + new_size <= BLOCK_BYTES && new_size <= LARGE_BYTES {
            // SAFETY: `is_last` returned true, so this is the owner. The newest allocation grows or
            // shrinks within the block.
            unsafe { self.give_back_to(start + new_size) };
            return pointer;
        }
        if !Self::holds(pointer) {
            // SAFETY: the memory came from the system allocator.
            return unsafe { System.realloc(pointer, layout, new_size) };
        }
        // SAFETY: the new allocation does not overlap the old one, which is given back after the
        // copy.
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
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;

    /// Lets one test at a time use the block, because there is only one. Clears what the last test
    /// left in it.
    fn block() -> MutexGuard<'static, ()> {
        static IN_USE: Mutex<()> = Mutex::new(());
        let guard = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the lock is held, so no other test uses the block.
        unsafe { Arena::start().write_bytes(0, BLOCK_BYTES) };
        guard
    }

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).expect("a valid layout")
    }

    /// An allocation of a test, filled with its number.
    struct Made {
        pointer: *mut u8,
        layout: Layout,
        number: u8,
    }

    impl Made {
        fn bytes(&self) -> &[u8] {
            // SAFETY: the allocation has this size, and is only dropped by `drop_with`.
            unsafe { std::slice::from_raw_parts(self.pointer, self.layout.size()) }
        }

        fn fill(&self) {
            // SAFETY: the allocation has this size, and no other one overlaps it.
            unsafe { self.pointer.write_bytes(self.number, self.layout.size()) };
        }

        /// Makes it larger or smaller. The bytes that it keeps must be those that it had.
        fn resize(&mut self, arena: &Arena, size: usize) {
            let kept = size.min(self.layout.size());
            // SAFETY: it was made with this layout, and the old pointer is not used any more.
            self.pointer = unsafe { arena.realloc(self.pointer, self.layout, size) };
            self.layout = layout(size, self.layout.align());
            assert!(self.bytes()[..kept].iter().all(|byte| *byte == self.number), "{:?}", self.layout);
            self.fill();
        }

        fn drop_with(self, arena: &Arena) {
            assert!(self.bytes().iter().all(|byte| *byte == self.number), "{:?}", self.layout);
            // SAFETY: it was made with this layout, and is not used any more.
            unsafe { arena.dealloc(self.pointer, self.layout) };
        }
    }

    /// Makes, resizes and drops allocations of all sizes in a random order. If two of them
    /// overlapped, one would lose its bytes.
    #[test]
    fn allocations_keep_their_bytes() {
        let _block = block();
        let arena = Arena::new();
        let mut state = 0x1a2d_e26c_0ffe_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        // Miri is a thousand times slower.
        let (steps, largest, beyond) = if cfg!(miri) { (40, 60, 0) } else { (3000, 3000, LARGE_BYTES) };
        let (mut kept, mut inside) = (Vec::new(), 0);
        for step in 0..steps {
            let beyond = if step % 50 == 0 { beyond } else { 0 };
            let layout = layout(1 + random(largest) + beyond, 1 << random(8));
            let is_zeroed = random(4) == 0;
            // SAFETY: the layout has a size.
            let pointer = unsafe { if is_zeroed { arena.alloc_zeroed(layout) } else { arena.alloc(layout) } };
            assert!(!pointer.is_null() && (pointer as usize).is_multiple_of(layout.align()));
            let mut made = Made { pointer, layout, number: step as u8 };
            assert!(!is_zeroed || made.bytes().iter().all(|byte| *byte == 0), "{layout:?}");
            made.fill();
            if random(3) == 0 {
                made.resize(&arena, 1 + random(largest));
            }
            inside += usize::from(Arena::holds(made.pointer));
            kept.push(made);
            if random(8) > 0 {
                let at = if random(2) == 0 { kept.len() - 1 } else { random(kept.len()) };
                kept.swap_remove(at).drop_with(&arena);
            }
        }
        assert!((steps / 4..steps).contains(&inside), "{inside} of {steps} are in the block");
        kept.into_iter().for_each(|made| made.drop_with(&arena));
    }

    #[test]
    fn what_is_to_be_zero_is_zero() {
        let _block = block();
        let arena = Arena::new();
        let layout = |size| layout(size, 8);
        let zeroed = |size| {
            // SAFETY: the layout has a size, and no other test uses the block.
            let pointer = unsafe { arena.alloc_zeroed(layout(size)) };
            // SAFETY: this many bytes were just allocated.
            let bytes = unsafe { std::slice::from_raw_parts_mut(pointer, size) };
            assert!(bytes.iter().all(|&byte| byte == 0), "{size}");
            bytes.fill(0xff);
            pointer
        };
        // SAFETY: no other test uses the block, and each allocation is given back once, with its
        // size.
        unsafe {
            let first = zeroed(1000);
            let kept = arena.alloc(layout(100));
            kept.write_bytes(0xff, 100);
            let grown = arena.realloc(kept, layout(100), 5000);
            grown.write_bytes(0xff, 5000);
            assert_eq!(grown, kept, "the newest allocation grows in place");
            arena.dealloc(grown, layout(5000));
            // This allocation covers bytes that were used before, and bytes beyond them.
            let second = zeroed(9000);
            arena.dealloc(second, layout(9000));
            arena.dealloc(first, layout(1000));
            let large = zeroed(LARGE_BYTES + 1);
            arena.dealloc(large, layout(LARGE_BYTES + 1));
            zeroed(64);
        }
    }

    /// Other tests own the block. This test's arena belongs to another thread and never gives out
    /// bytes of the block.
    #[test]
    fn another_thread_has_nothing_of_the_block() {
        let _block = block();
        let arena = Arena::new();
        let layout = layout(100, 8);
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
            // Bytes of the block that another thread passed on are copied. They are not given out
            // again.
            let of_block = Arena::start().add(BLOCK_BYTES - 128);
            let copy = arena.realloc(of_block, layout, 200);
            assert!(!Arena::holds(copy));
            arena.dealloc(of_block, layout);
            assert_eq!((*arena.used.get(), *arena.touched.get()), (0, 0));
            arena.dealloc(copy, Layout::from_size_align_unchecked(200, 8));
        }
    }
}
