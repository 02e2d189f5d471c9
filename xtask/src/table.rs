//! Tables, printed in a terminal or as Markdown.

use comfy_table::{CellAlignment, LineStyle, Table as Drawn, TableStyle, presets};
use std::fmt;
use std::time::Duration;

/// A table. The first `words` columns are text, the others numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    words: usize,
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns an empty table.
    pub(crate) fn new(words: usize) -> Self {
        Self { words, ..Self::default() }
    }

    /// Adds a row: a cell for each column, behind the column's name. All rows have the same columns.
    pub(crate) fn add<const N: usize>(&mut self, cells: [(&str, String); N]) {
        self.header = cells.iter().map(|(column, _)| (*column).to_owned()).collect();
        self.rows.push(cells.into_iter().map(|(_, cell)| cell).collect());
    }

    /// Returns the table as Markdown.
    pub(crate) fn markdown(&self) -> String {
        self.drawn(presets::ASCII_MARKDOWN).to_string()
    }

    fn drawn(&self, style: TableStyle) -> Drawn {
        let mut drawn = Drawn::new();
        drawn.load_style(style).set_header(&self.header).add_rows(&self.rows);
        for column in drawn.column_iter_mut().skip(self.words) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        drawn
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.drawn(presets::UTF8_NO_BORDERS.row_separator(LineStyle::none())).fmt(f)
    }
}

/// The text of a cell without a number.
pub(crate) const NONE: &str = "–";

/// Returns the text of a cell that may have no number.
pub(crate) fn shown(number: Option<impl ToString>) -> String {
    number.map_or(NONE.to_owned(), |number| number.to_string())
}

/// Formats seconds with two decimals.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64())
}

/// Formats milliseconds with three decimals.
pub(crate) fn millis(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64() * 1000.0)
}

/// Formats `time` ÷ `base` with three decimals.
pub(crate) fn over(time: Duration, base: Duration) -> String {
    if base.is_zero() { NONE.to_owned() } else { format!("{:.3}", time.as_secs_f64() / base.as_secs_f64()) }
}

/// The longest line of a document.
const COLUMNS_MAX: usize = 100;

/// Breaks a paragraph into lines, as in a document. All but the first begin with `indent`.
pub(crate) fn wrapped(paragraph: &str, indent: &str) -> String {
    let (mut text, mut columns) = (String::new(), 0);
    for word in paragraph.split_whitespace() {
        let length = word.chars().count();
        if columns > 0 && columns + 1 + length > COLUMNS_MAX {
            text += &format!("\n{indent}{word}");
            columns = indent.len() + length;
        } else {
            text += if columns > 0 { " " } else { "" };
            text += word;
            columns += length + usize::from(columns > 0);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_are_broken_into_lines() {
        let text = wrapped(&["word"; 50].join(" "), "   ");
        assert!(text.lines().all(|line| line.len() <= COLUMNS_MAX) && text.lines().count() == 3, "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("   word")), "{text}");
        assert_eq!(wrapped("one", "   "), "one");
    }
}
