//! Compares the result of a command with an earlier result of the same command. Decides whether
//! both are the same except for root paths, and by which rules the earlier one becomes the present
//! one.

use std::collections::HashMap;

use larder_compiler::{
    Family, are_same_members, has_cmake_rules, is_config_status, is_in_no_order, is_log, is_ninjas, is_rule_hashes,
    lists_targets,
};
use larder_lookup::Request;
use larder_lookup::relocated::{apply, rewritten};
use larder_model::path::file_name;
use larder_model::{
    ActionResult, Bound, Content, DirFacts, Entry, EnvFact, Fact, Made, Manifest, ObservationSet, OfHistory, Origin,
    Output, OutputKind, Rewrite, Shared, Streams, alike as alike_places, is_above_root, lengths,
};
use larder_portability::{Limit, Rewrites, SEARCHED_BYTES_MAX, rule};
use larder_relocate::{
    BuildMake, can_be_relocated, hides_its_text, holds_a_root, is_laid_out, ninja_dependencies, ninja_log_commands,
    pickled_words, rule_hashes_at,
};
use larder_store::{ManifestFile, StatCache};

use super::texts::{climb, climbs_in, counted, is_word_of, sorted_prerequisites};
use crate::recorder::Recorder;

/// At most this many results are compared, the newest first, because each may be as large as a
/// whole build.
const COMPARED_MAX: usize = 4;

/// In a file that is no text, a shorter name can occur by chance, in bytes.
const BINARY_NAME_BYTES_MIN: usize = 4;

/// A comparison with earlier runs of a command.
pub(super) struct CrossCheck<'a> {
    pub(super) recorder: &'a Recorder<'a>,
    pub(super) stat_cache: &'a StatCache,
    pub(super) request: &'a Request,
    /// The setting `remote_trust`.
    pub(super) trust: &'a [String],
    /// True if a program ran that is not a known part of a compiler.
    pub(super) foreign_program: bool,
}

/// An earlier run that relied on the same contents.
struct Alike<'e> {
    /// It was made in another checkout.
    elsewhere: bool,
    set: ObservationSet<'e>,
    result: ActionResult<'e>,
}

/// What an earlier run of the same command shows.
pub(super) struct Lifted {
    /// What still restricts the use of the result.
    pub(super) limit: Option<Limit>,
    /// How the earlier result is rewritten to give the present one.
    pub(super) rewrites: Rewrites,
    /// The directories above the root that are not the same ones in both runs, as encoded paths.
    /// They differ in each place.
    pub(super) moving: Vec<Vec<u8>>,
    /// The names of the facts about `HISTORY_VARIABLES` that differ between the runs, so that the
    /// values do not count, each with the name of the fact that remains.
    pub(super) of_history: Vec<(Vec<u8>, Vec<u8>)>,
}

