//! Class C, callers: messages, exit codes, terminals, signals, streams.

use super::texts::{H1, H2, WARNS_C, X_C};
use crate::case::{Case, case};
use crate::change::{all, nothing, put, rm, script, sh};
use crate::step::Whom::{Group, Leader};
use rustix::process::Signal;

const OBJ: &str = "-c x.c -o x.o";

pub(super) fn cases() -> Vec<Case> {
    let parts = [messages, variables, terminals, errors, questions, streams, signals, masquerade];
    parts.iter().flat_map(|cases| cases()).collect()
}

fn warns(name: &str) -> Case {
    case(format!("C/{name}")).both().file("x.c", WARNS_C).file("h.h", H1)
}

fn hello(name: &str) -> Case {
    case(format!("C/{name}")).both().file("x.c", X_C).file("h.h", H1)
}

#[rustfmt::skip]
fn messages() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, args) in [
        ("plain", ""), ("colour", "-fdiagnostics-color=always"), ("no-colour", "-fdiagnostics-color=never"),
        ("no-caret", "-fno-diagnostics-show-caret"),
        ("Werror", "-Werror"), ("json", "-fdiagnostics-format=json"), ("urls", "-fdiagnostics-urls=always"),
        ("parseable", "-fdiagnostics-parseable-fixits"),
        ("message-length", "-fmessage-length=40"), ("pedantic", "-pedantic -Wextra -Weverything"),
        ("no-option", "-fno-diagnostics-show-option"),
        ("msvc", "-fdiagnostics-format=msvc"), ("patch", "-fdiagnostics-generate-patch"),
        ("path", "-fdiagnostics-path-format=separate-events"),
    ] {
        cases.push(warns(&format!("warn-{name}")).cmd(&format!("cc -Wall {args} {OBJ}")).twice()
            .changes("edited", put("x.c", format!("\n{WARNS_C}"))));
    }
    let cmd = |args: &str| format!("cc {args} {OBJ}");
    cases.extend([
        warns("warn-then-Werror").cmd(&cmd("-Wall")).twice().cmd(&cmd("-Wall -Werror")).changes("-Werror", nothing())
            .cmd(&cmd("-Wall -w")).changes("-w", nothing()).cmd(&cmd("-Wall")).back("back", nothing()),
        case("C/warn-hash").both().file("x.c", "#warning hey\n#pragma message \"yo\"\nint a;\n").cmd(&cmd("")).twice(),
        case("C/warn-not-text").both().file("x.c", b"int f(void){int \xc3\xbc;char*s=\"\xff\xfe\";return 1;}\n")
            .cmd(&cmd("-Wall")).twice(),
        case("C/warn-much").both()
            .setup(sh("for i in $(seq 3000); do echo \"int f$i(void){int unused;return 1;}\"; done > x.c"))
            .cmd(&cmd("-Wall")).twice(),
        case("C/warn-in-header").both().file("x.c", X_C)
            .file("h.h", "#define H 1\nstatic int unused(void){return 1;}\n").cmd(&cmd("-Wall")).twice()
            .changes("edited", put("h.h", "\n#define H 1\nstatic int unused(void){return 1;}\n")),
        case("C/warn-source-edited-behind").both().file("x.c", WARNS_C).file("h.h", H1).cmd(&cmd("-Wall")).twice()
            .changes("a comment", put("x.c", WARNS_C.replace("unused;", "unused; /**/"))),
        hello("both-streams").setup(script("my-cc", "echo one; echo two >&2; echo three; gcc \"$@\"\n"))
            .cmd("./my-cc -c x.c -o x.o").twice(),
        hello("both-streams-joined")
            .setup(script("my-cc", "for i in 1 2 3 4; do echo out $i; echo err $i >&2; done; gcc \"$@\"\n"))
            .sh("$WRAP ./my-cc -c x.c -o x.o 2>&1").repeats(),
        hello("no-newline-at-end").setup(script("my-cc", "printf out; printf err >&2; gcc \"$@\"\n"))
            .cmd("./my-cc -c x.c -o x.o").twice(),
        hello("much-on-both-streams").setup(script("my-cc", "seq 60000; seq 60000 >&2; gcc \"$@\"\n"))
            .cmd("./my-cc -c x.c -o x.o").twice(),
        hello("zero-bytes-on-stdout").setup(script("my-cc", "printf 'a\\000b\\377'; gcc \"$@\"\n"))
            .cmd("./my-cc -c x.c -o x.o").twice(),
        hello("H-lists-headers").cmd(&cmd("-H")).twice().changes("edited", put("h.h", H2)),
        hello("trace-includes-not").cmd(&cmd("-Wp,-v")).twice(),
    ]);
    cases
}

