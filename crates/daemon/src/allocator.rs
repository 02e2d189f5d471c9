//! The global allocator, if a Cargo feature replaces the C library's. `cargo xtask bench alloc`
//! builds larderd once with each. docs/performance.md, "larderd's allocator", says which one
//! releases use and why.

#[cfg(feature = "hardened_malloc")]
#[global_allocator]
static ALLOCATOR: hardened_malloc::HardenedMalloc = hardened_malloc::HardenedMalloc;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
