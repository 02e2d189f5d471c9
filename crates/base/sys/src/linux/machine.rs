//! The resources that the machine has for one more program: CPUs and memory. Everything is read
//! when it is asked for, except which cgroups this process is in.
//!
//! Unaware of: what the program is, and what is made of the numbers.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::io::Errno;

use super::process::{ProcessStat, numbers_in, stat_of};

/// The memory that is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeMemory {
    /// The memory that new programs can have without swapping, in KiB, as the kernel reports it.
    /// It is at most what the limit of this process's cgroup leaves, unless [`free_memory`] took
    /// its shortcut.
    pub available_kb: u64,
    /// The share of the last ten seconds in which some program waited for memory, in hundredths of
    /// a per cent. It is 0 if the kernel does not report it.
    pub pressure: u32,
}

/// The size of the read buffer, in bytes. All files that are read here are shorter.
const TEXT_BYTES_MAX: usize = 8192;
/// The most levels of nested cgroups that are read, up to the outermost one.
const GROUPS_MAX: usize = 16;

/// Returns how many programs can run at once: the number of CPUs that this process may use, but no
/// more than the CPU quota of its cgroup.
pub fn processors() -> u32 {
    let allowed = rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count()).max(1);
    quota().map_or(allowed, |quota| quota.clamp(1, allowed))
}

/// Returns the smallest CPU quota of our cgroup and the ones around it, in CPUs, rounded up.
///
/// `cpu.max` is the file of cgroup v2. If no cgroup has one, the quota of cgroup v1 is used, of the
/// cgroup that is mounted as the outermost one.
fn quota() -> Option<u32> {
    let of = |group: &Path| {
        let both = text(group.join("cpu.max"))?;
        let (quota, period) = both.trim().split_once(' ')?;
        whole(quota, period)
    };
    if let Some(least) = groups().iter().filter_map(|group| of(group)).min() {
        return Some(least);
    }
    let quota = text("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").filter(|quota| !quota.starts_with('-'))?;
    whole(&quota, &text("/sys/fs/cgroup/cpu/cpu.cfs_period_us")?)
}

/// Returns the directories of our v2 cgroup and of the ones around it, the innermost first. In a
/// container, the container's own cgroup is the outermost.
///
/// They are read once, because no process of ours changes its cgroup.
fn groups() -> &'static [PathBuf] {
    static GROUPS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    GROUPS.get_or_init(find_groups)
}

fn find_groups() -> Vec<PathBuf> {
    const TOP: &str = "/sys/fs/cgroup";
    let text = text("/proc/self/cgroup").unwrap_or_default();
    let group = text.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    // A path with `..` is in another cgroup namespace, and no directory here matches it.
    let own = if group.split('/').any(|part| part == "..") { "" } else { group };
    let own = if own.is_empty() { PathBuf::from(TOP) } else { Path::new(TOP).join(own) };
    own.ancestors().take_while(|group| group.starts_with(TOP)).take(GROUPS_MAX).map(Path::to_owned).collect()
}

/// Reads a file of the kernel that is not longer than a page, by as few calls as possible.
fn text(path: impl AsRef<Path>) -> Option<String> {
    let mut bytes = [0; TEXT_BYTES_MAX];
    let count = fs::File::open(path).ok()?.read(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes[..count]).into_owned())
}

