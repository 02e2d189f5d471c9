//! `cargo xtask bench pages`: what compilers gain from huge pages, by every way that asks for them from outside: time,
//! page faults, peak memory, and whether the output is the same.
//!
//! Larder sets none of these variables; this says whether somebody should.

use super::class::c_source;
use super::count;
use super::measure::{Subject, faults_of_children};
use super::report::{Figure, Report};
use crate::place::{Place, fresh};
use crate::progress::Bar;
use crate::run;
use crate::setup;
use crate::table::Table;
use anyhow::{Context, Result, ensure};
use larder_samples::{median, ratio};
use serde_json::json;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What `cargo xtask bench pages` takes.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How often each is run, in turn
    #[arg(long, default_value_t = 15, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    rounds: u32,
    /// Only compilers whose name holds this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// A way to ask for huge pages: what it is called, and the variable.
type Way = (&'static str, Option<(&'static str, &'static str)>);

/// The C library's allocator, which all but rustc use. `hugetlb=1` has it ask by `madvise`; `top_pad` has its heap grow
/// by as much at once, so that there is room for a huge page.
const OF_GLIBC: &[Way] = &[
    ("nothing", None),
    ("hugetlb=1", Some(("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"))),
    ("top_pad=32 MiB", Some(("GLIBC_TUNABLES", "glibc.malloc.top_pad=33554432"))),
    ("both", Some(("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1:glibc.malloc.top_pad=33554432"))),
];
/// rustc brings jemalloc.
const OF_JEMALLOC: &[Way] = &[
    ("nothing", None),
    ("thp:always", Some(("MALLOC_CONF", "thp:always"))),
    ("thp:always,metadata_thp:always", Some(("MALLOC_CONF", "thp:always,metadata_thp:always"))),
];

const HEADER: &[&str] =
    &["compiler", "asked by", "CPU ms", "÷ nothing", "low", "high", "wall ÷ nothing", "faults", "peak MB"];

struct Compiler {
    name: &'static str,
    words: &'static [&'static str],
    source: &'static str,
    text: fn() -> Result<String>,
    ways: &'static [Way],
}

const COMPILERS: &[Compiler] = &[
    Compiler { name: "gcc", words: &["-O2", "-c"], source: "a.c", text: c, ways: OF_GLIBC },
    Compiler { name: "g++", words: &["-O2", "-c"], source: "a.cc", text: cpp, ways: OF_GLIBC },
    Compiler { name: "clang", words: &["-O2", "-c"], source: "a.c", text: c, ways: OF_GLIBC },
    Compiler { name: "clang++", words: &["-O2", "-c"], source: "a.cc", text: cpp, ways: OF_GLIBC },
    Compiler {
        name: "rustc",
        words: &["--crate-type", "lib", "--crate-name", "a", "--edition", "2021", "-Copt-level=2", "--emit=obj"],
        source: "a.rs",
        text: rust,
        ways: OF_JEMALLOC,
    },
];

/// One compiler, asked in one way.
struct Lane {
    name: String,
    program: PathBuf,
    words: &'static [&'static str],
    source: &'static str,
    variable: Option<(&'static str, &'static str)>,
    dir: PathBuf,
}

/// What its runs used.
#[derive(Default)]
struct Series {
    cpu_ms: Vec<f64>,
    wall_ms: Vec<f64>,
    faults: Vec<f64>,
}

impl Subject for Lane {
    fn name(&self) -> &str {
        &self.name
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(self.words).args([self.source, "-o", "a.o"]).current_dir(&self.dir);
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", &self.dir).env("LC_ALL", "C");
        command.envs(self.variable);
        command
    }

