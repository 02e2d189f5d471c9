//! Finds every place where the compiler looked for a header, from the texts of all files that it
//! read.
//!
//! Each include directive is followed along the search list, starting in each directory that its
//! file may have been found in, up to the first file that exists. For example, if `-Ia -Ib` is
//! given and only `b/h.h` exists, then `#include <h.h>` makes `a/h.h` an absence. If several cases
//! cannot be told apart, all of them are tried: one stat too many costs a hit at worst.
//!
//! Unaware of: how a text is read.

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;

use larder_model::path::{absolute, parent};
use larder_model::{DepfilePlan, contains};

use super::looks::{Looks, PathKind};
use super::query::Search;
use super::reason::{Reason, text};
use super::scan::{Include, Scan, scan};

/// A run with a larger input is refused.
const INPUT_BYTES_MAX: u64 = 64 << 20;

/// A file that the compiler read.
struct Input {
    scan: Scan,
    /// The directories that it may have been found in.
    directories: Vec<Vec<u8>>,
    /// It is the source. The header that the source includes first may be precompiled.
    source: bool,
}

struct Resolve<'a> {
    plan: &'a DepfilePlan,
    search: &'a Search,
    looks: &'a mut Looks,
    inputs: Vec<Input>,
    by_identity: HashMap<(u64, u64), usize>,
    /// Inputs, each with one of its directories, whose directives are not followed yet.
    open: Vec<(usize, Vec<u8>)>,
    /// The directives that were followed along the search list already, each with whether a
    /// precompiled header was looked for.
    done: HashSet<(Include, bool)>,
}

/// Reads every input, and stats every place where the compiler looked for it.
pub(super) fn inputs(
    plan: &DepfilePlan,
    search: &Search,
    depfile: &[Vec<u8>],
    looks: &mut Looks,
) -> Result<(), Reason> {
    let (inputs, by_identity, open, done) = Default::default();
    let mut resolve = Resolve { plan, search, looks, inputs, by_identity, open, done };
    let system = resolve.directories()?;
    let source = absolute(&plan.cwd, &plan.source);
    resolve.not_precompiled(&source)?;
    for path in depfile {
        resolve.input(&absolute(&plan.cwd, path), &source, &system)?;
    }
    if !resolve.inputs.iter().any(|input| input.source) {
        return Err(format!("{}: the depfile does not name the source", text(&source)));
    }
    resolve.definitions()?;
    resolve.forced()?;
    while let Some((input, directory)) = resolve.open.pop() {
        resolve.follow(input, &directory)?;
    }
    resolve.assembler()
}

