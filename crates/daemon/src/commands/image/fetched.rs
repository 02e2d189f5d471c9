//! Provides a broker of root with images that processes without rights fetch and decode. Here,
//! nothing is parsed but the name that a job sent, and numbers.
//!
//! One process fetches one image. If an image ends it or fills its memory, only that image fails.
//! The process may end at any moment, and is started again for the next request. All that it makes
//! goes to nameless files, of which this process copies what is mounted: the other one may still
//! change the former.
//!
//! Unaware of: records, trees, packs, remotes.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use larder_image::SQUASHED;
use larder_mount::broker::{Lazily, Ready, Supplied, Supply, Traced};
use larder_mount::lazy::{Prepare, Trace, fill_whole, is_whole};
use larder_mount::{Backend, Fill, Image as Files, erofs_has_data};
use larder_store::{Lease, Live, Store};
use larder_sys::Channel;
use parking_lot::{Condvar, Mutex};

use super::fetch_request::{Description, Failed, RequestKind, ask};
use super::fetcher::UNCONFINED;
use super::supply::{Asked, PACKS_AT_ONCE, STORED, asked_for, made_on_a_thread};
use crate::cli::Limits;
use crate::say;

/// How often a request is made if the process ends each time.
const TRIES: usize = 3;
/// The time limit for a piece of the contents, and for everything else. Then the process is ended.
const FILL_PATIENCE: Duration = Duration::from_secs(120);
const PATIENCE: Duration = Duration::from_secs(600);
/// The message if a process cannot give up its rights.
const UNCONFINED_SAID: &str = "the process that fetches and decodes images cannot give up its rights, so it was not used: \
                               the broker's messages say why";
/// The limit for files that are mounted, in bytes. Only the contents can be that large.
const FILE_BYTES_MAX: u64 = 1 << 44;

/// The images of a store and its remotes, by processes without rights.
pub(super) struct FetchedSupply {
    pub(super) store: PathBuf,
    /// The command that starts such a process, without the name of the image.
    pub(super) fetcher: Vec<OsString>,
    /// The working directory to start it in, or `None` for ours. Its configuration may depend on it.
    pub(super) from: Option<PathBuf>,
    /// True if it mounts for other users.
    pub(super) is_for_others: bool,
    /// Set when something may have been downloaded.
    pub(super) has_fetched: Arc<AtomicBool>,
    /// The memory for trees that are decoded at the same time.
    pub(super) memory: Arc<Memory>,
    pub(super) sessions: Mutex<HashMap<String, Weak<Session>>>,
}

/// An image that is being fetched. While it exists, the image is not evicted.
pub(super) struct Session {
    store: PathBuf,
    command: Vec<OsString>,
    from: Option<PathBuf>,
    running: Mutex<Option<Running>>,
    described: OnceLock<Description>,
    has_fetched: Arc<AtomicBool>,
    memory: Arc<Memory>,
    /// How much memory it takes to decode the image, in bytes.
    weight_bytes: OnceLock<u64>,
    _lease: Lease,
}

/// The memory that the fetchers of a broker may use at once to decode trees.
pub(super) struct Memory {
    all_bytes: u64,
    free_bytes: Mutex<u64>,
    freed: Condvar,
}

impl Memory {
    pub(super) fn new(all_bytes: u64) -> Arc<Memory> {
        Arc::new(Memory { all_bytes, free_bytes: Mutex::new(all_bytes), freed: Condvar::new() })
    }

    /// Waits until so much memory is free, and takes it until the result is dropped. An image that
    /// needs more than all of it gets all, and fails if it uses more.
    fn take(&self, bytes: u64) -> Result<Taken<'_>> {
        let bytes = bytes.min(self.all_bytes);
        let mut free = self.free_bytes.lock();
        self.freed.wait_while_for(&mut free, |free| *free < bytes, PATIENCE);
        if *free < bytes {
            bail!("there was no memory to decode the image for {} s: try again later", PATIENCE.as_secs());
        }
        *free -= bytes;
        Ok(Taken(self, bytes))
    }
}

/// Memory that is taken until this is dropped.
struct Taken<'a>(&'a Memory, u64);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.0.free_bytes.lock() += self.1;
        self.0.freed.notify_all();
    }
}

