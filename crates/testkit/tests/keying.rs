//! Has one row for each value that `docs/fingerprint.md` says is part of the key. The same value
//! hits, a changed value misses, and the first value hits again. Values that must not matter have
//! their own table.
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader};
use std::path::Path;

use larder_testkit::{Place, Run, can_mount, has, larder, larder_text, on_terminal, probe_skip, wholly_on_terminal};

/// How a row starts a command. The argument says whether the value is changed.
type Start = fn(&Place, bool) -> Run;

/// Runs with the first value (miss, hit), with the changed value (miss, hit), and with the first
/// value again (hit).
#[track_caller]
fn varies(what: &str, place: &Place, start: impl Fn(&Place, bool) -> Run) {
    for (changed, outcomes) in [(false, &["miss", "hit"][..]), (true, &["miss", "hit"]), (false, &["hit"])] {
        for expect in outcomes {
            let (ran, outcome) = place.counted(start(place, changed));
            assert_eq!(outcome, *expect, "{what}, changed: {changed}: {ran:?}");
        }
    }
}

fn gcc(place: &Place) -> Run {
    place.larder(&["gcc", "-c", "x.c", "-o", "x.o"])
}

fn source() -> Place {
    let place = Place::new();
    place.put("x.c", "int f(void) { return 1; }\n");
    place.put("sub/x.c", "int f(void) { return 1; }\n");
    std::os::unix::fs::symlink("work", place.path("apparent")).expect("cannot create the link");
    place
}

#[test]
fn values_of_the_action() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let rows: &[(&str, Start)] = &[
        ("an argument", |place, changed| place.larder(&["gcc", "-c", "x.c", if changed { "-O1" } else { "-O2" }])),
        ("one argument more", |place, changed| {
            place.larder(&["gcc", "-c", "x.c", "-DA", "-DB"][..if changed { 5 } else { 4 }])
        }),
        ("the order of arguments", |place, changed| {
            place.larder(&[
                "gcc",
                "-c",
                "x.c",
                if changed { "-DA=1" } else { "-UA" },
                if changed { "-UA" } else { "-DA=1" },
            ])
        }),
        ("where an argument ends", |place, changed| {
            let [a, b] = if changed { ["-D", "AB"] } else { ["-DA", "-DB"] };
            place.larder(&["gcc", "-c", "x.c", a, b])
        }),
        ("standard input", |place, changed| {
            place.larder(&["gcc", "-E", "-"]).stdin(if changed { b"int a;" } else { b"int b;" })
        }),
        ("when a file on standard input was modified", |place, changed| {
            let modified = if changed { 1_000_000_000 } else { 1_000_000_007 };
            let script = format!("touch -d @{modified} x.c; exec {} run -- gzip < x.c", larder().display());
            place.run(&["sh", "-c", &script])
        }),
        ("argv[0]", |place, changed| place.larder(&[if changed { "/usr/bin/gcc" } else { "gcc" }, "-c", "x.c"])),
        ("the tool's name", |place, changed| place.larder(&[if changed { "cc" } else { "gcc" }, "-c", "x.c"])),
        ("the working directory", |place, changed| {
            let root = place.text("work");
            gcc(place).env("LARDER_ROOTS", root).cwd(place.path(if changed { "work/sub" } else { "work" }))
        }),
        ("roots in each other", |place, changed| {
            let (one, two) = (place.text("work"), place.text("work/sub"));
            gcc(place).env("LARDER_ROOTS", if changed { format!("{one}:{two}") } else { one })
        }),
        ("PWD", |place, changed| {
            gcc(place).cwd(place.path("work")).env("PWD", place.path(if changed { "apparent" } else { "work" }))
        }),
    ];
    for (what, start) in rows {
        varies(what, &source(), start);
    }
}

#[test]
fn variables() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let rows = [
        "CPATH",
        "C_INCLUDE_PATH",
        "COMPILER_PATH",
        "LIBRARY_PATH",
        "GCC_COLORS",
        "GCC_URLS",
        "LANG",
        "LANGUAGE",
        "LC_MESSAGES",
        "LC_CTYPE",
        "LD_LIBRARY_PATH",
        "SOURCE_DATE_EPOCH",
        "TZ",
    ];
    for name in rows {
        // The machine has no such locale or directory. It is enough that the compiler asks for the
        // variable.
        let value = if name == "SOURCE_DATE_EPOCH" { "1700000000" } else { "/nonexistent" };
        varies(
            name,
            &source(),
            |place, changed| if changed { gcc(place).env(name, value) } else { gcc(place).without(name) },
        );
    }
    varies("a PATH with another assembler", &source(), |place, changed| {
        let tools = place.path("tools");
        std::fs::create_dir_all(&tools).expect("makes");
        let _ = std::os::unix::fs::symlink("/usr/bin/as", tools.join("as"));
        let path = format!("{}:/usr/bin:/bin", tools.display());
        gcc(place).env("PATH", if changed { &path } else { "/usr/bin:/bin" })
    });
    varies("LC_ALL", &source(), |place, changed| gcc(place).env("LC_ALL", if changed { "C.UTF-8" } else { "C" }));
}

