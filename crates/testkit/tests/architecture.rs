//! Compares ARCHITECTURE.md with the workspace: its table of edges between crates, the tests that it
//! names, and the invariants that forbid something.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use larder_testkit::{cargo, workspace};
use serde_json::Value;

type Edges = BTreeSet<(String, String)>;

fn short(name: &str) -> String {
    name.trim_start_matches("larder-").to_owned()
}

/// Parses lines such as `a, b → c d` in fenced blocks. `nothing` stands for no edge.
fn table(text: &str) -> Edges {
    let mut edges = Edges::new();
    for line in text.split("```").skip(1).step_by(2).flat_map(str::lines) {
        let Some((from, to)) = line.split_once('→') else { continue };
        let words = |list: &str| list.replace(',', " ").split_whitespace().map(short).collect::<Vec<_>>();
        for from in words(from) {
            let targets = words(to).into_iter().filter(|to| to != "nothing");
            edges.extend(targets.map(|to| (from.clone(), to)));
        }
    }
    edges
}

/// Returns the edges between the crates of this workspace, without dev-dependencies.
fn edges() -> Edges {
    let metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--no-deps", "--format-version", "1"])).expect("not JSON");
    let mut edges = Edges::new();
    for package in metadata["packages"].as_array().expect("not a list") {
        for dependency in package["dependencies"].as_array().expect("not a list") {
            let text = |value: &Value| short(value.as_str().expect("not a string"));
            if dependency["kind"] != "dev" && dependency["path"].is_string() {
                edges.insert((text(&package["name"]), text(&dependency["name"])));
            }
        }
    }
    edges
}

#[test]
fn the_table_of_edges_is_the_workspace() {
    let text = std::fs::read_to_string(workspace().join("ARCHITECTURE.md")).expect("cannot read ARCHITECTURE.md");
    let (table, edges) = (table(&text), edges());
    assert!(!table.is_empty(), "ARCHITECTURE.md has no line with → in a fenced block");
    let outside: Vec<_> = edges.difference(&table).collect();
    let gone: Vec<_> = table.difference(&edges).collect();
    assert!(outside.is_empty(), "ARCHITECTURE.md does not list these edges between crates: {outside:?}");
    assert!(gone.is_empty(), "ARCHITECTURE.md lists edges that do not exist: {gone:?}");
}

/// In the section about invariants, each name in backticks with an underscore is that of a test.
#[test]
fn the_tests_of_the_invariants_exist() {
    let text = std::fs::read_to_string(workspace().join("ARCHITECTURE.md")).expect("cannot read ARCHITECTURE.md");
    let (_, invariants) = text.split_once("\n## Invariants\n").expect("ARCHITECTURE.md has no section Invariants");
    let is_name = |word: &&str| word.contains('_') && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    let names: Vec<&str> = invariants.split('`').skip(1).step_by(2).filter(is_name).collect();
    assert!(!names.is_empty(), "the section Invariants of ARCHITECTURE.md names no test");
    let mut files = Vec::new();
    walk(&workspace().join("crates"), &mut files);
    walk(&workspace().join("tests"), &mut files);
    for name in names {
        let function = format!("fn {name}()");
        let exists = files.iter().any(|(_, text)| text.contains(&function));
        assert!(exists, "ARCHITECTURE.md names the test `{name}`, which does not exist");
    }
}

/// In the tables of docs/security.md, each such name in the last column is that of a test.
#[test]
fn the_tests_of_the_page_on_security_exist() {
    let text = std::fs::read_to_string(workspace().join("docs/security.md")).expect("cannot read the page");
    let mut files = Vec::new();
    walk(&workspace().join("crates"), &mut files);
    let sources: String = files.into_iter().map(|(_, text)| text).collect();
    let last_cells = text.lines().filter_map(|line| line.strip_prefix('|')?.strip_suffix('|')?.rsplit('|').next());
    let quoted = last_cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let is_name = |text: &&str| text.contains('_') && text.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric());
    let names: BTreeSet<&str> = quoted.filter(is_name).collect();
    assert!(names.len() > 60, "only {} names were found: the tables have another form", names.len());
    let missing: Vec<&&str> = names.iter().filter(|name| !sources.contains(&format!("fn {name}("))).collect();
    assert!(missing.is_empty(), "docs/security.md names tests that do not exist: {missing:?}");
}

