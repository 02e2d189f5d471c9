//! Paths in clang's debug information. clang splits a path after the part that it shares with the
//! working directory, unless they share only `/`.
//!
//! So the output depends on how two paths relate, not on each path alone. This module checks that
//! clang would split all paths at corresponding points in the new place.
//!
//! Unaware of: which of the paths is the working directory.

use crate::roots::{Map, Pair};

/// The first component of a path, and the root that contains the path.
type Owner<'a> = (&'a [u8], Option<&'a [u8]>);

/// Returns true if clang splits all paths alike in both places. For this, paths in different roots
/// must share nothing, in the old and in the new place. Paths in one root share that root in both
/// places.
///
/// If the debug information contains a directory above a root, that directory is the part that a
/// split path shares with the working directory. It must be above the root in the new place as
/// well, and no remaining part of a path may begin as the root continues. For example, with `/w`
/// above the root `/w/a`, no remaining part may begin with `a/`.
pub(super) fn splits_alike<'a>(names: impl Iterator<Item = &'a [u8]> + Clone, map: &Map<'_>) -> bool {
    let rests = || names.clone().filter(|name| !name.starts_with(b"/"));
    // For each first component, in the old and the new place, the root whose paths begin with it.
    // `None` stands for a path in no root.
    let mut owners: [Vec<Owner<'_>>; 2] = [Vec::new(), Vec::new()];
    for path in names.clone().filter(|name| name.starts_with(b"/")) {
        let root = map.root_of(path).map(|pair| outermost(pair, map));
        if root.is_none() && map.pairs().iter().any(|pair| below(path, pair.from).is_some()) {
            if !map.pairs().iter().all(|pair| stays_above(path, *pair, rests())) {
                return false;
            }
            continue;
        }
        let firsts = root.map_or([path; 2], |pair| [pair.from, pair.to]).map(first);
        let root = root.map(|pair| pair.from);
        for (owners, first) in owners.iter_mut().zip(firsts) {
            match owners.iter().find(|(name, _)| *name == first) {
                Some((_, owner)) if *owner != root => return false,
                Some(_) => {}
                None => owners.push((first, root)),
            }
        }
    }
    true
}

/// Returns true if the directory is above the root in both places, and no name begins as the root
/// continues below it. Also returns true if the directory has nothing to do with the root.
fn stays_above<'a>(path: &[u8], pair: Pair<'_>, mut rests: impl Iterator<Item = &'a [u8]>) -> bool {
    match (below(path, pair.from), below(path, pair.to)) {
        (Some(here), Some(there)) => !rests.any(|rest| [first(here), first(there)].contains(&first(rest))),
        (None, None) => first(path) != first(pair.from) && first(path) != first(pair.to),
        _ => false,
    }
}

/// Returns the outermost root that moves together with this root, or the root itself.
fn outermost<'a>(pair: Pair<'a>, map: &Map<'a>) -> Pair<'a> {
    let goes_along = |above: &&Pair<'_>| {
        let rest = pair.from.strip_prefix(above.from);
        rest.is_some_and(|rest| rest.starts_with(b"/") && pair.to.strip_prefix(above.to) == Some(rest))
    };
    // The longest comes first, so the last match is the outermost.
    map.pairs().iter().rfind(goes_along).copied().unwrap_or(pair)
}

fn first(path: &[u8]) -> &[u8] {
    path.split(|&c| c == b'/').find(|part| !part.is_empty()).unwrap_or_default()
}

/// Returns the part of the root below this directory.
fn below<'a>(path: &[u8], root: &'a [u8]) -> Option<&'a [u8]> {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    root.strip_prefix(path).filter(|rest| rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pairs: &[(&str, &str)], paths: &[&str], expect: bool) {
        let from: Vec<&[u8]> = pairs.iter().map(|(from, _)| from.as_bytes()).collect();
        let to: Vec<&[u8]> = pairs.iter().map(|(_, to)| to.as_bytes()).collect();
        let map = Map::new(&from, &to).expect("sound roots");
        assert_eq!(splits_alike(paths.iter().map(|path| path.as_bytes()), &map), expect, "{pairs:?} {paths:?}");
    }

    #[test]
    fn what_is_shared_stays_shared() {
        check(&[("/w/a", "/b")], &["/w/a", "/w/a/in", "/usr/include"], true);
        check(&[("/w/a", "/b")], &["/w/a", "/w/other"], false);
        check(&[("/w/a", "/usr/src")], &["/w/a", "/usr/include"], false);
        check(&[("/usr/src", "/w/a")], &["/usr/src", "/usr/include"], false);
        check(&[("/w/a", "/b")], &["/w"], false);
        check(&[("/w/a", "/w/b")], &["/w/a", "/w", "in/x.h", "x.h"], true);
        check(&[("/w/a", "/w/b")], &["/w/a", "/w", "a/x.h"], false);
        check(&[("/w/a", "/w/b")], &["/w/a", "/w", "b/x.h"], false);
        check(&[("/w/a", "/w/b"), ("/w/c", "/w/c")], &["/w/a", "/w", "d/x.h"], true);
        check(&[("/w/a", "/x"), ("/v/b", "/x/b")], &["/w/a", "/v/b"], false);
        check(&[("/w/a", "/x"), ("/w/b", "/y")], &["/w/a/c"], true);
        check(&[("/w", "/x"), ("/w/b", "/x/b")], &["/w/a", "/w/b/c"], true);
        check(&[("/w", "/x"), ("/w/b", "/y")], &["/w/a", "/w/b/c"], false);
    }
}
