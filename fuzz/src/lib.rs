//! A fuzz target for each decoder of bytes that may be damaged. For all inputs:
//!
//! - it does not panic;
//! - it does not use more memory than a multiple of the input;
//! - what it has decoded is encoded to the same bytes.
//!
//! | command | runs |
//! |---|---|
//! | `cargo xtask test` | the seeds and fixed mutations (`tests/short.rs`) |
//! | `cargo xtask fuzz [TARGET] [--seconds N]` | cargo-fuzz, or endless mutations without it |
//!
//! Seeds are in `corpus/TARGET`. For binary formats, they are the golden bytes of the crates. An
//! input that fails becomes a test beside its decoder.

mod mutate;
mod places;
mod seeds;
mod store;
mod targets;

pub use mutate::Mutations;
pub use seeds::seeds;

use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// A function that must accept any bytes.
pub type Target = fn(&[u8]);

/// All targets by name. Each has a limit for its memory: fixed bytes, and bytes for each byte of
/// input.
pub const TARGETS: &[(&str, Target, (usize, usize))] = &[
    // The decompressors have tables and windows of their own.
    ("archive", store::archive, (8 << 20, 400)),
    ("argv", targets::argv, (64 << 10, 100)),
    ("broker", targets::broker, (64 << 10, 10)),
    ("bundle", targets::bundle, (1 << 20, 400)),
    ("config", targets::config, (256 << 10, 2000)),
    ("counters", store::counters, (64 << 10, 10)),
    ("depfile", targets::depfile, (64 << 10, 100)),
    ("digest", targets::digest, (64 << 10, 10)),
    ("frame", targets::frame, (64 << 10, 10)),
    ("fsck", store::fsck, (1 << 20, 400)),
    ("image", targets::image, (64 << 10, 400)),
    ("index", targets::index, (64 << 10, 400)),
    ("judgement", targets::judgement, (64 << 10, 400)),
    ("list", targets::list, (64 << 10, 400)),
    ("log", targets::log, (64 << 10, 20)),
    ("manifest", targets::manifest, (4 << 20, 400)),
    ("near", store::near, (64 << 10, 10)),
    ("observations", targets::observations, (4 << 20, 400)),
    ("packs", targets::packs, (64 << 10, 400)),
    ("parcel", targets::parcel, (64 << 10, 400)),
    ("relocate", places::relocated, (4 << 20, 400)),
    ("report", larder_record::check_report, (64 << 10, 400)),
    ("response", targets::response, (64 << 10, 400)),
    ("result", targets::result, (64 << 10, 400)),
    ("roots", targets::roots, (64 << 10, 100)),
    ("scan", targets::scan, (64 << 10, 100)),
    ("size", targets::size, (64 << 10, 10)),
    ("stamps", store::stat_cache, (1 << 20, 10)),
    // `docs/security.md` states this limit, and where it comes from.
    ("tree", targets::tree, (210 << 20, 12 * 64)),
    ("used", targets::used, (1 << 20, 400)),
];

/// Runs the target of that name with `data`, and checks its use of memory. No other thread may
/// allocate memory meanwhile.
pub fn run(name: &str, data: &[u8]) {
    let (_, target, (fixed, each)) =
        TARGETS.iter().find(|(known, ..)| *known == name).expect("no target has this name");
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    target(data);
    let used = MEMORY.peak_usage().saturating_sub(before);
    let limit = fixed + each * data.len();
    assert!(used <= limit, "{name}: {used} bytes of memory for {} bytes, the limit is {limit}", data.len());
}
