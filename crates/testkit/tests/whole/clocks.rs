//! Commands that show the time, or the times of what they made, in ways that their events do not
//! tell apart from what the programs do in every run.

use larder_testkit::{has, probe_skip};

use super::project::Project;

/// Runs a script through larder three times, each in a new copy of the place. Returns the outcomes.
fn three(project: &Project, script: &str) -> [String; 3] {
    [0, 0, 0].map(|at| {
        project.lay_out(at);
        project.through_larder(at, &["sh", "-c", script]).1.pop().unwrap_or_default()
    })
}

#[track_caller]
fn is_never_recorded(project: &Project, script: &str) {
    let outcomes = three(project, script);
    assert!(outcomes.iter().all(|outcome| outcome.starts_with("miss, not recorded")), "{script}: {outcomes:?}");
}

#[track_caller]
fn hits(project: &Project, script: &str) {
    let outcomes = three(project, script);
    assert_eq!(outcomes[2], "hit", "{script}: {outcomes:?}");
}

fn files() -> Project {
    Project::of(&[
        ("a", "1\n"),
        ("now.awk", "function now() { return systime() }\n"),
        ("maps.m4", "include(/proc/self/maps)\n"),
        ("maps.sed", "r /proc/self/statm\n"),
    ])
}

/// `gzip` writes the mtime of the file that it compresses into its output.
#[test]
fn gzip_dates_what_it_compresses() {
    probe_skip!(has("gzip"), "gzip is not installed");
    let project = files();
    is_never_recorded(&project, "echo 1 > n; gzip n");
    is_never_recorded(&project, "cat a > n; gzip -c n > n.gz");
    hits(&project, "echo 1 > n; gzip -n n");
    hits(&project, "cat a | gzip > n.gz");
    hits(&project, "gzip -k a");
}

#[test]
fn a_text_has_the_time_of_the_run() {
    let project = files();
    is_never_recorded(&project, "echo 2 > n; diff -u n a > out; true");
    hits(&project, "echo 1 > n; diff -u n a > out; echo $? > out; true");
    if has("busybox") {
        is_never_recorded(&project, "echo 1 > n; busybox stat -c %Y n");
    }
}

#[test]
fn gawk_loads_more() {
    probe_skip!(has("gawk"), "gawk is not installed");
    let project = files();
    for script in [
        "gawk -l time 'BEGIN { print gettimeofday() % 1 }' 2> /dev/null",
        "gawk '@load \"time\"; BEGIN { print gettimeofday() % 1 }' 2> /dev/null",
        "gawk --include=now.awk 'BEGIN { print now() }' > n; wc -c < n",
        "echo 'BEGIN { print now() % 2 }' | cat now.awk - > n.awk; gawk -E n.awk",
    ] {
        is_never_recorded(&project, script);
    }
    hits(&project, "gawk '{ print $1 }' a");
}

#[test]
fn zsh_has_more_clocks_than_other_shells() {
    probe_skip!(has("zsh"), "zsh is not installed");
    let project = files();
    for script in
        ["print -P %D{%N} | wc -c", "x=%D{%N}; echo ${#${(%)x}}", "zmodload zsh/stat; zstat -H s a", "echo *(mh-1)"]
    {
        is_never_recorded(&project, &format!("zsh -c '{script}'"));
    }
    // It sorts by mtime. It also lists each directory above its own to learn its path, so another
    // process that makes a file in `/tmp` costs a hit.
    let argv = ["zsh", "-c", "print -l *(.om)"];
    let old = "touch -d 2020-02-02 *";
    assert!((0..20).any(|_| project.compared_after(0, &argv, old) == "hit"));
    project.compared_after(0, &argv, &format!("{old}; touch -d 2020-02-03 a"));
}

/// `grep`, `gawk`, `diff`, `cmp` and `m4` read the map of their memory when they start, to handle a
/// stack that is too large. Here a script asks for it.
#[test]
fn a_script_asks_for_the_memory_of_its_program() {
    let project = files();
    for script in ["grep 1 a >n", "awk 1 a >n", "diff a a", "cmp a a", "sed p a >n"] {
        hits(&project, script);
    }
    for script in [
        "sed -f maps.sed a > n; wc -l < n",
        "sed '1r /proc/self/maps' a > n; head -c 1 n",
        "o=$PWD; cd /; grep . proc/self/maps >$o/n",
        "ln -s /proc/self/maps m; grep . m >n; rm m",
        "grep --file=/proc/self/maps a >n || :",
        "p=/proc; awk 1 $p/self/maps >n",
        "ln -s /proc p; diff p/self/maps a >n || :; rm p",
        "echo /proc/self/maps | tr '\\n' '\\0' >m; sort --files0-from=m >n; rm m",
    ] {
        is_never_recorded(&project, script);
    }
    if has("m4") {
        is_never_recorded(&project, "m4 maps.m4 > n; head -c 1 n");
    }
}
