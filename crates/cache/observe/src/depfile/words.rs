//! Judges identifiers: some refuse a text, because the text could read the clock or a file by them,
//! directly or by token pasting. For example, `__TI` refuses because `__TI ## ME__` is `__TIME__`.
//!
//! Unaware of: where in a text a word stands.

use larder_model::{DepfilePlan, contains};

const HAS_INCLUDE: &[u8] = b"__has_include";
const INCLUDE: &[u8] = b"include";
/// Shorter pieces of these names are too common to refuse.
const PIECE_BYTES_MIN: usize = 3;
/// `__h` is too common to refuse, `__has` is not.
const HAS_PIECE_BYTES_MIN: usize = 5;
/// Pieces of the names that system headers use for other purposes. Both were seen: `__T` is the
/// parameter of a template in `math.h`, and libstdc++ has `__has_ ## _NTYPE`, which is undefined
/// where it was used.
const SYSTEM_PIECES: [&[u8]; 2] = [b"__T", b"__has_"];

/// What an identifier means for the proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The identifier does not matter.
    Plain,
    /// `__has_include` or `__has_include_next`, which look for a header.
    HasInclude,
    /// A keyword that begins assembler text.
    Assembler,
    /// The identifier refuses the text.
    Refused,
}

/// Judges an identifier. `system` is true if it stands in a header of the compiler's own
/// directories.
pub(super) fn classify(word: &[u8], system: bool) -> Word {
    match word {
        b"__has_include" | b"__has_include_next" if system => Word::HasInclude,
        b"asm" | b"__asm" | b"__asm__" => Word::Assembler,
        b"pch_preprocess" | b"include_alias" => Word::Refused,
        _ if DepfilePlan::CLOCKS.contains(&word) => Word::Refused,
        _ if word.starts_with(HAS_INCLUDE) || word.starts_with(b"__has_embed") => Word::Refused,
        _ if system && SYSTEM_PIECES.contains(&word) => Word::Plain,
        _ if is_piece(word) => Word::Refused,
        _ if contains(word, "incbin") && !system => Word::Refused,
        _ => Word::Plain,
    }
}

/// Returns true if token pasting could make a refused word from this word and others.
fn is_piece(word: &[u8]) -> bool {
    let of_a_clock = |clock: &&[u8]| word.len() < clock.len() && contains(clock, word);
    let of_has_include = word.len() >= HAS_PIECE_BYTES_MIN && HAS_INCLUDE.starts_with(word)
        || word.len() > INCLUDE.len() && HAS_INCLUDE.ends_with(word);
    word.len() >= PIECE_BYTES_MIN && DepfilePlan::CLOCKS.iter().any(of_a_clock) || of_has_include
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let check =
            |word: &str, system, expect| assert_eq!(classify(word.as_bytes(), system), expect, "{word} {system}");
        for word in ["__TIME__", "__TIMESTAMP__", "__TI", "ME__", "E__", "TIME", "STAMP", "__has_embed", "__has_incl"] {
            check(word, true, Word::Refused);
            check(word, false, Word::Refused);
        }
        for word in ["time", "__time", "__TIMESIZE", "T", "include", "__h", "TI", "DATES", "x"] {
            check(word, false, Word::Plain);
        }
        check("__T", true, Word::Plain);
        check("__T", false, Word::Refused);
        check("__has_include", true, Word::HasInclude);
        check("__has_include", false, Word::Refused);
        check("my_incbin", false, Word::Refused);
        check("__asm__", false, Word::Assembler);
    }
}
