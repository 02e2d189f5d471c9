//! `cargo xtask bench corpus`: builds Debian's source packages of several build systems plainly,
//! through larder, and as whole commands, each time in another place from which the earlier one is
//! gone. Every file is compared with a plain build in the very same place.
//!
//! Unaware of: why a command missed. `larder explain` says that.

use super::figure::Figure;
use super::report::Report;
use crate::fetch;
use crate::launcher::{Counts, Launcher};
use crate::place::{Place, fresh, remove};
use crate::run::{self, Usage};
use crate::table::{NONE, Table};
use crate::tree::{self, Exclusion};
use crate::{binaries, setup};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The options of `cargo xtask bench corpus`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Build only this package. Can be given several times
    #[arg(long, value_name = "PACKAGE")]
    only: Vec<String>,
    /// Build the small packages only
    #[arg(long)]
    short: bool,
    /// Measure this larder, with the larderd beside it, instead of building one
    #[arg(long, value_name = "PROGRAM")]
    larder: Option<PathBuf>,
}

/// A package and the shell commands that build it in its source directory. `$CC` and `$CXX` are the
/// compilers.
struct Package {
    name: &'static str,
    system: &'static str,
    configure: &'static str,
    make: &'static str,
    is_small: bool,
}

#[rustfmt::skip]
const PACKAGES: &[Package] = &[
    Package { name: "lua5.4", system: "plain make", configure: "", is_small: true,
        make: "make -j2 -C src all CC=\"$CC -std=gnu99\" MYCFLAGS=-DLUA_USE_LINUX MYLIBS='-Wl,-E -ldl'" },
    Package { name: "lz4", system: "plain make, recursive", configure: "", is_small: true,
        make: "make -j2 -C lib CC=\"$CC\" && make -j2 -C programs CC=\"$CC\" lz4" },
    Package { name: "bc", system: "automake, generators", is_small: true,
        configure: "./configure CC=\"$CC\"", make: "make -j2 MAKEINFO=true" },
    Package { name: "libpng1.6", system: "autotools", is_small: false,
        configure: "./configure CC=\"$CC\"", make: "make -j2" },
    Package { name: "nginx", system: "its own configure", is_small: false,
        configure: "./configure --with-cc=\"$CC\" --without-http_rewrite_module --without-http_gzip_module", make: "make -j2" },
    Package { name: "leveldb", system: "CMake and make", is_small: false,
        configure: "mkdir build && cd build && cmake -DCMAKE_BUILD_TYPE=RelWithDebInfo -DLEVELDB_BUILD_TESTS=OFF -DLEVELDB_BUILD_BENCHMARKS=OFF ..",
        make: "make -j2 -C build" },
    Package { name: "fmtlib", system: "CMake and Ninja", is_small: false,
        configure: "cmake -G Ninja -B build -DCMAKE_BUILD_TYPE=RelWithDebInfo -DFMT_TEST=OFF -DFMT_DOC=OFF .", make: "ninja -j2 -C build" },
    Package { name: "fribidi", system: "Meson", is_small: false,
        configure: "meson setup build -Ddocs=false -Dtests=false", make: "ninja -j2 -C build" },
];

/// Files that differ between two plain builds as well.
const EXCLUDED: &[Exclusion] = &[
    ("*.log", "times, process ids, names of temporary files"),
    (".ninja_log", "times"),
    (".ninja_deps", "times, and the order in which jobs ended"),
    ("CMakeCache.txt", "names of the compilers"),
    ("CMakeCCompiler.cmake", "names of the compilers"),
    ("CMakeCXXCompiler.cmake", "names of the compilers"),
    ("CMakeScratch/", "temporary"),
    ("meson-private/", "pickles in the order of hash tables, names of the compilers"),
    ("meson-info/", "names of the compilers"),
    ("meson-logs/", "times"),
    ("build.ninja", "names of the compilers"),
    ("build.make", "names of the compilers"),
    ("compile_commands.json", "names of the compilers"),
    ("config.status", "names of the compilers"),
    ("libtool", "names of the compilers"),
    ("Makefile", "names of the compilers"),
    ("ngx_auto_config.h", "names of the compilers"),
    ("*.err", "a log"),
];

const HEADER: &[&str] = &[
    "package",
    "build system",
    "plain CPU s",
    "cold ÷ plain",
    "warm ÷ plain",
    "hits",
    "misses",
    "files",
    "differ",
    "again",
    "whole, third place",
    "files",
    "differ",
];

