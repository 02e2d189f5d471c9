//! The state that tasks and connections share, and the runtimes in which they run.
//!
//! Unaware of: which transfers there are.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use anyhow::{Context, Result};
use larder_config::Settings;
use larder_ipc::{Recorded, Terms};
use larder_model::Digest;
use larder_store::{Counters, ManifestFile, Remote, Store, StoreError, Upload};
use larder_sys::Class;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::watch;

use super::commit_scope::CommitScope;
use super::latency_model::LatencyModel;
use super::prefetch_state::Prefetching;
use super::queue::Queue;
use super::remote_client::RemoteClient;
use super::single_record::alone;

/// The number of threads for all transfers. Few are enough, because transfers mostly wait for the
/// network.
const THREADS: usize = 2;
/// The largest number of threads that wait for the disk.
const DISK_THREADS_MAX: usize = 8;
/// The stack size of each of these threads, in bytes.
const STACK_BYTES: usize = 512 << 10;

/// The state that tasks and connections share.
pub(super) struct Shared {
    pub(super) dir: PathBuf,
    /// One client for each scheduling class, because a network connection lives in the threads of
    /// the runtime that opened it.
    pub(super) client: [OnceLock<RemoteClient>; 3],
    pub(super) how: Settings,
    pub(super) latencies: LatencyModel,
    pub(super) commit_scope: CommitScope,
    pub(super) queue: Queue,
    pub(super) prefetching: Prefetching,
    /// The bytes by which the store grew since [`Remoting::grown`] was last called.
    pub(super) grown: AtomicU64,
    pub(super) settings: Digest,
    /// The settings that a wrapper must share to be served.
    pub(super) terms: Terms,
    /// Becomes true when larderd is told to exit.
    pub(super) ends: watch::Sender<bool>,
    pub(super) log: Box<dyn Fn(&str) + Send + Sync>,
}

impl Shared {
    pub(super) fn new(dir: &Path, settings: &Settings, log: Box<dyn Fn(&str) + Send + Sync>) -> Shared {
        Shared {
            dir: dir.to_owned(),
            client: Default::default(),
            how: settings.clone(),
            latencies: LatencyModel::default(),
            commit_scope: CommitScope::default(),
            queue: Queue::default(),
            prefetching: Prefetching::default(),
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
    pub(super) fn client(&self) -> &RemoteClient {
        self.client[CLASS.get() as usize].get_or_init(|| RemoteClient::open(&self.how, &*self.log))
    }

    pub(super) fn store(&self) -> Result<Store, StoreError> {
        Store::open(&self.dir)
    }

    pub(super) fn count(&self, what: Remote, count: u64) {
        if let Ok(counters) = self.store().and_then(|store| Counters::open(&store)) {
            counters.count_remote(what, count);
        }
    }

    pub(super) fn recorded(&self, recorded: &Recorded) {
        if !self.client().writes() {
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
        if let Some(commit) = self.commit_scope.commits(&recorded.directory).first() {
            self.prefetching.note_new(*commit, recorded.weak);
        }
    }

    /// Returns true if the store is known to have no such record that may be uploaded.
    pub(super) fn is_absent(&self, store: &Store, (weak, strong): &Upload) -> bool {
        let lacks = |file: &Option<ManifestFile>| file.as_ref().is_none_or(|file| alone(&file.bytes, strong).is_none());
        store.read_manifest(weak, false).is_ok_and(|file| lacks(&file))
            && (!self.how.remote_handover || store.read_handed_over(weak, false).is_ok_and(|file| lacks(&file)))
    }
}

/// Runs work that waits for the disk, in a thread that may block.
pub(super) async fn on_disk<T: Send + 'static>(
    handle: &Handle,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    handle.spawn_blocking(work).await.ok()
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
pub(super) fn runtime_in(class: Class) -> Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(THREADS).max_blocking_threads(DISK_THREADS_MAX).thread_stack_size(STACK_BYTES).enable_all();
    builder.on_thread_start(move || {
        CLASS.set(class);
        larder_sys::lower_thread(class);
    });
    builder.build().context("the threads for remotes cannot be started")
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
