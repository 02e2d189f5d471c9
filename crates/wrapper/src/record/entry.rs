//! Records a run that has ended: checks what it relied on once more, stores what it left, and
//! decides in which checkouts the result can be used.

use std::borrow::Cow;
use std::collections::HashSet;

use larder_compiler::{Family, Naming, is_config_status, is_in_no_order, is_log, naming};
use larder_lookup::{Request, ResponseFilesOnDisk, relocated, roots_digest, secret, subject};
use larder_model::Observer::{Depfile, Kernel, Preload};
use larder_model::{
    ActionResult, Bound, Change, Entry, Fingerprint, Looked, Made, ObservationSet, OfHistory, Seen, Unrecorded,
    contains,
};
use larder_observe::{Closing, Folded, Observed, RunModel};
use larder_portability::{
    CommandFacts, Content, Decision, OutputKind, Rewrites, RunFacts, ScriptScan, holds_an_address, run_by_shells_alone,
};
use larder_spawn::Command;
use larder_store::{InputVerifier, StatCache, VerifiedInputs};

use super::compiler_parts::{assembled, is_gccs};
use super::cross_check::CrossCheck;
use super::dated::{RunTime, no_output_is_dated};
use super::hidden_arguments::HiddenArguments;
use super::mtimes::Mtimes;
use super::not_recorded::NotRecorded;
use super::ordinary::{exit_code, unchanged_since_the_end};
use super::outputs::{OutputStorer, Searched, StoredContent, StoredKind, StoredOutput, StoredStreams, note_ticks};
use super::preprocess::preprocess;
use super::shown_status::{Value, note_shown_status};
use crate::context::Context;
use crate::recorder::Recorder;
use crate::run::observed_run::{ObservedRun, closing};
use crate::run::observer_trust::ObserverTrust;
use crate::run::pre_run_snapshot::PreRunSnapshot;

/// A run that was recorded.
pub(crate) struct Recorded {
    /// The number of bytes by which the store grew.
    pub(crate) grown: u64,
    /// The identity of the entry.
    pub(crate) strong: Fingerprint,
    /// The first difference to the record that the run was to verify.
    pub(crate) difference: Option<String>,
}

/// What differs from run to run and may be in the result. The value tells this run from others, and
/// becomes `bound_by` of the entry.
enum Chance {
    /// Process ids. The value is that of the command's first process.
    Number(Vec<u8>),
    /// Random numbers. The value is a new random number.
    Drawn(Vec<u8>),
}

/// The inputs that a run relied on, and the changes that it made.
struct ReliedOn {
    folded: Folded,
    hidden: HiddenArguments,
    mtimes: Mtimes,
    witnessed: VerifiedInputs,
}

/// A run that has ended, and what is needed to record it.
pub(crate) struct Run<'a> {
    pub(crate) context: &'a Context,
    pub(crate) recorder: &'a Recorder<'a>,
    pub(crate) stat_cache: &'a StatCache,
    pub(crate) request: &'a Request,
    pub(crate) command: &'a Command,
    pub(crate) before: PreRunSnapshot,
    pub(crate) started_ns: i64,
    pub(crate) run_time_us: u64,
    pub(crate) observer: larder_model::Observer,
    /// True if its process ids differ from those of the run before it.
    pub(crate) numbers_differ: bool,
    pub(crate) trust: &'a ObserverTrust<'a>,
    /// What one pass over the trace shows.
    pub(crate) model: &'a RunModel<'a>,
    /// It read from the terminal on standard input, or changed its settings.
    pub(crate) used_terminal: bool,
}

