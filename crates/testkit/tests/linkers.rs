//! Links with every installed linker, and with fake linkers that leave a child process behind or
//! ask for random numbers. A link must hit after a few runs, and must leave the same files and
//! messages as without larder.
#![cfg(target_os = "linux")]

use std::fmt::Write as _;

use larder_testkit::{Place, Tree, has, is_full, probe_skip};

const LINKERS: [&str; 4] = ["bfd", "gold", "lld", "mold"];

/// A compiler, the file extension of its language, and the text of a program.
const COMPILERS: [(&str, &str, &str); 3] = [
    ("gcc", "c", "#include <stdio.h>\nint f(int);\nint main(void) { return printf(\"%d\\n\", f(3)) < 0; }\n"),
    ("g++", "cc", "#include <iostream>\nint f(int);\nint main() { std::cout << f(3) << std::endl; }\n"),
    ("clang", "c", "#include <stdio.h>\nint f(int);\nint main(void) { return printf(\"%d\\n\", f(3)) < 0; }\n"),
];

/// The kinds of links: a name, the flags of each compile, and the flags of the link.
const KINDS: [(&str, &[&str], &[&str]); 4] = [
    ("a program", &[], &[]),
    ("a library", &["-fPIC"], &["-shared"]),
    ("with LTO", &["-flto"], &["-flto"]),
    ("a static program", &[], &["-static"]),
];

/// The most runs until a hit. Some of them teach larder how the programs can be observed, and two
/// more show that random numbers do not influence the output. On a busy machine more are not
/// recorded, because a child of mold ends long after mold.
const RUNS_MAX: usize = 24;

/// Runs `argv` through larder until it hits, each time after `prepare`. Each difference from the
/// run without larder is added to `wrong`. Returns the outcomes.
fn until_hit(place: &Place, argv: &[&str], prepare: &dyn Fn(), wrong: &mut String) -> Vec<String> {
    let work = place.path("work");
    prepare();
    let plain = (place.run(argv).run(), Tree::of(&work));
    let mut found = Vec::new();
    while found.len() < RUNS_MAX && found.last().is_none_or(|last| last != "hit") {
        prepare();
        let (ran, outcome) = place.counted(place.larder(argv));
        let tree = Tree::of(&work);
        if ran != plain.0 || tree != plain.1 {
            let _ = writeln!(wrong, "{argv:?} ({outcome}): {ran:?} {:?}", tree.difference(&plain.1));
        }
        found.push(outcome);
    }
    found
}

