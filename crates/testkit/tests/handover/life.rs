//! How `larderd` starts and ends, which resources it holds, and what can start it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use larder_testkit::{Ran, can_mount, has, larder, larder_text, probe_skip};
use serde_json::Value;

use crate::here::{Here, PATIENCE};

#[test]
fn it_leaves_when_nobody_comes() {
    let here = Here::new();
    here.larder(&["daemon", "start", "--idle", "1"]).ends(0);
    let until = Instant::now() + PATIENCE;
    // Asking for its status would keep it alive.
    while here.inside("daemon.sock").exists() {
        assert!(Instant::now() < until, "{}", here.daemon_log());
        std::thread::sleep(Duration::from_millis(50));
    }
    here.wait("larderd ends", |here| here.status()["runs"] == false);
    assert!(here.daemon_log().contains("there was no client for the idle time"), "{}", here.daemon_log());
    assert_eq!(here.larder(&["daemon", "status"]).code, Some(1));
    assert_eq!(here.larder(&["daemon", "stop"]).code, Some(0), "stopping a larderd that does not run is no error");
}

#[test]
fn there_is_only_one() {
    let here = Here::new();
    let starts: Vec<Child> = (0..6).map(|_| here.command(&[larder_text(), "daemon", "start"]).start()).collect();
    let pids: Vec<String> = starts
        .into_iter()
        .map(|child| Ran::of(child).ends(0).stdout.chars().filter(char::is_ascii_digit).collect())
        .collect();
    let pid = here.status()["pid"].to_string();
    assert!(pids.iter().all(|found| *found == pid), "{pids:?} {pid}");
    let second = here.run(&[larder().with_file_name("larderd").to_str().expect("not UTF-8"), "serve"]);
    assert!(second.code == Some(1) && second.stderr.contains("runs already"), "{second:?}");
    here.larder(&["daemon", "stop"]).ends(0);
    assert!(!here.inside("daemon.sock").exists());
    assert_eq!(here.status()["runs"], false);
}

#[test]
fn it_holds_nothing_of_the_builds() {
    let here = Here::new();
    let secret = here.place.put("held", "x");
    let script = "exec 7< held 8> written; exec \"$LARDER\" daemon start";
    here.run(&["sh", "-c", script]).ends(0);
    let pid = here.status()["pid"].to_string();
    let proc = |name: &str| PathBuf::from(format!("/proc/{pid}/{name}"));
    for entry in fs::read_dir(proc("fd")).expect("cannot list the directory") {
        let leads_to = fs::read_link(entry.expect("cannot list the directory").path()).expect("cannot read the link");
        let own = leads_to.starts_with(&here.store) || leads_to.starts_with("/dev/null");
        let text = leads_to.to_string_lossy();
        assert!(own || text.starts_with("socket:") || text.starts_with("pipe:"), "{text} {}", secret.display());
    }
    assert_eq!(fs::read_link(proc("cwd")).expect("cannot read the link"), PathBuf::from("/"));
    let stat = fs::read_to_string(proc("stat")).expect("cannot read the file");
    let session = stat.rsplit(')').next().and_then(|rest| rest.split(' ').nth(4)).map(str::to_owned);
    assert_eq!(session.as_ref(), Some(&pid), "larderd is the leader of its own session");
    let environment = fs::read(proc("environ")).expect("cannot read the file");
    assert!(!environment.windows(7).any(|part| part == b"LC_ALL="), "larderd must not inherit the build's environment");
}

/// If larderd kept a file open, the file system with that file could not be unmounted.
#[test]
fn it_holds_nothing_of_what_is_handed_over() {
    probe_skip!(can_mount() && has("gcc"), "no mount namespaces here, or gcc is not installed");
    let here = Here::new();
    let pid = here.start();
    for number in 0..6 {
        here.place.put(&format!("d{number}/x.h"), format!("int b{number};\n"));
        here.place.put("y.c", format!("#include <stdio.h>\n#include \"x.h\"\nint a{number};\n"));
        here.sandbox_command(&format!("exec \"$LARDER\" gcc -Id{number} -c y.c -o y.o")).run().ends(0);
        here.wait_recorded(number + 1);
    }
    // The files that a record relied on are hashed after it was taken.
    here.wait("larderd holds only files of its own", |here| {
        let held = fs::read_dir(format!("/proc/{pid}/fd")).expect("cannot list the directory").flatten();
        let mut leads = held.filter_map(|entry| fs::read_link(entry.path()).ok());
        leads.all(|to| to.starts_with(&here.store) || to.starts_with("/dev") || !to.is_absolute())
    });
}

