//! Class D: damaged stores, unusual environments, and concurrent processes.

use super::texts::{H1, H2, H3, MAIN_C, WARNS_C, X_C};
use crate::case::{Case, case};
use crate::change::{Change, all, nothing, put, rm, script, sh, swap, touch};
use crate::machine::Need;
use crate::step::Whom::{Group, Leader};
use crate::step::{Prepare, Spoil};
use rustix::process::Signal;

/// larder may print one line that it does not use its store. That line is not a message of the
/// tool.
const SAYS: (&str, &str) =
    (r"larder: warning: the store is not used[^\n]*\n", "larder says that it does not use its store");
const FULL: &str = "cc -Wall -MD -MF x.d -c x.c -o x.o";

pub(super) fn cases() -> Vec<Case> {
    let parts = [damage, directories, surroundings, killed, at_once, eviction];
    parts.iter().flat_map(|cases| cases()).collect()
}

fn warns(name: &str) -> Case {
    case(format!("D/{name}")).both().file("x.c", WARNS_C).file("h.h", H1).cmd(FULL)
}

fn flip(bytes: &mut [u8], at: usize) {
    let last = bytes.len().saturating_sub(1);
    if let Some(byte) = bytes.get_mut(at.min(last)) {
        *byte ^= 0x41;
    }
}

/// A change to the bytes of a file.
type Harm = fn(&mut Vec<u8>);

/// All files of the store are damaged in the same way.
#[rustfmt::skip]
fn damage() -> Vec<Case> {
    let ways: [(&str, Harm); 13] = [
        ("flip-first", |bytes| flip(bytes, 0)),
        ("flip-eighth", |bytes| { let at = bytes.len() / 8; flip(bytes, at) }),
        ("flip-third", |bytes| { let at = bytes.len() / 3; flip(bytes, at) }),
        ("flip-middle", |bytes| { let at = bytes.len() / 2; flip(bytes, at) }),
        ("flip-late", |bytes| { let at = bytes.len() * 9 / 10; flip(bytes, at) }),
        ("flip-last", |bytes| flip(bytes, usize::MAX)),
        ("halved", |bytes| bytes.truncate(bytes.len() / 2)),
        ("one-short", |bytes| bytes.truncate(bytes.len().saturating_sub(1))),
        ("emptied", Vec::clear),
        ("zeroed", |bytes| bytes.fill(0)),
        ("lengthened", |bytes| bytes.extend_from_slice(b"junk")),
        ("reversed", |bytes| bytes.reverse()),
        ("all-ones", |bytes| bytes.fill(0xff)),
    ];
    let mut cases: Vec<Case> = ways.map(|(name, way)| warns(&format!("store-{name}")).twice().then("harmed", nothing())
        .spoil(Spoil::Bytes(way)).then("after", nothing())
        .then("edited", put("h.h", H2)).then("harmed again", nothing()).spoil(Spoil::Bytes(way))).to_vec();
    let shell = |name: &str,
    text: &'static str| warns(&format!("store-{name}")).mask(SAYS.0, SAYS.1).twice().then("harmed", nothing()).spoil(Spoil::Shell(text))
        .then("after", nothing())
        .then("edited", put("h.h", H2));
    cases.extend([
        shell("vanishes", "rm -rf \"$STORE\""),
        shell("emptied-dirs-stay", "find \"$STORE\" -type f -delete"),
        shell("half-gone", "find \"$STORE\" -type f | sort | sed -n 'n;p' | xargs -r rm"),
        shell("other-half-gone", "find \"$STORE\" -type f | sort | sed -n 'p;n' | xargs -r rm"),
        shell("large-files-gone", "find \"$STORE\" -type f -size +1 -delete"),
        shell("files-unreadable", "find \"$STORE\" -type f -exec chmod 0 {} +"),
        shell("files-read-only", "find \"$STORE\" -type f -exec chmod 444 {} +"),
        shell("dirs-unreadable", "chmod 0 \"$STORE\""),
        shell("sub-dirs-unreadable", "find \"$STORE\" -mindepth 1 -type d -prune -exec chmod 0 {} +"),
        shell("dirs-not-writable", "find \"$STORE\" -type d -exec chmod 555 {} +"),
        shell("becomes-file", "rm -rf \"$STORE\"; : > \"$STORE\""),
        shell("becomes-link", "mv \"$STORE\" \"$STORE.real\"; ln -s \"$STORE.real\" \"$STORE\""),
        shell("becomes-loop", "rm -rf \"$STORE\"; ln -s \"$STORE\" \"$STORE\""),
        shell("files-become-directories", "find \"$STORE\" -type f -exec sh -c 'rm \"$1\"; mkdir \"$1\"' _ {} \\;"),
        shell("files-become-links", "find \"$STORE\" -type f -exec ln -sf /dev/null {} \\;"),
        shell("files-swap-content", "first=$(find \"$STORE\" -type f | head -1); for f in $(find \"$STORE\" -type f); do cat \"$f\" > t; cat \"$first\" > \"$f\"; cat t > \"$first\"; done; rm -f t"),
        shell("old-times", "find \"$STORE\" -exec touch -d @0 {} +"),
        shell("future-times", "find \"$STORE\" -exec touch -d '10 years' {} +"),
        shell("strangers", "mkdir -p \"$STORE/0/1\"; echo x > \"$STORE/junk\"; echo x > \"$STORE/0/1/junk\"; mkfifo \"$STORE/ff\""),
        shell("copied", "cp -r \"$STORE\" c; rm -rf \"$STORE\"; mv c \"$STORE\""),
        shell("other-owner", "chown -R 65534:65534 \"$STORE\"").needs(Need::Root),
        shell("temporary-left-over", "find \"$STORE\" -type d -exec sh -c ': > \"$1/tmp.123\"; : > \"$1/.tmp\"' _ {} \\;"),
    ]);
    cases
}

