//! The run of a tool under the eyes that were chosen for it, and what is learned of the programs that it starts.
//!
//! A program's observations by the preloaded library are believed once the kernel saw a run of it as well and both saw
//! the same; what loader and libc did unseen in that run is then added to each of its runs. Of a whole command the
//! kernel sees samples, a few processes of each program that is not known; where these do not tell enough, all of the
//! next run.
//!
//! Unaware of: what the run is recorded for, and whether it will be.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use larder_compiler::{Family, is_compiler_part, starts_others};
use larder_lookup::{
    Abilities, Choice, Place, Request, changes_key, command_key, made_program_key, program_key, tool_key,
};
use larder_model::{Digest, Fallback, Identity, Judgement, Looked, Outcome, Unrecorded, Unseen, Way};
use larder_observe::{
    BothObservers, Closing, DepfileObserver, Event, Interest, KernelObserver, Kind, Observed, Observer,
    PreloadObserver, REPORTED_WHOLE, Sample, SampledObserver, Sight, Trace, Verdict, What, identity_of,
};
use larder_spawn::{Command, Destinations};
use larder_store::{Bounds, Stamps};
use larder_sys::{ChildEnd, Rival};

use crate::context::{Context, OWN_FILE};
use crate::fetch::Race;
use crate::sink::Sink;
use crate::typed::file_name;

/// A command that changes more files than these beyond what `Before` notes by itself is not recorded.
const CHANGES_MAX: usize = 1024;
/// Linux has no such system call, or refuses it.
const ENOSYS: i32 = 38;
/// Looks of loader and libc kept of one program: more means that they are none.
const UNSEEN_MAX: usize = 4096;

/// Who watches.
pub(crate) enum Eyes {
    One(Box<dyn Observer>),
    Both(BothObservers),
    Samples(SampledObserver),
}

/// A run that was watched.
pub(crate) struct Watched {
    pub(crate) observed: Observed,
    /// Whose trace it is.
    pub(crate) observer: larder_model::Observer,
    /// What the kernel said of the preloaded library, where both watched.
    verdict: Option<Verdict>,
    /// The same of single processes.
    samples: Option<Vec<Sample>>,
}

impl Watched {
    /// Returns what suggests that observing changed what the tool did, if anything does: a path, or a sentence. Such a run
    /// is not recorded, because the tool would do otherwise if it were not observed.
    ///
    /// For example, the loader ends a program whose libc lacks something that the preloaded library needs.
    pub(crate) fn sign_of_harm(&self, exit_code: u8) -> Option<Vec<u8>> {
        let trace = &self.observed.trace;
        let verdict = self.verdict.as_ref();
        // The library said that a call failed of which the kernel knows nothing.
        let made_up = verdict.and_then(|v| v.invented.iter().find(|sight| sight.what == What::Failed(ENOSYS)));
        if let Some(sight) = made_up {
            return Some(sight.path.clone());
        }
        if exit_code == 0 {
            return None;
        }
        if verdict.is_some_and(|verdict| !verdict.alike) {
            return Some(b"the preloaded library and the kernel saw different things".to_vec());
        }
        let first = self.observed.finished.pid;
        let began = |event: &Event<&[u8]>| event.kind == Kind::Start && event.pid == first;
        if self.observer == larder_model::Observer::Preload && !trace.iter().any(|event| began(&event)) {
            return Some(b"the tool did not begin".to_vec());
        }
        trace.iter().find(|event| event.error == ENOSYS).map(|event| event.path.to_vec())
    }
}

/// Whether the kernel is to ask of closing: a script's interpreter may catch signals.
pub(crate) fn closing(family: Family) -> Closing {
    match family {
        Family::Gcc | Family::Clang | Family::Binutils => Closing::Asked,
        Family::Generic | Family::Command => Closing::Unasked,
    }
}

impl Eyes {
    /// Those of `choice`.
    pub(crate) fn of(choice: Choice, closing: Closing) -> Result<Eyes, Outcome> {
        let failed = |_| Outcome::Fallback(Fallback::ObserverFailed);
        Ok(match choice {
            Choice::Preload => Eyes::One(Box::new(PreloadObserver::new().map_err(failed)?)),
            Choice::Kernel => Eyes::One(Box::new(KernelObserver::new(closing))),
            Choice::Depfile(plan) => Eyes::One(Box::new(DepfileObserver::new(*plan))),
            Choice::Both => Eyes::Both(BothObservers::new(closing).map_err(failed)?),
            Choice::Samples => Eyes::Samples(SampledObserver::new().map_err(failed)?),
        })
    }

