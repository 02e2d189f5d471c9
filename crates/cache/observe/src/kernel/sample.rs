//! Samples: the kernel observes single processes of a run. A sample lasts from the moment that a
//! program begins until its process executes another program or ends. It includes the processes
//! that this process forks. All other processes run unobserved.
//!
//! Samples are taken by `ptrace`, not by a filter, because the descendants of a process keep its
//! filter for ever. With `ptrace`:
//! * a process can be let go at any moment;
//! * a program that the process executes is not observed unless it asks for it;
//! * the process keeps its rights;
//! * if we are killed, the kernel lets the process go on.
//!
//! A process of our own does this (the sampler), which waits for nothing else.
//!
//! If a process makes too many calls, its sample is **cut**. The library's events for the calls
//! that the kernel saw may come a little later than the cut.
//!
//! Unaware of: what the library sees, and what follows from both.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use larder_sys::{ARCHITECTURE, Did, Followed, Notification};

use super::calls::{Call, When, rows};
use super::filter::{NUMBERS_END, applies};
use super::process::Caller;
use super::vdso::Patches;
use super::watch::{Watch, bare};
use crate::encoding::encode;
use crate::preload::{SampleSlot, SampleSlots};
use crate::{Event, EventKind, Trace};

/// The maximum number of calls in one sample, if only the beginning of a program is of interest. It
/// takes about 10 ms.
const BEGINNING_CALLS: u32 = 1000;
/// The maximum number of calls in one sample, if the whole process is of interest.
const CALLS_MAX: u32 = 20_000;
/// Files below this directory tell which processors a process may run on.
const PROCESSES: &[u8] = b"/proc/";
/// The samples are dropped if their file is larger than this.
const SAMPLES_BYTES_MAX: u64 = 1 << 30;

/// How much the kernel is to observe of a program that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Nothing, because the program has a verdict already.
    Nothing,
    /// Like [`Interest::Beginning`], but one long sample, or three short ones, are enough for the
    /// whole run, whatever options the program's processes have.
    OneLong,
    /// The beginning of a process. It tells enough because the program is one that lives long.
    Beginning,
    /// The whole process.
    Everything,
}

/// How much of a process was observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// All of it.
    Whole,
    /// Only its beginning.
    Cut,
    /// The process ended in a way that leaves unclear which events the library had still to write.
    Unclear,
}

/// One process of a sample, and the range of the library's log that belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) pid: u32,
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

/// One sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) how: How,
    pub(crate) parts: Vec<Part>,
    /// The events that the kernel observer wrote, in the form of `preload/log.h`.
    pub(crate) log: Vec<u8>,
}

impl Life {
    /// Returns the events that the kernel observer wrote. A sample without events counts as
    /// incomplete.
    pub(crate) fn trace(&self) -> Trace {
        Trace { log: self.log.clone(), incomplete: self.log.is_empty(), ..Trace::default() }
    }
}

/// Observes the processes that ask at `slots` and whose program is of `interest`, until the slots
/// are closed. Then writes all samples to `to`.
pub(crate) fn take_samples(slots: SampleSlots, interest: &dyn Fn(&[u8]) -> Interest, to: &File) -> io::Result<()> {
    let mut sampler = Sampler {
        slots,
        interest,
        followed: Followed::nobody(),
        asked: HashMap::new(),
        lives: Vec::new(),
        of: HashMap::new(),
        calls: rows().map(|row| (row.number, (row.when, matches!(row.call, Call::Execute(..))))).collect(),
        patches: Patches::find(),
    };
    while !sampler.slots.are_closed() {
        sampler.hear();
        if let Some((process, did)) = sampler.followed.wait() {
            sampler.did(process, did);
        }
    }
    let mut to = to;
    sampler.lives.into_iter().try_for_each(|life| to.write_all(&life.encoded()))
}

