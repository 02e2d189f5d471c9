//! Looks: paths that are read, looked at, listed, or missing.
//!
//! Unaware of: changes of files.

use larder_model::{Belongs, Fact, Git, Habit, Identity, ModeRule, Times, Unrecorded};
use larder_sys::FileType;

use super::path_state::Made;
use super::{Event, Fold, Policy, without_slash};
use crate::event::{self, EventKind, OpenFlags};
use larder_model::path::has_parents;

/// Returns true if the event created the file. A new file may have the inode of a removed one.
fn is_new(e: &Event) -> bool {
    matches!(e.kind, EventKind::Open(flags) if flags.has(OpenFlags::NEW | OpenFlags::EXCLUSIVE))
}

/// Returns true for a `stat` of the directory below `/proc` of the process itself or of the
/// command's first process. It exists in every run. For example, `test -e /proc/$$`.
fn is_own_directory(e: &Event, policy: &Policy) -> bool {
    let number = e.path.strip_prefix(b"/proc/").and_then(|name| std::str::from_utf8(name).ok());
    let is_own = |pid: u32| pid == e.pid || policy.first_pid == Some(pid);
    matches!(e.kind, EventKind::Stat | EventKind::Access)
        && e.file_type() == FileType::Directory
        && number.is_some_and(|number| number == "self" || number.parse().is_ok_and(is_own))
}

/// Returns the part of a path after git's store of objects: `2f/d4e1…` for a file with one object,
/// `2f` for the directory of all whose names begin with that, `pack/pack-….idx`. Returns `None` for
/// the store itself, and for the file that names further stores.
fn name_of_object(path: &[u8]) -> Option<&[u8]> {
    const STORE: &[u8] = b"/.git/objects/";
    let at = memchr::memmem::find(path, STORE)?;
    let name = &path[at + STORE.len()..];
    (name.len() >= 2 && name != b"info/alternates").then_some(name)
}

fn is_hexadecimal(name: &[u8]) -> bool {
    name.iter().all(u8::is_ascii_hexdigit)
}

impl<'t> Fold<'t> {
    pub(super) fn ignored(&self, path: &[u8]) -> bool {
        const EXACT: [&[u8]; 7] = [
            b"/dev/null",
            b"/dev/zero",
            b"/proc/self/exe",
            b"/proc/self/fd",
            // The arguments that the program was started with.
            b"/proc/self/cmdline",
            b"/proc/sys/vm/overcommit_memory",
            b"/sys/kernel/mm/transparent_hugepage/enabled",
        ];
        path.is_empty() || EXACT.contains(&path)
    }

    /// Returns true for files by which compilers tune their use of memory, and build tools the
    /// number of processes that they start. What other programs do with them is not known.
    fn tunes_memory(&mut self, e: &Event, policy: &Policy) -> bool {
        const EXACT: [&[u8]; 3] = [b"/proc/self/statm", b"/proc/self/cgroup", b"/proc/self/mountinfo"];
        let limits = e.path.starts_with(b"/sys/fs/cgroup/");
        if e.path == b"/proc/self/maps" {
            let expected = self.habit(e.pid, policy).maps_reads;
            let reads = &mut self.processes.state(e.pid).reads.maps;
            *reads += 1;
            let is_odd = *reads > expected;
            // libc reads it for `pthread_getattr_np`, to find the stack. The addresses in it are
            // chosen at random by the kernel.
            if is_odd && policy.chance_is_compared {
                self.run.depends_on_chance(self.processes.runs(e.pid).program);
            }
            return !is_odd || policy.chance_is_compared;
        }
        if e.path == b"/proc/meminfo" {
            return self.habit(e.pid, policy).reads_memory_size;
        }
        (limits || EXACT.contains(&e.path)) && self.habit(e.pid, policy).tunes_memory
    }

