//! Tests of `explain`: hit, miss, nearest record and bypass. The records are made here by the same
//! code that the wrapper uses.

use std::os::unix::ffi::OsStringExt;

use larder_lookup::{Ourselves, Place, Request, RootRules, find, roots_digest, subject};
use larder_model::{
    ActionResult, Content, Digest, DirFacts, Entry, ExplainWalk, Fact, FileMode, Made, ModeRule, NamedFact,
    ObservationSet, Observer, Output, OutputKind, Placement, Rewrite, Streams,
};
use larder_spawn::Destinations;
use larder_store::{StatCache, Store};

use crate::place::{Here, bytes_of};

/// Records a run of `argv` that read `x.c` in the working directory, wrote `x.o`, and printed
/// nothing.
pub(crate) fn record(here: &Here, argv: &[&str]) {
    record_saying(here, argv, Streams::Apart { stdout: Content::EMPTY, stderr: Content::EMPTY });
}

/// Records the same run, with this output on stdout and stderr.
fn record_saying(here: &Here, argv: &[&str], streams: Streams<Content>) {
    let environment = here.environment().into_iter().map(|(n, v)| (n.into_vec(), v.into_vec())).collect();
    let destinations = Destinations { stdout: None, stderr: None, same: false };
    let cwd = bytes_of(&here.path("work"));
    let place = Place {
        environment,
        oddities: Vec::new(),
        cwd,
        roots: RootRules { find: true, ..RootRules::default() },
        ephemeral: false,
        destinations,
        scope: larder_lookup::Scope::default(),
        ignores_sigpipe_itself: true,
    };
    let nobody = Ourselves::at("".as_ref());
    let tool = find(argv[0].as_bytes(), place.variable(b"PATH"), &nobody, false).expect("is on PATH");
    let store = Store::open(&here.path("store")).expect("opens");
    let argv = argv.iter().map(|argument| argument.as_bytes().to_vec()).collect();
    let Ok(request) = Request::new(tool, argv, &place, &StatCache::none()) else { panic!("the command is not cached") };
    let blob = store.put_blob(&mut &[7; 10_000][..]).expect("writes");
    let source = Digest::of(&std::fs::read(here.path("work/x.c")).expect("reads"));
    let fact = Fact::Content { digest: source, executable: false, plain: false, rooted: None };
    let facts = vec![NamedFact { name: b"x.c", fact }];
    let directory = DirFacts { path: b"\0\x01", facts, absent: vec![b"y.h"], ..DirFacts::default() };
    let set = ObservationSet { directories: vec![directory], ..ObservationSet::default() };
    let mode = FileMode { bits: 0o666, rule: ModeRule::Masked };
    let kind =
        OutputKind::File { placement: Placement::Replace, mode, rewrite: Rewrite::None, content: Content::Blob(blob) };
    let result = ActionResult { outputs: vec![Output::new(b"\0\x01/x.o", kind)], ..ActionResult::of(streams) };
    let mut walk = ExplainWalk::default();
    request.action.walk(&request.roots, &mut walk);
    let made = Made { made_in: roots_digest(&request.roots), bound: None };
    let mut body = Vec::new();
    let entry = Entry::new(&request.weak, Observer::Preload, 840_000, &made, &set, &result, &mut body);
    store.record(&request.weak, &walk, entry).expect("writes");
    store.note_neighbour(&subject(&request), &request.weak).expect("writes");
}

fn with_record(argv: &[&str]) -> Here {
    let here = Here::new();
    here.fake_gcc();
    here.write("work/x.c", "int x;");
    record(&here, argv);
    here
}

#[test]
fn a_hit_and_what_it_relies_on() {
    let here = with_record(&["gcc", "-O1", "-c", "x.c"]);
    let ran = here.larder(&["explain", "--", "gcc", "-O1", "-c", "x.c"]).ends(0);
    assert_eq!(ran.out, "Hit: everything it relied on is unchanged; saves 840 ms\n");
    let same = here.larder(&["explain", "gcc", "-O1", "-c", "x.c"]).ends(0);
    assert_eq!(same.out, ran.out);
    let ran = here.larder(&["explain", "--verbose", "gcc", "-O1", "-c", "x.c"]).ends(0);
    let ran = ran.says("record       1 of 1; preload observed it").says("1 file, 1 absence");
    ran.says("work/x.o (9.77 KiB)").says("roots ");
    here.larder(&["explain", "-v", "gcc", "-O1", "-c", "x.c"]).ends(0).says("work/x.c, content").says("work/y.h");
    let object = here.larder(&["explain", "--json", "--", "gcc", "-O1", "-c", "x.c"]).ends(0).json();
    assert_eq!((object["outcome"].as_str(), object["run_time_us"].as_u64()), (Some("hit"), Some(840_000)));
    assert_eq!(object["relies_on"]["absences"], 1);
    assert!(!here.path("work/x.o").exists(), "explain restores no output");
}

#[test]
fn a_miss_names_the_fact_that_differs() {
    let command = ["explain", "--", "gcc", "-c", "x.c"];
    let here = with_record(&["gcc", "-c", "x.c"]);
    here.write("work/y.h", "");
    let ran = here.larder(&command).ends(0);
    assert_eq!(ran.out, "Miss: `y.h` is new since the last build\n");
    let object = here.larder(&["explain", "--json", "gcc", "-c", "x.c"]).ends(0).json();
    assert_eq!((object["nearest"].as_str(), object["rejected"][0]["record"].as_u64()), (Some("itself"), Some(1)));
    std::fs::remove_file(here.path("work/y.h")).expect("removes");
    here.write("work/x.c", "int y;");
    let ran = here.larder(&command).ends(0);
    assert_eq!(ran.out, "Miss: `x.c` changed since the last build\n");
}

