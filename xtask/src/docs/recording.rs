//! `cargo xtask docs --recording`: runs short sessions and draws each as a picture of a terminal with
//! 80 columns, in light or dark colours as the reader's system says.
//!
//! | picture in `docs/` | shows |
//! |---|---|
//! | `recording.svg` | a first build, the next one, one in another checkout, and why a command would miss |
//! | `stats.svg` | `larder stats` |
//! | `watch.svg` | `larder stats --watch` at the end of a build |
//! | `explain.svg` | `larder explain` for a hit and for a miss |
//!
//! A picture is drawn from what the commands print now. Each part appears after the one before.
//! Viewers that reduce motion, or that do not know animations, show all of it.

use super::examples::Scratch;
use super::page::{Page, Run, Step};
use anyhow::{Result, bail};
use std::fmt::Write;
use std::path::Path;

/// A session in the form of a document, and the picture of it.
struct Picture {
    file: &'static str,
    title: &'static str,
    session: &'static str,
}

const PICTURES: [Picture; 4] = [
    Picture {
        file: "recording.svg",
        title: "A session with larder: a first build, the next one, another checkout, and why a command would miss",
        session: include_str!("recording.md"),
    },
    Picture {
        file: "stats.svg",
        title: "larder stats: hits, misses with reasons, time saved, and the same for each tool",
        session: include_str!("recording-stats.md"),
    },
    Picture {
        file: "watch.svg",
        title: "larder stats --watch at the end of a build",
        session: include_str!("recording-watch.md"),
    },
    Picture {
        file: "explain.svg",
        title: "larder explain: a hit, and a miss because a header changed",
        session: include_str!("recording-explain.md"),
    },
];

/// In a session, what follows this is drawn in place of the command that runs.
const DRAWN_AS: &str = " #= ";

const COLUMNS: usize = 80;
const CHARACTER_WIDTH: f64 = 7.8;
const LINE_HEIGHT: f64 = 18.0;
const MARGIN: f64 = 16.0;
/// The time from one command to the next, in seconds.
const STEP: f64 = 1.4;

/// The colours of the background, of output, of commands and of comments, light and dark.
const STYLE: &str = "\
rect { fill: #ffffff; stroke: #d0d7de }
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #24292f; white-space: pre }
.command { font-weight: bold; fill: #0550ae }
.comment { fill: #57606a; font-style: italic }
@media (prefers-color-scheme: dark) {
rect { fill: #0d1117; stroke: #30363d }
text { fill: #c9d1d9 }
.command { fill: #79c0ff }
.comment { fill: #8b949e }
}
@media (prefers-reduced-motion: no-preference) {
g { animation: appear 0.2s both }
@keyframes appear { from { opacity: 0 } }
}";

/// Runs the sessions with `larder`. Returns each picture with the name of its file.
pub(super) fn svgs(larder: &Path) -> Result<Vec<(&'static str, String)>> {
    let draw = |picture: &Picture| {
        let scratch = Scratch::new(larder)?;
        let parts = record(&scratch, picture.session);
        scratch.end()?;
        Ok((picture.file, drawn(picture.title, &parts?)))
    };
    PICTURES.iter().map(draw).collect()
}

/// Runs each command, and returns it with what it printed.
fn record(scratch: &Scratch, session: &str) -> Result<Vec<(String, Vec<String>)>> {
    let mut parts = Vec::new();
    for step in Page::read("recording.md", session).steps {
        match step {
            Step::File { path, text } => scratch.write(&path, &text)?,
            Step::Prepare { line, script } => {
                let run = Run { line, command: script, exit_code: 0, output: Vec::new() };
                if let Some((_, problem)) = scratch.check(&run)? {
                    bail!("the session cannot be prepared: {problem}");
                }
            }
            Step::Run(run) => {
                let (code, printed) = scratch.execute(&run.command)?;
                if code != Some(run.exit_code) {
                    bail!("`{}` failed:\n{}", run.command, printed.join("\n"));
                }
                let shown = run.command.split_once(DRAWN_AS).map(|(_, shown)| shown.to_owned());
                parts.push((shown.unwrap_or(run.command), printed));
            }
        }
    }
    Ok(parts)
}

fn drawn(title: &str, parts: &[(String, Vec<String>)]) -> String {
    let lines: usize = parts.iter().map(|(_, printed)| printed.len() + 1).sum();
    let (width, height) = (COLUMNS as f64 * CHARACTER_WIDTH + 2.0 * MARGIN, lines as f64 * LINE_HEIGHT + 2.0 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" xml:space=\"preserve\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\">\n<title>{title}</title>\n<style>\n{STYLE}\n</style>\n\
         <rect x=\"0.5\" y=\"0.5\" width=\"{:.0}\" height=\"{:.0}\" rx=\"8\"/>\n",
        width - 1.0,
        height - 1.0,
    );
    let mut line = 0;
    for (number, (command, printed)) in parts.iter().enumerate() {
        let _ = writeln!(svg, "<g style=\"animation-delay: {:.1}s\">", number as f64 * STEP);
        let class = if command.starts_with('#') { "comment" } else { "command" };
        let prompt = if class == "comment" { command.clone() } else { format!("$ {command}") };
        let texts = std::iter::once((class, &prompt)).chain(printed.iter().map(|text| ("output", text)));
        for (class, text) in texts {
            line += 1;
            let y = MARGIN + f64::from(line) * LINE_HEIGHT - 5.0;
            let text: String = text.chars().take(COLUMNS).collect();
            let _ = writeln!(svg, "<text class=\"{class}\" x=\"{MARGIN}\" y=\"{y}\">{}</text>", escaped(&text));
        }
        svg += "</g>\n";
    }
    svg + "</svg>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_drawn_line_by_line() {
        let parts = [("# first".to_owned(), Vec::new()), ("cc <x".to_owned(), vec!["a".repeat(99), "b".to_owned()])];
        let svg = drawn("a title", &parts);
        assert_eq!((svg.matches("<text ").count(), svg.matches("<g ").count()), (4, 2));
        assert!(svg.contains(">$ cc &lt;x</text>") && svg.contains(r#"class="comment""#));
        assert!(svg.contains(&"a".repeat(COLUMNS)) && !svg.contains(&"a".repeat(COLUMNS + 1)));
    }

    #[test]
    fn each_session_has_commands() {
        for Picture { file, session, .. } in PICTURES {
            let steps = Page::read(file, session).steps;
            assert!(steps.iter().any(|step| matches!(step, Step::Run(_))), "{file}");
        }
    }
}
