//! zip: files, directories and symbolic links, with nine bits of the mode (the library clears the
//! others) and times in seconds. Hard links become separate files, FIFOs are left out, and there are
//! no owners and attributes.
//!
//! Unaware of: where files are unpacked.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::Path;

use ::zip::write::{FullFileOptions, SimpleFileOptions};
use ::zip::{CompressionMethod, DateTime, ExtraField, ZipArchive, ZipWriter};

use super::contents::{Contents, failed};
use super::exported::Exported;
use super::out::ArchiveEntry;
use super::stage::{Meta, Stage};
use crate::tree::NodeKind;
use crate::{ImageError, Progress};

/// The size from which a file needs the larger size fields. It is a little below their limit,
/// because incompressible data grows.
const LARGE_BYTES: u64 = 0xff00_0000;
/// The most bytes of a link's target: the limit of Linux.
const TARGET_BYTES_MAX: u64 = 4096;
const TYPE: u32 = 0o170_000;
const TYPE_LINK: u32 = 0o120_000;

/// Writes an archive.
pub(super) fn write(
    contents: &mut Contents<'_>,
    entries: &[ArchiveEntry],
    to: &Path,
    progress: &Progress,
) -> Result<Exported, ImageError> {
    let file = File::create_new(to).map_err(ImageError::io("create it", to))?;
    let mut writer = ZipWriter::new(BufWriter::new(file));
    let mut exported = Exported::default();
    for entry in entries {
        add(contents, entry, &mut writer, &mut exported, to)?;
        progress.add(entry.size(contents.image));
    }
    let written = writer.finish().map_err(io::Error::from).and_then(|mut file| file.flush());
    written.map_err(failed(to))?;
    Ok(exported)
}

fn add(
    contents: &mut Contents<'_>,
    entry: &ArchiveEntry,
    writer: &mut ZipWriter<impl Write + Seek>,
    exported: &mut Exported,
    to: &Path,
) -> Result<(), ImageError> {
    let image = contents.image;
    let (tree, node) = (entry.tree(image), entry.known(image));
    let text = |bytes: &[u8]| {
        let why = || format!("{} is not UTF-8, which a zip cannot hold; use a tar", String::from_utf8_lossy(bytes));
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| ImageError::archive(to, why()))
    };
    let name = text(&entry.path)?;
    let is_large = matches!(node.kind, NodeKind::File { size, .. } if size >= LARGE_BYTES);
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .unix_permissions(node.mode.into())
        .large_file(is_large)
        .last_modified_time(DateTime::default());
    let seconds = u32::try_from(node.modified.0).ok();
    let stamped = options.with_extended_timestamp(seconds, None, None).map_err(io::Error::from).map_err(failed(to))?;
    exported.attributes_left += u64::from(node.set != 0);
    let added = match node.kind {
        NodeKind::Directory(_) => writer.add_directory(name, stamped),
        NodeKind::Link(target) => writer.add_symlink(name, text(tree.target(target))?, stamped),
        NodeKind::Fifo => {
            exported.left += 1;
            return Ok(());
        }
        NodeKind::File { .. } => {
            exported.copied += u64::from(entry.first.is_some());
            return add_file(contents, entry, writer, name, stamped).map_err(failed(to));
        }
        NodeKind::Again(_) => return Ok(()),
    };
    added.map_err(io::Error::from).map_err(failed(to))
}

fn add_file(
    contents: &mut Contents<'_>,
    entry: &ArchiveEntry,
    writer: &mut ZipWriter<impl Write + Seek>,
    name: String,
    options: FullFileOptions<'_, '_>,
) -> io::Result<()> {
    let image = contents.image;
    writer.start_file(name, options)?;
    io::copy(&mut contents.file(entry.tree(image), entry.known(image)), writer).map(drop)
}

/// Reads an archive.
pub(super) fn read(from: &Path, stage: &mut Stage, progress: &Progress) -> Result<(), ImageError> {
    let cut = |error: io::Error| ImageError::archive(from, format!("it cannot be read: {error}"));
    let file = File::open(from).map_err(ImageError::io("open it", from))?;
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(io::Error::from).map_err(cut)?;
    for number in 0..archive.len() {
        let mut file = archive.by_index(number).map_err(io::Error::from).map_err(cut)?;
        let path = file.name_raw().to_vec();
        let mode = file.unix_mode();
        let fallback = if file.is_dir() { 0o755 } else { 0o644 };
        let meta = Meta {
            mode: mode.map_or(fallback, |mode| mode & 0o777),
            owner: None,
            modified: (modified(&file), 0),
            attributes: Vec::new(),
        };
        progress.add(file.compressed_size());
        match mode.unwrap_or(0) & TYPE {
            TYPE_LINK => {
                let mut target = Vec::new();
                (&mut file).take(TARGET_BYTES_MAX + 1).read_to_end(&mut target).map_err(cut)?;
                if target.len() as u64 > TARGET_BYTES_MAX {
                    return Err(stage.unsuitable(&path, "a link with a target of more than 4096 bytes"));
                }
                stage.link(&path, &target, meta)?;
            }
            _ if file.is_dir() => stage.directory(&path, meta)?,
            0 | 0o100_000 => stage.file(&path, &mut file, false, meta)?,
            _ => return Err(stage.unsuitable(&path, "neither a file nor a directory nor a link")),
        }
    }
    Ok(())
}

/// Returns the modification time in seconds since 1970: from the extended field, or else from the
/// old one, which has no time zone and is read as UTC.
fn modified(file: &::zip::read::ZipFile<'_, impl Read>) -> i64 {
    let exact = file.extra_data_fields().find_map(|field| match field {
        ExtraField::ExtendedTimestamp(times) => times.mod_time(),
        _ => None,
    });
    match (exact, file.last_modified()) {
        (Some(seconds), _) => seconds.into(),
        (None, Some(at)) => {
            let days = days_of(at.year().into(), at.month().into(), at.day().into());
            days * 86_400 + i64::from(at.hour()) * 3600 + i64::from(at.minute()) * 60 + i64::from(at.second())
        }
        (None, None) => 0,
    }
}

/// Returns the days from 1970 to a date. Years are counted from March, so that the leap day is the
/// last.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted() {
        assert_eq!(days_of(1970, 1, 1), 0);
        assert_eq!(days_of(2000, 2, 29), 11_016);
        assert_eq!(days_of(2026, 11, 22), 20_779);
    }
}
