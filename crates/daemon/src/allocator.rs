//! Another allocator than the C library's, where a feature asks for one: `cargo xtask bench alloc` builds larderd with
//! each. What larderd has is decided in docs/performance.md, "larderd's allocator".

#[cfg(feature = "hardened_malloc")]
#[global_allocator]
static ALLOCATOR: hardened_malloc::HardenedMalloc = hardened_malloc::HardenedMalloc;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
