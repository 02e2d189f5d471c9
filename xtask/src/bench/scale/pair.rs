//! Two builds of one project at the same time, in two checkouts, from an empty store.

use super::options::Bench;
use super::project::{Project, measured};
use super::rows::Row;
use crate::bench::measure::{SETTLING, Series};
use crate::bench::report::Report;
use crate::launcher::{Counts, Launcher};
use crate::place::fresh;
use crate::progress::Bar;
use anyhow::{Context, Result, ensure};
use std::process::Command;
use std::thread;

/// The shell script that starts both builds. It fails if one of them fails.
const BOTH: &str = "eval \"$1\" & first=$!; eval \"$2\" & second=$!; wait $first && wait $second";

/// A way to build.
struct Kind {
    name: &'static str,
    launcher: Launcher,
    two: bool,
    series: Series,
    counts: Option<Counts>,
}

pub(super) fn pair(bench: &Bench, report: &mut Report) -> Result<()> {
    let projects = ["one", "two"].map(|name| Project::write(bench.work.join("pair").join(name), bench.options.sources));
    let [one, two] = projects;
    let projects = [one?, two?];
    let store = bench.work.join("store/pair");
    let larder = Launcher::larder(&bench.larder, &store)?;
    let kind = |name, launcher: &Launcher, two| Kind {
        name,
        launcher: launcher.clone(),
        two,
        series: Series::default(),
        counts: None,
    };
    let (plain, alone) = (Launcher::plain(), larder.clone().with("LARDER_WAIT", "0"));
    let mut kinds = [
        kind("one, plain", &plain, false),
        kind("two, plain", &plain, true),
        kind("one, larder", &larder, false),
        kind("two, larder", &larder, true),
        kind("two, larder, LARDER_WAIT=0", &alone, true),
    ];
    thread::sleep(SETTLING);
    let jobs = thread::available_parallelism().map_or(2, usize::from);
    projects[0].build(&plain, &bench.home, (jobs, "all"), &[])?;
    let expected = projects[0].objects()?;
    let bar = Bar::new("two at once", kinds.len() as u64 * u64::from(bench.options.rounds));
    let mut done = 0;
    for _ in 0..bench.options.rounds {
        for kind in &mut kinds {
            fresh(&store)?;
            projects[0].build(&kind.launcher, &bench.home, (1, "first.o"), &[])?;
            let built = &projects[..1 + usize::from(kind.two)];
            projects.iter().try_for_each(Project::clean)?;
            let before = kind.launcher.counts(&bench.home)?;
            let words = |project: &Project| {
                let words = project.make(&kind.launcher, jobs, "all");
                words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ")
            };
            let mut command = Command::new("sh");
            command.args(["-c", BOTH, "sh"]);
            command.args([words(&projects[0]), if kind.two { words(&projects[1]) } else { "true".to_owned() }]);
            kind.launcher.apply(&mut command, &bench.home);
            kind.series.samples.push(measured(&mut command)?);
            for project in built {
                ensure!(project.objects()? == expected, "{}: an object differs from the plain build's", kind.name);
            }
            let after = kind.launcher.counts(&bench.home)?;
            kind.counts = after.zip(before).map(|(after, before)| after - before);
            done += 1;
            bar.at(done);
        }
    }
    bar.end(&format!("two at once: {} rounds", bench.options.rounds));
    let [plain, _, alone, ..] = &kinds;
    for kind in &kinds {
        let row = Row {
            part: "two at once",
            what: kind.name.to_owned(),
            series: kind.series.clone(),
            plain: Some(&plain.series),
            base: Some(if kind.counts.is_some() { &alone.series } else { &plain.series }),
            counts: kind.counts.clone(),
            figure: kind.two && kind.counts.is_some(),
            ..Row::default()
        };
        row.add_to(report);
    }
    projects.iter().try_for_each(Project::clean).context("a project cannot be cleaned")
}
