//! Turns a program and its arguments into an Action (all that the key covers) and its weak
//! fingerprint (the key), or into the reason why larder does not cache the command.

use std::borrow::Cow;

use larder_compiler::{
    Family, Invocation, ResponseFiles, Rust, StandardInput, Told, binutils_input, environment, habit, is_source, parse,
    runs_no_script, variable_asks_for_statistics,
};
use larder_model::path::{absolute, file_name, is_in, without_parents};
use larder_model::{Action, Bypass, Digest, Fingerprint, Roots, Terminal, Times, ValueKey, Variable};
use larder_portability::{compares_dates, names_files};
use larder_spawn::{Command, Destinations};
use larder_store::{Anywhere, Forms, StatCache, Uncut, Words};
use larder_sys::{FileType, Opening, TerminalSize};

use crate::build_file::build_file;
use crate::place::Place;
use crate::scope::Scope;
use crate::search_path::{reduced, system_part};
use crate::substring::places_of;
use crate::{Tool, relocated, roots, rust};

/// The words that are searched for in inputs.
const WORDS: Words = Words { names_files, compares_dates };
/// Response files larger than this are not read, in bytes.
const RESPONSE_FILE_BYTES_MAX: u64 = 16 << 20;

/// The first object of a link is part of the key if it has at most this many bytes. Objects of
/// `./configure` probes have a few kilobytes.
const KEYED_OBJECT_BYTES_MAX: u64 = 64 << 10;

/// A command that larder can cache.
pub struct Request {
    /// The program, arguments and environment to start it with.
    pub command: Command,
    /// The family of tools whose rules apply.
    pub family: Family,
    /// The meaning of the arguments.
    pub invocation: Invocation,
    /// Everything that the key covers.
    pub action: Action,
    /// The roots that are replaced in the key and in records.
    pub roots: Roots,
    /// The weak fingerprint: the key under which manifests are stored.
    pub weak: Fingerprint,
    /// The key by which values of variables are hashed in the records of this action.
    pub value_key: ValueKey,
    /// The bytes on standard input, if they are part of the key.
    pub input: Vec<u8>,
    /// True if standard input is a terminal and `--no-terminal` was given, so that the tool gets an
    /// empty standard input.
    pub is_kept_from_terminal: bool,
    /// True if standard input is a terminal at which nothing was typed yet. A run is recorded only
    /// if it reads nothing from it.
    pub watches_terminal: bool,
    /// The options of `larder run`.
    pub scope: Scope,
    /// True if the tool is a build script of cargo.
    pub is_build_script: bool,
}

/// Standard input, as far as it is part of the key.
enum Keyed {
    Unread,
    Nothing,
    Bytes(Vec<u8>),
    /// A file of these bytes and its mtime in nanoseconds, because the tool may record that mtime.
    File(Vec<u8>, i64),
    /// Not read, but the tool may ask it for its size.
    Terminal(TerminalSize),
    /// A terminal that a recorded run did not read, with all that the tool may ask it for.
    Untyped(Vec<u8>),
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
            Keyed::Untyped(settings) => [b"untyped terminal ", &settings[..]].concat(),
        }
    }

    fn bytes(self) -> Vec<u8> {
        match self {
            Keyed::Bytes(bytes) | Keyed::File(bytes, _) => bytes,
            Keyed::Unread | Keyed::Nothing | Keyed::Terminal(_) | Keyed::Untyped(_) => Vec::new(),
        }
    }
}

/// Returns the state of the terminal on standard input, if nothing was typed at it yet.
fn untyped_terminal() -> Option<Keyed> {
    larder_sys::standard_input_awaits_typing().then(larder_sys::standard_input_settings)?.map(Keyed::Untyped)
}

fn read_standard_input(reads: StandardInput) -> Result<Keyed, Bypass> {
    if reads == StandardInput::Unread {
        return Ok(Keyed::Unread);
    }
    match larder_sys::standard_input(reads == StandardInput::Read) {
        Ok(larder_sys::Input::Nothing) => Ok(Keyed::Nothing),
        Ok(larder_sys::Input::Bytes(bytes)) => Ok(Keyed::Bytes(bytes)),
        // A script with a compiler's name seldom has anything on standard input, and seldom reads
        // it.
        Ok(larder_sys::Input::Open) | Err(_) if reads == StandardInput::Perhaps => Ok(Keyed::Unread),
        Ok(larder_sys::Input::Open) | Err(_) => Err(Bypass::StandardInput),
    }
}