#[test]
fn variables_that_cannot_matter() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = source();
    assert_eq!(place.counted(gcc(&place)).1, "miss");
    let rows = [
        ("HOSTNAME", "other"),
        ("SHLVL", "9"),
        ("OLDPWD", "/"),
        ("MAKEFLAGS", "-j9"),
        ("MAKELEVEL", "3"),
        ("TMPDIR", "/tmp"),
        ("TMP", "/tmp"),
        ("TERM", "xterm"),
        ("COLUMNS", "50"),
        ("HOME", "/nonexistent"),
        ("LARDER_LOG", "/dev/null"),
        ("LARDER_MAX_SIZE", "1GiB"),
        ("SSH_TTY", "x"),
        ("_", "x"),
        ("FOO", "bar"),
        ("CCACHE_DIR", "/x"),
    ];
    let found = rows.map(|(name, value)| (name, place.counted(gcc(&place).env(name, value)).1));
    let wrong: Vec<_> = found.iter().filter(|(_, outcome)| outcome != "hit").collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn the_terminal() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = source();
    let outcome = |columns: Option<u16>| {
        let before = place.counters();
        let run = gcc(&place).env("TERM", "xterm");
        match columns {
            Some(columns) => assert_eq!(on_terminal(run, columns).0, Some(0)),
            None => assert_eq!(run.run().code, Some(0)),
        }
        place.counters().since(&before)
    };
    for (columns, expect) in
        [(None, "miss"), (Some(80), "miss"), (Some(80), "hit"), (Some(81), "miss"), (None, "hit"), (Some(80), "hit")]
    {
        assert_eq!(outcome(columns), expect, "{columns:?}");
    }
    // gcc asks standard input for the width of the terminal.
    for expect in ["miss", "hit"] {
        let before = place.counters();
        assert_eq!(wholly_on_terminal(gcc(&place).env("TERM", "xterm")).0, Some(0));
        assert_eq!(place.counters().since(&before), expect);
    }
}

/// Creates a place whose compiler is a script: `./mycc -c x.c` runs it.
fn with_script(script: &str) -> Place {
    let place = source();
    place.tool("work/mycc", script);
    place.put("in/a", "one\n");
    place.put("in/b", "one\n");
    std::os::unix::fs::symlink("a", place.path("work/in/link")).expect("cannot create the link");
    place
}

fn mycc(place: &Place) -> Run {
    place.larder(&["./mycc", "-c", "x.c", "-o", "x.o"])
}

#[test]
fn the_tool_itself() {
    let place = with_script("echo one > x.o");
    varies("content", &place, |place, changed| {
        place.tool("work/mycc", if changed { "echo two > x.o" } else { "echo one > x.o" });
        mycc(place)
    });
    let place = with_script("echo one > x.o");
    place.tool("work/other/mycc", "echo one > x.o");
    varies("path, and with it argv[0]", &place, |place, changed| {
        place.larder(&[if changed { "other/mycc" } else { "./mycc" }, "-c", "x.c"])
    });
    varies("path, argv[0] being equal", &place, |place, changed| {
        let path = format!("{}:/usr/bin:/bin", place.text(if changed { "work/other" } else { "work" }));
        place.larder(&["mycc", "-c", "x.c"]).env("PATH", path)
    });
}

/// Changes the file that the script reads if the argument is true, and changes it back otherwise.
type Change = fn(&Place, bool);