impl CrossCheck<'_> {
    fn roots(&self) -> Vec<&[u8]> {
        self.request.roots.all().collect()
    }

    /// Returns what still restricts the use of a result (`Bound`) and its rewrites, if an earlier
    /// run of the command read the same and gave the same result. Returns `None` if the restriction
    /// stays. Only `SeenOnce` and `Chance` can be lifted:
    ///
    /// - If the earlier run was in another checkout, the result can be used in any. There are two
    ///   exceptions: a length of a root path may have reached the result, and the lengths are equal
    ///   in both. It can then be used only with equal lengths. And the result may have a name that
    ///   the paths of both have. It can then be used only in places whose paths have it too.
    /// - If the earlier run had other process ids or other random numbers, the result holds none of
    ///   these. `otherwise` is the restriction that then remains.
    pub(super) fn lifted(
        &self,
        made: &Made,
        otherwise: Option<Limit>,
        set: &ObservationSet,
        result: &ActionResult,
    ) -> Option<Lifted> {
        if !matches!(made.bound.as_ref()?.0, Bound::SeenOnce | Bound::Chance) {
            return None;
        }
        let files = self.manifest_files();
        let manifests = manifests_in(&files);
        let seen = set.contents();
        let mut best: Option<Lifted> = None;
        // A restriction because of the path itself is not lifted by a run in another checkout.
        let at_home = otherwise.filter(|(bound, _)| *bound != Bound::SeenOnce);
        let alike = self.proving(&manifests).filter_map(|entry| self.alike(entry, made, &seen)).take(COMPARED_MAX);
        let may_log_paths = logs_commands_with_paths(set, result);
        let serves = |alike: &Alike| {
            !alike.elsewhere || at_home.is_none() && !(may_log_paths && self.log_other_commands(&alike.result, result))
        };
        let alike = alike.filter(serves);
        for lifted in alike.filter_map(|alike| self.lifted_by(&alike, set, result, &at_home)) {
            match (&lifted.limit, &best) {
                (None, _) => return Some(lifted),
                (Some((Bound::AsLong | Bound::AsNamed, _)), _) | (_, None) => best = Some(lifted),
                _ => {}
            }
        }
        best
    }

    /// Returns which values of variables of the history do not count, because an earlier run in this
    /// place had others, relied on the same and gave the same result. See [`Lifted::of_history`].
    #[inline(never)]
    pub(super) fn history(&self, made: &Made, set: &ObservationSet, result: &ActionResult) -> Vec<(Vec<u8>, Vec<u8>)> {
        let files = self.manifest_files();
        let manifests = manifests_in(&files);
        let seen = set.contents();
        let here = self.proving(&manifests).filter(|entry| entry.made_in == made.made_in).take(COMPARED_MAX);
        let of_same = here.filter_map(|entry| {
            let (other, before) = entry.open().ok().filter(|(other, _)| other.contents() == seen)?;
            let rewrites = self.rewrites_between(&before, result)?;
            let is_same = rewrites.messages.iter().chain(&rewrites.outputs).all(|rewrite| *rewrite == Rewrite::None);
            is_same.then(|| of_history(set, &other)).filter(|names| !names.is_empty())
        });
        of_same.max_by_key(Vec::len).unwrap_or_default()
    }

    /// Returns the manifests of the command.
    fn manifest_files(&self) -> Vec<ManifestFile> {
        let (store, weak) = (self.recorder.store(), &self.request.weak);
        let own = store.read_manifest(weak, false).ok().flatten();
        let handed_over = store.is_only_read().then(|| store.read_handed_over(weak, false).ok().flatten()).flatten();
        own.into_iter().chain(handed_over).collect()
    }

    /// Returns the entries that can prove something. One that was handed over to `larderd` could be
    /// forged. It counts only if this run is handed over as well.
    fn proving<'m, 'e>(&self, manifests: &'m [Manifest<'e>]) -> impl Iterator<Item = &'m Entry<'e>> {
        let is_only_read = self.recorder.store().is_only_read();
        let proves = move |entry: &&Entry| {
            entry.origin.is_believed(self.trust) && (is_only_read || entry.origin != Origin::HandedOver)
        };
        manifests.iter().flat_map(|manifest| &manifest.entries).filter(proves)
    }

    /// Returns true if the logs of ninja in two results may have other hashes of the same commands.
    /// Then the commands hold a path of the place, and ninja would run all of them again in another
    /// place.
    fn log_other_commands(&self, before: &ActionResult, now: &ActionResult) -> bool {
        let logs = |result: &ActionResult| -> Vec<Option<Vec<u8>>> {
            let logs = result.outputs.iter().filter(|output| is_ninja_log(output.path));
            let bytes = |output: &Output| match &output.kind {
                OutputKind::File { content, .. } => self.searched(content),
                _ => None,
            };
            logs.map(bytes).collect()
        };
        let (there, here) = (logs(before), logs(now));
        let commands = |log: &'_ Option<Vec<u8>>| {
            let commands = ninja_log_commands(log.as_ref()?)?;
            Some(commands.into_iter().map(|(path, hash)| (path.to_vec(), hash.to_vec())).collect::<Vec<_>>())
        };
        let is_same = |(there, here)| commands(there).is_some_and(|there| Some(there) == commands(here));
        there.len() != here.len() || !there.iter().zip(&here).all(is_same)
    }

    /// Returns what `entry` holds. Returns `None` if it had other observations, or cannot lift the
    /// present restriction.
    fn alike<'e>(&self, entry: &Entry<'e>, made: &Made, seen: &[u8]) -> Option<Alike<'e>> {
        let (bound, by) = made.bound.as_ref()?;
        let elsewhere = entry.made_in != made.made_in;
        let tells = match (bound, entry.bound?) {
            (Bound::Chance, Bound::Chance) => entry.bound_by != by.as_slice(),
            // For one of the two, we know that no process id is in it.
            (_, Bound::SeenOnce | Bound::AsLong | Bound::AsNamed | Bound::Chance) => elsewhere,
            _ => false,
        };
        let (set, result) = if tells { entry.open().ok()? } else { return None };
        (set.contents() == seen).then_some(Alike { elsewhere, set, result })
    }

    /// Returns the restriction that remains when `before` is known as well, and the rewrites.
    /// Returns `None` if `before` is not the same result.
    fn lifted_by(
        &self,
        alike: &Alike,
        set: &ObservationSet,
        result: &ActionResult,
        at_home: &Option<Limit>,
    ) -> Option<Lifted> {
        let before = &alike.result;
        let rewrites = self.rewrites_between(before, result)?;
        let own_lengths = lengths(self.roots().into_iter());
        let tells_little = lengths(before.origin.iter().copied()) == own_lengths && self.may_measure(&rewrites);
        let limit = match (alike.elsewhere, self.names_in(before, set, result)) {
            (false, _) => at_home.clone().or(Some((Bound::SeenOnce, Vec::new()))),
            (true, Some(names)) => {
                Some((Bound::AsNamed, alike_places(if tells_little { &own_lengths } else { b"" }, &names)))
            }
            (true, None) if tells_little => Some((Bound::AsLong, own_lengths)),
            (true, None) => None,
        };
        Some(Lifted { limit, rewrites, moving: self.moving(set, alike), of_history: of_history(set, &alike.set) })
    }

    /// Returns the directories that moved with the root between the runs `now` and `before`. That
    /// is so if both runs relied on the same of a directory at the same distance above the root, also
    /// if only its mtime was compared, and the directory is not above both roots.
    fn moving(&self, now: &ObservationSet, Alike { elsewhere, set, result }: &Alike) -> Vec<Vec<u8>> {
        let is_above_both = |encoded: &[u8]| {
            let Some(path) = self.request.roots.decoded_path(encoded) else { return true };
            let is_below = |root: &&[u8]| root.strip_prefix(&path[..]).is_some_and(|rest| rest.starts_with(b"/"));
            result.origin.iter().any(is_below)
        };
        let is_same = |a: &DirFacts, b: &DirFacts| {
            (a.path, a.links, &a.facts, &a.absent) == (b.path, b.links, &b.facts, &b.absent)
        };
        let is_as_before = |path: &[u8]| {
            let mut facts = now.directories.iter().filter(|directory| directory.path == path);
            let mut ages = now.ages.iter().filter(|age| age.path == path);
            facts.all(|directory| set.directories.iter().any(|other| is_same(directory, other)))
                && ages.all(|age| set.ages.iter().any(|other| other.path == age.path))
        };
        let paths = now.directories.iter().map(|directory| directory.path).chain(now.ages.iter().map(|age| age.path));
        let moves = |path: &&[u8]| !elsewhere || is_as_before(path) && !is_above_both(path);
        paths.filter(|path| is_above_root(path)).filter(moves).map(<[u8]>::to_vec).collect()
    }

    /// Returns true if the length of a root path may have reached the result. A script can compute
    /// the length of a word, and the size of an object that holds a root path may have been written
    /// to another output.
    fn may_measure(&self, rewrites: &Rewrites) -> bool {
        let Rewrites { outputs, .. } = rewrites;
        let is_measured = outputs.contains(&Rewrite::Object) && outputs.len() > 1;
        let holds = |rewrite: Rewrite| outputs.contains(&rewrite);
        self.foreign_program || is_measured || holds(Rewrite::LooseText) || holds(Rewrite::AsLong)
    }

    /// Returns what the paths of two places have in common and is also in the result, or may be
    /// hidden in it, outside of root paths. Returns `None` if nothing is. For example, a script that runs in
    /// `/a/project` and `/b/project` wrote `project` (`${PWD##*/}`). Parts of compilers write no
    /// such name.
    fn names_in<'a>(
        &'a self,
        before: &ActionResult,
        set: &ObservationSet,
        result: &ActionResult,
    ) -> Option<Vec<Shared<'a>>> {
        let roots = self.roots();
        if !self.foreign_program || before.origin.len() != roots.len() {
            return None;
        }
        let pairs = roots.iter().zip(&before.origin);
        let mut shared: Vec<Shared> = pairs.map(|(root, other)| Shared::of(root, other)).collect();
        if shared.iter().all(|shared| shared.start.is_empty() && shared.names_below == 0 && shared.end.is_empty()) {
            return None;
        }
        let accessed = self.accessed_outside(set);
        let climb = |(root, shared): (&&[u8], &Shared)| climb(root, shared.start, accessed.iter().map(Vec::as_slice));
        let climbs: Vec<Vec<u8>> = roots.iter().zip(&shared).map(climb).collect();
        // For each root: whether its start and its end are in the result.
        let mut found = vec![[false; 2]; shared.len()];
        let mut search = |text: Option<&[u8]>, name_bytes_min: usize| {
            let is_in = |name: &[u8]| {
                !name.is_empty() && text.is_none_or(|text| name.len() >= name_bytes_min && is_word_of(text, name))
            };
            for ((shared, climb), [start, end]) in shared.iter().zip(&climbs).zip(&mut found) {
                let if_as_deep = |name| if shared.names_below > 0 { name } else { &b""[..] };
                let climbs = || text.is_none_or(|text| climb.len() >= name_bytes_min && climbs_in(text, climb));
                *start |= is_in(shared.start)
                    || is_in(if_as_deep(file_name(shared.start)))
                    || shared.names_below > 0 && climbs();
                *end |= shared.end.split(|&byte| byte == b'/').any(is_in);
            }
        };
        let encoded = |bytes: &[u8]| self.request.roots.encode_text(bytes);
        let mut search_content = |content: &Content| {
            let Some(bytes) = self.searched(content).filter(|bytes| !hides_its_text(bytes)) else {
                return search(None, 0);
            };
            let name_bytes_min = if bytes.contains(&0) { BINARY_NAME_BYTES_MIN } else { 0 };
            search(Some(&encoded(&bytes)), name_bytes_min);
        };
        result.streams.iter().for_each(&mut search_content);
        for output in &result.outputs {
            if let OutputKind::File { content, .. } = &output.kind {
                search_content(content);
            }
        }
        for output in &result.outputs {
            search(Some(output.path), 0);
            if let OutputKind::Link(target) = &output.kind {
                search(Some(&encoded(target)), 0);
            }
        }
        for (shared, [start, end]) in shared.iter_mut().zip(&found) {
            if !start {
                (shared.start, shared.names_below) = (b"", 0);
            }
            if !end {
                shared.end = b"";
            }
        }
        found.concat().contains(&true).then_some(shared)
    }

    /// Returns the absolute paths outside of the roots that the run relied on and that exist.
    fn accessed_outside(&self, set: &ObservationSet) -> Vec<Vec<u8>> {
        let is_outside = |path: &[u8]| path.starts_with(b"/") || is_above_root(path);
        let outside = set.directories.iter().filter(|directory| is_outside(directory.path));
        let decoded =
            outside.filter_map(|directory| Some((self.request.roots.decoded_path(directory.path)?, directory)));
        let within = |(path, directory): (Vec<u8>, &DirFacts)| -> Vec<Vec<u8>> {
            directory.facts.iter().map(|named| [&path[..], b"/", named.name].concat()).collect()
        };
        decoded.flat_map(within).collect()
    }

    /// Returns how the first of two results is rewritten to give the second.
    fn rewrites_between(&self, before: &ActionResult, now: &ActionResult) -> Option<Rewrites> {
        use larder_model::OutputKind::File;
        let mut rewrites = Rewrites { messages: [Rewrite::None; 2], outputs: Vec::new() };
        let same = before.exit_code == now.exit_code
            && before.repeatable == now.repeatable
            && before.consumed_bytes == now.consumed_bytes
            && before.outputs.len() == now.outputs.len();
        match (before.streams, now.streams) {
            _ if !same => return None,
            (Streams::Apart { stdout: a, stderr: b }, Streams::Apart { stdout: c, stderr: d }) => {
                rewrites.messages =
                    [self.rewrite_of_message(before, &a, &c)?, self.rewrite_of_message(before, &b, &d)?];
            }
            (Streams::Together(a), Streams::Together(b)) => {
                rewrites.messages[0] = self.rewrite_of_message(before, &a, &b)?;
            }
            _ => return None,
        }
        // Outputs are in the order in which they were finished. That order may differ if several
        // processes run at once.
        let by_path: HashMap<&[u8], &Output> = before.outputs.iter().map(|output| (output.path, output)).collect();
        for output in &now.outputs {
            let before_it = by_path.get(output.path)?;
            let rewrite = match (&before_it.kind, &output.kind) {
                _ if !before_it.modified.is_alike(&output.modified) => return None,
                (
                    File { placement, mode, content, .. },
                    File { placement: placement2, mode: mode2, content: content2, .. },
                ) if placement == placement2 && mode == mode2 => match output.path {
                    path if is_log(path) => self.rewrite_of_log(before, content2)?,
                    path if is_ninjas(path) => self.rewrite_of_ninjas(before, content, content2)?,
                    path if is_in_no_order(path) => self.rewrite_in_any_order(before, content, content2)?,
                    _ if self.request.family == Family::Rustc => self.rewrite_of_crate(before, content, content2)?,
                    path if is_config_status(path) => {
                        self.rewrite_by(&[Rewrite::ConfigStatus], before, content, content2)?
                    }
                    path if lists_targets(path) => self.rewrite_of_targets(before, content, content2)?,
                    path if is_rule_hashes(path) => self.rewrite_of_rule_hashes([before, now], content, content2)?,
                    _ => self.rewrite_between(before, content, content2)?,
                },
                _ if before_it.kind == output.kind => Rewrite::None,
                _ => return None,
            };
            rewrites.outputs.push(rewrite);
        }
        Some(rewrites)
    }

    /// Returns how a message is rewritten. If several processes run at once, their lines may be in
    /// a different order each time.
    fn rewrite_of_message(&self, before: &ActionResult, old: &Content, new: &Content) -> Option<Rewrite> {
        self.rewrite_between(before, old, new).or_else(|| {
            let lines = |bytes: &[u8]| {
                let parts =
                    bytes.split(|&b| b == b'\n').flat_map(|line| <[&[u8]; 2]>::from(line.split_at(counted(line))));
                let mut lines: Vec<Vec<u8>> = parts.map(<[u8]>::to_vec).collect();
                lines.sort_unstable();
                lines
            };
            let here = lines(&self.searched(new)?);
            let is_text = |rewrite: &Rewrite| {
                self.in_another_place(*rewrite, before, old).is_some_and(|again| lines(&again) == here)
            };
            let rewrite = self.rewrite_if_it_holds(before, new, Rewrite::Text)?;
            [Rewrite::Text, Rewrite::None].iter().any(is_text).then_some(rewrite)
        })
    }

    /// Returns the earlier content as it would be here by this rule.
    fn in_another_place(&self, rewrite: Rewrite, before: &ActionResult, old: &Content) -> Option<Vec<u8>> {
        let one = ActionResult {
            origin: before.origin.clone(),
            messages: [rewrite, Rewrite::None],
            ..ActionResult::of(Streams::Together(*old))
        };
        let bytes = rewritten(&one, &self.request.roots, self.recorder.store(), self.stat_cache)?;
        let Streams::Together(again) = apply(&one, &bytes).streams else { return None };
        self.searched(&again)
    }

    /// Returns the bytes to compare, or `None` if there are too many.
    fn searched(&self, content: &Content) -> Option<Vec<u8>> {
        let few = content.size_bytes() <= SEARCHED_BYTES_MAX;
        few.then(|| self.recorder.content_bytes(content, self.stat_cache).ok()).flatten()
    }

    /// Returns how a log is rewritten. Logs are not compared, because they hold times, process ids
    /// and names of temporary files, which differ in each run.
    fn rewrite_of_log(&self, before: &ActionResult, content: &Content) -> Option<Rewrite> {
        self.rewrite_if_it_holds(before, content, Rewrite::LooseText)
    }

    /// Returns `by` if the content holds a root path and can be rewritten by that rule, and no
    /// rewrite if it holds none.
    fn rewrite_if_it_holds(&self, before: &ActionResult, content: &Content, by: Rewrite) -> Option<Rewrite> {
        if before.origin == self.roots() {
            return Some(Rewrite::None);
        }
        let bytes = self.searched(content)?;
        let roots = self.roots();
        match holds_a_root(&bytes, &roots) {
            false => Some(Rewrite::None),
            true => can_be_relocated(rule(by)?, &bytes, &roots).then_some(by),
        }
    }

    /// Returns how a file is rewritten whose parts are in the order of a hash table. In a pickle,
    /// the parts must be the same.
    fn rewrite_in_any_order(&self, before: &ActionResult, old: &Content, new: &Content) -> Option<Rewrite> {
        self.rewrite_of_log(before, new).or_else(|| {
            let there = self.in_another_place(Rewrite::Pickle, before, old)?;
            let here = self.searched(new)?;
            (pickled_words(&there)? == pickled_words(&here)?).then_some(Rewrite::Pickle)
        })
    }

    /// Returns how one of ninja's records is rewritten. It holds the times of the run, and its
    /// entries are in the order in which compilers ended. The dependencies in it must be the same.
    fn rewrite_of_ninjas(&self, before: &ActionResult, old: &Content, new: &Content) -> Option<Rewrite> {
        let rewrite = self.rewrite_if_it_holds(before, new, Rewrite::NinjaDependencies)?;
        let there = match before.origin == self.roots() {
            true => self.searched(old)?,
            false => self.in_another_place(Rewrite::NinjaDependencies, before, old)?,
        };
        let here = self.searched(new)?;
        (ninja_dependencies(&there)? == ninja_dependencies(&here)?).then_some(rewrite)
    }

    /// Returns how a makefile of CMake is rewritten in which lines that add to the prerequisites of
    /// one target are in any order.
    fn rewrite_of_targets(&self, before: &ActionResult, old: &Content, new: &Content) -> Option<Rewrite> {
        self.rewrite_between(before, old, new).or_else(|| {
            let here = self.searched(new)?;
            let there = match before.origin == self.roots() {
                true => self.searched(old)?,
                false => self.in_another_place(Rewrite::Text, before, old)?,
            };
            let rewrite = self.rewrite_if_it_holds(before, new, Rewrite::Text)?;
            (sorted_prerequisites(&there) == sorted_prerequisites(&here)).then_some(rewrite)
        })
    }

    /// Returns how CMake's hashes of rules are rewritten: by the makefiles in both results, which
    /// hold these rules.
    fn rewrite_of_rule_hashes(&self, results: [&ActionResult; 2], old: &Content, new: &Content) -> Option<Rewrite> {
        self.rewrite_between(results[0], old, new).or_else(|| {
            let makefiles = |result: &ActionResult| -> Option<HashMap<Vec<u8>, Vec<u8>>> {
                let files = result.outputs.iter().filter(|output| has_cmake_rules(output.path));
                let bytes = |output: &Output| match &output.kind {
                    OutputKind::File { content, .. } => self.searched(content),
                    _ => None,
                };
                files.map(|output| Some((output.path.to_vec(), bytes(output)?))).collect()
            };
            let (from, to) = (makefiles(results[0])?, makefiles(results[1])?);
            let both = from.iter().map(|(path, from)| Some(BuildMake { from, to: to.get(path)? }));
            let again = rule_hashes_at(&self.searched(old)?, &both.collect::<Option<Vec<_>>>()?)?;
            (again == self.searched(new)?).then_some(Rewrite::RuleHashes)
        })
    }

    /// Returns how an artifact of rustc is rewritten. Incremental compilation gives the members of a
    /// library other names in each run.
    fn rewrite_of_crate(&self, before: &ActionResult, old: &Content, new: &Content) -> Option<Rewrite> {
        self.rewrite_between(before, old, new).or_else(|| {
            let [there, here] = [old, new].map(|content| self.searched(content));
            let (there, here) = (there?, here?);
            let is_free = !holds_a_root(&here, &self.roots()) && !holds_a_root(&there, &before.origin);
            let serves = is_free || before.origin == self.roots();
            (serves && are_same_members(&there, &here)).then_some(Rewrite::None)
        })
    }

    fn rewrite_between(&self, before: &ActionResult, old: &Content, new: &Content) -> Option<Rewrite> {
        let exact = [Rewrite::Text, Rewrite::GccDepfile, Rewrite::ClangDepfile, Rewrite::Object];
        let loose = [Rewrite::LooseText, Rewrite::AsLong];
        self.rewrite_by(&exact, before, old, new).or_else(|| {
            // Two places may agree by chance on the order of a hash table, or on where lines are
            // wrapped.
            let is_laid_out = self.searched(new).is_some_and(|bytes| is_laid_out(&bytes));
            if is_laid_out { None } else { self.rewrite_by(&loose, before, old, new) }
        })
    }

    /// Returns the first of these rules by which the earlier content becomes the present one.
    fn rewrite_by(&self, rules: &[Rewrite], before: &ActionResult, old: &Content, new: &Content) -> Option<Rewrite> {
        if old == new && before.origin == self.roots() {
            return Some(Rewrite::None);
        }
        if old == new {
            let bytes = self.searched(new)?;
            // The content is equal in both checkouts although it holds a root path of one of them.
            // So it is not known how it would be in a third.
            let names = holds_a_root(&bytes, &self.roots()) || holds_a_root(&bytes, &before.origin);
            return (!names).then_some(Rewrite::None);
        }
        let here = self.searched(new)?;
        rules.iter().copied().find(|rewrite| self.in_another_place(*rewrite, before, old).as_ref() == Some(&here))
    }
}

