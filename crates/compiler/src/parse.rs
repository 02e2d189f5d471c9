//! The walk over a command line: each word finds its row, the rows add up to what the command asks for, and that is an
//! Invocation or a reason to leave it alone.
//!
//! Unaware of: how a flag is spelled (the tables), and whether the files exist.

use crate::language::{self, Kind};
use crate::response::{self, ResponseFiles};
use crate::table::{self, Meaning, Value};
use crate::{Family, Invocation, depfile};
use larder_model::Bypass;

/// Reads the arguments, `argv[0]` not among them.
pub fn parse(family: Family, arguments: &[Vec<u8>], files: &dyn ResponseFiles) -> Result<Invocation, Bypass> {
    let arguments = response::expand(arguments, files)?;
    let mut typed = Typed::new(family);
    let mut words = arguments.iter().map(Vec::as_slice);
    while let Some(word) = words.next() {
        if typed.only_files || !word.starts_with(b"-") || word == b"-" {
            typed.file(word);
        } else if let Some(found) = table::find(family, word) {
            let value = match found.value {
                Value::None => b"",
                Value::Here(value) => value,
                Value::Next => words.next().unwrap_or_default(),
            };
            typed.flag(found.meaning, value);
        }
    }
    typed.asks_processor |= family == Family::Generic || arguments.iter().any(|word| names_native(word));
    typed.mean()
}

/// Whether the word may be or hold `-march=native` or its kin, wherever it stands. A word too many costs hits on other
/// processors, one too few would be wrong.
fn names_native(word: &[u8]) -> bool {
    const NATIVE: &[u8] = b"=native";
    word == b"native" || word.windows(NATIVE.len()).any(|part| part == NATIVE)
}

/// The command line as typed, added up.
struct Typed<'a> {
    family: Family,
    only_files: bool,
    asks_only: bool,
    /// The latest stage that is not an object file.
    stops: Option<Bypass>,
    compiles: bool,
    too_hard: bool,
    asks_processor: bool,
    architectures: Vec<&'a [u8]>,
    language: Option<Kind>,
    sources: Vec<(&'a [u8], Kind)>,
    standard_input: bool,
    output: Option<&'a [u8]>,
    output_ending: &'static [u8],
    /// A depfile is asked for, and whether with system headers.
    dependencies: Option<bool>,
    depfile: Option<&'a [u8]>,
    names_unknown: bool,
}

impl<'a> Typed<'a> {
    fn new(family: Family) -> Self {
        Typed {
            family,
            only_files: false,
            asks_only: false,
            stops: None,
            compiles: false,
            too_hard: false,
            asks_processor: false,
            architectures: Vec::new(),
            language: None,
            sources: Vec::new(),
            standard_input: false,
            output: None,
            output_ending: b".o",
            dependencies: None,
            depfile: None,
            names_unknown: false,
        }
    }

    fn flag(&mut self, meaning: Meaning, value: &'a [u8]) {
        match meaning {
            Meaning::Architecture => self.architectures.push(value),
            Meaning::Assembly => self.stop(Bypass::Assembly),
            Meaning::AsksOnly => self.asks_only = true,
            Meaning::Bitcode => self.output_ending = b".bc",
            Meaning::Compile => self.compiles = true,
            Meaning::DepfileAll => self.dependencies = Some(true),
            Meaning::DepfileName => self.depfile = Some(value),
            Meaning::DepfileUser => self.dependencies = Some(false),
            Meaning::DumpName => self.names_unknown = true,
            Meaning::EndOfFlags => self.only_files = true,
            Meaning::FrontEnd => self.front_end(value),
            Meaning::Language => self.language = language::of_name(value),
            Meaning::NotCompile => self.stop(Bypass::NoCompile),
            Meaning::Output => self.output = Some(value),
            Meaning::PassOn => {}
            Meaning::Preprocess => self.stop(Bypass::Preprocess),
            Meaning::PreprocessorList => self.preprocessor_list(value),
            Meaning::Processor => self.asks_processor = true,
            Meaning::SyntaxOnly => self.stop(Bypass::SyntaxOnly),
            Meaning::TooHard => self.too_hard = true,
        }
    }