#[test]
fn each_kind_of_observation() {
    let rows: &[(&str, &str, Change)] = &[
        ("content", "cat in/a > x.o", |place, changed| {
            drop(place.put("in/a", if changed { "two\n" } else { "one\n" }));
        }),
        ("content through a link", "cat in/link > x.o", |place, changed| {
            drop(place.put("in/a", if changed { "two\n" } else { "one\n" }));
        }),
        ("where a link leads", "cat in/link > x.o", |place, changed| {
            place.put("in/b", "two\n");
            relink(&place.path("work/in/link"), if changed { "b" } else { "a" });
        }),
        ("a link's target", "readlink in/link > x.o", |place, changed| {
            relink(&place.path("work/in/link"), if changed { "./a" } else { "a" });
        }),
        ("absence", "cat in/c > x.o 2>/dev/null; true", |place, changed| {
            if changed { drop(place.put("in/c", "")) } else { place.remove(&["in/c"]) }
        }),
        ("absence, by test", "test -e in/c && echo there > x.o || echo no > x.o", |place, changed| {
            if changed { drop(place.put("in/c", "")) } else { place.remove(&["in/c"]) }
        }),
        ("absence of a directory", "test -e new/deep/c && echo there > x.o || echo no > x.o", |place, changed| {
            if changed {
                drop(place.put("new/deep/c", ""));
            } else {
                let _ = std::fs::remove_dir_all(place.path("work/new"));
            }
        }),
        ("a directory", "test -d in/d && echo there > x.o || echo no > x.o", |place, changed| {
            let path = place.path("work/in/d");
            let _ = std::fs::remove_dir(&path);
            place.remove(&["in/d"]);
            if changed {
                drop(place.put("in/d", ""))
            } else {
                std::fs::create_dir(path).expect("cannot create the directory")
            }
        }),
        ("which file is newer", "if test in/a -nt in/b; then echo a; else echo b; fi > x.o", |place, changed| {
            drop(place.put("in/b", ""));
            date(&place.path("work/in/b"), 1_000_000);
            date(&place.path("work/in/a"), if changed { 2_000_000 } else { 500_000 });
            date(&place.path("work/in"), 3_000_000);
        }),
        ("when a file was modified", "stat -c %Y in/a > x.o", |place, changed| {
            date(&place.path("work/in/a"), if changed { 2_000_000 } else { 500_000 });
        }),
        ("names of a pattern", "echo in/* > x.o", |place, changed| {
            if changed { drop(place.put("in/new", "")) } else { place.remove(&["in/new"]) }
        }),
        ("the executable bit", "test -x in/a && echo yes > x.o || echo no > x.o", |place, changed| {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::Permissions::from_mode(if changed { 0o755 } else { 0o644 });
            std::fs::set_permissions(place.path("work/in/a"), mode).expect("cannot set the mode");
        }),
        ("an error that is not absence", "cat in/a/b > x.o 2>/dev/null; true", |place, changed| {
            let _ = std::fs::remove_file(place.path("work/in/a"));
            let _ = std::fs::remove_dir_all(place.path("work/in/a"));
            if changed { drop(place.put("in/a/b", "one\n")) } else { drop(place.put("in/a", "one\n")) }
        }),
        ("a program that the tool starts", "helper() { ./in/helper; }; helper > x.o", |place, changed| {
            drop(place.tool("work/in/helper", if changed { "echo two" } else { "echo one" }));
        }),
        ("a file that the shell sources", ". ./in/a2; echo $V > x.o", |place, changed| {
            drop(place.put("in/a2", if changed { "V=2\n" } else { "V=1\n" }));
        }),
    ];
    for (what, script, change) in rows {
        varies(what, &with_script(script), |place, changed| {
            place.remove(&["x.o"]);
            change(place, changed);
            mycc(place)
        });
    }
}

fn date(path: &Path, seconds: u64) {
    let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    std::fs::File::open(path).and_then(|file| file.set_modified(time)).expect("cannot set the mtime");
}

fn relink(link: &Path, target: &str) {
    std::fs::remove_file(link).expect("cannot remove the file");
    std::os::unix::fs::symlink(target, link).expect("cannot create the link");
}

#[test]
fn a_scripts_whole_environment() {
    for name in ["FOO", "MYCC_FLAGS", "HOME", "TERM", "EDITOR"] {
        varies(name, &with_script("echo \"$FOO $MYCC_FLAGS $HOME $TERM\" > x.o"), |place, changed| {
            mycc(place).env(name, if changed { "/two" } else { "/one" })
        });
    }
    // Variables that differ between two equal builds are not part of the key.
    let place = with_script("echo > x.o");
    assert_eq!(place.counted(mycc(&place)).1, "miss");
    for name in ["MAKEFLAGS", "SHLVL", "OLDPWD", "LARDER_LOG", "SSH_TTY"] {
        assert_eq!(place.counted(mycc(&place).env(name, "/dev/null")).1, "hit", "{name}");
    }
}

