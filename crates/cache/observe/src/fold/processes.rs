//! Processes: which program each process runs and whether it was observed at all, and what it asks
//! for besides files: the clock, random numbers, and variables. The habit of the program says which
//! of these have no effect on the result.
//!
//! Unaware of: paths other than those of programs, scripts and files that a program inherits open.

use larder_model::path::file_name;
use larder_model::{Habit, Times, Unrecorded};

use super::{Event, Fold, Origin, Policy};
use crate::event::{
    EventKind, LATE_CLOCK, LATE_DEVICE, LATE_DIRECTORY, LATE_RANDOM, LOCAL_TIME, OpenFlags, RANDOM_BY_VDSO,
    RANDOM_FOR_MEMORY, RANDOM_FOR_NAME, START_BITS, arguments,
};
use crate::process_tree::Running;

impl<'t> Fold<'t> {
    /// Handles the start of a program. Each successful execution must be followed by an event of
    /// the new program. Otherwise that program was not observed.
    pub(super) fn process(&mut self, e: &Event<'t>, policy: &Policy) {
        match e.kind {
            EventKind::Start => {
                let before = self.processes.runs(e.pid);
                self.processes.starts(e, self.files.is_made(e.identity));
                self.finds_open(e, before, policy);
                self.read(&Event { mode: e.mode & !START_BITS, ..e.clone() }, true, policy);
            }
            EventKind::Exec => {
                self.processes.state(e.pid).began -= 1;
            }
            EventKind::ExecFailed => {
                self.processes.state(e.pid).began += 1;
                if e.error == libc::ENOENT {
                    self.paths.touch(e.path).absent = true;
                    self.paths.state(e.path).must_be_absent = true;
                } else {
                    self.paths.touch(e.path).executed = true;
                    self.paths.touch(e.path).kind = true;
                }
            }
            // The parent wrote `Exec` under its own pid, because it did not know the child's pid
            // yet.
            EventKind::Spawned => {
                self.processes.state(e.pid).began += 1;
                self.processes.state(e.extra).began -= 1;
            }
            EventKind::Anonymous => self.processes.anonymous += 1,
            EventKind::Drop if e.extra == crate::UNPROVABLE => self.refuse(Unrecorded::Unprovable, e.path),
            EventKind::Drop if e.extra == crate::INTERRUPTED => self.refuse(Unrecorded::Interrupted, e.path),
            _ => self.refuse(Unrecorded::NotObserved, e.path),
        }
        // If the event has no stat, the file does not exist, and the `ExecFailed` that follows says
        // so.
        if e.kind == EventKind::Exec && e.identity.is_some() {
            self.read(e, true, policy);
            if !e.path2.is_empty() {
                // The interpreter of a script, by the path in the script's first line.
                self.read(&Event { path: e.path2, identity: None, ..e.clone() }, true, policy);
            }
        }
    }

    /// Handles files that a program may inherit. A shell opens `FILE` for `< FILE`, and then
    /// executes or starts the program that may stat it. The shell's own script is left out: the
    /// shell opened it for itself.
    fn finds_open(&mut self, e: &Event<'t>, before: Running<'t>, policy: &Policy) {
        let from_parent = std::mem::take(&mut self.processes.state(e.extra).opened_for_child);
        let from_parent = if e.extra == 0 { Vec::new() } else { from_parent };
        let times = self.habit(e.pid, policy).times;
        if times < Times::Inputs {
            return;
        }
        let own = self.processes.state(e.pid).opened.clone().into_iter().map(|path| (path, before));
        let parent = self.processes.runs(e.extra);
        for (path, shell) in own.chain(from_parent.into_iter().map(|path| (path, parent))) {
            if let (false, Some(looked)) = (is_script_of(shell, path), self.paths.looked_mut(path)) {
                looked.times = looked.times.max(times);
            }
        }
    }