    /// Returns true if a program opens the pipe of the job server that make or cargo told it: by the
    /// numbers of its descriptors (`--jobserver-auth=3,4`), or as `fifo:PATH`. It limits how many
    /// threads and processes work at a time. rustc opens it, and so does cargo, which some procedural
    /// macros start to find the manifest of the workspace.
    pub(super) fn is_job_server(&mut self, e: &Event<'t>, policy: &Policy) -> bool {
        const FIFO: FileType = FileType::Other(0o01);
        let descriptor = [&b"/dev/fd/"[..], b"/proc/self/fd/"].iter().find_map(|at| e.path.strip_prefix(*at));
        if descriptor.is_none() && e.file_type() != FIFO {
            return false;
        }
        let told =
            [&b"CARGO_MAKEFLAGS"[..], b"MAKEFLAGS", b"MFLAGS"].into_iter().filter_map(|name| (policy.variable)(name));
        let mut served = told.flat_map(|flags| {
            let words: Vec<Vec<u8>> = flags.split(|&byte| byte == b' ').map(<[u8]>::to_vec).collect();
            words
        });
        served.any(|word| {
            let auth =
                [&b"--jobserver-auth="[..], b"--jobserver-fds="].iter().find_map(|flag| word.strip_prefix(*flag));
            match (auth.and_then(|auth| auth.strip_prefix(b"fifo:")), descriptor) {
                (Some(fifo), _) => fifo == e.path,
                (None, Some(number)) => {
                    auth.is_some_and(|auth| auth.split(|&byte| byte == b',').any(|fd| fd == number))
                }
                (None, None) => false,
            }
        })
    }

    /// Returns true for a path in git's store of objects, if the program is git and its result
    /// follows from the names of objects. What an object holds follows from its name.
    ///
    /// That is no longer so if git finds out which objects there are: it lists those whose names
    /// begin alike, or looks for one that is not there. For example, `git rev-parse 2fd4e` fails if
    /// a second object has a name that begins with `2fd4e`. Then all that the process looked at
    /// counts, and is handled now.
    pub(super) fn is_object_of_git(&mut self, e: &Event<'t>, policy: &Policy) -> bool {
        let Some(name) = name_of_object(e.path) else { return false };
        if self.habit(e.pid, policy).git != Some(Git::ByName) || self.processes.state(e.pid).searches_objects {
            return false;
        }
        let is_one_of_many = memchr::memchr(b'/', name).is_none() && is_hexadecimal(name);
        let is_absent = e.error == libc::ENOENT && is_hexadecimal(&name[..2]);
        if !(is_one_of_many || is_absent) {
            self.processes.state(e.pid).objects.push(e.clone());
            return true;
        }
        let process = self.processes.state(e.pid);
        process.searches_objects = true;
        for earlier in std::mem::take(&mut process.objects) {
            match earlier.kind {
                EventKind::Open(flags) => self.open(&earlier, flags, policy),
                _ => self.look(&earlier, policy),
            }
        }
        false
    }

    pub(super) fn is_made(&mut self, e: &Event<'t>) -> bool {
        let by_inode = self.files.is_made(e.identity);
        // A path with `..` is matched by inode, or by its resolved form at the end of the run.
        let by_name = match self.paths.real(e.path) {
            Some(real) => {
                self.paths.made(e.path).is_some() || real.as_ref().is_some_and(|real| self.paths.is_made(real))
            }
            None => self.paths.is_made(without_slash(e.path)),
        };
        if (by_inode || by_name) && has_parents(e.path) {
            self.paths.state(e.path).leads_to_made = true;
        } else if by_inode && !by_name && !is_new(e) && e.path.starts_with(b"/") && !e.path.starts_with(b"/proc/") {
            self.paths.touch(e.path).leads = true;
        }
        by_inode || by_name
    }

    fn device(&mut self, path: &[u8]) -> bool {
        let stable: &[&[u8]] = &[
            b"/proc/filesystems",
            b"/proc/cpuinfo",
            b"/proc/version",
            b"/proc/sys/kernel/ngroups_max",
            // The user who logged in. Child processes inherit it.
            b"/proc/self/loginuid",
            b"/sys/devices/system/cpu/online",
        ];
        let odd = [&b"/dev/"[..], b"/proc/", b"/sys/"].iter().any(|p| path.starts_with(p));
        if odd && !stable.contains(&path) && !path.starts_with(b"/dev/shm/") {
            self.refuse(Unrecorded::Device, path);
            return true;
        }
        false
    }