/// Returns true if the program at this path may write the mtimes of its inputs into its output, as
/// `gzip` does.
fn may_write_down_times(program: &[u8]) -> bool {
    habit(file_name(program), Told::nothing()).times >= Times::Inputs
}

/// Returns the family of a script that is named like a tool of `family`. A script reads its
/// environment without calls to libc that we could see. So a script named `gcc` counts as an
/// unknown tool.
fn family_of_script(family: Family) -> Family {
    match family {
        Family::Gcc | Family::Clang => Family::Generic,
        Family::Binutils | Family::Rustc => Family::Command,
        family => family,
    }
}

/// Returns an error if the command uses descriptors in a way that larder does not reproduce.
fn check_descriptors(family: Family, argv: &[Vec<u8>], place: &Place) -> Result<(), Bypass> {
    if argv.iter().any(|argument| names_a_descriptor(argument)) {
        return Err(Bypass::OutputToStdout);
    }
    // cargo gives rustc the descriptors of its job server, and rustc uses no others.
    if family.keys_whole_environment() && larder_sys::more_descriptors_are_open() {
        return Err(Bypass::OpenDescriptor);
    }
    if family == Family::Command
        && (an_output_is_an_input(&argv[1..], &place.destinations) || may_read_its_output(argv, place))
    {
        return Err(Bypass::OutputToStdout);
    }
    Ok(())
}

/// Returns the words of a command line that may name roots. For a whole command, a relative path
/// outside of the build tree is added as an absolute one, because it names the sources. For
/// example, `../src/configure` or `cmake ../src`.
fn words_for_roots<'a>(family: Family, argv: &'a [Vec<u8>], place: &Place) -> Cow<'a, [Vec<u8>]> {
    let mut words = Cow::Borrowed(&argv[1..]);
    if family == Family::Command {
        let sources = argv.iter().filter(|word| word.starts_with(b".."));
        words.to_mut().extend(sources.map(|word| without_parents(&absolute(&place.cwd, word))));
    }
    words
}

/// Reads response files from disk. The field is the working directory, for relative paths.
pub struct FromDisk<'a>(pub &'a [u8]);

impl ResponseFiles for FromDisk<'_> {
    fn read(&self, path: &[u8]) -> Option<Vec<u8>> {
        let path = absolute(self.0, path);
        larder_sys::stat(&path).ok().filter(|stat| stat.kind == FileType::File)?;
        larder_sys::read_at_most(&path, RESPONSE_FILE_BYTES_MAX).ok()?
    }
}

impl Request {
    /// Makes a request of the command `argv`, which starts `tool`. Only families of tools that
    /// larder knows are accepted.
    pub fn new(tool: Tool, argv: Vec<Vec<u8>>, place: &Place, stat_cache: &StatCache) -> Result<Request, Bypass> {
        let family = tool.family(&argv).ok_or(Bypass::UnknownTool)?;
        Request::of_family(family, tool, argv, place, stat_cache)
    }

    /// Makes a request of any command, for `larder run`. A tool of an unknown family gets
    /// `Family::Command`.
    pub fn of_any_command(
        tool: Tool,
        argv: Vec<Vec<u8>>,
        place: &Place,
        stat_cache: &StatCache,
    ) -> Result<Request, Bypass> {
        let family = tool.family(&argv).unwrap_or(Family::Command);
        Request::of_family(family, tool, argv, place, stat_cache)
    }

    /// Makes a request of a build script of cargo. It belongs to no family of tools, whatever its name
    /// is. For example, cargo calls the build script `gcc.rs` by the name `build-script-gcc`.
    pub fn of_build_script(
        tool: Tool,
        argv: Vec<Vec<u8>>,
        place: &Place,
        stat_cache: &StatCache,
    ) -> Result<Request, Bypass> {
        let request = Request::of_family(Family::Command, tool, argv, place, stat_cache)?;
        Ok(Request { is_build_script: true, ..request })
    }

