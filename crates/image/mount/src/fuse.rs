//! Mounts by an installed FUSE program, which needs `/dev/fuse`: an image by `squashfuse` or
//! `erofsfuse`, and a writable directory on top of it by `fuse-overlayfs`.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Backend, Image, Mount, MountError};

const SEARCHED: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// A program in the foreground that has not mounted within this time is killed.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(1);
/// At most this many bytes of the program's output are quoted in an error.
const SAID_BYTES_MAX: u64 = 512;

/// How long the FUSE program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// As long as the mount exists.
    AsMount,
    /// As long as the mount exists, but not longer than the thread that asked for it. This is for
    /// mounts in a namespace of their own: the program is a member of that namespace, so it would
    /// keep the namespace and the mount alive.
    AsThread,
}

/// Returns the path of the FUSE program for this kind of image, or why there is none.
pub(crate) fn program_for(image: &Image) -> Result<PathBuf, String> {
    match image {
        Image::Erofs { .. } => installed("erofsfuse"),
        Image::Squashfs(_) => installed("squashfuse"),
    }
}

/// Returns the path of an installed FUSE program, or why it cannot be used.
fn installed(name: &str) -> Result<PathBuf, String> {
    if let Err(error) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        return Err(format!("/dev/fuse cannot be opened: {error}"));
    }
    let found = SEARCHED.split(':').map(|directory| Path::new(directory).join(name)).find(|path| path.is_file());
    found.ok_or_else(|| format!("{name} is not installed"))
}

/// Checks whether a squashfs file could be mounted by a FUSE program, without trying it. The error
/// is a text for users that says what is missing.
pub fn possible() -> Result<(), String> {
    program_for(&Image::Squashfs(PathBuf::new())).map(drop)
}

/// Mounts an image read-only by a FUSE program, as a detached mount. The program ends when the
/// mount is no longer used. The program can only mount on a path, so a temporary directory is made
/// in `near` and removed again. Fails if there is no program for the image, if the program fails,
/// or if this process may not mount. Without that right the program could still mount by
/// `fusermount3`. But `fusermount3` unmounts only if `/etc/mtab` exists, and no overlay can be put
/// on such a mount.
pub fn layer(image: &Image, near: &Path, life: Life) -> Result<Mount, MountError> {
    if !larder_sys::may_mount() {
        let why = "root or a user namespace of its own is needed".to_owned();
        return Err(MountError::Unable { backend: Backend::Fuse, why });
    }
    let place = near.join(format!(".fuse-{:016x}", larder_sys::random_u64()));
    fs::create_dir(&place).map_err(MountError::path(&place, "cannot be made"))?;
    let layer = || {
        mount(image, &place, life)?;
        detached(&place)
    };
    let layer = match life {
        Life::AsThread => layer(),
        // No other process sees this mount namespace. So if we are killed here, no mount is left on
        // the path.
        Life::AsMount => larder_sys::in_lasting_mounts(|| Ok(layer()))
            .map_err(MountError::path(&place, "no mount namespace can be made for it"))
            .and_then(|layer| layer),
    };
    let _ = fs::remove_dir(&place);
    layer
}

fn mount(image: &Image, target: &Path, life: Life) -> Result<(), MountError> {
    let program = program_for(image).map_err(|why| MountError::Unable { backend: Backend::Fuse, why })?;
    let target = absolute(target)?;
    // The overlay on top decides which users may read the files. Only root may use `allow_other`.
    let others = if larder_sys::effective_user() == 0 { ",allow_other" } else { "" };
    let mut words: Vec<OsString> = vec!["-o".into(), format!("ro,nosuid,nodev{others}").into()];
    match image {
        Image::Squashfs(file) => words.push(absolute(file)?.into()),
        Image::Erofs { metadata, data } => {
            if let Some(data) = data {
                let mut option = OsString::from("--device=");
                option.push(absolute(data)?);
                words.push(option);
            }
            words.push(absolute(metadata)?.into());
        }
    }
    words.push(target.as_os_str().to_owned());
    let mounted = match life {
        Life::AsMount => in_background(&program, words),
        Life::AsThread => in_foreground(&program, words, &target),
    };
    mounted.map_err(failed(&program))
}

fn failed(program: &Path) -> impl FnOnce(io::Error) -> MountError {
    let program = program.display().to_string();
    |error| MountError::Program { program, why: error.to_string() }
}

/// The program that can replace the kernel's overlay.
pub(crate) const OVERLAY: &str = "fuse-overlayfs";
/// The directories in a scratch directory that `overlay` mounts on for a moment.
pub(crate) const OVERLAY_PLACES: [&str; 2] = ["lower", "merged"];

