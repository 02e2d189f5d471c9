//! An image as a mount that cannot be written to. Without set-user-id and devices, whatever the image says.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use larder_sys::{MountAttributes, MountValue, OwnerRange, loop_device, new_mount, owners_namespace, set_mount_owners};

use crate::{Mount, MountError, Owners};

/// Of every mount of ours.
pub(crate) const HARMLESS: MountAttributes = MountAttributes { read_only: false, no_suid: true, no_devices: true };
pub(crate) const LAYER: MountAttributes = MountAttributes { read_only: true, ..HARMLESS };

/// Mount an EROFS image from its files, without a loop device: Linux 6.12.
///
/// # Errors
///
/// Where the kernel refuses; `ENOTBLK` means that this one wants a device.
pub fn erofs(metadata: &Path, data: Option<&Path>) -> Result<Mount, MountError> {
    let (metadata, data) = (real(metadata)?, data.map(real).transpose()?);
    mount_erofs(&metadata, data.as_deref().as_slice(), &metadata)
}

/// Mount an EROFS image that has three devices: its data file, and the file `asked` twice, which is used as it is named.
pub(crate) fn erofs_asked(metadata: &Path, data: &Path, asked: &Path) -> Result<Mount, MountError> {
    let (metadata, data) = (real(metadata)?, real(data)?);
    mount_erofs(&metadata, &[&data, asked, asked], &metadata)
}

/// Whether the kernel mounts EROFS images that have their data in a file of its own: Linux 5.16. Else all must be in one.
pub fn erofs_has_data() -> bool {
    larder_sys::knows_mount_option("erofs", "device")
}

/// Mount an EROFS image by loop devices, for all kernels that know its format. Every byte must be there.
///
/// # Errors
///
/// Where no device can be had, or the kernel refuses.
pub fn erofs_by_loop_device(metadata: &Path, data: Option<&Path>) -> Result<Mount, MountError> {
    let (_open, device) = device_of(metadata)?;
    let second = data.map(device_of).transpose()?;
    mount_erofs(&device, second.as_ref().map(|(_, path)| path.as_path()).as_slice(), metadata)
}

/// Mount a squashfs file by a loop device.
///
/// # Errors
///
/// Where no device can be had, or the kernel refuses.
pub fn squashfs(file: &Path) -> Result<Mount, MountError> {
    let (_open, device) = device_of(file)?;
    let options = [("source", text(&device)), ("ro", MountValue::Flag)];
    let made = new_mount("squashfs", &options, LAYER);
    made.map(Mount::passed).map_err(MountError::refused(format!("squashfs image {}", file.display())))
}

/// The same files, with other owners.
///
/// # Errors
///
/// Where others' numbers may not be mapped, or the file system cannot do that (EROFS: Linux 5.19, squashfs: 6.2).
pub fn owned_by(layer: &Mount, owners: &Owners) -> Result<Mount, MountError> {
    let ranges = |list: &[(u32, u32, u32)]| -> Vec<OwnerRange> {
        list.iter().map(|&(stored, seen, count)| OwnerRange { stored, seen, count }).collect()
    };
    let refused = |step: &'static str| {
        move |error| {
            let what = "an image with other owners".to_owned();
            MountError::Refused { what, step: step.to_owned(), error, said: String::new() }
        }
    };
    let mount = layer.another()?;
    let namespace =
        owners_namespace(&ranges(&owners.users), &ranges(&owners.groups)).map_err(refused("a map of users"))?;
    set_mount_owners(mount.descriptor(), namespace).map_err(refused("MOUNT_ATTR_IDMAP"))?;
    Ok(mount)
}

fn mount_erofs(source: &Path, devices: &[&Path], image: &Path) -> Result<Mount, MountError> {
    let mut options = vec![("source", text(source)), ("ro", MountValue::Flag)];
    options.extend(devices.iter().map(|device| ("device", text(device))));
    let made = new_mount("erofs", &options, LAYER);
    made.map(Mount::passed).map_err(MountError::refused(format!("EROFS image {}", image.display())))
}

fn text(path: &Path) -> MountValue<'_> {
    MountValue::Text(path.as_os_str().as_bytes())
}

/// The kernel looks for files from where we are, and relative names would not say which.
fn real(path: &Path) -> Result<PathBuf, MountError> {
    std::fs::canonicalize(path).map_err(MountError::path(path, "cannot be found"))
}

fn device_of(path: &Path) -> Result<(File, PathBuf), MountError> {
    let file = File::open(path).map_err(MountError::path(path, "cannot be opened"))?;
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        let error = io::Error::from(io::ErrorKind::InvalidInput);
        return Err(MountError::path(path, "is no file that an image can be in")(error));
    }
    loop_device(&file).map_err(MountError::path(path, "no loop device can be had for it"))
}
