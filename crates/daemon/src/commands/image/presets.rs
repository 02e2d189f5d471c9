//! `larder image npm` and others: keys, paths and install commands of package managers.
//!
//! A preset only fills in the options of `image restore` or `image run`. To add one, add a row to
//! [`ROWS`] and a subcommand to [`crate::cli::Preset`].
//!
//! Unaware of: how images are found and restored.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use larder_image::files_in;
use larder_model::Digest;
use serde_json::Value;

use super::super::project_text;
use super::paths::local_path_below;
use super::restore;
use super::run::{path_word, run as run_image, wanted_words, words as run_words};
use crate::cli::{ImagePreset, ImageRestore, ImageRun, ImageWanted, Preset};
use crate::say;
use crate::surroundings::Surroundings;

/// A package manager, with the files, the paths and the command that its preset needs.
struct Row {
    name: &'static str,
    /// The row is for projects with this file and this text in it. Of rows with the same name, the
    /// first that fits is taken.
    only_with: Option<(&'static str, &'static str)>,
    /// The key covers one of these files: the first that exists.
    locks: &'static [&'static str],
    /// The key covers these files, too, if they exist.
    also: &'static [&'static str],
    /// A command whose output is part of the key: the version of what runs the packages.
    version: &'static [&'static str],
    /// The packages may hold programs for this distribution, so it is part of the key.
    is_native: bool,
    /// The files hold the path of the project, so it is part of the key.
    holds_path: bool,
    paths: Paths,
    /// Makes the paths. It gets the installed state of another key as a start if `is_exact`.
    install: &'static str,
    /// The install command removes what another state of the lock file left. Only then may it begin
    /// with the state of another key.
    is_exact: bool,
}

/// The paths to keep.
enum Paths {
    /// Relative to the project.
    Project(&'static [&'static str]),
    /// `node_modules` of the project and of each package in its workspace.
    NodeModules,
    /// In a directory that a variable names, or else below the home directory: the variable, the
    /// default, and paths in the directory.
    Account(&'static str, &'static str, &'static [&'static str]),
    /// As `Account`, for programs in Java, which take the home directory from the user database and not
    /// from `HOME`.
    AccountOfJava(&'static str, &'static str, &'static [&'static str]),
    /// In the directory that a command prints.
    Printed(&'static [&'static str]),
}

const NODE: &[&str] = &["node", "--version"];
const PYTHON: &[&str] = &["python3", "-c", "import sys; print(sys.version, sys.base_prefix)"];

/// npm, pnpm and yarn run scripts of `package.json` after an install, and apply patches.
/// Settings of the project, such as `omit=dev`, decide what is installed.
const OF_NODE: &[&str] = &["package.json", "patches/**/*", ".npmrc", ".pnpmfile.cjs", "pnpm-workspace.yaml"];
const OF_YARN: &[&str] = &["package.json", "patches/**/*", ".npmrc", ".yarnrc.yml", ".yarnrc", ".yarn/patches/**/*"];

/// The row of npm. Those of pnpm and yarn differ from it in a few fields.
const NPM: Row = Row {
    name: "npm",
    only_with: None,
    locks: &["npm-shrinkwrap.json", "package-lock.json"],
    also: OF_NODE,
    version: NODE,
    is_native: true,
    holds_path: false,
    paths: Paths::NodeModules,
    install: "npm ci",
    // `npm ci` removes everything first.
    is_exact: false,
};

/// The row of yarn 1. Those of later versions differ from it in a few fields.
const YARN: Row = Row {
    name: "yarn",
    locks: &["yarn.lock"],
    also: OF_YARN,
    install: "yarn install --frozen-lockfile",
    is_exact: true,
    ..NPM
};

/// The row of pip. Those of the other tools with a virtual environment differ from it in a few
/// fields.
const PIP: Row = Row {
    name: "pip",
    only_with: None,
    locks: &["requirements.txt"],
    also: &["requirements*.txt", "requirements/**/*.txt", "constraints*.txt"],
    version: PYTHON,
    is_native: true,
    holds_path: true,
    paths: Paths::Project(&[".venv"]),
    install: "python3 -m venv .venv && .venv/bin/python -m pip install -r requirements.txt",
    is_exact: false,
};

