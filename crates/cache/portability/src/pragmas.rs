//! Finds pragmas in preprocessed text whose effect the text does not show. A compile of the source
//! can then give another result than a compile of the text.
//!
//! Unaware of: what the text is compared with or searched for.

use larder_model::{contains, is_in_word};

/// Directories with this part in their path have the headers of gcc. Around some of their functions
/// they choose an instruction set, and after them the old one. Only such headers are between.
const HEADERS_OF_GCC: &[u8] = b"/lib/gcc";

/// Pragmas of gcc that choose other options.
const OPTIONS: [&[u8]; 5] = [b"optimize", b"pop_options", b"push_options", b"reset_options", b"target"];

/// Pragmas in whose words neither compiler expands macros, or both do so with `-E` as well.
const ANY_WORDS: [&[&[u8]]; 5] = [&[b"GCC", b"poison"], &[b"endregion"], &[b"mark"], &[b"omp"], &[b"region"]];

/// Words of pragmas that are hardly names of macros.
#[rustfmt::skip]
const WORDS: [&[u8]; 52] = [
    b"CX_LIMITED_RANGE", b"DEFAULT", b"FENV_ACCESS", b"FP_CONTRACT", b"GCC", b"OFF", b"ON", b"STDC",
    b"assume_nonnull", b"assume_safety", b"begin", b"clang", b"comment", b"default", b"diagnostic", b"disable",
    b"distribute", b"enable", b"end", b"error", b"full", b"hidden", b"ignored", b"interleave", b"interleave_count",
    b"internal", b"ivdep", b"lib", b"loop", b"nounroll", b"once", b"optimize", b"pack", b"pop", b"pop_macro",
    b"pop_options", b"predicate", b"protected", b"push", b"push_macro", b"push_options", b"reset_options",
    b"system_header", b"target", b"unroll", b"unroll_and_jam", b"unroll_count", b"vectorize",
    b"vectorize_predicate", b"vectorize_width", b"visibility", b"warning",
];

/// A line of preprocessed text such as `#pragma pack(push, 1)`.
pub(crate) struct Pragma<'l> {
    /// Its words, without strings and numbers.
    words: Vec<&'l [u8]>,
    has_open_quote: bool,
}

impl<'l> Pragma<'l> {
    /// Returns `None` if the line is something else.
    pub(crate) fn of(line: &'l [u8]) -> Option<Pragma<'l>> {
        let pragma = line.trim_ascii_start().strip_prefix(b"#pragma")?;
        let (mut words, mut quotes) = (Vec::new(), 0);
        for part in pragma.chunk_by(|a, b| is_in_word(*a) && is_in_word(*b)) {
            quotes += usize::from(part == b"\"");
            if is_in_word(part[0]) && !part[0].is_ascii_digit() && quotes % 2 == 0 {
                words.push(part);
            }
        }
        Some(Pragma { words, has_open_quote: quotes % 2 == 1 })
    }

    /// Returns true if gcc compiles what follows with other options. Macros such as `__AVX2__` and
    /// `__OPTIMIZE__` depend on them, but with `-E` gcc 12 ignores the pragma. `file` is the file
    /// with the pragma, as a line marker names it.
    pub(crate) fn changes_options(&self, file: &[u8]) -> bool {
        let [b"GCC", kind, ..] = self.words[..] else { return false };
        OPTIONS.contains(&kind) && (kind == b"optimize" || !contains(file, HEADERS_OF_GCC))
    }

    /// Returns true if the pragma may have a macro. For example, in `#pragma unroll(N)` clang
    /// expands `N`, but not with `-E`.
    pub(crate) fn may_have_macro(&self) -> bool {
        !ANY_WORDS.iter().any(|start| self.words.starts_with(start))
            && (self.has_open_quote || self.words.iter().any(|word| !WORDS.contains(word)))
    }

    /// Returns true if the compiler warns of more from here on. With `-E` gcc 12 does not.
    pub(crate) fn enables_warnings(&self) -> bool {
        self.words.get(1) == Some(&&b"diagnostic"[..])
            && !matches!(self.words.get(2), Some(&(b"ignored" | b"pop" | b"push")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_pragmas_the_text_does_not_show() {
        let check = |pragma: &str, file: &str, expect: &str| {
            let line = format!("#pragma {pragma}");
            let pragma = Pragma::of(line.as_bytes()).expect("is a pragma");
            let found = [
                ("options", pragma.changes_options(file.as_bytes())),
                ("macro", pragma.may_have_macro()),
                ("warnings", pragma.enables_warnings()),
            ];
            let found: Vec<&str> = found.iter().filter(|(_, is_it)| *is_it).map(|(name, _)| *name).collect();
            assert_eq!(found.join(" "), expect, "{line}");
        };
        for pragma in [
            "once",
            "mark - don't",
            "region A",
            "GCC system_header",
            "GCC diagnostic ignored \"-Wall\"",
            "clang diagnostic pop",
            "GCC poison a b",
            "GCC visibility push(default)",
            "push_macro(\"A\")",
            "pack(push, 16)",
            "unroll 4",
            "clang loop vectorize(enable)",
            "STDC FP_CONTRACT ON",
            "omp parallel for num_threads(N)",
        ] {
            check(pragma, "x.h", "");
        }
        for pragma in [
            "a",
            "onceA",
            "pack(N)",
            "pack(push, N)",
            "unroll(N)",
            "GCC unroll N",
            "clang loop unroll_count(N)",
            "weak N",
            "comment(lib, N)",
            "GCC visibility push(N)",
            "GCC diagnostic ignored N",
            "GCC poisoned a",
            "comment(lib, \"a)",
        ] {
            check(pragma, "x.h", "macro");
        }
        check("GCC diagnostic warning \"-Wundef\"", "x.h", "warnings");
        check("clang diagnostic error \"-Wundef\"", "x.h", "warnings");
        let of_gcc = "/usr/lib/gcc/x86_64-linux-gnu/12/include/avx2intrin.h";
        for pragma in ["GCC optimize(\"fast-math\")", "GCC target(\"avx2\")", "GCC push_options"] {
            check(pragma, "x.h", "options");
        }
        check("GCC target(\"avx2\")", of_gcc, "");
        check("GCC optimize(\"fast-math\")", of_gcc, "options");
        assert!(Pragma::of(b"# 3 \"x.h\"").is_none());
    }
}
