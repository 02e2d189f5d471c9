//! A trace: the operations on paths by all processes of one command, in order.
//!
//! Unaware of: what follows from an event.

use crate::encoding::decode;
use crate::event::Event;

/// All events of a command. A compile of some size has thousands, so the events of a log stay in
/// its bytes and are decoded during iteration.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Whole events in the form of `preload/log.h`, as the preloaded library wrote them, in order.
    pub log: Vec<u8>,
    /// Events that an observer made itself, in order. They follow those of `log`.
    pub events: Vec<Event<Vec<u8>>>,
    /// True if some events were lost.
    pub incomplete: bool,
}

impl Trace {
    /// Iterates over all events, in the order in which they happened.
    pub fn iter(&self) -> impl Iterator<Item = Event<&[u8]>> {
        decode(&self.log).chain(self.events.iter().map(Event::borrowed))
    }
}
