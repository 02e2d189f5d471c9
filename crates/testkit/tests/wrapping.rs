//! Neither the tool nor its caller can tell that larder is between them: the tool starts with the
//! same environment, and ends in the same way.
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;

use larder_testkit::{
    Place, Ran, Run, copy_program, has, is_ignored, larder, larder_text, on_terminal, probe_skip, write_program,
};
use rustix::process::{Pid, Signal, kill_process};

/// A tool that larder observes, and one that it does not know: a script called as a compiler, and
/// one with an unknown name.
const NAMES: [&str; 2] = ["gcc", "frobnicate"];

/// Creates a place whose `bin` holds a fake `gcc` and a fake `frobnicate` that run `script`, and a
/// source for them.
fn fakes(script: &str) -> Place {
    let place = Place::new();
    place.put("x.c", "int a;\n");
    NAMES.iter().for_each(|name| drop(place.tool(&format!("bin/{name}"), script)));
    place
}

/// Runs the script without larder, and twice through it. The results must be equal each time.
fn check(script: &str, change: impl Fn(Run) -> Run) {
    for name in NAMES {
        let place = fakes(script);
        let path = format!("{}:/usr/bin:/bin", place.text("bin"));
        let change = |run: Run| change(run).env("PATH", &path);
        let argv = [name, "-c", "x.c", "a b", "", "-o", "x.o"];
        let plain = change(place.run(&[&["/usr/bin/env", "--"], &argv[..]].concat())).run();
        for _ in 0..2 {
            let through = change(place.larder(&argv)).run();
            assert_eq!(through, plain, "{name}: left is with larder, right without: {script}");
        }
    }
}

#[test]
fn environment_and_descriptors_are_the_callers() {
    check("env | sort", |run| run.env("FOO", "two\nlines").env("LARDER_LOG", "/nonexistent/log"));
    check("env | sort", |run| run.env("LD_PRELOAD", "").env("EMPTY", ""));
    check(
        "echo \"${LD_PRELOAD-unset} ${LARDER_PRELOAD_LOG-unset}\"; tr '\\0' '\\n' < /proc/self/environ | sort",
        |run| run,
    );
    check("pwd; pwd -P; cat", |run| run.stdin(b"input\n"));
    check("for a in \"$@\"; do printf '<%s>' \"$a\"; done", |run| run);
    check("cd /proc/self/fd && ls", |run| run);
}

#[test]
fn the_name_it_is_called_by_is_the_one_typed() {
    let place = Place::new();
    // A script gets its path from the kernel, so only a binary shows which `argv[0]` larder passed.
    copy_program("/bin/sleep", place.path("bin/mycc"));
    let path = format!("{}:/usr/bin:/bin", place.text("bin"));
    let link = place.text("bin/mycc");
    for name in ["mycc", link.as_str(), "../bin/mycc"] {
        let (ran, outcome) = place.counted(place.larder(&[name, "--frobnicate"]).env("PATH", &path));
        assert!(ran.code == Some(1) && ran.stderr.starts_with(&format!("{name}: ")), "{outcome}: {ran:?}");
    }
}

#[test]
fn what_a_shell_sets_is_inherited() {
    let script = "umask; ulimit -n; ulimit -c; cat <&3; pwd; nice";
    let place = fakes(script);
    for name in NAMES {
        let line = |larder: &str| {
            let tool = place.text(&format!("bin/{name}"));
            let words = format!(
                "umask 027; ulimit -n 77; ulimit -c 0; echo three > ../three; exec nice -n 3 {larder} {tool} -c x.c 3< ../three"
            );
            place.settle();
            place.run(&["sh", "-c", &words]).run()
        };
        let plain = line("");
        assert!(plain.stdout.contains("three"), "{plain:?}");
        assert_eq!(line(larder_text()), plain, "{name}");
    }
}

#[test]
fn every_exit_code_arrives() {
    let place = fakes("exit $1");
    for code in [0, 1, 2, 3, 42, 77, 126, 127, 128, 129, 137, 200, 254, 255] {
        for name in NAMES {
            let tool = place.text(&format!("bin/{name}"));
            let ran = place.run(&[larder_text(), &tool, &code.to_string(), "-c", "x.c"]).run();
            assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(code), "", ""), "{name}");
        }
    }
    let line = "run -- sh -c";
    let words: Vec<&str> = line.split(' ').chain(["exit 3"]).collect();
    place.larder(&words).run().ends(3);
    place.larder(&["run", "sh", "-c", "exit 4"]).run().ends(4);
}