#[test]
fn the_wrapper_is_on_a_diet() {
    const CRATES_MAX: usize = 15;
    let words = ["tree", "-p", "larder-wrapper", "-e", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}"];
    let target = ["--target", "x86_64-unknown-linux-musl"];
    let text = cargo(&[&words[..], &target].concat());
    let crates: BTreeSet<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    for unwanted in ["tokio", "serde", "serde_json", "clap", "regex", "tracing", "log"] {
        assert!(!crates.contains(unwanted), "the wrapper links {unwanted}");
    }
    let foreign: Vec<_> = crates.iter().filter(|name| !name.starts_with("larder-")).collect();
    assert!(
        foreign.len() <= CRATES_MAX,
        "the wrapper links {} third-party crates, at most {CRATES_MAX} are allowed: {foreign:?}",
        foreign.len()
    );
}

/// Adds the Rust files in and below `dir`, each with its text.
fn walk(dir: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(dir).expect("cannot list the directory") {
        let path = entry.expect("cannot list the directory").path();
        if path.is_dir() {
            walk(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = std::fs::read_to_string(&path).expect("cannot read the file");
            found.push((path.strip_prefix(workspace()).expect("not below this directory").to_owned(), text));
        }
    }
}

/// Returns the Rust files of the crates and of xtask, without their tests and benchmarks.
fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    walk(&workspace().join("crates"), &mut found);
    found.retain(|(path, _)| path.iter().any(|part| part == "src"));
    walk(&workspace().join("src"), &mut found);
    walk(&workspace().join("xtask/src"), &mut found);
    found
}

