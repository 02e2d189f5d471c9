//! squashfs, by the programs of Debian's `squashfs-tools`: the kernel and others read what they write.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::JoinHandle;

use crate::ImageError;

/// What is told of what a program said, bytes: it begins with what went wrong.
const SAID_BYTES_MAX: usize = 512;
/// A file that cannot be read is made again so often.
pub(super) const TRIES: u32 = 3;

/// A program that makes a file of a tar.
pub(super) struct Making {
    child: Child,
    said: JoinHandle<Vec<u8>>,
    to: std::path::PathBuf,
}

/// Begin to make `to`; the tar goes to what is returned.
pub(super) fn begin(to: &Path) -> Result<(Making, ChildStdin), ImageError> {
    let mut command = Command::new("mksquashfs");
    command.arg("-").arg(to).args(["-tar", "-quiet", "-no-progress", "-comp", "zstd", "-Xcompression-level", "3"]);
    // With them 4.5.1 (Debian 12) now and then writes one that nobody can unpack: in 4 of 46 runs over a tar of 9,610
    // files, also on one processor; in none of 16 without.
    command.args(["-noappend", "-no-fragments"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| missing(to, "mksquashfs", &error))?;
    let input = child.stdin.take().expect("it was asked for");
    let errors = child.stderr.take().expect("it was asked for");
    let said = std::thread::spawn(move || first_of(errors));
    Ok((Making { child, said, to: to.to_owned() }, input))
}

impl Making {
    /// Wait for it, once all was written.
    pub(super) fn end(mut self) -> Result<(), ImageError> {
        let status = self.child.wait().map_err(ImageError::io("wait for mksquashfs", &self.to))?;
        let said = self.said.join().unwrap_or_default();
        match status.success() {
            true => Ok(()),
            false => Err(ImageError::archive(&self.to, failed("mksquashfs", status, &said))),
        }
    }
}

/// Whether all of a file can be read, as `unsquashfs` finds; else what it says. What 4.5.1 wrote is not always so.
pub(super) fn unreadable(file: &Path) -> Result<Option<String>, ImageError> {
    let mut command = Command::new("unsquashfs");
    // As one stream (`-pf`, from 4.5 on) nothing is created. 4.5.1 takes `-` for a file's name.
    command.args(["-quiet", "-no-progress", "-pf", "/dev/null"]).arg(file);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| missing(file, "unsquashfs", &error))?;
    let said = first_of(child.stderr.take().expect("it was asked for"));
    let status = child.wait().map_err(ImageError::io("wait for unsquashfs", file))?;
    Ok((!status.success() || !said.is_empty()).then(|| failed("unsquashfs", status, &said)))
}

/// Unpack the file `from` to `top`, which is made.
pub(super) fn read(from: &Path, top: &Path) -> Result<(), ImageError> {
    let mut command = Command::new("unsquashfs");
    command.args(["-quiet", "-no-progress", "-dest"]).arg(top);
    // A name that begins with a dash is none of its options.
    command.arg(std::path::absolute(from).map_err(ImageError::io("find it", from))?);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| missing(from, "unsquashfs", &error))?;
    let said = first_of(child.stderr.take().expect("it was asked for"));
    let status = child.wait().map_err(ImageError::io("wait for unsquashfs", from))?;
    match status.success() {
        true => Ok(()),
        false => Err(ImageError::archive(from, failed("unsquashfs", status, &said))),
    }
}

fn missing(file: &Path, program: &str, error: &io::Error) -> ImageError {
    let why = format!("{program} cannot be started ({error}): install squashfs-tools, or take another format");
    ImageError::archive(file, why)
}

fn failed(program: &str, status: std::process::ExitStatus, said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    format!("{program} ended with {status}: {}", lines.join("; "))
}

/// The first bytes of what comes; the rest is read, so that nobody waits.
fn first_of(mut from: impl Read) -> Vec<u8> {
    let mut said = Vec::new();
    let _ = (&mut from).take(SAID_BYTES_MAX as u64).read_to_end(&mut said);
    let _ = io::copy(&mut from, &mut io::sink());
    said
}
