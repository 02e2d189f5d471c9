//! Runs a script in a virtual machine: a kernel of Debian's in QEMU, without KVM.
//!
//! The machine has one disk, to which nothing is written in the end, and one directory of this machine, which it sees at
//! `/host`. A small initramfs loads modules, mounts both and starts the script as root. What the script prints comes back
//! through one virtual serial port, its exit code through another; the kernel's console is a file.

use crate::arch::Arch;
use crate::place;
use crate::run;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A virtual machine that is not running.
pub(crate) struct Guest {
    pub(crate) arch: Arch,
    /// The kernel's file, `vmlinuz`.
    pub(crate) kernel: PathBuf,
    /// A directory that holds `lib/modules/VERSION` for that kernel and nothing else there.
    pub(crate) modules: PathBuf,
    /// A statically linked busybox for that machine.
    pub(crate) busybox: PathBuf,
    /// An image of ext4 with Debian in it.
    pub(crate) disk: PathBuf,
    pub(crate) processors: usize,
    pub(crate) memory_mb: usize,
}

/// Loaded in this order, each after those that it needs. One that a kernel has built in, or does not have, is left out.
const MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_mmio",
    "virtio_blk",
    "virtio_console",
    "virtio_rng",
    "ext4",
    "crc32c_generic",
    "9p",
    "9pnet_virtio",
    "erofs",
    "squashfs",
    "overlay",
    "fuse",
    "loop",
    "binfmt_misc",
];

/// The first program in the machine.
const INIT: &str = r#"#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev; $b mount -t proc proc /proc; $b mount -t sysfs sys /sys
for m in $($b cat /modules/order); do $b insmod /modules/$m || echo "insmod $m failed"; done
i=0; while [ ! -e /dev/vda ] && [ $i -lt 100 ]; do i=$((i+1)); $b usleep 100000; done
$b mount -t ext4 /dev/vda /root || { echo "the disk cannot be mounted"; $b poweroff -f; }
$b mount -t tmpfs -o mode=755 run /root/run
$b mkdir -p /root/run/xtask /root/host
$b cp /second /script /root/run/xtask/
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 host /root/host || $b poweroff -f
$b ifconfig lo up
for d in dev proc sys; do $b mount --move /$d /root/$d; done
exec $b switch_root /root /bin/sh /run/xtask/second
"#;

/// What the initramfs ends in, on the disk.
const SECOND: &str = r#"mkdir -p /dev/pts /dev/shm
mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t cgroup2 cg /sys/fs/cgroup
ln -sf /proc/self/fd /dev/fd; ln -sf /proc/self/fd/0 /dev/stdin; ln -sf /proc/self/fd/1 /dev/stdout; ln -sf /proc/self/fd/2 /dev/stderr
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root USER=root LOGNAME=root LANG=C.UTF-8 TERM=dumb SHELL=/bin/bash
chmod 1777 /tmp; [ -e /dev/fuse ] && chmod 666 /dev/fuse
hostname machine
mkfifo /run/xtask/out
( cat < /run/xtask/out > $(echo /dev/vport*p1); : > /run/xtask/drained ) &
cd /root
setsid /run/xtask/script > /run/xtask/out 2>&1 < /dev/null
echo $? > $(echo /dev/vport*p2)
i=0; while [ ! -e /run/xtask/drained ] && [ $i -lt 50 ]; do i=$((i+1)); sleep 0.1; done
sync
echo o > /proc/sysrq-trigger
sleep 60
"#;

