//! The contents of inputs change while mtimes, sizes or names stay the same, and the other way
//! round.

use crate::case::{Case, case};
use crate::cases::texts::{H1, H2, H3, X_C};
use crate::change::{AGE_S, Change, all, chmod, copy, link, mv, put, put_old, rm, script, sh, swap, symlink, touch};
use crate::machine::Need;

const OBJ: &str = "cc -c x.c -o x.o";
const F1: &str = "int f(void){return 1;}\n";
const F2: &str = "int f(void){return 2;}\n";

fn hello(name: &str) -> Case {
    case(name).both().provable().file("x.c", X_C).file("h.h", H1).cmd(OBJ)
}

#[rustfmt::skip]
pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        hello("A/edit").twice().changes("edited", put("h.h", H2)).back("back", put("h.h", H1)),
        hello("A/edit-source").twice().changes("edited", put("x.c", F2)).back("back", put("x.c", X_C)),
        hello("A/edit-same-size-old-time").twice().changes("edited", swap("h.h", H2)).back("back", swap("h.h", H1)),
        case("A/mtime-in-program-for-macos").clang()
            .needs(Need::Works("echo 'int f(void){return 1;}' > x.c; clang --target=x86_64-apple-macos11 -g -c x.c; \
                clang --target=x86_64-apple-macos11 -fuse-ld=lld -nostdlib -shared -g x.o -o x.dylib", "lld for macOS"))
            .setup(sh("echo 'int f(void){return 1;}' > x.c; clang --target=x86_64-apple-macos11 -g -c x.c"))
            .cmd("cc --target=x86_64-apple-macos11 -fuse-ld=lld -nostdlib -shared -g x.o -o x.dylib").twice()
            .then("touched", touch("x.o", -9 * AGE_S)).again(),
        case("A/edit-source-same-size-old-time").both().provable().file("x.c", F1).cmd(OBJ).twice()
            .changes("edited", swap("x.c", F2)).back("back", swap("x.c", F1)),
        hello("A/edit-by-mmap").twice().program("/usr/bin/python3").then("edited", py_mmap("2"))
            .then("edited again", py_mmap("3")),
        hello("A/edit-by-rename-same-everything").twice()
            .changes("edited", all([put("n", H2), copy_time("h.h", "n"), mv("n", "h.h")]))
            .back("back", all([put("n", H1), copy_time("h.h", "n"), mv("n", "h.h")])),
        hello("A/edit-in-a-tick").then("cold", put("h.h", H2)).then("edited", swap("h.h", H3))
            .then("edited again", swap("h.h", H2)),
        hello("A/edit-into-the-past").twice().then("edited", all([put("h.h", H2), touch("h.h", -100 * AGE_S)])).again(),
        hello("A/edit-into-the-future").twice().then("edited", all([put("h.h", H2), touch("h.h", 100 * AGE_S)]))
            .then("again", rm("none")),
        hello("A/edit-to-empty").twice().then("emptied", put("h.h", "")).again().back("back", put("h.h", H1)),
        hello("A/edit-space-only").twice().then("a space", put("h.h", "#define  H 1\n")).again(),
        hello("A/edit-comment-only-g").cmd("cc -g -c x.c -o x.o").twice()
            .then("a line before", put("h.h", "\n#define H 1\n")).again(),
        hello("A/edit-line-only-warning").file("h.h", "#define H 1\n#warning here\n").twice()
            .changes("a line before", put("h.h", "\n#define H 1\n#warning here\n"))
            .back("back", put("h.h", "#define H 1\n#warning here\n")),
        hello("A/edit-removes-final-newline").twice().then("no newline", put("h.h", "#define H 1")).again(),
        hello("A/edit-to-crlf").twice().then("crlf", put("h.h", "#define H 1\r\n")).again(),
        hello("A/edit-adds-bom").twice().then("bom", put("x.c", "\u{feff}#include \"h.h\"\nint f(void){return H;}\n"))
            .again(),
        hello("A/edit-adds-nul").twice().then("nul", put("h.h", "#define H 1\0\n")).again(),
        hello("A/touched").twice().back("touched", touch("h.h", 0)).back("older", touch("h.h", -9 * AGE_S))
            .back("source", touch("x.c", -50)),
        hello("A/mode-changed").twice().back("read-only", chmod("h.h", 0o444)).back("executable", chmod("h.h", 0o755)),
        hello("A/becomes-a-link").twice().back("a link", all([mv("h.h", "t.h"), symlink("t.h", "h.h")]))
            .changes("edited", put("t.h", H2)),
        hello("A/becomes-a-hard-link").twice().back("a hard link", all([mv("h.h", "t.h"), link("t.h", "h.h")]))
            .changes("edited", put("t.h", H2)),
        hello("A/becomes-a-copy").twice().back("a copy", all([copy("h.h", "t"), mv("t", "h.h")])),
        hello("A/unreadable").twice().then("unreadable", chmod("h.h", 0)).then("again", rm("none"))
            .back("readable", chmod("h.h", 0o644)),
        hello("A/unreadable-source").twice().then("unreadable", chmod("x.c", 0)).back("readable", chmod("x.c", 0o644)),
        hello("A/missing-then-back").twice().then("missing", rm("h.h")).again().back("back", put_old("h.h", H1)),
        case("A/swapped-two").both().provable()
            .file("x.c", "#include \"a.h\"\n#include \"b.h\"\nint f(void){return A-B;}\n")
            .file("a.h", "#define A 1\n").file("b.h", "#define B 1\n").cmd(OBJ).twice()
            .changes("one", put("a.h", "#define A 2\n")).changes("both", put("b.h", "#define B 2\n"))
            .changes("the other", put("a.h", "#define A 1\n")).back("none", put("b.h", "#define B 1\n")),
        case("A/many-entries").both().provable().file("x.c", X_C).file("h.h", H1).cmd(OBJ).twice()
            .then("2", put("h.h", "#define H 2\n")).then("3", put("h.h", "#define H 3\n"))
            .then("4", put("h.h", "#define H 4\n"))
            .then("5", put("h.h", "#define H 5\n")).then("6", put("h.h", "#define H 6\n"))
            .back("3", put("h.h", "#define H 3\n"))
            .back("1", put("h.h", H1)).back("6", put("h.h", "#define H 6\n")),
        case("A/mentions-date").both().file("x.c", X_C).file("h.h", "/* __DATE__ */\n#define H 1\n").cmd(OBJ).cold()
            .then("edited", put("h.h", "/* __DATE__ */\n#define H 2\n"))
            .then("edited again", swap("h.h", "/* __DATE__ */\n#define H 3\n")),
        case("A/header-and-source-trade-text").both().provable().file("x.c", "#include \"h.h\"\nint b;\n")
            .file("h.h", "int a;\n").cmd(OBJ)
            .twice().changes("traded", all([put("x.c", "#include \"h.h\"\nint a;\n"), put("h.h", "int b;\n")])),
    ];
    cases.extend(while_running());
    cases.extend(blobs());
    cases
}

