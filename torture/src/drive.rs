//! Runs one case from its first step to its last.
//!
//! 1. A step changes the files and runs the command plainly.
//! 2. It restores the files, and runs the command through the cache, at the same path.
//! 3. It compares the two runs.
//!
//! The next step begins with the same files as this one, unless this one says `keep`.
//!
//! Unaware of: other cases.

use crate::caches::{Cache, Chosen, Counts};
use crate::case::Case;
use crate::change::{AGE_S, PATH, Place, replaced};
use crate::compare::{Outcome, differences};
use crate::left;
use crate::run::{Order, run};
use crate::spawn::{output, writing};
use crate::step::{Expect, How, Line, Prepare, Spoil, Step};
use crate::tree::{self, Tree};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// The pause between a change and a run that must notice it: more than a tick of the clock of file
/// times.
const SETTLE: Duration = Duration::from_millis(16);

/// The result of one step.
pub struct StepResult {
    /// The name of the step in reports.
    pub label: String,
    /// The expectation for the run through the cache.
    pub expect: Expect,
    /// The differences, as text.
    pub wrong: Vec<String>,
    /// True if the command asks for a depfile.
    pub depfile: bool,
    /// What the cache counted, or `None` if it does not count.
    pub counted: Option<Counts>,
    /// The new lines of the cache's log.
    pub said: String,
    /// A hash of the plain run's result, which is equal for steps with equal results.
    pub plain: Option<u64>,
}

impl StepResult {
    /// Returns true if the result is right and came only from the cache.
    pub fn is_hit(&self) -> bool {
        self.wrong.is_empty() && self.counted.is_some_and(Counts::only_hits)
    }
}

/// Runs a case with one compiler in the directory `dir`, which is created and removed.
pub fn drive(case: &Case, cache: &Chosen, dir: &Path) -> Result<Vec<StepResult>> {
    let mut driver = Driver::new(case, cache, dir)?;
    let results = driver.all_steps();
    driver.cache.stop();
    if let Some(Prepare::Mounted(..)) = &case.prepare {
        // The mount is in our own namespace, so it would end with this process anyway.
        let _ = output(Command::new("umount").arg("-l").arg(driver.cache.store()));
    }
    make_removable(dir);
    fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    results
}

struct Driver<'a> {
    case: &'a Case,
    place: Place,
    control: PathBuf,
    cache: Box<dyn Cache>,
    locale: &'a str,
    counted: Option<Counts>,
}

impl<'a> Driver<'a> {
    fn new(case: &'a Case, chosen: &'a Chosen, dir: &Path) -> Result<Self> {
        let (root, control) = (dir.join("w"), dir.join("c"));
        for own in ["home", "tmp", "masquerade", "no-masquerade"] {
            fs::create_dir_all(control.join(own))?;
        }
        fs::create_dir_all(&root)?;
        let compilers = case.compilers[0];
        let place = Place { root, cc: compilers.cc, cxx: compilers.cxx };
        let cache = chosen.instance(&control, &basic_env(&control, &chosen.locale));
        if let Some(program) = cache.program() {
            for name in ["gcc", "g++", "clang", "clang++", "cc", "c++"] {
                std::os::unix::fs::symlink(program, control.join("masquerade").join(name))?;
            }
        }
        Ok(Self { case, place, control, cache, locale: &chosen.locale, counted: None })
    }

    fn all_steps(&mut self) -> Result<Vec<StepResult>> {
        for change in &self.case.files {
            change.apply(&self.place)?;
        }
        tree::age(&self.place.root, AGE_S)?;
        match &self.case.prepare {
            None => fs::create_dir_all(self.cache.store())?,
            Some(prepare) => self.prepare(prepare)?,
        }
        self.cache.start()?;
        self.counted = self.cache.counts();
        let mut inputs = tree::read(&self.place.root)?;
        let mut results = Vec::new();
        let meeting = if self.cache.learns() { self.case.steps.first().and_then(meeting) } else { None };
        for step in meeting.iter().chain(&self.case.steps) {
            let (result, next) = self.step(step, &inputs).with_context(|| step.label.clone())?;
            results.push(result);
            inputs = next;
        }
        Ok(results)
    }