    pub(super) fn read(&mut self, e: &Event<'t>, executed: bool, policy: &Policy) {
        let process = self.processes.state(e.pid);
        (process.last_read, process.first_read) = (Some(e.path), None);
        if self.ignored(e.path) || self.tunes_memory(e, policy) {
            return;
        }
        if self.is_made(e) {
            self.sees_mode_of_made(e);
            self.sees_date_of_made(e);
            self.run.dates_count |= self.is_dated(e.path) && self.habit(e.pid, policy).times >= Times::Inputs;
            self.files.read_again.extend(e.identity.map(|id| id.file_id()));
            return;
        }
        if self.device(e.path) {
            return;
        }
        if !matches!(e.file_type(), FileType::Other(0) | FileType::File) {
            return self.refuse(Unrecorded::Device, e.path);
        }
        let identity = e.identity;
        let habit = self.habit(e.pid, policy);
        // libc reads these files for the program. Nothing but their content reaches it.
        let by_libc = matches!(e.path, b"/etc/passwd" | b"/etc/group");
        let times = if executed || by_libc { Times::Blind } else { habit.times };
        self.seen_by.push((self.processes.life(e.pid), e.path));
        if !self.paths.looked(e.path).is_some_and(|looked| looked.content) {
            self.processes.state(e.pid).first_read = Some(e.path);
        }
        self.paths.state(e.path).is_followed = true;
        let looked = self.paths.touch(e.path);
        looked.content = true;
        looked.read_by_others |= habit.git.is_none();
        looked.times = looked.times.max(times);
        if times == Times::Files {
            looked.belongs = looked.belongs.max(Belongs::Links);
        }
        looked.kind = true;
        looked.executed |= executed;
        let first = *looked.identity.get_or_insert_with(|| identity.unwrap_or(UNKNOWN_IDENTITY));
        if first == UNKNOWN_IDENTITY {
            looked.identity = identity;
        } else if identity.is_some_and(|id| id != first && !(looked.refreshed && id.inode == first.inode)) {
            self.refuse(Unrecorded::InputChanged, e.path);
        }
    }

    /// Handles a stat, a listing, or another question about a path that does not read the file's
    /// content.
    pub(super) fn look(&mut self, e: &Event<'t>, policy: &Policy) {
        // `/proc/self/cwd` is another path of the working directory. For example, Bazel sets `PWD`
        // to it. Both are in the cache key.
        let names_cwd = e.path == b"/proc/self/cwd" && self.habit(e.pid, policy).times != Times::Status;
        if self.ignored(e.path) || names_cwd || self.is_object_of_git(e, policy) {
            return;
        }
        // A program asks for the path of its terminal, which differs in each session.
        if is_terminal(e.path) && e.error == 0 && matches!(e.kind, EventKind::Stat | EventKind::Lstat) {
            let Habit { tries_terminal, compares, .. } = self.habit(e.pid, policy);
            // make only tells its children.
            return if !(tries_terminal && compares) {
                self.refuse(Unrecorded::Device, e.path)
            };
        }
        if self.habit(e.pid, policy).shows_numbers {
            self.run.inodes_shown.extend(e.identity.map(|id| id.inode));
        }
        if e.error == 0 && self.habit(e.pid, policy).times == Times::Uses {
            return self.refuse(Unrecorded::Clock, e.path);
        }
        if self.is_made(e) {
            // Its times are those of this run.
            if e.error == 0 && matches!(e.kind, EventKind::Stat | EventKind::Lstat) {
                self.look_at_made(e, policy);
            }
            return;
        }
        if e.error != 0 {
            return self.look_failed(e);
        }
        if e.kind == EventKind::ReadLink && e.path.starts_with(b"/proc/self/fd/") && e.path2.starts_with(b"/") {
            return self.read_link_of_open_file(e);
        }
        if is_own_directory(e, policy) && self.habit(e.pid, policy).times != Times::Status {
            // What counts is that `/proc` is mounted, which this file shows.
            self.paths.touch(b"/proc/sys/kernel/ngroups_max").kind = true;
            return;
        }
        if e.path.starts_with(b"/proc/") || e.path.starts_with(b"/sys/") {
            if !self.tunes_memory(e, policy) {
                self.device(e.path);
            }
            return;
        }
        self.paths.note_mode(e.path, e.mode);
        self.look_at_input(e, policy);
    }

