use larder_model::{Change, Digest, DirectoryChecks, DirectoryTimes, Habit, Identity, Looked, Placement, Prior, Times};

use super::*;
use crate::event::OpenFlags;

const PID: u32 = 7;
const READ: u16 = OpenFlags::READ;
const MAKE: u16 = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNCATE;

fn event(kind: EventKind, path: &str) -> event::Event {
    let id = path.bytes().fold(1u64, |sum, b| sum.wrapping_mul(31).wrapping_add(b.into()));
    let identity = Identity { device: 1, inode: id, size_bytes: 0, modified_ns: 0, changed_ns: 0 };
    event::Event {
        identity: Some(identity),
        mode: 0o100_644,
        extra: 0o666,
        ..event::Event::new(PID, kind, path.into())
    }
}

fn open(path: &str, flags: u16) -> event::Event {
    event(EventKind::Open(OpenFlags(flags)), path)
}

fn failed(error: i32, event: event::Event) -> event::Event {
    event::Event { error, identity: None, mode: 0, ..event }
}

fn folded(program: &str, events: Vec<event::Event>) -> Folded {
    folded_by(false, program, events)
}

fn folded_by(chance_is_compared: bool, program: &str, mut events: Vec<event::Event>) -> Folded {
    events.insert(0, event(EventKind::Start, program));
    let policy = Policy {
        replaces_output: &|program| program == b"as",
        unlinks_output: &|program| program == b"as",
        rewrites_output: &|program| program == b"mold",
        opens_output: &|program| program == b"mold" || program == b"lld",
        adds_execute: &|_| false,
        variable_is_covered: &|name| matches!(name, b"COVERED" | b"TMPDIR"),
        variable: &|name| (name == b"OUTER").then(|| b"1".to_vec()),
        is_compiler_part: &|program| [&b"as"[..], b"cc1", b"lld", b"mold"].contains(&program),
        wrapper: b"/opt/larder",
        is_standard_library: &|_, path| path.starts_with(b"/usr/lib/python3."),
        reads_clock_at_import: &|_, path| path.ends_with(b"/logging.pyc"),
        configures: &|program, _| program == b"configure",
        host_fields: &|program, _| if program.ends_with(b"/uname") { b"s".to_vec() } else { b"snrvmd".to_vec() },
        habit: &|program, told, origin| {
            let part =
                origin == Origin::MadeToAsk || program == b"as" || program == b"cc1" || told.starts_with(b"/b/meson");
            let times = if program == b"find" || told == b"zips" { Times::Status } else { Times::Blind };
            let times = if program == b"generator" { Times::Files } else { times };
            let times = if program == b"cp" { Times::Mode } else { times };
            Habit {
                times,
                compares: [&b"make"[..], b"sh", b"bash", b"dash"].contains(&program),
                copies_times: program == b"cp",
                directories: match program {
                    b"make" => Some(DirectoryTimes::UnlessListed),
                    b"sh" => Some(DirectoryTimes::InPairs(DirectoryChecks::Unknown)),
                    b"dash" => Some(DirectoryTimes::InPairs(DirectoryChecks::Once)),
                    b"bash" => Some(DirectoryTimes::InPairs(DirectoryChecks::EachAbove)),
                    _ => None,
                },
                clock_reads: if part { 9 } else { 1 },
                zone_reads: 0,
                tells_time: program == b"date",
                random_reads: 0,
                seeds_are_compared: false,
                draws_are_compared: false,
                sorts_names: part,
                lists_kinds: program == b"make",
                tunes_memory: part,
                maps_reads: if part { 1 } else { 0 },
                reads_memory_size: program == b"cmake",
                tries_terminal: false,
                git: None,
                asks_sizes: false,
                names_at_random: program == b"mktemp",
                names_as_tempfile: false,
                imports: program.starts_with(b"python3."),
                shows_numbers: false,
                tries_sockets: false,
                reports: false,
                runs_code_of_builds: false,
            }
        },
        target_before: &|path| (path == b"/w/old").then(|| b"there".to_vec()),
        before: &|opened| {
            let known = event(EventKind::Stat, "/w/known").identity.map(|id| id.inode) == Some(opened.inode);
            known.then(|| Prior::File { digest: Digest::of(b"old"), mode: Some(0o644) })
        },
        real: &|path| (path == b"/w/o/p/../x.o").then(|| b"/w/o/x.o".to_vec()),
        is_private: &|_| false,
        may_write: &|path| path.starts_with(b"/w/"),
        is_log: &|path| path.ends_with(b"/config.log"),
        first_pid: Some(PID),
        chance_is_compared,
    };
    fold(&Trace { events, ..Trace::default() }, &policy)
}

/// Returns as text what was relied on below `/w`, what was changed, and the first refusal.
fn told(folded: &Folded) -> (String, String, String) {
    let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    let looked = folded.seen.looked.iter().filter(|(path, _)| path.starts_with(b"/w/"));
    let ways = |l: &Looked| match l {
        Looked { prior: Some(Prior::Absent), .. } => "was absent",
        Looked { prior: Some(Prior::Other { .. }), .. } => "was there",
        Looked { prior: Some(Prior::File { .. }), .. } => "had content",
        Looked { absent: true, .. } => "absent",
        Looked { failed: Some(_), .. } => "fails",
        Looked { listed: true, .. } => "listed",
        Looked { content: true, .. } => "content",
        _ => "kind",
    };
    let looked: Vec<String> = looked.map(|(path, l)| format!("{} {}", text(path), ways(l))).collect();
    let changed: Vec<String> = folded.seen.changed.iter().map(|(path, _)| text(path)).collect();
    let refused = folded.refusals.first().map_or(String::new(), |(why, _)| why.code().to_owned());
    (looked.join(", "), changed.join(", "), refused)
}

