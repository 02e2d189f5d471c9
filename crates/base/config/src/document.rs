//! Turns the bytes of a configuration file into keys and values with their lines, or returns the
//! line that is not TOML.
//!
//! `toml_parser` handles the syntax. Here its events become a flat list, in which the keys of a
//! table are dotted keys. A value that no setting can have becomes one entry without its content:
//! an inline table, an array of tables, or an array of other things than strings.
//!
//! Unaware of: which keys there are, and what a value means.

use std::str;

use toml_parser::decoder::{Encoding, ScalarKind};
use toml_parser::parser::{EventReceiver, RecursionGuard, ValidateWhitespace, parse_document};
use toml_parser::{ErrorSink, Expected, ParseError, Source, Span};

/// The maximum nesting of arrays and inline tables. The parser recurses on our stack.
const DEPTH_MAX: u32 = 32;

/// One `key = value`, or the header of an array of tables.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConfigEntry {
    /// The key without quotes. It is dotted if it was written so or is in a table. A header keeps
    /// its brackets.
    pub(crate) key: String,
    /// Its line, counted from 1.
    pub(crate) line: usize,
    /// The value.
    pub(crate) value: Typed,
}

/// A value with the type given by its syntax.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    /// A string.
    Text(String),
    /// An integer in decimal digits, or `true` or `false`.
    Plain(String),
    /// An array of strings.
    List(Vec<String>),
    /// Anything else, as words for a message.
    Other(&'static str),
}

/// The reason why a file has no entries.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// This line is not UTF-8.
    NotUtf8 { line: usize },
    /// This line is not TOML.
    Syntax { line: usize, reason: String },
}

/// Returns all entries of a file with this content, in order.
pub(crate) fn entries(bytes: &[u8]) -> Result<Vec<ConfigEntry>, Unusable> {
    let line_at = |offset: usize| 1 + newlines(&bytes[..offset.min(bytes.len())]);
    let text = str::from_utf8(bytes).map_err(|error| Unusable::NotUtf8 { line: line_at(error.valid_up_to()) })?;
    let source = Source::new(text);
    let tokens = source.lex().into_vec();
    let mut fold = Fold::new(source);
    let mut error: Option<ParseError> = None;
    let mut checked = ValidateWhitespace::new(&mut fold, source);
    parse_document(&tokens, &mut RecursionGuard::new(&mut checked, DEPTH_MAX), &mut error);
    if let Some(error) = error {
        let offset = error.unexpected().or(error.context()).map_or(0, |span| span.start());
        return Err(Unusable::Syntax { line: line_at(offset), reason: reason(&error) });
    }
    let again = |what: &str, line| Err(Unusable::Syntax { line, reason: format!("this {what} is there twice") });
    match (repeated(&fold.entries), repeated(&fold.tables)) {
        (Some(entry), _) => again("key", entry.line),
        (None, Some(table)) => again("table", table.line),
        (None, None) => Ok(fold.entries),
    }
}

/// Builds the list of entries from the parser's events.
struct Fold<'s> {
    source: Source<'s>,
    entries: Vec<ConfigEntry>,
    /// The key or header that is being read, and its offset.
    key: Option<(String, usize)>,
    /// How much of the text was counted for lines: its length in bytes, and its newlines.
    counted: (usize, usize),
    /// The number of open arrays and inline tables.
    depth: usize,
    /// The strings in the outermost open array, as long as it contains nothing else.
    list: Option<Vec<String>>,
    /// The headers of tables.
    tables: Vec<ConfigEntry>,
    /// The table to which the following keys belong.
    table: Table,
}

/// The table of a key.
enum Table {
    /// No table: before any header.
    Top,
    /// The table with this name.
    Named(String),
    /// An array of tables. No setting is in one, so its keys are ignored.
    OfArray,
}

impl<'s> Fold<'s> {
    fn new(source: Source<'s>) -> Self {
        let (entries, tables) = (Vec::new(), Vec::new());
        Fold { source, entries, key: None, counted: (0, 0), depth: 0, list: None, tables, table: Table::Top }
    }

    /// Returns the line of `offset`. Offsets must not decrease from call to call.
    fn line(&mut self, offset: usize) -> usize {
        let (length, lines) = self.counted;
        let rest = self.source.input().as_bytes().get(length..offset).unwrap_or_default();
        self.counted = (length.max(offset), lines + newlines(rest));
        self.counted.1 + 1
    }

    /// Handles a complete value of the current key.
    fn value(&mut self, value: Typed) {
        if self.depth > 0 {
            match value {
                Typed::Text(text) if self.depth == 1 => self.list.iter_mut().for_each(|list| list.push(text.clone())),
                _ => self.list = None,
            }
            return;
        }
        let Some((key, start)) = self.key.take() else { return };
        let key = match &self.table {
            Table::Top => key,
            Table::Named(table) => format!("{table}.{key}"),
            Table::OfArray => return,
        };
        let line = self.line(start);
        self.entries.push(ConfigEntry { key, line, value });
    }

