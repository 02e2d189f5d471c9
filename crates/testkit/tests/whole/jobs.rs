//! Variables by which CI services describe a job, and the name of the host, which is another one in
//! each container. They count only if the command may read them.

use std::fs;

use larder_testkit::{Run, can_mount, has, larder_text, probe_skip};

use crate::project::{Project, outcome};

/// Sets the variables of job `number`.
fn of_job(run: Run, number: usize) -> Run {
    let sha = format!("{number}").repeat(40);
    run.env("CI", "true")
        .env("GITHUB_SHA", &sha)
        .env("GITHUB_RUN_ID", (1000 + number).to_string())
        .env("GITHUB_REF", "refs/heads/main")
        .env("CI_JOB_ID", "7".repeat(number + 1))
        .env("HOSTNAME", format!("host-{number}"))
}

/// Runs a script in each of the jobs, without larder and through it, and compares what both leave in
/// `out`. Returns the outcomes. `change` is applied to the runs of each job.
#[track_caller]
fn outcomes(project: &Project, script: &str, jobs: &[usize], change: impl Fn(Run, usize) -> Run) -> Vec<String> {
    let (place, log) = (&project.place, project.place.path("log"));
    let in_job = |words: &[&str], job: usize| {
        project.lay_out(0);
        let run = if words[0] == "run" { place.larder(words) } else { place.run(words) };
        let run = change(of_job(run.cwd(project.text(0, "")), job), job);
        run.env("LARDER_LOG", &log).run().ends(0);
        fs::read(project.text(0, "out")).expect("the script writes the file")
    };
    jobs.iter()
        .map(|&job| {
            let _ = fs::remove_file(&log);
            let plain = in_job(&["sh", "-c", script], job);
            assert_eq!(in_job(&["run", "--", "sh", "-c", script], job), plain, "{script} in job {job}");
            let text = fs::read_to_string(&log).expect("cannot read the log");
            text.lines().last().map(outcome).expect("the log has no line")
        })
        .collect()
}

#[track_caller]
fn check(rows: &[(&str, &str)]) {
    let project = Project::of(&[
        ("in", "1\n"),
        ("Makefile", "out: in\n\tcp in out\n"),
        ("names.mk", "out: in\n\techo $(GITHUB_RUN_ID) > out\n"),
        ("ask.c", "#include <stdio.h>\n#include <stdlib.h>\nint main(void) { puts(getenv(\"GITHUB_SHA\")); }\n"),
    ]);
    for (script, expected) in rows {
        let found = outcomes(&project, script, &[1, 2, 3, 4], |run, _| run).join(" ");
        assert_eq!(found, *expected, "{script}");
    }
}

#[test]
fn a_command_that_cannot_read_them_hits_in_the_next_job() {
    check(&[
        ("cat in > out", "miss hit hit hit"),
        ("sed s/1/2/ in > out", "miss hit hit hit"),
        ("make", "miss hit hit hit"),
        ("gcc -c ask.c -o out", "miss hit hit hit"),
    ]);
}

#[test]
fn a_command_that_reads_them_misses() {
    check(&[
        ("echo $GITHUB_SHA > out", "miss miss miss miss"),
        ("echo ${HOSTNAME} > out", "miss miss miss miss"),
        ("echo ${CI_JOB_ID:+yes} > out", "miss miss miss miss"),
        ("make -f names.mk", "miss miss miss miss"),
        ("gcc ask.c -o ask; ./ask > out", "miss miss miss miss"),
        ("printenv GITHUB_SHA > out", "miss miss miss miss"),
        ("env | grep ^GITHUB_SHA > out", "miss miss miss miss"),
        ("export -p | grep JOB > out", "miss miss miss miss"),
        ("a=GITHUB; eval \"echo \\$${a}_SHA > out\"", "miss miss miss miss"),
        ("echo 'a = $(GITHUB_$(B))' > m; echo 'out:; echo $(a) > out' >> m; make -f m B=RUN_ID", "miss miss miss miss"),
        ("printf 'echo $GITHUB_%s' SHA | sh > out", "miss miss miss miss"),
        ("printf 'echo $GITHUB_%s' SHA > s; . ./s > out; rm s", "miss miss miss miss"),
        ("printf 'echo $GITHUB_%s' SHA > s; . ./s > out; : > s", "miss miss miss miss"),
        ("printf 'out:;echo $(GITHUB_%s) > out' SHA | make -f -", "miss miss miss miss"),
        ("echo 'out:; echo $(value GITHUB_$(B)) > out' > m; make -f m B=SHA", "miss miss miss miss"),
        ("make -pqrR -f /dev/null | sed -n '/^GITHUB.SHA/p' > out", "miss miss miss miss"),
    ]);
}