#[test]
fn death_by_a_signal_is_death_by_that_signal() {
    for name in NAMES {
        let signals = [("ABRT", 6), ("SEGV", 11), ("KILL", 9), ("TERM", 15), ("INT", 2), ("PIPE", 13)];
        for (signal, _) in signals.into_iter().filter(|(_, number)| !is_ignored(*number)) {
            let place = fakes(&format!("ulimit -c 0; kill -{signal} $$"));
            let argv = [&*place.text(&format!("bin/{name}")), "-c", "x.c"];
            let plain = place.run(&argv).run();
            assert!(plain.signal.is_some(), "{plain:?}");
            for _ in 0..2 {
                let (ran, outcome) = place.counted(place.larder(&argv));
                assert_eq!(ran, plain, "{name} {signal}: left is with larder, right without");
                assert!(["miss:signal", "bypass:unknown-tool"].contains(&&*outcome), "{outcome}");
            }
        }
    }
}

/// Starts a tool that prints its process ID and waits. Then sends signals to larder only.
fn interrupted(name: &str, script: &str, signals: &[Signal]) -> Ran {
    let place = fakes(script);
    let mut child = place.larder(&[&place.text(&format!("bin/{name}")), "-c", "x.c"]).start();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("not a pipe"))
        .read_line(&mut line)
        .expect("the tool printed no process ID");
    for signal in signals {
        let pid = Pid::from_raw(child.id() as i32).expect("not a process ID");
        kill_process(pid, *signal).expect("cannot send the signal");
    }
    let ran = Ran::of(child);
    let tool = std::path::PathBuf::from(format!("/proc/{}", line.trim()));
    assert!(!tool.exists(), "{name}: the tool outlived larder: {ran:?}");
    assert_eq!(
        place.counters().get("miss"),
        place.counters().get("miss:signal"),
        "an interrupted run must not be recorded"
    );
    ran
}

#[test]
fn a_signal_to_larder_alone_ends_the_tool() {
    for name in NAMES {
        for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
            if is_ignored(signal.as_raw()) {
                continue;
            }
            let ran = interrupted(name, "echo $$; exec sleep 60", &[signal]);
            assert_eq!(ran.signal, Some(signal.as_raw()), "{name}: {ran:?}");
        }
        let ran = interrupted(
            name,
            "trap 'echo caught; exit 9' TERM; echo $$; while :; do sleep 0.05; done",
            &[Signal::TERM],
        );
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(9), "caught\n"), "{name}");
    }
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let place = fakes("kill -INT $$; kill -HUP $$; echo alive; exit 6");
    for name in NAMES {
        let tool = place.text(&format!("bin/{name}"));
        let line = format!("trap '' INT HUP; exec {} {tool} -c x.c", larder().display());
        place.settle();
        let ran = place.run(&["sh", "-c", &line]).run();
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(6), "alive\n"), "{name}: {ran:?}");
    }
}

#[test]
fn one_file_for_both_keeps_its_order() {
    let place = fakes("for i in 1 2 3 4 5; do echo out $i; echo err $i >&2; done");
    for name in NAMES {
        let tool = place.text(&format!("bin/{name}"));
        for _ in 0..2 {
            for end in ["> ../both 2>&1; cat ../both", "2>&1 | cat", ">> ../more 2>&1; tail -n 10 ../more"] {
                place.settle();
                let ran = place.run(&["sh", "-c", &format!("{} {tool} -c x.c {end}", larder().display())]).run();
                let expect: String = (1..=5).map(|i| format!("out {i}\nerr {i}\n")).collect();
                assert_eq!(ran.stdout, expect, "{name} {end}");
            }
        }
    }
}

