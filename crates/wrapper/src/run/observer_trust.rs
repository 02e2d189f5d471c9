//! Learns from runs which programs the preloaded library can observe.
//!
//! The library is trusted for a program after the kernel observer has watched a run of it as well
//! and both saw the same. Accesses of the loader and libc that the library did not see in that run are
//! then added to each of its later runs. In a whole command, the kernel observer watches samples: a few processes of each
//! program without a verdict. If these do not suffice, it watches the whole next run.
//!
//! Unaware of: what the run is recorded for, whether it will be recorded.

use std::collections::BTreeMap;

use larder_compiler::{
    Family, family_of, is_compiler_part, is_rustc, load_plugins, loads_plugin, may_load_plugins, runs_other_code, rust,
    starts_others,
};
use larder_lookup::{
    Abilities, Place, Request, ResponseFilesOnDisk, changes_key, command_key, made_program_key, open_key, program_key,
    tool_key, unseen_path,
};
use larder_model::path::file_name;
use larder_model::{Digest, Identity, Judgement, Looked, Unrecorded, Unseen, Way};
use larder_observe::{Access, AccessKind, Interest, Observed, RunModel, Sample, Start, identity_of};
use larder_store::{Bounds, StatCache};
use larder_sys::ChildEnd;

use super::observed_run::ObservedRun;
use crate::context::Context;
use crate::own_file::own_path;
use crate::recorder::Recorder;

/// A command that changes more files in place than this is not recorded. Files that
/// `PreRunSnapshot` notes by itself do not count.
const CHANGES_MAX: usize = 1024;
/// If loader and libc read more paths of one program unseen than this, the program is not trusted.
const UNSEEN_MAX: usize = 4096;

/// Why a run is not trusted, and the program that is the cause.
pub(crate) type Doubt = (Unrecorded, Vec<u8>);

/// Holds the verdicts of the store on the programs of a request.
pub(crate) struct ObserverTrust<'a> {
    recorder: &'a Recorder<'a>,
    stat_cache: &'a StatCache,
    place: &'a Place,
    request: &'a Request,
    abilities: &'a Abilities<'a>,
    /// The settings ask for the preloaded library. The kernel observer then still checks it, but
    /// never replaces it.
    preload_is_forced: bool,
}