const ROWS: &[Row] = &[
    NPM,
    Row { name: "pnpm", locks: &["pnpm-lock.yaml"], install: "pnpm install --frozen-lockfile", is_exact: true, ..NPM },
    // Yarn from version 2 on, which has this file: first with `node_modules`, then with
    // Plug'n'Play.
    Row { only_with: Some((".yarnrc.yml", "nodeLinker: node-modules")), install: "yarn install --immutable", ..YARN },
    Row {
        only_with: Some((".yarnrc.yml", "")),
        paths: Paths::Project(&[".yarn/cache", ".yarn/unplugged", ".pnp.cjs"]),
        install: "YARN_ENABLE_GLOBAL_CACHE=false yarn install --immutable",
        ..YARN
    },
    YARN,
    PIP,
    Row {
        name: "uv",
        locks: &["uv.lock"],
        also: &["pyproject.toml", ".python-version", "uv.toml"],
        version: &["uv", "python", "find"],
        install: "uv sync --locked",
        is_exact: true,
        ..PIP
    },
    Row {
        name: "poetry",
        locks: &["poetry.lock"],
        also: &["pyproject.toml", "poetry.toml"],
        // poetry may know an environment elsewhere for this project, which it would go on to use.
        install: "python3 -m venv .venv && POETRY_VIRTUALENVS_IN_PROJECT=true poetry install --no-interaction",
        ..PIP
    },
    Row {
        name: "cargo",
        only_with: None,
        locks: &["Cargo.lock"],
        also: &[],
        version: &["cargo", "--version"],
        is_native: false,
        holds_path: false,
        paths: Paths::Account("CARGO_HOME", ".cargo", &["registry", "git"]),
        install: "cargo fetch --locked",
        is_exact: true,
    },
    Row {
        name: "go",
        only_with: None,
        locks: &["go.sum"],
        also: &["go.mod", "go.work", "go.work.sum"],
        version: &["go", "env", "GOVERSION"],
        is_native: false,
        holds_path: false,
        paths: Paths::Printed(&["go", "env", "GOMODCACHE"]),
        install: "go mod download",
        is_exact: true,
    },
    Row {
        name: "gradle",
        only_with: None,
        locks: &["gradle/wrapper/gradle-wrapper.properties"],
        also: &["**/*.gradle", "**/*.gradle.kts", "**/gradle.lockfile", "gradle/*.toml", "gradle.properties"],
        version: &[],
        is_native: false,
        holds_path: false,
        paths: Paths::AccountOfJava("GRADLE_USER_HOME", ".gradle", &["caches", "wrapper"]),
        install: "./gradlew --no-daemon classes",
        is_exact: true,
    },
    Row {
        name: "maven",
        only_with: None,
        locks: &["pom.xml"],
        also: &["**/pom.xml", ".mvn/*"],
        version: &[],
        is_native: false,
        holds_path: false,
        paths: Paths::AccountOfJava("", ".m2", &["repository"]),
        // `dependency:go-offline` alone leaves out what plugins load when they run.
        install: "mvn -B -q -DskipTests package dependency:go-offline",
        is_exact: true,
    },
    Row {
        name: "bundler",
        only_with: None,
        locks: &["Gemfile.lock"],
        also: &["Gemfile"],
        version: &["ruby", "--version"],
        is_native: true,
        holds_path: true,
        // The settings say where the gems are.
        paths: Paths::Project(&["vendor/bundle", ".bundle"]),
        install: "bundle config set --local path vendor/bundle && bundle install && bundle clean",
        is_exact: true,
    },
    Row {
        name: "composer",
        only_with: None,
        locks: &["composer.lock"],
        also: &["composer.json"],
        version: &["php", "--version"],
        is_native: false,
        holds_path: false,
        paths: Paths::Project(&["vendor"]),
        install: "composer install --no-interaction",
        is_exact: true,
    },
];

