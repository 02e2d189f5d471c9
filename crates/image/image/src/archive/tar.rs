//! tar: written in the POSIX.1-2001 format with the fields that GNU tar and others add, and read in
//! all formats that the library supports.
//!
//! Extended headers hold long names, times with nanoseconds (`mtime`), and attributes
//! (`SCHILY.xattr.NAME`). Holes are written as zeros, as in most archives.
//!
//! Unaware of: where files are unpacked.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use ::tar::{Archive, Builder, EntryType, Header};

use super::contents::{Contents, failed};
use super::exported::Exported;
use super::format::{self, Format, Packing};
use super::out::ArchiveEntry;
use super::squash::{TRIES, begin, unreadable};
use super::stage::{Meta, Stage};
use crate::tree::{Attribute, NodeKind};
use crate::{ImageError, Progress, Step};

/// The most bytes of a name in a plain header.
const NAME_BYTES_MAX: usize = 100;
const BLOCK_BYTES: u64 = 512;
const ATTRIBUTE: &[u8] = b"SCHILY.xattr.";
/// The most bytes of the extended headers of an entry. No real archive has 256 attributes of 64
/// KiB.
const EXTENDED_BYTES_MAX: u64 = 4 << 20;
/// The most bytes of all headers of an entry: extended ones, a long name, a long target, and a list
/// of holes.
const HEADERS_BYTES_MAX: u64 = 8 << 20;

/// Writes an archive. For squashfs the tar goes to `mksquashfs`.
pub(super) fn write(
    contents: &mut Contents<'_>,
    entries: &[ArchiveEntry],
    format: Format,
    to: &Path,
    progress: &Progress,
) -> Result<Exported, ImageError> {
    if format == Format::Squashfs {
        return squashed(contents, entries, to, progress);
    }
    let packing = if let Format::Tar(packing) = format { packing } else { Packing::None };
    let file = File::create_new(to).map_err(ImageError::io("create it", to))?;
    stream(contents, entries, Box::new(file), packing, to, progress)
}

/// Writes a squashfs file and reads it back. Writes it again if it cannot be read.
fn squashed(
    contents: &mut Contents<'_>,
    entries: &[ArchiveEntry],
    to: &Path,
    progress: &Progress,
) -> Result<Exported, ImageError> {
    let all = entries.iter().map(|entry| entry.size(contents.image)).sum();
    let mut why = String::new();
    for _ in 0..TRIES {
        progress.begin(Step::Pack, all);
        let (program, input) = begin(to)?;
        let written = stream(contents, entries, Box::new(input), Packing::None, to, progress);
        let ended = program.end();
        let exported = match written {
            // The program failed, and therefore the pipe is broken: report the program's error.
            Err(ImageError::Io { error, .. }) if error.kind() == io::ErrorKind::BrokenPipe && ended.is_err() => {
                return ended.map(|()| Exported::default());
            }
            Err(error) => return Err(error),
            Ok(exported) => ended.map(|()| exported)?,
        };
        match unreadable(to)? {
            None => return Ok(exported),
            Some(said) => why = said,
        }
    }
    let why = format!("mksquashfs wrote an unreadable file {} times ({why}); use another format", TRIES);
    Err(ImageError::archive(to, why))
}

fn stream(
    contents: &mut Contents<'_>,
    entries: &[ArchiveEntry],
    file: Box<dyn Write + Send>,
    packing: Packing,
    to: &Path,
    progress: &Progress,
) -> Result<Exported, ImageError> {
    let mut builder = Builder::new(format::sink(file, packing)?);
    for entry in entries {
        let size = add(contents, entry, &mut builder).map_err(failed(to))?;
        progress.add(size);
    }
    builder.into_inner().and_then(|sink| sink.finish()).map_err(failed(to))?;
    Ok(Exported::default())
}

