//! A record as one HTML page. It works without a network, in light and dark mode, and by keyboard.
//! The important parts are text that is there without the script.
//!
//! `sections` and `around` make that text, and `data` the data that the script draws. `page.css`,
//! `timeline.js`, `flame.js` and `page.js` use no third-party code.
//!
//! Unaware of: where the page is written.

mod around;
mod data;
mod sections;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::compare::Comparison;
use crate::directory::Record;
use crate::processes::processes;
use crate::summary::{Counts, causes, kinds, phases, slowest};

const STYLE: &str = include_str!("page.css");
const SCRIPTS: [&str; 3] = [include_str!("timeline.js"), include_str!("flame.js"), include_str!("page.js")];
/// The Content Security Policy: nothing is loaded from anywhere.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

/// Returns the page of a record, with a comparison if there is one.
pub fn page(record: &Record, comparison: Option<&Comparison>) -> String {
    let title = format!("{} · larder record", record.header.name);
    let (body, data) = body(record, comparison);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#timeline" { "Skip to the timeline" }
                (body)
                // Base64 has no character that could end the element.
                script #data type="application/gzip" { (PreEscaped(data)) }
                @for script in SCRIPTS { script { (PreEscaped(script)) } }
            }
        }
    };
    page.into_string()
}

fn body(record: &Record, comparison: Option<&Comparison>) -> (Markup, String) {
    let Some(run) = record.explaining() else {
        let nothing = html! {
            (sections::header(record, None, &Counts::default(), None))
            main { p { "No run was started." } (around::context(record)) }
        };
        return (nothing, String::new());
    };
    let found = processes(run);
    let (counts, groups) = (Counts::of(&run.actions), causes(&run.actions));
    let data = data::encoded(run, &found, record.context.machine.processors);
    let body = html! {
        (sections::header(record, Some(run), &counts, Some(&found)))
        main {
            @if let Some(comparison) = comparison { (around::comparison(comparison)) }
            @if counts.all() > 0 { (sections::causes(&groups, &counts)) }
            (sections::timeline(&found, run))
            (sections::flame(!run.stacks.is_empty()))
            (sections::slowest(&found, &slowest(&found)))
            (sections::kinds(&kinds(&found)))
            @if counts.all() > 0 { (sections::phases(&phases(&run.actions), counts.all())) }
            (around::runs(record))
            (around::context(record))
        }
        footer { p { "Made by larder " (record.header.larder)
            ". The page is self-contained and loads nothing." } }
    };
    (body, data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{Options, compare};
    use crate::processes::tests::a_run;

    fn record() -> Record {
        let mut record = Record { runs: vec![a_run()], ..Record::default() };
        record.header.name = "<script>alert(1)</script>".into();
        record.header.command = vec!["make".into(), "CC=</script>".into()];
        record
    }

    #[test]
    fn nothing_is_loaded_and_nothing_escapes() {
        let record = record();
        let other = Record { runs: vec![a_run()], ..Record::default() };
        let options = Options { margin: 0.01, anyway: true, expected: Vec::new() };
        let page = page(&record, Some(&compare(&record, &other, &options)));
        assert!(!page.contains("<script>alert") && page.contains("&lt;script&gt;alert(1)"));
        for outside in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert_eq!(page.matches("<script").count(), page.matches("</script>").count());
        for heading in ["Timeline", "Why not a hit", "Flame graph", "Slowest", "Most started", "Context", "Comparison"]
        {
            assert!(page.contains(heading), "{heading}");
        }
    }

    #[test]
    fn a_record_without_runs_has_a_page() {
        assert!(page(&Record::default(), None).contains("No run was started"));
    }
}
