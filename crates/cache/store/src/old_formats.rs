//! Stores of earlier formats in the same directory, which remain after an update of larder. This
//! larder does not read them, and its size limit does not count them.
//!
//! Unaware of: the formats of their files.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use larder_model::FORMAT_VERSION;

use crate::layout::make_directory;
use crate::{Counters, Store};

impl Store {
    /// Returns the directories of the earlier stores.
    pub fn old_formats(&self) -> Vec<PathBuf> {
        self.earlier_stores().iter().map(|store| store.base().to_owned()).collect()
    }

    /// Removes each earlier store that was not used for `unused`, unless its `larderd` runs or one
    /// of its images is mounted.
    pub fn remove_old_formats(&self, unused: Duration) {
        for store in self.earlier_stores() {
            if is_younger(store.base(), unused) || store.daemon_runs() || store.image_broker_runs() {
                continue;
            }
            // No process can begin to use an image while `images` lives.
            let Ok(images) = store.used_images(&HashSet::new()) else { continue };
            let aside = self.temporary_path();
            // If this process is killed half-way, an eviction removes the rest from `tmp`.
            if images.used.is_empty()
                && make_directory(&self.file("tmp")).is_ok()
                && fs::rename(store.base(), &aside).is_ok()
            {
                let _ = larder_sys::remove_tree(&aside);
            }
        }
    }

    /// Returns the earlier stores. Only a directory with larder's counters is one, because other
    /// directories may be named `v1` too.
    fn earlier_stores(&self) -> Vec<Store> {
        (1..FORMAT_VERSION).filter_map(|version| self.of_format(version)).filter(Counters::are_there).collect()
    }
}

/// Returns true if `path` or anything below it was modified within `age`.
fn is_younger(path: &Path, age: Duration) -> bool {
    let mut rest = vec![path.to_owned()];
    while let Some(path) = rest.pop() {
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        if meta.modified().is_ok_and(|modified| modified.elapsed().unwrap_or_default() < age) {
            return true;
        }
        if meta.is_dir() {
            rest.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::layout::entries;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn what_an_earlier_larder_left_goes_once_nobody_uses_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        make_directory(&dir.path().join("v1/blobs/ab")).expect("makes");
        let earlier = store.of_format(1).expect("is there");
        fs::write(earlier.file("blobs/ab/cd"), "a blob").expect("writes");
        drop(Counters::open(&earlier).expect("maps"));
        assert_eq!(store.old_formats(), [earlier.base()]);
        let larderd = earlier.lock_daemon().expect("locks").expect("no process has it");
        for name in ["", "blobs", "blobs/ab", "blobs/ab/cd", "counters", "locks", "locks/daemon"] {
            let file = fs::File::open(earlier.file(name)).expect("opens");
            file.set_modified(SystemTime::now() - 2 * HOUR).expect("sets the time");
        }
        store.remove_old_formats(3 * HOUR);
        assert!(earlier.base().exists(), "it was used");
        store.remove_old_formats(HOUR);
        assert!(earlier.base().exists(), "its larderd runs");
        drop(larderd);
        store.remove_old_formats(HOUR);
        assert!(!earlier.base().exists() && store.old_formats().is_empty());
        assert!(entries(&store.file("tmp")).expect("lists").is_empty());
    }

    #[test]
    fn what_is_only_called_so_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        make_directory(&dir.path().join("v1/images")).expect("makes");
        fs::write(dir.path().join("v1/counters"), "of something else").expect("writes");
        store.remove_old_formats(Duration::ZERO);
        assert!(store.old_formats().is_empty() && dir.path().join("v1/counters").exists());
    }
}
