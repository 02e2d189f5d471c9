//! A workspace with a crate of each kind, built by cargo through each cache: how many of its steps
//! were hits in a build with an empty target directory. A step is a call of rustc, or the run of a
//! build script, which kache answers as well.

use crate::bench::measure;
use crate::bench::rivals::{self, Rival};
use crate::bench::rust::cargo_build;
use crate::bench::scene::Scene;
use crate::fetch::{self, Build};
use crate::files::{self, remove};
use crate::launcher::Launcher;
use crate::place::Place;
use crate::{run, setup};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::path::Path;

/// The crates of the workspace: the directory, the rest of the manifest, and the source with its path.
/// The table's note names their kinds.
const CRATES: [(&str, &str, &str, &str); 6] = [
    ("lib", "", "src/lib.rs", "pub fn part() -> usize { 3 }"),
    (
        "macro",
        "[lib]\nproc-macro = true",
        "src/lib.rs",
        "#[proc_macro] pub fn four(_: proc_macro::TokenStream) -> proc_macro::TokenStream { \"4\".parse().unwrap() }",
    ),
    ("c", "[lib]\ncrate-type = [\"cdylib\"]", "src/lib.rs", "#[no_mangle] pub extern \"C\" fn five() -> i32 { 5 }"),
    (
        "static",
        "[lib]\ncrate-type = [\"staticlib\"]",
        "src/lib.rs",
        "#[no_mangle] pub extern \"C\" fn six() -> i32 { 6 }",
    ),
    ("dynamic", "[lib]\ncrate-type = [\"dylib\"]", "src/lib.rs", "pub fn seven() -> i32 { 7 }"),
    (
        "app",
        "build = \"build.rs\"\n[dependencies]\ncrate-lib.path = \"../lib\"\ncrate-macro.path = \"../macro\"",
        "src/main.rs",
        "fn main() { println!(\"{}\", crate_lib::part() + crate_macro::four!()); }",
    ),
];
const BUILD_SCRIPT: &str = "fn main() { println!(\"cargo:rerun-if-changed=build.rs\"); }\n";

/// The number of builds that fill a store. larder may learn in the first how a tool is observed.
const FILLING: usize = 2;

/// The hits of each cache.
pub(in crate::bench) struct Found {
    /// The number of steps in a build.
    pub(in crate::bench) steps: usize,
    pub(in crate::bench) hits: BTreeMap<&'static str, u64>,
}

/// The caches, each with an empty store.
pub(super) struct Caches<'a> {
    scene: Scene<'a>,
    own: Vec<Launcher>,
    served: Vec<Rival>,
    /// The caches that could not be installed, with the reasons.
    pub(super) missing: Vec<String>,
}

impl<'a> Caches<'a> {
    /// Installs them.
    pub(super) fn all(place: &'a Place, larder: &Path) -> Result<Self> {
        setup::for_builds(place)?;
        let scene = Scene::begin(place, larder, "caches")?;
        let own = vec![
            Launcher::larder(larder, &scene.store("larder"))?,
            Launcher::ccache(&fetch::ccache(place)?, &scene.store("ccache"))?,
        ];
        let (served, missing) = rivals::of_rust(&scene, Build::Yes);
        Ok(Self { scene, own, served, missing })
    }

    /// Builds the workspace through each cache. Ends the servers and removes all files.
    pub(super) fn measure(self) -> Result<Found> {
        let tree = self.scene.work.join("workspace");
        for (name, rest, path, text) in CRATES {
            let dir = tree.join(name);
            let package =
                format!("[package]\nname = \"crate-{name}\"\nversion = \"0.1.0\"\nedition = \"2021\"\n{rest}\n");
            files::write(dir.join("Cargo.toml"), package)?;
            files::write(dir.join(path), text)?;
        }
        files::write(tree.join("app/build.rs"), BUILD_SCRIPT)?;
        let members = CRATES.map(|(name, ..)| name);
        files::write(tree.join("Cargo.toml"), format!("[workspace]\nmembers = {members:?}\nresolver = \"2\"\n"))?;
        // Caches do not trust the times of new files.
        std::thread::sleep(measure::SETTLING);
        let steps = self.steps(&tree)?;
        let mut hits = BTreeMap::new();
        for launcher in self.own.iter().chain(self.served.iter().map(|rival| &rival.launcher)) {
            let found = self.hits_of(launcher, &tree).with_context(|| format!("cargo with {}", launcher.name))?;
            ensure!(found as usize <= steps, "{}: {found} hits in {steps} steps", launcher.name);
            hits.insert(launcher.name, found);
        }
        drop(self.served);
        remove(&self.scene.work)?;
        Ok(Found { steps, hits })
    }

    /// Builds plainly, and returns the number of artifacts, of which rustc makes one in each call, and
    /// of build scripts that ran.
    fn steps(&self, tree: &Path) -> Result<usize> {
        let mut build = cargo_build(&Launcher::plain(), None, &self.scene.home);
        let said = run::output(build.args(["--message-format", "json"]).current_dir(tree))?;
        let count = |reason: &str| said.matches(&format!("\"reason\":\"{reason}\"")).count();
        let (artifacts, scripts) = (count("compiler-artifact"), count("build-script-executed"));
        ensure!(artifacts > 0 && scripts > 0, "cargo reported {artifacts} artifacts and {scripts} build scripts");
        Ok(artifacts + scripts)
    }

    /// Returns the hits of the last of several builds.
    fn hits_of(&self, launcher: &Launcher, tree: &Path) -> Result<u64> {
        let home = &self.scene.home;
        let counts = || launcher.counts(home)?.with_context(|| format!("{} counts nothing", launcher.name));
        let build = || -> Result<()> {
            // The file `target/.rustc_info.json` stays, so that cargo does not ask rustc for its
            // version again, which caches would count.
            remove(tree.join("target/debug"))?;
            let mut build = cargo_build(launcher, launcher.program.as_deref(), home);
            run::output(build.arg("--quiet").current_dir(tree)).map(drop)
        };
        for _ in 0..FILLING {
            build()?;
        }
        let before = counts()?;
        build()?;
        Ok((counts()? - before).hit)
    }
}
