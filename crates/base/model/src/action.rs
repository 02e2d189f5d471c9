//! An Action: everything known of a run before the tool starts. The digest of its walk is the weak
//! fingerprint. `docs/fingerprint.md` lists every value that is keyed, and a test below changes
//! each of them.

use crate::{Digest, FORMAT_VERSION, Fingerprint, FingerprintWalk, Roots, ValueKey, Walk};

/// An environment variable, as the tool would see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The name of the variable.
    pub name: Vec<u8>,
    /// The value of the variable. A variable that is not set is not listed.
    pub value: Vec<u8>,
}

/// What a tool can find out about the terminal that its messages go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminal {
    /// Neither standard output nor standard error is a terminal.
    None,
    /// Standard output, standard error or both are a terminal.
    Some {
        /// Standard output is a terminal.
        stdout: bool,
        /// Standard error is a terminal.
        stderr: bool,
        /// The terminal's width, in columns.
        columns: u16,
        /// The terminal's height, in rows.
        rows: u16,
    },
}

/// The tool, its arguments, environment and working directory, and what else it can know when it
/// starts.
#[derive(Clone, Debug)]
pub struct Action {
    /// The family whose rules apply, such as `gcc`.
    pub family: &'static str,
    /// The content of the program that is started.
    pub tool: Digest,
    /// The absolute path of the program. It is keyed because a compiler finds its parts relative to
    /// it.
    pub tool_path: Vec<u8>,
    /// All arguments, `argv[0]` first. `argv[0]` is keyed because messages contain it and some
    /// tools behave differently by it.
    pub argv: Vec<Vec<u8>>,
    /// The working directory with symbolic links resolved (`getcwd`).
    pub cwd: Vec<u8>,
    /// `PWD`, if it is another path to the working directory. It is keyed because compilers then
    /// write that path into their output.
    pub apparent_cwd: Option<Vec<u8>>,
    /// The variables that this family reads, sorted by name.
    pub environment: Vec<Variable>,
    /// What the tool can find out about its terminal.
    pub terminal: Terminal,
    /// What the processor reports about itself. Empty unless the tool may ask for it, for example
    /// because of `-march=native`.
    pub processor: Vec<u8>,
    /// A digest of what else the process inherits and can ask for: limits, groups, ignored signals,
    /// allowed processors. Empty for tools that larder knows, because they do not ask.
    pub inherited: Vec<u8>,
    /// What is on standard input: a word such as `nothing`, or the digest of all that can be read.
    /// Empty unless the tool may read it.
    pub standard_input: Vec<u8>,
    /// Digest, with roots replaced, of the first source that a compiler's command line names, or of
    /// the first object of a link. Without it, many actions would share one key. For example, the
    /// probes of a `./configure` have one command line and differ only in the source.
    pub source: Option<Digest>,
}

impl Action {
    /// Gives each keyed value to `walk`, with roots replaced.
    pub fn walk(&self, roots: &Roots, walk: &mut impl Walk) {
        let path = |path: &[u8]| roots.encoded_path(path);
        walk.field("format version", &[FORMAT_VERSION]);
        walk.field("family", self.family.as_bytes());
        walk.field("tool content", &self.tool.0);
        for (number, nested) in roots.nested() {
            walk.field(&format!("root {number}"), &nested);
        }
        for (number, shape) in roots.shapes().iter().enumerate() {
            walk.field(&format!("name {}", number + 1), shape);
        }
        walk.field("tool path", &path(&self.tool_path));
        walk.field("working directory", &path(&self.cwd));
        if let Some(apparent) = &self.apparent_cwd {
            walk.field("PWD", &path(apparent));
        }
        for argument in &self.argv {
            walk.field("argument", &roots.encode_text(argument));
        }
        for variable in &self.environment {
            let name = String::from_utf8_lossy(&variable.name);
            walk.field(&format!("environment {name}"), &roots.encode_text(&variable.value));
        }
        if let Terminal::Some { stdout, stderr, columns, rows } = self.terminal {
            let [c0, c1] = columns.to_le_bytes();
            let [r0, r1] = rows.to_le_bytes();
            walk.field("terminal", &[stdout.into(), stderr.into(), c0, c1, r0, r1]);
        }
        if !self.processor.is_empty() {
            walk.field("processor", &self.processor);
        }
        if !self.inherited.is_empty() {
            walk.field("inherited", &self.inherited);
        }
        if !self.standard_input.is_empty() {
            walk.field("standard input", &self.standard_input);
        }
        if let Some(source) = &self.source {
            walk.field("source content", &source.0);
        }
    }

