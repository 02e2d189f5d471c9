//! Files without a name, in memory if possible.
//!
//! Unaware of: what is in a file, and why it is made.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

use super::files::{random_u64, with_c_path};

/// Flags that say whether a file in memory may be executed (Linux 6.3). If `vm.memfd_noexec` is 2,
/// only `MFD_NOEXEC_SEAL` is allowed.
const MFD_EXEC: u32 = 0x10;
const MFD_NOEXEC_SEAL: u32 = 0x8;

/// Creates a file without a name, which exists until its last descriptor is closed. With
/// `executable` it can be executed, and mapped for execution.
///
/// It is in memory, or else in a directory for temporary files. `memfd_create` is missing before
/// Linux 3.17, and `vm.memfd_noexec` may refuse it.
pub fn memory_file(name: &str, executable: bool) -> io::Result<File> {
    use rustix::fs::MemfdFlags;
    let tried = if executable { [MFD_EXEC, 0] } else { [0, MFD_NOEXEC_SEAL] };
    let made = tried
        .into_iter()
        .find_map(|flag| fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::from_bits_retain(flag)).ok());
    made.map_or_else(|| unnamed_file(executable), |file| Ok(File::from(file)))
}

/// Creates a file without a name in one of the directories for temporary files.
fn unnamed_file(executable: bool) -> io::Result<File> {
    let temporary = std::env::temp_dir();
    let directories = [Path::new("/dev/shm"), &temporary, Path::new("/tmp"), Path::new("/var/tmp")];
    let mode = if executable { Mode::RWXU } else { Mode::RUSR | Mode::WUSR };
    let mut failed = io::Error::from(Errno::NOSYS);
    for directory in directories {
        match unnamed_file_in(directory, mode) {
            // No file can be executed on a file system that is mounted `noexec`.
            Ok(file) if executable && !may_execute_from(&file) => {}
            Ok(file) => return Ok(file),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn unnamed_file_in(directory: &Path, mode: Mode) -> io::Result<File> {
    use std::os::unix::ffi::OsStrExt;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    if let Ok(file) = fs::open(directory, flags | OFlags::TMPFILE, mode) {
        return Ok(File::from(file));
    }
    // Some file systems cannot create a file without a name.
    let path = directory.join(format!(".larder-{:016x}", random_u64()));
    let file = fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW, mode)?;
    with_c_path(path.as_os_str().as_bytes(), |path| fs::unlink(path))?;
    Ok(File::from(file))
}

fn may_execute_from(file: &File) -> bool {
    fs::fstatvfs(file).is_ok_and(|system| !system.f_flag.contains(fs::StatVfsMountFlags::NOEXEC))
}

/// Creates a file in memory with this content, which no process can change any more.
pub fn sealed_memory_file(name: &str, bytes: &[u8]) -> io::Result<File> {
    let mut file = growing_memory_file(name)?;
    io::Write::write_all(&mut file, bytes)?;
    seal(&file)?;
    Ok(file)
}

/// Creates a file in memory that can be sealed after it was written.
pub fn growing_memory_file(name: &str) -> io::Result<File> {
    use rustix::fs::MemfdFlags;
    let sealable = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let made = fs::memfd_create(name, sealable);
    // `vm.memfd_noexec` is 2.
    let made = made.or_else(|error| match error {
        Errno::ACCESS => fs::memfd_create(name, sealable | MemfdFlags::from_bits_retain(MFD_NOEXEC_SEAL)),
        error => Err(error),
    });
    Ok(File::from(made?))
}

/// Seals this file in memory, so that no process can change it any more.
pub fn seal(file: &File) -> io::Result<()> {
    use rustix::fs::SealFlags;
    let all = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    Ok(fs::fcntl_add_seals(file, all)?)
}

#[cfg(test)]
mod tests {

    use super::super::files::{Opening, fstat, open, read_rest_at_most, volatile_path};
    use super::*;

    #[test]
    fn a_file_without_a_name_is_as_good_as_one_in_memory() {
        for executable in [false, true] {
            let made = unnamed_file(executable).expect("creates a file in some directory");
            let may_execute = fs::access(crate::as_path(&volatile_path(&made)), fs::Access::EXEC_OK);
            assert_eq!(may_execute.is_ok(), executable);
            io::Write::write_all(&mut &made, b"content").expect("writes");
            let path = volatile_path(&made);
            let again = open(&path, Opening::Read).expect("opens by its path");
            assert_eq!(read_rest_at_most(&again, 99).expect("reads").as_deref(), Some(&b"content"[..]));
            assert_eq!(fstat(&made).expect("looks").links, 0);
        }
    }
}
