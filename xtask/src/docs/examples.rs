//! Runs the examples of a page: in a scratch directory, with larder first on `PATH`, an empty home
//! directory, and as little of this process's environment as works.
//!
//! Each command runs in a shell of its own. Its working directory and its exported variables are
//! those with which the command before ended.
//!
//! What a command prints is compared with the page line by line. `…` stands for any text, and a line
//! of only `…` for any lines. Spaces at both ends and beside `…` do not count, and several count as
//! one.

use super::page::{Page, Run, Step};
use crate::files::{self, fresh, remove};
use crate::place::on_path;
use crate::run::{self, Streamed};
use crate::skips;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The longest time that a command of an example may take.
const LIMIT: Duration = Duration::from_secs(120);

/// larder does not record a run whose inputs are as new as the run. A reader is slower than this.
const SETTLE: Duration = Duration::from_millis(50);

/// How long larderd may take to exit when it is asked to.
const PATIENCE: Duration = Duration::from_secs(60);

/// The variables that examples get from this process.
const KEPT: &[&str] = &["TMPDIR", "RUSTUP_TOOLCHAIN", "CARGO_HOME", "RUSTUP_HOME"];

/// The variables that make programs independent of the user's settings, the clock and the network.
const SET: &[(&str, &str)] = &[
    ("LC_ALL", "C.UTF-8"),
    ("TERM", "dumb"),
    // The crates that an example needs are dependencies of larder, so cargo has them.
    ("CARGO_NET_OFFLINE", "true"),
    ("npm_config_offline", "true"),
    ("npm_config_update_notifier", "false"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_AUTHOR_NAME", "reader"),
    ("GIT_AUTHOR_EMAIL", "reader@example.org"),
    ("GIT_COMMITTER_NAME", "reader"),
    ("GIT_COMMITTER_EMAIL", "reader@example.org"),
];

/// Restores the state that the last command left, runs the command, and keeps its state.
const SHELL: &str = r#"cd "$(cat "$1/directory")" && . "$1/variables" || exit 125
eval "$2"
code=$?
pwd > "$1/directory"
export -p > "$1/variables"
exit $code"#;

/// Runs the examples of `page` with the program `larder` and the `larderd` beside it. Returns a line
/// for each difference. Stops at the first, because later commands build on earlier ones.
pub(super) fn run(page: &Page, larder: &Path) -> Result<Option<String>> {
    if page.steps.is_empty() {
        return Ok(None);
    }
    if let Some(missing) = page.needs.iter().find(|name| on_path(name).is_none()) {
        println!("skipped: {}: {missing} is not installed", page.path);
        let problem = format!("{}: {missing} is not installed, so its examples did not run", page.path);
        return Ok(skips::is_ci().then_some(problem));
    }
    let start = Instant::now();
    let scratch = Scratch::new(larder)?;
    let found = scratch.follow(page);
    scratch.end()?;
    println!("{:5.1} s  {}", start.elapsed().as_secs_f64(), page.path);
    found
}

/// The directories of a page's examples.
pub(super) struct Scratch {
    root: PathBuf,
}

impl Scratch {
    pub(super) fn new(larder: &Path) -> Result<Self> {
        // Outside the repository: otherwise this checkout would count as the example's.
        let root = std::env::temp_dir().join(format!("larder-docs-{}", std::process::id()));
        fresh(&root)?;
        let root = root.canonicalize().with_context(|| format!("cannot find {}", root.display()))?;
        for name in ["bin", "home", "state", "work"] {
            fresh(root.join(name))?;
        }
        for name in ["larder", "larderd"] {
            let program = larder.with_file_name(name);
            symlink(&program, root.join("bin").join(name))
                .with_context(|| format!("no link to {}", program.display()))?;
        }
        let work = root.join("work/project");
        fresh(&work)?;
        fs::write(root.join("state/directory"), work.display().to_string())?;
        fs::write(root.join("state/variables"), "")?;
        Ok(Self { root })
    }

    fn follow(&self, page: &Page) -> Result<Option<String>> {
        for step in &page.steps {
            let problem = match step {
                Step::File { path, text } => self.write(path, text).map(|()| None)?,
                Step::Prepare { line, script } => {
                    let run = Run { line: *line, command: script.clone(), exit_code: 0, output: Vec::new() };
                    self.check(&run)?
                }
                Step::Run(run) => self.check(run)?,
            };
            if let Some((line, problem)) = problem {
                return Ok(Some(format!("{}:{line}: {problem}", page.path)));
            }
        }
        Ok(None)
    }

    pub(super) fn write(&self, path: &str, text: &str) -> Result<()> {
        let directory = fs::read_to_string(self.root.join("state/directory"))?;
        let path = Path::new(directory.trim_end()).join(path);
        files::write(&path, text)
    }

    /// Runs a command. Returns its line and what is wrong.
    pub(super) fn check(&self, run: &Run) -> Result<Option<(usize, String)>> {
        let (code, printed) = self.execute(&run.command)?;
        let problem = if code != Some(run.exit_code) {
            let code = code.map_or_else(|| "a signal or the time limit".to_owned(), |code| code.to_string());
            format!("the page says that it exits with {}, and it exits with {code}", run.exit_code)
        } else if !run.output.is_empty() && !matches(&run.output, &printed) {
            format!("the page says that it prints:\n{}", run.output.join("\n"))
        } else {
            return Ok(None);
        };
        Ok(Some((run.line, format!("`{}`: {problem}\nIt printed:\n{}", run.command, printed.join("\n")))))
    }

    /// Returns the exit code, and the lines of both output streams.
    pub(super) fn execute(&self, line: &str) -> Result<(Option<i32>, Vec<String>)> {
        sleep(SETTLE);
        let mut command = Command::new("bash");
        command.args(["-c", SHELL, "bash"]).arg(self.root.join("state")).arg(line).current_dir(&self.root);
        let path = std::env::var("PATH").context("PATH is not set")?;
        command.env_clear().env("PATH", format!("{}:{path}", self.root.join("bin").display()));
        command.env("HOME", self.root.join("home")).envs(SET.iter().copied()).stdin(Stdio::null());
        command.envs(KEPT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        for (name, directory) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
            let usual = std::env::var_os("HOME").map(|home| Path::new(&home).join(directory));
            if let (None, Some(usual)) = (std::env::var_os(name), usual) {
                command.env(name, usual);
            }
        }
        let mut printed = Vec::new();
        let ended = run::streamed(&mut command, &self.root.join("log"), LIMIT, |line| printed.push(line.to_owned()))?;
        let code = match ended {
            Streamed::Ended(status) => status.code(),
            Streamed::TimeIsOver => None,
        };
        Ok((code, printed))
    }

    /// Ends daemons and brokers that the examples started, and removes the directories.
    pub(super) fn end(&self) -> Result<()> {
        run::end_all(PATIENCE, || run::processes_with(&self.root.display().to_string()))?;
        remove(&self.root)
    }
}

/// Returns true if the printed lines are those that a page states.
fn matches(stated: &[String], printed: &[String]) -> bool {
    match stated.split_first() {
        None => printed.iter().all(|line| line.trim().is_empty()),
        Some((first, rest)) if first.trim() == "…" => {
            (0..=printed.len()).any(|skipped| matches(rest, &printed[skipped..]))
        }
        Some((first, rest)) => {
            printed.split_first().is_some_and(|(line, after)| line_matches(first, line) && matches(rest, after))
        }
    }
}

fn line_matches(stated: &str, printed: &str) -> bool {
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let stated = squeezed(stated).replace(" …", "…").replace("… ", "…");
    let printed = squeezed(printed);
    let mut parts = stated.split('…');
    let Some(mut rest) = parts.next().and_then(|first| printed.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_as_stated() {
        let check = |stated: &str, printed: &str| {
            let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
            matches(&lines(stated), &lines(printed))
        };
        assert!(check(" hit  3  50.0 % of 6", " hit       3  50.0 % of 6"));
        assert!(check("hit … of 6", "hit of 6") && check("hit … of 6", "hit 3 of 6"));
        assert!(!check("hit 3", "hit 4"));
        assert!(check("store: …/larder, about … of 10 GiB", "store: /a/larder, about 3 KiB of 10 GiB"));
        assert!(!check("ab … b", "ab"));
        assert!(check("first\n…", "first\nmore\nmore"));
        assert!(check("first\n…\nlast", "first\nlast"));
        assert!(!check("first\n…\nlast", "first\nlast\nmore"));
        assert!(!check("first", "first\nmore"));
    }
}
