//! Stages of a compiler other than the compilation of one source to an object.

use crate::case::{Case, case};
use crate::cases::texts::{H1, H2, H3, X_C};
use crate::change::{AGE_S, Change, all, nothing, put, put_old, rm, sh, touch};
use crate::machine::Need;

fn hello(name: &str) -> Case {
    case(format!("F/{name}")).both().file("x.c", X_C).file("h.h", H1)
}

#[rustfmt::skip]
pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = [
        ("E", "cc -E x.c"), ("E-o", "cc -E x.c -o x.i"), ("E-dM", "cc -E -dM x.c"), ("E-dD", "cc -E -dD x.c"),
        ("E-P-C", "cc -E -P -C x.c"), ("E-MD", "cc -E -MD -MF d x.c -o x.i"), ("E-dash", "cc -E x.c -o -"),
        ("S", "cc -S x.c -o x.s"), ("S-no-o", "cc -S x.c"), ("S-dash", "cc -S x.c -o -"),
        ("S-g", "cc -g -S x.c -o x.s"), ("S-MD", "cc -MD -S x.c -o x.s"),
        ("S-fverbose-asm", "cc -fverbose-asm -S x.c -o x.s"),
        ("M", "cc -M x.c"), ("MM", "cc -MM x.c"), ("MM-MF", "cc -MM -MF d x.c"), ("M-o", "cc -M x.c -o d"),
        ("MM-MG-MP", "cc -MM -MG -MP x.c"),
        ("syntax-only", "cc -fsyntax-only -Wall x.c"), ("syntax-only-MD", "cc -fsyntax-only -MD -MF d x.c"),
        ("c-no-o", "cc -c x.c"), ("c-x-c++", "cc -x c++ -c x.c -o x.o"), ("S-twice", "cc -S -O2 x.c -o a/x.s"),
    ].iter()
        .map(|(name, line)| hello(&format!("stage-{name}")).dir("a").cmd(line).twice().changes("edited", put("h.h", H2)).back("back", put("h.h", H1)).over())
        .collect();
    cases.extend([
        hello("stage-S-emit-llvm").clang().cmd("cc -S -emit-llvm x.c -o x.ll").twice()
            .changes("edited", put("h.h", H2)),
        hello("stage-analyze").clang().cmd("cc --analyze x.c -o x.plist").twice().changes("edited", put("h.h", H2)),
        hello("stage-analyze-html").clang()
            .sh("$CC --analyze -Xclang -analyzer-output=html x.c -o report && mv report/*.html report/one.html")
            .file("x.c", "int f(int*p){if(p)return 1;return *p;}\n").loose("report*", "names are random").repeats(),
        hello("stage-fanalyzer").cmd("cc -fanalyzer -c x.c -o x.o")
            .file("x.c", "int f(int*p){if(p)return 1;return *p;}\n").twice(),
        hello("two-sources").file("y.c", "#include \"h.h\"\nint g(void){return H;}\n").cmd("cc -c x.c y.c").twice()
            .changes("header edited", put("h.h", H2)).changes("one edited", put("y.c", "int g;\n"))
            .back("back", all([put("h.h", H1), put("y.c", "#include \"h.h\"\nint g(void){return H;}\n")])),
        hello("two-sources-MD").file("y.c", "int g;\n").cmd("cc -MD -c x.c y.c").twice().over(),
        hello("two-sources-o").file("y.c", "int g;\n").cmd("cc -c x.c y.c -o z.o").repeats(),
        hello("two-sources-one-fails").file("y.c", "nonsense\n").cmd("cc -c x.c y.c").twice().may_miss(),
        hello("two-sources-two-languages").file("y.cc", "int g(){return 0;}\n").file("z.S", ".data\n.long 1\n")
            .cmd("cc -c x.c y.cc z.S").twice(),
        hello("same-source-twice").cmd("cc -c x.c x.c").repeats(),
        hello("E-two-sources").file("y.c", "int g;\n").cmd("cc -E x.c y.c").twice(),
        hello("preprocessed").file("x.i", "# 1 \"/some/x.c\"\nint f(void){return 1;}\n").cmd("cc -c x.i -o x.o").twice()
            .changes("edited", put("x.i", "# 1 \"/some/x.c\"\nint f(void){return 2;}\n")),
        hello("preprocessed-g").file("x.i", "# 1 \"/some/x.c\"\n# 1 \"/some\" 1\nint f(void){return 1;}\n")
            .cmd("cc -g -c x.i -o x.o").twice(),
        hello("fpreprocessed").cmd("cc -E x.c -o x.i")
            .sh("$CC -E x.c -o t.i && $CC -fpreprocessed -c t.i -o x.o && rm t.i").repeats(),
        hello("assembler-S").file("x.S", "#include \"i.h\"\n.data\n.byte V\n").file("i.h", "#define V 1\n")
            .cmd("cc -c x.S -o x.o").twice().changes("edited", put("i.h", "#define V 2\n")),
        hello("assembler-s").file("x.s", ".data\n.byte 1\n").cmd("cc -c x.s -o x.o").twice()
            .changes("edited", put("x.s", ".data\n.byte 2\n")),
        hello("assembler-as").file("x.s", ".data\n.include \"i\"\n").file("i", ".byte 1\n").cmd("as x.s -o x.o").twice()
            .changes("edited", put("i", ".byte 2\n")).over(),
        hello("assembler-as-stdin").cmd("as - -o x.o").stdin(".data\n.byte 1\n").twice().stdin(".data\n.byte 2\n")
            .changes("other text", nothing()),
        hello("assembler-as-listing").file("x.s", ".data\n.byte 1\n").cmd("as -aln=x.lst --MD x.d -g x.s -o x.o")
            .twice(),
        hello("assembler-as-two").file("x.s", ".data\n.byte 1\n").file("y.s", ".data\n.byte 2\n")
            .cmd("as x.s y.s -o x.o").twice(),
        hello("c++").file("x.cc", "#include \"h.h\"\nnamespace{struct S{int v=H;};}\nint f(){return S().v;}\n")
            .cmd("c++ -c x.cc -o x.o").twice().changes("edited", put("h.h", H2)),
        hello("c++-standard-library")
            .file("x.cc", "#include <vector>\n#include <string>\nstd::vector<std::string> f(){return {\"a\"};}\n")
            .cmd("c++ -O2 -MD -c x.cc -o x.o").twice().over(),
        hello("c++-exceptions").file("x.cc", "void f(){throw 1;}\n").cmd("c++ -fno-exceptions -c x.cc -o x.o").twice(),
        hello("objective-c").file("x.m", "#import \"h.h\"\nint f(void){return H;}\n").clang().cmd("cc -c x.m -o x.o")
            .twice().changes("edited", put("h.h", H2)),
        hello("fortran").file("x.f90", "program p\ninclude 'i.inc'\nend program\n").file("i.inc", "print *, 1\n")
            .program("gfortran").cmd("gfortran -c x.f90 -o x.o").twice()
            .changes("edited", put("i.inc", "print *, 2\n")),
        hello("fortran-module").file("m.f90", "module m\ninteger::i\nend module\n").program("gfortran")
            .cmd("gfortran -c m.f90 -o m.o").repeats().over().may_miss(),
        hello("llvm-ir").clang().file("x.ll", "define i32 @f(){ret i32 1}\n").cmd("cc -c x.ll -o x.o").twice()
            .changes("edited", put("x.ll", "define i32 @f(){ret i32 2}\n")),
        hello("cpp-program").cmd("cpp x.c x.i").program("cpp").repeats()
            .then("edited", put("h.h", H2)),
        hello("c99-program").program("c99").cmd("c99 -c x.c -o x.o").repeats()
            .then("edited", put("h.h", H2)),
        hello("collect2-directly")
            .sh("$WRAP $(${CC##* } -print-prog-name=cc1 2>/dev/null || echo false) -quiet x.c -o x.s; echo $?").repeats()
            .any_stderr_ever(),
    ]);
    cases.extend(headers());
    cases.extend(modules());
    cases
}