impl Run<'_> {
    /// Records the run. `before` is a recorded result to compare with.
    pub(crate) fn record(
        &self,
        observed_run: &ObservedRun,
        before: Option<&ActionResult>,
    ) -> Result<Recorded, NotRecorded> {
        let finished = &observed_run.observed.finished;
        let exit_code = exit_code(finished, self.observer)?;
        if let Some(sign) = observed_run.sign_of_harm(self.model, exit_code) {
            return Err(NotRecorded::Because(Unrecorded::Suspect, sign));
        }
        if self.used_terminal {
            return Err(NotRecorded::Because(Unrecorded::Terminal, Vec::new()));
        }
        let mut scripts = ScriptScan::of(&self.command_facts(), self.model);
        let mut relied_on = self.relied_on(observed_run, &scripts)?;
        if compares_dates(&mut scripts, &relied_on) {
            relied_on = self.relied_on(observed_run, &scripts)?;
        }
        let ReliedOn { folded, hidden, mtimes, witnessed } = relied_on;
        let sees_closing = match self.observer {
            Depfile => false,
            Kernel => closing(self.request.family) == Closing::Asked,
            Preload => true,
        };
        let closed = sees_closing.then_some(folded.seen.closed.as_slice());
        let (umask_was_set, owners_were_set) = (folded.seen.umask_is_set, folded.seen.owners_set);
        let mut stored = OutputStorer::new(self.recorder, closed, umask_was_set, owners_were_set);
        let mut outputs = self.store_outputs(&folded.seen.changed, mtimes, &mut stored)?;
        let streams = stored.streams(&finished.written)?;
        let shows_an_address = self.searched_texts(&outputs, &streams)?;
        let by_chance = self.chance(&observed_run.observed, &scripts, &folded, &outputs, &streams, shows_an_address)?;
        let Decision { limit: otherwise, mut rewrites } =
            self.portability(&folded, &hidden, &witnessed, exit_code, &outputs, &streams);
        let mut of_history = Vec::new();
        let mut set = witnessed.set();
        let bound = first_bound(by_chance, otherwise.as_ref())?;
        let mut made = Made { made_in: roots_digest(&self.request.roots), bound };
        let cross_check = CrossCheck {
            recorder: self.recorder,
            stat_cache: self.stat_cache,
            request: self.request,
            trust: &self.context.loaded.settings.remote_trust,
            foreign_program: folded.foreign_program.is_some(),
        };
        let result = self.result(exit_code, is_repeatable(&folded.seen), &outputs, &streams);
        if let Some(lifted) = cross_check.lifted(&made, otherwise, &set, &result) {
            (made.bound, rewrites) = (lifted.limit, lifted.rewrites);
            set = witnessed.set_moving(&lifted.moving);
            of_history = lifted.of_history;
        }
        let has_history = set.environment.iter().any(|fact| OfHistory::of_fact_name(fact.name).is_some());
        if has_history && of_history.is_empty() {
            of_history = cross_check.history(&made, &set, &result);
        }
        self.weaken(&mut set, &of_history);
        let Rewrites { messages, outputs: of_outputs } = rewrites;
        outputs.iter_mut().zip(of_outputs).for_each(|(output, rewrite)| output.set_rewrite(rewrite));
        let mut result = self.result(exit_code, is_repeatable(&folded.seen), &outputs, &streams);
        result.messages = messages;
        if result.is_rewritten() || made.bound.is_some() {
            result.origin = self.request.roots.all().collect();
        }
        let text = self.text(&set, &made, &result, &folded, &hidden, &outputs);
        result.text = text.as_ref().map(|text| text.borrowed());
        let difference =
            before.and_then(|before| super::verify::difference(before, &result, self.recorder, self.stat_cache));
        let (grown, strong) = self.write(&set, &made, &result)?;
        Ok(Recorded { grown: stored.grown + grown, strong, difference })
    }

    /// Returns what the run relied on and what it changed.
    fn relied_on(&self, observed_run: &ObservedRun, scripts: &ScriptScan) -> Result<ReliedOn, NotRecorded> {
        let mut folded = self.folded(observed_run, scripts)?;
        unchanged_since_the_end(&observed_run.observed.finished, &folded.seen.changed)?;
        no_output_is_dated(&folded.seen.changed, self.started_ns)?;
        let hidden = HiddenArguments::find(self.request, &self.context.place, &folded.seen.looked);
        hidden.refuse(self.request, observed_run.observer)?;
        let value = |name: &[u8]| self.context.place.asked(name);
        let value = (!self.is_keyed_whole()).then_some(&value as Value);
        note_shown_status(&mut folded.seen, &observed_run.observed.finished.written, value);
        let mtimes = Mtimes::of(&mut folded.seen, &self.request.roots, self.started_ns)?;
        self.add_what_nobody_saw(observed_run, scripts, &mut folded)?;
        let witnessed = self.witness(&folded.seen)?;
        Ok(ReliedOn { folded, hidden, mtimes, witnessed })
    }

    /// Replaces facts about variables by others with the empty value. `names` has both names of each.
    fn weaken<'n>(&self, set: &mut ObservationSet<'n>, names: &'n [(Vec<u8>, Vec<u8>)]) {
        for fact in &mut set.environment {
            if let Some((_, name)) = names.iter().find(|(name, _)| name == fact.name) {
                (fact.name, fact.value) = (name, Some(self.request.value_key.digest(b"")));
            }
        }
    }

    /// Checks once more everything that the run relied on, and makes observations of it.
    fn witness(&self, seen: &Seen) -> Result<VerifiedInputs, NotRecorded> {
        let anywhere = |bytes: &[u8]| self.request.object_anywhere(bytes);
        // Only whole commands need this.
        let is_command = self.request.family == Family::Command;
        let run = if is_command { run_by_shells_alone(self.model, is_config_status) } else { HashSet::new() };
        let uncut = |path: &[u8], bytes: &[u8]| {
            let is_read_whole = run.contains(path) || is_in_no_order(path);
            is_read_whole.then(|| relocated::uncut(path, bytes)).flatten()
        };
        let witness = InputVerifier {
            forms: self.request.forms(&anywhere, &uncut),
            roots: &self.request.roots,
            // Only the results of whole commands are compared between two places before they are
            // used in a third. That shows which paths above the root move with the place.
            recorded_above: if is_command { self.request.roots.outermost(&self.request.action.cwd) } else { None },
            only_once_counts: self.request.family == Family::Gcc && self.request.invocation.compiles(),
            one_file_counts: is_command,
            stat_cache: self.stat_cache,
            started_ns: self.started_ns,
            identities_are_the_tools: self.observer != Depfile,
            before_links: &|stat| self.before.before_links(stat),
            value_key: self.request.value_key,
        };
        witness.witness(seen).map_err(|refusal| NotRecorded::Because(refusal.why, refusal.path))
    }

    /// Returns what differs from run to run and may be in the result. The result is then recorded,
    /// but used only after another run with other values gave the same.
    ///
    /// - Process ids are accepted in a whole command, and refused in any other.
    /// - Random numbers are accepted in a compile or link.
    /// - A name that was made up at random is refused if the result holds it.
    fn chance(
        &self,
        observed: &Observed,
        scripts: &ScriptScan,
        folded: &Folded,
        outputs: &[StoredOutput],
        streams: &StoredStreams,
        shows_an_address: bool,
    ) -> Result<Option<Chance>, NotRecorded> {
        let numbers = scripts.numbers(self.model, &folded.inodes_shown);
        let told = numbers.are_any() && self.holds(outputs, false, streams, &|text: &[u8]| numbers.is_in(text));
        let by_chance = told || scripts.own_process.alone && self.is_keyed_whole();
        if scripts.own_process.calculated || by_chance && !(self.is_keyed_whole() && self.numbers_differ) {
            return Err(NotRecorded::Because(Unrecorded::Random, b"a process ID".to_vec()));
        }
        if scripts.use_inodes() && !folded.inodes_shown.is_empty() {
            return Err(NotRecorded::Because(Unrecorded::Random, b"an inode number".to_vec()));
        }
        let is_held = |name: &&Vec<u8>| self.holds(outputs, true, streams, &|text| contains(text, name));
        match folded.random_names.iter().find(is_held) {
            Some(name) => Err(NotRecorded::Because(Unrecorded::Random, name.clone())),
            None if by_chance => Ok(Some(Chance::Number(observed.finished.pid.to_string().into_bytes()))),
            // A random value, because any two runs draw different numbers, whatever their process
            // ids are.
            None if folded.chance_program.is_some() || shows_an_address => {
                Ok(Some(Chance::Drawn(format!("random {:016x}", larder_sys::random_u64()).into_bytes())))
            }
            None => Ok(None),
        }
    }

    /// Returns true if a text that a whole command made has an address of memory in it. Returns an
    /// error if one has the time of the run in it. Logs and large files are not searched.
    fn searched_texts(&self, outputs: &[StoredOutput], streams: &StoredStreams) -> Result<bool, NotRecorded> {
        const TEXT_BYTES_MAX: u64 = 256 << 10;
        if self.request.family != Family::Command {
            return Ok(false);
        }
        let run_time = RunTime::until_now(self.started_ns);
        let files = outputs.iter().filter(|output| !is_log(&output.path));
        let files = files.filter_map(|output| Some((output.path.as_slice(), output.content()?)));
        let messages = streams.iter().map(|message| (&b"a message"[..], message));
        let mut shows_an_address = false;
        for (name, content) in files.chain(messages) {
            if content.borrowed().size_bytes() > TEXT_BYTES_MAX {
                continue;
            }
            let Some(text) = content.searched(self.recorder, self.stat_cache) else { continue };
            if run_time.is_in(&text) {
                return Err(NotRecorded::Because(Unrecorded::Clock, name.to_vec()));
            }
            shows_an_address = shows_an_address || holds_an_address(&text);
        }
        Ok(shows_an_address)
    }

    /// Returns true if the whole environment is in the key, as for a command of `larder run`.
    pub(super) fn is_keyed_whole(&self) -> bool {
        self.request.invocation.family.keys_whole_environment()
    }

    fn command_facts(&self) -> CommandFacts<'_> {
        let Request { family, invocation, action, roots, input, .. } = self.request;
        CommandFacts { family: *family, invocation, action, roots, input }
    }

    /// Returns what the arguments of a compiler name.
    fn naming(&self, hidden: &HiddenArguments) -> Option<Naming> {
        let Request { family, action, .. } = self.request;
        let arguments = action.argv.get(1..).filter(|_| family.is_gcc_or_clang())?;
        let files = ResponseFilesOnDisk(&action.cwd);
        naming(arguments, &files)?.and_hidden(&hidden.words(), &files)
    }

    /// Decides in which checkouts the result can be used.
    fn portability(
        &self,
        folded: &Folded,
        hidden: &HiddenArguments,
        witnessed: &VerifiedInputs,
        exit_code: u8,
        outputs: &[StoredOutput],
        streams: &StoredStreams,
    ) -> Decision {
        let facts = RunFacts {
            command: self.command_facts(),
            naming: self.naming(hidden),
            preprocess: &|arguments| preprocess(self.command, arguments, exit_code != 0),
            relocates_debug: self.context.loaded.settings.relocate_debug,
            carried: witnessed.carried(),
            environment: &folded.seen.environment,
            asked_by_plugins: &folded.late_variables,
            plugins_ask_directory: folded.asks_directory_late,
            plugins_read_arguments: folded.reads_arguments_late,
            looked: &folded.seen.looked,
            foreign_program: folded.foreign_program.is_some(),
            gcc_ran: folded.seen.looked.iter().any(is_gccs),
            assembled: assembled(&witnessed.carried().rooted, self.model),
        };
        let searched = |content| Searched { content, recorder: self.recorder, stat_cache: self.stat_cache };
        let contents: Vec<Option<Searched>> = outputs.iter().map(|output| output.content().map(searched)).collect();
        let outputs: Vec<larder_portability::Output> = outputs
            .iter()
            .zip(&contents)
            .map(|(output, content)| {
                let kind = match (&output.kind, content) {
                    (_, Some(content)) => OutputKind::File(content),
                    (StoredKind::Link(target), None) => OutputKind::Link(target),
                    _ => OutputKind::Other,
                };
                larder_portability::Output { path: &output.path, kind }
            })
            .collect();
        let messages: Vec<Searched> = streams.iter().map(searched).collect();
        let messages: Vec<&dyn Content> = messages.iter().map(|message| message as &dyn Content).collect();
        facts.decide(&larder_portability::Outcome { outputs: &outputs, messages: &messages })
    }

    fn result<'k>(
        &self,
        exit_code: u8,
        repeatable: bool,
        outputs: &'k [StoredOutput],
        streams: &'k StoredStreams,
    ) -> ActionResult<'k> {
        let left = if !self.request.input.is_empty() { larder_sys::standard_input_left().unwrap_or(0) } else { 0 };
        ActionResult {
            exit_code,
            repeatable,
            consumed_bytes: (self.request.input.len() as u64).saturating_sub(left),
            outputs: outputs.iter().map(StoredOutput::borrowed).collect(),
            ..ActionResult::of(streams.map(StoredContent::borrowed))
        }
    }

    /// Writes the entry. Returns by how many bytes the store grew, and the entry's identity.
    fn write(
        &self,
        set: &ObservationSet,
        made: &Made,
        result: &ActionResult,
    ) -> Result<(u64, Fingerprint), NotRecorded> {
        let request = self.request;
        let walk = secret::explained(request);
        let mut body = Vec::new();
        if result_is_too_large(result, self.context.loaded.settings.max_size_bytes) {
            return Err(NotRecorded::Because(Unrecorded::TooLarge, Vec::new()));
        }
        let entry = Entry::new(&request.weak, self.observer, self.run_time_us, made, set, result, &mut body);
        let strong = entry.strong;
        Ok((self.recorder.record(&request.weak, &walk, entry, &subject(request))?, strong))
    }

    /// Returns true if `what` holds for a message, an output, its path or its link target. Logs are
    /// searched only if `logs` is true, because they may hold the process ids of the run that wrote
    /// them.
    fn holds(
        &self,
        outputs: &[StoredOutput],
        logs: bool,
        streams: &StoredStreams,
        what: &dyn Fn(&[u8]) -> bool,
    ) -> bool {
        let contents = outputs.iter().filter(|output| logs || !is_log(&output.path)).filter_map(StoredOutput::content);
        let contents = contents.chain(streams.iter());
        // A content that is too large to be searched counts as a match.
        let texts = contents.map(|content| content.searched(self.recorder, self.stat_cache));
        // An encoded path may begin with a root's placeholder, a NUL, which is not part of the
        // text.
        let name = |path: &[u8]| path.strip_prefix(b"\0").unwrap_or(path).to_vec();
        let names = outputs.iter().map(|output| Some(Cow::Owned(name(&output.path))));
        let target = |output: &StoredOutput| match &output.kind {
            StoredKind::Link(target) => Some(Some(Cow::Owned(target.clone()))),
            _ => None,
        };
        texts.chain(names).chain(outputs.iter().filter_map(target)).any(|text| text.is_none_or(|text| what(&text)))
    }

    fn store_outputs(
        &self,
        changed: &[(Vec<u8>, Change)],
        mut mtimes: Mtimes,
        stored: &mut OutputStorer,
    ) -> Result<Vec<StoredOutput>, NotRecorded> {
        let mut outputs = Vec::new();
        for (path, change) in changed {
            let (encoded, modified) = (self.request.roots.encoded_path(path), mtimes.take(path));
            outputs.push(StoredOutput { path: encoded, kind: stored.output(path, change)?, modified });
        }
        // Directories come first, because other outputs go into them. Files come in the order of
        // their mtimes, so that the newer of two files stays the newer.
        outputs.sort_by_key(|output| match output.kind {
            StoredKind::Directory(_) => i64::MIN,
            StoredKind::File { modified_ns, .. } => modified_ns,
            StoredKind::Link(_) | StoredKind::Removed => i64::MAX,
        });
        if self.request.family == Family::Command {
            note_ticks(&mut outputs);
        }
        Ok(outputs)
    }
}

