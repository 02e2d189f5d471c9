//! squashfs, through the programs of Debian's `squashfs-tools`, so that the kernel and other
//! programs can read what is written.
//!
//! Unaware of: what is in a file.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::JoinHandle;

use rustix::process::{Pid, Resource, Rlimit};

use crate::ImageError;

/// The most bytes of a program's messages that are shown: the first ones say what went wrong.
const SAID_BYTES_MAX: usize = 512;
/// The address space that `unsquashfs` may use, in bytes. Its threads have stacks that they hardly
/// use.
const PROGRAM_BYTES_MAX: u64 = 4 << 30;
/// The first version of `unsquashfs` that does not write outside of its target.
const SAFE_VERSION: (u32, u32, u32) = (4, 5, 1);
/// The first version of `mksquashfs` that reads a tar.
const TAR_VERSION: (u32, u32, u32) = (4, 5, 0);
/// The most bytes of a line of its list.
const LINE_BYTES_MAX: u64 = 128 << 10;
/// The length of a mode such as `-rw-r--r--`.
const MODE_BYTES: usize = 10;
/// The bytes that a name counts as, besides its length; the same as for other archives.
const NAME_BYTES: u64 = 512;
/// How often a file is written that cannot be read back.
pub(super) const TRIES: u32 = 3;

/// A running `mksquashfs` that reads a tar.
pub(super) struct Making {
    child: Child,
    said: JoinHandle<Vec<u8>>,
    to: std::path::PathBuf,
}

/// Returns an error that says why `mksquashfs` cannot make the file of an image here: it is not
/// installed, or cannot read a tar.
pub fn can_squash() -> Result<(), String> {
    let said = Command::new("mksquashfs").arg("-version").stdin(Stdio::null()).stderr(Stdio::null()).output();
    let said = said.map_err(|error| format!("mksquashfs cannot be started ({error}): install squashfs-tools"))?;
    reads_tar(&String::from_utf8_lossy(&said.stdout))
}

/// Returns an error if the `mksquashfs` that said this about its version cannot read a tar.
fn reads_tar(said: &str) -> Result<(), String> {
    match version(said) {
        Some(version) if version >= TAR_VERSION => Ok(()),
        found => {
            let number = |(major, minor, patch)| format!("{major}.{minor}.{patch}");
            let found = found.map_or("of an unknown version".to_owned(), number);
            Err(format!(
                "mksquashfs {found} cannot read a tar: install squashfs-tools {} or newer",
                number(TAR_VERSION)
            ))
        }
    }
}

/// Starts to write `to`. The caller writes the tar to the returned pipe.
pub(super) fn begin(to: &Path) -> Result<(Making, ChildStdin), ImageError> {
    let mut command = Command::new("mksquashfs");
    command.arg("-").arg(to).args(["-tar", "-quiet", "-no-progress", "-comp", "zstd", "-Xcompression-level", "3"]);
    // With fragments 4.5.1 (Debian 12) sometimes writes a file that cannot be unpacked: in 4 of 46
    // runs over a tar of 9,610 files, also on one processor. Without them this happened in none of
    // 16 runs.
    command.args(["-noappend", "-no-fragments"]);
    // An overlay keeps hard links together only if the file system below has file handles. With
    // `-tar` that is not the default.
    command.arg("-exports");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| missing(to, "mksquashfs", &error))?;
    let input = child.stdin.take().expect("stdin is piped");
    let errors = child.stderr.take().expect("stderr is piped");
    let said = std::thread::spawn(move || first_of(errors));
    Ok((Making { child, said, to: to.to_owned() }, input))
}

impl Making {
    /// Waits for the program after the tar was written.
    pub(super) fn end(mut self) -> Result<(), ImageError> {
        let status = self.child.wait().map_err(ImageError::io("wait for mksquashfs", &self.to))?;
        let said = self.said.join().unwrap_or_default();
        match status.success() {
            true => Ok(()),
            // It prints its usage, and has no other exit code for that.
            false if said.starts_with(b"SYNTAX") => {
                let why = "this mksquashfs cannot read a tar: version 4.5 or newer is needed".to_owned();
                Err(ImageError::archive(&self.to, why))
            }
            false => Err(ImageError::archive(&self.to, failed("mksquashfs", status, &said))),
        }
    }
}

