//! Decides in which target directories, and with `rust_paths = "remap"` in which checkouts, the
//! result of rustc can be used.
//!
//! Unaware of: how a result is found, how it is put in place.

use larder_compiler::{RustPaths, rust, rust_paths};
use larder_model::path::{absolute, file_name, is_in, parent};
use larder_model::{Bound, Looked, Rewrite, contains};

use crate::facts::{CommandFacts, Limit, NO_NAMES, Outcome, Output, RunFacts, is_elf, whole};
use crate::holding::Holding;
use crate::rewrites::Rewrites;
use crate::rust_text::names_included_files_only;

/// File name extensions of crates and of native libraries. If one of them holds a root path, that is
/// known without its name.
const CRATE_ENDINGS: [&[u8]; 5] = [b".rlib", b".rmeta", b".so", b".a", b".o"];

/// The beginnings of the names of directories that rustc makes beside its outputs and removes.
const TEMPORARY: [&[u8]; 3] = [b"rmeta", b"rustc", b".tmp"];

fn is_crate(path: &[u8]) -> bool {
    CRATE_ENDINGS.iter().any(|ending| path.ends_with(ending))
}

fn starts_with_any(text: &[u8], starts: &[&[u8]]) -> bool {
    starts.iter().any(|start| text.starts_with(start))
}

/// Returns true for the value of rustc's option `-C rpath`.
fn is_rpath(value: &[u8]) -> bool {
    value == b"rpath" || value.starts_with(b"rpath=")
}

/// Returns true if an output may hold a path that leads up from its own directory.
fn climbs_from_itself(output: &Output) -> bool {
    output.content().is_some_and(|content| content.bytes().is_none_or(|bytes| contains(&bytes, "$ORIGIN/..")))
}

