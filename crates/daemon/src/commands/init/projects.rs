//! Plans the changes for each build tool, apart from the links that `compilers` makes.
//!
//! Unaware of: how changes are shown and applied.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use toml_edit::{DocumentMut, Item, Table, value};

use super::super::{below, project_text};
use super::compilers::{self, appended};
use super::json_text;
use super::plan::{Places, Plan};
use crate::cli::BuildTool;
use crate::surroundings::Surroundings;

/// The files by which a build tool is recognised, any one of them.
pub(super) fn signs(tool: BuildTool) -> &'static [&'static str] {
    match tool {
        BuildTool::Cargo => &["Cargo.toml"],
        BuildTool::Cmake => &["CMakeLists.txt"],
        BuildTool::Make => &["Makefile", "GNUmakefile", "configure", "configure.ac", "makefile"],
        BuildTool::Meson => &["meson.build"],
        BuildTool::Bazel => &["MODULE.bazel", "WORKSPACE", "WORKSPACE.bazel"],
        BuildTool::Npm => &["package-lock.json", "pnpm-lock.yaml"],
        BuildTool::Ci => &[".github/workflows", ".gitlab-ci.yml"],
    }
}

/// Plans what a build tool needs.
pub(super) fn plan(tool: BuildTool, user: bool, around: &Surroundings, places: &Places, plan: &mut Plan) -> Result<()> {
    match tool {
        BuildTool::Cargo => cargo(user, around, places, plan),
        BuildTool::Cmake => {
            let from = compilers::plan(around, places, plan)?;
            cmake(&from, places, plan)
        }
        BuildTool::Make => {
            let from = compilers::plan(around, places, plan)?;
            if places.cwd.join("config.status").exists() {
                plan.note("`./configure` ran here without larder: run it again, because it wrote the compiler down");
            }
            plan.next.push(format!("{from}: `{}`", make_line(&places.cwd)));
            Ok(())
        }
        BuildTool::Meson => {
            let from = compilers::plan(around, places, plan)?;
            meson(&from, places, plan)
        }
        BuildTool::Bazel => bazel(around, places, plan),
        BuildTool::Npm => npm(places, plan),
        BuildTool::Ci => {
            ci(places, plan);
            Ok(())
        }
    }
}

/// Returns what to type for a build by make or autotools.
fn make_line(project: &Path) -> &'static str {
    let has = |name: &str| project.join(name).exists();
    match ["Makefile", "GNUmakefile", "makefile"].into_iter().any(has) {
        true => "make",
        false if has("configure") => "./configure && make",
        false => "autoreconf --install && ./configure && make",
    }
}

/// Sets `build.rustc-wrapper`, in the project's configuration or in the user's. If build scripts
/// compile C, the compilers' names lead to larder as well.
fn cargo(user: bool, around: &Surroundings, places: &Places, plan: &mut Plan) -> Result<()> {
    let cargo_home = || match around.variable(b"CARGO_HOME").and_then(|home| std::str::from_utf8(home).ok()) {
        Some(home) => places.cwd.join(home),
        None => places.home.join(".cargo"),
    };
    let directory = if user { cargo_home() } else { places.cwd.join(".cargo") };
    ensure!(
        user || places.cwd.join("Cargo.toml").is_file(),
        "{} has no Cargo.toml: change to the project, or add --user",
        places.cwd.display()
    );
    for name in ["RUSTC_WRAPPER", "CARGO_BUILD_RUSTC_WRAPPER"] {
        let value = around.text(name.as_bytes()).unwrap_or_default();
        if !value.is_empty() && value != places.command {
            plan.note(format!("{name} is set and overrides the configuration: unset it where you build"));
        }
    }
    if let Some(top) = top_of_workspace(&places.cwd).filter(|_| !user) {
        plan.note(format!(
            "{} is the top of a workspace: builds that start there do not read the file here, so run `larder init` there",
            places.shown(&top)
        ));
    }
    // cargo reads the older name if both exist.
    let older = directory.join("config");
    let file = if older.is_file() { older } else { directory.join("config.toml") };
    let mut other = None;
    let edit = |before: Option<&str>| {
        let mut document: DocumentMut = before.unwrap_or_default().parse().context("it is not valid TOML")?;
        let build = document.entry("build").or_insert(Item::Table(Table::new()));
        let build = build.as_table_like_mut().context("`build` is not a table")?;
        match build.get("rustc-wrapper") {
            Some(found) if found.as_str() == Some(&places.command) => return Ok(None),
            Some(found) => other = Some(found.to_string().trim().to_owned()),
            None => drop(build.insert("rustc-wrapper", value(&places.command))),
        }
        Ok(other.is_none().then(|| document.to_string()))
    };
    let by_hand = format!("`rustc-wrapper = \"{}\"` to its table `[build]`", places.command);
    match user {
        true => plan.text(file.clone(), &by_hand, edit)?,
        false => plan.text_of_project(&places.cwd, file.clone(), &by_hand, edit)?,
    }
    if let Some(other) = other {
        plan.is_blocked = true;
        plan.note(format!(
            "{} sets rustc-wrapper to {other}: remove that line, then run `larder init` again",
            places.shown(&file)
        ));
    } else if !user {
        plan.note(
            "if you commit .cargo/config.toml, everyone who builds needs larder; `larder init cargo --user` is for you alone",
        );
    }
    if !around.settings().remap_rust_paths {
        plan.note(
            "crates of the workspace hit in this checkout only; LARDER_RUST_PATHS=remap changes that, and the paths in \
             panic messages and debug information (docs/rust.md)",
        );
    }
    if !user && compiles_c(&places.cwd) {
        let from = compilers::plan(around, places, plan)?;
        plan.next.push(format!("{from}: `cargo build`"));
    } else {
        plan.next.push("`cargo build`".to_owned());
    }
    Ok(())
}

