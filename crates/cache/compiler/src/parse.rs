//! Parses a command line: finds the table row of each argument, and adds the rows up to an
//! [`Invocation`] or a `Bypass`.
//!
//! Unaware of: how a flag is spelled (the tables know), and whether the files exist.

use crate::flag::Meaning;
use crate::language::{self, SourceKind};
use crate::response::{self, ResponseFiles};
use crate::table::{self, Value};
use crate::{Family, Invocation, Stage, StandardInput, binutils, depfile, rust};
use larder_model::{Bypass, contains};

/// Parses `arguments`, which do not contain `argv[0]`.
///
/// Returns the reason for a bypass if the result cannot be repeated from a record, or if a response
/// file cannot be read.
pub fn parse(family: Family, arguments: &[Vec<u8>], files: &dyn ResponseFiles) -> Result<Invocation, Bypass> {
    match family {
        Family::Command => return Ok(any_command(arguments)),
        Family::Binutils | Family::Rustc if binutils::ask_for_statistics(arguments, files) => {
            return Err(Bypass::TooHard);
        }
        Family::Binutils => return Ok(binutils::parse(arguments)),
        Family::Rustc => return rust::parse(arguments),
        Family::Gcc | Family::Clang | Family::Generic => {}
    }
    let arguments = response::expand(arguments, files)?;
    let mut typed = Typed { output_ending: b".o", ..Typed::default() };
    let mut words = arguments.iter().map(Vec::as_slice);
    while let Some(word) = words.next() {
        if typed.only_files || !word.starts_with(b"-") || word == b"-" {
            typed.file(word);
        } else if let Some(found) = table::find(word) {
            let value = match found.value {
                Value::None => b"",
                Value::Here(value) => value,
                Value::Next => words.next().unwrap_or_default(),
            };
            typed.flag(found.meaning, value);
        }
    }
    typed.standard_input |= pass_on_standard_input(&arguments);
    typed.too_hard |= binutils::ask_for_statistics(&arguments, files);
    typed.asks_processor |= family == Family::Generic || arguments.iter().any(|word| names_native(word));
    typed.mean(family)
}

/// Returns the invocation of an arbitrary command. Nothing is known about it, so all that it does
/// is observed, and whatever cannot be observed is in its key.
fn any_command(arguments: &[Vec<u8>]) -> Invocation {
    let file = arguments.iter().find(|word| !word.starts_with(b"-"));
    Invocation {
        source: file.cloned().unwrap_or_default(),
        asks_processor: true,
        standard_input: StandardInput::Unknown,
        ..Invocation::of(Family::Command)
    }
}

/// Returns true if an argument makes a part of the compiler read standard input. For example,
/// `-Wa,-` gives the assembler the file `-`, and so does `-Xassembler -`.
fn pass_on_standard_input(arguments: &[Vec<u8>]) -> bool {
    let is_list = |word: &[u8]| [&b"-Wa,"[..], b"-Wl,", b"-Wp,"].iter().any(|start| word.starts_with(start));
    let is_in_list = |word: &[u8]| is_list(word) && word.split(|&byte| byte == b',').any(|part| part == b"-");
    let is_read = |word: &[u8]| is_in_list(word) || word.starts_with(b"-f") && word.ends_with(b"=-");
    let is_handed_on = |pair: &[Vec<u8>]| pair[0].starts_with(b"-X") && pair[1] == b"-";
    arguments.iter().any(|word| is_read(word)) || arguments.windows(2).any(is_handed_on)
}

/// Returns true if the argument may be or contain `-march=native` or a similar flag, wherever it
/// stands. A false positive costs hits on other processors; a false negative would give wrong
/// results.
fn names_native(word: &[u8]) -> bool {
    word == b"native" || contains(word, "=native")
}

/// The sum of the flags and files seen so far.
#[derive(Default)]
struct Typed<'a> {
    only_files: bool,
    /// `-c`: stops after making an object file of each source.
    compiles: bool,
    /// `-E`, `-S` and similar: no object file is made.
    stops_early: bool,
    too_hard: bool,
    asks_processor: bool,
    language: Option<SourceKind>,
    sources: Vec<(&'a [u8], SourceKind)>,
    /// Files that only the linker reads.
    linked: Vec<&'a [u8]>,
    standard_input: bool,
    output: Option<&'a [u8]>,
    output_ending: &'static [u8],
    /// A depfile is requested.
    dependencies: bool,
    depfile: Option<&'a [u8]>,
    names_unknown: bool,
}