    /// Run the tool, until the race is lost for it. Of programs that are known no samples are taken. An error means that
    /// it was not started and still can be.
    pub(crate) fn run(
        &self,
        command: &Command,
        to: &Destinations,
        race: Option<&mut Race>,
        programs: &Programs,
    ) -> io::Result<Watched> {
        let both = match self {
            Eyes::One(observer) => {
                // Of what nobody saw it make nothing could be taken away.
                let race = race.filter(|_| observer.name() != larder_model::Observer::Depfile);
                let observed = observer.run(command, to, race.map(|race| race as &mut dyn Rival))?;
                return Ok(Watched { observed, observer: observer.name(), verdict: None, samples: None });
            }
            Eyes::Samples(samples) => {
                let race = race.map(|race| race as &mut dyn Rival);
                let sampled = samples.run(command, to, race, &|path| programs.interest(path))?;
                let (observed, samples) = (sampled.observed, Some(sampled.samples));
                return Ok(Watched { observed, observer: larder_model::Observer::Preload, verdict: None, samples });
            }
            // Somebody else may be listening already: then the library watches alone.
            // The kernel judges the library by a whole run.
            Eyes::Both(both) => match both.run(command, to, None) {
                Ok(both) => both,
                Err(_) => {
                    let alone = Eyes::of(Choice::Preload, Closing::Unasked).map_err(|_| io::ErrorKind::Unsupported)?;
                    return alone.run(command, to, None, programs);
                }
            },
        };
        let verdict = Some(both.verdict());
        let alike = verdict.as_ref().is_some_and(|verdict| verdict.alike);
        let (observed, observer) = match alike {
            true => (both.observed, larder_model::Observer::Preload),
            false => (both.by_kernel(), larder_model::Observer::Kernel),
        };
        Ok(Watched { observed, observer, verdict, samples: None })
    }
}

/// Why a run is not believed, and by which program.
pub(crate) type Doubt = (Unrecorded, Vec<u8>);

/// What is known of programs in a place.
pub(crate) struct Programs<'a> {
    sink: &'a Sink<'a>,
    stamps: &'a Stamps,
    place: &'a Place,
    request: &'a Request,
    abilities: &'a Abilities<'a>,
    /// The settings ask for the library: the kernel judges it, and takes no run from it.
    preload_is_forced: bool,
}