/// The process of an image, which ends when this is dropped.
struct Running {
    line: Arc<Channel>,
    child: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Session {
    /// Makes a request. If the process ends meanwhile, another one is asked.
    fn request(&self, kind: RequestKind, bytes: (u64, u64), files: &[BorrowedFd]) -> Result<(), Failed> {
        self.has_fetched.store(true, Relaxed);
        let patience = if kind == RequestKind::Fill { FILL_PATIENCE } else { PATIENCE };
        let mut how = String::new();
        for _ in 0..TRIES {
            let line = self.line().map_err(|error| {
                Failed::Other(format!("the process that fetches images cannot be started: {error}"))
            })?;
            match ask(&line, kind, bytes, files, patience) {
                Err(Failed::Died) => {
                    let ended = self.end(&line);
                    if ended.as_ref().is_some_and(|(_, is_unconfined)| *is_unconfined) {
                        return Err(Failed::Other(UNCONFINED_SAID.to_owned()));
                    }
                    how = ended.map_or(how, |(how, _)| how);
                }
                done => return done,
            }
        }
        Err(Failed::Other(format!(
            "the process that fetches and decodes this image ended {TRIES} times ({how}): the image may be damaged or hostile, \
             or memory ran out"
        )))
    }

    /// Returns the connection to the process, and starts it if there is none.
    fn line(&self) -> io::Result<Arc<Channel>> {
        let mut running = self.running.lock();
        if let Some(running) = &*running {
            return Ok(Arc::clone(&running.line));
        }
        let (ours, theirs) = Channel::pair()?;
        let (program, arguments) = self.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        // Its messages are ours.
        command.args(arguments).stdin(Stdio::from(theirs)).stdout(Stdio::null());
        if let Some(from) = &self.from {
            command.current_dir(from);
        }
        let child = std::os::unix::process::CommandExt::process_group(&mut command, 0).spawn()?;
        let line = Arc::new(ours);
        *running = Some(Running { line: Arc::clone(&line), child });
        Ok(line)
    }

    /// Ends the process with this connection. Says how it ended if it had done so, and whether that
    /// was because it could not give up its rights.
    fn end(&self, line: &Arc<Channel>) -> Option<(String, bool)> {
        let mut running = self.running.lock();
        if running.as_ref().is_none_or(|running| !Arc::ptr_eq(&running.line, line)) {
            return None;
        }
        let mut ended = running.take()?;
        // It closes its connections at the latest when it ends, so it may not have ended yet.
        for _ in 0..50 {
            if let Ok(Some(status)) = ended.child.try_wait() {
                return Some((status.to_string(), status.code() == Some(UNCONFINED.into())));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Some(("it did not answer".to_owned(), false))
    }

    /// Ends the process, because nothing is asked for the moment.
    fn rest(&self) {
        self.running.lock().take();
    }

    fn description(&self) -> Result<&Description> {
        if let Some(described) = self.described.get() {
            return Ok(described);
        }
        let mut file = Store::open(&self.store)?.nameless_file()?;
        self.decode(RequestKind::Describe, &file)?;
        file.rewind()?;
        let description =
            Description::read(BufReader::new(&file)).context("the description of the image is invalid")?;
        Ok(self.described.get_or_init(|| description))
    }

    /// Makes a request for which trees are decoded, once there is memory for that.
    fn decode(&self, kind: RequestKind, file: &File) -> Result<()> {
        let weight_bytes = match self.weight_bytes.get() {
            Some(weight) => *weight,
            None => {
                let mut file = Store::open(&self.store)?.nameless_file()?;
                self.request(RequestKind::Weigh, (0, 0), &[file.as_fd()]).map_err(of_request)?;
                let mut bytes = [0; 8];
                file.rewind()?;
                file.read_exact(&mut bytes)?;
                *self.weight_bytes.get_or_init(|| u64::from_le_bytes(bytes))
            }
        };
        let _taken = self.memory.take(weight_bytes)?;
        self.request(kind, (0, 0), &[file.as_fd()]).map_err(of_request)
    }

    /// Has a file for mounts made, unless it exists. Returns its path.
    fn make(&self, store: &Store, asked: &Asked, live: Live, kind: RequestKind) -> Result<PathBuf> {
        let path = store.live_file(&asked.image, live)?;
        if path.exists() {
            return Ok(path);
        }
        let made = store.nameless_file()?;
        self.decode(kind, &made)?;
        store.put_live(&asked.image, live, |to: &File| -> Result<()> { Ok(copy(&made, to)?) })
    }
}

/// Copies a whole file of another process into one of ours.
fn copy(mut from: &File, mut to: &File) -> io::Result<()> {
    let length = from.metadata()?.len();
    if length > FILE_BYTES_MAX {
        return Err(io::Error::other("the file is too large to be mounted"));
    }
    from.rewind()?;
    io::copy(&mut (&mut from).take(length), &mut to).map(drop)
}

fn of_request(failed: Failed) -> anyhow::Error {
    match failed {
        Failed::Died => anyhow!("the process that fetches images ended"),
        Failed::Unreachable(why) | Failed::Other(why) => anyhow!("{why}"),
    }
}

impl Supply for FetchedSupply {
    fn image(&self, _user: u32, name: &str) -> Result<Supplied, String> {
        self.supplied(name, None).map_err(|error| say::one_line(&format!("{error:#}")))
    }

    fn again(&self, _user: u32, name: &str, first: &Path) -> Result<Supplied, String> {
        self.supplied(name, Some(first)).map_err(|error| say::one_line(&format!("{error:#}")))
    }
}

impl FetchedSupply {
    /// Returns what to mount for this name. An earlier broker mounted the metadata `first`.
    fn supplied(&self, name: &str, first: Option<&Path>) -> Result<Supplied> {
        let asked = asked_for(name)?;
        if asked.via == Backend::Fuse && self.is_for_others {
            bail!(
                "a broker of the machine does not start squashfuse, which would read the image with root's rights: use \
                 another method, such as lazy-fuse"
            );
        }
        let store = Store::open(&self.store)?;
        let session = self.session(&store, name, &asked)?;
        let described = session.description()?;
        let Asked { via, saved, ref image, .. } = asked;
        session.make(&store, &asked, Live::Record, RequestKind::Record)?;
        let supplied = |files: Files, below, lazily, ready| Supplied {
            id: format!("{via} {image} {saved}"),
            image: files,
            below,
            via,
            stored: STORED,
            lease: Arc::clone(&session) as Arc<_>,
            lazily,
            ready,
        };
        let only = |file, data| Ok(supplied(Files::Erofs { metadata: file, data }, None, None, None));
        let (metadata, whole) = (Live::Metadata(saved), Live::Whole(saved));
        let done = match via {
            Backend::Squashfs | Backend::Fuse => {
                let made = session.make(&store, &asked, Live::Squashfs(saved, STORED), RequestKind::Squashfs)?;
                store.forget_earlier(image, Live::Squashfs(saved, STORED));
                Ok(supplied(Files::Squashfs(made), Some(SQUASHED), None, None))
            }
            Backend::Mount if !erofs_has_data() => only(session.make(&store, &asked, whole, RequestKind::Whole)?, None),
            Backend::LazyFuse => only(session.make(&store, &asked, metadata, RequestKind::Metadata)?, None),
            Backend::Mount => {
                let file = session.make(&store, &asked, metadata, RequestKind::Metadata)?;
                let (data, directory) =
                    (store.live_file(image, Live::Data(saved))?, store.live_file(image, Live::Lazy(saved))?);
                let fill = SessionFill(Arc::clone(&session));
                fill_whole(&directory, &data, described.size_bytes, &fill, PACKS_AT_ONCE)?;
                only(file, Some(data))
            }
            Backend::Lazy => {
                let its = store.live_file(image, metadata)?;
                let first = first.filter(|first| first.parent() == its.parent() && first.exists());
                let (file, ready) = match first {
                    Some(first) => (first.to_owned(), None),
                    None if its.exists() => (its, None),
                    None => (its, Some(made_beside(&session, store.directory(), name)?)),
                };
                let data = store.live_file(image, Live::Data(saved))?;
                let lazily = self.lazily(&session, &store, &asked, described)?;
                return Ok(supplied(Files::Erofs { metadata: file, data: Some(data) }, None, Some(lazily), ready));
            }
            _ => bail!("a broker does not mount via {via}"),
        };
        session.rest();
        done
    }

    fn lazily(&self, session: &Arc<Session>, store: &Store, asked: &Asked, described: &Description) -> Result<Lazily> {
        let directory = store.live_file(&asked.image, Live::Lazy(asked.saved))?;
        let data = store.live_file(&asked.image, Live::Data(asked.saved))?;
        let size_bytes = described.size_bytes;
        if is_whole(&directory, &data, size_bytes) && !described.traced {
            session.rest();
        }
        let order = described.order.clone();
        let traced = described.traced.then(|| tracer(Arc::clone(session)));
        let fill = Arc::new(SessionFill(Arc::clone(session)));
        Ok(Lazily { directory, size_bytes, fill, prepare: preparer(Arc::clone(session)), order, traced })
    }

    /// Returns the session of an image, which all jobs share that mount it.
    fn session(&self, store: &Store, name: &str, asked: &Asked) -> Result<Arc<Session>> {
        let mut sessions = self.sessions.lock();
        if let Some(session) = sessions.get(name).and_then(Weak::upgrade) {
            return Ok(session);
        }
        let mut command = self.fetcher.clone();
        command.push(name.into());
        let session = Arc::new(Session {
            store: self.store.clone(),
            command,
            from: self.from.clone(),
            running: Mutex::new(None),
            described: OnceLock::new(),
            has_fetched: Arc::clone(&self.has_fetched),
            memory: Arc::clone(&self.memory),
            weight_bytes: OnceLock::new(),
            _lease: store.lease_image(&asked.image)?,
        });
        sessions.retain(|_, session| session.strong_count() > 0);
        sessions.insert(name.to_owned(), Arc::downgrade(&session));
        Ok(session)
    }
}

/// Returns the command that starts a fetcher for images of this store.
pub(super) fn words(program: &Path, store: &Store, limits: Limits) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![program.into(), "image".into(), "fetch".into()];
    words.extend(["--store".into(), store.directory().into()]);
    words.extend(limited(limits));
    words.push("--".into());
    words
}

/// Returns the options that limit a process without rights.
pub(super) fn limited(limits: Limits) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["--memory".into(), limits.memory_mib.to_string().into()];
    words.extend(limits.may_keep_user.then(|| "--user-0".into()));
    words
}

/// The most images whose files are removed at once.
const REMOVED_MAX: usize = 1 << 16;
/// The time limit for an eviction.
const EVICTION_PATIENCE: Duration = Duration::from_secs(600);

/// Has a process without rights evict from the store. It cannot change files for mounts, and says
/// which of them are not needed.
pub(super) fn evict(store: &Store, fetcher: &[OsString]) -> Result<()> {
    // Nothing is decoded for this.
    store.image_workplaces().iter().for_each(|dir| drop(larder_image::sweep(dir)));
    let mut said = store.nameless_file()?;
    let (program, arguments) = fetcher.split_first().context("there is no program that evicts")?;
    let mut command = Command::new(program);
    // The last argument would be followed by the name of an image.
    command.args(&arguments[..arguments.len().saturating_sub(1)]).arg("--evict");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::from(said.try_clone()?)).spawn()?;
    let until = Instant::now() + EVICTION_PATIENCE;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if Instant::now() > until => {
                child.kill()?;
                break child.wait()?;
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    if !status.success() {
        bail!("the process that evicts failed ({status})");
    }
    said.rewind()?;
    let mut digests = Vec::new();
    said.take((REMOVED_MAX * 32) as u64).read_to_end(&mut digests)?;
    for digest in digests.as_chunks::<32>().0 {
        store.remove_live(&larder_model::Digest(*digest))?;
    }
    Ok(())
}

/// Has the metadata made while something else is done. The returned function waits for it.
fn made_beside(session: &Arc<Session>, store: &Path, name: &str) -> Result<Ready> {
    let (session, store, asked) = (Arc::clone(session), Store::open(store)?, asked_for(name)?);
    let made = move || session.make(&store, &asked, Live::Metadata(asked.saved), RequestKind::Metadata).map(drop);
    made_on_a_thread(made)
}

fn preparer(session: Arc<Session>) -> Prepare {
    Arc::new(move |metadata: &File, to: &File, table: &File| {
        let other = |error: anyhow::Error| io::Error::other(error.to_string());
        let nameless = || Store::open(&session.store).and_then(|store| store.nameless_file());
        let [made, listed] = [nameless(), nameless()].map(|file| file.map_err(|error| other(error.into())));
        let (made, listed) = (made?, listed?);
        let asked = session.request(RequestKind::Prepare, (0, 0), &[metadata.as_fd(), made.as_fd(), listed.as_fd()]);
        asked.map_err(|failed| other(of_request(failed)))?;
        copy(&made, to)?;
        copy(&listed, table)
    })
}

/// Returns a function that has a trace stored, in a thread of its own, so that unmounting does not
/// wait for remotes.
fn tracer(session: Arc<Session>) -> Traced {
    Arc::new(move |trace: &Trace| {
        let (session, trace) = (Arc::clone(&session), trace.clone());
        std::thread::spawn(move || {
            let stored = || -> Result<()> {
                let mut file = Store::open(&session.store)?.nameless_file()?;
                let numbers = trace.ranges.iter().flat_map(|range| [range.start, range.end]);
                let bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
                io::Write::write_all(&mut file, &bytes)?;
                file.rewind()?;
                session.request(RequestKind::Trace, (0, 0), &[file.as_fd()]).map_err(of_request)
            };
            if let Err(error) = stored() {
                say::tell(&say::one_line(&format!("an access trace could not be stored: {error:#}")));
            }
        });
    })
}

/// Fills the data file by the session's process.
struct SessionFill(Arc<Session>);

impl Fill for SessionFill {
    fn fill(&self, offset: u64, length: u64, into: BorrowedFd<'_>) -> io::Result<()> {
        self.0.request(RequestKind::Fill, (offset, length), &[into]).map_err(|failed| match failed {
            Failed::Unreachable(why) => io::Error::new(io::ErrorKind::HostUnreachable, why),
            failed => io::Error::other(of_request(failed).to_string()),
        })
    }

