//! What is known about a run when it is decided in which checkouts its result can be used.
//!
//! Unaware of: how that is decided.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use larder_compiler::{Family, Invocation, Naming};
use larder_model::path::{absolute, file_name, without_parents};
use larder_model::{Action, Bound, Carried, Looked, PLACEHOLDER, Roots};
use larder_sys::Opening;
use memchr::memmem;

/// Variables that a compiler and its parts read, but whose values never reach a result: search
/// paths for programs, directories for temporary files, and the working directory.
pub(crate) const NO_NAMES: [&[u8]; 9] =
    [b"PATH", b"LD_LIBRARY_PATH", b"TMPDIR", b"TMP", b"TEMP", b"TEMPDIR", b"PWD", b"OLDPWD", b"HOME"];

/// Outputs larger than this are not searched, in bytes. They count as if they held every text that
/// is searched for.
pub const SEARCHED_BYTES_MAX: u64 = 256 << 20;

/// Why a result can be used only where it was made, or only under a condition: the kind of the
/// limit, and a path, an argument or a text that is the cause.
pub type Limit = (Bound, Vec<u8>);

/// A command, as far as it matters here.
#[derive(Clone, Copy)]
pub struct CommandFacts<'a> {
    /// The family of tools whose rules apply.
    pub family: Family,
    /// The meaning of the arguments.
    pub invocation: &'a Invocation,
    /// Everything that the key covers.
    pub action: &'a Action,
    /// The root paths of this checkout.
    pub roots: &'a Roots,
    /// The bytes on standard input, if they are part of the key.
    pub input: &'a [u8],
}

/// A content of a result.
pub trait Content {
    /// Returns the bytes to search, or `None` if there are too many or they cannot be read.
    fn bytes(&self) -> Option<Cow<'_, [u8]>>;
}

/// An output of a run.
pub struct Output<'a> {
    /// The path, encoded by the roots.
    pub path: &'a [u8],
    /// What is there.
    pub kind: OutputKind<'a>,
}

/// What a run left at a path.
pub enum OutputKind<'a> {
    /// A file.
    File(&'a dyn Content),
    /// A symbolic link to this target.
    Link(&'a [u8]),
    /// A directory, or nothing any more.
    Other,
}

/// What a run left.
pub struct Outcome<'a> {
    /// The outputs.
    pub outputs: &'a [Output<'a>],
    /// The messages: standard output and standard error, or one content for both.
    pub messages: &'a [&'a dyn Content],
}

/// Runs a preprocessor with these arguments. See [`RunFacts::preprocess`].
pub type Preprocess<'a> = dyn Fn(&[Vec<u8>]) -> Option<Vec<u8>> + 'a;

/// What is known about a run when this is decided.
pub struct RunFacts<'a> {
    /// The command that ran.
    pub command: CommandFacts<'a>,
    /// What the arguments of a compiler name. `None` for any other command, and if it is not known.
    pub naming: Option<Naming>,
    /// Runs the compiler's preprocessor with these arguments, and returns its output. Returns
    /// `None` if it failed.
    pub preprocess: &'a Preprocess<'a>,
    /// True if debug information may be rewritten. This is done only if it is exact.
    pub relocates_debug: bool,
    /// The root paths that the inputs hold.
    pub carried: &'a Carried,
    /// The variables that the command read, with their values.
    pub environment: &'a [(Vec<u8>, Option<Vec<u8>>)],
    /// The variables among them that code of the build asked for in the process of a compiler.
    pub asked_by_plugins: &'a [Vec<u8>],
    /// Such code asked for the path of the working directory.
    pub plugins_ask_directory: bool,
    /// Code of the build may have read the command line in rustc's process.
    pub plugins_read_arguments: bool,
    /// The paths that the command read.
    pub looked: &'a [(Vec<u8>, Looked)],
    /// True if a program ran that is not a known part of a compiler.
    pub foreign_program: bool,
    /// True if gcc's `cc1` or `cc1plus` ran. The name `cc` alone may stand for any compiler.
    pub gcc_ran: bool,
    /// An input with a root path that the assembler itself opened.
    pub assembled: Option<&'a Vec<u8>>,
}

impl Output<'_> {
    /// Returns the content, if the output is a file.
    pub(crate) fn content(&self) -> Option<&dyn Content> {
        if let OutputKind::File(content) = self.kind { Some(content) } else { None }
    }

    /// Returns the path for messages, relative to its root.
    pub(crate) fn shown_path(&self) -> Vec<u8> {
        let Some(rest) = self.path.strip_prefix(&[PLACEHOLDER]) else { return self.path.to_vec() };
        rest[1..].strip_prefix(b"/").unwrap_or(&rest[1..]).to_vec()
    }
}

impl CommandFacts<'_> {
    /// Returns a path of the command line, made absolute.
    pub(crate) fn absolute(&self, path: &[u8]) -> Vec<u8> {
        absolute(&self.action.cwd, path)
    }
}

impl RunFacts<'_> {
    /// Returns the absolute path of a directory that the command names.
    pub(crate) fn directory(&self, named: &[u8]) -> PathBuf {
        PathBuf::from(OsString::from_vec(without_parents(&self.command.absolute(named))))
    }

    pub(crate) fn names_us(&self, text: &[u8]) -> bool {
        self.command.roots.encode_text(text).contains(&PLACEHOLDER)
    }

    /// Returns true if the directory of a prefix map is the beginning of a root path but not all of
    /// it. The map then replaces only a part of the root path, and the rest remains in the result.
    pub(crate) fn is_cut_by(&self, old: &[u8]) -> bool {
        self.command.roots.paths().iter().any(|root| root.starts_with(old) && root != old)
    }

    pub(crate) fn environment_names_us(&self) -> bool {
        let keyed = self.command.action.environment.iter().map(|variable| (&variable.name, Some(&variable.value)));
        let asked = self.environment.iter().map(|(name, value)| (name, value.as_ref()));
        let mut named = keyed.chain(asked).filter(|(name, _)| !NO_NAMES.contains(&name.as_slice()));
        named.any(|(_, value)| value.is_some_and(|value| self.names_us(value)))
    }

    pub(crate) fn roots(&self) -> Vec<&[u8]> {
        self.command.roots.all().collect()
    }
}

/// Returns true for a shared library, by its name (`libc.so.6`) and its first bytes. The
/// preprocessor reads none.
pub(crate) fn is_library(path: &[u8]) -> bool {
    let name = file_name(path);
    let is_version = |rest: &[u8]| rest.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    let is_named = memmem::rfind(name, b".so").is_some_and(|at| is_version(&name[at + 3..]));
    is_named && is_elf(path)
}

/// Returns true for a program, library or object, by its first bytes.
pub(crate) fn is_elf(path: &[u8]) -> bool {
    let mut start = [0; 4];
    let mut read = || larder_sys::open(path, Opening::Read).and_then(|mut file| file.read_exact(&mut start));
    read().is_ok() && start == *b"\x7fELF"
}

/// Returns the bytes of a file that is not too large to be searched.
pub(crate) fn whole(path: &[u8]) -> Option<Vec<u8>> {
    larder_sys::read_at_most(path, SEARCHED_BYTES_MAX).ok().flatten()
}
