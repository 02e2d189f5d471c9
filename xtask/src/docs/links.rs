//! Checks that each link within the repository leads to a file, and to a heading if it names one;
//! that `docs/SUMMARY.md`, the table of contents, has each page of `docs/` once; and that pages
//! which the code names exist.
//!
//! Unaware of: links to other sites, which no network is needed to leave alone.

use super::page::{Link, Page};
use crate::run;
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

const SUMMARY: &str = "docs/SUMMARY.md";

/// Returns a line for each problem.
pub(super) fn check(repo: &Path, pages: &[Page]) -> Result<Vec<String>> {
    let by_path: BTreeMap<&str, &Page> = pages.iter().map(|page| (page.path.as_str(), page)).collect();
    let mut problems = Vec::new();
    for page in pages {
        for link in &page.links {
            let problem = problem(repo, &by_path, page, link);
            problems.extend(problem.map(|what| format!("{}:{}: {}: {what}", page.path, link.line, link.target)));
        }
    }
    problems.extend(contents(&by_path));
    problems.extend(named_by_code(repo)?);
    Ok(problems)
}

fn problem(repo: &Path, pages: &BTreeMap<&str, &Page>, page: &Page, link: &Link) -> Option<String> {
    if link.target.contains("://") || link.target.starts_with("mailto:") {
        return None;
    }
    let (target, anchor) = link.target.split_once('#').unwrap_or((&link.target, ""));
    let path = if target.is_empty() { Some(page.path.clone()) } else { resolved(&page.path, target) };
    let Some(path) = path.filter(|path| repo.join(path).exists()) else { return Some("there is no such file".into()) };
    if page.path.starts_with("docs/") && !path.starts_with("docs/") {
        return Some("it leads out of the book: write the path as text".into());
    }
    let found = pages.get(path.as_str());
    let is_missing = !anchor.is_empty() && !found.is_some_and(|page| page.anchors.contains(anchor));
    is_missing.then(|| format!("{path} has no heading with this anchor"))
}

/// Returns the path in the repository that `target` means in the document `from`.
fn resolved(from: &str, target: &str) -> Option<String> {
    let mut path = PathBuf::from(from);
    path.pop();
    for component in Path::new(target).components() {
        match component {
            Component::Normal(name) => path.push(name),
            Component::ParentDir => path.pop().then_some(())?,
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    path.to_str().map(str::to_owned)
}

/// Checks that the table of contents has each page of the book once.
fn contents(pages: &BTreeMap<&str, &Page>) -> Vec<String> {
    let Some(summary) = pages.get(SUMMARY) else { return vec![format!("there is no {SUMMARY}")] };
    let mut listed = BTreeSet::new();
    let mut problems = Vec::new();
    for path in summary.links.iter().filter_map(|link| resolved(SUMMARY, &link.target)) {
        if !listed.insert(path.clone()) {
            problems.push(format!("{SUMMARY}: {path} is listed twice"));
        }
    }
    let unlisted = pages.keys().filter(|&&path| path.starts_with("docs/") && path != SUMMARY && !listed.contains(path));
    problems.extend(unlisted.map(|path| format!("{SUMMARY}: {path} is not listed")));
    problems
}

/// Checks that each `docs/NAME.md` in a source file exists.
fn named_by_code(repo: &Path) -> Result<Vec<String>> {
    let mut git = Command::new("git");
    // The tests below name pages that do not exist.
    let words = ["ls-files", "--", "*.rs", "*.c", "*.h", "*.toml", ":!xtask/src/docs/links.rs"];
    let listed = run::output(git.args(words).current_dir(repo))?;
    let mut problems = Vec::new();
    for source in listed.lines() {
        let text = fs::read_to_string(repo.join(source)).unwrap_or_default();
        let names = text.match_indices("docs/").filter_map(|(at, _)| name_of_page(&text[at..]));
        problems
            .extend(names.filter(|name| !repo.join(name).exists()).map(|name| format!("{source}: there is no {name}")));
    }
    Ok(problems)
}

/// Returns `docs/NAME.md` at the beginning of `text`.
fn name_of_page(text: &str) -> Option<&str> {
    let name = text.split(|char: char| !char.is_ascii_alphanumeric() && !"/.-_".contains(char)).next()?;
    name.find(".md").map(|end| &name[..end + ".md".len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_links() {
        let repo = std::env::temp_dir().join(format!("xtask-links-{}", std::process::id()));
        fs::create_dir_all(repo.join("docs")).expect("a directory");
        let texts = [
            ("README.md", "[a](docs/a.md#one) [b](docs/none.md) [c](https://example.org/x)"),
            ("docs/a.md", "# One\n\n[a](#one) [b](#two) [c](../README.md) [d](b.md#b)"),
            ("docs/b.md", "# B"),
            ("docs/SUMMARY.md", "- [a](a.md)\n- [a again](a.md)\n"),
        ];
        let pages: Vec<Page> = texts.iter().map(|(path, text)| Page::read(path, text)).collect();
        for (path, text) in texts {
            fs::write(repo.join(path), text).expect("a file");
        }
        let by_path: BTreeMap<&str, &Page> = pages.iter().map(|page| (page.path.as_str(), page)).collect();
        let mut wrong = Vec::new();
        for page in &pages {
            let links = page.links.iter().filter(|link| problem(&repo, &by_path, page, link).is_some());
            wrong.extend(links.map(|link| link.target.as_str()));
        }
        fs::remove_dir_all(&repo).expect("removable");
        assert_eq!(wrong, ["docs/none.md", "#two", "../README.md"]);
        let expected = ["docs/SUMMARY.md: docs/a.md is listed twice", "docs/SUMMARY.md: docs/b.md is not listed"];
        assert_eq!(contents(&by_path), expected);
        assert_eq!(name_of_page("docs/store.md.\n"), Some("docs/store.md"));
        assert_eq!(name_of_page("docs/ has pages. a.md"), None);
    }
}