#[test]
fn unsafe_code_is_in_sys_only() {
    for (path, text) in sources() {
        let code = |line: &&str| !line.trim_start().starts_with("//") && !line.contains("forbid(unsafe_code)");
        let is_unsafe = |line: &str| {
            ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern", "(unsafe_code"].iter().any(|u| line.contains(u))
        };
        let found = text.lines().filter(code).any(is_unsafe);
        let allowed = path.starts_with("crates/base/sys") || path == Path::new("src/larder.rs");
        assert!(allowed || !found, "{} has unsafe code", path.display());
    }
}

#[test]
fn no_module_is_named_after_nothing() {
    for (path, _) in sources() {
        for part in path.with_extension("").iter() {
            let name = part.to_str().expect("not UTF-8");
            assert!(
                !["utils", "util", "common", "helpers", "types"].contains(&name),
                "{}: this module name says nothing about its content",
                path.display()
            );
        }
    }
}

/// Returns the lines of a file without its tests, or none for a file of tests.
fn product_lines((path, text): &(PathBuf, String)) -> Vec<&str> {
    let is_test = path.iter().any(|part| part == "tests" || part == "tests.rs");
    let lines = text.lines().take_while(|line| !is_test && !line.ends_with("mod tests {"));
    lines.collect()
}

/// Returns how many lines each function has. rustfmt puts its last brace below its first word.
fn function_lengths(lines: &[&str]) -> Vec<usize> {
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let words = ["fn ", "pub fn ", "async fn ", "pub async fn ", "const fn ", "pub const fn "];
    let is_start = |line: &str| {
        let line = line.trim_start();
        words.iter().any(|word| line.starts_with(word)) || line.starts_with("pub(") && line.contains(") fn ")
    };
    let starts = lines.iter().enumerate().filter(|(_, line)| is_start(line));
    let length = |(at, line): (usize, &&str)| {
        let end = |end: &&str| end.trim() == "}" && indentation(end) == indentation(line);
        if line.ends_with('}') || line.ends_with(';') {
            Some(1)
        } else {
            lines[at..].iter().position(end).map(|at| at + 1)
        }
    };
    starts.filter_map(length).collect()
}

#[test]
fn files_and_functions_are_short() {
    const FILE_LINES_MAX: usize = 600;
    const FUNCTION_LINES_P99_MAX: usize = 70;
    let sources = sources();
    let mut lengths = Vec::new();
    for file in &sources {
        let lines = product_lines(file);
        let count = lines.len();
        assert!(count <= FILE_LINES_MAX, "{}: {count} lines, at most {FILE_LINES_MAX} are allowed", file.0.display());
        lengths.extend(function_lengths(&lines));
    }
    lengths.sort_unstable();
    assert!(lengths.len() > 3000, "only {} functions were found", lengths.len());
    let p99 = lengths[lengths.len() * 99 / 100];
    assert!(p99 <= FUNCTION_LINES_P99_MAX, "one of 100 functions has at least {p99} lines");
}

#[test]
fn the_model_does_no_io() {
    for (path, text) in sources().into_iter().filter(|(path, _)| path.starts_with("crates/base/model")) {
        for unwanted in ["std::fs", "std::env", "std::net", "std::process", "SystemTime::now", "Instant::now"] {
            assert!(!text.contains(unwanted), "{}: the model crate must not use {unwanted}", path.display());
        }
    }
}

#[test]
fn only_remote_daemon_and_csi_are_asynchronous() {
    for (path, text) in sources() {
        let may = ["crates/remote", "crates/daemon", "crates/image/csi"].iter().any(|may| path.starts_with(may));
        assert!(
            may || !text.contains("async fn"),
            "{}: only `remote`, `daemon` and `csi` may be asynchronous",
            path.display()
        );
    }
}

#[test]
fn git_is_started_in_one_place() {
    for (path, text) in sources() {
        let product = text.split("#[cfg(test)]").next().unwrap_or_default();
        let may = path.starts_with("crates/base/git") || path.starts_with("xtask");
        assert!(
            may || !product.contains("Command::new(\"git"),
            "{}: only the `git` crate may start git",
            path.display()
        );
    }
}

#[test]
fn documents_name_the_format_version() {
    let read = |path: &str| std::fs::read_to_string(workspace().join(path)).expect("cannot read the file");
    let model = read("crates/base/model/src/lib.rs");
    let line = model.lines().find_map(|line| line.strip_prefix("pub const FORMAT_VERSION: u8 = "));
    let version = line
        .and_then(|line| line.strip_suffix(';'))
        .expect("crates/base/model/src/lib.rs does not define FORMAT_VERSION");
    assert_eq!(larder_testkit::STORE_VERSION, format!("v{version}"));
    for (page, words) in [
        ("store.md", vec![format!("DIR/v{version}"), format!("`v{version}` is the format version")]),
        ("remotes.md", vec![format!("[PREFIX/]v1.{version}/b/"), format!("`v1.{version}`: the version")]),
        ("fingerprint.md", vec![format!("| `format version` | {version} |")]),
    ] {
        let text = read(&format!("docs/{page}"));
        words.iter().for_each(|word| assert!(text.contains(word), "docs/{page} does not say {word}"));
    }
}

/// Each reason has a row in docs/reasons.md, which begins with its code and what `larder stats`
/// prints.
#[test]
fn the_reference_lists_every_reason() {
    let read = |path: &str| std::fs::read_to_string(workspace().join(path)).expect("cannot read the file");
    let page = read("docs/reasons.md").replace('`', "");
    let mut count = 0;
    for path in ["crates/base/model/src/outcome.rs", "crates/cache/store/src/counters.rs"] {
        let text = read(path);
        // A declaration such as `Signal, "signal", "the tool died";`.
        let declared = |line: &&str| line.ends_with("\";") && line.split('"').count() == 5;
        for line in text.lines().filter(declared) {
            let quoted: Vec<&str> = line.split('"').collect();
            let (code, sentence) = (quoted[1], quoted[3].replace('`', ""));
            // The bytes that were transferred are in one line of `larder stats`.
            if !code.starts_with("bytes_") {
                let row = format!("\n| {code} | {sentence} |");
                assert!(page.contains(&row), "{path} declares the reason {code}, but docs/reasons.md has no row{row}");
                count += 1;
            }
        }
    }
    assert!(count > 50, "only {count} reasons were found: their declarations have another form");
}
