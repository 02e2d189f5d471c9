//! From the program and its arguments to an Action and its weak fingerprint, or the reason why it is not ours.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use larder_compiler::{
    Family, Invocation, ResponseFiles, StandardInput, Told, binutils_input, environment, family_of, habit, is_source,
    parse, runs_no_script,
};
use larder_model::{
    ALL_VARIABLES, Action, Bypass, Digest, Fingerprint, HOST, Roots, SOCKETS, Terminal, Times, UMASK, ValueKey,
    Variable,
};
use larder_spawn::{Command, Destinations};
use larder_store::{Anywhere, Forms, Stamps, Uncut};
use larder_sys::TerminalSize;

use crate::paths::{absolute, beside, is_in, places_of};
use crate::roots::{self, RootRules};
use crate::scope::Scope;
use crate::{Tool, relocated};

/// A larger response file is not read.
const RESPONSE_FILE_BYTES_MAX: u64 = 16 << 20;

/// The first object of a link is in its key up to this size: those of a `./configure` have a few kilobytes.
const KEYED_OBJECT_BYTES_MAX: u64 = 64 << 10;

/// Where a command runs: what it was started with, read once.
pub struct Place {
    /// The environment, as pairs.
    pub environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// What else stands in the environment: entries without a `=`, which only pass through.
    pub oddities: Vec<Vec<u8>>,
    /// The working directory, links resolved.
    pub cwd: Vec<u8>,
    /// What was set about roots.
    pub roots: RootRules,
    /// What one sandbox made may serve in another although it holds the path of the first.
    pub ephemeral: bool,
    /// What the caller says of the command.
    pub scope: Scope,
    /// Where its messages go.
    pub destinations: Destinations,
    /// This process ignores SIGPIPE by its own doing, as Rust's start has it: the command would not.
    pub ignores_sigpipe_itself: bool,
}

/// A command that is ours to cache.
pub struct Request {
    /// As it is started.
    pub command: Command,
    /// Whose rules apply.
    pub family: Family,
    /// What the arguments mean.
    pub invocation: Invocation,
    /// What is keyed.
    pub action: Action,
    /// The roots of this place.
    pub roots: Roots,
    /// The action's weak fingerprint.
    pub weak: Fingerprint,
    /// The key of the digests of variables' values in the action's records.
    pub value_key: ValueKey,
    /// What stands on standard input, where that is keyed.
    pub input: Vec<u8>,
    /// Standard input is a terminal, and the command is to find nothing to read.
    pub is_kept_from_terminal: bool,
    /// What the caller says of the command.
    pub scope: Scope,
}

/// Standard input, as far as it is keyed.
enum Keyed {
    Unread,
    Nothing,
    Bytes(Vec<u8>),
    /// A file of these bytes, and when it was modified: whoever reads it may ask.
    File(Vec<u8>, i64),
    /// Not read, but asked for its size.
    Terminal(TerminalSize),
}

impl Keyed {
    fn key(&self, roots: &Roots) -> Vec<u8> {
        match self {
            Keyed::Unread => Vec::new(),
            Keyed::Nothing => b"nothing".to_vec(),
            Keyed::Bytes(bytes) => Digest::of(&roots.encode_text(bytes)).0.to_vec(),
            Keyed::File(bytes, modified_ns) => {
                [&Digest::of(&roots.encode_text(bytes)).0[..], &modified_ns.to_le_bytes()].concat()
            }
            Keyed::Terminal(size) => format!("terminal of {} columns", size.columns).into_bytes(),
        }
    }

    fn bytes(self) -> Vec<u8> {
        match self {
            Keyed::Bytes(bytes) | Keyed::File(bytes, _) => bytes,
            Keyed::Unread | Keyed::Nothing | Keyed::Terminal(_) => Vec::new(),
        }
    }
}

