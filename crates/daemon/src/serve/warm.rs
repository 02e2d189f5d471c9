//! Stamps for wrappers that cannot write any: what a record relied on that is the system's, not the place's, is looked
//! at from here, so that the next sandbox need not read compilers and headers to know that they are as they were; nor
//! the blobs that it copies.
//!
//! Nothing is taken from the wrapper but names: stamps say what this process saw.

use std::cell::Cell;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use larder_model::{Manifest, ObservationSet, PLACEHOLDER, Roots};
use larder_store::{Checker, Effort, Forms, STAMP_AGE_MIN_NS, Stamps, Store};
use larder_sys::Kind;

/// What was written just now is not stamped yet.
const AGE: Duration = Duration::from_nanos(STAMP_AGE_MIN_NS as u64 + 10_000_000);
/// The field of a walk that has the tool's path.
const TOOL: &[u8] = b"tool path";

/// Look at what the record in `bytes` relied on outside of its place. Whether it holds here is of no matter.
pub(super) fn warm(store: &Store, bytes: &[u8]) {
    let Ok(manifest) = Manifest::decode(bytes) else { return };
    std::thread::sleep(AGE);
    let stamps = Stamps::open(store, true);
    let tools = manifest.fields.iter().filter(|(name, _)| *name == TOOL);
    tools.for_each(|(_, path)| read(path, &stamps));
    for entry in &manifest.entries {
        let Ok((set, result)) = entry.open() else { continue };
        result.blobs().for_each(|blob| drop(store.open_blob(&blob, &stamps)));
        let roots = Roots::default();
        let stampless = Cell::new(false);
        let checker = Checker {
            roots: &roots,
            stamps: &stamps,
            at_home: true,
            same_bytes_will_do: false,
            stampless,
            variable: &|_| None,
            forms: Forms::NONE,
        };
        for directory in set.directories.into_iter().filter(|directory| !directory.path.contains(&PLACEHOLDER)) {
            let alone = ObservationSet { directories: vec![directory], ..ObservationSet::default() };
            let _ = checker.check(&alone, &mut Effort::default());
        }
    }
    let _ = stamps.settle(store);
}

fn read(path: &[u8], stamps: &Stamps) {
    use std::os::unix::ffi::OsStrExt;
    if let Ok(look) = larder_sys::look_through(path)
        && path.first() == Some(&b'/')
        && look.kind == Kind::File
        && stamps.content(&look).is_none()
        && let Ok(mut file) = File::open(Path::new(std::ffi::OsStr::from_bytes(path)))
    {
        let _ = stamps.hash(&mut file);
    }
}