    /// Notes what a program learned about a path that exists and that the command did not make.
    fn look_at_input(&mut self, e: &Event<'t>, policy: &Policy) {
        let kind = e.kind;
        let file = e.file_type() == FileType::File;
        let habit = self.habit(e.pid, policy);
        let times = match kind {
            EventKind::Stat | EventKind::Lstat if file || habit.times == Times::Status => habit.times,
            _ => Times::Blind,
        };
        // The execute permission of a file is part of its recorded fact.
        let special = e.extra & 2 != 0 || e.extra & 1 != 0 && !file;
        let asks_rights = special && !self.processes.runs_a_compiler_part(e.pid, policy);
        self.seen_by.push((self.processes.life(e.pid), e.path));
        let reported = if matches!(kind, EventKind::Stat) { e.extra } else { 0 };
        // What is said of a compiler's use of times and order does not hold for code of the build.
        let by_code_of_build = habit.runs_code_of_builds && e.extra == event::BY_LATE;
        let times = match reported {
            _ if by_code_of_build && file => Times::Inputs,
            event::REPORTED_MODE => times.max(Times::Mode),
            event::REPORTED_MODIFIED => times.max(Times::Inputs),
            event::REPORTED_STATUS => times.max(Times::Status),
            _ => times,
        };
        let is_directory = kind == EventKind::Stat && e.file_type() == FileType::Directory;
        let times = if times == Times::Status && is_directory && habit.imports {
            self.note_search(e);
            Times::Blind
        } else {
            times
        };
        let compares = habit.compares || reported == event::REPORTED_COMPARED;
        if compares && matches!(kind, EventKind::Stat | EventKind::Lstat) {
            self.note_look(e, habit);
        }
        let reads_what_it_looks_at =
            (habit.git.is_some() || by_code_of_build) && file && matches!(kind, EventKind::Stat | EventKind::Lstat);
        let asks_owner = habit.git.is_some() && kind == EventKind::Lstat && self.is_repository(e);
        let state = self.paths.state(e.path);
        state.is_followed |= kind != EventKind::Lstat;
        state.is_measured |= habit.asks_sizes && file && matches!(kind, EventKind::Stat | EventKind::Lstat);
        let looked = self.paths.touch(e.path);
        looked.owner |= asks_owner || reported == event::REPORTED_OWNER;
        let belongs = match habit.times {
            _ if by_code_of_build && file || reported == event::REPORTED_BELONGS => Belongs::Told,
            Times::Files if file && matches!(kind, EventKind::Stat | EventKind::Lstat) => Belongs::Links,
            _ => Belongs::Blind,
        };
        looked.belongs = looked.belongs.max(belongs);
        looked.content |= reads_what_it_looks_at;
        looked.compared |= compares && file && matches!(kind, EventKind::Stat | EventKind::Lstat);
        looked.times = looked.times.max(times);
        let in_order = !matches!(e.extra, event::IN_ANY_ORDER | event::IN_ANY_ORDER_OF_KINDS);
        looked.order |= kind == EventKind::List && (!habit.sorts_names && in_order || by_code_of_build);
        looked.kinds |= kind == EventKind::List
            && (habit.lists_kinds || e.extra == event::IN_ANY_ORDER_OF_KINDS || by_code_of_build);
        if file && matches!(kind, EventKind::Stat | EventKind::Lstat) {
            looked.identity = looked.identity.or(e.identity);
        }
        match kind {
            // `lstat` shows the inode number of a directory, as `stat` does.
            EventKind::Lstat if matches!(e.file_type(), FileType::Other(0) | FileType::Directory) => {
                (looked.link, looked.kind) = (true, true)
            }
            EventKind::Lstat | EventKind::ReadLink => looked.link = true,
            EventKind::RealPath => (looked.link, looked.kind) = (true, true),
            EventKind::List => (looked.listed, looked.kind) = (true, true),
            EventKind::Access => {
                (looked.kind, looked.executed) = (true, looked.executed || e.extra & 1 != 0);
                if asks_rights {
                    looked.failed = Some((Fact::ACCESS | (e.extra & 7) as u8, 0));
                }
            }
            _ => looked.kind = true,
        }
    }