fn read_standard_input(reads: StandardInput) -> Result<Keyed, Bypass> {
    if reads == StandardInput::Unread {
        return Ok(Keyed::Unread);
    }
    match larder_sys::standard_input(reads == StandardInput::Read) {
        Ok(larder_sys::Input::Nothing) => Ok(Keyed::Nothing),
        Ok(larder_sys::Input::Bytes(bytes)) => Ok(Keyed::Bytes(bytes)),
        // A script in a compiler's place is seldom told what to read, and seldom reads.
        Ok(larder_sys::Input::Open) | Err(_) if reads == StandardInput::Perhaps => Ok(Keyed::Unread),
        Ok(larder_sys::Input::Open) | Err(_) => Err(Bypass::StandardInput),
    }
}

/// Whether the program at this path may write down when its inputs were modified, as `gzip` does.
fn may_write_down_times(program: &[u8]) -> bool {
    habit(file_name(program), Told::nothing()).times >= Times::Inputs
}

fn known_family(tool: &Tool, argv: &[Vec<u8>]) -> Option<Family> {
    let name = argv.first().map(|name| file_name(name)).unwrap_or_default();
    family_of(name).or_else(|| family_of(file_name(&tool.path)))
}

/// Response files as they are on disk, relative ones in the working directory that it holds.
pub struct FromDisk<'a>(pub &'a [u8]);

impl ResponseFiles for FromDisk<'_> {
    fn read(&self, path: &[u8]) -> Option<Vec<u8>> {
        let path = Path::new(OsStr::from_bytes(self.0)).join(OsStr::from_bytes(path));
        let meta = std::fs::metadata(&path).ok()?;
        if !meta.is_file() || meta.len() > RESPONSE_FILE_BYTES_MAX {
            return None;
        }
        std::fs::read(path).ok()
    }
}

impl Place {
    /// A variable's value.
    pub fn variable(&self, name: &[u8]) -> Option<&[u8]> {
        self.environment.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_slice())
    }

    /// What an observation of this name is about: a variable, or another thing that a process inherits.
    pub fn asked(&self, name: &[u8]) -> Option<Vec<u8>> {
        match name {
            b"" => Some(self.whole_environment()),
            UMASK => Some(format!("{:o}", larder_sys::umask()).into_bytes()),
            HOST => Some(larder_sys::host()),
            SOCKETS => Some(larder_sys::sockets()),
            ALL_VARIABLES => Some(self.environment_block().join(&b'\n')),
            name => self.variable(name).map(<[u8]>::to_vec),
        }
    }

    /// All variables that a program which reads them unasked could see, as one value for an observation: that of no
    /// name. What differs between equal builds by nature is left out, as in an unknown tool's key.
    pub fn whole_environment(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for variable in environment(Family::Generic, &self.environment) {
            for part in [&variable.name[..], b"=", &variable.value, b"\n"] {
                bytes.extend_from_slice(part);
            }
        }
        bytes
    }

    /// The environment as a program receives it.
    pub fn environment_block(&self) -> Vec<Vec<u8>> {
        let pairs = self.environment.iter().map(|(name, value)| [name, &b"="[..], value].concat());
        pairs.chain(self.oddities.iter().cloned()).collect()
    }

    /// `PWD` where it names the working directory by another path than the kernel does.
    fn apparent_cwd(&self) -> Option<Vec<u8>> {
        let pwd = self.variable(b"PWD")?;
        if pwd == self.cwd || pwd.first() != Some(&b'/') {
            return None;
        }
        let (named, actual) = (larder_sys::look_through(pwd).ok()?, larder_sys::look_through(b".").ok()?);
        ((named.device, named.inode) == (actual.device, actual.inode)).then(|| pwd.to_vec())
    }

    fn terminal(&self) -> Terminal {
        let Destinations { stdout, stderr, .. } = self.destinations;
        match stderr.or(stdout) {
            None => Terminal::None,
            Some(size) => Terminal::Some {
                stdout: stdout.is_some(),
                stderr: stderr.is_some(),
                columns: size.columns,
                rows: size.rows,
            },
        }
    }
}

impl Request {
    /// Understand `argv`, which starts `tool` in `place`, where it is a tool that larder knows.
    pub fn new(tool: Tool, argv: Vec<Vec<u8>>, place: &Place, stamps: &Stamps) -> Result<Request, Bypass> {
        let family = known_family(&tool, &argv).ok_or(Bypass::UnknownTool)?;
        Request::of_family(family, tool, argv, place, stamps)
    }

