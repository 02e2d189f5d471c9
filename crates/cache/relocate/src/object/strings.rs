//! A section of strings that end in a zero byte.
//!
//! Unaware of: what refers to a string.

use std::borrow::Cow;

use crate::roots::Map;
use crate::text::replace;

/// The strings of a section with their old and new text.
#[derive(Debug, Default)]
pub(super) struct Strings<'a> {
    all: Vec<StringEntry<'a>>,
    /// The new order of the entries.
    order: Vec<usize>,
    is_changed: bool,
}

#[derive(Debug)]
struct StringEntry<'a> {
    offset: usize,
    here: &'a [u8],
    there: Cow<'a, [u8]>,
    offset_there: usize,
}

impl<'a> Strings<'a> {
    /// Splits a section into strings and replaces their roots. Returns `None` if the last string
    /// has no end, or if it is in doubt whether a string contains a root.
    pub(super) fn read(section: &'a [u8], map: &Map<'_>) -> Option<Strings<'a>> {
        let mut strings = Strings::default();
        let is_held = map.stands_in(section);
        let mut offset = 0;
        for whole in section.split_inclusive(|&c| c == 0) {
            let here = whole.strip_suffix(&[0])?;
            let mut there = Cow::Borrowed(here);
            if is_held {
                let replaced = replace(here, map)?;
                if replaced.bytes != here {
                    there = Cow::Owned(replaced.bytes);
                    strings.is_changed = true;
                }
            }
            strings.all.push(StringEntry { offset, here, there, offset_there: 0 });
            offset += whole.len();
        }
        strings.put((0..strings.all.len()).collect());
        Some(strings)
    }

    /// Returns true if any string changes.
    pub(super) fn is_changed(&self) -> bool {
        self.is_changed
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the old texts, in the old order.
    pub(super) fn here(&self) -> impl Iterator<Item = &'a [u8]> + Clone {
        self.all.iter().map(|entry| entry.here)
    }

    /// Returns the new texts, in the old order.
    pub(super) fn there(&self) -> impl Iterator<Item = &[u8]> {
        self.all.iter().map(|entry| entry.there.as_ref())
    }

    /// Returns the new texts of the strings that change.
    pub(super) fn changed(&self) -> impl Iterator<Item = &[u8]> {
        self.all.iter().filter(|entry| entry.here != entry.there.as_ref()).map(|entry| entry.there.as_ref())
    }

    /// Returns the index of the string that begins at this old offset.
    pub(super) fn at(&self, offset: u64) -> Option<usize> {
        let offset = usize::try_from(offset).ok()?;
        self.all.binary_search_by_key(&offset, |entry| entry.offset).ok()
    }

    /// Sets the new order, which must contain each index once.
    pub(super) fn put(&mut self, order: Vec<usize>) {
        let mut offset = 0;
        for &index in &order {
            if let Some(entry) = self.all.get_mut(index) {
                entry.offset_there = offset;
                offset += entry.there.len() + 1;
            }
        }
        self.order = order;
    }

    /// Returns the new offset of the string that begins at this old offset.
    pub(super) fn moved(&self, offset: u64) -> Option<u64> {
        if !self.is_changed {
            return Some(offset);
        }
        u64::try_from(self.all.get(self.at(offset)?)?.offset_there).ok()
    }

    /// Returns the new content of the section.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let entries = self.order.iter().filter_map(|&index| self.all.get(index));
        entries.flat_map(|entry| entry.there.iter().copied().chain(std::iter::once(0))).collect()
    }
}