/// Lists the cases of precompiled headers.
#[rustfmt::skip]
fn headers() -> Vec<Case> {
    let why = "gcc's compiled headers hold addresses";
    let pch = |n: u8| all([put_old("p.h", format!("#define P {n}\n")), sh("rm -f p.h.gch; gcc -x c-header p.h -o p.h.gch")]);
    let clang_pch = |n: u8| all([put_old("p.h", format!("#define P {n}\n")), sh("rm -f p.pch; clang -x c-header p.h -o p.pch")]);
    let user = |name: &str| case(format!("F/pch-{name}")).file("x.c", "#include \"p.h\"\nint f(void){return P;}\n");
    vec![
        user("make").file("p.h", "#define P 1\n").cmd("cc -x c-header p.h -o p.h.gch").loose("*.gch", why).twice()
            .may_miss().then("edited", put("p.h", "#define P 2\n")),
        user("make-no-o").file("p.h", "#define P 1\n").cmd("cc p.h").loose("*.gch", why).repeats(),
        user("make-clang").clang().file("p.h", "#define P 1\n").cmd("cc -x c-header p.h -o p.pch")
            .loose("*.pch", "clang's hold times of files").repeats()
            .then("edited", put("p.h", "#define P 2\n")),
        user("use").setup(pch(1)).cmd("cc -c x.c -o x.o").twice().may_miss().then("made anew", pch(2))
            .then("gone", rm("p.h.gch")).then("differs from header", all([pch(3), put_old("p.h", "#define P 4\n")])),
        user("use-Winvalid").setup(pch(1)).cmd("cc -Winvalid-pch -c x.c -o x.o").twice().may_miss()
            .cmd("cc -DX -O2 -Winvalid-pch -c x.c -o x.o").then("unfit", nothing()).then("unfit, again", nothing()),
        user("use-forced").setup(pch(1)).cmd("cc -include p.h -c x.c -o x.o").twice().may_miss()
            .then("made anew", pch(2)),
        user("use-directory").setup(pch(1)).setup(sh("mv p.h.gch g; mkdir p.h.gch; mv g p.h.gch/one"))
            .cmd("cc -c x.c -o x.o").twice().may_miss().then("another appears", sh("cp p.h.gch/one p.h.gch/a"))
            .then("all go", rm("p.h.gch")),
        user("use-clang").clang().setup(clang_pch(1)).cmd("cc -include-pch p.pch -c x.c -o x.o").twice().may_miss()
            .then("made anew", clang_pch(2)).then("header newer", touch("p.h", 0))
            .then("header same, newer again", touch("p.h", 9)),
        user("use-clang-validated").clang().setup(clang_pch(1)).cmd("cc -include-pch p.pch -c x.c -o x.o").cold()
            .then("header edited, size same", all([put("p.h", "#define P 7\n"), touch("p.h", -AGE_S)])),
        user("use-then-edit").sh("$CC -x c-header p.h -o p.h.gch && $CC -c x.c -o x.o; rm -f p.h.gch")
            .file("p.h", "#define P 1\n").repeats().then("edited", put("p.h", "#define P 2\n")),
    ]
}

