//! The broker: one request from one connection, by a thread of its own. Nothing that comes is believed.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use larder_sys::{Channel, Door, Peer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::host::{Host, Programs, Shared};
use super::message::{Kind, Message, encode, receive};
use super::policy::{name_of, refused};
use super::seats::{Lines, Making, Seat, Seats};
use super::{Policy, Supplied, Supply};
use crate::{Ask, Inside, Lease, Listed, MountError, Owners, Places, Rung, Stay};

/// A connection says all that it has to say in this time, however it does that.
const PATIENCE: Duration = Duration::from_secs(5);
/// To tell somebody that they are not served, there is no waiting.
const NO_PATIENCE: Duration = Duration::from_millis(1);
/// Taking one mount away is waited for so long before the next one is.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// How often is looked for what is left of jobs that are gone.
const SWEEP_EVERY: Duration = Duration::from_secs(30);
/// How often is looked at the least whether to end.
const WAIT: Duration = Duration::from_secs(30);
/// Of the thread of each.
const STACK_BYTES: usize = 256 << 10;

/// What serves jobs.
pub struct Broker {
    places: Places,
    host: Host,
    supply: Box<dyn Supply>,
    policy: Policy,
    /// The images of mounts that stay, by the mount's name.
    used: Mutex<HashMap<String, Arc<Shared>>>,
    /// The names of mounts that are looked at, or taken away, by the sweep.
    swept: Mutex<HashSet<String>>,
    seats: Arc<Seats>,
    lines: Lines,
    says: Box<dyn Fn(&str) + Send + Sync>,
}

/// Who asks, and which mounts they see.
struct Caller {
    peer: Peer,
    namespace: OwnedFd,
    name: String,
}

/// What a request came to.
enum Outcome {
    /// Said, and over.
    Said(String),
    /// Said, and to be taken away with the connection.
    Held(Stay, Arc<Shared>, Option<OwnedFd>),
    /// Said, and to be taken away with that process.
    ForProcess(String, OwnedFd),
    /// Nothing was asked: somebody looked whether we listen.
    Left,
}

impl Broker {
    /// With its state in `state`: images of jobs that live are mounted and filled again. What is left there of jobs that
    /// are gone is taken away by `serve`. `says` is told of what goes wrong.
    ///
    /// # Errors
    ///
    /// Where its state cannot be kept there.
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

    /// Serve who connects, until the other end of the pipe `woken` is closed. What was mounted for connections that are
    /// open then goes with the process.
    pub fn serve(self: &Arc<Broker>, door: &Door, woken: BorrowedFd) {
        // Nothing that depends on a job happens on this thread: a job may have the kernel wait for it.
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
            (self.says)(&format!("what is left of jobs is not taken away, because there is no thread for it: {error}"));
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
                    self.say_of_client(&format!("nobody can be let in: {error}"));
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }

    /// Whether somebody is connected: to ask for something, or for what is held as long as that.
    pub fn is_asked(&self) -> bool {
        self.seats.connections() > 0
    }

    /// What a client can have said as often as it likes.
    fn say_of_client(&self, line: &str) {
        self.lines.of(line, Instant::now()).iter().for_each(|line| (self.says)(line));
    }

    /// Who connected is known at once, before anything that they say is read or waited for.
    fn attend_apart(self: &Arc<Broker>, channel: Channel) {
        let (peer, seat) = match self.admitted(&channel) {
            Ok(admitted) => admitted,
            Err(error) => {
                self.say_of_client(&format!("refused: {error}"));
                let reply = encode(Kind::Refused, &error.to_string());
                return drop(channel.set_patience(NO_PATIENCE).and_then(|()| channel.send(&reply, &[])));
            }
        };
        let its = Arc::clone(self);
        let attend = move || its.attend(&channel, peer, seat);
        if let Err(error) = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(attend) {
            self.say_of_client(&format!("no thread for a connection: {error}"));
        }
    }

