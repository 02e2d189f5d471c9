//! Remotes, as `larderd` uses them: downloads for wrappers, uploads of their records, and prefetch
//! for builds.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the shared state, start and end |
//! | `far.rs` | the client of all remotes together |
//! | `session.rs` | a connection of one wrapper that asks for a download |
//! | `keys.rs` | signing and trusted keys, as the settings say |
//! | `arrival.rs` | downloaded records: which are accepted, and how they get into the store |
//! | `expect.rs` | how long downloads take, and whether asking is worthwhile |
//! | `latencies.rs` | response times of each remote, for `larder stats` |
//! | `queue.rs` | the queue of uploads |
//! | `ahead.rs` | prefetch: records that another machine's build of this commit used |
//! | `places.rs` | the commits of a directory, under which lists for prefetch are kept |
//!
//! This is the only asynchronous part of larder. The threads of connections block; tasks download
//! and upload.

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

/// The number of threads for all transfers. Few are enough, because transfers mostly wait for the
/// network.
const THREADS: usize = 2;
/// The largest number of threads that wait for the disk.
const DISK_THREADS_MAX: usize = 8;
/// The stack size of each of these threads, in bytes.
const STACK_BYTES: usize = 512 << 10;

/// The remotes and the runtimes in which transfers run.
pub(crate) struct Remoting {
    runtime: Runtime,
    shared: Arc<Shared>,
    /// Runtimes for callers in these scheduling classes, started on first use. `None` inside if no
    /// threads could be started.
    utility: OnceLock<Option<Runtime>>,
    background: OnceLock<Option<Runtime>>,
}

/// The state that tasks and connections share.
struct Shared {
    dir: PathBuf,
    /// One client for each scheduling class, because a network connection lives in the threads of
    /// the runtime that opened it.
    far: [OnceLock<Far>; 3],
    how: Settings,
    expected: Expectations,
    places: Places,
    queue: Queue,
    ahead: Ahead,
    /// The bytes by which the store grew since [`Remoting::grown`] was last called.
    grown: AtomicU64,
    settings: Digest,
    /// The settings that a wrapper must share to be served.
    terms: Terms,
    /// Becomes true when larderd is told to exit.
    ends: watch::Sender<bool>,
    log: Box<dyn Fn(&str) + Send + Sync>,
}

/// Returns a digest of the settings of remotes, with which a client sees whether a running larderd
/// has other settings.
pub(crate) fn settings_digest(settings: &Settings) -> Digest {
    let Settings { remote, remote_read_only, remote_sign_with, remote_trust, .. } = settings;
    let Settings { remote_handover, remote_namespace, .. } = settings;
    let text = format!(
        "{remote:?} {remote_read_only} {remote_sign_with:?} {remote_trust:?} {remote_handover} {remote_namespace:?}"
    );
    Digest::of(text.as_bytes())
}

thread_local! {
    /// The scheduling class of the threads of a runtime, and so of everything that runs in it.
    static CLASS: Cell<Class> = const { Cell::new(Class::Inherit) };
}

/// Returns a runtime for transfers.
pub(crate) fn runtime() -> Result<Runtime> {
    runtime_in(Class::Inherit)
}

/// Returns a runtime whose threads are in a scheduling class.
fn runtime_in(class: Class) -> Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(THREADS).max_blocking_threads(DISK_THREADS_MAX).thread_stack_size(STACK_BYTES).enable_all();
    builder.on_thread_start(move || {
        CLASS.set(class);
        larder_sys::lower_thread(class);
    });
    builder.build().context("the threads for remotes cannot be started")
}

