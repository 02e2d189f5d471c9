//! The install script and the component for GitLab, with a release that is made here from the
//! programs under test.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use larder_testkit::{Place, Ran, Tree, copy_program, has, larder, larder_text, probe_skip, workspace};
use serde_json::Value;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Makes a release in `releases/vVERSION`, with the archive of this architecture. Returns its
/// directory.
fn release(place: &Place) -> PathBuf {
    let release = place.path(format!("releases/v{VERSION}"));
    let name = format!("larder-{VERSION}-{}-linux", std::env::consts::ARCH);
    let tree = place.path(format!("tree/{name}"));
    fs::create_dir_all(tree.join("completions")).expect("cannot create the directory");
    fs::create_dir_all(&release).expect("cannot create the directory");
    for program in ["larder", "larderd"] {
        copy_program(larder().with_file_name(program), tree.join(program));
    }
    let own = larder_text();
    place.run(&[own, "man", "--dir", tree.join("man").to_str().expect("not UTF-8")]).run().ends(0);
    for (shell, file) in [("bash", "larder"), ("zsh", "_larder"), ("fish", "larder.fish")] {
        let text = place.run(&[own, "completions", shell]).run().quiet();
        fs::write(tree.join("completions").join(file), text).expect("cannot write the file");
    }
    let line = "tar -C \"$1\" -czf \"$2/$3.tar.gz\" \"$3\" && cd \"$2\" && sha256sum \"$3.tar.gz\" >SHA256SUMS";
    let (top, into) = (place.text("tree"), release.to_str().expect("not UTF-8").to_owned());
    place.run(&["sh", "-euc", line, "sh", &top, &into, &name]).run().ends(0);
    let script = fs::read_to_string(workspace().join("packaging/install.sh")).expect("is there");
    fs::write(release.join("install.sh"), script.replace("@VERSION@", VERSION)).expect("cannot write the file");
    release
}

/// Runs the install script with these options.
fn install(place: &Place, release: &Path, options: &[&str]) -> Ran {
    let script = release.join("install.sh");
    place.run(&[&["sh", script.to_str().expect("not UTF-8")], options].concat()).run()
}

#[test]
fn the_script_installs_and_removes_everything() {
    probe_skip!(has("tar") && has("sha256sum") && has("gcc"), "tar, sha256sum or gcc is not installed");
    let place = Place::new();
    let release = release(&place);
    let from = release.to_str().expect("not UTF-8");
    let ran = install(&place, &release, &["--from", from]).ends(0);
    assert!(ran.stdout.contains("larder init"), "{ran:?}");
    let program = place.text("home/.local/bin/larder");
    assert!(place.run(&[&program, "version"]).run().quiet().contains(VERSION));
    place.put("x.c", "int x;\n");
    place.settle();
    place.run(&[&program, "gcc", "-c", "x.c"]).run().ends(0);
    assert_eq!(fs::read(&program).ok(), fs::read(larder()).ok());
    // A second time over the first.
    install(&place, &release, &["--from", &format!("file://{from}")]).ends(0);
    // Builds that call larder would fail without it, so `larder init` must be undone first.
    place.put("Makefile", "all:\n");
    let init = |option: &str| place.run(&[&program, "init", option]).env("SHELL", "/bin/bash").run();
    init("--yes").ends(0);
    let refused = install(&place, &release, &["--uninstall"]).ends(1);
    assert!(refused.stderr.contains("larder init --undo") && Path::new(&program).exists(), "{refused:?}");
    init("--undo").ends(0);
    install(&place, &release, &["--uninstall"]).ends(0);
    let left = Tree::of(&place.path("home"));
    let files = left.0.iter().filter(|(_, entry)| !matches!(entry.kind, larder_testkit::TreeKind::Directory));
    assert_eq!(files.map(|(path, _)| path).collect::<Vec<_>>(), Vec::<&PathBuf>::new());
}