fn check(what: &str, program: &str, events: Vec<event::Event>, expect: (&str, &str, &str)) {
    let (looked, changed, refused) = told(&folded(program, events));
    assert_eq!((&*looked, &*changed, &*refused), expect, "{what}");
}

#[test]
fn a_script_of_its_own_is_trusted_as_its_author_is() {
    let temporary = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
    let python = |pid: u32, told: &str| event::Event {
        pid,
        path2: [told, "\x1f"].concat().into(),
        ..event(EventKind::Start, "/b/python3")
    };
    let read_clock = |pid: u32| event::Event { pid, extra: 1, ..event(EventKind::Clock, "") };
    let refusals = |author: &str, flags: u16, script: &str| {
        let made = event::Event { pid: 2, ..open("/t/own.py", flags) };
        let events = vec![python(2, author), made, python(3, script), read_clock(3), read_clock(3)];
        let refusals = folded("/b/sh", events).refusals;
        refusals.iter().filter(|(why, _)| *why == Unrecorded::Clock).count()
    };
    assert_eq!(refusals("/b/meson", temporary, "/t/own.py"), 0);
    assert_eq!(refusals("/b/meson", temporary, "/t/other.py"), 1);
    assert_eq!(refusals("/b/meson", OpenFlags::WRITE | OpenFlags::CREATE, "/t/own.py"), 1);
    assert_eq!(refusals("/b/other", temporary, "/t/own.py"), 1);
}

#[test]
fn what_is_read_and_what_is_missing() {
    check("read", "/b/cc1", vec![open("/w/x.c", READ)], ("/w/x.c content", "", ""));
    check("missing", "/b/cc1", vec![failed(2, open("/w/a/h.h", READ))], ("/w/a/h.h absent", "", ""));
    check("forbidden", "/b/cc1", vec![failed(13, open("/w/h.h", READ))], ("/w/h.h fails", "", ""));
    check("listed", "/b/cc1", vec![event(EventKind::List, "/w/d")], ("/w/d listed", "", ""));
    check("device", "/b/cc1", vec![open("/dev/sda", READ)], ("", "", "device"));
    check("harmless device", "/b/cc1", vec![open("/dev/null", READ)], ("", "", ""));
    let mut twice = open("/w/x.c", READ);
    twice.identity = twice.identity.map(|id| Identity { inode: 99, ..id });
    check("replaced meanwhile", "/b/cc1", vec![open("/w/x.c", READ), twice], ("/w/x.c content", "", "input-changed"));
}

#[test]
fn what_is_made_is_no_input() {
    check("output", "/b/cc1", vec![open("/w/x.s", MAKE), open("/w/x.s", READ)], ("", "/w/x.s", ""));
    let temporary = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE | OpenFlags::TEMPORARY;
    let unlinked = vec![open("/t/cc1.s", temporary), event(EventKind::Unlink, "/t/cc1.s")];
    check("temporary", "/b/cc1", unlinked, ("", "", ""));
    let renamed = event::Event { path2: b"/w/x.o".to_vec(), ..event(EventKind::Rename(OpenFlags(0)), "/w/x.tmp") };
    check("renamed", "/b/cc1", vec![open("/w/x.tmp", temporary), renamed], ("", "/w/x.o", ""));
    check("elsewhere", "/b/cc1", vec![open("/etc/x", MAKE)], ("", "/etc/x", "output-elsewhere"));
    let other_name = event::Event { path: b"/w/./x.s".to_vec(), ..open("/w/x.s", READ) };
    check("by another name", "/b/cc1", vec![open("/w/x.s", MAKE), other_name], ("", "/w/x.s", ""));
}

#[test]
fn a_look_at_an_output_counts_as_it_was_before() {
    let looked_first = |error| {
        let look = event(EventKind::Lstat, "/w/x.o");
        vec![if error == 0 { look } else { failed(error, look) }, open("/w/x.o", MAKE)]
    };
    check("absent", "/b/sh", looked_first(2), ("/w/x.o was absent", "/w/x.o", ""));
    check("there", "/b/sh", looked_first(0), ("/w/x.o was there", "/w/x.o", ""));
    check("a program that replaces it", "/b/as", looked_first(0), ("", "/w/x.o", ""));
    let mut read = open("/w/x.o", READ);
    read.identity = read.identity.map(|id| Identity { size_bytes: 5, ..id });
    let read_first = vec![read, open("/w/x.o", MAKE)];
    check("read first", "/b/cc1", read_first, ("", "/w/x.o", "updates-file"));
}

/// Returns the event with the identity of a file of 5 bytes.
fn with_bytes(event: event::Event) -> event::Event {
    event::Event { identity: event.identity.map(|id| Identity { size_bytes: 5, ..id }), ..event }
}

const TEMPORARY: u16 = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE | OpenFlags::TEMPORARY;

fn renamed(from: &str, to: &str) -> event::Event {
    event::Event { path2: to.into(), ..event(EventKind::Rename(OpenFlags(0)), from) }
}