/// The store's directory is unusable or unusual from the start.
#[rustfmt::skip]
fn directories() -> Vec<Case> {
    let all_of = |name: &str, prepare: Prepare| {
        let case = case(format!("D/dir-{name}")).both().file("x.c", WARNS_C).file("h.h", H1).prepare(prepare).cmd(FULL)
            .mask(SAYS.0, SAYS.1);
        let case = case.repeats().then("edited", put("x.c", "int g(void){return 2;}\n"))
            .then("again edited", nothing());
        case.then("error", put("x.c", "int g(\n")).then("error again", nothing()).cmd("cc m.c -o m")
            .then("a link", put("m.c", MAIN_C)).cmd("cc --version").then("a question", nothing())
    };
    let mounted = |name: &str, options: &'static [&'static str],
    full| all_of(name, Prepare::Mounted(options, full)).needs(Need::Mounts);
    vec![
        all_of("is-file", Prepare::Shell(": > \"$STORE\"")),
        all_of("is-dangling-link", Prepare::Shell("ln -s /dev/null/none \"$STORE\"")),
        all_of("is-link-to-directory", Prepare::Shell("mkdir real; ln -s \"$PWD/real\" \"$STORE\"")),
        all_of("is-fifo", Prepare::Shell("mkfifo \"$STORE\"")),
        all_of("is-missing", Prepare::Shell(":")),
        all_of("parent-is-missing", Prepare::Shell("rm -rf \"$STORE\"")),
        all_of("not-writable", Prepare::Shell("mkdir -m 555 \"$STORE\"")),
        all_of("no-access", Prepare::Shell("mkdir -m 0 \"$STORE\"")),
        all_of("not-listable", Prepare::Shell("mkdir -m 333 \"$STORE\"")),
        all_of("of-somebody-else", Prepare::Shell("mkdir -m 700 \"$STORE\"; chown 65534 \"$STORE\"")).needs(Need::Root),
        all_of("world-writable", Prepare::Shell("mkdir -m 777 \"$STORE\"")),
        mounted("full", &["-t", "tmpfs", "-o", "size=64k,mode=755", "tmpfs"], true),
        mounted("tiny", &["-t", "tmpfs", "-o", "size=12k,nr_inodes=12,mode=755", "tmpfs"], false),
        mounted("small", &["-t", "tmpfs", "-o", "size=40k,mode=755", "tmpfs"], false),
        mounted("no-inodes", &["-t", "tmpfs", "-o", "nr_inodes=3,mode=755", "tmpfs"], false),
        mounted("read-only", &["-t", "tmpfs", "-o", "ro,mode=755", "tmpfs"], false),
        mounted("noexec", &["-t", "tmpfs", "-o", "noexec,nosuid,nodev,mode=755", "tmpfs"], false),
        case("D/dir-in-work-tree").both().file("x.c", WARNS_C).file("h.h", H1).cmd(FULL).twice()
            .spoil(Spoil::Shell("ls -la \"$STORE\" > /dev/null")),
        warns("work-tree-on-other-file-system").needs(Need::Works("[ -w /dev/shm ]", "/dev/shm"))
            .sh("d=$(mktemp -d /dev/shm/torture-XXXXXX); cp x.c h.h $d; $CC -c $d/x.c -o $d/x.o; r=$?; cp $d/x.o .; rm -r $d; exit $r")
            .repeats(),
    ]
}

