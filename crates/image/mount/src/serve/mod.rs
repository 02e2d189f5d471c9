//! Serves an image by a FUSE server of larder's own. All names are available at once, and bytes are
//! fetched when they are first read. It needs no special rights and works on every kernel since
//! 5.10.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | mounts, starts the server's process, runs the server |
//! | `files.rs` | answers the kernel's requests |
//! | `data.rs` | reads bytes of files once they are local |
//!
//! ```text
//!   a job reads ─► overlay ─► FUSE ─► the kernel's cache, else: server ─► data file, else: Fill
//! ```
//!
//! M is the process that mounts, and S is the server's process:
//!
//! 1. M opens `/dev/fuse` and makes a detached mount with it.
//! 2. M starts S with a socket as its standard input, passes the open device, and sends what is to
//!    be served. M closes the device. Now only S has it open, so the kernel notices if S is killed.
//! 3. S opens the image, answers the kernel's first request, and replies that it is ready.
//! 4. M makes an overlay on the mount and attaches it to the target.
//!
//! S never accesses the mount that it serves. Its threads wait only for the disk: a read whose
//! bytes must be fetched is answered by the thread that fetches. When the mount is no longer used,
//! the kernel tells S, and S ends. If S is killed, reads that are not in the kernel's cache fail
//! with `ENOTCONN`.
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
use crate::{Backend, Fill, Mount, MountError, Owners};

/// The limit for a message to a server, which has a name and a few numbers, and for its reply.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
const FIRST: &str = "larder-serve 1";
const READY: &[u8] = b"ready";
/// The limit for ranges of mapped owners.
const RANGES_MAX: usize = 64;
/// The limits for the number of threads that answer requests. None of them waits for a fetch.
const THREADS: std::ops::RangeInclusive<usize> = 2..=8;
/// How long the first reads of an image are traced, if no trace of it is recorded yet.
const TRACE_FOR: Duration = Duration::from_secs(60);
/// The time limit for a process that waits until the server has recorded the trace.
const FAREWELL_MAX: Duration = Duration::from_secs(5);
/// The stack of the thread that waits for the server's process to end, in bytes.
const STACK_BYTES: usize = 64 << 10;

/// The image that a server serves.
pub struct Served {
    /// The metadata of an EROFS image.
    pub metadata: PathBuf,
    /// Where the bytes of files are.
    pub bytes: Bytes,
    /// Keeps the files from being evicted as long as it exists.
    pub lease: Arc<dyn Any + Send + Sync>,
}

/// Where the bytes of an image's files are.
pub enum Bytes {
    /// Only in the metadata.
    Inside,
    /// In a complete data file.
    Whole(PathBuf),
    /// In a data file that is filled while it is read.
    Filled(Filled),
}

/// Called with the trace of an image's first reads, to record it.
pub type KeepTrace = Arc<dyn Fn(&Trace) + Send + Sync>;

/// A data file that is filled while it is read.
pub struct Filled {
    /// The directory of the data file and its state.
    pub directory: PathBuf,
    /// The size of the complete data file, in bytes.
    pub size_bytes: u64,
    /// Fetches the bytes.
    pub fill: Arc<dyn Fill>,
    /// The ranges that earlier jobs read, in the order of their first reads.
    pub order: Vec<Range<u64>>,
    /// Called with the trace of the first minute, if no trace is recorded yet. The server does not
    /// end before this returns.
    pub traced: Option<KeepTrace>,
}

/// A request to serve an image.
#[derive(Clone, Copy, Debug)]
pub struct ToServe<'a> {
    /// The program and its arguments that call `serve` with their standard input.
    pub server: &'a [OsString],
    /// The working directory that it is started in, or `None` for ours. Its configuration may
    /// depend on it.
    pub from: Option<&'a Path>,
    /// The name by which the server finds the image.
    pub name: &'a str,
    /// The owners to show, if they are not those of the image. An owner in no range is shown as
    /// 65534.
    pub owners: Option<&'a Owners>,
    /// How long the server runs.
    pub life: Life,
}

/// A server that ends with the thread that started it. When this is dropped, the server records its
/// trace, if one was wanted, and this waits for that. The mount should be dropped before.
pub struct Server {
    channel: Channel,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(self.channel.descriptor(), rustix::net::Shutdown::Write);
        let _ = self.channel.set_patience(FAREWELL_MAX);
        let _ = self.channel.receive(&mut [0], &mut Vec::new(), 0);
    }
}

/// Checks whether a server could be started, without trying it. The error is a text for users.
pub fn possible() -> Result<(), String> {
    open_device().map(drop).map_err(|error| format!("{DEVICE} cannot be opened: {error}"))
}

/// Makes a detached read-only mount that a new server process answers for. Also returns the server
/// if it is to end with this thread. Fails if `/dev/fuse` cannot be opened, if the kernel refuses,
/// or if the server cannot serve the image.
pub fn mount(wanted: &ToServe) -> Result<(Mount, Option<Server>), MountError> {
    let unable = |why: String| MountError::Unable { backend: Backend::LazyFuse, why };
    let device = open_device().map_err(|error| unable(format!("{DEVICE} cannot be opened: {error}")))?;
    let mount = mount_device(device.as_fd())?;
    let failed =
        |error: io::Error| MountError::Program { program: "the FUSE server".to_owned(), why: error.to_string() };
    let channel = start(wanted).map_err(failed)?;
    // If the server ended at once, sending fails. Then the missing reply is reported below.
    let _ = channel.send(&encode(wanted), &[device.as_fd()]);
    drop(device);
    let said = hear(&channel, &mut Vec::new()).map_err(failed)?;
    match &*said {
        READY => {}
        why => return Err(failed(io::Error::other(String::from_utf8_lossy(why).into_owned()))),
    }
    Ok((mount, (wanted.life == Life::AsThread).then(|| Server { channel })))
}

