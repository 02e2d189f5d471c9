//! The ways to save and restore a tree, as commands.

use super::tree::{Tree, bytes_of};
use crate::files::{fresh, remove};
use crate::run;
use anyhow::Result;
use larder_testkit::{Proxy, Server};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The programs and directories of the benchmark.
pub(super) struct Ways {
    pub(super) larder: PathBuf,
    pub(super) work: PathBuf,
    /// True if each tree is put on a new ext4 file system. Otherwise trees are put where others were
    /// removed before, which is slow on ext4.
    has_disk: bool,
    far: Option<Far>,
}

/// A web server, and a proxy that adds latency.
struct Far {
    server: Server,
    proxy: Proxy,
}

/// Each connection gets 200 MB/s.
const LOCATION: &str = "location / { dav_methods PUT; create_full_put_path on; limit_rate 200m; }";

/// The time limit for a process to end after SIGTERM.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// A way. Ways that save come first, because the others use their results.
pub(super) struct Way {
    pub(super) name: &'static str,
    /// True if it saves. Otherwise it restores or mounts.
    pub(super) saves: bool,
    pub(super) prepare: fn(&Ways, &Tree) -> Result<()>,
    pub(super) command: fn(&Ways, &Tree) -> Command,
    /// Returns the size of the result, or of its new part, if that is known.
    pub(super) bytes: fn(&Ways) -> Result<Option<u64>>,
    pub(super) after: fn(&Ways, &Tree) -> Result<()>,
}

impl Way {
    /// Returns true if other ways use its result or are compared with it. Any other way is left out
    /// if it fails.
    pub(super) fn is_needed(&self) -> bool {
        NEEDED.contains(&self.name)
    }
}

pub(super) const TAR: &str = "tar | zstd -3";
pub(super) const SAVED: &str = "larder, saved";
pub(super) const AGAIN: &str = "larder, saved again, nothing changed";
pub(super) const FIVE_CHANGED: &str = "larder, saved again, five packages changed";
pub(super) const UNTAR: &str = "zstd -d | tar";
pub(super) const UNPACKED: &str = "larder, unpacked";
pub(super) const LAZY: &str = "larder, mounted lazily, fetched";

const NEEDED: [&str; 6] = [TAR, SAVED, AGAIN, FIVE_CHANGED, UNTAR, UNPACKED];

/// The ways for a tree of which only the size matters.
const OF_SIZES: [&str; 6] = [TAR, SAVED, AGAIN, UNTAR, UNPACKED, LAZY];

/// Returns a way with a name and a command, and defaults for the rest.
fn way(name: &'static str, saves: bool, command: fn(&Ways, &Tree) -> Command) -> Way {
    let prepare: fn(&Ways, &Tree) -> Result<()> = if saves { |_, _| Ok(()) } else { |ways, _| ways.fresh_target() };
    Way { name, saves, prepare, command, bytes: |_| Ok(None), after: |_, _| Ok(()) }
}

/// Returns a way that mounts the tree from the store.
fn mounted(name: &'static str, command: fn(&Ways, &Tree) -> Command) -> Way {
    Way { after: |ways, tree| ways.unmount(tree, "store"), ..way(name, false, command) }
}

impl Ways {
    /// Starts in an empty `work`, with a web server that is `round_trip` away. Mounts that an
    /// interrupted run left there are removed first.
    pub(super) fn begin(larder: PathBuf, work: PathBuf, round_trip: Duration) -> Result<Ways> {
        let far = Server::nginx(LOCATION).map(|server| {
            let proxy = Proxy::before(([127, 0, 0, 1], server.port).into());
            proxy.set(larder_testkit::Way::Late(round_trip));
            Far { server, proxy }
        });
        let mut ways = Ways { larder, work, has_disk: false, far };
        ways.no_target()?;
        ways.end_brokers()?;
        fresh(&ways.work)?;
        if nix::unistd::geteuid().is_root() {
            match ways.mount_disk() {
                Ok(()) => ways.has_disk = true,
                Err(error) => println!("image: trees do not get a file system of their own: {error:#}"),
            }
            ways.no_target()?;
        }
        Ok(ways)
    }

    /// Removes all mounts and files, and prints what could not be removed.
    pub(super) fn end(&self) {
        let ended = self.no_target().and_then(|()| self.end_brokers()).and_then(|()| remove(&self.work));
        if let Err(error) = ended {
            println!("image: cannot remove {}: {error:#}", self.work.display());
        }
    }