    /// Runs a step. Returns its result, and the files that the next step begins with.
    fn step(&mut self, step: &Step, inputs: &Tree) -> Result<(StepResult, Tree)> {
        tree::put_back(&self.place.root, inputs)?;
        step.change.apply(&self.place)?;
        thread::sleep(SETTLE);
        let inputs = tree::read(&self.place.root)?;
        let mut plain = None;
        if !step.unchecked {
            plain = Some(self.run(step, false)?);
            if tree::put_back(&self.place.root, &inputs)? {
                thread::sleep(SETTLE);
            }
        }
        if let Some(spoil) = &step.spoil {
            self.spoil(spoil)?;
        }
        let cached = self.run(step, true)?;
        let wrong = match &plain {
            Some(plain) => differences(self.case, step, plain, &cached)?,
            None => Vec::new(),
        };
        let plain_mark = plain.as_ref().map(|plain| plain.mark(&inputs));
        let (label, expect, counted) = (step.label.clone(), step.expect, self.count());
        let depfile = step.how.line.asks_for_depfile();
        let mut result =
            StepResult { label, expect, wrong, depfile, counted, said: self.cache.said(), plain: plain_mark };
        if step.expect == Expect::Fresh && result.counted.is_some_and(|counts| counts.hit > 0) {
            result.wrong.push("hit where none is allowed".to_owned());
        }
        let next = if step.keep { plain.unwrap_or(cached).tree } else { inputs };
        Ok((result, next))
    }

    /// What was counted since the last call.
    fn count(&mut self) -> Option<Counts> {
        let before = self.counted;
        self.counted = self.cache.counts().or(before);
        Some(self.counted?.since(before?))
    }

    fn run(&self, step: &Step, cached: bool) -> Result<Outcome> {
        let order = self.order(step, cached)?;
        let ran = run(&order)?;
        let mut left = left::processes(&self.place.root, &self.cache.pids());
        left.extend(left::temporary_files(&self.control.join("tmp")));
        let tree = tree::read(&self.place.root)?;
        Ok(Outcome { ran, tree, left })
    }

    fn order(&self, step: &Step, cached: bool) -> Result<Order> {
        let how = &step.how;
        let cwd = if how.cwd.as_os_str().is_empty() { self.place.root.clone() } else { self.place.at(&how.cwd) };
        let mut argv = match &how.line {
            Line::Script(text) => vec!["sh".into(), "-c".into(), self.filled(text, &cwd)],
            Line::Tool(words) => self.words(words, if cached { self.cache.before_tool() } else { Vec::new() }, &cwd),
            Line::Any(words) => self.words(words, if cached { self.cache.before_any() } else { Vec::new() }, &cwd),
        };
        if let Some(prelude) = &how.prelude {
            let text = format!("{prelude}\nexec \"$@\"").into();
            argv.splice(0..0, ["sh".into(), "-c".into(), text, "sh".into()]);
        }
        let kill = step.kill.map(|(signal, whom)| (signal, whom, cwd.join("busy")));
        let env = self.env(how, cached, &cwd);
        Ok(Order { argv, cwd, env, stdin: how.stdin.clone(), tty: how.tty, kill })
    }

    fn words(&self, words: &[String], mut before: Vec<OsString>, cwd: &Path) -> Vec<OsString> {
        for (at, word) in words.iter().enumerate() {
            before.push(match (at, word.as_str()) {
                (0, "cc") => self.place.cc.into(),
                (0, "c++") => self.place.cxx.into(),
                _ => self.filled(word, cwd),
            });
        }
        before
    }

    fn filled(&self, text: &str, cwd: &Path) -> OsString {
        let text = replaced(text.as_bytes(), b"{root}", self.place.root.as_os_str().as_bytes());
        OsString::from_vec(replaced(&text, b"{cwd}", cwd.as_os_str().as_bytes()))
    }

