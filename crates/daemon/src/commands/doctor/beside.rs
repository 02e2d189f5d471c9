//! Checks the processes that run beside compilers: job slots, and servers (FUSE, VPN, larderd) that
//! a build needs and that compilers could starve.

use std::fs;

use larder_config::Class;
use larder_spawn::Tokens;

use super::check::{Check, note, ok};
use crate::say;
use crate::surroundings::Surroundings;

const LARDERD: &str = "larderd";

/// Programs with which a build reaches its files and the network, by their name in
/// `/proc/PID/comm`, which the kernel cuts off after 15 bytes.
const SERVERS: &[(&str, &str)] = &[
    ("bindfs", "FUSE server"),
    ("blobfuse2", "FUSE server"),
    ("charon", "VPN"),
    ("cryfs", "FUSE server"),
    ("edenfs", "FUSE server"),
    ("encfs", "FUSE server"),
    ("fuse-overlayfs", "FUSE server"),
    ("gcsfuse", "FUSE server"),
    ("gocryptfs", "FUSE server"),
    ("goofys", "FUSE server"),
    ("gvfsd-fuse", "FUSE server"),
    ("juicefs", "FUSE server"),
    ("larderd", LARDERD),
    ("mergerfs", "FUSE server"),
    ("mount.ntfs-3g", "FUSE server"),
    ("ntfs-3g", "FUSE server"),
    ("ceph-fuse", "FUSE server"),
    ("nebula", "VPN"),
    ("openconnect", "VPN"),
    ("openvpn", "VPN"),
    ("rclone", "FUSE server"),
    ("s3fs", "FUSE server"),
    ("squashfuse", "FUSE server"),
    ("squashfuse_ll", "FUSE server"),
    ("sshfs", "FUSE server"),
    ("tailscaled", "VPN"),
    ("virtiofsd", "FUSE server"),
    ("vpnagentd", "VPN"),
    ("warp-svc", "VPN"),
    ("wireguard-go", "VPN"),
    ("zerotier-one", "VPN"),
];
/// Indexes into the fields of `/proc/PID/stat` after the name, counted from the state.
const NICE_FIELD: usize = 16;
const POLICY_FIELD: usize = 38;
/// The policy `SCHED_IDLE`.
const IDLE: u32 = 5;
/// The largest number of programs that are listed by name.
const NAMED_MAX: usize = 3;

/// A program that a build may be waiting for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Server {
    pid: u32,
    name: String,
    what: &'static str,
    sched: Scheduling,
}

/// The file in which the kernel says which programs get huge pages.
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// The result of a measurement on another machine.
const GAIN: &str = "on another machine gcc, g++, clang, clang++ and rustc took 0.97 to 1.05 of their time with them, so \
                    a gain is not certain (docs/scheduling.md)";
/// The nice value of class `utility`. Class `background` is below it at any nice value, because it
/// uses `SCHED_IDLE`.
const LOWERED_NICE: i32 = 10;

/// How a process is scheduled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Scheduling {
    nice: i32,
    policy: u32,
    /// The group between which the kernel shares out CPU time: the cgroup, or the session's
    /// autogroup if the process is in the root cgroup.
    group: String,
}

pub(super) fn checks(around: &Surroundings) -> Vec<Check> {
    let mut checks = vec![tokens(around)];
    let compilers = of_process("self").unwrap_or_default();
    checks.push(servers(around.settings().class, &compilers, &found()));
    checks.extend(std::fs::read_to_string(HUGE_PAGES).ok().and_then(|text| huge_pages(&text)));
    checks
}

/// Says what compilers would gain from huge pages, depending on the kernel's setting. The figures
/// are in docs/scheduling.md, "Huge pages for tools".
fn huge_pages(text: &str) -> Option<Check> {
    let mode = text.split_ascii_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))?;
    let found = match mode {
        "always" => "the kernel gives them to every program: nothing to be set for compilers".to_owned(),
        "never" => format!("switched off for all programs ({HUGE_PAGES}): compilers cannot get any"),
        mode => format!(
            "given to programs that ask ({mode}), and compilers do not ask: {GAIN}; LARDER_HUGE_PAGES=1 makes compilers behind \
             larder ask, by GLIBC_TUNABLES=glibc.malloc.hugetlb=1; MALLOC_CONF=thp:always in the build's environment makes \
             rustc ask; no result changes, and no key of gcc or clang"
        ),
    };
    Some(ok("huge pages", found))
}

