//! An image mounted by a program, where `/dev/fuse` may be opened.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Image, MountError};

const SEARCHED: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The program for an image, by its full name, or why there is none.
pub(crate) fn program_for(image: &Image) -> Result<PathBuf, String> {
    let name = match image {
        Image::Erofs { .. } => "erofsfuse",
        Image::Squashfs(_) => "squashfuse",
    };
    if let Err(error) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        return Err(format!("/dev/fuse cannot be opened: {error}"));
    }
    let found = SEARCHED.split(':').map(|directory| Path::new(directory).join(name)).find(|path| path.is_file());
    found.ok_or_else(|| format!("{name} is not installed"))
}

/// Mount an image at `target` by its program, which ends when it is unmounted.
///
/// # Errors
///
/// Where there is no program for it, or that fails.
pub(crate) fn mount(image: &Image, target: &Path) -> Result<(), MountError> {
    let rung = crate::Rung::Fuse;
    let program = program_for(image).map_err(|why| MountError::Unable { rung, why })?;
    let mut command = Command::new(&program);
    command.env_clear().env("PATH", SEARCHED).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null());
    // Who else may look is decided by the overlay above it, and only the superuser may say so.
    let others = if larder_sys::effective_user() == 0 { ",allow_other" } else { "" };
    command.arg("-o").arg(format!("ro,nosuid,nodev{others}"));
    let absolute = |path: &Path| std::path::absolute(path).map_err(MountError::path(path, "has no place"));
    match image {
        Image::Squashfs(file) => command.arg(absolute(file)?),
        Image::Erofs { metadata, data } => {
            if let Some(data) = data {
                let mut option = OsString::from("--device=");
                option.push(absolute(data)?);
                command.arg(option);
            }
            command.arg(absolute(metadata)?)
        }
    };
    command.arg(absolute(target)?);
    let failed = |why| MountError::Program { program: program.display().to_string(), why };
    let ended = command.stderr(Stdio::piped()).output().map_err(|error| failed(error.to_string()))?;
    match ended.status.success() {
        true => Ok(()),
        false => Err(failed(String::from_utf8_lossy(&ended.stderr).trim().to_owned())),
    }
}
