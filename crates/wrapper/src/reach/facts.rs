//! What is known about a run when it is decided in which checkouts its result can be used.
//!
//! Unaware of: how that is decided.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use larder_lookup::Request;
use larder_model::{Looked, PLACEHOLDER};
use larder_observe::without_parents;
use larder_spawn::Command;
use larder_store::{Carried, Stamps};
use memchr::memmem;

use crate::keep::SEARCHED_BYTES_MAX;
use crate::sink::Sink;
use crate::typed::file_name;

/// Variables that a compiler and its parts read, but whose values never reach a result: search
/// paths for programs, directories for temporary files, and the working directory.
const NO_NAMES: [&[u8]; 9] =
    [b"PATH", b"LD_LIBRARY_PATH", b"TMPDIR", b"TMP", b"TEMP", b"TEMPDIR", b"PWD", b"OLDPWD", b"HOME"];

/// What is known about a run when this is decided.
pub(crate) struct Reach<'a> {
    pub(crate) sink: &'a Sink<'a>,
    pub(crate) stamps: &'a Stamps,
    pub(crate) request: &'a Request,
    /// The command as it was started.
    pub(crate) command: &'a Command,
    /// The setting `remote_trust`.
    pub(crate) trust: &'a [String],
    /// True if debug information may be rewritten. This is done only if it is exact.
    pub(crate) relocates_debug: bool,
    /// The root paths that the inputs hold.
    pub(crate) carried: &'a Carried,
    /// The variables that the command read, with their values.
    pub(crate) environment: &'a [(Vec<u8>, Option<Vec<u8>>)],
    /// The paths that the command read.
    pub(crate) looked: &'a [(Vec<u8>, Looked)],
    /// True if a program ran that is not a known part of a compiler.
    pub(crate) foreign_program: bool,
    /// True if gcc's `cc1` or `cc1plus` ran. The name `cc` alone may stand for any compiler.
    pub(crate) gcc_ran: bool,
    /// An input with a root path that the assembler itself opened.
    pub(crate) assembled: Option<&'a Vec<u8>>,
    pub(crate) failed: bool,
}

impl Reach<'_> {
    /// Returns the absolute path of a directory that the command names.
    pub(super) fn directory(&self, named: &[u8]) -> PathBuf {
        PathBuf::from(OsString::from_vec(without_parents(&self.request.absolute(named))))
    }

    pub(super) fn names_us(&self, text: &[u8]) -> bool {
        self.request.roots.encode_text(text).contains(&PLACEHOLDER)
    }

    pub(super) fn environment_names_us(&self) -> bool {
        let keyed = self.request.action.environment.iter().map(|variable| (&variable.name, Some(&variable.value)));
        let asked = self.environment.iter().map(|(name, value)| (name, value.as_ref()));
        let mut named = keyed.chain(asked).filter(|(name, _)| !NO_NAMES.contains(&name.as_slice()));
        named.any(|(_, value)| value.is_some_and(|value| self.names_us(value)))
    }

    pub(super) fn roots(&self) -> Vec<&[u8]> {
        self.request.roots.all().map(Vec::as_slice).collect()
    }
}

/// Returns true for a shared library, by its name (`libc.so.6`) and its first bytes. The
/// preprocessor reads none.
pub(super) fn is_library(path: &[u8]) -> bool {
    let name = file_name(path);
    let is_version = |rest: &[u8]| rest.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    let is_named = memmem::rfind(name, b".so").is_some_and(|at| is_version(&name[at + 3..]));
    let mut start = [0; 4];
    let mut read = || File::open(Path::new(OsStr::from_bytes(path))).and_then(|mut file| file.read_exact(&mut start));
    is_named && read().is_ok() && start == *b"\x7fELF"
}

/// Returns the bytes of a file that is not too large to be searched.
pub(super) fn whole(path: &[u8]) -> Option<Vec<u8>> {
    larder_sys::read_at_most(path, SEARCHED_BYTES_MAX).ok().flatten()
}
