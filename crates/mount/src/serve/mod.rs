//! An image served by a FUSE server of larder's own: a tree whose names are there at once, and whose bytes are fetched
//! when they are first read, without rights over the machine and on every kernel since 5.10.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | mounting, starting the server's process, being one |
//! | `files.rs` | what the kernel asks, answered |
//! | `data.rs` | bytes of files, read once they are there |
//!
//! ```text
//!   a job reads ─► overlay ─► FUSE ─► the kernel's cache, else: server ─► data file, else: Fill
//! ```
//!
//! How it begins, where M mounts and S is the server's process:
//!
//! 1. M opens `/dev/fuse`, and makes a mount of it that is nowhere yet.
//! 2. M starts S with a socket as its standard input, passes the opened device and says what is to be served. M closes
//!    the device: S alone has it, so that the kernel learns when S is killed.
//! 3. S opens the image, greets the kernel, and says that it is ready. M makes an overlay on the mount and gives it a place.
//!
//! S never looks at the mount that it serves, and its threads that answer wait for nothing but the disk: what has to be
//! fetched is answered by those that fetch. When the last use of the mount is gone, the kernel says so, and S ends. When
//! S is killed, whoever reads what is not in the kernel's cache gets `ENOTCONN`.
//!
//! Unaware of: keys, records, packs, remotes.

mod data;
mod files;

use std::any::Any;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use larder_sys::Channel;

use self::data::Data;
use self::files::Files;
use crate::dev_fuse::{DEVICE, mount_device, open_device};
use crate::erofs::Erofs;
use crate::fuse::Life;
use crate::lazy::{Options, Own, Trace};
use crate::{Fill, Mount, MountError, Owners, Rung};

/// What is said to a server, and what it says: a name and a few numbers; a sentence.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
const FIRST: &str = "larder-serve 1";
const READY: &[u8] = b"ready";
/// Ranges of owners that are to be seen as others.
const RANGES_MAX: usize = 64;
/// Threads that answer. None of them waits for a fetch.
const THREADS: std::ops::RangeInclusive<usize> = 2..=8;
/// So long it is noted what jobs touch of an image of which nobody knows that.
const TRACE_FOR: Duration = Duration::from_secs(60);
/// Whoever waits until what was touched is kept waits no longer than this.
const FAREWELL_MAX: Duration = Duration::from_secs(5);
/// Of the thread that waits for the server's process to end.
const STACK_BYTES: usize = 64 << 10;

/// What is served.
pub struct Served {
    /// The metadata of an EROFS image.
    pub metadata: PathBuf,
    /// Where the bytes of files are.
    pub bytes: Bytes,
    /// As long as this is there, nobody removes these files.
    pub lease: Arc<dyn Any + Send + Sync>,
}

/// Where the bytes of an image's files are.
pub enum Bytes {
    /// Nowhere but in the metadata.
    Inside,
    /// In a data file that has all of them.
    Whole(PathBuf),
    /// In a data file that is filled when it is read.
    Filled(Filled),
}

/// Keeps what was touched.
pub type KeepTrace = Arc<dyn Fn(&Trace) + Send + Sync>;

/// A data file that is filled when it is read.
pub struct Filled {
    /// Where it is, and what belongs to it.
    pub directory: PathBuf,
    /// Of the whole data file.
    pub size_bytes: u64,
    /// Where bytes come from.
    pub fill: Arc<dyn Fill>,
    /// What earlier jobs touched, in their order.
    pub order: Vec<Range<u64>>,
    /// Keeps what is touched in the first minute, if that is not known. The server does not end before it returns.
    pub traced: Option<KeepTrace>,
}

/// What is to be served, and how.
#[derive(Clone, Copy, Debug)]
pub struct ToServe<'a> {
    /// The program and its arguments that call `serve` with their standard input.
    pub server: &'a [OsString],
    /// The working directory that it is started in, if not this one: what it is set to may depend on that.
    pub from: Option<&'a Path>,
    /// What the server knows the image by.
    pub name: &'a str,
    /// Owners to be seen, where they are to be others than the image's. What is in no range is nobody's.
    pub owners: Option<&'a Owners>,
    /// How long the server is there.
    pub life: Life,
}

/// A server that ends with the thread that started it. Dropped, it keeps what was touched, if it is to, and that is
/// waited for: the mount should be gone before.
pub struct Server {
    channel: Channel,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(self.channel.descriptor(), rustix::net::Shutdown::Write);
        let _ = self.channel.set_patience(FAREWELL_MAX);
        let _ = self.channel.receive(&mut [0], &mut Vec::new());
    }
}

