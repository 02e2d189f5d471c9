//! Stores the outputs and messages of a run: small ones inside the record, others as blobs.
//!
//! Unaware of: what the run has read, whether the run may be recorded for other reasons.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;

use super::mtimes::Mtime;
use super::not_recorded::NotRecorded;
use crate::recorder::Recorder;
use larder_model::path::parent;
use larder_model::{
    Blob, Change, Content, FileMode, INLINE_BYTES_MAX, Identity, ModeRule, Output, OutputKind, Placement, Rewrite,
    Streams, Unrecorded,
};
use larder_portability::SEARCHED_BYTES_MAX;
use larder_spawn::Written;
use larder_store::StatCache;
use larder_sys::Opening;

/// The bytes of an output or a message.
pub(crate) enum StoredContent {
    Inline(Vec<u8>),
    /// A blob in the store, with its bytes if they fit into memory.
    Blob(Blob, Option<Vec<u8>>),
}

/// The bytes of blobs that stay in memory, in total. They are searched later, for a program of Rust
/// six times, and would have to be read and verified again each time. The tool has ended by now, and
/// had more in memory.
const ROOM_BYTES: u64 = 64 << 20;

/// Says what was at a path when the run ended.
pub(crate) enum StoredKind {
    File {
        placement: Placement,
        mode: FileMode,
        rewrite: Rewrite,
        content: StoredContent,
        modified_ns: i64,
    },
    /// A symbolic link with this target.
    Link(Vec<u8>),
    Directory(FileMode),
    Removed,
}

/// An output whose content is stored.
pub(crate) struct StoredOutput {
    /// The path, with roots replaced.
    pub(crate) path: Vec<u8>,
    pub(crate) kind: StoredKind,
    pub(crate) modified: Mtime,
}

/// The messages on stdout and stderr.
pub(crate) type StoredStreams = Streams<StoredContent>;

/// Stores the outputs and messages of one run.
pub(crate) struct OutputStorer<'a> {
    pub(crate) recorder: &'a Recorder<'a>,
    /// The number of bytes by which the store grew.
    pub(crate) grown: u64,
    /// How many more bytes of blobs may stay in memory.
    room_bytes: u64,
    /// The files that the tool wrote, as they were when it closed them. `None` if the observer does
    /// not see that.
    pub(crate) closed: Option<&'a [Identity]>,
    /// True if the tool called `umask` and may have changed it. Modes are then recorded as they are
    /// found.
    pub(crate) umask_was_set: bool,
    /// True if the command set owners or attributes of files that it made.
    pub(crate) owners_were_set: bool,
}