impl Guest {
    /// Runs `script`, which begins with `#!`, with `host` at `/host`, and shows what it prints. Returns its exit code.
    /// Fails if it does not end within `limit`. `work` is a directory for files of the machine.
    pub(crate) fn run(&self, script: &str, host: &Path, work: &Path, limit: Duration) -> Result<i32> {
        fs::create_dir_all(work).with_context(|| format!("cannot make {}", work.display()))?;
        let initramfs = self.initramfs(script, work)?;
        let (console, code) = (work.join("console"), work.join("code"));
        let _ = fs::remove_file(&code);
        let mut command = self.command(&initramfs, host, &console, &code);
        let mut child = command
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let start = Instant::now();
        let mut is_over = false;
        while child.try_wait().context("cannot wait for QEMU")?.is_none() {
            if start.elapsed() > limit {
                is_over = true;
                child.kill().context("cannot end QEMU")?;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let text = fs::read_to_string(&code).unwrap_or_default();
        match text.trim().parse() {
            Ok(code) => Ok(code),
            Err(_) if is_over => bail!("the machine did not end within {} s", limit.as_secs()),
            Err(_) => bail!("the machine ended before its script did; see {}", console.display()),
        }
    }

    fn command(&self, initramfs: &Path, host: &Path, console: &Path, code: &Path) -> Command {
        let (program, machine, terminal) = match self.arch {
            Arch::X86_64 => ("qemu-system-x86_64", "q35", "ttyS0"),
            Arch::Aarch64 => ("qemu-system-aarch64", "virt", "ttyAMA0"),
        };
        let words = format!("console={terminal} quiet loglevel=1 panic=-1 mitigations=off random.trust_cpu=on");
        let file = |kind: &str, path: &Path| format!("{kind},path={}", path.display());
        let mut command = Command::new(program);
        command
            .args(["-accel", "tcg,thread=multi", "-cpu", "max", "-machine", machine, "-nodefaults", "-no-user-config"])
            .args(["-display", "none", "-no-reboot", "-smp", &self.processors.to_string()])
            .args(["-m", &self.memory_mb.to_string()])
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(initramfs)
            .args(["-append", &words])
            .args(["-chardev", &file("file,id=console", console), "-serial", "chardev:console"])
            .arg("-drive")
            .arg(format!("file={},format=raw,if=none,id=disk,snapshot=on,cache=unsafe", self.disk.display()))
            .args(["-device", "virtio-blk-pci,drive=disk", "-device", "virtio-rng-pci"])
            .args(["-device", "virtio-serial-pci,max_ports=4"])
            .args(["-chardev", "stdio,id=out,signal=off", "-device", "virtserialport,chardev=out,nr=1"])
            .args(["-chardev", &file("file,id=code", code), "-device", "virtserialport,chardev=code,nr=2"])
            .args(["-virtfs", &format!("local,path={},mount_tag=host,security_model=none", host.display())]);
        command
    }

    /// Makes the initramfs: busybox, the modules in their order, the three scripts.
    fn initramfs(&self, script: &str, work: &Path) -> Result<PathBuf> {
        let tree = work.join("initramfs");
        place::fresh(&tree)?;
        for dir in ["bin", "dev", "proc", "sys", "root", "modules"] {
            fs::create_dir(tree.join(dir)).with_context(|| format!("cannot make {dir} in {}", tree.display()))?;
        }
        let place = |name: &str, text: &str| -> Result<()> {
            let path = tree.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).context("cannot set a mode")
        };
        fs::copy(&self.busybox, tree.join("bin/busybox"))
            .with_context(|| format!("there is no {}", self.busybox.display()))?;
        place("init", INIT)?;
        place("second", SECOND)?;
        place("script", script)?;
        let names = self.place_modules(&tree.join("modules"))?;
        place("modules/order", &names.join("\n"))?;
        packed(&tree, &work.join("initramfs.cpio"))
    }

    /// Puts the modules into `to`, and returns their names in the order in which they are loaded.
    fn place_modules(&self, to: &Path) -> Result<Vec<String>> {
        let versions = self.modules.join("lib/modules");
        let mut listed = fs::read_dir(&versions).with_context(|| format!("there is no {}", versions.display()))?;
        let Some(Ok(version)) = listed.next() else { bail!("{} is empty", versions.display()) };
        let dir = version.path();
        if !dir.join("modules.dep").exists() {
            run::output(Command::new("depmod").arg("-b").arg(&self.modules).arg(version.file_name()))?;
        }
        let text = fs::read_to_string(dir.join("modules.dep")).context("depmod made no modules.dep")?;
        let mut names = Vec::new();
        for file in in_order(&text, MODULES) {
            let name = format!("{}.ko", module_name(&file));
            fs::write(to.join(&name), unpacked(&dir.join(&file))?).context("a module cannot be written")?;
            names.push(name);
        }
        Ok(names)
    }
}

/// The files of the wanted modules and of those that they need, each behind what it needs. `dependencies` is a
/// `modules.dep`.
fn in_order(dependencies: &str, wanted: &[&str]) -> Vec<String> {
    let rows: Vec<(&str, Vec<&str>)> = dependencies
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(file, needs)| (file, needs.split_whitespace().collect()))
        .collect();
    let by_name: BTreeMap<String, &(&str, Vec<&str>)> = rows.iter().map(|row| (module_name(row.0), row)).collect();
    let mut order: Vec<String> = Vec::new();
    for (file, needs) in wanted.iter().filter_map(|name| by_name.get(*name)) {
        // modules.dep names the nearest first.
        for one in needs.iter().rev().chain([file]) {
            if !order.iter().any(|known| known == one) {
                order.push((*one).to_owned());
            }
        }
    }
    order
}