/// Starts the server's process. Its standard input is the other end of the returned connection.
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
            // The server may outlive this process. Until then, this thread collects its exit
            // status.
            std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || child.wait())?;
        }
        Life::AsThread => {
            let argv: Vec<Vec<u8>> = wanted.server.iter().map(|word| word.as_bytes().to_vec()).collect();
            let one = |(name, value): (OsString, OsString)| [name.as_bytes(), b"=", value.as_bytes()].concat();
            let environment: Vec<Vec<u8>> = std::env::vars_os().map(one).collect();
            let start = || larder_sys::spawn_bound_to(program.as_bytes(), &argv, &environment, theirs.as_raw_fd());
            // The server gets a mount namespace of its own, so it never sees what is mounted for
            // the job.
            larder_sys::lending_mount_rights(start)?;
        }
    }
    Ok(ours)
}

/// Encodes a request:
///
/// ```text
/// larder-serve 1
/// own-mounts no                   or yes
/// users 0 1000 1                  ranges: first ID stored, first ID shown, count; may be empty
/// groups 0 1000 1
/// name …                          up to the zero byte at the end
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

/// A decoded request.
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

/// Receives one message: text that ends with a zero byte. At most one descriptor comes with it.
fn hear(channel: &Channel, passed: &mut Vec<OwnedFd>) -> io::Result<Vec<u8>> {
    let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let count = match channel.receive(&mut buffer, passed, 1) {
            // The other process ended before it read our message.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
            received => received?,
        };
        all.extend_from_slice(&buffer[..count]);
        if let Some(end) = all.iter().position(|byte| *byte == 0) {
            all.truncate(end);
            return Ok(all);
        }
        if count == 0 || all.len() > MESSAGE_BYTES_MAX {
            return Err(io::Error::other(if count == 0 {
                "it ended without a message"
            } else {
                "its message is too long"
            }));
        }
    }
}

/// Runs a server until its mount is gone. `socket` is a connection to the process that started it,
/// which sends the request. `supply` finds the image by its name, or returns an error text. Fails
/// if the request is not valid, or if the kernel's requests cannot be read.
pub fn serve(socket: OwnedFd, supply: impl FnOnce(&str) -> Result<Served, String>) -> io::Result<()> {
    larder_sys::close_others(3, &[socket.as_raw_fd()]);
    larder_sys::lead_session();
    // The server ends with its mount. SIGTERM is blocked, because a signal to all processes of
    // larder should not end a server whose files are in use.
    let _blocked = larder_sys::SignalForwarding::prepare()?;
    let _ = std::env::set_current_dir("/");
    let channel = Channel::given(socket);
    let mut passed = Vec::new();
    let asked = hear(&channel, &mut passed)?;
    let device = passed.pop().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    let asked = std::str::from_utf8(&asked).ok().and_then(decode).ok_or(io::ErrorKind::InvalidData)?;
    if asked.own_mounts {
        // Otherwise the server would see what is mounted over the store for the job.
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

/// Called with the trace of an image's first reads.
type Traced = Arc<dyn Fn(&Trace) + Send + Sync>;

/// A FUSE session that has answered the kernel's first request.
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

    /// Answers requests until the mount is gone. With `until_told`, the process that started us
    /// closes its end when the trace should be recorded, and waits for that.
    fn run(self, channel: Channel, until_told: bool) -> io::Result<()> {
        let Serving { session, own, traced } = self;
        let (over, is_over) = mpsc::channel();
        let channel = Arc::new(channel);
        if until_told {
            let (its, over) = (Arc::clone(&channel), over.clone());
            // Only the end of the connection is ever received here.
            std::thread::spawn(move || {
                let _ = its.receive(&mut [0], &mut Vec::new(), 0);
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

/// Tells the process that started us that the trace is recorded. Our standard input is the same
/// connection, so closing `channel` would not be enough.
fn hang_up(channel: &Channel) {
    let _ = rustix::net::shutdown(channel.descriptor(), rustix::net::Shutdown::Both);
}

/// Answers the kernel's first request.
fn session(files: Files, device: OwnedFd) -> Result<fuser::Session<Files>, MountError> {
    let threads = std::thread::available_parallelism().map_or(*THREADS.start(), usize::from);
    let mut config = fuser::Config::default();
    config.acl = fuser::SessionACL::All;
    config.n_threads = Some(threads.clamp(*THREADS.start(), *THREADS.end()));
    let session = fuser::Session::from_fd(files, device, fuser::SessionACL::All, config);
    session.map_err(MountError::lazy("the kernel cannot be answered through /dev/fuse"))
}

/// Mounts the image with this metadata, served by a thread of this process, to try whether that
/// works. All bytes of files must be in the metadata. The thread ends with the mount. Fails if it
/// does not work.
pub(crate) fn on_trial(metadata: &Path) -> Result<Mount, MountError> {
    let failed = |error: io::Error| MountError::Program { program: "a FUSE server".to_owned(), why: error.to_string() };
    let (ours, theirs) = Channel::pair().map_err(failed)?;
    let theirs = Arc::new(theirs);
    let (metadata, its) = (metadata.to_owned(), Arc::clone(&theirs));
    let (says, begun) = mpsc::channel();
    let serve = move || {
        // The device must be closed even if this process is killed while another thread accesses
        // the mount. So only this thread may have it open, in a descriptor table of its own, and
        // this thread never accesses the mount.
        let own = larder_sys::own_descriptors(3, &[its.as_raw_fd()]).and_then(|()| its.try_clone());
        // The descriptor is closed in the table where it was opened.
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
