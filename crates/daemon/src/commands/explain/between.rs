//! Finds the first difference between two runs of one command. It explains why a record is not
//! reused in other checkouts yet: it waits for a second run with the same result.

use std::collections::{BTreeMap, BTreeSet};

use larder_model::{ActionResult, Bound, Entry, Fact, Manifest, ObservationSet, Roots};

use super::facts;

/// Describes what differs between the record at `at` and the next record that could have lifted its
/// bound, for example one that was made in another checkout. Returns `None` if the bound of the
/// record cannot be lifted so, or if there is no such record.
pub(super) fn first_difference(manifest: &Manifest, at: usize, roots: &Roots) -> Option<String> {
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
    let what = of_sets(&set, &other_set, roots).or_else(|| of_results(&result, &other_result, roots));
    let what = what.unwrap_or_else(|| "its output has other bytes, apart from paths of the checkout".to_owned());
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