    fn env(&self, how: &How, cached: bool, cwd: &Path) -> Vec<(OsString, OsString)> {
        let mut env: BTreeMap<OsString, OsString> = basic_env(&self.control, self.locale).into_iter().collect();
        env.insert("PWD".into(), cwd.into());
        if self.case.any_time {
            env.insert("TZ".into(), "UTC0".into());
        }
        if cached {
            env.extend(self.cache.env());
        }
        if how.line.uses_variables() {
            let joined = |words: Vec<OsString>| if cached { words.join(OsStr::new(" ")) } else { OsString::new() };
            let wrap = joined(self.cache.before_tool());
            for (name, tool) in [("CC", self.place.cc), ("CXX", self.place.cxx)] {
                let words: Vec<&OsStr> =
                    [wrap.as_os_str(), tool.as_ref()].into_iter().filter(|w| !w.is_empty()).collect();
                env.insert(name.into(), words.join(OsStr::new(" ")));
            }
            env.insert("WRAP".into(), wrap);
            env.insert("RUN".into(), joined(self.cache.before_any()));
            let masquerade = if cached { "masquerade" } else { "no-masquerade" };
            env.insert("MASQ".into(), self.control.join(masquerade).into());
        }
        for (name, value) in &how.env {
            match value {
                Some(value) => {
                    let text = replaced(value.as_bytes(), b"{root}", self.place.root.as_os_str().as_bytes());
                    env.insert(name.into(), OsString::from_vec(text));
                }
                None => drop(env.remove(OsStr::new(name))),
            }
        }
        env.into_iter().collect()
    }

    fn prepare(&self, prepare: &Prepare) -> Result<()> {
        let store = self.cache.store();
        match prepare {
            Prepare::Shell(text) => self.shell(text, store.parent().unwrap_or(store)),
            Prepare::Mounted(options, full) => {
                fs::create_dir_all(store)?;
                let mounted = output(Command::new("mount").args(*options).arg(store))?;
                ensure!(mounted.status.success(), "mount: {}", String::from_utf8_lossy(&mounted.stderr).trim());
                if *full {
                    // Writing fails when the file system is full, which is intended.
                    let _ = writing(|| fs::write(store.join("ballast"), vec![0; 1 << 20]));
                }
                Ok(())
            }
        }
    }

    fn spoil(&mut self, spoil: &Spoil) -> Result<()> {
        match spoil {
            Spoil::KillServer => self.cache.kill_server(),
            Spoil::Shell(text) => self.shell(text, &self.control)?,
            Spoil::Bytes(change) => spoil_below(self.cache.store(), *change)?,
        }
        Ok(())
    }

    fn shell(&self, text: &str, cwd: &Path) -> Result<()> {
        let mut command = Command::new("sh");
        command.args(["-ec", text]).current_dir(cwd).env_clear().envs(basic_env(&self.control, self.locale));
        command.envs(self.cache.env()).env("STORE", self.cache.store());
        command.env("CACHE", self.cache.program().unwrap_or(Path::new(":")));
        let output = output(&mut command)?;
        ensure!(output.status.success(), "{text}: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(())
    }
}

/// Makes a copy of the first step, which runs before it. It is compared like any other, but need
/// not hit, because larder learns about a tool from its first run.
fn meeting(first: &Step) -> Option<Step> {
    if first.unchecked || first.keep || first.kill.is_some() || first.spoil.is_some() {
        return None;
    }
    Some(Step { label: "met".to_owned(), ..first.clone() })
}

fn basic_env(control: &Path, locale: &str) -> Vec<(OsString, OsString)> {
    vec![
        ("PATH".into(), PATH.into()),
        ("HOME".into(), control.join("home").into()),
        ("TMPDIR".into(), control.join("tmp").into()),
        ("LC_ALL".into(), locale.into()),
        ("TERM".into(), "xterm".into()),
    ]
}

/// The files are changed in place, as by a failing disk.
fn spoil_below(dir: &Path, change: fn(&mut Vec<u8>)) -> Result<()> {
    for item in fs::read_dir(dir).into_iter().flatten() {
        let path = item?.path();
        let meta = fs::symlink_metadata(&path)?;
        if meta.is_dir() {
            spoil_below(&path, change)?;
        } else if meta.is_file() && meta.nlink() > 0 {
            let mut bytes = fs::read(&path)?;
            change(&mut bytes);
            fs::set_permissions(&path, fs::Permissions::from_mode(meta.mode() | 0o200))?;
            writing(|| fs::write(&path, bytes))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(meta.mode()))?;
        }
    }
    Ok(())
}

/// Makes all directories accessible, because a case may leave some without permissions.
fn make_removable(dir: &Path) {
    for item in fs::read_dir(dir).into_iter().flatten().flatten() {
        if item.file_type().is_ok_and(|kind| kind.is_dir()) {
            // If this fails, the removal reports it.
            let _ = fs::set_permissions(item.path(), fs::Permissions::from_mode(0o755));
            make_removable(&item.path());
        }
    }
}
