//! Each way to save the tree and to have it again, as commands.

use super::bytes_of;
use super::tree::Tree;
use crate::place::{fresh, remove};
use crate::run;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where all of it is.
pub(crate) struct Ways {
    pub(crate) larder: PathBuf,
    pub(crate) work: PathBuf,
}

/// One of them. Those that save come first, so that what they leave is there for the others.
pub(crate) struct Way {
    pub(crate) name: &'static str,
    /// Whether it saves; else it has the tree again.
    pub(crate) saves: bool,
    pub(crate) prepare: fn(&Ways, &Tree) -> Result<()>,
    pub(crate) command: fn(&Ways, &Tree) -> Command,
    /// What it left, or what of that was new.
    pub(crate) bytes: fn(&Ways) -> Result<Option<u64>>,
    /// Where the tree is then.
    pub(crate) place: fn(&Ways) -> Option<PathBuf>,
    pub(crate) after: fn(&Ways) -> Result<()>,
}

/// Nothing more than its name, whether it saves, and its command.
fn way(name: &'static str, saves: bool, command: fn(&Ways, &Tree) -> Command) -> Way {
    let place: fn(&Ways) -> Option<PathBuf> = if saves { |_| None } else { |ways| Some(ways.target()) };
    let prepare: fn(&Ways, &Tree) -> Result<()> = if saves { |_, _| Ok(()) } else { |ways, _| ways.fresh_target() };
    Way { name, saves, prepare, command, bytes: |_| Ok(None), place, after: |_| Ok(()) }
}

impl Ways {
    /// All of them.
    pub(crate) fn all(&self) -> Vec<Way> {
        let archive = |name, command, bytes| Way { bytes, ..way(name, true, command) };
        vec![
            archive(
                "tar | zstd -3",
                |w, t| w.shell(t, "tar -cf - node_modules | zstd -q -3 -f -o \"$WORK/a.tar.zst\""),
                |w| w.size("a.tar.zst"),
            ),
            archive(
                "tar | lz4",
                |w, t| w.shell(t, "tar -cf - node_modules | lz4 -q -f - \"$WORK/a.tar.lz4\""),
                |w| w.size("a.tar.lz4"),
            ),
            archive(
                "zip",
                |w, t| w.shell(t, "rm -f \"$WORK/a.zip\"; zip -q -r -y \"$WORK/a.zip\" node_modules"),
                |w| w.size("a.zip"),
            ),
            archive("mksquashfs, zstd 3", |w, t| w.shell(t, SQUASHFS), |w| w.size("a.squashfs")),
            Way {
                prepare: |w, _| fresh(&w.work.join("store")),
                bytes: |w| w.said("packed_bytes"),
                ..way("larder, saved", true, |w, t| w.save(&t.path, "a-1"))
            },
            Way {
                bytes: |w| w.said("new_bytes"),
                ..way("larder, saved again, nothing changed", true, |w, t| w.save(&t.path, "a-1"))
            },
            Way {
                prepare: |w, t| {
                    remove(&w.work.join("changed"))?;
                    std::fs::create_dir_all(w.work.join("changed"))?;
                    t.changed(&w.work.join("changed/node_modules"))
                },
                bytes: |w| w.said("new_bytes"),
                ..way("larder, saved again, five packages changed", true, |w, _| {
                    w.save(&w.work.join("changed/node_modules"), "a-2")
                })
            },
            way("zstd -d | tar", false, |w, t| {
                w.shell(t, "zstd -q -dc \"$WORK/a.tar.zst\" | tar -C \"$WORK/to\" -xf -")
            }),
            way("lz4 -d | tar", false, |w, t| w.shell(t, "lz4 -q -dc \"$WORK/a.tar.lz4\" | tar -C \"$WORK/to\" -xf -")),
            way("unzip", false, |w, t| w.shell(t, "unzip -q \"$WORK/a.zip\" -d \"$WORK/to\"")),
            way("unsquashfs", false, |w, t| {
                w.shell(t, "unsquashfs -q -n -d \"$WORK/to/node_modules\" \"$WORK/a.squashfs\"")
            }),
            Way {
                after: |w| w.unmount(),
                ..way("squashfs, mounted, overlay", false, |w, t| w.shell(t, MOUNT_SQUASHFS))
            },
            way("larder, unpacked", false, |w, _| w.restore("store", None)),
            Way {
                prepare: |w, t| {
                    w.fresh_target()?;
                    fresh(&w.work.join("other"))?;
                    w.publish(t)
                },
                ..way("larder, fetched and unpacked", false, |w, _| w.restore("other", Some(&w.remote())))
            },
            Way {
                after: |w| w.unmount_ours("store"),
                ..way("larder, mounted", false, |w, _| w.mount("store", "mount", None))
            },
            Way {
                prepare: |w, t| {
                    w.fresh_target()?;
                    fresh(&w.work.join("other"))?;
                    w.publish(t)
                },
                after: |w| w.unmount_ours("other"),
                ..way("larder, mounted lazily, fetched", false, |w, _| w.mount("other", "lazy", Some(&w.remote())))
            },
        ]
    }