struct Sampler<'a> {
    slots: SampleSlots,
    interest: &'a dyn Fn(&[u8]) -> Interest,
    followed: Followed,
    /// Processes that asked and have not stopped yet, each with its slot and with how much of it is
    /// of interest.
    asked: HashMap<u32, (SampleSlot, Interest)>,
    lives: Vec<Living>,
    /// The sample that each observed process belongs to, as an index into `lives`.
    of: HashMap<u32, usize>,
    /// For each call of the table: when it is observed, and whether it executes a program.
    calls: HashMap<i32, (When, bool)>,
    patches: Option<Patches>,
}

/// A sample that is being taken, or is finished.
struct Living {
    watch: Watch,
    slot: SampleSlot,
    /// A part whose `end` is 0 is still observed.
    parts: Vec<Part>,
    calls: u32,
    interest: Interest,
    begun: bool,
    how: How,
    /// Processes of the sample that have executed other programs. While one of them lives, no
    /// process of the sample is kept on our processor, because that program could look up where its
    /// ancestors may run.
    others: Vec<u32>,
    /// The process asks on which processors it may run, so it must not be kept on ours.
    roams: bool,
}

impl Sampler<'_> {
    /// Attaches to the processes that ask.
    fn hear(&mut self) {
        let waiting: Vec<SampleSlot> =
            self.slots.waiting().filter(|slot| !self.asked.contains_key(&slot.pid)).collect();
        for slot in waiting {
            if !larder_sys::is_thread_of(slot.pid, slot.pid) {
                self.slots.free(&slot);
                continue;
            }
            if !self.slots.is_the_one(&slot) || self.of.contains_key(&slot.pid) {
                self.slots.refuse(&slot);
                continue;
            }
            let program = larder_sys::link_target(format!("/proc/{}/exe", slot.pid).as_bytes());
            let interest = program.map_or(Interest::Everything, |path| (self.interest)(&path));
            if interest == Interest::Nothing {
                self.slots.is_known(&slot);
                self.slots.refuse(&slot);
            } else if self.followed.follow(slot.pid).is_err() {
                // `ptrace` is forbidden, or a debugger is attached. Count it as a sample, so that
                // the program does not ask for ever.
                self.slots.count(&slot, false);
                self.slots.refuse(&slot);
            } else {
                self.asked.insert(slot.pid, (slot, interest));
            }
        }
    }

    fn did(&mut self, process: u32, did: Did) {
        match did {
            Did::Began => self.began(process),
            Did::Called(call) => self.called(process, &call),
            Did::Forked(child) => self.forked(process, child),
            Did::Ended { killed } => {
                self.asked.remove(&process);
                if let Some(&at) = self.of.get(&process) {
                    if killed {
                        self.lives[at].how = How::Unclear;
                    }
                    self.end(process, at);
                }
            }
        }
    }

    fn began(&mut self, process: u32) {
        let Some((slot, interest)) = self.asked.remove(&process) else { return };
        if !self.slots.watch(&slot) {
            return self.followed.leave(process);
        }
        self.slots.count(&slot, false);
        let mut watch = Watch::new(true);
        watch.not_begun = Some(process);
        watch.patches = Some(self.patches.clone());
        let parts = vec![Part { pid: process, begin: self.slots.tail(), end: 0 }];
        self.of.insert(process, self.lives.len());
        self.lives.push(Living::of(watch, slot, parts, interest));
        self.stay_near(process, self.lives.len() - 1);
    }

    /// Keeps a process on our processor, where stops cost least, as long as no program could
    /// notice.
    fn stay_near(&mut self, process: u32, at: usize) {
        if !self.lives[at].roams && !self.followed.has_threads(process) {
            self.followed.keep_near(process);
        }
    }

    fn forked(&mut self, process: u32, child: u32) {
        match self.of.get(&process).copied() {
            None => self.followed.leave(child),
            Some(at) => {
                self.of.insert(child, at);
                let life = &mut self.lives[at];
                life.parts.push(Part { pid: child, begin: self.slots.tail(), end: 0 });
                let caller = Caller { thread: child, process: child };
                life.watch.events.push(Event { extra: process, ..bare(caller, EventKind::Forked) });
            }
        }
    }

    fn called(&mut self, process: u32, call: &Notification) {
        let Some(&at) = self.of.get(&process) else { return self.followed.leave(process) };
        let life = &mut self.lives[at];
        life.calls += 1;
        if life.calls > calls_max(life.interest) {
            self.slots.count(&life.slot, true);
            return self.cut(at, process);
        }
        if asks_for_processors(call) {
            life.roams = true;
            self.followed.let_roam();
        }
        if !life.others.is_empty() {
            life.others.retain(|other| larder_sys::is_thread_of(*other, *other));
            if life.others.is_empty() {
                self.stay_near(process, at);
            }
        }
        let life = &mut self.lives[at];
        if leaves_our_sight(process, call) || !life.begun && self.slots.is_given_up(&life.slot) {
            life.how = How::Unclear;
            return self.cut(at, process);
        }
        life.watch.settle(Some(call.thread));
        let odd = call.architecture != ARCHITECTURE || call.number as u32 >= NUMBERS_END;
        let (when, executes) = self.calls.get(&call.number).copied().unwrap_or((When::IsOneOf(0, &[]), false));
        if !odd && !applies(when, &call.arguments) {
            return;
        }
        // Until the process executes its program anew, it only runs the library.
        if !life.begun && !executes {
            return;
        }
        let caller = Caller { thread: call.thread, process };
        life.watch.show_clock(caller, &|| true);
        let mark = life.watch.mark();
        life.watch.see(caller, call);
        if life.watch.names_since(&mark, PROCESSES) {
            life.roams = true;
            self.followed.let_roam();
        }
        if !executes || !std::mem::replace(&mut life.begun, true) {
            return;
        }
        if life.watch.ends_by_executing(&mark, process) {
            life.others.push(process);
            self.followed.let_roam();
            if self.followed.has_threads(process) {
                life.how = How::Unclear;
            }
            // The process is stopped, so it writes nothing more to the log until it is let go.
            self.end(process, at);
            self.followed.leave(process);
        }
    }

    /// Ends the observation of one process.
    fn end(&mut self, process: u32, at: usize) {
        let life = &mut self.lives[at];
        self.of.remove(&process);
        let tail = self.slots.tail();
        let own = |part: &&mut Part| part.pid == process && part.end == 0;
        life.parts.iter_mut().filter(own).for_each(|part| part.end = tail);
        if life.parts[0].pid == process && life.parts[0].end == tail {
            self.slots.free(&life.slot);
        }
        if life.parts.iter().any(|part| part.end == 0) {
            return;
        }
        // If the sample was cut, its last calls may not be done yet.
        if life.how == How::Whole {
            life.watch.settle(None);
        }
        if life.interest == Interest::OneLong && (life.how == How::Cut || self.slots.has_samples(&life.slot)) {
            self.slots.is_known(&life.slot);
        }
    }

    /// Ends the observation of all processes of a sample before they have ended. The process that
    /// is making a call (`caller`) is let go last, because the call may be `ptrace` on one of the
    /// others.
    fn cut(&mut self, at: usize, caller: u32) {
        if self.lives[at].how == How::Whole {
            self.lives[at].how = How::Cut;
        }
        let open: Vec<u32> = self.of.iter().filter(|(_, of)| **of == at).map(|(process, _)| *process).collect();
        for process in open.into_iter().filter(|process| *process != caller) {
            self.end(process, at);
            self.followed.leave(process);
        }
        self.followed.wait_for_left();
        // The process is stopped, so it writes nothing more to the log until it is let go.
        self.end(caller, at);
        self.followed.leave(caller);
    }
}