/// `virtio_blk` for `kernel/drivers/block/virtio-blk.ko.xz`.
fn module_name(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.split(".ko").next().unwrap_or(name).replace('-', "_")
}

fn unpacked(file: &Path) -> Result<Vec<u8>> {
    let program = match file.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        _ => return fs::read(file).with_context(|| format!("cannot read {}", file.display())),
    };
    let output = Command::new(program).arg("-dc").arg(file).output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        bail!("{program} cannot unpack {}", file.display());
    }
    Ok(output.stdout)
}

/// The tree as a cpio archive, as the kernel reads it.
fn packed(tree: &Path, archive: &Path) -> Result<PathBuf> {
    let mut names = Vec::new();
    list(tree, tree, &mut names)?;
    let file = File::create(archive).with_context(|| format!("cannot write {}", archive.display()))?;
    let mut cpio = Command::new("cpio")
        .args(["--create", "--format=newc", "--owner=0:0", "--quiet", "--null"])
        .current_dir(tree)
        .stdin(Stdio::piped())
        .stdout(file)
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start cpio")?;
    cpio.stdin
        .take()
        .context("cpio has no input")?
        .write_all(names.join("\0").as_bytes())
        .context("cpio ended early")?;
    let mut errors = String::new();
    cpio.stderr.take().context("cpio has no errors")?.read_to_string(&mut errors).context("cpio's errors")?;
    if !cpio.wait().context("cannot wait for cpio")?.success() {
        bail!("cpio: {}", errors.trim());
    }
    Ok(archive.to_owned())
}

/// Directories before what is in them.
fn list(top: &Path, dir: &Path, names: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let path = entry.context("cannot list")?.path();
        let name = path.strip_prefix(top).context("is not below")?;
        names.push(name.to_str().context("is no text")?.to_owned());
        if path.is_dir() {
            list(top, &path, names)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_come_after_what_they_need() {
        let dependencies = "kernel/fs/ext4/ext4.ko: kernel/lib/crc16.ko kernel/fs/mbcache.ko kernel/fs/jbd2/jbd2.ko\n\
                            kernel/fs/jbd2/jbd2.ko:\nkernel/fs/mbcache.ko:\nkernel/lib/crc16.ko:\n\
                            kernel/drivers/block/virtio-blk.ko.xz:\n";
        let expected = [
            "kernel/drivers/block/virtio-blk.ko.xz",
            "kernel/fs/jbd2/jbd2.ko",
            "kernel/fs/mbcache.ko",
            "kernel/lib/crc16.ko",
            "kernel/fs/ext4/ext4.ko",
        ];
        assert_eq!(in_order(dependencies, &["virtio_blk", "no_such", "ext4", "jbd2"]), expected);
    }

    #[test]
    fn modules_have_one_name_however_they_are_packed() {
        for file in ["kernel/drivers/block/virtio-blk.ko.xz", "virtio_blk.ko", "a/virtio-blk.ko.zst"] {
            assert_eq!(module_name(file), "virtio_blk");
        }
    }
}