/// Whether this can be tried here at all: else why not.
pub fn possible() -> Result<(), String> {
    open_device().map(drop).map_err(|error| format!("{DEVICE} cannot be opened: {error}"))
}

/// Mounts what a server answers for: a mount that is nowhere and cannot be written to, with the server's process if that
/// is to end with this thread.
///
/// # Errors
///
/// If `/dev/fuse` cannot be opened, the kernel refuses, or the server cannot serve that.
pub fn mount(wanted: &ToServe) -> Result<(Mount, Option<Server>), MountError> {
    let unable = |why: String| MountError::Unable { rung: Rung::LazyFuse, why };
    let device = open_device().map_err(|error| unable(format!("{DEVICE} cannot be opened: {error}")))?;
    let mount = mount_device(device.as_fd())?;
    let failed =
        |error: io::Error| MountError::Program { program: "the FUSE server".to_owned(), why: error.to_string() };
    let channel = start(wanted).map_err(failed)?;
    // One that ended at once says nothing, which is said below.
    let _ = channel.send(&encode(wanted), &[device.as_fd()]);
    drop(device);
    let said = hear(&channel, &mut Vec::new()).map_err(failed)?;
    match &*said {
        READY => {}
        why => return Err(failed(io::Error::other(String::from_utf8_lossy(why).into_owned()))),
    }
    Ok((mount, (wanted.life == Life::AsThread).then(|| Server { channel })))
}

/// Start the process, with the other end of what is returned as its standard input.
fn start(wanted: &ToServe) -> io::Result<Channel> {
    let (ours, theirs) = Channel::pair()?;
    let (program, arguments) = wanted.server.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    match wanted.life {
        Life::AsMount => {
            let mut command = Command::new(program);
            command.args(arguments).stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
            if let Some(from) = wanted.from {
                command.current_dir(from);
            }
            let mut child = std::os::unix::process::CommandExt::process_group(&mut command, 0).spawn()?;
            // It outlives us, or somebody waits for it.
            std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || child.wait())?;
        }
        Life::AsThread => {
            let argv: Vec<Vec<u8>> = wanted.server.iter().map(|word| word.as_bytes().to_vec()).collect();
            let one = |(name, value): (OsString, OsString)| [name.as_bytes(), b"=", value.as_bytes()].concat();
            let environment: Vec<Vec<u8>> = std::env::vars_os().map(one).collect();
            let start = || larder_sys::spawn_bound_to(program.as_bytes(), &argv, &environment, theirs.as_raw_fd());
            // It makes mounts of its own, so that it never sees what is mounted for the job.
            larder_sys::lending_mount_rights(start)?;
        }
    }
    Ok(ours)
}

/// ```text
/// larder-serve 1
/// own-mounts no                   or yes
/// users 0 1000 1                  ranges: as stored, as seen, how many; none if they are seen as they are
/// groups 0 1000 1
/// name …                          to the end
/// ```
fn encode(wanted: &ToServe) -> Vec<u8> {
    let ranges = |list: Option<&Vec<(u32, u32, u32)>>| -> String {
        let one = |(stored, seen, count): &(u32, u32, u32)| format!(" {stored} {seen} {count}");
        list.into_iter().flatten().map(one).collect()
    };
    let users = ranges(wanted.owners.map(|owners| &owners.users));
    let groups = ranges(wanted.owners.map(|owners| &owners.groups));
    let own = if wanted.life == Life::AsThread { "yes" } else { "no" };
    format!("{FIRST}\nown-mounts {own}\nusers{users}\ngroups{groups}\nname {}\0", wanted.name).into_bytes()
}

/// What was asked for, read.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    own_mounts: bool,
    owners: Option<Owners>,
    name: String,
}