    fn admitted(&self, channel: &Channel) -> Result<(Peer, Seat), MountError> {
        let peer = channel.peer().map_err(|error| refused(format!("who asks cannot be told: {error}")))?;
        self.policy.admits(peer.user)?;
        self.policy.has_turn(peer.user, self.seats.asking(peer.user))?;
        let seat = self.seats.take(peer.user);
        seat.map(|seat| (peer, seat)).ok_or_else(|| refused("too many connections at once: ask again later".to_owned()))
    }

    /// Serve one connection, and hold what it asked to be held.
    fn attend(&self, channel: &Channel, peer: Peer, mut seat: Seat) {
        let outcome = match self.answer(channel, peer) {
            Ok(outcome) => outcome,
            Err(error) => {
                let is_nothing = matches!(error, MountError::NotMounted(_));
                if !is_nothing {
                    self.say_of_client(&format!("refused: {error}"));
                }
                let kind = if is_nothing { Kind::Nothing } else { Kind::Refused };
                let _ = channel.send(&encode(kind, &error.to_string()), &[]);
                return;
            }
        };
        match outcome {
            Outcome::Said(id) => drop(channel.send(&encode(Kind::Done, &id), &[])),
            Outcome::Held(stay, _image, mount) => {
                let passed: Vec<BorrowedFd> = mount.iter().map(AsFd::as_fd).collect();
                let sent = channel.send(&encode(Kind::Done, &stay.id()), &passed);
                drop(mount);
                seat.answered();
                if sent.is_ok() {
                    wait_for_end(channel.descriptor());
                }
                // Whoever unmounted it before it was to go left nothing to do.
                drop(stay);
            }
            Outcome::ForProcess(id, process) => {
                let _ = channel.send(&encode(Kind::Done, &id), &[]);
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
        // The reply is short, and nobody has to be waited for.
        channel.set_patience(PATIENCE).map_err(odd)?;
        let caller = caller(channel, peer)?;
        match message.kind {
            Kind::MountHeld | Kind::MountForProcess | Kind::MountKept => self.mount(&caller, message),
            Kind::Detached => self.detached(&caller, &message.text),
            Kind::Unmount => self.unmount(&caller, message.passed),
            Kind::Next => self.next(&caller, &message.text),
            Kind::Done | Kind::Refused | Kind::Nothing => Err(refused("that is no request".to_owned())),
        }
    }

    fn mount(&self, caller: &Caller, message: Message) -> Result<Outcome, MountError> {
        let mut passed = message.passed.into_iter();
        let place = passed.next().ok_or_else(|| refused("no directory came with the request".to_owned()))?;
        let target = name_of(&place)?;
        let is_shared = is_everybodys(caller)?;
        self.policy.allows(caller.peer.user, place.as_fd(), &target, is_shared)?;
        let (lease, process) = match (message.kind, passed.next()) {
            (Kind::MountHeld, _) => (Lease::Held, None),
            (Kind::MountForProcess, Some(process)) => (lease_of(&process)?, Some(process)),
            (Kind::MountKept, _) if is_shared => (Lease::Kept, None),
            (Kind::MountKept, _) => {
                let why = "is among mounts of the job's own, which nobody would take away: say for which process it is";
                return Err(refused(format!("{}: {why}", target.display())));
            }
            _ => return Err(refused("no process came with the request".to_owned())),
        };
        let (supplied, shared, owners, _making) = self.supplied(caller, &message.text)?;
        let inside = Inside { namespace: caller.namespace.as_fd(), name: &caller.name, place: place.as_fd() };
        let asked = ask(&message.text, caller, &supplied, &shared, &owners);
        let stay = self.places.mount(&Ask { target: &target, lease, inside: Some(inside), ..asked })?;
        let id = stay.id();
        if lease == Lease::Held {
            return Ok(Outcome::Held(stay, shared, None));
        }
        stay.leave();
        self.used().insert(id.clone(), shared);
        Ok(match process {
            Some(process) => Outcome::ForProcess(id, process),
            None => Outcome::Said(id),
        })
    }

    fn detached(&self, caller: &Caller, name: &str) -> Result<Outcome, MountError> {
        let (supplied, shared, owners, _making) = self.supplied(caller, name)?;
        let (mount, stay) = self.places.detached(&ask(name, caller, &supplied, &shared, &owners))?;
        let passed = mount.descriptor().try_clone_to_owned();
        let passed = passed.map_err(|error| refused(format!("no descriptor for a mount: {error}")))?;
        Ok(Outcome::Held(stay, shared, Some(passed)))
    }

    fn unmount(&self, caller: &Caller, passed: Vec<OwnedFd>) -> Result<Outcome, MountError> {
        let nothing = || MountError::NotMounted(PathBuf::new());
        let number = passed.first().and_then(|root| larder_sys::mount_number(root).ok()).ok_or_else(nothing)?;
        let id = self.places.id_of_number(caller.peer.user, number)?.ok_or_else(nothing)?;
        self.places.end(&id)?;
        self.used().remove(&id);
        Ok(Outcome::Said(id))
    }

    /// Of what is mounted for the user, the next after that of the name `last`.
    fn next(&self, caller: &Caller, last: &str) -> Result<Outcome, MountError> {
        let its = |mount: &Listed| mount.mounted && *mount.id > *last;
        let next = self.places.list_of(caller.peer.user)?.into_iter().filter(its).min_by(|a, b| a.id.cmp(&b.id));
        let Listed { id, name, target, .. } = next.ok_or_else(|| MountError::NotMounted(PathBuf::new()))?;
        Ok(Outcome::Said(format!("{id}\n{name}\n{}", target.display())))
    }

    /// The image of that name, mounted for all, and the owners that the caller is to see.
    fn supplied(&self, caller: &Caller, name: &str) -> Result<(Supplied, Arc<Shared>, Owners, Making), MountError> {
        let user = caller.peer.user;
        // Others that are being made are counted here until they are noted, and for a moment twice.
        let (making, others) = self.seats.make(user);
        self.policy.has_room(user, self.places.count_of(user)? + others)?;
        let supplied = self.supply.image(user, name).map_err(refused)?;
        let owners = Owners::one(supplied.stored, (caller.peer.user, caller.peer.group));
        let shared = self.host.shared(&supplied, name, &owners)?;
        Ok((supplied, shared, owners, making))
    }

    /// Go on with images that were mounted by a broker before this one: lazily filled data needs somebody who fills it.
    fn resume(self: &Arc<Broker>) -> Result<(), MountError> {
        for mount in self.places.list_lasting()?.into_iter().filter(|mount| mount.mounted) {
            if mount.via == Rung::Lazy {
                let supplied = self.supply.again(mount.user, &mount.name, &mount.image).map_err(refused);
                let same = |supplied: Supplied| match supplied.image.first_file() == mount.image {
                    // Only layers that all jobs share are gone on with.
                    true => self.host.shared(&supplied, &mount.name, &Owners::default()),
                    false => Err(refused("another image has its key by now".to_owned())),
                };
                match supplied.and_then(same) {
                    Ok(shared) => drop(self.used().insert(mount.id.clone(), shared)),
                    Err(error) => {
                        (self.says)(&format!("{}: cannot be filled any more: {error}", mount.target.display()))
                    }
                }
            }
            let Lease::Process(pid, _) = mount.lease else { continue };
            let its = Arc::clone(self);
            // The next sweep finds those who end before that.
            if let Ok(process) = larder_sys::open_process(pid) {
                let waiting = move || {
                    wait_for_end(process.as_fd());
                    its.end(&mount.id);
                };
                let started = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(waiting);
                started.map_err(|error| refused(format!("no thread for a mount: {error}")))?;
            }
        }
        Ok(())
    }

    fn end(&self, id: &str) {
        match self.places.end(id) {
            Ok(()) | Err(MountError::NotMounted(_)) => {}
            Err(error) => (self.says)(&error.to_string()),
        }
        self.used().remove(id);
    }

    /// Take away what is left of jobs that are gone, each by a thread of its own: one that hangs, because what is among a
    /// job's mounts does not answer, keeps itself only. An error with one does not keep the others.
    fn sweep(self: &Arc<Broker>) {
        let (ids, mut errors) = match self.places.ids() {
            Ok(found) => found,
            Err(error) => return (self.says)(&error.to_string()),
        };
        for id in &ids {
            if !self.swept().insert(id.clone()) {
                continue;
            }
            let (its, own) = (Arc::clone(self), id.clone());
            let (tell, told) = mpsc::channel();
            let end = move || {
                let ended = its.places.end_if_stale(&own);
                its.swept().remove(&own);
                let _ = tell.send(ended.map(drop));
            };
            if let Err(error) = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(end) {
                self.swept().remove(id);
                errors.push(refused(format!("{id}: no thread to look for what is left of it: {error}")));
                continue;
            }
            match told.recv_timeout(END_PATIENCE) {
                Ok(Ok(()) | Err(MountError::NotMounted(_))) => {}
                Ok(Err(error)) => errors.push(error),
                Err(_) => {
                    let seconds = END_PATIENCE.as_secs();
                    errors.push(refused(format!(
                        "{id}: is not taken away after {seconds} s, and goes on in the background"
                    )));
                }
            }
        }
        MountError::all(errors).iter().for_each(|error| (self.says)(&format!("sweep: {error}")));
        if let Ok((ids, _)) = self.places.ids() {
            self.used().retain(|used, _| ids.contains(used));
        }
    }

    fn swept(&self) -> MutexGuard<'_, HashSet<String>> {
        self.swept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn used(&self) -> MutexGuard<'_, HashMap<String, Arc<Shared>>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is the same however it is placed.
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
        over: false,
        inside: None,
    }
}

/// Who is at the other end, and which mounts they see.
fn caller(channel: &Channel, peer: Peer) -> Result<Caller, MountError> {
    let gone = |error| refused(format!("whoever asks cannot be found: {error}"));
    let process = larder_sys::peer_process(channel).or_else(|_| by_number(peer)).map_err(gone)?;
    let (namespace, name) = larder_sys::mounts_of(process).map_err(gone)?;
    Ok(Caller { peer, namespace, name })
}

/// Before Linux 6.5: the process that has the number now, which must be of the same user.
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
    let number = number.map_err(|error| refused(format!("what was passed is no process that lives: {error}")))?;
    Lease::of_process(number).ok_or_else(|| refused(format!("process {number} has ended")))
}