fn add(contents: &mut Contents<'_>, entry: &ArchiveEntry, builder: &mut Builder<impl Write>) -> io::Result<u64> {
    let image = contents.image;
    let (tree, node) = (entry.tree(image), entry.known(image));
    let mut header = Header::new_gnu();
    let (user, group) = entry.owner(image);
    header.set_mode(node.mode.into());
    header.set_uid(user.into());
    header.set_gid(group.into());
    header.set_mtime(u64::try_from(node.modified.0).unwrap_or(0));
    header.set_size(0);
    let mut extended = Vec::new();
    if node.modified.1 != 0 || node.modified.0 < 0 {
        keyword(&mut extended, b"mtime", decimal(node.modified).as_bytes());
    }
    let mut path = entry.path.clone();
    let mut link = entry.first.clone().unwrap_or_default();
    let kind = match (&entry.first, node.kind) {
        (Some(_), _) => EntryType::Link,
        (None, NodeKind::Directory(_)) => {
            path.push(b'/');
            EntryType::Directory
        }
        (None, NodeKind::Link(target)) => {
            link = tree.target(target).to_vec();
            EntryType::Symlink
        }
        (None, NodeKind::Fifo) => EntryType::Fifo,
        (None, NodeKind::File { size, .. }) => {
            header.set_size(size);
            EntryType::Regular
        }
        (None, NodeKind::Again(_)) => return Err(io::Error::other("a hard link to nothing")),
    };
    header.set_entry_type(kind);
    if entry.first.is_none() {
        for (name, value) in &tree.sets[node.set as usize] {
            keyword(&mut extended, &[ATTRIBUTE, name].concat(), value);
        }
    }
    let fields = header.as_gnu_mut().ok_or_else(|| io::Error::other("not a GNU header"))?;
    for (key, text, field) in [(&b"path"[..], &path, &mut fields.name), (b"linkpath", &link, &mut fields.linkname)] {
        if text.len() > NAME_BYTES_MAX {
            keyword(&mut extended, key, text);
        }
        let count = text.len().min(NAME_BYTES_MAX);
        field[..count].copy_from_slice(&text[..count]);
    }
    if !extended.is_empty() {
        let mut before = Header::new_ustar();
        before.set_entry_type(EntryType::XHeader);
        before.set_path("extended")?;
        before.set_mode(0o644);
        before.set_size(extended.len() as u64);
        before.set_cksum();
        builder.append(&before, extended.as_slice())?;
    }
    header.set_cksum();
    let size = entry.size(image);
    builder.append(&header, contents.file(tree, &tree.nodes[entry.node as usize]))?;
    Ok(size)
}

/// Adds a field `LENGTH KEY=VALUE`. The length includes itself.
fn keyword(to: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    to.extend_from_slice(format!("{length} ").as_bytes());
    to.extend_from_slice(key);
    to.push(b'=');
    to.extend_from_slice(value);
    to.push(b'\n');
}

/// Formats seconds and nanoseconds as a decimal number. Before 1970 the fraction counts the other
/// way: −1 s and 500,000,000 ns are `-0.500000000`.
fn decimal((seconds, ns): (i64, u32)) -> String {
    match (seconds, ns) {
        (seconds, ns) if seconds < 0 && ns > 0 => {
            let (whole, part) = (seconds + 1, 1_000_000_000 - ns);
            format!("-{}.{part:09}", whole.unsigned_abs())
        }
        (seconds, ns) => format!("{seconds}.{ns:09}"),
    }
}

/// Parses a decimal number of seconds.
fn time(text: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = part.chars().chain(std::iter::repeat('0')).take(9).collect();
    let (seconds, ns): (i64, u32) = (whole.parse().ok()?, digits.parse().ok()?);
    Some(if whole.starts_with('-') && ns > 0 { (seconds.checked_sub(1)?, 1_000_000_000 - ns) } else { (seconds, ns) })
}

