//! A place in which a command runs without larder and through it while system calls are refused.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use larder_testkit::{Place, Ran, Run, Tree, larder_text};

/// A run takes some tenths of a second. A run that takes longer than this is killed with all
/// processes that it started.
pub(crate) const HANGS: Duration = Duration::from_secs(60);
/// The most runs until one is recorded. Before that, larder may have to learn how well the library
/// sees the tool.
const RUNS: usize = 3;
/// A store that is empty before the first run.
const FRESH: &str = "store";
/// A store with a record that was made without refusals.
const BEFORE: &str = "before";
/// The exit code of the dynamic loader if it cannot load a program.
const NOT_LOADED: i32 = 127;
/// The number of random letters in the name of a compiler's temporary file.
const RANDOM_BYTES: usize = 6;

/// The codes of reasons, and how their sentences begin.
const REASONS: &[(&str, &str)] = &[
    ("cannot-observe", "the tool cannot be observed"),
    ("clock", "the result depends on the time"),
    ("closed-descriptor", "standard input, output or error is closed"),
    ("input-changed", "an input is as new as the run"),
    ("materialise", "an output could not be put in place"),
    ("no-daemon", "the store cannot be written, and no larderd"),
    ("not-observed", "a program that cannot be observed was started"),
    ("observer-failed", "the observer could not be started"),
    ("output-elsewhere", "the tool wrote outside"),
    ("refused", "a system call was refused here"),
    ("shortage", "memory, disk space"),
    ("store-unwritable", "the store cannot be written"),
    ("suspect", "the tool failed in a way that its being observed"),
    ("unjudged", "a program ran that is not known"),
    ("write-failed", "the tool could not write"),
];

/// A command that runs without larder and through it.
pub(crate) struct Bench {
    place: Place,
    argv: Vec<&'static str>,
    helper: PathBuf,
    tree: Tree,
    /// The result of the command if nothing is refused.
    right: Left,
}

/// The result of a run, and its files.
type Left = (Ran, Tree);

impl Bench {
    /// Compiles a file that includes a file by a relative path.
    pub(crate) fn compile(compiler: &'static str) -> Bench {
        Bench::of(vec![compiler, "-c", "-Wall", "x.c", "-o", "x.o"])
    }

    /// Runs a whole command: a script with pipes, temporary files and a directory listing.
    pub(crate) fn script() -> Bench {
        Bench::of(vec!["run", "--", "sh", "build.sh"])
    }

    fn of(argv: Vec<&'static str>) -> Bench {
        let place = Place::new();
        let helper = place.path("refuse");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/refused/refuse.c");
        let made = Command::new("gcc").args(["-w", "-O1", "-o"]).arg(&helper).arg(source).status();
        assert!(made.is_ok_and(|status| status.success()), "gcc cannot compile refuse.c");
        // The unused variable produces a message on standard error.
        place.put("x.c", "#include \"sub/x.h\"\nint f(void) { int unused; return X; }\n");
        place.put("sub/x.h", "#define X 1\n");
        place.put("build.sh", "cat sub/x.h | sort > all\nls sub >> all\nt=$(mktemp)\necho x > $t\ncat $t all\nrm $t\n");
        place.settle();
        let tree = Tree::of(&place.path("work"));
        let nothing = Ran { code: None, signal: None, stdout: String::new(), stderr: String::new() };
        let mut bench = Bench { place, argv, helper, tree, right: (nothing, Tree::default()) };
        bench.right = bench.plainly(&[]).expect("the command does not end");
        assert_eq!(bench.right.0.code, Some(0), "{:?}: {:?}", bench.argv, bench.right);
        let outcomes: Vec<_> = (0..RUNS).map(|_| bench.outcome(&[], BEFORE, &bench.right)).collect();
        assert_eq!(
            outcomes.last(),
            Some(&Ok("hit".to_owned())),
            "{:?} does not hit although nothing is refused: {outcomes:?}",
            bench.argv
        );
        bench
    }

    /// Returns the outcomes while these calls are refused: those of runs in an empty store until
    /// one hits, a slash, and that of a run in a store with a record from before.
    ///
    /// Returns an error if a result differs from the command without larder under the same
    /// refusals. Also returns one if a record of these runs gives a wrong answer without refusals.
    pub(crate) fn outcomes(&self, refusals: &[String]) -> Result<String, String> {
        let store = self.place.path(FRESH);
        if store.exists() {
            std::fs::remove_dir_all(&store).expect("cannot remove the directory");
        }
        let plain = self.plainly(refusals)?;
        let mut outcomes = Vec::new();
        while outcomes.len() < RUNS && outcomes.last().is_none_or(|last| last != "hit") {
            outcomes.push(self.outcome(refusals, FRESH, &plain)?);
        }
        outcomes.dedup();
        let before = self.outcome(refusals, BEFORE, &plain)?;
        if plain != self.right {
            self.outcome(&[], FRESH, &self.right).map_err(|why| format!("afterwards, without refusals: {why}"))?;
        }
        Ok(format!("{} / {before}", outcomes.join(" ")))
    }