#[test]
fn a_linker_opens_its_old_output_only_to_unlink_it() {
    let opened = || with_bytes(open("/w/p", READ));
    let replaced = || {
        let made = [open("/w/p.tmp", TEMPORARY), renamed("/w/p.tmp", "/w/p")];
        [&[with_bytes(event(EventKind::Stat, "/w/p")), opened(), event(EventKind::Unlink, "/w/p")][..], &made].concat()
    };
    check("lld", "/b/lld", replaced(), ("", "/w/p", ""));
    check("mold, of a library", "/b/mold", replaced(), ("", "/w/p", ""));
    check("any other", "/b/cc1", replaced(), ("", "/w/p", "updates-file"));
    check("an input too", "/b/lld", [vec![opened()], replaced()].concat(), ("", "/w/p", "updates-file"));
    let between = [vec![opened(), open("/w/x.o", READ)], replaced()[2..].to_vec()].concat();
    check("the first input", "/b/lld", between, ("/w/x.o content", "/w/p", "updates-file"));
}

#[test]
fn a_linker_writes_into_its_old_output() {
    let absent = vec![
        failed(2, event(EventKind::Stat, "/w/p")),
        open("/w/.mold-x", TEMPORARY),
        failed(2, renamed("/w/p", "/w/.mold-x")),
        failed(2, open("/w/p", READ)),
        renamed("/w/.mold-x", "/w/p"),
    ];
    let there = vec![
        event(EventKind::Stat, "/w/p"),
        open("/w/.mold-x", TEMPORARY),
        renamed("/w/p", "/w/.mold-x"),
        with_bytes(open("/w/.mold-x", READ | OpenFlags::WRITE | OpenFlags::CREATE)),
        failed(2, open("/w/p", READ)),
        renamed("/w/.mold-x", "/w/p"),
    ];
    for events in [absent.clone(), there.clone()] {
        let folded = folded("/b/mold", events);
        assert_eq!(told(&folded), (String::new(), "/w/p".into(), String::new()));
        let [(_, Change::File { placement, closed_when_complete, .. })] = &folded.seen.changed[..] else { panic!() };
        assert_eq!((*placement, *closed_when_complete), (Placement::Truncate, false));
    }
    // For any other program, one run does not tell what the program does in the other case.
    check("absent", "/b/sh", absent, ("/w/p was absent", "/w/p", ""));
    check("there", "/b/sh", there, ("/w/p was absent", "/w/p", "updates-file"));
}

#[test]
fn random_numbers_are_no_refusal_where_runs_are_compared() {
    let asks = [event(EventKind::Random, "getrandom"), open("/dev/urandom", READ), open("/proc/self/maps", READ)];
    for (ask, refused) in asks.into_iter().zip(["random", "random", "device"]) {
        let by = |compared| folded_by(compared, "/b/linker", vec![ask.clone()]);
        assert_eq!((told(&by(false)).2.as_str(), by(false).chance_program), (refused, None));
        assert_eq!((told(&by(true)).2.as_str(), by(true).chance_program), ("", Some(b"/b/linker".to_vec())));
    }
    // The habit of this program covers one read, so that is not reported.
    let reads = |count| folded_by(false, "/b/cc1", vec![open("/proc/self/maps", READ); count]);
    assert_eq!((told(&reads(1)).2.as_str(), reads(1).chance_program), ("", None));
    assert_eq!(told(&reads(2)).2.as_str(), "device");
    for (program, refused) in [("/b/cmake", ""), ("/b/cc1", "device"), ("/b/linker", "device")] {
        assert_eq!(told(&folded_by(true, program, vec![open("/proc/meminfo", READ)])).2, refused, "{program}");
    }
}

#[test]
fn a_name_may_be_made_from_the_time() {
    let clock = || event(EventKind::Clock, "gettimeofday");
    let refused = |program: &str, name: &[event::Event]| told(&folded(program, [&[clock(), clock()], name].concat())).2;
    let used = [open("/t/x", TEMPORARY), event(EventKind::Unlink, "/t/x")];
    assert_eq!(refused("/b/mktemp", &used), "");
    assert_eq!(refused("/b/mktemp", &used[..1]), "random", "the name is still there");
    assert_eq!(refused("/b/mktemp", &[]), "random", "the name was printed");
    assert_eq!(refused("/b/program", &used), "clock");
}

/// A module of Python's standard library reads the clock when it is imported, and never again.
#[test]
fn an_import_reads_the_clock() {
    const PYTHON: &str = "/usr/bin/python3.11";
    let clock = || event(EventKind::Clock, "clock_gettime");
    let logging = || open("/usr/lib/python3.11/logging.pyc", READ);
    let other = || open("/usr/lib/python3.11/other.pyc", READ);
    let check = |what: &str, events: Vec<event::Event>, refused: &str| {
        let folded = folded(PYTHON, events);
        assert_eq!(told(&folded).2, refused, "{what}");
        assert!(folded.chance_program.is_some() || !refused.is_empty(), "{what}");
    };
    check("imported", vec![clock(), logging(), other(), clock()], "");
    check("by the script", vec![clock(), logging(), clock(), clock()], "clock");
    check("before the import", vec![clock(), clock(), logging()], "clock");
    check("without the import", vec![clock(), other(), clock()], "clock");
    check("imported again", vec![clock(), logging(), clock(), logging(), clock()], "");
    let child = |e: event::Event| event::Event { pid: PID + 1, ..e };
    let forked = || event::Event { extra: PID, ..child(event(EventKind::Forked, "")) };
    check("a child, after the import", vec![clock(), logging(), clock(), forked(), child(clock())], "clock");
    check("a child imports", vec![clock(), forked(), child(logging()), child(clock())], "");
    let started = event(EventKind::Start, PYTHON);
    let exec = event(EventKind::Exec, PYTHON);
    check("another program", vec![clock(), logging(), exec, started, clock(), clock()], "clock");
}

