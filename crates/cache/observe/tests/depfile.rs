//! Tests the depfile observer with the real gcc and clang, against what the preloaded observer sees
//! of the same command.
#![cfg(target_os = "linux")]

mod policy;

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use larder_model::{Change, DepfilePlan, Looked, Placement, Unrecorded};
use larder_observe::{DepfileObserver, Folded, Observed, Observer, PreloadObserver, UNPROVABLE, fold};
use larder_spawn::{Command, Destinations};

/// Only one compile runs at a time, because signal handlers and children belong to the whole
/// process.
static ONE: Mutex<()> = Mutex::new(());

const GCC: [&str; 2] = ["/usr/bin/gcc", "/usr/bin/g++"];
const CLANG: [&str; 2] = ["/usr/bin/clang", "/usr/bin/clang++"];

struct Tree {
    root: PathBuf,
    cxx: bool,
}

impl Tree {
    fn new(name: &str, cxx: bool, files: &[(&str, &str)]) -> Tree {
        let root = std::env::temp_dir().join(format!("larder-depfile-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        for (path, text) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().expect("has one")).expect("makes");
            std::fs::write(path, text).expect("writes");
        }
        Tree { root, cxx }
    }

    fn path(&self, relative: &str) -> Vec<u8> {
        self.root.join(relative).as_os_str().as_bytes().to_vec()
    }

    /// Returns the plan and the command. All paths are absolute, because the tests share one
    /// working directory.
    fn command(&self, tool: &str, flags: &[&str]) -> (DepfilePlan, Command) {
        let source = self.path(if self.cxx { "x.cc" } else { "x.c" });
        let flags: Vec<Vec<u8>> = flags
            .iter()
            .map(|flag| match flag.strip_prefix("-I") {
                Some(directory) => [&b"-I"[..], &self.path(directory)].concat(),
                None => flag.as_bytes().to_vec(),
            })
            .collect();
        let directories = flags.iter().filter_map(|flag| flag.strip_prefix(b"-I").map(<[u8]>::to_vec)).collect();
        let plan = DepfilePlan {
            clang: tool.contains("clang"),
            cxx: self.cxx,
            cwd: self.root.as_os_str().as_bytes().to_vec(),
            source: source.clone(),
            object: self.path("x.o"),
            depfile: self.path("x.d"),
            search_flags: flags.clone(),
            directories,
            ..DepfilePlan::default()
        };
        let mut argv = vec![tool.as_bytes().to_vec()];
        argv.extend(flags);
        argv.extend([b"-MD".to_vec(), b"-MF".to_vec(), plan.depfile.clone(), b"-c".to_vec(), source]);
        argv.extend([b"-o".to_vec(), plan.object.clone()]);
        let environment = vec![b"PATH=/nonexistent:/usr/local/bin:/usr/bin:/bin".to_vec()];
        (plan, Command::new(tool.as_bytes().to_vec(), argv, environment))
    }

    fn observe(&self, tool: &str, flags: &[&str]) -> Folded {
        let (plan, command) = self.command(tool, flags);
        folded(&DepfileObserver::new(plan), &command)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

fn folded(observer: &dyn Observer, command: &Command) -> Folded {
    let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let Observed { finished, trace } = observer.run(command, &Destinations::now(), None).expect("runs");
    fold(&trace, &policy::of_a_compile(finished.pid))
}

fn tools(pair: [&'static str; 2], cxx: bool) -> Option<&'static str> {
    let tool = pair[usize::from(cxx)];
    if !Path::new(tool).exists() {
        println!("skipped: no {tool}");
        return None;
    }
    Some(tool)
}

fn both(cxx: bool) -> impl Iterator<Item = &'static str> {
    [GCC, CLANG].into_iter().filter_map(move |pair| tools(pair, cxx))
}

fn accepted(tree: &Tree, tool: &str, flags: &[&str]) -> BTreeMap<Vec<u8>, Looked> {
    let folded = tree.observe(tool, flags);
    let shown: Vec<_> = folded.refusals.iter().map(|(why, path)| (why, String::from_utf8_lossy(path))).collect();
    assert!(shown.is_empty(), "{tool}: {shown:?}");
    let placement = if tool.contains("clang") { Placement::Rename } else { Placement::Replace };
    let outputs: Vec<_> = folded.seen.changed.iter().map(|(path, change)| (path.clone(), placed(change))).collect();
    assert_eq!(outputs, [(tree.path("x.d"), Placement::Truncate), (tree.path("x.o"), placement)], "{tool}");
    folded.seen.looked.into_iter().collect()
}

fn placed(change: &Change) -> Placement {
    match change {
        Change::File { placement, .. } => *placement,
        other => panic!("{other:?}"),
    }
}

fn refused(name: &str, source: &str, expect: &str) {
    let tree = Tree::new(name, false, &[("x.c", source), ("data.bin", "x"), ("inc/h.h", "")]);
    for tool in both(false) {
        let folded = tree.observe(tool, &["-Iinc"]);
        let Some((why, detail)) = folded.refusals.first() else { panic!("{name} {tool}: accepted") };
        assert!(matches!(why, Unrecorded::Unprovable | Unrecorded::NotObserved), "{name} {tool}: {why:?}");
        let detail = String::from_utf8_lossy(detail);
        assert!(detail.contains(expect), "{name} {tool}: {detail}");
    }
}

#[test]
fn an_earlier_place_is_an_absence() {
    let files = [("x.c", "#include <h.h>\n#include \"q.h\"\n"), ("a/other.h", ""), ("b/h.h", ""), ("b/q.h", "")];
    let tree = Tree::new("shadow", false, &files);
    for tool in both(false) {
        let looked = accepted(&tree, tool, &["-Ia", "-Inone", "-Ib"]);
        for path in ["a/h.h", "a/q.h", "q.h", "none"] {
            assert!(looked.get(&tree.path(path)).is_some_and(|l| l.absent), "{tool} {path}");
        }
        for path in ["x.c", "b/h.h", "b/q.h"] {
            assert!(looked.get(&tree.path(path)).is_some_and(|l| l.content), "{tool} {path}");
        }
        assert!(!looked.contains_key(&tree.path("a/other.h")), "{tool}");
    }
}

#[test]
fn inactive_regions_count() {
    let tree = Tree::new("inactive", false, &[("x.c", "#if 0\n#include <h.h>\n#endif\nint x;\n"), ("a/k.h", "")]);
    for tool in both(false) {
        assert!(accepted(&tree, tool, &["-Ia"])[&tree.path("a/h.h")].absent, "{tool}");
    }
}

#[test]
fn what_cannot_be_proved() {
    refused("has", "#if __has_include(<h.h>)\n#endif\nint x;\n", "__has_include");
    refused("paste", "#define C(a,b) C2(a,b)\n#define C2(a,b) a##b\nchar *s = C(__TI,ME__);\n", "__TI");
    refused("time", "#include <stdio.h>\nconst char *s = __TIME__;\n", "__TIME__");
    refused("incbin", "__asm__(\".pushsection .rodata\\n.incbin \\\"Cargo.toml\\\"\\n.popsection\");\n", ".inc");
    refused("pieces", "__asm__(\".in\" \"cbin \\\"Cargo.toml\\\"\");\n", "pieced together");
    refused("computed", "#define H <h.h>\n#include H\nint x;\n", "computed");
    refused("fails", "#error no\n", "failed");
}

#[test]
fn a_precompiled_header_refuses() {
    let files = [("x.c", "#include \"h.h\"\nint x;\n"), ("h.h", ""), ("h.h.gch", "no such")];
    let tree = Tree::new("gch", false, &files);
    for tool in both(false) {
        let refusals = tree.observe(tool, &[]).refusals;
        assert!(refusals.iter().any(|(_, path)| path.ends_with(b"h.h.gch: a precompiled header")), "{tool}");
    }
}

#[test]
fn reasons_are_marked() {
    let tree = Tree::new("marked", false, &[("x.c", "char *s = __DATE__;\n")]);
    let Some(tool) = tools(GCC, false) else { return };
    let (plan, command) = tree.command(tool, &[]);
    let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let observed = DepfileObserver::new(plan).run(&command, &Destinations::now(), None).expect("runs");
    assert_eq!(observed.trace.events.len(), 1);
    assert_eq!(observed.trace.events[0].extra, UNPROVABLE);
}

const C_PROGRAM: &str = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <errno.h>\n\
    #include <limits.h>\n#include <stdint.h>\n#include <time.h>\n#include <math.h>\n#include <pthread.h>\n\
    #include <unistd.h>\n#include <sys/socket.h>\n#include <signal.h>\n#include \"h.h\"\nint x(void) { return H; }\n";
const CXX_PROGRAM: &str = "#include <vector>\n#include <string>\n#include <map>\n#include <regex>\n#include <iostream>\n\
    #include <algorithm>\n#include <thread>\n#include <chrono>\n#include <memory>\n#include \"h.h\"\n\
    int x() { return H; }\n";

/// Checks that each header that the preloaded observer saw looked for is in this observer's trace,
/// with the same outcome.
fn sees_what_preload_sees(name: &str, cxx: bool) {
    let source = if cxx { ("x.cc", CXX_PROGRAM) } else { ("x.c", C_PROGRAM) };
    let tree = Tree::new(name, cxx, &[source, ("a/none.h", ""), ("b/h.h", "#define H 1\n#include <stddef.h>\n")]);
    for tool in both(cxx) {
        let flags = ["-Ia", "-Ib", "-O1", "-g"];
        let ours = accepted(&tree, tool, &flags);
        let (_, command) = tree.command(tool, &flags);
        let Ok(preload) = PreloadObserver::new() else {
            println!("skipped: no preloaded observer");
            continue;
        };
        let theirs = folded(&preload, &command);
        // clang asks `/proc` for the path of a descriptor, which counts like a real path.
        assert!(theirs.refusals.iter().all(|(why, _)| *why == Unrecorded::Device), "{tool}: {:?}", theirs.refusals);
        let mut missing = Vec::new();
        for (path, looked) in &theirs.seen.looked {
            let same = ours.get(path).is_some_and(|l| l.absent == looked.absent && l.content >= looked.content);
            let below_absent = looked.absent && is_below_absent(path, &ours);
            if (looked.absent || looked.content) && !same && !below_absent {
                missing.push(String::from_utf8_lossy(path).into_owned());
            }
        }
        let headers = missing.iter().filter(|path| is_header(path));
        assert_eq!(headers.collect::<Vec<_>>(), Vec::<&String>::new(), "{tool}");
        println!("{tool}: {} looks, preload {}; not seen here: {missing:#?}", ours.len(), theirs.seen.looked.len());
    }
}

/// Returns true if an absence follows from another one: an absence is recorded for the deepest
/// directory that exists, so those of paths above or below it are the same fact.
fn is_below_absent(path: &[u8], looks: &BTreeMap<Vec<u8>, Looked>) -> bool {
    let mut slashes = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
    let below = [path, b"/"].concat();
    let mut within = looks.range(below.clone()..).take_while(|(other, _)| other.starts_with(&below));
    slashes.any(|at| looks.get(&path[..at]).is_some_and(|l| l.absent)) || within.any(|(_, l)| l.absent)
}

fn is_header(path: &str) -> bool {
    path.contains("/include") || path.contains("larder-depfile") || path.ends_with(".h") || path.ends_with(".gch")
}

#[test]
fn an_ordinary_c_program() {
    sees_what_preload_sees("c", false);
}

#[test]
fn an_ordinary_cxx_program() {
    sees_what_preload_sees("cxx", true);
}
