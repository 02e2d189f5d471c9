//! Boots a Linux kernel in QEMU, runs a script in it as root, and returns the script's output and
//! exit code.
//!
//! No firmware, boot loader or systemd is involved, so a machine without KVM needs 10 to 20 seconds
//! from the start to the script's first line:
//!
//! 1. QEMU loads the kernel and an initramfs: busybox, the modules in `MODULES` and those they
//!    depend on.
//! 2. Its `/init` loads the modules, mounts the root file system (an ext4 image, opened as a
//!    snapshot: nothing is written to the image) and a directory of this machine (by 9p, at
//!    `/host`), and starts the script as a child of process 1.
//! 3. The script's output goes through a virtio port to QEMU's standard output, its exit code
//!    through another to a file.
//!
//! Unaware of: where kernels and images come from (`debian`), and what scripts do.

use crate::debian::Kernel;
use crate::files::{self, fresh, remove};
use crate::run::{self, Streamed};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A kind of machine that QEMU emulates.
#[derive(Debug)]
pub(crate) struct Machine {
    /// The program of QEMU.
    pub(crate) program: &'static str,
    /// The arguments for the board and the processor. TCG emulates every machine, because KVM is
    /// often missing in virtual machines and in CI.
    words: &'static [&'static str],
    /// The kernel's name of the first serial port.
    console: &'static str,
    /// Arguments for the kernel's command line.
    append: &'static str,
}

/// A PC.
pub(crate) const X86_64: Machine = Machine {
    program: "qemu-system-x86_64",
    words: &["-machine", "q35", "-cpu", "max"],
    console: "ttyS0",
    append: "random.trust_cpu=on mitigations=off",
};

/// QEMU's own board for Arm.
pub(crate) const AARCH64: Machine = Machine {
    program: "qemu-system-aarch64",
    words: &["-machine", "virt", "-cpu", "max"],
    console: "ttyAMA0",
    append: "random.trust_cpu=on mitigations=off",
};

/// The parameters of a boot.
#[derive(Debug)]
pub(crate) struct Boot<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) kernel: &'a Kernel,
    /// A static busybox for that machine.
    pub(crate) busybox: &'a Path,
    /// An ext4 image. It is not changed.
    pub(crate) root: &'a Path,
    /// A directory of this machine that is mounted at `/host`, writable.
    pub(crate) shared: &'a Path,
    /// A shell command, run as root by `/bin/sh -c` in `/root`.
    pub(crate) script: &'a str,
    pub(crate) memory_mib: u32,
    pub(crate) processors: u32,
    /// The machine is killed after this time.
    pub(crate) limit: Duration,
    /// A directory for the files of this boot. It is emptied first and removed afterwards.
    pub(crate) work: &'a Path,
    /// The file for all output.
    pub(crate) log: &'a Path,
}

/// The modules that are loaded in every machine, if its kernel has them as modules: for booting,
/// and for the file systems of larder's images. ext4 needs `crc32c_generic` for checksums. The kernel
/// requests it by the name of an algorithm, which modules.dep does not contain.
const MODULES: &str = "virtio_pci virtio_mmio virtio_blk virtio_console virtio_rng ext4 crc32c_generic 9p 9pnet_virtio \
     erofs squashfs overlay fuse loop binfmt_misc";

/// The first process: loads the modules, mounts the file systems, and starts the second script in
/// the root file system.
const INIT: &str = r#"#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
for module in $($b cat /modules/order); do
    $b insmod /modules/$module || echo "cannot load $module"
done
tries=0
while [ ! -e /dev/vda ] && [ $tries -lt 100 ]; do
    tries=$((tries + 1))
    $b usleep 100000
done
$b mount -t ext4 /dev/vda /root || $b poweroff -f
$b mount -t tmpfs -o mode=755 run /root/run
$b cp -a /boot /root/run/boot
$b mkdir -p /root/host
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 host /root/host || echo "cannot mount /host"
$b ifconfig lo up
for dir in dev proc sys; do $b mount --move /$dir /root/$dir; done
exec $b switch_root /root /bin/sh /run/boot/begin
"#;

