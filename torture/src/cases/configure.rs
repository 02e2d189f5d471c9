//! Class E: probes of configure scripts, and build tools.

use super::texts::{H1, MAIN_C};
use crate::case::{Case, case};
use crate::change::{Change, all, dir, nothing, put, rm, sh};
use crate::machine::Need;

const CALLS_C: &str = "int foo(void);int main(void){return foo();}\n";
const PROBE_C: &str = "#include <foo.h>\nint main(void){return 0;}\n";
const TEMPORARY: &str = r"/tmp/\S+\.o|cc\w{6}\.o|[\w.-]+-[0-9a-f]{6}\.o";

pub(super) fn cases() -> Vec<Case> {
    let parts = [probes, libraries, scripts];
    parts.iter().flat_map(|cases| cases()).collect()
}

/// Makes the shared library `libfoo.so`, whose function `foo` returns the number.
pub(super) fn shared(at: &str, number: u8) -> Change {
    all([
        dir(at),
        sh(format!(
            "cd {at}; echo 'int foo(void){{return {number};}}' > f.c; gcc -shared -fPIC f.c -o libfoo.so; rm f.c"
        )),
    ])
}

/// Makes the static library `libfoo.a`, whose function `foo` returns the number.
pub(super) fn archive(at: &str, number: u8) -> Change {
    all([
        dir(at),
        sh(format!(
            "cd {at}; echo 'int foo(void){{return {number};}}' > f.c; gcc -c f.c; rm -f libfoo.a; ar rcsD libfoo.a f.o; rm f.c f.o"
        )),
    ])
}

#[rustfmt::skip]
fn probes() -> Vec<Case> {
    let probe = |name: &str, text: &str| case(format!("E/{name}")).both().file("conftest.c", text);
    vec![
        probe("header-by-c", PROBE_C).dir("i").cmd("cc -Ii -c conftest.c").twice()
            .changes("installed", put("i/foo.h", "")).back("removed", rm("i/foo.h")),
        probe("header-by-E", PROBE_C).dir("i").cmd("cc -E -Ii conftest.c").twice()
            .changes("installed", put("i/foo.h", "")).back("removed", rm("i/foo.h")),
        probe("header-by-syntax-only", PROBE_C).dir("i").cmd("cc -fsyntax-only -Ii conftest.c").twice()
            .changes("installed", put("i/foo.h", "")).back("removed", rm("i/foo.h")),
        probe("header-by-link", PROBE_C).dir("i").cmd("cc -Ii conftest.c -o conftest").twice()
            .changes("installed", put("i/foo.h", "")).back("removed", rm("i/foo.h")),
        probe("sizeof-by-array", "static int a[1 - 2 * !(sizeof(long) == 8)];\n").cmd("cc -c conftest.c").twice()
            .cmd("cc -m32 -c conftest.c").changes("-m32", nothing()),
        probe("type-missing", "#include <stddef.h>\nnosuch_t x;\n").cmd("cc -c conftest.c").twice(),
        probe("declaration", "#include <string.h>\nint main(void){(void)strlcpy;return 0;}\n").cmd("cc -c conftest.c")
            .twice(),
        probe("option", MAIN_C).cmd("cc -Werror -fno-such-flag -c conftest.c").repeats()
            .cmd("cc -Werror -fno-common -c conftest.c").then("another", nothing()).again(),
        probe("option-of-linker", MAIN_C).cmd("cc -Wl,--as-needed conftest.c -o conftest").twice()
            .cmd("cc -Wl,--no-such conftest.c -o conftest").then("none such", nothing()),
        probe("run", "#include <stdio.h>\nint main(void){fputs(\"ran\\n\",stdout);return 7;}\n")
            .sh("$CC conftest.c -o conftest && ./conftest").repeats().hits(),
        probe("run-endian", "int main(void){int one=1;return *(char*)&one;}\n").sh("$CC conftest.c; ./a.out; echo $?")
            .repeats().hits(),
        probe("a.out", MAIN_C).cmd("cc conftest.c").twice(),
        probe("cross", "int main(void){return 0;}\n").cmd("cc --target=none-none conftest.c -o conftest").repeats()
            .mask(TEMPORARY, "a temporary object"),
        probe("undefined-symbol", "int nope(void);int main(void){return nope();}\n").cmd("cc conftest.c -o conftest")
            .mask(TEMPORARY, "a temporary object").repeats(),
        probe("empty", "").cmd("cc -c conftest.c").twice(),
        probe("c++-standard", "")
            .file("conftest.cc", "auto f = [](auto t){return t;};\nconstexpr int g(){int i=1;return i;}\n")
            .cmd("c++ -std=c++20 -c conftest.cc").twice().cmd("c++ -std=c++11 -c conftest.cc")
            .changes("older", nothing()),
        probe("openmp", "#include <omp.h>\nint main(void){return omp_get_num_threads()-1;}\n")
            .cmd("cc -fopenmp conftest.c -o conftest").mask(TEMPORARY, "a temporary object").repeats(),
        probe("pthread", "#include <pthread.h>\nint main(void){return pthread_self()==0;}\n")
            .cmd("cc -pthread conftest.c -o conftest").twice(),
        probe("math", "#include <math.h>\nint main(int c,char**v){return cos(c)>2;}\n")
            .cmd("cc conftest.c -lm -o conftest").twice(),
        probe("static", MAIN_C).cmd("cc -static conftest.c -o conftest")
            .needs(Need::Works("echo 'int main(){}'>x.c; gcc -static x.c", "static libc")).twice(),
        probe("pie", MAIN_C).cmd("cc -fPIE -pie conftest.c -o conftest").twice()
            .cmd("cc -no-pie conftest.c -o conftest").changes("-no-pie", nothing()),
    ]
}