#[test]
fn messages_stream_and_so_does_input() {
    for name in NAMES {
        // The tool continues only after the test has answered its first line.
        let place = fakes("echo first; read answer; echo \"$answer\"; printf 'no end of line'");
        let mut child = place.larder(&[&place.text(&format!("bin/{name}")), "-c", "x.c"]).start();
        let mut stdin = child.stdin.take().expect("not a pipe");
        let mut stdout = BufReader::new(child.stdout.take().expect("not a pipe"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("the first line did not arrive before the tool ended");
        assert_eq!(line, "first\n");
        writeln!(stdin, "second").expect("the tool does not read its input");
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).expect("cannot read the file");
        assert_eq!(rest, "second\nno end of line");
        assert!(child.wait().expect("cannot wait for the command").success());
    }
}

#[test]
fn a_reader_that_goes_away_is_no_trouble() {
    for name in NAMES {
        let place =
            fakes("trap '' PIPE; i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done 2>/dev/null; exit 5");
        let tool = place.text(&format!("bin/{name}"));
        let line = |larder: &str| format!("{{ {larder} {tool} -c x.c; echo $? >&2; }} | head -n 1");
        let plain = place.run(&["sh", "-c", &line("")]).run();
        place.settle();
        assert_eq!(place.run(&["sh", "-c", &line(larder_text())]).run(), plain, "{name}");
    }
}

#[test]
fn a_terminal_is_still_one() {
    let place = fakes("test -t 1 && test -t 2 && echo terminal; stty size < /dev/stderr");
    for name in NAMES {
        for columns in [80, 123] {
            let tool = place.text(&format!("bin/{name}"));
            let (code, text) = on_terminal(place.larder(&[&tool, "-c", "x.c"]), columns);
            assert_eq!((code, text), (Some(0), format!("terminal\r\n24 {columns}\r\n")), "{name}");
        }
    }
}

#[test]
fn colours_and_width_of_warnings() {
    for compiler in ["gcc", "clang"] {
        if !has(compiler) {
            eprintln!("skipped: {compiler} is not installed");
            continue;
        }
        let place = Place::new();
        let long = "a".repeat(300);
        place.put("x.c", format!("int f(void) {{ int unused_{long}; return 0; }}\n"));
        let argv = [compiler, "-Wall", "-c", "x.c", "-o", "x.o"];
        let mut seen = Vec::new();
        for columns in [80, 200] {
            let terminal = |run: Run| on_terminal(run.env("TERM", "xterm"), columns);
            let plain = terminal(place.run(&argv));
            assert!(plain.0 == Some(0) && plain.1.contains("\x1b["), "{plain:?}");
            for expect in ["miss", "hit"] {
                let before = place.counters();
                assert_eq!(terminal(place.larder(&argv)), plain, "{compiler} {columns}");
                assert_eq!(place.counters().since(&before), expect, "{compiler} {columns}");
            }
            seen.push(plain.1);
        }
        let (ran, outcome) = place.counted(place.larder(&argv));
        assert!(outcome == "miss" && !ran.stderr.contains('\x1b'), "{compiler} to a pipe: {outcome} {ran:?}");
    }
}

#[test]
fn closed_descriptors() {
    probe_skip!(has("gcc"), "gcc is not installed");
    for close in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        let place = Place::new();
        place.put("x.c", "int a;\n");
        let line = |larder: &str| format!("{larder} gcc -c x.c -o x.o {close}");
        let plain = place.run(&["sh", "-c", &line("")]).run();
        let object = place.read("x.o");
        place.remove(&["x.o"]);
        place.settle();
        let ran = place.run(&["sh", "-c", &line(larder_text())]).run();
        assert_eq!((ran, place.read("x.o")), (plain, object), "{close}");
    }
}

#[test]
fn tools_that_are_not_there_or_cannot_run() {
    let place = Place::new();
    place.put("x.c", "int a;\n");
    place.put("plain.sh", "exit 0\n");
    std::fs::create_dir(place.path("work/gcc")).expect("cannot create the directory");
    for (tool, code) in [
        ("no-such-tool", 127),
        ("./no-such-gcc", 127),
        ("/nonexistent/gcc", 127),
        ("/etc/passwd/gcc", 127),
        ("./plain.sh", 126),
        ("./gcc", 126),
        ("./x.c", 126),
    ] {
        let ran = place.larder(&[tool, "-c", "x.c"]).run();
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{tool}: {ran:?}");
        assert!(ran.stderr.starts_with("larder: ") && ran.stderr.contains(tool), "{tool}: {ran:?}");
    }
    let bad = place.tool("bin/badcc", "");
    write_program(&bad, "#!/nonexistent/interpreter\n");
    assert!(matches!(place.larder(&[&bad, "-c", "x.c"]).run().code, Some(126 | 127)));
    // A script without a `#!` line: a shell would run it, but the kernel does not.
    write_program(&bad, "exit 5\n");
    assert!(matches!(place.larder(&[&bad, "-c", "x.c"]).run().code, Some(126 | 5)));
}

#[test]
fn words_and_tools_of_the_same_name() {
    let place = Place::new();
    let tool = place.tool("bin/stats", "echo the tool \"$@\"");
    let path = format!("{}:/usr/bin:/bin", place.text("bin"));
    let said = |argv: &[&str]| place.larder(argv).env("PATH", &path).run().quiet();
    assert_eq!(said(&["--", "stats", "--json"]), "the tool --json\n");
    assert_eq!(said(&[&tool, "x"]), "the tool x\n");
    assert_eq!(said(&["run", "stats", "y"]), "the tool y\n");
    assert!(said(&["stats", "--json"]).starts_with('{'));
    assert!(said(&["--version"]).contains("larder"));
    assert!(said(&["help"]).contains("stats"));
    // `argv[0]` is ignored, because a caller can set it to anything.
    let mut run = place.run(&[larder().as_os_str(), "stats".as_ref(), "--json".as_ref()]);
    run.command.arg0("larder");
    assert!(run.run().quiet().starts_with('{'));
}