impl<'a> OutputStorer<'a> {
    pub(crate) fn new(
        recorder: &'a Recorder<'a>,
        closed: Option<&'a [Identity]>,
        umask_was_set: bool,
        owners_were_set: bool,
    ) -> OutputStorer<'a> {
        OutputStorer { recorder, grown: 0, room_bytes: ROOM_BYTES, closed, umask_was_set, owners_were_set }
    }

    /// Stores what the run left at `path`. Returns an error if a hit could not restore it, or if it
    /// has changed since the tool left it.
    pub(crate) fn output(&mut self, path: &[u8], change: &Change) -> Result<StoredKind, NotRecorded> {
        let lost = |why| NotRecorded::Because(why, path.to_vec());
        if self.owners_were_set && *change != Change::Removed && !has_usual_owner(path) {
            return Err(lost(Unrecorded::OutputSpecial));
        }
        Ok(match change {
            Change::Removed => StoredKind::Removed,
            Change::Directory(mode) => {
                let stat = larder_sys::lstat(path).map_err(|_| lost(Unrecorded::OutputLost))?;
                // `cp` sets a directory's mode by an access control list that says no more than the
                // mode does.
                let is_given = self.owners_were_set && stat.mode != mode.bits & !larder_sys::umask();
                StoredKind::Directory(self.mode(*mode, is_given, &stat))
            }
            Change::Link => StoredKind::Link(larder_sys::link_target(path).map_err(|_| lost(Unrecorded::OutputLost))?),
            Change::File { placement, mode, new, closed_when_complete, attributed, .. } => {
                if self.umask_was_set && mode.rule == ModeRule::Masked && !new {
                    // The file existed before, so we do not know with which mode the tool would
                    // create it.
                    return Err(lost(Unrecorded::UpdatesFile));
                }
                // `stat` first, because opening a device may have an effect.
                let stat = larder_sys::stat(path).map_err(|_| lost(Unrecorded::OutputLost))?;
                // No record may create a set-user-id file, because it would give away the rights of
                // the user that has the hit.
                if stat.kind != larder_sys::FileType::File || (stat.mode | mode.bits) & 0o6000 != 0 {
                    return Err(lost(Unrecorded::OutputSpecial));
                }
                let mut file = larder_sys::open(path, Opening::Read).map_err(|_| lost(Unrecorded::OutputLost))?;
                let own = file.try_clone().map_err(|_| lost(Unrecorded::OutputLost))?;
                let content = self.content(&mut file, stat.size_bytes, Some(&own))?;
                let same = larder_sys::fstat(&file).is_ok_and(|after| after == stat);
                if !same || *closed_when_complete && !self.is_complete(&file, &stat) {
                    return Err(lost(Unrecorded::OutputLost));
                }
                StoredKind::File {
                    placement: *placement,
                    mode: self.mode(*mode, *attributed, &stat),
                    rewrite: Rewrite::None,
                    content,
                    modified_ns: stat.modified_ns,
                }
            }
        })
    }

    /// Returns the mode to record. `is_given` is true if the tool set a mode or owner of its own.
    fn mode(&self, asked: FileMode, is_given: bool, stat: &larder_sys::Stat) -> FileMode {
        match asked.rule {
            ModeRule::Masked if self.umask_was_set => FileMode { bits: stat.mode, rule: ModeRule::Exact },
            ModeRule::Masked | ModeRule::Exact if is_given => FileMode { bits: stat.mode, rule: ModeRule::Set },
            _ => asked,
        }
    }

    /// Returns true if the tool has finished writing the file. If the tool closed it, it must still
    /// be as it was then. A linker leaves its map (`-Map`) open until it exits. Such a file is
    /// complete if no other process has it open for writing.
    fn is_complete(&self, file: &File, stat: &larder_sys::Stat) -> bool {
        let is_it = |id: &larder_model::Identity| id.file_id() == stat.file_id();
        let was_closed = self.closed.is_none_or(|closed| closed.iter().any(is_it));
        if was_closed { self.is_as_it_was_closed(stat) } else { !larder_sys::has_writers(file) }
    }

    /// Returns true if the file is still as the tool closed it. If not, another run may be writing
    /// the same output.
    fn is_as_it_was_closed(&self, stat: &larder_sys::Stat) -> bool {
        self.closed.is_none_or(|closed| {
            closed.iter().any(|id| {
                (id.device, id.inode, id.size_bytes, id.modified_ns)
                    == (stat.device, stat.inode, stat.size_bytes, stat.modified_ns)
            })
        })
    }

    /// Stores `size_bytes` bytes of `source`. `file` is the file that they come from, if any.
    fn content(
        &mut self,
        source: &mut impl Read,
        size_bytes: u64,
        file: Option<&File>,
    ) -> Result<StoredContent, NotRecorded> {
        let is_inline = size_bytes <= INLINE_BYTES_MAX as u64;
        let bytes = if is_inline || size_bytes <= self.room_bytes {
            let mut bytes = Vec::with_capacity(size_bytes as usize + 1);
            let read = source.take(size_bytes + 1).read_to_end(&mut bytes);
            if read.is_err() || bytes.len() as u64 != size_bytes {
                return Err(NotRecorded::Because(Unrecorded::OutputLost, Vec::new()));
            }
            if is_inline {
                return Ok(StoredContent::Inline(bytes));
            }
            self.room_bytes -= size_bytes;
            Some(bytes)
        } else {
            None
        };
        let blob = match &bytes {
            Some(bytes) => self.recorder.put_blob(&mut bytes.as_slice(), file)?,
            None => self.recorder.put_blob(source, file)?,
        };
        self.grown += blob.size_bytes;
        Ok(StoredContent::Blob(blob, bytes))
    }

    /// Stores the messages.
    pub(crate) fn streams(&mut self, written: &Written) -> Result<StoredStreams, NotRecorded> {
        let mut keep = |bytes: &Vec<u8>| self.content(&mut bytes.as_slice(), bytes.len() as u64, None);
        Ok(match written {
            Written::Apart { stdout, stderr } => Streams::Apart { stdout: keep(stdout)?, stderr: keep(stderr)? },
            Written::Together(both) => Streams::Together(keep(both)?),
        })
    }
}