#[test]
fn libc_asks_for_random_numbers_itself() {
    let draws = |extra| event::Event { extra, ..event(EventKind::Random, "getrandom") };
    let (name, memory) = (|| draws(event::RANDOM_FOR_NAME), || draws(event::RANDOM_FOR_MEMORY));
    let refused = |what: &str, events: Vec<event::Event>, expect: &str| {
        assert_eq!(told(&folded("/b/program", events)).2, expect, "{what}");
    };
    refused("to guard its memory", vec![memory(), open("/w/x", READ)], "");
    refused("twice", vec![memory(), open("/w/x", READ), memory()], "random");
    refused("for a name", vec![memory(), name(), open("/t/x", TEMPORARY), event(EventKind::Unlink, "/t/x")], "");
    refused("again for a name", vec![name(), name(), open("/t/x", TEMPORARY), event(EventKind::Unlink, "/t/x")], "");
    refused("on a thread's stack", vec![memory(), memory(), event(EventKind::Lstat, "/w/x")], "");
    refused("the program itself", vec![name(), open("/w/x", READ)], "random");
    refused("at its end", vec![name()], "random");
    refused("before its memory", vec![name(), memory()], "random");
    let began = event(EventKind::Start, "/b/other");
    refused("in two programs", vec![memory(), event(EventKind::Exec, "/b/other"), began, memory()], "");
}

#[test]
fn make_goes_by_the_kinds_that_a_directory_lists() {
    let kinds = |program: &str, extra: u32| {
        let seen = folded(program, vec![event::Event { extra, ..event(EventKind::List, "/w/d") }]).seen;
        seen.looked.iter().any(|(path, looked)| path == b"/w/d" && looked.kinds)
    };
    assert!(kinds("/b/make", 0) && !kinds("/b/as", 0));
    assert!(kinds("/b/as", crate::IN_ANY_ORDER_OF_KINDS) && !kinds("/b/as", crate::IN_ANY_ORDER));
}

#[test]
fn a_directory_is_made_after_the_one_above() {
    let make = |path: &str| event(EventKind::MakeDirectory, path);
    let first = || failed(libc::ENOENT, make("/w/a/b"));
    check("both", "/b/sh", vec![first(), make("/w/a"), make("/w/a/b")], ("/w/a was absent", "/w/a, /w/a/b", ""));
    check("none", "/b/sh", vec![first()], ("/w/a absent", "", ""));
    let removed = event(EventKind::RemoveDirectory, "/w/a");
    check("removed", "/b/sh", vec![make("/w/a"), removed, first()], ("/w/a absent", "", ""));
    check("read-only", "/b/sh", vec![failed(libc::EROFS, make("/w/a"))], ("", "", "write-failed"));
}

#[test]
fn the_mode_of_a_directory_is_handed_on() {
    let times = |program: &str, mode: u32| {
        let looked = event::Event { mode: 0o040_755, ..event(EventKind::Lstat, "/w/d") };
        let made = event::Event { extra: mode, ..event(EventKind::MakeDirectory, "/w/e") };
        let seen = folded(program, vec![looked, made]).seen;
        seen.looked.iter().find(|(path, _)| path == b"/w/d").map(|(_, looked)| looked.times)
    };
    assert_eq!(times("/b/sh", 0o777), Some(Times::Blind));
    assert_eq!(times("/b/sh", 0o755), Some(Times::Mode));
    assert_eq!(times("/b/cp", 0o777), Some(Times::Mode));
}

/// Python looks at a directory to find a module. A script that does so uses all that `stat` says.
#[test]
fn looks_at_directories_to_import() {
    let d = || event::Event { mode: 0o040_755, ..event(EventKind::Stat, "/w/d") };
    let list = || event(EventKind::List, "/w/d");
    let library = || event::Event { mode: 0o040_755, ..event(EventKind::Stat, "/usr/lib/python3.11") };
    let its_file = || event(EventKind::Stat, "/usr/lib/python3.11/os.py");
    let source = || event(EventKind::Stat, "/w/d/x.py");
    let compiled = || failed(libc::ENOENT, open("/w/d/__pycache__/x.pyc", READ));
    let first = || vec![d(), d(), d(), list(), library()];
    let check = |what: &str, events: Vec<event::Event>, counts: bool| {
        let began = event::Event { path2: "zips".into(), ..event(EventKind::Start, "/b/python3.11") };
        let seen = folded("/b/python3.11", [vec![began], events].concat()).seen;
        let (_, looked) = seen.looked.iter().find(|(path, _)| path == b"/w/d").expect("not looked at");
        assert_eq!(looked.times == Times::Status, counts, "{what}");
    };
    check("first import", first(), false);
    check("imports", [first(), vec![d(), library(), d(), list(), library()]].concat(), false);
    check("a module that is there", vec![d(), d(), d(), list(), source(), source(), compiled()], false);
    check("the script", vec![d()], true);
    check("the script lists", vec![d(), list()], true);
    check("the script looks at a module", [first(), vec![d(), list(), its_file()]].concat(), true);
    check("an archive", vec![d(), list(), source(), source(), open("/w/d/x.py", READ)], true);
    check("the script, then an import", [first(), vec![d(), d(), library()]].concat(), true);
    check("the script twice, then an import", [first(), vec![d(), d(), d(), list(), library()]].concat(), true);
    check("the script, then the first import", [vec![d()], first()].concat(), true);
    check("by lstat", vec![event::Event { kind: EventKind::Lstat, ..d() }, library()], true);
}

