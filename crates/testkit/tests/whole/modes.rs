//! File modes that exist before the command: it keeps them, sets them anew, or depends on them.

use std::fs::{Permissions, metadata, set_permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use larder_testkit::{Tree, is_root, larder_text, probe_skip};

use super::project::Project;

/// Each script leaves `b`, and some depend on the mode that `b` had before.
const SCRIPTS: &[&str] = &[
    "cp -p a b",
    "cp -p a b; cat a > c",
    "cat a > b; chmod 750 b",
    "cat a > b; chmod +x b",
    "rm -f b; cp -p a b",
    "rm -f b; cat a > b; chmod +x b",
    "if test -x b; then echo yes; else echo no; fi > d; rm -f b; cat a > b",
    "if test -x b; then echo yes; else echo no; fi > d; cat a > b",
    "cat a > b.new; chmod 700 b.new; mv b.new b",
];

#[test]
fn modes_that_were_there() {
    for script in SCRIPTS {
        let project = Project::of(&[("a", "a\n"), ("b", "of before\n"), ("c", "of before\n")]);
        let argv = ["sh", "-c", script];
        let give = |name: &str, mode: u32| {
            let path = project.place.path(format!("work/pristine/{name}"));
            set_permissions(path, Permissions::from_mode(mode)).expect("cannot set the mode");
        };
        for at in [0, 0, 1, 2] {
            project.compared(at, &argv);
        }
        assert_eq!(project.compared(3, &argv), "hit", "{script}");
        for mode in [0o755, 0o600, 0o444, 0o640] {
            give("b", mode);
            project.compared(0, &argv);
            project.compared(3, &argv);
        }
        give("b", 0o644);
        for mode in [0o755, 0o600] {
            give("c", mode);
            project.compared(3, &argv);
        }
        give("a", 0o711);
        project.compared(0, &argv);
        project.compared(3, &argv);
    }
}

/// A copy of a file that the command made has that file's mode, which depends on the umask.
#[test]
fn modes_that_the_umask_left() {
    for script in ["cat a > b; cp b c", "mkdir d; cat a > d/b; cp -r d e"] {
        let project = Project::of(&[("a", "a\n")]);
        let argv = ["sh", "-c", script];
        (0..2).for_each(|_| drop(project.compared(0, &argv)));
        assert_eq!(project.compared(0, &argv), "hit", "{script}");
        for umask in ["002", "077"] {
            let left = |wrapper: &[&str]| {
                let top = project.lay_out(0);
                let under = format!("umask {umask}; exec \"$@\"");
                let mut line = vec!["sh", "-c", under.as_str(), "sh"];
                line.extend(wrapper);
                line.extend(argv);
                project.place.run(&line).cwd(&top).run().ends(0);
                Tree::of(top.as_ref())
            };
            let plain = left(&[]);
            let ours = left(&[larder_text(), "run", "--"]);
            assert_eq!(
                ours.difference(&plain),
                None,
                "{script} with umask {umask}: files differ (with larder / without)"
            );
        }
    }
}

/// A new directory inherits its group if the parent directory has the set-group-ID bit.
#[test]
fn directories_that_hand_on_their_group() {
    for script in ["mkdir d/e", "umask 022; mkdir d/e; cat a > d/e/b"] {
        let project = Project::of(&[("a", "a\n"), ("d/c", "c\n")]);
        let argv = ["sh", "-c", script];
        (0..2).for_each(|_| drop(project.compared(0, &argv)));
        assert_eq!(project.compared(0, &argv), "hit", "{script}");
        assert_eq!(project.compared_after(0, &argv, "chmod g+s d"), "hit", "{script}");
    }
    let project = Project::of(&[("d/c", "c\n")]);
    let argv = ["sh", "-c", "umask 022; mkdir d/e"];
    (0..2).for_each(|_| drop(project.compared_after(0, &argv, "chmod g+s d")));
    assert_eq!(project.compared(0, &argv), "hit");
}

/// A hit puts its outputs in place together by replacing the old files, but must keep the group of
/// an old file.
#[test]
fn the_group_of_what_is_written_over() {
    const OTHERS: u32 = 4;
    let project = Project::of(&[("old", "\n"), ("out", "of before\n")]);
    let out = project.place.path("work/pristine/out");
    probe_skip!(chown(&out, None, Some(OTHERS)).is_ok(), "files cannot be given to another group");
    let argv = ["sh", "-c", "rm -f old; echo 1 > out"];
    for outcome in ["miss", "hit"] {
        project.lay_out(0);
        assert_eq!(project.through_larder(0, &argv).1, [outcome]);
        assert_eq!(metadata(project.text(0, "out")).expect("cannot stat the file").gid(), OTHERS, "{outcome}");
    }
}

/// Programs that give what they make the owner of what they read.
#[test]
fn owners_that_are_copied() {
    probe_skip!(is_root(), "only root can give files away");
    for script in ["cp -p a b", "cp -a d e", "sed -i s/a/b/ a", "gzip -k a"] {
        let project = Project::of(&[("a", "a\n"), ("d/c", "c\n")]);
        let argv = ["sh", "-c", script];
        (0..2).for_each(|_| drop(project.compared(0, &argv)));
        assert_eq!(project.compared(0, &argv), "hit", "{script}");
        for owner in ["1", "0:1"] {
            let change = format!("chown -R {owner} a d");
            let outcome = project.compared_after(0, &argv, &change);
            assert_ne!(outcome, "hit", "{script} after {change}");
        }
    }
}
