//! Symbolic links that existed before and decide whether a path leads to what the command itself
//! made under another path.
//!
//! Unaware of: what the command did with the file.

use larder_model::path::join;
use larder_model::quick::Set;
use larder_model::{Fact, Looked, Unrecorded};
use larder_sys::FileType;

use super::facts::{Directory, OwnedFact};
use super::{Done, SplitPath, Walk, refuse};
use crate::current::{NOT_A_DIRECTORY, stat_in};

impl Walk<'_> {
    /// Records each symbolic link on the way as a fact. The file at the end must have been made in
    /// this run, under the name at which it was found. Another hard link of the same file could
    /// lead elsewhere in the next run.
    pub(super) fn leads(&mut self, at: SplitPath<'_>, depth: usize) -> Done {
        let SplitPath { path, directory, name } = at;
        let entry = self.entry(directory);
        (entry.links_matter, entry.wanted, entry.identified) = (true, true, true);
        let is_link = stat_in(self.opened(directory), name, false).is_ok_and(|found| found.kind == FileType::Link);
        if is_link && !name.is_empty() {
            let Ok(target) = self.opened(directory).read_link(name) else {
                return refuse(Unrecorded::InputChanged, path);
            };
            self.fact(directory, name, OwnedFact::Link(self.witness.roots.encoded_path(&target)));
            let next = if target.first() == Some(&b'/') { target } else { join(directory, &target) };
            return self.path(&next, &Looked { leads: true, ..Looked::default() }, depth + 1);
        }
        if self.is_changed(directory, Some(name)) {
            return Ok(());
        }
        refuse(Unrecorded::UpdatesFile, path)
    }

    /// Records the target of a link that the command replaced or removed, and what was learned of the
    /// file behind it.
    pub(super) fn replaced_link(&mut self, at: SplitPath<'_>, looked: &Looked, target: &[u8], depth: usize) -> Done {
        let SplitPath { path, directory, name } = at;
        self.entry(directory).links_matter = true;
        self.fact(directory, name, OwnedFact::Link(self.witness.roots.encoded_path(target)));
        let next = if target.first() == Some(&b'/') { target.to_vec() } else { join(directory, target) };
        let end = SplitPath::of(&next);
        if self.is_changed(end.directory, Some(end.name)) {
            return refuse(Unrecorded::UpdatesFile, path);
        }
        let found = larder_sys::stat(&next);
        let mut beyond = Looked { target_before: None, ..looked.clone() };
        // The link could not be opened as a directory, because it leads to none or was not to be
        // followed. Its target and what is there say the same.
        let is_new_directory = found
            .as_ref()
            .is_ok_and(|found| found.kind == FileType::Directory && found.changed_ns >= self.witness.started_ns);
        let not_opened = (Fact::IS_DIRECTORY, NOT_A_DIRECTORY);
        beyond.failed = beyond.failed.filter(|failed| *failed != not_opened || is_new_directory);
        beyond.kind |= found.is_ok();
        beyond.absent |= found.is_err();
        self.path(&next, &beyond, depth + 1)
    }

    /// Records where links lead if the command changed a name and looked for an equal name by the
    /// path of another directory. Such a look finds what the command made if both are one directory.
    pub(super) fn links_to_changes(&mut self) {
        let mut looked_for: Set<Vec<u8>> = Set::default();
        for entry in self.set.directories.values_mut() {
            let names = entry.facts.keys().map(|(name, _)| name).chain(&entry.absent);
            let found = names.filter(|name| !name.is_empty() && self.made_names.contains(&name[..]));
            let found: Vec<Vec<u8>> = found.cloned().collect();
            if !found.is_empty() && entry.real.is_some() {
                (entry.links_matter, entry.wanted) = (true, true);
            }
            looked_for.extend(found);
        }
        for (changed, _) in self.names {
            let SplitPath { directory, name, .. } = SplitPath::of(changed);
            if looked_for.contains(name) && self.open(directory).is_ok() {
                self.links_matter(directory, false);
            }
        }
    }

    /// Removes the fact that a directory is there, without links in its path, if the command made it
    /// and the name was absent before. The command looked at it by another path in which it was not
    /// recognised. Then there must be no links in the path of the directory that it was made in.
    pub(super) fn links_above_what_was_made(&mut self) {
        let only_wanted = |directory: &Directory| {
            directory.wanted && directory.real.is_none() && directory.facts.is_empty() && directory.absent.is_empty()
        };
        let new = self.names.iter().filter(|(_, existed)| !existed).map(|(path, _)| self.encoded_directory(path).0);
        let found = new.filter(|path| self.set.directories.get(path).is_some_and(only_wanted));
        let made = found.filter_map(|path| Some((path.clone(), self.where_absent(&path)?)));
        for (path, above) in made.collect::<Vec<_>>() {
            for (path, wanted) in [(path, false), (above, true)] {
                if let Some(directory) = self.set.directories.get_mut(&path) {
                    (directory.links_matter, directory.wanted) = (wanted, wanted);
                }
            }
        }
    }

    /// Returns the directory in which an encoded path, or a part of it, is recorded as absent.
    fn where_absent(&self, path: &[u8]) -> Option<Vec<u8>> {
        let slashes = || memchr::memrchr_iter(b'/', path).map(|slash| (&path[..slash], &path[slash + 1..]));
        let is_absent = |(above, rest): &(&[u8], &[u8])| {
            let directory = self.set.directories.get(*above).filter(|directory| directory.real.is_none());
            directory.is_some_and(|directory| {
                let is_one = |name: &Vec<u8>| {
                    rest.strip_prefix(&name[..]).is_some_and(|below| below.is_empty() || below.starts_with(b"/"))
                };
                directory.absent.iter().any(is_one)
            })
        };
        slashes().find(is_absent).map(|(above, _)| above.to_vec())
    }

    /// Records where links in the path of an open directory lead, if there are any, or that there
    /// are none if `none_counts` is true.
    pub(super) fn links_matter(&mut self, directory: &[u8], none_counts: bool) {
        if none_counts || self.open.get(directory).is_some_and(|opened| !opened.plain) {
            let entry = self.entry(directory);
            (entry.links_matter, entry.wanted) = (true, true);
        }
    }

    pub(super) fn is_one_directory(&self, a: &[u8], b: &[u8]) -> bool {
        let identity = |path: &[u8]| self.opened(path).itself().ok().map(|stat| stat.file_id());
        identity(a).is_some() && identity(a) == identity(b)
    }
}