fn calls_max(interest: Interest) -> u32 {
    match interest {
        Interest::Nothing => 0,
        Interest::OneLong | Interest::Beginning => BEGINNING_CALLS,
        Interest::Everything => CALLS_MAX,
    }
}

/// Returns true if a call asks on which processors a process may run, or sets it.
fn asks_for_processors(call: &Notification) -> bool {
    matches!(libc::c_long::from(call.number), libc::SYS_sched_getaffinity | libc::SYS_sched_setaffinity)
}

/// Returns true if a call attaches to a process by `ptrace`, or creates a process that cannot be
/// traced.
fn leaves_our_sight(process: u32, call: &Notification) -> bool {
    const UNTRACED: u64 = libc::CLONE_UNTRACED as u64;
    let caller = Caller { thread: call.thread, process };
    match libc::c_long::from(call.number) {
        libc::SYS_ptrace => true,
        libc::SYS_clone => call.arguments[0] & UNTRACED != 0,
        libc::SYS_clone3 => caller.numbers(call.arguments[0]).is_ok_and(|[flags]| flags & UNTRACED != 0),
        _ => false,
    }
}

impl Living {
    fn of(watch: Watch, slot: SampleSlot, parts: Vec<Part>, interest: Interest) -> Living {
        let (calls, begun, how, roams) = (0, false, How::Whole, false);
        Living { watch, slot, parts, calls, interest, begun, how, others: Vec::new(), roams }
    }