/// Reads a whole file by `unsquashfs`. Returns its messages if that fails. Files of 4.5.1 are
/// sometimes unreadable.
pub(super) fn unreadable(file: &Path) -> Result<Option<String>, ImageError> {
    let mut command = Command::new("unsquashfs");
    // With `-pf` (since 4.5) the output is a single stream and no file is created. 4.5.1 takes `-`
    // for a file name.
    command.args(["-quiet", "-no-progress", "-pf", "/dev/null"]).arg(file);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| missing(file, "unsquashfs", &error))?;
    let said = first_of(child.stderr.take().expect("stderr is piped"));
    let status = child.wait().map_err(ImageError::io("wait for unsquashfs", file))?;
    Ok((!status.success() || !said.is_empty()).then(|| failed("unsquashfs", status, &said)))
}

/// Unpacks the file `from` to the new directory `top`, at most `bytes_max` bytes.
pub(super) fn read(from: &Path, top: &Path, bytes_max: u64) -> Result<(), ImageError> {
    check_version(from)?;
    // An absolute path, because a name that begins with a dash would be an option.
    let file = std::path::absolute(from).map_err(ImageError::io("find it", from))?;
    look_through(from, &file, bytes_max)?;
    let mut command = unsquashfs(&["-dest".as_ref(), top.as_os_str()], &file);
    command.stdout(Stdio::null());
    let mut child = command.spawn().map_err(|error| missing(from, "unsquashfs", &error))?;
    limit_memory(&child);
    let said = first_of(child.stderr.take().expect("stderr is piped"));
    let status = child.wait().map_err(ImageError::io("wait for unsquashfs", from))?;
    match status.success() {
        true => Ok(()),
        false => Err(ImageError::archive(from, failed("unsquashfs", status, &said))),
    }
}

/// Lists the names and sizes before anything is created. Fails if the content is too large or has
/// devices.
fn look_through(from: &Path, file: &Path, bytes_max: u64) -> Result<(), ImageError> {
    let mut command = unsquashfs(&["-lln".as_ref()], file);
    command.stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| missing(from, "unsquashfs", &error))?;
    limit_memory(&child);
    let listed = child.stdout.take().expect("stdout is piped");
    let errors = child.stderr.take().expect("stderr is piped");
    let said = std::thread::spawn(move || first_of(errors));
    let looked = sum(listed, bytes_max);
    if looked.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().map_err(ImageError::io("wait for unsquashfs", from))?;
    looked.map_err(|why| ImageError::archive(from, why))?;
    match status.success() {
        true => Ok(()),
        false => Err(ImageError::archive(from, failed("unsquashfs", status, &said.join().unwrap_or_default()))),
    }
}

/// Adds up a list of names. Its lines are like `-rw-r--r-- 0/0   12 2020-02-02 02:02
/// squashfs-root/a`. A line break in a name makes an additional line, which can only increase the
/// sum.
fn sum(listed: impl Read, bytes_max: u64) -> Result<(), String> {
    let mut listed = BufReader::new(listed);
    let (mut line, mut left) = (Vec::new(), bytes_max);
    loop {
        line.clear();
        let read = (&mut listed).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        match read.map_err(|error| format!("the output of unsquashfs cannot be read: {error}"))? {
            0 => return Ok(()),
            count if count as u64 == LINE_BYTES_MAX => return Err("a name has more than 128 KiB".to_owned()),
            _ => {}
        }
        let mut fields = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
        let Some(mode) = fields.next() else { continue };
        let mut taken = NAME_BYTES + line.len() as u64;
        match mode.first() {
            Some(b'b' | b'c') if mode.len() == MODE_BYTES => {
                return Err("it has a device, which an image cannot hold".to_owned());
            }
            Some(b'-') => {
                let size = fields.nth(1).and_then(|field| std::str::from_utf8(field).ok()?.parse::<u64>().ok());
                taken = taken.saturating_add(size.unwrap_or(0));
            }
            _ => {}
        }
        left = left.checked_sub(taken).ok_or_else(|| {
            "it is larger than the store may be (max_size); unpack it elsewhere, or raise max_size".to_owned()
        })?;
    }
}

fn unsquashfs(options: &[&OsStr], file: &Path) -> Command {
    let mut command = Command::new("unsquashfs");
    // By default its two queues have 256 MiB each.
    command.args(["-quiet", "-no-progress", "-data-queue", "32", "-frag-queue", "32"]).args(options).arg(file);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    command
}