    /// The same of any command.
    pub fn of_any_command(tool: Tool, argv: Vec<Vec<u8>>, place: &Place, stamps: &Stamps) -> Result<Request, Bypass> {
        let family = known_family(&tool, &argv).unwrap_or(Family::Command);
        Request::of_family(family, tool, argv, place, stamps)
    }

    fn of_family(
        family: Family,
        tool: Tool,
        argv: Vec<Vec<u8>>,
        place: &Place,
        stamps: &Stamps,
    ) -> Result<Request, Bypass> {
        if argv.iter().any(|argument| names_a_descriptor(argument)) {
            return Err(Bypass::OutputToStdout);
        }
        if !matches!(family, Family::Gcc | Family::Clang | Family::Binutils) && larder_sys::more_descriptors_are_open()
        {
            return Err(Bypass::OpenDescriptor);
        }
        if family == Family::Command
            && (an_output_is_an_input(&argv[1..], &place.destinations) || may_read_its_output(&argv, place))
        {
            return Err(Bypass::OutputToStdout);
        }
        let content = content(&tool, stamps).ok_or(Bypass::CannotObserve)?;
        // A script reads its environment without asking libc for it, whatever it is called.
        let family = match family {
            Family::Gcc | Family::Clang if content.is_script => Family::Generic,
            Family::Binutils if content.is_script => Family::Command,
            family => family,
        };
        let invocation = parse(family, &argv[1..], &FromDisk(&place.cwd))?;
        let asks_processor = invocation.asks_processor || place.environment.iter().any(|(n, _)| n.starts_with(b"CCC_"));
        let action = Action {
            family: family.name(),
            tool: content.digest,
            tool_path: absolute(&place.cwd, &tool.path),
            argv: argv.clone(),
            cwd: place.cwd.clone(),
            apparent_cwd: place.apparent_cwd(),
            environment: keyed(family, place),
            terminal: place.terminal(),
            processor: if asks_processor { larder_sys::processor_features() } else { Vec::new() },
            inherited: match family {
                Family::Command | Family::Generic => {
                    Digest::of(&larder_sys::inherited(place.ignores_sigpipe_itself)).0.to_vec()
                }
                Family::Gcc | Family::Clang | Family::Binutils => Vec::new(),
            },
            standard_input: Vec::new(),
            source: None,
        };
        let mut told = Cow::Borrowed(&argv[1..]);
        if family == Family::Command {
            // Where a build directory's sources are: `../src/configure`, `cmake ../src`.
            let sources = argv.iter().filter(|word| word.starts_with(b".."));
            told.to_mut().extend(sources.map(|word| beside(&place.cwd, word)));
        }
        let roots = roots::find(place, action.apparent_cwd.as_deref(), &told, stamps);
        let environment = place.scope.apply(action.environment, &place.environment, &roots);
        let action = Action { environment, ..action };
        let reads = match family {
            Family::Binutils => binutils_input(file_name(&action.tool_path), &argv[1..]),
            _ => invocation.standard_input,
        };
        let is_kept_from_terminal =
            family == Family::Command && place.scope.no_terminal && larder_sys::standard_input_is_terminal();
        let input = if is_kept_from_terminal { Keyed::Nothing } else { read_standard_input(reads)? };
        let input = match input {
            Keyed::Unread if may_ask_for_width(family, &action) => {
                larder_sys::standard_input_size().map_or(Keyed::Unread, Keyed::Terminal)
            }
            Keyed::Bytes(bytes) if family == Family::Command && may_write_down_times(&tool.path) => {
                match larder_sys::standard_input_modified() {
                    Some(modified_ns) => Keyed::File(bytes, modified_ns),
                    None => Keyed::Bytes(bytes),
                }
            }
            input => input,
        };
        let source = first_source(family, &invocation, &place.cwd, &roots, stamps);
        let action = Action { standard_input: input.key(&roots), source, ..action };
        let (weak, value_key) = action.keys(&roots);
        let command = Command::new(tool.path, argv, place.environment_block());
        let scope = place.scope.clone();
        Ok(Request {
            command,
            family,
            invocation,
            action,
            roots,
            weak,
            value_key,
            input: input.bytes(),
            is_kept_from_terminal,
            scope,
        })
    }