#[rustfmt::skip]
fn libraries() -> Vec<Case> {
    let link = |name: &str,
    cmd: &str| case(format!("E/library-{name}")).both().file("conftest.c", CALLS_C).cmd(cmd)
        .mask(TEMPORARY, "a temporary object");
    vec![
        link("appears", "cc conftest.c -Ll -lfoo -o conftest").dir("l").repeats()
            .changes("installed", shared("l", 1)).then("removed", rm("l/libfoo.so")),
        link("archive-changes", "cc conftest.c -Ll -lfoo -o conftest").setup(archive("l", 1)).twice()
            .changes("another", archive("l", 2)).back("back", archive("l", 1)),
        link("shared-beats-archive", "cc conftest.c -Ll -lfoo -o conftest").setup(archive("l", 1)).twice()
            .changes("shared appears", shared("l", 3)).back("goes", rm("l/libfoo.so")),
        link("static-option", "cc conftest.c -Ll -Wl,-Bstatic -lfoo -Wl,-Bdynamic -o conftest").setup(archive("l", 1))
            .twice().then("shared appears", shared("l", 3)).back("goes", rm("l/libfoo.so")),
        link("earlier-directory", "cc conftest.c -Ll1 -Ll2 -lfoo -o conftest").setup(archive("l2", 1)).dir("l1").twice()
            .changes("appears earlier", archive("l1", 2)).back("goes", rm("l1/libfoo.a")),
        link("earlier-shared", "cc conftest.c -Ll1 -Ll2 -lfoo -o conftest").setup(archive("l2", 1)).dir("l1").twice()
            .changes("a shared one appears earlier", shared("l1", 2)).back("goes", rm("l1/libfoo.so")),
        link("directory-appears", "cc conftest.c -Ll1 -Ll2 -lfoo -o conftest").setup(archive("l2", 1)).twice()
            .changes("appears earlier", archive("l1", 2)).back("goes", rm("l1")),
        link("exact-name", "cc conftest.c -Ll1 -Ll2 -l:libfoo.a -o conftest").setup(archive("l2", 1)).dir("l1").twice()
            .changes("appears earlier", archive("l1", 2)).back("goes", rm("l1/libfoo.a")),
        link("by-path", "cc conftest.c l/libfoo.a -o conftest").setup(archive("l", 1)).twice()
            .changes("another", archive("l", 2)),
        link("LIBRARY_PATH", "cc conftest.c -lfoo -o conftest").setup(archive("l1", 1)).setup(archive("l2", 2))
            .env("LIBRARY_PATH", "l1").twice()
            .usual_env().env("LIBRARY_PATH", "l2").changes("another", nothing()).usual_env()
            .env("LIBRARY_PATH", "none:l1").then("later", nothing()).usual_env().then("unset", nothing()),
        link("by-script", "cc conftest.c -Ll -lfoo -o conftest").setup(archive("l", 1))
            .setup(sh("cd l; mv libfoo.a foo1.a; echo 'INPUT(foo1.a)' > libfoo.so")).twice()
            .changes("what it leads to", sh("rm -f l/foo1.a; echo 'int foo(void){return 9;}' > f.c; gcc -c f.c; ar rcsD l/foo1.a f.o; rm f.c f.o"))
            .changes("the script", put("l/libfoo.so", "GROUP(foo1.a AS_NEEDED(-lm))\n")),
        link("needs-another", "cc conftest.c -Ll -lfoo -o conftest -Wl,-rpath-link,l").dir("l")
            .setup(sh("cd l; echo 'int bar(void){return 1;}' > b.c; gcc -shared -fPIC b.c -o libbar.so; echo 'int bar(void);int foo(void){return bar();}' > f.c; gcc -shared -fPIC f.c -o libfoo.so -L. -lbar; rm b.c f.c"))
            .twice().then("the other goes", rm("l/libbar.so"))
            .then("another other", sh("cd l; echo 'int nothing;' > b.c; gcc -shared -fPIC b.c -o libbar.so; rm b.c")),
        link("rpath-link-order", "cc conftest.c -Ll -lfoo -o conftest -Wl,-rpath-link,l1:l2").dir("l1").dir("l2")
            .dir("l")
            .setup(sh("cd l; echo 'int bar(void){return 1;}' > b.c; gcc -shared -fPIC b.c -o ../l2/libbar.so; echo 'int bar(void);int foo(void){return bar();}' > f.c; gcc -shared -fPIC f.c -o libfoo.so -L../l2 -lbar; rm b.c f.c"))
            .twice()
            .changes("appears earlier", sh("echo 'int nothing;' > b.c; gcc -shared -fPIC b.c -o l1/libbar.so; rm b.c"))
            .back("goes", rm("l1/libbar.so")),
        link("pkg-config", "cc conftest.c -o conftest").program("pkg-config")
            .file("pc/foo.pc", "Name: foo\nDescription: f\nVersion: 1\nLibs: -L${pcfiledir}/../l1 -lfoo\n")
            .setup(archive("l1", 1)).setup(archive("l2", 2))
            .sh("$CC conftest.c $(PKG_CONFIG_PATH=pc pkg-config --libs foo) -o conftest").repeats().hits()
            .changes("-L changes", put("pc/foo.pc", "Name: foo\nDescription: f\nVersion: 1\nLibs: -L${pcfiledir}/../l2 -lfoo\n")),
        link("soname-link", "cc conftest.c -Ll -lfoo -o conftest").setup(shared("l", 1))
            .setup(sh("cd l; mv libfoo.so libfoo.so.1; ln -s libfoo.so.1 libfoo.so")).twice()
            .then("leads to another", all([shared("m", 2), sh("mv m/libfoo.so l/libfoo.so.2; ln -sfn libfoo.so.2 l/libfoo.so")]))
            .again(),
        link("unreadable", "cc conftest.c -Ll1 -Ll2 -lfoo -o conftest").setup(archive("l1", 1)).setup(archive("l2", 2))
            .twice().then("unreadable", crate::change::chmod("l1/libfoo.a", 0))
            .back("readable", crate::change::chmod("l1/libfoo.a", 0o644)),
        link("is-directory", "cc conftest.c -Ll1 -Ll2 -lfoo -o conftest").setup(archive("l2", 2)).dir("l1").twice()
            .then("a directory of the name", dir("l1/libfoo.so")).back("goes", rm("l1/libfoo.so")),
    ]
}