    /// Returns all ways for this tree.
    pub(super) fn all(&self, tree: &Tree) -> Vec<Way> {
        let mut all = vec![
            Way {
                bytes: |w| w.size("a.tar.zst"),
                ..way(TAR, true, |w, t| w.shell(t, "tar -cf - \"$NAME\" | zstd -q -3 -f -o \"$WORK/a.tar.zst\""))
            },
            Way {
                prepare: |w, _| fresh(w.work.join("store")),
                bytes: |w| w.said("packed_bytes"),
                ..way(SAVED, true, |w, t| w.save(&t.path, "a-1"))
            },
            Way { bytes: |w| w.said("new_bytes"), ..way(AGAIN, true, |w, t| w.save(&t.path, "a-1")) },
            Way {
                prepare: |w, t| {
                    fresh(w.work.join("changed"))?;
                    t.changed(&w.work.join("changed").join(t.name()))
                },
                bytes: |w| w.said("new_bytes"),
                ..way(FIVE_CHANGED, true, |w, t| w.save(&w.work.join("changed").join(t.name()), "a-2"))
            },
            way(UNTAR, false, |w, t| w.shell(t, "zstd -q -dc \"$WORK/a.tar.zst\" | tar -C \"$WORK/to\" -xf -")),
            way(UNPACKED, false, |w, t| w.restore(t, "store", None)),
            mounted("larder, mounted", |w, t| w.mount(t, "store", "mount", None)),
            // The first round makes the file, and later rounds use it.
            mounted("larder, as squashfs", |w, t| w.mount(t, "store", "squashfs", None)),
            mounted("larder, the same by FUSE", |w, t| w.mount(t, "store", "fuse", None)),
            Way {
                prepare: |w, t| {
                    w.fresh_target()?;
                    fresh(w.work.join("other"))?;
                    w.publish(t, &w.remote())
                },
                after: |w, t| w.unmount(t, "other"),
                ..way(LAZY, false, |w, t| w.mount(t, "other", "lazy", Some(&w.remote())))
            },
        ];
        if self.far.is_some() {
            all.extend(far_ways());
        } else {
            println!("image: the far ways are left out, because nginx is not installed");
        }
        all.retain(|way| !tree.is_sized || OF_SIZES.contains(&way.name));
        all
    }

    /// Returns the URL of the web server, directly or through the proxy.
    fn far_url(&self, by_proxy: bool) -> String {
        let port = self.far.as_ref().map(|far| if by_proxy { far.proxy.address().port() } else { far.server.port });
        format!("http://127.0.0.1:{}/team", port.unwrap_or_default())
    }

    /// Returns the path of the tree after it was restored.
    pub(super) fn target(&self, tree: &Tree) -> PathBuf {
        self.target_dir().join(tree.name())
    }

    /// Makes an empty directory, for root on a file system of its own. For minutes after a removal,
    /// ext4 does not reuse the removed inodes and examines all of them for each new file. So
    /// creating files would take up to three times as long after another tree was removed.
    fn fresh_target(&self) -> Result<()> {
        self.no_target()?;
        if self.has_disk { self.mount_disk() } else { fresh(self.target_dir()) }
    }

    /// Mounts a new file system there.
    fn mount_disk(&self) -> Result<()> {
        fresh(self.target_dir())?;
        let file = self.work.join("to.ext4");
        std::fs::File::create(&file)?.set_len(DISK_BYTES)?;
        run::output(Command::new("mkfs.ext4").args(["-q", "-F", "-E", "lazy_itable_init=1", "-i", "4096"]).arg(&file))?;
        run::output(Command::new("mount").args(["-o", "loop"]).arg(&file).arg(self.target_dir())).map(drop)
    }

    /// Unmounts everything there.
    fn no_target(&self) -> Result<()> {
        let mounts = std::fs::read_to_string("/proc/self/mounts")?;
        let work = self.work.display().to_string();
        let places = mounts.lines().rev().filter_map(|line| line.split(' ').nth(1));
        for place in places.filter(|place| Path::new(place).starts_with(&work)) {
            run::output(Command::new("umount").arg(place))?;
        }
        Ok(())
    }

    fn target_dir(&self) -> PathBuf {
        self.work.join("to")
    }