fn tokens(around: &Surroundings) -> Check {
    let settings = around.settings();
    if !settings.tokens {
        let also = if settings.class == Class::Inherit {
            ""
        } else {
            ", and a lowered class is kept even if its tools starve"
        };
        let found = format!("switched off (LARDER_TOKENS): each build runs any number of tools{also}");
        return note("tokens", found);
    }
    let jobs = u32::try_from(settings.jobs).unwrap_or(u32::MAX);
    let tokens = Tokens { file: settings.tokens_file.clone(), jobs };
    match tokens.status() {
        Ok(status) => {
            let needed = say::bytes(status.expected_kb * 1024);
            let (jobs, held) = (say::count(u64::from(status.jobs), "tool", "tools"), status.holders.len());
            let found = format!(
                "{jobs} at once over all builds; now {held} run, expected to need {needed}, and {} wait{}",
                status.waiting,
                if status.stepped_down {
                    "; tools run without their lowered class now, because they starved in it"
                } else {
                    ""
                }
            );
            ok("tokens", found)
        }
        Err(error) => note(
            "tokens",
            format!(
                "the shared file cannot be used ({error}): each build runs any number of tools; set LARDER_TOKENS_FILE to another file"
            ),
        ),
    }
}

fn servers(class: Class, compilers: &Scheduling, servers: &[Server]) -> Check {
    let lowered = match class {
        Class::Inherit => compilers.clone(),
        _ => Scheduling { nice: compilers.nice.max(LOWERED_NICE), ..compilers.clone() },
    };
    let compilers = if class == Class::Background { &Scheduling { policy: IDLE, ..lowered } } else { &lowered };
    let starved: Vec<&Server> = servers.iter().filter(|server| server.sched.yields_to(compilers)).collect();
    if servers.is_empty() {
        return ok("beside", "no FUSE server, VPN or larderd runs, so compilers cannot starve any");
    }
    let in_class = if class == Class::Inherit { String::new() } else { format!(" in class {}", class.name()) };
    if starved.is_empty() {
        return ok(
            "beside",
            format!(
                "{}, with a higher priority than compilers{in_class} or in a group of its own",
                named(servers.iter())
            ),
        );
    }
    if class != Class::Inherit {
        let found = format!(
            "{} with no higher priority than compilers{in_class}, because it is itself lowered",
            named(starved.into_iter())
        );
        return note("beside", found);
    }
    note(
        "beside",
        format!(
            "{} with no higher priority than compilers: set LARDER_CLASS=utility to lower compilers",
            named(starved.into_iter())
        ),
    )
}

fn named<'a>(servers: impl Iterator<Item = &'a Server>) -> String {
    let all: Vec<String> =
        servers.map(|server| format!("{} {} (process {})", server.what, server.name, server.pid)).collect();
    let more = all.len().saturating_sub(NAMED_MAX);
    let first = all[..all.len().min(NAMED_MAX)].join(", ");
    if more > 0 { format!("{first} and {more} more run") } else { format!("{first} runs") }
}

impl Scheduling {
    /// Returns true if compilers with that scheduling get at least as much CPU time as this
    /// process. Different groups share CPU time by weights of their own, so they do not compete
    /// here.
    fn yields_to(&self, compilers: &Scheduling) -> bool {
        let is_below = |one: &Scheduling, other: &Scheduling| one.policy == IDLE && other.policy != IDLE;
        self.group == compilers.group
            && !is_below(compilers, self)
            && (is_below(self, compilers) || self.nice >= compilers.nice)
    }
}

fn found() -> Vec<Server> {
    let names =
        fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<Server> = names.filter_map(|name| server(name.parse().ok()?)).collect();
    found.sort_by_key(|server| (server.what, server.pid));
    found
}

fn server(pid: u32) -> Option<Server> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim_end().to_owned();
    let (_, what) = SERVERS.iter().find(|(known, _)| *known == name)?;
    // Subcommands are `larderd` processes as well, this one included.
    let serves = || fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| is_serving(&line));
    if *what == LARDERD && !serves() {
        return None;
    }
    Some(Server { pid, name: say::one_line(&name), what, sched: of_process(&pid.to_string())? })
}

