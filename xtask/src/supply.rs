//! `cargo xtask supply-chain`: checks every crate that larder is built from, for any of its
//! targets, against known advisories, accepted licences, sources and versions. It needs no network.
//!
//! The advisories are those of the RustSec advisory database, without their texts: `--update` reads
//! a checkout of it and writes `supply-chain/advisories.json`. `supply-chain/accepted.toml` lists
//! what the project accepts, with reasons.
//!
//! This is not `cargo deny`, because that would be built from source on each machine and downloads
//! the advisory database in each run.

use crate::arch::Arch;
use crate::binaries::{Package, packages};
use crate::place::Place;
use crate::{files, run, tools};
use anyhow::{Context, Result, bail, ensure};
use semver::{Version, VersionReq};
use serde::{Deserialize, Serialize};
use spdx::{Expression, ParseMode};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The options of `cargo xtask supply-chain`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Write supply-chain/advisories.json from this checkout of the RustSec advisory database, then
    /// check
    #[arg(long, value_name = "DIR", requires = "as_of")]
    update: Option<PathBuf>,
    /// The date of the newest commit in that checkout, for example 2026-08-21
    #[arg(long, value_name = "DATE", requires = "update")]
    as_of: Option<String>,
    /// Also write the bill of materials of each program, as CycloneDX JSON, beside the programs in
    /// target/larder
    #[arg(long)]
    sbom: bool,
}

/// The tool that writes a bill of materials for a package. Building it takes about two minutes.
const SBOM_TOOL: (&str, &str) = ("cargo-cyclonedx", "0.5.9");

/// `supply-chain/advisories.json`.
#[derive(Deserialize, Serialize)]
struct Advisories {
    /// The origin of the data.
    source: String,
    /// The date of the newest commit there.
    as_of: String,
    /// Sorted by identifier.
    advisories: Vec<Advisory>,
}

/// One advisory without its text.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
struct Advisory {
    /// For example `RUSTSEC-2023-0071`.
    id: String,
    /// The name of the crate.
    package: String,
    /// `unmaintained`, `unsound` or `notice` if it is not a vulnerability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    informational: Option<String>,
    /// The versions in which it is fixed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    patched: Vec<String>,
    /// The versions that were never affected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unaffected: Vec<String>,
}

/// `supply-chain/accepted.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Accepted {
    /// SPDX identifiers, with their exceptions.
    licences: Vec<String>,
    /// The advisories that do not matter here: identifier and reason.
    advisories: BTreeMap<String, String>,
    /// The crates with several versions: name and reason.
    duplicates: BTreeMap<String, String>,
}

/// Checks, after an update if asked. Fails with everything that was found.
pub(crate) fn supply_chain(place: &Place, options: &Options) -> Result<bool> {
    if let (Some(database), Some(as_of)) = (&options.update, &options.as_of) {
        update(place, database, as_of)?;
    }
    check(place)?;
    if options.sbom { write_sboms(place).map(|()| true) } else { Ok(true) }
}

/// Runs the check, as a stage of `cargo xtask test`. The error lists everything that was found.
pub(crate) fn check(place: &Place) -> Result<()> {
    let dir = place.repo.join("supply-chain");
    let known: Advisories = serde_json::from_str(&files::read(dir.join("advisories.json"))?)?;
    let accepted: Accepted = toml::from_str(&files::read(dir.join("accepted.toml"))?)?;
    let packages = packages(place)?;
    let found = found(&packages, &known.advisories, &accepted)?;
    let foreign = packages.iter().filter(|package| package.source.is_some()).count();
    println!("{foreign} crates, {} advisories as of {}", known.advisories.len(), known.as_of);
    ensure!(found.is_empty(), "{}\nWhat is accepted, and why, is in supply-chain/accepted.toml.", found.join("\n"));
    Ok(())
}

