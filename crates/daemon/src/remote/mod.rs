//! Remotes, as `larderd` uses them: downloads for wrappers, uploads of their records, and prefetch
//! for builds.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | start and end; `push` and `pull` |
//! | `shared.rs` | the shared state, and the runtimes |
//! | `remote_client.rs` | the client of all remotes together |
//! | `session.rs` | a connection of one wrapper that asks for a download |
//! | `keys.rs` | signing and trusted keys, as the settings say |
//! | `ingest.rs` | downloaded records: which are accepted, and how they get into the store |
//! | `latency_model.rs` | how long downloads take, and whether asking is worthwhile |
//! | `latencies.rs` | response times of each remote, for `larder stats` |
//! | `single_record.rs` | one record of a manifest |
//! | `queue.rs` | the queue of uploads |
//! | `upload.rs` | the uploads |
//! | `prefetch.rs` | prefetch: records that another machine's build of this commit used |
//! | `prefetch_state.rs` | what prefetch remembers |
//! | `commit_scope.rs` | the commits of a directory, under which lists for prefetch are kept |
//!
//! This is the only asynchronous part of larder. The threads of connections block; tasks download
//! and upload.

pub(crate) mod commit_scope;
mod ingest;
pub(crate) mod keys;
mod latencies;
mod latency_model;
mod prefetch;
mod prefetch_state;
mod queue;
pub(crate) mod remote_client;
mod session;
mod shared;
mod single_record;
mod upload;

pub(crate) use self::shared::{runtime, settings_digest};
pub(crate) use self::upload::Moved;

use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use larder_config::Settings;
use larder_ipc::{Caller, Frame, IpcError, Nothing, Recorded, Remotes, Session, Unshared, say};
use larder_model::{Fingerprint, Manifest};
use larder_sys::{Channel, Class};
use tokio::runtime::Runtime;

use self::shared::{Shared, runtime_in};

/// The remotes and the runtimes in which transfers run.
pub(crate) struct Remoting {
    runtime: Runtime,
    shared: Arc<Shared>,
    /// Runtimes for callers in these scheduling classes, started on first use. `None` inside if no
    /// threads could be started.
    utility: OnceLock<Option<Runtime>>,
    background: OnceLock<Option<Runtime>>,
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
        if shared.client().writes() {
            let queued = shared.store().and_then(|store| store.queued_uploads()).unwrap_or_default();
            queued.into_iter().for_each(|upload| shared.queue.add(upload));
            runtime.spawn(upload::send_all(Arc::clone(&shared)));
            runtime.spawn(prefetch::publish_lists(Arc::clone(&shared)));
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
        if self.shared.client().writes() {
            let flushed = async {
                self.shared.queue.empty().await;
                prefetch::publish_now(&self.shared).await;
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

/// Uploads every record of the store at `dir`. Calls `tell` with each failure.
pub(crate) fn push(dir: &Path, settings: &Settings, tell: &mut dyn FnMut(&str)) -> Result<Moved> {
    let (runtime, shared) = by_hand(dir, settings)?;
    if !shared.client().writes() {
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
    let moved = runtime.block_on(upload::send_these(&shared, all, tell));
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
    let commits = shared.commit_scope.commits(cwd.as_os_str().as_encoded_bytes());
    if commits.is_empty() {
        bail!(
            "{} is not in a git checkout, or git is not installed, so the commit to download for is not known",
            cwd.display()
        );
    }
    let records = runtime.block_on(shared.prefetch(&commits)).map_err(|error| anyhow!("{error}"))? as u64;
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
