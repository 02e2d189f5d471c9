//! README.md's table of caches as Markdown.

use super::found::Found;
use crate::bench::rivals::{KACHE, SCCACHE};
use crate::fetch::CCACHE;
use crate::table::{seconds, wrapped};
use anyhow::{Context, Result};
use std::fmt::Write;

/// The caches as benchmarks call them, in the order of the columns.
const CACHES: [&str; 4] = ["larder", "ccache", "sccache", "kache"];

/// Returns the table and its notes.
pub(super) fn table(found: &Found) -> Result<String> {
    let mut text = format!("| | larder | ccache {CCACHE} | sccache {SCCACHE} | kache {KACHE} | `actions/cache` |\n");
    text += "|---|---|---|---|---|---|\n";
    let mut row = |title: &str, cells: [String; 5]| text += &format!("| {title} | {} |\n", cells.join(" | "));
    let of_caches = |cell: &dyn Fn(&str) -> Option<String>| {
        let [larder, ccache, sccache, kache] = CACHES.map(|name| cell(name).unwrap_or_default());
        [larder, ccache, sccache, kache, String::new()]
    };
    let torture = |name: &str| found.torture.get(name);
    row(
        "wrong results, of the cases that apply ¹",
        of_caches(&|name| torture(name).map(|found| format!("{} of {}", found.wrong, found.ran))),
    );
    for (class, title) in [
        ("B", "expected hits in another place ¹"),
        ("E", "expected hits of `./configure` and build tools ¹"),
        ("F", "expected hits of links, archives, other commands ¹"),
    ] {
        let cell = |name: &str| torture(name)?.hits.get(class).map(|(came, expected)| format!("{came} of {expected}"));
        row(title, of_caches(&cell));
    }
    row(
        "hits in a build by cargo, a crate of each kind ² ([limits](docs/rust.md))",
        of_caches(&|name| found.rust.hits.get(name).map(|hits| format!("{hits} of {}", found.rust.steps))),
    );
    for (times, title) in found.hits.iter().zip(["a hit, C, 225 headers ³", "a hit, C++, 240 headers ³"]) {
        // A cache that was measured in one case only did not hit in the other.
        let is_measured = |name: &str| found.hits.iter().any(|times| times.contains_key(name));
        let no_hit = |name: &str| is_measured(name).then(|| "no hit".to_owned());
        row(title, of_caches(&|name| times.get(name).map(|ms| format!("{ms} ms")).or_else(|| no_hit(name))));
    }
    let image = &found.image;
    let mounted = image.mounted.map_or("not mounted".to_owned(), |time| format!("{} s mounted", seconds(time)));
    row(
        &format!("`node_modules` of {} files, usable after ⁴", thousands(image.files)),
        [
            format!("{mounted}, {} s unpacked", seconds(image.unpacked)),
            String::new(),
            String::new(),
            String::new(),
            format!("{} s unpacked", seconds(image.untarred)),
        ],
    );
    notes(&mut text, found)?;
    Ok(text)
}

fn notes(text: &mut String, found: &Found) -> Result<()> {
    let fact = |name: &str| found.machine[name].as_str().unwrap_or("unknown").to_owned();
    let plain = |at: usize| found.hits[at].get("plain").context("the plain compile was not measured");
    let cases = match found.every {
        1 => "Every case".to_owned(),
        3 => "Every third case".to_owned(),
        every => format!("One of {every} cases"),
    };
    let conditions = format!(
        "By `cargo xtask bench caches`, all caches with their defaults: {}, commit {}, {} processors ({}, Linux {}), {} \
         minutes. An empty cell was not measured, or the cache does not do that.",
        found.date,
        fact("commit"),
        found.machine["processors"],
        fact("processor"),
        fact("kernel"),
        found.minutes,
    );
    writeln!(text, "\n{}\n", wrapped(&conditions, ""))?;
    for missing in &found.missing {
        writeln!(text, "{}\n", wrapped(&format!("Missing: {}", missing.trim_start_matches("Skipped: ")), ""))?;
    }
    let notes = [
        format!("1. {cases} of the [torture suite](docs/torture.md#results): each step is compared with a plain run."),
        "2. The third build by cargo, with an empty target directory: a library, a procedural macro, a `cdylib`, a \
         `staticlib`, a `dylib`, a build script and its run, a program."
            .to_owned(),
        format!(
            "3. CPU time, servers included. The plain compiles take {} and {} ms ([more](docs/performance.md#a-hit)).",
            plain(0)?,
            plain(1)?
        ),
        "4. Wall time. What is mounted comes from a remote as it is read. `actions/cache` stands for `zstd -d | tar`, \
         which it uses ([more](docs/images.md#measured))."
            .to_owned(),
    ];
    notes.iter().try_for_each(|note| writeln!(text, "{}", wrapped(note, "   ")))?;
    Ok(())
}

/// Returns the number with a comma before each group of three digits.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::found::Torture;
    use super::super::{image, rust};
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn a_cell_is_empty_if_nothing_was_measured() {
        let torture = |wrong| Torture { wrong, ran: 9, hits: [("B".to_owned(), (1, 2))].into() };
        let hits = |names: &[&str]| names.iter().map(|&name| (name.to_owned(), "1.5".to_owned())).collect();
        let found = Found {
            every: 3,
            torture: [("larder", torture(0)), ("ccache", torture(4))].into(),
            hits: [hits(&["plain", "larder", "kache"]), hits(&["plain", "larder"])],
            image: image::Usable {
                files: 101_584,
                untarred: Duration::from_secs(2),
                unpacked: Duration::from_secs(1),
                mounted: None,
            },
            rust: rust::Found { steps: 8, hits: [("larder", 7), ("sccache", 1)].into() },
            missing: vec!["Skipped: sccache: no network.".to_owned()],
            machine: json!({"commit": "abc", "processors": 2, "processor": "p", "kernel": "k"}),
            date: "1 May 2026".to_owned(),
            minutes: 12,
        };
        let text = table(&found).expect("complete");
        for line in [
            "| wrong results, of the cases that apply ¹ | 0 of 9 | 4 of 9 |  |  |  |",
            "| expected hits in another place ¹ | 1 of 2 | 1 of 2 |  |  |  |",
            "| expected hits of `./configure` and build tools ¹ |  |  |  |  |  |",
            "| hits in a build by cargo, a crate of each kind ² ([limits](docs/rust.md)) | 7 of 8 |  | 1 of 8 |  |  |",
            "| a hit, C, 225 headers ³ | 1.5 ms |  |  | 1.5 ms |  |",
            "| a hit, C++, 240 headers ³ | 1.5 ms |  |  | no hit |  |",
            "| `node_modules` of 101,584 files, usable after ⁴ | not mounted, 1.00 s unpacked |  |  |  | 2.00 s unpacked |",
            "Missing: sccache: no network.",
            "3. CPU time, servers included. The plain compiles take 1.5 and 1.5 ms",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn digits_are_grouped() {
        let check = |number, expected| assert_eq!(thousands(number), expected);
        check(7, "7");
        check(999, "999");
        check(1000, "1,000");
        check(12_345_678, "12,345,678");
    }
}