/// The result of one package.
struct Row {
    plain: Usage,
    cold: Usage,
    warm: Usage,
    counts: Counts,
    files: u64,
    different: Vec<String>,
    /// How many compilers ran, or were answered for, in a second build in the same place.
    again: u64,
    /// True if configuring, or building, hit in the third place. `None` if there is no such step.
    whole: [Option<bool>; 2],
    whole_files: u64,
    whole_different: Vec<String>,
}

/// Measures all packages and returns the report. Fails if a file differs.
pub(crate) fn corpus(place: &Place, options: &Options) -> Result<Report> {
    setup::for_builds(place)?;
    let larder = binaries::larder(place, options.larder.as_deref())?;
    let wanted = |package: &&Package| {
        (options.only.is_empty() || options.only.iter().any(|name| name == package.name))
            && (!options.short || package.is_small)
    };
    let mut report = Report {
        name: "corpus",
        title: "Debian's source packages, in places from which the earlier one is gone".to_owned(),
        notes: notes(),
        table: Table::new(2, HEADER),
        ..Report::default()
    };
    let mut differ = Vec::new();
    for package in PACKAGES.iter().filter(wanted) {
        let sources = match fetch::debian(place, "corpus-sources", &[package.name]) {
            Ok(dir) => dir.join(package.name),
            Err(error) => {
                report.notes.push(format!("{} is left out: {error:#}", package.name));
                continue;
            }
        };
        let row = measure(place, &larder, package, sources)?;
        report.table.rows.push(row.cells(package));
        report.rows.push(row.json(package));
        let ratio = Figure::ratio(
            format!("{}, larder warm elsewhere, CPU ÷ plain", package.name),
            &[row.warm.cpu.as_secs_f64()],
            &[row.plain.cpu.as_secs_f64()],
            None,
        );
        report.figures.extend(ratio);
        let named = row.different.iter().chain(&row.whole_different);
        differ.extend(named.map(|what| format!("{}: {what}", package.name)));
    }
    report.show();
    ensure!(differ.is_empty(), "these files differ from a plain build's:\n{}", differ.join("\n"));
    Ok(report)
}

/// Runs the short form, for `cargo xtask test --full`.
pub(crate) fn short(place: &Place) -> Result<()> {
    corpus(place, &Options { only: Vec::new(), short: true, larder: None }).map(drop)
}

/// The directories of one package.
struct Site<'a> {
    package: &'a Package,
    sources: PathBuf,
    work: PathBuf,
    home: PathBuf,
}

fn measure(place: &Place, larder: &Path, package: &Package, sources: PathBuf) -> Result<Row> {
    eprintln!("{}", package.name);
    let work = place.own("corpus")?.join(package.name);
    fresh(&work)?;
    let home = work.join("home");
    fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    let site = Site { package, sources, work: work.clone(), home };
    let plain = Launcher::plain();
    let kept = work.join("kept");
    let through = Launcher::larder(larder, &work.join("store"))?;
    let (first, second) = (work.join("1/src"), work.join("22/src"));
    let of_plain = site.build(&second, &plain, false)?;
    keep(&second, &kept)?;
    let cold = site.build(&first, &through, false)?;
    remove(&work.join("1"))?;
    let before = site.counts(&through)?;
    let warm = site.build(&second, &through, false)?;
    let after = site.counts(&through)?;
    let compared = tree::compare(&kept, &second, &site.sources, EXCLUDED)?;
    site.step(&second, &through, false, package.make, "again")?;
    let ended = site.counts(&through)?;
    remove(&work.join("22"))?;
    let mut row = Row {
        plain: of_plain,
        cold,
        warm,
        counts: after.clone() - before,
        files: compared.compared,
        different: shown(&compared),
        again: (ended.hit + ended.runs()) - (after.hit + after.runs()),
        whole: [None, None],
        whole_files: 0,
        whole_different: Vec::new(),
    };
    site.whole(larder, &kept, &mut row)?;
    remove(&work)?;
    Ok(row)
}

