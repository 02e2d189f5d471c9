//! Something exists at the output's path already. The tool may replace it or write through it.

use crate::case::{Case, case};
use crate::cases::texts::{H1, H2, MAIN_C, X_C};
use crate::change::{Change, all, chmod, dir, link, nothing, put, rm, sh, symlink, touch};

/// A change that makes something at this path.
type Maker = fn(&str) -> Change;

/// Lists the states of the output's path before each run.
fn states() -> Vec<(&'static str, Maker)> {
    vec![
        ("newer", |name| all([rm(name), put(name, "old"), touch(name, 9999)])),
        ("read-only", |name| all([rm(name), put(name, "old"), chmod(name, 0o444)])),
        ("executable", |name| all([rm(name), put(name, "old"), chmod(name, 0o755)])),
        ("private", |name| all([rm(name), put(name, "old"), chmod(name, 0o600)])),
        ("larger", |name| all([rm(name), put(name, "old\n".repeat(30000))])),
        ("link", |name| all([put("real", "old"), symlink("real", name)])),
        ("link-to-read-only", |name| {
            all([rm("real"), put("real", "old"), chmod("real", 0o444), symlink("real", name)])
        }),
        ("dangling-link", |name| all([rm("real"), symlink("real", name)])),
        ("link-to-nowhere", |name| symlink("none/real", name)),
        ("link-to-directory", |name| all([dir("real-dir"), symlink("real-dir", name)])),
        ("link-to-null", |name| symlink("/dev/null", name)),
        ("hard-link", |name| all([rm(name), rm("keep"), put("keep", "old"), link("keep", name)])),
        ("hard-link-of-input", |name| all([rm(name), rm("in"), put("in", "int in;\n"), link("in", name)])),
        ("directory", |name| all([rm(name), dir(name)])),
        ("fifo-unread", |name| Change::Fifo(name.into())),
    ]
}

