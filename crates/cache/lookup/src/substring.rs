//! Searches short texts for a word.
//!
//! Unaware of: what is searched for.

/// Returns the positions at which `word` occurs in `text`.
///
/// We do not use `memchr` here because it first executes `cpuid`. In a virtual machine each `cpuid`
/// traps to the hypervisor: 60 µs, which is more than searching all texts of a hit takes.
pub(crate) fn places_of<'t>(text: &'t [u8], word: &'t [u8]) -> impl Iterator<Item = usize> + 't {
    let first = word.first();
    let begins = move |at: &usize| Some(&text[*at]) == first && text[*at..].starts_with(word);
    (0..text.len()).filter(begins)
}