/// Lists the cases of C++ modules.
#[rustfmt::skip]
fn modules() -> Vec<Case> {
    let interface = |n: u8| put("m.cc", format!("export module m;\nexport int f(){{return {n};}}\nexport inline constexpr int c={n};\n"));
    let build = || -> Change { sh("g++ -std=c++20 -fmodules-ts -c m.cc -o m.o; rm m.o") };
    let why = "compiled modules hold hashes of times";
    let unit = |name: &str| case(format!("F/modules-{name}")).setup(interface(1))
        .file("u.cc", "import m;\nint g(){return f()+c;}\n").loose("gcm.cache*", why);
    let works = Need::Works("echo 'export module m;' > m.cc; g++ -std=c++20 -fmodules-ts -c m.cc", "modules in g++");
    let gcc = |name: &str| unit(name).needs(works);
    vec![
        gcc("gcc-make").cmd("c++ -std=c++20 -fmodules-ts -c m.cc -o m.o").repeats().over()
            .may_miss().then("edited", interface(2)),
        gcc("gcc-use").setup(build()).cmd("c++ -std=c++20 -fmodules-ts -c u.cc -o u.o").repeats()
            .then("made anew", all([interface(2), build()])).then("gone", rm("gcm.cache")),
        gcc("gcc-make-and-use")
            .sh("$CXX -std=c++20 -fmodules-ts -c m.cc -o m.o && $CXX -std=c++20 -fmodules-ts -c u.cc -o u.o; rm -rf gcm.cache")
            .repeats().then("edited", interface(2)),
        gcc("gcc-header-unit").file("h.h", H1).file("u.cc", "import \"h.h\";\nint g(){return H;}\n")
            .sh("$CXX -std=c++20 -fmodules-ts -x c++-header h.h && $CXX -std=c++20 -fmodules-ts -c u.cc -o u.o; rm -rf gcm.cache")
            .repeats().then("edited", put("h.h", H3)),
        gcc("gcc-mapper").setup(build()).file("map", "m gcm.cache/m.gcm\n")
            .cmd("c++ -std=c++20 -fmodules-ts -fmodule-mapper=map -c u.cc -o u.o").repeats()
            .then("mapper edited", put("map", "m none.gcm\n")),
        unit("clang-make").clang().file("m.cppm", "export module m;\nexport int f(){return 1;}\n")
            .cmd("c++ -std=c++20 --precompile m.cppm -o m.pcm").loose("*.pcm", why).repeats()
            .then("edited", put("m.cppm", "export module m;\nexport int f(){return 2;}\n")),
        unit("clang-use").clang().file("m.cppm", "export module m;\nexport inline int f(){return 1;}\n")
            .file("u.cc", "import m;\nint g(){return f();}\n")
            .setup(sh("clang++ -std=c++20 --precompile m.cppm -o m.pcm"))
            .cmd("c++ -std=c++20 -fprebuilt-module-path=. -fmodule-file=m=m.pcm -c u.cc -o u.o").repeats()
            .then("made anew", all([put("m.cppm", "export module m;\nexport inline int f(){return 3;}\n"), sh("clang++ -std=c++20 --precompile m.cppm -o m.pcm")]))
            .then("gone", rm("m.pcm")),
    ]
}