/// Returns the quota in CPUs, rounded up. Returns `None` if there is no quota. Then it is the word
/// `max`, or negative.
fn whole(quota: &str, period: &str) -> Option<u32> {
    let (quota, period): (u64, u64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    u32::try_from(quota.div_ceil(period.max(1))).ok()
}

/// Returns the memory that is available now, or `None` if it cannot be determined.
///
/// There is a shortcut if both the unused memory and what the cgroup leaves exceed `enough_kb`. It
/// returns the unused memory, which may be more than the cgroup leaves, and a pressure of 0.
pub fn free_memory(enough_kb: u64) -> Option<FreeMemory> {
    let (unused_kb, groups) = (unused_kb(), groups());
    let limit = limit_kb(groups);
    if limit.is_none_or(|limit| limit > enough_kb) && unused_kb > enough_kb {
        return Some(FreeMemory { available_kb: unused_kb, pressure: 0 });
    }
    let available_kb = available_kb(&text("/proc/meminfo")?)?;
    // The pressure of our own cgroup is used first, because another one may be waiting for memory
    // within its own limit.
    let own = groups.first().and_then(|group| text(group.join("memory.pressure")));
    let pressure = own.or_else(|| text("/proc/pressure/memory")).and_then(|text| pressure_in(&text)).unwrap_or(0);
    Some(FreeMemory { available_kb: limit.map_or(available_kb, |limit| limit.min(available_kb)), pressure })
}

/// Returns the memory that is not even used as a cache, in KiB.
fn unused_kb() -> u64 {
    let info = rustix::system::sysinfo();
    info.freeram.saturating_mul(info.mem_unit.into()) / 1024
}

/// Returns how much memory our cgroup and the ones around it may still take, in KiB, by cgroup v2
/// or v1. Returns `None` if there is no limit.
///
/// Cached file pages count as free, except the ones that are in active use.
fn limit_kb(groups: &[PathBuf]) -> Option<u64> {
    let left = |directory: &Path, limit: &str, usage: &str| {
        let number = |name| text(directory.join(name))?.trim().parse::<u64>().ok();
        // Without a limit, it is the word `max`, or a number larger than any memory.
        let limit = number(limit).filter(|limit| *limit < 1 << 60)?;
        let statistics = text(directory.join("memory.stat")).unwrap_or_default();
        let used = number(usage)?.saturating_sub(inactive_file(&statistics));
        Some(limit.saturating_sub(used) / 1024)
    };
    let least = groups.iter().filter_map(|group| left(group, "memory.max", "memory.current")).min();
    let old = || left(Path::new("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes");
    least.or_else(old)
}

fn inactive_file(statistics: &str) -> u64 {
    let named = |name: &str| statistics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    named("total_inactive_file ").or_else(|| named("inactive_file ")).unwrap_or(0)
}

fn available_kb(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().split(' ').next()?.parse().ok()
}

fn pressure_in(text: &str) -> Option<u32> {
    let some = text.lines().find_map(|line| line.strip_prefix("some avg10="))?;
    let share: f64 = some.split(' ').next()?.parse().ok()?;
    Some((share * 100.0) as u32)
}

/// Returns the resident memory of all processes below these, in KiB. Pages that two of them share
/// count twice.
pub fn resident_below_kb(above: &[u32]) -> u64 {
    let pages: u64 = all_below(above).iter().map(|stat| stat.pages).sum();
    pages * (rustix::param::page_size() as u64 / 1024)
}

/// Returns true if one of these processes, or one below them, is running or waits for a disk now.
pub fn any_busy_below(above: &[u32]) -> bool {
    let own = above.iter().filter_map(|pid| stat_of(*pid));
    own.chain(all_below(above)).any(|stat| matches!(stat.state, b'R' | b'D'))
}

fn all_below(above: &[u32]) -> Vec<ProcessStat> {
    let others = numbers_in("/proc").filter(|pid| !above.contains(pid));
    let mut others: Vec<(u32, ProcessStat)> = others.filter_map(|pid| Some((pid, stat_of(pid)?))).collect();
    let (mut parents, mut below, mut at) = (above.to_vec(), Vec::new(), 0);
    while let Some(parent) = parents.get(at).copied() {
        at += 1;
        let (its, rest): (Vec<_>, Vec<_>) = others.into_iter().partition(|(_, stat)| stat.parent == parent);
        parents.extend(its.iter().map(|(pid, _)| pid));
        below.extend(its.into_iter().map(|(_, stat)| stat));
        others = rest;
    }
    below
}

/// Returns true if a process is in a frozen cgroup (v1 or v2), for example in a paused container.
///
/// Returns false if that cannot be determined. It never can for a cgroup that is outside of the
/// part of the hierarchy that we see.
pub fn is_frozen(pid: u32) -> bool {
    let Some(groups) = text(format!("/proc/{pid}/cgroup")) else { return false };
    frozen_by(&groups).any(|(file, line)| text(file).is_some_and(|text| text.lines().any(|its| its == line)))
}

/// Returns the files that say whether these cgroups are frozen, each with the line that means yes.
fn frozen_by(groups: &str) -> impl Iterator<Item = (String, &'static str)> {
    groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { return Vec::new() };
        let group = if group == "/" { "" } else { group };
        let of = |top: &str, file: &str| format!("/sys/fs/cgroup{top}{group}/{file}");
        match controllers {
            // Cgroup v2, alone or mounted beside v1.
            "" => vec![(of("", "cgroup.events"), "frozen 1"), (of("/unified", "cgroup.events"), "frozen 1")],
            "freezer" => vec![(of("/freezer", "freezer.state"), "FROZEN")],
            _ => Vec::new(),
        }
    })
}

/// Extends a file to this size, and reserves the space for it if the file system can.
pub fn make_room(file: &fs::File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(bytes),
        done => Ok(done?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_system_says() {
        assert_eq!(available_kb("MemTotal: 9 kB\nMemAvailable:    2097152 kB\n"), Some(2_097_152));
        assert_eq!(available_kb("MemTotal: 9 kB\n"), None);
        assert_eq!(pressure_in("some avg10=12.34 avg60=0.00 avg300=0.00 total=5\nfull avg10=99\n"), Some(1234));
        assert_eq!(pressure_in(""), None);
        assert_eq!(inactive_file("cache 5\ninactive_file 7\ntotal_inactive_file 9\n"), 9);
        assert_eq!(inactive_file("anon 5\ninactive_file 7\n"), 7);
        assert_eq!(whole("150000", "100000\n"), Some(2));
        assert_eq!((whole("max", "100000"), whole("-1\n", "100000\n")), (None, None));
    }

    #[test]
    fn knows_where_a_frozen_group_says_so() {
        let files = |groups: &str| -> Vec<String> { frozen_by(groups).map(|(file, _)| file).collect() };
        let new = ["/sys/fs/cgroup/a:b/c/cgroup.events", "/sys/fs/cgroup/unified/a:b/c/cgroup.events"];
        assert_eq!(files("0::/a:b/c\n"), new);
        assert_eq!(files("7:memory:/x\n6:freezer:/\n1:name=systemd:/y\n"), ["/sys/fs/cgroup/freezer/freezer.state"]);
        assert!(files("").is_empty() && files("nonsense\n").is_empty());
        assert!(!is_frozen(std::process::id()) && !is_frozen(u32::MAX));
    }

    #[test]
    fn this_machine_has_something() {
        assert!(processors() >= 1);
        let free = free_memory(u64::MAX).expect("the system reports it");
        assert!(free.available_kb > 0 && free.pressure <= 10_000);
        let mut child = std::process::Command::new("sleep").arg("90").spawn().expect("starts");
        // Before the child has executed its program, it may have no memory of its own.
        let mut looks = (0..3000).map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            resident_below_kb(&[std::process::id()])
        });
        let has = looks.find(|has| *has > 0).unwrap_or(0);
        child.kill().expect("ends");
        // A test of tracing, which waits for all children of this process, may have collected it.
        let _ = child.wait();
        assert!(has > 0, "no memory of a running program was found");
    }
}