#[test]
fn a_command_that_may_read_them_hits_after_two_jobs_gave_the_same() {
    check(&[
        ("env > /dev/null; cat in > out", "miss miss hit hit"),
        ("eval 'cat in > out'", "miss miss hit hit"),
        ("gcc ask.c -o ask; cat in > out", "miss hit hit hit"),
    ]);
    probe_skip!(has("python3"), "python3 is not installed");
    check(&[
        ("python3 -c 'print(1)' > out", "miss miss hit hit"),
        ("python3 -c 'import os; print(os.environ[\"GITHUB\" + \"_SHA\"])' > out", "miss miss miss miss"),
    ]);
}

/// The branch does not differ between most jobs, so two jobs prove nothing about it.
#[test]
fn another_branch_counts_by_its_name() {
    let project = Project::of(&[("in", "1\n")]);
    let script = "a=GITHUB; eval \"case \\$${a}_REF in refs/tags*) cat in in;; *) cat in;; esac > out\"";
    let with_tag = |run: Run, job| if job == 4 { run.env("GITHUB_REF", "refs/tags/v1") } else { run };
    assert_eq!(outcomes(&project, script, &[1, 2, 3, 4], with_tag), ["miss", "miss", "hit", "miss"]);
    let without = |run: Run, job| if job == 4 { run.without("CI_JOB_ID") } else { run };
    assert_eq!(outcomes(&project, "eval 'cat in > out'", &[1, 2, 3, 4], without), ["miss", "miss", "hit", "miss"]);
}

/// Runs a script on hosts of different names, as in containers, without larder and through it, and
/// compares what both leave in `out`. Returns the outcomes.
#[track_caller]
fn outcomes_on_hosts(project: &Project, script: &str) -> String {
    let log = project.place.path("log");
    let on = |host: &str, words: &[&str]| {
        project.lay_out(0);
        let alone = ["unshare", "--uts", "sh", "-c", "hostname $0; exec \"$@\"", host];
        let run = project.place.run(&[&alone[..], words].concat()).cwd(project.text(0, ""));
        run.env("LARDER_LOG", &log).run().ends(0);
        fs::read(project.text(0, "out")).expect("the script writes the file")
    };
    let outcome_on = |host: &str| {
        let _ = fs::remove_file(&log);
        let plain = on(host, &["sh", "-c", script]);
        project.place.settle();
        let cached = on(host, &[larder_text(), "run", "--", "sh", "-c", script]);
        assert_eq!(cached, plain, "{script} on {host}");
        fs::read_to_string(&log).expect("cannot read the log").lines().last().map(outcome).expect("the log has no line")
    };
    ["h1", "h22", "h333", "h4444"].map(outcome_on).join(" ")
}

#[test]
fn the_name_of_the_host_counts_if_it_can_be_shown() {
    probe_skip!(can_mount() && has("hostname") && has("bash"), "no host can be given a name here");
    let project = Project::of(&[("in", "1\n"), ("Makefile", "S := $(shell uname -s)\nout: in\n\tcp in out\n")]);
    for (script, expected) in [
        ("bash -c 'cat in > out'", "miss hit hit hit"),
        ("make SHELL=/bin/bash", "miss hit hit hit"),
        ("uname > out", "miss hit hit hit"),
        ("uname -sm > out", "miss hit hit hit"),
        ("uname -o > out", "miss hit hit hit"),
        ("bash -c 'eval \"cat in > out\"'", "miss miss hit hit"),
        ("uname -n > out", "miss miss miss miss"),
        ("uname --node > out", "miss miss miss miss"),
        ("uname -a > out", "miss miss miss miss"),
        ("hostname > out", "miss miss miss miss"),
        ("cp /bin/uname u; ./u -n > out; rm u", "miss miss miss miss"),
        ("bash -c 'echo $HOSTNAME > out'", "miss miss miss miss"),
        ("bash -c 'n=HOST; n=${n}NAME; echo ${!n} > out'", "miss miss miss miss"),
        ("bash -c 'set' | grep ^HOST.AME > out", "miss miss miss miss"),
        ("bash -c 'x=\"\\h\"; echo \"${x@P}\" > out'", "miss miss miss miss"),
        ("printf 'echo $HOST%s' NAME | bash > out", "miss miss miss miss"),
    ] {
        assert_eq!(outcomes_on_hosts(&project, script), expected, "{script}");
    }
}
