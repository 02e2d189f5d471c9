//! Finds the newest entry of a manifest that holds here: its observations are all true now, and its
//! result can be used in this checkout.
//!
//! Unaware of: where the manifest came from, how a result is put in place.

use std::cell::Cell;
use std::collections::HashMap;

use larder_compiler::Family;
use larder_model::path::join;
use larder_model::{
    ActionResult, Bound, Content, Digest, DirFacts, Entry, Fact, Manifest, Observer, OutputKind, Roots, SetReader,
    Streams, Writer, is_alike, lengths,
};
use larder_spawn::Destinations;
use larder_store::{Checker, Difference, Effort, StatCache, Store};
use larder_sys::{FileType, Stat};

use crate::{Place, Request, relocated};

/// The subject of a difference about output streams: see `streams_fit`.
pub const STREAMS: &str = "standard output and error";

/// An entry that does not hold, and why.
#[derive(Clone, Debug)]
pub struct Rejected {
    /// Its index in the manifest. The newest entry has index 0.
    pub entry: usize,
    /// The observer that watched the recorded run.
    pub observer: Observer,
    /// The first difference that was found.
    pub why: Difference,
}

/// A recorded result that answers a request.
pub struct Answer<'m> {
    /// The observations, all of which hold.
    pub set: SetReader<'m>,
    /// The result as it is recorded.
    pub result: ActionResult<'m>,
    /// The contents that were rewritten for this checkout, for [`crate::relocated::apply`].
    pub rewritten: Vec<Vec<u8>>,
    /// The observer that watched the recorded run.
    pub observer: Observer,
    /// How long the tool ran, in microseconds.
    pub run_time_us: u64,
    /// The number of facts that were checked, and how many of them are absences of files.
    pub size: (usize, usize),
}

/// Returns the newest entry of `manifest` that answers `request`. Entries that do not are added to
/// `rejected`; those already in it are skipped. `effort` counts what the checks cost.
pub fn ask<'m>(
    manifest: &Manifest<'m>,
    request: &Request,
    place: &Place,
    store: &Store,
    stat_cache: &StatCache,
    rejected: &mut Vec<Rejected>,
    effort: &mut Effort,
) -> Option<Answer<'m>> {
    let here = roots_digest(&request.roots);
    for (entry_at, entry) in manifest.entries.iter().enumerate().skip(rejected.len()) {
        let mut reject = |why| rejected.push(Rejected { entry: entry_at, observer: entry.observer, why });
        match holds(entry, &here, request, place, stat_cache, effort) {
            Err(why) => reject(why),
            Ok((set, result)) => match relocated::rewritten(&result, &request.roots, store, stat_cache) {
                Some(rewritten) => {
                    let size = set.size();
                    let run_time_us = entry.run_time_us;
                    return Some(Answer { set, result, rewritten, observer: entry.observer, run_time_us, size });
                }
                None => reject(about("the result", "was made in another checkout, and its paths cannot be rewritten")),
            },
        }
    }
    None
}

/// Returns the newest entry of a manifest from a remote whose observations all hold here. It is not
/// yet an answer: its blobs need not be in the store, and rewriting its paths may still fail.
pub fn first_that_holds<'m>(
    manifest: &Manifest<'m>,
    request: &Request,
    place: &Place,
    stat_cache: &StatCache,
) -> Option<Entry<'m>> {
    let here = roots_digest(&request.roots);
    let holds = |entry: &&Entry<'m>| holds(entry, &here, request, place, stat_cache, &mut Effort::default()).is_ok();
    manifest.entries.iter().find(holds).cloned()
}

/// Checks one entry. Returns its observations and its result, or the first difference.
fn holds<'m>(
    entry: &Entry<'m>,
    here: &Digest,
    request: &Request,
    place: &Place,
    stat_cache: &StatCache,
    effort: &mut Effort,
) -> Result<(SetReader<'m>, ActionResult<'m>), Difference> {
    let at_home = entry.made_in == *here;
    serves(entry, here, request, place)?;
    let Ok((set, result)) = entry.open_to_read() else {
        return Err(about("the record", "cannot be read"));
    };
    if !streams_fit(&result.streams, &place.destinations) {
        return Err(about(STREAMS, "go to one file now and did not when it was recorded, or the reverse"));
    }
    with_checker(request, place, stat_cache, at_home, &result, |checker| checker.check_read(set.clone(), effort))?;
    if request.family == Family::Command && reads_an_output(set.clone(), &result, &request.roots) {
        return Err(about("an output", "is the same file as an input of the command, through a link"));
    }
    Ok((set, result))
}

/// Calls `check` with a checker for the observations of an entry. `at_home` says whether it was made
/// with these roots.
#[inline]
pub(crate) fn with_checker<T>(
    request: &Request,
    place: &Place,
    stat_cache: &StatCache,
    at_home: bool,
    result: &ActionResult,
    check: impl FnOnce(&Checker) -> T,
) -> T {
    let object = |bytes: &[u8]| request.object_anywhere(bytes);
    check(&Checker {
        roots: &request.roots,
        stat_cache,
        at_home,
        same_bytes_will_do: !result.is_rewritten(),
        stampless: Cell::new(false),
        variable: &|name| place.asked(name),
        value_key: request.value_key,
        forms: request.forms(&object, &relocated::uncut),
    })
}

