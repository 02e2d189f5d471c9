//! An image as a read-only mount. Set-user-id bits and device files have no effect in it, whatever
//! the image says.
//!
//! Unaware of: how the image was made, and where the mount is attached.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use larder_sys::{MountAttributes, MountValue, OwnerRange, loop_device, new_mount, owners_namespace, set_mount_owners};

use crate::{Mount, MountError, Owners};

/// The mount attributes of every writable mount of larder; `LAYER` adds read-only.
pub const HARMLESS: MountAttributes = MountAttributes { read_only: false, no_suid: true, no_devices: true };
pub(crate) const LAYER: MountAttributes = MountAttributes { read_only: true, ..HARMLESS };

/// Mounts an EROFS image directly from its files, without a loop device. This needs Linux 6.12.
/// Fails if the kernel refuses. `ENOTBLK` means that this kernel only mounts EROFS from a block
/// device.
pub fn erofs(metadata: &Path, data: Option<&Path>) -> Result<Mount, MountError> {
    let (metadata, data) = (real(metadata)?, data.map(real).transpose()?);
    mount_erofs(&metadata, data.as_deref().as_slice(), &metadata)
}

/// Mounts an EROFS image that has three devices: its data file, and twice the file `asked`. The
/// path `asked` is used as it is, because it may be a path in `/proc/self/fd`.
pub(crate) fn erofs_asked(metadata: &Path, data: &Path, asked: &Path) -> Result<Mount, MountError> {
    let (metadata, data) = (real(metadata)?, real(data)?);
    mount_erofs(&metadata, &[&data, asked, asked], &metadata)
}

/// Returns true if the kernel mounts EROFS images whose data is in a separate file, which Linux
/// 5.16 and later can do. For an older kernel, metadata and data must be in one file.
pub fn erofs_has_data() -> bool {
    larder_sys::knows_mount_option("erofs", "device")
}

/// Mounts an EROFS image through loop devices, which works on all kernels that know the image's
/// format. Every byte of the data must be local. Fails if there is no free loop device, or the
/// kernel refuses.
pub fn erofs_by_loop_device(metadata: &Path, data: Option<&Path>) -> Result<Mount, MountError> {
    let (_open, device) = device_of(metadata)?;
    let second = data.map(device_of).transpose()?;
    mount_erofs(&device, second.as_ref().map(|(_, path)| path.as_path()).as_slice(), metadata)
}

/// Mounts a squashfs file through a loop device. Fails if there is no free loop device, or the
/// kernel refuses.
pub fn squashfs(file: &Path) -> Result<Mount, MountError> {
    let (_open, device) = device_of(file)?;
    let options = [("source", text(&device)), ("ro", MountValue::Flag)];
    let made = new_mount("squashfs", &options, LAYER);
    made.map(Mount::passed).map_err(MountError::refused(format!("squashfs image {}", file.display())))
}

/// Returns a mount of the same files that shows other owners (an ID-mapped mount). Fails if this
/// process may not map these IDs, or if the file system does not support ID-mapped mounts. EROFS
/// does since Linux 5.19, squashfs since 6.2.
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

/// Returns the absolute path without symbolic links. The kernel resolves the paths in mount options
/// relative to our working directory, and a relative path would not identify the file in messages.
fn real(path: &Path) -> Result<PathBuf, MountError> {
    std::fs::canonicalize(path).map_err(MountError::path(path, "cannot be found"))
}

fn device_of(path: &Path) -> Result<(File, PathBuf), MountError> {
    let file = File::open(path).map_err(MountError::path(path, "cannot be opened"))?;
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        let error = io::Error::from(io::ErrorKind::InvalidInput);
        return Err(MountError::path(path, "is not a regular file")(error));
    }
    loop_device(&file).map_err(MountError::path(path, "no loop device can be set up for it"))
}
