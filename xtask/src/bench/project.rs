//! A generated project of C files. They are alike, but each has other bytes.

use crate::files;
use crate::launcher::{Counts, Launcher};
use crate::run::{self, Usage};
use anyhow::{Context, Result, ensure};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const HEADERS: u32 = 30;
const FUNCTIONS: u32 = 5;

/// The directory, and the number of sources.
pub(super) struct Project {
    pub(super) dir: PathBuf,
    sources: u32,
}

impl Project {
    /// Writes the project.
    pub(super) fn write(dir: PathBuf, sources: u32) -> Result<Self> {
        // Files above the top of a checkout are not part of cache keys.
        files::write(dir.join(".git/HEAD"), "ref: refs/heads/main\n")?;
        let mut includes = String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
        for header in 0..HEADERS {
            writeln!(includes, "#include \"h{header}.h\"")?;
            let text = format!("#pragma once\nstruct s{header} {{ int count; struct s{header} *next; }};\n");
            files::write(dir.join(format!("include/h{header}.h")), text)?;
        }
        for source in 0..sources {
            files::write(dir.join(format!("u{source}.c")), format!("{includes}{}", functions(source)))?;
        }
        let objects: String = (0..sources).map(|source| format!(" u{source}.o")).collect();
        let makefile = format!("all:{objects}\n%.o: %.c\n\t@$(CC) -O1 -MD -Iinclude -c $< -o $@\n");
        files::write(dir.join("Makefile"), makefile)?;
        Ok(Self { dir, sources })
    }

    /// Removes the outputs of a build.
    fn clean(&self) -> Result<()> {
        for path in files::list(&self.dir)? {
            if path.extension().is_some_and(|end| end == "o" || end == "d") {
                fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        Ok(())
    }

    /// Returns the bytes of every object, in order.
    pub(super) fn objects(&self) -> Result<Vec<Vec<u8>>> {
        (0..self.sources).map(|source| files::bytes(self.dir.join(format!("u{source}.o")))).collect()
    }

    /// Builds everything from scratch. Returns the cost, and what larder counted. Fails if the
    /// objects are not `expected`, unless `expected` is empty.
    pub(super) fn build(
        &self,
        launcher: &Launcher,
        home: &Path,
        jobs: usize,
        expected: &[Vec<u8>],
    ) -> Result<(Usage, Option<Counts>)> {
        self.clean()?;
        let before = launcher.counts(home)?;
        let mut command = Command::new("make");
        command.args(["-s", &format!("-j{jobs}"), &format!("CC={}", launcher.compiler("gcc"))]);
        launcher.apply(&mut command, home);
        let usage = run::silent(command.current_dir(&self.dir))?;
        let counts = launcher.counts(home)?.zip(before).map(|(after, before)| after - before);
        ensure!(expected.is_empty() || self.objects()? == expected, "an object differs from the plain build's");
        Ok((usage, counts))
    }
}

fn functions(source: u32) -> String {
    let function = |at: u32| {
        format!(
            "int f{source}_{at}(int n, const char **names)\n{{\n    int sum = {at};\n    for (int i = 0; i < n; i++) {{\n        \
             if (strlen(names[i]) % {} == 0) printf(\"%d %s\\n\", i ^ {source}, names[i]);\n        \
             sum += abs(i * {at} - n) % {};\n    }}\n    return sum;\n}}\n",
            at + 2,
            source + 3
        )
    };
    (0..FUNCTIONS).map(function).collect()
}