    /// Handles a complete header of a table. Returns its name and line.
    fn header(&mut self) -> Option<(String, usize)> {
        let (name, start) = self.key.take()?;
        let line = self.line(start);
        Some((name, line))
    }

    fn open(&mut self, list: Option<Vec<String>>) -> bool {
        self.list = list.filter(|_| self.depth == 0);
        self.depth += 1;
        true
    }

    fn close(&mut self, what: &'static str) {
        self.depth = self.depth.saturating_sub(1);
        let list = self.list.take().filter(|_| self.depth == 0);
        self.value(list.map_or(Typed::Other(what), Typed::List));
    }
}

impl EventReceiver for Fold<'_> {
    fn simple_key(&mut self, span: Span, encoding: Option<Encoding>, error: &mut dyn ErrorSink) {
        let Some(raw) = raw(self.source, span, encoding) else { return };
        let mut part = String::new();
        raw.decode_key(&mut part, error);
        if self.depth == 0 {
            self.key.get_or_insert((String::new(), span.start())).0.push_str(&part);
        }
    }

    fn key_sep(&mut self, _: Span, _: &mut dyn ErrorSink) {
        if let Some((key, _)) = self.key.as_mut().filter(|_| self.depth == 0) {
            key.push('.');
        }
    }

    fn scalar(&mut self, span: Span, encoding: Option<Encoding>, error: &mut dyn ErrorSink) {
        let Some(raw) = raw(self.source, span, encoding) else { return };
        let mut text = String::new();
        let kind = raw.decode_scalar(&mut text, error);
        self.value(typed(kind, text));
    }

    fn std_table_close(&mut self, _: Span, _: &mut dyn ErrorSink) {
        if let Some((name, line)) = self.header() {
            self.tables.push(ConfigEntry { key: name.clone(), line, value: Typed::Other("a table") });
            self.table = Table::Named(name);
        }
    }

    fn array_table_close(&mut self, _: Span, _: &mut dyn ErrorSink) {
        if let Some((name, line)) = self.header() {
            self.entries.push(ConfigEntry { key: format!("[[{name}]]"), line, value: Typed::Other("a table") });
        }
        self.table = Table::OfArray;
    }

    fn inline_table_open(&mut self, _: Span, _: &mut dyn ErrorSink) -> bool {
        self.open(None)
    }

    fn inline_table_close(&mut self, _: Span, _: &mut dyn ErrorSink) {
        self.close("a table");
    }

    fn array_open(&mut self, _: Span, _: &mut dyn ErrorSink) -> bool {
        self.open(Some(Vec::new()))
    }

    fn array_close(&mut self, _: Span, _: &mut dyn ErrorSink) {
        self.close("an array");
    }
}

/// Returns the text in `span`, to be decoded with `encoding`.
fn raw(source: Source<'_>, span: Span, encoding: Option<Encoding>) -> Option<toml_parser::Raw<'_>> {
    let text = source.input().get(span.start()..span.end())?;
    Some(toml_parser::Raw::new_unchecked(text, encoding, span))
}

/// Returns a scalar with its type. An integer outside 0 to 2^64 - 1 becomes
/// [`Typed::Other`].
fn typed(kind: ScalarKind, text: String) -> Typed {
    match kind {
        ScalarKind::String => Typed::Text(text),
        ScalarKind::Boolean(value) => Typed::Plain(value.to_string()),
        ScalarKind::Integer(radix) => match u64::from_str_radix(&text, radix.value()) {
            Ok(number) => Typed::Plain(number.to_string()),
            Err(_) => Typed::Other("a number outside 0 to 2^64 - 1"),
        },
        ScalarKind::Float => Typed::Other("a fraction without quotes"),
        ScalarKind::DateTime => Typed::Other("a date or time"),
    }
}

impl ConfigEntry {
    /// Returns true if the entry sets this setting: `record.commit_prefix`, or the key
    /// `commit_prefix` in the table `record`, sets `record_commit_prefix`.
    pub(crate) fn is(&self, setting: &str) -> bool {
        self.name().eq(setting.bytes())
    }

    fn name(&self) -> impl Iterator<Item = u8> + '_ {
        self.key.bytes().map(|byte| if byte == b'.' { b'_' } else { byte })
    }
}

