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

/// git prints names of objects, so what an object holds does not count. Which objects there are
/// counts for a command that finds it out.
#[test]
fn objects_come_and_go() {
    probe_skip!(has("git"), "git is not installed");
    let project = repository();
    let many = r#"seq 40000 | awk '{printf "blob\ndata %d\n%s\n", length($0), $0}' | git fast-import --quiet"#;
    let new = "echo new | git hash-object -w --stdin";
    for (command, change) in [
        // With more objects, shortened names are longer.
        ("git rev-list -1 --oneline HEAD", many),
        ("git rev-parse -q --verify 3e757656cf36eca53338e520d134963a44f793f8^{blob} || echo none", new),
        ("git rev-parse -q --verify 3e7576 || echo none", new),
        ("git rev-parse --disambiguate=3e7576", new),
        ("git rev-list --disk-usage --objects HEAD", "git gc -q"),
    ] {
        let argv = ["sh", "-c", command];
        for _ in 0..3 {
            project.compared(10, &argv);
        }
        project.compared_after(10, &argv, change);
    }
}

/// A store of objects names others, in which git looks as well.
#[test]
fn another_store_of_objects_is_gone() {
    probe_skip!(has("git"), "git is not installed");
    let project = repository();
    let clone = ["git", "clone", "-qs", ".", "c"];
    project.place.run(&clone).cwd(project.place.path("work/pristine")).run().ends(0);
    let argv = ["sh", "-c", "cd c; git log -1 --format=%s || echo failed"];
    let outcomes: Vec<_> = [0, 0, 0].map(|at| project.compared(at, &argv)).into();
    assert_eq!(outcomes[2], "hit", "{outcomes:?}");
    project.compared_after(0, &argv, "rm c/.git/objects/info/alternates");
}

/// git refuses a repository of another user, and a command goes on without what git would print.
#[test]
fn a_repository_belongs_to_another_user() {
    probe_skip!(has("git"), "git is not installed");
    let project = repository();
    let owner = |user: &str, path: &str| format!("chown {user} {path}");
    let given_away = project.place.path("work/given_away");
    std::fs::write(&given_away, "").expect("cannot write the file");
    let is_root = std::os::unix::fs::chown(&given_away, Some(1), None).is_ok();
    probe_skip!(is_root, "this user cannot give files away");
    for command in ["git describe --tags || echo none", "git status --porcelain || echo none"] {
        // The configuration may allow any repository.
        let script = format!("export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1; {command}");
        let argv = ["sh", "-c", &script];
        let outcomes: Vec<_> = [0, 1, 2, 3].map(|at| project.compared(at, &argv)).into();
        assert_eq!(outcomes[2..], ["hit", "hit"], "{command}: {outcomes:?}");
        for path in [".", ".git"] {
            for _ in 0..2 {
                project.compared_after(3, &argv, &owner("1", path));
            }
            assert_eq!(project.compared(3, &argv), "hit", "{command}");
        }
    }
    let settings = "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1";
    for (made, at, owned) in [
        ("git clone -q --bare . b.git", "b.git", "b.git"),
        ("git worktree add -q -f --detach tree HEAD", "tree", ".git/worktrees/tree"),
    ] {
        let script = format!("{settings}; git -C {at} describe --tags || echo none");
        let argv = ["sh", "-c", &script];
        let outcomes = [0, 1, 2, 3].map(|at| project.compared_after(at, &argv, made));
        assert_eq!(outcomes[3], "hit", "{made}: {outcomes:?}");
        project.compared_after(3, &argv, &format!("{made}; {}", owner("1", owned)));
    }
}

#[test]
fn what_else_counts_is_not_recorded() {
    probe_skip!(has("git"), "git is not installed");
    let project = repository();
    let top = project.lay_out(0);
    project.place.run(&["git", "config", "user.when", "3.days"]).cwd(&top).run().ends(0);
    for command in [
        "git log -1 --format=%cr",
        "git log -1 --date=relative",
        "git config --get --type=expiry-date user.when",
        // After a `touch`, these show a file as changed.
        "git diff-index --quiet HEAD",
        "git diff-files",
        "git diff --raw HEAD^",
        // `git update-index --clear-resolve-undo` changes it and no entry of the index.
        "git ls-files --resolve-undo",
    ] {
        for _ in 0..2 {
            let (_, outcomes) = project.through_larder(0, &["sh", "-c", &format!("{command} > /dev/null")]);
            let last = outcomes.last().expect("the log is empty");
            assert!(last.starts_with("miss, not recorded"), "{command}: {last}");
        }
    }
}
