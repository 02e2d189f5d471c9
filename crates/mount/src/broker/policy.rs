//! Who may have what mounted where.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use crate::MountError;

/// What the broker's administrator allows.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Users that are served; all where there are none.
    pub users: Vec<u32>,
    /// Among the machine's mounts, which everybody sees: only on or below these. Among mounts of a job's own, as a
    /// container has them, a directory needs only to be the job's.
    pub targets: Vec<PathBuf>,
    /// So many mounts of one user at most; 0 for any number.
    pub mounts_max: usize,
    /// So many requests of one user that are not answered yet at most; 0 for any number.
    pub requests_max: usize,
}

/// Mounts of one user, unless the administrator says otherwise: each is a file system of the kernel's, and may be a
/// connection and a thread.
pub const MOUNTS_MAX: usize = 256;
/// Requests of one user that are not answered yet, unless the administrator says otherwise.
const REQUESTS_MAX: usize = 64;

impl Default for Policy {
    fn default() -> Policy {
        Policy { users: Vec::new(), targets: Vec::new(), mounts_max: MOUNTS_MAX, requests_max: REQUESTS_MAX }
    }
}

/// File systems whose directories mean something by their place, by the kernel's numbers: proc, sysfs, cgroup and
/// cgroup2, devpts, debugfs, tracefs, securityfs, bpf.
const SPECIAL: [u64; 9] =
    [0x9fa0, 0x6265_6572, 0x0027_e0eb, 0x6367_7270, 0x1cd1, 0x6462_6720, 0x7472_6163, 0x7363_6673, 0xcafe_4a11];

impl Policy {
    /// Whether this user is served.
    ///
    /// # Errors
    ///
    /// Where they are not.
    pub(super) fn admits(&self, user: u32) -> Result<(), MountError> {
        match self.users.is_empty() || self.users.contains(&user) {
            true => Ok(()),
            false => Err(refused(format!("user {user} is not served here: the broker's --user options say who is"))),
        }
    }

    /// Whether the user may have something mounted on this directory, called `target`; `shared` where everybody sees
    /// it.
    ///
    /// # Errors
    ///
    /// Where they may not, with what would be allowed.
    pub(super) fn allows(&self, user: u32, place: BorrowedFd, target: &Path, shared: bool) -> Result<(), MountError> {
        let shown = target.display();
        let look = rustix::fs::fstat(place).map_err(io::Error::from);
        let look = look.map_err(MountError::path(target, "cannot be looked at"))?;
        let kind = rustix::fs::FileType::from_raw_mode(look.st_mode);
        if kind != rustix::fs::FileType::Directory {
            return Err(refused(format!("{shown}: is no directory")));
        }
        if look.st_uid != user {
            return Err(refused(format!(
                "{shown}: belongs to user {}, not {user}: images are mounted on one's own",
                look.st_uid
            )));
        }
        let system = rustix::fs::fstatfs(place).map_err(io::Error::from);
        let system = system.map_err(MountError::path(target, "cannot be looked at"))?;
        if SPECIAL.contains(&(system.f_type as u64)) {
            return Err(refused(format!("{shown}: is in a file system of the kernel's, where nothing is mounted")));
        }
        let is_below = |allowed: &PathBuf| target.starts_with(allowed);
        if shared && !self.targets.iter().any(is_below) {
            let why = "everybody sees it, and it is below none of the broker's --target directories";
            return Err(refused(format!("{shown}: {why}: mount in a namespace of the job's own, or have it allowed")));
        }
        Ok(())
    }

    /// Whether the user may have one more mount.
    ///
    /// # Errors
    ///
    /// Where they have too many.
    pub(super) fn has_room(&self, user: u32, mounts: usize) -> Result<(), MountError> {
        match self.mounts_max == 0 || mounts < self.mounts_max {
            true => Ok(()),
            false => Err(refused(format!(
                "user {user} has {mounts} images mounted, and more are not allowed: unmount some, or have the broker \
                 started with a larger --mounts-max"
            ))),
        }
    }

    /// Whether the user may ask for something beside `requests` that are not answered yet.
    ///
    /// # Errors
    ///
    /// If these are too many.
    pub(super) fn has_turn(&self, user: u32, requests: usize) -> Result<(), MountError> {
        match self.requests_max == 0 || requests < self.requests_max {
            true => Ok(()),
            false => {
                Err(refused(format!("user {user} has {requests} requests that are not answered yet: ask again later")))
            }
        }
    }
}

/// What an open directory is called, for messages and prefixes.
pub(super) fn name_of(place: impl AsFd) -> Result<PathBuf, MountError> {
    use std::os::unix::ffi::OsStringExt;
    let path = larder_sys::real_path_of(place).map_err(MountError::path("(a directory)", "has no name"))?;
    Ok(PathBuf::from(std::ffi::OsString::from_vec(path)))
}

pub(super) fn refused(why: String) -> MountError {
    MountError::Broker(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_are_allowed() {
        let directory = tempfile::tempdir().expect("makes");
        let user = larder_sys::effective_user();
        let policy =
            Policy { targets: vec![directory.path().to_owned()], users: vec![7], mounts_max: 2, requests_max: 1 };
        let check = |path: &Path, user: u32, shared: bool, expect: &str| {
            let place = std::fs::File::open(path).expect("opens");
            let said = policy.allows(user, place.as_fd(), path, shared).err().map(|error| error.to_string());
            assert_eq!(said.is_none(), expect.is_empty(), "{said:?}");
            assert!(said.unwrap_or_default().contains(expect), "{expect}");
        };
        check(directory.path(), user, true, "");
        check(directory.path(), user + 1, true, "belongs to user");
        check(Path::new("/dev/null"), user, false, "is no directory");
        let elsewhere = tempfile::tempdir().expect("makes");
        check(elsewhere.path(), user, true, "everybody sees it");
        check(elsewhere.path(), user, false, "");
        check(Path::new("/proc/self"), user, false, "of the kernel's");
        assert!(policy.admits(7).is_ok() && policy.admits(8).is_err() && Policy::default().admits(8).is_ok());
        assert!(policy.has_room(7, 1).is_ok() && policy.has_room(7, 2).is_err());
        assert!(policy.has_turn(7, 0).is_ok() && policy.has_turn(7, 1).is_err());
        let usual = Policy::default();
        assert!(usual.has_room(7, MOUNTS_MAX).is_err() && usual.has_turn(7, REQUESTS_MAX).is_err());
    }
}