/// Runs in the root file system as process 1: prepares what a distribution's boot would have
/// prepared, and then runs the script.
///
/// The script's output goes through a FIFO, because only one process may open a virtio port, and
/// scripts reopen `/dev/stderr`.
const BEGIN: &str = r#"
mkdir -p /dev/pts /dev/shm
mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t cgroup2 cgroup /sys/fs/cgroup
ln -sf /proc/self/fd /dev/fd
ln -sf /proc/self/fd/0 /dev/stdin
ln -sf /proc/self/fd/1 /dev/stdout
ln -sf /proc/self/fd/2 /dev/stderr
chmod 666 /dev/fuse
chmod 1777 /tmp
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root USER=root LOGNAME=root LANG=C.UTF-8 TERM=dumb SHELL=/bin/bash
mkfifo /run/boot/output
for port in /dev/vport*p1; do output=$port; done
for port in /dev/vport*p2; do code=$port; done
( cat < /run/boot/output > $output; : > /run/boot/drained ) &
cd /root
setsid /bin/sh /run/boot/script > /run/boot/output 2>&1 < /dev/null
echo $? > $code
tries=0
while [ ! -e /run/boot/drained ] && [ $tries -lt 50 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
sync
echo o > /proc/sysrq-trigger
sleep 60
"#;

/// The result of a boot.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The exit code of the script. `Err` has the reason why there is none: a timeout, or the
    /// kernel did not start the script.
    pub(crate) code: Result<i32, String>,
}

/// Boots a machine, runs the script, and calls `line` with each line that it prints.
pub(crate) fn boot(boot: &Boot<'_>, line: impl FnMut(&str)) -> Result<Ended> {
    fresh(boot.work)?;
    let initramfs = boot.work.join("initramfs");
    make_initramfs(boot, &initramfs)?;
    let code = boot.work.join("code");
    let console = boot.work.join("console");
    files::write(&code, "")?;
    let mut command = qemu(boot, &initramfs, &code, &console);
    let streamed = run::streamed(&mut command, boot.log, boot.limit, line)?;
    let said = fs::read_to_string(&code).unwrap_or_default();
    let code = said.trim().parse::<i32>().map_err(|_| {
        let kernel = fs::read(&console).unwrap_or_default();
        let kernel = String::from_utf8_lossy(&kernel);
        let lines: Vec<&str> = kernel.lines().rev().take(5).collect();
        let last = lines.into_iter().rev().collect::<Vec<_>>().join(" | ");
        match streamed {
            Streamed::TimeIsOver => format!("did not end within {} s; the kernel said: {last}", boot.limit.as_secs()),
            Streamed::Ended(status) => format!("QEMU ended ({status}) before the script did; the kernel said: {last}"),
        }
    });
    remove(boot.work)?;
    Ok(Ended { code })
}