impl Site<'_> {
    /// Runs whole commands in three places, and compares the files of the third.
    fn whole(&self, larder: &Path, kept: &Path, row: &mut Row) -> Result<()> {
        let through = Launcher::larder(larder, &self.work.join("store-of-whole"))?;
        let third = self.work.join("333/src");
        self.build(&third, &Launcher::plain(), true)?;
        keep(&third, kept)?;
        for name in ["1", "22", "333"] {
            let dir = self.work.join(name).join("src");
            self.lay_out(&dir)?;
            for (index, step) in [self.package.configure, self.package.make].into_iter().enumerate() {
                if step.is_empty() {
                    continue;
                }
                let before = self.counts(&through)?;
                self.step(&dir, &through, true, step, &format!("whole-{name}-{index}"))?;
                let delta = self.counts(&through)? - before;
                row.whole[index] = Some(delta.hit == 1 && delta.runs() == 0);
            }
            if name != "333" {
                remove(&self.work.join(name))?;
            }
        }
        let compared = tree::compare(kept, &third, &self.sources, EXCLUDED)?;
        row.whole_files = compared.compared;
        row.whole_different = shown(&compared);
        Ok(())
    }

    /// Copies fresh sources and builds them.
    fn build(&self, dir: &Path, launcher: &Launcher, whole: bool) -> Result<Usage> {
        self.lay_out(dir)?;
        let mut all = Usage::default();
        for (name, step) in [("configure", self.package.configure), ("make", self.package.make)] {
            if !step.is_empty() {
                let label = format!("{}-{name}", launcher.name);
                all = all + self.step(dir, launcher, whole && launcher.program.is_some(), step, &label)?;
            }
        }
        Ok(all)
    }

    fn lay_out(&self, dir: &Path) -> Result<()> {
        fresh(dir)?;
        remove(dir)?;
        tree::copy(&self.sources, dir)
    }

    /// Runs one step of the build, as a whole command of larder's if `whole` is true.
    fn step(&self, dir: &Path, launcher: &Launcher, whole: bool, step: &str, label: &str) -> Result<Usage> {
        let mut command = match (&launcher.program, whole) {
            (Some(program), true) => {
                let mut command = Command::new(program);
                command.args(["run", "--", "sh"]);
                command
            }
            _ => Command::new("sh"),
        };
        launcher.apply(command.arg("-c").arg(step).current_dir(dir), &self.home);
        command.env("CC", launcher.compiler("gcc")).env("CXX", launcher.compiler("g++"));
        let log = self.work.join(format!("{label}.log"));
        run::logged(&mut command, &log, || ()).with_context(|| format!("{}: {label} failed", self.package.name))
    }

    fn counts(&self, launcher: &Launcher) -> Result<Counts> {
        Ok(launcher.counts(&self.home)?.unwrap_or_default())
    }
}

/// Moves a tree away, to compare others with it.
fn keep(dir: &Path, kept: &Path) -> Result<()> {
    remove(kept)?;
    fs::rename(dir, kept).with_context(|| format!("cannot move {}", dir.display()))
}

fn shown(comparison: &tree::Comparison) -> Vec<String> {
    comparison.different.iter().map(|(path, what)| format!("{} {what}", path.display())).collect()
}

impl Row {
    fn cells(&self, package: &Package) -> Vec<String> {
        let over = |usage: Usage| format!("{:.2}", usage.cpu.as_secs_f64() / self.plain.cpu.as_secs_f64().max(1e-9));
        let word = |hit: Option<bool>| match hit {
            Some(true) => "hit",
            Some(false) => "miss",
            None => NONE,
        };
        vec![
            package.name.to_owned(),
            package.system.to_owned(),
            format!("{:.1}", self.plain.cpu.as_secs_f64()),
            over(self.cold),
            over(self.warm),
            self.counts.hit.to_string(),
            self.counts.runs().to_string(),
            self.files.to_string(),
            self.different.len().to_string(),
            self.again.to_string(),
            format!("{}, {}", word(self.whole[0]), word(self.whole[1])),
            self.whole_files.to_string(),
            self.whole_different.len().to_string(),
        ]
    }

    fn json(&self, package: &Package) -> Value {
        let seconds = |usage: Usage| json!({ "wall": usage.wall.as_secs_f64(), "cpu": usage.cpu.as_secs_f64() });
        let different = [&self.different[..], &self.whole_different].concat();
        json!({
            "package": package.name,
            "plain": seconds(self.plain),
            "cold": seconds(self.cold),
            "warm": seconds(self.warm),
            "hits": self.counts.hit,
            "misses": self.counts.runs(),
            "again": self.again,
            "whole": self.whole,
            "different": different,
        })
    }
}

fn notes() -> Vec<String> {
    vec![
        "plain, cold, warm: configure and make together. CPU is user and system time of all processes; one build of each \
         kind. cold: larder in front of the compilers, an empty store. warm: in a second place; the first one was removed."
            .to_owned(),
        "again: commands that reach larder if the build is repeated after the warm one. 0 means that there was nothing \
         to do."
            .to_owned(),
        "whole: `larder run` for configure and for make, in three places of which only one exists at a time, with a store \
         of its own."
            .to_owned(),
        "files: those that the build made, compared by bytes, modes and links with a plain build in the same place. Logs, \
         and files that name the compilers, are left out."
            .to_owned(),
    ]
}
