//! Reads a Markdown document: its links, the anchors of its headings, and its examples.
//!
//! These blocks of a document are examples:
//!
//! | block | meaning |
//! |---|---|
//! | fenced, with `file=PATH` behind its language | a file, which is written to PATH |
//! | fenced, `console` | commands, and what they print |
//! | an HTML comment that begins with `<!-- run:` | a script that readers do not see, for preparations |
//! | an HTML comment `<!-- needs: gcc make -->` | programs without which the page's examples are skipped |
//!
//! In a `console` block a line `$ COMMAND` is a command. Lines `> …` directly after it continue it.
//! The other lines are what it prints; none means that any output is right. A comment
//! `# exits with 11` at the end of a command is its exit code.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use std::collections::{BTreeSet, HashMap};

/// A document.
#[derive(Debug)]
pub(super) struct Page {
    /// The path in the repository, for example `docs/store.md`.
    pub(super) path: String,
    pub(super) links: Vec<Link>,
    pub(super) anchors: BTreeSet<String>,
    pub(super) needs: Vec<String>,
    pub(super) steps: Vec<Step>,
}

/// A link or an image.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) line: usize,
    pub(super) target: String,
}

/// A part of a page's examples, with its line in the document.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    File { path: String, text: String },
    Prepare { line: usize, script: String },
    Run(Run),
}

/// A command of a `console` block.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) line: usize,
    pub(super) command: String,
    pub(super) exit_code: i32,
    /// The lines that it prints. Empty if they are not stated.
    pub(super) output: Vec<String>,
}

/// What the parser is in.
enum Within {
    Text,
    /// A heading: its text.
    Heading(String),
    /// A fenced block: its line, what stands behind the fence, and its text.
    Block(usize, String, String),
    Comment(usize, String),
}

impl Page {
    /// Reads a document. Links in headings and in code are not links.
    pub(super) fn read(path: &str, text: &str) -> Self {
        let (links, anchors, needs, steps) = Default::default();
        let mut page = Self { path: path.to_owned(), links, anchors, needs, steps };
        let mut within = Within::Text;
        let mut seen = HashMap::new();
        let line = |at: usize| text[..at].matches('\n').count() + 1;
        for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            match (event, &mut within) {
                (Event::Start(Tag::Heading { .. }), _) => within = Within::Heading(String::new()),
                (Event::Text(part) | Event::Code(part), Within::Heading(heading)) => *heading += &part,
                (Event::End(TagEnd::Heading(_)), Within::Heading(heading)) => {
                    page.anchors.insert(unique(anchor(heading), &mut seen));
                    within = Within::Text;
                }
                (Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }), _) => {
                    page.links.push(Link { line: line(range.start), target: dest_url.into_string() });
                }
                (Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))), _) => {
                    within = Within::Block(line(range.start), info.into_string(), String::new());
                }
                (Event::Text(part), Within::Block(.., block)) => *block += &part,
                (Event::End(TagEnd::CodeBlock), Within::Block(line, info, block)) => {
                    page.steps.extend(steps_of(*line, info, block));
                    within = Within::Text;
                }
                (Event::Start(Tag::HtmlBlock), _) => within = Within::Comment(line(range.start), String::new()),
                (Event::Html(part), Within::Comment(_, comment)) => *comment += &part,
                (Event::End(TagEnd::HtmlBlock), Within::Comment(line, comment)) => {
                    read_comment(&mut page, *line, comment);
                    within = Within::Text;
                }
                _ => {}
            }
        }
        page
    }
}

fn read_comment(page: &mut Page, line: usize, comment: &str) {
    let Some(inner) = comment.trim().strip_prefix("<!--").and_then(|rest| rest.strip_suffix("-->")) else { return };
    let inner = inner.trim();
    if let Some(programs) = inner.strip_prefix("needs:") {
        page.needs.extend(programs.split_whitespace().map(str::to_owned));
    } else if let Some(script) = inner.strip_prefix("run:") {
        page.steps.push(Step::Prepare { line, script: script.trim().to_owned() });
    }
}

