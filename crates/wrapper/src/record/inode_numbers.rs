//! Looks for inode numbers of inputs in what a run left. clang makes names of a device and inode
//! number in hexadecimal:
//!
//! - `__omp_offloading_fe00_6a41bc_f_l3` for the code of `#pragma omp target`, on the host as well,
//! - `_ZL1v.static.6a41bcfe00_…` or `_ZL1v__static__6a41bcfe00_…` for a static variable of CUDA or
//!   HIP, if no identifier of the compile is given.
//!
//! An equal file with another inode number then gives another result.
//!
//! Unaware of: which program made a name.

use std::collections::BTreeSet;

use larder_model::{Change, Looked, Seen, Times};
use larder_portability::SEARCHED_BYTES_MAX;
use larder_spawn::Written;
use memchr::memmem;

/// Makes the status of each input an observation whose device and inode number are in an output or a
/// message.
pub(super) fn note_inode_numbers(seen: &mut Seen, written: &Written) {
    let identities = seen.looked.iter().filter_map(|(_, looked)| hexadecimal(looked));
    let inputs: Vec<(String, String)> = identities.collect();
    let devices: BTreeSet<&str> = inputs.iter().map(|(device, _)| device.as_str()).collect();
    let inodes: BTreeSet<&str> = inputs.iter().map(|(_, inode)| inode.as_str()).collect();
    let mut shown = BTreeSet::new();
    let mut search = |text: &[u8]| {
        for device in &devices {
            shown.extend(beside(text, device).into_iter().filter(|inode| inodes.contains(inode.as_str())));
        }
    };
    for (path, _) in seen.changed.iter().filter(|(_, change)| matches!(change, Change::File { .. })) {
        if let Ok(Some(text)) = larder_sys::read_at_most(path, SEARCHED_BYTES_MAX) {
            search(&text);
        }
    }
    match written {
        Written::Apart { stdout, stderr } => [stdout, stderr].into_iter().for_each(|text| search(text)),
        Written::Together(text) => search(text),
    }
    if shown.is_empty() {
        return;
    }
    for (_, looked) in &mut seen.looked {
        if hexadecimal(looked).is_some_and(|(_, inode)| shown.contains(&inode)) {
            looked.times = looked.times.max(Times::Status);
        }
    }
}

/// Returns device and inode number of a file that was read, as clang writes them: the lower 32 bits.
fn hexadecimal(looked: &Looked) -> Option<(String, String)> {
    let identity = looked.identity.filter(|_| looked.content)?;
    let (major, minor) = (identity.device >> 32, identity.device & 0xffff_ffff);
    // The C library's `dev_t`.
    let device = (minor & 0xff) | (major & 0xfff) << 8 | (minor & !0xff) << 12;
    Some((format!("{:x}", device as u32), format!("{:x}", identity.inode as u32)))
}

/// Returns the numbers that stand beside this device number, as in one of the names above.
fn beside(text: &[u8], device: &str) -> Vec<String> {
    const DIGITS_MAX: usize = 8;
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let as_text = |digits: &[u8]| String::from_utf8_lossy(digits).into_owned();
    let mut found = Vec::new();
    for at in memmem::find_iter(text, device) {
        let (before, after) = (&text[..at], &text[at + device.len()..]);
        if let (Some(b'_'), Some(after)) = (before.last(), after.strip_prefix(b"_")) {
            let length = after.iter().take(DIGITS_MAX + 1).take_while(|byte| is_digit(byte)).count();
            if after.get(length) == Some(&b'_') {
                found.push(as_text(&after[..length]));
            }
        }
        // The numbers are not separated, so the first may begin anywhere within the digits.
        let length = before.iter().rev().take(DIGITS_MAX).take_while(|byte| is_digit(byte)).count();
        if after.first().is_none_or(|byte| !is_digit(byte)) && length > 0 {
            let digits = &before[before.len() - length..];
            if matches!(before[..before.len() - length].last(), Some(b'_' | b'.')) {
                found.push(as_text(digits));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beside_a_device() {
        let check = |text: &str, expect: &[&str]| assert_eq!(beside(text.as_bytes(), "fe00"), expect, "{text}");
        check("\0__omp_offloading_fe00_6a41bc_f_l3\0", &["6a41bc"]);
        check("_ZL1v.static.6a41bcfe00_059a4aa7", &["6a41bc"]);
        check("_ZL1v__static__6a41bcfe00", &["6a41bc"]);
        check("_fe00_6a41bc_ _fe00_9_ .9fe00", &["6a41bc", "9", "9"]);
        check("fe00_6a41bc_", &[]);
        check("_fe00_6a41bc", &[]);
        check("_fe00_6a41bcx", &[]);
        check("_fe00_123456789_", &[]);
        check(".6a41bcfe001", &[]);
        check("x6a41bcfe00", &[]);
        check(".fe00", &[]);
    }
}
