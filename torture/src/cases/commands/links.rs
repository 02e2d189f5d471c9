//! Links of programs and libraries.

use crate::case::{Case, case};
use crate::cases::configure::{archive, shared};
use crate::cases::texts::{H1, H2};
use crate::change::{Change, all, dir, nothing, put, rm, sh};
use crate::machine::Need;

const TWO_C: &str = "int foo(void);int main(void){return foo();}\n";

/// Makes an object whose function `foo` returns the number.
fn object(path: &str, number: u8) -> Change {
    sh(format!("echo 'int foo(void){{return {number};}}' > t.c; $CC -c t.c -o {path}; rm t.c"))
}

fn main_o(name: &str) -> Case {
    case(format!("F/link-{name}"))
        .both()
        .file("m.c", TWO_C)
        .setup(sh("$CC -c m.c -o m.o; rm m.c"))
        .setup(object("f.o", 1))
}

/// Returns a case with an object for Windows.
fn windows(name: &str) -> Case {
    case(format!("F/windows-{name}"))
        .clang()
        .program("ld.lld")
        .file("f.c", "int foo(void){return 1;}\n")
        .setup(sh("$CC --target=x86_64-w64-windows-gnu -c f.c -o f.obj"))
}

#[rustfmt::skip]
pub(super) fn cases() -> Vec<Case> {
    let temporary = (r"/tmp/\S+\.o|cc\w{6}\.o|[\w.-]+-[0-9a-f]{6}\.o", "a temporary object");
    let mut cases = vec![
        main_o("objects").cmd("cc m.o f.o -o x").twice().changes("object edited", object("f.o", 2))
            .back("back", object("f.o", 1)).over(),
        main_o("object-order").cmd("cc m.o f.o -o x").twice().cmd("cc f.o m.o -o x").changes("turned", nothing()),
        main_o("source-and-object").file("m.c", TWO_C).cmd("cc m.c f.o -o x").twice()
            .changes("object edited", object("f.o", 2))
            .changes("source edited", put("m.c", "int foo(void);int main(void){return -foo();}\n")),
        main_o("source-object-and-library").file("m.c", TWO_C).setup(archive("l", 3)).setup(rm("f.o"))
            .setup(sh("echo 'int b;' > b.c; $CC -c b.c; rm b.c")).cmd("cc m.c b.o -Ll -lfoo -o x").twice()
            .changes("library edited", archive("l", 4)),
        main_o("sources").file("m.c", TWO_C).file("f.c", "#include \"h.h\"\nint foo(void){return H;}\n").file("h.h", H1)
            .cmd("cc m.c f.c -o x").twice().changes("header edited", put("h.h", H2)),
        main_o("shared").file("f.c", "int foo(void){return 1;}\n").cmd("cc -shared -fPIC f.c -o libfoo.so").twice()
            .changes("edited", put("f.c", "int foo(void){return 2;}\n")).over(),
        main_o("soname").cmd("cc -shared f.o -Wl,-soname,libfoo.so.1 -o libfoo.so.1.2")
            .setup(sh("echo 'int foo(void){return 1;}' > f.c; $CC -fPIC -c f.c")).twice()
            .cmd("cc -shared f.o -Wl,-soname,libfoo.so.2 -o libfoo.so.1.2").changes("another", nothing()),
        main_o("relocatable-ld").cmd("ld -r m.o f.o -o r.o").twice().changes("edited", object("f.o", 2)).over(),
        main_o("relocatable-cc").cmd("cc -r -nostdlib m.o f.o -o r.o").twice().changes("edited", object("f.o", 2)),
        main_o("map").cmd("cc m.o f.o -Wl,-Map=x.map -o x").twice().changes("edited", object("f.o", 2)).over(),
        main_o("map-to-stdout").cmd("cc m.o f.o -Wl,-Map=- -o x").twice().may_miss(),
        main_o("trace").cmd("cc m.o f.o -Wl,--trace -Wl,-y,foo -o x").twice(),
        main_o("cref").cmd("cc m.o f.o -Wl,--cref -o x").twice(),
        main_o("dependency-file").cmd("cc m.o f.o -Wl,--dependency-file=x.d -o x").twice(),
        main_o("build-id").cmd("cc m.o f.o -Wl,--build-id=sha1 -o x").twice(),
        main_o("build-id-uuid").cmd("cc m.o f.o -Wl,--build-id=uuid -o x").loose("x", "a random number is in it").cold()
            .fresh().then("again", nothing()).fresh(),
        windows("link").cmd("ld.lld -m i386pep -e foo f.obj -o x.exe").loose("x.exe", "it holds the time").repeats()
            .never_hits(),
        windows("run-link").any_sh("ld.lld -m i386pep -e foo f.obj -o x").loose("x", "it holds the time").repeats()
            .never_hits(),
        windows("link-without-time").cmd("ld.lld -m i386pep --no-insert-timestamp -e foo f.obj -o x.exe").twice(),
        windows("object").cmd("clang --target=x86_64-pc-windows-msvc -c f.c -o y.obj")
            .loose("y.obj", "it holds the time").repeats().never_hits(),
        windows("object-without-time").cmd("clang --target=x86_64-w64-windows-gnu -c f.c -o y.obj").twice(),
        main_o("stats").cmd("cc m.o f.o -Wl,--stats -o x").repeats().any_stderr_ever().never_hits(),
        main_o("stats-in-file").file("r", "--stats").cmd("cc m.o f.o -Wl,@r -o x").repeats()
            .any_stderr_ever().never_hits(),
        main_o("mold-perf").program("ld.mold").cmd("cc -fuse-ld=mold m.o f.o -Wl,--perf -o x").repeats().varies(),
        main_o("lld-time-trace").program("ld.lld")
            .cmd("cc -fuse-ld=lld m.o f.o -Wl,--time-trace,--time-trace-file=x.json -o x")
            .loose("x.json", "it holds times").repeats().never_hits(),
        main_o("strip").cmd("cc -s m.o f.o -o x").twice(),
        main_o("gc-sections").cmd("cc -Wl,--gc-sections -Wl,--print-gc-sections m.o f.o -o x").twice(),
        main_o("defsym").cmd("cc m.o -Wl,--defsym,foo=main -o x").twice().cmd("cc m.o -Wl,--defsym,foo=_start -o x")
            .changes("another", nothing()),
        main_o("wrap").cmd("cc m.o f.o -Wl,--wrap=foo -Wl,--defsym,__wrap_foo=foo -o x").twice(),
        main_o("rsp").file("r", "m.o f.o -o x").cmd("cc @r").twice().changes("other name", put("r", "m.o f.o -o y")),
        main_o("rsp-of-linker").file("r", "m.o f.o").cmd("cc -Wl,@r -o x").twice()
            .changes("other order", put("r", "f.o m.o")),
        main_o("fails").cmd("cc m.o -o x").twice().changes("mended", object("f.o", 1)).may_miss(),
        main_o("fails-over-old").file("x", "old").cmd("cc m.o -o x").repeats(),
        main_o("fails-twice-defined").setup(object("g.o", 2)).cmd("cc m.o f.o g.o -o x").twice(),
        main_o("warns")
            .file("w.c", "#include <stdio.h>\nchar *gets(char*);int main(void){char b[9];return !gets(b);}\n")
            .cmd("cc w.c -o x").mask(temporary.0, temporary.1).repeats(),
        main_o("object-missing").cmd("cc m.o none.o -o x").twice().then("appears", object("none.o", 1)),
        main_o("object-empty").file("e.o", "").cmd("cc m.o f.o e.o -o x").twice(),
        main_o("object-wrong").file("e.o", "no object").cmd("cc m.o f.o e.o -o x").twice(),
        main_o("version-script").file("v", "{ global: foo; local: *; };\n")
            .file("f.c", "int foo(void){return 1;}int bar(void){return 2;}\n")
            .cmd("cc -shared -fPIC f.c -Wl,--version-script=v -o x.so").twice()
            .changes("edited", put("v", "{ global: bar; local: *; };\n")).then("gone", rm("v")),
        main_o("dynamic-list").file("d", "{ foo; };\n").cmd("cc m.o f.o -Wl,--dynamic-list=d -o x").twice()
            .changes("edited", put("d", "{ main; };\n")),
        main_o("script").file("s", "SECTIONS { .zz : { *(.zz) } } INSERT AFTER .data;\n")
            .cmd("cc m.o f.o -Wl,-T,s -o x").twice()
            .changes("edited", put("s", "SECTIONS { .zz : { BYTE(1) *(.zz) } } INSERT AFTER .data;\n"))
            .then("gone", rm("s")),
        main_o("script-INPUT").file("s", "INPUT(f.o)\n").cmd("cc m.o s -o x").twice()
            .changes("what it names", object("f.o", 2))
            .changes("another", all([object("g.o", 3), put("s", "INPUT(g.o)\n")])),
        main_o("script-GROUP-searched").file("s", "GROUP(-lfoo)\n").setup(archive("l2", 2))
            .cmd("cc m.o s -Ll1 -Ll2 -o x").twice().changes("appears earlier", archive("l1", 3)).back("goes", rm("l1")),
        main_o("script-INCLUDE").file("s", "INCLUDE t\n").file("t", "foo = 7;\n").cmd("cc m.o s -o x").twice()
            .changes("edited", put("t", "foo = 8;\n")),
        main_o("script-SEARCH_DIR").file("s", "SEARCH_DIR(l2)\nINPUT(-lfoo)\n").setup(archive("l2", 2))
            .cmd("cc m.o s -Ll1 -o x").twice().changes("another", archive("l2", 3)),
        main_o("linked-before-edit").cmd("cc m.o f.o -o x").cold().keep().then("an object is edited", object("f.o", 2))
            .then("over", nothing()).may_miss(),
        main_o("whole-archive").setup(archive("l", 1))
            .cmd("cc m.o -Ll -Wl,--whole-archive -lfoo -Wl,--no-whole-archive -o x").twice()
            .changes("another", archive("l", 2)),
        main_o("rpath-origin").setup(shared("l", 1)).cmd("cc m.o -Ll -lfoo -Wl,-rpath,$ORIGIN/l -o x").twice()
            .changes("another", all([shared("l", 2), sh("echo 'int foo(void){return 5;}int more;' > f.c; gcc -shared -fPIC f.c -o l/libfoo.so")])),
        main_o("shared-only-content").setup(shared("l", 1)).cmd("cc m.o -Ll -lfoo -o x").twice()
            .then("same interface", shared("l", 2)).again(),
        main_o("unresolved-allowed").cmd("cc -shared -Wl,--unresolved-symbols=ignore-all -fPIC f.o -o x.so")
            .setup(sh("echo 'int foo(void){return 1;}' > f.c; $CC -fPIC -c f.c")).twice(),
        main_o("nostdlib").file("s.c", "void _start(void){for(;;);}\n").cmd("cc -nostdlib -static s.c -o x").twice(),
        main_o("verbose").cmd("cc -Wl,--verbose m.o f.o -o x").twice().may_miss(),
        main_o("output-directory-missing").cmd("cc m.o f.o -o none/x").repeats(),
        main_o("a.out").cmd("cc m.o f.o").twice(),
        main_o("many-objects")
            .setup(sh("for i in $(seq 150); do echo \".data\n.globl v$i\nv$i: .long $i\" > v.s; as v.s -o v$i.o; done; rm v.s"))
            .argv(["cc".to_owned(), "m.o".to_owned(), "f.o".to_owned(), "-o".to_owned(), "x".to_owned()].into_iter()
            .chain((1..=150).map(|n| format!("v{n}.o"))))
            .twice().changes("one edited", sh("echo 'int v77=1;' > v.c; $CC -c v.c -o v77.o; rm v.c")),
        main_o("collect2-constructors").file("c.cc", "struct S{S();int v;};S::S(){v=1;}S s;int main(){return s.v;}\n")
            .cmd("c++ c.cc -o x").twice(),
        main_o("c++-program")
            .file("c.cc", "#include <string>\nint main(int c,char**v){return std::string(v[0]).size();}\n")
            .cmd("c++ c.cc -o x").twice().slow(),
    ];
    for linker in ["bfd", "gold", "lld"] {
        let need = match linker {
            "bfd" => Need::Program("ld.bfd"),
            "gold" => Need::Program("ld.gold"),
            _ => Need::Program("ld.lld"),
        };
        cases.push(main_o(&format!("fuse-{linker}")).needs(need).cmd(&format!("cc -fuse-ld={linker} m.o f.o -o x"))
            .twice().changes("edited", object("f.o", 2)).over());
    }
    // mold draws random numbers, so a second run is compared with the first one. The preload
    // library cannot observe it, so one run more is needed before, which only shows that the kernel
    // observer must be used.
    let compared = |case: Case, label: &str, change: Change| {
        case.then(label, change).then("compared", nothing()).then("compared again", nothing()).again()
    };
    for (name, flags) in [("program", ""), ("library", " -shared"), ("static", " -static")] {
        let case = main_o(&format!("fuse-mold-{name}")).program("ld.mold")
            .cmd(&format!("cc{flags} -fuse-ld=mold m.o f.o -o x"));
        cases.push(compared(compared(case, "cold", nothing()), "edited", object("f.o", 2)).over());
    }
    cases.extend(with_lto());
    cases
}

