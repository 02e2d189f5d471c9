//! The record of a volume on the disk, by which a plugin that starts again finds the volume.
//!
//! ```text
//! larder-csi 1
//! id      the volume's identifier
//! target  where it is mounted
//! owner   user and group of its files
//! name    the image, as the broker names it; empty without an image
//! ```
//!
//! Unaware of: whether the volume is still mounted.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const VERSION: &str = "larder-csi 1";
const FILE: &str = "record";
const NEW_FILE: &str = "record.new";

/// A volume that is, or is about to be, mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) id: String,
    pub(crate) target: PathBuf,
    pub(crate) owner: (u32, u32),
    pub(crate) name: String,
}

impl Record {
    /// Reads the record in a volume's directory. Returns `None` if there is none: the plugin was
    /// killed before it mounted anything.
    pub(crate) fn read(directory: &Path) -> io::Result<Option<Record>> {
        match fs::read_to_string(directory.join(FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            text => match Record::decode(&text?) {
                Some(record) => Ok(Some(record)),
                None => Err(io::Error::new(io::ErrorKind::InvalidData, "is no record of this version")),
            },
        }
    }

    /// Writes the record under a temporary name and renames it, so that it is complete or absent.
    pub(crate) fn write(&self, directory: &Path) -> io::Result<()> {
        let new = directory.join(NEW_FILE);
        File::create(&new)?.write_all(self.encode().as_bytes())?;
        fs::rename(new, directory.join(FILE))
    }

    /// Removes the record in a volume's directory.
    pub(crate) fn remove(directory: &Path) -> io::Result<()> {
        [NEW_FILE, FILE].iter().try_for_each(|file| larder_sys::remove_tree(&directory.join(file)))
    }

    fn encode(&self) -> String {
        let Record { id, target, owner, name } = self;
        format!("{VERSION}\n{id}\n{}\n{} {}\n{name}\n", target.display(), owner.0, owner.1)
    }

    fn decode(text: &str) -> Option<Record> {
        let lines: Vec<&str> = text.strip_suffix('\n')?.split('\n').collect();
        let [VERSION, id, target, owner, name] = lines[..] else { return None };
        let (user, group) = owner.split_once(' ')?;
        let owner = (user.parse().ok()?, group.parse().ok()?);
        Some(Record { id: id.to_owned(), target: PathBuf::from(target), owner, name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().expect("makes");
        assert_eq!(Record::read(directory.path()).expect("reads"), None);
        for name in ["", "lazy 0 abc deps 1"] {
            let (id, target) = ("csi-1".to_owned(), PathBuf::from("/var/lib/kubelet/pods/1/mount"));
            let record = Record { id, target, owner: (1000, 7), name: name.to_owned() };
            record.write(directory.path()).expect("writes");
            assert_eq!(Record::read(directory.path()).expect("reads"), Some(record));
        }
        fs::write(directory.path().join(FILE), "larder-csi 2\na\n/b\n0 0\n\n").expect("writes");
        assert!(Record::read(directory.path()).is_err());
        Record::remove(directory.path()).expect("removes");
        Record::remove(directory.path()).expect("is removed already");
        assert_eq!(fs::read_dir(directory.path()).expect("lists").count(), 0);
    }
}
