//! Keeps four habits out of comments and documents that make them hard to read.
//!
//! The test fails if any file has a finding, and prints each with its line.
//!
//! | kind | finding |
//! |---|---|
//! | `long` | a line over 100 columns in a document, except in tables, in code, and for a link |
//! | `who` | `nobody`, `somebody`, `whoever` and so on; and `who`, if no word for people precedes it |
//! | `same` | a doc comment that begins with "The same", "As above" or "Likewise" |
//! | `verb` | a doc comment of a function whose first sentence has no verb |
//!
//! Unaware of: the grammar of Rust and of English. It does not read text in backticks or in code
//! blocks.

use std::process::Command;

use larder_testkit::workspace;

const COLUMNS_MAX: usize = 100;

/// Documents that `cargo xtask bench` writes.
const WRITTEN_BY_PROGRAMS: &str = "benches/results/";

/// Programs and files are things, so none of these words is right for them. For people there are
/// "no user", "someone" and "everyone".
const PERSONS: &[&str] = &["nobody", "somebody", "everybody", "anybody", "whoever"];

/// "who" is right after a word for people.
const PEOPLE: &str = "anyone attacker attackers author authors colleague colleagues contributor contributors developer \
    developers engineer engineers everyone maintainer maintainers newcomer newcomers people person reader \
    readers reviewer reviewers someone stranger strangers user users";

const EMPTY_BEGINNINGS: &[&str] = &["The same", "As above", "Likewise"];

/// A sentence with one of these words has a verb, whatever its first word is.
const VERBS: &[&str] = &[
    "are", "can", "cannot", "did", "do", "does", "had", "has", "have", "is", "may", "must", "need", "should", "was",
    "were", "will", "would",
];

/// These words end like a verb in the third person, and are none.
const NO_VERBS: &[&str] = &["As", "Its", "This", "Thus", "Always", "Perhaps", "Sometimes", "Besides", "Unless"];

/// A line of prose: its number from 1, and its text without comment marks.
type Line = (usize, String);

/// Returns the prose in a file: the lines of a document outside code blocks, or the comments of a
/// source.
fn prose(path: &str, text: &str) -> Vec<Line> {
    let mut found = Vec::new();
    let (mut is_code, mut is_block) = (false, false);
    for (number, line) in text.lines().enumerate() {
        let comment = match path.rsplit('.').next() {
            Some("md") => Some(line),
            Some("sh") => line.split_once("# ").filter(|(before, _)| before.trim().is_empty()).map(|(_, text)| text),
            _ => comment(line, &mut is_block),
        };
        let Some(comment) = comment else {
            is_code = false;
            continue;
        };
        if comment.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            found.push((number + 1, comment.to_owned()));
        }
    }
    found
}

/// Returns the comment in a line of Rust or C. `is_block` is true within `/* … */`.
fn comment<'a>(line: &'a str, is_block: &mut bool) -> Option<&'a str> {
    let mut begin = 0;
    if !*is_block {
        // A mark after an odd number of quotes is within a string, and `dir/*` is a path.
        let is_outside = |at: &usize| {
            let before = &line[..*at];
            let quotes = before.matches('"').count() - before.matches(r#"\""#).count();
            quotes.is_multiple_of(2) && !(line[*at..].starts_with("/*") && before.ends_with(char::is_alphabetic))
        };
        let mut marks = line.match_indices("//").chain(line.match_indices("/* ")).map(|(at, _)| at);
        begin = marks.find(is_outside)?;
        *is_block = line[begin..].starts_with("/*");
    }
    let text = &line[begin..];
    let end = text.find("*/").filter(|_| *is_block);
    *is_block &= end.is_none();
    Some(text[..end.unwrap_or(text.len())].trim_start().trim_start_matches(['/', '*', '!']))
}

/// Returns the text without what is in backticks.
fn without_code(text: &str) -> String {
    text.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// Returns true if a line of a document holds nothing but a link, after the mark of a list.
fn is_link(line: &str) -> bool {
    let text = line.trim().trim_start_matches(['-', '*', '>', ' ']);
    let is_named =
        text.starts_with('[') && text.matches("](").count() == 1 && text.trim_end_matches('.').ends_with(')');
    is_named || text.contains("://") && text.split_whitespace().filter(|word| !word.ends_with("]:")).count() == 1
}

fn find_long(lines: &[Line], mut found: impl FnMut(usize, &str)) {
    for (number, line) in lines {
        if line.chars().count() > COLUMNS_MAX && !line.trim_start().starts_with('|') && !is_link(line) {
            found(*number, line);
        }
    }
}

fn find_who(lines: &[Line], mut found: impl FnMut(usize, &str)) {
    let mut before = String::new();
    for (number, line) in lines {
        let text = without_code(line);
        for word in text.split(|char: char| !char.is_alphabetic() && char != '`').filter(|word| !word.is_empty()) {
            let word = word.to_lowercase();
            if PERSONS.contains(&&*word) || word == "who" && !PEOPLE.split(' ').any(|people| people == before) {
                found(*number, line);
            }
            before = word;
        }
    }
}

/// A doc comment of Rust.
struct Doc {
    line: usize,
    text: String,
    attributes: String,
    /// The first line of code after it.
    item: String,
}

impl Doc {
    /// Returns true for a function that is not a test.
    fn is_of_function(&self) -> bool {
        let item = self.item.replace("pub(crate)", "").replace("pub(super)", "");
        let head = item.split(['(', '=', ';']).next().unwrap_or_default();
        head.split_whitespace().any(|word| word == "fn") && !self.attributes.contains("test]")
    }
}

fn docs(text: &str) -> Vec<Doc> {
    let mut docs = Vec::new();
    let mut lines = text.lines().map(str::trim).enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        let Some(mark) = ["///", "//!"].into_iter().find(|mark| line.starts_with(mark)) else { continue };
        let mut doc = Doc {
            line: number + 1,
            text: line[mark.len()..].trim().to_owned(),
            attributes: String::new(),
            item: String::new(),
        };
        while let Some((_, line)) = lines.next_if(|(_, line)| line.starts_with(mark)) {
            doc.text = format!("{} {}", doc.text, line[mark.len()..].trim());
        }
        while let Some((_, line)) = lines.next_if(|(_, line)| line.starts_with("#[")) {
            doc.attributes += line;
        }
        doc.item = lines.peek().map_or("", |(_, line)| line).to_owned();
        docs.push(doc);
    }
    docs
}

