//! The depfile observer: the tool runs unobserved. Afterwards its inputs are worked out from the
//! depfile that it wrote, the compiler's own search directories, and the texts of all inputs.
//!
//! It is for tools that cannot be preloaded into. Its principle is refusal: if anything is not
//! understood, the run is not recorded. These conclusions are sound:
//!
//! * Every file in the depfile was read (`make.rs`).
//! * Every include directive in these files was looked up along the search list, even a directive
//!   in an inactive region. So each place before the one where the header is found is an absence
//!   (`resolve.rs`).
//! * A text that could read a file, or the clock, in another way refuses (`scan.rs`, `words.rs`).
//! * The driver names the compiler proper and the assembler, and their libraries are found by
//!   asking the loader (`query.rs`, `toolchain.rs`).
//!
//! Unaware of: flags (the caller says which command lines are provable), and the store.

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz {
    pub(crate) use super::make::prerequisites;

    pub(crate) fn scan(text: &[u8]) {
        for system in [false, true] {
            // Only a panic counts as a failure here.
            let _ = super::scan::scan(text, system);
        }
    }
}
mod looks;
mod make;
mod query;
mod reason;
mod resolve;
mod scan;
mod toolchain;
mod words;

use std::io;

use larder_model::DepfilePlan;
use larder_model::path::absolute;
use larder_spawn::{Command, Destinations};
use larder_sys::{ChildEnd, Rivalry};

use crate::{Event, EventKind, Observed, Observer, OpenFlags, Trace};
use looks::{Looks, NO_PROCESS};
use reason::{Reason, text};

/// The `extra` of an [`EventKind::Drop`] event: nothing was lost, but the inputs of the run could not be
/// proved.
pub const UNPROVABLE: u32 = 0xDEF;

/// Runs one command that a [`DepfilePlan`] describes.
pub struct DepfileObserver {
    plan: DepfilePlan,
}

impl DepfileObserver {
    /// Creates an observer for the command that `plan` describes.
    pub fn new(plan: DepfilePlan) -> DepfileObserver {
        DepfileObserver { plan }
    }

    fn trace(&self, command: &Command, pid: u32, started_ns: i64) -> Result<Trace, Reason> {
        let plan = &self.plan;
        let mut looks = Looks::new(&plan.cwd);
        let depfile = make::read(&absolute(&plan.cwd, &plan.depfile), started_ns)?;
        let search = query::search(plan, command)?;
        let programs = toolchain::programs(plan, command, &search, &mut looks)?;
        resolve::inputs(plan, &search, &depfile, &mut looks)?;
        self.outputs_are_plain()?;
        let mut events = start(&absolute(&plan.cwd, &command.program), pid);
        events.extend(looks.into_events());
        events.extend(self.outputs(pid, &programs.writer));
        Ok(Trace { events, ..Trace::default() })
    }

    /// Refuses if an output is not a regular file. We do not know what else was then written, for
    /// example through a link.
    fn outputs_are_plain(&self) -> Result<(), Reason> {
        for path in [&self.plan.object, &self.plan.depfile] {
            let path = absolute(&self.plan.cwd, path);
            let (directory, name) = path.split_at(path.iter().rposition(|&b| b == b'/').unwrap_or(0) + 1);
            let stat = larder_sys::Dir::open(directory, false).and_then(|directory| directory.lstat(name));
            if !stat.is_ok_and(|stat| stat.kind == larder_sys::FileType::File) {
                return Err(format!("{}: the output is not a regular file", text(&path)));
            }
        }
        Ok(())
    }

    /// Returns the events of writing the outputs, as the compilers are known to write them. The
    /// assembler truncates the object file. It also unlinks the old one first, which `fold` knows
    /// by the assembler's name. clang writes a temporary file and renames it to the object file.
    /// Both compilers truncate the depfile. Its event belongs to a process without a program, so
    /// that no such rule applies to it.
    fn outputs(&self, pid: u32, writer: &[u8]) -> Vec<Event> {
        const EMPTIED: u16 = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNCATE;
        const NEW: u16 = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
        let plan = &self.plan;
        let open =
            |pid, flags, path| Event { extra: 0o666, ..Event::new(pid, EventKind::Open(OpenFlags(flags)), path) };
        let mut events = vec![open(NO_PROCESS, EMPTIED, absolute(&plan.cwd, &plan.depfile))];
        let object = absolute(&plan.cwd, &plan.object);
        if plan.clang {
            let temporary = [&object[..], b".larder-tmp"].concat();
            events.push(open(pid, NEW, temporary.clone()));
            events.push(Event { path2: object, ..Event::new(pid, EventKind::Rename(OpenFlags(0)), temporary) });
        } else {
            events.push(Event::new(pid, EventKind::Exec, writer.to_vec()));
            events.push(Event { extra: ASSEMBLER, ..Event::new(pid, EventKind::Spawned, writer.to_vec()) });
            events.push(Event::new(ASSEMBLER, EventKind::Start, writer.to_vec()));
            events.push(open(ASSEMBLER, EMPTIED | OpenFlags::READ, object));
        }
        events
    }
}

/// The pid of the assembler in the trace. No process has it.
const ASSEMBLER: u32 = u32::MAX;

fn start(tool: &[u8], pid: u32) -> Vec<Event> {
    vec![Event::new(pid, EventKind::Start, tool.to_vec())]
}

impl Observer for DepfileObserver {
    fn name(&self) -> larder_model::Observer {
        larder_model::Observer::Depfile
    }

    fn run(&self, command: &Command, to: &Destinations, rival: Rivalry) -> io::Result<Observed> {
        let started_ns = larder_sys::now_coarse_ns();
        let finished = larder_spawn::run_beside(command, to, rival)?;
        let proved = match finished.end {
            ChildEnd::Exited(0) => self.trace(command, finished.pid, started_ns),
            _ => Err("the command failed, and a failed compile leaves no complete depfile".to_owned()),
        };
        let trace = proved.unwrap_or_else(|reason| {
            let refusal = Event { extra: UNPROVABLE, ..Event::new(finished.pid, EventKind::Drop, reason.into_bytes()) };
            Trace { events: vec![refusal], ..Trace::default() }
        });
        Ok(Observed { finished, trace })
    }
}
