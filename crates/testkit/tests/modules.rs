//! Finds modules that use each other in a cycle.
//!
//! The test fails if any crate has a cycle, and prints each with the uses that make it.
//!
//! The rules:
//!
//! 1. Module `a` uses module `b` if a path in `a` leads to an item that `b` defines, in a `use` or
//!    anywhere else. The path counts for the module that defines the item, not for one that
//!    re-exports it.
//! 2. `mod` and re-exports (`pub use`, `pub(crate) use`) are not uses. So a parent may declare its
//!    children and re-export their items. `use crate::b;` is not a use either, because it only
//!    makes a short name for `b`. Each `b::item` is one.
//! 3. Otherwise a parent and its child are modules like any others: the parent may use the child,
//!    or the child the parent, but not both.
//! 4. Code under `#[cfg(test)]` does not count. Code for every platform does.
//! 5. A cycle is a strongly connected component of more than one module: each uses every other,
//!    directly or through others.
//!
//! Unaware of: types. It does not see that a method or a field of another module is used, only
//! paths.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use larder_testkit::{cargo, workspace};
use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use serde_json::Value;

/// The path of a module from the root of its crate, which is the empty path.
type Name = Vec<String>;

/// A path in the source, such as `super::table::Row`, in segments.
type Segments = Vec<String>;

/// One place where a module uses a path.
struct Use {
    segments: Segments,
    place: String,
    /// Whether it is a private `use` declaration.
    is_import: bool,
}

/// Where a path leads.
enum Found {
    /// To an item that this module defines.
    Item(Name),
    /// To this module itself.
    Module(Name),
    /// Out of the crate.
    Outside,
}

/// What the text of one module says.
#[derive(Default)]
struct Module {
    children: BTreeSet<String>,
    defined: BTreeSet<String>,
    /// The names that `use` declarations make, and their paths.
    aliases: BTreeMap<String, Segments>,
    /// The names among them that are re-exports.
    exported: BTreeSet<String>,
    globs: Vec<Segments>,
    uses: Vec<Use>,
}

/// The modules of one crate.
#[derive(Default)]
struct Crate {
    modules: BTreeMap<Name, Module>,
}

/// Where the reader is: in which module, in which file, and where files of child modules lie.
#[derive(Clone)]
struct Here {
    name: Name,
    file: PathBuf,
    directory: PathBuf,
}

impl Crate {
    fn read(root: &Path) -> Self {
        let mut read = Self::default();
        let directory = root.parent().expect("a file lies in a directory").to_owned();
        read.file(Here { name: Vec::new(), file: root.to_owned(), directory });
        read
    }

    fn file(&mut self, here: Here) {
        let text = std::fs::read_to_string(&here.file).unwrap_or_else(|error| panic!("{:?}: {error}", here.file));
        let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{:?}: {error}", here.file));
        self.modules.insert(here.name.clone(), Module::default());
        self.walk(&tokens.into_iter().collect::<Vec<_>>(), &here);
    }

    fn module(&mut self, here: &Here) -> &mut Module {
        self.modules.get_mut(&here.name).expect("the module is known")
    }

    /// Reads tokens of one module: items, bodies, and the groups within them.
    fn walk(&mut self, tokens: &[TokenTree], here: &Here) {
        let mut at = 0;
        while at < tokens.len() {
            at += match &tokens[at] {
                TokenTree::Punct(punct) if punct.as_char() == '#' => match is_test(&tokens[at..]) {
                    true => item_length(&tokens[at..]),
                    false => 2,
                },
                // A lifetime or a label.
                TokenTree::Punct(punct) if punct.as_char() == '\'' => 2,
                TokenTree::Group(group) => {
                    self.walk(&group.stream().into_iter().collect::<Vec<_>>(), here);
                    1
                }
                TokenTree::Ident(ident) => self.word(ident, tokens, at, here),
                _ => 1,
            };
        }
    }

    /// Reads what begins with the identifier at this index; returns how many tokens that are.
    fn word(&mut self, ident: &Ident, tokens: &[TokenTree], at: usize, here: &Here) -> usize {
        match ident.to_string().as_str() {
            "mod" => self.child(tokens, at, here),
            "use" if !is_punct(tokens.get(at + 1), '<') => {
                let length = tokens[at..].iter().take_while(|token| !is_punct(Some(token), ';')).count();
                let exported = is_visibility(&tokens[..at]);
                self.tree(&tokens[at + 1..at + length], &Vec::new(), exported, here);
                length
            }
            "pub" => match tokens.get(at + 1) {
                Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis && is_scope(group) => 2,
                _ => 1,
            },
            "fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static" => {
                let is_pointer = is_punct(at.checked_sub(1).map(|before| &tokens[before]), '*');
                match tokens.get(at + 1) {
                    Some(TokenTree::Ident(name)) if !is_pointer && !is_qualifier(name) => {
                        self.module(here).defined.insert(name.to_string());
                        2
                    }
                    _ => 1,
                }
            }
            "macro_rules" => {
                if let Some(TokenTree::Ident(name)) = tokens.get(at + 2) {
                    self.module(here).defined.insert(name.to_string());
                }
                3
            }
            _ => self.path(tokens, at, here),
        }
    }

