//! Bytes that a compiler made in one place, as the same compiler would have made them in another place.
//!
//! A place is a list of roots: directories that the same build has elsewhere under other names. What cannot be shown to
//! be exact is refused. `docs/relocation.md` says what is.
//!
//! Unaware of: files, commands, which inputs a result was made of, where anything is kept.

#![forbid(unsafe_code)]

mod archive;
mod as_long;
mod config_status;
mod depfile;
mod forms;
mod names;
mod ninja;
mod object;
mod pickle;
mod roots;
mod text;

pub use config_status::uncut;
pub use depfile::Writer;
pub use forms::{hides_its_text, holds_a_root};
use names::Names;
pub use ninja::{Modified, NinjaDependencies, ninja_dependencies, ninja_dependencies_at, ninja_log_at};
pub use object::sums_sources;
pub use pickle::pickled_words;
use roots::Map;

/// Where it was made, and where it is wanted: both lists are of the same length and in the same order.
///
/// What begins with no slash is a name by chance: a word in names of files that is another one in each run.
///
/// Roots are absolute and have no slash at their end. Where roots are nested, the longest one that ends where a
/// component of a path ends is the one that is replaced.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// The roots of the place where it was made.
    pub from: &'a [&'a [u8]],
    /// The roots of the place where it is wanted.
    pub to: &'a [&'a [u8]],
}

/// How paths stand in the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// As they are, between characters that are no part of a name: messages, preprocessed text.
    Text,
    /// As in a text, and also where a text would be refused: in logs, which people read and no program, and where it was
    /// seen in two places.
    LooseText,
    /// Quoted for make, in lines broken at a column, as this compiler does.
    Depfile(Writer),
    /// In the debug information of an object file, a program, or the members of an archive.
    Object,
    /// The same, and where gcc's hash table has strings in an order that cannot be known, they are left in the one that
    /// they have: all that a debugger shows is as it would be, the bytes are not.
    ObjectInAnyOrder,
    /// In the strings of a pickle of Python's. That nothing else in it was worked out from a path is for the caller to
    /// know.
    Pickle,
    /// In what ninja keeps of dependencies, whose times are left.
    NinjaDependencies,
    /// Wherever they stand, in bytes of any kind, where each root is as long there as here. That nothing else in it was
    /// worked out from a path is for the caller to know.
    AsLong,
    /// In the values of autoconf's `config.status`, which are cut at a column, and in all else of it as in a loose text.
    ConfigStatus,
}

/// The bytes for the other place. `None` where that cannot be done exactly.
pub fn relocate(rule: Rule, bytes: &[u8], places: &Places<'_>) -> Option<Vec<u8>> {
    let there = one_way(rule, bytes, places.from, places.to)?;
    // Two names that were different there may have become one here; then the way back does not lead to where it
    // started.
    let back = one_way(rule, &there, places.to, places.from)?;
    (back == bytes).then_some(there)
}

/// Whether bytes that were made where `roots` are can be relocated: what made them is recognised, and its work is
/// repeated to the byte, in its own place and in one with longer names.
pub fn can_be_relocated(rule: Rule, bytes: &[u8], roots: &[&[u8]]) -> bool {
    let longer: Vec<Vec<u8>> = roots.iter().map(|root| sample(root, roots)).collect();
    let longer: Vec<&[u8]> = longer.iter().map(Vec::as_slice).collect();
    // Where a name by chance is part of a root, it is another one there as well.
    let Some((names, _)) = Names::split(roots, &longer) else { return false };
    let longer: Vec<Vec<u8>> = longer.iter().map(|root| names.replace(root).unwrap_or_else(|| root.to_vec())).collect();
    let longer: Vec<&[u8]> = longer.iter().map(Vec::as_slice).collect();
    relocate(rule, bytes, &Places { from: roots, to: roots }).is_some_and(|same| same == bytes)
        && relocate(rule, bytes, &Places { from: roots, to: &longer }).is_some()
}

/// A root of another place, for trying: the outermost root above this one has a longer name. A name by chance is as
/// long as it is.
fn sample(root: &[u8], roots: &[&[u8]]) -> Vec<u8> {
    const LONGER: &[u8] = b"-/elsewhere";
    if let (false, Some((last, rest))) = (root.starts_with(b"/"), root.split_last()) {
        let other = if *last == b'1' { b'2' } else { b'1' };
        return [rest, &[other]].concat();
    }
    let rest = |above: &[u8]| root.strip_prefix(above).filter(|rest| rest.first().is_none_or(|&c| c == b'/'));
    let above = roots.iter().copied().filter(|above| rest(above).is_some()).min_by_key(|above| above.len());
    let above = above.unwrap_or(root);
    [above, LONGER, rest(above).unwrap_or_default()].concat()
}

fn one_way(rule: Rule, bytes: &[u8], from: &[&[u8]], to: &[&[u8]]) -> Option<Vec<u8>> {
    let (names, roots) = Names::split(from, to)?;
    let map = &Map::new(&roots.0, &roots.1)?;
    let there = match rule {
        Rule::Text => text::relocate(bytes, map),
        Rule::LooseText => text::relocate_loosely(bytes, map),
        Rule::Depfile(writer) => depfile::relocate(writer, bytes, map),
        Rule::Object => of_objects(bytes, map, object::Order::Same),
        Rule::ObjectInAnyOrder => of_objects(bytes, map, object::Order::Any),
        Rule::Pickle => pickle::relocate(bytes, map),
        Rule::NinjaDependencies => ninja::relocate(bytes, &|path| text::relocate(path, map)),
        Rule::AsLong => as_long::relocate(bytes, map),
        Rule::ConfigStatus => config_status::relocate(bytes, &|text| text::relocate_loosely(text, map)),
    }?;
    match rule {
        _ if !names.stand_outside(bytes, &roots.0) => Some(there),
        Rule::Text => text::relocate_names(&there, &names),
        Rule::LooseText => names.replace(&there),
        Rule::Depfile(_) if names.are_as_long() => names.replace(&there),
        Rule::Depfile(_) => None,
        Rule::Object | Rule::ObjectInAnyOrder => names_of_objects(&there, &names),
        Rule::Pickle => pickle::relocate_names(&there, &names),
        Rule::NinjaDependencies => ninja::relocate(&there, &|path| names.replace(path)),
        Rule::AsLong => None,
        Rule::ConfigStatus => config_status::relocate(&there, &|text| names.replace(text)),
    }
}

fn of_objects(bytes: &[u8], map: &Map<'_>, order: object::Order) -> Option<Vec<u8>> {
    if !archive::is_archive(bytes) {
        return object::relocate(bytes, map, order);
    }
    let roots: Vec<&[u8]> = map.pairs().iter().map(|pair| pair.from).collect();
    archive::relocate(bytes, &|part| holds_a_root(part, &roots), &|object| object::relocate(object, map, order))
}

fn names_of_objects(bytes: &[u8], names: &Names<'_>) -> Option<Vec<u8>> {
    if !archive::is_archive(bytes) {
        return object::relocate_names(bytes, names);
    }
    let each = |object: &[u8]| match names.stand_in(object) {
        true => object::relocate_names(object, names),
        false => Some(object.to_vec()),
    };
    archive::relocate(bytes, &|part| names.stand_in(part), &each)
}