/// A script in place of the assembler may ask for whatever it inherits.
#[test]
fn what_a_script_inside_a_compile_inherits() {
    probe_skip!(has("gcc") && has("nice"), "gcc or nice is not installed");
    let rows: &[(&str, &str, [&[&str]; 2])] = &[
        (
            "limits",
            "ulimit -n",
            [&["sh", "-c", "ulimit -n 90; exec \"$@\"", "sh"], &["sh", "-c", "ulimit -n 80; exec \"$@\"", "sh"]],
        ),
        ("niceness", "nice", [&["nice", "-n", "1"], &["nice", "-n", "2"]]),
    ];
    for (what, script, prefixes) in rows {
        let place = source();
        place.tool("work/parts/as", &format!("{script} > told; exec as \"$@\""));
        let parts = format!("-B{}/", place.text("work/parts"));
        varies(what, &place, |place, changed| {
            let argv = [prefixes[usize::from(changed)], &[larder_text(), "gcc", &parts, "-c", "x.c"]].concat();
            place.run(&argv)
        });
    }
}

/// Some options hand standard input on to a part of the compiler.
#[test]
fn standard_input_of_a_part() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = source();
    place.put("x.s", "f: nop\n");
    for option in [&["-Wa,-"][..], &["-Xassembler", "-"]] {
        varies(&option.join(" "), &place, |place, changed| {
            let input = if changed { "nop\nnop\n" } else { "nop\n" };
            place.larder(&[&["gcc", "-c", "x.s"], option].concat()).stdin(input.as_bytes())
        });
    }
}

/// A stamp tells the content of a file, and not whether this process may read it.
#[test]
fn rights_to_read_an_input() {
    const NO_RIGHTS: [&str; 5] =
        ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-dac_override,-dac_read_search"];
    probe_skip!(has("gcc") && has("setpriv"), "gcc or setpriv is not installed");
    probe_skip!(larder_testkit::is_root(), "only root can take away its own rights");
    let closed = |place: &Place, path: &str, mode: u32| {
        let path = place.path(path);
        larder_testkit::set_mode(&path, mode);
        std::os::unix::fs::chown(path, Some(1), Some(1)).expect("cannot give it away");
    };
    for what in ["a file", "a directory that is searched"] {
        let place = source();
        place.put("x.c", "#include \"h.h\"\n");
        if what == "a file" {
            place.put("inc/h.h", "int h;\n");
            closed(&place, "work/inc/h.h", 0o600);
        } else {
            place.put("inc/other.h", "");
            place.put("inc2/h.h", "int h;\n");
            closed(&place, "work/inc", 0o700);
        }
        let argv = [larder_text(), "gcc", "-Iinc", "-Iinc2", "-c", "x.c"];
        place.settle();
        for expect in ["miss", "hit"] {
            let (ran, outcome) = place.counted(place.run(&argv));
            assert_eq!((outcome.as_str(), ran.code), (expect, Some(0)), "{what}: {ran:?}");
        }
        let (ran, outcome) = place.counted(place.run(&[&NO_RIGHTS[..], &argv].concat()));
        assert_eq!((outcome.as_str(), ran.code), ("miss", Some(1)), "{what}: {ran:?}");
    }
}

#[test]
fn a_variable_that_a_program_asks_for() {
    probe_skip!(has("gcc"), "gcc is not installed");
    // The tool is a program with the name of a compiler, and no script. It knows only the variables
    // that it asks for by `getenv`.
    let place = source();
    let text = "#include <stdio.h>\n#include <stdlib.h>\nint main(void) { FILE *f = fopen(\"x.o\", \"w\"); char *v = getenv(\"ASKED\"); \
        fputs(v ? v : \"none\", f); return fclose(f); }\n";
    place.put("tool.c", text);
    place.run(&["gcc", "-o", "../bin/gcc", "tool.c"]).run().quiet();
    let tool = place.text("bin/gcc");
    let start = |name: &'static str| {
        let tool = tool.clone();
        move |place: &Place, changed: bool| {
            let run = place.larder(&[&tool, "-c", "x.c", "-o", "x.o"]);
            if changed { run.env(name, "value") } else { run }
        }
    };
    varies("asked for", &place, start("ASKED"));
    assert_eq!(place.counted(start("NOT_ASKED")(&place, true)).1, "hit");
}