    /// Reads `mod name;` or `mod name { … }`.
    fn child(&mut self, tokens: &[TokenTree], at: usize, here: &Here) -> usize {
        let Some(TokenTree::Ident(name)) = tokens.get(at + 1) else { return 1 };
        let name = name.to_string();
        let child = here.name.iter().cloned().chain([name.clone()]).collect();
        let directory = here.directory.join(&name);
        self.module(here).children.insert(name.clone());
        match tokens.get(at + 2) {
            Some(TokenTree::Group(group)) => {
                self.modules.entry(child).or_default();
                let here = Here { name: here.name.iter().cloned().chain([name]).collect(), directory, ..here.clone() };
                self.walk(&group.stream().into_iter().collect::<Vec<_>>(), &here);
            }
            _ => {
                let files = [here.directory.join(format!("{name}.rs")), directory.join("mod.rs")];
                let file = files.iter().find(|file| file.exists());
                let file = file.unwrap_or_else(|| panic!("{:?} declares `mod {name}`: no {files:?}", here.file));
                self.file(Here { name: child, file: file.clone(), directory });
            }
        }
        3
    }

    /// Reads a path with its first segment at this index.
    fn path(&mut self, tokens: &[TokenTree], at: usize, here: &Here) -> usize {
        let mut segments = Vec::new();
        let mut next = at;
        while let Some(TokenTree::Ident(segment)) = tokens.get(next) {
            segments.push(segment.to_string());
            next += 1;
            if !is_punct(tokens.get(next), ':') || !is_punct(tokens.get(next + 1), ':') {
                break;
            }
            next += 2;
        }
        let before = at.checked_sub(1).map(|before| &tokens[before]);
        if is_punct(before, '.') || is_punct(before, ':') && is_punct(tokens.get(at.wrapping_sub(2)), ':') {
            return next - at;
        }
        // A single lower-case word is the name of a variable, unless it is called.
        let is_called = matches!(tokens.get(next), Some(TokenTree::Group(_))) || is_punct(tokens.get(next), '!');
        if segments.len() > 1 || is_called || segments[0].starts_with(char::is_uppercase) {
            self.used(segments, &tokens[at], false, here);
        }
        next - at
    }

    fn used(&mut self, segments: Segments, token: &TokenTree, is_import: bool, here: &Here) {
        let file = here.file.strip_prefix(workspace()).unwrap_or(&here.file);
        let place = format!("{}:{}", file.display(), token.span().start().line);
        self.module(here).uses.push(Use { segments, place, is_import });
    }

    /// Reads the tree of a `use` declaration.
    fn tree(&mut self, tokens: &[TokenTree], prefix: &Segments, exported: bool, here: &Here) {
        let parts = tokens.split(|token| is_punct(Some(token), ','));
        for part in parts.filter(|part| !part.is_empty()) {
            let mut segments = prefix.clone();
            let mut alias = None;
            let mut tokens = part.iter().peekable();
            while let Some(token) = tokens.next() {
                match token {
                    TokenTree::Ident(word) if word == "as" => alias = tokens.next().map(|name| name.to_string()),
                    TokenTree::Ident(word) if word == "self" && !segments.is_empty() => {}
                    TokenTree::Ident(word) => segments.push(word.to_string()),
                    TokenTree::Group(group) => {
                        self.tree(&group.stream().into_iter().collect::<Vec<_>>(), &segments, exported, here);
                        segments.clear();
                    }
                    TokenTree::Punct(punct) if punct.as_char() == '*' => {
                        if !exported {
                            self.used(segments.clone(), token, true, here);
                        }
                        self.module(here).globs.push(std::mem::take(&mut segments));
                    }
                    _ => {}
                }
            }
            let Some(name) = alias.or_else(|| segments.last().cloned()) else { continue };
            if exported {
                self.module(here).exported.insert(name.clone());
            } else {
                self.used(segments.clone(), &part[0], true, here);
            }
            self.module(here).aliases.insert(name, segments);
        }
    }