impl<'a> Typed<'a> {
    fn flag(&mut self, meaning: Meaning, value: &'a [u8]) {
        match meaning {
            Meaning::Bitcode => self.output_ending = b".bc",
            Meaning::Compile => self.compiles = true,
            Meaning::Depfile => self.dependencies = true,
            Meaning::DepfileName => self.depfile = Some(value),
            Meaning::DumpName => self.names_unknown = true,
            Meaning::EndOfFlags => self.only_files = true,
            Meaning::FrontEnd => self.front_end(value),
            Meaning::Language => self.language = language::of_name(value),
            Meaning::Dependencies | Meaning::Preprocess | Meaning::StopsEarly => self.stops_early = true,
            Meaning::Output => self.output = Some(value),
            Meaning::PassOn | Meaning::Statistics => {}
            Meaning::PreprocessorList => self.preprocessor_list(value),
            Meaning::Processor => self.asks_processor = true,
            Meaning::TooHard => self.too_hard = true,
        }
    }

    /// Handles an argument that the driver passes to the preprocessor, which is the compiler proper
    /// in gcc, to clang's front end or to LLVM. Only flags that decide about a bypass, the processor
    /// or the stage matter.
    fn front_end(&mut self, value: &'a [u8]) {
        match table::find(value).map(|found| found.meaning) {
            Some(Meaning::Statistics | Meaning::TooHard) => self.too_hard = true,
            Some(Meaning::Processor) => self.asks_processor = true,
            Some(Meaning::Dependencies | Meaning::Preprocess | Meaning::StopsEarly) => self.stops_early = true,
            _ => {}
        }
    }

    /// Handles `-Wp,-MD,file` and similar: the preprocessor itself takes the depfile's path as the
    /// next word.
    fn preprocessor_list(&mut self, list: &'a [u8]) {
        let mut words = list.split(|&c| c == b',').peekable();
        while let Some(word) = words.next() {
            match word {
                b"-MD" | b"-MMD" => {
                    self.dependencies = true;
                    if let Some(name) = words.next_if(|next| !next.starts_with(b"-")) {
                        self.depfile = Some(name);
                    }
                }
                b"-MF" => self.depfile = words.next().or(self.depfile),
                _ => self.front_end(word),
            }
        }
    }

    fn file(&mut self, path: &'a [u8]) {
        if path == b"-" {
            self.standard_input = true;
            return;
        }
        match self.language.unwrap_or_else(|| language::of_file(path)) {
            SourceKind::Linked => self.linked.push(path),
            kind => self.sources.push((path, kind)),
        }
    }

    fn mean(self, family: Family) -> Result<Invocation, Bypass> {
        let interface = self.sources.iter().any(|(_, kind)| *kind == SourceKind::Interface);
        // clang writes the mtimes of headers into a precompiled header or module; gcc does not.
        if self.too_hard || interface && family != Family::Gcc && !self.stops_early {
            return Err(Bypass::TooHard);
        }
        let source = self.sources.first().map(|(path, _)| *path).or(self.linked.first().copied()).unwrap_or_default();
        Ok(Invocation {
            family,
            stage: match (self.stops_early, self.compiles) {
                (true, _) => Stage::Early,
                (false, true) => Stage::Object,
                (false, false) => Stage::End,
            },
            source: source.to_vec(),
            output: self.named_output(source),
            depfile: self.named_depfile(source),
            asks_processor: self.asks_processor,
            standard_input: match family {
                _ if self.standard_input => StandardInput::Read,
                Family::Generic => StandardInput::Perhaps,
                _ => StandardInput::Unread,
            },
        })
    }

    fn named_output(&self, source: &[u8]) -> Option<Vec<u8>> {
        match self.output {
            Some(b"-" | b"") => None,
            Some(path) => Some(path.to_vec()),
            None if self.compiles && !self.stops_early && self.sources.len() == 1 => {
                Some(depfile::default_output(source, self.output_ending))
            }
            None => None,
        }
    }

    fn named_depfile(&self, source: &[u8]) -> Option<Vec<u8>> {
        if !self.dependencies || self.sources.len() != 1 {
            return None;
        }
        match self.depfile {
            Some(b"-" | b"") => None,
            Some(name) => Some(name.to_vec()),
            None if self.names_unknown => None,
            None => Some(depfile::default_depfile(source, self.output)),
        }
    }
}