impl<'a> ObserverTrust<'a> {
    /// Makes it for the programs of `request`.
    pub(crate) fn new(
        context: &'a Context,
        recorder: &'a Recorder,
        stat_cache: &'a StatCache,
        request: &'a Request,
        abilities: &'a Abilities<'a>,
    ) -> ObserverTrust<'a> {
        let preload_is_forced = context.loaded.settings.observer == Some(larder_model::Observer::Preload);
        ObserverTrust { recorder, stat_cache, place: &context.place, request, abilities, preload_is_forced }
    }

    /// Stores a verdict for each program of a run, and how to observe the tool the next time. A
    /// failure to store it is harmless, because the program is then judged again. Returns the first
    /// thing that only one observer saw, as text.
    pub(crate) fn learn(&self, observed_run: &ObservedRun, run: &RunModel) -> Option<String> {
        if let Some(samples) = &observed_run.samples {
            return self.learn_by_samples(&observed_run.observed, run, samples);
        }
        let verdict = observed_run.verdict.as_ref()?;
        let ended_well = observed_run.observed.finished.end == ChildEnd::Exited(0);
        let makes_crate = self.request.family == Family::Rustc;
        let (mut plugins, named) = (self.plugins(run), self.named_plugins());
        let (mut faulty, mut tool_is_faulty, mut plugins_are_faulty) = (false, false, verdict.dropped);
        for (path, content) in self.of(run) {
            let missed = verdict.missed.iter().chain(&verdict.invented).any(|access| access.program == path);
            faulty |= missed;
            // rustup's proxy is the tool as well as the rustc that it becomes.
            let is_tool = content == self.request.action.tool || makes_crate && is_rustc(file_name(&path));
            // A procedural macro may have done it, and other crates do not load that macro. rustc
            // gets its verdict from a crate without macros, or with others.
            if missed && is_tool && !(plugins.is_empty() && named.is_empty()) {
                plugins_are_faulty = true;
                continue;
            }
            tool_is_faulty |= missed && is_tool;
            let judgement = match missed {
                true => self.disbelieved(&program_key(&content, self.request, self.place), ended_well),
                false => self.believed(&content, &path, &verdict.unseen),
            };
            self.keep_of_program(&path, &content, &judgement);
        }
        plugins_are_faulty |= tool_is_faulty;
        if plugins_are_faulty {
            plugins.extend(named);
        }
        self.learn_of_plugins(&plugins, plugins_are_faulty, ended_well);
        let of_run = match () {
            // Only some runs of rustc start a linker. It has a verdict of its own.
            () if makes_crate && !tool_is_faulty && ended_well => Judgement::Believed(Vec::new()),
            () if faulty || verdict.dropped => self.disbelieved(&self.run_key(), ended_well),
            () if ended_well => Judgement::Believed(Vec::new()),
            // The run failed, and one that succeeds may start more programs.
            () => Judgement::Again,
        };
        self.keep(&of_run);
        if command_key(self.request, self.place).is_some() && (tool_is_faulty || ended_well) {
            let key = tool_key(self.request, self.place);
            let of_tool = match tool_is_faulty {
                true => self.disbelieved(&key, ended_well),
                false => Judgement::Believed(Vec::new()),
            };
            self.recorder.keep_judgement(&key, &of_tool);
        }
        verdict.missed.iter().chain(&verdict.invented).next().map(message)
    }

    /// Stores a verdict for each procedural macro of a run. If the run is at fault, macros that were
    /// believed before are not to blame, unless all were.
    fn learn_of_plugins(&self, plugins: &BTreeMap<Vec<u8>, Digest>, are_faulty: bool, ended_well: bool) {
        let key = |content: &Digest| program_key(content, self.request, self.place);
        let is_believed =
            |content: &Digest| matches!(self.recorder.judgement(&key(content)), Some(Judgement::Believed(_)));
        let all_are = plugins.values().all(is_believed);
        for (path, content) in plugins {
            let judgement = match are_faulty && (all_are || !is_believed(content)) {
                true => self.disbelieved(&key(content), ended_well),
                false if are_faulty => continue,
                false => Judgement::Believed(Vec::new()),
            };
            self.keep_of_program(path, content, &judgement);
        }
    }

    fn learn_by_samples(&self, observed: &Observed, run: &RunModel, samples: &[Sample]) -> Option<String> {
        let programs = self.of(run);
        for (path, content) in &programs {
            let stat = larder_sys::stat(path).ok().map(|stat| identity_of(&stat));
            let of_it: Vec<&Sample> =
                samples.iter().filter(|s| s.program == *path && is_same(&s.identity, &stat)).collect();
            let judgement = match of_it.iter().any(|sample| is_odd(sample)) {
                true => Judgement::Disbelieved,
                false if of_it.iter().any(|sample| self.is_enough(sample)) => {
                    let unseen: Vec<Access> = of_it.iter().flat_map(|sample| sample.verdict.unseen.clone()).collect();
                    self.believed(content, path, &unseen)
                }
                false => continue,
            };
            self.keep_of_program(path, content, &judgement);
            if *content == self.request.action.tool {
                let guess =
                    if judgement == Judgement::Disbelieved { judgement } else { Judgement::Believed(Vec::new()) };
                self.recorder.keep_judgement(&tool_key(self.request, self.place), &guess);
            }
        }
        let odd = samples.iter().find(|sample| is_odd(sample));
        let ended_well = observed.finished.end == ChildEnd::Exited(0);
        match odd {
            Some(_) => self.keep(&Judgement::Disbelieved),
            // A run that fails may start fewer programs, so it says nothing here.
            None if ended_well && self.is_unjudged(&programs, run, samples) => {
                self.keep(&Judgement::Again);
            }
            None if ended_well => self.keep(&Judgement::Believed(Vec::new())),
            None => {}
        }
        odd.and_then(|sample| sample.verdict.missed.iter().chain(&sample.verdict.invented).next()).map(message)
    }

    /// Returns true if a program ran for which the samples do not suffice: one of `programs`, or
    /// one whose file is gone.
    fn is_unjudged(&self, programs: &BTreeMap<Vec<u8>, Digest>, run: &RunModel, samples: &[Sample]) -> bool {
        let is_known = |(path, content): (&Vec<u8>, &Digest)| {
            let judgement = self.recorder.judgement(&program_key(content, self.request, self.place));
            judgement.is_some() || self.is_believed_by_name(path)
        };
        self.gone_unjudged(run, samples).is_some() || !programs.iter().all(is_known)
    }

    /// Stores the verdict for a program by its content. It is stored by its path as well if the
    /// command may have built the program.
    fn keep_of_program(&self, path: &[u8], content: &Digest, judgement: &Judgement) {
        self.recorder.keep_judgement(&program_key(content, self.request, self.place), judgement);
        if self.may_be_made(path) {
            self.recorder.keep_judgement(&made_program_key(self.request, path, self.place), judgement);
        }
    }

    /// Returns a program whose file is gone or changed by now and for which the samples do not
    /// suffice.
    fn gone_unjudged(&self, run: &RunModel, samples: &[Sample]) -> Option<Vec<u8>> {
        let own = own_path();
        // For each path: the file that is there now, and earlier files that have enough samples.
        let mut began: BTreeMap<&[u8], Vec<Option<Identity>>> = BTreeMap::new();
        for start in run.starts.iter().filter(|start| begins(start) && start.program != own) {
            let now = || larder_sys::stat(start.program).ok().map(|stat| identity_of(&stat));
            let files = began.entry(start.program).or_insert_with(|| vec![now()]);
            if files.iter().any(|file| is_same(file, &start.identity)) {
                continue;
            }
            let of_it =
                |sample: &&Sample| sample.program == start.program && is_same(&sample.identity, &start.identity);
            if !samples.iter().filter(of_it).any(|sample| self.is_enough(sample)) {
                return Some(start.program.to_vec());
            }
            files.push(start.identity);
        }
        None
    }

    /// Returns true if a sample suffices to trust the library.
    fn is_enough(&self, sample: &Sample) -> bool {
        sample.verdict.alike && (sample.whole || self.lives_long(&sample.program))
    }

    /// Returns true for programs of which the beginning suffices as a sample. They run as long as
    /// the programs that they start or the source that they compile.
    fn lives_long(&self, program: &[u8]) -> bool {
        let name = file_name(program);
        (starts_others(name) || is_compiler_part(name)) && !self.may_be_made(program)
    }

    /// Returns how much is to be learned about the program at `path`. A process waits for the
    /// answer, so a large file is not read for it.
    ///
    /// A program that the command builds is sampled even if it has a verdict. It may be gone or
    /// rebuilt by the end, and only a sample then tells which file it was.
    pub(crate) fn interest(&self, path: &[u8]) -> Interest {
        const READ_BYTES_MAX: u64 = 1 << 20;
        let stat = larder_sys::stat(path).ok();
        let is_small = stat.as_ref().is_some_and(|stat| stat.size_bytes <= READ_BYTES_MAX);
        let read = || if is_small { self.stat_cache.content_of(path) } else { None };
        let content = stat.as_ref().and_then(|stat| self.stat_cache.content(stat)).or_else(read);
        match content.and_then(|content| self.recorder.judgement(&program_key(&content, self.request, self.place))) {
            Some(Judgement::Believed(_)) if !self.may_be_made(path) => Interest::Nothing,
            Some(Judgement::Disbelieved) => Interest::Nothing,
            // One sample suffices, as for a compiler that is run by itself: its first run is
            // judged, whatever its options.
            _ if is_compiler_part(file_name(path)) && !self.may_be_made(path) => Interest::OneLong,
            _ if self.lives_long(path) => Interest::Beginning,
            _ => Interest::Everything,
        }
    }

    /// Returns the judgement after a run in which the library and the kernel saw different things:
    /// `Disbelieved` once two runs that ended well did so. If larder itself runs short of something
    /// for a moment, one run looks like that too.
    fn disbelieved(&self, key: &Digest, ended_well: bool) -> Judgement {
        match self.recorder.judgement(key) {
            Some(Judgement::Disbelieved) => Judgement::Disbelieved,
            Some(Judgement::Again) if ended_well => Judgement::Disbelieved,
            _ => Judgement::Again,
        }
    }

    /// Stores how to observe the request's tool the next time, or the whole command.
    fn keep(&self, judgement: &Judgement) {
        self.recorder.keep_judgement(&self.run_key(), judgement);
    }

    /// The key of the judgement of the request's tool, or of the whole command that the request is.
    fn run_key(&self) -> Digest {
        command_key(self.request, self.place).unwrap_or_else(|| tool_key(self.request, self.place))
    }

    /// Called if the tool started `program`, which the library cannot be loaded into. The next run
    /// is then left to the kernel observer. That cannot observe rustc, and other crates do not start
    /// the program, so nothing changes for rustc. If `program` is the wrapper, this command is not
    /// observed any more, because a wrapper can report only to the library.
    pub(crate) fn leave_to_the_kernel(&self, observed_run: &ObservedRun, program: &[u8]) {
        match observed_run.observer {
            _ if self.preload_is_forced || self.request.family == Family::Rustc => {}
            larder_model::Observer::Preload => self.keep(&Judgement::Disbelieved),
            larder_model::Observer::Kernel if observed_run.verdict.is_none() && program == own_path() => {
                self.keep(&Judgement::Unreported)
            }
            _ => {}
        }
    }

    /// Returns the files that an earlier run of the whole command changed in place.
    pub(crate) fn changes(&self) -> Vec<Vec<u8>> {
        let known = changes_key(self.request, self.place).and_then(|key| self.recorder.judgement(&key));
        let Some(Judgement::Changes(paths)) = known else { return Vec::new() };
        paths.iter().filter_map(|encoded| self.request.roots.decoded_path(encoded)).collect()
    }

    /// Remembers files that a whole command changed in place. The next run can be recorded, because
    /// their content is then noted before it.
    pub(crate) fn learn_changes<'p>(&self, paths: impl Iterator<Item = &'p [u8]>) {
        let Some(key) = changes_key(self.request, self.place) else { return };
        let known = self.recorder.judgement(&key);
        let before = if let Some(Judgement::Changes(before)) = known { before } else { Vec::new() };
        let mut all = before.clone();
        all.extend(paths.take(CHANGES_MAX).map(|path| self.request.roots.encoded_path(path)));
        all.sort();
        all.dedup();
        if all != before && all.len() <= CHANGES_MAX {
            self.recorder.keep_judgement(&key, &Judgement::Changes(all));
        }
    }

    /// Returns the verdict that the library is trusted. It includes what was unseen in earlier
    /// runs.
    fn believed(&self, content: &Digest, path: &[u8], unseen: &[Access]) -> Judgement {
        let before = self.recorder.judgement(&program_key(content, self.request, self.place));
        let mut all = match before {
            Some(Judgement::Believed(before)) => before,
            _ => Vec::new(),
        };
        let look = |access: &Access| {
            let path = unseen_path(&access.path, self.request, self.place);
            Some(Unseen { path, way: way(access.kind)? })
        };
        all.extend(unseen.iter().filter(|access| access.program == path).filter_map(look));
        all.sort();
        all.dedup();
        if all.len() > UNSEEN_MAX { Judgement::Disbelieved } else { Judgement::Believed(all) }
    }

    /// Returns the paths that loader and libc read unseen in a run, or why the run is not trusted.
    pub(crate) fn unseen(&self, observed_run: &ObservedRun, run: &RunModel) -> Result<Vec<(Vec<u8>, Looked)>, Doubt> {
        if observed_run.observer != larder_model::Observer::Preload {
            // The kernel does not tell rustc's reads of the clock from those of a procedural macro.
            if self.request.family == Family::Rustc {
                return Err((Unrecorded::Unjudged, self.request.command.program.clone()));
            }
            if let Some(program) = self.loads_plugins_unseen(run) {
                return Err((Unrecorded::Unjudged, program));
            }
            let taken = self.preload_is_forced && observed_run.verdict.is_some();
            return if taken { Err((Unrecorded::Unjudged, Vec::new())) } else { Ok(Vec::new()) };
        }
        let mut looks = BTreeMap::new();
        if let Some(samples) = &observed_run.samples {
            // Checked first, because the file of a sampled program may be gone.
            if let Some(odd) = samples.iter().find(|sample| is_odd(sample)) {
                return Err(self.doubt(Judgement::Disbelieved, odd.program.clone()));
            }
        }
        // If both observers watched the run, they saw what such a program did.
        let samples = observed_run.samples.as_deref().unwrap_or_default();
        if observed_run.verdict.is_none()
            && let Some(path) = self.gone_unjudged(run, samples)
        {
            let key = made_program_key(self.request, &path, self.place);
            return Err(self.unjudged(path, key));
        }
        for (path, content) in self.of(run) {
            let key = program_key(&content, self.request, self.place);
            let judgement = self.recorder.judgement(&key);
            let by_name = || self.recorder.judgement(&made_program_key(self.request, &path, self.place));
            match judgement.or_else(|| if self.may_be_made(&path) { by_name() } else { None }) {
                Some(Judgement::Believed(unseen)) => {
                    for stat in &unseen {
                        let Some(path) = self.request.roots.decoded_path(&stat.path) else {
                            return Err(self.doubt(Judgement::Again, path));
                        };
                        merge(looks.entry(path).or_default(), stat);
                    }
                }
                None if self.is_believed_by_name(&path) => {}
                Some(Judgement::Disbelieved) => return Err(self.doubt(Judgement::Disbelieved, path)),
                _ => return Err(self.unjudged(path, key)),
            }
        }
        for (path, content) in self.plugins(run) {
            let key = program_key(&content, self.request, self.place);
            match self.recorder.judgement(&key) {
                Some(Judgement::Believed(_)) => {}
                Some(Judgement::Disbelieved) => return Err(self.doubt(Judgement::Disbelieved, path)),
                _ => return Err(self.unjudged(path, key)),
            }
        }
        Ok(looks.into_iter().collect())
    }

    /// Returns a compiler that may have loaded a plugin. The kernel does not tell the plugin's reads
    /// of the clock and of mtimes from those of the compiler.
    fn loads_plugins_unseen(&self, run: &RunModel) -> Option<Vec<u8>> {
        let arguments = &self.request.action.argv[1..];
        let is_compile = self.request.family.is_gcc_or_clang();
        if is_compile && load_plugins(arguments, &ResponseFilesOnDisk(&self.request.action.cwd)) {
            return Some(self.request.command.program.clone());
        }
        // Too long to be kept whole. The command's own arguments are known, and gcc's driver passes
        // them on to parts that load the plugin.
        let may_load = |program: &[u8]| {
            family_of(program) != Some(Family::Gcc)
                && (!is_compile || arguments.iter().any(|word| runs_other_code(word)))
        };
        let loads = |start: &&Start| {
            let program = file_name(start.program);
            may_load_plugins(program)
                && match larder_observe::arguments(start.arguments) {
                    Some(mut words) => words.any(loads_plugin),
                    None => may_load(program),
                }
        };
        run.starts.iter().find(loads).map(|start| start.program.to_vec())
    }

    /// Returns the procedural macros that rustc loaded, with the digests of their files. Each is
    /// judged by itself, because it runs in rustc's process.
    fn plugins(&self, run: &RunModel) -> BTreeMap<Vec<u8>, Digest> {
        macros(run).filter_map(|path| Some((path.to_vec(), self.stat_cache.content_of(path)?))).collect()
    }

    /// Returns the procedural macros that the command line names. The trace may end before rustc
    /// loads them, if the preloaded library could not follow the run.
    fn named_plugins(&self) -> BTreeMap<Vec<u8>, Digest> {
        if self.request.family != Family::Rustc {
            return BTreeMap::new();
        }
        let externs = rust(&self.request.action.argv[1..]).externs;
        let paths = externs.into_iter().filter(|path| path.ends_with(b".so")).map(|path| self.request.absolute(path));
        paths.filter_map(|path| Some((path.clone(), self.stat_cache.content_of(&path)?))).collect()
    }

    /// Returns true if the command may have built this program.
    fn may_be_made(&self, program: &[u8]) -> bool {
        self.request.family == Family::Command && self.request.may_write(program)
    }

    /// Returns true for a known part of a compiler, if the kernel observer does not work here.
    fn is_believed_by_name(&self, program: &[u8]) -> bool {
        let name = file_name(program);
        is_compiler_part(name) && !is_rustc(name) && !self.abilities.kernel()
    }

    /// Returns why a run is not trusted, and remembers how to observe the next one. A linker or a
    /// procedural macro that cannot be observed is no reason to give up the other crates.
    fn doubt(&self, next: Judgement, program: Vec<u8>) -> Doubt {
        let is_of_other = || self.request.family == Family::Rustc && !is_rustc(file_name(&program));
        if next != Judgement::Disbelieved || !is_of_other() {
            self.keep(&next);
        }
        (Unrecorded::Unjudged, program)
    }

    /// Returns why a run is not trusted in which a program or a procedural macro without a verdict
    /// ran, whose verdict would have this key. The next run of this command is watched by both
    /// observers, and so is the next run of the tool, which may start the program sooner.
    fn unjudged(&self, program: Vec<u8>, key: Digest) -> Doubt {
        if let Some(command) = open_key(self.request, self.place) {
            self.recorder.keep_judgement(&command, &Judgement::Open(key));
        }
        self.doubt(Judgement::Again, program)
    }

    /// Returns the programs that were started, with the digests of their files.
    fn of(&self, run: &RunModel) -> BTreeMap<Vec<u8>, Digest> {
        let mut programs = BTreeMap::new();
        let own = own_path();
        for start in run.starts.iter().filter(|start| begins(start) && start.program != own) {
            if !programs.contains_key(start.program)
                && let Some(content) = self.stat_cache.content_of(start.program)
            {
                programs.insert(start.program.to_vec(), content);
            }
        }
        programs
    }
}