fn decode(text: &str) -> Option<Asked> {
    let mut lines = text.splitn(5, '\n');
    (lines.next()? == FIRST).then_some(())?;
    let mut value = |name: &str| lines.next()?.strip_prefix(name);
    let own_mounts = match value("own-mounts ")? {
        "yes" => true,
        "no" => false,
        _ => return None,
    };
    let ranges = |text: &str| -> Option<Vec<(u32, u32, u32)>> {
        let numbers = text.split_whitespace().map(|number| number.parse().ok()).collect::<Option<Vec<u32>>>()?;
        let (whole, rest) = numbers.as_chunks::<3>();
        let fits = rest.is_empty() && whole.len() <= RANGES_MAX;
        fits.then(|| whole.iter().map(|&[stored, seen, count]| (stored, seen, count)).collect())
    };
    let owners = Owners { users: ranges(value("users")?)?, groups: ranges(value("groups")?)? };
    let is_any = !owners.users.is_empty() || !owners.groups.is_empty();
    Some(Asked { own_mounts, owners: is_any.then_some(owners), name: value("name ")?.to_owned() })
}

/// What the other side says: text, with a zero behind it.
fn hear(channel: &Channel, passed: &mut Vec<OwnedFd>) -> io::Result<Vec<u8>> {
    let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let count = match channel.receive(&mut buffer, passed) {
            // It ended before it had heard us.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
            received => received?,
        };
        all.extend_from_slice(&buffer[..count]);
        if let Some(end) = all.iter().position(|byte| *byte == 0) {
            all.truncate(end);
            return Ok(all);
        }
        if count == 0 || all.len() > MESSAGE_BYTES_MAX {
            return Err(io::Error::other(if count == 0 { "it ended and said nothing" } else { "it says too much" }));
        }
    }
}

/// Be a server: `socket` leads to whoever started us, and says the rest. `supply` finds what is served by its name, or
/// says why it cannot be had. Returns when nothing needs it any more.
///
/// # Errors
///
/// If it was not started as a server is, or the kernel does not go on asking as it should.
pub fn serve(socket: OwnedFd, supply: impl FnOnce(&str) -> Result<Served, String>) -> io::Result<()> {
    larder_sys::close_others(3, &[socket.as_raw_fd()]);
    larder_sys::lead_session();
    // It ends with its mount: whoever asks all of larder to end by SIGTERM does not mean files that are in use.
    let _blocked = larder_sys::SignalForwarding::prepare()?;
    let _ = std::env::set_current_dir("/");
    let channel = Channel::given(socket);
    let mut passed = Vec::new();
    let asked = hear(&channel, &mut passed)?;
    let device = passed.pop().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    let asked = std::str::from_utf8(&asked).ok().and_then(decode).ok_or(io::ErrorKind::InvalidData)?;
    if asked.own_mounts {
        // Without, what is mounted over the store for the job is seen here as well.
        let _ = larder_sys::own_mounts();
    }
    let begun = supply(&asked.name).and_then(|served| {
        let begun = Serving::begin(&served, asked.owners, device);
        begun.map(|serving| (serving, served.lease)).map_err(|error| error.to_string())
    });
    match begun {
        Ok((serving, _lease)) => {
            channel.send(&[READY, &[0]].concat(), &[])?;
            serving.run(channel, asked.own_mounts)
        }
        Err(why) => channel.send(&[why.replace('\0', " ").as_bytes(), &[0]].concat(), &[]),
    }
}

/// What tells whoever keeps it what was touched.
type Traced = Arc<dyn Fn(&Trace) + Send + Sync>;

/// A session with the kernel that has begun.
struct Serving {
    session: fuser::Session<Files>,
    own: Option<Arc<Own>>,
    traced: Option<Traced>,
}

impl Serving {
    fn begin(served: &Served, owners: Option<Owners>, device: OwnedFd) -> Result<Serving, MountError> {
        let tree = Erofs::open(&served.metadata).map_err(MountError::path(&served.metadata, "cannot be read"))?;
        let (mut own, mut traced) = (None, None);
        let data = match &served.bytes {
            Bytes::Inside => Data::None,
            Bytes::Whole(path) => {
                Data::Whole(Arc::new(File::open(path).map_err(MountError::path(path, "cannot be opened"))?))
            }
            Bytes::Filled(filled) => {
                let Filled { directory, size_bytes, fill, order, .. } = filled;
                traced.clone_from(&filled.traced);
                let options = Options { order: order.clone(), trace: traced.is_some(), ..Options::new(Vec::new()) };
                let begun = Own::begin(directory, *size_bytes, Arc::clone(fill), &options)?;
                Data::Own(Arc::clone(own.insert(begun)))
            }
        };
        let session = session(Files::new(tree, data, owners), device)?;
        Ok(Serving { session, own, traced })
    }