const CONFIGURE: &str = r##"set -u; : > config.h; : > config.log
try() { what=$1; shift; cat > conftest.c; echo "$what:" >> config.log
  if "$@" >> config.log 2>&1; then echo "#define $what 1" >> config.h; else echo "/* no $what */" >> config.h; fi
  rm -rf conftest conftest.c conftest.o conftest.i; }
echo 'int main(void){return 0;}' | try WORKS $CC conftest.c -o conftest
echo 'int main(void){return 0' | try BROKEN $CC -c conftest.c
echo '#include <foo.h>' | try HEADER $CC -Ii -c conftest.c
echo '#include <foo.h>' | try CPP $CC -E -Ii conftest.c -o conftest.i
echo 'int foo(void); int main(void){return foo();}' | try LIBFOO $CC conftest.c $(cat flags) -lfoo -o conftest
echo 'int nosuch(void); int main(void){return nosuch();}' | try NOSUCH $CC conftest.c -o conftest
echo 'int a[sizeof(long) == 8 ? 1 : -1];' | try LONG8 $CC -c conftest.c
echo 'int main(void){return 0;}' | try FLAG $CC -Werror -fno-such-flag -c conftest.c
sed "s/@X@/$(grep -c define config.h)/" config.h.in > config.status
cat config.h
"##;

