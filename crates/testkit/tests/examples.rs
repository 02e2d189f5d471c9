//! The examples for CI in `examples/ci` can be parsed, and their steps work on a machine where
//! larder is already installed. A second machine gets everything from the first one.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use larder_testkit::{Place, Run, has, larder, probe_skip, program, workspace};
use serde_json::Value;

/// Returns an example as JSON, or `None` if Python's yaml, which parses it, is not installed.
fn example(place: &Place, name: &str) -> Option<Value> {
    let path = workspace().join("examples/ci").join(name);
    let script = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1])), default=str))";
    let read = place.run(&["python3", "-c", script, path.to_str().expect("not UTF-8")]).run();
    if read.stderr.contains("No module named 'yaml'") {
        eprintln!("skipped: Python's yaml is not installed");
        return None;
    }
    Some(serde_json::from_str(&read.ends(0).stdout).expect("not JSON"))
}

/// Prepares a CI machine: an empty store, larder's programs at the path that the example uses, and
/// a small project.
fn machine(place: &Place, number: u32) {
    place.put("Makefile", "all: a.o b.o\n%.o: %.c\n\t$(CC) -c $< -o $@\n");
    for name in ["a", "b"] {
        place.put(&format!("{name}.c"), format!("int {name};\n"));
        place.remove(&[&format!("{name}.o")]);
    }
    let programs = place.path("work/.larder-programs");
    fs::create_dir_all(&programs).expect("cannot create the directory");
    for program in ["larder", "larderd"] {
        let _ = fs::remove_file(programs.join(program));
        symlink(larder().with_file_name(program), programs.join(program)).expect("cannot create the link");
    }
    let _ = fs::create_dir(place.path(format!("store{number}")));
}

/// Runs a step with the shell and the options that the CI service uses, and returns its standard
/// output.
fn step(place: &Place, number: u32, words: &[&str], script: &str) -> String {
    place.settle();
    let path = format!("{}:{}", place.text("work/.larder-programs"), std::env::var("PATH").expect("`PATH` is not set"));
    let run = place.run(&[words, &[script]].concat());
    let set = |run: Run, (name, value): (&str, String)| run.env(name, value);
    let variables = [
        ("PATH", path),
        ("CI_PROJECT_DIR", place.text("work")),
        ("LARDER_DIR", place.text(&format!("store{number}"))),
        ("LARDER_REMOTE", format!("file://{}", place.text("work/.larder-remote"))),
    ];
    let ran = variables.into_iter().fold(run, set).run().ends(0);
    assert!(!ran.stdout.contains("not all was sent"), "{ran:?}");
    ran.stdout
}

fn texts(value: &Value) -> Vec<String> {
    let all = value.as_array().expect("not a list").iter();
    all.map(|one| one.as_str().expect("not a string").to_owned()).collect()
}

/// Runs all steps on one machine and then on others, until one of them gets everything from the
/// remote. On a busy machine `larderd` may start too late, and then the tool runs. The last step
/// must print `larder stats`.
fn works(place: &Place, words: &[&str], steps: &[String]) {
    assert!(steps.len() >= 3, "{steps:?}");
    let build = |number: u32| {
        place.remove(&["a.o", "b.o"]);
        let said =
            steps.iter().fold(None, |_, script| Some(step(place, number, words, script))).expect("there are no steps");
        assert!(said.contains("hit"), "{said}");
        let json = step(place, number, words, "larder stats --json");
        let stats: Value = serde_json::from_str(&json).expect("not JSON");
        (stats["hit"].as_u64().expect("not a number"), stats["remote_hit"].as_u64().unwrap_or(0))
    };
    machine(place, 1);
    // In the first runs larder learns how the compiler can be observed.
    let mut hits = 0;
    let recorded = (0..8).any(|_| {
        let before = std::mem::replace(&mut hits, build(1).0);
        hits == before + 2
    });
    assert!(recorded, "nothing is recorded");
    step(place, 1, words, "larder daemon stop");
    let found = (2..8).any(|number| {
        machine(place, number);
        let found = build(number);
        step(place, number, words, "larder daemon stop");
        found == (2, 2)
    });
    assert!(found, "no machine got everything that the first one uploaded");
}