#[rustfmt::skip]
pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, state) in states() {
        for (kind, cmd, output) in [
            ("c", "cc -c x.c -o out", "out"), ("S", "cc -S x.c -o out", "out"), ("E", "cc -E x.c -o out", "out"),
            ("MD", "cc -MD -MF out -c x.c -o x.o", "out"),
            ("link", "cc m.c -o out", "out"), ("shared", "cc -shared -fPIC x.c -o out", "out"),
        ] {
            if name == "fifo-unread" && ["S", "E", "MD"].contains(&kind) {
                // The compiler would wait for a reader of the FIFO forever.
                continue;
            }
            let made = state(output);
            let case = case(format!("C/existing-{name}-{kind}")).both().file("x.c", X_C).file("h.h", H1)
                .file("m.c", MAIN_C).cmd(cmd);
            let case = case.then("cold", made.clone()).then("warm", made.clone())
                .then("edited", all([put("h.h", H2), made.clone()]));
            let may_hit = ["newer", "read-only", "executable", "private", "larger"].contains(&name) && kind == "c";
            // The second of the three steps is the warm one.
            let mut case = case;
            if may_hit {
                case.steps[1].expect = crate::step::Expect::Hit;
            }
            cases.push(case);
        }
    }
    // clang writes to the existing file, and then removes it because of the error.
    for (name, state) in states().into_iter().filter(|(name, _)| name.contains("link") || *name == "read-only") {
        cases.push(case(format!("C/existing-{name}-M-fails")).both().file("x.c", "#include \"h.h\"\n#error no\n")
            .file("h.h", H1).cmd("cc -M x.c -o out").then("none", rm("out")).then("plain", put("out", "old"))
            .then("cold", state("out")).then("warm", state("out")));
    }
    // Linkers and assemblers unlink an old output, but write to an old map, depfile or listing.
    for (kind, cmd) in [
        ("map", "cc m.o -Wl,-Map=out -o m"), ("map-gold", "cc -fuse-ld=gold m.o -Wl,-Map=out -o m"),
        ("listing", "as -al=out x.s -o x.o"), ("dumped-section", "objcopy --dump-section .text=out m.o n.o"),
    ] {
        for (name, state) in states().into_iter().filter(|(name, _)| ["hard-link", "link"].contains(name)) {
            cases.push(case(format!("C/existing-{name}-{kind}")).file("m.c", MAIN_C).file("x.s", ".byte 1\n")
                .setup(sh("gcc -c m.c")).cmd(cmd).then("none", rm("out")).then("plain", put("out", "old"))
                .then("cold", state("out")).then("warm", state("out")));
        }
    }
    let hello = |name: &str| case(format!("C/{name}")).both().file("x.c", X_C).file("h.h", H1);
    cases.extend([
        hello("output-dev-null").cmd("cc -c x.c -o /dev/null").repeats(),
        hello("output-dev-null-MD").cmd("cc -MD -MF d -c x.c -o /dev/null").repeats(),
        hello("output-dev-full").cmd("cc -S x.c -o /dev/full").repeats().any_stderr_ever(),
        hello("output-dev-stdout").cmd("cc -S x.c -o /dev/stdout").repeats(),
        hello("output-fifo-read")
            .sh("rm -f p; mkfifo p; timeout 9 cat p > got & timeout 9 $CC -S x.c -o p; r=$?; wait; exit $r").repeats(),
        hello("output-dir-not-writable").setup(dir("o")).setup(chmod("o", 0o555)).cmd("cc -c x.c -o o/x.o").repeats()
            .changes("writable", chmod("o", 0o755)).then("not again", chmod("o", 0o555)),
        hello("output-dir-not-writable-file-there").file("o/x.o", "old").setup(chmod("o", 0o555))
            .cmd("cc -c x.c -o o/x.o").repeats(),
        hello("output-dir-missing").cmd("cc -c x.c -o none/x.o").twice().may_miss().changes("appears", dir("none"))
            .then("goes", rm("none")),
        hello("output-dir-is-file").file("o", "").cmd("cc -c x.c -o o/x.o").repeats(),
        hello("output-name-too-long").argv(["cc", "-c", "x.c", "-o", &"n".repeat(300)]).repeats(),
        hello("output-empty-name").cmd("cc -c x.c -o ''").repeats(),
        hello("working-dir-not-writable").file("w/x.c", "int a;\n").setup(chmod("w", 0o555)).cwd("w")
            .cmd("cc -c x.c -o ../x.o").repeats(),
        hello("file-size-limit").prelude("ulimit -f 1").cmd("cc -g3 -c x.c -o x.o")
            .mask(r"\b0x[0-9a-f]{6,}\b", "addresses of functions in clang's crash report")
            .file("x.c", "#include <stdio.h>\n#include <stdlib.h>\nint a;\n")
            .repeats().prelude("").changes("without the limit", nothing()).prelude("ulimit -f 1")
            .then("with it again", nothing()),
        hello("file-size-limit-on-hit").file("x.c", "int a[9000]={1};\n").cmd("cc -c x.c -o x.o").twice()
            .prelude("ulimit -f 8").then("with the limit", nothing()).any_stderr_ever(),
        hello("descriptor-limit").prelude("ulimit -n 8").cmd("cc -c x.c -o x.o").cold().prelude("")
            .changes("without the limit", nothing())
            .prelude("ulimit -n 8").then("with it again", nothing()),
        hello("two-at-once-one-output").file("y.c", "int other[999]={1};\n")
            .sh("$CC -c x.c -o o.o & $CC -c x.c -o o.o; wait; $CC -c y.c -o p.o & $CC -c y.c -o p.o & wait").repeats(),
        hello("renamed-right-after").sh("$CC -MD -c x.c -o x.o && mv x.o z.o && mv x.d z.d").repeats().hits(),
        hello("stripped-right-after")
            .sh("$CC -g -c x.c -o x.o && strip -g x.o && cp x.o s.o && rm x.o && $CC -g -c x.c -o x.o").repeats()
            .hits(),
        hello("appended-right-after")
            .sh("$CC -c x.c -o x.o && printf tail >> x.o && cp x.o s.o && rm x.o && $CC -c x.c -o x.o").repeats()
            .hits(),
        hello("objcopied-right-after")
            .sh("$CC -c x.c -o x.o && objcopy --add-section n=h.h x.o && mv x.o s.o && $CC -c x.c -o x.o").repeats()
            .hits(),
        hello("chmodded-right-after").sh("$CC -c x.c -o x.o && chmod 600 x.o && rm x.o && $CC -c x.c -o x.o").repeats()
            .hits(),
        hello("truncated-after-hit").sh("$CC -c x.c -o x.o && : > x.o && rm x.o && $CC -c x.c -o x.o").repeats().hits(),
        hello("edited-in-place-after-hit")
            .sh("$CC -c x.c -o x.o; printf X | dd of=x.o bs=1 seek=80 conv=notrunc 2>/dev/null; cp x.o bad.o; $CC -c x.c -o y.o")
            .repeats(),
        hello("linked-after-hit").sh("$CC -c x.c -o x.o && ln x.o y.o && $CC -c x.c -o x.o && stat -c %h x.o y.o")
            .repeats().hits(),
        hello("over-its-own-output").cmd("cc -MD -c x.c -o x.o").cold().over().over().then("edited", put("h.h", H2))
            .over(),
        hello("over-its-own-program").file("m.c", MAIN_C).cmd("cc m.c -o m").cold().over().over(),
        hello("program-is-running")
            .file("m.c", "#include <unistd.h>\nint main(void){close(0);close(1);close(2);return pause();}\n")
            .setup(sh("$CC m.c -o m")).sh("./m & p=$!; until readlink /proc/$p/exe | grep -q '/m$'; do sleep 0.01; done; $CC m.c -o m; r=$?; kill $p; wait; exit $r").repeats(),
    ]);
    cases
}