#[test]
fn every_linker_hits_and_gives_what_it_gives() {
    let mut wrong = String::new();
    for (compiler, ending, program) in COMPILERS {
        if !has(compiler) {
            eprintln!("skipped: {compiler} is not installed");
            continue;
        }
        for linker in LINKERS {
            if !has(&format!("ld.{linker}")) {
                eprintln!("skipped: ld.{linker} is not installed");
                continue;
            }
            // The quick test links every kind with mold only, because the other linkers make the
            // same system calls for all kinds.
            let kinds = if is_full() || linker == "mold" { &KINDS[..] } else { &KINDS[..1] };
            for (what, compile, link) in kinds {
                links(compiler, ending, program, linker, (what, compile, link), &mut wrong);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

fn links(
    compiler: &str,
    ending: &str,
    program: &str,
    linker: &str,
    (what, compile, link): (&str, &[&str], &[&str]),
    wrong: &mut String,
) {
    let place = Place::new();
    let compiles = |name: &str, text: &str| {
        let (source, object) = (format!("{name}.{ending}"), format!("{name}.o"));
        place.put(&source, text);
        place.run(&[&[compiler][..], compile, &["-c", &source, "-o", &object]].concat()).run().ends(0);
        let bytes = place.read(&object);
        place.put(&object, bytes);
    };
    compiles("m", program);
    compiles("f", "int f(int x) { return x * 2; }\n");
    let by = format!("-fuse-ld={linker}");
    let argv = [&[compiler, by.as_str()][..], link, &["m.o", "f.o", "-o", "p"]].concat();
    if place.run(&argv).run().code != Some(0) {
        eprintln!("skipped: {argv:?} does not work here");
        return;
    }
    place.remove(&["p"]);
    let mut hits = |when: &str, prepare: &dyn Fn()| {
        let found = until_hit(&place, &argv, prepare, wrong);
        if found.last().is_none_or(|last| last != "hit") {
            let _ = writeln!(wrong, "{compiler}, {linker}, {what}, {when}: {found:?}");
        }
    };
    hits("nothing there", &|| place.remove(&["p"]));
    hits("over itself", &|| {});
    place.run(&["cp", "p", "old"]).run().quiet();
    compiles("f", "int f(int x) { return x * 3; }\n");
    // Tests which of the hard links of the old output the linker writes to.
    hits("over another", &|| {
        place.remove(&["p", "other"]);
        place.run(&["cp", "old", "p"]).run().quiet();
        place.run(&["ln", "p", "other"]).run().quiet();
    });
}

/// Compiles a fake linker that gcc runs as mold. `body` is the C code that it executes; `out` is
/// the path of the output.
fn own_linker(place: &Place, body: &str) {
    let text = format!(
        "#define _GNU_SOURCE\n#include <fcntl.h>\n#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n\
         #include <string.h>\n#include <sys/mman.h>\n#include <sys/random.h>\n#include <sys/syscall.h>\n\
         #include <sys/stat.h>\n#include <unistd.h>\n\
         static void put(const char *path, const char *text) {{ int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0755);\n\
         if (fd < 0 || write(fd, text, strlen(text)) < 0) exit(3); close(fd); }}\n\
         int main(int argc, char **argv) {{ const char *out = \"a.out\"; int told[2]; char buffer[64] = \"\"; pid_t own = getpid();\n\
         for (int i = 1; i < argc; i++) if (!strcmp(argv[i], \"-o\")) out = argv[i + 1];\n\
         (void)told; (void)buffer; (void)own; {body}\nreturn 0; }}\n"
    );
    place.put("linker.c", text);
    place.run(&["mkdir", "-p", "../bin/own"]).run().ends(0);
    place.run(&["gcc", "-w", "-o", "../bin/own/ld.mold", "linker.c"]).run().quiet();
    place.put("m.o", "an object\n");
}

fn linked(place: &Place) -> [String; 6] {
    let own = format!("-B{}", place.text("bin/own"));
    ["gcc".into(), own, "-fuse-ld=mold".into(), "m.o".into(), "-o".into(), "p".into()]
}

/// Returns the outcomes of `count` links by a fake linker with this `body`.
fn outcomes(body: &str, count: usize) -> Vec<String> {
    outcomes_until(body, count, None)
}

/// Returns the outcomes of at most `most` links by a fake linker with this `body`, up to the first
/// one that is `last`.
fn outcomes_until(body: &str, most: usize, last: Option<&str>) -> Vec<String> {
    let place = Place::new();
    own_linker(&place, body);
    let argv = linked(&place);
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let mut found: Vec<String> = Vec::new();
    while found.len() < most && (found.is_empty() || found.last().map(String::as_str) != last) {
        place.remove(&["p"]);
        let (ran, outcome) = place.counted(place.larder(&argv));
        ran.ends(0);
        found.push(outcome);
    }
    found
}

/// Does what mold does: the child writes the output through a mapping and tells its parent, and
/// then the parent ends.
const IN_A_CHILD: &str = "pipe(told); if (fork()) { read(told[0], buffer, 1); _exit(0); }\n\
    int fd = open(out, O_RDWR | O_CREAT | O_TRUNC, 0755); ftruncate(fd, 8 << 20);\n\
    char *at = mmap(0, 8 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0); close(fd); memset(at, 'x', 8 << 20);\n\
    write(told[1], \"\", 1);\n";

#[test]
fn a_child_that_only_ends_is_waited_for() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = Place::new();
    own_linker(&place, &format!("{IN_A_CHILD} munmap(at, 8 << 20); _exit(0);"));
    let argv = linked(&place);
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let mut wrong = String::new();
    let found = until_hit(&place, &argv, &|| place.remove(&["p"]), &mut wrong);
    assert_eq!((wrong.as_str(), found.last().map(String::as_str)), ("", Some("hit")), "{found:?}");
}

/// C code for a child that executes `what` after its parent has ended, which larder has noticed by
/// then.
fn later(what: &str) -> String {
    format!("{IN_A_CHILD} while (getppid() == own) usleep(1000); usleep(60000); {what}")
}

/// The kernel reports no write through a mapping. So the stored output must be the one that the
/// last such write left.
#[test]
fn nothing_is_kept_before_the_last_process_has_ended() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = Place::new();
    own_linker(&place, &later("at[0] = 'y'; _exit(0);"));
    let argv = linked(&place);
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    // After so many runs larder knows the programs, and would have recorded one.
    const RUNS: usize = 8;
    for at in 0..RUNS {
        place.remove(&["p"]);
        let (ran, outcome) = place.counted(place.larder(&argv));
        ran.ends(0);
        assert!(outcome != "hit" || place.read("p").starts_with(b"yx"), "run {at}");
    }
}

#[test]
fn a_child_that_still_works_is_not() {
    probe_skip!(has("gcc"), "gcc is not installed");
    for (what, body, expect) in [
        ("writes the output anew", later("put(out, \"later\\n\"); _exit(0);"), "miss:outlives"),
        ("lives on", later("sleep(2); _exit(0);"), "miss:outlives"),
        ("dies", later("raise(SIGKILL);"), "miss:signal"),
    ] {
        // In the first runs larder does not know the programs yet. On a busy machine the child may
        // also end before gcc does, or long after it.
        let found = outcomes_until(&body, 30, Some(expect));
        assert_eq!(found.last().map(String::as_str), Some(expect), "{what}: {found:?}");
    }
}

#[test]
fn random_numbers_of_a_linker_are_compared() {
    probe_skip!(has("gcc"), "gcc is not installed");
    for (how, asks) in [
        ("libc", "getrandom(buffer, 32, GRND_NONBLOCK);"),
        ("a call", "syscall(SYS_getrandom, buffer, 32, 0);"),
        ("a device", "int fd = open(\"/dev/urandom\", O_RDONLY); read(fd, buffer, 32); close(fd);"),
    ] {
        // For example, an allocator or a hash table asks for random numbers that do not reach the
        // output.
        let unused = outcomes(&format!("{asks} put(out, \"always the same\\n\");"), 6);
        assert!(unused.ends_with(&["hit".into(), "hit".into()]), "{how}: {unused:?}");
        let two = unused.iter().filter(|outcome| *outcome == "miss").count();
        assert!(two >= 2, "{how}: two runs must be recorded before one hits: {unused:?}");
        let used = outcomes(
            &format!(
                "{asks} char text[65]; for (int i = 0; i < 32; i++) sprintf(text + 2 * i, \"%02x\", buffer[i] & 255); put(out, text);"
            ),
            6,
        );
        assert!(!used.contains(&"hit".to_owned()), "{how}: {used:?}");
    }
}

#[test]
fn random_numbers_of_a_command_are_seen_however_it_asks() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let ways = [
        "getrandom(&r, 8, 0)",
        // libc uses this flag when it asks for random numbers for itself.
        "getrandom(&r, 8, GRND_NONBLOCK)",
        "syscall(SYS_getrandom, &r, 8, GRND_NONBLOCK)",
        "getentropy(&r, 8)",
        "syscall(SYS_getrandom, &r, 8, 0)",
    ];
    for asks in ways {
        for flags in [&[][..], &["-static"]] {
            let place = Place::new();
            place.put(
                "r.c",
                format!(
                    "#include <stdio.h>\n#include <sys/random.h>\n#include <sys/syscall.h>\n#include <unistd.h>\n\
                     int main(void) {{ unsigned long r = 0; {asks}; return printf(\"%lx\\n\", r) < 0; }}\n"
                ),
            );
            if place.run(&[&["gcc", "-w", "-o", "r", "r.c"], flags].concat()).run().code != Some(0) {
                eprintln!("skipped: {flags:?} does not work here");
                continue;
            }
            for at in 0..4 {
                let (ran, outcome) = place.counted(place.larder(&["run", "--", "./r"]));
                ran.ends(0);
                assert!(outcome.starts_with("miss:"), "{asks} {flags:?}, run {at}: {outcome}");
            }
        }
    }
}
