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
//! Unaware of: how a result is found, how it is put in place.

use std::borrow::Cow;

use larder_compiler::{Family, Naming, Stage, is_for_linker, only_preprocesses, writes_dependencies};
use larder_model::path::file_name;
use larder_model::{Bound, Rewrite, contains, contains_any};
use larder_relocate::{hides_its_text, leads_a_linker, sums_sources};
use larder_sys::{Opening, as_path};
use memchr::memmem;

use crate::c_words::names_files;
use crate::facts::{CommandFacts, Content, Limit, Outcome, Output, RunFacts, whole};
use crate::holding::Holding;
use crate::preprocessed_text::{can_be_expanded, file_that_names, is_free_of, names_expanded, stands_bare};
use crate::rewrites::Rewrites;
use crate::source_scan::Sources;

/// File name extensions of texts that a compiler reads and a linker does not.
const SOURCE_ENDINGS: [&[u8]; 18] = [
    b".c", b".cc", b".cpp", b".cxx", b".C", b".m", b".mm", b".i", b".ii", b".s", b".S", b".h", b".hh", b".hpp",
    b".hxx", b".inc", b".def", b".ipp",
];

fn may_be_source(path: &[u8]) -> bool {
    SOURCE_ENDINGS.iter().any(|ending| path.ends_with(ending))
}

/// Returns true if a name of Microsoft's C++ ABI has an anonymous namespace: `?A0x1b2c3d4e@`. The
/// number is a hash of the path of the source as it is on the command line, without zeros in front.
fn names_anonymous_namespace(bytes: &[u8]) -> bool {
    const MARK: &[u8] = b"?A0x";
    const DIGITS_MAX: usize = 8;
    let is_number = |rest: &[u8]| {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        (1..=DIGITS_MAX).contains(&digits) && rest.get(digits) == Some(&b'@')
    };
    memmem::find_iter(bytes, MARK).any(|at| is_number(&bytes[at + MARK.len()..]))
}

/// The decision.
#[derive(Debug)]
pub struct Decision {
    /// The limit to the use of the result. `None` if every checkout of the build can use it.
    pub limit: Option<Limit>,
    /// How the result is rewritten elsewhere. Nothing is rewritten if there is a limit.
    pub rewrites: Rewrites,
}