/// Returns what a step of a GitHub job runs, as a shell script. Node runs a script of
/// `actions/github-script`, with as much of that action's toolkit as the examples use.
/// `core.setOutput` prints what it sets.
fn script_of(job: &Value, name: &str) -> String {
    const TOOLKIT: &str = "const exec = { exec: async (program, words, options = {}) => {\n\
        const code = require('child_process').spawnSync(program, words, { stdio: 'inherit' }).status;\n\
        if (code !== 0 && !options.ignoreReturnCode) throw new Error(`${program} ended with ${code}`);\n\
        return code; } };\n\
        const core = { setOutput: (name, value) => console.log(`${name}=${value}`) };\n";
    let mut steps = job["steps"].as_array().expect("not a list").iter();
    let step = steps.find(|step| step["name"] == name).unwrap_or_else(|| panic!("no step {name}"));
    if let Some(script) = step["with"]["script"].as_str() {
        assert!(step["uses"].as_str().is_some_and(|action| action.starts_with("actions/github-script@")), "{step}");
        return format!("node - <<'END_OF_SCRIPT'\n{TOOLKIT}(async () => {{\n{script}\n}})();\nEND_OF_SCRIPT\n");
    }
    step["run"].as_str().expect("the step has no script").to_owned()
}

/// The project's own workflows, and those that are examples for others.
#[test]
fn workflows_have_no_errors() {
    let Some(actionlint) = program("actionlint") else {
        eprintln!("skipped: actionlint is not installed");
        return;
    };
    let place = Place::new();
    let directories = [".github/workflows", "examples/ci"].map(|directory| workspace().join(directory));
    let entries = directories.iter().flat_map(|directory| fs::read_dir(directory).expect("cannot list the directory"));
    let paths = entries.map(|entry| entry.expect("cannot list the directory").path());
    let is_github = |path: &PathBuf| !path.to_string_lossy().contains("gitlab");
    let words: Vec<PathBuf> = [actionlint].into_iter().chain(paths.filter(is_github)).collect();
    assert!(words.len() >= 5, "{words:?}");
    let ran = place.run(&words).cwd(workspace()).run();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{ran:?}");
}