    fn target(&self) -> PathBuf {
        self.work.join("to/node_modules")
    }

    /// An empty directory, for root on a file system of its own. ext4 does not use what was an inode for minutes after it
    /// was removed, and looks at all of these again for each file that is made: whoever came after a tree that was
    /// removed would pay for that, up to three times what making files costs.
    fn fresh_target(&self) -> Result<()> {
        self.no_target()?;
        fresh(&self.target_dir())?;
        if !is_root()? {
            return Ok(());
        }
        let file = self.work.join("to.ext4");
        std::fs::File::create(&file)?.set_len(DISK_BYTES)?;
        run::output(Command::new("mkfs.ext4").args(["-q", "-F", "-E", "lazy_itable_init=1", "-i", "4096"]).arg(&file))?;
        run::output(Command::new("mount").args(["-o", "loop"]).arg(&file).arg(self.target_dir())).map(drop)
    }

    /// Take all away that is mounted there, whoever mounted it.
    pub(crate) fn no_target(&self) -> Result<()> {
        let mounts = std::fs::read_to_string("/proc/self/mounts")?;
        let work = self.work.display().to_string();
        let places = mounts.lines().rev().filter_map(|line| line.split(' ').nth(1));
        for place in places.filter(|place| Path::new(place).starts_with(&work)) {
            run::output(Command::new("umount").arg(place))?;
        }
        Ok(())
    }

    /// What is to be known of where trees are put.
    pub(crate) fn notes(&self) -> &'static str {
        match is_root() {
            Ok(true) => {
                "Trees are put on an ext4 of their own, made anew for each. What a broker does is no child's CPU: it is \
                 not in the rows of larder's mounts."
            }
            _ => "Trees are put where others were removed before: ext4 makes that dear.",
        }
    }

    fn target_dir(&self) -> PathBuf {
        self.work.join("to")
    }

    fn mount(&self, store: &str, via: &str, remote: Option<&str>) -> Command {
        self.larder(store, remote, &["mount", "--strict", "--via", via, "--key", "a-1", "node_modules"])
    }

    fn unmount_ours(&self, store: &str) -> Result<()> {
        let remote = (store == "other").then(|| self.remote());
        run::output(&mut self.larder(store, remote.as_deref(), &["unmount", "node_modules"])).map(drop)
    }

    fn shell(&self, tree: &Tree, script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-e", "-c", script]).env("WORK", &self.work);
        command.current_dir(tree.path.parent().unwrap_or(&tree.path));
        command
    }

    fn larder(&self, store: &str, remote: Option<&str>, words: &[&str]) -> Command {
        let mut command = Command::new(&self.larder);
        command.arg("image").args(words).current_dir(self.work.join("to")).env_remove("LARDER_REMOTE");
        command.env("LARDER_DIR", self.work.join(store)).env("LARDER_MAX_SIZE", "0");
        if let Some(url) = remote {
            command.env("LARDER_REMOTE", url);
        }
        command
    }

    fn save(&self, path: &Path, key: &str) -> Command {
        let mut command = self.larder("store", None, &["save", "--strict", "--json", "--key", key]);
        command.arg(path).current_dir(&self.work);
        command
    }

    fn restore(&self, store: &str, remote: Option<&str>) -> Command {
        self.larder(store, remote, &["restore", "--strict", "--key", "a-1", "node_modules"])
    }

    fn remote(&self) -> String {
        format!("file://{}", self.work.join("far").display())
    }

    /// Have the remote hold what the store does.
    fn publish(&self, tree: &Tree) -> Result<()> {
        let url = self.remote();
        let mut save = self.larder("store", Some(&url), &["save", "--strict", "--key", "a-1"]);
        run::output(save.arg(&tree.path).current_dir(&self.work)).map(drop)
    }

    fn size(&self, name: &str) -> Result<Option<u64>> {
        bytes_of(&self.work.join(name)).map(Some)
    }

    /// A number of what larder said last.
    fn said(&self, name: &str) -> Result<Option<u64>> {
        let said = std::fs::read_to_string(self.said_in())?;
        Ok(serde_json::from_str::<serde_json::Value>(&said)?[name].as_u64())
    }

    /// Where the output of what is measured goes.
    pub(crate) fn said_in(&self) -> PathBuf {
        self.work.join("said")
    }

    fn unmount(&self) -> Result<()> {
        run::output(Command::new("umount").arg(self.target()))?;
        run::output(Command::new("umount").arg(self.work.join("lower"))).map(drop)
    }
}

/// Of the file system that trees are put on: sparse, so that it takes what is in it.
const DISK_BYTES: u64 = 16 << 30;

fn is_root() -> Result<bool> {
    use std::os::unix::fs::MetadataExt;
    Ok(std::fs::metadata("/proc/self")?.uid() == 0)
}

const SQUASHFS: &str = "mksquashfs node_modules \"$WORK/a.squashfs\" -noappend -quiet -no-progress -comp zstd \
                        -Xcompression-level 3";
const MOUNT_SQUASHFS: &str = "cd \"$WORK\"; mkdir -p lower upper work to/node_modules; \
                              mount -o ro,loop a.squashfs lower; \
                              mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work larder to/node_modules";