    fn prepare(&self) -> Result<()> {
        Ok(())
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// Measures every compiler that is here.
pub(crate) fn pages(place: &Place, options: &Options) -> Result<Report> {
    setup::for_builds(place)?;
    let counting = count::program(place)?;
    let work = place.own("bench-pages")?;
    fresh(&work)?;
    let mut report = Report {
        name: "pages",
        title: "Compilers with and without huge pages".to_owned(),
        notes: notes()?,
        table: Table::new(2, HEADER),
        ..Report::default()
    };
    for compiler in COMPILERS {
        if options.only.as_ref().is_some_and(|text| !compiler.name.contains(text.as_str())) {
            continue;
        }
        let Some(program) = found(compiler.name) else {
            let reason = format!("skipped: {} is not installed", compiler.name);
            println!("{reason}");
            report.notes.push(reason);
            continue;
        };
        let dir = work.join(compiler.name);
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        fs::write(dir.join(compiler.source), (compiler.text)()?)?;
        compiler_rows(&mut report, compiler, &program, &dir, &counting, options.rounds)?;
    }
    Ok(report)
}

fn compiler_rows(
    report: &mut Report,
    compiler: &Compiler,
    program: &Path,
    dir: &Path,
    counting: &Path,
    rounds: u32,
) -> Result<()> {
    let Compiler { name, words, source, ways, .. } = *compiler;
    let lane = |(way, variable): &Way| {
        let (name, program, dir) = (format!("{name}, {way}"), program.to_owned(), dir.to_owned());
        Lane { name, program, words, source, variable: *variable, dir }
    };
    let lanes: Vec<Lane> = ways.iter().map(lane).collect();
    let series = in_turn(name, &lanes, rounds)?;
    let nothing = series.first().context("there is no way")?;
    for ((way, _), (lane, these)) in ways.iter().zip(lanes.iter().zip(&series)) {
        let peak_kb = count::own(lane, counting, dir)?.largest_kb;
        let middle = |samples: &[f64]| median(samples).map_or(0.0, |found| found.value);
        let cpu = ratio(&these.cpu_ms, &nothing.cpu_ms).context("nothing was measured")?;
        let wall = ratio(&these.wall_ms, &nothing.wall_ms).context("nothing was measured")?;
        report.table.rows.push(vec![
            name.to_owned(),
            (*way).to_owned(),
            format!("{:.0}", middle(&these.cpu_ms)),
            format!("{:.3}", cpu.value),
            format!("{:.3}", cpu.low),
            format!("{:.3}", cpu.high),
            format!("{:.3}", wall.value),
            format!("{:.0}", middle(&these.faults)),
            format!("{:.1}", peak_kb as f64 / 1000.0),
        ]);
        report.rows.push(json!({
            "compiler": name, "asked_by": way, "cpu_ms": these.cpu_ms, "wall_ms": these.wall_ms,
            "faults": these.faults, "peak_kb": peak_kb,
        }));
        if *way != "nothing" {
            let figure = format!("{name}, {way}: CPU ÷ nothing");
            report.figures.extend(Figure::ratio(figure, &these.cpu_ms, &nothing.cpu_ms, None));
        }
    }
    Ok(())
}

/// Each once a round; an error where one's output differs from another's.
fn in_turn(name: &str, lanes: &[Lane], rounds: u32) -> Result<Vec<Series>> {
    let mut all: Vec<Series> = lanes.iter().map(|_| Series::default()).collect();
    let mut expected = None;
    let bar = Bar::new(name, u64::from(rounds));
    for round in 0..rounds {
        for at in 0..lanes.len() {
            // No way always comes after the same other.
            let at = (at + round as usize) % lanes.len();
            let before = faults_of_children()?;
            let (status, usage) = run::measured(&mut lanes[at].command())?;
            ensure!(status.success(), "{} ended with {status}", lanes[at].name);
            all[at].faults.push((faults_of_children()? - before) as f64);
            all[at].cpu_ms.push(usage.cpu.as_secs_f64() * 1000.0);
            all[at].wall_ms.push(usage.wall.as_secs_f64() * 1000.0);
            let made = fs::read(lanes[at].dir.join("a.o")).context("the compiler left no object")?;
            let expected = expected.get_or_insert_with(|| made.clone());
            ensure!(*expected == made, "{}: another object than with nothing set", lanes[at].name);
        }
        bar.at(u64::from(round) + 1);
    }
    bar.end(&format!("{name}: {rounds} rounds"));
    Ok(all)
}

/// A compiler on `PATH`; rustc as it is without the program that chooses among several.
fn found(name: &str) -> Option<PathBuf> {
    if name == "rustc" {
        let root = run::output(Command::new("rustc").args(["--print", "sysroot"])).ok()?;
        return Some(Path::new(root.trim()).join("bin/rustc")).filter(|path| path.is_file());
    }
    ["/usr/local/bin", "/usr/bin"].iter().map(|dir| Path::new(dir).join(name)).find(|path| path.is_file())
}

fn c() -> Result<String> {
    c_source("pages", 0)
}

/// As much of the standard library as a file of a real project includes.
fn cpp() -> Result<String> {
    let mut text = String::from("#include <map>\n#include <regex>\n#include <string>\n#include <vector>\n");
    for at in 0..6 {
        writeln!(
            text,
            "template <int N> struct S{at} {{ std::map<std::string, std::vector<int>> m; int f(const std::string &s) \
             {{ std::regex r(\"a+{at}\"); if (std::regex_search(s, r)) m[s].push_back(N); return m.size(); }} }};\n\
             int f{at}(const std::string &s) {{ S{at}<{at}> a; S{at}<{at} + 100> b; return a.f(s) + b.f(s); }}"
        )?;
    }
    Ok(text)
}

fn rust() -> Result<String> {
    const FUNCTIONS: u32 = 150;
    let mut text = String::from("use std::collections::{BTreeMap, HashMap};\n");
    for at in 0..FUNCTIONS {
        writeln!(
            text,
            "pub fn f{at}(words: &[String]) -> BTreeMap<String, usize> {{\n  let mut all: HashMap<&str, usize> = HashMap::new();\n  \
             for word in words {{ *all.entry(word.as_str()).or_default() += {at}; }}\n  \
             all.into_iter().filter(|(_, n)| n % {} == 0).map(|(w, n)| (format!(\"{{w}}{at}\"), n)).collect()\n}}",
            at + 2
        )?;
    }
    Ok(text)
}

fn notes() -> Result<Vec<String>> {
    let read = |name: &str| fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{name}"));
    let mode = read("enabled").unwrap_or_else(|_| "not there".to_owned());
    Ok(vec![
        format!("transparent_hugepage/enabled: {}. Larder sets none of this.", mode.trim()),
        "CPU: user and system time of the compiler and all that it starts; medians of rounds in turn, the ratio with its 95 % interval. \
         faults: page faults that needed no disk, of all of them. peak: memory of the largest process. Objects were equal to the byte \
         in every run."
            .to_owned(),
        "gcc's own collector maps its memory by itself, and no variable reaches that.".to_owned(),
    ])
}
