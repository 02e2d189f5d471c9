//! ActionResult: what a run left behind, so that it can be put there again.
//!
//! ```text
//! result  = number exit code, u8 repeatable, number of bytes read from standard input, number of roots, bytes root*,
//!           u8 rewrite of standard output, u8 rewrite of standard error, streams, number of outputs, output*
//! streams = u8 tag: 0 apart, content stdout, content stderr; 1 one file for both, content
//! output  = bytes path (root replaced), kind, modified
//! kind    = u8 tag:
//!           1 file       u8 placement, number mode, u8 mode rule, u8 rewrite, content
//!           2 link       bytes target
//!           3 directory  number mode, u8 mode rule
//!           4 removed
//! modified = u8 tag: 0 as it is written; 1 as a file, bytes path (root replaced); 2 at, number nanoseconds since 1970
//! content = u8 tag: 0 bytes inline; 1 digest, number size
//! ```

use crate::{Blob, DecodeError, Reader, Rewrite, Writer};

/// Content of at most this many bytes stands in the record itself: cheaper than a file of its own
/// (docs/performance.md).
pub const INLINE_BYTES_MAX: usize = 4096;
const PATH_BYTES_MAX: u64 = 64 << 10;
/// As many as [`crate::Roots`] numbers.
const ROOTS_MAX: usize = 255;

/// Some bytes, in the record or by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// The bytes themselves.
    Inline(&'a [u8]),
    /// In the content-addressed store.
    Blob(Blob),
}

/// What the tool wrote for its caller to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams<'a> {
    /// Standard output and standard error went to different places.
    Apart {
        /// Standard output.
        stdout: Content<'a>,
        /// Standard error.
        stderr: Content<'a>,
    },
    /// They were one file, so that their order is kept.
    Together(Content<'a>),
}

/// Permission bits of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMode {
    /// The bits, as asked for.
    pub bits: u32,
    /// What becomes of them.
    pub rule: ModeRule,
}

/// How the mode that was asked for becomes the mode of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeRule {
    /// A new file's; the caller's umask takes bits away.
    Masked,
    /// A new file's, whatever the umask: the tool had set another one.
    Exact,
    /// Set at the end, on a file that was there before as well.
    Set,
    /// A new file's as by `Masked`; then the right to execute is added where the umask allows, on a file that was there
    /// before as well. Linkers do so.
    Executable,
}

impl ModeRule {
    const ALL: [ModeRule; 4] = [ModeRule::Masked, ModeRule::Exact, ModeRule::Set, ModeRule::Executable];
}

/// How the tool put a file where it is, which decides what happens to one that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Opened and truncated: written through links, the mode and other names of the file stay.
    Truncate,
    /// A file with bytes in it, or a link to one, is unlinked first and made anew; anything else is written through.
    Replace,
    /// Renamed over whatever was there.
    Rename,
    /// A file or a link is unlinked first, whatever is in it.
    Unlink,
}

/// One thing a run left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputKind<'a> {
    /// A regular file.
    File {
        /// Over what, and how.
        placement: Placement,
        /// Its mode.
        mode: FileMode,
        /// What becomes of paths in it elsewhere.
        rewrite: Rewrite,
        /// Its bytes.
        content: Content<'a>,
    },
    /// A symbolic link to this target.
    Link(&'a [u8]),
    /// A directory.
    Directory(FileMode),
    /// Something that was there and is no more.
    Removed,
}

/// An output and where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output<'a> {
    /// Its path as the tool used it, root replaced.
    pub path: &'a [u8],
    /// What it is.
    pub kind: OutputKind<'a>,
    /// When it was modified, as who looks at it is to see it.
    pub modified: Modified<'a>,
}

/// When an output was modified. A command may say so itself, as `cp -p`, `touch -r` and `tar` do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Modified<'a> {
    /// When it was written, or put in place.
    Written,
    /// When this file was: a path that the command looked at, root replaced.
    As(&'a [u8]),
    /// Then, in nanoseconds since 1970.
    At(u64),
}

impl<'a> Output<'a> {
    /// One whose time is that of being put in place.
    pub fn new(path: &'a [u8], kind: OutputKind<'a>) -> Self {
        Output { path, kind, modified: Modified::Written }
    }
}

/// Exit code, outputs, stdout, stderr.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionResult<'a> {
    /// The exit code.
    pub exit_code: u8,
    /// The tool could run again on what it left, half of it in place or all: it neither removed, nor made a directory,
    /// nor changed what it had read.
    pub repeatable: bool,
    /// How much it took from standard input.
    pub consumed_bytes: u64,
    /// The roots of the place where it was made, where something in it holds one.
    pub origin: Vec<&'a [u8]>,
    /// What becomes of paths in standard output and standard error elsewhere.
    pub messages: [Rewrite; 2],
    /// Standard output and standard error.
    pub streams: Streams<'a>,
    /// In the order in which they are put in place.
    pub outputs: Vec<Output<'a>>,
}