/// Returns a line for each problem.
fn found(packages: &[Package], advisories: &[Advisory], accepted: &Accepted) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut used = BTreeSet::new();
    for advisory in advisories {
        for package in packages.iter().filter(|package| package.name == advisory.package) {
            if !affects(advisory, &package.version)? {
                continue;
            }
            if accepted.advisories.contains_key(&advisory.id) {
                used.insert(&advisory.id);
                continue;
            }
            let kind = advisory.informational.as_deref().unwrap_or("a vulnerability");
            let mended =
                if advisory.patched.is_empty() { "no version".to_owned() } else { advisory.patched.join(" or ") };
            let Package { name, version, .. } = package;
            found.push(format!("{name} {version}: {}, {kind}; fixed in {mended}", advisory.id));
        }
    }
    let unused = accepted.advisories.keys().filter(|id| !used.contains(id));
    found.extend(unused.map(|id| format!("{id} is accepted, but no crate here is affected: remove the line")));
    let foreign: Vec<&Package> = packages.iter().filter(|package| package.source.is_some()).collect();
    for package in packages {
        let said = package.license.as_deref().with_context(|| format!("{} has no licence", package.name))?;
        let expression = Expression::parse_mode(said, ParseMode::LAX).with_context(|| said.to_owned())?;
        if !expression.evaluate(|one| accepted.licences.contains(&one.to_string())) {
            found.push(format!("{} {}: its licence is not accepted: {said}", package.name, package.version));
        }
    }
    let registries: BTreeSet<&str> = foreign.iter().filter_map(|package| package.source.as_deref()).collect();
    if registries.len() > 1 || registries.iter().any(|source| !source.starts_with("registry+")) {
        found.push(format!("crates come from other sources than one registry: {registries:?}"));
    }
    let mut versions: BTreeMap<&str, BTreeSet<&Version>> = BTreeMap::new();
    for package in &foreign {
        versions.entry(&package.name).or_default().insert(&package.version);
    }
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        if !accepted.duplicates.contains_key(*name) {
            let versions: Vec<String> = versions.iter().map(ToString::to_string).collect();
            found.push(format!("{name}: {} versions: {}", versions.len(), versions.join(", ")));
        }
    }
    let is_single = |name: &str| versions.get(name).is_none_or(|versions| versions.len() < 2);
    let unused = accepted.duplicates.keys().filter(|name| is_single(name));
    found.extend(
        unused.map(|name| format!("{name} is accepted with several versions, but has only one: remove the line")),
    );
    Ok(found)
}

