//! The error type of this crate. Each message says what failed, why, and what to do.

use std::io;
use std::path::PathBuf;

use crate::Backend;

/// An error of mounting. It is never a reason to fail a job, because the next backend gives the same
/// tree, and so does unpacking.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel refuses to mount something.
    #[error("{what} cannot be mounted: {step}: {error}{}", said_after(said))]
    Refused {
        /// The kind of file system and the path of its file.
        what: String,
        /// The step or mount option that the kernel refused.
        step: String,
        /// The error of the system call.
        error: io::Error,
        /// The message that the kernel wrote to the mount context, or an empty text.
        said: String,
    },
    /// A file operation on a path failed.
    #[error("{}: {what}: {error}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// The operation that failed, as the end of a sentence about the path: "cannot be opened".
        what: &'static str,
        /// The error of the system call.
        error: io::Error,
    },
    /// The requested backend does not work on this machine.
    #[error("`{backend}` is not possible here: {why}; `larder doctor` shows what is possible")]
    Unable {
        /// The backend.
        backend: Backend,
        /// What is missing on this machine.
        why: String,
    },
    /// No mount that larder made for this user is at this path.
    #[error("{}: nothing of yours is mounted here: `larder image list --mounted` shows what is", .0.display())]
    NotMounted(PathBuf),
    /// The target directory is not empty, so the mount would hide its contents.
    #[error("{}: is not empty, and the mount would hide its contents: empty it, or mount elsewhere", .0.display())]
    NotEmpty(PathBuf),
    /// An image is mounted at this path already.
    #[error("{}: an image is mounted here already: `larder image unmount` it first", .0.display())]
    Taken(PathBuf),
    /// Several operations failed. None of the failures stopped the other operations.
    #[error("{}", said_of_all(.0))]
    Several(Vec<MountError>),
    /// A helper program, such as `squashfuse`, failed.
    #[error("{program} failed: {why}")]
    Program {
        /// The path of the program.
        program: String,
        /// What the program printed, or how it ended.
        why: String,
    },
    /// Lazy filling of an image could not be set up, or failed later.
    #[error("{what}: {error}")]
    Lazy {
        /// The operation that failed.
        what: &'static str,
        /// The error of the system call.
        error: io::Error,
    },
    /// The broker refused the request, or could not be reached. The text is the whole message.
    #[error("{0}")]
    Broker(String),
}

/// At most this many errors are printed in full; the others are only counted.
const SAID_MAX: usize = 8;

fn said_of_all(errors: &[MountError]) -> String {
    let said: Vec<String> = errors.iter().take(SAID_MAX).map(ToString::to_string).collect();
    match errors.len().saturating_sub(SAID_MAX) {
        0 => said.join("; "),
        more => format!("{}; and {more} more", said.join("; ")),
    }
}

fn said_after(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(" ({said})") }
}

impl MountError {
    /// Returns a closure that makes a `Path` error of an I/O error, for `map_err`.
    pub fn path(path: impl Into<PathBuf>, what: &'static str) -> impl FnOnce(io::Error) -> MountError {
        let path = path.into();
        move |error| MountError::Path { path, what, error }
    }

    /// Combines errors into one, or returns `None` if there are none.
    pub fn all(mut errors: Vec<MountError>) -> Option<MountError> {
        match errors.len() {
            0 | 1 => errors.pop(),
            _ => Some(MountError::Several(errors)),
        }
    }

    /// Returns a closure that makes a `Lazy` error of an I/O error, for `map_err`.
    pub fn lazy(what: &'static str) -> impl FnOnce(io::Error) -> MountError {
        move |error| MountError::Lazy { what, error }
    }

    /// Returns a closure that makes a `Refused` error about `what`, for `map_err`.
    pub(crate) fn refused(what: impl Into<String>) -> impl FnOnce(larder_sys::MountRefused) -> MountError {
        let what = what.into();
        move |refused| {
            let larder_sys::MountRefused { step, error, said } = refused;
            MountError::Refused { what, step, error, said }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_where_and_what_to_do() {
        let check = |error: MountError, expect: &str| assert_eq!(error.to_string(), expect);
        let denied = || io::Error::from_raw_os_error(1);
        let (what, step) = ("EROFS image /i/meta".to_owned(), "create".to_owned());
        let refused = |said: &str| MountError::Refused {
            what: what.clone(),
            step: step.clone(),
            error: denied(),
            said: said.to_owned(),
        };
        let plain = "EROFS image /i/meta cannot be mounted: create: Operation not permitted (os error 1)";
        check(refused(""), plain);
        check(refused("bad superblock"), &format!("{plain} (bad superblock)"));
        check(
            MountError::Unable { backend: Backend::Lazy, why: "Linux 6.12 is needed".to_owned() },
            "`lazy` is not possible here: Linux 6.12 is needed; `larder doctor` shows what is possible",
        );
        let path = || MountError::path("/t", "cannot be listed")(denied());
        let said = "/t: cannot be listed: Operation not permitted (os error 1)";
        check(path(), said);
        assert!(MountError::all(Vec::new()).is_none());
        check(MountError::all(vec![path()]).expect("is one"), said);
        check(MountError::all(vec![path(), path()]).expect("are two"), &format!("{said}; {said}"));
        let many = MountError::all((0..20).map(|_| path()).collect()).expect("are many").to_string();
        assert!(many.ends_with("; and 12 more") && many.matches(said).count() == 8, "{many}");
    }
}
