//! How much each user has under way at a broker, and how much is said of it: no user takes all of anything.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Connections at once, of all users; each mount that is held is one.
const AT_ONCE_MAX: usize = 4096;
/// What clients do is noted at most so often.
const SAY_EVERY: Duration = Duration::from_secs(1);

/// What is under way.
#[derive(Default)]
pub(super) struct Seats(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    connections: usize,
    /// Requests that are not answered yet, of each user who has any.
    asking: HashMap<u32, usize>,
    /// Mounts that are being made, and may not be noted yet, of each user who has any.
    mounting: HashMap<u32, usize>,
}

/// A connection, as long as it lasts.
pub(super) struct Seat {
    seats: Arc<Seats>,
    user: u32,
    is_asking: bool,
}

/// A mount that is being made, as long as that takes.
pub(super) struct Making {
    seats: Arc<Seats>,
    user: u32,
}

impl Seats {
    /// All connections.
    pub(super) fn connections(&self) -> usize {
        self.taken().connections
    }

    /// Requests of a user that are not answered yet.
    pub(super) fn asking(&self, user: u32) -> usize {
        self.taken().asking.get(&user).copied().unwrap_or(0)
    }

    /// A seat for a connection of this user, which asks for something; `None` if there are too many of all users.
    pub(super) fn take(self: &Arc<Seats>, user: u32) -> Option<Seat> {
        let mut taken = self.taken();
        if taken.connections >= AT_ONCE_MAX {
            return None;
        }
        taken.connections += 1;
        *taken.asking.entry(user).or_default() += 1;
        Some(Seat { seats: Arc::clone(self), user, is_asking: true })
    }

    /// Begin to make a mount. Says also how many others of the user are being made.
    pub(super) fn make(self: &Arc<Seats>, user: u32) -> (Making, usize) {
        let mut taken = self.taken();
        let others = taken.mounting.entry(user).or_default();
        *others += 1;
        (Making { seats: Arc::clone(self), user }, *others - 1)
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// The request was answered: what the connection holds from now on counts as a mount.
    pub(super) fn answered(&mut self) {
        if std::mem::take(&mut self.is_asking) {
            less(&mut self.seats.taken().asking, self.user);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.answered();
        self.seats.taken().connections -= 1;
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        less(&mut self.seats.taken().mounting, self.user);
    }
}

/// Lines that clients can provoke: one for each second, and how many were left out before it.
#[derive(Default)]
pub(super) struct Lines(Mutex<(Option<Instant>, u64)>);

impl Lines {
    /// What is to be written of this line now, if anything.
    pub(super) fn of(&self, line: &str, now: Instant) -> Option<String> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        assert!(seats.taken().asking.is_empty() && seats.taken().mounting.is_empty());
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
