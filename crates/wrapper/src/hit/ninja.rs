//! Updates ninja's own records (`.ninja_log`, `.ninja_deps`) on a hit. They hold the mtimes of
//! outputs, and a hit gives the outputs new mtimes. Without the update, the next run of ninja would
//! build everything again.
//!
//! Only records of a ninja build are updated. A generator may also make ninja write them
//! (`ninja -t restat build.ninja`). Those stay as recorded, because the next `ninja` command reads
//! them and hits only if they are as recorded.
//!
//! Unaware of: the format of these files (`larder-relocate`).

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use larder_model::path::file_name;
use larder_model::{ActionResult, Content, OutputKind, Roots};
use larder_relocate::{ninja_dependencies_at, ninja_log_at};
use larder_store::{StatCache, Store, finished};

const LOG: &[u8] = b".ninja_log";
const DEPENDENCIES: &[u8] = b".ninja_deps";
/// A file that is made by a generator and not by ninja.
const GENERATED: &[u8] = b"build.ninja";
/// Files larger than this are put in place as recorded, in bytes.
const BYTES_MAX: u64 = 64 << 20;
/// Paths in these files are relative to ninja's working directory. That is the file's directory or
/// at most two levels above it (`builddir`).
const LEVELS: usize = 3;

/// Returns new contents for the outputs that are ninja's records, each with its index in
/// `result.outputs`. `began` is when the outputs began to be put in place.
pub(crate) fn renewed(
    result: &ActionResult,
    roots: &Roots,
    began: SystemTime,
    store: &Store,
    stat_cache: &StatCache,
) -> Vec<(usize, Vec<u8>)> {
    let is_kept = |path: &[u8]| path.ends_with(LOG) || path.ends_with(DEPENDENCIES);
    if !result.outputs.iter().any(|output| is_kept(output.path)) {
        return Vec::new();
    }
    let path = |encoded: &[u8]| roots.decoded_path(encoded);
    let times = finished(began, &result.outputs);
    let made: HashMap<Vec<u8>, u64> = result
        .outputs
        .iter()
        .zip(times)
        .filter(|(output, _)| matches!(output.kind, OutputKind::File { .. } | OutputKind::Link(_)))
        .filter_map(|(output, time)| Some((path(output.path)?, nanoseconds(time)?)))
        .collect();
    let renew = |(at, content): (usize, Content)| {
        let file = path(result.outputs[at].path)?;
        let bytes = (content.size_bytes() <= BYTES_MAX).then(|| store.content_bytes(&content, stat_cache).ok())??;
        Some((at, in_place(&file, &bytes, &made)?))
    };
    let kept = result.outputs.iter().enumerate().filter_map(|(at, output)| match output.kind {
        OutputKind::File { content, .. } if is_kept(output.path) => Some((at, content)),
        _ => None,
    });
    kept.filter_map(renew).collect()
}

/// Returns the result with these contents.
pub(crate) fn with<'a>(result: &ActionResult<'a>, renewed: &'a [(usize, Vec<u8>)]) -> ActionResult<'a> {
    let mut result = result.clone();
    for (at, bytes) in renewed {
        if let OutputKind::File { content, .. } = &mut result.outputs[*at].kind {
            *content = Content::Inline(bytes);
        }
    }
    result
}

/// Returns one of ninja's records with the new mtimes of the outputs. Returns `None` if it names no
/// output.
fn in_place(file: &[u8], bytes: &[u8], made: &HashMap<Vec<u8>, u64>) -> Option<Vec<u8>> {
    let at = |times: &dyn Fn(&[u8], u64) -> u64| match file_name(file) == LOG {
        true => ninja_log_at(bytes, times),
        false => ninja_dependencies_at(bytes, times),
    };
    let names = RefCell::new(Vec::new());
    at(&|name, recorded| {
        names.borrow_mut().push(name.to_vec());
        recorded
    })?;
    let names = names.into_inner();
    let is_made = |top: &[u8], name: &Vec<u8>| file_name(name) != GENERATED && made.contains_key(&absolute(top, name));
    let tops = std::iter::successors(above(file), |top| above(top)).take(LEVELS);
    let top = tops.into_iter().find(|top| names.iter().any(|name| is_made(top, name)))?;
    at(&|name, recorded| {
        let path = absolute(top, name);
        // A file that existed before may be newer here than where the result was recorded.
        let there = || larder_sys::stat(&path).ok().and_then(|stat| u64::try_from(stat.modified_ns).ok());
        made.get(&path).copied().or_else(there).map_or(recorded, |time| time.max(recorded))
    })
}

/// Returns the directory of a path.
fn above(path: &[u8]) -> Option<&[u8]> {
    path.iter().rposition(|byte| *byte == b'/').map(|slash| &path[..slash])
}

/// Makes a path of ninja's absolute. Such paths have `..` only at their start.
fn absolute(top: &[u8], name: &[u8]) -> Vec<u8> {
    if name.starts_with(b"/") {
        return name.to_vec();
    }
    let (mut top, mut name) = (top, name);
    while let Some(rest) = name.strip_prefix(b"../") {
        (top, name) = (above(top).unwrap_or_default(), rest);
    }
    [top, b"/", name].concat()
}

fn nanoseconds(time: SystemTime) -> Option<u64> {
    u64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: u64 = 1_700_000_000_000_000_000;

    fn log(lines: &[(&str, u64)]) -> Vec<u8> {
        let lines = lines.iter().map(|(name, time)| format!("0\t1\t{time}\t{name}\tbeef\n"));
        ["# ninja log v5\n".to_owned()].into_iter().chain(lines).collect::<String>().into_bytes()
    }

    #[test]
    fn names_begin_where_ninja_ran() {
        let made = |names: &[&str]| names.iter().map(|name| (name.as_bytes().to_vec(), TIME + 5)).collect();
        let check = |file: &str, name: &str, path: &str, expect: Option<u64>| {
            let found = in_place(file.as_bytes(), &log(&[(name, TIME)]), &made(&[path]));
            assert_eq!(found, expect.map(|time| log(&[(name, time)])), "{file} {name} {path}");
        };
        check("/b/.ninja_log", "x/a.o", "/b/x/a.o", Some(TIME + 5));
        check("/b/.ninja_log", "/b/x/a.o", "/b/x/a.o", Some(TIME + 5));
        check("/b/.ninja_log", "../src/a.h", "/src/a.h", Some(TIME + 5));
        check("/b/out/.ninja_log", "out/a.o", "/b/out/a.o", Some(TIME + 5));
        check("/b/.ninja_log", "a.o", "/c/a.o", None);
        // This output is a generator's.
        check("/b/.ninja_log", "build.ninja", "/b/build.ninja", None);
        let both = log(&[("build.ninja", TIME), ("a.o", TIME)]);
        let found = in_place(b"/b/.ninja_log", &both, &made(&["/b/build.ninja", "/b/a.o"]));
        assert_eq!(found, Some(log(&[("build.ninja", TIME + 5), ("a.o", TIME + 5)])));
    }
}