#[test]
fn looks_at_directories_for_their_mtimes() {
    let directory = |path: &str| event::Event { mode: 0o040_755, ..event(EventKind::Stat, path) };
    let file = || event(EventKind::Stat, "/w/in");
    let other = || event::Event { pid: PID + 1, ..file() };
    let list = || event(EventKind::List, "/w/d");
    let compared = |program: &str, events: Vec<event::Event>| {
        let began = event::Event { mode: event::HAS_PWD | event::HAS_OLDPWD, ..event(EventKind::Start, program) };
        let seen = folded(program, [vec![began], events].concat()).seen;
        seen.looked.iter().any(|(path, looked)| path == b"/w/d" && looked.directory_ns.is_some())
    };
    let d = || directory("/w/d");
    let current = || directory("/w/d/");
    let old = || directory("/v");
    let gone = || failed(libc::ENOENT, directory("/v"));
    let read = || open("/w/in", READ);
    let cd = |path: &str| open(path, OpenFlags::PATH_ONLY | OpenFlags::DIRECTORY);
    let start = || vec![d(), current(), directory("/w"), d()];
    for (what, program, events, expect) in [
        ("a target, then a prerequisite", "/b/make", vec![d(), file()], true),
        ("the last look", "/b/make", vec![d()], true),
        ("a directory that is searched", "/b/make", vec![d(), list()], false),
        ("searched, and a target", "/b/make", vec![d(), list(), d(), file()], true),
        ("another process in between", "/b/make", vec![d(), other(), list()], false),
        ("-nt", "/b/sh", vec![d(), file()], true),
        ("-nt, the other way round", "/b/sh", vec![file(), d()], true),
        ("-d", "/b/sh", vec![d(), open("/w/in", READ)], false),
        ("-d at the end", "/b/sh", vec![open("/w/in", READ), d()], false),
        ("another program", "/b/cp", vec![d(), file()], false),
        ("two looks", "/b/bash", vec![d(), file()], true),
        ("the start of bash", "/b/bash", [start(), vec![old(), read()]].concat(), false),
        ("and -f", "/b/bash", [start(), vec![old(), file(), read()]].concat(), false),
        ("and -f, if OLDPWD is gone", "/b/bash", [start(), vec![gone(), file(), read()]].concat(), false),
        ("and -nt", "/b/bash", [start(), vec![old(), d(), file()]].concat(), true),
        ("started twice", "/b/bash", [start(), vec![read()], start()].concat(), true),
        ("bash does not start so", "/b/sh", start(), true),
        ("bash does not end its start so", "/b/bash", vec![d(), current(), directory("/w"), file()], true),
        ("another directory", "/b/bash", vec![directory("/v"), current(), d(), file()], false),
        ("the start of dash", "/b/dash", vec![d(), current(), file(), read()], false),
        ("dash and -nt", "/b/dash", vec![d(), current(), d(), file()], true),
        ("dash finds no PWD", "/b/dash", vec![gone(), d(), current(), read()], true),
        ("cd", "/b/bash", vec![read(), directory("/w"), d(), cd("/w/d")], false),
        ("cd with ..", "/b/bash", vec![read(), directory("/w"), d(), d(), directory("/w/e"), cd("/w/e")], false),
        ("-nt and cd", "/b/bash", vec![read(), file(), d(), directory("/w"), d(), cd("/w/d")], true),
        ("cd elsewhere", "/b/bash", vec![read(), directory("/w"), d(), cd("/w/e")], true),
        ("cd of another shell", "/b/sh", vec![read(), directory("/w"), d(), cd("/w/d")], true),
    ] {
        assert_eq!(compared(program, events), expect, "{what}");
    }
}

#[test]
fn what_a_shell_opened_for_a_program_counts_as_that_one_looks_at_it() {
    let times = |program: &str, file: &str| {
        let script = event::Event { path2: b"./s\x1f".to_vec(), ..event(EventKind::Start, "/b/sh") };
        let seen = folded("/b/sh", vec![script, open(file, READ), event(EventKind::Start, program)]).seen;
        seen.looked.iter().find(|(path, _)| path == file.as_bytes()).map(|(_, looked)| looked.times)
    };
    assert_eq!(times("/b/generator", "/w/in"), Some(Times::Files));
    assert_eq!(times("/b/cp", "/w/in"), Some(Times::Blind));
    assert_eq!(times("/b/generator", "/w/s"), Some(Times::Blind));
    // The shell may open the file before it starts the program by `vfork`.
    let started = |file: &str| {
        let script = event::Event { path2: b"./s\x1f".to_vec(), ..event(EventKind::Start, "/b/sh") };
        let child =
            |pid: u32, program: &str| event::Event { pid, extra: script.pid, ..event(EventKind::Start, program) };
        let events = [script.clone(), open("/w/s", READ), open("/w/in", READ), child(71, "/b/generator")];
        let later = [open("/w/next", READ), child(72, "/b/cp"), child(73, "/b/generator")];
        let seen = folded("/b/sh", events.into_iter().chain(later).collect()).seen;
        seen.looked.iter().find(|(path, _)| path == file.as_bytes()).map(|(_, looked)| looked.times)
    };
    assert_eq!(started("/w/in"), Some(Times::Files));
    assert_eq!(started("/w/s"), Some(Times::Blind));
    assert_eq!(started("/w/next"), Some(Times::Blind));
    // CMake leaves the list of commands that it runs open for them.
    let linked = |file: &str| {
        let words = b"-E\x1fcmake_link_script\x1fd/link.txt\x1f".to_vec();
        let cmake = event::Event { path2: words, ..event(EventKind::Start, "/b/cmake") };
        let seen = folded("/b/cmake", vec![cmake, open(file, READ), event(EventKind::Start, "/b/generator")]).seen;
        seen.looked.iter().find(|(path, _)| path == file.as_bytes()).map(|(_, looked)| looked.times)
    };
    assert_eq!((linked("/w/d/link.txt"), linked("/w/in")), (Some(Times::Blind), Some(Times::Files)));
}

