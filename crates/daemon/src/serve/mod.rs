//! `larderd serve`: the daemon. It records for wrappers that cannot write to the store. If remotes
//! are configured, it also downloads and uploads for all wrappers (`../remote/`).
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | which process may serve a store, the accept loop, when the daemon exits |
//! | `class.rs` | running work in the scheduling class of the client |
//! | `places.rs` | the places for work that may take minutes, and how many each client may take |
//! | `accept_record.rs` | one handed-over record: verified, then recorded |
//! | `warm_stat_cache.rs` | stat cache entries for wrappers that cannot write any |
//! | `log.rs` | failures, in the store's `daemon.log` |
//!
//! Each connection has a thread, up to a limit; if the client is in another scheduling class, a
//! second thread runs its work. Nothing that a connection sends is trusted, and bad input costs at
//! most that connection. The daemon holds nothing of the build that started it: not its working
//! directory, descriptors or session.

mod accept_record;
mod class;
mod log;
mod places;
mod warm_stat_cache;

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use larder_config::Handover;
use larder_ipc::{
    Caller, Frame, IpcError, Nothing, Recorded, Remotes, Request, Session, State, Unshared, answer, listens, receive,
    say,
};
use larder_model::{Digest, Fingerprint, Manifest};
use larder_store::{Came, Counters, Store, StoreSocket};
use larder_sys::{Channel, Door};
use parking_lot::{Condvar, Mutex};

use self::class::{STACK_BYTES, in_class};
use self::log::Log;
use self::places::Places;
use crate::cli::Serve;
use crate::commands::{FINE, daemon, evict};
use crate::remote::Remoting;
use crate::surroundings::Surroundings;

/// The time in which a connection must have sent its whole request.
const PATIENCE: Duration = Duration::from_secs(5);
/// The largest number of connections that are served at once. Others wait to be accepted.
const AT_ONCE_MAX: usize = 128;
/// How long to wait for the daemon's lock, because another daemon may be about to exit.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// How often the daemon checks that its socket still exists.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// The longest that `flush` waits for uploads, in seconds.
const FLUSH_MAX_S: u64 = 3600;
/// The pause after a failed accept, for example because of too many open descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// The state that all threads share.
struct Daemon {
    dir: PathBuf,
    limit_bytes: u64,
    /// What happens to handed-over records: they are refused, stored apart, or trusted. It is
    /// larderd's own setting; a client cannot change it.
    handover: Handover,
    began: Instant,
    idle: Duration,
    log: Arc<Log>,
    /// The remotes, if any are configured.
    remoting: Option<Remoting>,
    recorded: AtomicU64,
    refused: AtomicU64,
    evicting: AtomicBool,
    work: Mutex<Work>,
    /// The places of connections that may take minutes.
    places: Places,
    fewer: Condvar,
    /// The write end of a pipe. A stop request closes it, which wakes the accept loop.
    wake: Mutex<Option<OwnedFd>>,
}

/// The open connections, for the limit and for the idle time.
struct Work {
    connections: usize,
    last: Instant,
}