/// Runs `image restore`, or `image run` if there is a command, with what the preset knows.
pub(super) fn run(around: &Surroundings, preset: &Preset, out: &mut dyn Write) -> Result<u8> {
    let (name, options) = parts(preset);
    let dir = around.cwd()?;
    let row = ROWS.iter().find(|row| row.name == name && row.fits(dir)).context("every preset has a row")?;
    let how = filled(around, dir, row, options)?;
    if options.command.is_empty() {
        if options.print {
            return print(restore_words(&how), out);
        }
        return restore::run(around, &how, out);
    }
    let how = ImageRun {
        wanted: how.wanted,
        policy: how.policy,
        via: options.via,
        if_missing: how.if_missing,
        strict: how.strict,
        replace: how.replace,
        anywhere: false,
        inside: false,
        paths: how.paths,
        command: options.command.clone(),
    };
    if options.print {
        return print(run_words(&how), out);
    }
    run_image(around, &how)
}

fn parts(preset: &Preset) -> (&'static str, &ImagePreset) {
    match preset {
        Preset::Npm(options) => ("npm", options),
        Preset::Pnpm(options) => ("pnpm", options),
        Preset::Yarn(options) => ("yarn", options),
        Preset::Pip(options) => ("pip", options),
        Preset::Uv(options) => ("uv", options),
        Preset::Poetry(options) => ("poetry", options),
        Preset::Cargo(options) => ("cargo", options),
        Preset::Go(options) => ("go", options),
        Preset::Gradle(options) => ("gradle", options),
        Preset::Maven(options) => ("maven", options),
        Preset::Bundler(options) => ("bundler", options),
        Preset::Composer(options) => ("composer", options),
    }
}

/// Returns the options that a row stands for in this project.
fn filled(around: &Surroundings, dir: &Path, row: &Row, options: &ImagePreset) -> Result<ImageRestore> {
    let begin = key_begin(dir, row, options)?;
    let key = format!("{begin}{{{{hash {}}}}}", row.files(dir)?.join(" "));
    let fallback = if row.is_exact { vec![begin] } else { Vec::new() };
    let paths = row.paths(around, dir)?;
    let install = options.install.clone().unwrap_or_else(|| row.install.to_owned());
    let is_of_account = !matches!(row.paths, Paths::Project(_) | Paths::NodeModules);
    if !is_of_account {
        // A checkout can have links anywhere.
        for path in &paths {
            local_path_below(dir, path.as_os_str().as_encoded_bytes())?;
        }
    }
    // If the path of a project is missing afterwards, the install command did something else.
    let others = if is_of_account && paths.len() > 1 { &paths[..] } else { &paths[1..] };
    Ok(ImageRestore {
        wanted: ImageWanted { key, fallback },
        policy: options.policy,
        replace: options.replace || !is_of_account,
        if_missing: Some(with_all_paths(&install, others)?),
        anywhere: false,
        keep_rights: false,
        strict: options.strict,
        json: false,
        paths,
    })
}

/// Returns the key up to the digest of the lock file: everything else that the files depend on.
fn key_begin(dir: &Path, row: &Row, options: &ImagePreset) -> Result<String> {
    let mut parts = vec![row.name.to_owned(), "{{os}}".to_owned(), "{{arch}}".to_owned()];
    if row.is_native {
        parts.push(distribution());
    }
    if let Some(printed) = row.version.split_first().map(|command| printed(row.name, command)).transpose()? {
        parts.push(digits(printed.as_bytes()));
    }
    if row.holds_path {
        let real = fs::canonicalize(dir).with_context(|| format!("{}: cannot be resolved", dir.display()))?;
        parts.push(digits(real.as_os_str().as_encoded_bytes()));
    }
    parts.extend(options.key_suffix.clone());
    Ok(format!("{}-", parts.join("-")))
}

