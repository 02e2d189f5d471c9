//! The places for work that may take minutes: downloads for wrappers, and waits for uploads.
//!
//! A client can hold such a connection as long as it likes. So these connections do not take all
//! places of larderd, and no sandbox takes all of theirs. A sandbox is recognised by its mount
//! namespace: a process in the same one as larderd can write to the store, and could just as well
//! end larderd.
//!
//! Unaware of: what is done in a place.

use std::collections::HashMap;

use larder_sys::Channel;
use parking_lot::Mutex;

/// The largest number of connections that may take minutes.
const ALL_MAX: usize = 96;
/// The largest number of them from other mount namespaces than that of larderd.
const OTHERS_MAX: usize = 64;
/// The largest number of them from one other mount namespace.
const ONE_OTHER_MAX: usize = 32;

/// The places that are taken, for each mount namespace. `None` is that of larderd.
#[derive(Default)]
pub(super) struct Places(Mutex<HashMap<Option<Client>, usize>>);

/// A mount namespace by the kernel's name, or an empty text if it cannot be read.
type Client = String;

/// A place that is taken until this is dropped.
pub(super) struct Slot<'a> {
    places: &'a Places,
    of: Option<Client>,
}

impl Places {
    /// Takes a place for the client of this connection. Returns `None` if it has too many.
    pub(super) fn take(&self, channel: &Channel) -> Option<Slot<'_>> {
        self.take_for(client(channel))
    }

    fn take_for(&self, of: Option<Client>) -> Option<Slot<'_>> {
        let mut taken = self.0.lock();
        let all: usize = taken.values().sum();
        let others = all - taken.get(&None).copied().unwrap_or_default();
        let own = taken.get(&of).copied().unwrap_or_default();
        if all >= ALL_MAX || of.is_some() && (others >= OTHERS_MAX || own >= ONE_OTHER_MAX) {
            return None;
        }
        taken.insert(of.clone(), own + 1);
        Some(Slot { places: self, of })
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut taken = self.places.0.lock();
        if let Some(own) = taken.get_mut(&self.of) {
            *own -= 1;
        }
        taken.retain(|_, own| *own > 0);
    }
}

/// Returns the mount namespace of the process that connected, or `None` if it is that of larderd.
fn client(channel: &Channel) -> Option<Client> {
    let own = std::fs::read_link("/proc/self/ns/mnt").ok()?.to_string_lossy().into_owned();
    // Before Linux 6.5 the process is found by its number.
    let process = larder_sys::peer_process(channel);
    let process = process.or_else(|_| larder_sys::open_process(channel.peer()?.pid.try_into().unwrap_or_default()));
    let theirs = process.and_then(larder_sys::mounts_of).map(|(_, name)| name);
    Some(theirs.unwrap_or_default()).filter(|theirs| *theirs != own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken<'a>(places: &'a Places, of: Option<&str>) -> Vec<Slot<'a>> {
        std::iter::from_fn(|| places.take_for(of.map(str::to_owned))).collect()
    }

    #[test]
    fn no_sandbox_takes_the_places_of_others() {
        let places = Places::default();
        let one = taken(&places, Some("mnt:[1]"));
        assert_eq!(one.len(), ONE_OTHER_MAX);
        let more: Vec<_> = (2..9).flat_map(|number| taken(&places, Some(&format!("mnt:[{number}]")))).collect();
        assert_eq!(one.len() + more.len(), OTHERS_MAX);
        let own = taken(&places, None);
        assert_eq!(own.len(), ALL_MAX - OTHERS_MAX);
        drop(one);
        assert_eq!(taken(&places, Some("mnt:[9]")).len(), ONE_OTHER_MAX);
        drop((more, own));
        assert!(places.0.lock().is_empty());
        assert_eq!(taken(&places, None).len(), ALL_MAX);
    }
}
