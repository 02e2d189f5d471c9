//! Results that are derived from a checkout's path without containing it, and results that contain
//! it without being derived from it.

use super::checkouts::{ABSOLUTE, FAR, Far, HEADER, RELATIVE, SOURCE, fill, in_places, in_two};
use crate::case::{Case, case};
use crate::change::{all, nothing, put, symlink};
use crate::machine::Need;

#[rustfmt::skip]
pub(super) fn cases() -> Vec<Case> {
    let plain = [SOURCE, HEADER];
    let unit = |text: &'static str| [("src/x.c", text), HEADER];
    let config = |text: &'static str| [("src/x.c", "#include \"config.h\"\nint f(void){return HAVE_X;}\n"), ("inc/config.h", text)];
    let names_itself = [("src/x.c", "#include <n.h>\nconst char *f(void){return n();}\n"),
        ("inc/n.h", "#ifndef N\n#define N(x) __FILE__\n#endif\nstatic inline const char *n(void){return N(1);}\n")];
    let relative = format!("cc -O1 {RELATIVE}");
    let absolute = format!("cc -O1 {ABSOLUTE}");
    let derived = |name: &str, files: &[(&str, &str)], cmd: &str, far| in_places(&format!("derived-{name}"), files, cmd, far);
    let mut cases = vec![
        // A prefix map that removes a part of the checkout's path. The rest of the path is left in
        // the result.
        derived("map-half-a-name", &plain, "cc -g -ffile-prefix-map={root}/=x -Iinc -c {cwd}/src/x.c -o out/x.o", Far::Differs),
        derived("map-of-slash", &plain, "cc -g -fdebug-prefix-map=/=R -Iinc -c src/x.c -o out/x.o", Far::Differs),
        derived("map-of-all", &unit("const char *p = __FILE__;\n"), "cc -fmacro-prefix-map={cwd}/src=S -c {cwd}/src/x.c -o out/x.o", Far::Hits),
        // Debug information of a source from which gcc emits nothing. If the source's path is absolute, two
        // places may need orders of two strings that cannot be told apart.
        derived("nothing-g", &unit(""), &format!("cc -g {RELATIVE}"), Far::Hits),
        derived("nothing-g-absolute", &unit("#ifdef OTHER_SYSTEM\nint f(void){return 1;}\n#endif\n"), &format!("cc -g {ABSOLUTE}"), Far::Differs),
        derived("nothing-static-g", &unit("static inline int f(void){return 1;}\n"), &format!("cc -g -O1 {RELATIVE}"), Far::Hits),
        derived("nothing-g-in-c++", &unit("namespace {}\n"), &format!("cc -g -x c++ {RELATIVE}"), Far::Hits),
        // Numbers that are derived from a path.
        derived("file-length-pasted", &unit("#define P(a,b) a##b\nint f(void){return sizeof P(__FI,LE__);}\n"), &absolute, Far::Differs),
        derived("file-in-array-size", &unit("char v[sizeof __FILE__];\n"), &absolute, Far::Differs),
        derived("file-in-include-path", &unit("#include \"h.h\"\nint f(void){return H + __LINE__;}\n"), &absolute, Far::Hits),
        // What `-E` does not show.
        derived("file-below-pragma", &unit("#pragma GCC optimize(\"fast-math\")\n#ifdef __FAST_MATH__\nint f(void){return sizeof __FILE__;}\n#endif\n"), &absolute, Far::Differs),
        derived("root-in-pragma", &unit("void f(int *a, int n){\n#pragma unroll(sizeof ROOT)\nfor (int i = 0; i < n; i++) a[i] += 3 * i;\n}\n"), "cc -O2 -DROOT='\"{cwd}\"' -Iinc -c src/x.c -o out/x.o", Far::Differs),
        derived("base-file-length", &unit("int f(void){return sizeof __BASE_FILE__;}\n"), &absolute, Far::Differs),
        derived("assert-unused", &unit("#include <assert.h>\nint f(int a){return a;}\n"), &absolute, Far::Hits),
        derived("assert-used", &unit("#include <assert.h>\nint f(int a){assert(a);return a;}\n"), &absolute, Far::Differs),
        derived("assert-relative", &unit("#include <assert.h>\nint f(int a){assert(a);return a;}\n"), &relative, Far::Hits),
        // A header that uses its own name, and is found by a relative or an absolute path.
        derived("header-names-itself-relative", &names_itself, "cc -O1 -Iinc -c {cwd}/src/x.c -o out/x.o", Far::Hits),
        derived("header-names-itself-absolute", &names_itself, "cc -O1 -I{cwd}/inc -c {cwd}/src/x.c -o out/x.o", Far::Differs),
        derived("header-names-itself-both", &names_itself, "cc -O1 -Iother -I{cwd}/inc -c {cwd}/src/x.c -o out/x.o", Far::Differs),
        derived("define-length", &unit("int f(void){return sizeof P;}\n"), "cc '-DP=\"{cwd}/x\"' -Iinc -c src/x.c -o out/x.o", Far::Differs),
        derived("define-in-if", &unit("#if defined(P)\nint f(void){return 1;}\n#endif\n"), "cc '-DP=\"{cwd}/x\"' -Iinc -c src/x.c -o out/x.o", Far::Hits),
        derived("define-in-warning", &unit("int f(void){return P;}\n"), "cc -Wall '-DP=\"{cwd}/x\"' -Iinc -c src/x.c -o out/x.o", Far::Differs),
        // Columns after a path in a comment.
        derived("comment-column", &config("#define HAVE_X 1\n/* @PLACE@ */ static inline int g(int a) { return a / 2; }\n"), &format!("cc -g -O0 {RELATIVE}"), Far::Differs),
        derived("comment-column-warning", &config("#define HAVE_X 1\n/* @PLACE@ */ static int g(int a) { int unused; return a; }\n"), &format!("cc -Wall {RELATIVE}"), Far::Differs),
        derived("comment-without-debug", &config("/* Made in @PLACE@. */\n#define HAVE_X 1\n"), &relative, Far::Hits),
        derived("config-and-debug", &config("#define HAVE_X 1\n#define PREFIX \"@PLACE@/usr\"\n"), &format!("cc -g {RELATIVE}"), Far::Hits),
        derived("config-and-macros-debug", &config("#define HAVE_X 1\n#define PREFIX \"@PLACE@/usr\"\n"), &format!("cc -g3 {RELATIVE}"), Far::Hits),
        derived("config-continued", &config("#define HAVE_X 1\n#define PREFIX \\\n  \"@PLACE@/usr\"\n"), &format!("cc -g {RELATIVE}"), Far::Differs),
        derived("config-absolute-depfile", &config("#define HAVE_X 1\n#define PREFIX \"@PLACE@/usr\"\n"), &format!("cc -MD -MF {{cwd}}/out/x.d {ABSOLUTE}"), Far::Hits),
        // Checksums of sources, which clang writes into debug information.
        derived("config-declares-and-debug", &config("#define PREFIX \"@PLACE@/usr\"\n#define HAVE_X g()\nstatic inline int g(void) { return 1; }\n"), &format!("cc -g {RELATIVE}"), Far::Differs),
        derived("config-declares-and-debug-S", &config("#define PREFIX \"@PLACE@/usr\"\n#define HAVE_X g()\nstatic inline int g(void) { return 1; }\n"), "cc -g -fdebug-prefix-map={cwd}=. -Iinc -S src/x.c -o out/x.s", Far::Differs),
        derived("config-declares-and-debug-linked", &config("#define PREFIX \"@PLACE@/usr\"\n#define HAVE_X g()\nstatic inline int g(void) { return 1; }\n"), "cc -g -shared -fPIC -Iinc src/x.c -o out/x.so", Far::Differs),
        derived("config-and-old-debug", &config("#define PREFIX \"@PLACE@/usr\"\n#define HAVE_X g()\nstatic inline int g(void) { return 1; }\n"), &format!("cc -gdwarf-4 -fdebug-prefix-map={{cwd}}=. {RELATIVE}"), Far::Hits),
        // Linker options that remove paths. gold leaves the offsets of strings that it removed.
        derived("linked-and-stripped-for-gdb", &plain, "cc -g -shared -fPIC -fuse-ld=gold -Wl,--strip-debug-gdb -Iinc src/x.c -o out/x.so", Far::Differs).program("ld.gold"),
        derived("linked-and-stripped", &plain, "cc -g -shared -fPIC -Wl,--strip-debug -Iinc src/x.c -o out/x.so", Far::Hits),
        // A line end (carriage return) that only gcc recognizes.
        derived("config-carriage-return", &config("#define HAVE_X 1\rint n = sizeof \"@PLACE@\";\n"), &relative, Far::Differs),
        // A text file whose name looks like that of a library.
        derived("named-in-what-is-called-like-a-library", &[("src/x.c", "#include \"config.h\"\n#include \"x.so\"\n"), ("inc/config.h", "#define PREFIX \"@PLACE@/usr\"\n"), ("inc/x.so", "int n = sizeof PREFIX;\n")], &relative, Far::Differs),
        // Inputs that the assembler reads.
        derived("assembled-length", &[("src/x.c", "__asm__(\".include \\\"inc/n.inc\\\"\\n.data\\n.long n\\n.text\");\n"), ("inc/n.inc", ".set n, 0\n.irpc c,\"@PLACE@\"\n.set n, n+1\n.endr\n")], &relative, Far::Differs),
        derived("assembled-config", &[("src/x.c", "__asm__(\".data\\n.incbin \\\"inc/config.h\\\", 18\\n.text\");\n"), ("inc/config.h", "#define PREFIX \"@PLACE@/usr\"\n")], &relative, Far::Differs),
        derived("line-names-generator", &unit("#line 3 \"@PLACE@/x.y\"\nint f(void){return 1;}\n"), &relative, Far::Hits),
        derived("line-names-generator-g", &unit("#line 3 \"@PLACE@/x.y\"\nint f(void){return 1;}\n"), &format!("cc -g {RELATIVE}"), Far::Hits),
        derived("static-assert-length", &unit("#define L(x) (sizeof(x) % 7)\nint v[L(\"@PLACE@\") + 1];\n"), &relative, Far::Differs),
        // Messages that are wrapped at a column.
        derived("message-length", &unit("int f(void){int an_unused_variable_with_a_long_name; return 1;}\n"), &format!("cc -Wall -fmessage-length=50 {ABSOLUTE}"), Far::Differs),
        derived("message-length-none", &unit("int f(void){int an_unused_variable_with_a_long_name; return 1;}\n"), &format!("cc -Wall -fmessage-length=0 {ABSOLUTE}"), Far::Hits),
        // Sources that are preprocessed already.
        derived("preprocessed-before", &[("src/x.i", "int n = sizeof \"@PLACE@\";\n")], "cc -c src/x.i -o out/x.o", Far::Differs),
        derived("preprocessed-before-file-length", &[("src/x.i", "int n = sizeof __builtin_FILE();\nint f(void){return __builtin_strlen(__builtin_FILE());}\n")], "cc -O1 -c {cwd}/src/x.i -o out/x.o", Far::Differs),
        derived("preprocessed-before-unused", &[("src/x.i", "# 1 \"@PLACE@/src/x.c\"\nint f(void){return 1;}\n")], "cc -c {cwd}/src/x.i -o out/x.o", Far::Hits),
        // Paths that are shortened or matched with patterns.
        derived("instrumented-by-name", &plain, "cc -finstrument-functions -finstrument-functions-exclude-file-list=/another -Iinc -c {cwd}/src/x.c -o out/x.o", Far::Differs),
        derived("sanitized-with-name-cut", &unit("int f(int a, int b){return a << b;}\n"), "cc -fsanitize=shift -fsanitize-undefined-strip-path-components=3 -Iinc -c {cwd}/src/x.c -o out/x.o", Far::Differs),
        derived("sanitized-by-name", &[("src/x.c", "int f(int a, int b){return a << b;}\n"), ("src/list", "src:*/another*\n")], "cc -fsanitize=shift -fsanitize-ignorelist=src/list -c {cwd}/src/x.c -o out/x.o", Far::Differs),
        // Paths that the compiler rewrites.
        derived("isystem-goes-up", &unit("#include <h.h>\nint f(void){return H;}\n"), "cc -MD -MF out/x.d -isystem src/../inc -c src/x.c -o out/x.o", Far::Differs),
        derived("isystem-plain", &unit("#include <h.h>\nint f(void){return H;}\n"), "cc -MD -MF out/x.d -isystem inc -c src/x.c -o out/x.o", Far::Hits),
        derived("random-seed-absolute", &unit("#include \"h.h\"\nint f(void){return H;}\n"), &format!("cc -frandom-seed=1 {ABSOLUTE}"), Far::Differs),
        derived("random-seed-relative", &unit("#include \"h.h\"\nint f(void){return H;}\n"), &format!("cc -frandom-seed=1 {RELATIVE}"), Far::Hits),
        derived("profile-use", &plain, &format!("cc -O2 -fprofile-use -Wno-missing-profile {ABSOLUTE}"), Far::Differs),
        derived("lto", &plain, &format!("cc -flto -frandom-seed=1 {RELATIVE}"), Far::Differs),
        derived("embedded-in-asm", &unit("__asm__(\".section s\\n.asciz \\\"@PLACE@\\\"\");\n"), &relative, Far::Differs),
        derived("wide-file", &unit("#define W(x) L##x\n#define V(x) W(x)\nconst int *p = (const int *)V(__FILE__);\n"), &absolute, Far::Differs),
        // A directory beside the checkout, whose path begins with all of the checkout's path.
        case("B/derived-beside").both().setup(fill("a", &plain)).setup(fill("b", &plain))
            .setup(all([put("a @2/h2.h", "#define H2 1\n"), put("b @2/h2.h", "#define H2 2\n"),
                put("a/src/x.c", "#include <h2.h>\nint f(void){return H2;}\n"), put("b/src/x.c", "#include <h2.h>\nint f(void){return H2;}\n")]))
            .cmd("cc -c '-I{cwd} @2' src/x.c -o out/x.o").cwd("a").twice().cwd("b").changes("elsewhere", nothing()),
        // A header outside of the checkouts, which is the same for both.
        case("B/derived-outside-names-first").both().setup(fill("a", &plain)).setup(fill(FAR, &plain))
            .setup(put("shared/s.h", "#define S \"@ROOT@/a/x\"\n")).setup(put("a/src/x.c", "#include <s.h>\nconst char *f(void){return S;}\n"))
            .setup(put(format!("{FAR}/src/x.c"), "#include <s.h>\nconst char *f(void){return S;}\n"))
            .cmd(&format!("cc -g -I{{root}}/shared {RELATIVE}")).cwd("a").twice().cwd(FAR).changes("elsewhere", nothing()).may_miss(),
        case("B/derived-header-is-a-link").both().setup(fill("a", &plain)).setup(fill(FAR, &plain))
            .setup(all([put("real/h.h", HEADER.1), crate::change::rm("a/inc/h.h"), symlink("@ROOT@/real/h.h", "a/inc/h.h"),
                crate::change::rm(format!("{FAR}/inc/h.h")), symlink("@ROOT@/real/h.h", format!("{FAR}/inc/h.h"))]))
            .cmd(&format!("cc -g -MD -MF out/x.d {ABSOLUTE}")).cwd("a").twice().cwd(FAR).back("elsewhere", nothing()),
    ];
    cases.push(in_two(case("B/derived-instrumented-by-relative-name"), &plain,
        &format!("cc -finstrument-functions -finstrument-functions-exclude-file-list=/another {RELATIVE}"), Far::Hits, FAR));
    // A directory of the checkout has the name of a macro that the compiler defines.
    cases.push(in_two(case("B/derived-place-is-a-macro").both(), &unit("#define Q(x) #x\n#define S(x) Q(x)\nint n = sizeof S(P);\n"),
        &format!("cc -DP={{cwd}} {RELATIVE}"), Far::Differs, "b/linux/p"));
    cases.push(in_two(case("B/derived-place-is-a-macro-E").both(), &unit("const char *p = P;\n"),
        "cc -DP={cwd} -E src/x.c -o out/x.i", Far::Differs, "b/linux/p"));
    // Token pasting of traditional preprocessors.
    cases.push(in_two(case("B/derived-traditional"), &[("src/x.c", "#include \"config.h\"\n#define C(a,b) a/**/b\nint n = sizeof C(PRE,FIX);\n"), ("inc/config.h", "#define PREFIX \"@PLACE@/usr\"\n")],
        &format!("cc -traditional-cpp {RELATIVE}"), Far::Differs, FAR));
    cases.push(in_places("derived-lambda-name", &[("src/x.cc", "template<class T> int n(T){return sizeof __PRETTY_FUNCTION__;}\nint f(){return n([]{});}\n")],
        "c++ -std=c++17 -c {cwd}/src/x.cc -o out/x.o", Far::Differs));
    // A macro call that ends in different places depending on a condition, with `__FILE__` in its
    // arguments.
    cases.push(in_places("derived-pasted-between-conditions", &unit("#define CAT(a,b) a##b\nint f(int); int x;\nint g(void){int n = sizeof CAT(__FI,\n#if Z > 1\n x);\n n += f(\n#endif\n LE__); return n;}\n"),
        &absolute, Far::Differs));
    cases.extend(hashes());
    // A link whose path is longer than its target. For system directories, gcc uses the shorter
    // path.
    let link = "l".repeat(150);
    let linked = ["a", FAR, super::checkouts::THIRD].iter().fold(case("B/derived-isystem-through-a-link").both(), |case, place| {
        case.setup(symlink("inc", format!("{place}/{link}")))
    });
    cases.push(in_two(linked, &[("src/x.c", "#include <n.h>\nconst char *f(void){return n;}\n"), ("inc/n.h", "static const char *n = __FILE__;\n")],
        &format!("cc -isystem {link} -c src/x.c -o out/x.o"), Far::Differs, FAR));
    // A system header that uses its own name.
    cases.push(in_two(case("B/derived-asserts-of-the-library"), &[("src/x.cc", "#include <vector>\nint f(std::vector<int> &v){return v[1];}\n")],
        "c++ -O1 -D_GLIBCXX_ASSERTIONS -c {cwd}/src/x.cc -o out/x.o", Far::Hits, FAR));
    cases.push(in_places("derived-static-constructor", &[("src/x.cc", "namespace { struct S { S(); ~S(); } s; S::S() {} S::~S() {} }\n")],
        "c++ -c {cwd}/src/x.cc -o out/x.o", Far::Hits));
    cases
}