/// Returns a short digest for a key.
fn digits(bytes: &[u8]) -> String {
    const DIGITS: usize = 12;
    Digest::of(bytes).hex()[..DIGITS].to_owned()
}

/// Returns the name and version of the distribution, for example `debian12`, by os-release(5).
fn distribution() -> String {
    let read = |path| fs::read_to_string(path).ok();
    let text = read("/etc/os-release").or_else(|| read("/usr/lib/os-release")).unwrap_or_default();
    let value = |name: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_default().trim_matches(['"', '\'']).to_owned()
    };
    let named = value("ID") + &value("VERSION_ID");
    if named.is_empty() { "unknown".to_owned() } else { named }
}

/// Runs a command in the project, and returns its output.
fn printed(preset: &str, (program, words): (&&str, &[&str])) -> Result<String> {
    let shown = || format!("{preset}: `{program} {}` says which version this is", words.join(" "));
    let output = Command::new(program).args(words).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("{}, and cannot be started", shown()))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        bail!("{}, and failed: {}", shown(), say::one_line(&errors));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Adds to an install command that it makes empty directories for paths that it left out, such as
/// the `node_modules` of a package without dependencies of its own. An image has all its paths.
fn with_all_paths(install: &str, paths: &[PathBuf]) -> Result<String> {
    let mut command = install.to_owned();
    for path in paths {
        let path = path.to_str().with_context(|| format!("{}: the path is not UTF-8", path.display()))?;
        let quoted = shlex::try_quote(path).with_context(|| format!("{path:?} cannot be written for a shell"))?;
        command.push_str(&format!(" && {{ [ -e {quoted} ] || mkdir -p -- {quoted}; }}"));
    }
    Ok(command)
}

impl Row {
    /// Returns true if the row is for the project in this directory.
    fn fits(&self, dir: &Path) -> bool {
        self.only_with
            .is_none_or(|(file, text)| dir.join(file).exists() && project_text(&dir.join(file)).contains(text))
    }

    /// Returns the files that the key covers, as words of a template.
    fn files(&self, dir: &Path) -> Result<Vec<&'static str>> {
        let exists = |pattern: &&str| files_in(dir, pattern).is_ok_and(|files| !files.is_empty());
        let Some(lock) = self.locks.iter().copied().find(|lock| exists(lock)) else {
            let (name, locks) = (self.name, self.locks.join(" or "));
            bail!("{name}: there is no {locks} in {}: change to the directory of the project", dir.display());
        };
        Ok([lock].into_iter().chain(self.also.iter().copied().filter(exists)).collect())
    }

    /// Returns the paths to keep.
    fn paths(&self, around: &Surroundings, dir: &Path) -> Result<Vec<PathBuf>> {
        Ok(match self.paths {
            Paths::Project(paths) => paths.iter().map(PathBuf::from).collect(),
            Paths::NodeModules => {
                let packages = workspace(self.name, dir)?.into_iter().map(|package| package.join("node_modules"));
                [PathBuf::from("node_modules")].into_iter().chain(packages).collect()
            }
            Paths::Account(variable, default, paths) | Paths::AccountOfJava(variable, default, paths) => {
                use std::os::unix::ffi::OsStrExt;
                let named = around.variable(variable.as_bytes()).map(std::ffi::OsStr::from_bytes).map(PathBuf::from);
                let is_of_java = matches!(self.paths, Paths::AccountOfJava(..));
                let home = || if is_of_java { larder_sys::home_of_user() } else { around.home() };
                let top = named.filter(|dir| dir.is_absolute()).or_else(|| Some(home()?.join(default)));
                let top = top.context("the home directory is not known: set HOME")?;
                paths.iter().map(|path| top.join(path)).collect()
            }
            Paths::Printed(command) => {
                let command = command.split_first().context("a command has a first word")?;
                vec![PathBuf::from(printed(self.name, command)?)]
            }
        })
    }
}

