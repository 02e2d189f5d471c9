//! The order in which gcc writes the strings of a hash table, which is the order of the slots.
//!
//! gcc uses `hash-table.h` (double hashing, with a prime number of slots) and `htab_hash_string` of
//! libiberty. The table of `.debug_line_str` is created for ten strings, and never contains more
//! than the name and the directory of the unit.
//!
//! Unaware of: where the strings come from.

/// The number of slots of a table that was created for ten strings. It grows with the tenth.
const SLOTS: usize = 13;
/// The number of strings that the table holds without growing.
const STRINGS_MAX: usize = 9;

/// Returns the indices of `strings` in the order of the slots. The strings must all differ and be
/// in the order of insertion. Returns `None` for more than nine.
pub(super) fn of_slots(strings: &[&[u8]]) -> Option<Vec<usize>> {
    if strings.len() > STRINGS_MAX {
        return None;
    }
    let mut slots = [None; SLOTS];
    for (index, string) in strings.iter().enumerate() {
        let hash = usize::try_from(hash(string)).ok()?;
        let step = 1 + hash % (SLOTS - 2);
        // The number of slots is prime, so each step width visits all slots.
        let mut at = hash % SLOTS;
        while slots.get(at)?.is_some() {
            at = (at + step) % SLOTS;
        }
        *slots.get_mut(at)? = Some(index);
    }
    Some(slots.into_iter().flatten().collect())
}

fn hash(string: &[u8]) -> u32 {
    string.iter().fold(0u32, |hash, &c| hash.wrapping_mul(67).wrapping_add(u32::from(c)).wrapping_sub(113))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order that gcc 12.2 wrote.
    #[test]
    fn as_gcc_has_them() {
        let check = |strings: &[&str], expect: &[&str]| {
            let bytes: Vec<&[u8]> = strings.iter().map(|string| string.as_bytes()).collect();
            let order = of_slots(&bytes).expect("few strings");
            assert_eq!(order.iter().map(|&at| strings[at]).collect::<Vec<_>>(), expect);
        };
        check(&["s.c", "/w"], &["/w", "s.c"]);
        check(&["s.c", "/w1"], &["s.c", "/w1"]);
        check(&["s.c", "/tmp/x/aa"], &["s.c", "/tmp/x/aa"]);
    }
}
