//! `larder man`: man pages, made from the same description as the help.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap_mangen::Man as Page;

use super::FINE;
use crate::cli::{Man, description};

/// Prints one page, or writes all of them.
pub(crate) fn run(options: &Man, out: &mut dyn Write) -> Result<u8> {
    if let Some(dir) = &options.dir {
        return write_all(dir, out);
    }
    let typed = options.word.join(" ");
    let page = match typed.as_str() {
        "" | "larder" => Page::new(top()),
        typed => match words().into_iter().find(|word| word.typed == typed) {
            Some(word) => word.page(),
            None => bail!("man: there is no subcommand {typed:?}: see `larder help`"),
        },
    };
    out.write_all(text_of(&page)?.as_bytes())?;
    Ok(FINE)
}

fn write_all(dir: &Path, out: &mut dyn Write) -> Result<u8> {
    let writing = |path: &Path| format!("man: {} cannot be written: choose another --dir", path.display());
    std::fs::create_dir_all(dir).with_context(|| writing(dir))?;
    let words = words();
    let pages = std::iter::once(("larder.1".to_owned(), Page::new(top())))
        .chain(words.iter().map(|word| (format!("{}.1", word.name()), word.page())));
    for (name, page) in pages {
        let path = dir.join(name);
        std::fs::write(&path, text_of(&page)?).with_context(|| writing(&path))?;
        writeln!(out, "{}", path.display())?;
    }
    Ok(FINE)
}

/// Renders a page, with the section headings that are usual in man pages.
fn text_of(page: &Page) -> Result<String> {
    let mut text = Vec::new();
    page.render(&mut text)?;
    let text = String::from_utf8(text)?;
    Ok(text.replace("\n.SH EXTRA\n", "\n.SH NOTES\n").replace("\n.SH Subcommands\n", "\n.SH SUBCOMMANDS\n"))
}

/// Returns the whole program's description for its man page, with the long help.
fn top() -> clap::Command {
    description().after_help(crate::help::top_long()).disable_help_subcommand(true)
}

/// A subcommand that has a page of its own.
struct Word {
    /// The words after `larder`, for example `remote` or `remote check`.
    typed: String,
    command: clap::Command,
}

impl Word {
    fn name(&self) -> String {
        format!("larder-{}", self.typed.replace(' ', "-"))
    }

    fn page(&self) -> Page {
        let usage = format!("larder {}", self.typed);
        Page::new(self.command.clone().name(self.name()).bin_name(usage).version(env!("CARGO_PKG_VERSION")))
    }
}

fn words() -> Vec<Word> {
    let mut top = top();
    top.build();
    let mut words = Vec::new();
    add_words(&top, "", &mut words);
    words
}

/// Adds the subcommands of a command, each before its own subcommands. A page lists the pages of
/// its subcommands.
fn add_words(command: &clap::Command, before: &str, words: &mut Vec<Word>) {
    for command in command.get_subcommands().filter(|word| word.get_name() != "help" && !word.is_hide_set()) {
        let typed = format!("{before}{}", command.get_name());
        let below = format!("{typed} ");
        words.push(Word { typed, command: command.clone() });
        add_words(command, &below, words);
    }
}
