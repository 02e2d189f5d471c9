//! What can go wrong, and what to do then.

use std::io;
use std::path::PathBuf;

use crate::Rung;

/// Trouble with mounting. None of it is a reason to fail a job: the next rung, or unpacking, gives the same tree.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel refuses to mount something.
    #[error("{what} cannot be mounted: {step}: {error}{}", said_after(said))]
    Refused {
        /// A file system and its file.
        what: String,
        /// The step or option that was refused.
        step: String,
        /// The system's error.
        error: io::Error,
        /// The kernel's own words, or none.
        said: String,
    },
    /// Something about a path.
    #[error("{}: {what}: {error}", path.display())]
    Path {
        /// Which.
        path: PathBuf,
        /// What could not be done with it.
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// The rung that was asked for cannot be taken here.
    #[error("`{rung}` is not possible here: {why}; `larder doctor` shows what is")]
    Unable {
        /// Which.
        rung: Rung,
        /// What it lacks.
        why: String,
    },
    /// Nothing of ours is mounted there.
    #[error("{}: nothing of yours is mounted here: `larder image list --mounted` shows what is", .0.display())]
    NotMounted(PathBuf),
    /// The target holds something that the mount would hide.
    #[error("{}: is not empty, and what is in it would be hidden: remove it, or mount elsewhere", .0.display())]
    NotEmpty(PathBuf),
    /// Something of ours is mounted there already.
    #[error("{}: an image is mounted here already: `larder image unmount` it first", .0.display())]
    Taken(PathBuf),
    /// Several things went wrong, none of which stopped the rest.
    #[error("{}", said_of_all(.0))]
    Several(Vec<MountError>),
    /// A helper program did not do what it is for.
    #[error("{program} failed: {why}")]
    Program {
        /// Its name.
        program: String,
        /// What it said, or how it ended.
        why: String,
    },
    /// What is under a state directory is not ours to read.
    #[error("{}: {what}: remove it if nothing is mounted from it", path.display())]
    Odd {
        /// Which.
        path: PathBuf,
        /// What is odd about it.
        what: &'static str,
    },
    /// Lazy reading could not be set up, or went on without us.
    #[error("{what}: {error}")]
    Lazy {
        /// What could not be done.
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// The broker said no, or could not be asked.
    #[error("{0}")]
    Broker(String),
    /// Another system.
    #[error("mounting is not on this system yet")]
    NotHere,
}

/// More errors than this are counted only.
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
    /// Something about a path.
    pub fn path(path: impl Into<PathBuf>, what: &'static str) -> impl FnOnce(io::Error) -> MountError {
        let path = path.into();
        move |error| MountError::Path { path, what, error }
    }

    /// All these as one; `None` if there are none.
    #[cfg(target_os = "linux")]
    pub(crate) fn all(mut errors: Vec<MountError>) -> Option<MountError> {
        match errors.len() {
            0 | 1 => errors.pop(),
            _ => Some(MountError::Several(errors)),
        }
    }

    /// Something about lazy reading.
    pub fn lazy(what: &'static str) -> impl FnOnce(io::Error) -> MountError {
        move |error| MountError::Lazy { what, error }
    }

    /// The kernel's refusal to mount `what`.
    #[cfg(target_os = "linux")]
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
            MountError::Unable { rung: Rung::Lazy, why: "Linux 6.12 is needed".to_owned() },
            "`lazy` is not possible here: Linux 6.12 is needed; `larder doctor` shows what is",
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