/// Returns an entry that sets what an earlier one has set. Only `[[…]]` may be repeated.
fn repeated(entries: &[ConfigEntry]) -> Option<&ConfigEntry> {
    let mut sorted: Vec<&ConfigEntry> = entries.iter().filter(|entry| !entry.key.starts_with("[[")).collect();
    sorted.sort_by(|a, b| a.name().cmp(b.name()).then(a.line.cmp(&b.line)));
    sorted.windows(2).find(|pair| pair[0].name().eq(pair[1].name())).map(|pair| pair[1])
}

/// Returns the parser's description of an error, with what it expected.
fn reason(error: &ParseError) -> String {
    let mut text = error.description().to_owned();
    for (at, expected) in error.expected().unwrap_or_default().iter().enumerate() {
        text.push_str(if at == 0 { ", expected " } else { " or " });
        match expected {
            Expected::Literal("\n") => text.push_str("the end of the line"),
            Expected::Literal(literal) => text.extend(["`", literal, "`"]),
            Expected::Description(description) => text.push_str(description),
            _ => text.push_str("something else"),
        }
    }
    text
}

fn newlines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, usize, Typed)]) {
        let found = entries(text.as_bytes()).unwrap_or_else(|error| panic!("{text:?}: {error:?}"));
        let found: Vec<_> = found.iter().map(|e| (e.key.as_str(), e.line, &e.value)).collect();
        let expected: Vec<_> = expected.iter().map(|(key, line, value)| (*key, *line, value)).collect();
        assert_eq!(found, expected, "{text:?}");
    }

    fn check_bad(text: &str, expected_line: usize) {
        match entries(text.as_bytes()) {
            Err(Unusable::Syntax { line, reason }) => assert_eq!(line, expected_line, "{text:?}: {reason}"),
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn documents() {
        let text = |text: &str| Typed::Text(text.to_owned());
        let plain = |text: &str| Typed::Plain(text.to_owned());
        check("", &[]);
        check("\u{feff}# only a comment\r\n\n", &[]);
        check("dir = \"/a\\tb\" # why\n\nlog='/l'", &[("dir", 1, text("/a\tb")), ("log", 3, text("/l"))]);
        check("\"dir\" = '''\n/a'''\nx = true", &[("dir", 1, text("/a")), ("x", 3, plain("true"))]);
        check("a = 0x10\nb = 1_000\nc = +5", &[("a", 1, plain("16")), ("b", 2, plain("1000")), ("c", 3, plain("5"))]);
        check("a = -1", &[("a", 1, Typed::Other("a number outside 0 to 2^64 - 1"))]);
        check("a = 1.5", &[("a", 1, Typed::Other("a fraction without quotes"))]);
        check("a = 1979-05-27", &[("a", 1, Typed::Other("a date or time"))]);
        check("a = ['x', \"y\",\n]", &[("a", 1, Typed::List(vec!["x".to_owned(), "y".to_owned()]))]);
        check("a = []", &[("a", 1, Typed::List(Vec::new()))]);
        for other in ["['x', 1]", "['x', ['y']]", "[{a = 'x'}]", "[['x'], 'y']"] {
            check(&format!("a = {other}"), &[("a", 1, Typed::Other("an array"))]);
        }
        check("a . b.'c' = \"\"", &[("a.b.c", 1, text(""))]);
        check(
            "a = [1,\n [2]]\nb = {c = 1, d.e = [{}]}",
            &[("a", 1, Typed::Other("an array")), ("b", 3, Typed::Other("a table"))],
        );
        check(
            "[t]\ndir = '/a'\n[[u.v]]\nx = 1\n[[u.v]]\n[ w . x ]\ny.z = []",
            &[
                ("t.dir", 2, text("/a")),
                ("[[u.v]]", 3, Typed::Other("a table")),
                ("[[u.v]]", 5, Typed::Other("a table")),
                ("w.x.y.z", 7, Typed::List(Vec::new())),
            ],
        );
    }

    #[test]
    fn what_is_not_toml() {
        check_bad("dir", 1);
        check_bad("\n\ndir = ", 3);
        check_bad("dir = /a", 1);
        check_bad("a = 1\n[t", 2);
        check_bad("a = 1 b = 2", 1);
        check_bad("a = \"\\q\"", 1);
        check_bad("a = [tru]", 1);
        check_bad("a = 1 # \u{1}", 1);
        check_bad("a = 1\nb = 2\na = 3", 3);
        check_bad("[t]\n[t]", 2);
        check_bad("a_b = 1\na.b = 2", 2);
        check_bad("a_b = 1\n[a]\nb = 2", 3);
        check_bad(&format!("a = {}", "[".repeat(100_000)), 1);
        check_bad(&format!("a = {}", "{a=".repeat(100_000)), 1);
        assert_eq!(entries(b"a = 1\nb = \"\xff\""), Err(Unusable::NotUtf8 { line: 2 }));
    }
}