#[rustfmt::skip]
fn with_lto() -> Vec<Case> {
    let why = "names inside are random";
    let lto = |name: &str| case(format!("F/link-lto-{name}")).file("m.c", TWO_C)
        .file("f.c", "#include \"h.h\"\nint foo(void){return H;}\n").file("h.h", H1);
    vec![
        lto("gcc").cmd("cc -O2 -flto m.c f.c -o x").loose("x", why).repeats()
            .then("edited", put("h.h", H2)),
        lto("gcc-seeded").setup(sh("gcc -O2 -flto -frandom-seed=1 -c m.c; gcc -O2 -flto -frandom-seed=2 -c f.c"))
            .cmd("cc -O2 -flto -frandom-seed=3 m.o f.o -o x").twice().may_miss(),
        lto("gcc-partitions").cmd("cc -O2 -flto=2 -flto-partition=max m.c f.c -o x").loose("x", why).repeats(),
        lto("gcc-save-temps").setup(sh("gcc -O2 -flto -frandom-seed=1 -c m.c; gcc -O2 -flto -frandom-seed=2 -c f.c"))
            .cmd("cc -O2 -flto -save-temps m.o f.o -o x").loose("x*", why).repeats(),
        lto("clang-lld").clang().program("ld.lld").cmd("cc -O2 -flto -fuse-ld=lld m.c f.c -o x").twice()
            .changes("edited", put("h.h", H2)),
        lto("clang-thin").clang().program("ld.lld").cmd("cc -O2 -flto=thin -fuse-ld=lld m.c f.c -o x").twice()
            .changes("edited", put("h.h", H2)),
        lto("clang-thin-cache").clang().program("ld.lld")
            .cmd("cc -O2 -flto=thin -fuse-ld=lld -Wl,--thinlto-cache-dir=tc m.c f.c -o x")
            .loose("tc*", "a cache of its own, with times").cold().over().may_miss().then("edited", put("h.h", H2)),
        lto("archive").setup(sh("gcc -O2 -flto -frandom-seed=2 -c f.c; rm -f libf.a; gcc-ar rcsD libf.a f.o"))
            .cmd("cc -O2 -flto m.c -L. -lf -o x").setup(dir("e")).loose("x", why).repeats(),
    ]
}
