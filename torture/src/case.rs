//! The definition of a case, and the methods that build one. For example:
//!
//! ```
//! use larder_torture::{case::case, change::{put, rm}};
//! let shadow = case("A/shadow-quote").both()
//!     .file("x.c", "#include \"h.h\"\nint v = H;\n").file("i/h.h", "#define H 1\n")
//!     .cmd("cc -Ii -c x.c -o x.o").twice()
//!     .changes("a header appears beside the source", put("h.h", "#define H 2\n"))
//!     .back("and goes", rm("h.h"));
//! assert_eq!(shadow.steps.len(), 5);
//! ```
//!
//! Unaware of: how a case is run.

use crate::change::{Change, all, dir, nothing, put};
pub use crate::compilers::{CLANG, Compilers, GCC};
use crate::machine::Need;
use crate::step::{Expect, How, Line, Prepare, Spoil, Step, Whom, words};
use rustix::process::Signal;
use std::ffi::OsString;
use std::path::PathBuf;

/// A small tree of files, and the steps that are run with it.
#[derive(Clone)]
pub struct Case {
    /// The class, a slash, and the subject. For example, `A/shadow-quote`.
    pub name: String,
    /// The case is run once with each of these.
    pub compilers: Vec<Compilers>,
    /// The changes that make the files.
    pub files: Vec<Change>,
    /// The steps, in order. Each begins with the inputs of the step before.
    pub steps: Vec<Step>,
    /// Regular expressions for text in messages and files that is not compared, with the reasons.
    pub masks: Vec<(&'static str, &'static str)>,
    /// True if the current time in messages and files is not compared.
    pub any_time: bool,
    /// Files of which only existence and mode are compared: patterns with `*`, and the reasons.
    pub loose: Vec<(&'static str, &'static str)>,
    /// What the case needs of the machine.
    pub needs: Vec<Need>,
    /// True if the case is only run with `--full`.
    pub slow: bool,
    /// True if larder's depfile observer can give the hits of this case.
    pub provable: bool,
    /// The initial state of the cache's directory.
    pub prepare: Option<Prepare>,
    how: How,
}

/// Makes a case with gcc, without files and steps.
pub fn case(name: impl Into<String>) -> Case {
    Case {
        name: name.into(),
        compilers: vec![GCC],
        files: Vec::new(),
        steps: Vec::new(),
        masks: Vec::new(),
        any_time: false,
        loose: Vec::new(),
        needs: Vec::new(),
        slow: false,
        provable: false,
        prepare: None,
        how: How::new(),
    }
}

/// Compilers and needs of a case.
impl Case {
    /// Runs the case once with gcc and once with clang.
    pub fn both(mut self) -> Self {
        self.compilers = vec![GCC, CLANG];
        self
    }

    /// Runs the case with clang only.
    pub fn clang(mut self) -> Self {
        self.compilers = vec![CLANG];
        self
    }

    /// Skips the case if this is missing.
    pub fn needs(mut self, need: Need) -> Self {
        self.needs.push(need);
        self
    }

    /// Skips the case if there is no such program.
    pub fn program(self, name: &'static str) -> Self {
        self.needs(Need::Program(name))
    }

    /// Runs the case only with `--full`.
    pub fn slow(mut self) -> Self {
        self.slow = true;
        self
    }

    /// larder's depfile observer can give the hits of this case.
    pub fn provable(mut self) -> Self {
        self.provable = true;
        self
    }

    /// Sets the initial state of the cache's directory.
    pub fn prepare(mut self, prepare: Prepare) -> Self {
        self.prepare = Some(prepare);
        self
    }

    /// Text that matches the regular expression is not compared.
    pub fn mask(mut self, pattern: &'static str, why: &'static str) -> Self {
        self.masks.push((pattern, why));
        self
    }

    /// The time of the run is not compared.
    pub fn any_time(mut self) -> Self {
        self.any_time = true;
        self
    }

    /// Only existence and mode of the files that match are compared. For example, `*.gcno`.
    pub fn loose(mut self, pattern: &'static str, why: &'static str) -> Self {
        self.loose.push((pattern, why));
        self
    }
}