/// Unusual variables, clocks and limits.
#[rustfmt::skip]
fn surroundings() -> Vec<Case> {
    let mut cases = vec![
        warns("no-HOME").without("HOME").twice().usual_env().env("HOME", "/dev/null/home").then("odd HOME", nothing())
            .usual_env().env("HOME", "").then("empty HOME", nothing())
            .usual_env().env("HOME", "relative").then("relative HOME", nothing()),
        warns("no-store-named").without("LARDER_DIR").without("CCACHE_DIR").without("SCCACHE_DIR")
            .env("HOME", "/dev/null/home").repeats(),
        warns("no-store-named-XDG").without("LARDER_DIR").without("CCACHE_DIR").without("SCCACHE_DIR")
            .env("HOME", "/dev/null/home").env("XDG_CACHE_HOME", "/dev/null/c").repeats(),
        warns("empty-environment").sh("env -i $CC -Wall -c x.c -o x.o").without("HOME").repeats(),
        warns("empty-environment-but-path").sh("env -i PATH=$PATH $CC -Wall -c x.c -o x.o").repeats(),
        warns("odd-variables").sh("env 'A B=1' 'x=' '=y' \"$(printf 'N=\\n')\" $CC -Wall -c x.c -o x.o").repeats(),
        warns("large-environment").env("BIG", "x".repeat(100_000)).repeats(),
        warns("many-variables").sh("for i in $(seq 2000); do export V$i=$i; done; $CC -Wall -c x.c -o x.o").repeats()
            .hits(),
        warns("long-command-line")
            .argv(["cc", "-Wall", "-c", "x.c", "-o", "x.o", &format!("-DLONG={}", "x".repeat(100_000))]).twice(),
        warns("many-arguments")
            .argv(["cc", "-c", "x.c", "-o", "x.o"].map(str::to_owned).into_iter().chain((0..3000).map(|n| format!("-DV{n}={n}"))))
            .twice(),
        warns("future-inputs").then("cold", all([touch("h.h", 99999), touch("x.c", 99999)])).then("again", nothing())
            .then("edited", swap("h.h", H2)),
        warns("ancient-inputs").then("cold", all([Change::Time("h.h".into(), 0), Change::Time("x.c".into(), 0)]))
            .again().then("edited", swap("h.h", H2)).again(),
        warns("before-1970").then("cold", Change::Time("h.h".into(), -99)).again().then("edited", swap("h.h", H2)),
        warns("after-2106").then("cold", Change::Time("h.h".into(), 5_000_000_000)).then("again", nothing())
            .then("edited", swap("h.h", H2)),
        warns("fresh-inputs").then("cold", all([put("h.h", H3), put("x.c", WARNS_C)])).again(),
        warns("inputs-written-just-now")
            .sh("echo '#define H 1' > h.h; $CC -c x.c -o x.o; echo '#define H 2' > h.h; $CC -c x.c -o y.o; echo '#define H 3' > h.h; $CC -c x.c -o z.o")
            .repeats(),
        warns("server-killed").twice().then("killed", nothing()).spoil(Spoil::KillServer).then("after", nothing())
            .then("edited", put("h.h", H2)),
        warns("stopped-and-continued")
            .sh("$CC -Wall -c x.c -o x.o & p=$!; kill -STOP $p 2>/dev/null; sleep 0.05; kill -CONT $p 2>/dev/null; wait $p").repeats(),
        warns("no-proc").needs(Need::Mounts)
            .sh("unshare -m sh -c 'umount -l /proc 2>/dev/null || mount -t tmpfs none /proc; exec \"$@\"' sh $CC -Wall -c x.c -o x.o")
            .repeats(),
        warns("no-dev-shm").needs(Need::Mounts)
            .sh("unshare -m sh -c 'mount -t tmpfs -o ro none /dev/shm; exec \"$@\"' sh $CC -Wall -c x.c -o x.o").repeats(),
        warns("no-tmp").needs(Need::Works("[ -d /tmp ]", "/tmp")).needs(Need::Mounts).without("TMPDIR").repeats(),
        warns("other-user").needs(Need::Root)
            .sh("cp x.c h.h /dev/shm 2>/dev/null; chmod 777 .; setpriv --reuid=65534 --clear-groups $CC -Wall -c x.c -o x.o 2>&1; rm -f x.o")
            .repeats(),
        warns("process-limit").needs(Need::Program("python3")).prelude("ulimit -u 100000").repeats(),
        warns("stack-limit").prelude("ulimit -s 2048").twice(),
        warns("address-space-limit").prelude("ulimit -v 900000").twice(),
        warns("nice").prelude("renice -n 7 $$ >/dev/null").twice(),
        warns("core-limit").prelude("ulimit -c 0").twice(),
        warns("disk-full-of-output").needs(Need::Mounts)
            .sh("mkdir -p f; mount -t tmpfs -o size=4k none f || exit 9; $CC -g3 -c x.c -o f/x.o; r=$?; ls f; umount -l f; exit $r")
            .file("x.c", "#include <stdio.h>\nint a[4000]={1};\n")
            .repeats().mask(r"/tmp/\S*", "a temporary name").any_stderr_ever(),
        warns("output-read-only-file-system").needs(Need::Mounts)
            .sh("mkdir -p f; mount -t tmpfs -o ro none f || exit 9; $CC -c x.c -o f/x.o; r=$?; umount -l f; exit $r")
            .repeats(),
        warns("disk-full-on-hit").needs(Need::Mounts).file("x.c", "int a[9000]={1};\n")
            .sh("mkdir -p f; $CC -c x.c -o f/x.o; rm f/x.o; mount -t tmpfs -o size=4k none f || exit 9; $CC -c x.c -o f/x.o; r=$?; umount -l f; exit $r")
            .repeats().any_stderr_ever(),
    ];
    for (name, value) in [("unset", None), ("missing", Some("{root}/none")), ("file", Some("{root}/x.c")), ("relative", Some("tmpd")), ("empty", Some("")), ("odd", Some("{root}/t m'p"))] {
        let case = warns(&format!("TMPDIR-{name}")).dir("tmpd").dir("t m'p");
        let case = match value {
            Some(value) => case.env("TMPDIR", value),
            None => case.without("TMPDIR"),
        };
        cases.push(case.twice());
    }
    cases
}

