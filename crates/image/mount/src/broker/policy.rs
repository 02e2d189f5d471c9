//! Decides which users may mount on which directories, and how many mounts they may have.
//!
//! Unaware of: what is mounted.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use crate::MountError;

/// The limits that the broker's administrator sets.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The users that are served. If this is empty, all users are served.
    pub users: Vec<u32>,
    /// The directories on or below which images may be mounted in the machine's mount namespace,
    /// which all processes see. In a mount namespace of the job's own, such as that of a container,
    /// the directory only has to belong to the job's user. For example, with `/srv/builds` a job
    /// may mount on `/srv/builds/7/deps`.
    pub targets: Vec<PathBuf>,
    /// The limit for mounts of one user; 0 means no limit.
    pub mounts_max: usize,
    /// The limit for unanswered requests of one user; 0 means no limit.
    pub requests_max: usize,
}

/// The default limit for mounts of one user. Each mount is a file system in the kernel, and may
/// need a connection and a thread of the broker.
pub const MOUNTS_MAX: usize = 256;
/// The default limit for unanswered requests of one user.
const REQUESTS_MAX: usize = 64;

impl Default for Policy {
    fn default() -> Policy {
        Policy { users: Vec::new(), targets: Vec::new(), mounts_max: MOUNTS_MAX, requests_max: REQUESTS_MAX }
    }
}

/// Special file systems, in which the path of a directory has a meaning, by their magic numbers:
/// proc, sysfs, cgroup, cgroup2, devpts, debugfs, tracefs, securityfs, bpf.
const SPECIAL: [u64; 9] =
    [0x9fa0, 0x6265_6572, 0x0027_e0eb, 0x6367_7270, 0x1cd1, 0x6462_6720, 0x7472_6163, 0x7363_6673, 0xcafe_4a11];

impl Policy {
    /// Fails if this user is not served.
    pub(super) fn admits(&self, user: u32) -> Result<(), MountError> {
        match self.users.is_empty() || self.users.contains(&user) {
            true => Ok(()),
            false => Err(refused(format!(
                "user {user} is not served here: the broker's --user options list the users that are"
            ))),
        }
    }

    /// Fails if the user may not mount on this open directory, and says what would be allowed. `target`
    /// is its path, and `shared` is true if it is in the machine's mount namespace.
    pub(super) fn allows(&self, user: u32, place: BorrowedFd, target: &Path, shared: bool) -> Result<(), MountError> {
        let shown = target.display();
        let look = rustix::fs::fstat(place).map_err(io::Error::from);
        let look = look.map_err(MountError::path(target, "its attributes cannot be read"))?;
        let kind = rustix::fs::FileType::from_raw_mode(look.st_mode);
        if kind != rustix::fs::FileType::Directory {
            return Err(refused(format!("{shown}: is not a directory")));
        }
        // The kernel names the top of a mount so when the mount is going away.
        if target == Path::new("/") {
            return Err(refused("/: is the root directory, or it was just unmounted: ask again".to_owned()));
        }
        if look.st_uid != user {
            return Err(refused(format!(
                "{shown}: belongs to user {}, not {user}: mount on a directory of your own",
                look.st_uid
            )));
        }
        let system = rustix::fs::fstatfs(place).map_err(io::Error::from);
        let system = system.map_err(MountError::path(target, "its file system cannot be determined"))?;
        if SPECIAL.contains(&(system.f_type as u64)) {
            return Err(refused(format!(
                "{shown}: is in a special file system of the kernel, where images are not mounted"
            )));
        }
        let is_below = |allowed: &PathBuf| target.starts_with(allowed);
        if shared && !self.targets.iter().any(is_below) {
            let why = "all users see it, and it is below none of the broker's --target directories";
            return Err(refused(format!("{shown}: {why}: mount in a namespace of the job's own, or add a --target")));
        }
        Ok(())
    }

    /// Fails if a user with `mounts` mounts may not have one more.
    pub(super) fn has_room(&self, user: u32, mounts: usize) -> Result<(), MountError> {
        match self.mounts_max == 0 || mounts < self.mounts_max {
            true => Ok(()),
            false => Err(refused(format!(
                "user {user} has {mounts} images mounted, and more are not allowed: unmount some, or have the broker \
                 started with a larger --mounts-max"
            ))),
        }
    }

    /// Fails if a user with `requests` unanswered requests may not send one more.
    pub(super) fn has_turn(&self, user: u32, requests: usize) -> Result<(), MountError> {
        match self.requests_max == 0 || requests < self.requests_max {
            true => Ok(()),
            false => {
                Err(refused(format!("user {user} has {requests} requests that are not answered yet: ask again later")))
            }
        }
    }
}

/// Returns the path of an open directory, for messages and for the comparison with allowed
/// prefixes.
pub(super) fn name_of(place: impl AsFd) -> Result<PathBuf, MountError> {
    use std::os::unix::ffi::OsStringExt;
    let path = larder_sys::real_path_of(place).map_err(MountError::path("(a directory)", "has no path"))?;
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
        check(Path::new("/dev/null"), user, false, "is not a directory");
        let elsewhere = tempfile::tempdir().expect("makes");
        check(elsewhere.path(), user, true, "all users see it");
        check(elsewhere.path(), user, false, "");
        check(Path::new("/proc/self"), user, false, "special file system");
        check(Path::new("/"), user, true, "just unmounted");
        assert!(policy.admits(7).is_ok() && policy.admits(8).is_err() && Policy::default().admits(8).is_ok());
        assert!(policy.has_room(7, 1).is_ok() && policy.has_room(7, 2).is_err());
        assert!(policy.has_turn(7, 0).is_ok() && policy.has_turn(7, 1).is_err());
        let usual = Policy::default();
        assert!(usual.has_room(7, MOUNTS_MAX).is_err() && usual.has_turn(7, REQUESTS_MAX).is_err());
    }
}
