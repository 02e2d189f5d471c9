//! Records a run that has ended: checks what it relied on once more, stores what it left, and
//! decides in which checkouts the result can be used.

use std::borrow::Cow;
use std::collections::HashSet;

use larder_compiler::{EnvironmentRule, Family, is_config_status, is_log};
use larder_lookup::{Request, relocated, secret, subject};
use larder_model::Observer::{Depfile, Kernel, Preload};
use larder_model::{ActionResult, Bound, Change, Entry, Fingerprint, Looked, Made, ObservationSet, Seen, Unrecorded};
use larder_observe::{Closing, Folded, Observed, RunModel};
use larder_spawn::Command;
use larder_store::{Stamps, StoreError, Witness, Witnessed};

use super::ordinary::{exit_code, unchanged_since_the_end};
use crate::before::Before;
use crate::context::Context;
use crate::dates::Dates;
use crate::keep::{Kept, KeptKind, KeptOutput, KeptStreams};
use crate::reach::{Reach, Reached};
use crate::sink::Sink;
use crate::texts::{Texts, run_by_shells_alone};
use crate::typed::file_name;
use crate::watch::{Programs, Watched, closing};

/// A run that was recorded.
pub(super) struct Recorded {
    /// The number of bytes by which the store grew.
    pub(super) grown: u64,
    /// The identity of the entry.
    pub(super) strong: Fingerprint,
    /// The first difference to the record that the run was to verify.
    pub(super) difference: Option<String>,
}

/// Why a run was not recorded: a reason with a path or a text, or an error of the store.
pub(crate) enum NotRecorded {
    Because(Unrecorded, Vec<u8>),
    Store(StoreError),
}

impl NotRecorded {
    pub(super) fn detail(&self) -> String {
        match self {
            NotRecorded::Because(_, path) => String::from_utf8_lossy(path).into_owned(),
            NotRecorded::Store(error) => error.to_string(),
        }
    }
}

impl From<StoreError> for NotRecorded {
    fn from(error: StoreError) -> Self {
        NotRecorded::Store(error)
    }
}

/// What differs from run to run and may be in the result. The value tells this run from others, and
/// becomes `bound_by` of the entry.
enum Chance {
    /// Process ids. The value is that of the command's first process.
    Number(Vec<u8>),
    /// Random numbers. The value is a new random number.
    Drawn(Vec<u8>),
}

/// A run that has ended, and what is needed to record it.
pub(super) struct Run<'a> {
    pub(super) context: &'a Context,
    pub(super) sink: &'a Sink<'a>,
    pub(super) stamps: &'a Stamps,
    pub(super) request: &'a Request,
    pub(super) command: &'a Command,
    pub(super) before: Before,
    pub(super) started_ns: i64,
    pub(super) run_time_us: u64,
    pub(super) observer: larder_model::Observer,
    /// True if its process ids differ from those of the run before it.
    pub(super) numbers_differ: bool,
    pub(super) programs: &'a Programs<'a>,
    /// What one pass over the trace shows.
    pub(super) model: &'a RunModel<'a>,
}

