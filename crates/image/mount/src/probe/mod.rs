//! Finds out which backends work on this machine, by trying each of them with a tiny image. They are
//! tried with the rights of the caller, in the directory where its images are.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the results for this machine, and the choice of a backend |
//! | `tiny.rs` | the smallest images with an empty directory |
//!
//! Unaware of: the image that is to be mounted, except for its kind.

mod tiny;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::overlay::overlay_by_program;
use crate::{Backend, Image, Mount, MountError, Owners, Scratch, Step, fuse, layer, lazy, overlay, serve};

/// The files of the tiny images, in a directory that is removed when this is dropped.
struct Trial {
    directory: PathBuf,
}

impl Drop for Trial {
    fn drop(&mut self) {
        let _ = larder_sys::remove_tree(&self.directory);
    }
}

/// Tries every backend, best first. `directory` is where images are stored: the result depends on its
/// file system.
pub fn ladder(directory: &Path) -> Vec<Step> {
    let trial = match Trial::begin(directory) {
        Ok(trial) => trial,
        Err(error) => {
            let why = format!("mount methods cannot be tried in {}: {error}", directory.display());
            return Backend::ALL.map(|backend| Step { backend, found: Err(why.clone()) }).to_vec();
        }
    };
    let backends = Backend::ALL.into_iter();
    backends
        .map(|backend| Step { backend, found: trial.try_backend(backend).map_err(|why| because(backend, &why)) })
        .collect()
}

/// Returns the best backend that works on this machine and suits the kind of the image. If `wanted`
/// names a backend, returns that one. Fails if the wanted backend does not work or does not suit
/// the image, with the reason.
pub fn choose(ladder: &[Step], image: &Image, wanted: Option<Backend>) -> Result<Backend, MountError> {
    let suits = |backend: Backend| match backend {
        Backend::Lazy => matches!(image, Image::Erofs { data: Some(_), .. }),
        Backend::Mount | Backend::LazyFuse => matches!(image, Image::Erofs { .. }),
        Backend::Squashfs => matches!(image, Image::Squashfs(_)),
        Backend::Fuse => fuse::program_for(image).is_ok(),
        Backend::Unpack => true,
    };
    let possible = |backend: Backend| match ladder.iter().find(|step| step.backend == backend) {
        Some(Step { found: Ok(_), .. }) if suits(backend) => Ok(backend),
        Some(Step { found: Ok(_), .. }) => Err("it is not for images of this kind".to_owned()),
        Some(Step { found: Err(why), .. }) => Err(why.clone()),
        None => Err("it was not tried".to_owned()),
    };
    match wanted {
        Some(backend) => possible(backend).map_err(|why| MountError::Unable { backend, why }),
        None => Ok(Backend::ALL.into_iter().find(|backend| possible(*backend).is_ok()).unwrap_or(Backend::Unpack)),
    }
}

fn because(backend: Backend, why: &str) -> String {
    format!("{why} (needs {})", backend.needs())
}

impl Trial {
    fn begin(directory: &Path) -> io::Result<Trial> {
        let directory = directory.join(format!(".larder-trial-{:016x}", larder_sys::random_u64()));
        fs::create_dir_all(&directory)?;
        let trial = Trial { directory };
        File::create(trial.erofs())?.write_all(&tiny::erofs())?;
        File::create(trial.whole())?.write_all(&tiny::whole())?;
        File::create(trial.data())?.write_all(&tiny::data())?;
        File::create(trial.squashfs())?.write_all(&tiny::squashfs())?;
        Ok(trial)
    }

    fn erofs(&self) -> PathBuf {
        self.directory.join("erofs")
    }

    fn whole(&self) -> PathBuf {
        self.directory.join("whole")
    }

    fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    fn squashfs(&self) -> PathBuf {
        self.directory.join("squashfs")
    }

    /// Tries one backend. Returns how it works on this machine, or why it does not.
    fn try_backend(&self, backend: Backend) -> Result<String, String> {
        let text = |error: MountError| error.to_string();
        match backend {
            Backend::Lazy => {
                let layer = lazy::on_trial(&self.directory, &self.erofs(), &self.data()).map_err(text)?;
                self.write_as_others_on(&layer, Self::EROFS_OWNERS)
                    .map(|whose| format!("EROFS from files, filled when they are read{whose}"))
            }
            Backend::Mount => {
                let (layer, how) = match layer::erofs_has_data() {
                    true => self.mount_erofs(),
                    false => layer::erofs_by_loop_device(&self.whole(), None)
                        .map(|layer| (layer, "EROFS in one file, by a loop device")),
                }
                .map_err(text)?;
                self.write_as_others_on(&layer, Self::EROFS_OWNERS).map(|whose| format!("{how}{whose}"))
            }
            Backend::LazyFuse => {
                serve::possible()?;
                let layer = serve::on_trial(&self.erofs()).map_err(text)?;
                // The server itself answers with the mapped owners, so no ID-mapped mount is tried.
                self.write_on(&layer)
                    .map(|how| format!("larder's own FUSE server, files filled when they are read{how}"))
            }
            Backend::Squashfs => {
                let layer = layer::squashfs(&self.squashfs()).map_err(text)?;
                self.write_as_others_on(&layer, "6.2").map(|whose| format!("squashfs by a loop device{whose}"))
            }
            Backend::Fuse => self.try_fuse(),
            Backend::Unpack => Ok("files made from the image".to_owned()),
        }
    }

