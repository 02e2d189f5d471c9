//! Blobs: contents that are named by their digest.
//!
//! Unaware of: which records need a blob.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use larder_model::{Blob, Digest, DigestWriter};

use crate::layout::{Contents, Temporary, open_plain};
use crate::{StatCache, Store, StoreError};

/// The buffer for hashing and writing, in bytes. No other size is faster for files of about 50 kB
/// to 1 MB. For programs of 20 MB the best one is faster by a twentieth at most
/// (docs/performance.md, "Buffers").
const BUFFER_BYTES: usize = 64 << 10;

/// A blob whose content was checked against its digest.
pub struct OpenBlob {
    /// The file, open for reading at its start.
    pub file: File,
    /// The size of the blob, in bytes.
    pub size_bytes: u64,
}

impl Store {
    /// Stores everything that `source` has, and returns its name.
    pub fn put_blob(&self, source: &mut impl Read) -> Result<Blob, StoreError> {
        let (temporary, blob) = self.write_blob(source)?;
        temporary.place(&self.path_of(Contents::Blobs, &blob.digest))?;
        Ok(blob)
    }

    /// Writes everything that `source` has to a temporary file, and returns that with the blob's
    /// name.
    pub(crate) fn write_blob(&self, source: &mut impl Read) -> Result<(Temporary, Blob), StoreError> {
        let mut temporary = self.temporary()?;
        let mut digest = DigestWriter::default();
        let mut size_bytes = 0;
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            match source.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => {
                    digest.update(&buffer[..count]);
                    temporary.write_all(&buffer[..count])?;
                    size_bytes += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(StoreError::reading(Path::new("(the output)"))(error)),
            }
        }
        Ok((temporary, Blob { digest: digest.finish(), size_bytes }))
    }

    /// Opens a blob. Its bytes are hashed unless a stamp shows that this was done, and that the
    /// file was not changed since.
    pub fn open_blob(&self, blob: &Blob, stat_cache: &StatCache) -> Result<OpenBlob, StoreError> {
        let path = self.path_of(Contents::Blobs, &blob.digest);
        let (mut file, stat) = open_plain(&path).map_err(StoreError::reading_blob(&path, blob.digest))?;
        if stat.size_bytes == blob.size_bytes && stat_cache.content(&stat) == Some(blob.digest) {
            return Ok(OpenBlob { file, size_bytes: blob.size_bytes });
        }
        // A file of the wrong size is not read, because it may be sparse and of any size.
        let right_size = stat.size_bytes == blob.size_bytes;
        if !right_size || stat_cache.hash(&mut file).map_err(StoreError::reading(&path))? != blob.digest {
            // In a store that cannot be written the damaged file stays, and is found again each
            // time.
            if stat_cache.writable() {
                let _ = std::fs::remove_file(&path);
            }
            return Err(StoreError::BlobDamaged(blob.digest));
        }
        io::Seek::rewind(&mut file).map_err(StoreError::reading(&path))?;
        Ok(OpenBlob { file, size_bytes: blob.size_bytes })
    }

    /// The path of a blob, which need not exist. The caller must verify what it reads.
    pub fn blob_file(&self, digest: &Digest) -> PathBuf {
        self.path_of(Contents::Blobs, digest)
    }

    /// Returns true if the blob exists and has the right size. Its bytes are not read.
    pub fn has_blob(&self, blob: &Blob) -> bool {
        std::fs::metadata(self.path_of(Contents::Blobs, &blob.digest)).is_ok_and(|m| m.len() == blob.size_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_not_believed_before_the_blob_is_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let mut blob = store.put_blob(&mut &b"object"[..]).expect("writes");
        blob.size_bytes = u64::MAX / 2;
        let content = larder_model::Content::Blob(blob);
        assert!(matches!(store.content_bytes(&content, &StatCache::none()), Err(StoreError::BlobDamaged(_))));
    }

    #[test]
    fn what_is_put_comes_back_and_damage_is_seen() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let stat_cache = StatCache::open(&store, true);
        let blob = store.put_blob(&mut &b"object"[..]).expect("writes");
        let mut bytes = Vec::new();
        store.open_blob(&blob, &stat_cache).expect("opens").file.read_to_end(&mut bytes).expect("reads");
        assert_eq!(bytes, b"object");

        let path = store.path_of(Contents::Blobs, &blob.digest);
        for damaged in [&b"abject"[..], b"objec", b"objects", b""] {
            std::fs::write(&path, damaged).expect("writes");
            for _ in 0..2 {
                let reader = StatCache::open(&store, false);
                assert!(matches!(store.open_blob(&blob, &reader), Err(StoreError::BlobDamaged(_))));
            }
            assert!(matches!(store.open_blob(&blob, &stat_cache), Err(StoreError::BlobDamaged(_))));
            assert!(matches!(store.open_blob(&blob, &stat_cache), Err(StoreError::BlobMissing(_))));
        }
    }
}