    /// Returns the habit of the program that a process runs.
    pub(super) fn habit(&mut self, pid: u32, policy: &Policy) -> Habit {
        if let Some(habit) = self.processes.get(pid).and_then(|state| state.habit) {
            return habit;
        }
        let running = self.processes.runs(pid);
        let running = self.author(running).unwrap_or(running);
        let habit = match running.program == policy.wrapper {
            true => Habit { reports: true, ..Habit::default() },
            false => {
                let made_to_ask = self.processes.is_made_to_ask(pid, policy);
                let origin = if made_to_ask { Origin::MadeToAsk } else { Origin::Other };
                (policy.habit)(file_name(running.program), running.arguments, origin)
            }
        };
        self.processes.state(pid).habit = Some(habit);
        habit
    }

    /// Returns the program that wrote the script that a process runs, if the script is a temporary
    /// file and both programs are the same interpreter. The script is trusted as its author is. For
    /// example, Meson has Python describe itself in this way.
    fn author(&self, running: Running) -> Option<Running<'t>> {
        let script = arguments(running.arguments)?.find(|word| !word.starts_with(b"-"))?;
        let author = self.paths.get(script)?.author?;
        (author.program == running.program).then_some(author)
    }

    /// Returns true if an internet socket of this process does not count, because the program only
    /// asks whether there are any, or reports what it used.
    pub(super) fn tries_sockets(&mut self, pid: u32, policy: &Policy) -> bool {
        let habit = self.habit(pid, policy);
        habit.tries_sockets || habit.reports
    }

    /// Handles the first event of a process after it drew random numbers that libc may have drawn
    /// for itself. That event shows whether libc did.
    pub(super) fn after_drawing(&mut self, e: &Event<'t>, policy: &Policy) {
        let Some(what_for) = self.processes.state(e.pid).drawn.take() else { return };
        let makes_a_name = match e.kind {
            EventKind::Open(flags) => flags.has(OpenFlags::EXCLUSIVE),
            EventKind::MakeDirectory | EventKind::Lstat | EventKind::Symlink | EventKind::Link => true,
            // libc repeats a draw if its number would favour some letters over others.
            EventKind::Random => [what_for, e.extra] == [RANDOM_FOR_NAME; 2],
            _ => false,
        };
        if !makes_a_name {
            self.drew(e.pid, what_for, policy);
        }
    }

    /// Handles a draw of random numbers that was not for a name. Once in the life of a program,
    /// libc draws to protect its memory, which has no effect. Any other draw is the program's own.
    pub(super) fn drew(&mut self, pid: u32, what_for: u32, policy: &Policy) {
        if what_for == RANDOM_FOR_MEMORY && !std::mem::replace(&mut self.processes.state(pid).is_guarded, true) {
            return;
        }
        self.clock_or_random(&Event::new(pid, EventKind::Random, b"getrandom"), policy);
    }

    /// Handles a read of the clock or of random numbers.
    pub(super) fn clock_or_random(&mut self, e: &Event<'t>, policy: &Policy) {
        let habit = self.habit(e.pid, policy);
        let (clock, zone) = (e.kind == EventKind::Clock, e.kind == EventKind::Clock && e.extra == LOCAL_TIME);
        let program = self.processes.runs(e.pid).program;
        let process = self.processes.state(e.pid);
        // `mktemp` before coreutils 9.0 makes its names from the time.
        if habit.names_at_random {
            process.draws_a_name = true;
            return;
        }
        // If nothing shows the time that a module keeps, two runs have the same result.
        let may_be_imports = clock && !zone && habit.imports && process.reads.clock >= habit.clock_reads;
        if may_be_imports && process.imports_a_clock(&|path| (policy.reads_clock_at_import)(program, path)) {
            return self.run.depends_on_chance(program);
        }
        let (reads, allowed, why) = match e.kind {
            EventKind::Random => (&mut process.reads.random, habit.random_reads, Unrecorded::Random),
            _ if zone => (&mut process.reads.zone, habit.zone_reads, Unrecorded::Clock),
            _ => (&mut process.reads.clock, habit.clock_reads, Unrecorded::Clock),
        };
        // The vDSO draws a key once, and makes any number of random numbers from it without a
        // system call.
        let count = if !clock && e.extra == RANDOM_BY_VDSO { u32::MAX } else { 1 };
        *reads = reads.saturating_add(count);
        if *reads <= allowed {
            if !clock && habit.seeds_are_compared {
                self.run.depends_on_chance(program);
            }
            return;
        }
        match e.identity {
            _ if !clock && (policy.chance_is_compared || habit.draws_are_compared) => {
                self.run.depends_on_chance(program);
            }
            Some(output) if clock && habit.tells_time => {
                self.run.times_told.push((program, output.file_id()));
            }
            _ => self.refuse(why, program),
        }
    }

    /// Handles a question for a variable of the environment.
    pub(super) fn variable(&mut self, e: &Event<'t>, policy: &Policy) {
        let value = (e.error == 0).then_some(e.path2);
        // If the value is not the caller's, the command has set the variable itself.
        if (policy.variable)(e.path).as_deref() != value {
            if leads_libc(e.path, value) {
                self.refuse(Unrecorded::NotObserved, e.path);
            }
            return;
        }
        // A compiler uses `PATH` only to find programs, and the paths that it tried are known.
        if e.path == b"PATH" && (policy.is_compiler_part)(file_name(self.processes.runs(e.pid).program)) {
            return;
        }
        if !(policy.variable_is_covered)(e.path) {
            self.run.environment.insert(e.path, value);
        } else if matches!(e.path, b"TEMP" | b"TEMPDIR" | b"TMP" | b"TMPDIR") {
            self.run.temporary_directories.insert(e.path, value);
        }
    }

    /// Handles what a plugin asked for that its program asks for as well. For most programs the
    /// habit covers both. For a compiler that runs code of the build in its own process, such as
    /// rustc with procedural macros, the habit covers only the compiler.
    pub(super) fn late(&mut self, e: &Event<'t>, policy: &Policy) {
        if !self.habit(e.pid, policy).runs_code_of_builds {
            return;
        }
        match e.extra {
            LATE_CLOCK => self.refuse(Unrecorded::Clock, e.path2),
            LATE_RANDOM if policy.chance_is_compared => self.run.depends_on_chance(e.path2),
            LATE_RANDOM => self.refuse(Unrecorded::Random, e.path2),
            LATE_DEVICE => self.refuse(Unrecorded::Device, e.path),
            LATE_DIRECTORY => self.run.asks_directory_late = true,
            _ => self.run.late_variables.push(e.path),
        }
    }
}

