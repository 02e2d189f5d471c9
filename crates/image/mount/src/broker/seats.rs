//! Counts the connections, requests and unfinished mounts of each user at a broker, and limits the
//! log lines that clients can cause. So no user can use up a resource of all users.
//!
//! Unaware of: what the requests are.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The limit for connections of all users together. Each mount that is held is one of them.
const AT_ONCE_MAX: usize = 4096;
/// At most one log line that a client caused is written in this time.
const SAY_EVERY: Duration = Duration::from_secs(1);

/// The counters of a broker.
#[derive(Default)]
pub(super) struct Seats(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    connections: usize,
    /// The number of unanswered requests of each user with any.
    asking: HashMap<u32, usize>,
    /// The number of mounts of each user that are being made, and may have no record yet.
    mounting: HashMap<u32, usize>,
}

/// A connection that is counted. It is no longer counted when this is dropped.
pub(super) struct Seat {
    seats: Arc<Seats>,
    user: u32,
    is_asking: bool,
}

/// A mount that is being made. It is no longer counted when this is dropped.
pub(super) struct Making {
    seats: Arc<Seats>,
    user: u32,
}

impl Seats {
    /// Returns the number of open connections.
    pub(super) fn connections(&self) -> usize {
        self.0.lock().connections
    }

    /// Returns the number of unanswered requests of a user.
    pub(super) fn asking(&self, user: u32) -> usize {
        self.0.lock().asking.get(&user).copied().unwrap_or(0)
    }

    /// Counts a connection of this user and its request. Returns `None` if all users together have
    /// too many connections.
    pub(super) fn take(self: &Arc<Seats>, user: u32) -> Option<Seat> {
        let mut taken = self.0.lock();
        if taken.connections >= AT_ONCE_MAX {
            return None;
        }
        taken.connections += 1;
        *taken.asking.entry(user).or_default() += 1;
        Some(Seat { seats: Arc::clone(self), user, is_asking: true })
    }

    /// Counts a mount that is being made. Returns also how many other mounts of the user are being
    /// made.
    pub(super) fn make(self: &Arc<Seats>, user: u32) -> (Making, usize) {
        let mut taken = self.0.lock();
        let others = taken.mounting.entry(user).or_default();
        *others += 1;
        (Making { seats: Arc::clone(self), user }, *others - 1)
    }
}

fn less(counts: &mut HashMap<u32, usize>, user: u32) {
    if let Some(count) = counts.get_mut(&user) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&user);
        }
    }
}

impl Seat {
    /// The request was answered, so it is no longer counted. What the connection holds is counted
    /// as a mount.
    pub(super) fn answered(&mut self) {
        if std::mem::take(&mut self.is_asking) {
            less(&mut self.seats.0.lock().asking, self.user);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.answered();
        self.seats.0.lock().connections -= 1;
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        less(&mut self.seats.0.lock().mounting, self.user);
    }
}

/// Log lines that clients can cause. At most one line a second is written, with the number of lines
/// that were left out before it.
#[derive(Default)]
pub(super) struct Lines(Mutex<(Option<Instant>, u64)>);

impl Lines {
    /// Returns the line to write now, or `None` if the line is left out.
    pub(super) fn of(&self, line: &str, now: Instant) -> Option<String> {
        let mut state = self.0.lock();
        let (last, left_out) = &mut *state;
        if last.is_some_and(|last| now.duration_since(last) < SAY_EVERY) {
            *left_out += 1;
            return None;
        }
        *last = Some(now);
        Some(match std::mem::take(left_out) {
            0 => line.to_owned(),
            more => format!("{line} (and {more} lines before this one)"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_is_counted() {
        let seats = Arc::new(Seats::default());
        let mut first = seats.take(7).expect("is free");
        let second = seats.take(7).expect("is free");
        let other = seats.take(8).expect("is free");
        assert_eq!((seats.asking(7), seats.asking(8), seats.asking(9), seats.connections()), (2, 1, 0, 3));
        first.answered();
        first.answered();
        assert_eq!((seats.asking(7), seats.connections()), (1, 3));
        drop((first, second));
        assert_eq!((seats.asking(7), seats.asking(8), seats.connections()), (0, 1, 1));
        let (making, others) = seats.make(7);
        assert_eq!((others, seats.make(7).1, seats.make(8).1), (0, 1, 0));
        drop(making);
        assert_eq!(seats.make(7).1, 0);
        let many: Vec<Seat> = std::iter::from_fn(|| seats.take(9)).collect();
        assert_eq!(many.len(), AT_ONCE_MAX - 1);
        drop((many, other));
        assert_eq!(seats.connections(), 0);
        assert!(seats.0.lock().asking.is_empty() && seats.0.lock().mounting.is_empty());
    }

    #[test]
    fn lines_come_once_a_second() {
        let (lines, begin) = (Lines::default(), Instant::now());
        let at = |ms| begin + Duration::from_millis(ms);
        assert_eq!(lines.of("a", at(0)).as_deref(), Some("a"));
        assert_eq!(lines.of("b", at(10)), None);
        assert_eq!(lines.of("c", at(999)), None);
        assert_eq!(lines.of("d", at(1000)).as_deref(), Some("d (and 2 lines before this one)"));
        assert_eq!(lines.of("e", at(2000)).as_deref(), Some("e"));
    }
}
