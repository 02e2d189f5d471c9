//! Tables, printed in a terminal or as Markdown.

use comfy_table::{CellAlignment, LineStyle, Table as Drawn, TableStyle, presets};
use std::fmt;

/// A table. The first `words` columns are text, the others numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) header: Vec<String>,
    pub(crate) words: usize,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns an empty table.
    pub(crate) fn new(words: usize, header: &[&str]) -> Self {
        Self { header: header.iter().map(|&name| name.to_owned()).collect(), words, rows: Vec::new() }
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
