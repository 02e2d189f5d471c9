//! Finds the functions that a program executed, and how much of each.

use anyhow::{Context, Result};
use object::{Object, ObjectSymbol, SymbolKind};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The size of a cache line.
const LINE_BYTES: u64 = 64;

/// The functions of a program.
pub(crate) struct Hot {
    /// Sorted by address.
    functions: Vec<Function>,
}

struct Function {
    start: u64,
    size: u64,
    name: String,
    lines: BTreeSet<u64>,
}

impl Hot {
    /// Reads the functions of the program at `path`. None is executed yet.
    pub(crate) fn of(path: &Path) -> Result<Hot> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let file = object::File::parse(&*bytes).with_context(|| format!("{} is not a program", path.display()))?;
        let is_function = |symbol: &object::Symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0;
        let function = |symbol: object::Symbol| {
            let name = symbol.name().unwrap_or_default().to_owned();
            Function { start: symbol.address(), size: symbol.size(), name, lines: BTreeSet::new() }
        };
        let mut functions: Vec<Function> = file.symbols().filter(is_function).map(function).collect();
        functions.sort_by_key(|function| function.start);
        Ok(Hot { functions })
    }

    /// Notes that the instruction at this address was executed.
    pub(crate) fn executed(&mut self, at: u64) {
        let after = self.functions.partition_point(|function| function.start <= at);
        let Some(function) = after.checked_sub(1).and_then(|before| self.functions.get_mut(before)) else { return };
        if at < function.start + function.size {
            function.lines.insert(at / LINE_BYTES);
        }
    }

    /// Returns the size in bytes of the cache lines that were executed, and of the functions that they
    /// belong to.
    pub(crate) fn executed_of(&self) -> (u64, u64) {
        let executed = self.functions.iter().filter(|function| !function.lines.is_empty());
        executed.fold((0, 0), |(lines, all), function| {
            (lines + function.lines.len() as u64 * LINE_BYTES, all + function.size)
        })
    }

    /// Returns the sections of the executed functions, as a linker script names them. A function of
    /// which a larger share was executed comes first.
    pub(crate) fn sections(mut self) -> Vec<String> {
        self.functions.retain(|function| !function.lines.is_empty());
        let cold = |function: &Function| function.size.div_ceil(LINE_BYTES) * 1000 / function.lines.len() as u64;
        self.functions.sort_by_key(cold);
        let mut sections: Vec<String> = Vec::new();
        for section in self.functions.iter().map(|function| section(&lasting(&function.name))) {
            if !sections.contains(&section) {
                sections.push(section);
            }
        }
        sections
    }
}

/// Returns the section of a function. Cold functions are in `.text.unlikely.`.
fn section(name: &str) -> String {
    let is_rusts = name.starts_with("_ZN") || name.starts_with("_R");
    format!("*(.text.{}{name})", if is_rusts { "*" } else { "" })
}

/// Replaces the hash at the end of a mangled name by `*`, because it changes with each change of
/// the program.
fn lasting(name: &str) -> String {
    const HASH: &str = "17h";
    const HASH_DIGITS: usize = 16;
    let is_hash = |at: &usize| {
        let digits = name.as_bytes().get(at + HASH.len()..at + HASH.len() + HASH_DIGITS);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    match name.rmatch_indices(HASH).map(|(at, _)| at).find(is_hash) {
        Some(at) => format!("{}{HASH}*", &name[..at]),
        None => match name.split_once(".llvm.") {
            Some((name, _)) => format!("{name}*"),
            None => name.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_what_changes() {
        for (name, expect) in [
            (
                "_ZN12larder_store6stamps6Stamps7content17h0d24764b09b5acb7E",
                "_ZN12larder_store6stamps6Stamps7content17h*",
            ),
            ("_ZN3a1b17h0d24764b09b5acb7E.llvm.123", "_ZN3a1b17h*"),
            ("_RNvCs1_3std4main.llvm.9", "_RNvCs1_3std4main*"),
            ("strlen", "strlen"),
        ] {
            assert_eq!(lasting(name), expect);
        }
    }

    #[test]
    fn what_is_executed_most_comes_first() {
        let function =
            |start, size, name: &str| Function { start, size, name: name.to_owned(), lines: BTreeSet::new() };
        let functions = vec![function(0, 640, "large"), function(640, 64, "whole"), function(704, 64, "never")];
        let mut hot = Hot { functions };
        [0, 4, 64, 650, 9999].into_iter().for_each(|at| hot.executed(at));
        assert_eq!(hot.executed_of(), (3 * LINE_BYTES, 704));
        assert_eq!(hot.sections(), ["*(.text.whole)", "*(.text.large)"]);
    }
}