impl Run<'_> {
    /// Records the run. `before` is a recorded result to compare with.
    pub(super) fn record(&self, watched: &Watched, before: Option<&ActionResult>) -> Result<Recorded, NotRecorded> {
        let finished = &watched.observed.finished;
        let exit_code = exit_code(finished, self.observer)?;
        if let Some(sign) = watched.sign_of_harm(self.model, exit_code) {
            return Err(NotRecorded::Because(Unrecorded::Suspect, sign));
        }
        let texts = Texts::of(self.request, self.model);
        let mut folded = self.folded(watched, &texts)?;
        unchanged_since_the_end(finished, &folded.seen.changed)?;
        let dates = Dates::of(&mut folded.seen, &self.request.roots, self.started_ns)?;
        self.add_what_nobody_saw(watched, &texts, &mut folded)?;
        let witnessed = self.witness(&folded.seen)?;
        let sees_closing = match self.observer {
            Depfile => false,
            Kernel => closing(self.request.family) == Closing::Asked,
            Preload => true,
        };
        let closed = sees_closing.then_some(folded.seen.closed.as_slice());
        let (umask_was_set, owners_were_set) = (folded.seen.umask_is_set, folded.seen.owners_set);
        let mut kept = Kept::new(self.sink, closed, umask_was_set, owners_were_set);
        let mut outputs = self.keep_outputs(&folded.seen.changed, dates, &mut kept)?;
        let streams = kept.streams(&finished.written)?;
        let by_chance = self.chance(&watched.observed, &texts, &folded, &outputs, &streams)?;
        let reach = self.reach(&folded, &witnessed, exit_code);
        let Reached { mut made, mut messages } = reach.decide(&mut outputs, &streams);
        let set = witnessed.set();
        // What restricts the result after another run has shown that it holds no process id and no
        // random number.
        let otherwise = made.bound.take();
        made.bound = match by_chance {
            Some(Chance::Number(number)) => {
                // `Chance` may replace only `SeenOnce`. With any other bound the result would be
                // used in this checkout at once.
                if otherwise.as_ref().is_some_and(|(bound, _)| *bound != Bound::SeenOnce) {
                    return Err(NotRecorded::Because(Unrecorded::Random, b"the number of a process".to_vec()));
                }
                Some((Bound::Chance, number))
            }
            Some(Chance::Drawn(run)) => Some((Bound::Chance, run)),
            None => otherwise.clone(),
        };
        let result = self.result(exit_code, is_repeatable(&folded.seen), &outputs, &streams);
        if let Some((bound, rewrites)) = reach.lifted(&made, otherwise, &set, &result) {
            made.bound = bound;
            messages = rewrites.messages;
            outputs.iter_mut().zip(rewrites.outputs).for_each(|(output, rewrite)| output.is_rewritten(rewrite));
        }
        let mut result = self.result(exit_code, is_repeatable(&folded.seen), &outputs, &streams);
        result.messages = messages;
        if result.is_rewritten() || made.bound.is_some() {
            result.origin = self.request.roots.all().map(Vec::as_slice).collect();
        }
        let difference = before.and_then(|before| crate::verify::difference(before, &result, self.sink, self.stamps));
        let (grown, strong) = self.write(&set, &made, &result)?;
        Ok(Recorded { grown: kept.grown + grown, strong, difference })
    }

    /// Checks once more everything that the run relied on, and makes observations of it.
    fn witness(&self, seen: &Seen) -> Result<Witnessed, NotRecorded> {
        let anywhere = |bytes: &[u8]| self.request.object_anywhere(bytes);
        // Only whole commands need this.
        let is_command = self.request.family == Family::Command;
        let run = if is_command { run_by_shells_alone(self.model, is_config_status) } else { HashSet::new() };
        let uncut = |path: &[u8], bytes: &[u8]| if run.contains(path) { relocated::uncut(path, bytes) } else { None };
        let witness = Witness {
            forms: self.request.forms(&anywhere, &uncut),
            roots: &self.request.roots,
            stamps: self.stamps,
            started_ns: self.started_ns,
            identities_are_the_tools: self.observer != Depfile,
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
        texts: &Texts,
        folded: &Folded,
        outputs: &[KeptOutput],
        streams: &KeptStreams,
    ) -> Result<Option<Chance>, NotRecorded> {
        let numbers = texts.numbers(self.model, &folded.inodes_shown);
        let told = numbers.are_any() && self.holds(outputs, false, streams, &|text: &[u8]| numbers.is_in(text));
        let by_chance = told || texts.own_process.alone && self.is_keyed_whole();
        if texts.own_process.calculated || by_chance && !(self.is_keyed_whole() && self.numbers_differ) {
            return Err(NotRecorded::Because(Unrecorded::Random, b"the number of a process".to_vec()));
        }
        if texts.use_inodes() && !folded.inodes_shown.is_empty() {
            return Err(NotRecorded::Because(Unrecorded::Random, b"the number of an inode".to_vec()));
        }
        let is_held = |name: &&Vec<u8>| {
            let is_part = |text: &[u8]| memchr::memmem::find(text, name).is_some();
            self.holds(outputs, true, streams, &is_part)
        };
        match folded.random_names.iter().find(is_held) {
            Some(name) => Err(NotRecorded::Because(Unrecorded::Random, name.clone())),
            None if by_chance => Ok(Some(Chance::Number(observed.finished.pid.to_string().into_bytes()))),
            // A random value, because any two runs draw different numbers, whatever their process
            // ids are.
            None if folded.chance_program.is_some() => {
                Ok(Some(Chance::Drawn(format!("random {:016x}", larder_sys::random_u64()).into_bytes())))
            }
            None => Ok(None),
        }
    }

    /// Returns true if the whole environment is in the key, as for a command of `larder run`.
    pub(super) fn is_keyed_whole(&self) -> bool {
        self.request.invocation.environment == EnvironmentRule::Whole
    }

    fn reach<'r>(&'r self, folded: &'r Folded, witnessed: &'r Witnessed, exit_code: u8) -> Reach<'r> {
        let is_gccs = |(path, looked): &(Vec<u8>, Looked)| looked.content && file_name(path).starts_with(b"cc1");
        Reach {
            sink: self.sink,
            stamps: self.stamps,
            request: self.request,
            command: self.command,
            trust: &self.context.loaded.settings.remote_trust,
            relocates_debug: self.context.loaded.settings.relocate_debug,
            carried: witnessed.carried(),
            environment: &folded.seen.environment,
            looked: &folded.seen.looked,
            foreign_program: folded.foreign_program.is_some(),
            gcc_ran: folded.seen.looked.iter().any(is_gccs),
            assembled: assembled(&witnessed.carried().rooted, self.model),
            failed: exit_code != 0,
        }
    }

    fn result<'k>(
        &self,
        exit_code: u8,
        repeatable: bool,
        outputs: &'k [KeptOutput],
        streams: &'k KeptStreams,
    ) -> ActionResult<'k> {
        let left = if !self.request.input.is_empty() { larder_sys::standard_input_left().unwrap_or(0) } else { 0 };
        ActionResult {
            exit_code,
            repeatable,
            consumed_bytes: (self.request.input.len() as u64).saturating_sub(left),
            outputs: outputs.iter().map(KeptOutput::borrowed).collect(),
            ..ActionResult::of(streams.borrowed())
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
        Ok((self.sink.record(&request.weak, &walk, entry, &subject(request))?, strong))
    }

    /// Returns true if `what` holds for a message, an output, its path or its link target. Logs are
    /// searched only if `logs` is true, because they may hold the process ids of the run that wrote
    /// them.
    fn holds(&self, outputs: &[KeptOutput], logs: bool, streams: &KeptStreams, what: &dyn Fn(&[u8]) -> bool) -> bool {
        let contents = outputs.iter().filter(|output| logs || !is_log(&output.path)).filter_map(KeptOutput::content);
        let contents = contents.chain(streams.contents());
        // A content that is too large to be searched counts as a match.
        let texts = contents.map(|content| content.searched(self.sink, self.stamps));
        // An encoded path may begin with a root's placeholder, a NUL, which is not part of the
        // text.
        let name = |path: &[u8]| path.strip_prefix(b"\0").unwrap_or(path).to_vec();
        let names = outputs.iter().map(|output| Some(Cow::Owned(name(&output.path))));
        let target = |output: &KeptOutput| match &output.kind {
            KeptKind::Link(target) => Some(Some(Cow::Owned(target.clone()))),
            _ => None,
        };
        texts.chain(names).chain(outputs.iter().filter_map(target)).any(|text| text.is_none_or(|text| what(&text)))
    }

    fn keep_outputs(
        &self,
        changed: &[(Vec<u8>, Change)],
        mut dates: Dates,
        kept: &mut Kept,
    ) -> Result<Vec<KeptOutput>, NotRecorded> {
        let mut outputs = Vec::new();
        for (path, change) in changed {
            let mut encoded = Vec::new();
            self.request.roots.encode_path(path, &mut encoded);
            let modified = dates.take(path);
            outputs.push(KeptOutput { path: encoded, kind: kept.output(path, change)?, modified });
        }
        // Directories come first, because other outputs go into them. Files come in the order of
        // their mtimes, so that the newer of two files stays the newer.
        outputs.sort_by_key(|output| match output.kind {
            KeptKind::Directory(_) => i64::MIN,
            KeptKind::File { modified_ns, .. } => modified_ns,
            KeptKind::Link(_) | KeptKind::Removed => i64::MAX,
        });
        Ok(outputs)
    }
}

/// Returns the first of these files that an assembler opened.
fn assembled<'r>(rooted: &'r [Vec<u8>], run: &RunModel) -> Option<&'r Vec<u8>> {
    if rooted.is_empty() {
        return None;
    }
    let by_assembler = run.opens.iter().filter(|open| {
        let program = file_name(run.opener(open).program);
        program == b"as" || program.ends_with(b"-as")
    });
    let opened: HashSet<&[u8]> = by_assembler.map(|open| file_name(open.path)).collect();
    rooted.iter().find(|path| opened.contains(file_name(path)))
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
