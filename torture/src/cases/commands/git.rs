//! `git` as a part of other commands.

use crate::case::{Case, case};
use crate::change::{Change, sh};

const REPOSITORY: &str = "export GIT_AUTHOR_NAME=n GIT_AUTHOR_EMAIL=e GIT_COMMITTER_NAME=n GIT_COMMITTER_EMAIL=e \
    GIT_AUTHOR_DATE='2020-01-01 00:00 +0000' GIT_COMMITTER_DATE='2020-01-01 00:00 +0000'; ";

fn git(text: &str) -> Change {
    sh(format!("{REPOSITORY}{text}; sleep 0.02"))
}

/// Returns a case that runs the command in one repository, after each change of it.
fn changed(name: &str, text: &str) -> Case {
    let begin = "git init -q; echo 1 > a; echo 2 > b; git add a b; git commit -qm one; git tag -a v1 -m v1; \
        echo 3 > b; git commit -qam two; touch -d '2020-01-01' a b";
    let changes = [
        ("touched", "touch a"),
        ("edited", "echo 9 > a"),
        ("edited back", "echo 1 > a"),
        ("same size", "echo 8 > b"),
        ("undone", "git checkout -q b"),
        ("mode", "chmod +x a"),
        ("mode back", "chmod -x a"),
        ("untracked", "echo n > n"),
        ("staged", "git add n"),
        ("committed", "git commit -qm three"),
        ("tagged", "git tag v2"),
        ("packed", "git pack-refs --all; git gc -q"),
        ("deleted", "rm b"),
        ("restored", "git checkout -q b"),
        ("other branch", "git checkout -q -b other HEAD^"),
        ("configured", "git config core.abbrev 12"),
        ("ignored", "echo a > .gitignore"),
    ];
    let case = case(format!("F/git-{name}")).program("git").setup(git(begin)).any_sh(text).loose(".git/*", "git's own");
    let case = case.cold().cold();
    changes
        .iter()
        .fold(case, |case, (label, change)| case.then(label, git(change)).then(label, crate::change::nothing()))
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        changed("describe-always", "git describe --always --dirty"),
        changed("describe-long", "git describe --tags --long --abbrev=8"),
        changed("rev-parse", "git rev-parse HEAD; git rev-parse --short HEAD; git rev-parse --abbrev-ref HEAD"),
        changed("log", "git log -1 --format=%H%n%h%n%s%n%ci"),
        changed("ls-files", "git ls-files -s"),
        changed("status", "git status --porcelain"),
        changed("diff", "git diff --quiet; echo $?; git diff --quiet HEAD; echo $?; git diff --name-only"),
        changed("diff-text", "git diff HEAD"),
        changed("rev-list", "git rev-list --count HEAD; git show-ref; git symbolic-ref -q HEAD"),
        case("F/git-relative-date")
            .program("git")
            .setup(sh(format!("{REPOSITORY}git init -q; echo 1 > a; git add a; git commit -qm one")))
            .any_sh("git log -1 --format=%cr > /dev/null; git log -1 --date=relative > /dev/null")
            .cold()
            .then("again", crate::change::nothing())
            .fresh(),
    ]
}
