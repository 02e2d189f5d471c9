//! A result that was made in another place, as it would have been made here.
//!
//! Unaware of: which results may be written again (`reach` decided that when it was recorded), and how each kind of
//! bytes is written again (`larder-relocate`).

use larder_compiler::is_config_status;
use larder_model::{ActionResult, Content, Output, OutputKind, Rewrite, Roots, Streams};
use larder_relocate::{Places, Rule, Writer, holds_a_root, relocate};
use larder_store::{Stamps, Store};

/// More than this is not written again: it would take memory without end.
const BYTES_MAX: u64 = 256 << 20;

/// The rule of `larder-relocate` for a rewrite.
pub fn rule(rewrite: Rewrite) -> Option<Rule> {
    match rewrite {
        Rewrite::None => None,
        Rewrite::Text => Some(Rule::Text),
        Rewrite::GccDepfile => Some(Rule::Depfile(Writer::Gcc)),
        Rewrite::ClangDepfile => Some(Rule::Depfile(Writer::Clang)),
        Rewrite::Object => Some(Rule::Object),
        Rewrite::Pickle => Some(Rule::Pickle),
        Rewrite::LooseText => Some(Rule::LooseText),
        Rewrite::NinjaDependencies => Some(Rule::NinjaDependencies),
        Rewrite::AsLong => Some(Rule::AsLong),
        Rewrite::ConfigStatus => Some(Rule::ConfigStatus),
    }
}

/// What a result needs written again for this place, in the order in which `apply` takes it: nothing where it was made
/// here.
/// `None` where it cannot be done.
pub fn rewritten(result: &ActionResult, roots: &Roots, store: &Store, stamps: &Stamps) -> Option<Vec<Vec<u8>>> {
    let here: Vec<&[u8]> = roots.all().map(Vec::as_slice).collect();
    if !result.is_rewritten() || result.origin == here {
        return Some(Vec::new());
    }
    let places = Places { from: &result.origin, to: here.get(..result.origin.len())? };
    let again = |(rewrite, content): (Rewrite, Content)| {
        let rule = rule(rewrite)?;
        if content.size_bytes() > BYTES_MAX {
            return Some(None);
        }
        Some(store.content_bytes(&content, stamps).ok().and_then(|bytes| relocate(rule, &bytes, &places)))
    };
    contents(result).filter_map(again).collect()
}

/// An object that holds a root, as it is in no place: the same for all objects that the same build makes. `None` where
/// it holds none, and where it cannot be written again.
pub fn object_anywhere(bytes: &[u8], roots: &Roots) -> Option<Vec<u8>> {
    let here: Vec<&[u8]> = roots.all().map(Vec::as_slice).collect();
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

/// autoconf's `config.status` with its values in one piece each, by the file's name.
pub fn uncut(path: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
    is_config_status(path).then(|| larder_relocate::uncut(bytes)).flatten()
}

/// The result with these bytes in it.
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

/// Every content with what becomes of it elsewhere.
fn contents<'r, 'a>(result: &'r ActionResult<'a>) -> impl Iterator<Item = (Rewrite, Content<'a>)> + 'r {
    let streams = match result.streams {
        Streams::Apart { stdout, stderr } => [Some((result.messages[0], stdout)), Some((result.messages[1], stderr))],
        Streams::Together(both) => [Some((result.messages[0], both)), None],
    };
    let files = result.outputs.iter().filter_map(|output| match output.kind {
        OutputKind::File { rewrite, content, .. } => Some((rewrite, content)),
        _ => None,
    });
    streams.into_iter().flatten().chain(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_model::{FileMode, ModeRule, Placement};

    #[test]
    fn messages_and_files_are_written_again_each_by_its_rule() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let stamps = Stamps::none();
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
        let bytes = rewritten(&result, &roots, &store, &stamps).expect("can be written again");
        let there = apply(&result, &bytes);
        let expect = Streams::Apart { stdout: Content::Inline(b"/a/x"), stderr: Content::Inline(b"/bb/x.c:1: no\n") };
        assert_eq!(there.streams, expect);
        assert_eq!(there.outputs[0], result.outputs[0]);
        assert_eq!(there.outputs[1], file(b"x.d", Rewrite::GccDepfile, b"x.o: /bb/x.c\n"));
        let same = Roots::new([b"/a".to_vec()]);
        assert_eq!(rewritten(&result, &same, &store, &stamps), Some(Vec::new()));
    }
}
