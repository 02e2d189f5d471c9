//! What is built: C files of some hundred functions that gcc optimises for about 0.4 s each.

use super::text;
use anyhow::{Context, Result, ensure};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// As many take gcc -O2 about 0.4 s.
const FUNCTIONS: u32 = 220;

pub(crate) struct Project {
    pub(crate) dir: PathBuf,
    sources: u32,
}

impl Project {
    pub(crate) fn write(dir: &Path, sources: u32) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", text(dir)))?;
        for number in 0..sources {
            fs::write(dir.join(format!("{number}.c")), source(&text(dir), number)?)?;
        }
        let objects: Vec<String> = (0..sources).map(|number| format!("{number}.o")).collect();
        let rules = format!("CC = gcc\nall: {}\n%.o: %.c\n\t$(CC) -O2 -c $< -o $@\n", objects.join(" "));
        fs::write(dir.join("Makefile"), rules)?;
        Ok(Self { dir: dir.to_owned(), sources })
    }

    pub(crate) fn clean(&self) -> Result<()> {
        (0..self.sources).try_for_each(|number| match fs::remove_file(self.object(number)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        })
    }

    /// Whether it made what it was to make.
    pub(crate) fn check(&self) -> Result<()> {
        let missing = (0..self.sources).find(|number| !self.object(*number).is_file());
        ensure!(missing.is_none(), "{}: an object is missing", text(&self.dir));
        Ok(())
    }

    fn object(&self, number: u32) -> PathBuf {
        self.dir.join(format!("{number}.o"))
    }
}

/// Two projects have different sources: none is answered by the other's.
pub(in crate::bench) fn source(project: &str, number: u32) -> Result<String> {
    let mut text = format!("/* {project} */\n#include <stdio.h>\n#include <string.h>\n");
    for at in 0..FUNCTIONS {
        let salt = number * FUNCTIONS + at;
        writeln!(
            text,
            "int f{at}(const int *a, int n, char *to) {{\n  int sum = {salt}, best = a[0];\n  for (int i = 0; i < n; i++) {{\n    \
             sum += a[i] * {} ^ (sum >> {});\n    if (a[i] > best && (sum & {})) best = a[i];\n    to[i % 64] = (char)(sum + best);\n  \
             }}\n  switch (sum % 7) {{ case 0: return best; case 3: sum *= {salt}; break; case 5: memset(to, sum, 64); }}\n  \
             return snprintf(to, 64, \"%d %d\", sum, best);\n}}",
            at + 3,
            at % 13 + 1,
            at * 7 + 1,
        )?;
    }
    Ok(text)
}