/// Variables that change messages.
#[rustfmt::skip]
fn variables() -> Vec<Case> {
    let varied = |name: &str, args: &str, settings: &[(&str, &str)]| {
        let case = warns(&format!("env-{name}")).cmd(&format!("cc -Wall {args} {OBJ}")).twice();
        let with = settings.iter()
            .fold(case, |case, (variable, value)| case.usual_env().env(variable, *value).then(value, nothing())
            .then(&format!("{value}, again"), nothing()));
        with.usual_env().back("back", nothing())
    };
    vec![
        varied("LC_ALL", "", &[("LC_ALL", "C"), ("LC_ALL", "POSIX"), ("LC_ALL", "de_DE.UTF-8"), ("LC_ALL", "")]),
        varied("LANG", "", &[("LANG", "C"), ("LANG", "en_US.UTF-8"), ("LANGUAGE", "de")]),
        varied("LC_CTYPE", "", &[("LC_CTYPE", "C")]),
        varied("GCC_COLORS", "-fdiagnostics-color=always", &[("GCC_COLORS", "warning=01;32"), ("GCC_COLORS", "")]),
        varied("GCC_URLS", "-fdiagnostics-urls=always", &[("GCC_URLS", "bel"), ("GCC_URLS", "no"), ("TERM_URLS", "st")]),
        varied("COLUMNS", "", &[("COLUMNS", "30"), ("COLUMNS", "200")]),
        varied("TERM", "", &[("TERM", "dumb"), ("TERM", "")]),
        varied("NO_COLOR", "", &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1"), ("CLICOLOR", "0")]),
        varied("CCC_OVERRIDE_OPTIONS", "", &[("CCC_OVERRIDE_OPTIONS", "# +-DX=1 x-Wall"), ("CCC_OVERRIDE_OPTIONS", "# O2")]),
        varied("GCC_COMPARE_DEBUG", "", &[("GCC_COMPARE_DEBUG", "-gtoggle")]),
        varied("COLLECT", "", &[("COLLECT_GCC_OPTIONS", "'-O2'"), ("COLLECT_NO_DEMANGLE", "1")]),
        varied("CFLAGS", "", &[("CFLAGS", "-O2"), ("CPPFLAGS", "-DH=3"), ("GCC_ARGS", "-O2")]),
        varied("MALLOC", "", &[("MALLOC_PERTURB_", "77"), ("MALLOC_ARENA_MAX", "1")]),
        varied("TZ", "", &[("TZ", "Asia/Tokyo")]),
        varied("TMPDIR", "-save-temps", &[("TMPDIR", "/nonexistent"), ("TMPDIR", "")]),
        varied("CLANG", "", &[("CLANG_FORCE_COLOR_DIAGNOSTICS", "1"), ("CC_PRINT_OPTIONS", "1"), ("CC_PRINT_HEADERS", "1"), ("CC_LOG_DIAGNOSTICS", "1")])
            .any_stderr_ever(),
        varied("CC_PRINT_file", "", &[("CC_PRINT_OPTIONS_FILE", "opts"), ("CC_PRINT_HEADERS_FILE", "hdrs"), ("CC_LOG_DIAGNOSTICS_FILE", "diag")]),
        case("C/env-COLUMNS-help").env("COLUMNS", "60").cmd("cc --help=warnings").twice().env("COLUMNS", "200")
            .changes("wider", nothing()),
        case("C/env-TMPDIR-missing").both().file("x.c", "int main(void){return 0;}\n").env("TMPDIR", "/nonexistent")
            .cmd("cc x.c -o x").repeats().usual_env().then("there", nothing())
            .then("there, again", nothing()),
        warns("env-CC_PRINT_HEADERS_FILE").env("CC_PRINT_HEADERS", "1").env("CC_PRINT_HEADERS_FILE", "{root}/headers")
            .cmd(&format!("cc {OBJ}")).cold().over().may_miss().over().may_miss(),
        warns("env-CC_PRINT_OPTIONS_FILE").env("CC_PRINT_OPTIONS", "1").env("CC_PRINT_OPTIONS_FILE", "{root}/options")
            .cmd(&format!("cc {OBJ}")).cold().over().may_miss(),
        warns("env-CC_PRINT_PROC_STAT").clang().env("CC_PRINT_PROC_STAT", "1").cmd(&format!("cc {OBJ}")).twice().varies(),
        warns("env-LIBCLANG").env("LIBCLANG_LOGGING", "1").env("LLVM_PROFILE_FILE", "{root}/p")
            .cmd(&format!("cc {OBJ}")).twice(),
    ]
}

#[rustfmt::skip]
fn terminals() -> Vec<Case> {
    let cmd = format!("cc -Wall {OBJ}");
    let tty = |name: &str| warns(&format!("tty-{name}")).cmd(&cmd);
    vec![
        tty("warn").tty(24, 80).twice().piped().changes("piped", nothing()).tty(24, 80)
            .back("on a terminal", nothing()),
        tty("after-pipe").twice().tty(24, 80).changes("on a terminal", nothing()).piped().back("piped", nothing()),
        tty("widths").tty(24, 80).twice().tty(24, 30).changes("narrow", nothing()).tty(50, 200)
            .changes("wide", nothing()).tty(24, 80).back("as at first", nothing()),
        tty("no-size").tty(0, 0).twice(),
        tty("dumb").tty(24, 80).env("TERM", "dumb").twice().usual_env().then("able", nothing()),
        tty("colour-never").cmd(&format!("cc -Wall -fdiagnostics-color=never {OBJ}")).tty(24, 80).twice(),
        tty("stdout-only").tty(24, 80).sh(format!("$CC -Wall {OBJ} 2>err")).repeats(),
        tty("stderr-only").tty(24, 80).sh(format!("$CC -Wall {OBJ} >out")).repeats(),
        tty("silent").file("x.c", "int a;\n").tty(24, 80).twice().piped().then("piped", nothing()),
        tty("question").cmd("cc --version").tty(24, 80).repeats(),
        tty("error").file("x.c", "int f(void){return nope;}\n").tty(24, 80).twice().may_miss(),
    ]
}

#[rustfmt::skip]
fn errors() -> Vec<Case> {
    let cmd = format!("cc {OBJ}");
    let fails = |name: &str,
    text: &str| case(format!("C/error-{name}")).both().file("x.c", text).file("h.h", H1).cmd(&cmd);
    vec![
        fails("syntax", "int f(void){return ;;; }}\n").twice().changes("fixed", put("x.c", X_C))
            .back("broken", put("x.c", "int f(void){return ;;; }}\n")),
        fails("undeclared", "int f(void){return zz;}\n").twice().cmd(&format!("cc -Dzz=1 {OBJ}"))
            .changes("declared", nothing()),
        fails("hash-error", "#error no\n").twice(),
        fails("static-assert", "#include \"h.h\"\n_Static_assert(H == 1, \"no\");\n").twice()
            .changes("fails", put("h.h", H2)).back("holds", put("h.h", H1)),
        fails("old-output", "int f(\n").file("x.o", "old").file("x.d", "old").cmd(&format!("cc -MD {OBJ}")).repeats()
            .changes("fixed", put("x.c", X_C)),
        fails("missing-header", "#include \"nope.h\"\nint f(void){return H;}\n").cmd(&format!("cc -MD {OBJ}")).twice()
            .changes("appears", put("nope.h", "#define H 1\n")).back("goes", rm("nope.h")),
        fails("missing-source", "").setup(rm("x.c")).repeats()
            .changes("appears", put("x.c", "int a;\n")).then("goes", rm("x.c")),
        fails("missing-forced-header", "int a;\n").cmd(&format!("cc -include no.h {OBJ}")).twice()
            .changes("appears", put("no.h", "")),
        fails("unknown-option", "int a;\n").cmd(&format!("cc -fno-such-option --no-such {OBJ}")).repeats(),
        fails("unknown-warning", "int a;\n").cmd(&format!("cc -Wno-such -Wsuch -Werror=such {OBJ}")).repeats(),
        fails("bad-value", "int a;\n").cmd(&format!("cc -O9x -std=c7 -march=none {OBJ}")).repeats(),
        fails("assembler", "__asm__(\"nonsense here\");\n").twice().changes("fixed", put("x.c", "int a;\n")),
        fails("assembler-source", "").file("y.s", "nonsense\n").cmd("cc -c y.s -o x.o").twice(),
        fails("too-many", &"int f(void){return nope;}\n".repeat(200)).twice()
            .cmd(&format!("cc -fmax-errors=3 -ferror-limit=3 {OBJ}")).then("fewer", nothing()),
        fails("no-argument-of-o", "int a;\n").cmd("cc -c x.c -o").cold(),
        fails("no-argument-of-I", "int a;\n").cmd("cc -c x.c -I").cold(),
        fails("directory-as-source", "int a;\n").cmd("cc -c . -o x.o").cold(),
        fails("unknown-suffix", "int a;\n").setup(sh("cp x.c x.zz")).cmd("cc -c x.zz -o x.o").repeats(),
        fails("link-without-main", "int a;\n").cmd("cc x.c -o x")
            .mask(r"/tmp/\S+\.o|\(\.text\+0x[0-9a-f]+\)", "names of temporary objects").repeats(),
        fails("internal", "int a;\n").setup(script("bd/cc1", "echo 'internal compiler error: x' >&2; exit 4\n"))
            .cmd(&format!("cc -Bbd {OBJ}")).repeats().changes("mended", rm("bd")).may_miss(),
    ]
}

#[rustfmt::skip]
fn questions() -> Vec<Case> {
    let all_of = |name: &str, lines: &[&str]| {
        let case = hello(name);
        lines.iter().fold(case, |case, line| case.cmd(line).then(line, nothing()))
    };
    vec![
        all_of("ask", &["cc", "cc --version", "cc -v", "cc -dumpversion", "cc -dumpmachine", "cc -dumpspecs", "cc -print-prog-name=ld", "cc -print-search-dirs",
            "cc -print-file-name=libc.so", "cc -print-libgcc-file-name", "cc -print-multi-lib", "cc -print-sysroot",
            "cc -print-resource-dir", "cc --help", "cc --target-help",
            "cc -c", "cc -o", "cc -fno-such-option -c x.c -o x.o", "cc -E -v -x c /dev/null", "cc -Q --help=target",
            "cc -qversion", "cc -V", "cc -x", "cc -x nope x.c", "cc @none"])
            .mask(r"cc\w{6}\.[os]", "a temporary name").mask(r"/tmp/\S+", "a temporary name"),
        all_of("ask-with-source", &["cc -### -c x.c -o x.o", "cc -### x.c -o x", "cc -v -c x.c -o x.o", "cc -ccc-print-phases -c x.c", "cc -ccc-print-bindings -c x.c -o x.o", "cc --verbose -c x.c",
            "cc -fsyntax-only -v x.c", "cc -c x.c -o x.o --version", "cc -Q -c x.c", "cc -dM -E x.c", "cc -dD -E x.c",
            "cc -E -dI x.c", "cc -E -P -C x.c", "cc -E -fdirectives-only x.c", "cc -dumpbase a -c x.c"])
            .mask(r"cc\w{6}\.[os]|x-[0-9a-f]{6}\.[os]", "a temporary name")
            .mask(r"(TOTAL|Execution times|phase|Time|time|wall|usr|sys|GGC).*", "-Q prints times").any_stderr_ever(),
        all_of("ask-verbose", &["cc -v -c x.c -o x.o", "cc -v -c x.c -o x.o", "cc -### -c x.c -o x.o"])
            .mask(r"cc\w{6}\.[os]|x-[0-9a-f]{6}\.[os]", "a temporary name"),
    ]
}

/// Standard streams that are closed, full, or have no reader.
#[rustfmt::skip]
fn streams() -> Vec<Case> {
    let run = |name: &str,
    text: &str| warns(&format!("stream-{name}")).sh(text).repeats().then("and again", nothing());
    vec![
        run("stdin-closed", "$CC -Wall -c x.c -o x.o <&-"),
        run("stdout-closed", "$CC -Wall -c x.c -o x.o >&-"),
        run("stderr-closed", "$CC -Wall -c x.c -o x.o 2>&-"),
        run("all-closed", "$CC -Wall -c x.c -o x.o <&- >&- 2>&-"),
        run("stdout-closed-after-hit", "$CC -Wall -c x.c -o x.o 2>/dev/null; $CC -Wall -c x.c -o x.o >&-"),
        run("stderr-closed-after-hit", "$CC -Wall -c x.c -o x.o 2>/dev/null; $CC -Wall -c x.c -o x.o 2>&-"),
        run("stderr-full", "$CC -Wall -c x.c -o x.o 2>/dev/full"),
        run("stdout-full", "$CC -E x.c >/dev/full").any_stderr_ever(),
        run("stdout-full-of-S", "$CC -S x.c -o - >/dev/full").any_stderr_ever(),
        run("stderr-read-only", "$CC -Wall -c x.c -o x.o 2</dev/null"),
        run("stderr-to-file", "$CC -Wall -c x.c -o x.o 2>err"),
        run("stderr-appended", "echo before > err; $CC -Wall -c x.c -o x.o 2>>err"),
        run("stderr-with-stdout", "$CC -Wall -c x.c -o x.o >both 2>&1"),
        run("stderr-to-output-dir", "mkdir -p o; $CC -Wall -c x.c -o o/x.o 2>o/x.log"),
        run("reader-gone", "{ until [ -e gone ]; do sleep 0.01; done; rm gone; $CC -Wall -c x.c -o x.o; echo $? > code; } 2>&1 | { exec <&-; : > gone; }; cat code; rm -f x-*.o.tmp"),
        run("reader-of-E-gone", "seq -f 'int v%.0f;' 90000 > big.c; { $CC -E big.c; echo $? > code; } | head -1; cat code"),
        run("extra-descriptors", "exec 3>three 4<h.h 9>nine; $CC -Wall -c x.c -o x.o"),
        run("inherited-descriptor-read", "exec 5<h.h; $CC -include /dev/fd/5 -c x.c -o x.o"),
        run("nohup", "nohup $CC -Wall -c x.c -o x.o 2>&1"),
        run("background", "$CC -Wall -c x.c -o x.o & wait $!"),
        run("in-subshell-cwd", "(cd / && $CC -Wall -c $OLDPWD/x.c -o $OLDPWD/x.o)"),
        run("E-to-pipe", "$CC -E x.c | cat > x.i"),
        run("o-dash", "$CC -S x.c -o - > x.s"),
        run("c-o-dash", "$CC -c x.c -o - > x.obj"),
        run("stdin-source-from-file", "$CC -x c -c - -o x.o < x.c"),
        run("stdin-source-from-pipe", "cat x.c | $CC -x c -c - -o x.o"),
        run("stdin-source-from-here", "$CC -x c -c - -o x.o <<E\n#include \"h.h\"\nint g(void){return H;}\nE\n"),
        run("stdin-not-read", "seq 10 | { $CC -Wall -c x.c -o x.o; cat; }"),
        warns("stdin-source").cmd("cc -x c -c - -o x.o").stdin("#include \"h.h\"\nint f(void){return H;}\n").twice()
            .stdin("int g(void){return 1;}\n").changes("other text", nothing())
            .stdin("#include \"h.h\"\nint f(void){return H;}\n").back("first text", nothing())
            .changes("header edited", put("h.h", H2)),
        warns("stdin-empty").cmd("cc -x c -c - -o x.o").stdin("").twice().stdin("int a;\n")
            .changes("other text", nothing()),
        warns("stdin-of-E").cmd("cc -E -").stdin("H\n").twice().stdin("G\n").changes("other text", nothing()),
        warns("stdin-E-dM").cmd("cc -E -dM -").stdin("#define Z 1\n").twice().stdin("#define Z 2\n")
            .changes("other text", nothing()),
        warns("stdin-M").cmd("cc -M -x c -").stdin("#include \"h.h\"\n").twice(),
    ]
}

/// The tool dies, or its caller is interrupted. Then nothing may be recorded and no process may be
/// left.
#[rustfmt::skip]
fn signals() -> Vec<Case> {
    let slow = "if [ -e slow ]; then : > busy; sleep 10; fi\nexec /usr/bin/as \"$@\"\n";
    let slow_child = "if [ -e slow ]; then : > busy; sleep 3 & wait; fi\nexec /usr/bin/as \"$@\"\n";
    let mut cases = Vec::new();
    for (name, signal) in [("INT", Signal::INT), ("TERM", Signal::TERM), ("HUP", Signal::HUP), ("QUIT", Signal::QUIT), ("KILL", Signal::KILL), ("PIPE", Signal::PIPE), ("USR1", Signal::USR1), ("ALRM", Signal::ALARM)] {
        cases.push(case(format!("C/signal-{name}-to-group")).file("x.c", X_C).file("h.h", H1)
            .setup(script("bd/as", slow)).cmd("cc -Bbd -c x.c -o x.o")
            .then("interrupted", put("slow", "")).kill(signal, Group).any_stderr().changes("then", rm("slow")));
    }
    cases.push(case("C/signal-STOP-is-not-forwarded").file("x.c", X_C).file("h.h", H1)
        .setup(script("bd/as", "if [ -e slow ]; then : > busy; sleep 0.3; fi\nexec /usr/bin/as \"$@\"\n"))
        .cmd("cc -Bbd -c x.c -o x.o").then("continued", put("slow", "")).kill(Signal::CONT, Group)
        .changes("then", rm("slow")));
    for (name, signal) in [("INT", Signal::INT), ("TERM", Signal::TERM)] {
        cases.push(case(format!("C/signal-{name}-to-leader")).clang().file("x.c", X_C).file("h.h", H1)
            .setup(script("bd/as", slow_child))
            .cmd("cc -fno-integrated-as -Bbd -c x.c -o x.o").then("interrupted", put("slow", "")).kill(signal, Leader)
            .any_stderr().unchecked().changes("then", rm("slow")));
    }
    let dies = |name: &str, how: &str| case(format!("C/dies-{name}")).both().file("x.c", X_C).file("h.h", H1)
        .setup(script("my-cc", format!("if [ -e die ]; then echo partial > x.o; echo dying >&2; {how}; fi\nexec @CC@ \"$@\"\n")))
        .cmd("./my-cc -c x.c -o x.o")
        .then("dies", put("die", "")).then("again", nothing()).then("lives", rm("die")).again();
    cases.extend([
        dies("SEGV", "kill -SEGV $$"), dies("ABRT", "kill -ABRT $$"), dies("KILL", "kill -KILL $$"),
        dies("TERM", "kill -TERM $$"), dies("INT", "kill -INT $$"), dies("PIPE", "kill -PIPE $$"),
        dies("with-code-139", "exit 139"), dies("with-code-255", "exit 255"), dies("with-code-130", "exit 130"),
        case("C/dies-assembler").file("x.c", X_C).file("h.h", H1)
            .setup(script("bd/as", "[ -e die ] && kill -KILL $$\nexec /usr/bin/as \"$@\"\n"))
            .cmd("cc -Bbd -c x.c -o x.o").then("dies", put("die", "")).changes("lives", rm("die")),
        case("C/dies-child-unnoticed").both().file("x.c", X_C).file("h.h", H1)
            .setup(script("my-cc", "sh -c '[ -e die ] && kill -KILL $$; echo extra > extra'\nexec @CC@ \"$@\"\n"))
            .cmd("./my-cc -c x.c -o x.o").then("dies", put("die", "")).changes("lives", rm("die")),
        case("C/dies-of-memory").both().file("x.c", X_C).file("h.h", H1).prelude("ulimit -v 30000")
            .cmd("cc -c x.c -o x.o").cold().prelude("").changes("with memory", nothing()).any_stderr_ever(),
        case("C/dies-of-time").both().file("x.c", X_C).file("h.h", H1)
            .setup(script("my-cc", "[ -e slow ] && while :; do :; done\nexec @CC@ \"$@\"\n")).prelude("ulimit -t 1")
            .cmd("./my-cc -c x.c -o x.o").then("without time", put("slow", "")).prelude("")
            .changes("with time", rm("slow")).slow(),
        case("C/timeout-by-caller").both().file("x.c", X_C).file("h.h", H1)
            .setup(script("my-cc", "[ -e slow ] && sleep 5\nexec @CC@ \"$@\"\n"))
            .sh("t=60; [ ! -e slow ] || t=1; timeout $t $WRAP ./my-cc -c x.c -o x.o").then("too slow", put("slow", "")).then("quick", rm("slow")),
        case("C/ignored-signal").both().file("x.c", X_C).file("h.h", H1)
            .sh("trap '' INT TERM HUP PIPE; $CC -c x.c -o x.o").repeats().hits(),
        case("C/outlives").both().file("x.c", X_C).file("h.h", H1)
            .setup(script("my-cc", "(sleep 0.2; echo late > late) >/dev/null 2>&1 </dev/null &\nexec @CC@ \"$@\"\n"))
            .cmd("./my-cc -c x.c -o x.o").repeats(),
        case("C/outlives-holding-stdout").both().file("x.c", X_C).file("h.h", H1)
            .setup(script("my-cc", "(sleep 0.2; echo late) &\nexec @CC@ \"$@\"\n"))
            .cmd("./my-cc -c x.c -o x.o").repeats(),
    ]);
    cases
}

/// Links to the cache that have a compiler's name and come first on `PATH`.
#[rustfmt::skip]
fn masquerade() -> Vec<Case> {
    let path = |name: &str,
    text: &str| warns(&format!("masquerade-{name}")).sh(text).repeats().hits();
    let both = path("compiler", "PATH=$MASQ:$PATH; ${CC##* } -Wall -c x.c -o x.o");
    vec![
        both,
        path("twice-on-path", "PATH=$MASQ:$MASQ:$PATH; ${CC##* } -Wall -c x.c -o x.o"),
        path("by-link-to-link", "mkdir -p l; ln -sf $MASQ/${CC##* } l/${CC##* } 2>/dev/null; PATH=$PWD/l:$PATH; [ -e l/${CC##* } ] || PATH=${PATH#*:}; ${CC##* } -Wall -c x.c -o x.o; rm -r l"),
        path("under-wrapper", "PATH=$MASQ:$PATH; $CC -Wall -c x.c -o x.o").may_miss(),
        path("from-script", "printf '#!/bin/sh\\nexec %s \"$@\"\\n' ${CC##* } > cc.sh; chmod 755 cc.sh; PATH=$MASQ:$PATH ./cc.sh -Wall -c x.c -o x.o"),
        path("cc", "PATH=$MASQ:$PATH; cc -Wall -c x.c -o x.o; c++ -x c++ -Wall -c x.c -o y.o"),
        path("empty-path-part", "PATH=:$MASQ:$PATH; ${CC##* } -Wall -c x.c -o x.o"),
        path("wrapper-is-compiler-name", "PATH=$MASQ:$PATH; sh -c \"${CC##* } -Wall -c x.c -o x.o\""),
        path("question", "PATH=$MASQ:$PATH; ${CC##* } --version").may_miss(),
        // larder passes the compiler's path in place of its name: gcc searches PATH for its own name, to find its parts,
        // and would find larder's link. So only the last component is the same.
        path("collect-gcc", "PATH=$MASQ:$PATH; ${CC##* } -v -c x.c -o x.o 2>&1 | grep ^COLLECT_GCC= | sed 's,=.*/,=,' || :").may_miss(),
        path("make", "printf 'x.o: x.c\\n\\t$(CC) -Wall -c x.c -o x.o\\n' > Makefile; PATH=$MASQ:$PATH make -s CC=${CC##* }; rm Makefile"),
        warns("masquerade-missing-compiler")
            .sh("mkdir -p e; PATH=$MASQ:$PWD/e; [ -n \"$WRAP\" ] || PATH=$PWD/e; gcc -c x.c -o x.o; echo $?").cold()
            .any_stderr(),
        warns("masquerade-through-ccache").program("ccache").env("CCACHE_DIR", "{root}/cc")
            .sh("mkdir -p m; ln -sf $(command -v ccache) m/gcc; PATH=$MASQ:$PWD/m:$PATH; gcc -Wall -c x.c -o x.o; rm -rf m cc")
            .repeats(),
        warns("argv0")
            .sh("$CC -Wall -v -c x.c -o x.o 2>&1 | grep ^COLLECT_GCC= || :; $WRAP /usr/bin/${CC##* } -v -c x.c -o x.o 2>&1 | grep ^COLLECT_GCC= || :")
            .cold(),
        warns("edited-under-masquerade").sh("PATH=$MASQ:$PATH; ${CC##* } -Wall -c x.c -o x.o").cold()
            .changes("edited", all([put("h.h", H2)])),
    ]
}