    /// Returns where this path leads if it stands in the module `from`.
    fn resolve(&self, from: &Name, path: &[String], depth: usize) -> Found {
        // Two aliases may lead to each other if a crate and a module have the same name.
        const DEPTH_MAX: usize = 16;
        let mut name = match path.first().map(String::as_str) {
            _ if depth > DEPTH_MAX => return Found::Outside,
            Some("crate") => Vec::new(),
            Some("self") => from.clone(),
            Some("super") => from.split_last().map_or_else(Vec::new, |(_, parent)| parent.to_vec()),
            _ => return self.resolve_in(from, path, depth).unwrap_or(Found::Outside),
        };
        let mut rest = &path[1..];
        while rest.first().is_some_and(|segment| segment == "super") {
            name.pop();
            rest = &rest[1..];
        }
        match rest {
            [] => Found::Module(name),
            _ => self.resolve_in(&name, rest, depth).unwrap_or(Found::Item(name)),
        }
    }

    /// Returns where a path leads whose first segment is a name in the module `name`, or `None` if
    /// nothing says what that name is.
    fn resolve_in(&self, name: &Name, path: &[String], depth: usize) -> Option<Found> {
        let module = self.modules.get(name)?;
        let (first, rest) = path.split_first()?;
        let alias = module.aliases.get(first).filter(|target| **target != path);
        let is_item = rest.is_empty() && (alias.is_some() || module.defined.contains(first));
        if module.children.contains(first) && !is_item {
            let child: Name = name.iter().cloned().chain([first.clone()]).collect();
            return Some(match rest {
                [] => Found::Module(child),
                _ => self.resolve_in(&child, rest, depth).unwrap_or(Found::Item(child)),
            });
        }
        if module.defined.contains(first) {
            return Some(Found::Item(name.clone()));
        }
        if let Some(target) = alias {
            let whole: Segments = target.iter().chain(rest).cloned().collect();
            return Some(self.resolve(name, &whole, depth + 1));
        }
        module.globs.iter().find_map(|glob| match self.resolve(name, glob, depth + 1) {
            Found::Module(target) if target != *name && depth < 4 => {
                self.resolve_in(&target, path, depth + 1).filter(|found| !matches!(found, Found::Outside))
            }
            _ => None,
        })
    }

    /// Returns for each module the modules that it uses, with the place and the path of each use.
    fn edges(&self) -> BTreeMap<(Name, Name), Vec<String>> {
        let mut edges = BTreeMap::<_, Vec<String>>::new();
        for (name, module) in &self.modules {
            for used in &module.uses {
                let path = &used.segments;
                // A name that a private import made: the import counts, not each place that uses
                // the name.
                let is_imported = module.aliases.contains_key(&path[0]) && !module.exported.contains(&path[0]);
                if path.len() == 1 && !used.is_import && is_imported {
                    continue;
                }
                if let Found::Item(target) = self.resolve(name, path, 0)
                    && target != *name
                {
                    let text = format!("{}  {}", used.place, path.join("::"));
                    edges.entry((name.clone(), target)).or_default().push(text);
                }
            }
        }
        edges
    }
}

fn is_punct(token: Option<&TokenTree>, char: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == char)
}

/// Returns true for a word that may stand between `const` or `static` and a name.
fn is_qualifier(word: &Ident) -> bool {
    ["fn", "unsafe", "extern", "async", "mut"].iter().any(|qualifier| word == qualifier)
}

/// Returns true if the tokens begin with `#[cfg(test)]` or `#[cfg(all(test, …))]`.
fn is_test(tokens: &[TokenTree]) -> bool {
    let Some(TokenTree::Group(attribute)) = tokens.get(1) else { return false };
    let text: String = attribute.stream().to_string().split_whitespace().collect();
    text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

/// Returns the number of tokens of the item, with its attributes, that begins here.
fn item_length(tokens: &[TokenTree]) -> usize {
    let mut at = 0;
    while is_punct(tokens.get(at), '#') {
        at += 2;
    }
    let is_use = tokens[at..].iter().take(3).any(|token| matches!(token, TokenTree::Ident(word) if word == "use"));
    let ends = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace && !is_use,
        _ => is_punct(Some(token), ';'),
    };
    tokens[at..].iter().position(ends).map_or(tokens.len(), |length| at + length + 1)
}

/// Returns true if this is the group of `pub(crate)` or `pub(in path)`.
fn is_scope(group: &Group) -> bool {
    let first = group.stream().into_iter().next().map(|token| token.to_string());
    first.is_some_and(|first| ["crate", "super", "self", "in"].contains(&first.as_str()))
}

/// Returns true if the tokens end with `pub` or `pub(…)`.
fn is_visibility(tokens: &[TokenTree]) -> bool {
    match tokens {
        [.., TokenTree::Ident(word)] | [.., TokenTree::Ident(word), TokenTree::Group(_)] => word == "pub",
        _ => false,
    }
}