    fn encoded(mut self) -> Vec<u8> {
        if self.parts.iter().any(|part| part.end == 0) {
            self.how = How::Unclear;
        }
        let mut log = Vec::new();
        self.watch.events.iter().for_each(|event| encode(event, &mut log));
        let how = match self.how {
            How::Whole => 0,
            How::Cut => 1,
            How::Unclear => 2,
        };
        let mut words = vec![how, self.parts.len() as u64];
        words.extend(self.parts.iter().flat_map(|part| [part.pid.into(), part.begin, part.end]));
        words.push(log.len() as u64);
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
        bytes.extend(log);
        bytes
    }
}

/// Returns the samples that [`take_samples`] wrote. Returns none if they were not written
/// completely.
pub(crate) fn lives(from: &File) -> io::Result<Vec<Life>> {
    let size = from.metadata()?.len().min(SAMPLES_BYTES_MAX);
    let mut bytes = vec![0; size as usize];
    from.read_exact_at(&mut bytes, 0)?;
    let (mut rest, mut lives) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        match life(&mut rest) {
            Some(life) => lives.push(life),
            None => return Ok(Vec::new()),
        }
    }
    Ok(lives)
}

fn life(rest: &mut &[u8]) -> Option<Life> {
    let how = match number(rest)? {
        0 => How::Whole,
        1 => How::Cut,
        _ => How::Unclear,
    };
    let mut parts = Vec::new();
    for _ in 0..number(rest)? {
        parts.push(Part { pid: number(rest)? as u32, begin: number(rest)?, end: number(rest)? });
    }
    let bytes = usize::try_from(number(rest)?).ok()?;
    let (log, after) = rest.split_at_checked(bytes)?;
    let log = log.to_vec();
    *rest = after;
    Some(Life { how, parts, log })
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let (number, after) = rest.split_first_chunk::<8>()?;
    *rest = after;
    Some(u64::from_ne_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_down_is_read() {
        let file = larder_sys::memory_file("samples", false).expect("can be made");
        let slot = SampleSlot::at_none();
        let living = |how, calls: u32| {
            let parts = vec![Part { pid: 7, begin: 1, end: 9 }, Part { pid: 8, begin: 2, end: u64::from(calls) }];
            let mut watch = Watch::new(true);
            watch.number_event(Caller { thread: 7, process: 7 }, EventKind::Umask, 0o22, b"");
            Living { how, ..Living::of(watch, slot, parts, Interest::Everything) }
        };
        let mut bytes = living(How::Cut, 5).encoded();
        // A sample whose end was not seen.
        bytes.extend(living(How::Whole, 0).encoded());
        file.write_all_at(&bytes, 0).expect("writes");
        let read = lives(&file).expect("reads");
        assert_eq!(read.iter().map(|life| life.how).collect::<Vec<_>>(), [How::Cut, How::Unclear]);
        assert_eq!(read[0].parts[1], Part { pid: 8, begin: 2, end: 5 });
        let kinds: Vec<EventKind> = read[0].trace().iter().map(|event| event.kind).collect();
        assert_eq!(kinds, [EventKind::Umask]);
        // Not all bytes were written.
        file.set_len(bytes.len() as u64 - 1).expect("is cut");
        assert_eq!(lives(&file).expect("reads"), []);
    }
}
