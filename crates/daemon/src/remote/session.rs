//! One wrapper that asks for a download. A thread reads its messages and tasks answer. When the
//! wrapper disconnects, its running download is aborted.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use larder_ipc::{Expect, Frame, IpcError, Nothing, Session, Step, say};
use larder_model::{Blob, Digest, Fingerprint};
use larder_store::{Counters, Remote};
use larder_sys::Channel;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::latency_model::{Class, Source};
use super::prefetch;
use super::remote_client::Failure;
use super::shared::Shared;
use super::single_record::{Alone, alone};

/// The longest connection: a wrapper whose tool runs longer gets no answer any more.
const LONGEST: Duration = Duration::from_secs(600);
/// Without history, a download is overdue after this time, which is how long a wrapper waits for
/// it.
const UNKNOWN: Duration = Duration::from_millis(250);
const SAMPLES_MIN: u64 = 5;
const SOONEST: Duration = Duration::from_millis(5);
/// How long a wrapper waits for a remote that did not answer before, minus the time for the
/// message.
const SILENT: Duration = Duration::from_millis(8);

/// A running download.
struct Stage {
    class: Class,
    expect: Expect,
    began: Instant,
    /// The download was already counted as overdue.
    overdue: bool,
    task: JoinHandle<()>,
}

/// The manifest that was found and its remote, kept until the wrapper chooses a record.
type FoundManifest = Arc<Mutex<Option<(Bytes, Source)>>>;

/// The state that the tasks of a connection need.
#[derive(Clone)]
struct Answering {
    shared: Arc<Shared>,
    channel: Arc<Channel>,
    found: FoundManifest,
    began: Instant,
    /// The wrapper's tool has started beside the download.
    races: Arc<AtomicBool>,
}

