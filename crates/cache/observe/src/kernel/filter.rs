//! The seccomp filter: turns the table of system calls into the BPF program that the kernel runs
//! before each system call.
//!
//! Calls that are not in the table cost next to nothing, because the kernel works out once which
//! numbers are always allowed. For a call of the table, the filter also checks one argument if its
//! row says so. For example, `close` is asked about only for descriptors from 3 to 1023.
//!
//! Unaware of: how questions are answered.

use larder_sys::FilterStep;

use super::calls::{Call, Row, When, rows};

/// The choice whether the kernel also asks us when a descriptor is closed.
///
/// If a program has a signal handler that does not restart calls, a signal can end a call with
/// EINTR before we have received the question. Programs expect that a file is not opened then. They
/// do not expect that a descriptor stays open. For example, `dash` has such a handler for SIGCHLD
/// and closes pipes just when its children end: the process that reads from the pipe would wait for
/// its end for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// Used for programs without such a handler, such as compilers and binutils.
    Asked,
    /// Used for all other programs. The state of a file when it was closed is then unknown.
    Unasked,
}

/// On x86-64, numbers from here on belong to another system call table (x32).
pub(super) const NUMBERS_END: u32 = 0x4000_0000;
/// Descriptors from this number on are not observed when they are closed.
const DESCRIPTORS_END: u32 = 1024;
const STANDARD_DESCRIPTORS: u32 = 3;

const ASK: FilterStep = FilterStep::answer(libc::SECCOMP_RET_USER_NOTIF);

/// Returns the whole BPF program. It asks us about each row of the table whose condition holds.
pub(super) fn program(closing: Closing) -> Vec<FilterStep> {
    let mut steps = FilterStep::first(ASK).to_vec();
    steps.extend([FilterStep::unless(FilterStep::AT_LEAST, NUMBERS_END, 1), ASK]);
    let is_asked = |row: &&Row| closing == Closing::Asked || !matches!(row.call, Call::Close(_));
    for row in rows().filter(is_asked) {
        steps.extend(of_row(row));
    }
    steps.push(FilterStep::ALLOW);
    steps
}

fn of_row(row: &Row) -> Vec<FilterStep> {
    let condition = condition(row.when);
    let mut steps = vec![FilterStep::unless(FilterStep::EQUAL, row.number as u32, condition.len() as u8)];
    steps.extend(condition);
    steps
}

/// Returns the steps after the number has matched. Each path through them ends in an answer.
fn condition(when: When) -> Vec<FilterStep> {
    const ALLOW: FilterStep = FilterStep::ALLOW;
    let equals = |value, count| FilterStep::unless(FilterStep::EQUAL, value, count);
    let is_at_least = |value, count| FilterStep::unless(FilterStep::AT_LEAST, value, count);
    let load = FilterStep::load_argument;
    match when {
        When::Always => vec![ASK],
        When::IsNot(index, value) => vec![load(index), equals(value, 1), ALLOW, ASK],
        When::HasBits(index, bits) => {
            vec![load(index), FilterStep::unless(FilterStep::ANY_BIT, bits, 1), ASK, ALLOW]
        }
        When::IsOneOf(index, values) => {
            let asked = values.iter().flat_map(|value| [equals(*value, 1), ASK]);
            std::iter::once(load(index)).chain(asked).chain([ALLOW]).collect()
        }
        When::Ordinary(index) => {
            let (end, standard) = (is_at_least(DESCRIPTORS_END, 1), is_at_least(STANDARD_DESCRIPTORS, 1));
            vec![load(index), end, ALLOW, standard, ASK, ALLOW]
        }
    }
}

/// Returns true if the BPF program would ask about a call of the table with these arguments.
pub(super) fn applies(when: When, arguments: &[u64; 6]) -> bool {
    let argument = |index: u8| arguments[usize::from(index)] as u32;
    match when {
        When::Always => true,
        When::IsNot(index, value) => argument(index) != value,
        When::HasBits(index, bits) => argument(index) & bits != 0,
        When::IsOneOf(index, values) => values.contains(&argument(index)),
        When::Ordinary(index) => (STANDARD_DESCRIPTORS..DESCRIPTORS_END).contains(&argument(index)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_sys::ARCHITECTURE;

    /// Returns the answer of the program, which is interpreted here as the kernel would run it.
    fn answer(architecture: u32, number: i64, first: u32) -> u32 {
        let program = program(Closing::Asked);
        let word = |offset: u32| match offset {
            0 => number as u32,
            4 => architecture,
            16 => first,
            other => panic!("loads {other}"),
        };
        let (mut at, mut value) = (0, 0);
        loop {
            let FilterStep { code, if_true, if_false, value: operand } = program[at];
            let holds = match code {
                FilterStep::ANSWER => return operand,
                FilterStep::LOAD => {
                    value = word(operand);
                    true
                }
                FilterStep::EQUAL => value == operand,
                FilterStep::AT_LEAST => value >= operand,
                FilterStep::ANY_BIT => value & operand != 0,
                other => panic!("step {other}"),
            };
            at += 1 + usize::from(if holds { if_true } else { if_false });
        }
    }

    #[test]
    fn what_is_asked_about() {
        let check = |number, first, asked: bool| {
            let expect = if asked { libc::SECCOMP_RET_USER_NOTIF } else { libc::SECCOMP_RET_ALLOW };
            assert_eq!(answer(ARCHITECTURE, number, first), expect, "{number} {first}");
            let row = rows().find(|row| i64::from(row.number) == number);
            let arguments = [first.into(), 0, 0, 0, 0, 0];
            assert_eq!(row.is_some_and(|row| applies(row.when, &arguments)) || number >= NUMBERS_END.into(), asked);
        };
        check(libc::SYS_openat, 0, true);
        check(libc::SYS_read, 0, false);
        check(libc::SYS_close, 1, false);
        check(libc::SYS_close, 3, true);
        check(libc::SYS_close, 5000, false);
        check(libc::SYS_socket, libc::AF_UNIX as u32, false);
        check(libc::SYS_socket, libc::AF_INET as u32, true);
        check(libc::SYS_clock_gettime, 1, false);
        check(libc::SYS_clock_gettime, 11, true);
        check(libc::SYS_clone, libc::SIGCHLD as u32, false);
        check(libc::SYS_clone, libc::CLONE_NEWUSER as u32, true);
        check(0x4000_0000, 0, true);
        assert_eq!(answer(0x4000_0003, libc::SYS_read, 0), libc::SECCOMP_RET_USER_NOTIF);
    }

    #[test]
    fn no_number_twice() {
        let mut numbers: Vec<i32> = rows().map(|row| row.number).collect();
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count);
        assert!(program(Closing::Asked).len() < 4096, "the kernel accepts at most 4096 steps");
    }
}
