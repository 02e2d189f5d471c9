//! The broker's server: each connection sends one request and has a thread of its own. Nothing that
//! a client sends is trusted.
//!
//! Unaware of: how images are found and how they are mounted.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use larder_sys::{Channel, Door, Peer};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::host::{Host, Programs, Shared};
use super::message::{Message, MessageKind, RELEASE, encode, receive};
use super::policy::{name_of, refused};
use super::seats::{Lines, Making, Seat, Seats};
use super::{Policy, Supplied, Supply};
use crate::{Ask, Backend, Inside, Lease, Life, Listed, Mount, MountError, Owners, Places, Stay};

/// The time limit for a whole request, even if its bytes arrive one at a time.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time limit for sending a refusal to a user that is not served, so that it delays nothing.
const NO_PATIENCE: Duration = Duration::from_millis(1);
/// The sweep waits this long for one mount to be removed, then it goes on with the next one.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// How often the sweep looks for mounts of jobs that have ended.
const SWEEP_EVERY: Duration = Duration::from_secs(30);
/// How long an image stays for a client of root that has ended. So a plugin that starts again finds
/// the data of its volumes being fetched without a gap.
const RETURN_PATIENCE: Duration = Duration::from_secs(120);
/// The longest wait for a connection before the loop checks again whether to end.
const WAIT: Duration = Duration::from_secs(30);
/// The stack of each thread, in bytes.
const STACK_BYTES: usize = 256 << 10;

/// A broker, which mounts images for jobs while `serve` runs.
pub struct Broker {
    places: Places,
    host: Host,
    supply: Box<dyn Supply>,
    policy: Policy,
    /// The images of mounts that outlive their connection, by the identifier of the mount.
    used: Mutex<HashMap<String, Arc<Shared>>>,
    /// The identifiers of mounts that a thread of the sweep is checking or removing.
    swept: Mutex<HashSet<String>>,
    seats: Arc<Seats>,
    lines: Lines,
    says: Box<dyn Fn(&str) + Send + Sync>,
}

/// The process that sent a request, and its mount namespace.
struct Caller {
    peer: Peer,
    namespace: OwnedFd,
    name: String,
}

/// The result of a request that was not refused.
enum Outcome {
    /// The reply is this text, and nothing is left to do.
    Said(String),
    /// The mount is removed when the connection ends. The descriptor of a detached mount is passed
    /// with the reply.
    Held(Stay, Arc<Shared>, Option<OwnedFd>),
    /// The descriptor of a read-only mount is passed with the reply. The image stays until the client
    /// releases it, or until `RETURN_PATIENCE` after the connection ended.
    Layer(Stay, Arc<Shared>, OwnedFd),
    /// The mount of this identifier is removed when this process ends.
    ForProcess(String, OwnedFd),
    /// The client closed the connection without a request, for example to check that a broker
    /// listens.
    Left,
}

impl Broker {
    /// Starts a broker with its state in the directory `state`. Images that an earlier broker
    /// mounted for living jobs are mounted and filled again. `serve` removes what ended jobs have
    /// left. `says` is called with each error, for a log. Fails if the state directory cannot be
    /// used.
    pub fn new(
        state: &Path,
        supply: Box<dyn Supply>,
        policy: Policy,
        programs: Programs,
        says: Box<dyn Fn(&str) + Send + Sync>,
    ) -> Result<Arc<Broker>, MountError> {
        let (places, host) = (Places::open(state)?, Host::new(programs));
        let (used, swept) = (Mutex::default(), Mutex::default());
        let (seats, lines) = (Arc::default(), Lines::default());
        let broker = Arc::new(Broker { places, host, supply, policy, used, swept, seats, lines, says });
        broker.resume()?;
        Ok(broker)
    }