impl<'a> ActionResult<'a> {
    /// That of a command which succeeded, said this and left nothing.
    pub fn of(streams: Streams<'a>) -> Self {
        ActionResult {
            exit_code: 0,
            repeatable: true,
            consumed_bytes: 0,
            origin: Vec::new(),
            messages: [Rewrite::None; 2],
            streams,
            outputs: Vec::new(),
        }
    }

    /// Whether something in it is written again for another place.
    pub fn is_rewritten(&self) -> bool {
        let file =
            |output: &Output| matches!(output.kind, OutputKind::File { rewrite, .. } if rewrite != Rewrite::None);
        self.messages.iter().any(|rewrite| *rewrite != Rewrite::None) || self.outputs.iter().any(file)
    }

    /// Append the result's bytes.
    pub fn encode(&self, w: &mut Writer) {
        w.number(u64::from(self.exit_code));
        w.u8(self.repeatable.into());
        w.number(self.consumed_bytes);
        w.number(self.origin.len() as u64);
        self.origin.iter().for_each(|root| w.bytes(root));
        self.messages.iter().for_each(|rewrite| w.u8(rewrite.code()));
        match self.streams {
            Streams::Apart { stdout, stderr } => {
                w.u8(0);
                stdout.encode(w);
                stderr.encode(w);
            }
            Streams::Together(both) => {
                w.u8(1);
                both.encode(w);
            }
        }
        w.number(self.outputs.len() as u64);
        for output in &self.outputs {
            w.bytes(output.path);
            output.kind.encode(w);
            output.modified.encode(w);
        }
    }

    /// Read a result.
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let at = r.position();
        let exit_code = u8::try_from(r.number()?).map_err(|_| DecodeError::Limit { limit: 255, at })?;
        let repeatable = r.flag()?;
        let consumed_bytes = r.number()?;
        let at = r.position();
        let count = r.count()?;
        if count > ROOTS_MAX {
            return Err(DecodeError::Limit { limit: ROOTS_MAX as u64, at });
        }
        let origin = (0..count).map(|_| r.bytes(PATH_BYTES_MAX)).collect::<Result<_, _>>()?;
        let messages = [rewrite(r)?, rewrite(r)?];
        let streams = match r.u8()? {
            0 => Streams::Apart { stdout: Content::decode(r)?, stderr: Content::decode(r)? },
            1 => Streams::Together(Content::decode(r)?),
            tag => return Err(r.unknown_tag(tag)),
        };
        let mut outputs = Vec::new();
        for _ in 0..r.count()? {
            let (path, kind) = (r.bytes(PATH_BYTES_MAX)?, OutputKind::decode(r)?);
            outputs.push(Output { path, kind, modified: Modified::decode(r)? });
        }
        Ok(ActionResult { exit_code, repeatable, consumed_bytes, origin, messages, streams, outputs })
    }

    /// Every blob that the result needs.
    pub fn blobs(&self) -> impl Iterator<Item = Blob> {
        let streams = match self.streams {
            Streams::Apart { stdout, stderr } => [Some(stdout), Some(stderr)],
            Streams::Together(both) => [Some(both), None],
        };
        let files = self.outputs.iter().filter_map(|output| match output.kind {
            OutputKind::File { content, .. } => Some(content),
            _ => None,
        });
        let blob = |content| if let Content::Blob(blob) = content { Some(blob) } else { None };
        streams.into_iter().flatten().chain(files).filter_map(blob)
    }
}

impl<'a> Content<'a> {
    /// No bytes at all.
    pub const EMPTY: Content<'static> = Content::Inline(&[]);

    /// Number of bytes.
    pub fn size_bytes(&self) -> u64 {
        match self {
            Content::Inline(bytes) => bytes.len() as u64,
            Content::Blob(blob) => blob.size_bytes,
        }
    }

    fn encode(&self, w: &mut Writer) {
        match self {
            Content::Inline(bytes) => {
                w.u8(0);
                w.bytes(bytes);
            }
            Content::Blob(blob) => {
                w.u8(1);
                w.digest(&blob.digest);
                w.number(blob.size_bytes);
            }
        }
    }

    fn decode(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match r.u8()? {
            0 => Ok(Content::Inline(r.bytes(INLINE_BYTES_MAX as u64)?)),
            1 => Ok(Content::Blob(Blob { digest: r.digest()?, size_bytes: r.number()? })),
            tag => Err(r.unknown_tag(tag)),
        }
    }
}