#[test]
fn systemd_listens_for_it() {
    probe_skip!(can_mount() && has("systemd-socket-activate"), "no systemd, or no mount namespaces here");
    let here = Here::new();
    let units = here.larder(&["daemon", "install", "--print"]).ends(0).stdout;
    let socket = units
        .lines()
        .find_map(|line| line.strip_prefix("ListenStream="))
        .expect("the unit has no ListenStream")
        .to_owned();
    fs::create_dir_all(PathBuf::from(&socket).parent().expect("no parent directory"))
        .expect("cannot create the directory");
    fs::set_permissions(
        PathBuf::from(&socket).parent().expect("no parent directory"),
        fs::Permissions::from_mode(0o700),
    )
    .expect("cannot set the mode");
    let larderd = larder().with_file_name("larderd");
    let variable = format!("--setenv=LARDER_DIR={}", here.store.display());
    let words = ["systemd-socket-activate", &variable, "-l", &socket, larderd.to_str().expect("not UTF-8"), "serve"];
    let listener = here.command(&words).start();
    here.wait("systemd listens", |here| PathBuf::from(&socket).exists() && here.status()["runs"] != Value::Null);
    here.compile();
    here.wait_recorded(1);
    assert!(here.compile().contains(" hit: "), "{}", here.log());
    assert!(here.larder(&["daemon", "start"]).ends(0).stdout.contains("already"));
    here.larder(&["daemon", "stop"]).ends(0);
    assert!(PathBuf::from(&socket).exists(), "larderd must not remove a socket that systemd made");
    assert_eq!(Ran::of(listener).code, Some(0));
}

#[test]
fn units_are_written() {
    let here = Here::new();
    here.larder(&["daemon", "install"]).ends(0);
    let text = |name: &str| fs::read_to_string(here.place.path(name)).expect("cannot read the file");
    assert!(text("home/.config/systemd/user/larderd.socket").contains("SocketMode=0600"));
    let service = text("home/.config/systemd/user/larderd.service");
    assert!(service.contains(&here.store.display().to_string()) && service.contains("larderd\" serve"), "{service}");
    here.larder(&["daemon", "install", "--launchd"]).ends(0);
    assert!(text("home/Library/LaunchAgents/larderd.plist").contains("<string>serve</string>"));
}

/// systemd checks its own unit files, and a parser of property lists checks the one for launchd.
#[test]
fn units_are_such() {
    probe_skip!(has("systemd-analyze"), "systemd-analyze is not installed");
    let here = Here::new();
    here.larder(&["daemon", "install"]).ends(0);
    let units = ["socket", "service"].map(|kind| here.place.text(&format!("home/.config/systemd/user/larderd.{kind}")));
    for words in [&["--user"][..], &[]] {
        let all: Vec<&str> = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=yes"]
            .into_iter()
            .chain(words.iter().copied())
            .chain(units.iter().map(String::as_str))
            .collect();
        let run = here.command(&all).env("XDG_RUNTIME_DIR", here.place.path("tmp"));
        // A key that systemd does not know is only a warning.
        let said = run.run().ends(0).stderr;
        assert!(!units.iter().any(|unit| said.contains(unit.as_str())), "{said}");
    }
    probe_skip!(has("python3"), "python3 is not installed");
    here.larder(&["daemon", "install", "--launchd"]).ends(0);
    let script = "import plistlib, sys; print(plistlib.load(open(sys.argv[1], 'rb'))['ProgramArguments'][1])";
    let plist = here.place.text("home/Library/LaunchAgents/larderd.plist");
    assert_eq!(here.run(&["python3", "-c", script, &plist]).ends(0).stdout, "serve\n");
}
