//! Class B: the same command in another checkout, or from another directory.

mod checkouts;
mod derived;
mod directories;
mod gone;
mod inherited;
mod odd;

use crate::case::Case;
use checkouts::Far::{Differs, Hits};
use checkouts::{ABSOLUTE, HEADER, NAMES_ITSELF, RELATIVE, SOURCE, in_places};

pub(super) fn cases() -> Vec<Case> {
    let parts = [combinations, own_path, derived::cases, odd::cases, directories::cases, gone::cases, inherited::cases];
    parts.iter().flat_map(|cases| cases()).collect()
}

/// Combinations of ways to name files with options that put the path into the result.
#[rustfmt::skip]
fn combinations() -> Vec<Case> {
    let plain = [SOURCE, HEADER];
    let itself = [NAMES_ITSELF, HEADER];
    let mut cases = Vec::new();
    for (name, flags, files, relative, absolute) in [
        ("plain", "", &plain, Hits, Hits),
        ("O2", "-O2 -fPIC -Wall -Wextra", &plain, Hits, Hits),
        ("g", "-g", &plain, Hits, Hits),
        ("g1", "-g1", &plain, Hits, Hits),
        ("g3", "-g3", &plain, Hits, Hits),
        ("g-dwarf-4", "-g -gdwarf-4", &plain, Differs, Differs),
        ("g0", "-g -g0", &plain, Hits, Hits),
        ("g-debug-prefix-map", "-g -fdebug-prefix-map={cwd}=.", &plain, Hits, Hits),
        ("g-debug-prefix-map-word", "-g -fdebug-prefix-map={cwd}=/usr/src/x", &plain, Hits, Hits),
        ("g-file-prefix-map", "-g -ffile-prefix-map={cwd}=.", &plain, Hits, Hits),
        ("g-map-of-parent", "-g -ffile-prefix-map={root}=.", &plain, Differs, Differs),
        ("MD-MF", "-MD -MF out/x.d", &plain, Hits, Hits),
        ("MD-MF-MP-MT", "-MD -MP -MT target -MF out/x.d", &plain, Hits, Hits),
        ("MMD", "-MMD", &plain, Hits, Hits),
        ("FILE", "", &itself, Hits, Differs),
        ("FILE-file-prefix-map", "-ffile-prefix-map={cwd}=.", &itself, Hits, Hits),
        ("FILE-macro-prefix-map", "-fmacro-prefix-map={cwd}=.", &itself, Hits, Hits),
        ("coverage", "--coverage -frandom-seed=1", &plain, Differs, Differs),
        ("split-dwarf", "-g -gsplit-dwarf", &plain, Differs, Differs),
        ("gz", "-g -gz", &plain, Differs, Differs),
        ("sanitize", "-fsanitize=undefined", &plain, Hits, Differs),
        ("stack-usage", "-fstack-usage", &plain, Hits, Hits),
    ] {
        let flag = |path: &str| flags.replace("out/", path);
        cases.push(in_places(&format!("relative-{name}"), files, &format!("cc {} {RELATIVE}", flag("out/")), relative));
        cases.push(in_places(&format!("absolute-{name}"), files, &format!("cc {} {ABSOLUTE}", flag("{cwd}/out/")), absolute));
    }
    let mixed = [
        ("source-relative-I-absolute", "cc -MD -MF x.d -I{cwd}/inc -c src/x.c -o out/x.o", Hits),
        ("source-relative-output-absolute", "cc -MD -MF x.d -Iinc -c src/x.c -o {cwd}/out/x.o", Hits),
        ("source-absolute-output-relative", "cc -MD -Iinc -c {cwd}/src/x.c -o out/x.o", Hits),
        ("isystem-absolute", "cc -isystem {cwd}/inc -c src/x.c -o out/x.o", Hits),
        ("iquote-absolute", "cc -iquote {cwd}/inc -c src/x.c -o out/x.o", Hits),
        ("include-absolute", "cc -include {cwd}/inc/h.h -Iinc -c src/x.c -o out/x.o", Hits),
        ("sysroot-absolute", "cc --sysroot={cwd} -Iinc -c src/x.c -o out/x.o", Hits),
        ("define-own-path-unused", "cc '-DP=\"{cwd}\"' -Iinc -c src/x.c -o out/x.o", Hits),
        ("record-switches", "cc -frecord-gcc-switches -I{cwd}/inc -c src/x.c -o out/x.o", Differs),
        ("S-relative", "cc -Iinc -S src/x.c -o out/x.s", Hits),
        ("S-absolute", "cc -I{cwd}/inc -S {cwd}/src/x.c -o {cwd}/out/x.s", Hits),
        ("E-relative", "cc -Iinc -E src/x.c -o out/x.i", Hits),
        ("E-absolute", "cc -I{cwd}/inc -E {cwd}/src/x.c -o {cwd}/out/x.i", Hits),
        ("M-absolute", "cc -I{cwd}/inc -M {cwd}/src/x.c -MF {cwd}/out/x.d", Differs),
        ("syntax-only", "cc -I{cwd}/inc -fsyntax-only {cwd}/src/x.c", Hits),
        ("shared-relative", "cc -shared -fPIC -Iinc src/x.c -o out/x.so", Hits),
        ("shared-absolute", "cc -shared -fPIC -I{cwd}/inc {cwd}/src/x.c -o {cwd}/out/x.so", Hits),
        ("shared-rpath", "cc -shared -fPIC -Iinc src/x.c -Wl,-rpath,{cwd}/out -o out/x.so", Differs),
    ];
    cases.extend(mixed.map(|(name, cmd, far)| in_places(name, &plain, cmd, far)));
    cases.extend([
        in_places("clang-compilation-dir", &plain, "cc -g -ffile-compilation-dir=. -Iinc -c src/x.c -o out/x.o", Hits)
            .clang(),
        in_places("clang-coverage-mapping", &plain, "cc -fprofile-instr-generate -fcoverage-mapping -Iinc -c src/x.c -o out/x.o", Differs)
            .clang(),
        in_places("clang-MJ", &plain, "cc -MJ out/x.json -Iinc -c src/x.c -o out/x.o", Differs).clang(),
        in_places("clang-emit-llvm", &plain, "cc -emit-llvm -Iinc -c {cwd}/src/x.c -o out/x.bc", Differs).clang(),
        in_places("warning-relative", &[("src/x.c", "int f(void){int unused;return 1;}\n")], &format!("cc -Wall {RELATIVE}"), Hits),
        in_places("warning-absolute", &[("src/x.c", "int f(void){int unused;return 1;}\n")], &format!("cc -Wall {ABSOLUTE}"), Hits),
        in_places("error-relative", &[("src/x.c", "int f(void){return nope;}\n")], &format!("cc {RELATIVE}"), Hits),
        in_places("error-absolute", &[("src/x.c", "int f(void){return nope;}\n")], &format!("cc {ABSOLUTE}"), Hits),
        in_places("missing-header", &[("src/x.c", "#include \"none.h\"\n")], &format!("cc {RELATIVE}"), Hits),
    ]);
    cases
}

