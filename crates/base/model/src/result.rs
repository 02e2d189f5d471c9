//! ActionResult: what a run left behind, so that it can be put in place again.
//!
//! ```text
//! result   = number exit code, u8 repeatable, number of bytes read from standard input,
//!            number of roots, bytes root*, u8 rewrite of standard output,
//!            u8 rewrite of standard error, streams, number of outputs, output*,
//!            u8 1 if the result has a preprocessed text, [text]
//! text     = number of headers, bytes header* (roots replaced), number of failures,
//!            number µs, u8 1 if the digest is known, [digest]
//! streams  = u8 tag: 0 apart, content stdout, content stderr; 1 one file for both, content
//! output   = bytes path (root replaced), kind, modified
//! kind     = u8 tag:
//!            1 file       u8 placement, number mode, u8 mode rule, u8 rewrite, content
//!            2 link       bytes target
//!            3 directory  number mode, u8 mode rule
//!            4 removed
//! modified = u8 tag: 0 when written; 1 as a file, bytes path (root replaced);
//!            2 at, number nanoseconds since 1970; 3 when written, as the output before it
//! content  = u8 tag: 0 bytes inline; 1 digest, number size
//! ```
//! Unaware of: how outputs are put in place (`store`), how bytes are rewritten (`relocate`).

use crate::{Blob, DecodeError, Digest, Reader, Rewrite, Writer};

/// Content of at most this many bytes is stored in the record itself, because that is cheaper than
/// a file of its own (docs/performance.md).
pub const INLINE_BYTES_MAX: usize = 4096;
const PATH_BYTES_MAX: u64 = 64 << 10;
/// The maximum number of roots in a record. [`crate::Roots`] has fewer.
const ROOTS_MAX: u64 = 255;
/// The maximum number of headers in a [`PreprocessedText`].
pub const CHANGING_HEADERS_MAX: usize = 64;

/// The content of a file or of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// The bytes themselves.
    Inline(&'a [u8]),
    /// The name of the bytes in the content-addressed store.
    Blob(Blob),
}

/// The tool's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams<T> {
    /// Standard output and standard error went to different places.
    Apart {
        /// Standard output.
        stdout: T,
        /// Standard error.
        stderr: T,
    },
    /// Standard output and standard error went to one file, so their order is kept.
    Together(T),
}

impl<T> Streams<T> {
    /// Returns the messages in another form.
    pub fn map<'s, U>(&'s self, form: impl Fn(&'s T) -> U) -> Streams<U> {
        match self {
            Streams::Apart { stdout, stderr } => Streams::Apart { stdout: form(stdout), stderr: form(stderr) },
            Streams::Together(both) => Streams::Together(form(both)),
        }
    }

    /// Returns standard output, then standard error, or both in one.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let (first, second) = match self {
            Streams::Apart { stdout, stderr } => (stdout, Some(stderr)),
            Streams::Together(both) => (both, None),
        };
        std::iter::once(first).chain(second)
    }
}

/// The permission bits of an output, and how they are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMode {
    /// The permission bits that the tool asked for.
    pub bits: u32,
    /// How the bits are applied.
    pub rule: ModeRule,
}

crate::listed! {
    /// How the mode that was asked for becomes the mode of the file.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ModeRule {
        /// The mode of a new file. The caller's umask is applied.
        Masked,
        /// The mode of a new file without the caller's umask, because the tool had set another
        /// umask.
        Exact,
        /// The mode is set at the end, also if the file existed before.
        Set,
        /// The mode of a new file as with `Masked`. Then execute bits are added as far as the umask
        /// allows, also if the file existed before. Linkers do so.
        Executable,
    }
}

crate::listed! {
    /// How the tool put a file in place. This decides what happens to a file that is already there.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Placement {
        /// Opened with `O_TRUNC`: symbolic links are followed, and the mode and the hard links of
        /// the existing file stay.
        Truncate,
        /// A non-empty regular file, or a symbolic link to one, is unlinked first and a new file is
        /// made. Anything else is opened and written.
        Replace,
        /// A new file is renamed over whatever was there.
        Rename,
        /// An existing file or symbolic link is unlinked first, even if it is empty.
        Unlink,
    }
}

/// One thing that a run left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputKind<'a> {
    /// A regular file.
    File {
        /// How the file is put in place.
        placement: Placement,
        /// The mode of the file.
        mode: FileMode,
        /// How paths in the content are rewritten in another place.
        rewrite: Rewrite,
        /// The content.
        content: Content<'a>,
    },
    /// A symbolic link to this target.
    Link(&'a [u8]),
    /// A directory.
    Directory(FileMode),
    /// Something that was there and that the run removed.
    Removed,
}

