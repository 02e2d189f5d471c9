//! Observes a whole run by the preloaded library, and a few processes of each unknown program by
//! the kernel as well.
//!
//! The comparison of the two tells whether the library can be trusted for a program. It costs a
//! small part of what it would take to have the kernel observe the whole run.
//!
//! Unaware of: where verdicts are stored, which programs are already trusted.

use std::collections::HashMap;
use std::fs::File;
use std::io;

use larder_model::Identity;
use larder_spawn::{Command, Destinations};
use larder_sys::{Beside, Rivalry};

use crate::crosscheck::EXECUTED;
use crate::encoding::placed;
use crate::kernel::{How, Interest, Life, lives, take_samples};
use crate::{EventKind, Observed, Observer, PreloadObserver, Trace, Verdict, compare};

/// Observes a whole run by the library, and some of its processes by the kernel as well.
pub struct SampledObserver {
    preload: PreloadObserver,
    samples: File,
}

/// One process of a program, as both the library and the kernel saw it.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The path of the program's file.
    pub program: Vec<u8>,
    /// The identity of the program's file, if it is known.
    pub identity: Option<Identity>,
    /// True if the whole process was observed, false if only its beginning was.
    pub whole: bool,
    /// The comparison of what the library and the kernel saw.
    pub verdict: Verdict,
}

/// The result of a sampled run.
pub struct SampledObserved {
    /// The whole run, as the library saw it.
    pub observed: Observed,
    /// All samples that could be taken.
    pub samples: Vec<Sample>,
}

impl SampledObserver {
    /// Creates an observer. Fails if the preloaded library or the file for the samples cannot be
    /// created.
    pub fn new() -> io::Result<SampledObserver> {
        let samples = larder_sys::memory_file("larder-samples", false)?;
        Ok(SampledObserver { preload: PreloadObserver::new()?, samples })
    }

    /// Runs the tool. `interest` decides by the path of a program's file how much of that program
    /// the kernel observes. An error means that the tool was not started, so it can still be run in
    /// another way. The calling process must have only one thread.
    pub fn run(
        &self,
        command: &Command,
        to: &Destinations,
        rival: Rivalry,
        interest: &dyn Fn(&[u8]) -> Interest,
    ) -> io::Result<SampledObserved> {
        let wrapper = larder_sys::link_target(b"/proc/self/exe")?;
        let (slots, theirs) = (self.preload.sample_slots()?, self.preload.sample_slots()?);
        // If the sampler cannot be started, there are no samples. Nothing else changes.
        let sampler = Beside::start(move || drop(take_samples(theirs, interest, &self.samples))).ok();
        slots.open(sampler.as_ref().map_or(0, Beside::pid));
        let observed = self.preload.run(command, to, rival);
        slots.close();
        sampler.into_iter().for_each(Beside::end);
        let observed = observed?;
        let lives = lives(&self.samples).unwrap_or_default();
        let samples = compared(&observed.trace, &lives, &wrapper);
        Ok(SampledObserved { observed, samples })
    }
}

/// The library's events for one sampled process. `early` ends where the kernel stopped watching,
/// and `late` goes on until the process executes another program.
#[derive(Clone, Default)]
struct Said {
    early: Vec<u8>,
    late: Vec<u8>,
}

fn compared(trace: &Trace, lives: &[Life], wrapper: &[u8]) -> Vec<Sample> {
    let said = said(trace, lives);
    let own_paths = [PreloadObserver::own_directory()];
    let compared = |(life, said): (&Life, Said)| {
        let (early, late) = (library(said.early), library(said.late));
        let start = early.iter().chain(late.iter()).find(|event| event.kind == EventKind::Start)?;
        let (program, identity) = (start.path.to_vec(), start.identity);
        let kernel = life.trace();
        let mut verdict = compare(&late, &kernel, &own_paths, wrapper);
        if life.how == How::Cut {
            verdict.invented = compare(&early, &kernel, &own_paths, wrapper).invented;
        }
        // If the process forked a child to execute a program, the kernel does not see that
        // execution here.
        verdict.invented.retain(|access| access.program != EXECUTED);
        verdict.alike = !verdict.dropped && verdict.missed.is_empty() && verdict.invented.is_empty();
        Some(Sample { program, identity, whole: life.how == How::Whole, verdict })
    };
    let clear = lives.iter().zip(said).filter(|(life, _)| life.how != How::Unclear);
    clear.filter_map(compared).collect()
}

fn library(log: Vec<u8>) -> Trace {
    Trace { log, ..Trace::default() }
}

fn said(trace: &Trace, lives: &[Life]) -> Vec<Said> {
    let mut said = vec![Said::default(); lives.len()];
    // For each pid: (index into `lives`, begin, end, whether `late` goes on after the end).
    let mut parts: HashMap<u32, Vec<(usize, u64, u64, bool)>> = HashMap::new();
    for (at, life) in lives.iter().enumerate() {
        for part in &life.parts {
            parts.entry(part.pid).or_default().push((at, part.begin, part.end, life.how == How::Cut));
        }
    }
    for (place, bytes, event) in placed(&trace.log) {
        for (life, begin, end, more) in parts.get_mut(&event.pid).into_iter().flatten() {
            if (*begin..*end).contains(&place) {
                said[*life].early.extend(bytes);
                said[*life].late.extend(bytes);
            } else if *more && place >= *end {
                // Stop at the next program of this process.
                *more = event.kind != EventKind::Start;
                if *more {
                    said[*life].late.extend(bytes);
                }
            }
        }
    }
    said
}
