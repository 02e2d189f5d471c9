//! The slots of the log by which processes of a run ask to be observed by the kernel as well
//! (`struct larder_sample_slot` in `preload/log.h`).
//!
//! Each slot is three words: phase and pid, program and options, and an address in the process. The
//! sampler finds a slot in phase `ASKS`, checks that the process is the one that asked, and answers
//! by another phase.
//!
//! Unaware of: how processes are observed, and what follows from it.

use std::fs::File;
use std::io;
use std::sync::atomic::Ordering::SeqCst;

use larder_sys::Words;

use super::log::TAIL_WORD;
use crate::encoding::FIRST_EVENT;

const SAMPLER_WORD: usize = 6;
const ENDS_WORD: usize = 7;
const SLOTS_WORD: usize = 10;
const SLOT_WORDS: usize = 3;
const SLOTS: usize = 32;
const PROGRAMS_WORD: usize = 512;
const PROGRAM_WORDS: usize = 2;
const PROGRAMS: u64 = 512;
/// The half of a slot's second word that is the index of the program. The other half is the index
/// of the program with its options.
const PROGRAM: u64 = 0xffff_ffff;
/// The number of samples that are enough for a program (`LARDER_SAMPLES`).
const SAMPLES: u64 = 3;
/// This is added to the number of samples of a program that must not ask any more, whatever its
/// options (`LARDER_KNOWN`).
const KNOWN: u64 = 1 << 32;

/// The phases of a slot (`enum larder_slot_phase`), in the lower half of its first word. The upper
/// half is the pid.
const FREE: u64 = 0;
const ASKS: u64 = 2;
const WATCHED: u64 = 3;
const REFUSED: u64 = 4;
const GIVEN_UP: u64 = 5;
const PHASE: u64 = 0xffff_ffff;

/// The head of a log, shared with all processes that write to it.
pub(crate) struct SampleSlots(Words);

/// A process that waits for the answer whether it is observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SampleSlot {
    at: usize,
    pub(crate) pid: u32,
    program: u64,
    address: u64,
}

#[cfg(test)]
impl SampleSlot {
    pub(crate) fn at_none() -> SampleSlot {
        SampleSlot { at: 0, pid: 0, program: 0, address: 0 }
    }
}

impl SampleSlots {
    pub(super) fn of(log: &File) -> io::Result<SampleSlots> {
        Ok(SampleSlots(Words::map(log, log.metadata()?.len(), FIRST_EVENT as usize / 8, true)?))
    }

    fn word(&self, at: usize) -> u64 {
        self.0.words()[at].load(SeqCst)
    }

    fn set(&self, at: usize, value: u64) {
        self.0.words()[at].store(value, SeqCst);
    }

    /// Tells processes to ask this sampler, by its pid.
    pub(crate) fn open(&self, sampler: u32) {
        self.set(SAMPLER_WORD, sampler.into());
    }

    /// Tells processes to ask no more, and the sampler to end.
    pub(crate) fn close(&self) {
        self.set(SAMPLER_WORD, 0);
        self.set(ENDS_WORD, 1);
    }

    pub(crate) fn are_closed(&self) -> bool {
        self.word(ENDS_WORD) != 0
    }

    /// Returns the offset in the log of the next event.
    pub(crate) fn tail(&self) -> u64 {
        self.word(TAIL_WORD)
    }