/// Each action is pinned by the digest of a commit, and no step passes the token of GitHub's cache
/// to later ones.
#[test]
fn github_actions_are_pinned_and_keep_the_token() {
    let place = Place::new();
    for (name, job) in [("github.yml", "build"), ("github-node.yml", "test")] {
        let Some(example) = example(&place, name) else { return };
        let text = example.to_string();
        assert!(!text.contains("exportVariable") && !text.contains("ACTIONS_RUNTIME_TOKEN"), "{name}");
        let steps = example["jobs"][job]["steps"].as_array().expect("not a list");
        let actions: Vec<&str> = steps.iter().filter_map(|step| step["uses"].as_str()).collect();
        let is_pinned = |action: &&str| {
            let commit = action.split_once('@').map_or("", |(_, version)| version);
            commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        assert!(actions.len() >= 3 && actions.iter().all(is_pinned), "{name}: {actions:?}");
    }
}

#[test]
fn github() {
    probe_skip!(has("make") && has("gcc") && has("bash") && has("node"), "make, gcc, bash or Node.js is not installed");
    let place = Place::new();
    let Some(example) = example(&place, "github.yml") else { return };
    let job = &example["jobs"]["build"];
    assert_eq!(job["env"]["LARDER_REMOTE"], "ghac://larder");
    let named = |name: &str| script_of(job, name);
    assert!(named("Build larder").contains("cargo xtask build") && named("Path").contains("GITHUB_PATH"));
    works(&place, &["bash", "-e", "-o", "pipefail", "-c"], &["Start", "Build", "Send", "Statistics"].map(named));
}

#[test]
fn gitlab() {
    probe_skip!(has("make") && has("gcc"), "make or gcc is not installed");
    let place = Place::new();
    let Some(example) = example(&place, "gitlab.yml") else { return };
    assert_eq!(example["variables"]["LARDER_REMOTE"], "file://$CI_PROJECT_DIR/.larder-remote");
    let job = &example["build"];
    let kept: Vec<String> =
        job["cache"].as_array().expect("not a list").iter().flat_map(|one| texts(&one["paths"])).collect();
    assert_eq!(kept, [".larder-programs", ".larder-remote"]);
    // GitLab runs the first two in one shell. The programs exist already, so nothing is built.
    let before = [texts(&job["before_script"]), texts(&job["script"])].concat().join("\n");
    let steps: Vec<String> = [before].into_iter().chain(texts(&job["after_script"])).collect();
    works(&place, &["sh", "-e", "-c"], &steps);
}

/// Writes a project with one package, which npm installs from a file beside it without a download.
fn node_project(place: &Place) {
    place.put("dep/package.json", r#"{ "name": "dep", "version": "1.0.0", "main": "index.js" }"#);
    place.put("dep/index.js", "module.exports = 42;\n");
    let test = r#"node -e \"process.exit(require('dep') === 42 ? 0 : 1)\""#;
    let package = format!(
        r#"{{ "name": "app", "version": "1.0.0", "scripts": {{ "test": "{test}" }},
              "dependencies": {{ "dep": "file:dep-1.0.0.tgz" }} }}"#
    );
    place.put("package.json", package);
    let prepare = "npm pack ./dep && npm install --package-lock-only --no-audit --no-fund && git init -q . && \
                   git add package.json package-lock.json && git -c user.name=x -c user.email=x@y commit -qm x";
    place.run(&["sh", "-e", "-c", prepare]).env("HOME", place.path("tmp")).run().ends(0);
}

/// Asserts that the first machine installs and saves, and that others only restore. The first of
/// the steps `packages` prints the outcome for the image; the others run if it was not exact.
fn node_modules_come_from_the_first(place: &Place, words: &[&str], packages: &[String], test: &str) {
    for number in 1..=3 {
        let _ = fs::remove_dir_all(place.path("work/node_modules"));
        machine(place, number);
        let said = step(place, number, words, &packages[0]);
        let expected = if number == 1 { "miss" } else { "exact" };
        assert!(said.contains(expected), "machine {number}: {said}");
        if number == 1 {
            packages[1..].iter().for_each(|script| drop(step(place, number, words, script)));
        } else if packages.len() > 1 {
            assert!(said.contains("exact=true"), "machine {number}: {said}");
        }
        step(place, number, words, test);
    }
}

#[test]
fn github_node() {
    probe_skip!(has("npm") && has("git") && has("bash"), "npm, git or bash is not installed");
    let place = Place::new();
    let Some(example) = example(&place, "github-node.yml") else { return };
    let job = &example["jobs"]["test"];
    assert_eq!(job["env"]["LARDER_REMOTE"], "ghac://larder");
    let named = |name: &str| script_of(job, name);
    node_project(&place);
    let bash = ["bash", "-e", "-o", "pipefail", "-c"];
    let packages = ["Restore", "Install", "Save"].map(named);
    node_modules_come_from_the_first(&place, &bash, &packages, &named("Test"));
}

#[test]
fn gitlab_node() {
    probe_skip!(has("npm") && has("git"), "npm or git is not installed");
    let place = Place::new();
    let Some(example) = example(&place, "gitlab-node.yml") else { return };
    let script = texts(&example["test"]["script"]);
    assert_eq!(script.len(), 2, "{script:?}");
    node_project(&place);
    node_modules_come_from_the_first(&place, &["sh", "-e", "-c"], &script[..1], &script[1]);
}