/// Serves until there was no work for the idle time, or until a client asks to stop.
pub(crate) fn run(around: &Surroundings, options: &Serve) -> Result<u8> {
    if options.apart {
        daemon::start_apart(around, &options.how)?;
        return Ok(FINE);
    }
    let given = given_socket()?;
    larder_sys::close_others(3, &given.iter().map(AsRawFd::as_raw_fd).collect::<Vec<_>>());
    larder_sys::raise_descriptor_limit();
    larder_sys::keep_to_ourselves();
    let dir = around.settings().dir.clone().context("the directory of the store is not known: set LARDER_DIR")?;
    let dir = std::path::absolute(dir)?;
    // So that the directory of the build that started the daemon can be removed.
    std::env::set_current_dir("/")?;
    let store = Store::open(&dir)?;
    let lock = lock(&store)?;
    let (door, socket) = match given {
        Some(socket) => (Door::given(socket)?, None),
        None if listens(&store.daemon_socket()).is_ok() => bail!("{} listens already", store.daemon_socket().display()),
        None => {
            let (door, socket) = store.open_daemon_door()?;
            (door, Some(socket))
        }
    };
    let handover = if options.how.hits_only { Handover::Off } else { around.settings().handover };
    store.note_taking(handover != Handover::Off)?;
    let (woken, wake) = larder_sys::pipe()?;
    let log = Arc::new(Log::open(&store)?);
    let says = Arc::clone(&log);
    // If the remotes cannot be used, the daemon serves the local store only.
    let remoting = Remoting::begin(&dir, around.settings(), Box::new(move |what| says.say(what)));
    let remoting = remoting.unwrap_or_else(|error| {
        log.say(&format!("the remotes are not used: {error:#}"));
        None
    });
    let daemon = Arc::new(Daemon {
        log,
        remoting,
        dir,
        limit_bytes: around.settings().max_size_bytes,
        handover,
        began: Instant::now(),
        idle: Duration::from_secs(options.how.idle),
        recorded: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        evicting: AtomicBool::new(false),
        places: Places::default(),
        work: Mutex::new(Work { connections: 0, last: Instant::now() }),
        fewer: Condvar::new(),
        wake: Mutex::new(Some(wake)),
    });
    daemon.log.say(&format!("process {} starts", larder_sys::process_id()));
    let why = serve(&daemon, &door, socket.as_ref(), &woken);
    // No new client can connect now. Connections that are already waiting are served.
    socket.iter().for_each(StoreSocket::remove);
    while accept(&daemon, &door) {}
    daemon.wait_until_at_most(0);
    daemon.log.say(&format!("process {} exits: {why}", larder_sys::process_id()));
    // Does not wait for work in progress: it ends with the process, and the next daemon uploads the
    // rest. The lock is released last, by the exit, so that a daemon that waits for it finds no
    // other one at work in the store.
    std::mem::forget((daemon, lock));
    Ok(FINE)
}

/// Returns the listening socket that systemd passed, if there is one.
fn given_socket() -> Result<Option<OwnedFd>> {
    let mut given = listenfd::ListenFd::from_env();
    match given.len() {
        0 => Ok(None),
        1 => Ok(given.take_unix_listener(0).context("the socket that was passed")?.map(OwnedFd::from)),
        more => bail!("{more} sockets were passed, one is served"),
    }
}

fn lock(store: &Store) -> Result<std::fs::File> {
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        match store.lock_daemon()? {
            Some(lock) => return Ok(lock),
            None if Instant::now() > until => bail!("a larderd of this store runs already"),
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Accepts connections until it is time to exit. Returns the reason, for the log.
fn serve(daemon: &Arc<Daemon>, door: &Door, socket: Option<&StoreSocket>, woken: &OwnedFd) -> &'static str {
    loop {
        daemon.wait_until_at_most(AT_ONCE_MAX - 1);
        if daemon.is_told_to_stop() {
            return "a client asked it to stop";
        }
        if accept(daemon, door) {
            continue;
        }
        let left = match daemon.idle_left() {
            Some(Duration::ZERO) => return "there was no client for the idle time",
            left => left.unwrap_or(daemon.idle).min(LOOK_EVERY),
        };
        if socket.is_some_and(|socket| !socket.is_there()) {
            return "its socket was removed";
        }
        if let Err(error) = door.wait(left, woken.as_fd()) {
            daemon.log.say(&error.to_string());
            std::thread::sleep(PAUSE);
        }
    }
}

/// Accepts one connection and serves it in a thread of its own. Returns false if none is waiting.
fn accept(daemon: &Arc<Daemon>, door: &Door) -> bool {
    let channel = match door.accept() {
        Ok(Some(channel)) => channel,
        Ok(None) => return false,
        Err(error) => {
            daemon.log.say(&format!("no connection can be accepted: {error}"));
            std::thread::sleep(PAUSE);
            return false;
        }
    };
    daemon.work.lock().connections += 1;
    let its = Arc::clone(daemon);
    let channel = Arc::new(channel);
    let started = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
        its.attend(&channel);
        its.done();
    });
    if let Err(error) = started {
        daemon.log.say(&format!("no thread for a connection: {error}"));
        daemon.done();
    }
    true
}

