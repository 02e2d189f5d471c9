//! The rules by which the tests fold the trace of a compile.

use larder_observe::Policy;

/// Returns the rules for a compile whose first process is `pid`.
pub(crate) fn of_a_compile(pid: u32) -> Policy<'static> {
    Policy {
        replaces_output: &|program| program == b"as" || program.ends_with(b"-as") || program.starts_with(b"clang"),
        unlinks_output: &|program| program == b"as" || program.ends_with(b"-as"),
        rewrites_output: &|_| false,
        opens_output: &|_| false,
        adds_execute: &|_| false,
        variable_is_covered: &|_| true,
        variable: &|_| None,
        is_compiler_part: &|_| true,
        habit: &|program, _, _| larder_compiler::habit(program, larder_compiler::Told::nothing()),
        configures: &|_, _| false,
        host_fields: &|_, _| b"snrvmd".to_vec(),
        is_standard_library: &|_, _| false,
        reads_clock_at_import: &|_, _| false,
        wrapper: b"",
        before: &|_| None,
        target_before: &|_| None,
        is_log: &|_| false,
        may_write: &|_| true,
        is_private: &|_| false,
        real: &|_| None,
        first_pid: Some(pid),
        chance_is_compared: false,
    }
}