/// Returns the bound of the new entry. `otherwise` restricts the result after another run has shown
/// that it holds no process id and no random number.
fn first_bound(
    by_chance: Option<Chance>,
    otherwise: Option<&(Bound, Vec<u8>)>,
) -> Result<Option<(Bound, Vec<u8>)>, NotRecorded> {
    match by_chance {
        // `Chance` may replace only `SeenOnce`. With any other bound the result would be used in
        // this checkout at once.
        Some(Chance::Number(_)) if otherwise.is_some_and(|(bound, _)| *bound != Bound::SeenOnce) => {
            Err(NotRecorded::Because(Unrecorded::Random, b"a process ID".to_vec()))
        }
        Some(Chance::Number(by) | Chance::Drawn(by)) => Ok(Some((Bound::Chance, by))),
        None => Ok(otherwise.cloned()),
    }
}

/// Returns true, and notes it in `scripts`, if a compile may compare mtimes because of a pragma in
/// what it read. Stamps say that of most inputs, so they are not read for this.
fn compares_dates(scripts: &mut ScriptScan, ReliedOn { folded, witnessed, .. }: &ReliedOn) -> bool {
    let looked = folded.seen.looked.iter().filter(|(_, looked)| looked.content);
    let inputs: HashSet<&[u8]> = looked.map(|(path, _)| path.as_slice()).collect();
    scripts.find_dates(witnessed.carried().compares_dates.is_some(), &|path| inputs.contains(path))
}

/// Returns true if the tool could run again on top of what it left.
fn is_repeatable(seen: &Seen) -> bool {
    let plain = |change: &Change| matches!(change, Change::File { .. } | Change::Link);
    let asks = |looked: &Looked| looked.prior.is_some() || looked.listed;
    seen.changed.iter().all(|(_, change)| plain(change)) && !seen.looked.iter().any(|(_, looked)| asks(looked))
}

/// Returns true for a result larger than the limit of the whole store, because it would only evict
/// everything else.
fn result_is_too_large(result: &ActionResult, limit_bytes: u64) -> bool {
    limit_bytes > 0 && result.blobs().map(|blob| blob.size_bytes).sum::<u64>() > limit_bytes
}