/// Results with a hash of the source's path as it is on the command line.
#[rustfmt::skip]
fn hashes() -> Vec<Case> {
    let unit = |text: &'static str| [("src/x.cc", text), HEADER];
    let globals = unit("int g1 = 3; static int g2 = 4; int *p(void){ return &g2; }\n");
    let statics = unit("static int g(int a){return a * 3;}\nint (*p)(int) = g;\n");
    let namespaces = unit("namespace { struct S { virtual int g(); }; int S::g() {return 1;} }\nint f(){S s; return s.g();}\n");
    let mut cases = Vec::new();
    for (name, files, flags) in [
        ("tags", &globals, "--target=aarch64-linux-gnu -fsanitize=hwaddress"),
        ("probes", &statics, "-fpseudo-probe-for-profiling"),
        ("anonymous-namespace", &namespaces, "--target=x86_64-pc-windows-msvc -mno-incremental-linker-compatible"),
    ] {
        for (kind, place, far) in [("absolute", "{cwd}/", Far::Differs), ("relative", "", Far::Hits)] {
            let case = case(format!("B/derived-hash-{name}-{kind}")).clang()
                .needs(Need::Works("echo > x.cc; clang++ --target=aarch64-linux-gnu -S x.cc", "clang for other processors"));
            cases.push(in_two(case, files, &format!("c++ {flags} -c {place}src/x.cc -o out/x.o"), far, FAR));
        }
    }
    // Options that are not on the command line.
    let unique = "-funique-internal-linkage-names";
    let configured = [statics[0], HEADER, ("o.cfg", "# Names.\n-funique-internal-linkage-names\n")];
    cases.push(in_two(case("B/derived-hash-by-configuration").clang(), &configured,
        "c++ --config ./o.cfg -c {cwd}/src/x.cc -o out/x.o", Far::Differs, FAR));
    cases.push(in_two(case("B/derived-hash-by-variable").clang().env("CCC_OVERRIDE_OPTIONS", format!("# +{unique}")), &statics,
        "c++ -c {cwd}/src/x.cc -o out/x.o", Far::Differs, FAR));
    let configured = [statics[0], HEADER, ("o.cfg", "-g\n")];
    cases.push(in_two(case("B/derived-configuration").clang(), &configured,
        "c++ --config ./o.cfg -c {cwd}/src/x.cc -o out/x.o", Far::Hits, FAR));
    cases
}
