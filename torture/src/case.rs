//! What a case says, and the few words in which it is said.
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

use crate::change::{Change, all, dir, nothing, put};
pub use crate::compilers::{CLANG, Compilers, GCC};
use crate::machine::Need;
use crate::step::{Expect, How, Line, Prepare, Spoil, Step, Whom, words};
use rustix::process::Signal;
use std::ffi::OsString;
use std::path::PathBuf;

/// A small tree of files and what is done with it.
#[derive(Clone)]
pub struct Case {
    /// Class, slash, what it is about.
    pub name: String,
    /// One run of the case for each.
    pub compilers: Vec<Compilers>,
    /// What makes the files.
    pub files: Vec<Change>,
    /// In order; each begins with the inputs of the one before.
    pub steps: Vec<Step>,
    /// Patterns in messages and files that are not compared, and why.
    pub masks: Vec<(&'static str, &'static str)>,
    /// The current time in messages and files is not compared.
    pub any_time: bool,
    /// Files of which only presence and mode are compared, as patterns with `*`, and why.
    pub loose: Vec<(&'static str, &'static str)>,
    /// What it needs of the machine.
    pub needs: Vec<Need>,
    /// Only when everything is asked for.
    pub slow: bool,
    /// A depfile says enough for a hit as well.
    pub provable: bool,
    /// What the cache's directory is at first.
    pub prepare: Option<Prepare>,
    how: How,
}

/// A case with gcc, without files and steps.
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

/// What the case is run with, and what it needs.
impl Case {
    /// Once with gcc, once with clang.
    pub fn both(mut self) -> Self {
        self.compilers = vec![GCC, CLANG];
        self
    }

    /// With clang only.
    pub fn clang(mut self) -> Self {
        self.compilers = vec![CLANG];
        self
    }

    /// Skipped where this is missing.
    pub fn needs(mut self, need: Need) -> Self {
        self.needs.push(need);
        self
    }

    /// Skipped where there is no such program.
    pub fn program(self, name: &'static str) -> Self {
        self.needs(Need::Program(name))
    }

    /// Only when everything is asked for.
    pub fn slow(mut self) -> Self {
        self.slow = true;
        self
    }

    /// A depfile says enough for the hits of this case.
    pub fn provable(mut self) -> Self {
        self.provable = true;
        self
    }

    /// What the cache's directory is at first.
    pub fn prepare(mut self, prepare: Prepare) -> Self {
        self.prepare = Some(prepare);
        self
    }

    /// Text of this pattern is not compared.
    pub fn mask(mut self, pattern: &'static str, why: &'static str) -> Self {
        self.masks.push((pattern, why));
        self
    }

    /// The time of the run is not compared.
    pub fn any_time(mut self) -> Self {
        self.any_time = true;
        self
    }

    /// Of these files only presence and mode are compared.
    pub fn loose(mut self, pattern: &'static str, why: &'static str) -> Self {
        self.loose.push((pattern, why));
        self
    }
}

/// Files.
impl Case {
    /// A file.
    pub fn file(self, path: impl Into<PathBuf>, text: impl AsRef<[u8]>) -> Self {
        self.setup(put(path, text))
    }

    /// Several files.
    pub fn files(mut self, files: &[(&str, &str)]) -> Self {
        self.files.extend(files.iter().map(|(path, text)| put(*path, text)));
        self
    }

    /// An empty directory.
    pub fn dir(self, path: impl Into<PathBuf>) -> Self {
        self.setup(dir(path))
    }

    /// Whatever else makes the files.
    pub fn setup(mut self, change: Change) -> Self {
        self.files.push(change);
        self
    }
}

/// The command of the steps that follow, and its surroundings.
impl Case {
    /// A tool; `cc` and `c++` in front are the compilers of the case, `{root}` and `{cwd}` directories.
    pub fn cmd(mut self, line: &str) -> Self {
        self.how.line = Line::Tool(words(line));
        self
    }