fn qemu(boot: &Boot<'_>, initramfs: &Path, code: &Path, console: &Path) -> Command {
    let Boot { machine, kernel, .. } = boot;
    let mut command = Command::new(machine.program);
    command.args(["-accel", "tcg,thread=multi", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    command.args(machine.words);
    command.args(["-smp", &boot.processors.to_string(), "-m", &boot.memory_mib.to_string()]);
    command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(initramfs);
    let append = format!("console={} quiet loglevel=1 panic=-1 {}", machine.console, machine.append);
    command.arg("-append").arg(append.trim());
    let option = |option: &str, path: &Path, rest: &str| format!("{option}{}{rest}", path.display());
    command.args(["-chardev", &option("file,id=console,path=", console, ""), "-serial", "chardev:console"]);
    let drive = option("file=", boot.root, ",format=raw,if=none,id=root,snapshot=on,cache=unsafe");
    command.args(["-drive", &drive, "-device", "virtio-blk-pci,drive=root", "-device", "virtio-rng-pci"]);
    command.args(["-device", "virtio-serial-pci", "-chardev", "stdio,id=output,signal=off"]);
    command.args(["-device", "virtserialport,chardev=output,nr=1"]);
    command.args(["-chardev", &option("file,id=code,path=", code, "")]);
    command.args(["-device", "virtserialport,chardev=code,nr=2"]);
    let shared = option("local,path=", boot.shared, ",mount_tag=host,security_model=none,multidevs=remap");
    command.args(["-virtfs", &shared]);
    // A snapshot's blocks go to the directory for temporary files. `/tmp` may be small, or in
    // memory.
    command.env("TMPDIR", boot.work);
    // The pipe stays open, because QEMU closes the port at the end of its standard input.
    command.stdin(Stdio::piped());
    command
}

fn make_initramfs(boot: &Boot<'_>, to: &Path) -> Result<()> {
    let tree = boot.work.join("tree");
    for dir in ["bin", "dev", "proc", "sys", "root", "modules", "boot"] {
        files::make(tree.join(dir))?;
    }
    files::copy(boot.busybox, tree.join("bin/busybox"))?;
    files::write(tree.join("boot/script"), boot.script)?;
    files::write(tree.join("boot/begin"), BEGIN)?;
    files::write(tree.join("init"), INIT)?;
    let mut order = Vec::new();
    for module in needed(&boot.kernel.modules)? {
        let name = module_name(&module).context("modules end in .ko")?;
        uncompressed(&boot.kernel.modules.join(&module), &tree.join("modules").join(&name))?;
        order.push(name);
    }
    files::write(tree.join("modules/order"), order.join("\n"))?;
    let script = "cd \"$1\" && chmod 755 init && find . | cpio -o -H newc --quiet -R 0:0 | gzip -1 > \"$2\"";
    run::output(Command::new("sh").args(["-ec", script, "sh"]).arg(&tree).arg(to)).map(drop)
}

/// Returns the files of `MODULES` and of their dependencies, below the directory of modules, in an
/// order in which they can be loaded. Modules that are built into this kernel or absent are left
/// out.
fn needed(modules: &Path) -> Result<Vec<PathBuf>> {
    let text = files::read(modules.join("modules.dep"))?;
    Ok(ordered(&text).into_iter().map(PathBuf::from).collect())
}

/// Reads the text of a `modules.dep`: lines of the form `FILE: FILES…`. Those on the right are
/// loaded from the last to the first.
fn ordered(text: &str) -> Vec<&str> {
    let mut depends = BTreeMap::<String, (&str, Vec<&str>)>::new();
    for (file, others) in text.lines().filter_map(|line| line.split_once(':')) {
        let name = module_name(Path::new(file)).unwrap_or_default();
        let name = name.trim_end_matches(".ko").replace('-', "_");
        depends.insert(name, (file, others.split_whitespace().collect()));
    }
    let mut order = Vec::new();
    for (file, others) in MODULES.split(' ').filter_map(|name| depends.get(name)) {
        for &one in others.iter().rev().chain([file]) {
            if !order.contains(&one) {
                order.push(one);
            }
        }
    }
    order
}

/// Returns for example `ext4.ko` for `kernel/fs/ext4/ext4.ko.xz`.
fn module_name(file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    Some(format!("{}.ko", name.split_once(".ko")?.0))
}

/// Copies a module and decompresses it. Debian compresses modules since Linux 6.12, and busybox's
/// `insmod` reads only some formats.
fn uncompressed(from: &Path, to: &Path) -> Result<()> {
    let program = match from.extension().and_then(|end| end.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("ko") => return files::copy(from, to).map(drop),
        _ => bail!("{} is compressed in a form that is not known here", from.display()),
    };
    let output = Command::new(program).arg("-dc").arg(from).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    ensure!(output.status.success(), "{program} cannot read {}", from.display());
    files::write(to, output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_loaded_after_what_they_depend_on() {
        let text = "kernel/fs/ext4/ext4.ko.xz: kernel/fs/jbd2/jbd2.ko.xz kernel/lib/crc16.ko.xz\n\
                    kernel/fs/jbd2/jbd2.ko.xz:\n\
                    kernel/lib/crc16.ko.xz:\n\
                    kernel/drivers/virtio/virtio_pci.ko: kernel/drivers/virtio/virtio-ring.ko\n\
                    kernel/drivers/virtio/virtio-ring.ko:\n\
                    kernel/net/tls.ko:\n";
        let names: Vec<_> = ordered(text).into_iter().filter_map(|file| module_name(Path::new(file))).collect();
        assert_eq!(names.join(" "), "virtio-ring.ko virtio_pci.ko crc16.ko jbd2.ko ext4.ko");
    }
}
