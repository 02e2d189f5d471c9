//! A run that the preloaded library sees whole and the kernel in samples: of each program that is not known yet, a few
//! of its processes. By them programs are judged, at a small part of what it takes to have the kernel watch all.
//!
//! Unaware of: where verdicts are kept, which programs are known.

use std::collections::HashMap;
use std::fs::File;
use std::io;

use larder_model::Identity;
use larder_spawn::{Command, Destinations};
use larder_sys::{Beside, Rivalry};

use crate::judge::EXECUTED;
use crate::kernel::{How, Life, lives, take_samples};
use crate::preload::placed;
use crate::{Kind, Observed, Observer, PreloadObserver, Trace, Verdict, compare};

/// Looks at a whole run by the library, and at some of its processes by the kernel as well.
pub struct SampledObserver {
    preload: PreloadObserver,
    samples: File,
}

/// How much is to be seen of a program that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// It is known.
    Nothing,
    /// As `Beginning`, but once the beginning of one long life was seen, or three short ones, nothing more, whatever its
    /// options.
    OneLong,
    /// It lives long, and its beginning tells enough.
    Beginning,
    /// All of it.
    Everything,
}

/// One process of a program, as both saw it.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The program's file.
    pub program: Vec<u8>,
    /// Which file that was.
    pub identity: Option<Identity>,
    /// Nothing of it was left out; else its beginning was seen.
    pub whole: bool,
    /// How the two compare.
    pub verdict: Verdict,
}

/// What was seen.
pub struct SampledObserved {
    /// As the preloaded library says it.
    pub observed: Observed,
    /// As many samples as could be had.
    pub samples: Vec<Sample>,
}

impl SampledObserver {
    /// Where the library and the kernel can be had.
    pub fn new() -> io::Result<SampledObserver> {
        let samples = larder_sys::memory_file("larder-samples", false)?;
        Ok(SampledObserver { preload: PreloadObserver::new()?, samples })
    }

    /// Run the tool. Of each program, by the path of its file, so much is seen as is of interest. An error means that it
    /// was not started and still can be. This process must have one thread.
    pub fn run(
        &self,
        command: &Command,
        to: &Destinations,
        rival: Rivalry,
        interest: &dyn Fn(&[u8]) -> Interest,
    ) -> io::Result<SampledObserved> {
        let wrapper = larder_sys::link_target(b"/proc/self/exe")?;
        let (desks, theirs) = (self.preload.desks()?, self.preload.desks()?);
        // Without it there are no samples, and nothing else is worse.
        let sampler = Beside::start(move || drop(take_samples(theirs, interest, &self.samples))).ok();
        desks.open(sampler.as_ref().map_or(0, Beside::pid));
        let observed = self.preload.run(command, to, rival);
        desks.close();
        sampler.into_iter().for_each(Beside::end);
        let observed = observed?;
        let lives = lives(&self.samples).unwrap_or_default();
        let samples = judged(&observed.trace, &lives, &wrapper);
        Ok(SampledObserved { observed, samples })
    }
}

/// What the library says of each life: of the calls that the kernel saw, and a little more.
#[derive(Clone, Default)]
struct Said {
    early: Vec<u8>,
    late: Vec<u8>,
}

fn judged(trace: &Trace, lives: &[Life], wrapper: &[u8]) -> Vec<Sample> {
    let said = said(trace, lives);
    let plumbing = [PreloadObserver::plumbing()];
    let judged = |(life, said): (&Life, Said)| {
        let (early, late) = (library(said.early), library(said.late));
        let start = early.iter().chain(late.iter()).find(|event| event.kind == Kind::Start)?;
        let (program, identity) = (start.path.to_vec(), start.identity);
        let kernel = life.trace();
        let mut verdict = compare(&late, &kernel, &plumbing, wrapper);
        if life.how == How::Cut {
            verdict.invented = compare(&early, &kernel, &plumbing, wrapper).invented;
        }
        // Whom others forked for it executes a program elsewhere.
        verdict.invented.retain(|sight| sight.program != EXECUTED);
        verdict.alike = !verdict.dropped && verdict.missed.is_empty() && verdict.invented.is_empty();
        Some(Sample { program, identity, whole: life.how == How::Whole, verdict })
    };
    let clear = lives.iter().zip(said).filter(|(life, _)| life.how != How::Unclear);
    clear.filter_map(judged).collect()
}

fn library(log: Vec<u8>) -> Trace {
    Trace { log, ..Trace::default() }
}

fn said(trace: &Trace, lives: &[Life]) -> Vec<Said> {
    let mut said = vec![Said::default(); lives.len()];
    // (life, begin, end, whether more of it may come)
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
                // Until it is another program.
                *more = event.kind != Kind::Start;
                if *more {
                    said[*life].late.extend(bytes);
                }
            }
        }
    }
    said
}