    /// Returns the outcome of one run, after comparing its result with one without larder.
    fn outcome(&self, refusals: &[String], store: &str, plain: &Left) -> Result<String, String> {
        let log = self.place.path("log");
        let _ = std::fs::remove_file(&log);
        let larders = [&[larder_text()], &self.argv[..]].concat();
        self.place.settle();
        let run = self.refused(refusals, &larders).env("LARDER_DIR", self.place.path(store)).env("LARDER_LOG", &log);
        let found = self.left_by(run)?;
        let outcome = outcome_in(&std::fs::read_to_string(&log).unwrap_or_default());
        // The record was made before the calls were refused. So the tool's own trouble with the
        // refusal does not show.
        let answered = outcome == "hit" && store == BEFORE && found == self.right;
        // If the tool cannot be loaded, the loader's message also names the library that larder
        // preloads.
        let is_alike = match plain.0.code {
            Some(NOT_LOADED) => found.0.code == plain.0.code && found.1 == plain.1,
            _ => found == *plain,
        };
        match is_alike || answered {
            true => Ok(outcome),
            false => Err(format!(
                "{outcome}: {:?}, plainly {:?}; files: {:?}",
                found.0,
                plain.0,
                found.1.difference(&plain.1)
            )),
        }
    }

    fn plainly(&self, refusals: &[String]) -> Result<Left, String> {
        let argv = if self.argv[0] == "run" { &self.argv[2..] } else { &self.argv[..] };
        self.left_by(self.refused(refusals, argv))
    }

    fn refused(&self, refusals: &[String], argv: &[&str]) -> Run {
        self.place.run(&self.refused_words(refusals, argv))
    }

    /// Returns the arguments of a command that runs `argv` while these calls are refused.
    pub(crate) fn refused_words(&self, refusals: &[String], argv: &[&str]) -> Vec<String> {
        let helper = self.helper.to_str().expect("not UTF-8").to_owned();
        let argv = argv.iter().map(|word| (*word).to_owned());
        [helper].into_iter().chain(refusals.iter().cloned()).chain(["--".to_owned()]).chain(argv).collect()
    }

    /// Returns the place in which the command runs.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Returns what a run left, and removes its files.
    fn left_by(&self, run: Run) -> Result<Left, String> {
        let work = self.place.path("work");
        let mut ran = run.ends_within(HANGS)?;
        let left = Tree::of(&work);
        self.tree.put_back(&work);
        ran.stderr = without_random_names(&ran.stderr);
        Ok((ran, left))
    }
}

/// Returns the outcome in the last line of a log: `hit`, `miss`, `miss:REASON` …, or `nothing` if
/// the log is empty.
fn outcome_in(log: &str) -> String {
    let Some(line) = log.lines().last() else { return "nothing".to_owned() };
    let said = line.splitn(3, ' ').nth(2).unwrap_or_default();
    let (what, rest) = said.split_once(": ").unwrap_or((said, ""));
    let why = rest.split(" · ").nth(1).unwrap_or_default();
    let what = what.split(',').next().unwrap_or_default();
    match REASONS.iter().find(|(_, sentence)| why.starts_with(sentence)) {
        Some((code, _)) => format!("{what}:{code}"),
        None if why.is_empty() || why == "recorded" => what.to_owned(),
        None => format!("{what}:{why}"),
    }
}

/// Removes the random part of compilers' temporary names, which some messages contain.
fn without_random_names(text: &str) -> String {
    let mut parts = text.split("/tmp/cc");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + "/tmp/cc" + part.get(RANDOM_BYTES..).unwrap_or_default())
}

/// Returns the numbers of the system calls on this machine, from its headers.
pub(crate) fn numbers() -> &'static BTreeMap<String, u32> {
    static NUMBERS: OnceLock<BTreeMap<String, u32>> = OnceLock::new();
    NUMBERS.get_or_init(|| {
        let place = Place::new();
        place.put("x.c", "#include <sys/syscall.h>\n");
        let text = place.run(&["gcc", "-E", "-dM", "x.c"]).run().quiet();
        let define = |line: &str| {
            let (name, number) = line.strip_prefix("#define __NR_")?.split_once(' ')?;
            Some((name.to_owned(), number.parse().ok()?))
        };
        text.lines().filter_map(define).collect()
    })
}