/// The initial files of a case.
impl Case {
    /// Adds a file.
    pub fn file(self, path: impl Into<PathBuf>, text: impl AsRef<[u8]>) -> Self {
        self.setup(put(path, text))
    }

    /// Adds several files.
    pub fn files(mut self, files: &[(&str, &str)]) -> Self {
        self.files.extend(files.iter().map(|(path, text)| put(*path, text)));
        self
    }

    /// Adds an empty directory.
    pub fn dir(self, path: impl Into<PathBuf>) -> Self {
        self.setup(dir(path))
    }

    /// Adds another change that makes files.
    pub fn setup(mut self, change: Change) -> Self {
        self.files.push(change);
        self
    }
}

/// The command of the steps that follow, and its environment.
impl Case {
    /// Runs a tool. `cc` and `c++` as first word stand for the compilers of the case, `{root}` and
    /// `{cwd}` for directories.
    pub fn cmd(mut self, line: &str) -> Self {
        self.how.line = Line::Tool(words(line));
        self
    }

    /// Runs a tool, whose arguments are given one by one.
    pub fn argv<S: AsRef<str>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.how.line = Line::Tool(words.into_iter().map(|word| word.as_ref().to_owned()).collect());
        self
    }

    /// Runs any command, as `larder run -- …`.
    pub fn any(mut self, line: &str) -> Self {
        self.how.line = Line::Any(words(line));
        self
    }

    /// Runs a shell script as any command.
    pub fn any_sh(mut self, text: &str) -> Self {
        self.how.line = Line::Any(vec!["sh".to_owned(), "-c".to_owned(), text.to_owned()]);
        self
    }

    /// Runs a Python program as any command.
    pub fn any_py(mut self, text: &str) -> Self {
        let words = ["/usr/bin/python3", "-c", text];
        self.how.line = Line::Any(words.map(str::to_owned).to_vec());
        self.program("/usr/bin/python3")
    }

    /// Runs a shell script that calls tools through the cache.
    pub fn sh(mut self, text: impl Into<String>) -> Self {
        self.how.line = Line::Script(text.into());
        self
    }

    /// Sets a variable.
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.how.env.push((name.to_owned(), Some(value.into())));
        self
    }

    /// Removes a variable.
    pub fn without(mut self, name: &str) -> Self {
        self.how.env.push((name.to_owned(), None));
        self
    }

    /// Returns to the usual variables.
    pub fn usual_env(mut self) -> Self {
        self.how.env.clear();
        self
    }

    /// Sets the working directory, below the root.
    pub fn cwd(mut self, path: impl Into<PathBuf>) -> Self {
        self.how.cwd = path.into();
        self
    }

    /// Sets the text of standard input.
    pub fn stdin(mut self, text: &str) -> Self {
        self.how.stdin = Some(text.as_bytes().to_vec());
        self
    }

    /// Runs on a terminal of this size.
    pub fn tty(mut self, rows: u16, columns: u16) -> Self {
        self.how.tty = Some((rows, columns));
        self
    }

    /// Runs without a terminal.
    pub fn piped(mut self) -> Self {
        self.how.tty = None;
        self
    }

    /// Sets shell text that is run before the command; an empty text removes it.
    pub fn prelude(mut self, text: &str) -> Self {
        self.how.prelude = (!text.is_empty()).then(|| text.to_owned());
        self
    }
}

/// Steps.
impl Case {
    /// A change and a run, which must be right but need not hit.
    pub fn then(mut self, label: &str, change: Change) -> Self {
        let mut step = Step::new(label, &self.how);
        step.change = change;
        self.steps.push(step);
        self
    }

    /// Adds a first run.
    pub fn cold(self) -> Self {
        self.then("cold", nothing())
    }

    /// A run without a change, which should hit.
    pub fn warm(self) -> Self {
        self.then("warm", nothing()).hits()
    }

    /// A first run, and a second one that should hit.
    pub fn twice(self) -> Self {
        self.cold().warm()
    }

    /// A first run, and a second one that need not hit.
    pub fn repeats(self) -> Self {
        self.cold().then("again", nothing())
    }