impl<'a> Programs<'a> {
    /// Those that `request` has to do with.
    pub(crate) fn new(
        context: &'a Context,
        sink: &'a Sink,
        stamps: &'a Stamps,
        request: &'a Request,
        abilities: &'a Abilities<'a>,
    ) -> Programs<'a> {
        let preload_is_forced = context.loaded.settings.observer == Some(larder_model::Observer::Preload);
        Programs { sink, stamps, place: &context.place, request, abilities, preload_is_forced }
    }

    /// Keep what the kernel said of the programs of a run, and what is to be done with the tool the next time.
    /// Trouble in keeping it only means that it is asked again. Returns the first thing that only one of the two saw.
    pub(crate) fn learn(&self, watched: &Watched) -> Option<String> {
        if let Some(samples) = &watched.samples {
            return self.learn_by_samples(&watched.observed, samples);
        }
        let verdict = watched.verdict.as_ref()?;
        let ended_well = watched.observed.finished.end == ChildEnd::Exited(0);
        let (mut faulty, mut tool_is_faulty) = (false, false);
        for (path, content) in self.of(&watched.observed.trace) {
            let missed = verdict.missed.iter().chain(&verdict.invented).any(|sight| sight.program == path);
            faulty |= missed;
            tool_is_faulty |= missed && content == self.request.action.tool;
            let judgement = match missed {
                true => self.disbelieved(&program_key(&content, self.place), ended_well),
                false => self.believed(&content, &path, &verdict.unseen),
            };
            self.keep_of_program(&path, &content, &judgement);
        }
        let of_run = match () {
            () if faulty || verdict.dropped => self.disbelieved(&self.run_key(), ended_well),
            () if ended_well => Judgement::Believed(Vec::new()),
            // One that succeeds starts more.
            () => Judgement::Again,
        };
        self.keep(&of_run);
        if command_key(self.request, self.place).is_some() && (tool_is_faulty || ended_well) {
            let key = tool_key(self.request, self.place);
            let of_tool = match tool_is_faulty {
                true => self.disbelieved(&key, ended_well),
                false => Judgement::Believed(Vec::new()),
            };
            self.sink.keep_judgement(&key, &of_tool);
        }
        verdict.missed.iter().chain(&verdict.invented).next().map(said)
    }

    fn learn_by_samples(&self, observed: &Observed, samples: &[Sample]) -> Option<String> {
        let programs = self.of(&observed.trace);
        for (path, content) in &programs {
            let look = larder_sys::look_through(path).ok().map(|look| identity_of(&look));
            let of_it: Vec<&Sample> =
                samples.iter().filter(|s| s.program == *path && is_same(&s.identity, &look)).collect();
            let judgement = match of_it.iter().any(|sample| is_odd(sample)) {
                true => Judgement::Disbelieved,
                false if of_it.iter().any(|sample| self.is_enough(sample)) => {
                    let unseen: Vec<Sight> = of_it.iter().flat_map(|sample| sample.verdict.unseen.clone()).collect();
                    self.believed(content, path, &unseen)
                }
                false => continue,
            };
            self.keep_of_program(path, content, &judgement);
            if *content == self.request.action.tool {
                let guess =
                    if judgement == Judgement::Disbelieved { judgement } else { Judgement::Believed(Vec::new()) };
                self.sink.keep_judgement(&tool_key(self.request, self.place), &guess);
            }
        }
        let odd = samples.iter().find(|sample| is_odd(sample));
        let ended_well = observed.finished.end == ChildEnd::Exited(0);
        match odd {
            Some(_) => self.keep(&Judgement::Disbelieved),
            // One that succeeds starts more.
            None if ended_well && self.is_unjudged(&programs, &observed.trace, samples) => {
                self.keep(&Judgement::Again);
            }
            None if ended_well => self.keep(&Judgement::Believed(Vec::new())),
            None => {}
        }
        odd.and_then(|sample| sample.verdict.missed.iter().chain(&sample.verdict.invented).next()).map(said)
    }

    /// Something ran of which the samples do not tell enough, be it one of these `programs`, or gone.
    fn is_unjudged(&self, programs: &BTreeMap<Vec<u8>, Digest>, trace: &Trace, samples: &[Sample]) -> bool {
        let is_known = |(path, content): (&Vec<u8>, &Digest)| {
            let judgement = self.sink.judgement(&program_key(content, self.place));
            judgement.is_some() || self.is_believed_by_name(path)
        };
        self.gone_unjudged(trace, samples).is_some() || !programs.iter().all(is_known)
    }

    /// Keep what is known of a program now: by its content, and by its path where the command may make it.
    fn keep_of_program(&self, path: &[u8], content: &Digest, judgement: &Judgement) {
        self.sink.keep_judgement(&program_key(content, self.place), judgement);
        if self.may_be_made(path) {
            self.sink.keep_judgement(&made_program_key(self.request, path, self.place), judgement);
        }
    }

    /// A program that began as a file that is not there any more, and of which the samples do not tell enough.
    fn gone_unjudged(&self, trace: &Trace, samples: &[Sample]) -> Option<Vec<u8>> {
        let own = own_path();
        // What each is at the end, and what it was besides.
        let mut began: BTreeMap<&[u8], Vec<Option<Identity>>> = BTreeMap::new();
        for event in trace.iter().filter(|event| begins(event) && event.path != own) {
            let now = || larder_sys::look_through(event.path).ok().map(|look| identity_of(&look));
            let files = began.entry(event.path).or_insert_with(|| vec![now()]);
            if files.iter().any(|file| is_same(file, &event.identity)) {
                continue;
            }
            let of_it = |sample: &&Sample| sample.program == event.path && is_same(&sample.identity, &event.identity);
            if !samples.iter().filter(of_it).any(|sample| self.is_enough(sample)) {
                return Some(event.path.to_vec());
            }
            files.push(event.identity);
        }
        None
    }

    /// Whether a sample says that the library is to be believed.
    fn is_enough(&self, sample: &Sample) -> bool {
        sample.verdict.alike && (sample.whole || self.lives_long(&sample.program))
    }

    /// The beginning of a life is enough of those only that live as long as what they start, or what they compile.
    fn lives_long(&self, program: &[u8]) -> bool {
        let name = file_name(program);
        (starts_others(name) || is_compiler_part(name)) && !self.may_be_made(program)
    }

    /// How much is still to be learned of the program at `path`. Somebody waits for the answer, so a large file is not
    /// read for it. What the command makes may be gone at the end, or made anew, when nobody can tell which it was: only
    /// a sample does.
    fn interest(&self, path: &[u8]) -> Interest {
        const READ_BYTES_MAX: u64 = 1 << 20;
        let look = larder_sys::look_through(path).ok();
        let is_small = look.as_ref().is_some_and(|look| look.size_bytes <= READ_BYTES_MAX);
        let read = || if is_small { self.content(path) } else { None };
        let content = look.as_ref().and_then(|look| self.stamps.content(look)).or_else(read);
        match content.and_then(|content| self.sink.judgement(&program_key(&content, self.place))) {
            Some(Judgement::Believed(_)) if !self.may_be_made(path) => Interest::Nothing,
            Some(Judgement::Disbelieved) => Interest::Nothing,
            // As the first run of a compiler by itself is, whatever its options.
            _ if is_compiler_part(file_name(path)) && !self.may_be_made(path) => Interest::OneLong,
            _ if self.lives_long(path) => Interest::Beginning,
            _ => Interest::Everything,
        }
    }

    /// Returns the judgement after a run in which the library and the kernel saw different things: `Disbelieved` once two
    /// runs that ended well did so. If larder itself runs short of something for a moment, one run looks like that too.
    fn disbelieved(&self, key: &Digest, ended_well: bool) -> Judgement {
        match self.sink.judgement(key) {
            Some(Judgement::Disbelieved) => Judgement::Disbelieved,
            Some(Judgement::Again) if ended_well => Judgement::Disbelieved,
            _ => Judgement::Again,
        }
    }

    /// Keep what is to be done the next time that the request's tool runs, or the whole command that it is.
    fn keep(&self, judgement: &Judgement) {
        self.sink.keep_judgement(&self.run_key(), judgement);
    }

    /// The key of the judgement of the request's tool, or of the whole command that the request is.
    fn run_key(&self) -> Digest {
        command_key(self.request, self.place).unwrap_or_else(|| tool_key(self.request, self.place))
    }

    /// The tool starts `program`, which the library cannot be loaded into: the next run is the kernel's. Where that is
    /// the wrapper, which could tell nobody but the library, no run of this command is worth watching.
    pub(crate) fn leave_to_the_kernel(&self, watched: &Watched, program: &[u8]) {
        match watched.observer {
            _ if self.preload_is_forced => {}
            larder_model::Observer::Preload => self.keep(&Judgement::Disbelieved),
            larder_model::Observer::Kernel if watched.verdict.is_none() && program == own_path() => {
                self.keep(&Judgement::Unreported)
            }
            _ => {}
        }
    }

    /// The files that a whole command changed in place when it ran before.
    pub(crate) fn changes(&self) -> Vec<Vec<u8>> {
        let known = changes_key(self.request, self.place).and_then(|key| self.sink.judgement(&key));
        let Some(Judgement::Changes(paths)) = known else { return Vec::new() };
        let decoded = |encoded: Vec<u8>| {
            let mut path = Vec::new();
            self.request.roots.decode_path(&encoded, &mut path).then_some(path)
        };
        paths.into_iter().filter_map(decoded).collect()
    }

    /// A whole command changed these: its next run can be recorded if what is in them is noted first.
    pub(crate) fn learn_changes<'p>(&self, paths: impl Iterator<Item = &'p [u8]>) {
        let Some(key) = changes_key(self.request, self.place) else { return };
        let known = self.sink.judgement(&key);
        let before = if let Some(Judgement::Changes(before)) = known { before } else { Vec::new() };
        let mut all = before.clone();
        all.extend(paths.take(CHANGES_MAX).map(|path| {
            let mut encoded = Vec::new();
            self.request.roots.encode_path(path, &mut encoded);
            encoded
        }));
        all.sort();
        all.dedup();
        if all != before && all.len() <= CHANGES_MAX {
            self.sink.keep_judgement(&key, &Judgement::Changes(all));
        }
    }

    /// With what was unseen in runs before.
    fn believed(&self, content: &Digest, path: &[u8], unseen: &[Sight]) -> Judgement {
        let before = self.sink.judgement(&program_key(content, self.place));
        let mut all = match before {
            Some(Judgement::Believed(before)) => before,
            _ => Vec::new(),
        };
        all.extend(unseen.iter().filter(|sight| sight.program == path).filter_map(unseen_look));
        all.sort();
        all.dedup();
        if all.len() > UNSEEN_MAX { Judgement::Disbelieved } else { Judgement::Believed(all) }
    }

    /// What loader and libc look at unseen in a run that the library saw alone or with the kernel; or why the run is
    /// not believed.
    pub(crate) fn unseen(&self, watched: &Watched) -> Result<Vec<(Vec<u8>, Looked)>, Doubt> {
        if watched.observer != larder_model::Observer::Preload {
            let taken = self.preload_is_forced && watched.verdict.is_some();
            return if taken { Err((Unrecorded::Unjudged, Vec::new())) } else { Ok(Vec::new()) };
        }
        let mut looks = BTreeMap::new();
        if let Some(samples) = &watched.samples {
            // Whatever became of its file.
            if let Some(odd) = samples.iter().find(|sample| is_odd(sample)) {
                return Err(self.doubt(Judgement::Disbelieved, odd.program.clone()));
            }
            if let Some(path) = self.gone_unjudged(&watched.observed.trace, samples) {
                return Err(self.doubt(Judgement::Again, path));
            }
        }
        for (path, content) in self.of(&watched.observed.trace) {
            let judgement = self.sink.judgement(&program_key(&content, self.place));
            let by_name = || self.sink.judgement(&made_program_key(self.request, &path, self.place));
            match judgement.or_else(|| if self.may_be_made(&path) { by_name() } else { None }) {
                Some(Judgement::Believed(unseen)) => {
                    unseen.into_iter().for_each(|look| merge(looks.entry(look.path.clone()).or_default(), &look));
                }
                None if self.is_believed_by_name(&path) => {}
                Some(Judgement::Disbelieved) => return Err(self.doubt(Judgement::Disbelieved, path)),
                _ => return Err(self.doubt(Judgement::Again, path)),
            }
        }
        Ok(looks.into_iter().collect())
    }

    /// A whole command makes programs and runs them.
    fn may_be_made(&self, program: &[u8]) -> bool {
        self.request.family == Family::Command && self.request.may_write(program)
    }

    /// Where the kernel cannot be asked.
    fn is_believed_by_name(&self, program: &[u8]) -> bool {
        is_compiler_part(file_name(program)) && !self.abilities.kernel()
    }

    fn doubt(&self, next: Judgement, program: Vec<u8>) -> Doubt {
        self.keep(&next);
        (Unrecorded::Unjudged, program)
    }

    /// The programs that began, with their content.
    fn of(&self, trace: &Trace) -> BTreeMap<Vec<u8>, Digest> {
        let mut programs = BTreeMap::new();
        let own = own_path();
        for event in trace.iter().filter(|event| begins(event) && event.path != own) {
            if !programs.contains_key(event.path)
                && let Some(content) = self.content(event.path)
            {
                programs.insert(event.path.to_vec(), content);
            }
        }
        programs
    }

    fn content(&self, path: &[u8]) -> Option<Digest> {
        let look = larder_sys::look_through(path).ok()?;
        self.stamps.content(&look).or_else(|| {
            let mut file = File::open(Path::new(OsStr::from_bytes(path))).ok()?;
            self.stamps.hash(&mut file).ok()
        })
    }
}