#[rustfmt::skip]
fn killed() -> Vec<Case> {
    let slow = |seconds: &str| script("bd/as", format!("if [ -e slow ]; then : > busy; sleep {seconds}; fi\nexec /usr/bin/as \"$@\"\n"));
    let hello = |name: &str| case(format!("D/{name}")).file("x.c", X_C).file("h.h", H1);
    vec![
        hello("wrapper-killed").setup(slow("0.3")).cmd("cc -Bbd -c x.c -o x.o").then("killed", put("slow", ""))
            .kill(Signal::KILL, Leader).unchecked().changes("then", rm("slow")),
        hello("wrapper-terminated").setup(slow("0.3")).cmd("cc -Bbd -c x.c -o x.o").then("terminated", put("slow", ""))
            .kill(Signal::TERM, Leader).unchecked().changes("then", rm("slow")),
        hello("group-killed").setup(slow("10")).cmd("cc -Bbd -c x.c -o x.o").then("killed", put("slow", ""))
            .kill(Signal::KILL, Group).any_stderr().changes("then", rm("slow")),
        hello("killed-at-any-time").both().cmd("cc -c x.c -o x.o")
            .sh("for t in 0.002 0.005 0.008 0.012 0.016 0.02 0.025 0.03 0.04; do timeout -s KILL $t $CC -c x.c -o k.o 2>/dev/null; done; rm -f k.o; :")
            .then("killed", nothing()).unchecked()
            .cmd("cc -c x.c -o x.o").then("then", nothing()).again(),
    ]
}

/// Lists the cases of many processes at once.
#[rustfmt::skip]
fn at_once() -> Vec<Case> {
    let many = |count: u32, command: &str| format!("for i in $(seq {count}); do {command} & done; wait");
    let at_once = |name: &str, text: String| warns(&format!("at-once-{name}")).sh(text);
    vec![
        at_once("16-of-one-key", many(16, "$CC -Wall -MD -MF o$i.d -c x.c -o o$i.o 2>e$i")).repeats()
            .hits().then("edited", put("h.h", H2)),
        at_once("64-of-one-key", many(64, "$CC -MD -MF d/o$i.d -c x.c -o d/o$i.o 2>d/e$i")).dir("d").repeats()
            .hits().slow(),
        at_once("16-of-one-output", many(16, "$CC -Wall -c x.c -o x.o 2>e$i")).repeats(),
        at_once("16-of-one-output-and-depfile", many(16, "$CC -Wall -MD -c x.c -o x.o 2>e$i")).repeats(),
        at_once("16-keys", many(16, "$CC -DK=$i -DV$i=1 -c x.c -o o$i.o 2>e$i")).repeats().hits(),
        at_once("16-keys-with-gcc-and-clang", many(16, "$CC -DK=$i -c x.c -o o$i.o 2>e$i")).repeats().hits(),
        at_once("hits-and-misses", format!("{}; {}", many(8, "$CC -DK=$i -c x.c -o o$i.o 2>e$i"), many(16, "$CC -DK=$i -c x.c -o o$i.o 2>e$i")))
            .repeats().hits(),
        at_once("header-edited-between", "for i in 1 2 3 4 5 6 7 8; do echo \"#define H $i\" > h.h; $CC -c x.c -o o$i.o; done".to_owned())
            .repeats(),
        at_once("xargs", "seq 12 | xargs -P4 -I% $CC -DK=% -c x.c -o o%.o 2>/dev/null".to_owned()).repeats().hits(),
        at_once("first-in-empty-store", many(12, "$CC -c x.c -o o$i.o 2>e$i"))
            .prepare(Prepare::Shell("rm -rf \"$STORE\"")).repeats().hits(),
        at_once("store-removed-meanwhile", many(12, "$CC -c x.c -o o$i.o 2>e$i")).cold().then("removed", nothing())
            .spoil(Spoil::Shell("rm -rf \"$STORE\" & wait")).then("after", nothing()),
    ]
}