/// Returns true if a build script of the project may compile C or C++, as far as `Cargo.lock` says.
///
/// Such a script calls a compiler by its name, and the name depends on the target. `CC` would be
/// used for every target.
fn compiles_c(project: &Path) -> bool {
    // A member of a workspace has none of its own.
    let lock = project.ancestors().map(|directory| directory.join("Cargo.lock")).find(|lock| lock.exists());
    let lock = lock.map(|lock| project_text(&lock)).unwrap_or_default();
    lock.lines().any(|line| ["name = \"cc\"", "name = \"cmake\""].contains(&line))
}

/// Returns the nearest directory above a package in which a workspace begins.
fn top_of_workspace(package: &Path) -> Option<PathBuf> {
    let begins = |directory: &&Path| project_text(&directory.join("Cargo.toml")).lines().any(is_workspace);
    if begins(&package) {
        return None;
    }
    package.ancestors().skip(1).find(begins).map(Path::to_owned)
}

fn is_workspace(line: &str) -> bool {
    ["[workspace]", "[workspace."].iter().any(|begin| line.trim_start().starts_with(begin))
}

/// Adds a preset to `CMakeUserPresets.json`, the file for presets that are not committed.
/// `from` says from when on compilers' names lead to larder.
fn cmake(from: &str, places: &Places, plan: &mut Plan) -> Result<()> {
    let preset = json!({
        "name": "larder",
        "displayName": "Compilers behind larder",
        "binaryDir": "${sourceDir}/build/larder",
        "cacheVariables": {
            "CMAKE_C_COMPILER_LAUNCHER": places.command,
            "CMAKE_CXX_COMPILER_LAUNCHER": places.command,
        },
    });
    let committed = serde_json::from_str(&project_text(&places.cwd.join("CMakePresets.json"))).unwrap_or_default();
    if has_preset(&committed) {
        plan.note("CMakePresets.json has a preset `larder` already: nothing is added to it");
    }
    let by_hand = "a preset that sets CMAKE_C_COMPILER_LAUNCHER and CMAKE_CXX_COMPILER_LAUNCHER to larder";
    plan.text_of_project(&places.cwd, places.cwd.join("CMakeUserPresets.json"), by_hand, |before| {
        if has_preset(&committed) {
            return Ok(None);
        }
        let Some(before) = before else {
            let whole = json!({ "version": 3, "configurePresets": [preset] });
            return Ok(Some(format!("{whole:#}\n")));
        };
        let found: serde_json::Value = serde_json::from_str(before).context("it is not valid JSON")?;
        if has_preset(&found) {
            return Ok(None);
        }
        let mut preset = preset.clone();
        if found["version"].as_u64().is_some_and(|version| version < 3) {
            // Presets of these versions must name a generator. This one exists everywhere.
            preset["generator"] = json!("Unix Makefiles");
        }
        json_text::insert(before, "configurePresets", None, &preset).map(Some)
    })?;
    if let Some(parent) = places.cwd.parent().filter(|parent| parent.join("CMakeLists.txt").is_file()) {
        plan.note(format!(
            "{} has a CMakeLists.txt as well: if the project begins there, run `larder init` there",
            places.shown(parent)
        ));
    }
    for directory in below(&places.cwd).filter(|directory| directory.join("CMakeCache.txt").is_file()) {
        let cache = project_text(&directory.join("CMakeCache.txt"));
        if !cache.contains("larder") {
            plan.note(format!(
                "{} was configured without larder: remove its CMakeCache.txt, then configure again",
                places.shown(&directory)
            ));
        }
    }
    plan.next.push("at once: `cmake --preset larder && cmake --build build/larder`".to_owned());
    plan.next.push(format!("{from}: `cmake -B build && cmake --build build`"));
    Ok(())
}

