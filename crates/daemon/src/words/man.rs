//! `larder man`: pages made from the same description as the help.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap_mangen::Man as Page;

use super::FINE;
use crate::cli::{Man, description};

/// Print one page, or write all of them.
pub(crate) fn run(options: &Man, out: &mut dyn Write) -> Result<u8> {
    if let Some(dir) = &options.dir {
        return write_all(dir, out);
    }
    let page = match options.word.as_deref() {
        None | Some("larder") => Page::new(top()),
        Some(word) => match words().into_iter().find(|command| command.get_name() == word) {
            Some(command) => page_of(&command),
            None => bail!("man: there is no word {word:?}: see `larder help`"),
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
        .chain(words.iter().map(|command| (format!("larder-{}.1", command.get_name()), page_of(command))));
    for (name, page) in pages {
        let path = dir.join(name);
        std::fs::write(&path, text_of(&page)?).with_context(|| writing(&path))?;
        writeln!(out, "{}", path.display())?;
    }
    Ok(FINE)
}

/// The page, its headings as man pages have them.
fn text_of(page: &Page) -> Result<String> {
    let mut text = Vec::new();
    page.render(&mut text)?;
    let text = String::from_utf8(text)?;
    Ok(text.replace("\n.SH EXTRA\n", "\n.SH NOTES\n").replace("\n.SH Words\n", "\n.SH WORDS\n"))
}

/// The whole as its page shows it. man pages have one help, so it is the long one.
fn top() -> clap::Command {
    description().after_help(crate::help::top_long()).disable_help_subcommand(true)
}

fn words() -> Vec<clap::Command> {
    let mut top = top();
    top.build();
    top.get_subcommands().filter(|command| command.get_name() != "help" && !command.is_hide_set()).cloned().collect()
}

fn page_of(command: &clap::Command) -> Page {
    let name = format!("larder-{}", command.get_name());
    let usage = format!("larder {}", command.get_name());
    Page::new(command.clone().name(name).bin_name(usage).version(env!("CARGO_PKG_VERSION")))
}
