//! Rewrites bytes that a compiler made in one place so that they are equal to what the same
//! compiler would have made in another place.
//!
//! A place is where a build runs, given as a list of roots: directories that the same build has
//! under other paths elsewhere. For example, the place of a build in `/home/ann/app` has the root
//! `/home/ann/app`. If the result cannot be shown to be exact, it is refused. `docs/relocation.md`
//! lists what is refused and why.
//!
//! Unaware of: files, commands, which inputs a result was made of, and where anything is stored.

#![forbid(unsafe_code)]

mod archive;
mod as_long;
mod config_status;
mod depfile;
mod forms;
mod magic;
mod md5;
mod names;
mod ninja;
mod object;
mod pickle;
mod roots;
mod rule_hashes;
mod text;

pub use config_status::uncut;
pub use depfile::Writer;
pub use forms::{hides_its_text, holds_a_root, holds_a_root_in_parts, is_compressed, leads_a_linker};
use names::Names;
pub use ninja::{
    Modified, NinjaDependencies, ninja_dependencies, ninja_dependencies_at, ninja_log_at, ninja_log_commands,
};
pub use object::sums_sources;
pub use pickle::{pickled_words, unmeasured};
use roots::Map;
pub use rule_hashes::{BuildMake, rule_hashes_at};
pub use text::is_laid_out;

/// The place where the bytes were made, and the place where they are wanted. Both lists have the
/// same length and order.
///
/// An entry without a leading slash is an ephemeral name: a word in file names that differs in each
/// run, such as `cmTC_a2f27`.
///
/// Roots are absolute and do not end in a slash. If roots are nested, the longest root that ends at
/// the end of a path component is replaced.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// The roots of the place where the bytes were made.
    pub from: &'a [&'a [u8]],
    /// The roots of the place where the bytes are wanted.
    pub to: &'a [&'a [u8]],
}

/// Where and how the bytes contain paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// As they are, between characters that cannot belong to a path: messages, preprocessed text.
    Text,
    /// As in `Text`, but also in surroundings where `Text` refuses. For logs, which only people
    /// read, and for text that two runs in different places made alike.
    LooseText,
    /// Quoted for make, in lines that are wrapped at a column in the way of this compiler.
    Depfile(Writer),
    /// In the debug information of an object file, a program, or the members of an archive.
    Object,
    /// As in `Object`, but if the order of gcc's strings cannot be known, they keep the order that
    /// they have. A debugger shows the same; the bytes differ.
    ObjectInAnyOrder,
    /// In the strings of a Python pickle. The caller must know that nothing else in it was derived
    /// from a path.
    Pickle,
    /// In ninja's database of dependencies (`.ninja_deps`). The mtimes in it are kept.
    NinjaDependencies,
    /// Anywhere in bytes of any kind, if each root has the same length in both places. The caller
    /// must know that nothing else in the bytes was derived from a path.
    AsLong,
    /// In autoconf's `config.status`: in the values, which are wrapped at a column, and elsewhere
    /// as in `LooseText`.
    ConfigStatus,
}

/// Returns the bytes for the other place, or `None` if that cannot be done exactly.
pub fn relocate(rule: Rule, bytes: &[u8], places: &Places<'_>) -> Option<Vec<u8>> {
    let there = one_way(rule, bytes, places.from, places.to)?;
    // Two paths that differ in the old place may be equal in the new one. Then relocating back does
    // not give the original bytes.
    let back = one_way(rule, &there, places.to, places.from)?;
    (back == bytes).then_some(there)
}

/// Returns true if bytes that were made in the place with these `roots` can be relocated.
///
/// The bytes are relocated twice as a test: to their own place, which must not change them, and to
/// a place with longer paths. This shows that the format is understood.
pub fn can_be_relocated(rule: Rule, bytes: &[u8], roots: &[&[u8]]) -> bool {
    let longer: Vec<Vec<u8>> = roots.iter().map(|root| sample(root, roots)).collect();
    let longer: Vec<&[u8]> = longer.iter().map(Vec::as_slice).collect();
    // If an ephemeral name is part of a root, it also changes in that root.
    let Some((names, _)) = Names::split(roots, &longer) else { return false };
    let longer: Vec<Vec<u8>> = longer.iter().map(|root| names.replace(root).unwrap_or_else(|| root.to_vec())).collect();
    let longer: Vec<&[u8]> = longer.iter().map(Vec::as_slice).collect();
    relocate(rule, bytes, &Places { from: roots, to: roots }).is_some_and(|same| same == bytes)
        && relocate(rule, bytes, &Places { from: roots, to: &longer }).is_some()
}

/// Returns a root of a made-up place for that test. The outermost root above `root` gets a longer
/// path; an ephemeral name keeps its length.
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
    if !magic::is_archive(bytes) {
        return object::relocate(bytes, map, order);
    }
    let roots = map.replaced();
    archive::relocate(bytes, &|part| holds_a_root(part, &roots), &|object| object::relocate(object, map, order))
}

fn names_of_objects(bytes: &[u8], names: &Names<'_>) -> Option<Vec<u8>> {
    if !magic::is_archive(bytes) {
        return object::relocate_names(bytes, names);
    }
    let each = |object: &[u8]| match names.stand_in(object) {
        true => object::relocate_names(object, names),
        false => Some(object.to_vec()),
    };
    archive::relocate(bytes, &|part| names.stand_in(part), &each)
}