    fn of_family(
        family: Family,
        tool: Tool,
        argv: Vec<Vec<u8>>,
        place: &Place,
        stat_cache: &StatCache,
    ) -> Result<Request, Bypass> {
        check_descriptors(family, &argv, place)?;
        let content = content(&tool, stat_cache).ok_or(Bypass::CannotObserve)?;
        let family = if content.is_script { family_of_script(family) } else { family };
        let invocation = parse(family, &argv[1..], &FromDisk(&place.cwd))?;
        if place.environment.iter().any(|(name, _)| variable_asks_for_statistics(name)) {
            return Err(Bypass::TooHard);
        }
        let of_rustc = (family == Family::Rustc).then(|| rust::named(&argv));
        if of_rustc.as_ref().is_some_and(|rust| rust::has_session(rust, &place.cwd)) {
            return Err(Bypass::Session);
        }
        let asks_processor = invocation.asks_processor || place.environment.iter().any(|(n, _)| n.starts_with(b"CCC_"));
        let action = Action {
            family: family.name(),
            tool: content.digest,
            tool_path: absolute(&place.cwd, &tool.path),
            argv: argv.clone(),
            cwd: place.cwd.clone(),
            apparent_cwd: place.apparent_cwd(),
            environment: keyed(family, &tool, place, stat_cache),
            terminal: place.terminal(),
            processor: if asks_processor { larder_sys::processor_features() } else { Vec::new() },
            inherited: inherited(family, place),
            standard_input: Vec::new(),
            source: None,
        };
        let roots = match &of_rustc {
            Some(rust) => rust::roots(rust, place),
            None => {
                let told = words_for_roots(family, &argv, place);
                roots::find(place, action.apparent_cwd.as_deref(), &told, links(family, &invocation), stat_cache)
            }
        };
        let environment = place.scope.apply(action.environment, &place.environment, &roots);
        let action = Action { environment, ..action };
        let is_kept_from_terminal =
            family == Family::Command && place.scope.no_terminal && larder_sys::standard_input_is_terminal();
        let input = match is_kept_from_terminal {
            true => Keyed::Nothing,
            false => keyed_input(&invocation, &action, of_rustc.as_ref())?,
        };
        let watches_terminal = matches!(input, Keyed::Untyped(_));
        let source = first_source(family, &argv, &invocation, &place.cwd, &roots, stat_cache);
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
            watches_terminal,
            scope,
            is_build_script: false,
        })
    }

    /// Returns the present digest of the first source, if it is part of the key.
    pub fn first_source(&self, stat_cache: &StatCache) -> Option<Digest> {
        first_source(self.family, &self.action.argv, &self.invocation, &self.action.cwd, &self.roots, stat_cache)
    }

    /// Returns true if the command runs inside one of Bazel's sandboxes.
    pub(crate) fn is_in_a_sandbox(&self) -> bool {
        roots::is_sandbox(&self.action.cwd)
    }

    /// Returns true if a compiler's driver links a program or library.
    pub fn links(&self) -> bool {
        links(self.family, &self.invocation)
    }

    /// Returns the bytes of an object with neutral paths in place of the roots.
    pub fn object_anywhere(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        relocated::object_anywhere(bytes, &self.roots)
    }

    /// Returns how the content of inputs is compared between checkouts.
    ///
    /// - If a compiler's driver links, objects are compared with neutral paths in place of the
    ///   roots (`object`, see [`Request::object_anywhere`]). This is safe because a linker copies
    ///   debug information in a known way.
    /// - For a whole command, autoconf's `config.status` is compared in a form in which no path is
    ///   split (`uncut`, see [`relocated::uncut`]).
    pub fn forms<'f>(&self, object: Anywhere<'f>, uncut: Uncut<'f>) -> Forms<'f> {
        let plain = Forms::plain(WORDS);
        let uncut = if self.family == Family::Command { uncut } else { plain.uncut };
        Forms { object: self.links().then_some(object), uncut, ..plain }
    }

    /// Returns a path of the command line, made absolute.
    pub fn absolute(&self, path: &[u8]) -> Vec<u8> {
        absolute(&self.action.cwd, path)
    }

    /// Returns the word by which messages call the command: its source, or else its tool.
    pub fn subject(&self) -> &[u8] {
        let source = &self.invocation.source;
        if source.is_empty() || self.family == Family::Command { &self.action.argv[0] } else { source }
    }
}

/// Returns the part of the key for what a process inherits without a trace in its environment. Only
/// programs that nothing is known of may use it.
fn inherited(family: Family, place: &Place) -> Vec<u8> {
    if !family.keys_whole_environment() {
        return Vec::new();
    }
    let mut inherited = larder_sys::inherited(place.ignores_sigpipe_itself);
    if family == Family::Generic {
        inherited.extend(larder_sys::signals_and_niceness());
    }
    Digest::of(&inherited).0.to_vec()
}