impl Daemon {
    fn done(&self) {
        let mut work = self.work.lock();
        work.connections -= 1;
        work.last = Instant::now();
        self.fewer.notify_all();
    }

    /// Does what may take minutes. Returns `None`, and does nothing, if too many connections do.
    fn at_length<T>(&self, channel: &Channel, long: impl FnOnce() -> T) -> Option<T> {
        let Some(_place) = self.places.take(channel) else {
            self.refuse("too many clients hold a download or wait for uploads");
            return None;
        };
        Some(long())
    }

    fn wait_until_at_most(&self, connections: usize) {
        let mut work = self.work.lock();
        while work.connections > connections {
            self.fewer.wait(&mut work);
        }
    }

    /// Returns how long there must be no client before the daemon exits, or `None` while there is
    /// work.
    fn idle_left(&self) -> Option<Duration> {
        let work = self.work.lock();
        let busy = self.remoting.as_ref().is_some_and(Remoting::is_busy);
        (work.connections == 0 && !busy).then(|| self.idle.saturating_sub(work.last.elapsed()))
    }

    fn is_told_to_stop(&self) -> bool {
        self.wake.lock().is_none()
    }

    /// Serves one connection.
    fn attend(&self, channel: &Arc<Channel>) {
        let done = receive(channel, PATIENCE)
            .and_then(|(caller, request)| in_class(caller.class, || self.serve_request(channel, caller, request)));
        match done {
            // Not in the client's class, because processes of another class may be waiting for
            // space.
            Ok(grown) => self.keep_within_limit(grown),
            Err(IpcError::Stranger(user)) => self.refuse(&format!("user {user} connected")),
            Err(error) => self.refuse(&error.to_string()),
        }
    }

    /// Handles a request. Returns the number of bytes by which the store grew.
    fn serve_request(&self, channel: &Arc<Channel>, caller: Caller, request: Request) -> Result<u64, IpcError> {
        match request {
            Request::Nothing => {}
            Request::HandOver { parcel, parcel_bytes, blobs } => {
                return Ok(self.take(caller, parcel, parcel_bytes, blobs));
            }
            Request::Used(weak) => {
                if let Ok(store) = Store::open(&self.dir) {
                    let _ = (store.read_manifest(&weak, true), store.read_handed_over(&weak, true));
                }
            }
            Request::Fetch { weak, directory, session } => {
                let served = self.at_length(channel, || self.fetch(channel, caller, weak, &directory, session));
                return served.unwrap_or_else(|| say(channel, &Frame::Nothing(Nothing::Failed), None).map(|()| 0));
            }
            Request::Recorded(recorded) => {
                self.remoting.iter().for_each(|remoting| remoting.recorded(&caller, &recorded));
            }
            Request::Flush(seconds) => {
                let patience = Duration::from_secs(seconds.min(FLUSH_MAX_S));
                self.at_length(channel, || self.remoting.iter().for_each(|remoting| remoting.flush(patience)));
                self.say_remotes(channel)?;
                let unshared = self.remoting.as_ref().map_or_else(Unshared::default, Remoting::unshared);
                say(channel, &Frame::Unshared(unshared), None)?;
            }
            Request::AskRemotes => self.say_remotes(channel)?,
            Request::Ask => answer(channel, self.state())?,
            Request::Stop(proof) => {
                if !proof.is_some_and(|proof| self.may_stop(proof)) {
                    self.refuse("a client that cannot write to the store asked larderd to stop");
                    return Ok(0);
                }
                answer(channel, self.state())?;
                self.remoting.iter().for_each(Remoting::end);
                drop(self.wake.lock().take());
            }
        }
        Ok(0)
    }