/// An output and its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output<'a> {
    /// The path as the tool used it, with its root replaced.
    pub path: &'a [u8],
    /// The kind of output, with its content.
    pub kind: OutputKind<'a>,
    /// The mtime that the output gets.
    pub modified: Modified<&'a [u8]>,
}

/// The mtime of an output. Some commands set it, for example `cp -p`, `touch -r` and `tar`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Modified<P> {
    /// The time when it is written or put in place.
    Written,
    /// Also that time, and it is equal to that of the last output before with such a time: both
    /// were written in one tick of the clock, or the command copied the mtime of one to the other.
    WrittenWithPrevious,
    /// The mtime of this file: a path that the command accessed, with its root replaced.
    As(P),
    /// A fixed time, in nanoseconds since 1970.
    At(u64),
}

impl<'a> Output<'a> {
    /// Makes an output whose mtime is the time when it is put in place.
    pub fn new(path: &'a [u8], kind: OutputKind<'a>) -> Self {
        Output { path, kind, modified: Modified::Written }
    }
}

/// The preprocessed text of a compile, for a compile in which only some headers have other content:
/// if it has the same text, it has the same result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreprocessedText<'a> {
    /// The headers that may have other content, with roots replaced. Each had another content in an
    /// earlier run that was otherwise the same.
    pub headers: Vec<&'a [u8]>,
    /// How often in a row the text differed if only headers had changed.
    pub failures: u64,
    /// How long the preprocessor ran, in microseconds.
    pub took_us: u64,
    /// The digest of the text, or `None` if the preprocessor did not run.
    pub digest: Option<Digest>,
}

/// The result of a run: exit code, outputs and messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionResult<'a> {
    /// The exit code.
    pub exit_code: u8,
    /// True if the tool could run again on all or some of its outputs. That is so if it removed
    /// nothing, made no directory and changed nothing that it had read.
    pub repeatable: bool,
    /// The number of bytes that the tool read from standard input.
    pub consumed_bytes: u64,
    /// The roots of the place where it was made. Empty unless something in the result contains one.
    pub origin: Vec<&'a [u8]>,
    /// How paths in standard output and in standard error are rewritten in another place.
    pub messages: [Rewrite; 2],
    /// The messages on standard output and standard error.
    pub streams: Streams<Content<'a>>,
    /// The outputs in the order in which they are put in place.
    pub outputs: Vec<Output<'a>>,
    /// The preprocessed text, if headers of the compile have changed before.
    pub text: Option<PreprocessedText<'a>>,
}

impl<'a> ActionResult<'a> {
    /// Makes the result of a command that succeeded, wrote these messages and left no outputs.
    pub fn of(streams: Streams<Content<'a>>) -> Self {
        ActionResult {
            exit_code: 0,
            repeatable: true,
            consumed_bytes: 0,
            origin: Vec::new(),
            messages: [Rewrite::None; 2],
            streams,
            outputs: Vec::new(),
            text: None,
        }
    }

    /// Returns true if some part of the result is rewritten for another place.
    pub fn is_rewritten(&self) -> bool {
        let file =
            |output: &Output| matches!(output.kind, OutputKind::File { rewrite, .. } if rewrite != Rewrite::None);
        self.messages.iter().any(|rewrite| *rewrite != Rewrite::None) || self.outputs.iter().any(file)
    }

    /// Returns the size of all files and messages.
    pub fn size_bytes(&self) -> u64 {
        self.contents().map(|content| content.size_bytes()).sum()
    }

    /// Appends the encoded result.
    pub fn encode(&self, w: &mut Writer) {
        w.number(u64::from(self.exit_code));
        w.u8(self.repeatable.into());
        w.number(self.consumed_bytes);
        w.number(self.origin.len() as u64);
        self.origin.iter().for_each(|root| w.bytes(root));
        self.messages.iter().for_each(|rewrite| w.u8(*rewrite as u8));
        w.u8(matches!(self.streams, Streams::Together(_)).into());
        self.streams.iter().for_each(|content| content.encode(w));
        w.number(self.outputs.len() as u64);
        for output in &self.outputs {
            w.bytes(output.path);
            output.kind.encode(w);
            output.modified.encode(w);
        }
        w.u8(self.text.is_some().into());
        if let Some(text) = &self.text {
            text.encode(w);
        }
    }