/// Returns true if the arguments of a larderd, each ended by NUL, are those of a server.
fn is_serving(line: &[u8]) -> bool {
    let mut words = line.split(|&b| b == 0).skip(1);
    matches!((words.next(), words.next()), (Some(b"serve"), _) | (Some(b"image"), Some(b"broker")))
}

fn of_process(pid: &str) -> Option<Scheduling> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let (nice, policy) = scheduled(&stat)?;
    let session = || session_group(fs::read_to_string(format!("/proc/{pid}/autogroup")).ok()?.as_str());
    let group = group_in(&cgroup);
    let group = if group == "/" && autogroups() { session().unwrap_or(group) } else { group };
    Some(Scheduling { nice, policy, group })
}

/// Returns true if the kernel makes a group of each session that is in no cgroup of its own
/// (`sched(7)`, "The autogroup feature").
fn autogroups() -> bool {
    fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled").is_ok_and(|text| text.trim() == "1")
}

/// Returns the group's name from a line such as `/autogroup-25 nice 0`.
fn session_group(text: &str) -> Option<String> {
    text.split_ascii_whitespace().next().map(str::to_owned)
}

fn scheduled(stat: &str) -> Option<(i32, u32)> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    Some((fields.get(NICE_FIELD)?.parse().ok()?, fields.get(POLICY_FIELD)?.parse().ok()?))
}

/// Returns the cgroup of the CPU controller, in its own hierarchy or in the unified one.
fn group_in(text: &str) -> String {
    let lines = || text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let own = lines().find(|(controllers, _)| controllers.split(',').any(|name| name == "cpu"));
    own.or_else(|| lines().find(|(controllers, _)| controllers.is_empty()))
        .map_or(String::new(), |(_, path)| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_who_gets_huge_pages() {
        let found = |text: &str| huge_pages(text).map(|check| check.found);
        assert!(found("[always] madvise never\n").expect("is said").contains("nothing to be set"));
        assert!(found("always [madvise] never\n").expect("is said").contains("GLIBC_TUNABLES"));
        assert!(found("always madvise [never]\n").expect("is said").contains("switched off"));
        assert_eq!(found("nonsense"), None);
    }

    #[test]
    fn reads_how_a_process_is_scheduled() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 30 10 1 0 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 17 1 0 5 0";
        assert_eq!(scheduled(stat), Some((10, 5)));
        assert_eq!(scheduled("7 (a"), None);
        assert!(is_serving(b"larderd\0serve\0") && is_serving(b"larderd\0image\0broker\0--idle\0"));
        assert!(!is_serving(b"larderd\0image\0mount\0") && !is_serving(b"larderd\0doctor\0serve\0"));
        assert_eq!(group_in("9:name=systemd:/\n2:cpu,cpuacct:/build\n0::/all\n"), "/build");
        assert_eq!(group_in("0::/user.slice\n"), "/user.slice");
        assert!(of_process("self").is_some());
        assert_eq!(session_group("/autogroup-25 nice 0\n").as_deref(), Some("/autogroup-25"));
    }

    #[test]
    fn a_server_beside_compilers_suggests_a_class() {
        let compilers = Scheduling { nice: 0, policy: 0, group: "/a".to_owned() };
        let server = |nice, policy, group: &str| Server {
            pid: 7,
            name: "sshfs".to_owned(),
            what: "FUSE server",
            sched: Scheduling { nice, policy, group: group.to_owned() },
        };
        let check = |class, with: &[Server]| servers(class, &compilers, with);
        let beside = check(Class::Inherit, &[server(0, 0, "/a")]);
        assert!(beside.found.contains("LARDER_CLASS=utility") && beside.found.contains("sshfs (process 7)"));
        assert!(check(Class::Inherit, &[server(-5, IDLE, "/a")]).found.contains("LARDER_CLASS=utility"));
        for fine in [
            check(Class::Inherit, &[server(-5, 0, "/a")]),
            check(Class::Inherit, &[server(0, 0, "/b")]),
            check(Class::Utility, &[server(0, 0, "/a")]),
            check(Class::Background, &[server(19, 0, "/a")]),
            check(Class::Inherit, &[]),
        ] {
            assert_eq!(fine.state, super::super::check::State::Ok, "{}", fine.found);
        }
        assert!(check(Class::Utility, &[server(10, 0, "/a")]).found.contains("itself lowered"));
        let many = vec![server(0, 0, "/a"); 5];
        assert!(check(Class::Inherit, &many).found.contains("and 2 more run"));
    }
}