/// Reads an archive.
pub(super) fn read(from: &Path, format: Format, stage: &mut Stage, progress: &Progress) -> Result<(), ImageError> {
    let packing = if let Format::Tar(packing) = format { packing } else { Packing::None };
    let file = File::open(from).map_err(ImageError::io("open it", from))?;
    let cut = |error: io::Error| ImageError::archive(from, format!("it cannot be read: {error}"));
    let headers = Cell::new(Some(HEADERS_BYTES_MAX));
    let mut source = Tail(Headers(format::source(file, packing, |count| progress.add(count))?, &headers), 0);
    let mut archive = Archive::new(&mut source);
    let mut entries = archive.entries().map_err(cut)?;
    loop {
        // The library holds headers in memory as a whole, whatever size they claim. Only headers
        // are read here.
        headers.set(Some(HEADERS_BYTES_MAX));
        let entry = entries.next();
        headers.set(None);
        let Some(entry) = entry else { break };
        let mut entry = entry.map_err(cut)?;
        let path = entry.path_bytes().into_owned();
        let (header, mut attributes) = (entry.header(), Vec::new());
        let numbers = (|| Ok((header.mode()?, header.uid()?, header.gid()?, header.mtime()?)))();
        let (mode, user, group, seconds) = numbers.map_err(cut)?;
        let number = |id: u64| u32::try_from(id).map_err(|_| cut(io::Error::other("an owner's number is too large")));
        let mut meta = Meta {
            mode: mode & 0o7777,
            owner: Some((number(user)?, number(group)?)),
            // GNU tar stores times before 1970 as negative numbers in the same bits.
            modified: (seconds as i64, 0),
            attributes: Vec::new(),
        };
        let kind = header.entry_type();
        extended(&mut entry, &mut meta.modified, &mut attributes).map_err(cut)?;
        meta.attributes = attributes;
        let link = entry.link_name_bytes().map(|name| name.into_owned()).unwrap_or_default();
        match kind {
            EntryType::Directory => stage.directory(&path, meta)?,
            EntryType::Symlink => stage.link(&path, &link, meta)?,
            EntryType::Link => stage.again(&path, &link)?,
            EntryType::Fifo => stage.fifo(&path, meta)?,
            EntryType::Regular | EntryType::Continuous => stage.file(&path, &mut entry, false, meta)?,
            EntryType::GNUSparse => stage.file(&path, &mut entry, true, meta)?,
            EntryType::XGlobalHeader => {}
            EntryType::Char | EntryType::Block => return Err(stage.unsuitable(&path, "a device")),
            _ => return Err(stage.unsuitable(&path, "of an unknown kind")),
        }
        // The rest of the entry must be read without the limit for headers.
        io::copy(&mut entry, &mut io::sink()).map_err(cut)?;
    }
    io::copy(&mut source, &mut io::sink()).map_err(cut)?;
    // An archive ends with blocks of zeros. Without them it was truncated between two entries.
    match source.1 >= BLOCK_BYTES {
        true => Ok(()),
        false => Err(cut(io::Error::from(io::ErrorKind::UnexpectedEof))),
    }
}

fn extended(
    entry: &mut ::tar::Entry<'_, impl Read>,
    modified: &mut (i64, u32),
    attributes: &mut Vec<Attribute>,
) -> io::Result<()> {
    let Some(all) = entry.pax_extensions()? else { return Ok(()) };
    let mut bytes = 0;
    for one in all {
        let one = one?;
        bytes += one.value_bytes().len() as u64;
        if bytes > EXTENDED_BYTES_MAX {
            return Err(io::Error::other("a name has more than 4 MiB of attributes"));
        }
        let key = one.key_bytes();
        if key == b"mtime" {
            *modified = time(one.value_bytes()).ok_or_else(|| io::Error::other("a time is malformed"))?;
        } else if key.starts_with(b"GNU.sparse.") {
            let why = "this form of files with holes is not supported; use tar with --format=gnu, or without --sparse";
            return Err(io::Error::other(why));
        } else if let Some(name) = key.strip_prefix(ATTRIBUTE) {
            attributes.push((name.to_vec(), one.value_bytes().to_vec()));
        }
    }
    Ok(())
}

/// A reader that fails after a limit, if there is one.
struct Headers<'a, R>(R, &'a Cell<Option<u64>>);

impl<R: Read> Read for Headers<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(left) = self.1.get() else { return self.0.read(buffer) };
        if left == 0 && !buffer.is_empty() {
            return Err(io::Error::other("a name has more than 8 MiB of headers"));
        }
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.0.read(&mut buffer[..most])?;
        self.1.set(Some(left - count as u64));
        Ok(count)
    }
}

/// A reader that counts the zeros at the end.
struct Tail<R>(R, u64);

impl<R: Read> Read for Tail<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(buffer)?;
        let zeros = buffer[..count].iter().rev().take_while(|&&byte| byte == 0).count();
        self.1 = if zeros == count { self.1 + zeros as u64 } else { zeros as u64 };
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back() {
        for at in [(0, 0), (1_700_000_000, 123_456_789), (-1, 500_000_000), (-1, 0), (-5, 1), (0, 1)] {
            assert_eq!(time(decimal(at).as_bytes()), Some(at), "{}", decimal(at));
        }
        assert_eq!(time(b"12.5"), Some((12, 500_000_000)));
        assert_eq!(time(b"-0.25"), Some((-1, 750_000_000)));
        assert_eq!(time(b"x"), None);
    }

    #[test]
    fn a_keyword_counts_itself() {
        let check = |value: &str, expect: &str| {
            let mut to = Vec::new();
            keyword(&mut to, b"k", value.as_bytes());
            assert_eq!(String::from_utf8(to).expect("is text"), expect);
        };
        check("v", "6 k=v\n");
        check("12345", "11 k=12345\n");
        check("1234", "9 k=1234\n");
    }
}