/// A hostile file must not make the program use all memory.
fn limit_memory(child: &Child) {
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return };
    let most = Some(PROGRAM_BYTES_MAX);
    // If this is not allowed, only limits of the environment apply.
    let _ = rustix::process::prlimit(Some(pid), Resource::As, Rlimit { current: most, maximum: most });
}

/// Before 4.5.1 a hostile file can make the program write outside of its target (CVE-2021-40153,
/// -41072).
fn check_version(from: &Path) -> Result<(), ImageError> {
    let said = Command::new("unsquashfs").arg("-version").stdin(Stdio::null()).stderr(Stdio::null()).output();
    let said = said.map_err(|error| missing(from, "unsquashfs", &error))?;
    let text = String::from_utf8_lossy(&said.stdout);
    match version(&text) {
        Some(version) if version >= SAFE_VERSION => Ok(()),
        found => {
            let (major, minor, patch) = SAFE_VERSION;
            let found = found.map_or("unknown, because it does not say".to_owned(), |(major, minor, patch)| {
                format!("{major}.{minor}.{patch}")
            });
            let why = format!(
                "the version of unsquashfs is {found}; before {major}.{minor}.{patch} a file can make it write elsewhere; install \
                 a newer squashfs-tools, or use another format"
            );
            Err(ImageError::archive(from, why))
        }
    }
}

/// Parses `unsquashfs version 4.5.1 (2022/03/17)`; the version may also be `4.6` or `4.6.1-3`.
fn version(said: &str) -> Option<(u32, u32, u32)> {
    let word = said.split_once("version ")?.1.split([' ', '\n', '-']).next()?;
    let mut numbers = word.split('.').map(|number| number.parse().ok());
    let (major, minor) = (numbers.next()??, numbers.next()??);
    Some((major, minor, numbers.next().map_or(Some(0), |patch| patch)?))
}

fn missing(file: &Path, program: &str, error: &io::Error) -> ImageError {
    let why = format!("{program} cannot be started ({error}); install squashfs-tools, or use another format");
    ImageError::archive(file, why)
}

fn failed(program: &str, status: std::process::ExitStatus, said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    format!("{program} ended with {status}: {}", lines.join("; "))
}

/// Returns the first bytes of a stream. Reads the rest as well, so that the program does not block.
fn first_of(mut from: impl Read) -> Vec<u8> {
    let mut said = Vec::new();
    let _ = (&mut from).take(SAID_BYTES_MAX as u64).read_to_end(&mut said);
    let _ = io::copy(&mut from, &mut io::sink());
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(version("unsquashfs version 4.5.1 (2022/03/17)\ncopyright"), Some((4, 5, 1)));
        assert_eq!(version("unsquashfs version 4.6\n"), Some((4, 6, 0)));
        assert_eq!(version("unsquashfs version 4.6.1-3 (x)"), Some((4, 6, 1)));
        assert_eq!(version("unsquashfs version 4.5-git"), Some((4, 5, 0)));
        assert_eq!(version("unsquashfs version x.y"), None);
        assert_eq!(version("nothing"), None);
        assert!([(4, 5, 0), (4, 4, 9)].iter().all(|version| *version < SAFE_VERSION) && (5, 0, 0) > SAFE_VERSION);
    }

    #[test]
    fn an_old_mksquashfs_cannot_read_a_tar() {
        assert_eq!(reads_tar("mksquashfs version 4.5 (2021/07/22)\n"), Ok(()));
        assert_eq!(reads_tar("mksquashfs version 4.6.1 (2023/03/25)\n"), Ok(()));
        let why = reads_tar("mksquashfs version 4.4 (2019/08/29)\n").expect_err("it is too old");
        assert_eq!(why, "mksquashfs 4.4.0 cannot read a tar: install squashfs-tools 4.5.0 or newer");
        assert!(reads_tar("").is_err());
    }

    #[test]
    fn lists_are_summed_up() {
        let check = |list: &str, most: u64| sum(list.as_bytes(), most);
        let list = "drwxr-xr-x 0/0                 3 2020-02-02 02:02 squashfs-root\n\
                    -rw-r--r-- 0/0          1000 2020-02-02 02:02 squashfs-root/a b\n";
        assert_eq!(check(list, 3000), Ok(()));
        assert!(check(list, 2000).is_err());
        assert!(check("crw-r--r-- 0/0             1,  3 2020-02-02 02:02 squashfs-root/null\n", 9999).is_err());
        assert!(check(&"x".repeat(200 << 10), u64::MAX).is_err());
    }
}
