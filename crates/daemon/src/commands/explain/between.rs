//! Finds the first difference between two runs of one command. It explains why a record is not
//! reused in other checkouts yet: it waits for a second run with the same result.

use std::collections::{BTreeMap, BTreeSet};

use larder_compiler::{is_in_no_order, is_log, is_ninjas};
use larder_lookup::relocated::{object_anywhere, uncut};
use larder_model::{ActionResult, Bound, Content, Entry, Fact, Manifest, ObservationSet, Output, OutputKind, Roots};

use super::facts;

/// Returns the bytes of a content, or `None` if they are gone.
pub(super) type Read<'a> = dyn Fn(&Content) -> Option<Vec<u8>> + 'a;

/// Describes what differs between the record at `at` and the next record that could have lifted its
/// bound, for example one that was made in another checkout. Returns `None` if the bound of the
/// record cannot be lifted so, or if there is no such record.
pub(super) fn first_difference(manifest: &Manifest, at: usize, roots: &Roots, read: &Read) -> Option<String> {
    let entry = manifest.entries.get(at)?;
    let tells = |other: &Entry| match entry.bound? {
        Bound::SeenOnce => (entry.made_in != other.made_in).then_some(()),
        Bound::Chance => (entry.bound_by != other.bound_by).then_some(()),
        _ => None,
    };
    let is_one = |(number, other): &(usize, &Entry)| *number != at && tells(other).is_some();
    // Newest first: records that already existed when this one was made come after it in the list.
    let (before, behind) = manifest.entries.split_at(at);
    let behind = behind.iter().enumerate().map(|(number, other)| (number + at, other));
    let (number, other) = behind.chain(before.iter().enumerate().rev()).find(is_one)?;
    let ((set, result), (other_set, other_result)) = (entry.open().ok()?, other.open().ok()?);
    let what = of_sets(&set, &other_set, roots)
        .or_else(|| of_results(&result, &other_result, roots))
        .or_else(|| of_bytes(&result, &other_result, roots, read));
    let what = what.unwrap_or_else(|| "its messages have another text, apart from paths of the checkout".to_owned());
    Some(format!("unlike record {}: {what}", number + 1))
}

/// A directory, and the name of an entry in it.
type Path<'a> = (&'a [u8], &'a [u8]);

fn by_path<'a>(set: &ObservationSet<'a>) -> BTreeMap<Path<'a>, Fact<'a>> {
    set.compared().map(|(directory, name, fact)| ((directory, name), fact)).collect()
}

fn of_sets(set: &ObservationSet, other: &ObservationSet, roots: &Roots) -> Option<String> {
    let (here, there) = (by_path(set), by_path(other));
    let line = |(directory, name): &Path, fact: &Fact| {
        facts::fact_line(&facts::joined(&facts::local(directory, roots), name), fact, roots)
    };
    let changed = here.iter().find_map(|(path, fact)| {
        let other = there.get(path).filter(|other| *other != fact)?;
        Some(format!("{}, but there {}", line(path, fact), line(path, other)))
    });
    let alone = || here.iter().find(|(path, _)| !there.contains_key(*path)).map(|(path, fact)| line(path, fact));
    let there_alone = || there.iter().find(|(path, _)| !here.contains_key(*path)).map(|(path, fact)| line(path, fact));
    changed
        .or_else(|| alone().map(|line| format!("that run did not access {line}")))
        .or_else(|| there_alone().map(|line| format!("only that run accessed {line}")))
}

fn of_results(result: &ActionResult, other: &ActionResult, roots: &Roots) -> Option<String> {
    if result.exit_code != other.exit_code {
        return Some(format!("this run ended with exit code {}, that run with {}", result.exit_code, other.exit_code));
    }
    let paths = |result: &ActionResult| -> BTreeSet<Vec<u8>> {
        result.outputs.iter().map(|output| output.path.to_vec()).collect()
    };
    let (here, there) = (paths(result), paths(other));
    let only =
        |a: &BTreeSet<Vec<u8>>, b: &BTreeSet<Vec<u8>>| a.difference(b).next().map(|path| facts::local(path, roots));
    only(&here, &there)
        .map(|path| format!("that run did not create {path}"))
        .or_else(|| only(&there, &here).map(|path| format!("only that run created {path}")))
}

