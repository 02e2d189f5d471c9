//! The order in which gcc writes strings that it keeps in a hash table: that of the table's slots.
//!
//! gcc: `hash-table.h` (double hashing in a table of prime size) and `htab_hash_string` of libiberty. The table of
//! `.debug_line_str` begins with room for ten, and never has more than the name and the directory of the unit.
//!
//! Unaware of: where the strings come from.

/// The size of a table that was made for ten, until a tenth comes.
const SLOTS: usize = 13;
/// So many it holds without growing.
const STRINGS_MAX: usize = 9;

/// The positions in `strings`, which are all different and in the order in which they were inserted, as they stand in
/// the table's slots.
pub(super) fn of_slots(strings: &[&[u8]]) -> Option<Vec<usize>> {
    if strings.len() > STRINGS_MAX {
        return None;
    }
    let mut slots = [None; SLOTS];
    for (index, string) in strings.iter().enumerate() {
        let hash = usize::try_from(hash(string)).ok()?;
        let step = 1 + hash % (SLOTS - 2);
        // A prime number of slots, so every step comes past all of them.
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

    /// As gcc 12.2 wrote them.
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
