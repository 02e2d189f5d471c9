//! `cargo xtask docs`: builds the book from `docs/`, checks every link between documents, and runs
//! the examples in them.
//!
//! | file | does |
//! |---|---|
//! | `page.rs` | reads a document: links, headings, and blocks that are examples |
//! | `links.rs` | checks links, and that the table of contents has every page |
//! | `examples.rs` | runs the examples of a page in a scratch directory, and compares what they print |
//! | `recording.rs` | runs sessions and draws them as pictures |
//!
//! Unaware of: what the documents say.

mod examples;
mod links;
mod page;
mod recording;

use crate::packages::packages;
use crate::place::Place;
use crate::{binaries, files, run, setup, tools};
use anyhow::{Context, Result, bail};
use page::Page;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version of mdbook, which makes the book.
const MDBOOK: &str = "0.5.4";

/// The options of `cargo xtask docs`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only check links; build and run nothing
    #[arg(long, conflicts_with_all = ["larder", "only"])]
    links: bool,
    /// Only run sessions in a terminal, and draw them as pictures in docs/
    #[arg(long, conflicts_with_all = ["links", "only"])]
    recording: bool,
    /// Build no book, and run only the examples of the pages whose names contain this, for example
    /// `tutorial`
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
    /// Use this larder, with the larderd beside it, instead of building one
    #[arg(long, value_name = "PROGRAM")]
    larder: Option<PathBuf>,
}

/// Runs `cargo xtask docs`. Returns `true` if every link leads somewhere and every example does what its
/// page says.
pub(crate) fn docs(place: &Place, options: &Options) -> Result<bool> {
    if options.recording {
        for (file, svg) in recording::svgs(&binaries::larder(place, options.larder.as_deref())?)? {
            let path = place.repo.join("docs").join(file);
            files::write(&path, svg)?;
            println!("{}", path.display());
        }
        return Ok(true);
    }
    let pages = pages(place)?;
    let mut problems = links::check(&place.repo, &pages)?;
    println!("{} documents, {} links", pages.len(), pages.iter().map(|page| page.links.len()).sum::<usize>());
    if !options.links {
        if options.only.is_empty() {
            let mdbook = mdbook(place)?;
            println!("{}", book(place, &mdbook)?.display());
        }
        let larder = binaries::larder(place, options.larder.as_deref())?;
        packages(setup::PACKAGES_FOR_DOCS)?;
        let is_chosen =
            |page: &&Page| options.only.is_empty() || options.only.iter().any(|part| page.path.contains(part));
        for page in pages.iter().filter(is_chosen) {
            problems.extend(examples::run(page, &larder)?);
        }
    }
    problems.iter().for_each(|problem| println!("{problem}"));
    Ok(problems.is_empty())
}

/// The stage of `cargo xtask test`: links, all examples, and the book if mdbook is installed.
pub(crate) fn stage(place: &Place) -> Result<()> {
    let pages = pages(place)?;
    let mut problems = links::check(&place.repo, &pages)?;
    if let Some(mdbook) = tools::installed(place, "mdbook", MDBOOK)? {
        book(place, &mdbook)?;
    }
    for page in &pages {
        problems.extend(examples::run(page, &place.larder())?);
    }
    if problems.is_empty() { Ok(()) } else { bail!("{}", problems.join("\n")) }
}

/// Reads every Markdown file that git tracks, except those that benchmarks write.
fn pages(place: &Place) -> Result<Vec<Page>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard", "--", "*.md", ":!benches/results"]);
    let listed = run::output(git.current_dir(&place.repo))?;
    let read = |path: &str| {
        let text = files::read(place.repo.join(path))?;
        Ok(Page::read(path, &text))
    };
    // A file that was removed and is still in git's index.
    listed.lines().filter(|path| place.repo.join(path).exists()).map(read).collect()
}

/// Builds the book, and returns its first page.
fn book(place: &Place, mdbook: &Path) -> Result<PathBuf> {
    let into = place.target.join("book");
    let mut command = Command::new(mdbook);
    command.arg("build").arg(place.repo.join("docs")).arg("--dest-dir").arg(&into);
    run::output(&mut command).context("the book cannot be built")?;
    let first = into.join("index.html");
    anyhow::ensure!(first.exists(), "mdbook wrote no {}", first.display());
    Ok(first)
}

/// Returns mdbook of the right version. Installs it once for all checkouts if it is missing.
fn mdbook(place: &Place) -> Result<PathBuf> {
    // Without its server and without optimisation: compiling that takes longer than building the book.
    let options = ["--locked", "--debug", "--quiet", "--no-default-features", "--features", "search"];
    tools::by_cargo(place, "mdbook", MDBOOK, &options)
}
