//! Decides in which checkouts a result can be used: in every checkout of the same build, or only
//! where it was made, and why.
//!
//! Below, a *root path* is a path of this checkout that differs in another one (`lookup::roots`). A
//! result can be used elsewhere if both of these hold:
//!
//! 1. It holds no root path, or each one in it can be rewritten.
//! 2. Nothing in it was derived from a root path. For example, a hash of the path cannot be
//!    rewritten.
//!
//! For a compiler, the second is known if neither its command line nor its inputs hold a root path,
//! or if the preprocessed text holds none. For any other command it is known after it gave the same
//! result in two checkouts. `docs/relocation.md` has the rules.
//!
//! `again` compares with an earlier run, `texts` searches what a compiler read.
//!
//! Unaware of: how a result is found, how it is put in place.

mod again;
mod texts;

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use larder_compiler::{Family, Naming, Stage, is_for_linker, naming, only_preprocesses, writes_dependencies};
use larder_lookup::relocated::rule;
use larder_lookup::{Request, ResponseFilesOnDisk, roots_digest};
use larder_model::{Bound, Looked, Made, PLACEHOLDER, Rewrite};
use larder_observe::without_parents;
use larder_relocate::{can_be_relocated, hides_its_text, holds_a_root, sums_sources};
use larder_spawn::Command;
use larder_store::{Carried, Stamps, names_files};
use memchr::memmem;

use crate::keep::{KeptContent, KeptKind, KeptOutput, KeptStreams, SEARCHED_BYTES_MAX};
use crate::preprocess::{Preprocessed, can_be_expanded, names_expanded, preprocess, stands_bare, what_it_says};
use crate::reach::texts::Texts;
use crate::sink::Sink;
use crate::typed::file_name;

/// Variables that a compiler and its parts read, but whose values never reach a result: search
/// paths for programs, directories for temporary files, and the working directory.
const NO_NAMES: [&[u8]; 9] =
    [b"PATH", b"LD_LIBRARY_PATH", b"TMPDIR", b"TMP", b"TEMP", b"TEMPDIR", b"PWD", b"OLDPWD", b"HOME"];

/// File name extensions of texts that a compiler reads and a linker does not.
const SOURCE_ENDINGS: [&[u8]; 18] = [
    b".c", b".cc", b".cpp", b".cxx", b".C", b".m", b".mm", b".i", b".ii", b".s", b".S", b".h", b".hh", b".hpp",
    b".hxx", b".inc", b".def", b".ipp",
];

/// What is known about a run when this is decided.
pub(crate) struct Reach<'a> {
    pub(crate) sink: &'a Sink<'a>,
    pub(crate) stamps: &'a Stamps,
    pub(crate) request: &'a Request,
    /// The command as it was started.
    pub(crate) command: &'a Command,
    /// The setting `remote_trust`.
    pub(crate) trust: &'a [String],
    /// True if debug information may be rewritten. This is done only if it is exact.
    pub(crate) relocates_debug: bool,
    /// The root paths that the inputs hold.
    pub(crate) carried: &'a Carried,
    /// The variables that the command read, with their values.
    pub(crate) environment: &'a [(Vec<u8>, Option<Vec<u8>>)],
    /// The paths that the command read.
    pub(crate) looked: &'a [(Vec<u8>, Looked)],
    /// True if a program ran that is not a known part of a compiler.
    pub(crate) foreign_program: bool,
    /// True if gcc's `cc1` or `cc1plus` ran. The name `cc` alone may stand for any compiler.
    pub(crate) gcc_ran: bool,
    /// An input with a root path that the assembler itself opened.
    pub(crate) assembled: Option<&'a Vec<u8>>,
    pub(crate) failed: bool,
}

type Bind = (Bound, Vec<u8>);

fn may_be_source(path: &[u8]) -> bool {
    SOURCE_ENDINGS.iter().any(|ending| path.ends_with(ending))
}