/// Reads as much of standard input as the key has of it.
fn keyed_input(invocation: &Invocation, action: &Action, of_rustc: Option<&Rust>) -> Result<Keyed, Bypass> {
    let family = invocation.family;
    let reads = match family {
        Family::Binutils => binutils_input(file_name(&action.tool_path), &action.argv[1..]),
        _ => invocation.standard_input,
    };
    let input = match read_standard_input(reads) {
        Err(_) if family == Family::Command => untyped_terminal().ok_or(Bypass::StandardInput)?,
        input => input?,
    };
    Ok(match input {
        Keyed::Unread if may_ask_for_width(family, action) => {
            larder_sys::standard_input_size().map_or(Keyed::Unread, Keyed::Terminal)
        }
        // rustc then shortens the lines that it shows to the width of any terminal.
        Keyed::Unread if of_rustc.is_some_and(|rust| !rust.is_told_width) => {
            let size = larder_sys::standard_input_size().or_else(larder_sys::controlling_terminal_size);
            size.map_or(Keyed::Unread, Keyed::Terminal)
        }
        Keyed::Bytes(bytes) if family == Family::Command && may_write_down_times(&action.tool_path) => {
            match larder_sys::standard_input_modified() {
                Some(modified_ns) => Keyed::File(bytes, modified_ns),
                None => Keyed::Bytes(bytes),
            }
        }
        input => input,
    })
}

/// Returns true if gcc, or a script that may run it, may break lines at the width of the terminal
/// on standard input. It does so for messages on a terminal and for `--help`.
fn may_ask_for_width(family: Family, action: &Action) -> bool {
    let is_question = |word: &Vec<u8>| word.starts_with(b"--help") || word == b"--target-help";
    matches!(family, Family::Gcc | Family::Generic)
        && (action.terminal != Terminal::None || action.argv.iter().any(is_question))
}

fn links(family: Family, invocation: &Invocation) -> bool {
    family.is_gcc_or_clang() && invocation.stage == larder_compiler::Stage::End
}

/// Returns a digest that tells apart commands that differ only in a file's content, such as the
/// probes of `./configure`. Without it, those would push each other out of one manifest. It is the
/// digest of the first source, or of the first object of a link.
fn first_source(
    family: Family,
    argv: &[Vec<u8>],
    invocation: &Invocation,
    cwd: &[u8],
    roots: &Roots,
    stat_cache: &StatCache,
) -> Option<Digest> {
    let anywhere = |path: &[u8]| larder_store::content_anywhere(path, roots, stat_cache, WORDS);
    if family == Family::Command {
        return anywhere(&build_file(argv, cwd)?);
    }
    if !family.is_gcc_or_clang() {
        return None;
    }
    let path = absolute(cwd, &invocation.source);
    if is_source(&path) {
        return anywhere(&path);
    }
    if links(family, invocation) && path.ends_with(b".o") { object_content(&path, roots) } else { None }
}

/// Returns the digest of a small object with neutral paths in place of the roots.
fn object_content(path: &[u8], roots: &Roots) -> Option<Digest> {
    let is_small = |stat: &larder_sys::Stat| stat.kind == FileType::File && stat.size_bytes <= KEYED_OBJECT_BYTES_MAX;
    larder_sys::stat(path).ok().filter(is_small)?;
    let bytes = std::fs::read(larder_sys::as_path(path)).ok()?;
    let anywhere = relocated::object_anywhere(&bytes, roots);
    Some(Digest::of(&anywhere.unwrap_or_else(|| roots.encode_text(&bytes))))
}

/// Returns true if an argument names standard input, or a descriptor that leads to a pipe of ours
/// while the tool runs.
fn names_a_descriptor(argument: &[u8]) -> bool {
    const NAMES: [&[u8]; 5] = [b"/dev/stdin", b"/dev/stdout", b"/dev/stderr", b"/dev/fd/", b"/proc/self/fd/"];
    argument.contains(&b'/') && NAMES.iter().any(|name| places_of(argument, name).next().is_some())
}