/// Returns the strongly connected components of more than one module.
fn cycles(edges: &BTreeMap<(Name, Name), Vec<String>>) -> BTreeSet<BTreeSet<Name>> {
    let mut reached = BTreeMap::<Name, BTreeSet<Name>>::new();
    for (from, _) in edges.keys() {
        let mut found = BTreeSet::new();
        let mut waiting = vec![from.clone()];
        while let Some(name) = waiting.pop() {
            let next = edges.keys().filter(|(from, _)| *from == name).map(|(_, to)| to.clone());
            waiting.extend(next.filter(|to| found.insert(to.clone())));
        }
        reached.insert(from.clone(), found);
    }
    let component = |name: &Name| {
        let both = |other: &&Name| reached.get(*other).is_some_and(|back| back.contains(name));
        reached[name].iter().filter(both).cloned().collect::<BTreeSet<_>>()
    };
    reached.keys().map(component).filter(|component| component.len() > 1).collect()
}

/// Returns each cycle with the uses that make it, as text.
fn listed(title: &str, read: &Crate) -> String {
    let shown = |name: &Name| if name.is_empty() { "crate".to_owned() } else { name.join("::") };
    let edges = read.edges();
    let mut text = String::new();
    for cycle in &cycles(&edges) {
        let names: Vec<_> = cycle.iter().map(shown).collect();
        let _ = writeln!(text, "\n{title}: {} modules: {}", cycle.len(), names.join(", "));
        for ((from, to), uses) in edges.iter().filter(|((a, b), _)| cycle.contains(a) && cycle.contains(b)) {
            let _ = writeln!(text, "  {} → {}", shown(from), shown(to));
            uses.iter().for_each(|used| text.push_str(&format!("      {used}\n")));
        }
    }
    text
}

/// Returns the root files of the libraries and programs of each package.
fn roots() -> BTreeMap<String, Vec<PathBuf>> {
    let metadata = cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&metadata).expect("not JSON");
    let mut roots = BTreeMap::<_, Vec<_>>::new();
    for package in metadata["packages"].as_array().expect("not a list") {
        let name = package["name"].as_str().expect("not a string");
        for target in package["targets"].as_array().expect("not a list") {
            let kind = target["kind"][0].as_str().expect("not a string");
            if ["lib", "bin", "cdylib"].contains(&kind) {
                let root = target["src_path"].as_str().expect("not a string");
                roots.entry(name.trim_start_matches("larder-").to_owned()).or_default().push(root.into());
            }
        }
    }
    roots
}

#[test]
fn modules_make_no_cycles() {
    let mut found = String::new();
    for (package, roots) in roots() {
        roots.iter().for_each(|root| found += &listed(&package, &Crate::read(root)));
    }
    assert!(found.is_empty(), "\n{found}");
}

#[test]
fn finds_cycles_by_the_rules() {
    let directory = tempfile::tempdir().expect("cannot create a directory");
    let cycles_of = |text: &str| {
        let root = directory.path().join("lib.rs");
        std::fs::write(&root, text).expect("cannot write the file");
        cycles(&Crate::read(&root).edges()).iter().map(BTreeSet::len).sum::<usize>()
    };
    // A parent uses a child, and the child its parent.
    assert_eq!(cycles_of("mod a { pub fn f() { super::g() } } fn g() { a::f() }"), 2);
    // A re-export is not a use, and a path counts for the module that defines the item.
    assert_eq!(cycles_of("pub use a::A; mod a { pub struct A; } mod b { use crate::A; pub fn f(_: A) {} }"), 0);
    assert_eq!(cycles_of("pub use a::A; mod a { pub struct A; fn f() { crate::b::f(A) } } mod b { use crate::A; }"), 2);
    // If the parent uses the name itself, that is a use.
    assert_eq!(cycles_of("pub use a::A; mod a { pub struct A; fn f() { crate::g(A) } } fn g(_: A) {}"), 2);
    // Three in a row are a cycle too, also inside a macro. A test is not part of one.
    let (a, b) = ("mod a { use crate::b::B; }", "mod b { use crate::c::C; struct B; }");
    assert_eq!(cycles_of(&format!("{a} {b} mod c {{ struct C; fn f() {{ x!(crate::a::f) }} }}")), 3);
    assert_eq!(cycles_of(&format!("{a} mod b {{ struct B; #[cfg(test)] mod t {{ use crate::a::f; }} }}")), 0);
    assert_eq!(cycles_of("mod a { use super::*; fn f() { g() } } fn g() {} fn h() { a::f() }"), 2);
}