/// Returns true if a file of presets has one that is called `larder`. CMake accepts no two presets of
/// one name.
fn has_preset(presets: &serde_json::Value) -> bool {
    presets["configurePresets"].as_array().into_iter().flatten().any(|preset| preset["name"] == "larder")
}

/// Adds a native file for all of the user's Meson projects. `from` says from when on compilers' names
/// lead to larder.
fn meson(from: &str, places: &Places, plan: &mut Plan) -> Result<()> {
    let command = &places.command;
    ensure!(!command.contains(['\'', '\\']), "{command}: Meson would read its path differently");
    let lines = format!("[binaries]\nc = ['{command}', 'cc']\ncpp = ['{command}', 'c++']\n");
    plan.text(places.data.join("meson/native/larder"), "the lines", |before| Ok(appended(before, &lines)))?;
    for directory in below(&places.cwd).filter(|directory| directory.join("meson-info").is_dir()) {
        let shown = places.shown(&directory);
        // The line is typed, and a checkout chooses the name.
        let quoted = shlex::try_quote(&shown).unwrap_or_default();
        plan.note(format!("{shown} was configured before: `meson setup --wipe {quoted}` configures it again"));
    }
    plan.next.push("at once: `meson setup --native-file larder build && ninja -C build`".to_owned());
    plan.next.push(format!("{from}: `meson setup build && ninja -C build`"));
    Ok(())
}

/// Gives Bazel's toolchain the link as its compiler.
fn bazel(around: &Surroundings, places: &Places, plan: &mut Plan) -> Result<()> {
    let link = compilers::plan_one(around, places, plan)?;
    let line = format!("build --repo_env=CC={}\n", link.display());
    ensure!(!link.display().to_string().contains([' ', '\'', '"', '\\']), "{}: Bazel would split it", link.display());
    let imports = |name: &str| {
        let text = project_text(&places.cwd.join(".bazelrc"));
        text.lines().any(|line| line.trim() == format!("try-import %workspace%/{name}"))
    };
    // An absolute path is for one person, so it must not be in a file that is committed.
    let own = ["user.bazelrc", ".bazelrc.user"].into_iter().find(|name| imports(name));
    let edit = |before: Option<&str>| Ok(appended(before, &line));
    match own {
        Some(name) => plan.text_of_project(&places.cwd, places.cwd.join(name), "the line", edit)?,
        None => plan.text(places.home.join(".bazelrc"), "the line", edit)?,
    }
    plan.needs_daemon = true;
    plan.note("sandboxes record through larderd, which starts now; `larder daemon install` starts it at each login");
    plan.next.push("`bazel build //...`".to_owned());
    Ok(())
}

/// Adds a script that restores `node_modules`, or installs and saves it.
fn npm(places: &Places, plan: &mut Plan) -> Result<()> {
    const SCRIPT: &str = "larder:install";
    let (program, lock, install) = match places.cwd.join("pnpm-lock.yaml").is_file() {
        true => ("pnpm", "pnpm-lock.yaml", "pnpm install --frozen-lockfile"),
        false => ("npm", "package-lock.json", "npm ci"),
    };
    ensure!(places.cwd.join(lock).is_file(), "{} has no {lock}: run `{program} install`", places.cwd.display());
    let key = format!("node-{{{{os}}}}-{{{{arch}}}}-{{{{hash {lock}}}}}");
    let command = format!("larder image restore --key '{key}' --replace --if-missing '{install}' node_modules");
    let by_hand = format!("the script `{SCRIPT}`: `{command}`");
    let mut other = false;
    plan.text_of_project(&places.cwd, places.cwd.join("package.json"), &by_hand, |before| {
        let Some(before) = before else { bail!("it does not exist") };
        let found: serde_json::Value = serde_json::from_str(before).context("it is not valid JSON")?;
        match &found["scripts"][SCRIPT] {
            serde_json::Value::Null => {
                json_text::insert(before, "scripts", Some(SCRIPT), &command.clone().into()).map(Some)
            }
            there => {
                other = *there != command;
                Ok(None)
            }
        }
    })?;
    if other {
        plan.is_blocked = true;
        plan.note(format!("package.json has another script `{SCRIPT}`: rename it, then run `larder init` again"));
        return Ok(());
    }
    plan.next.push(format!("`{program} run {SCRIPT}` in place of `{install}`"));
    Ok(())
}

/// Says what to add to CI jobs. Jobs differ too much to be edited by a program.
fn ci(places: &Places, plan: &mut Plan) {
    if places.cwd.join(".github/workflows").is_dir() {
        plan.note("GitHub Actions: add the action `setup-larder` to a job (docs/github.md)");
    }
    if places.cwd.join(".gitlab-ci.yml").is_file() {
        plan.note("GitLab CI: include the component `setup-larder` (docs/gitlab.md)");
    }
}