/// Lists the cases in which a macro of an input holds the checkout's path. It is used or not used.
#[rustfmt::skip]
fn own_path() -> Vec<Case> {
    let config = ("inc/config.h", "#define HAVE_X 1\n#define PREFIX \"@PLACE@/usr\"\n");
    let unit = |expression: &'static str| [("src/x.c", expression), config];
    let obj = format!("cc -O1 {RELATIVE}");
    let abs = format!("cc -O1 {ABSOLUTE}");
    let config_case = |name: &str, text: &'static str,
    far| in_places(&format!("own-path-{name}"), &unit(text), &obj, far);
    let file_case = |name: &str,
    text: &'static str| in_places(&format!("own-path-{name}"), &[("src/x.c", text), HEADER], &abs, Differs);
    let cxx_case = |name: &str, text: &'static str| {
        in_places(&format!("own-path-{name}"), &[("src/x.cc", text)], "c++ -std=c++20 -O1 -c {cwd}/src/x.cc -o out/x.o", Differs)
    };
    vec![
        config_case("unused", "#include \"config.h\"\nint f(void){return HAVE_X;}\n", Hits),
        config_case("used", "#include \"config.h\"\nconst char *f(void){return PREFIX;}\n", Differs),
        config_case("sizeof", "#include \"config.h\"\nint f(void){return sizeof PREFIX;}\n", Differs),
        config_case("letter", "#include \"config.h\"\nint f(void){return PREFIX[sizeof PREFIX - 9];}\n", Differs),
        config_case("compared", "#include \"config.h\"\nint f(void){return __builtin_strcmp(PREFIX, \"/a\") > 0;}\n", Differs),
        config_case("in-warning", "#include \"config.h\"\n#define S(x) _Pragma(#x)\n#define M(x) S(message x)\nM(PREFIX)\nint a;\n", Differs),
        config_case("in-assert", "#include \"config.h\"\n_Static_assert(sizeof PREFIX > 1, PREFIX);\nint a;\n", Hits),
        config_case("unused-with-assert", "#include <assert.h>\n#include \"config.h\"\nint f(int a){assert(a);return HAVE_X;}\n", Hits),
        config_case("in-dead-code", "#include \"config.h\"\nint puts(const char*);int f(void){if(0)puts(PREFIX);return 1;}\n", Hits)
            .need_not_hit(),
        config_case("in-section", "#include \"config.h\"\nint v __attribute__((section(\"s\"))) = sizeof PREFIX;\n", Differs),
        file_case("file-length", "int f(void){return sizeof __FILE__;}\n"),
        file_case("file-asserted", "_Static_assert(sizeof __FILE__ % 2, \"odd\");\nint a;\n"),
        file_case("builtin-file", "int f(void){return __builtin_strlen(__builtin_FILE());}\n"),
        file_case("file-letter", "int f(void){return __FILE__[sizeof __FILE__ - 9];}\n"),
        file_case("base-file", "const char *p = __BASE_FILE__;\n"),
        file_case("file-name-only", "#ifdef __FILE_NAME__\nconst char *p = __FILE_NAME__;\n#endif\nint a;\n")
            .need_not_hit(),
        file_case("line-directive", "#line 7 \"@PLACE@/other.c\"\nint f(void){return sizeof __FILE__;}\n"),
        cxx_case("source-location", "#include <source_location>\nconstexpr unsigned h(const char*p){unsigned r=5;while(*p)r=r*33+*p++;return r;}\n\
            unsigned v = h(std::source_location::current().file_name());\n").needs(crate::machine::Need::Works(
            "echo '#include <source_location>\nauto v = std::source_location::current();' > x.cc; clang++ -std=c++20 -c x.cc",
            "source_location in clang")),
        cxx_case("constexpr-hash", "constexpr unsigned h(const char*p){unsigned r=5;while(*p)r=r*33+*p++;return r;}\nunsigned v = h(__FILE__);\n"),
        cxx_case("template-argument", "template<unsigned N> struct A{static int v;};template<unsigned N> int A<N>::v=N;int*p=&A<sizeof __FILE__>::v;\n"),
        in_places("own-path-sizeof-by-D", &[("src/x.c", "int f(void){return sizeof P;}\n")], "cc '-DP=\"{cwd}\"' -c src/x.c -o out/x.o", Differs),
        in_places("own-path-by-D-parent", &[("src/x.c", "const char *f(void){return P;}\n")], "cc '-DP=\"{root}\"' -c src/x.c -o out/x.o", Differs)
            .need_not_hit(),
        in_places("own-path-in-asm", &[("src/x.S", ".data\n.string P\n")], "cc '-DP=\"{cwd}\"' -c src/x.S -o out/x.o", Differs),
        in_places("own-path-by-env", &[("src/x.c", "#include <h.h>\nint f(void){return H;}\n"), HEADER], "cc -c src/x.c -o out/x.o", Differs)
            .env("CPATH", "inc").need_not_hit(),
    ]
}