/// Returns true for a shared library, by its name (`libc.so.6`) and its first bytes. The
/// preprocessor reads none.
fn is_library(path: &[u8]) -> bool {
    let name = file_name(path);
    let is_version = |rest: &[u8]| rest.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    let is_named = memmem::rfind(name, b".so").is_some_and(|at| is_version(&name[at + 3..]));
    let mut start = [0; 4];
    let mut read = || File::open(Path::new(OsStr::from_bytes(path))).and_then(|mut file| file.read_exact(&mut start));
    is_named && read().is_ok() && start == *b"\x7fELF"
}

fn whole(path: &[u8]) -> Option<Vec<u8>> {
    larder_sys::read_at_most(path, SEARCHED_BYTES_MAX).ok().flatten()
}

/// The decision, and how messages are rewritten elsewhere. How an output is rewritten is stored in
/// the output.
pub(crate) struct Reached {
    pub(crate) made: Made,
    pub(crate) messages: [Rewrite; 2],
}

impl Reach<'_> {
    /// Decides, and sets for each output how it is rewritten elsewhere.
    pub(crate) fn decide(&self, outputs: &mut [KeptOutput], streams: &KeptStreams) -> Reached {
        let made_in = roots_digest(&self.request.roots);
        let mut messages = [Rewrite::None; 2];
        let bound = self.bound(outputs, streams, &mut messages).err();
        if bound.is_some() {
            messages = [Rewrite::None; 2];
            outputs.iter_mut().for_each(|output| output.is_rewritten(Rewrite::None));
        }
        Reached { made: Made { made_in, bound }, messages }
    }

    fn bound(
        &self,
        outputs: &mut [KeptOutput],
        streams: &KeptStreams,
        messages: &mut [Rewrite; 2],
    ) -> Result<(), Bind> {
        let naming = self.naming().filter(|_| !self.foreign_program);
        let compiles = self.request.invocation.compiles();
        if let (Some(Naming { transforms: Some(flag), .. }), true) = (&naming, compiles) {
            return Err((Bound::Flag, flag.clone()));
        }
        let holding = self.holding(outputs, streams);
        if let Some((path, _)) = self.looked.iter().find(|(path, _)| self.request.roots.is_beside(path)) {
            return Err((Bound::Argument, path.clone()));
        }
        let seen_once = (Bound::SeenOnce, Vec::new());
        match naming {
            Some(naming) if compiles => self.compiled(&naming, &holding, outputs, streams, messages),
            // The option may make the linker print or write sizes, which change when paths are
            // rewritten. An example is `-Map`.
            Some(Naming { talkative: Some(word), .. }) if holding.any() || self.carried.objects => {
                Err((Bound::Flag, word))
            }
            Some(naming) if self.is_plain_link(&naming) => {
                self.compiled(&naming, &holding, outputs, streams, messages).map_err(|_| seen_once)
            }
            Some(_) => Err(seen_once),
            None => {
                let known = self.request.family == Family::Binutils && !self.foreign_program;
                let named = self.arguments_name_us() || self.environment_names_us();
                let free = !named && self.carried.rooted.is_empty() && !holding.any();
                if known && free { Ok(()) } else { Err(seen_once) }
            }
        }
    }

    /// Returns true for a link with these two properties: the only root paths that the linker gets
    /// are those of libraries, objects and the result, and no file that it reads holds one. What
    /// the command compiles on the way follows the rules for a compile.
    fn is_plain_link(&self, naming: &Naming) -> bool {
        let is_told = |word: &Vec<u8>| is_for_linker(word) && self.names_us(word);
        let is_read_by_linker = |path: &Vec<u8>| !may_be_source(path) && !self.is_a_response_file(path);
        naming.transforms.is_none()
            && !naming.places.iter().any(is_told)
            && !self.carried.rooted.iter().any(is_read_by_linker)
    }

    /// Decides for a command that ran nothing but parts of a compiler. Sets how outputs and
    /// messages are rewritten.
    fn compiled(
        &self,
        naming: &Naming,
        holding: &Holding,
        outputs: &mut [KeptOutput],
        streams: &KeptStreams,
        messages: &mut [Rewrite; 2],
    ) -> Result<(), Bind> {
        let contents: Vec<&KeptContent> = streams.contents().collect();
        let said: Option<Vec<Cow<[u8]>>> = contents.iter().map(|content| self.bytes_of(content)).collect();
        let said = said.ok_or((Bound::Message, Vec::new()))?;
        let suspect = self.suspect(naming, holding.any(), &said)?;
        let texts = Texts::of(self, naming);
        if let Some(suspect) = suspect.filter(|_| texts.surely_name_us()) {
            return Err((Bound::Text, suspect.clone()));
        }
        for (output, _) in outputs.iter_mut().zip(&holding.outputs).filter(|(_, holds)| **holds) {
            let rewrite = self.rewrite_of(output).ok_or_else(|| (Bound::Output, output.shown_path()))?;
            if rewrite == Rewrite::Text && output.content().is_some_and(|content| self.stands_bare(content)) {
                return Err((Bound::Output, output.shown_path()));
            }
            output.is_rewritten(rewrite);
        }
        for (index, content) in contents.iter().enumerate().filter(|(index, _)| holding.messages[*index]) {
            let depends = index == 0 && self.writes_dependencies();
            let rules: Vec<Rewrite> = if depends { self.depfile().into_iter().collect() } else { vec![Rewrite::Text] };
            let rule = self.rule_for(content, &rules);
            let is_text = index == 0 && !depends && self.request.invocation.output.is_none();
            let rule = rule.filter(|_| !(is_text && self.stands_bare(content)));
            messages[index] = rule.ok_or((Bound::Message, Vec::new()))?;
        }
        let made: Vec<&KeptContent> =
            outputs.iter().filter_map(KeptOutput::content).chain(contents.iter().copied()).collect();
        if let Some(input) = self.summed(&made) {
            return Err((Bound::Input, input.clone()));
        }
        let roots = &self.request.roots;
        let is_in = |content: &&KeptContent| self.bytes_of(content).is_none_or(|bytes| names_expanded(&bytes, roots));
        if can_be_expanded(roots) && made.iter().any(is_in) {
            return Err((Bound::Text, self.request.invocation.source.clone()));
        }
        match suspect.filter(|_| !texts.only_unnamed_macros_hold_us()) {
            Some(suspect) => self.nothing_was_derived(naming, suspect),
            None => Ok(()),
        }
    }

    /// Returns an argument or input that holds a root path, and from which something in the result
    /// may be derived. The preprocessed text shows whether it was. Returns `None` if there is none,
    /// and an error if the result certainly cannot be used elsewhere, or if the preprocessed text
    /// would not show it.
    fn suspect<'a>(
        &'a self,
        naming: &'a Naming,
        is_rewritten: bool,
        said: &[Cow<[u8]>],
    ) -> Result<Option<&'a Vec<u8>>, Bind> {
        // Standard error, or both streams in one.
        let warned = said.last().map_or(&[][..], |bytes| bytes);
        let said = &said.concat()[..];
        let is_by_chance = |old: &[u8]| self.request.roots.names().iter().any(|name| memmem::find(old, name).is_some());
        if let Some((_, map)) = naming.mapped.iter().find(|(old, _)| self.is_cut_by(old) || is_by_chance(old)) {
            return Err((Bound::Flag, map.clone()));
        }
        if let Some(other) = naming.others.iter().find(|word| self.names_us(word)) {
            return Err((Bound::Argument, other.clone()));
        }
        if let (Some(seed), true) = (&naming.seed, naming.sources.iter().any(|source| self.names_us(source))) {
            return Err((Bound::Flag, seed.clone()));
        }
        let named = self.arguments_name_us() || self.environment_names_us();
        if let (Some(flag), true) = (&naming.compares, named) {
            return Err((Bound::Flag, flag.clone()));
        }
        if let Some(directory) = naming.shortened.first().or_else(|| self.system_through_a_link(naming)) {
            return Err((Bound::Argument, directory.clone()));
        }
        if let (Some(input), true) = (&self.carried.fixed, is_rewritten) {
            return Err((Bound::Input, input.clone()));
        }
        let loose = self.carried.loose.as_ref().filter(|input| !self.is_a_response_file(input));
        if let (Some(input), true) = (loose, !said.is_empty() || naming.shows_columns()) {
            return Err((Bound::Input, input.clone()));
        }
        let defined = naming.definitions.iter().find(|word| self.names_us(word));
        let generated = self.carried.rooted.first();
        if self.request.invocation.stage == Stage::Early && self.writes_dependencies() {
            return Ok(None);
        }
        // A message may show a column in a line that holds a root path, in a generated text or on
        // the command line. Anything else that a message says of such a line comes from the
        // preprocessed text.
        let preprocesses = self.request.invocation.stage == Stage::Early && self.is_preprocessed_only();
        let said = if preprocesses { warned } else { said };
        let says = |word: &[u8]| memmem::find(said, word).is_some();
        let shown = self.carried.rooted.iter().find(|path| says(file_name(path)));
        if let Some(input) = shown.or(defined.filter(|_| says(b"<command"))) {
            return Err((Bound::Message, input.clone()));
        }
        let told = naming.definitions.iter().find(|word| names_files(word));
        let asked = self.carried.names_files.as_ref().or(told);
        if self.bytes_hold_us(&self.request.input) || named && !self.request.input.is_empty() {
            return Err((Bound::Input, b"standard input".to_vec()));
        }
        let suspect = defined.or(generated).or(asked.filter(|_| named));
        // The preprocessed text is the result itself, and was searched.
        let Some(suspect) = suspect.filter(|_| !preprocesses) else { return Ok(None) };
        if naming.assembles {
            return if generated.is_some() { Err((Bound::Input, suspect.clone())) } else { Ok(None) };
        }
        // With `.incbin` or `.include`, the preprocessed text does not show what was used.
        if let Some(input) = self.assembled {
            return Err((Bound::Input, input.clone()));
        }
        Ok(Some(suspect))
    }

    /// Returns a system directory that was given by a relative path and in which a file was read
    /// through a link. gcc writes the shorter of two paths for such a file: the given one, or the
    /// absolute one without links (`maybe_shorter_path` in `libcpp/files.cc`).
    fn system_through_a_link<'a>(&self, naming: &'a Naming) -> Option<&'a Vec<u8>> {
        let is_linked = |path: &[u8]| {
            let path = Path::new(OsStr::from_bytes(path));
            path.canonicalize().map_or(true, |real| real != path)
        };
        naming.system.iter().find(|directory| {
            let directory = self.directory(directory);
            let is_in = |path: &[u8]| Path::new(OsStr::from_bytes(path)).starts_with(&directory);
            let mut read = self.looked.iter().filter(|(path, looked)| looked.content && is_in(path));
            read.any(|(path, _)| is_linked(path))
        })
    }

    /// Returns the absolute path of a directory that the command names.
    fn directory(&self, named: &[u8]) -> PathBuf {
        PathBuf::from(OsString::from_vec(without_parents(&self.request.absolute(named))))
    }

    /// Runs the preprocessor, and fails if its output holds a root path.
    fn nothing_was_derived(&self, naming: &Naming, suspect: &[u8]) -> Result<(), Bind> {
        let before: Vec<Vec<u8>> = naming.preprocessed.iter().map(|source| self.request.absolute(source)).collect();
        let is_free = |text: Vec<u8>| what_it_says(&text, &self.request.roots, &[]) == Preprocessed::Free;
        if !before.iter().all(|source| whole(source).is_some_and(is_free)) {
            return Err((Bound::Text, suspect.to_vec()));
        }
        let is_included = |input: &&Vec<u8>| !self.is_a_response_file(input) && !before.contains(input);
        let generated: Vec<&[u8]> =
            self.carried.rooted.iter().filter(is_included).map(|input| file_name(input)).collect();
        match preprocess(self.command, &naming.preprocess, &self.request.roots, &generated, self.failed) {
            Preprocessed::Free => Ok(()),
            Preprocessed::Names | Preprocessed::Fails => Err((Bound::Text, suspect.to_vec())),
        }
    }

    /// Returns an input that holds a root path, if a checksum of the inputs is in the debug
    /// information. clang writes checksums from DWARF 5 on.
    fn summed(&self, made: &[&KeptContent]) -> Option<&Vec<u8>> {
        let rooted = self.carried.rooted.first().filter(|_| !self.gcc_ran)?;
        let is_in = |bytes: &[u8], text: &[u8]| memmem::find(bytes, text).is_some();
        let holds_sums = |bytes: &[u8]| {
            // The first form is in assembler source, the second in objects.
            is_in(bytes, b" md5 0x")
                || self.carried.rooted.iter().any(|path| is_in(bytes, file_name(path))) && sums_sources(bytes)
        };
        made.iter().any(|content| self.bytes_of(content).is_none_or(|bytes| holds_sums(&bytes))).then_some(rooted)
    }

    fn naming(&self) -> Option<Naming> {
        let arguments = self.request.action.argv.get(1..)?;
        match self.request.family {
            Family::Gcc | Family::Clang => naming(arguments, &ResponseFilesOnDisk(&self.request.action.cwd)),
            _ => None,
        }
    }

    /// Returns true for a response file. Its content is judged by the arguments in it.
    fn is_a_response_file(&self, path: &[u8]) -> bool {
        let named = self.request.action.argv.iter().filter_map(|word| word.strip_prefix(b"@"));
        named.map(|named| self.request.absolute(named)).any(|named| named == path)
    }

    fn writes_dependencies(&self) -> bool {
        self.request.action.argv.iter().any(|word| writes_dependencies(word))
    }

    /// Returns true if the directory of a prefix map is the beginning of a root path but not all of
    /// it. The map then replaces only a part of the root path, and the rest remains in the result.
    fn is_cut_by(&self, old: &[u8]) -> bool {
        self.request.roots.paths().iter().any(|root| root.starts_with(old) && root != old)
    }

    fn names_us(&self, text: &[u8]) -> bool {
        self.request.roots.encode_text(text).contains(&PLACEHOLDER)
    }

    fn arguments_name_us(&self) -> bool {
        let argv = &self.request.action.argv;
        // A compiler inside the checkout has its own headers there.
        argv.iter().any(|word| self.names_us(word)) || self.names_us(&self.request.action.tool_path)
    }

    fn environment_names_us(&self) -> bool {
        let keyed = self.request.action.environment.iter().map(|variable| (&variable.name, Some(&variable.value)));
        let asked = self.environment.iter().map(|(name, value)| (name, value.as_ref()));
        let mut named = keyed.chain(asked).filter(|(name, _)| !NO_NAMES.contains(&name.as_slice()));
        named.any(|(_, value)| value.is_some_and(|value| self.names_us(value)))
    }

    fn holding(&self, outputs: &[KeptOutput], streams: &KeptStreams) -> Holding {
        let output = |output: &KeptOutput| match &output.kind {
            KeptKind::File { content, .. } => self.holds_us(content),
            KeptKind::Link(target) => self.bytes_hold_us(target),
            KeptKind::Directory(_) | KeptKind::Removed => false,
        };
        Holding {
            outputs: outputs.iter().map(output).collect(),
            messages: streams.contents().map(|content| self.holds_us(content)).collect(),
        }
    }

    fn holds_us(&self, content: &KeptContent) -> bool {
        self.bytes_of(content).is_none_or(|bytes| self.bytes_hold_us(&bytes) || hides_its_text(&bytes))
    }

    fn bytes_hold_us(&self, bytes: &[u8]) -> bool {
        holds_a_root(bytes, &self.roots())
    }

    fn bytes_of<'k>(&self, content: &'k KeptContent) -> Option<Cow<'k, [u8]>> {
        content.searched(self.sink, self.stamps)
    }

    fn roots(&self) -> Vec<&[u8]> {
        self.request.roots.all().map(Vec::as_slice).collect()
    }

    /// Returns how an output that holds a root path is rewritten, or `None` if it cannot be.
    fn rewrite_of(&self, output: &KeptOutput) -> Option<Rewrite> {
        let KeptKind::File { content, .. } = &output.kind else { return None };
        let invocation = &self.request.invocation;
        let is = |named: &Option<Vec<u8>>| {
            let mut encoded = Vec::new();
            named.as_ref().is_some_and(|named| {
                self.request.roots.encode_path(&self.request.absolute(named), &mut encoded);
                encoded == output.path
            })
        };
        let depfile: Vec<Rewrite> = self.depfile().into_iter().collect();
        let rules: &[Rewrite] = if is(&invocation.depfile) || is(&invocation.output) && self.writes_dependencies() {
            &depfile
        } else if invocation.stage != Stage::Early && is(&invocation.output) || self.is_default_program(output) {
            if self.relocates_debug { &[Rewrite::Object] } else { &[] }
        } else if invocation.stage == Stage::Early && is(&invocation.output) && self.is_preprocessed_only()
            || output.path.ends_with(b".su")
        {
            &[Rewrite::Text]
        } else {
            &[]
        };
        self.rule_for(content, rules)
    }

    /// Returns true for `a.out`, the output of a link without `-o`.
    fn is_default_program(&self, output: &KeptOutput) -> bool {
        let Request { invocation, action, .. } = self.request;
        let mut encoded = Vec::new();
        self.request.roots.encode_path(&[&action.cwd, &b"/a.out"[..]].concat(), &mut encoded);
        invocation.stage == Stage::End && invocation.output.is_none() && encoded == output.path
    }

    /// Returns the rule for depfiles of the compiler that ran.
    fn depfile(&self) -> Option<Rewrite> {
        match self.request.family {
            Family::Clang => Some(Rewrite::ClangDepfile),
            _ if self.gcc_ran => Some(Rewrite::GccDepfile),
            _ => None,
        }
    }

    /// Returns true if the output is preprocessed text. It then holds paths exactly as they were
    /// read.
    fn is_preprocessed_only(&self) -> bool {
        self.request.action.argv.iter().any(|word| only_preprocesses(word))
    }

    /// Returns true if preprocessed text has a root path outside of quotes, where a part of it may
    /// be a macro.
    fn stands_bare(&self, content: &KeptContent) -> bool {
        self.is_preprocessed_only() && self.bytes_of(content).is_none_or(|bytes| stands_bare(&bytes, &self.roots()))
    }

    fn rule_for(&self, content: &KeptContent, rules: &[Rewrite]) -> Option<Rewrite> {
        let bytes = self.bytes_of(content)?;
        let roots = self.roots();
        rules.iter().copied().find(|rewrite| rule(*rewrite).is_some_and(|rule| can_be_relocated(rule, &bytes, &roots)))
    }
}

/// Which outputs and messages hold a root path.
struct Holding {
    outputs: Vec<bool>,
    messages: Vec<bool>,
}

impl Holding {
    fn any(&self) -> bool {
        self.outputs.iter().chain(&self.messages).any(|holds| *holds)
    }
}