#[rustfmt::skip]
fn scripts() -> Vec<Case> {
    let makefile = "x: x.o y.o\n\t$(CC) x.o y.o -o x\n%.o: %.c\n\t$(CC) -MMD -MF $*.d -c $< -o $@\n-include x.d y.d\n";
    let project = |name: &str| case(format!("E/{name}")).both()
        .file("x.c", "#include \"h.h\"\nint g(void);int main(void){return g()+H;}\n")
        .file("y.c", "#include \"h.h\"\nint g(void){return H;}\n").file("h.h", H1)
        .mask(TEMPORARY, "a temporary object");
    vec![
        case("E/configure").both().file("configure", CONFIGURE).file("flags", "-Ll").file("config.h.in", "@X@\n")
            .dir("i").dir("l").mask(TEMPORARY, "a temporary object").sh("sh ./configure").repeats()
            .then("installed", all([put("i/foo.h", ""), shared("l", 1)])).then("installed, again", nothing())
            .then("-L moves", put("flags", "-Lelsewhere")).then("removed", rm("i/foo.h")),
        project("make").file("Makefile", makefile).sh("make -s CC=\"$CC\" 2>&1").repeats().hits()
            .over().may_miss().then("edited", put("h.h", "#define H 5\n")),
        project("make-parallel").file("Makefile", makefile).sh("make -s -j4 CC=\"$CC\" 2>&1").repeats().hits(),
        project("make-rebuild").file("Makefile", makefile)
            .sh("make -s CC=\"$CC\" 2>&1 && touch -d '-1 hour' *.o x *.d && echo '#define H 5' > h.h && make -s CC=\"$CC\" && ./x; echo $?")
            .repeats(),
        project("make-up-to-date-after-hit").file("Makefile", makefile)
            .sh("make -s CC=\"$CC\"; rm x.o x.d; make CC=\"$CC\" | sed 's/[^ ]*larder //; s/[^ ]*ccache //'; make -q CC=\"$CC\"; echo $?")
            .repeats(),
        project("make-jobserver")
            .file("Makefile", "all:\n\t+$(MAKE) -s sub\nsub: x.o y.o\n%.o: %.c\n\t+$(CC) -flto=jobserver -frandom-seed=1 -c $< -o $@\n")
            .sh("make -s -j3 CC=\"$CC\" >/dev/null 2>&1; echo $?").repeats(),
        project("ninja").program("ninja")
            .file("build.ninja", "rule cc\n command = $CC -MMD -MF $out.d -c $in -o $out\n depfile = $out.d\n deps = gcc\nrule ld\n command = $CC $in -o $out\nbuild x.o: cc x.c\nbuild y.o: cc y.c\nbuild x: ld x.o y.o\n")
            .sh("sed \"1i CC = $CC\" build.ninja > b.ninja; ninja -f b.ninja >/dev/null; echo $?; rm -rf .ninja_* b.ninja")
            .repeats().hits(),
        project("cmake").program("cmake").program("ninja")
            .file("CMakeLists.txt", "cmake_minimum_required(VERSION 3.10)\nproject(p C)\nadd_executable(x x.c y.c)\n")
            .slow()
            .sh("cmake -G Ninja -S . -B b -DCMAKE_C_COMPILER=${CC##* } ${WRAP:+-DCMAKE_C_COMPILER_LAUNCHER=$WRAP} >/dev/null && cmake --build b >/dev/null; b/x; echo $?; cp b/x x.out; rm -r b")
            .repeats().may_miss(),
        project("gcc-ar-and-ranlib")
            .sh("$CC -c y.c && $WRAP ar rcsD liby.a y.o && $WRAP ranlib -D liby.a && $CC x.c liby.a -o x").repeats()
            .may_miss(),
        project("libtool-like")
            .sh("mkdir -p .libs; $CC -fPIC -DPIC -c y.c -o .libs/y.o && $CC -c y.c -o y.o >/dev/null 2>&1 && $CC -shared .libs/y.o -Wl,-soname -Wl,liby.so.0 -o .libs/liby.so.0.0.0 && (cd .libs && ln -sf liby.so.0.0.0 liby.so.0)")
            .repeats().hits(),
        project("depcomp-like").sh("$CC -MT x.o -MD -MP -MF .deps/x.Tpo -c -o x.o x.c && mv -f .deps/x.Tpo .deps/x.Po")
            .dir(".deps").repeats().hits(),
    ]
}