/// A program begins, of which more is to be known than a wrapper inside has reported.
fn begins(event: &Event<&[u8]>) -> bool {
    event.kind == Kind::Start && event.error == 0 && event.mode & REPORTED_WHOLE == 0
}

/// Something that only one of the two saw.
fn said(odd: &Sight) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("preload is not believed of {}: {} ({:?})", text(&odd.program), text(&odd.path), odd.what)
}

/// Only one of the two saw something.
fn is_odd(sample: &Sample) -> bool {
    !sample.verdict.missed.is_empty() || !sample.verdict.invented.is_empty()
}

/// One file, and not changed.
fn is_same(one: &Option<Identity>, other: &Option<Identity>) -> bool {
    let parts = |id: &Identity| (id.device, id.inode, id.size_bytes, id.modified_ns);
    one.is_some() && one.as_ref().map(parts) == other.as_ref().map(parts)
}

/// The file that this process runs.
pub(crate) fn own_path() -> Vec<u8> {
    larder_sys::link_target(OWN_FILE.as_bytes()).unwrap_or_default()
}

fn unseen_look(sight: &Sight) -> Option<Unseen> {
    let way = match sight.what {
        What::Read => Way::Content,
        What::Looked => Way::Kind,
        What::Link => Way::Link,
        What::Listed => Way::Listing,
        What::Absent => Way::Absence,
        What::Failed(errno) => Way::Error(errno as u32),
        What::Made | What::Removed | What::Changed | What::Socket | What::Asked => return None,
    };
    Some(Unseen { path: sight.path.clone(), way })
}

fn merge(looked: &mut Looked, look: &Unseen) {
    let more = look.looked();
    looked.content |= more.content;
    looked.kind |= more.kind;
    looked.link |= more.link;
    looked.listed |= more.listed;
    looked.absent |= more.absent;
    looked.failed = looked.failed.or(more.failed);
}