#[test]
fn a_process_that_has_the_number_of_an_earlier_one_wrote_nothing() {
    let forked = event::Event { extra: 99, mode: 99, ..event(EventKind::Forked, "") };
    let events = vec![open("/w/x.o", MAKE | OpenFlags::READ), forked, event(EventKind::Start, "/b/sh")];
    let by_as = folded("/b/as", events).seen.changed;
    let by_sh = folded("/b/sh", vec![open("/w/x.o", MAKE)]).seen.changed;
    let placement = |changed: &[(Vec<u8>, Change)]| match changed {
        [(_, Change::File { placement, .. })] => *placement,
        other => panic!("{other:?}"),
    };
    assert_eq!((placement(&by_as), placement(&by_sh)), (Placement::Replace, Placement::Truncate));
}

#[test]
fn what_would_not_have_been_made_is_written_in_place() {
    let placement = |flags: u16| match &*folded("/b/as", vec![open("/w/x.o", flags)]).seen.changed {
        [(_, Change::File { placement, .. })] => *placement,
        other => panic!("{other:?}"),
    };
    assert_eq!(placement(MAKE | OpenFlags::READ), Placement::Replace);
    assert_eq!(placement(OpenFlags::READ | OpenFlags::WRITE | OpenFlags::TRUNCATE), Placement::Truncate);
    // A map or listing, which is not unlinked.
    assert_eq!(placement(MAKE), Placement::Truncate);
}

/// `objcopy` of binutils 2.35 reads its input, writes another file, and copies that over the input
/// if the input has several names.
#[test]
fn an_input_that_is_opened_as_it_is_is_written_in_place() {
    let events = |first: event::Event| vec![first, open("/w/x.o", MAKE | OpenFlags::READ)];
    let placement = |events| match &*folded("/b/as", events).seen.changed {
        [(_, Change::File { placement, .. })] => *placement,
        other => panic!("{other:?}"),
    };
    assert_eq!(placement(events(with_bytes(open("/w/x.o", READ)))), Placement::Truncate);
    assert_eq!(placement(events(open("/w/y.o", READ))), Placement::Replace);
}

#[test]
fn the_mode_of_what_was_made_hangs_on_the_umask() {
    let counts = |program: &str, then: event::Event| {
        folded(program, vec![open("/w/a", MAKE), open("/w/a", READ), then]).seen.umask
    };
    let given = |bits: u32, event: event::Event| event::Event { extra: bits, ..event };
    assert!(counts("/b/cp", given(0o600, open("/w/b", MAKE))));
    assert!(counts("/b/sh", given(0o744, event(EventKind::ChangeMode, "/w/a"))));
    assert!(!counts("/b/sh", open("/w/b", MAKE)));
}

#[test]
fn the_time_may_be_told_to_a_log() {
    let read_clock = |output: Option<&str>| {
        let identity = output.and_then(|path| event(EventKind::Stat, path).identity);
        event::Event { extra: 3, identity, ..event(EventKind::Clock, "") }
    };
    let is_refused = |output: Option<&str>, then: Vec<event::Event>| {
        // The policy of these tests allows every program one read of the clock.
        let made = vec![open("/w/config.log", MAKE), open("/w/x", MAKE), read_clock(output), read_clock(output)];
        folded("/b/date", [made, then].concat()).refusals.iter().any(|(why, _)| *why == Unrecorded::Clock)
    };
    assert!(!is_refused(Some("/w/config.log"), vec![]));
    assert!(is_refused(Some("/w/x"), vec![]));
    assert!(is_refused(Some("/w/other/config.log"), vec![]));
    assert!(is_refused(None, vec![]));
    let renamed = event::Event { path2: b"/w/y".to_vec(), ..event(EventKind::Rename(OpenFlags(0)), "/w/config.log") };
    assert!(is_refused(Some("/w/config.log"), vec![renamed]));
    assert!(is_refused(Some("/w/config.log"), vec![open("/w/config.log", READ)]));
}

