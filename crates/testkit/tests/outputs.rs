//! Outputs at paths where something exists already. A hit must leave what the tool would have left,
//! also with links and other files involved.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use larder_testkit::{Place, Ran, Run, Tree, has, is_root, larder_text, set_mode};

/// Creates what exists in the empty directory `out` before the compile.
type Setup = fn(&Path);

const ROWS: &[(&str, Setup)] = &[
    ("nothing", |_| ()),
    ("an older object", |out| fs::write(out.join("x.o"), "older").expect("cannot write the file")),
    ("an empty file", |out| fs::write(out.join("x.o"), "").expect("cannot write the file")),
    ("an executable file", |out| {
        fs::write(out.join("x.o"), "older").expect("cannot write the file");
        set_mode(&out.join("x.o"), 0o755);
    }),
    ("an empty private file", |out| {
        fs::write(out.join("x.o"), "").expect("cannot write the file");
        set_mode(&out.join("x.o"), 0o600);
    }),
    ("a read-only file", |out| {
        fs::write(out.join("x.o"), "older").expect("cannot write the file");
        set_mode(&out.join("x.o"), 0o444);
    }),
    ("another name of a file", |out| {
        fs::write(out.join("other"), "older").expect("cannot write the file");
        fs::hard_link(out.join("other"), out.join("x.o")).expect("cannot create the hard link");
    }),
    ("another name of an empty file", |out| {
        fs::write(out.join("other"), "").expect("cannot write the file");
        fs::hard_link(out.join("other"), out.join("x.o")).expect("cannot create the hard link");
    }),
    ("a link to a file", |out| {
        fs::write(out.join("other"), "older").expect("cannot write the file");
        symlink("other", out.join("x.o")).expect("cannot create the link");
    }),
    ("a link to an empty file", |out| {
        fs::write(out.join("other"), "").expect("cannot write the file");
        symlink("other", out.join("x.o")).expect("cannot create the link");
    }),
    ("a link to nothing", |out| symlink("other", out.join("x.o")).expect("cannot create the link")),
    ("a link into a missing directory", |out| symlink("no/other", out.join("x.o")).expect("cannot create the link")),
    ("a link to a directory", |out| {
        fs::create_dir(out.join("dir")).expect("cannot create the directory");
        symlink("dir", out.join("x.o")).expect("cannot create the link");
    }),
    ("a directory", |out| fs::create_dir(out.join("x.o")).expect("cannot create the directory")),
    ("a depfile that is a directory", |out| fs::create_dir(out.join("x.d")).expect("cannot create the directory")),
    ("a read-only depfile", |out| {
        fs::write(out.join("x.d"), "older").expect("cannot write the file");
        set_mode(&out.join("x.d"), 0o444);
    }),
    ("a depfile with another name", |out| {
        fs::write(out.join("other"), "older").expect("cannot write the file");
        fs::hard_link(out.join("other"), out.join("x.d")).expect("cannot create the hard link");
    }),
    ("a depfile that is a link", |out| {
        fs::write(out.join("other"), "older and longer than what will be written").expect("cannot write the file");
        symlink("other", out.join("x.d")).expect("cannot create the link");
    }),
    ("a directory that cannot be written to", |out| {
        fs::write(out.join("x.o"), "older").expect("cannot write the file");
        set_mode(out, 0o555);
    }),
];

/// Compiles without the right to override file modes. Returns the result, the files, and the number
/// of hard links of each.
fn compile(place: &Place, setup: Setup, before: &[&str], argv: &[&str]) -> (Ran, Tree, Vec<(String, u64)>) {
    let out = place.path("work/out");
    if out.exists() {
        set_mode(&out, 0o755);
        fs::remove_dir_all(&out).expect("cannot remove the directory");
    }
    fs::create_dir(&out).expect("cannot create the directory");
    setup(&out);
    place.settle();
    let fence = if is_root() { &["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--"][..] } else { &[] };
    let run: Run = place.run(&[fence, before, argv].concat());
    let ran = run.run();
    set_mode(&out, 0o755);
    let names =
        fs::read_dir(&out).expect("cannot list the directory").map(|entry| entry.expect("cannot list the directory"));
    let mut links: Vec<_> = names
        .map(|entry| {
            (
                entry.file_name().into_string().expect("not UTF-8"),
                entry.path().symlink_metadata().expect("cannot stat the file").nlink(),
            )
        })
        .collect();
    links.sort();
    (ran, Tree::of(&out), links)
}