/// Whether these are the mounts that everybody sees: ours, or the machine's, from which a service manager may have
/// given us others.
fn is_everybodys(caller: &Caller) -> Result<bool, MountError> {
    let name_of = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt"));
    let unknown = |error| refused(format!("whose mounts they are cannot be told: {error}"));
    if name_of("self").map_err(unknown)?.to_string_lossy() == caller.name {
        return Ok(true);
    }
    match name_of("1") {
        Ok(first) => Ok(first.to_string_lossy() == caller.name),
        // Where that may not be looked at, only what was made without rights is a job's own for sure.
        Err(_) => larder_sys::is_of_other_users(caller.namespace.as_fd()).map(|other| !other).map_err(unknown),
    }
}

fn is_closed(pipe: BorrowedFd) -> bool {
    let mut asked = [PollFd::from_borrowed_fd(pipe, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut asked, Some(&at_once)).is_ok() && !asked[0].revents().is_empty()
}

/// Wait until a process has ended, or a connection; what somebody says on it after its request ends it, too.
fn wait_for_end(of: BorrowedFd) {
    loop {
        let mut asked = [PollFd::from_borrowed_fd(of, PollFlags::IN)];
        match poll(&mut asked, None) {
            Err(rustix::io::Errno::INTR) => {}
            _ => return,
        }
    }
}