/// Names the first output that differs by more than the paths of the two checkouts. If there is none,
/// names the first one that has other bytes. Files that are not compared byte by byte are left out.
fn of_bytes(result: &ActionResult, other: &ActionResult, roots: &Roots, read: &Read) -> Option<String> {
    let by_path: BTreeMap<&[u8], &Output> = other.outputs.iter().map(|output| (output.path, output)).collect();
    let is_compared = |path: &[u8]| !(is_log(path) || is_ninjas(path) || is_in_no_order(path));
    let mut any = None;
    for output in result.outputs.iter().filter(|output| is_compared(output.path)) {
        let Some(there) = by_path.get(output.path) else { continue };
        let path = facts::local(output.path, roots);
        match (&output.kind, &there.kind) {
            (OutputKind::File { content: a, .. }, OutputKind::File { content: b, .. }) if a != b => {
                let places = [places(result), places(other)];
                let is_alike = read(a).zip(read(b)).is_some_and(|(a, b)| are_alike(output.path, [&a, &b], &places));
                let line = format!("{path} has other bytes, apart from paths of the checkout");
                if !is_alike {
                    return Some(line);
                }
                any = any.or(Some(line));
            }
            (OutputKind::File { mode: a, placement: c, .. }, OutputKind::File { mode: b, placement: d, .. })
                if (a, c) != (b, d) =>
            {
                return Some(format!("{path} has another mode, or was put in place in another way"));
            }
            (OutputKind::File { .. }, OutputKind::File { .. }) => {}
            (a, b) if a != b => return Some(format!("{path} is of another kind, or leads elsewhere")),
            _ => {}
        }
        if !output.modified.is_alike(&there.modified) {
            return Some(format!("{path} was given another mtime"));
        }
    }
    any
}

fn places(result: &ActionResult) -> Roots {
    Roots::new(result.origin.iter().map(|root| root.to_vec()))
}

/// Returns true if two contents of an output differ at most by the paths of their checkouts, and by
/// the line breaks that depend on the lengths of paths, as in dependency files.
fn are_alike(path: &[u8], contents: [&[u8]; 2], places: &[Roots; 2]) -> bool {
    let plain = |at: usize| {
        let whole = uncut(path, contents[at]);
        let mut text = places[at].encode_text(whole.as_deref().unwrap_or(contents[at]));
        text.retain(|byte| !(byte.is_ascii_whitespace() || *byte == b'\\'));
        text
    };
    let object = |at: usize| object_anywhere(contents[at], &places[at]);
    plain(0) == plain(1) || object(0).is_some_and(|first| object(1) == Some(first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_model::{FileMode, ModeRule, Placement, Rewrite, Streams};

    #[test]
    fn the_file_with_other_bytes_is_named() {
        let file = |path, bytes| {
            let mode = FileMode { bits: 0o666, rule: ModeRule::Masked };
            let content = Content::Inline(bytes);
            Output::new(
                path,
                OutputKind::File { placement: Placement::Truncate, mode, rewrite: Rewrite::None, content },
            )
        };
        let result = |origin, outputs| ActionResult {
            origin: vec![origin],
            outputs,
            ..ActionResult::of(Streams::Together(Content::Inline(b"")))
        };
        let read = |content: &Content| match content {
            Content::Inline(bytes) => Some(bytes.to_vec()),
            Content::Blob(_) => None,
        };
        let outputs = |depfile, rules| {
            vec![file(b"/w/config.log", depfile), file(b"/w/x.d", depfile), file(b"/w/rules.txt", rules)]
        };
        let first = result(b"/a", outputs(b"x.o: /a/x.c", b"1f"));
        let check = |depfile, rules, expect: &str| {
            let other = result(b"/bb", outputs(depfile, rules));
            let found = of_bytes(&first, &other, &Roots::default(), &read).unwrap_or_default();
            assert_eq!(found, format!("{expect} has other bytes, apart from paths of the checkout"));
        };
        check(b"x.o: \\\n /bb/x.c", b"2f", "/w/rules.txt");
        check(b"x.o: /bb/y.c", b"2f", "/w/x.d");
        check(b"x.o: /bb/x.c", b"1f", "/w/x.d");
    }

    /// autoconf wraps a value after 148 bytes, so the lines of `config.status` depend on the place.
    #[test]
    fn a_value_that_is_wrapped_elsewhere_is_alike() {
        let status = |place: &str, rest: &str| {
            let value = format!("{place}/{rest}");
            let (first, second) = value.split_at(148);
            format!("S[\"DIR\"]=\"{first}\"\\\n\"{second}\"\n").into_bytes()
        };
        let places = ["/a", "/longer"].map(|place| Roots::new([place.as_bytes().to_vec()]));
        let (rest, other) = ("x".repeat(160), "y".repeat(160));
        let is_alike = |path: &[u8], rest_there: &str| {
            are_alike(path, [&status("/a", &rest), &status("/longer", rest_there)], &places)
        };
        assert!(is_alike(b"/w/config.status", &rest));
        assert!(!is_alike(b"/w/config.status", &other));
        assert!(!is_alike(b"/w/other", &rest));
    }
}
