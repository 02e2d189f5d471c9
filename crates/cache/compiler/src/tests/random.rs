//! Random command lines: the parser never panics, and the source that it returns was on the line.

use super::Files;
use crate::{Family, clang, family_of, gcc, parse, replaces_output};

/// The generator xorshift64*. It produces the same lines in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % limit
    }

    fn word(&mut self) -> Vec<u8> {
        const FILES: &[&str] =
            &["x.c", "-", "", "@flags", "@loop", "@", "y.o", "-c", "-c", "--", "-o", "none", "/", "."];
        let table = if self.below(2) == 0 { gcc::flags::FLAGS } else { clang::flags::FLAGS };
        let mut word = match self.below(4) {
            0 => FILES[self.below(FILES.len())].as_bytes().to_vec(),
            1 => (0..self.below(8)).map(|_| self.below(256) as u8).collect(),
            _ => table[self.below(table.len())].spelling.as_bytes().to_vec(),
        };
        match self.below(8) {
            0 => word.extend(b"=,-MD,,-MF"),
            1 => word.truncate(self.below(word.len() + 1)),
            2 => word.push(self.below(256) as u8),
            _ => {}
        }
        word
    }
}

#[test]
fn random_lines_never_panic() {
    let mut random = Random(0x1a2d_e25e_ed00_0001);
    let mut ours = 0;
    for _ in 0..50_000 {
        let line: Vec<_> = (0..random.below(10)).map(|_| random.word()).collect();
        for family in [Family::Gcc, Family::Clang, Family::Generic] {
            let Ok(invocation) = parse(family, &line, &Files) else { continue };
            ours += 1;
            let from_file = line.iter().any(|word| word.starts_with(b"@"));
            let named = from_file || invocation.source.is_empty() || line.contains(&invocation.source);
            assert!(named, "{line:?}: {invocation:?}");
        }
        for word in &line {
            family_of(word);
            replaces_output(word);
        }
    }
    assert!(ours > 100, "only {ours} random lines were accepted, so this test checks too little");
}