#[test]
fn a_miss_names_the_field_that_differs_from_the_nearest_record() {
    let here = with_record(&["gcc", "-O1", "-c", "x.c"]);
    let explain = |environment: &[(&str, &str)], argv: &[&str]| {
        let ran = here.larder_with(environment, &[&["explain", "--"], argv].concat()).ends(0);
        ran.out.lines().next().unwrap_or_default().to_owned()
    };
    let near = "Miss: the command is not as in the last build:";
    let o2 = explain(&[], &["gcc", "-O2", "-c", "x.c"]);
    assert_eq!(o2, format!("{near} argument 1: was `-O1`, is `-O2`"));
    let g = explain(&[], &["gcc", "-g", "-O1", "-c", "x.c"]);
    assert_eq!(g, format!("{near} argument 1: `-g` is new"));
    let include = format!("-I{}/inc", here.path("work").display());
    let include = explain(&[], &["gcc", "-O1", &include, "-c", "x.c"]);
    assert_eq!(include, format!("{near} argument 2: `-I<root>/inc` is new"));
    let lang = explain(&[("LANG", "C")], &["gcc", "-O1", "-c", "x.c"]);
    assert_eq!(lang, format!("{near} environment LANG: `C` is new"));
    let other = explain(&[], &["gcc", "-O1", "-c", "z.c"]);
    assert_eq!(other, "Miss: nothing is recorded for this source and output");
    here.larder(&["explain", "--", "gcc", "-O1", "-c", "z.c"]).ends(0).says("say why that was not recorded");
    larder_testkit::copy_program("/bin/false", here.path("bin/gcc"));
    let compiler = explain(&[], &["gcc", "-O1", "-c", "x.c"]);
    assert_eq!(compiler, "Miss: the compiler changed since the last build");
}

#[test]
fn where_there_is_no_source_the_nearest_record_is_one_of_the_same_tool() {
    let here = with_record(&["gcc", "-v"]);
    larder_testkit::copy_program("/bin/true", here.path("bin/g++"));
    here.larder(&["explain", "--", "g++", "-v"]).ends(0).says("Miss: nothing is recorded for this source and output");
    here.larder(&["explain", "--", "gcc", "--version"]).ends(0).says("argument 1: was `-v`, is `--version`");
}

#[test]
fn without_a_terminal_messages_may_have_gone_to_one_file_or_two() {
    let command = ["explain", "--no-terminal", "--", "gcc", "-c", "x.c"];
    let together = Streams::Together(Content::Inline(b"x.c: warning"));
    let apart = Streams::Apart { stdout: Content::Inline(b"x.c"), stderr: Content::Inline(b"warning") };
    for streams in [together, apart] {
        let here = Here::new();
        here.fake_gcc();
        here.write("work/x.c", "int x;");
        record_saying(&here, &["gcc", "-c", "x.c"], streams);
        let ran = here.larder(&command).ends(0);
        assert!(ran.out.starts_with("Hit"), "{ran:?}");
        here.write("work/y.h", "");
        let ran = here.larder(&command).ends(0).says("Miss: `y.h` is new");
        assert!(!ran.out.contains("one file"), "{ran:?}");
    }
}

#[test]
fn no_secret_is_shown() {
    let here = with_record(&["gcc", "-DAPI_TOKEN=hunter2", "-c", "x.c"]);
    for words in [&["explain", "--"][..], &["explain", "--json", "--"]] {
        let ran = here.larder(&[words, &["gcc", "-DAPI_TOKEN=hunter3", "-c", "x.c"]].concat()).ends(0);
        assert!(!ran.out.contains("hunter") && ran.out.contains("API_TOKEN"), "{ran:?}");
    }
}

#[test]
fn what_is_not_ours_is_said_to_be_so() {
    let here = Here::new();
    here.fake_gcc();
    here.larder(&["explain", "--", "gcc", "-ftime-report", "x.c"]).ends(0).says("Bypass: ").says("too-hard");
    let object = here.larder(&["explain", "--json", "gcc", "-ftime-report", "x.c"]).ends(0).json();
    assert_eq!((object["outcome"].as_str(), object["reason"].as_str()), (Some("bypass"), Some("too-hard")));
    let disabled = here.larder_with(&[("LARDER_DISABLE", "1")], &["explain", "gcc", "-c", "x.c"]);
    disabled.ends(0).says("LARDER_DISABLE");
    let limited = "ulimit -f 100000 && exec \"$0\" explain gcc -c x.c";
    let mut limited = here.program("/bin/sh", &["-c", limited, env!("CARGO_BIN_EXE_larderd")]);
    let output = limited.output().expect("runs");
    assert!(String::from_utf8_lossy(&output.stdout).contains("(limited)"), "{output:?}");
    here.larder(&["explain", "nonsense", "-c", "x.c"]).ends(1).complains("command not found");
    here.larder(&["explain", "larder", "run", "--", "gcc", "-time", "x.c"]).ends(0).says("(too-hard)");
    assert!(!here.path("store").exists());
}
