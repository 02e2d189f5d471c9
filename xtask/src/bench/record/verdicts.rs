//! Measures how often `larder compare` is wrong, with sessions of `larder record`. In some sessions
//! both sides are the same build, and in others one side was made slower.
//!
//! The statistics have a unit test with invented samples. This benchmark shows the variation of
//! real builds on a real machine.

use super::builds::{Bench, done};
use crate::bench::figure::Figure;
use crate::bench::report::Report;
use crate::progress::Bar;
use crate::run;
use crate::table::Table;
use anyhow::{Context, Result};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The number of pairs in a session, from the goal in the issue.
const PAIRS: usize = 20;
const SOURCES: usize = 40;
const MAKE: &str = "make -s -j2";
/// The share of the build's time that is added to make it slower.
const MORE: f64 = 0.03;
/// The number of builds that are timed to compute that share.
const RUNS_BEFORE: usize = 9;
/// The upper limit for the share of sessions with a wrong verdict.
const WRONG_MAX: f64 = 0.05;
const SAME: &str = "the same";
const MORE_NAME: &str = "3 % more";
const WALL: &str = "wall time";
const VERDICTS: [&str; 4] = ["less", "equal", "cannot tell", "more"];
const HEADER: &[&str] = &["sides", "measure", "sessions", "pairs", "B less", "equal", "cannot tell", "B more"];

/// Uses a processor for the given number of microseconds.
const SPIN: &str = "\
#include <stdlib.h>
#include <time.h>
int main(int argc, char **argv) {
    double us = argc > 1 ? atof(argv[1]) : 0;
    struct timespec t;
    do clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    while (t.tv_sec * 1e6 + t.tv_nsec / 1e3 < us);
    return 0;
}
";
const MAKEFILE: &str = "\
OBJECTS = $(patsubst %.c,%.o,$(wildcard *.c))
prog: $(OBJECTS)
\t./spin/spin $(SPIN_US)
\tgcc -o $@ $(OBJECTS)
%.o: %.c
\tgcc -O1 -c -o $@ $<
";

/// Measures both kinds of sessions.
pub(super) fn verdicts(bench: &Bench, sessions: usize) -> Result<Report> {
    let dir = bench.work.join("verdicts");
    make_project(&dir)?;
    let wall_s = time_of_build(bench, &dir)?;
    let more_us = (wall_s * MORE * 1e6).round();
    // Both sides start the same programs.
    let [same, slower] = [0.0, more_us].map(|us| format!("{MAKE} SPIN_US={us}"));
    let mut report = Report {
        name: "record-verdicts",
        title: "What sessions of real builds say".to_owned(),
        notes: vec![
            format!(
                "{PAIRS} pairs per session by `larder record --ab-commands`, judged by `larder compare`. The build is \
                 {SOURCES} compiles and a link by {MAKE}, {:.0} ms. In the slower build a program uses a processor for \
                 {:.1} ms before the link.",
                wall_s * 1e3,
                more_us / 1e3
            ),
            "Goals: of equal builds at most 5 of 100 sessions say that one needs less or more. 3 % more is found in \
             all but 5 of 100 sessions."
                .to_owned(),
        ],
        table: Table::new(2, HEADER),
        ..Report::default()
    };
    for (kind, other, right) in [(SAME, &same, ["equal", "cannot tell"]), (MORE_NAME, &slower, ["more"; 2])] {
        let said = judged(bench, &dir, kind, [&same, other], sessions)?;
        for (measure, said) in [WALL, "CPU time"].into_iter().zip(said) {
            // The added time is a share of the wall time. Of the CPU time it is a smaller share.
            let right = (kind == SAME || measure == WALL).then_some(right);
            add(&mut report, kind, measure, &said, right);
        }
    }
    Ok(report)
}

fn make_project(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir.join("spin")).with_context(|| format!("cannot make {}", dir.display()))?;
    fs::write(dir.join("Makefile"), MAKEFILE)?;
    for at in 0..SOURCES {
        let main = if at == 0 { "int main(void) { return 0; }\n" } else { "" };
        let text = format!(
            "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
             int f{at}(const char *s) {{ return (int) strlen(s) + {at} + printf(\"%s\", s); }}\n{main}"
        );
        fs::write(dir.join(format!("f{at}.c")), text)?;
    }
    let source = dir.join("spin/spin.c");
    fs::write(&source, SPIN)?;
    run::output(Command::new("gcc").arg("-O1").arg("-o").arg(dir.join("spin/spin")).arg(source)).map(drop)
}

/// Returns the median wall time of a build, in seconds.
fn time_of_build(bench: &Bench, dir: &Path) -> Result<f64> {
    let mut walls = Vec::new();
    for _ in 0..RUNS_BEFORE {
        done(Command::new("sh").args(["-c", "rm -f *.o prog"]).current_dir(dir))?;
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{MAKE} SPIN_US=0")]);
        bench.silently(&mut command, &bench.launcher, dir);
        walls.push(done(&mut command)?.wall.as_secs_f64());
    }
    Ok(larder_samples::quantile(walls, 1, 2))
}

/// Returns the verdict of each session on wall time, and on CPU time.
fn judged(bench: &Bench, dir: &Path, kind: &str, sides: [&String; 2], sessions: usize) -> Result<[Vec<String>; 2]> {
    let mut said = [Vec::new(), Vec::new()];
    let bar = Bar::new(kind, sessions as u64);
    for session in 0..sessions {
        let mut record = bench.larder(&bench.launcher, dir);
        record.args(["record", "--name", "s", "-n", &PAIRS.to_string(), "--trace", "never", "--output", "dropped"]);
        record.args(["--prepare", "rm -f *.o prog", "--ab-commands"]).args(sides);
        done(&mut record)?;
        let compared = bench.said(&["compare", "s-a", "s-b", "--json"])?;
        for (at, said) in said.iter_mut().enumerate() {
            let verdict = compared["measures"][at]["verdict"].as_str().context("a comparison has verdicts")?;
            said.push(verdict.to_owned());
        }
        crate::place::remove(&bench.records())?;
        bar.at(session as u64 + 1);
    }
    bar.end(&format!("{kind}: {sessions} sessions"));
    Ok(said)
}

fn add(report: &mut Report, kind: &str, measure: &str, said: &[String], right: Option<[&str; 2]>) {
    let count = |verdict: &str| said.iter().filter(|one| *one == verdict).count();
    let mut row = vec![kind.to_owned(), measure.to_owned(), said.len().to_string(), PAIRS.to_string()];
    row.extend(VERDICTS.map(|verdict| count(verdict).to_string()));
    report.table.rows.push(row);
    if let Some(right) = right {
        let wrong = said.iter().filter(|one| !right.contains(&one.as_str())).count();
        let share = wrong as f64 / said.len().max(1) as f64;
        report.figures.push(Figure::count(
            format!("{kind}, {measure}, share of wrong verdicts"),
            share,
            Some(WRONG_MAX),
        ));
    }
    report.rows.push(json!({ "sides": kind, "measure": measure, "verdicts": said }));
}