/// Returns true if standard output or error is a file that the command reads as well, or if both
/// are one file by two separate opens. Tools check for that, but would see our pipe instead.
fn an_output_is_an_input(arguments: &[Vec<u8>], to: &Destinations) -> bool {
    let identity = |stat: larder_sys::Stat| (stat.kind == FileType::File).then_some(stat.file_id());
    let standard = |fd| larder_sys::standard_stat(fd).ok().and_then(identity);
    let (input, output, error) = (standard(0), standard(1), standard(2));
    let is_output = |file: Option<(u64, u64)>| file.is_some() && (file == output || file == error);
    let named = |path: &Vec<u8>| larder_sys::stat(path).ok().and_then(identity);
    is_output(input)
        || output.is_some() && output == error && !to.same
        || (output.or(error).is_some() && arguments.iter().any(|path| is_output(named(path))))
}

/// Returns true if standard output or error is a file in the working directory and the command may
/// read it. Two kinds of commands may:
///
/// - those that read whatever they find there: `grep -r x . > all`;
/// - those that have the file's name in an argument: `sh -c 'cat all' >> all`.
///
/// Such a tool checks whether an input is its own output. It would see our pipe instead, and read
/// what it writes for ever.
fn may_read_its_output(argv: &[Vec<u8>], place: &Place) -> bool {
    let is_here = |fd: i32| {
        let path = larder_sys::link_target(format!("/proc/self/fd/{fd}").as_bytes()).ok()?;
        let is_file = larder_sys::standard_stat(fd).is_ok_and(|stat| stat.kind == FileType::File);
        (is_file && is_in(&path, &place.cwd)).then_some(path)
    };
    [1, 2].into_iter().filter_map(is_here).any(|path| {
        let name = file_name(&path);
        runs_no_script(file_name(&argv[0])) || argv[1..].iter().any(|word| places_of(word, name).next().is_some())
    })
}

/// Returns the variables that are part of the key. Of `PATH`, a compiler's key has only the
/// directories in which the compiler could find a program, and a command's key only those of the
/// system. What the command looked for in the others is an observation.
fn keyed(family: Family, tool: &Tool, place: &Place, stat_cache: &StatCache) -> Vec<Variable> {
    let mut variables = environment(family, &place.environment);
    if let Some(path) = variables.iter_mut().find(|variable| variable.name == b"PATH") {
        path.value = match family {
            Family::Gcc | Family::Clang => reduced(&path.value, &tool.path, stat_cache),
            Family::Command => system_part(&path.value),
            Family::Binutils | Family::Rustc | Family::Generic => return variables,
        };
    }
    variables
}

struct ToolContent {
    digest: Digest,
    is_script: bool,
}

/// Returns the digest of the tool and whether it is a script. A large program with a known digest
/// is not opened. Smaller ones are opened, because only their first two bytes (`#!`) show that they
/// are scripts.
fn content(tool: &Tool, stat_cache: &StatCache) -> Option<ToolContent> {
    let known = stat_cache.content(&tool.stat);
    // Programs larger than this are taken for binaries, in bytes.
    const SCRIPT_BYTES_MAX: u64 = 256 << 10;
    if let Some(digest) = known
        && tool.stat.size_bytes > SCRIPT_BYTES_MAX
    {
        return Some(ToolContent { digest, is_script: false });
    }
    let mut file = larder_sys::open(&tool.path, Opening::Read).ok()?;
    let digest = match known {
        Some(digest) => digest,
        None => stat_cache.hash(&mut file).ok()?,
    };
    let mut start = [0; 2];
    let count = std::os::unix::fs::FileExt::read_at(&file, &mut start, 0).ok()?;
    Some(ToolContent { digest, is_script: start[..count] == *b"#!" })
}

/// Returns a digest of what the command works on, to find earlier records of it: the source (or
/// else the tool) and the output, but not the flags.
pub fn subject(request: &Request) -> Digest {
    let mut bytes = Vec::new();
    // For rustc the working directory does not count, so that `explain` can compare a crate with the
    // same one of another checkout.
    if request.family != Family::Rustc {
        request.roots.encode_path(&request.action.cwd, &mut bytes);
    }
    let source = Some(&request.invocation.source).filter(|source| !source.is_empty());
    let tool = request.action.argv.first();
    // `cmake -B build .` and `make -C build` work on one directory, but are no earlier records of
    // each other.
    let tool_of_command = tool.filter(|_| request.family == Family::Command);
    for part in [source.or(tool), request.invocation.output.as_ref()].into_iter().chain([tool_of_command]) {
        bytes.push(b'\n');
        bytes.extend(part.map(|part| request.roots.encode_text(part)).unwrap_or_default());
    }
    Digest::of(&bytes)
}