    /// Returns the slots of all processes that wait for an answer.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = SampleSlot> {
        (0..SLOTS).filter_map(|at| {
            let word = SLOTS_WORD + at * SLOT_WORDS;
            let value = self.word(word);
            let slot = SampleSlot {
                at,
                pid: (value >> 32) as u32,
                program: self.word(word + 1),
                address: self.word(word + 2),
            };
            let known = slot.program & PROGRAM < PROGRAMS && slot.program >> 32 < PROGRAMS;
            (value & PHASE == ASKS && known).then_some(slot)
        })
    }

    /// Returns true if the process with the slot's pid is the one that asks, which its memory
    /// shows. In a PID namespace, the process that asks has another pid for us, and the slot's pid
    /// may belong to another process.
    pub(crate) fn is_the_one(&self, slot: &SampleSlot) -> bool {
        let mut sign = [0; 16];
        let read = larder_sys::read_memory(slot.pid, slot.address, &mut sign);
        let key = self.word(place(slot.program & PROGRAM));
        let expected = [(slot.at as u64).to_ne_bytes(), key.to_ne_bytes()].concat();
        read.is_ok_and(|count| count == sign.len()) && sign[..] == expected
    }

    /// Tells the process that it is observed. Returns false if the process does not wait any more.
    pub(crate) fn watch(&self, slot: &SampleSlot) -> bool {
        self.answer(slot, WATCHED)
    }

    /// Tells the process that it is not observed.
    pub(crate) fn refuse(&self, slot: &SampleSlot) {
        if self.answer(slot, REFUSED) {
            self.0.wake_lower(SLOTS_WORD + slot.at * SLOT_WORDS);
        }
    }

    fn answer(&self, slot: &SampleSlot, phase: u64) -> bool {
        let pid = u64::from(slot.pid) << 32;
        let word = &self.0.words()[SLOTS_WORD + slot.at * SLOT_WORDS];
        word.compare_exchange(pid | ASKS, pid | phase, SeqCst, SeqCst).is_ok()
    }

    /// Returns true if the observed process has continued instead of executing its program anew.
    pub(crate) fn is_given_up(&self, slot: &SampleSlot) -> bool {
        self.word(SLOTS_WORD + slot.at * SLOT_WORDS) & PHASE == GIVEN_UP
    }

    /// Frees the slot, because its process is gone or is not observed any more.
    pub(crate) fn free(&self, slot: &SampleSlot) {
        self.set(SLOTS_WORD + slot.at * SLOT_WORDS, FREE);
    }

    /// Notes that nothing more can be learned about the slot's program.
    pub(crate) fn is_known(&self, slot: &SampleSlot) {
        self.0.words()[place(slot.program & PROGRAM) + 1].fetch_or(KNOWN, SeqCst);
    }

    /// Returns true if the slot's program has as many samples as are taken of a program whatever
    /// its options.
    pub(crate) fn has_samples(&self, slot: &SampleSlot) -> bool {
        self.word(place(slot.program & PROGRAM) + 1) >= SAMPLES
    }

    /// Counts one more sample of the slot's program, or as many as are enough.
    pub(crate) fn count(&self, slot: &SampleSlot, enough: bool) {
        let more = if enough { SAMPLES } else { 1 };
        let (program, options) = (place(slot.program & PROGRAM), place(slot.program >> 32));
        self.0.words()[program + 1].fetch_add(more, SeqCst);
        if options != program {
            self.0.words()[options + 1].fetch_add(1, SeqCst);
        }
    }
}

/// Returns the word at which a program's entry begins.
fn place(program: u64) -> usize {
    PROGRAMS_WORD + program as usize * PROGRAM_WORDS
}

#[cfg(test)]
mod tests {
    use super::super::log;
    use super::*;

    #[test]
    fn who_asks_is_heard_and_answered() {
        use std::os::unix::fs::FileExt;
        let file = larder_sys::memory_file("log", false).expect("can be made");
        file.set_len(1 << 20).expect("grows");
        file.write_all_at(&log::header(1 << 20, (0, 0), 0), 0).expect("writes");
        let slots = SampleSlots::of(&file).expect("maps");
        assert_eq!((slots.tail(), slots.waiting().count()), (FIRST_EVENT, 0));
        let sign = [4u64, 77];
        let own = larder_sys::process_id();
        let asks = |program: u64, address: u64| {
            slots.set(place(3), sign[1]);
            slots.set(SLOTS_WORD + 4 * SLOT_WORDS + 1, program);
            slots.set(SLOTS_WORD + 4 * SLOT_WORDS + 2, address);
            slots.set(SLOTS_WORD + 4 * SLOT_WORDS, u64::from(own) << 32 | ASKS);
        };
        asks(PROGRAMS, 0);
        assert_eq!(slots.waiting().count(), 0, "no such program");
        asks(3 | 5 << 32, (&raw const sign) as u64);
        let slot = slots.waiting().next().expect("waits");
        assert!(slot.pid == own && slots.is_the_one(&slot));
        assert!(!slots.is_the_one(&SampleSlot { address: slot.address + 8, ..slot }), "other memory");
        slots.count(&slot, false);
        assert_eq!((slots.word(place(3) + 1), slots.word(place(5) + 1)), (1, 1));
        slots.is_known(&slot);
        slots.is_known(&slot);
        assert_eq!((slots.word(place(3) + 1), slots.word(place(5) + 1)), (KNOWN + 1, 1));
        assert!(slots.watch(&slot) && !slots.watch(&slot), "once");
        assert_eq!(slots.waiting().count(), 0);
        slots.free(&slot);
        assert_eq!(slots.word(SLOTS_WORD + 4 * SLOT_WORDS), FREE);
    }
}