    fn piece(&self, offset: u64) -> Range<u64> {
        self.0.described.get().map_or(0..u64::MAX, |described| described.piece(offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn supply(store: &Path, script: &str) -> FetchedSupply {
        // The name of the image is an argument that the script does not use.
        let fetcher = ["/bin/sh", "-c", script].map(OsString::from).to_vec();
        let (has_fetched, sessions) = (Arc::default(), Mutex::default());
        FetchedSupply {
            store: store.to_owned(),
            fetcher,
            from: None,
            is_for_others: true,
            has_fetched,
            memory: Memory::new(1),
            sessions,
        }
    }

    #[test]
    fn trees_are_decoded_only_if_there_is_memory() {
        let memory = Memory::new(10);
        let first = memory.take(6).expect("is free");
        let small = memory.take(4).expect("is free");
        let (asked, answered) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let all = memory.take(u64::MAX).expect("is free in the end");
                let _ = asked.send(());
                drop(all);
            });
            drop(small);
            assert!(answered.recv_timeout(Duration::from_millis(100)).is_err(), "6 of 10 are in use");
            drop(first);
            answered.recv().expect("all is free now");
        });
        assert_eq!(*memory.free_bytes.lock(), 10);
    }

    #[test]
    fn a_fetcher_that_dies_or_lies_fails_only_its_request() {
        let dir = tempfile::tempdir().expect("a directory");
        let name = format!("lazy 0 {} k", larder_model::Digest([7; 32]));
        for (script, why) in [
            ("kill -KILL $$", "signal: 9"),
            ("exit 3", "exit status: 3"),
            ("exit 77", "cannot give up its rights"),
            // It reads a request, and closes the connection without a reply.
            ("head -c 24 >/dev/null", "ended 3 times"),
        ] {
            let failed = supply(dir.path(), script).image(0, &name).err().expect("nothing is fetched");
            assert!(failed.contains(why), "{script}: {failed}");
            assert_eq!(failed.contains("hostile"), script != "exit 77", "{script}: {failed}");
        }
        let missing = FetchedSupply { fetcher: vec!["/no/such/program".into()], ..supply(dir.path(), "") };
        let failed = missing.image(0, &name).err().expect("nothing is fetched");
        assert!(failed.contains("cannot be started"), "{failed}");
        let failed = missing.image(0, &name.replace("lazy", "fuse")).err().expect("nothing is fetched");
        assert!(failed.contains("squashfuse"), "{failed}");
        for odd in ["", "lazy", "lazy 0 x k", "unpack 0 7 k"] {
            assert!(missing.image(0, odd).is_err(), "{odd}");
        }
    }
}