#[test]
fn over_through_and_beside_what_is_there() {
    for compiler in ["gcc", "clang"] {
        if !has(compiler) {
            eprintln!("skipped: {compiler} is not installed");
            continue;
        }
        let argv = [compiler, "-MD", "-c", "x.c", "-o", "out/x.o"];
        let own = larder_text();
        let mut wrong = Vec::new();
        // Test each row with two stores. The shared one holds a record that was made with an empty
        // `out`; the other holds one that was made with this row's files.
        let shared = Place::new();
        shared.put("x.c", "int f(void) { return 1; }\n");
        for (what, setup) in ROWS {
            let alone = Place::new();
            alone.put("x.c", "int f(void) { return 1; }\n");
            for (whose, place) in [("shared", &shared), ("own", &alone)] {
                let plain = compile(place, *setup, &[], &argv);
                for at in 0..2 {
                    let through = compile(place, *setup, &[own], &argv);
                    if through != plain {
                        let difference = through.1.difference(&plain.1);
                        let seen = (&through.0, &through.2, &plain.0, &plain.2);
                        wrong.push(format!("{compiler}, {what}, {whose} store, run {at}: {difference:?} {seen:?}"));
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "results differ: {wrong:#?}");
        let counters = shared.counters();
        assert!(counters.get("hit") >= ROWS.len() as u64, "{counters:?}");
    }
}

#[test]
fn the_umask_is_the_callers() {
    for compiler in ["gcc", "clang"] {
        if !has(compiler) {
            eprintln!("skipped: {compiler} is not installed");
            continue;
        }
        let place = Place::new();
        place.put("x.c", "int f(void) { return 1; }\n");
        let argv = [compiler, "-MD", "-c", "x.c", "-o", "out/x.o"];
        let own = larder_text();
        for mask in ["022", "077", "002", "000", "027"] {
            let line = format!("umask {mask}; exec \"$@\"");
            let shell = ["sh", "-c", &line, "sh"];
            let plain = compile(&place, |_| (), &shell, &argv);
            for _ in 0..2 {
                let through = compile(&place, |_| (), &[&shell[..], &[own]].concat(), &argv);
                assert_eq!(through, plain, "{compiler} {mask}");
            }
        }
        assert!(place.counters().get("hit") >= 5, "{:?}", place.counters());
    }
}

#[test]
fn a_failure_over_a_link_is_not_the_answer_without_it() {
    if !has("gcc") {
        eprintln!("skipped: gcc is not installed");
        return;
    }
    let place = Place::new();
    place.put("x.c", "int a;\n");
    let argv = ["gcc", "-c", "x.c", "-o", "out/x.o"];
    let own = larder_text();
    // gcc cannot create the target of the link, and then removes the link.
    let into_nothing: Setup = |out| symlink("no/other", out.join("x.o")).expect("cannot create the link");
    for setup in [into_nothing, |_| (), into_nothing] {
        let plain = compile(&place, setup, &[], &argv);
        assert_eq!(compile(&place, setup, &[own], &argv), plain, "left is with larder, right without");
    }
}

/// Two runs write the same output. If another process changes the output meanwhile, larder must not
/// record it.
#[test]
fn an_output_that_somebody_else_changes_is_not_recorded() {
    let place = Place::new();
    place.put("x.c", "int f(void) { return 1; }\n");
    let assembler = place.tool("bd/as", "/usr/bin/as \"$@\"; r=$?; : > busy; sleep 4; exit $r\n");
    let beside = format!("-B{}/", Path::new(&assembler).parent().expect("no parent directory").display());
    let argv = [larder_text(), "gcc", &beside, "-c", "x.c", "-o", "x.o"];
    place.settle();
    let before = place.counters();
    let running = place.run(&argv).start();
    let waited = (0..12_000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(5));
        place.path("work/busy").exists()
    });
    assert!(waited, "the assembler was not started");
    fs::write(place.path("work/x.o"), "somebody else's").expect("cannot write the file");
    assert_eq!(Ran::of(running).code, Some(0));
    assert_eq!(place.counters().since(&before), "miss:output-lost");
    place.remove(&["busy", "x.o"]);
    place.check(&argv[1..], &["miss", "hit"]);
}

/// An error that is reported only when a stream is closed must not be lost.
#[test]
fn a_full_disk() {
    if !has("gcc") {
        return println!("skipped: gcc is not installed");
    }
    let place = Place::new();
    place.put("x.c", "int a;\n");
    for _ in 0..2 {
        let ran = place.larder(&["gcc", "-S", "x.c", "-o", "/dev/full"]).run().ends(1);
        assert!(ran.stderr.contains("No space left on device"), "{ran:#?}");
    }
}
