//! Describes the machine and the system: processor, memory, kernel, file systems, limits. What
//! cannot be found out is left empty.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use procfs::process::Process;
use procfs::{Current, Meminfo};

use crate::schema::Machine;

const GOVERNOR: &str = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
const NO_TURBO: &str = "/sys/devices/system/cpu/intel_pstate/no_turbo";
const BOOST: &str = "/sys/devices/system/cpu/cpufreq/boost";
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const CGROUP: &str = "/sys/fs/cgroup";
/// The limit files of control groups, of versions 2 and 1.
const LIMITS: &[&str] = &[
    "cpu.max",
    "cpu.weight",
    "cpuset.cpus.effective",
    "memory.max",
    "memory.high",
    "memory.swap.max",
    "pids.max",
    "io.max",
    "cpu.cfs_quota_us",
    "cpu.cfs_period_us",
    "cpu.shares",
    "memory.limit_in_bytes",
];
/// The values that mean no limit.
const UNLIMITED: &[&str] = &["", "max", "-1", "max 100000", "9223372036854771712"];

/// Returns the description, with the file systems of `places`.
pub(super) fn machine(places: &[(String, PathBuf)]) -> Machine {
    let said = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    let cpuinfo = read("/proc/cpuinfo");
    let memory = Meminfo::current().ok();
    Machine {
        host: text(said.nodename()),
        kernel: format!(
            "{} {} {} {}",
            text(said.sysname()),
            text(said.release()),
            text(said.version()),
            text(said.machine())
        ),
        system: value(&read("/etc/os-release"), "PRETTY_NAME=").trim_matches('"').to_owned(),
        boot: larder_sys::boot_id().unwrap_or_default(),
        processor: after_colon(&cpuinfo, &["model name", "Model", "CPU implementer"]),
        processors: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
        hypervisor: after_colon(&cpuinfo, &["flags"]).split(' ').any(|flag| flag == "hypervisor"),
        governor: read(GOVERNOR),
        boost: boost(),
        memory_bytes: memory.as_ref().map_or(0, |memory| memory.mem_total),
        swap_bytes: memory.as_ref().map_or(0, |memory| memory.swap_total),
        huge_pages: chosen(&read(HUGE_PAGES)),
        huge_pages_kept: memory.and_then(|memory| memory.hugepages_total).unwrap_or(0),
        file_systems: places.iter().map(|(what, path)| (what.clone(), file_system(path))).collect(),
        container: container(),
        limits: limits(),
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn value<'a>(text: &'a str, start: &str) -> &'a str {
    text.lines().find_map(|line| line.strip_prefix(start)).unwrap_or_default()
}

/// Returns the value of the first of `names` that exists.
fn after_colon(text: &str, names: &[&str]) -> String {
    let of = |name: &&str| text.lines().find_map(|line| line.strip_prefix(*name)?.split_once(':'));
    names.iter().find_map(of).map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
}

/// Returns the selected value: `always [madvise] never` becomes `madvise`.
fn chosen(text: &str) -> String {
    text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(text, |(chosen, _)| chosen).to_owned()
}

fn boost() -> String {
    match (read(NO_TURBO).as_str(), read(BOOST).as_str()) {
        ("1", _) | ("", "0") => "off".to_owned(),
        ("0", _) | ("", "1") => "on".to_owned(),
        _ => String::new(),
    }
}

/// Returns the mount of a path, for example `/dev/vda on / (ext4, rw,relatime)`: the longest mount
/// point above `path`.
fn file_system(path: &Path) -> String {
    let there = path.ancestors().find_map(|path| fs::canonicalize(path).ok()).unwrap_or_default();
    let mounts = Process::myself().and_then(|own| own.mountinfo()).map(|mounts| mounts.0).unwrap_or_default();
    let above = mounts.into_iter().filter(|mount| there.starts_with(&mount.mount_point));
    // Of several mounts on one mount point, the last one is visible.
    let Some(mount) = above.max_by_key(|mount| mount.mount_point.as_os_str().len()) else { return String::new() };
    let source = mount.mount_source.unwrap_or_default();
    let mut options: Vec<String> = mount.mount_options.into_keys().collect();
    options.sort();
    format!("{source} on {} ({}, {})", mount.mount_point.display(), mount.fs_type, options.join(","))
}

/// Returns the container runtime, recognised by the files it leaves, or an empty string.
fn container() -> String {
    let marks =
        [("/.dockerenv", "docker"), ("/run/.containerenv", "podman"), ("/run/systemd/container", "systemd-nspawn")];
    let mark = marks.iter().find(|(path, _)| Path::new(path).exists()).map(|(_, name)| (*name).to_owned());
    let group = read("/proc/1/cgroup");
    let named = ["kubepods", "docker", "lxc", "containerd"].into_iter().find(|name| group.contains(name));
    mark.or(named.map(str::to_owned)).unwrap_or_default()
}

/// Returns the limits of this process's control groups, the nearest group first, and of the process
/// itself.
fn limits() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for line in read("/proc/self/cgroup").lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let top = Path::new(CGROUP).join(controllers);
        let mut group = top.join(path.trim_start_matches('/'));
        while group.starts_with(&top) {
            for limit in LIMITS {
                let value = fs::read_to_string(group.join(limit)).unwrap_or_default().trim().to_owned();
                if !UNLIMITED.contains(&value.as_str()) {
                    found.entry((*limit).to_owned()).or_insert(value);
                }
            }
            if !group.pop() {
                break;
            }
        }
    }
    let kept = ["Max open files", "Max processes", "Max stack size", "Max address space", "Max file size"];
    for line in read("/proc/self/limits").lines() {
        if let Some(name) = kept.iter().find(|name| line.starts_with(**name)) {
            let soft = line[name.len()..].split_whitespace().next().unwrap_or_default();
            found.insert((*name).to_owned(), soft.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine() {
        let machine = machine(&[("here".to_owned(), "/proc/self".into()), ("new".to_owned(), "/nonexistent/x".into())]);
        assert!(machine.processors >= 1 && machine.memory_bytes > 1 << 20 && !machine.kernel.is_empty());
        assert!(machine.file_systems["here"].contains("proc"), "{:?}", machine.file_systems);
        assert!(machine.file_systems["new"].contains(" on / "), "{:?}", machine.file_systems);
        assert!(machine.limits.contains_key("Max open files"));
    }

    #[test]
    fn texts_of_the_system() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(after_colon("a : 1\nmodel name\t: X 2000\n", &["none", "model name"]), "X 2000");
        assert_eq!(value("A=1\nPRETTY_NAME=\"x\"", "PRETTY_NAME="), "\"x\"");
    }
}