/// Returns the directories of the packages in a workspace, relative to it and sorted. Their
/// `node_modules` are kept as well.
fn workspace(manager: &str, dir: &Path) -> Result<Vec<PathBuf>> {
    let top = fs::canonicalize(dir).with_context(|| format!("{}: cannot be resolved", dir.display()))?;
    let mut packages = if manager == "pnpm" {
        if !dir.join("pnpm-workspace.yaml").exists() {
            return Ok(Vec::new());
        }
        // pnpm reads its own file. It prints absolute paths.
        let listed = printed(manager, (&"pnpm", &["list", "--recursive", "--depth", "-1", "--json"]))?;
        let listed: Vec<Value> = serde_json::from_str(&listed).context("pnpm's list of packages cannot be read")?;
        let below = |package: &Value| Some(Path::new(package["path"].as_str()?).strip_prefix(&top).ok()?.to_owned());
        listed.iter().filter_map(below).collect()
    } else {
        of_package_json(dir)?
    };
    // The files that name the packages come with the checkout, so the names must not lead out of
    // it.
    packages.retain(|package| {
        let is_the_project = fs::canonicalize(dir.join(package)).is_ok_and(|real| real == top);
        !is_the_project && local_path_below(dir, package.as_os_str().as_encoded_bytes()).is_ok()
    });
    if let Some(package) = packages.iter().find(|package| package.to_string_lossy().contains(char::is_control)) {
        bail!("{manager}: the name of the package {package:?} has control characters: rename its directory");
    }
    packages.sort();
    packages.dedup();
    Ok(packages)
}

/// Reads the patterns `workspaces` of `package.json`: a list, or an object with a list `packages`.
fn of_package_json(dir: &Path) -> Result<Vec<PathBuf>> {
    let file = dir.join("package.json");
    if !file.exists() {
        return Ok(Vec::new());
    }
    let package: Value =
        serde_json::from_str(&project_text(&file)).with_context(|| format!("{}: cannot be read", file.display()))?;
    let workspaces = &package["workspaces"];
    let patterns = workspaces.as_array().or_else(|| workspaces["packages"].as_array());
    let patterns: Vec<&str> = patterns.into_iter().flatten().filter_map(Value::as_str).collect();
    let matching = |pattern: &str| -> Result<Vec<PathBuf>> {
        let pattern = pattern.trim_start_matches("./").trim_end_matches('/');
        let files = files_in(dir, &format!("{pattern}/package.json"))
            .map_err(|why| anyhow::anyhow!("{}: the pattern {pattern} of `workspaces`: {why}", file.display()))?;
        Ok(files.iter().filter_map(|file| file.parent().map(Path::to_owned)).collect())
    };
    let mut packages = Vec::new();
    // A pattern that leads out of the project matches none of its packages, and could search the
    // whole disk.
    let is_below = |pattern: &&str| {
        let pattern = pattern.trim_start_matches('!');
        !pattern.starts_with('/') && !pattern.split('/').any(|part| part == "..")
    };
    for pattern in patterns.into_iter().filter(is_below) {
        match pattern.strip_prefix('!') {
            Some(excluded) => {
                let excluded = matching(excluded)?;
                packages.retain(|package| !excluded.contains(package));
            }
            None => packages.extend(matching(pattern)?),
        }
    }
    let is_installed = |package: &PathBuf| package.iter().any(|part| part == "node_modules");
    packages.retain(|package| !is_installed(package));
    Ok(packages)
}

/// Prints words as a command that a shell understands.
fn print(words: Vec<OsString>, out: &mut dyn Write) -> Result<u8> {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let line = shlex::try_join(words.iter().map(String::as_str)).context("the command has a zero byte")?;
    writeln!(out, "larder {line}")?;
    Ok(out.flush().map(|()| super::FINE)?)
}

fn restore_words(how: &ImageRestore) -> Vec<OsString> {
    let mut words = wanted_words("restore", &how.wanted, how.policy, how.if_missing.as_deref());
    words.extend(how.replace.then(|| "--replace".into()));
    words.extend(how.strict.then(|| "--strict".into()));
    words.extend(how.paths.iter().map(|path| path_word(path)));
    words
}
