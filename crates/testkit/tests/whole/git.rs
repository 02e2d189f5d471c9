//! `git` inside whole commands: what its read-only commands print follows from HEAD, refs, the
//! index and the contents of tracked files, not from the clock and the times of files.

use larder_testkit::{has, probe_skip};

use super::project::Project;

const BEGIN: &str = "git init -q; git add .; git commit -qm one; git tag -a v1 -m v1; echo 3 > b; git commit -qam two";

/// Changes of a checkout, each of which some commands notice.
const CHANGES: [&str; 8] = [
    "touch -d '1 hour ago' a",
    "echo 9 > a",
    "git commit -q --allow-empty -m three",
    "git tag v2",
    "git pack-refs --all",
    "echo new > n",
    "echo new > n; git add n",
    "git checkout -q HEAD^",
];

const COMMANDS: [&str; 6] = [
    "git describe --always --dirty",
    "git rev-parse HEAD",
    "git log -1 --format=%H",
    "git ls-files",
    "git status --porcelain",
    "git diff --quiet HEAD; echo $?",
];

fn repository() -> Project {
    let project = Project::of(&[("a", "1\n"), ("b", "2\n")]);
    let begin = format!("{BEGIN}; find . -name .git -prune -o -type f -exec touch -d '2 hours ago' {{}} +; git status");
    let set = |run: larder_testkit::Run| {
        ["AUTHOR", "COMMITTER"]
            .iter()
            .fold(run, |run, who| run.env(&format!("GIT_{who}_NAME"), "n").env(&format!("GIT_{who}_EMAIL"), "e@x"))
    };
    set(project.place.run(&["sh", "-euc", &begin])).cwd(project.place.path("work/pristine")).run().ends(0);
    project
}

fn with_author(change: &str) -> String {
    format!("export GIT_AUTHOR_NAME=n GIT_AUTHOR_EMAIL=e@x GIT_COMMITTER_NAME=n GIT_COMMITTER_EMAIL=e@x; {change}")
}

#[test]
fn what_it_prints_follows_from_the_repository() {
    probe_skip!(has("git"), "git is not installed");
    let project = repository();
    for command in COMMANDS {
        let argv = ["sh", "-c", command];
        let outcomes: Vec<_> = [0, 1, 2, 3].map(|at| project.compared(at, &argv)).into();
        assert_eq!(outcomes[2..], ["hit", "hit"], "{command}: {outcomes:?}");
        assert_eq!(project.compared_after(3, &argv, CHANGES[0]), "hit", "{command}");
        for change in &CHANGES[1..] {
            // The change is made twice, for the plain run and for larder's. A commit has the time
            // in it, so it is made with a fixed one.
            let date = "export GIT_AUTHOR_DATE='2020-01-01 00:00 +0000' GIT_COMMITTER_DATE='2020-01-01 00:00 +0000'";
            project.compared_after(3, &argv, &with_author(&format!("{date}; {change}")));
            assert_eq!(project.compared(3, &argv), "hit", "{command} after {change} was undone");
        }
    }
}

#[test]
fn a_relative_date_is_not_recorded() {
    probe_skip!(has("git"), "git is not installed");
    let project = repository();
    project.lay_out(0);
    for command in ["git log -1 --format=%cr", "git log -1 --date=relative"] {
        for _ in 0..2 {
            let (_, outcomes) = project.through_larder(0, &["sh", "-c", &format!("{command} > /dev/null")]);
            let last = outcomes.last().expect("the log is empty");
            assert!(last.starts_with("miss, not recorded"), "{command}: {last}");
        }
    }
}