    /// Reads a result.
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let exit_code = r.number_up_to(u8::MAX.into())? as u8;
        let repeatable = r.flag()?;
        let consumed_bytes = r.number()?;
        let origin = (0..r.count_up_to(ROOTS_MAX)?).map(|_| r.bytes(PATH_BYTES_MAX)).collect::<Result<_, _>>()?;
        let messages = [r.one_of(Rewrite::ALL)?, r.one_of(Rewrite::ALL)?];
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
        let text = if r.flag()? { Some(PreprocessedText::decode(r)?) } else { None };
        Ok(ActionResult { exit_code, repeatable, consumed_bytes, origin, messages, streams, outputs, text })
    }

    /// Returns every blob that the result needs.
    pub fn blobs(&self) -> impl Iterator<Item = Blob> {
        self.contents().filter_map(|content| if let Content::Blob(blob) = content { Some(blob) } else { None })
    }

    /// Returns the contents of messages and files.
    fn contents(&self) -> impl Iterator<Item = Content<'a>> {
        let files = self.outputs.iter().filter_map(|output| match output.kind {
            OutputKind::File { content, .. } => Some(content),
            _ => None,
        });
        self.streams.iter().copied().chain(files)
    }
}

impl<'a> PreprocessedText<'a> {
    fn encode(&self, w: &mut Writer) {
        w.number(self.headers.len() as u64);
        self.headers.iter().for_each(|header| w.bytes(header));
        w.number(self.failures);
        w.number(self.took_us);
        w.u8(self.digest.is_some().into());
        if let Some(digest) = &self.digest {
            w.digest(digest);
        }
    }

    #[cold]
    fn decode(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let count = r.count_up_to(CHANGING_HEADERS_MAX as u64)?;
        let headers = (0..count).map(|_| r.bytes(PATH_BYTES_MAX)).collect::<Result<_, _>>()?;
        let (failures, took_us) = (r.number()?, r.number()?);
        let digest = if r.flag()? { Some(r.digest()?) } else { None };
        Ok(PreprocessedText { headers, failures, took_us, digest })
    }
}

impl<'a> Content<'a> {
    /// Content of no bytes.
    pub const EMPTY: Content<'static> = Content::Inline(&[]);

    /// Returns the number of bytes.
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
                w.blob(blob);
            }
        }
    }

    fn decode(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match r.u8()? {
            0 => Ok(Content::Inline(r.bytes(INLINE_BYTES_MAX as u64)?)),
            1 => Ok(Content::Blob(r.blob(u64::MAX)?)),
            tag => Err(r.unknown_tag(tag)),
        }
    }
}

impl FileMode {
    fn encode(self, w: &mut Writer) {
        w.number(u64::from(self.bits));
        w.u8(self.rule as u8);
    }

    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(FileMode { bits: r.number_up_to(0o7777)? as u32, rule: r.one_of(ModeRule::ALL)? })
    }
}

impl<'a> OutputKind<'a> {
    fn encode(&self, w: &mut Writer) {
        match self {
            OutputKind::File { placement, mode, rewrite, content } => {
                w.u8(1);
                w.u8(*placement as u8);
                mode.encode(w);
                w.u8(*rewrite as u8);
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
            1 => OutputKind::File {
                placement: r.one_of(Placement::ALL)?,
                mode: FileMode::decode(r)?,
                rewrite: r.one_of(Rewrite::ALL)?,
                content: Content::decode(r)?,
            },
            2 => OutputKind::Link(r.bytes(PATH_BYTES_MAX)?),
            3 => OutputKind::Directory(FileMode::decode(r)?),
            4 => OutputKind::Removed,
            tag => return Err(r.unknown_tag(tag)),
        })
    }
}

impl<P: PartialEq> Modified<P> {
    /// Returns true if the command itself set the mtime.
    pub fn is_set(&self) -> bool {
        !matches!(self, Modified::Written | Modified::WrittenWithPrevious)
    }

    /// Returns true if two runs of a command may leave these mtimes on the same output. Which files
    /// are written in one tick of the clock differs in each run.
    pub fn is_alike(&self, other: &Modified<P>) -> bool {
        self == other || !self.is_set() && !other.is_set()
    }
}

impl Modified<Vec<u8>> {
    /// Returns the mtime with a borrowed path.
    pub fn borrowed(&self) -> Modified<&[u8]> {
        match self {
            Modified::Written => Modified::Written,
            Modified::WrittenWithPrevious => Modified::WrittenWithPrevious,
            Modified::As(path) => Modified::As(path),
            Modified::At(nanoseconds) => Modified::At(*nanoseconds),
        }
    }
}

impl<'a> Modified<&'a [u8]> {
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
            Modified::WrittenWithPrevious => w.u8(3),
        }
    }

    fn decode(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match r.u8()? {
            0 => Modified::Written,
            1 => Modified::As(r.bytes(PATH_BYTES_MAX)?),
            2 => Modified::At(r.number()?),
            3 => Modified::WrittenWithPrevious,
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
            outputs[3].modified = Modified::WrittenWithPrevious;
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
                text: Some(PreprocessedText {
                    headers: vec![b"\0\x01/x.h"],
                    failures: 2,
                    took_us: 300,
                    digest: matches!(streams, Streams::Together(_)).then(|| Digest::of(b"text")),
                }),
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