/// Notes which outputs have the mtime of the output before: both were written in one tick of the
/// clock, or the command copied the mtime. `outputs` are in the order of their mtimes. If a hit gave
/// such outputs different mtimes, the next `make` would find another order than after the recorded
/// run, so that no record of it would match.
pub(crate) fn note_ticks(outputs: &mut [StoredOutput]) {
    let mut before = None;
    for output in outputs.iter_mut().filter(|output| output.modified == Mtime::Written) {
        let StoredKind::File { modified_ns, .. } = output.kind else { continue };
        if before.replace(modified_ns) == Some(modified_ns) {
            output.modified = Mtime::WrittenWithPrevious;
        }
    }
}

/// Returns true if the file has the owner and group of any new file in its directory, and no
/// attributes. A hit could not restore anything else.
fn has_usual_owner(path: &[u8]) -> bool {
    let directory = larder_sys::lstat(parent(path).unwrap_or(path));
    let (Ok(stat), Ok(parent)) = (larder_sys::lstat(path), directory) else { return false };
    // In a directory with the set-group-id bit, new files get the directory's group.
    let group = if parent.mode & 0o2000 != 0 { parent.group } else { larder_sys::effective_group() };
    (stat.owner, stat.group) == (larder_sys::effective_user(), group) && !larder_sys::has_attributes(path)
}

impl StoredContent {
    pub(crate) fn borrowed(&self) -> Content<'_> {
        match self {
            StoredContent::Inline(bytes) => Content::Inline(bytes),
            StoredContent::Blob(blob, _) => Content::Blob(*blob),
        }
    }

    /// Returns the bytes to search, or `None` if there are too many.
    pub(crate) fn searched(&self, recorder: &Recorder, stat_cache: &StatCache) -> Option<Cow<'_, [u8]>> {
        match self {
            StoredContent::Inline(bytes) | StoredContent::Blob(_, Some(bytes)) => Some(Cow::Borrowed(bytes)),
            StoredContent::Blob(blob, None) if blob.size_bytes > SEARCHED_BYTES_MAX => None,
            StoredContent::Blob(..) => recorder.content_bytes(&self.borrowed(), stat_cache).ok().map(Cow::Owned),
        }
    }
}

/// A content that can be searched.
pub(crate) struct Searched<'a> {
    pub(crate) content: &'a StoredContent,
    pub(crate) recorder: &'a Recorder<'a>,
    pub(crate) stat_cache: &'a StatCache,
}

impl larder_portability::Content for Searched<'_> {
    fn bytes(&self) -> Option<Cow<'_, [u8]>> {
        self.content.searched(self.recorder, self.stat_cache)
    }
}

impl StoredOutput {
    /// Returns the content, if the output is a file.
    pub(crate) fn content(&self) -> Option<&StoredContent> {
        if let StoredKind::File { content, .. } = &self.kind { Some(content) } else { None }
    }

    /// Sets the rule by which the file is rewritten for another checkout.
    pub(crate) fn set_rewrite(&mut self, by: Rewrite) {
        if let StoredKind::File { rewrite, .. } = &mut self.kind {
            *rewrite = by;
        }
    }

    pub(crate) fn borrowed(&self) -> Output<'_> {
        let kind = match &self.kind {
            StoredKind::File { placement, mode, rewrite, content, .. } => {
                let (placement, mode, rewrite) = (*placement, *mode, *rewrite);
                OutputKind::File { placement, mode, rewrite, content: content.borrowed() }
            }
            StoredKind::Link(target) => OutputKind::Link(target),
            StoredKind::Directory(mode) => OutputKind::Directory(*mode),
            StoredKind::Removed => OutputKind::Removed,
        };
        Output { path: &self.path, kind, modified: self.modified.borrowed() }
    }
}