fn steps_of(line: usize, info: &str, text: &str) -> Vec<Step> {
    let mut words = info.split_whitespace();
    let is_console = words.next() == Some("console");
    if let Some(path) = words.find_map(|word| word.strip_prefix("file=")) {
        return vec![Step::File { path: path.to_owned(), text: text.to_owned() }];
    }
    if is_console { console(line, text).into_iter().map(Step::Run).collect() } else { Vec::new() }
}

/// Reads the commands of a `console` block, whose fence is in line `fence`.
fn console(fence: usize, text: &str) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let last = runs.last_mut();
        if let Some(command) = line.strip_prefix("$ ") {
            let (command, exit_code) = exit_code(command);
            runs.push(Run { line: fence + 1 + number, command, exit_code, output: Vec::new() });
        } else if let Some(last) = last {
            match line.strip_prefix("> ").filter(|_| last.output.is_empty()) {
                Some(more) => last.command = format!("{}\n{more}", last.command),
                None => last.output.push(line.to_owned()),
            }
        }
    }
    runs
}

/// Splits a comment `# exits with N` from a command.
fn exit_code(command: &str) -> (String, i32) {
    let stated = command.rsplit_once("# exits with ");
    match stated.and_then(|(command, code)| Some((command, code.trim().parse().ok()?))) {
        Some((command, code)) => (command.trim_end().to_owned(), code),
        None => (command.to_owned(), 0),
    }
}

/// Returns the anchor of a heading, as code hosting sites and mdbook make it: in lower case, without
/// punctuation, with hyphens for spaces.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter_map(|char| match char {
        ' ' => Some('-'),
        '-' | '_' => Some(char),
        _ => char.is_alphanumeric().then_some(char),
    });
    kept.flat_map(char::to_lowercase).collect()
}

/// Adds a number to an anchor that exists already.
fn unique(anchor: String, seen: &mut HashMap<String, usize>) -> String {
    let count = seen.entry(anchor.clone()).or_default();
    *count += 1;
    if *count == 1 { anchor } else { format!("{anchor}-{}", *count - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "<!-- needs: gcc make -->\n# The `-x` option, and more\n\n[a](b.md#c) ![d](e.png)\n\n\
        ```c file=src/x.c\nint x;\n```\n\n```\n$ not run\n```\n\n<!-- run:\ntouch y\n-->\n\n1. Do this:\n\n   ```console\n   \
        $ cat > z <<'END'\n   > text\n   > END\n   $ false   # exits with 1\n   one …\n    two\n   ```\n\n## Twice\n\n## Twice\n";

    #[test]
    fn links_anchors_and_examples() {
        let page = Page::read("a.md", TEXT);
        let targets: Vec<_> = page.links.iter().map(|link| (link.line, link.target.as_str())).collect();
        assert_eq!(targets, [(4, "b.md#c"), (4, "e.png")]);
        let anchors: Vec<_> = page.anchors.iter().map(String::as_str).collect();
        assert_eq!(anchors, ["the--x-option-and-more", "twice", "twice-1"]);
        assert_eq!(page.needs, ["gcc", "make"]);
        let run = |line, command: &str, exit_code, output: &[&str]| {
            let output = output.iter().map(|&line| line.to_owned()).collect();
            Step::Run(Run { line, command: command.to_owned(), exit_code, output })
        };
        let expected = [
            Step::File { path: "src/x.c".to_owned(), text: "int x;\n".to_owned() },
            Step::Prepare { line: 14, script: "touch y".to_owned() },
            run(21, "cat > z <<'END'\ntext\nEND", 0, &[]),
            run(24, "false", 1, &["one …", " two"]),
        ];
        assert_eq!(page.steps, expected);
    }
}
