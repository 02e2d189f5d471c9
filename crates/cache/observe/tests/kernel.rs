//! Tests the kernel observer with real tools, against what the preloaded observer sees of the same
//! command.
#![cfg(target_os = "linux")]

mod policy;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use larder_model::{Looked, Unrecorded};
use larder_observe::{
    Access, AccessKind, BothObservers, Closing, EventKind, Folded, KernelObserver, Observed, Observer, PreloadObserver,
    Verdict, fold,
};
use larder_spawn::{Command, Destinations};
use larder_sys::ChildEnd;

/// Only one test runs at a time, because signal handlers and children belong to the whole process.
static ONE: Mutex<()> = Mutex::new(());

/// A temporary directory of the test, and the lock by which only one test runs.
struct Place(PathBuf, #[expect(dead_code, reason = "held, not used")] MutexGuard<'static, ()>);

impl Place {
    fn new(name: &str) -> Place {
        let turn = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let root = std::env::temp_dir().join(format!("larder-kernel-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).expect("makes");
        Place(root, turn)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).expect("writes");
        path
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("is text").to_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn command(words: &[&str]) -> Command {
    let program = if words[0].contains('/') { words[0].to_owned() } else { format!("/usr/bin/{}", words[0]) };
    let argv = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    Command::new(program.into_bytes(), argv, vec![b"PATH=/nonexistent:/usr/bin:/bin".to_vec(), b"LC_ALL=C".to_vec()])
}

fn run(observer: &dyn Observer, command: &Command) -> Observed {
    observer.run(command, &Destinations::now(), None).expect("runs")
}

fn kernel() -> Option<KernelObserver> {
    match KernelObserver::try_out() {
        Ok(()) => Some(KernelObserver::new(Closing::Asked)),
        Err(error) => {
            println!("skipped: no kernel observer: {error}");
            None
        }
    }
}

fn there(tool: &str) -> bool {
    let there = Path::new(tool).exists();
    if !there {
        println!("skipped: no {tool}");
    }
    there
}

fn folded(observed: &Observed) -> Folded {
    fold(&observed.trace, &policy::of_a_compile(observed.finished.pid))
}

type Looks = BTreeMap<String, Looked>;

fn looks(folded: &Folded) -> Looks {
    folded.seen.looked.iter().map(|(path, looked)| (text(path), looked.clone())).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn changes(folded: &Folded) -> Vec<String> {
    let mut changes: Vec<String> =
        folded.seen.changed.iter().map(|(path, change)| format!("{} {change:?}", text(path))).collect();
    changes.sort();
    changes
}

/// Checks that the kernel observer saw everything that the library saw, and that both saw the same
/// changes.
fn folds_alike(place: &Place, words: &[&str]) {
    let (Some(kernel), Ok(preload)) = (kernel(), PreloadObserver::new()) else { return };
    let command = command(words);
    if !there(&text(&command.program)) {
        return;
    }
    let outcome = |observer: &dyn Observer| {
        for name in ["x.o", "x", "x.a"] {
            let _ = std::fs::remove_file(place.path(name));
        }
        let observed = run(observer, &command);
        assert!(!observed.finished.outlived, "{words:?}");
        (folded(&observed), observed.finished.end, observed.finished.written)
    };
    let ((theirs, their_end, their_text), (ours, our_end, our_text)) = (outcome(&preload), outcome(&kernel));
    assert_eq!((our_end, our_text), (their_end, their_text), "{words:?}");
    assert_eq!(changes(&ours), changes(&theirs), "{words:?}");
    let (ours, theirs) = (looks(&ours), looks(&theirs));
    let covered = |path: &String, looked: &Looked| match ours.get(path) {
        Some(l) => {
            (l.absent, l.content, l.executed) == (looked.absent, looked.content, looked.executed)
                && (l.listed, l.kind) >= (looked.listed, looked.kind)
                && l.times >= looked.times
                && (l.failed, &l.prior) == (looked.failed, &looked.prior)
        }
        // `realpath` is one call for the library and many for the kernel, on links with other
        // paths.
        None => looked.link && !looked.content && !looked.listed && !looked.absent,
    };
    let missing: Vec<_> = theirs.iter().filter(|(path, looked)| !covered(path, looked)).collect();
    assert!(missing.is_empty(), "{words:?}: {missing:#?}");
    assert!(ours["/etc/ld.so.cache"].content, "{words:?}");
}

#[test]
fn tools() {
    let place = Place::new("tools");
    let c = place.file("x.c", "#include <stdio.h>\nint main(void) { puts(\"x\"); return 0; }\n");
    let cxx = place.file("x.cc", "#include <vector>\nint main() { std::vector<int> v(3); return v[0]; }\n");
    let script = place
        .file("x.sh", "cd /usr/share || exit 1\nfor f in /etc/host*; do :; done\ntest -f x || cat /etc/hostname\n");
    let (object, program, archive) = (place.path("x.o"), place.path("x"), place.path("x.a"));
    folds_alike(&place, &["gcc", "-c", &c, "-o", &object]);
    folds_alike(&place, &["gcc", &c, "-o", &program]);
    folds_alike(&place, &["g++", "-c", &cxx, "-o", &object]);
    folds_alike(&place, &["clang", "-c", &c, "-o", &object]);
    let kept = place.path("y.o");
    if !compiled(&c, &kept, &["-c"]) {
        return;
    }
    folds_alike(&place, &["ar", "rcs", &archive, &kept]);
    folds_alike(&place, &["sh", &script]);
    folds_alike(&place, &["/usr/bin/python3", "-c", "import os; print(os.listdir('/etc/apt'))"]);
}

fn verdict(words: &[&str]) -> Option<Verdict> {
    let both = match BothObservers::new(Closing::Asked) {
        Ok(both) => both,
        Err(error) => {
            println!("skipped: not both observers: {error}");
            return None;
        }
    };
    let command = command(words);
    if !there(&text(&command.program)) {
        return None;
    }
    Some(both.run(&command, &Destinations::now(), None).expect("runs").verdict())
}

fn told(accesses: &[Access]) -> Vec<String> {
    accesses.iter().map(|s| format!("{} {} {:?}", text(&s.program), text(&s.path), s.kind)).collect()
}

fn judged_alike(words: &[&str]) {
    let Some(verdict) = verdict(words) else { return };
    let (missed, invented) = (told(&verdict.missed), told(&verdict.invented));
    assert!(verdict.alike, "{words:?}: missed {missed:#?}, invented {invented:#?}, dropped {}", verdict.dropped);
    assert!(verdict.unseen.iter().any(|access| access.path == b"/etc/ld.so.cache"), "{words:?}");
}

#[test]
fn preload_is_judged() {
    let place = Place::new("judged");
    let c = place.file("x.c", "#include <stdio.h>\nint main(void) { puts(\"x\"); return 0; }\n");
    let cxx = place.file("x.cc", "#include <vector>\nint main() { std::vector<int> v(3); return v[0]; }\n");
    let assembly = place.file("x.s", ".globl x\nx: ret\n");
    let script = place.file(
        "x.sh",
        "cd /usr/share || exit 1\nfor f in /etc/host*; do :; done\ntest -f x || cat /etc/hostname | sed s/a/b/\n",
    );
    let (object, program, archive) = (place.path("x.o"), place.path("x"), place.path("x.a"));
    judged_alike(&["gcc", "-c", &c, "-o", &object]);
    judged_alike(&["gcc", &c, "-o", &program]);
    judged_alike(&["g++", "-c", &cxx, "-o", &object]);
    judged_alike(&["clang", "-c", &c, "-o", &object]);
    judged_alike(&["as", &assembly, "-o", &object]);
    judged_alike(&["ld", "-r", &object, "-o", &program]);
    judged_alike(&["ar", "rcs", &archive, &object]);
    judged_alike(&["sh", &script]);
    judged_alike(&["/usr/bin/python3", "-c", "import os; print(os.listdir('/etc/apt'))"]);
}

/// Compiles a program for the test. Returns false if that is not possible.
fn compiled(source: &str, program: &str, flags: &[&str]) -> bool {
    there("/usr/bin/gcc")
        && std::process::Command::new("/usr/bin/gcc")
            .args(flags)
            .args([source, "-o", program])
            .status()
            .is_ok_and(|status| status.success())
}

/// A program that makes the system call `openat` by its own instructions.
const RAW: &str = "
static long call(long n, long a, long b, long c, long d) {
    long r;
#if defined(__x86_64__)
    register long r10 __asm__(\"r10\") = d;
    __asm__ volatile(\"syscall\" : \"=a\"(r) : \"a\"(n), \"D\"(a), \"S\"(b), \"d\"(c), \"r\"(r10) : \"rcx\", \"r11\", \"memory\");
#else
    register long x8 __asm__(\"x8\") = n; register long x0 __asm__(\"x0\") = a; register long x1 __asm__(\"x1\") = b;
    register long x2 __asm__(\"x2\") = c; register long x3 __asm__(\"x3\") = d;
    __asm__ volatile(\"svc 0\" : \"+r\"(x0) : \"r\"(x8), \"r\"(x1), \"r\"(x2), \"r\"(x3) : \"memory\");
    r = x0;
#endif
    return r;
}
#include <sys/syscall.h>
int main(void) {
    char byte;
    long fd = call(SYS_openat, -100, (long)\"/etc/hostname\", 0, 0);
    return fd < 0 || call(SYS_read, fd, (long)&byte, 1, 0) != 1;
}
";

#[test]
fn raw_calls_are_found_out() {
    let place = Place::new("raw");
    let (source, program) = (place.file("raw.c", RAW), place.path("raw"));
    if !compiled(&source, &program, &[]) {
        return;
    }
    let Some(verdict) = verdict(&[&program]) else { return };
    let expect = Access { program: program.into_bytes(), path: b"/etc/hostname".to_vec(), kind: AccessKind::Read };
    assert!(!verdict.alike && !verdict.dropped);
    assert_eq!(verdict.missed, [expect]);
}

#[test]
fn a_static_program_is_seen() {
    let place = Place::new("static");
    let text = "#include <stdio.h>\n#include <unistd.h>\nint main(void) { FILE *f = fopen(\"in\", \"r\"), *o; int c;\n\
        if (!f || access(\"none\", F_OK) == 0 || !(o = fopen(\"out\", \"w\"))) return 1;\n\
        while ((c = fgetc(f)) != EOF) fputc(c, o);\n fclose(o); return rename(\"out\", \"out2\"); }\n";
    let (source, program) = (place.file("s.c", text), place.path("s"));
    place.file("in", "some");
    let Some(observer) = kernel() else { return };
    if !compiled(&source, &program, &["-static"]) {
        println!("skipped: no static libc");
        return;
    }
    // The tests share one working directory, so a shell changes to its own.
    let line = format!("cd {} && exec ./s", place.0.display());
    let observed = run(&observer, &command(&["sh", "-c", &line]));
    assert_eq!(observed.finished.end, ChildEnd::Exited(0));
    let folded = folded(&observed);
    let looks = looks(&folded);
    assert!(looks[&program].executed && looks[&program].content);
    assert!(looks[&place.path("in")].content);
    assert!(looks[&place.path("none")].absent);
    assert_eq!(folded.seen.changed.len(), 1);
    assert_eq!(folded.seen.changed[0].0, place.path("out2").into_bytes());
    let made = observed.trace.events.iter().find(|e| e.path == place.path("out").as_bytes()).expect("is seen");
    let closed = observed.trace.events.iter().find(|e| e.kind == EventKind::Closed).expect("is seen");
    assert_eq!(made.identity.map(|id| id.inode), closed.identity.map(|id| id.inode));
    assert_eq!(closed.identity.map(|id| id.size_bytes), Some(4));
}

/// The shell opens the file before it starts a child, and the child stats the open file for its
/// mtime.
#[test]
fn a_file_that_a_shell_opens_for_a_child_may_be_asked_for_its_time() {
    let place = Place::new("redirected");
    let file = place.file("f", "some");
    let Some(observer) = kernel() else { return };
    for line in ["gzip -c < {} > /dev/null; true", "exec gzip -c < {} > /dev/null", "(gzip -c < {}) | true"] {
        let observed = run(&observer, &command(&["sh", "-c", &line.replace("{}", &file)]));
        let times = looks(&folded(&observed))[&file].times;
        assert!(times >= larder_model::Times::Inputs, "{line}: {times:?}");
    }
}

#[test]
fn what_cannot_be_started_is_an_error() {
    let Some(observer) = kernel() else { return };
    let place = Place::new("error");
    for (path, expect) in [(place.path("none"), 2), (place.file("text", "no program"), 13)] {
        let error = observer.run(&command(&[&path]), &Destinations::now(), None).err().expect("cannot be started");
        assert_eq!(error.raw_os_error(), Some(expect), "{path}");
    }
}

/// A process that goes on after the tool has ended can still make system calls.
#[test]
fn a_process_that_outlives_the_tool_is_served() {
    let Some(observer) = kernel() else { return };
    let place = Place::new("outlives");
    let line = format!(
        "(sleep 2; cat /etc/hostname > {0}/copy; mv {0}/copy {0}/done) > {0}/log 2>&1 < /dev/null & exit 3",
        place.0.display()
    );
    let observed = run(&observer, &command(&["sh", "-c", &line]));
    assert_eq!(observed.finished.end, ChildEnd::Exited(3));
    assert!(observed.finished.outlived && observed.trace.incomplete);
    let done = place.path("done");
    for _ in 0..1200 {
        if Path::new(&done).exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(std::fs::read(&done).ok(), std::fs::read("/etc/hostname").ok());
}

/// The library's file goes with the process that observes. A process that outlives the tool no
/// longer preloads it, or its programs would ask for a file of another process.
#[test]
fn a_process_that_outlives_the_tool_preloads_nothing() {
    let place = Place::new("preloads");
    let line = format!(
        "cd {}; cat /proc/self/maps > early; \
         (sleep 2; cat /proc/self/maps > later; mv later done) > log 2>&1 < /dev/null & exit 3",
        place.0.display()
    );
    let observer = PreloadObserver::new().expect("both files can be created");
    let observed = run(&observer, &command(&["sh", "-c", &line]));
    assert!(observed.finished.outlived && observed.trace.incomplete);
    let (early, done) = (place.path("early"), place.path("done"));
    for _ in 0..1200 {
        if Path::new(&done).exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let has_library = |path| std::fs::read_to_string(path).expect("is there").contains("larder-preload");
    assert_eq!((has_library(early), has_library(done)), (true, false));
}

#[test]
fn a_child_that_died_is_noted() {
    let Some(observer) = kernel() else { return };
    let _place = Place::new("died");
    let observed = run(&observer, &command(&["sh", "-c", "sh -c 'test -f /etc/hostname; kill -9 $$'; exit 0"]));
    assert_eq!(observed.finished.end, ChildEnd::Exited(0));
    let died = observed.trace.events.iter().any(|e| e.kind == EventKind::ChildDied && e.extra == 9);
    // Before Linux 6.15, only the parent learns how a child ended.
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("is there");
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse::<u32>().ok());
    assert!(died || (numbers.next(), numbers.next()) < (Some(6), Some(15)), "{release}");
}

/// Programs read the clock without a system call, unless the observer patches their vDSO.
#[test]
fn the_clock_is_seen() {
    let place = Place::new("clock");
    let text = "#include <time.h>\nint main(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t);\n\
        for (int i = 0; i < LOOKS; i++) clock_gettime(CLOCK_REALTIME, &t);\n return LOOKS ? t.tv_sec < 1000000000 : 0; }\n";
    let source = place.file("t.c", text);
    let Some(observer) = kernel() else { return };
    for flags in [&["-static"][..], &[]] {
        for looks in [0, 2] {
            let program = place.path("t");
            let all = [flags, &[if looks == 0 { "-DLOOKS=0" } else { "-DLOOKS=2" }]].concat();
            if !compiled(&source, &program, &all) {
                println!("skipped: cannot be compiled: {all:?}");
                continue;
            }
            let observed = run(&observer, &command(&[&program]));
            let seen = observed.trace.events.iter().filter(|e| e.kind == EventKind::Clock).count();
            assert_eq!(seen, looks, "{all:?}");
        }
    }
}

#[test]
fn a_file_without_a_name_is_the_process_own() {
    let Some(kernel) = kernel() else { return };
    if !there("/usr/bin/python3") {
        return;
    }
    let place = Place::new("nameless");
    let (dir, to) = (place.path(""), place.path("named"));
    let refused = |then: &str| {
        let script = format!(
            "import os\nf = os.open('{dir}', os.O_TMPFILE | os.O_RDWR, 0o600)\nos.write(f, b'x')\nos.lseek(f, 0, 0)\n\
             assert os.read(f, 1) == b'x'\n{then}"
        );
        let observed = run(&kernel, &command(&["python3", "-S", "-c", &script]));
        let refusals = folded(&observed).refusals.into_iter();
        let of_links = refusals.filter(|(why, path)| {
            matches!(why, Unrecorded::NotObserved | Unrecorded::UpdatesFile) && !path.ends_with(b"python3")
        });
        of_links.count()
    };
    assert_eq!(refused(""), 0);
    let link = "os.link(f'fd/{f}', to, src_dir_fd=os.open('/proc/self', os.O_RDONLY), follow_symlinks=True)";
    assert_ne!(refused(&format!("to = '{to}'\n{link}")), 0);
    assert!(Path::new(&to).exists());
}
