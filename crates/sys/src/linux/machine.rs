//! What the machine has for one more program: processors, memory. Read at the moment; nothing is kept.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::io::Errno;

use super::process::{Stat, numbers_in, stat_of};

/// What there is of memory, in KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeMemory {
    /// What new programs can have without swapping: as the system says, within what this process's group may use.
    pub available_kb: u64,
    /// The share of the last ten seconds in which some program waited for memory, in hundredths of a per cent; 0 where
    /// the system does not say.
    pub pressure: u32,
}

/// Longer than what is read here.
const TEXT_BYTES_MAX: usize = 8192;
/// Groups within groups, up to the one that holds all.
const GROUPS_MAX: usize = 16;

/// How many programs can run at once: the processors that this process may use, within the quota of its group.
pub fn processors() -> u32 {
    let allowed = rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count()).max(1);
    quota().map_or(allowed, |quota| quota.clamp(1, allowed))
}

/// The least of its group and of those around that; the second is how systems before that do it. Rounded up.
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

/// Where our group is in the new hierarchy, and those around it, the innermost first. A container sees its own as the
/// outermost. Asked once a process: none of ours changes its own.
fn groups() -> &'static [PathBuf] {
    static GROUPS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    GROUPS.get_or_init(find_groups)
}

fn find_groups() -> Vec<PathBuf> {
    const TOP: &str = "/sys/fs/cgroup";
    let text = text("/proc/self/cgroup").unwrap_or_default();
    let group = text.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    // Of another namespace's only names are seen that lead nowhere.
    let own = if group.split('/').any(|part| part == "..") { "" } else { group };
    let own = if own.is_empty() { PathBuf::from(TOP) } else { Path::new(TOP).join(own) };
    own.ancestors().take_while(|group| group.starts_with(TOP)).take(GROUPS_MAX).map(Path::to_owned).collect()
}

/// A file of the kernel's that is not longer than a page, by as few calls as can be.
fn text(path: impl AsRef<Path>) -> Option<String> {
    let mut bytes = [0; TEXT_BYTES_MAX];
    let count = fs::File::open(path).ok()?.read(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes[..count]).into_owned())
}

/// Without a quota it is a word, or negative.
fn whole(quota: &str, period: &str) -> Option<u32> {
    let (quota, period): (u64, u64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    u32::try_from(quota.div_ceil(period.max(1))).ok()
}

/// What is free now. `None` where that cannot be told. Cheap where plainly more than `enough_kb` is: then pressure is
/// not asked for.
pub fn free_memory(enough_kb: u64) -> Option<FreeMemory> {
    let (unused_kb, groups) = (unused_kb(), groups());
    let limit = limit_kb(groups);
    if limit.is_none_or(|limit| limit > enough_kb) && unused_kb > enough_kb {
        return Some(FreeMemory { available_kb: unused_kb, pressure: 0 });
    }
    let available_kb = available_kb(&text("/proc/meminfo")?)?;
    // That of our own group: another one may wait for memory within its own limit.
    let own = groups.first().and_then(|group| text(group.join("memory.pressure")));
    let pressure = own.or_else(|| text("/proc/pressure/memory")).and_then(|text| pressure_in(&text)).unwrap_or(0);
    Some(FreeMemory { available_kb: limit.map_or(available_kb, |limit| limit.min(available_kb)), pressure })
}

/// What is not even used as a cache.
fn unused_kb() -> u64 {
    let info = rustix::system::sysinfo();
    info.freeram.saturating_mul(info.mem_unit.into()) / 1024
}

/// What the group, and those around it, may still take, by either hierarchy. What one has of files could be given back,
/// but for that part that is in use.
fn limit_kb(groups: &[PathBuf]) -> Option<u64> {
    let left = |directory: &Path, limit: &str, usage: &str| {
        let number = |name| text(directory.join(name))?.trim().parse::<u64>().ok();
        // Without a limit it is a word, or a number larger than any memory.
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

/// What the processes below these have in memory together, in KiB: pages that two of them share count twice.
pub fn resident_below_kb(above: &[u32]) -> u64 {
    let pages: u64 = all_below(above).iter().map(|stat| stat.pages).sum();
    pages * (rustix::param::page_size() as u64 / 1024)
}

/// Whether one of the processes below these, or of these themselves, runs at this moment, or waits for a disk.
pub fn any_busy_below(above: &[u32]) -> bool {
    let own = above.iter().filter_map(|pid| stat_of(*pid));
    own.chain(all_below(above)).any(|stat| matches!(stat.state, b'R' | b'D'))
}

fn all_below(above: &[u32]) -> Vec<Stat> {
    let others = numbers_in("/proc").filter(|pid| !above.contains(pid));
    let mut others: Vec<(u32, Stat)> = others.filter_map(|pid| Some((pid, stat_of(pid)?))).collect();
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

/// Whether a process is in a group that was frozen, by either hierarchy: a paused container. False where that cannot be
/// told; of a group outside of our own part of the hierarchy nothing can be.
pub fn is_frozen(pid: u32) -> bool {
    let Some(groups) = text(format!("/proc/{pid}/cgroup")) else { return false };
    frozen_by(&groups).any(|(file, line)| text(file).is_some_and(|text| text.lines().any(|its| its == line)))
}

/// The files that say so of these groups, and the line of them that does.
fn frozen_by(groups: &str) -> impl Iterator<Item = (String, &'static str)> {
    groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { return Vec::new() };
        let group = if group == "/" { "" } else { group };
        let of = |top: &str, file: &str| format!("/sys/fs/cgroup{top}{group}/{file}");
        match controllers {
            // The new hierarchy, by itself or beside the others.
            "" => vec![(of("", "cgroup.events"), "frozen 1"), (of("/unified", "cgroup.events"), "frozen 1")],
            "freezer" => vec![(of("/freezer", "freezer.state"), "FROZEN")],
            _ => Vec::new(),
        }
    })
}

/// Give a file that many bytes, with room for all of them on its disk, where its file system can say so.
pub fn make_room(file: &fs::File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(bytes),
        done => Ok(done?),
    }
}

/// Milliseconds since the system was started, as long as it did not sleep.
pub fn now_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1000 + now.tv_nsec.unsigned_abs() / 1_000_000
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
        let free = free_memory(u64::MAX).expect("is said");
        assert!(free.available_kb > 0 && free.pressure <= 10_000);
        let mut child = std::process::Command::new("sleep").arg("9").spawn().expect("starts");
        // It has nothing of its own until it runs its program.
        let mut looks = (0..500).map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            resident_below_kb(&[std::process::id()])
        });
        let has = looks.find(|has| *has > 0).unwrap_or(0);
        child.kill().and_then(|()| child.wait()).expect("ends");
        assert!(has > 0, "of a program that runs");
        let (one, other) = (now_ms(), now_ms());
        assert!(one > 0 && other >= one);
    }
}
