//! Remotes, as `larderd` uses them: fetching for wrappers, sending what they recorded, fetching ahead of a build.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | what all of it shares, and its beginning and end |
//! | `far.rs` | what is asked of remotes |
//! | `session.rs` | one wrapper that asks for a fetch |
//! | `keys.rs` | who signs and who is believed, as the settings say |
//! | `arrival.rs` | what came: what of it is believed, and into the store with it |
//! | `expect.rs` | how long fetches take, and whether to ask at all |
//! | `latencies.rs` | how each remote answers, for `larder stats` |
//! | `queue.rs` | what is to be sent, and sending it |
//! | `ahead.rs` | what another machine's build used, before it is asked for |
//! | `places.rs` | what the list of that is kept under |
//!
//! The one part of larder that is asynchronous. Threads of connections ask and are told; tasks fetch and send.

mod ahead;
mod arrival;
mod expect;
pub(crate) mod far;
pub(crate) mod keys;
mod latencies;
pub(crate) mod places;
mod queue;
mod session;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use larder_config::Settings;
use larder_ipc::{Caller, Frame, IpcError, Nothing, Recorded, Remotes, Session, Terms, Unshared, say};
use larder_model::{Digest, Fingerprint, Manifest};
use larder_store::{Counters, ManifestFile, Remote, Store, StoreError, Upload};
use larder_sys::{Channel, Class};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::watch;

use self::ahead::Ahead;
use self::arrival::alone;
use self::expect::Expectations;
use self::far::Far;
use self::places::Places;
use self::queue::Queue;

/// Threads that work for all transfers: they wait for the network most of the time.
const THREADS: usize = 2;
/// Threads that may wait for the disk.
const DISK_THREADS_MAX: usize = 8;
/// Of each of them, bytes.
const STACK_BYTES: usize = 512 << 10;

/// All of it.
pub(crate) struct Remoting {
    runtime: Runtime,
    shared: Arc<Shared>,
    /// For callers who are in these classes, once there was one.
    utility: OnceLock<Option<Runtime>>,
    background: OnceLock<Option<Runtime>>,
}

/// What tasks and connections share.
struct Shared {
    dir: PathBuf,
    /// For each class its own: a connection lives in the threads of those who made it.
    far: [OnceLock<Far>; 3],
    how: Settings,
    expected: Expectations,
    places: Places,
    queue: Queue,
    ahead: Ahead,
    /// By how many bytes the store grew, since somebody last asked.
    grown: AtomicU64,
    settings: Digest,
    /// Those that wrappers must have.
    terms: Terms,
    /// Whether larderd is told to end.
    ends: watch::Sender<bool>,
    log: Box<dyn Fn(&str) + Send + Sync>,
}

/// The settings of remotes, by which it is seen that somebody else began with others.
pub(crate) fn settings_digest(settings: &Settings) -> Digest {
    let Settings { remote, remote_read_only, remote_sign_with, remote_trust, .. } = settings;
    let Settings { remote_handover, remote_namespace, .. } = settings;
    let text = format!(
        "{remote:?} {remote_read_only} {remote_sign_with:?} {remote_trust:?} {remote_handover} {remote_namespace:?}"
    );
    Digest::of(text.as_bytes())
}

thread_local! {
    /// Of the threads of a runtime, and so of all that runs in it.
    static CLASS: Cell<Class> = const { Cell::new(Class::Inherit) };
}

/// A runtime for transfers.
pub(crate) fn runtime() -> Result<Runtime> {
    runtime_in(Class::Inherit)
}

/// One whose threads are in a class.
fn runtime_in(class: Class) -> Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(THREADS).max_blocking_threads(DISK_THREADS_MAX).thread_stack_size(STACK_BYTES).enable_all();
    builder.on_thread_start(move || {
        CLASS.set(class);
        larder_sys::lower_thread(class);
    });
    builder.build().context("no threads for remotes")
}

impl Remoting {
    /// Begin, where there are remotes. What cannot be opened is said in the log, and done without.
    pub(crate) fn begin(
        dir: &Path,
        settings: &Settings,
        log: Box<dyn Fn(&str) + Send + Sync>,
    ) -> Result<Option<Remoting>> {
        if settings.remote.is_empty() {
            return Ok(None);
        }
        let runtime = runtime()?;
        let _inside = runtime.enter();
        let shared = Arc::new(Shared::new(dir, settings, log));
        // Trouble with them is said now.
        if shared.far().writes() {
            let queued = shared.store().and_then(|store| store.queued_uploads()).unwrap_or_default();
            queued.into_iter().for_each(|upload| shared.queue.add(upload));
            runtime.spawn(queue::send_all(Arc::clone(&shared)));
            runtime.spawn(ahead::publish_lists(Arc::clone(&shared)));
        }
        runtime.spawn(latencies::keep(Arc::clone(&shared)));
        Ok(Some(Remoting { runtime, shared, utility: OnceLock::new(), background: OnceLock::new() }))
    }