/// Returns a writable, detached mount that shows `lower`, by the program `fuse-overlayfs`. Changes
/// are kept in the directories `upper` and `work` of `scratch`. The program ends with this thread.
///
/// The program knows its layers by paths, and it can only mount on a path:
///
/// 1. A copy of `lower` is attached to `scratch/lower`.
/// 2. The program opens its layers and mounts on `scratch/merged`.
/// 3. Both are detached again. The program still has its layers open, and the result is a copy of
///    its mount.
///
/// Fails if there is no such program, if it fails, or if this process may not mount.
pub(crate) fn overlay(lower: &Mount, scratch: &Path) -> Result<Mount, MountError> {
    let unable = |why: String| MountError::Program { program: "an overlay by a program".to_owned(), why };
    let program = installed(OVERLAY).map_err(unable)?;
    let scratch = absolute(scratch)?;
    let [below, merged] = OVERLAY_PLACES.map(|name| scratch.join(name));
    let made = |path: &Path| fs::create_dir(path).map_err(MountError::path(path, "cannot be made"));
    made(&below)?;
    let overlay = || {
        made(&merged)?;
        let lower = lower.another()?.place(&below)?;
        let option = layers(&below, &scratch)?;
        let words = vec!["-o".into(), option, merged.as_os_str().to_owned()];
        in_foreground(&program, words, &merged).map_err(failed(&program))?;
        let copy = detached(&merged)?;
        lower.take_away().map(|()| copy)
    };
    let overlay = overlay();
    for place in [&merged, &below] {
        let _ = fs::remove_dir(place);
    }
    overlay
}

/// Returns the mount options for `fuse-overlayfs`. It splits `lowerdir` at each colon, and knows no
/// way to quote one. In other options, commas and backslashes are quoted.
fn layers(below: &Path, scratch: &Path) -> Result<OsString, MountError> {
    if below.as_os_str().as_bytes().contains(&b':') {
        let error = io::Error::from(io::ErrorKind::InvalidInput);
        return Err(MountError::path(below, "has a colon, so fuse-overlayfs cannot use it")(error));
    }
    let mut option = b"nosuid,nodev,volatile".to_vec();
    for (name, path) in [("lowerdir", below), ("upperdir", &scratch.join("upper")), ("workdir", &scratch.join("work"))]
    {
        option.extend([b",", name.as_bytes(), b"="].concat());
        for byte in path.as_os_str().as_bytes() {
            option.extend((matches!(byte, b',' | b'\\')).then_some(b'\\'));
            option.push(*byte);
        }
    }
    Ok(OsString::from_vec(option))
}

/// Takes the mount off a path, and returns it as a detached mount.
fn detached(place: &Path) -> Result<Mount, MountError> {
    let open = || larder_sys::open_place(place).map_err(MountError::path(place, "cannot be opened"));
    let copy = Mount::passed(open()?).another();
    larder_sys::unmount(open()?).map_err(MountError::path(place, "cannot be unmounted"))?;
    copy
}

fn absolute(path: &Path) -> Result<PathBuf, MountError> {
    std::path::absolute(path).map_err(MountError::path(path, "cannot be made absolute"))
}

/// Starts a program that moves itself to the background once it has mounted.
fn in_background(program: &Path, words: Vec<OsString>) -> io::Result<()> {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", SEARCHED).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null());
    let ended = command.args(words).stderr(Stdio::piped()).output()?;
    match ended.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&ended.stderr).trim().to_owned())),
    }
}

/// Starts a program in the foreground: it stays our child and is killed when this thread ends.
fn in_foreground(program: &Path, words: Vec<OsString>, target: &Path) -> io::Result<()> {
    let said = larder_sys::growing_memory_file("larder-fuse")?;
    let first = [program.as_os_str().to_owned(), "-f".into()];
    let argv: Vec<Vec<u8>> = first.into_iter().chain(words).map(OsString::into_vec).collect();
    let environment = [format!("PATH={SEARCHED}").into_bytes()];
    let (path, before) = (program.as_os_str().as_bytes(), device(target)?);
    let start = || larder_sys::spawn_bound(path, &argv, &environment, said.as_raw_fd());
    let child = larder_sys::lending_mount_rights(start)?;
    let (pid, began) = (child.pid as u32, Instant::now());
    let process = larder_sys::open_process(pid)?;
    while device(target)? == before {
        let ended = larder_sys::process_ended(&process)?;
        if ended || began.elapsed() > PATIENCE {
            // The program may have ended by itself in the meantime, so an error is ignored.
            let _ = larder_sys::kill_process(&process);
            let _ = child.wait();
            return Err(io::Error::other(what_was_said(said, ended)));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn device(path: &Path) -> io::Result<u64> {
    Ok(fs::symlink_metadata(path)?.dev())
}

fn what_was_said(mut said: File, ended: bool) -> String {
    let mut bytes = Vec::new();
    // If the output cannot be read, the message says that there was none.
    let _ = said.rewind().and_then(|()| said.take(SAID_BYTES_MAX).read_to_end(&mut bytes));
    match (String::from_utf8_lossy(&bytes).trim(), ended) {
        ("", true) => "it ended without a message".to_owned(),
        ("", false) => "it did not mount in time".to_owned(),
        (text, _) => text.to_owned(),
    }
}