impl RunFacts<'_> {
    /// Decides in which checkouts a result can be used.
    pub fn decide(&self, outcome: &Outcome) -> Decision {
        match self.rewrites(outcome) {
            Ok(rewrites) => Decision { limit: None, rewrites },
            Err(limit) => Decision { limit: Some(limit), rewrites: Rewrites::none(outcome.outputs.len()) },
        }
    }

    fn rewrites(&self, outcome: &Outcome) -> Result<Rewrites, Limit> {
        let naming = self.naming.as_ref().filter(|_| !self.foreign_program);
        let compiles = self.command.invocation.compiles();
        if let (Some(Naming { transforms: Some(flag), .. }), true) = (naming, compiles) {
            return Err((Bound::Flag, flag.clone()));
        }
        let holding = self.holding(outcome);
        if let Some((path, _)) = self.looked.iter().find(|(path, _)| self.command.roots.is_beside(path)) {
            return Err((Bound::Argument, path.clone()));
        }
        if self.command.family == Family::Rustc {
            return self.crate_of_rust(&holding, outcome);
        }
        let seen_once = (Bound::SeenOnce, Vec::new());
        match naming {
            Some(naming) if compiles => self.compiled(naming, &holding, outcome),
            // The option may make the linker print or write sizes, which change when paths are
            // rewritten. An example is `-Map`. Or it may remove the paths from debug information,
            // but not what was derived from them. An example is gold's `--strip-debug-gdb`.
            Some(naming @ Naming { talkative: Some(word), .. })
                if holding.any() || self.carried.objects || self.links_what_may_hold_us(naming) =>
            {
                Err((Bound::Flag, word.clone()))
            }
            Some(naming) if self.is_plain_link(naming) => {
                self.compiled(naming, &holding, outcome).map_err(|_| seen_once)
            }
            Some(_) => Err(seen_once),
            None => {
                let known = self.command.family == Family::Binutils && !self.foreign_program;
                let named = self.arguments_name_us() || self.environment_names_us();
                let free = !named && self.carried.rooted.is_empty() && !holding.any();
                if known && free && !self.binaries_hold_us() {
                    Ok(Rewrites::none(outcome.outputs.len()))
                } else {
                    Err(seen_once)
                }
            }
        }
    }

    /// Returns true if the command compiles a source on its way to the linker, and the object may
    /// hold a root path. We do not see that object.
    fn links_what_may_hold_us(&self, naming: &Naming) -> bool {
        naming.sources.iter().any(|path| may_be_source(path)) && (naming.shows_columns() || self.arguments_name_us())
    }

    /// Returns true for a link with these two properties: the only root paths that the linker gets
    /// are those of libraries, objects and the result, and no file that it reads holds one which
    /// the linker may follow. What the command compiles on the way follows the rules for a compile.
    fn is_plain_link(&self, naming: &Naming) -> bool {
        let is_told = |word: &Vec<u8>| is_for_linker(word) && self.names_us(word);
        let is_read_by_linker = |path: &Vec<u8>| !may_be_source(path) && !self.is_a_response_file(path);
        naming.transforms.is_none()
            && !naming.places.iter().any(is_told)
            && !self.carried.rooted.iter().any(is_read_by_linker)
            && !self.leads_linker_to_us()
    }

    /// Returns true if the linker may have followed a root path in a library or thin archive. For
    /// example, it looks for the libraries that a shared library needs in the `DT_RUNPATH` of that
    /// library.
    fn leads_linker_to_us(&self) -> bool {
        let roots = self.roots();
        let leads =
            |path: &[u8]| larder_sys::open(path, Opening::Read).map_or(true, |file| leads_a_linker(file, &roots));
        self.looked.iter().any(|(path, looked)| looked.content && leads(path))
    }

    /// Returns true if an object, library or archive that the command read holds a root path, which
    /// the tool may have followed. For example, `objdump -S` shows the source that an object names.
    /// Other files of the system hold none.
    fn binaries_hold_us(&self) -> bool {
        let argv = &self.command.action.argv;
        let is_named = |path: &[u8]| argv.iter().any(|word| self.command.absolute(word) == path);
        let holds = |bytes: Vec<u8>| self.bytes_hold_us(&bytes) || hides_its_text(&bytes);
        let read = self.looked.iter().filter(|(_, looked)| looked.content);
        let mut read = read.filter(|(path, _)| !self.command.roots.is_outside(path) || is_named(path));
        read.any(|(path, _)| whole(path).is_none_or(holds))
    }

    /// Decides for a command that ran nothing but parts of a compiler.
    fn compiled(&self, naming: &Naming, holding: &Holding, outcome: &Outcome) -> Result<Rewrites, Limit> {
        let Outcome { outputs, messages } = *outcome;
        let mut rewrites = Rewrites::none(outputs.len());
        let message_texts: Option<Vec<Cow<[u8]>>> = messages.iter().map(|message| message.bytes()).collect();
        let message_texts = message_texts.ok_or((Bound::Message, Vec::new()))?;
        let suspect = self.suspect(naming, holding.any(), &message_texts)?;
        let sources = Sources::of(self, naming);
        if let Some(suspect) = suspect.filter(|_| sources.surely_name_us()) {
            return Err((Bound::Text, suspect.clone()));
        }
        for (index, output) in outputs.iter().enumerate().filter(|(index, _)| holding.outputs[*index]) {
            let rewrite = self.rewrite_of(output).ok_or_else(|| (Bound::Output, output.shown_path()))?;
            if rewrite == Rewrite::Text && output.content().is_some_and(|content| self.stands_bare(content)) {
                return Err((Bound::Output, output.shown_path()));
            }
            rewrites.outputs[index] = rewrite;
        }
        for (index, content) in messages.iter().copied().enumerate().filter(|(index, _)| holding.messages[*index]) {
            let depends = index == 0 && self.writes_dependencies();
            let rules: Vec<Rewrite> = if depends { self.depfile().into_iter().collect() } else { vec![Rewrite::Text] };
            let rule = self.rule_for(content, &rules);
            let is_text = index == 0 && !depends && self.command.invocation.output.is_none();
            let rule = rule.filter(|_| !(is_text && self.stands_bare(content)));
            rewrites.messages[index] = rule.ok_or((Bound::Message, Vec::new()))?;
        }
        let made: Vec<&dyn Content> =
            outputs.iter().filter_map(Output::content).chain(messages.iter().copied()).collect();
        if let Some(input) = self.summed(&made) {
            return Err((Bound::Input, input.clone()));
        }
        if let Some(source) = naming.sources.iter().find(|source| self.names_us(source))
            && made.iter().any(|content| content.bytes().is_none_or(|bytes| names_anonymous_namespace(&bytes)))
        {
            return Err((Bound::Argument, source.clone()));
        }
        let roots = self.command.roots;
        let is_in = |content: &&dyn Content| content.bytes().is_none_or(|bytes| names_expanded(&bytes, roots));
        if can_be_expanded(roots) && made.iter().any(is_in) {
            return Err((Bound::Text, self.command.invocation.source.clone()));
        }
        match suspect.filter(|_| !sources.only_unnamed_macros_hold_us()) {
            Some(suspect) => self.nothing_was_derived(naming, suspect).map(|()| rewrites),
            None => Ok(rewrites),
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
        message_texts: &[Cow<[u8]>],
    ) -> Result<Option<&'a Vec<u8>>, Limit> {
        // Standard error, or both streams in one.
        let warned = message_texts.last().map_or(&[][..], |bytes| bytes);
        let text = &message_texts.concat()[..];
        let is_by_chance = |old: &[u8]| contains_any(old, self.command.roots.names());
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
        if let (Some(input), true) = (loose, !text.is_empty() || naming.shows_columns()) {
            return Err((Bound::Input, input.clone()));
        }
        let defined = naming.definitions.iter().find(|word| self.names_us(word));
        let generated = self.carried.rooted.first();
        if self.command.invocation.stage == Stage::Early && self.writes_dependencies() {
            return Ok(None);
        }
        // A message may show a column in a line that holds a root path, in a generated text or on
        // the command line. Anything else that a message says of such a line comes from the
        // preprocessed text.
        let preprocesses = self.command.invocation.stage == Stage::Early && self.is_preprocessed_only();
        let text = if preprocesses { warned } else { text };
        let says = |word: &[u8]| contains(text, word);
        let shown = self.carried.rooted.iter().find(|path| says(file_name(path)));
        if let Some(input) = shown.or(defined.filter(|_| says(b"<command"))) {
            return Err((Bound::Message, input.clone()));
        }
        let told = naming.definitions.iter().find(|word| names_files(word));
        let asked = self.carried.names_files.as_ref().or(told);
        if self.bytes_hold_us(self.command.input) || named && !self.command.input.is_empty() {
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
            let path = as_path(path);
            path.canonicalize().map_or(true, |real| real != path)
        };
        naming.system.iter().find(|directory| {
            let directory = self.directory(directory);
            let is_in = |path: &[u8]| as_path(path).starts_with(&directory);
            let mut read = self.looked.iter().filter(|(path, looked)| looked.content && is_in(path));
            read.any(|(path, _)| is_linked(path))
        })
    }

    /// Runs the preprocessor, and fails if its output holds a root path.
    fn nothing_was_derived(&self, naming: &Naming, suspect: &[u8]) -> Result<(), Limit> {
        let before: Vec<Vec<u8>> = naming.preprocessed.iter().map(|source| self.command.absolute(source)).collect();
        let is_free =
            |text: &Vec<u8>, generated: &[&[u8]]| is_free_of(self.command.roots, text, generated, self.gcc_ran);
        if !before.iter().all(|source| whole(source).is_some_and(|text| is_free(&text, &[]))) {
            return Err((Bound::Text, suspect.to_vec()));
        }
        let is_included = |input: &&Vec<u8>| !self.is_a_response_file(input) && !before.contains(input);
        let generated: Vec<&[u8]> =
            self.carried.rooted.iter().filter(is_included).map(|input| file_name(input)).collect();
        match (self.preprocess)(&naming.preprocess) {
            Some(text) if is_free(&text, &generated) => Ok(()),
            text => {
                let named_in = text.and_then(|text| file_that_names(self.command.roots, &text, self.gcc_ran));
                Err((Bound::Text, named_in.unwrap_or_else(|| suspect.to_vec())))
            }
        }
    }

    /// Returns an input that holds a root path, if a checksum of the inputs is in the debug
    /// information. clang writes checksums from DWARF 5 on.
    fn summed(&self, made: &[&dyn Content]) -> Option<&Vec<u8>> {
        let rooted = self.carried.rooted.first().filter(|_| !self.gcc_ran)?;
        let holds_sums = |bytes: &[u8]| {
            // The first form is in assembler source, the second in objects.
            contains(bytes, " md5 0x")
                || self.carried.rooted.iter().any(|path| contains(bytes, file_name(path))) && sums_sources(bytes)
        };
        made.iter().any(|content| content.bytes().is_none_or(|bytes| holds_sums(&bytes))).then_some(rooted)
    }

    /// Returns true for a response file. Its content is judged by the arguments in it.
    fn is_a_response_file(&self, path: &[u8]) -> bool {
        let named = self.command.action.argv.iter().filter_map(|word| word.strip_prefix(b"@"));
        named.map(|named| self.command.absolute(named)).any(|named| named == path)
    }

    fn writes_dependencies(&self) -> bool {
        self.command.action.argv.iter().any(|word| writes_dependencies(word))
    }

    fn arguments_name_us(&self) -> bool {
        let argv = &self.command.action.argv;
        // A compiler inside the checkout has its own headers there.
        argv.iter().any(|word| self.names_us(word)) || self.names_us(&self.command.action.tool_path)
    }

    /// Returns how an output that holds a root path is rewritten, or `None` if it cannot be.
    fn rewrite_of(&self, output: &Output) -> Option<Rewrite> {
        let content = output.content()?;
        let invocation = self.command.invocation;
        let is = |named: &Option<Vec<u8>>| {
            let encoded = |named| self.command.roots.encoded_path(&self.command.absolute(named));
            named.as_ref().is_some_and(|named| encoded(named) == output.path)
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
    fn is_default_program(&self, output: &Output) -> bool {
        let CommandFacts { invocation, action, roots, .. } = self.command;
        let is_default = || roots.encoded_path(&[&action.cwd, &b"/a.out"[..]].concat()) == output.path;
        invocation.stage == Stage::End && invocation.output.is_none() && is_default()
    }

    /// Returns the rule for depfiles of the compiler that ran.
    fn depfile(&self) -> Option<Rewrite> {
        match self.command.family {
            Family::Clang => Some(Rewrite::ClangDepfile),
            _ if self.gcc_ran => Some(Rewrite::GccDepfile),
            _ => None,
        }
    }

    /// Returns true if the output is preprocessed text. It then holds paths exactly as they were
    /// read.
    fn is_preprocessed_only(&self) -> bool {
        self.command.action.argv.iter().any(|word| only_preprocesses(word))
    }

    /// Returns true if preprocessed text has a root path outside of quotes, where a part of it may
    /// be a macro.
    fn stands_bare(&self, content: &dyn Content) -> bool {
        self.is_preprocessed_only() && content.bytes().is_none_or(|bytes| stands_bare(&bytes, &self.roots()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_in_names_of_anonymous_namespaces() {
        let check = |text: &str, expect| assert_eq!(names_anonymous_namespace(text.as_bytes()), expect, "{text}");
        check("?g@S@?A0x6E0C16A4@@UEAAHXZ", true);
        check("?A0x1 ?A0x6e0c16a4@", true);
        check("?g@S@?A0x6E0C16A@@UEAAHXZ", true);
        check("?A0x0@", true);
        check("?A0x@", false);
        check("?A0x6e0c16a4", false);
        check("?A0x6e0c16g4@", false);
        check("A0x6e0c16a4@", false);
    }
}
