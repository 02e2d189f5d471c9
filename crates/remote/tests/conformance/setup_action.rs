//! The action `setup-larder`, against the stand-in for GitHub's cache: its two steps run as the
//! runner would run them, and a build between them.

use std::fs;
use std::path::PathBuf;

use larder_testkit::{Place, Ran, Run, has, larder, probe_skip, workspace};

use crate::actions::serve;

/// What the runner gives to steps, and what steps tell it.
struct Machine<'a> {
    place: &'a Place,
    number: u32,
    port: u16,
}

/// The files by which a step talks to the runner.
const FILES: [&str; 5] = ["GITHUB_ENV", "GITHUB_PATH", "GITHUB_STATE", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"];

impl Machine<'_> {
    fn file(&self, name: &str) -> PathBuf {
        self.place.path(format!("tmp/{name}-{}", self.number))
    }

    fn told(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    /// Returns a command as each step gets it: with what earlier steps set, and without the token.
    fn step(&self, argv: &[&str]) -> Run {
        let added: String = self.told("GITHUB_PATH").lines().rev().map(|line| format!("{line}:")).collect();
        let run = self.place.run(argv).env("PATH", format!("{added}{}", std::env::var("PATH").expect("has one")));
        let run = run.env("LARDER_DIR", self.place.path(format!("store{}", self.number)));
        let set = |run: Run, line: &str| match line.split_once('=') {
            Some((name, value)) => run.env(name, value),
            None => run,
        };
        self.told("GITHUB_ENV").lines().fold(run, set)
    }

    /// Runs a step of the action, which gets the token of the cache and its own state.
    fn action(&self, script: &str, inputs: &[(&str, &str)]) -> Ran {
        self.place.settle();
        let script = workspace().join("setup-larder").join(script);
        let mut run = self.step(&["node", script.to_str().expect("not UTF-8")]);
        for name in FILES {
            run = run.env(name, self.file(name));
        }
        run = run.env("ACTIONS_RUNTIME_TOKEN", "hush-token").env("ACTIONS_CACHE_SERVICE_V2", "true");
        run = run.env("ACTIONS_RESULTS_URL", format!("http://127.0.0.1:{}/", self.port));
        run = run.env("RUNNER_TEMP", self.place.path("tmp"));
        for line in self.told("GITHUB_STATE").lines() {
            let (name, value) = line.split_once('=').expect("has a value");
            run = run.env(&format!("STATE_{name}"), value);
        }
        inputs.iter().fold(run, |run, (name, value)| run.env(&format!("INPUT_{name}"), value)).run()
    }

    /// Runs a whole job. Returns the summary and the outputs.
    fn job(&self, inputs: &[(&str, &str)]) -> (String, String) {
        for name in ["a.o", "b.o"] {
            self.place.remove(&[name]);
        }
        let _ = fs::remove_dir_all(self.place.path("work/modules"));
        self.action("main.js", inputs).ends(0);
        assert!(!self.told("GITHUB_ENV").contains("hush"), "a later step would get the token");
        for name in ["a", "b"] {
            self.place.settle();
            let (source, object) = (format!("{name}.c"), format!("{name}.o"));
            // The name leads to larder, because the action put its links first in PATH.
            self.step(&["sh", "-c", "gcc -c \"$0\" -o \"$1\"", &source, &object]).run().ends(0);
        }
        self.place.run(&["sh", "-c", "mkdir -p modules && echo 1 >modules/one"]).run().ends(0);
        // A step of the job, such as a script of a package, puts a program of its own first in PATH.
        self.place.tool("evil/larder", "touch \"$0.ran\"");
        let path = self.told("GITHUB_PATH");
        fs::write(self.file("GITHUB_PATH"), format!("{path}{}\n", self.place.text("evil"))).expect("cannot write");
        let post = self.action("post.js", inputs).ends(0);
        assert!(!post.stdout.contains("::warning"), "{post:?}");
        assert!(!self.place.path("evil/larder.ran").exists(), "it would have had the token of the cache");
        (self.told("GITHUB_STEP_SUMMARY"), self.told("GITHUB_OUTPUT"))
    }
}

#[test]
fn the_action_shares_results_and_reports_them() {
    probe_skip!(has("node") && has("gcc"), "Node.js or gcc is not installed");
    let place = Place::new();
    for name in ["a", "b"] {
        place.put(&format!("{name}.c"), format!("int {name};\n"));
    }
    let port = serve().port;
    let binaries = larder().parent().expect("has one").to_str().expect("not UTF-8").to_owned();
    let inputs = [
        ("BINARIES", binaries.as_str()),
        ("REMOTE", "ghac://larder"),
        ("MASQUERADE", "true"),
        ("IMAGES", "modules deps-{{os}}-{{arch}} deps-"),
        ("FLUSH-TIMEOUT", "60"),
    ];
    // In the first jobs larder learns how the compiler can be observed.
    let mut seen = Vec::new();
    for number in 1..=6 {
        let machine = Machine { place: &place, number, port };
        let (summary, outputs) = machine.job(&inputs);
        assert!(summary.starts_with("### larder") && summary.contains("| gcc |"), "{summary}");
        assert_eq!(outputs.trim(), format!("images-exact={}", number > 1));
        let is_shared = summary.contains("**2 hits**") && summary.contains("2 of them were downloaded");
        seen.push(summary);
        if is_shared {
            return;
        }
    }
    panic!("no machine got everything from the cache: {seen:#?}");
}

/// A step that fails may leave a directory half made. A later job must not get that.
#[test]
fn a_job_that_failed_saves_no_directory() {
    probe_skip!(has("node"), "Node.js is not installed");
    let place = Place::new();
    let port = serve().port;
    let binaries = larder().parent().expect("has one").to_str().expect("not UTF-8").to_owned();
    for (number, status, exact) in [(1, "failure", false), (2, "success", false), (3, "success", true)] {
        let machine = Machine { place: &place, number, port };
        let inputs = [
            ("BINARIES", binaries.as_str()),
            ("REMOTE", "ghac://larder"),
            ("IMAGES", "modules deps"),
            ("JOB-STATUS", status),
        ];
        let _ = fs::remove_dir_all(place.path("work/modules"));
        machine.action("main.js", &inputs).ends(0);
        assert_eq!(machine.told("GITHUB_OUTPUT").trim(), format!("images-exact={exact}"), "job {number}");
        place.put("modules/one", "1");
        machine.action("post.js", &inputs).ends(0);
    }
}

#[test]
fn a_download_with_a_wrong_sum_is_not_used() {
    probe_skip!(has("node"), "Node.js is not installed");
    let place = Place::new();
    let name = "larder-9.9.9-x86_64-linux.tar.gz".replace("x86_64", std::env::consts::ARCH);
    fs::create_dir(place.path("work/v9.9.9")).expect("cannot create the directory");
    place.put(&format!("v9.9.9/{name}"), "not an archive");
    place.put("v9.9.9/SHA256SUMS", format!("{}  {name}\n", "0".repeat(64)));
    let server = "const http = require('http'), fs = require('fs'); const server = http.createServer((q, a) => \
                  a.end(fs.readFileSync('.' + q.url))); server.listen(0, () => console.log(server.address().port));";
    let mut child = place.run(&["node", "-e", server]).start();
    let mut line = String::new();
    let mut said = std::io::BufReader::new(child.stdout.take().expect("is a pipe"));
    std::io::BufRead::read_line(&mut said, &mut line).expect("cannot read the port");
    let machine = Machine { place: &place, number: 1, port: 0 };
    let releases = format!("http://127.0.0.1:{}", line.trim());
    let ran = machine.action("main.js", &[("RELEASES", &releases), ("VERSION", "9.9.9"), ("REMOTE", "")]);
    child.kill().expect("cannot end the server");
    child.wait().expect("cannot wait for the server");
    assert!(ran.code == Some(1) && ran.stdout.contains("does not have the sum"), "{ran:?}");
    assert_eq!(machine.told("GITHUB_PATH"), "");
}

/// The action installs the release that it belongs to.
#[test]
fn the_versions_agree() {
    let version = env!("CARGO_PKG_VERSION");
    let read = |path: &str| fs::read_to_string(workspace().join(path)).expect("is there");
    assert!(read("setup-larder/main.js").contains(&format!("const VERSION = '{version}';")));
    assert!(read("templates/setup-larder.yml").contains(&format!("default: {version}\n")));
}
