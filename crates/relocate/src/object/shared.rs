//! How clang divides names into a directory and a rest: at what a name shares with the working directory, unless they
//! share nothing but `/`.
//!
//! So where two names stand to each other decides what is written, not each by itself. Here it is made sure that it is
//! divided in the same way there.
//!
//! Unaware of: which of the names is the working directory.

use crate::roots::{Map, Pair};

/// The first component of a name, and the root that it is below.
type Owner<'a> = (&'a [u8], Option<&'a [u8]>);

/// Whether names of different roots share as little there as here: nothing. Names below one root share that in both
/// places.
///
/// A directory above a root is what is left of a name that shares it with the working directory. It stays where it is
/// above the root there as well, and no rest of a name goes on as the root does.
pub(super) fn splits_alike<'a>(names: impl Iterator<Item = &'a [u8]> + Clone, map: &Map<'_>) -> bool {
    let rests = || names.clone().filter(|name| !name.starts_with(b"/"));
    // For each first component, here and there, the root whose names begin with it; `None` is a name below no root.
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

/// Whether a directory is above a root in both places, and no name begins as the root goes on below it; or has nothing
/// to do with it.
fn stays_above<'a>(path: &[u8], pair: Pair<'_>, mut rests: impl Iterator<Item = &'a [u8]>) -> bool {
    match (below(path, pair.from), below(path, pair.to)) {
        (Some(here), Some(there)) => !rests.any(|rest| [first(here), first(there)].contains(&first(rest))),
        (None, None) => first(path) != first(pair.from) && first(path) != first(pair.to),
        _ => false,
    }
}

/// A root that goes wherever a root above it goes is no root of its own.
fn outermost<'a>(pair: Pair<'a>, map: &Map<'a>) -> Pair<'a> {
    let goes_along = |above: &&Pair<'_>| {
        let rest = pair.from.strip_prefix(above.from);
        rest.is_some_and(|rest| rest.starts_with(b"/") && pair.to.strip_prefix(above.to) == Some(rest))
    };
    // The shortest is the last.
    map.pairs().iter().rfind(goes_along).copied().unwrap_or(pair)
}

fn first(path: &[u8]) -> &[u8] {
    path.split(|&c| c == b'/').find(|part| !part.is_empty()).unwrap_or_default()
}

/// What of the root is below this directory.
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
