//! The state of a path now, as facts are recorded and checked: its `stat`, the error of an
//! operation, the digest of a listing.
//!
//! Unaware of: what was recorded.

use std::io;

use larder_model::{Belongs, Fact, Status, names_digest};
use larder_sys::{Dir, FileType, Stat};

/// Returns the `stat` of a name in a directory. Most names are no links, so one call is enough even
/// if links are followed.
pub(crate) fn stat_in(dir: &Dir, name: &[u8], follow: bool) -> io::Result<Stat> {
    if name.is_empty() {
        return dir.itself();
    }
    let stat = dir.lstat(name)?;
    if follow && stat.kind == FileType::Link { dir.stat(name) } else { Ok(stat) }
}

/// The errno `ENOTDIR`.
pub(crate) const NOT_A_DIRECTORY: u32 = 20;

/// Returns the errno of an operation if it fails, or for [`Fact::OWNER`] the owner.
pub(crate) fn failure(dir: &Dir, name: &[u8], operation: u8) -> Option<u32> {
    let name = if name.is_empty() { b"." } else { name };
    let error = match operation {
        0 => dir.stat(name).err(),
        Fact::OWNER => return Some(dir.lstat(name).map_or(u32::MAX, |stat| stat.owner)),
        Fact::IS_DIRECTORY => match dir.stat(name) {
            Ok(stat) => return (stat.kind != FileType::Directory).then_some(NOT_A_DIRECTORY),
            Err(error) => Some(error),
        },
        access if access & Fact::ACCESS != 0 => dir.access(name, access & 7).err(),
        _ => dir.open_file(name).err(),
    };
    error.and_then(|error| error.raw_os_error()).map(|errno| errno as u32)
}

/// Which properties of a listing count.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listing {
    Names,
    /// The names, and the kinds of those without a leading dot. Patterns do not match the others,
    /// and `.git` is a file in a worktree.
    Kinds,
    /// The names, the kinds of all of them, and their order.
    Order,
}

/// Returns the fact about a directory's names.
pub(crate) fn listing(mut names: Vec<(Vec<u8>, u8)>, counts: Listing) -> Fact<'static> {
    for (name, kind) in &mut names {
        if counts == Listing::Order || counts == Listing::Kinds && !name.starts_with(b".") {
            name.extend([b'/', *kind]);
        }
    }
    if counts != Listing::Order {
        names.sort_unstable();
    }
    let names: Vec<&[u8]> = names.iter().map(|(name, _)| name.as_slice()).collect();
    let digest = names_digest(&names);
    match counts {
        Listing::Names => Fact::Listing(digest),
        Listing::Kinds => Fact::Kinds(digest),
        Listing::Order => Fact::Ordered(digest),
    }
}

/// Checks a fact about what `stat` says beyond the kind of a path.
pub(crate) fn has_metadata(dir: &Dir, name: &[u8], fact: &Fact) -> Result<(), String> {
    match fact {
        Fact::Modified(modified_ns) => match dir.stat(name) {
            Ok(stat) if stat.modified_ns == *modified_ns => Ok(()),
            Ok(_) => Err("has another mtime than before, and the command may depend on it".into()),
            Err(error) => Err(error.to_string()),
        },
        Fact::Mode(mode) => match stat_in(dir, name, true) {
            Ok(stat) if stat.mode == *mode => Ok(()),
            Ok(_) => Err("has another mode than before, and the command may copy it".into()),
            Err(error) => Err(error.to_string()),
        },
        Fact::Belongs { owner, group, links } => match stat_in(dir, name, true) {
            Ok(stat) if !belongs_to(&stat, *owner, *group) => Err("has another owner".into()),
            Ok(stat) if links.is_some_and(|links| !has_links(&stat, links)) => {
                Err("has another number of hard links than before".into())
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        },
        Fact::Status(status) => match stat_in(dir, name, true) {
            Ok(stat) if status_of(dir, name, &stat).is_ok_and(|now| now == *status) => Ok(()),
            Ok(_) => Err("has another mtime, owner, mode, inode, size or number of links than before".into()),
            Err(error) => Err(error.to_string()),
        },
        _ => Err("is no fact about what `stat` says".into()),
    }
}

/// Returns true if a file has this owner and group, as a fact says it.
fn belongs_to(stat: &Stat, owner: u32, group: u32) -> bool {
    let own = larder_sys::own_ids();
    let is = |id: u32, own: u32, expect: u32| id == if expect == Fact::OWN { own } else { expect };
    is(stat.owner, own.0, owner) && is(stat.group, own.1, group)
}

fn has_links(stat: &Stat, links: u32) -> bool {
    if links == Fact::SEVERAL { stat.links > 1 } else { stat.links == links }
}

/// Returns to whom a file or directory belongs, as far as it counts.
pub(crate) fn belonging(stat: &Stat, counts: Belongs) -> Fact<'static> {
    let relative = |id: u32, own: u32| if counts == Belongs::Owner && id == own { Fact::OWN } else { id };
    let (user, group) = larder_sys::own_ids();
    Fact::Belongs {
        owner: relative(stat.owner, user),
        group: relative(stat.group, group),
        links: match counts {
            Belongs::Told => Some(stat.links),
            Belongs::Links => Some(if stat.links > 1 { Fact::SEVERAL } else { stat.links }),
            Belongs::Blind | Belongs::Owner => None,
        },
    }
}

/// Returns all that `stat` says of a name in a directory and that can be compared later. `stat` is
/// what it said a moment ago.
pub(crate) fn status_of(dir: &Dir, name: &[u8], stat: &Stat) -> io::Result<Status> {
    let Stat { mode, owner, group, links, inode, modified_ns, size_bytes, .. } = *stat;
    Ok(Status { mode, owner, group, links, inode, modified_ns, size_bytes, blocks: dir.blocks(name)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_of_a_listing() {
        let digest = |counts, names: [(&str, u8); 3]| {
            listing(names.map(|(name, kind)| (name.as_bytes().to_vec(), kind)).to_vec(), counts)
        };
        let before = [("a", 8), (".git", 4), ("b", 8)];
        let check = |after, expect: [bool; 3]| {
            let same = [Listing::Names, Listing::Kinds, Listing::Order]
                .map(|counts| digest(counts, before) == digest(counts, after));
            assert_eq!(same, expect);
        };
        check(before, [true, true, true]);
        check([("b", 8), (".git", 4), ("a", 8)], [true, true, false]);
        check([("a", 4), (".git", 4), ("b", 8)], [true, false, false]);
        check([("a", 8), (".git", 8), ("b", 8)], [true, true, false]);
    }
}