    /// Answer until the mount is gone. With `until_told`, whoever started us says at its end that what was touched is to
    /// be kept now, and waits for that.
    fn run(self, channel: Channel, until_told: bool) -> io::Result<()> {
        let Serving { session, own, traced } = self;
        let (over, is_over) = mpsc::channel();
        let channel = Arc::new(channel);
        if until_told {
            let (its, over) = (Arc::clone(&channel), over.clone());
            // Nothing is said but the end.
            std::thread::spawn(move || {
                let _ = its.receive(&mut [0], &mut Vec::new());
                let _ = over.send(());
            });
        }
        let traced = own.clone().zip(traced);
        let keeper = std::thread::spawn(move || {
            if let Some((own, traced)) = traced {
                let early = is_over.recv_timeout(TRACE_FOR);
                let trace = own.end_trace();
                if !trace.ranges.is_empty() {
                    traced(&trace);
                }
                if early.is_ok() {
                    return hang_up(&channel);
                }
            }
            let _ = is_over.recv();
            hang_up(&channel);
        });
        own.iter().for_each(|own| own.note_mounted());
        let done = session.run();
        own.iter().for_each(|own| own.stop());
        let _ = over.send(());
        let _ = keeper.join();
        done
    }
}

/// Whoever started us waits no longer. Our standard input is the same connection, so that closing this would not do.
fn hang_up(channel: &Channel) {
    let _ = rustix::net::shutdown(channel.descriptor(), rustix::net::Shutdown::Both);
}

/// Greet the kernel.
fn session(files: Files, device: OwnedFd) -> Result<fuser::Session<Files>, MountError> {
    let threads = std::thread::available_parallelism().map_or(*THREADS.start(), usize::from);
    let mut config = fuser::Config::default();
    config.acl = fuser::SessionACL::All;
    config.n_threads = Some(threads.clamp(*THREADS.start(), *THREADS.end()));
    let session = fuser::Session::from_fd(files, device, fuser::SessionACL::All, config);
    session.map_err(MountError::lazy("the kernel cannot be answered through /dev/fuse"))
}

/// A mount of the image in these metadata, which has no bytes elsewhere, served by a thread of ours that ends with it: to
/// try whether that is possible here.
///
/// # Errors
///
/// If it is not.
pub(crate) fn on_trial(metadata: &Path) -> Result<Mount, MountError> {
    let failed = |error: io::Error| MountError::Program { program: "a FUSE server".to_owned(), why: error.to_string() };
    let (ours, theirs) = Channel::pair().map_err(failed)?;
    let theirs = Arc::new(theirs);
    let (metadata, its) = (metadata.to_owned(), Arc::clone(&theirs));
    let (says, begun) = mpsc::channel();
    let serve = move || {
        // If we are killed while we look at the mount, the device must be closed nevertheless: by this thread, which
        // looks at nothing. So it must be open in no other.
        let own = larder_sys::own_descriptors(3, &[its.as_raw_fd()]).and_then(|()| its.try_clone());
        // Closed where it was opened.
        drop(its);
        let channel = match own {
            Ok(own) => Channel::given(own),
            Err(error) => return drop(says.send(Err(error))),
        };
        let _ = says.send(Ok(()));
        let begun = || -> Result<_, MountError> {
            let device = open_device().map_err(MountError::path(DEVICE, "cannot be opened"))?;
            let mount = mount_device(device.as_fd())?;
            let tree = Erofs::open(&metadata).map_err(MountError::path(&metadata, "cannot be read"))?;
            Ok((session(Files::new(tree, Data::None, None), device.into())?, mount))
        };
        match begun() {
            Ok((session, mount)) => {
                let sent = channel.send(&[READY, &[0]].concat(), &[mount.descriptor()]);
                drop((mount, channel));
                if sent.is_ok() {
                    let _ = session.run();
                }
            }
            Err(error) => drop(channel.send(&[error.to_string().as_bytes(), &[0]].concat(), &[])),
        }
    };
    std::thread::Builder::new().spawn(serve).map_err(failed)?;
    begun.recv().unwrap_or_else(|_| Err(io::ErrorKind::UnexpectedEof.into())).map_err(failed)?;
    drop(theirs);
    let mut passed = Vec::new();
    let said = hear(&ours, &mut passed).map_err(failed)?;
    match (&*said, passed.pop()) {
        (READY, Some(mount)) => Ok(Mount::passed(mount)),
        (why, _) => Err(failed(io::Error::other(String::from_utf8_lossy(why).into_owned()))),
    }
}

#[cfg(test)]
mod tests;
