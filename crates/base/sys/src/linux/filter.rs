//! The steps of a seccomp filter: classic BPF over `struct seccomp_data`.
//!
//! Unaware of: which calls a filter is about.

/// The system call table of this machine (`AUDIT_ARCH_*`), or 0 if its calls have no table here.
pub const ARCHITECTURE: u32 = match () {
    () if cfg!(target_arch = "x86_64") => 0xc000_003e,
    () if cfg!(target_arch = "aarch64") => 0xc000_00b7,
    () => 0,
};

/// One instruction of a filter (`struct sock_filter`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterStep {
    /// The operation.
    pub code: u16,
    /// The number of instructions that are skipped if its condition is true.
    pub if_true: u8,
    /// The number of instructions that are skipped if its condition is false.
    pub if_false: u8,
    /// The operand.
    pub value: u32,
}

impl FilterStep {
    /// The operation of [`FilterStep::load`].
    pub const LOAD: u16 = 0x20;
    /// The condition that the loaded word is the operand.
    pub const EQUAL: u16 = 0x15;
    /// The condition that the loaded word is the operand or more.
    pub const AT_LEAST: u16 = 0x35;
    /// The condition that the loaded word has any bit of the operand.
    pub const ANY_BIT: u16 = 0x45;
    /// The operation of [`FilterStep::answer`].
    pub const ANSWER: u16 = 0x06;
    /// The answer that the call is made.
    pub const ALLOW: FilterStep = FilterStep::answer(libc::SECCOMP_RET_ALLOW);

    /// Ends the filter with this answer.
    pub const fn answer(value: u32) -> FilterStep {
        FilterStep { code: FilterStep::ANSWER, if_true: 0, if_false: 0, value }
    }

    /// Loads the word at this offset: 0 is the number of the call, 4 the architecture.
    pub const fn load(offset: u32) -> FilterStep {
        FilterStep { code: FilterStep::LOAD, if_true: 0, if_false: 0, value: offset }
    }

    /// Loads the low half of an argument.
    pub const fn load_argument(index: u8) -> FilterStep {
        FilterStep::load(16 + 8 * index as u32)
    }

    /// Goes on with the next step if the condition holds, and otherwise skips `count` steps.
    pub const fn unless(condition: u16, operand: u32, count: u8) -> FilterStep {
        FilterStep { code: condition, if_true: 0, if_false: count, value: operand }
    }

    /// Returns the first steps of a filter. They end it with `other` if the call is of another table,
    /// and load the number of the call.
    pub const fn first(other: FilterStep) -> [FilterStep; 4] {
        let is_ours = FilterStep { code: FilterStep::EQUAL, if_true: 1, if_false: 0, value: ARCHITECTURE };
        [FilterStep::load(4), is_ours, other, FilterStep::load(0)]
    }
}
