//! `cargo xtask bench bazel`: the packages of examples/bazel, built in Bazel's sandboxes by the plain compiler and
//! through caches.
//!
//! A cold build, one in fresh sandboxes, one in fresh sandboxes with a changed header, and one in sandboxes whose old
//! numbers come back with a changed header. Each is compared with what the plain compiler makes in a sandbox of the
//! same number: then every path in it is the same.

mod caches;
mod pass;
mod phases;
mod rows;
mod workspace;

use crate::bench::report::Report;
use crate::place::{Place, fresh};
use crate::table::Table;
use crate::{binaries, setup};
use anyhow::Result;
use caches::Cache;
use pass::{Bench, STEPS, Step};
use std::path::PathBuf;
use workspace::Workspace;

/// What `cargo xtask bench bazel` takes.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// zlib alone, with the plain compiler and larder alone
    #[arg(long)]
    quick: bool,
    /// The compiler's flags: those of Bazel's toolchain, or the package's own (`-g -O2` in autotools) [default: both]
    #[arg(long, value_name = "WHOSE", value_parser = ["bazel", "package"])]
    cflags: Option<String>,
    /// Build only this package, and those that it needs: zlib, libx11 or curl; may be given several times
    #[arg(long, value_name = "PACKAGE", value_parser = ["zlib", "libx11", "curl"])]
    only: Vec<String>,
    /// Measure only this cache beside the plain compiler: larder, ccache, `ccache base_dir` or sccache; may be given
    /// several times
    #[arg(long, value_name = "CACHE")]
    cache: Vec<String>,
    /// How many compilers run at once [default: one a processor]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Measure this larder, with its larderd beside it, instead of building one
    #[arg(long, value_name = "PROGRAM")]
    larder: Option<PathBuf>,
}

/// A package, and a header of it that only some of its units include.
pub(super) struct Package {
    pub(super) name: &'static str,
    pub(super) header: &'static str,
}

const PACKAGES: &[Package] = &[
    Package { name: "zlib", header: "zlib/gzguts.h" },
    Package { name: "libx11", header: "libx11/src/xcms/Cv.h" },
    Package { name: "curl", header: "curl/lib/rand.h" },
];

/// Measures what was chosen and publishes the report.
pub(crate) fn bazel(place: &Place, options: &Options) -> Result<()> {
    setup::for_bench_bazel(place)?;
    let larder = binaries::larder(place, options.larder.as_deref())?;
    let work = place.own("bench-bazel")?;
    fresh_but_bazel(&work)?;
    let jobs = options.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let space = Workspace::lay_out(&place.repo.join("examples/bazel"), &place.own("downloads")?, &work, jobs)?;
    let caches = caches::all(place, &larder, &work.join("caches"), &Workspace::sandboxes(&work), options.quick)?;
    let chosen = |cache: &&Cache| {
        options.cache.is_empty() || cache.name == "plain" || options.cache.iter().any(|name| name == cache.name)
    };
    let caches: Vec<&Cache> = caches.iter().filter(chosen).collect();
    let mut bench = Bench { space, packages: packages(options), kept: work.join("kept"), passes: Vec::new() };
    for cflags in ["bazel", "package"] {
        if options.cflags.as_deref().is_some_and(|only| only != cflags) {
            continue;
        }
        for cache in &caches {
            bench.measure(cache, cflags, steps(cache))?;
        }
    }
    let table = Table { rows: rows::table(&bench.passes), ..Table::new(rows::WORDS, rows::HEADER) };
    let report = Report {
        name: "bazel",
        title: "zlib, libX11 and curl in Bazel's sandboxes".to_owned(),
        notes: notes(&caches, jobs, &bench),
        table,
        rows: bench.passes.iter().map(rows::json_row).collect(),
        ..Report::default()
    };
    report.publish(place)
}

/// Everything but Bazel's own directory, which it cannot do without for a minute.
fn fresh_but_bazel(work: &std::path::Path) -> Result<()> {
    ["caches", "calls", "compiler", "kept", "logs"].iter().try_for_each(|name| fresh(&work.join(name)))
}

fn packages(options: &Options) -> Vec<&'static Package> {
    let needed = |package: &str| match package {
        "zlib" => options.quick || options.only.iter().any(|name| name == "zlib" || name == "curl"),
        _ => !options.quick && options.only.iter().any(|name| name == package),
    };
    let every = !options.quick && options.only.is_empty();
    PACKAGES.iter().filter(|package| every || needed(package.name)).collect()
}

/// Other caches are measured cold and warm; that they do not mix up headers is not what this is for.
fn steps(cache: &Cache) -> &'static [Step] {
    if matches!(cache.name, "plain" | "larder") { STEPS } else { &STEPS[..2] }
}

fn notes(caches: &[&Cache], jobs: usize, bench: &Bench) -> Vec<String> {
    let mut notes = vec![
        format!(
            "Debian's Bazel, linux-sandbox; each package in an action of its own, one action at a time, make with \
             {jobs} jobs. \
             CPU is user and system time of all processes of the phase, servers not among them; compiler CPU is that \
             of the \
             compiler's calls, the cache in front of them included. A program that counts calls stands in front of \
             every compiler, the plain one too."
        ),
        "Compiles are calls with -c or -S, those that fail among them. Files are objects and generated headers, and \
         what \
         was installed: those that differ from what the plain compiler makes in a sandbox of the same number."
            .to_owned(),
    ];
    if let Some(larder) = caches.iter().find(|cache| cache.name == "larder") {
        notes.push(match larder.hands_over() {
            true => {
                "larder: nothing is set but the compiler's path, and the directory of its log is writable.".to_owned()
            }
            false => {
                "larder: this one cannot hand records to larderd; its store is writable in the sandbox.".to_owned()
            }
        });
    }
    notes.extend(rows::reasons(&bench.passes));
    notes
}