impl Remoting {
    /// Starts, if remotes are configured. A remote that cannot be opened is logged and skipped.
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
        // `far()` opens the remotes, so problems are logged now and not at the first transfer.
        if shared.far().writes() {
            let queued = shared.store().and_then(|store| store.queued_uploads()).unwrap_or_default();
            queued.into_iter().for_each(|upload| shared.queue.add(upload));
            runtime.spawn(queue::send_all(Arc::clone(&shared)));
            runtime.spawn(ahead::publish_lists(Arc::clone(&shared)));
        }
        runtime.spawn(latencies::keep(Arc::clone(&shared)));
        Ok(Some(Remoting { runtime, shared, utility: OnceLock::new(), background: OnceLock::new() }))
    }

    /// Serves a wrapper that asks for a download, until it disconnects.
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

    /// Returns the runtime for callers of a class, or the common one if no threads could be started
    /// for the class.
    fn threads_of(&self, class: Class) -> &Runtime {
        let own = match class {
            Class::Inherit => return &self.runtime,
            Class::Utility => &self.utility,
            Class::Background => &self.background,
        };
        own.get_or_init(|| runtime_in(class).ok()).as_ref().unwrap_or(&self.runtime)
    }

    /// Notes that the store has a new record. It is uploaded if the process that made it would
    /// upload to the same remotes. What the client says decides nothing else: see [`Shared::read`].
    pub(crate) fn recorded(&self, caller: &Caller, recorded: &Recorded) {
        let own = self.shared.terms.remotes;
        if caller.terms.is_some_and(|terms| terms.sends && terms.remotes == own) {
            self.shared.recorded(recorded);
        }
    }

    /// Notes that a record was handed over. It is uploaded only if larderd's own setting says so.
    pub(crate) fn handed_over(&self, caller: &Caller, recorded: &Recorded) {
        if self.shared.how.remote_handover {
            self.recorded(caller, recorded);
        }
    }

    /// Waits until everything is uploaded, uploading is hopeless, the time is over, or larderd
    /// exits.
    pub(crate) fn flush(&self, patience: Duration) {
        // Another process may have queued uploads in the store without telling us.
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

    /// Returns what a flush did not upload, and why.
    pub(crate) fn unshared(&self) -> Unshared {
        self.shared.queue.unshared()
    }

    /// Tells every waiting task that larderd exits.
    pub(crate) fn end(&self) {
        self.shared.ends.send_replace(true);
    }

    /// Returns the counters and settings, for clients.
    pub(crate) fn state(&self) -> Remotes {
        // The client may read the latencies from the store next.
        self.shared.keep_latencies();
        Remotes { settings: self.shared.settings, ..self.shared.queue.state() }
    }

    /// Returns true while uploads are in progress for which no client waits.
    pub(crate) fn is_busy(&self) -> bool {
        self.shared.queue.is_busy()
    }

    /// Returns by how many bytes the store grew since the last call.
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

    /// Returns the client for the scheduling class of this thread.
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
        // A record that is being handed over at this moment is queued by the thread that takes it.
        // If it were queued here already, a task could find it missing in the store, and forget it.
        if let Ok(store) = self.store()
            && !self.is_absent(&store, &upload)
        {
            // If this fails, the upload is only lost when this process ends first.
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

    /// Returns true if the store is known to have no such record that may be uploaded.
    fn is_absent(&self, store: &Store, (weak, strong): &Upload) -> bool {
        let lacks = |file: &Option<ManifestFile>| file.as_ref().is_none_or(|file| alone(&file.bytes, strong).is_none());
        store.read_manifest(weak, false).is_ok_and(|file| lacks(&file))
            && (!self.how.remote_handover || store.read_handed_over(weak, false).is_ok_and(|file| lacks(&file)))
    }
}

/// The counts of a `push` or `pull`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moved {
    pub(crate) records: u64,
    /// Records that the remote already had.
    pub(crate) there: u64,
    pub(crate) failed: u64,
    pub(crate) bytes: u64,
}

/// Uploads every record of the store at `dir`. Calls `tell` with each failure.
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
            // The newest comes last, so that it becomes the first entry of its manifest on the
            // remote.
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
            "not uploading: remote_trust is set but remote_sign_with is not, so clients with your settings would \
             reject these records"
        }
        ([_, ..], Some(_)) => {
            "not uploading: the key of remote_sign_with is not in remote_trust, or no remote can be written to \
             (`larder remote check` says which)"
        }
        _ => "not uploading: no remote can be written to (`larder remote check` says why)",
    }
}

/// Downloads what builds of the commit checked out at `cwd` used on other machines.
pub(crate) fn pull(dir: &Path, settings: &Settings, cwd: &Path) -> Result<Moved> {
    let (runtime, shared) = by_hand(dir, settings)?;
    let commits = shared.places.commits(cwd.as_os_str().as_encoded_bytes());
    if commits.is_empty() {
        bail!(
            "{} is not in a git checkout, or git is not installed, so the commit to download for is not known",
            cwd.display()
        );
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

/// Runs work that waits for the disk, in a thread that may block.
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