    /// The earliest stage decides, in whatever order they were typed.
    fn stop(&mut self, stage: Bypass) {
        const EARLIEST_FIRST: [Bypass; 4] =
            [Bypass::Preprocess, Bypass::NoCompile, Bypass::SyntaxOnly, Bypass::Assembly];
        let rank = |stage| EARLIEST_FIRST.iter().position(|s| *s == stage);
        if self.stops.is_none_or(|now| rank(stage) < rank(now)) {
            self.stops = Some(stage);
        }
    }

    /// An argument that the driver hands on unseen: only what makes the command none of ours matters here.
    fn front_end(&mut self, value: &'a [u8]) {
        const TIMES_AND_COUNTS: [&[u8]; 6] =
            [b"-stats", b"--stats", b"-time-passes", b"--time-passes", b"-track-memory", b"-info-output-file"];
        let base = value.split(|&c| c == b'=').next().unwrap_or(value);
        self.too_hard |= TIMES_AND_COUNTS.contains(&base);
        match table::find(Family::Clang, value).map(|found| found.meaning) {
            Some(Meaning::TooHard) => self.too_hard = true,
            Some(Meaning::Processor) => self.asks_processor = true,
            Some(Meaning::Preprocess) => self.stop(Bypass::Preprocess),
            Some(Meaning::SyntaxOnly) => self.stop(Bypass::SyntaxOnly),
            Some(Meaning::NotCompile) => self.stop(Bypass::NoCompile),
            _ => {}
        }
    }

    /// `-Wp,-MD,file` and its kin: the preprocessor proper takes the depfile's name as the next word.
    fn preprocessor_list(&mut self, list: &'a [u8]) {
        let mut words = list.split(|&c| c == b',').peekable();
        while let Some(word) = words.next() {
            match word {
                b"-MD" | b"-MMD" => {
                    self.dependencies = Some(word == b"-MD");
                    if let Some(name) = words.next_if(|next| !next.starts_with(b"-")) {
                        self.depfile = Some(name);
                    }
                }
                b"-MF" => self.depfile = words.next().or(self.depfile),
                b"-M" | b"-MM" => self.stop(Bypass::Preprocess),
                _ => {}
            }
        }
    }

    fn file(&mut self, path: &'a [u8]) {
        if path == b"-" || path == b"/dev/stdin" {
            self.standard_input = true;
            return;
        }
        match self.language.unwrap_or_else(|| language::of_file(path)) {
            Kind::Linked => {}
            kind => self.sources.push((path, kind)),
        }
    }

    fn mean(self) -> Result<Invocation, Bypass> {
        let source = self.only_source()?;
        let output = match self.output {
            Some(b"-") => return Err(Bypass::OutputToStdout),
            Some(path) if path.starts_with(b"/dev/") => return Err(Bypass::OutputToStdout),
            Some(path) => path.to_vec(),
            None => depfile::default_output(source, self.output_ending),
        };
        Ok(Invocation {
            family: self.family,
            source: source.to_vec(),
            output: Some(output),
            depfile: self.named_depfile(source),
            depfile_has_system_headers: self.dependencies == Some(true),
            asks_processor: self.asks_processor,
            environment: self.family.environment_rule(),
        })
    }

    /// The one source of a command that is ours.
    fn only_source(&self) -> Result<&'a [u8], Bypass> {
        if self.asks_only {
            return Err(Bypass::AsksOnly);
        }
        if let Some(stage) = self.stops {
            return Err(stage);
        }
        if !self.compiles {
            return Err(Bypass::NoCompile);
        }
        if self.standard_input {
            return Err(Bypass::StandardInput);
        }
        if self.architectures.len() > 1 {
            return Err(Bypass::SeveralSources);
        }
        match self.sources[..] {
            [] => Err(Bypass::NoSource),
            [_, _, ..] => Err(Bypass::SeveralSources),
            [(_, Kind::Foreign)] => Err(Bypass::LanguageUnknown),
            [(_, Kind::Interface)] => Err(Bypass::TooHard),
            [_] if self.too_hard => Err(Bypass::TooHard),
            [(source, _)] => Ok(source),
        }
    }

    fn named_depfile(&self, source: &[u8]) -> Option<Vec<u8>> {
        self.dependencies?;
        match self.depfile {
            Some(b"-" | b"") => None,
            Some(name) => Some(name.to_vec()),
            None if self.names_unknown => None,
            None => Some(depfile::default_depfile(source, self.output)),
        }
    }
}