/// Serves the wrapper until it disconnects.
pub(super) fn serve(
    shared: &Arc<Shared>,
    handle: &Handle,
    channel: &Arc<Channel>,
    weak: Fingerprint,
    directory: &[u8],
    mut session: Session,
) -> Result<(), IpcError> {
    let answering = Answering {
        shared: Arc::clone(shared),
        channel: Arc::clone(channel),
        found: FoundManifest::default(),
        began: Instant::now(),
        races: Arc::default(),
    };
    let mut stage = answering.begin(handle, (Class::Records, None), answering.clone().records(weak))?;
    // Another machine may have built this commit: prefetch the records that the build will ask for
    // next.
    prefetch::begin(shared, handle, directory);
    let ended = loop {
        let step = match session.next(channel, LONGEST) {
            Ok(Some(step)) => step,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        match step {
            Step::Running => {
                answering.races.store(true, Ordering::Relaxed);
                shared.count(Remote::Races, 1);
                stage.judge(shared);
            }
            Step::Want { strong, subject } => {
                let found = answering.found.lock().clone();
                let wanted = found.and_then(|(found, from)| Some((alone(&found, &strong)?, from)));
                let Some((alone, from)) = wanted else { break Err(IpcError::Unexpected) };
                let missing = shared.missing(&alone.blobs);
                let class = Class::Blobs(missing.iter().map(|blob| blob.size_bytes).sum());
                if let Some(commit) = shared.commit_scope.commits(directory).first() {
                    shared.prefetching.note(*commit, weak);
                }
                let work = answering.clone().wanted(alone, missing, class, subject);
                stage = answering.begin(handle, (class, from), work)?;
            }
            Step::Recorded(recorded) => shared.recorded(&recorded),
        }
    };
    if !stage.task.is_finished() {
        stage.judge(shared);
        stage.task.abort();
    }
    // A wrapper that left without waiting for the answer did nothing wrong.
    ended
}

impl Stage {
    /// Counts the download as overdue, once, if it takes too long.
    fn judge(&mut self, shared: &Shared) {
        let Expect { median_us, p90_us, samples, overdue } = self.expect;
        let allowed = match samples {
            // The wrapper did not wait longer than this.
            _ if overdue => SILENT,
            SAMPLES_MIN.. => Duration::from_micros(p90_us.min(median_us.saturating_mul(2))).max(SOONEST),
            _ => UNKNOWN,
        };
        if !self.overdue && !self.task.is_finished() && self.began.elapsed() >= allowed {
            self.overdue = true;
            shared.latencies.is_overdue(Instant::now());
            (shared.log)(&format!("a download of {:?} takes longer than {allowed:.0?}", self.class));
        }
    }
}

impl Answering {
    /// Tells the wrapper the expected duration, and starts the download.
    fn begin(
        &self,
        handle: &Handle,
        (class, from): (Class, Source),
        work: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Stage, IpcError> {
        let expect = self.shared.latencies.expect(class, from);
        say(&self.channel, &Frame::Expect(expect), None)?;
        Ok(Stage { class, expect, began: Instant::now(), overdue: false, task: handle.spawn(work) })
    }

    /// Downloads the manifest of a fingerprint and sends it to the wrapper.
    async fn records(self, weak: Fingerprint) {
        if let Some(bytes) = self.shared.prefetching.came(&weak).await {
            return self.found(bytes, None);
        }
        let began = Instant::now();
        if !self.shared.latencies.may_ask(began) {
            return self.nothing(Nothing::OutOfReach);
        }
        let came = self.shared.client().records(&weak).await;
        self.shared.count(Remote::Refused, self.shared.client().refused());
        match came {
            Ok(found) => {
                let from = found.as_ref().map(|found| found.1);
                self.shared.latencies.took(Class::Records, from, began.elapsed());
                match found {
                    Some((bytes, _)) => {
                        self.shared.count(Remote::BytesIn, bytes.len() as u64);
                        self.found(Bytes::from(bytes), from);
                    }
                    None => {
                        self.shared.count(Remote::Absent, 1);
                        self.nothing(Nothing::NotThere);
                    }
                }
            }
            Err(error) => self.failed(&error),
        }
    }

    /// Downloads one record of the manifest with its blobs.
    async fn wanted(self, alone: Alone, missing: Vec<Blob>, class: Class, subject: Digest) {
        let began = Instant::now();
        match self.shared.take(alone, missing, Some(subject)).await {
            Ok((bytes, from)) => {
                self.shared.latencies.took(class, from, began.elapsed());
                let took_us = self.began.elapsed().as_micros() as u64;
                if let Ok(counters) = self.shared.store().and_then(|store| Counters::open(&store)) {
                    counters.count_fetch(took_us);
                    counters.count_remote(Remote::RacesWon, self.races.load(Ordering::Relaxed).into());
                }
                let _ = say(&self.channel, &Frame::Fetched { bytes }, None);
            }
            Err(error) => {
                self.shared.count(Remote::Refused, self.shared.client().refused());
                self.failed(&error);
            }
        }
    }

    fn found(&self, bytes: Bytes, from: Source) {
        let file = larder_sys::sealed_memory_file("larder-manifest", &bytes);
        let frame = Frame::Found { manifest_bytes: bytes.len() as u64 };
        *self.found.lock() = Some((bytes, from));
        match file {
            // Errors are ignored: the wrapper may have left because its tool was faster.
            Ok(file) => drop(say(&self.channel, &frame, Some(file.as_fd()))),
            Err(error) => self.failed(&Failure::ours(error)),
        }
    }

    fn failed(&self, why: &Failure) {
        if why.of_service {
            self.shared.latencies.failed(Instant::now());
        }
        self.shared.count(Remote::Failed, 1);
        (self.shared.log)(&format!("a download failed: {why}"));
        self.nothing(Nothing::Failed);
    }

    fn nothing(&self, why: Nothing) {
        let _ = say(&self.channel, &Frame::Nothing(why), None);
    }
}
