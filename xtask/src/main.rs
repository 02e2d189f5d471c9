//! The commands of developers and CI:
//! `cargo xtask setup | build | dist | demo | test | docs | torture | matrix | cluster | supply-chain | fuzz | bench`.
//!
//! This file parses the command line and calls the module of the same name.

mod aarch64;
mod arch;
mod bench;
mod binaries;
mod cluster;
mod debian;
mod demo;
mod dist;
mod docs;
mod fetch;
mod files;
mod fuzz;
mod launcher;
mod machine;
mod matrix;
mod packages;
mod place;
mod progress;
mod projects;
mod qemu;
mod run;
mod sanitize;
mod setup;
mod skips;
mod stages;
mod supply;
mod table;
mod tools;
mod torture;
mod tree;
mod workload;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "Build, show, test and measure larder", version)]
struct Cli {
    #[command(subcommand)]
    word: Word,
}

#[derive(Subcommand)]
enum Word {
    /// Install what the other commands need: compilers, build tools, Rust targets. Prints nothing
    /// if nothing is missing
    Setup,
    /// Build the static release binaries into target/larder
    Build(binaries::Options),
    /// Make the files of a release in target/dist: archives, Debian packages, sums
    Dist(dist::Options),
    /// Build real C and C++ projects plainly and through larder, and compare every file
    Demo(demo::Options),
    /// Run every check and test: format, lints, tests, the torture suite, type checks for other
    /// systems
    Test(stages::Options),
    /// Build the book from docs/, check every link, and run the examples in the documents
    Docs(docs::Options),
    /// Run tools plainly and through larder (or another cache) in many unusual situations, and
    /// compare all results
    Torture(torture::Options),
    /// Run larder in other distributions and on other kernels, and write the table of the results
    Matrix(matrix::Options),
    /// Start a Kubernetes cluster of one node, and run pods that use the CSI driver
    Cluster(cluster::Options),
    /// Check every crate that larder is built from: advisories, licences, sources, versions
    SupplyChain(supply::Options),
    /// Give the decoders mutated inputs until one fails or the time is over
    Fuzz(fuzz::Options),
    /// Measure larder against a plain compiler and other caches: everything, or one benchmark
    Bench(bench::Options),
}

fn main() -> ExitCode {
    match act(Cli::parse().word) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command. Returns `false` if it ran to its end but its checks failed.
fn act(word: Word) -> Result<bool> {
    let place = place::Place::find()?;
    match word {
        Word::Setup => setup::everything(&place).map(|()| true),
        Word::Build(options) => binaries::build_as_asked(&place, &options).map(|()| true),
        Word::Dist(options) => dist::dist(&place, &options).map(|()| true),
        Word::Demo(options) => demo::demo(&place, &options),
        Word::Test(options) => stages::test(&place, &options),
        Word::Docs(options) => docs::docs(&place, &options),
        Word::Torture(options) => torture::torture(&place, &options),
        Word::Matrix(options) => matrix::matrix(&place, &options),
        Word::Cluster(options) => cluster::cluster(&place, &options),
        Word::SupplyChain(options) => supply::supply_chain(&place, &options),
        Word::Fuzz(options) => fuzz::fuzz(&place, &options).map(|()| true),
        Word::Bench(options) => bench::bench(&place, &options),
    }
}