    /// Serves a wrapper that asks for a download.
    fn fetch(
        &self,
        channel: &Arc<Channel>,
        caller: Caller,
        weak: Fingerprint,
        directory: &[u8],
        session: Session,
    ) -> Result<u64, IpcError> {
        let Some(remoting) = &self.remoting else {
            say(channel, &Frame::Nothing(Nothing::NoRemote), None)?;
            return Ok(0);
        };
        // An error here is not counted as refused: a wrapper disconnects when its tool was faster.
        let _ = remoting.serve(&caller, channel, weak, directory, session);
        Ok(remoting.grown())
    }

    fn say_remotes(&self, channel: &Channel) -> Result<(), IpcError> {
        let none = Remotes { queued: 0, sent: 0, dropped: 0, failed: 0, settings: Digest([0; 32]) };
        let state = self.remoting.as_ref().map_or(none, Remoting::state);
        say(channel, &Frame::Remotes(state), None)
    }

    fn refuse(&self, why: &str) {
        self.refused.fetch_add(1, Relaxed);
        self.log.say(&format!("refused: {why}"));
    }

    fn state(&self) -> State {
        State {
            pid: larder_sys::process_id().into(),
            up_s: self.began.elapsed().as_secs(),
            idle_s: self.idle.as_secs(),
            recorded: self.recorded.load(Relaxed),
            refused: self.refused.load(Relaxed),
        }
    }

    /// Returns true if the client can write to the store. The proof is a descriptor of a file in
    /// the store, opened for writing, which a sandbox with a read-only store cannot open.
    fn may_stop(&self, proof: OwnedFd) -> bool {
        let proof = std::fs::File::from(proof);
        Store::open(&self.dir).is_ok_and(|store| store.is_proof_of_writing(&proof))
    }

    fn take(&self, caller: Caller, parcel: OwnedFd, parcel_bytes: u64, blobs: Vec<OwnedFd>) -> u64 {
        let came = match self.handover {
            Handover::Apart => Came::HandedOver,
            Handover::Trusted => Came::HandedOverTrusted,
            Handover::Off => {
                self.refuse("a record was handed over, but larderd was started with --hits-only or handover is off");
                return 0;
            }
        };
        let store = match Store::open(&self.dir) {
            Ok(store) => store,
            Err(error) => {
                self.refuse(&error.to_string());
                return 0;
            }
        };
        match accept_record::take(&store, came, self.limit_bytes, parcel, parcel_bytes, blobs) {
            Ok(taken) => {
                self.recorded.fetch_add(1, Relaxed);
                self.send(&caller, &taken.manifest);
                warm_stat_cache::warm(&store, &taken.manifest);
                taken.grown
            }
            Err(error) => {
                self.refuse(&format!("{error:#}"));
                0
            }
        }
    }

    /// Uploads a handed-over record if larderd's own settings say so. The client's settings can
    /// only prevent the upload.
    fn send(&self, caller: &Caller, manifest: &[u8]) {
        if let (Some(remoting), Ok(manifest)) = (&self.remoting, Manifest::decode(manifest))
            && let [entry] = manifest.entries.as_slice()
        {
            let (weak, strong, directory) = (manifest.weak, entry.strong, Vec::new());
            remoting.handed_over(caller, &Recorded { weak, strong, directory });
        }
    }

    fn keep_within_limit(&self, grown: u64) {
        let Some(store) = (grown > 0).then(|| Store::open(&self.dir).ok()).flatten() else { return };
        let Ok(counters) = Counters::open(&store) else { return };
        let size_bytes = counters.grew(grown);
        if self.limit_bytes == 0 || size_bytes <= self.limit_bytes || self.evicting.swap(true, Relaxed) {
            return;
        }
        if let Err(error) = evict::to_limit(&store, self.limit_bytes) {
            self.log.say(&format!("the store cannot be evicted: {error:#}"));
        }
        self.evicting.store(false, Relaxed);
    }
}