/// Writes through a shared mapping, which updates the file's times late or never.
fn py_mmap(digit: &str) -> Change {
    crate::change::sh(format!(
        "/usr/bin/python3 -c \"import mmap; f=open('h.h','r+b'); m=mmap.mmap(f.fileno(),0); m[10:11]=b'{digit}'; m.flush()\""
    ))
}

fn copy_time(from: &str, to: &str) -> Change {
    crate::change::sh(format!("touch -r {from} {to}"))
}

/// An input is edited while the compiler runs. Either result is right then, but it must not be
/// recorded for the other input.
#[rustfmt::skip]
fn while_running() -> Vec<Case> {
    let meddling = |name: &str, what: &str, new: &str| {
        let assembler = format!("if [ -e new ]; then sleep 0.1; mv new {what}; fi\nexec /usr/bin/as \"$@\"\n");
        case(format!("A/edited-while-running-{name}")).file("x.c", X_C).file("h.h", H1)
            .setup(script("bd/as", assembler))
            .cmd("cc -Bbd -c x.c -o x.o").then("meddled", put("new", new)).unchecked().keep()
            .then("after", rm("none")).then("after that", rm("none"))
    };
    vec![
        meddling("header", "h.h", H2),
        meddling("source", "x.c", F2),
        meddling("late-shadow", "shadow.h", H2),
        case("A/edited-and-put-back-while-running").file("x.c", X_C).file("h.h", H1)
            .setup(script("bd/cc1", "[ -e meddle ] && sleep 0.05 && echo '#define H 9' > h.h\nr=0\n\"$(gcc -print-prog-name=cc1)\" \"$@\" || r=$?\n[ -e meddle ] && echo '#define H 1' > h.h\nexit $r\n"))
            .cmd("cc -Bbd -c x.c -o x.o").then("meddled", put("meddle", "")).unchecked().then("after", rm("meddle"))
            .then("after that", rm("none")),
    ]
}