#[test]
fn what_varies_by_itself_is_not_recorded() {
    let mut wrong = Vec::new();
    for (what, script, outcome) in [
        ("the clock", "date > x.o", "miss:clock"),
        ("a device", "head -c 4 /dev/full > x.o", "miss:device"),
        ("its own memory", "cat /proc/self/maps > x.o", "miss:device"),
        ("a file elsewhere", "echo > \"$TMPDIR/elsewhere\"; echo > x.o", "miss:output-elsewhere"),
        ("a file that only begins like ours", "echo > ../tmp/elsewhere; echo > x.o", "miss:output-elsewhere"),
        ("a FIFO", "rm -f x.o; mkfifo x.o", "miss:output-special"),
        ("a file changed in place", "echo more >> in/a; echo > x.o", "miss:updates-file"),
        ("a process that stays", "sleep 4 & echo > x.o", "miss:outlives"),
    ] {
        let place = with_script(script);
        for _ in 0..2 {
            let (ran, found) = place.counted(mycc(&place));
            if (ran.code, found.as_str()) != (Some(0), outcome) {
                wrong.push(format!("{what}: {found}, not {outcome}: {ran:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_host_and_the_umask() {
    let place = with_script("uname -n > x.o");
    assert_eq!(place.counted(mycc(&place)).1, "miss");
    assert_eq!(place.counted(mycc(&place)).1, "hit");
    let start = place.run(&["true"]).run();
    let elsewhere = |place: &Place| {
        let larder = larder();
        let line = format!("hostname elsewhere && exec {} ./mycc -c x.c -o x.o", larder.display());
        place.run(&["unshare", "--uts", "sh", "-c", &line])
    };
    probe_skip!(
        start.code == Some(0) && place.run(&["unshare", "--uts", "true"]).run().code == Some(0),
        "no UTS namespaces here"
    );
    assert_eq!(place.counted(elsewhere(&place)).1, "miss");
    assert_eq!(place.read("x.o"), b"elsewhere\n");
    assert_eq!(place.counted(elsewhere(&place)).1, "hit");
    assert_eq!(place.counted(mycc(&place)).1, "hit");

    let place = with_script("umask > x.o");
    let with = |umask: &str| {
        place.run(&["sh", "-c", &format!("umask {umask}; exec {} ./mycc -c x.c -o x.o", larder().display())])
    };
    for (umask, expect) in [("022", "miss"), ("022", "hit"), ("027", "miss"), ("027", "hit"), ("022", "hit")] {
        place.remove(&["x.o"]);
        assert_eq!(place.counted(with(umask)).1, expect, "{umask}");
    }
}

#[test]
fn an_input_that_changes_during_the_run_is_not_relied_on() {
    // The tool reads its input, reports that, and waits until the input was changed.
    let place = with_script("cat in/a > x.o; echo read; read answer");
    for text in ["two\n", "one\n", "one\n"] {
        let before = place.counters();
        let mut child = mycc(&place).start();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("not a pipe"))
            .read_line(&mut line)
            .expect("the tool printed nothing");
        place.put("in/a", text);
        drop(child.stdin.take());
        child.wait().expect("cannot wait for the command");
        assert_eq!(place.counters().since(&before), "miss:input-changed", "{text}");
    }
}

/// This test is for aarch64 only. On x86-64 compilers ask the processor itself, which a test cannot
/// replace.
#[test]
fn kinds_of_cores_are_keyed_on_aarch64_and_their_number_is_not() {
    probe_skip!(cfg!(target_arch = "aarch64"), "no compiler asks /proc/cpuinfo on this kind of machine");
    probe_skip!(has("gcc"), "gcc is not installed");
    probe_skip!(can_mount(), "nothing can be mounted here");
    let place = source();
    let cores = std::fs::read_to_string("/proc/cpuinfo").expect("cannot read the file");
    place.put("cores", &cores);
    place.put("more-cores", cores.repeat(3));
    let other =
        |line: &str| if line.starts_with("CPU part") { "CPU part\t: 0xd0c\n".into() } else { format!("{line}\n") };
    place.put("other-cores", cores.lines().map(other).collect::<String>());
    // This observer does not see that the file is read, so only the key can tell two machines
    // apart.
    for (file, expect) in
        [("cores", "miss"), ("cores", "hit"), ("more-cores", "hit"), ("other-cores", "miss"), ("other-cores", "hit")]
    {
        let line = format!("mount --bind {file} /proc/cpuinfo && exec {} gcc -mcpu=native -c x.c", larder().display());
        let run = place.run(&["unshare", "--mount", "sh", "-c", &line]).env("LARDER_OBSERVER", "depfile");
        let (ran, outcome) = place.counted(run);
        assert_eq!((ran.code, outcome.as_str()), (Some(0), expect), "{file}: {ran:?}");
    }
}