#[test]
fn what_cannot_be_recorded() {
    let clock = |extra| event::Event { extra, ..event(EventKind::Clock, "") };
    check("a compiler's clock", "/b/cc1", vec![clock(1)], ("", "", ""));
    check("local time", "/b/cc1", vec![clock(4)], ("", "", "clock"));
    check("once by habit", "/b/sh", vec![clock(1)], ("", "", ""));
    check("twice, no habit", "/b/sh", vec![clock(1), clock(1)], ("", "", "clock"));
    check("random numbers", "/b/sh", vec![event(EventKind::Random, "getrandom")], ("", "", "random"));
    let known = [open("/w/known", READ), open("/w/known", OpenFlags::WRITE)].to_vec();
    check("update of known content", "/b/ar", known, ("/w/known had content", "/w/known", ""));
    let times = |program| (program, [event(EventKind::Stat, "/w/o"), open("/w/o", MAKE)].to_vec());
    let (program, events) = times("/b/find");
    check("an output's times", program, events, ("", "/w/o", "compares-times"));
    check("network", "/b/cc1", vec![event(EventKind::Network, "")], ("", "", "network"));
    check("shortage", "/b/cc1", vec![failed(28, open("/w/x.o", MAKE))], ("", "", "shortage"));
    for short in [5, 11, 12, 23, 24, 27, 28, 122] {
        let events = vec![failed(short, event(EventKind::Shortage, "write"))];
        check("only its error matters", "/b/cc1", events, ("", "", "shortage"));
    }
    let internal = || vec![event::Event { extra: 0, ..event(EventKind::ChildDied, "") }];
    check("a child's internal error", "/b/cc1", internal(), ("", "", "internal-error"));
    check("a child's exit code", "/b/sh", internal(), ("", "", ""));
    check("a child's death", "/b/cc1", vec![event(EventKind::ChildDied, "")], ("", "", "signal"));
    check("unobserved", "/b/cc1", vec![event(EventKind::Drop, "/w/static")], ("", "", "not-observed"));
    check("appended to", "/b/cc1", vec![updated("/w/log")], ("", "", "updates-file"));
    let silent = event::Event { pid: 8, ..event(EventKind::Exec, "/b/as") };
    check("no start event", "/b/cc1", vec![silent], ("", "", "not-observed"));
}

/// A program is trusted as a probe only if the command made it and a program that configures the
/// build started it.
#[test]
fn a_probe_is_made_and_started_by_what_configures() {
    let reads = |made: bool, by: &str| {
        let probe = event(EventKind::Start, "/w/conftest");
        let start = event::Event { pid: 8, extra: PID, path2: Vec::new(), ..probe.clone() };
        let make = event::Event { identity: probe.identity, ..open("/w/conftest", MAKE) };
        let clock = || event::Event { pid: 8, extra: 1, ..event(EventKind::Clock, "") };
        let silent = event::Event { pid: 8, ..event(EventKind::Exec, "/w/conftest") };
        let mut events = if made { vec![make] } else { Vec::new() };
        events.extend([silent, start, clock(), clock(), clock()]);
        folded(by, events).refusals.iter().any(|(why, _)| *why == Unrecorded::Clock)
    };
    assert!(!reads(true, "/w/configure"));
    assert!(reads(false, "/w/configure"), "the program was there before");
    assert!(reads(true, "/b/sh"), "another program started it");
}

/// A program is the wrapper by its path, not by its file name.
#[test]
fn only_the_wrapper_reports() {
    let asks = |program: &str| {
        let reported = event::Event { extra: event::REPORTED_UMASK, ..event(EventKind::Umask, "") };
        folded(program, vec![reported]).seen.umask_is_set
    };
    assert!(!asks("/opt/larder"));
    assert!(asks("/w/larder"));
}

fn updated(path: &str) -> event::Event {
    let mut open = open(path, OpenFlags::WRITE | OpenFlags::APPEND);
    open.identity = open.identity.map(|id| Identity { size_bytes: 5, ..id });
    open
}

#[test]
fn variables_of_the_callers_count() {
    let asked = |name: &str, value: &str| event::Event {
        path2: value.into(),
        error: if value.is_empty() { 2 } else { 0 },
        ..event(EventKind::GetEnvironment, name)
    };
    let events = vec![asked("OUTER", "1"), asked("OWN", "set by the tool"), asked("UNSET", ""), asked("COVERED", "")];
    let mut names = folded("/b/cc1", events).seen.environment;
    names.sort();
    assert_eq!(names, [(b"OUTER".to_vec(), Some(b"1".to_vec())), (b"UNSET".to_vec(), None)]);
    let is_refused = |name: &str, value: &str| !folded("/b/sh", vec![asked(name, value)]).refusals.is_empty();
    for (name, value, expect) in [
        ("LOCPATH", "/w/locale", true),
        ("TZ", ":/w/zone", true),
        ("TZ", "../zone", true),
        ("TZ", "Europe/Berlin", false),
        ("LOCPATH", "", false),
        ("LANG", "/w", false),
    ] {
        assert_eq!(is_refused(name, value), expect, "{name}={value}");
    }
}

#[test]
fn where_temporary_files_go_counts_where_none_can_be_made() {
    let asked = failed(2, event(EventKind::GetEnvironment, "TMPDIR"));
    let temporary = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
    let counts = |made: event::Event| !folded("/b/cc1", vec![asked.clone(), made]).seen.environment.is_empty();
    assert!(counts(failed(2, open("/t/x.o", temporary))));
    assert!(!counts(failed(2, open("/w/o/x.o", MAKE))));
    assert!(!counts(open("/t/x.o", MAKE)));
}

/// `ar` of binutils 2.35 makes an archive, writes another file, renames that to the archive, and
/// then sets its owner.
#[test]
fn a_new_file_may_be_given_an_owner_and_an_old_one_may_not() {
    let events = |new: u16| {
        let renamed = event::Event { path2: b"/w/l.a".to_vec(), ..event(EventKind::Rename(OpenFlags(0)), "/w/stX") };
        vec![
            open("/w/l.a", MAKE | new),
            open("/w/stX", MAKE | OpenFlags::NEW | OpenFlags::TEMPORARY),
            renamed,
            event(EventKind::ChangeOwner, "/w/l.a"),
        ]
    };
    assert_eq!(folded("/b/ar", events(OpenFlags::NEW)).refusals, []);
    let refusals = folded("/b/ar", events(0)).refusals;
    assert_eq!(refusals, [(Unrecorded::UpdatesFile, b"/w/l.a".to_vec())]);
}