    /// Serve a wrapper that asks for a fetch, until it leaves.
    pub(crate) fn serve(
        &self,
        caller: &Caller,
        channel: &Arc<Channel>,
        weak: Fingerprint,
        directory: &[u8],
        session: Session,
    ) -> Result<(), IpcError> {
        if caller.terms.is_some_and(|terms| !terms.allow(&self.shared.terms)) {
            return say(channel, &Frame::Nothing(Nothing::OtherTerms), None);
        }
        let class = caller.class;
        session::serve(&self.shared, self.threads_of(class).handle(), channel, weak, directory, session)
    }

    /// Those for callers of a class; where there can be none, those for all.
    fn threads_of(&self, class: Class) -> &Runtime {
        let own = match class {
            Class::Inherit => return &self.runtime,
            Class::Utility => &self.utility,
            Class::Background => &self.background,
        };
        own.get_or_init(|| runtime_in(class).ok()).as_ref().unwrap_or(&self.runtime)
    }

    /// Something new is in the store. It is sent if the process that made it says that it would send it to the same
    /// remotes. What it says decides nothing else: see [`Shared::read`].
    pub(crate) fn recorded(&self, caller: &Caller, recorded: &Recorded) {
        let own = self.shared.terms.remotes;
        if caller.terms.is_some_and(|terms| terms.sends && terms.remotes == own) {
            self.shared.recorded(recorded);
        }
    }

    /// Something was handed over. It is sent only if larderd's own setting says so.
    pub(crate) fn handed_over(&self, caller: &Caller, recorded: &Recorded) {
        if self.shared.how.remote_handover {
            self.recorded(caller, recorded);
        }
    }

    /// Wait until all is sent, or nothing can be sent, or the time is over, or larderd is to end.
    pub(crate) fn flush(&self, patience: Duration) {
        // Somebody may have queued without saying so.
        let queued = self.shared.store().and_then(|store| store.queued_uploads()).unwrap_or_default();
        queued.into_iter().for_each(|upload| self.shared.queue.add(upload));
        self.shared.queue.hurry();
        if self.shared.far().writes() {
            let flushed = async {
                self.shared.queue.empty().await;
                ahead::publish_now(&self.shared).await;
            };
            let mut ends = self.shared.ends.subscribe();
            let ended = async { drop(ends.wait_for(|ends| *ends).await) };
            let waited = async {
                tokio::select! {
                    () = flushed => {}
                    () = self.shared.queue.hopeless() => {}
                    () = ended => {}
                }
            };
            let _ = self.runtime.block_on(async { tokio::time::timeout(patience, waited).await });
        }
    }

    /// What a flush did not share.
    pub(crate) fn unshared(&self) -> Unshared {
        self.shared.queue.unshared()
    }

    /// Nobody is to wait any more.
    pub(crate) fn end(&self) {
        self.shared.ends.send_replace(true);
    }

    /// How it is.
    pub(crate) fn state(&self) -> Remotes {
        // Whoever asks may read that next.
        self.shared.keep_latencies();
        Remotes { settings: self.shared.settings, ..self.shared.queue.state() }
    }

    /// Whether something is under way that nobody waits for.
    pub(crate) fn is_busy(&self) -> bool {
        self.shared.queue.is_busy()
    }

    /// By how many bytes the store grew since this was last asked.
    pub(crate) fn grown(&self) -> u64 {
        self.shared.grown.swap(0, Relaxed)
    }
}

impl Shared {
    fn new(dir: &Path, settings: &Settings, log: Box<dyn Fn(&str) + Send + Sync>) -> Shared {
        Shared {
            dir: dir.to_owned(),
            far: Default::default(),
            how: settings.clone(),
            expected: Expectations::default(),
            places: Places::default(),
            queue: Queue::default(),
            ahead: Ahead::default(),
            grown: AtomicU64::new(0),
            settings: settings_digest(settings),
            terms: Terms {
                remotes: settings.remotes_digest().unwrap_or(Digest([0; 32])),
                trust: settings.trust_digest(),
                sends: !settings.remote_read_only,
            },
            ends: watch::Sender::new(false),
            log,
        }
    }

    /// Of the class that this thread is in.
    fn far(&self) -> &Far {
        self.far[CLASS.get() as usize].get_or_init(|| Far::open(&self.how, &*self.log))
    }

    fn store(&self) -> Result<Store, StoreError> {
        Store::open(&self.dir)
    }

    fn count(&self, what: Remote, count: u64) {
        if let Ok(counters) = self.store().and_then(|store| Counters::open(&store)) {
            counters.count_remote(what, count);
        }
    }