    fn mount(&self, tree: &Tree, store: &str, via: &str, remote: Option<&str>) -> Command {
        let mut command = self.larder(store, remote, &["mount", "--strict", "--via", via, "--key", "a-1"]);
        command.arg(tree.name());
        command
    }

    fn unmount(&self, tree: &Tree, store: &str) -> Result<()> {
        let remote = match store {
            "other" => Some(self.remote()),
            "distant" => Some(self.far_url(true)),
            _ => None,
        };
        run::output(self.larder(store, remote.as_deref(), &["unmount", "--strict"]).arg(tree.name()))?;
        // A broker that waits for more work would disturb the next measurement, and the removal of
        // its store.
        self.end_brokers()
    }

    /// Ends the brokers of the stores here, and waits until they have ended.
    fn end_brokers(&self) -> Result<()> {
        run::end_all(END_PATIENCE, || self.brokers())
    }

    /// Returns the CPU time of the running brokers of the stores here.
    pub(super) fn cpu_of_brokers(&self) -> Duration {
        let clock = |pid| ClockId::pid_cpu_clock_id(Pid::from_raw(pid)).and_then(clock_gettime).ok();
        self.brokers().into_iter().filter_map(clock).map(Duration::from).sum()
    }

    /// Returns the process IDs of the brokers that have a store here.
    fn brokers(&self) -> Vec<i32> {
        let is_broker = |pid: &i32| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.split(|&byte| byte == 0).any(|word| word == b"broker")
        };
        let all = run::processes_with(&format!("LARDER_DIR={}/", self.work.display()));
        all.into_iter().filter(is_broker).collect()
    }

    fn shell(&self, tree: &Tree, script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-e", "-c", script]).env("WORK", &self.work).env("NAME", tree.name());
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

    fn restore(&self, tree: &Tree, store: &str, remote: Option<&str>) -> Command {
        let mut command = self.larder(store, remote, &["restore", "--strict", "--key", "a-1"]);
        command.arg(tree.name());
        command
    }

    fn remote(&self) -> String {
        format!("file://{}", self.work.join("far").display())
    }

    /// Uploads the tree to a remote.
    fn publish(&self, tree: &Tree, url: &str) -> Result<()> {
        let mut save = self.larder("store", Some(url), &["save", "--strict", "--key", "a-1"]);
        run::output(save.arg(&tree.path).current_dir(&self.work)).map(drop)
    }

    fn size(&self, name: &str) -> Result<Option<u64>> {
        bytes_of(&self.work.join(name)).map(Some)
    }

    /// Returns a number from larder's last output.
    fn said(&self, name: &str) -> Result<Option<u64>> {
        let said = std::fs::read_to_string(self.said_in())?;
        Ok(serde_json::from_str::<serde_json::Value>(&said)?[name].as_u64())
    }

    /// Returns the file for the output of the measured command.
    pub(super) fn said_in(&self) -> PathBuf {
        self.work.join("said")
    }
}

/// Returns the ways over a network with 200 MB/s per connection.
fn far_ways() -> [Way; 3] {
    let anew: fn(&Ways, &Tree) -> Result<()> = |w, t| {
        w.fresh_target()?;
        fresh(w.work.join("distant"))?;
        w.publish(t, &w.far_url(false))
    };
    [
        Way {
            prepare: |w, _| {
                w.fresh_target()?;
                let put = format!("{}/a.tar.zst", w.far_url(false));
                run::output(Command::new("curl").args(["-sSf", "-T"]).arg(w.work.join("a.tar.zst")).arg(put)).map(drop)
            },
            ..way("curl | zstd -d | tar, far", false, |w, t| {
                let script = "curl -sSf \"$URL/a.tar.zst\" | zstd -q -dc | tar -C \"$WORK/to\" -xf -";
                let mut command = w.shell(t, script);
                command.env("URL", w.far_url(true));
                command
            })
        },
        Way {
            prepare: anew,
            ..way("larder, unpacked, far", false, |w, t| w.restore(t, "distant", Some(&w.far_url(true))))
        },
        Way {
            prepare: anew,
            after: |w, t| w.unmount(t, "distant"),
            ..way("larder, mounted lazily, far", false, |w, t| w.mount(t, "distant", "lazy", Some(&w.far_url(true))))
        },
    ]
}

/// The size of the file system for trees. The file is sparse.
const DISK_BYTES: u64 = 16 << 30;
