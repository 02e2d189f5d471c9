//! Rewrites a result that was recorded in another checkout, so that it holds this checkout's paths.
//!
//! Unaware of: which results may be rewritten (`larder-portability` decided that when the run was recorded), how
//! each kind of file is rewritten (`larder-relocate`).

use larder_compiler::{has_cmake_rules, is_config_status};
use larder_model::{ActionResult, Content, Output, OutputKind, Rewrite, Roots, Streams};
use larder_portability::rule;
use larder_relocate::{BuildMake, Places, Rule, holds_a_root, relocate, rule_hashes_at, unmeasured};
use larder_store::{StatCache, Store};

/// Files larger than this are not rewritten, in bytes, because they are rewritten in memory.
const BYTES_MAX: u64 = 256 << 20;

/// Returns the rewritten contents of a result, in the order in which `apply` uses them. The list is
/// empty if the result was made here. Returns `None` if a content cannot be rewritten.
pub fn rewritten(result: &ActionResult, roots: &Roots, store: &Store, stat_cache: &StatCache) -> Option<Vec<Vec<u8>>> {
    let here: Vec<&[u8]> = roots.all().collect();
    if !result.is_rewritten() || result.origin == here {
        return Some(Vec::new());
    }
    let places = Places { from: &result.origin, to: here.get(..result.origin.len())? };
    let old = |content: &Content| {
        let few = content.size_bytes() <= BYTES_MAX;
        few.then(|| store.content_bytes(content, stat_cache).ok()).flatten()
    };
    let new = |rewrite, content: &Content| match (rule(rewrite), old(content)?) {
        (Some(rule), bytes) => relocate(rule, &bytes, &places),
        (None, bytes) => Some(bytes),
    };
    let again = |(rewrite, content): (Rewrite, Content)| match rewrite {
        Rewrite::None => None,
        Rewrite::RuleHashes => Some(old(&content).and_then(|hashes| rule_hashes(result, &hashes, &old, &new))),
        _ => Some(new(rewrite, &content)),
    };
    contents(result).filter_map(again).collect()
}

/// Returns `CMakeRuleHashes.txt` for this place. `old` returns a content as it was recorded, and
/// `new` as it is here.
fn rule_hashes(
    result: &ActionResult,
    hashes: &[u8],
    old: &dyn Fn(&Content) -> Option<Vec<u8>>,
    new: &dyn Fn(Rewrite, &Content) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let both = |output: &Output| match &output.kind {
        OutputKind::File { rewrite, content, .. } => Some((old(content)?, new(*rewrite, content)?)),
        _ => None,
    };
    let files = result.outputs.iter().filter(|output| has_cmake_rules(output.path));
    let files: Vec<(Vec<u8>, Vec<u8>)> = files.map(both).collect::<Option<_>>()?;
    let makefiles: Vec<BuildMake> = files.iter().map(|(old, new)| BuildMake { from: old, to: new }).collect();
    rule_hashes_at(hashes, &makefiles)
}

/// Returns an object with neutral paths in place of its roots, so that it is equal in all
/// checkouts. Returns `None` if it holds no root, or if it cannot be rewritten.
pub fn object_anywhere(bytes: &[u8], roots: &Roots) -> Option<Vec<u8>> {
    let here: Vec<&[u8]> = roots.all().collect();
    if !holds_a_root(bytes, &here) {
        return None;
    }
    let nowhere = here.iter().enumerate().map(|(number, path)| match path.first() {
        Some(b'/') => format!("/.larder-root-{number}").into_bytes(),
        _ => format!("larder-name-{number}").into_bytes(),
    });
    let nowhere: Vec<Vec<u8>> = nowhere.collect();
    let nowhere: Vec<&[u8]> = nowhere.iter().map(Vec::as_slice).collect();
    relocate(Rule::Object, bytes, &Places { from: &here, to: &nowhere })
}

/// Returns the text of a file in which nothing depends on the length of a path: autoconf's
/// `config.status` with each value in one piece, and a pickle of Python without lengths. Returns
/// `None` for a file of any other name. The directory of the path may be missing.
pub fn uncut(path: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
    match path {
        path if is_config_status(path) => larder_relocate::uncut(bytes),
        path if path.ends_with(b".dat") => unmeasured(bytes),
        _ => None,
    }
}

/// Returns the result with the rewritten contents in place.
pub fn apply<'a>(result: &ActionResult<'a>, rewritten: &'a [Vec<u8>]) -> ActionResult<'a> {
    let mut result = result.clone();
    if rewritten.is_empty() {
        return result;
    }
    let mut next = rewritten.iter();
    let mut exchange = |rewrite: Rewrite, content: &mut Content<'a>| {
        if rewrite != Rewrite::None
            && let Some(bytes) = next.next()
        {
            *content = Content::Inline(bytes);
        }
    };
    match &mut result.streams {
        Streams::Apart { stdout, stderr } => {
            exchange(result.messages[0], stdout);
            exchange(result.messages[1], stderr);
        }
        Streams::Together(both) => exchange(result.messages[0], both),
    }
    for Output { kind, .. } in &mut result.outputs {
        if let OutputKind::File { rewrite, content, .. } = kind {
            exchange(*rewrite, content);
        }
    }
    result
}

/// Returns each content of a result with the rule for rewriting it.
fn contents<'r, 'a>(result: &'r ActionResult<'a>) -> impl Iterator<Item = (Rewrite, Content<'a>)> + 'r {
    let streams = result.messages.iter().zip(result.streams.iter()).map(|(rewrite, content)| (*rewrite, *content));
    let files = result.outputs.iter().filter_map(|output| match output.kind {
        OutputKind::File { rewrite, content, .. } => Some((rewrite, content)),
        _ => None,
    });
    streams.chain(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_model::{FileMode, ModeRule, Placement};

    #[test]
    fn messages_and_files_are_written_again_each_by_its_rule() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let stat_cache = StatCache::none();
        let mode = FileMode { bits: 0o666, rule: ModeRule::Masked };
        let file = |path, rewrite, content| {
            let placement = Placement::Truncate;
            Output::new(path, OutputKind::File { placement, mode, rewrite, content: Content::Inline(content) })
        };
        let streams = Streams::Apart { stdout: Content::Inline(b"/a/x"), stderr: Content::Inline(b"/a/x.c:1: no\n") };
        let result = ActionResult {
            origin: vec![b"/a"],
            messages: [Rewrite::None, Rewrite::Text],
            outputs: vec![file(b"plain", Rewrite::None, b"/a/x"), file(b"x.d", Rewrite::GccDepfile, b"x.o: /a/x.c\n")],
            ..ActionResult::of(streams)
        };
        let roots = Roots::new([b"/bb".to_vec()]);
        let bytes = rewritten(&result, &roots, &store, &stat_cache).expect("can be written again");
        let there = apply(&result, &bytes);
        let expect = Streams::Apart { stdout: Content::Inline(b"/a/x"), stderr: Content::Inline(b"/bb/x.c:1: no\n") };
        assert_eq!(there.streams, expect);
        assert_eq!(there.outputs[0], result.outputs[0]);
        assert_eq!(there.outputs[1], file(b"x.d", Rewrite::GccDepfile, b"x.o: /bb/x.c\n"));
        let same = Roots::new([b"/a".to_vec()]);
        assert_eq!(rewritten(&result, &same, &store, &stat_cache), Some(Vec::new()));
    }
}