    /// What the first source holds now, as far as it is keyed.
    pub fn first_source(&self, stamps: &Stamps) -> Option<Digest> {
        first_source(self.family, &self.invocation, &self.action.cwd, &self.roots, stamps)
    }

    /// Whether it runs in one of Bazel's sandboxes.
    pub(crate) fn is_in_a_sandbox(&self) -> bool {
        roots::is_sandbox(&self.action.cwd)
    }

    /// Whether a compiler's driver makes a program of what it is given.
    pub fn links(&self) -> bool {
        links(self.family, &self.invocation)
    }

    /// An object as it is in no place.
    pub fn object_anywhere(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        relocated::object_anywhere(bytes, &self.roots)
    }

    /// What the files that it reads count for. Objects for what they are in no place (`object` is
    /// [`Request::object_anywhere`]) where a driver links: it takes them as they are, and brings their debug information
    /// into a program in a way that is known. autoconf's `config.status` in pieces that no path cuts (`uncut` is
    /// [`relocated::uncut`] of some files) where a whole command runs it.
    pub fn forms<'f>(&self, object: Anywhere<'f>, uncut: Uncut<'f>) -> Forms<'f> {
        let is_command = self.family == Family::Command;
        Forms { object: self.links().then_some(object), uncut: if is_command { uncut } else { Forms::NONE.uncut } }
    }

    /// A path of the command line, made absolute.
    pub fn absolute(&self, path: &[u8]) -> Vec<u8> {
        absolute(&self.action.cwd, path)
    }

    /// What messages call the command: its source, or else its tool.
    pub fn subject(&self) -> &[u8] {
        let source = &self.invocation.source;
        if source.is_empty() || self.family == Family::Command { &self.action.argv[0] } else { source }
    }
}

/// Whether gcc, or a script that may run it, breaks lines at the width of the terminal that standard input is: in messages
/// on a terminal, and in answers to questions.
fn may_ask_for_width(family: Family, action: &Action) -> bool {
    let is_question = |word: &Vec<u8>| word.starts_with(b"--help") || word == b"--target-help";
    matches!(family, Family::Gcc | Family::Generic)
        && (action.terminal != Terminal::None || action.argv.iter().any(is_question))
}

fn links(family: Family, invocation: &Invocation) -> bool {
    matches!(family, Family::Gcc | Family::Clang) && invocation.stage == larder_compiler::Stage::End
}

/// What tells apart the probes of a `./configure`, which share a command line: what the first source holds, or the
/// first object of a link, so that they do not push each other out of one record.
fn first_source(family: Family, invocation: &Invocation, cwd: &[u8], roots: &Roots, stamps: &Stamps) -> Option<Digest> {
    if !matches!(family, Family::Gcc | Family::Clang) {
        return None;
    }
    let path = absolute(cwd, &invocation.source);
    if is_source(&path) {
        return larder_store::content_anywhere(&path, roots, stamps);
    }
    if links(family, invocation) && path.ends_with(b".o") { object_content(&path, roots) } else { None }
}

/// What a small object holds, as it would in no place.
fn object_content(path: &[u8], roots: &Roots) -> Option<Digest> {
    let is_small =
        |look: &larder_sys::Look| look.kind == larder_sys::Kind::File && look.size_bytes <= KEYED_OBJECT_BYTES_MAX;
    larder_sys::look_through(path).ok().filter(is_small)?;
    let bytes = std::fs::read(OsStr::from_bytes(path)).ok()?;
    let anywhere = relocated::object_anywhere(&bytes, roots);
    Some(Digest::of(&anywhere.unwrap_or_else(|| roots.encode_text(&bytes))))
}