impl RunFacts<'_> {
    /// Decides for rustc. Its roots are cargo's target directory, and if rustc was told to replace
    /// their paths, also the working directory (`lookup::rust`).
    ///
    /// - `--out-dir`, `-L`, `--extern` and `-C incremental` name the target directory. rustc keeps
    ///   none of these paths, and the outputs are searched for them.
    /// - A source in the target directory, or a variable with its path, may be in a hash. Sources
    ///   are there if a build script wrote them (`OUT_DIR`).
    /// - If paths are replaced, the paths of sources are not in a hash. A variable with such a path
    ///   may be. The result is then reused elsewhere after a second place gave the same result.
    /// - The dependency file and the messages name the outputs as they are on the command line.
    /// - With `-C rpath`, a program holds the relative path from its own directory to that of each
    ///   shared library. The number of `..` in it depends on how deep the target directory lies, so
    ///   equal results from two places say nothing of a third.
    pub(crate) fn crate_of_rust(&self, holding: &Holding, outcome: &Outcome) -> Result<Rewrites, Limit> {
        let Outcome { outputs, messages } = *outcome;
        let mut rewrites = Rewrites::none(outputs.len());
        let rust = rust_paths(&self.command.action.argv[1..]);
        let is_remapped = self.paths_are_remapped(&rust);
        self.crate_is_fixed(&rust)?;
        if let Some(option) = rust.others.iter().find(|value| is_rpath(value))
            && outputs.iter().any(climbs_from_itself)
        {
            return Err((Bound::Flag, option.to_vec()));
        }
        if let Some(limit) = self.crate_may_hold_a_path(&rust, is_remapped) {
            return Err(if is_remapped { (Bound::SeenOnce, Vec::new()) } else { limit });
        }
        for (index, output) in outputs.iter().enumerate().filter(|(index, _)| holding.outputs[*index]) {
            let rules: &[Rewrite] = if output.path.ends_with(b".d") { &[Rewrite::Text] } else { &[] };
            let rewrite = output.content().and_then(|content| self.rule_for(content, rules));
            rewrites.outputs[index] = rewrite.ok_or_else(|| (Bound::Output, output.shown_path()))?;
        }
        for (index, content) in messages.iter().copied().enumerate().filter(|(index, _)| holding.messages[*index]) {
            rewrites.messages[index] = self.rule_for(content, &[Rewrite::Text]).ok_or((Bound::Message, Vec::new()))?;
        }
        Ok(rewrites)
    }

    /// Returns true if rustc was told to replace the working directory and every root.
    fn paths_are_remapped(&self, rust: &RustPaths) -> bool {
        let is_replaced = |path: &Vec<u8>| rust.remaps.iter().any(|(from, _)| from == path);
        let CommandFacts { action, roots, .. } = self.command;
        !rust.limits_remaps && is_replaced(&action.cwd) && roots.paths().iter().all(is_replaced)
    }

    /// Returns an error if rustc replaces paths in a way that differs in another place.
    fn crate_is_fixed(&self, rust: &RustPaths) -> Result<(), Limit> {
        let is_root = |from: &[u8]| self.command.roots.paths().iter().any(|root| root == from);
        let is_odd = |(from, to): &&(&[u8], &[u8])| !is_root(from) && self.is_cut_by(from) || self.names_us(to);
        if let Some((from, _)) = rust.remaps.iter().find(is_odd) {
            return Err((Bound::Flag, from.to_vec()));
        }
        Ok(())
    }

    /// Returns why the crate may hold something that was derived from a root path.
    fn crate_may_hold_a_path(&self, rust: &RustPaths, is_remapped: bool) -> Option<Limit> {
        let cwd = &self.command.action.cwd;
        if !is_remapped && self.names_us(cwd) {
            return Some((Bound::Argument, cwd.clone()));
        }
        if let Some(other) = rust.others.iter().find(|value| self.names_us(value)) {
            return Some((Bound::Argument, other.to_vec()));
        }
        // A linker that is not known has got the path of the output.
        let learns_it = self.foreign_program || self.plugins_read_arguments;
        if learns_it || is_remapped && self.plugins_ask_directory {
            return Some((Bound::Argument, self.command.invocation.output.clone().unwrap_or_else(|| cwd.clone())));
        }
        let is_asked = |name: &Vec<u8>| !NO_NAMES.contains(&name.as_slice()) || self.asked_by_plugins.contains(name);
        let asked = self.environment.iter().find(|(name, value)| {
            value.as_ref().is_some_and(|value| self.names_us(value))
                && is_asked(name)
                && !(is_remapped && self.only_names_included_files(name))
        });
        if let Some((name, _)) = asked {
            return Some((Bound::Variable, name.clone()));
        }
        let is_source = |path: &[u8]| !is_crate(path) && !self.command.roots.is_outside(path);
        let source = self.looked.iter().find(|(path, looked)| looked.content && is_source(path));
        let source = source.or_else(|| self.looked.iter().find(|(path, looked)| !self.is_named(rust, path, looked)));
        if let Some((source, _)) = source.filter(|_| !is_remapped) {
            return Some((Bound::Source, source.clone()));
        }
        let input = self.carried.rooted.first().or(self.carried.fixed.as_ref());
        input.map(|input| (Bound::Input, input.clone()))
    }

    /// Returns true if the command line, or `LD_LIBRARY_PATH`, is the reason why the run used a path,
    /// or if the path is in no root.
    ///
    /// rustc uses only those paths of the target directory that its command line names. So if another
    /// path there was used, something else made that path. For example, a procedural macro may have a relative path to the target directory
    /// in its text, or find a directory above the path of its own file. If another target directory
    /// is used, such a path still leads to this one.
    fn is_named(&self, paths: &RustPaths, path: &[u8], looked: &Looked) -> bool {
        let CommandFacts { action, roots, .. } = self.command;
        if roots.is_outside(path) {
            return true;
        }
        let rust = rust(&action.argv[1..]);
        let full = |path: &[u8]| absolute(&action.cwd, path);
        let files: Vec<Vec<u8>> = rust.externs.iter().chain(&rust.outputs).map(|path| full(path)).collect();
        let searched = paths.directories.iter().chain(&rust.dependency_directories);
        let libraries = action.environment.iter().filter(|variable| variable.name == b"LD_LIBRARY_PATH");
        let libraries = libraries.flat_map(|variable| variable.value.split(|&byte| byte == b':'));
        let mut directories: Vec<Vec<u8>> = searched.chain(&rust.out_dir).map(|path| full(path)).collect();
        let libraries: Vec<Vec<u8>> = libraries.map(full).collect();
        directories.extend(libraries.iter().cloned());
        directories.extend(files.iter().filter_map(|file| parent(file)).map(<[u8]>::to_vec));
        let private: Vec<Vec<u8>> = rust.incremental.iter().map(|path| full(path)).collect();
        let [files, directories, private, libraries] =
            [files, directories, private, libraries].map(|paths| self.by_each_root(paths));
        let is_above = |named: &Vec<u8>| is_in(named, path);
        let is_file_in = |directory: &Vec<u8>| parent(path) == Some(directory);
        let is_library = contains(file_name(path), ".so");
        let is_expected = is_crate(path) || is_library || looked.absent || contains(file_name(path), rust.stem());
        let is_temporary = |directory: &Vec<u8>| {
            let below = path.strip_prefix(&directory[..]).and_then(|rest| rest.strip_prefix(b"/"));
            below.is_some_and(|below| starts_with_any(below, &TEMPORARY))
        };
        files.iter().chain(&directories).chain(&private).any(is_above)
            || private.iter().any(|private| is_in(path, private))
            || is_expected && directories.iter().any(is_file_in)
            || looked.absent && directories.iter().any(is_temporary)
            // The loader also searches directories such as `glibc-hwcaps`.
            || looked.absent && libraries.iter().any(|directory| is_in(path, directory))
    }

    /// Returns the paths, and those in a root also by the paths of all other roots. In a run without
    /// replaced paths, all roots are paths of the target directory.
    fn by_each_root(&self, paths: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let roots = self.command.roots.paths();
        let by_each = |path: Vec<u8>| -> Vec<Vec<u8>> {
            let root = roots.iter().find(|root| is_in(&path, root));
            let others = |root: &Vec<u8>| {
                roots.iter().map(|other| [&other[..], &path[root.len()..]].concat()).collect::<Vec<_>>()
            };
            root.map_or_else(|| vec![path.clone()], others)
        };
        paths.into_iter().flat_map(by_each).collect()
    }

    /// Returns true if a crate uses a variable only to name files that it includes. No macro of
    /// another crate may use the variable, so no crate that was read may contain its name.
    fn only_names_included_files(&self, variable: &[u8]) -> bool {
        let is_free = |path: &Vec<u8>| match is_crate(path) {
            true => self.command.roots.is_outside(path) || whole(path).is_some_and(|bytes| !contains(&bytes, variable)),
            false => is_elf(path) || whole(path).is_some_and(|text| names_included_files_only(&text, variable)),
        };
        let mut read = self.looked.iter().filter(|(_, looked)| looked.content);
        !self.asked_by_plugins.iter().any(|name| name == variable) && read.all(|(path, _)| is_free(path))
    }
}