fn rewrite(r: &mut Reader) -> Result<Rewrite, DecodeError> {
    let code = r.u8()?;
    Rewrite::from_code(code).ok_or(r.unknown_tag(code))
}

impl FileMode {
    fn encode(self, w: &mut Writer) {
        w.number(u64::from(self.bits));
        w.u8(ModeRule::ALL.iter().position(|rule| *rule == self.rule).unwrap_or_default() as u8);
    }

    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let at = r.position();
        let bits = r.number()?;
        if bits > 0o7777 {
            return Err(DecodeError::Limit { limit: 0o7777, at });
        }
        let tag = r.u8()?;
        let rule = *ModeRule::ALL.get(usize::from(tag)).ok_or(r.unknown_tag(tag))?;
        Ok(FileMode { bits: bits as u32, rule })
    }
}

impl<'a> OutputKind<'a> {
    fn encode(&self, w: &mut Writer) {
        match self {
            OutputKind::File { placement, mode, rewrite, content } => {
                w.u8(1);
                w.u8(match placement {
                    Placement::Truncate => 0,
                    Placement::Replace => 1,
                    Placement::Rename => 2,
                    Placement::Unlink => 3,
                });
                mode.encode(w);
                w.u8(rewrite.code());
                content.encode(w);
            }
            OutputKind::Link(target) => {
                w.u8(2);
                w.bytes(target);
            }
            OutputKind::Directory(mode) => {
                w.u8(3);
                mode.encode(w);
            }
            OutputKind::Removed => w.u8(4),
        }
    }

    fn decode(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match r.u8()? {
            1 => {
                let placement = match r.u8()? {
                    0 => Placement::Truncate,
                    1 => Placement::Replace,
                    2 => Placement::Rename,
                    3 => Placement::Unlink,
                    tag => return Err(r.unknown_tag(tag)),
                };
                let mode = FileMode::decode(r)?;
                OutputKind::File { placement, mode, rewrite: rewrite(r)?, content: Content::decode(r)? }
            }
            2 => OutputKind::Link(r.bytes(PATH_BYTES_MAX)?),
            3 => OutputKind::Directory(FileMode::decode(r)?),
            4 => OutputKind::Removed,
            tag => return Err(r.unknown_tag(tag)),
        })
    }
}

impl<'a> Modified<'a> {
    fn encode(&self, w: &mut Writer) {
        match self {
            Modified::Written => w.u8(0),
            Modified::As(path) => {
                w.u8(1);
                w.bytes(path);
            }
            Modified::At(nanoseconds) => {
                w.u8(2);
                w.number(*nanoseconds);
            }
        }
    }

    fn decode(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match r.u8()? {
            0 => Modified::Written,
            1 => Modified::As(r.bytes(PATH_BYTES_MAX)?),
            2 => Modified::At(r.number()?),
            tag => return Err(r.unknown_tag(tag)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Digest;

    #[test]
    fn every_output_there_and_back() {
        let mode = FileMode { bits: 0o666, rule: ModeRule::Executable };
        let blob = Blob { digest: Digest::of(b"o"), size_bytes: 1 };
        let file = |placement, content| OutputKind::File { placement, mode, rewrite: Rewrite::Object, content };
        let kinds = [
            file(Placement::Truncate, Content::Inline(b"x")),
            file(Placement::Replace, Content::Blob(blob)),
            file(Placement::Rename, Content::EMPTY),
            file(Placement::Unlink, Content::EMPTY),
            OutputKind::Link(b"to"),
            OutputKind::Directory(FileMode { bits: 0o700, rule: ModeRule::Set }),
            OutputKind::Removed,
        ];
        for streams in [
            Streams::Apart { stdout: Content::EMPTY, stderr: Content::Inline(b"warning") },
            Streams::Together(Content::Blob(blob)),
        ] {
            let mut outputs: Vec<_> = kinds.iter().map(|&kind| Output::new(b"p", kind)).collect();
            outputs[0].modified = Modified::As(b"\0\x01/from");
            outputs[1].modified = Modified::At(1_234_567_890_123_456_789);
            let messages = [Rewrite::GccDepfile, Rewrite::Text];
            let origin = vec![&b"/w"[..]];
            let result = ActionResult {
                exit_code: 3,
                repeatable: true,
                consumed_bytes: 70_000,
                origin,
                messages,
                streams,
                outputs,
            };
            let mut w = Writer::default();
            result.encode(&mut w);
            assert_eq!(ActionResult::decode(&mut Reader::new(&w.bytes)), Ok(result));
            for cut in 0..w.bytes.len() {
                assert!(ActionResult::decode(&mut Reader::new(&w.bytes[..cut])).is_err(), "cut at {cut}");
            }
        }
    }
}