    /// Returns true for git's repository and its working tree: a directory with `HEAD` or `.git` in
    /// it, or something of the name `.git`. git refuses them if they belong to another user.
    fn is_repository(&self, e: &Event) -> bool {
        let has = |name: &[u8]| {
            let looked = self.paths.looked(&[e.path, b"/", name].concat());
            looked.is_some_and(|looked| looked.kind || looked.content || looked.link)
        };
        e.path.ends_with(b"/.git") || e.file_type() == FileType::Directory && (has(b".git") || has(b"HEAD"))
    }

    /// Handles a stat of something that the command made. Its times are those of this run, except
    /// for mtimes that the command set itself.
    fn look_at_made(&mut self, e: &Event<'t>, policy: &Policy) {
        self.sees_mode_of_made(e);
        self.sees_date_of_made(e);
        let habit = self.habit(e.pid, policy);
        let reported = matches!(e.extra, event::REPORTED_COMPARED | event::REPORTED_MODIFIED | event::REPORTED_STATUS);
        let compares = habit.compares || habit.times >= Times::Files || habit.reports && reported;
        self.run.dates_count |= compares && self.is_dated(e.path);
        if habit.times == Times::Status {
            self.refuse(Unrecorded::ComparesTimes, e.path);
        }
    }

    /// Returns true if the command made the file at this path and gave it an mtime.
    fn is_dated(&self, path: &[u8]) -> bool {
        self.paths.get(path).is_some_and(|state| !state.dated_by.is_empty())
    }

    /// Notes that a process saw a mode that depends on the umask. If the process gives that mode to
    /// another file, the mode of that file depends on the umask as well.
    fn sees_mode_of_made(&mut self, e: &Event<'t>) {
        let rule = match self.paths.made(without_slash(e.path)) {
            Some(Made::File { mode, .. } | Made::Directory(mode)) => mode.rule,
            _ => ModeRule::Masked,
        };
        if matches!(rule, ModeRule::Masked | ModeRule::Executable) {
            self.processes.modes(e.pid).saw_masked = true;
        }
    }

    /// Handles `readlink` of a descriptor's link below `/proc`. LLVM asks in this way for the real
    /// path of the file that it has just opened.
    fn read_link_of_open_file(&mut self, e: &Event<'t>) {
        // The path of a terminal differs in each session.
        if is_terminal(e.path2) {
            return self.refuse(Unrecorded::Device, e.path2);
        }
        let Some(opened) = self.processes.get(e.pid).and_then(|state| state.last_read) else {
            return self.refuse(Unrecorded::Device, e.path);
        };
        if let Some(looked) = self.paths.looked_mut(opened) {
            looked.link = true;
        }
    }

    fn look_failed(&mut self, e: &Event<'t>) {
        self.paths.state(e.path).is_followed |= e.kind != EventKind::Lstat;
        match (e.kind, e.error) {
            (EventKind::Lstat, libc::ENOENT) => {
                self.paths.state(e.path).lstat_failed = true;
                self.paths.touch(e.path).absent = true;
            }
            // It exists and is no link, and the program looked at it as a link.
            (EventKind::ReadLink, libc::EINVAL) => self.paths.touch(e.path).link = true,
            (_, libc::ENOENT) => self.paths.touch(e.path).absent = true,
            // The execute permission of a file is part of its recorded fact. Any other permission
            // is checked again.
            (EventKind::Access, libc::EACCES) if e.extra & 6 == 0 => {
                let looked = self.paths.touch(e.path);
                (looked.kind, looked.executed) = (true, true);
            }
            (EventKind::Access, errno) => {
                self.paths.touch(e.path).failed = Some((Fact::ACCESS | (e.extra & 7) as u8, errno as u32));
            }
            (_, libc::ENOTDIR) => self.paths.note_no_directory(e.path),
            (EventKind::List, errno) => self.paths.touch(e.path).failed = Some((1, errno as u32)),
            (_, errno) => self.paths.touch(e.path).failed = Some((0, errno as u32)),
        }
    }
}

fn is_terminal(path: &[u8]) -> bool {
    path.starts_with(b"/dev/pts/") || path.starts_with(b"/dev/tty")
}

/// Stands for an identity that is not known yet. No file has it.
const UNKNOWN_IDENTITY: Identity =
    Identity { device: u64::MAX, inode: u64::MAX, size_bytes: 0, modified_ns: 0, changed_ns: 0 };