/// Returns an error if the result of an entry cannot be used in this checkout.
#[inline]
pub(crate) fn serves(entry: &Entry, here: &Digest, request: &Request, place: &Place) -> Result<(), Difference> {
    if let Some(bound) = entry.bound
        && !(entry.made_in == *here && bound.serves_at_home())
        && !(bound == Bound::AsLong && entry.bound_by == lengths(request.roots.all()))
        && !(bound == Bound::AsNamed && is_alike(entry.bound_by, request.roots.all()))
        && !(place.ephemeral && bound.is_only_a_path() && request.is_in_a_sandbox())
    {
        return Err(elsewhere(bound, entry.bound_by, remedy(bound, request, place)));
    }
    Ok(())
}

/// Returns true if an output exists already and is the same file as an input, through a link. The
/// tool would then refuse to write it, or read what it has written. Compilers need no such check,
/// because they read everything before they write.
fn reads_an_output(mut set: SetReader, result: &ActionResult, roots: &Roots) -> bool {
    let has_other_names = |stat: Stat| stat.kind == FileType::Link || stat.kind == FileType::File && stat.links > 1;
    let file = |path: &[u8]| larder_sys::stat(path).ok().map(|stat| stat.file_id());
    let mut outputs = HashMap::new();
    for output in result.outputs.iter().filter(|output| matches!(output.kind, OutputKind::File { .. })) {
        if let Some(path) = roots.decoded_path(output.path)
            && larder_sys::lstat(&path).is_ok_and(has_other_names)
            && let Some(file) = file(&path)
        {
            outputs.insert(file, path);
        }
    }
    let mut directory = DirFacts::default();
    while !outputs.is_empty()
        && let Ok(Some(_)) = set.next_into(&mut directory)
    {
        for named in directory.facts.iter().filter(|named| matches!(named.fact, Fact::Content { .. })) {
            let decoded = (roots.decoded_path(directory.path), roots.decoded_names(named.name));
            let (Some(directory), Some(name)) = decoded else { continue };
            let path = join(&directory, &name);
            if file(&path).and_then(|file| outputs.get(&file)).is_some_and(|output| *output != path) {
                return true;
            }
        }
    }
    false
}

/// Returns what the user can do so that a result of this command can be used in other checkouts.
pub fn remedy(bound: Bound, request: &Request, place: &Place) -> Option<&'static str> {
    match request.family {
        Family::Rustc => bound.remedy_of_crate(place.roots.remap_rust),
        _ => bound.remedy(),
    }
}

/// Says why a result from another checkout is not used here. `by` is the file or argument that ties
/// it, or empty.
fn elsewhere(bound: Bound, by: &[u8], remedy: Option<&str>) -> Difference {
    let remedy = remedy.map(|remedy| format!("; to change that, use {remedy}")).unwrap_or_default();
    let by = match (bound, by) {
        (Bound::Chance | Bound::AsLong | Bound::AsNamed, _) | (_, []) => String::new(),
        _ => format!(" ({})", String::from_utf8_lossy(by)),
    };
    // These reasons have no subject of their own.
    let where_made = match bound {
        Bound::Chance | Bound::AsLong | Bound::AsNamed => "",
        _ => "was made in another checkout, and can be used only there: ",
    };
    about("the result", &format!("{where_made}{}{by}{remedy}", bound.reason()))
}

fn about(subject: &str, what: &str) -> Difference {
    Difference { subject: subject.as_bytes().to_vec(), what: what.to_owned() }
}

/// Returns true if the recorded messages can be replayed to these destinations. Two separate
/// streams cannot be put into their original order, and one combined stream cannot be split.
fn streams_fit(streams: &Streams<Content<'_>>, to: &Destinations) -> bool {
    let one_terminal = to.stdout.is_some() && to.stderr.is_some();
    let together = to.same || one_terminal;
    let empty = |content: &Content| content.size_bytes() == 0;
    match streams {
        Streams::Apart { stdout, stderr } => !together || empty(stdout) || empty(stderr),
        Streams::Together(both) => together || empty(both),
    }
}

/// Returns the digest of the roots. A result that is bound to its checkout is used only if this
/// digest is the same.
pub fn roots_digest(roots: &Roots) -> Digest {
    let mut w = Writer::default();
    roots.all().for_each(|root| w.bytes(root));
    Digest::of(&w.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_sentences() {
        for bound in Bound::ALL {
            let Difference { subject, what } = elsewhere(*bound, b"", bound.remedy());
            let text = format!("{} {what}", String::from_utf8_lossy(&subject));
            let begins = ["the result was made", "the result may", "the result is"];
            assert!(begins.iter().any(|begin| text.starts_with(begin)), "{text}");
        }
    }
}