#[test]
fn what_cannot_be_verified_is_not_installed() {
    probe_skip!(has("tar") && has("sha256sum") && has("ssh-keygen"), "tar, sha256sum or ssh-keygen is not installed");
    let place = Place::new();
    let release = release(&place);
    let from = release.to_str().expect("not UTF-8").to_owned();
    let refused = |options: &[&str], piece: &str| {
        let ran = install(&place, &release, options);
        assert!(ran.code == Some(1) && ran.stderr.contains(piece), "{ran:?}");
        assert!(!place.path("home/.local/bin").exists(), "something was installed");
    };
    refused(&[], "--from");
    refused(&["--from"], "needs a value");
    refused(&["--frm", "x"], "unknown option --frm");
    let ran = install(&place, &release, &["--help"]).ends(0);
    assert!(ran.stdout.contains("--prefix DIR"), "{ran:?}");
    let script = release.join("install.sh");
    let ran = place.run(&["sh", script.to_str().expect("not UTF-8"), "--from", &from]).without("HOME").run().ends(1);
    assert!(ran.stderr.contains("HOME is not set: add --prefix DIR"), "{ran:?}");
    refused(&["--from", "/nowhere"], "/nowhere has no SHA256SUMS");
    // Signed by another key than the trusted one.
    for key in ["theirs", "ours"] {
        place.run(&["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", &place.text(key)]).run().ends(0);
    }
    let public = fs::read_to_string(place.path("ours.pub")).expect("is there");
    fs::write(place.path("signers"), format!("larder {public}")).expect("cannot write the file");
    let signers = place.text("signers");
    refused(&["--from", &from, "--signers", &signers], "SHA256SUMS.sig");
    let sums = format!("{from}/SHA256SUMS");
    let sign = |key: &str| {
        let _ = fs::remove_file(release.join("SHA256SUMS.sig"));
        place.run(&["ssh-keygen", "-q", "-Y", "sign", "-n", "larder", "-f", &place.text(key), &sums]).run().ends(0);
    };
    sign("theirs");
    refused(&["--from", &from, "--signers", &signers], "is not signed by a key");
    sign("ours");
    // Changed after it was signed.
    let archive = format!("larder-{VERSION}-{}-linux.tar.gz", std::env::consts::ARCH);
    let mut file = fs::OpenOptions::new().append(true).open(release.join(archive)).expect("is there");
    file.write_all(b"x").expect("cannot write");
    refused(&["--from", &from, "--signers", &signers], "does not have the sum");
}

/// Returns the component's job, with the inputs filled in.
fn component(place: &Place, releases: &str) -> Option<Value> {
    let text = fs::read_to_string(workspace().join("templates/setup-larder.yml")).expect("is there");
    let (spec, job) = text.split_once("\n---\n").expect("has two documents");
    let parse = |text: &str| {
        let script = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin)))";
        let read = place.run(&["python3", "-c", script]).stdin(text.as_bytes()).run();
        match read.stderr.contains("No module named 'yaml'") {
            true => None,
            false => Some(serde_json::from_str::<Value>(&read.ends(0).stdout).expect("not JSON")),
        }
    };
    let inputs = parse(spec)?["spec"]["inputs"].as_object().expect("has inputs").clone();
    let mut job = job.to_owned();
    for (name, input) in &inputs {
        let value = input["default"].as_str().unwrap_or(releases);
        job = job.replace(&format!("$[[ inputs.{name} ]]"), value);
    }
    assert!(!job.contains("$[["), "{job}");
    parse(&job)
}

#[test]
fn the_gitlab_component_installs_and_shares() {
    probe_skip!(has("gcc") && has("python3") && has("tar"), "gcc, python3 or tar is not installed");
    let place = Place::new();
    let release = release(&place);
    let releases = release.parent().expect("has one").to_str().expect("not UTF-8").to_owned();
    let Some(job) = component(&place, &releases) else {
        eprintln!("skipped: Python's yaml is not installed");
        return;
    };
    let job = &job[".larder"];
    assert_eq!(job["cache"][0]["paths"][0], ".larder/remote");
    let lines = |name: &str| -> Vec<String> {
        let all = job[name].as_array().expect("is a list").iter();
        all.map(|line| line.as_str().expect("is text").to_owned()).collect()
    };
    place.put("x.c", "int x;\n");
    let build = format!("{}\nlarder gcc -c x.c\n", lines("before_script").join("\n"));
    let after = lines("after_script").join("\n");
    // In the first jobs larder learns how the compiler can be observed.
    let is_shared = (1..=6).any(|number| {
        place.remove(&["x.o"]);
        let step = |script: &str| {
            place.settle();
            let run = place.run(&["sh", "-e", "-c", script]).env("CI_PROJECT_DIR", place.path("work"));
            let run = run.env("LARDER_REMOTE", format!("file://{}", place.text("work/.larder/remote")));
            run.env("LARDER_DIR", place.path(format!("store{number}"))).run().ends(0)
        };
        step(&build);
        step(&after).stdout.contains("downloaded from a remote on request")
    });
    assert!(is_shared, "no machine got the compile of an earlier one");
}