/// Returns true if libc reads files at paths that follow from this value of a variable. The
/// preloaded library does not see these reads. It says which of the variables a program starts with
/// (`paths_of_libc` in `preload/environment.c`). An earlier run may have told what libc reads, but
/// only for the value that the caller of the command had.
fn leads_libc(name: &[u8], value: Option<&[u8]>) -> bool {
    const PATHS: [&[u8]; 5] = [b"GCONV_PATH", b"LOCPATH", b"NLSPATH", b"TZ", b"TZDIR"];
    PATHS.contains(&name) && value.is_some_and(|value| value.contains(&b'/') && !is_zone_name(name, value))
}

/// Returns true for the name of a time zone of the system, such as `Europe/Berlin`.
fn is_zone_name(name: &[u8], value: &[u8]) -> bool {
    let zone = value.strip_prefix(b":").unwrap_or(value);
    name == b"TZ" && !zone.starts_with(b"/") && !zone.split(|&byte| byte == b'/').any(|part| part == b"..")
}

/// Returns true if the running program is an interpreter that runs the script at this path.
/// `cmake -E cmake_link_script FILE` is one as well.
fn is_script_of(running: Running, path: &[u8]) -> bool {
    let is_option = |word: &&[u8]| matches!(word.first(), None | Some(b'-'));
    let Some(words) = arguments(running.arguments) else { return false };
    let mut words = words.filter(|word| !is_option(word));
    let script = match words.next() {
        Some(b"cmake_link_script") if file_name(running.program) == b"cmake" => words.next(),
        first => first,
    };
    let before = script.and_then(|script| path.strip_suffix(script.strip_prefix(b"./").unwrap_or(script)));
    before.is_some_and(|before| matches!(before.last(), None | Some(b'/')))
}
