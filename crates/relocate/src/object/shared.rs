//! How clang divides names into a directory and a rest: at what a name shares with the working directory, unless they share
//! nothing but `/`.
//!
//! So where two names stand to each other decides what is written, not each by itself. Here it is made sure that it is divided
//! in the same way there.
//!
//! Unaware of: which of the names is the working directory.

use crate::roots::{Map, Pair};

/// Whether names of different roots share as little there as here: nothing. Names below one root share that in both places.
pub(super) fn splits_alike<'a>(paths: impl Iterator<Item = &'a [u8]>, map: &Map<'_>) -> bool {
    // For each first component, here and there, the root whose names begin with it; `None` is a name below no root.
    let mut owners: [Vec<(Vec<u8>, Option<Pair<'_>>)>; 2] = [Vec::new(), Vec::new()];
    for path in paths {
        let root = map.root_of(path).map(|pair| outermost(pair, map));
        if root.is_none() && map.pairs().iter().any(|pair| is_above(path, pair.from)) {
            return false;
        }
        let firsts = match root {
            Some(pair) => [first(pair.from), first(pair.to)],
            None => [first(path), first(path)],
        };
        for (owners, first) in owners.iter_mut().zip(firsts) {
            match owners.iter().find(|(name, _)| name == first) {
                Some((_, owner)) if owner.map(|pair| pair.from) != root.map(|pair| pair.from) => return false,
                Some(_) => {}
                None => owners.push((first.to_vec(), root)),
            }
        }
    }
    true
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

/// Whether `path` is a directory above the root.
fn is_above(path: &[u8], root: &[u8]) -> bool {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    root.strip_prefix(path).is_some_and(|rest| rest.starts_with(b"/"))
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
        check(&[("/w/a", "/x"), ("/v/b", "/x/b")], &["/w/a", "/v/b"], false);
        check(&[("/w/a", "/x"), ("/w/b", "/y")], &["/w/a/c"], true);
        check(&[("/w", "/x"), ("/w/b", "/x/b")], &["/w/a", "/w/b/c"], true);
        check(&[("/w", "/x"), ("/w/b", "/y")], &["/w/a", "/w/b/c"], false);
    }
}