    /// The same, word by word.
    pub fn argv<S: AsRef<str>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.how.line = Line::Tool(words.into_iter().map(|word| word.as_ref().to_owned()).collect());
        self
    }

    /// Any command: `larder run -- …`.
    pub fn any(mut self, line: &str) -> Self {
        self.how.line = Line::Any(words(line));
        self
    }

    /// Any command that is a shell script.
    pub fn any_sh(mut self, text: &str) -> Self {
        self.how.line = Line::Any(vec!["sh".to_owned(), "-c".to_owned(), text.to_owned()]);
        self
    }

    /// Any command that is a Python program.
    pub fn any_py(mut self, text: &str) -> Self {
        let words = ["/usr/bin/python3", "-c", text];
        self.how.line = Line::Any(words.map(str::to_owned).to_vec());
        self.program("/usr/bin/python3")
    }

    /// A shell script in which tools are called through the cache.
    pub fn sh(mut self, text: impl Into<String>) -> Self {
        self.how.line = Line::Script(text.into());
        self
    }

    /// A variable.
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.how.env.push((name.to_owned(), Some(value.into())));
        self
    }

    /// A variable taken away.
    pub fn without(mut self, name: &str) -> Self {
        self.how.env.push((name.to_owned(), None));
        self
    }

    /// Back to the usual variables.
    pub fn usual_env(mut self) -> Self {
        self.how.env.clear();
        self
    }

    /// The working directory, below the root.
    pub fn cwd(mut self, path: impl Into<PathBuf>) -> Self {
        self.how.cwd = path.into();
        self
    }

    /// Standard input.
    pub fn stdin(mut self, text: &str) -> Self {
        self.how.stdin = Some(text.as_bytes().to_vec());
        self
    }

    /// A terminal.
    pub fn tty(mut self, rows: u16, columns: u16) -> Self {
        self.how.tty = Some((rows, columns));
        self
    }

    /// No terminal.
    pub fn piped(mut self) -> Self {
        self.how.tty = None;
        self
    }

    /// Shell text before the command; empty for none.
    pub fn prelude(mut self, text: &str) -> Self {
        self.how.prelude = (!text.is_empty()).then(|| text.to_owned());
        self
    }
}

/// Steps.
impl Case {
    /// A run after a change, of which nothing is expected but what is right.
    pub fn then(mut self, label: &str, change: Change) -> Self {
        let mut step = Step::new(label, &self.how);
        step.change = change;
        self.steps.push(step);
        self
    }

    /// A first run.
    pub fn cold(self) -> Self {
        self.then("cold", nothing())
    }

    /// The same again: a hit.
    pub fn warm(self) -> Self {
        self.then("warm", nothing()).hits()
    }

    /// A first run, and the same again.
    pub fn twice(self) -> Self {
        self.cold().warm()
    }

    /// What was run last, again: a hit.
    pub fn again(self) -> Self {
        let label = self.steps.last().map_or("again".to_owned(), |step| format!("{}, again", step.label));
        self.then(&label, nothing()).hits()
    }

    /// A change, a run, and the same again.
    pub fn changes(self, label: &str, change: Change) -> Self {
        self.then(label, change).again()
    }

    /// A change to a state that was seen before: a hit.
    pub fn back(self, label: &str, change: Change) -> Self {
        self.then(label, change).hits()
    }

    /// Once more over what the last run left: a hit.
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

    /// The last step is to hit.
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
    pub fn never_hits(mut self) -> Self {
        self.steps.iter_mut().for_each(|step| step.expect = Expect::Any);
        self
    }

    /// No step may hit, and its standard output is not compared: it is another each time.
    pub fn varies(mut self) -> Self {
        for step in &mut self.steps {
            step.expect = Expect::Fresh;
            step.any_stdout = true;
        }
        self
    }

    /// The next step begins with what the last one left.
    pub fn keep(self) -> Self {
        self.last(|step| step.keep = true)
    }

    /// The last step is run through the cache only.
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

    /// The last step finds its cache harmed.
    pub fn spoil(self, spoil: Spoil) -> Self {
        self.last(|step| step.spoil = Some(spoil))
    }

    /// The last step is sent a signal when it made the file `busy`.
    pub fn kill(self, signal: Signal, whom: Whom) -> Self {
        self.last(|step| step.kill = Some((signal, whom)))
    }

    /// Every step so far finds this done to its files first, after its own change.
    pub fn always(mut self, change: &Change) -> Self {
        for step in &mut self.steps {
            step.change = all([step.change.clone(), change.clone()]);
        }
        self
    }
}

impl Case {
    /// The case once for each of its compilers, which become part of the name where there are several.
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

    /// Whether a step uses commands that only some caches take.
    pub fn uses_any(&self) -> bool {
        self.steps.iter().any(|step| match &step.how.line {
            Line::Any(_) => true,
            Line::Script(text) => text.contains("$RUN"),
            Line::Tool(_) => false,
        })
    }

    /// The letter of its class.
    pub fn class(&self) -> &str {
        self.name.split('/').next().unwrap_or("")
    }
}