/// Returns true if the advisory affects this version.
fn affects(advisory: &Advisory, version: &Version) -> Result<bool> {
    for safe in advisory.patched.iter().chain(&advisory.unaffected) {
        let range = VersionReq::parse(safe).with_context(|| format!("{}: {safe}", advisory.id))?;
        if range.matches(version) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes `larder.cdx.json` and `larderd.cdx.json`: the crates that each program is built from,
/// with versions and licences.
pub(crate) fn write_sboms(place: &Place) -> Result<()> {
    let (tool, version) = SBOM_TOOL;
    let program = tools::by_cargo(place, tool, version, &["--locked"])?;
    let into = place.target.join(Arch::HOST.directory());
    files::make(&into)?;
    for (directory, name) in [("crates/wrapper", "larder"), ("crates/daemon", "larderd")] {
        let about = place.repo.join(directory);
        let file = format!("{name}.cdx");
        let mut command = Command::new(&program);
        command.args(["cyclonedx", "--format", "json", "--target", Arch::HOST.static_target()]);
        command.args(["--override-filename", &file, "--manifest-path"]).arg(about.join("Cargo.toml"));
        run::shown_to_user(command.current_dir(&place.repo))?;
        // The tool writes a file for each package of the workspace, into the package's directory.
        let written = format!("{file}.json");
        let text = files::read(about.join(&written)).with_context(|| format!("{tool} wrote no {written}"))?;
        for package in packages(place)?.iter().filter(|package| package.source.is_none()) {
            let _ = fs::remove_file(package.manifest_path.with_file_name(&written));
        }
        // The identifiers of our own packages are paths of this machine.
        let text = text.replace(&place.repo.display().to_string(), "/larder");
        let to = into.join(&written);
        files::write(&to, text)?;
        println!("{}", to.display());
    }
    Ok(())
}

/// Writes `advisories.json` from a checkout of the advisory database.
fn update(place: &Place, database: &Path, as_of: &str) -> Result<()> {
    let mut advisories = Vec::new();
    let crates = database.join("crates");
    for one in files::list(&crates).with_context(|| format!("{} is not an advisory database", database.display()))? {
        for path in files::list(one)? {
            advisories.extend(advisory(&files::read(&path)?).with_context(|| path.display().to_string())?);
        }
    }
    if advisories.is_empty() {
        bail!("{} contains no advisory", crates.display());
    }
    advisories.sort_by(|one: &Advisory, other| one.id.cmp(&other.id));
    let source = "RustSec advisory database, public domain (CC0)".to_owned();
    let written = serde_json::to_string_pretty(&Advisories { source, as_of: as_of.to_owned(), advisories })?;
    let path = place.repo.join("supply-chain/advisories.json");
    files::write(&path, written + "\n")
}

/// Reads a file of the database: Markdown that begins with a block of TOML. Returns `None` if the
/// advisory was withdrawn.
fn advisory(text: &str) -> Result<Option<Advisory>> {
    #[derive(Deserialize)]
    struct Front {
        advisory: About,
        #[serde(default)]
        versions: Versions,
    }
    #[derive(Deserialize)]
    struct About {
        id: String,
        package: String,
        informational: Option<String>,
        withdrawn: Option<String>,
    }
    #[derive(Default, Deserialize)]
    struct Versions {
        #[serde(default)]
        patched: Vec<String>,
        #[serde(default)]
        unaffected: Vec<String>,
    }
    let front = text.strip_prefix("```toml\n").and_then(|rest| rest.split_once("\n```"));
    let (front, _) = front.context("it does not begin with a block of TOML")?;
    let Front { advisory: About { id, package, informational, withdrawn }, versions } = toml::from_str(front)?;
    let Versions { patched, unaffected } = versions;
    Ok(withdrawn.is_none().then_some(Advisory { id, package, informational, patched, unaffected }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "```toml\n[advisory]\nid = \"RUSTSEC-2000-0001\"\npackage = \"a\"\n\n[versions]\npatched = [\">= 1.2.3\", \
                        \"^0.9.4\"]\nunaffected = [\"< 0.5.0\"]\n```\n\n# A title\n";

    fn package(name: &str, version: &str, license: &str) -> Package {
        let source = Some("registry+one".to_owned());
        Package {
            name: name.to_owned(),
            version: version.parse().expect("a version"),
            license: Some(license.to_owned()),
            source,
            manifest_path: PathBuf::new(),
            description: None,
            readme: None,
            publish: None,
        }
    }

    fn accepted(advisories: &[&str], duplicates: &[&str]) -> Accepted {
        let with_reason = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), "why".to_owned())).collect();
        Accepted {
            licences: vec!["MIT".to_owned()],
            advisories: with_reason(advisories),
            duplicates: with_reason(duplicates),
        }
    }

    #[test]
    fn versions_that_an_advisory_is_about() {
        let known = advisory(FILE).expect("reads").expect("stands");
        let is_affected = |version: &str| affects(&known, &version.parse().expect("a version")).expect("compares");
        let versions = ["0.4.9", "0.5.0", "0.9.3", "0.9.4", "1.2.2", "1.2.3", "2.0.0"];
        assert_eq!(versions.map(is_affected), [false, true, true, false, true, false, false]);
        let withdrawn = FILE.replace("package", "withdrawn = \"2001-01-01\"\npackage");
        assert_eq!(advisory(&withdrawn).expect("reads"), None);
        assert!(advisory("# no data").is_err());
    }

    #[test]
    fn what_is_found_and_what_is_accepted() {
        let known = [advisory(FILE).expect("reads").expect("stands")];
        let lines =
            |packages: &[Package], accepted: &Accepted| found(packages, &known, accepted).expect("checks").len();
        let good = package("a", "2.0.0", "Apache-2.0 OR MIT");
        assert_eq!(lines(std::slice::from_ref(&good), &accepted(&[], &[])), 0);
        let affected = [package("a", "1.0.0", "MIT")];
        assert_eq!(lines(&affected, &accepted(&[], &[])), 1);
        assert_eq!(lines(&affected, &accepted(&["RUSTSEC-2000-0001"], &[])), 0);
        // An accepted line that is no longer needed would hide a later problem.
        assert_eq!(lines(std::slice::from_ref(&good), &accepted(&["RUSTSEC-2000-0001"], &["a"])), 2);
        assert_eq!(lines(&[package("b", "1.0.0", "MIT AND GPL-2.0")], &accepted(&[], &[])), 1);
        let two = [good.clone(), package("a", "3.0.0", "MIT")];
        assert_eq!(lines(&two, &accepted(&[], &[])), 1);
        assert_eq!(lines(&two, &accepted(&[], &["a"])), 0);
        let elsewhere = Package { source: Some("git+somewhere".to_owned()), ..good };
        assert_eq!(lines(&[elsewhere], &accepted(&[], &[])), 1);
    }
}