fn manifests_in(files: &[ManifestFile]) -> Vec<Manifest<'_>> {
    files.iter().filter_map(|file| Manifest::decode(&file.bytes).ok()).collect()
}

/// Returns the facts about variables of the history that differ between two runs of the same result,
/// each with the name of the fact that remains. Their values have not reached the result. If the
/// lengths are equal, the result may hold the length. Nothing is known if one of them is not set.
fn of_history(now: &ObservationSet, before: &ObservationSet) -> Vec<(Vec<u8>, Vec<u8>)> {
    let remains = |fact: &EnvFact<'_>| {
        let (variable, how) = OfHistory::of_fact_name(fact.name)?;
        let OfHistory::Value(Some(length)) = how else { return None };
        let is_it =
            |other: &&EnvFact<'_>| OfHistory::of_fact_name(other.name).is_some_and(|(name, _)| name == variable);
        let there = before.environment.iter().find(is_it)?;
        let remains = match OfHistory::of_fact_name(there.name)?.1 {
            OfHistory::Value(Some(other)) if other != length => OfHistory::IsSet,
            OfHistory::Value(Some(_)) if there.value != fact.value => OfHistory::Length(length),
            OfHistory::Length(other) if other != length => OfHistory::IsSet,
            OfHistory::IsSet => OfHistory::IsSet,
            how @ OfHistory::Length(_) => how,
            OfHistory::Value(_) => return None,
        };
        Some((fact.name.to_vec(), remains.fact_name(variable)))
    };
    now.environment.iter().filter_map(remains).collect()
}

fn is_ninja_log(path: &[u8]) -> bool {
    path.ends_with(b"/.ninja_log")
}

/// Returns true if the command ran ninja with a build file that holds a path of the place.
fn logs_commands_with_paths(set: &ObservationSet, result: &ActionResult) -> bool {
    let is_rooted = |directory: &DirFacts| {
        let mut facts = directory.facts.iter().filter(|named| named.name.ends_with(b".ninja"));
        facts.any(|named| matches!(named.fact, Fact::Content { rooted: Some(_), .. }))
    };
    result.outputs.iter().any(|output| is_ninja_log(output.path)) && set.directories.iter().any(is_rooted)
}