/// The store is reduced to a size limit while it is used.
#[rustfmt::skip]
fn eviction() -> Vec<Case> {
    let six = |name: &str| {
        let case = (0..6)
            .fold(case(format!("D/{name}"))
            .both(), |case, n| case.file(format!("x{n}.c"), format!("int f{n}[999]={{{n}}};\n")));
        case.sh("for i in 0 1 2 3 4 5; do $CC -MD -c x$i.c; done")
    };
    vec![
        six("half-evicted").cold().then("half of it gone", nothing())
            .spoil(Spoil::Shell("find \"$STORE\" -type f | sort | sed -n 'n;p' | xargs -r rm"))
            .then("after", nothing()),
        six("limit-of-nothing").env("LARDER_MAX_SIZE", "1k").env("CCACHE_MAXSIZE", "1k").repeats()
            .then("and again", nothing()),
        six("limit-is-small").env("LARDER_MAX_SIZE", "20k").env("CCACHE_MAXSIZE", "20k").repeats()
            .then("and again", nothing()),
        six("evicted-by-word").cold().then("evicted", nothing())
            .spoil(Spoil::Shell("case $CACHE in *larder) \"$CACHE\" evict --max-size 1k;; esac"))
            .then("after", nothing()),
        six("cleared-by-word").cold().then("cleared", nothing())
            .spoil(Spoil::Shell("case $CACHE in *larder) \"$CACHE\" clear;; *ccache) \"$CACHE\" -C;; esac"))
            .then("after", nothing()),
        six("evicting-all-the-while").cold()
            .sh("for i in 0 1 2 3 4 5; do $CC -MD -c x$i.c & $CC -MD -c x$i.c -o y$i.o & [ -z \"$WRAP\" ] || $WRAP evict --max-size 1k >/dev/null 2>&1; done; wait")
            .then("meanwhile", nothing())
            .any_stderr(),
        case("D/setting-read-only").both().file("x.c", WARNS_C).file("h.h", H1).cmd(FULL).twice()
            .env("LARDER_READ_ONLY", "1").env("CCACHE_READONLY", "1").then("read-only", nothing())
            .then("edited", put("h.h", H2))
            .usual_env().then("after", nothing()),
        case("D/setting-disabled").both().file("x.c", WARNS_C).file("h.h", H1).cmd(FULL).twice()
            .env("LARDER_DISABLE", "1").env("CCACHE_DISABLE", "1").then("disabled", nothing()),
        case("D/setting-recache").both().file("x.c", WARNS_C).file("h.h", H1).cmd(FULL).twice()
            .env("LARDER_RECACHE", "1").env("CCACHE_RECACHE", "1").then("anew", nothing()).usual_env()
            .back("then", nothing()),
        case("D/setting-nonsense").both().file("x.c", WARNS_C).file("h.h", H1).cmd(FULL).twice()
            .env("LARDER_OBSERVER", "nonsense").env("LARDER_MAX_SIZE", "much").then("again", nothing()).any_stderr(),
        case("D/setting-log").both().file("x.c", WARNS_C).file("h.h", H1).cmd(FULL).env("LARDER_LOG", "/dev/full")
            .env("CCACHE_LOGFILE", "/dev/full").repeats().any_stderr_ever(),
        case("D/setting-file-of-project").both().file("x.c", WARNS_C).file("h.h", H1)
            .file("larder.toml", "disable = true\n").cmd(FULL).repeats()
            .then("broken", put("larder.toml", "dis = [\n")).any_stderr()
            .then("gone", rm("larder.toml")).then("again, gone", sh(":")),
    ]
}