    fn recorded(&self, recorded: &Recorded) {
        if !self.far().writes() {
            return;
        }
        let upload = (recorded.weak, recorded.strong);
        // What is handed over at this moment is sent by whoever takes it: were it found needless by one who looks
        // before it is recorded, it would be forgotten.
        if let Ok(store) = self.store()
            && !self.is_absent(&store, &upload)
        {
            // Trouble with it only means that it is lost when this process is.
            let _ = store.queue_upload(&upload);
            for dropped in self.queue.add_bounded(upload) {
                store.forget_upload(&dropped);
                self.count(Remote::Dropped, 1);
            }
        }
        if let Some(commit) = self.places.commits(&recorded.directory).first() {
            self.ahead.note_new(*commit, recorded.weak);
        }
    }

    /// Whether it is known that the store has no such record that may be sent.
    fn is_absent(&self, store: &Store, (weak, strong): &Upload) -> bool {
        let lacks = |file: &Option<ManifestFile>| file.as_ref().is_none_or(|file| alone(&file.bytes, strong).is_none());
        store.read_manifest(weak, false).is_ok_and(|file| lacks(&file))
            && (!self.how.remote_handover || store.read_handed_over(weak, false).is_ok_and(|file| lacks(&file)))
    }
}

/// What was sent or fetched by hand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moved {
    pub(crate) records: u64,
    /// Records that were there already.
    pub(crate) there: u64,
    pub(crate) failed: u64,
    pub(crate) bytes: u64,
}

/// Send every record of the store at `dir`; `tell` hears of what fails.
pub(crate) fn push(dir: &Path, settings: &Settings, tell: &mut dyn FnMut(&str)) -> Result<Moved> {
    let (runtime, shared) = by_hand(dir, settings)?;
    if !shared.far().writes() {
        bail!("{}", why_nothing_is_sent(settings));
    }
    let store = shared.store()?;
    let mut all = Vec::new();
    for weak in store.recorded()? {
        let Ok(Some(file)) = store.read_manifest(&weak, false) else { continue };
        if let Ok(manifest) = Manifest::decode(&file.bytes) {
            // The newest last, so that it is the first of its manifest there as well.
            all.extend(manifest.entries.iter().rev().map(|entry| (weak, entry.strong)));
        }
    }
    let moved = runtime.block_on(queue::send_these(&shared, all, tell));
    runtime.shutdown_background();
    Ok(moved)
}

fn why_nothing_is_sent(settings: &Settings) -> &'static str {
    match (&settings.remote_trust[..], &settings.remote_sign_with) {
        ([_, ..], None) => {
            "nothing is sent: remote_trust is set and remote_sign_with is not, so that who believes as you do would \
             believe none of it"
        }
        ([_, ..], Some(_)) => {
            "nothing is sent: the key of remote_sign_with is none of remote_trust, or no remote can be written to \
             (`larder remote check`)"
        }
        _ => "nothing is sent: no remote can be written to (`larder remote check` says why)",
    }
}

/// Fetch what the commit that is checked out at `cwd` used elsewhere.
pub(crate) fn pull(dir: &Path, settings: &Settings, cwd: &Path) -> Result<Moved> {
    let (runtime, shared) = by_hand(dir, settings)?;
    let commits = shared.places.commits(cwd.as_os_str().as_encoded_bytes());
    if commits.is_empty() {
        bail!("{} is in no checkout of git, or git is not installed: nothing says what to fetch", cwd.display());
    }
    let records = runtime.block_on(shared.fetch_ahead(&commits)).map_err(|error| anyhow!("{error}"))? as u64;
    runtime.shutdown_background();
    Ok(Moved { records, bytes: shared.grown.load(Relaxed), ..Moved::default() })
}

fn by_hand(dir: &Path, settings: &Settings) -> Result<(Runtime, Arc<Shared>)> {
    let runtime = runtime()?;
    let inside = runtime.enter();
    let shared = Arc::new(Shared::new(dir, settings, Box::new(crate::say::tell)));
    drop(inside);
    Ok((runtime, shared))
}

/// Run something that waits for the disk.
async fn on_disk<T: Send + 'static>(handle: &Handle, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    handle.spawn_blocking(work).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_recorded_yet_is_not_queued() {
        let dir = tempfile::tempdir().expect("a directory");
        let remote = vec![format!("file://{}", dir.path().join("far").display())];
        let settings = Settings { remote, ..Settings::default() };
        let runtime = runtime().expect("begins");
        let _inside = runtime.enter();
        let shared = Shared::new(&dir.path().join("store"), &settings, Box::new(|what: &str| panic!("{what}")));
        let (weak, strong) = (Digest([1; 32]), Digest([2; 32]));
        shared.recorded(&Recorded { weak, strong, directory: Vec::new() });
        assert_eq!(shared.queue.state().queued, 0);
        assert_eq!(shared.store().and_then(|store| store.queued_uploads()).expect("lists"), []);
    }
}