    fn try_fuse(&self) -> Result<String, String> {
        let image = Image::Squashfs(self.squashfs());
        let program = fuse::program_for(&image)?;
        // `AsThread` lends the program the right to mount if it has none, as `image run` does.
        let layer = fuse::layer(&image, &self.directory, fuse::Life::AsThread).map_err(|error| error.to_string())?;
        self.write_on(&layer).map(|how| format!("{}{how}", program.display()))
    }

    fn mount_erofs(&self) -> Result<(Mount, &'static str), MountError> {
        let (metadata, data) = (self.erofs(), self.data());
        let by_device = |first| match layer::erofs_by_loop_device(&metadata, Some(&data)) {
            Ok(layer) => Ok((layer, "EROFS by a loop device")),
            // If there is no loop device either, the first refusal says more.
            Err(_) => Err(first),
        };
        layer::erofs(&metadata, Some(&data)).map(|layer| (layer, "EROFS from files")).or_else(by_device)
    }

    /// The first Linux version that supports ID-mapped mounts of EROFS.
    const EROFS_OWNERS: &str = "5.19";

    /// Tries to write to the mount, as `image run` would. Returns an addition to the message, which
    /// is empty if the kernel's overlay works.
    fn write_on(&self, layer: &Mount) -> Result<String, String> {
        let text = |error: MountError| error.to_string();
        let scratch = Scratch::make(&self.directory.join("scratch")).map_err(text)?;
        match overlay(layer, &scratch) {
            Ok(_) => Ok(String::new()),
            Err(refused) => {
                overlay_by_program(layer, &scratch, refused).map_err(text)?;
                Ok(format!("; written to by {}", fuse::OVERLAY))
            }
        }
    }

    /// Tries to write to the mount as root and with mapped owners. Returns an addition to the
    /// message, which is empty if both work. `since` is the first Linux version that supports
    /// ID-mapped mounts of this file system.
    fn write_as_others_on(&self, layer: &Mount, since: &str) -> Result<String, String> {
        let how = self.write_on(layer)?;
        // A broker maps the owner of an image's files to the user that asks.
        let others = layer::owned_by(layer, &Owners::one((0, 0), (1, 1))).and_then(|owned| {
            let scratch = Scratch::make(&self.directory.join("others"))?;
            overlay(&owned, &scratch).map(drop)
        });
        Ok(match others {
            Ok(()) => how,
            Err(_) => format!("{how}; only for jobs of root (jobs of other users need Linux {since})"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_that_is_possible() {
        let step =
            |backend, able: bool| Step { backend, found: if able { Ok(String::new()) } else { Err("no".to_owned()) } };
        let erofs = Image::Erofs { metadata: "m".into(), data: Some("d".into()) };
        let plain = Image::Erofs { metadata: "m".into(), data: None };
        let squashfs = Image::Squashfs("s".into());
        let all: Vec<Step> = Backend::ALL.map(|backend| step(backend, backend != Backend::Fuse)).to_vec();
        let check = |image: &Image, wanted, expect: Result<Backend, &str>| {
            let chosen = choose(&all, image, wanted).map_err(|error| error.to_string());
            assert_eq!(chosen.as_ref().map_err(String::as_str), expect.as_ref().map_err(|text| &**text));
        };
        check(&erofs, None, Ok(Backend::Lazy));
        check(&plain, None, Ok(Backend::Mount));
        check(&squashfs, None, Ok(Backend::Squashfs));
        check(&erofs, Some(Backend::Unpack), Ok(Backend::Unpack));
        check(
            &erofs,
            Some(Backend::Fuse),
            Err("`fuse` is not possible here: no; `larder doctor` shows what is possible"),
        );
        let why =
            "`lazy` is not possible here: it is not for images of this kind; `larder doctor` shows what is possible";
        check(&squashfs, Some(Backend::Lazy), Err(why));
        let none: Vec<Step> = Backend::ALL.map(|backend| step(backend, backend == Backend::Unpack)).to_vec();
        assert_eq!(choose(&none, &erofs, None).expect("is always possible"), Backend::Unpack);
    }
}