/// A process that draws a key by the vDSO may later make random numbers without a system call.
#[test]
fn random_numbers_by_the_vdso_are_a_programs_own() {
    let drawn = event::Event { extra: RANDOM_BY_VDSO, ..event(EventKind::Random, "getrandom") };
    let name = open("/w/tmpX", MAKE | OpenFlags::EXCLUSIVE);
    // Python may draw a number for its hash function, but the draw of a key does not tell how many
    // numbers it makes.
    for program in ["/b/tool", "/b/python3.11"] {
        let refusals = folded(program, vec![drawn.clone(), name.clone()]).refusals;
        assert_eq!(refusals.first().map(|(why, _)| *why), Some(Unrecorded::Random), "{program}");
    }
}

/// gcc resolves the path of its output before the assembler makes it. An observer of system calls
/// sees `readlink` of the resolved path.
#[test]
fn a_resolved_output_is_no_input() {
    let made = |looked: event::Event| {
        let output = open("/w/o/p/../x.o", MAKE);
        told(&folded("as", vec![open("/w/x.c", READ), looked, output])).0
    };
    let resolved = |error| failed(error, event(EventKind::ReadLink, "/w/o/x.o"));
    assert_eq!(made(resolved(libc::EINVAL)), "/w/x.c content");
    assert_eq!(made(resolved(libc::ENOENT)), "/w/x.c content");
    assert_eq!(made(failed(libc::EINVAL, event(EventKind::ReadLink, "/w/p/x.o"))), "/w/x.c content, /w/p/x.o kind");
    assert_eq!(made(open("/w/o/x.o", READ)), "/w/x.c content, /w/o/x.o content");
    // Any other program may use what it saw.
    let by_make = vec![resolved(libc::ENOENT), open("/w/o/p/../x.o", MAKE)];
    assert_ne!(told(&folded("make", by_make)).0, "");
}

#[test]
fn a_file_that_is_moved_aside_and_removed_is_removed() {
    const FILE: u32 = 0o100_644;
    let looked = || event::Event { mode: FILE, ..event(EventKind::Stat, "/w/x.info") };
    let moved = |from: &str, to: &str| event::Event {
        path2: to.into(),
        identity: None,
        mode: 0,
        ..event(EventKind::Rename(OpenFlags(0)), from)
    };
    let aside = "/w/.am7/x.info";
    let begin = || vec![looked(), event(EventKind::MakeDirectory, "/w/.am7"), moved("/w/x.info", aside)];
    let end = || vec![event(EventKind::Unlink, aside), event(EventKind::RemoveDirectory, "/w/.am7")];
    let run = |between: Vec<event::Event>, end: Vec<event::Event>| {
        let (looked, changed, refused) = told(&folded("sh", [begin(), between, end].concat()));
        if refused.is_empty() { format!("{looked}; {changed}") } else { refused }
    };
    let refused = "updates-file";
    assert_eq!(run(vec![], end()), "/w/x.info was there, /w/.am7 absent, /w/.am7/x.info absent; /w/x.info");
    assert_eq!(
        run(vec![open("/w/x.info", MAKE)], end()),
        "/w/x.info was there, /w/.am7 absent, /w/.am7/x.info absent; /w/x.info"
    );
    assert_eq!(run(vec![], vec![]), refused);
    assert_eq!(run(vec![open(aside, READ)], end()), refused);
    assert_eq!(run(vec![open("/w/d/../.am7/x.info", READ)], end()), refused);
    assert_eq!(run(vec![event(EventKind::Stat, aside)], end()), refused);
    assert_eq!(run(vec![moved(aside, "/w/x.info")], vec![]), refused);
    assert_eq!(run(vec![moved("/w/.am7", "/w/d"), open("/w/d/x.info", READ)], vec![]), refused);
    let alone = told(&folded("sh", vec![looked(), moved("/w/x.info", "/w/y.info")])).2;
    assert_eq!(alone, refused);
}

/// Only a nested wrapper reports that an owner counts. The mark of a look by a plugin is another.
#[test]
fn an_owner_counts_if_that_is_reported() {
    for (extra, expect) in [(event::BY_LATE, false), (event::REPORTED_OWNER, true), (event::REPORTED_STATUS, false)] {
        let look = event::Event { extra, ..event(EventKind::Stat, "/w/in") };
        let seen = folded("/b/cc1", vec![look]).seen;
        assert_eq!(seen.looked.iter().any(|(_, looked)| looked.owner), expect, "{extra:x}");
    }
}

/// gnulib's `configure` makes a link to nothing, and calls `chown` to see whether that follows links.
#[test]
fn what_is_not_there_can_be_given_nothing() {
    for kind in [EventKind::ChangeOwner, EventKind::SetTimes, EventKind::Truncate, EventKind::ChangeMode] {
        let folded = folded("/b/conftest", vec![failed(libc::ENOENT, event(kind, "/w/no-such"))]);
        assert_eq!(folded.refusals, [], "{kind:?}");
        assert!(folded.seen.looked.iter().any(|(path, looked)| path == b"/w/no-such" && looked.absent), "{kind:?}");
    }
}