/// Returns true if the first sentence has a verb: its first word, or the first after a comma or a
/// colon, ends in "s"; or one of `VERBS` is in it.
fn has_verb(doc: &str) -> bool {
    let sentence = doc.split(". ").next().unwrap_or_default().trim_end_matches('.');
    let is_third_person = |word: &str| word.ends_with('s') && !NO_VERBS.contains(&word) && word.len() > 2;
    let beginnings = sentence.split([',', ':', ';']).filter_map(|part| part.split_whitespace().next());
    let mut words = sentence.split(|char: char| !char.is_alphabetic());
    doc.starts_with("Like ") || beginnings.into_iter().any(is_third_person) || words.any(|word| VERBS.contains(&word))
}

fn find_in_docs(text: &str, mut found: impl FnMut(&'static str, usize, &str)) {
    for doc in docs(text) {
        if EMPTY_BEGINNINGS.iter().any(|beginning| doc.text.starts_with(beginning)) {
            found("same", doc.line, &doc.text);
        }
        if doc.is_of_function() && !has_verb(&doc.text) {
            found("verb", doc.line, &doc.text);
        }
    }
}

/// Returns the findings in the files that git tracks, a line for each.
fn findings() -> String {
    let words = ["ls-files", "--", "*.rs", "*.c", "*.h", "*.md", "*.sh"];
    let output = Command::new("git").args(words).current_dir(workspace()).output().expect("cannot start git");
    assert!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    let mut findings = String::new();
    for path in String::from_utf8(output.stdout).expect("a path is not UTF-8").lines() {
        // A file that was removed and is still in the index.
        let Ok(text) = std::fs::read_to_string(workspace().join(path)) else { continue };
        if path.starts_with(WRITTEN_BY_PROGRAMS) {
            continue;
        }
        let mut found = |kind: &str, number: usize, text: &str| {
            findings += &format!("{path}:{number}: {kind}: {}\n", text.trim());
        };
        let lines = prose(path, &text);
        if path.ends_with(".md") {
            find_long(&lines, |number, text| found("long", number, text));
        }
        find_who(&lines, |number, text| found("who", number, text));
        if path.ends_with(".rs") {
            find_in_docs(&text, found);
        }
    }
    findings
}

#[test]
fn prose_has_no_findings() {
    let findings = findings();
    assert!(findings.is_empty(), "\n{findings}");
}

#[test]
fn finds_each_habit() {
    let who = |path: &str, text: &str| {
        let mut count = 0;
        find_who(&prose(path, text), |_, _| count += 1);
        count
    };
    assert_eq!(who("a.rs", "// Nobody waits for who reads.\nlet nobody = \"// who\"; // anybody\n"), 3);
    assert_eq!(who("a.c", "/* A user\n * who waits, and `nobody` */ int who;\n/* whoever */"), 1);
    assert_eq!(who("a.md", "People who read.\n\n```\nwho\n```\nThose who write.\n"), 1);
    assert_eq!(who("a.sh", "#!/bin/sh\n# who\necho who\n"), 1);
    let mut long = Vec::new();
    let text = ["| a |", "- [a](", "https://", "x"].map(|begin| format!("{begin}{})\n", "y".repeat(100))).concat();
    find_long(&prose("a.md", &text), |number, _| long.push(number));
    assert_eq!(long, [4]);
    let mut docs = Vec::new();
    let text = "//! Likewise.\n/// The length\nfn a() {}\n/// Returns it.\npub(crate) const fn b() {}\n\
                /// With a file, reads it.\nfn c() {}\n/// The length\nlength: u8,\n/// A case\n#[test]\nfn d() {}\n";
    find_in_docs(text, |kind, number, _| docs.push((kind, number)));
    assert_eq!(docs, [("same", 1), ("verb", 2)]);
}