/// Files that only the assembler reads.
#[rustfmt::skip]
fn blobs() -> Vec<Case> {
    let blob = |name: &str, source: &str, text: &str| {
        case(format!("A/incbin-{name}")).both().file(source, text).file("blob", "AAAA")
            .cmd(&format!("cc -c {source} -o x.o")).twice()
            .changes("edited", put("blob", "BBBB")).changes("same size, old time", swap("blob", "CCCC"))
            .changes("longer", put("blob", "DDDDDD")).then("gone", rm("blob")).back("back", put("blob", "AAAA"))
    };
    vec![
        blob("asm", "x.c", "__asm__(\".data\\n.incbin \\\"blob\\\"\\n\");\n"),
        blob("split", "x.c", "__asm__(\".data\\n.inc\" \"bin \\\"blob\\\"\\n\");\n"),
        blob("S", "x.S", ".data\n.incbin \"blob\"\n"),
        blob("s", "x.s", ".data\n.incbin \"blob\"\n"),
        blob("part", "x.s", ".data\n.incbin \"blob\", 1, 2\n"),
        blob("macro", "x.S", "#define INC .incbin \"blob\"\n.data\nINC\n"),
        blob("asm-macro", "x.s", ".macro inc name\n.incbin \"\\name\"\n.endm\n.data\ninc blob\n"),
        case("A/incbin-from-header").both().file("x.c", "#include \"h.h\"\nINC\n")
            .file("h.h", "#define INC __asm__(\".data\\n\" \".in\" \"cbin \\\"blob\\\"\");\n").file("blob", "AAAA")
            .cmd(OBJ).twice()
            .changes("edited", put("blob", "BBBB")),
        case("A/incbin-searched").both().file("x.s", ".data\n.incbin \"blob\"\n").file("b/blob", "AAAA")
            .cmd("cc -Wa,-Ia,-Ib -c x.s -o x.o")
            .twice().changes("appears ahead", put("a/blob", "BBBB"))
            .changes("and in the working directory", put("blob", "CCCC"))
            .back("goes", all([rm("a"), rm("blob")])),
        case("A/asm-include").both().file("x.s", ".include \"v.inc\"\n").file("v.inc", ".data\n.byte 1\n")
            .cmd("cc -c x.s -o x.o").twice()
            .changes("edited", put("v.inc", ".data\n.byte 2\n")),
        case("A/asm-include-searched").file("x.s", ".include \"v.inc\"\n").file("b/v.inc", ".data\n.byte 1\n")
            .cmd("cc -Wa,-Ia,-Ib -c x.s -o x.o").twice().changes("appears ahead", put("a/v.inc", ".data\n.byte 2\n"))
            .back("goes", rm("a")),
        case("A/incbin-fifo").file("x.s", ".data\n.incbin \"f\"\n").setup(Change::Fifo("f".into())).file("one", "1111")
            .file("two", "2222")
            .sh("timeout 9 cat one > f & timeout 9 $CC -c x.s -o x.o; r=$?; wait; exit $r").cold()
            .sh("timeout 9 cat two > f & timeout 9 $CC -c x.s -o x.o; r=$?; wait; exit $r")
            .then("other bytes", rm("none")),
        case("A/embed").clang()
            .needs(Need::Works("echo a>b; echo 'char s[]={\n#embed \"b\"\n};'>x.c; clang -std=c23 -c x.c", "#embed in clang"))
            .file("x.c", "const char s[] = {\n#embed \"blob\"\n};\n").file("blob", "AAAA")
            .cmd("cc -std=c23 -c x.c -o x.o").twice()
            .changes("edited", put("blob", "BBBB")).back("back", put("blob", "AAAA")),
        case("A/embed-gcc")
            .needs(Need::Works("echo a>b; echo 'char s[]={\n#embed \"b\"\n};'>x.c; gcc -std=c23 -c x.c", "#embed in gcc"))
            .file("x.c", "const char s[] = {\n#embed \"blob\"\n};\n").file("blob", "AAAA")
            .cmd("cc -std=c23 -c x.c -o x.o").twice()
            .changes("edited", put("blob", "BBBB")).back("back", put("blob", "AAAA")),
    ]
}