    /// Returns the weak fingerprint.
    pub fn fingerprint(&self, roots: &Roots) -> Fingerprint {
        self.keys(roots).0
    }

    /// Returns the weak fingerprint, and the key for digests of the values of variables.
    pub fn keys(&self, roots: &Roots) -> (Fingerprint, ValueKey) {
        let mut walk = FingerprintWalk::default();
        self.walk(roots, &mut walk);
        walk.finish_with_key()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action() -> Action {
        Action {
            family: "gcc",
            tool: Digest::of(b"gcc"),
            tool_path: b"/usr/bin/gcc".to_vec(),
            argv: vec![b"gcc".to_vec(), b"-c".to_vec(), b"x.c".to_vec()],
            cwd: b"/w".to_vec(),
            apparent_cwd: None,
            environment: vec![Variable { name: b"PATH".to_vec(), value: b"/bin".to_vec() }],
            terminal: Terminal::None,
            processor: Vec::new(),
            inherited: Vec::new(),
            standard_input: Vec::new(),
            source: None,
        }
    }

    #[test]
    fn each_value_changes_the_fingerprint() {
        type Change = fn(&mut Action);
        let changes: &[(&str, Change)] = &[
            ("family", |a| a.family = "clang"),
            ("tool content", |a| a.tool = Digest::of(b"other")),
            ("tool path", |a| a.tool_path = b"/opt/gcc".to_vec()),
            ("argv[0]", |a| a.argv[0] = b"cc".to_vec()),
            ("argument", |a| a.argv[2] = b"y.c".to_vec()),
            ("one argument more", |a| a.argv.push(Vec::new())),
            ("two arguments joined", |a| a.argv = vec![b"gcc".to_vec(), b"-cx.c".to_vec()]),
            ("cwd", |a| a.cwd = b"/v".to_vec()),
            ("PWD", |a| a.apparent_cwd = Some(b"/v".to_vec())),
            ("variable", |a| a.environment[0].value = b"/usr/bin".to_vec()),
            ("variable's name", |a| a.environment[0].name = b"LANG".to_vec()),
            ("variable unset", |a| a.environment.clear()),
            ("terminal", |a| a.terminal = Terminal::Some { stdout: true, stderr: true, columns: 80, rows: 24 }),
            ("processor", |a| a.processor = b"avx".to_vec()),
            ("inherited", |a| a.inherited = b"limits".to_vec()),
            ("standard input", |a| a.standard_input = b"nothing".to_vec()),
            ("source", |a| a.source = Some(Digest::of(b"int x;"))),
        ];
        let roots = Roots::default();
        let mut seen = vec![action().fingerprint(&roots)];
        assert_eq!(action().fingerprint(&roots), seen[0]);
        for (what, change) in changes {
            let mut changed = action();
            change(&mut changed);
            let fingerprint = changed.fingerprint(&roots);
            assert!(!seen.contains(&fingerprint), "{what} is not keyed");
            seen.push(fingerprint);
        }
        for shape in [&b"x*"[..], b"y*"] {
            let names = Roots::default().with_names([(b"x42".to_vec(), shape.to_vec())]);
            let fingerprint = action().fingerprint(&names);
            assert!(!seen.contains(&fingerprint), "the constant part of a name by chance is not keyed");
            seen.push(fingerprint);
        }
    }

    #[test]
    fn another_name_by_chance_is_the_same_action() {
        let run = |name: &str| {
            let mut a = action();
            a.cwd = format!("/w/{name}").into_bytes();
            a.argv[2] = format!("{name}.c").into_bytes();
            a.fingerprint(&Roots::default().with_names([(name.as_bytes().to_vec(), b"x*".to_vec())]))
        };
        assert_eq!(run("x42"), run("x4711"));
        assert_ne!(run("x42"), action().fingerprint(&Roots::default()));
    }

    #[test]
    fn another_root_is_the_same_action() {
        let place = |root: &str| {
            let mut a = action();
            a.cwd = root.as_bytes().to_vec();
            a.argv.push(format!("-I{root}/inc").into_bytes());
            a.fingerprint(&Roots::new([root.as_bytes().to_vec()]))
        };
        assert_eq!(place("/a"), place("/bb/c"));
    }
}