/// Returns true for the start of a program, unless a wrapper inside the run has reported everything
/// about it.
fn begins(start: &Start) -> bool {
    !start.failed && !start.is_reported_whole
}

/// Describes what only one observer saw.
fn message(odd: &Access) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!(
        "the preloaded library is not trusted for {}: only one observer saw {} ({:?})",
        text(&odd.program),
        text(&odd.path),
        odd.kind
    )
}

/// Returns true if only one observer saw something.
fn is_odd(sample: &Sample) -> bool {
    !sample.verdict.missed.is_empty() || !sample.verdict.invented.is_empty()
}

/// Returns true if both are the same file with the same size and mtime.
fn is_same(one: &Option<Identity>, other: &Option<Identity>) -> bool {
    let parts = |id: &Identity| (id.device, id.inode, id.size_bytes, id.modified_ns);
    one.is_some() && one.as_ref().map(parts) == other.as_ref().map(parts)
}

fn way(kind: AccessKind) -> Option<Way> {
    match kind {
        AccessKind::Read => Some(Way::Content),
        AccessKind::Looked => Some(Way::Kind),
        AccessKind::Link => Some(Way::Link),
        AccessKind::Listed => Some(Way::Listing),
        AccessKind::Absent => Some(Way::Absence),
        AccessKind::Failed(errno) => Some(Way::Error(errno as u32)),
        AccessKind::Made | AccessKind::Removed | AccessKind::Changed | AccessKind::Socket | AccessKind::Asked => None,
    }
}

fn merge(looked: &mut Looked, stat: &Unseen) {
    let more = stat.looked();
    looked.content |= more.content;
    looked.kind |= more.kind;
    looked.link |= more.link;
    looked.listed |= more.listed;
    looked.absent |= more.absent;
    looked.failed = looked.failed.or(more.failed);
}

/// Returns the paths of the procedural macros that rustc loaded.
pub(crate) fn macros<'t>(run: &RunModel<'t>) -> impl Iterator<Item = &'t [u8]> {
    let of_rustc = run.plugins.iter().filter(|(program, _)| is_rustc(file_name(program)));
    of_rustc.map(|(_, path)| *path)
}