impl Resolve<'_> {
    /// Stats all search directories. Returns those that belong to the compiler itself, which no
    /// flag names.
    fn directories(&mut self) -> Result<Vec<Vec<u8>>, Reason> {
        let mut given = HashSet::new();
        for directory in self.plan.directories.iter().chain(&self.search.ignored) {
            if let PathKind::Directory(device, inode) = self.looks.look(directory)? {
                given.insert((device, inode));
            }
        }
        let mut system = Vec::new();
        for directory in self.search.quote.iter().chain(&self.search.bracket) {
            match self.looks.look(directory)? {
                PathKind::Directory(device, inode) if given.contains(&(device, inode)) => {}
                PathKind::Directory(..) if directory.first() == Some(&b'/') => system.push(directory.clone()),
                PathKind::Directory(..) => {}
                _ => return Err(format!("{}: a search directory that is not a directory", text(directory))),
            }
        }
        Ok(system)
    }

    fn input(&mut self, path: &[u8], source: &[u8], system: &[Vec<u8>]) -> Result<(), Reason> {
        let PathKind::File(device, inode) = self.looks.look(path)? else {
            return Err(format!("{}: an input that is not a regular file", text(path)));
        };
        let is_source = same_but_dot(path, source);
        let directory = parent(path).unwrap_or(b".").to_vec();
        if let Some(&known) = self.by_identity.get(&(device, inode)) {
            self.inputs[known].source |= is_source;
            self.found_in(known, directory);
            return Ok(());
        }
        let of_system = is_below(path, system);
        let place = larder_sys::as_path(path);
        let large = std::fs::metadata(place).is_ok_and(|meta| meta.len() > INPUT_BYTES_MAX);
        let content = std::fs::read(place).ok().filter(|_| !large);
        let content = content.ok_or_else(|| format!("{}: cannot be read", text(path)))?;
        let scan = scan(&content, of_system).map_err(|why| format!("{}: {why}", text(path)))?;
        self.by_identity.insert((device, inode), self.inputs.len());
        self.open.push((self.inputs.len(), directory.clone()));
        self.inputs.push(Input { scan, directories: vec![directory], source: is_source });
        Ok(())
    }

    /// Notes that an input was found in a directory: its quoted includes are looked up there first.
    fn found_in(&mut self, input: usize, directory: Vec<u8>) {
        let known = &mut self.inputs[input].directories;
        if !known.contains(&directory) {
            known.push(directory.clone());
            self.open.push((input, directory));
        }
    }

    /// Scans each `-D` as if the source defined the macro.
    fn definitions(&mut self) -> Result<(), Reason> {
        for definition in &self.plan.definitions {
            let line = [b"#define ", &definition[..], b"\n"].concat();
            let scan = scan(&line, false).map_err(|why| format!("-D{}: {why}", text(definition)))?;
            self.inputs.push(Input { scan, directories: Vec::new(), source: false });
        }
        Ok(())
    }

    /// Follows the headers that are included without a directive: by `-include`, by `-imacros`, and
    /// by gcc itself.
    fn forced(&mut self) -> Result<(), Reason> {
        let predefined = Include { name: b"stdc-predef.h".to_vec(), quoted: false, everywhere: false };
        self.include(&predefined, None, true)?;
        let source = absolute(&self.plan.cwd, &self.plan.source);
        let places = [self.plan.cwd.clone(), parent(&source).unwrap_or(b".").to_vec()];
        for name in &self.plan.forced {
            let include = Include { name: name.clone(), quoted: true, everywhere: true };
            for place in &places {
                self.include(&include, Some(place), true)?;
            }
        }
        Ok(())
    }

    fn follow(&mut self, input: usize, directory: &[u8]) -> Result<(), Reason> {
        let precompiled = self.inputs[input].source;
        let includes = std::mem::take(&mut self.inputs[input].scan.includes);
        let followed = includes.iter().try_for_each(|include| self.include(include, Some(directory), precompiled));
        self.inputs[input].scan.includes = includes;
        followed
    }

    fn include(&mut self, include: &Include, own: Option<&[u8]>, precompiled: bool) -> Result<(), Reason> {
        if include.name.starts_with(b"/") {
            return self.candidate(b"/", include, precompiled).map(|_| ());
        }
        if include.quoted
            && let Some(own) = own
            && self.candidate(own, include, precompiled)?
            && !include.everywhere
        {
            return Ok(());
        }
        if !self.done.insert((include.clone(), precompiled)) {
            return Ok(());
        }
        let search = self.search;
        let quote = search.quote.iter().filter(|_| include.quoted);
        for directory in quote.chain(&search.bracket) {
            let directory = absolute(&self.plan.cwd, directory);
            if self.candidate(&directory, include, precompiled)? && !include.everywhere {
                break;
            }
        }
        Ok(())
    }

    /// Looks for a header in one directory. Returns whether it exists.
    fn candidate(&mut self, directory: &[u8], include: &Include, precompiled: bool) -> Result<bool, Reason> {
        let path = absolute(directory, &include.name);
        if precompiled {
            self.not_precompiled(&path)?;
        }
        let PathKind::File(device, inode) = self.looks.look(&path)? else { return Ok(false) };
        if let Some(&input) = self.by_identity.get(&(device, inode)) {
            self.found_in(input, parent(&path).unwrap_or(b".").to_vec());
        }
        Ok(true)
    }

    /// Refuses if a precompiled header exists for `path`. gcc uses one for the first file that is
    /// included, and also looks for one of the source itself.
    fn not_precompiled(&mut self, path: &[u8]) -> Result<(), Reason> {
        for ending in [&b".gch"[..], b".pch"] {
            let precompiled = [path, ending].concat();
            if self.looks.look(&precompiled)? != PathKind::Absent {
                return Err(format!("{}: a precompiled header", text(&precompiled)));
            }
        }
        Ok(())
    }

    /// Refuses if assembler text may be pasted together. The pieces may come from any of the texts.
    fn assembler(&self) -> Result<(), Reason> {
        let any = |of: fn(&Scan) -> bool| self.inputs.iter().any(|input| of(&input.scan));
        if any(|scan| scan.assembler) && any(|scan| scan.pieces) {
            return Err("assembler text that may be pieced together".to_owned());
        }
        Ok(())
    }
}

/// Returns true if two paths differ only by `.` components and slashes. gcc and clang omit `./` at
/// the front of a relative path.
fn same_but_dot(path: &[u8], source: &[u8]) -> bool {
    let plain = |path: &[u8]| -> Vec<Vec<u8>> {
        path.split(|&b| b == b'/').filter(|part| !part.is_empty() && *part != b".").map(<[u8]>::to_vec).collect()
    };
    plain(path) == plain(source)
}

/// Returns true if a path is below one of the directories, either as text or once links and `..`
/// are resolved.
fn is_below(path: &[u8], directories: &[Vec<u8>]) -> bool {
    let below = |path: &[u8], directory: &[u8]| {
        let rest = path.strip_prefix(directory);
        rest.is_some_and(|rest| rest.starts_with(b"/") && !contains(rest, "/../"))
    };
    let real = |path: &[u8]| std::fs::canonicalize(larder_sys::as_path(path)).ok();
    directories.iter().any(|directory| {
        below(path, directory)
            || real(path)
                .zip(real(directory))
                .is_some_and(|(path, directory)| below(path.as_os_str().as_bytes(), directory.as_os_str().as_bytes()))
    })
}