    /// Repeats the last run, which should hit.
    pub fn again(self) -> Self {
        let label = self.steps.last().map_or("again".to_owned(), |step| format!("{}, again", step.label));
        self.then(&label, nothing()).hits()
    }

    /// A change and a run, then a repetition that should hit.
    pub fn changes(self, label: &str, change: Change) -> Self {
        self.then(label, change).again()
    }

    /// A change to an earlier state, so that the run should hit.
    pub fn back(self, label: &str, change: Change) -> Self {
        self.then(label, change).hits()
    }

    /// A run over what the last run left, which should hit.
    pub fn over(mut self) -> Self {
        if let Some(step) = self.steps.last_mut() {
            step.keep = true;
        }
        self.then("over", nothing()).hits()
    }

    fn last(mut self, set: impl FnOnce(&mut Step)) -> Self {
        if let Some(step) = self.steps.last_mut() {
            set(step);
        }
        self
    }

    /// The last step should hit.
    pub fn hits(self) -> Self {
        self.last(|step| step.expect = Expect::Hit)
    }

    /// The last step need not hit.
    pub fn may_miss(self) -> Self {
        self.last(|step| step.expect = Expect::Any)
    }

    /// The last step must not hit.
    pub fn fresh(self) -> Self {
        self.last(|step| step.expect = Expect::Fresh)
    }

    /// None of the steps so far need hit.
    pub fn need_not_hit(mut self) -> Self {
        self.steps.iter_mut().for_each(|step| step.expect = Expect::Any);
        self
    }

    /// None of the steps so far may hit.
    pub fn never_hits(mut self) -> Self {
        self.steps.iter_mut().for_each(|step| step.expect = Expect::Fresh);
        self
    }

    /// None of the steps so far may hit, and their standard output is not compared, because it
    /// differs each time.
    pub fn varies(mut self) -> Self {
        self.steps.iter_mut().for_each(|step| step.any_stdout = true);
        self.never_hits()
    }

    /// Lets the next step begin with what the last one left.
    pub fn keep(self) -> Self {
        self.last(|step| step.keep = true)
    }

    /// The last step is only run through the cache.
    pub fn unchecked(self) -> Self {
        self.last(|step| step.unchecked = true)
    }

    /// Standard error of the last step is not compared.
    pub fn any_stderr(self) -> Self {
        self.last(|step| step.any_stderr = true)
    }

    /// Standard error of all steps so far is not compared.
    pub fn any_stderr_ever(mut self) -> Self {
        self.steps.iter_mut().for_each(|step| step.any_stderr = true);
        self
    }

    /// The cache is damaged before the last step's run through it.
    pub fn spoil(self, spoil: Spoil) -> Self {
        self.last(|step| step.spoil = Some(spoil))
    }

    /// A signal is sent during the last step, when the command has made the file `busy`.
    pub fn kill(self, signal: Signal, whom: Whom) -> Self {
        self.last(|step| step.kill = Some((signal, whom)))
    }

    /// Adds this change to each step so far, after its own change.
    pub fn always(mut self, change: &Change) -> Self {
        for step in &mut self.steps {
            step.change = all([step.change.clone(), change.clone()]);
        }
        self
    }
}

impl Case {
    /// Returns the case once for each of its compilers. If there are several, the compiler is added
    /// to the name.
    pub fn expanded(&self) -> Vec<Case> {
        let one = |&compilers: &Compilers| {
            let mut case = self.clone();
            case.compilers = vec![compilers];
            if self.compilers.len() > 1 {
                case.name = format!("{}/{}", self.name, compilers.cc);
            }
            if compilers == CLANG {
                case.needs.push(Need::Program("clang"));
            }
            case
        };
        self.compilers.iter().map(one).collect()
    }

    /// Returns true if a step runs any command, which not all caches support.
    pub fn uses_any(&self) -> bool {
        self.steps.iter().any(|step| match &step.how.line {
            Line::Any(_) => true,
            Line::Script(text) => text.contains("$RUN"),
            Line::Tool(_) => false,
        })
    }

    /// Returns the letter of its class.
    pub fn class(&self) -> &str {
        self.name.split('/').next().unwrap_or("")
    }
}