/// Whether an argument names one of the descriptors that we keep a copy of, or standard input.
fn names_a_descriptor(argument: &[u8]) -> bool {
    const NAMES: [&[u8]; 5] = [b"/dev/stdin", b"/dev/stdout", b"/dev/stderr", b"/dev/fd/", b"/proc/self/fd/"];
    argument.contains(&b'/') && NAMES.iter().any(|name| places_of(argument, name).next().is_some())
}

/// Whether standard output or error is a file that the command reads as well, or both are one file by two descriptors.
/// Tools look for that, and see a pipe instead.
fn an_output_is_an_input(arguments: &[Vec<u8>], to: &Destinations) -> bool {
    let identity = |look: larder_sys::Look| (look.kind == larder_sys::Kind::File).then_some((look.device, look.inode));
    let standard = |fd| larder_sys::standard_look(fd).ok().and_then(identity);
    let (input, output, error) = (standard(0), standard(1), standard(2));
    let is_output = |file: Option<(u64, u64)>| file.is_some() && (file == output || file == error);
    let named = |path: &Vec<u8>| larder_sys::look_through(path).ok().and_then(identity);
    is_output(input)
        || output.is_some() && output == error && !to.same
        || (output.or(error).is_some() && arguments.iter().any(|path| is_output(named(path))))
}

/// Whether standard output or error is a file in the working directory, and the command is one that reads whatever files
/// it finds there (`grep -r x . > all`), or has that file's name in an argument (`sh -c 'cat all' >> all`). Such a tool
/// looks for its own output among what it reads, sees a pipe instead, and would read what it writes for ever.
fn may_read_its_output(argv: &[Vec<u8>], place: &Place) -> bool {
    let is_here = |fd: i32| {
        let path = larder_sys::link_target(format!("/proc/self/fd/{fd}").as_bytes()).ok()?;
        let is_file = larder_sys::standard_look(fd).is_ok_and(|look| look.kind == larder_sys::Kind::File);
        (is_file && is_in(&path, &place.cwd)).then_some(path)
    };
    [1, 2].into_iter().filter_map(is_here).any(|path| {
        let name = file_name(&path);
        runs_no_script(file_name(&argv[0])) || argv[1..].iter().any(|word| places_of(word, name).next().is_some())
    })
}

fn keyed(family: Family, place: &Place) -> Vec<Variable> {
    environment(family, &place.environment)
}

struct ToolContent {
    digest: Digest,
    is_script: bool,
}

/// The tool's content, from its stamp where that is known. Scripts are told by their first bytes, so a known binary is
/// not opened at all: a script's digest is kept apart by a bit of its own.
fn content(tool: &Tool, stamps: &Stamps) -> Option<ToolContent> {
    let known = stamps.content(&tool.look);
    // A program of this size is no script; smaller ones are looked into.
    const SCRIPT_BYTES_MAX: u64 = 256 << 10;
    if let Some(digest) = known
        && tool.look.size_bytes > SCRIPT_BYTES_MAX
    {
        return Some(ToolContent { digest, is_script: false });
    }
    let mut file = File::open(Path::new(OsStr::from_bytes(&tool.path))).ok()?;
    let digest = match known {
        Some(digest) => digest,
        None => stamps.hash(&mut file).ok()?,
    };
    let mut start = [0; 2];
    let count = std::os::unix::fs::FileExt::read_at(&file, &mut start, 0).ok()?;
    Some(ToolContent { digest, is_script: start[..count] == *b"#!" })
}

/// What a command is about, for finding the record nearest to it: the source, or else the tool, and the output, without
/// the flags.
pub fn subject(request: &Request) -> Digest {
    let mut bytes = Vec::new();
    request.roots.encode_path(&request.action.cwd, &mut bytes);
    let source = Some(&request.invocation.source).filter(|source| !source.is_empty());
    for part in [source.or(request.action.argv.first()), request.invocation.output.as_ref()] {
        bytes.push(b'\n');
        bytes.extend(part.map(|part| request.roots.encode_text(part)).unwrap_or_default());
    }
    Digest::of(&bytes)
}

pub(crate) fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&b| b == b'/').next().unwrap_or(path)
}