    /// Accepts connections until the other end of the pipe `woken` is closed. Mounts for
    /// connections that are open then are removed when the process ends.
    pub fn serve(self: &Arc<Broker>, door: &Door, woken: BorrowedFd) {
        // This thread does nothing that depends on a job, because a job can make the kernel wait.
        // For example, a FUSE file system of the job may not answer.
        let (_until_served, served) = mpsc::channel::<()>();
        let its = Arc::clone(self);
        let sweeping = move || {
            loop {
                its.sweep();
                match served.recv_timeout(SWEEP_EVERY) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => return,
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(sweeping) {
            (self.says)(&format!("mounts of ended jobs are not removed, because no thread can be started: {error}"));
        }
        while !is_closed(woken) {
            match door.accept() {
                Ok(Some(channel)) => self.attend_apart(channel),
                Ok(None) => {
                    if let Err(error) = door.wait(WAIT, woken) {
                        (self.says)(&error.to_string());
                    }
                }
                Err(error) => {
                    self.say_of_client(&format!("a connection cannot be accepted: {error}"));
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }

    /// Returns true if there is a connection, with a request or for a mount that is held.
    pub fn is_asked(&self) -> bool {
        self.seats.connections() > 0
    }

    /// Logs a line that clients can cause as often as they like, so it is rate-limited.
    fn say_of_client(&self, line: &str) {
        self.lines.of(line, Instant::now()).iter().for_each(|line| (self.says)(line));
    }

    /// Checks the user before anything that the client sends is read, then answers on a thread of
    /// its own.
    fn attend_apart(self: &Arc<Broker>, channel: Channel) {
        let (peer, seat) = match self.admitted(&channel) {
            Ok(admitted) => admitted,
            Err(error) => {
                self.say_of_client(&format!("refused: {error}"));
                let reply = encode(MessageKind::Refused, &error.to_string());
                return drop(channel.set_patience(NO_PATIENCE).and_then(|()| channel.send(&reply, &[])));
            }
        };
        let its = Arc::clone(self);
        let attend = move || its.attend(&channel, peer, seat);
        if let Err(error) = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(attend) {
            self.say_of_client(&format!("no thread for a connection can be started: {error}"));
        }
    }

    fn admitted(&self, channel: &Channel) -> Result<(Peer, Seat), MountError> {
        let peer =
            channel.peer().map_err(|error| refused(format!("the user of the connection is unknown: {error}")))?;
        self.policy.admits(peer.user)?;
        self.policy.has_turn(peer.user, self.seats.asking(peer.user))?;
        let seat = self.seats.take(peer.user);
        seat.map(|seat| (peer, seat)).ok_or_else(|| refused("too many connections at once: ask again later".to_owned()))
    }

    /// Answers the request of one connection, and holds the mount if that was requested.
    fn attend(&self, channel: &Channel, peer: Peer, mut seat: Seat) {
        let outcome = match self.answer(channel, peer) {
            Ok(outcome) => outcome,
            Err(error) => {
                let is_nothing = matches!(error, MountError::NotMounted(_));
                if !is_nothing {
                    self.say_of_client(&format!("refused: {error}"));
                }
                let kind = if is_nothing { MessageKind::Nothing } else { MessageKind::Refused };
                let _ = channel.send(&encode(kind, &error.to_string()), &[]);
                return;
            }
        };
        match outcome {
            Outcome::Said(id) => drop(channel.send(&encode(MessageKind::Done, &id), &[])),
            Outcome::Held(stay, _image, mount) => {
                let passed: Vec<BorrowedFd> = mount.iter().map(AsFd::as_fd).collect();
                let sent = channel.send(&encode(MessageKind::Done, &stay.id()), &passed);
                drop(mount);
                seat.answered();
                if sent.is_ok() {
                    wait_for_end(channel.descriptor());
                }
                // If the mount is gone already, this does nothing.
                drop(stay);
            }
            Outcome::Layer(stay, _image, mount) => {
                let sent = channel.send(&encode(MessageKind::Done, &stay.id()), &[mount.as_fd()]);
                drop(mount);
                seat.answered();
                if sent.is_ok() && !is_released(channel) {
                    std::thread::sleep(RETURN_PATIENCE);
                }
            }
            Outcome::ForProcess(id, process) => {
                let _ = channel.send(&encode(MessageKind::Done, &id), &[]);
                seat.answered();
                wait_for_end(process.as_fd());
                self.end(&id);
            }
            Outcome::Left => {}
        }
    }

    fn answer(&self, channel: &Channel, peer: Peer) -> Result<Outcome, MountError> {
        let odd = |error: io::Error| refused(format!("the request cannot be read: {error}"));
        let message = match receive(channel, Instant::now() + PATIENCE) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Outcome::Left),
            received => received.map_err(odd)?,
        };
        // The reply fits into the socket's buffer, so sending it does not wait for the client.
        channel.set_patience(PATIENCE).map_err(odd)?;
        let caller = caller(channel, peer)?;
        match message.kind {
            MessageKind::MountHeld | MessageKind::MountForProcess | MessageKind::MountKept => {
                self.mount(&caller, message)
            }
            MessageKind::Detached => self.detached(&caller, &message.text),
            MessageKind::Layer => self.layer(&caller, &message.text),
            MessageKind::Unmount => self.unmount(&caller, message.passed),
            MessageKind::Next => self.next(&caller, &message.text),
            MessageKind::Done | MessageKind::Refused | MessageKind::Nothing => {
                Err(refused("the message is not a request".to_owned()))
            }
        }
    }

    fn mount(&self, caller: &Caller, message: Message) -> Result<Outcome, MountError> {
        let mut passed = message.passed.into_iter();
        let place = passed.next().ok_or_else(|| refused("the request has no directory".to_owned()))?;
        let target = name_of(&place)?;
        let is_shared = is_everybodys(caller)?;
        self.policy.allows(caller.peer.user, place.as_fd(), &target, is_shared)?;
        let (lease, process) = match (message.kind, passed.next()) {
            (MessageKind::MountHeld, _) => (Lease::Held, None),
            (MessageKind::MountForProcess, Some(process)) => (lease_of(&process)?, Some(process)),
            (MessageKind::MountKept, _) if is_shared => (Lease::Kept, None),
            (MessageKind::MountKept, _) => {
                let why = "is in the job's own namespace, where nothing would unmount it: say for which process it is";
                return Err(refused(format!("{}: {why}", target.display())));
            }
            _ => return Err(refused("the request has no process".to_owned())),
        };
        let (supplied, shared, owners, _making) = self.supplied(caller, &message.text, own(caller))?;
        let inside = Inside { namespace: caller.namespace.as_fd(), name: &caller.name, place: place.as_fd() };
        let asked = ask(&message.text, caller, &supplied, &shared, &owners);
        let stay = self.places.mount(&Ask { target: &target, lease, inside: Some(inside), ..asked })?;
        let id = stay.id();
        if lease == Lease::Held {
            return Ok(Outcome::Held(stay, shared, None));
        }
        stay.leave();
        self.used.lock().insert(id.clone(), shared);
        Ok(match process {
            Some(process) => Outcome::ForProcess(id, process),
            None => Outcome::Said(id),
        })
    }

    fn detached(&self, caller: &Caller, name: &str) -> Result<Outcome, MountError> {
        let (supplied, shared, owners, _making) = self.supplied(caller, name, own(caller))?;
        let (mount, stay) = self.places.detached(&ask(name, caller, &supplied, &shared, &owners))?;
        Ok(Outcome::Held(stay, shared, Some(descriptor_of(&mount)?)))
    }

    fn layer(&self, caller: &Caller, text: &str) -> Result<Outcome, MountError> {
        if caller.peer.user != 0 {
            return Err(refused("only root gets a mount of an image that others are to use".to_owned()));
        }
        let mut words = text.splitn(3, ' ');
        let mut number = || words.next().and_then(|word| word.parse().ok());
        let (user, group) = (number(), number());
        let (Some(user), Some(group), Some(name)) = (user, group, words.next()) else {
            return Err(refused("the request has no user, group and name".to_owned()));
        };
        let (supplied, shared, owners, _making) = self.supplied(caller, name, (user, group))?;
        let asked = ask(name, caller, &supplied, &shared, &owners);
        let (mount, stay) = self.places.detached(&Ask { writable: false, ..asked })?;
        Ok(Outcome::Layer(stay, shared, descriptor_of(&mount)?))
    }

    fn unmount(&self, caller: &Caller, passed: Vec<OwnedFd>) -> Result<Outcome, MountError> {
        let nothing = || MountError::NotMounted(PathBuf::new());
        let number = passed.first().and_then(|root| larder_sys::mount_number(root).ok()).ok_or_else(nothing)?;
        let id = self.places.id_of_number(caller.peer.user, number)?.ok_or_else(nothing)?;
        self.places.end(&id)?;
        self.used.lock().remove(&id);
        Ok(Outcome::Said(id))
    }

    /// Describes the next mount of this user: the first one whose identifier is greater than
    /// `last`.
    fn next(&self, caller: &Caller, last: &str) -> Result<Outcome, MountError> {
        let its = |mount: &Listed| mount.mounted && *mount.id > *last;
        let next = self.places.list_of(caller.peer.user)?.into_iter().filter(its).min_by(|a, b| a.id.cmp(&b.id));
        let Listed { id, name, target, .. } = next.ok_or_else(|| MountError::NotMounted(PathBuf::new()))?;
        Ok(Outcome::Said(format!("{id}\n{name}\n{}", target.display())))
    }

    /// Returns the image of that name, mounted for all jobs, and a map of its owners to the user and
    /// group `owner`.
    fn supplied(
        &self,
        caller: &Caller,
        name: &str,
        owner: (u32, u32),
    ) -> Result<(Supplied, Arc<Shared>, Owners, Making), MountError> {
        let user = caller.peer.user;
        // Mounts without a record are counted by `seats`. For a moment a mount may be counted
        // twice.
        let (making, others) = self.seats.make(user);
        self.policy.has_room(user, self.places.count_of(user)? + others)?;
        let supplied = self.supply.image(user, name).map_err(refused)?;
        let owners = Owners::one(supplied.stored, owner);
        let shared = self.host.shared(&supplied, name, &owners)?;
        Ok((supplied, shared, owners, making))
    }

    /// Takes over the mounts of an earlier broker: data of lazy mounts needs a process that fetches
    /// it.
    fn resume(self: &Arc<Broker>) -> Result<(), MountError> {
        for mount in self.places.list_lasting()?.into_iter().filter(|mount| mount.mounted) {
            if mount.via == Backend::Lazy {
                let supplied = self.supply.again(mount.user, &mount.name, &mount.image).map_err(refused);
                let same = |supplied: Supplied| match supplied.image.first_file() == mount.image {
                    // Only layers that all jobs share are taken over. So the owners do not matter.
                    true => self.host.shared(&supplied, &mount.name, &Owners::default()),
                    false => Err(refused("another image has its key now".to_owned())),
                };
                match supplied.and_then(same) {
                    Ok(shared) => drop(self.used.lock().insert(mount.id.clone(), shared)),
                    Err(error) => {
                        (self.says)(&format!("{}: its data can no longer be fetched: {error}", mount.target.display()))
                    }
                }
            }
            let Lease::Process(pid, _) = mount.lease else { continue };
            let its = Arc::clone(self);
            // If the process ended before, the next sweep removes the mount.
            if let Ok(process) = larder_sys::open_process(pid) {
                let waiting = move || {
                    wait_for_end(process.as_fd());
                    its.end(&mount.id);
                };
                let started = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(waiting);
                started.map_err(|error| refused(format!("no thread for a mount can be started: {error}")))?;
            }
        }
        Ok(())
    }

    fn end(&self, id: &str) {
        match self.places.end(id) {
            Ok(()) | Err(MountError::NotMounted(_)) => {}
            Err(error) => (self.says)(&error.to_string()),
        }
        self.used.lock().remove(id);
    }

    /// Removes what ended jobs have left, each mount by a thread of its own. A thread may hang
    /// if a file system in the job's mount namespace does not answer; that delays no other mount.
    /// An error with one mount does not stop the others.
    fn sweep(self: &Arc<Broker>) {
        let (ids, mut errors) = match self.places.ids() {
            Ok(found) => found,
            Err(error) => return (self.says)(&error.to_string()),
        };
        for id in &ids {
            if !self.swept.lock().insert(id.clone()) {
                continue;
            }
            let (its, own) = (Arc::clone(self), id.clone());
            let (tell, told) = mpsc::channel();
            let end = move || {
                let ended = its.places.end_if_stale(&own);
                its.swept.lock().remove(&own);
                let _ = tell.send(ended.map(drop));
            };
            if let Err(error) = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(end) {
                self.swept.lock().remove(id);
                errors.push(refused(format!("{id}: no thread to clean up can be started: {error}")));
                continue;
            }
            match told.recv_timeout(END_PATIENCE) {
                Ok(Ok(()) | Err(MountError::NotMounted(_))) => {}
                Ok(Err(error)) => errors.push(error),
                Err(_) => {
                    let seconds = END_PATIENCE.as_secs();
                    errors.push(refused(format!(
                        "{id}: not unmounted after {seconds} s; that goes on in the background"
                    )));
                }
            }
        }
        MountError::all(errors).iter().for_each(|error| (self.says)(&format!("sweep: {error}")));
        if let Ok((ids, _)) = self.places.ids() {
            self.used.lock().retain(|used, _| ids.contains(used));
        }
    }
}

fn own(caller: &Caller) -> (u32, u32) {
    (caller.peer.user, caller.peer.group)
}

fn descriptor_of(mount: &Mount) -> Result<OwnedFd, MountError> {
    let passed = mount.descriptor().try_clone_to_owned();
    passed.map_err(|error| refused(format!("the descriptor of a mount cannot be copied: {error}")))
}

/// Waits for the client of a layer. Returns true if it released the mount, and false if it ended.
fn is_released(channel: &Channel) -> bool {
    wait_for_end(channel.descriptor());
    let mut byte = [0];
    matches!(channel.receive(&mut byte, &mut Vec::new(), 0), Ok(1)) && byte == [RELEASE]
}

/// The part of a mount request that does not depend on where the mount is attached.
fn ask<'a>(name: &'a str, caller: &Caller, supplied: &'a Supplied, shared: &'a Shared, owners: &'a Owners) -> Ask<'a> {
    Ask {
        name,
        user: caller.peer.user,
        image: &supplied.image,
        target: Path::new("/"),
        layer: Some(&shared.layer),
        via: supplied.via,
        writable: true,
        owners: (!shared.is_owned).then_some(owners),
        lease: Lease::Held,
        life: Life::AsMount,
        over: false,
        inside: None,
    }
}

/// Finds the process at the other end of the connection, and its mount namespace.
fn caller(channel: &Channel, peer: Peer) -> Result<Caller, MountError> {
    let gone = |error| refused(format!("the process that connected cannot be found: {error}"));
    let process = larder_sys::peer_process(channel).or_else(|_| by_number(peer)).map_err(gone)?;
    let (namespace, name) = larder_sys::mounts_of(process).map_err(gone)?;
    Ok(Caller { peer, namespace, name })
}

/// Before Linux 6.5, opens the process that has the process ID now. It must belong to the same
/// user.
fn by_number(peer: Peer) -> io::Result<OwnedFd> {
    let number = u32::try_from(peer.pid).map_err(|_| io::ErrorKind::NotFound)?;
    let process = larder_sys::open_process(number)?;
    match fs::metadata(format!("/proc/{number}"))?.uid() == peer.user {
        true => Ok(process),
        false => Err(io::Error::from(io::ErrorKind::PermissionDenied)),
    }
}

fn lease_of(process: &OwnedFd) -> Result<Lease, MountError> {
    let number = larder_sys::process_number(process);
    let number = number.map_err(|error| refused(format!("what was passed is not a running process: {error}")))?;
    Lease::of_process(number).ok_or_else(|| refused(format!("process {number} has ended")))
}

/// Returns true if the caller is in a mount namespace that all processes see: the broker's own, or
/// that of process 1. The two differ if a service manager started the broker in a namespace of its
/// own.
fn is_everybodys(caller: &Caller) -> Result<bool, MountError> {
    let name_of = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt"));
    let unknown = |error| refused(format!("the mount namespace cannot be identified: {error}"));
    if name_of("self").map_err(unknown)?.to_string_lossy() == caller.name {
        return Ok(true);
    }
    match name_of("1") {
        Ok(first) => Ok(first.to_string_lossy() == caller.name),
        // If process 1 may not be inspected, only a namespace of another user namespace counts as
        // the job's own, because it was made without privileges.
        Err(_) => larder_sys::is_of_other_users(caller.namespace.as_fd()).map(|other| !other).map_err(unknown),
    }
}

fn is_closed(pipe: BorrowedFd) -> bool {
    let mut asked = [PollFd::from_borrowed_fd(pipe, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut asked, Some(&at_once)).is_ok() && !asked[0].revents().is_empty()
}

/// Waits until a process has ended or a connection is closed. A client that sends anything after
/// its request ends the wait, too.
fn wait_for_end(of: BorrowedFd) {
    loop {
        let mut asked = [PollFd::from_borrowed_fd(of, PollFlags::IN)];
        match poll(&mut asked, None) {
            Err(rustix::io::Errno::INTR) => {}
            _ => return,
        }
    }
}
