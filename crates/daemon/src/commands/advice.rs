//! Gives advice about each reason in one line. docs/reasons.md has more.
//!
//! Unaware of: how often a reason occurred.

/// The code of a reason, and what to do. Reasons about which a person can do nothing have none.
const ADVICE: &[(&str, &str)] = &[
    // Bypasses.
    ("unknown-tool", "put `larder run --` before the command"),
    ("query", "nothing: the compiler answers at once"),
    ("session", "nothing: rustc compiles only what changed"),
    ("terminal", "give the command's answers in a file: `<answers`"),
    ("disabled", "unset LARDER_DISABLE"),
    ("standard-input", "add `</dev/null` to the command"),
    ("output-to-stdout", "write the output to an ordinary file"),
    ("too-hard", "remove the option that `larder explain` names"),
    ("response-file", "make the @file readable: at most 16 MiB, 8 levels"),
    ("closed-descriptor", "write `2>/dev/null` in place of `2>&-`"),
    ("cannot-observe", "`larder doctor` says which observers work here"),
    ("limited", "lift the limit (`ulimit -f`, `ulimit -v`)"),
    ("open-descriptor", "close descriptors 3 to 9 before the command starts"),
    // Misses that were not recorded.
    ("signal", "run the command again"),
    ("internal-error", "report the compiler's error to its makers"),
    ("shortage", "free memory or disk space, then run it again"),
    ("input-changed", "run it again: an input was written just before"),
    ("clock", "remove what asks: __DATE__, __TIME__, a macro of Rust"),
    ("network", "take the download out of the command"),
    ("device", "set LARDER_LOG to see which path it is"),
    ("not-observed", "`larder doctor` says whether the kernel observer works"),
    ("outlives", "end background processes before the command ends"),
    ("updates-file", "run it once more, or name the file as an argument"),
    ("output-special", "nothing: such outputs are not stored"),
    ("output-elsewhere", "add `larder run --output PATH`"),
    ("write-failed", "correct the permissions of the output"),
    ("random", "see docs/whole-commands.md, \"Clocks, random numbers\""),
    ("incomplete", "put larder before the parts of this large command"),
    ("too-large", "raise max_size (`larder config`)"),
    ("read-only", "unset LARDER_READ_ONLY"),
    ("output-lost", "let no other command write the same file"),
    ("unprovable", "`larder doctor` says which observers work here"),
    ("compares-times", "nothing: it depends on times that differ in each run"),
    ("unjudged", "run it again: larder has learned the tool now"),
    ("no-daemon", "run `larder daemon start` outside of the sandbox"),
    ("interrupted", "run it again"),
    ("suspect", "run it without larder, and report it if it works then"),
    ("refused", "`larder doctor` names the refused system call"),
    // Fallbacks.
    ("no-store", "set LARDER_DIR"),
    ("store-unusable", "`larder doctor` says why"),
    ("store-unwritable", "`larder doctor` says why"),
    ("store-full", "free disk space, or lower max_size and run `larder evict`"),
    ("store-unsafe", "`chmod go-w` the store, or set LARDER_DIR to one of yours"),
    ("damaged", "run `larder fsck --repair`"),
    ("blob-missing", "run `larder fsck --repair`"),
    ("materialise", "check the permissions of the output's directory"),
    ("observer-failed", "`larder doctor` says which observers work here"),
    ("verify", "report it as a fault of larder"),
    ("half-placed", "remove the outputs, free disk space, build again"),
];

/// Returns what to do about the reason with this code.
pub(crate) fn advice(code: &str) -> &'static str {
    let known = ADVICE.iter().find(|(known, _)| *known == code);
    known.map_or("see docs/reasons.md", |(_, advice)| advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_model::{Bypass, Fallback, Unrecorded};

    #[test]
    fn each_reason_has_advice_that_fits_a_line() {
        let bypasses = Bypass::ALL.iter().map(|reason| reason.code());
        let fallbacks = Fallback::ALL.iter().map(|reason| reason.code());
        let unrecorded = Unrecorded::ALL.iter().map(|reason| reason.code());
        for code in bypasses.chain(fallbacks).chain(unrecorded) {
            assert!(ADVICE.iter().any(|(known, _)| *known == code), "no advice for {code}");
            assert!(advice(code).chars().count() <= 58, "{code}: longer than a line allows");
        }
    }
}
