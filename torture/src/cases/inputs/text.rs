//! Headers that change without effect on what is compiled, and with an effect that the preprocessed
//! text alone does not show. A header's first change is always a miss, and its second one a hit if
//! nothing that counts has changed.

use crate::case::{Case, case};
use crate::change::{all, put, rm, sh};

const STAMPED_C: &str = "#include \"c.h\"\nint a(int b){ return f(b); }\n";
const FUNCTION: &str = "static inline int f(int a){ return a + 1; }\n";

/// The header `c.h` has three versions, of which the third is a hit.
fn free(name: &str, cmd: &str, source: &str, versions: [&str; 3]) -> Case {
    changing(name, cmd, source, versions)
        .back("third", put("c.h", versions[2]))
        .back("first again", put("c.h", versions[0]))
}

/// The compiler sees the change of the third version, so it is a miss.
fn counts(name: &str, cmd: &str, source: &str, versions: [&str; 3]) -> Case {
    changing(name, cmd, source, versions)
        .then("third", put("c.h", versions[2]))
        .back("first again", put("c.h", versions[0]))
}

fn changing(name: &str, cmd: &str, source: &str, [first, second, _]: [&str; 3]) -> Case {
    case(format!("A/text-{name}"))
        .file("x.c", source)
        .file("c.h", first)
        .cmd(cmd)
        .twice()
        .changes("second", put("c.h", second))
}

/// Versions of a header: `{}` stands for a number in all that comes before `rest`.
fn numbered(text: &str, rest: &str) -> [String; 3] {
    ["1", "22", "333"].map(|number| format!("{}{rest}", text.replace("{}", number)))
}

fn free_by_number(name: &str, cmd: &str, source: &str, text: &str, rest: &str) -> Case {
    let versions = numbered(text, rest);
    free(name, cmd, source, versions.each_ref().map(String::as_str))
}

fn counts_by_number(name: &str, cmd: &str, source: &str, text: &str, rest: &str) -> Case {
    let versions = numbered(text, rest);
    counts(name, cmd, source, versions.each_ref().map(String::as_str))
}

#[rustfmt::skip]
pub(super) fn cases() -> Vec<Case> {
    let plain = "cc -O2 -Wall -Wextra -c x.c -o x.o";
    let debug = "cc -O1 -g -Wall -Wextra -c x.c -o x.o";
    let bare = "cc -c x.c -o x.o";
    let number = "#define A {}\n";
    let active = |pragma: &str, name: &str| format!("#include \"c.h\"\n{pragma}\n#ifdef {name}\nint a = A;\n#endif\nint b;\n");
    let looped = |pragma: &str| {
        format!("#include \"c.h\"\nvoid a(int *b, int c){{\n#pragma {pragma}\nfor (int i = 0; i < c; i++) b[i] += 3 * i;\n}}\n")
    };
    let stamp = "#define STAMP \"{}\"\n";
    let of_macro = "#include \"c.h\"\nint a = A;\n";
    let switch = "static inline int f(int a){ switch (a) { case 1: a++;{}\ncase 2: a += 2; } return a; }\n";
    let many: Vec<String> = (0..8).map(|number| format!("#define A {number}\n")).collect();
    let many = many.iter().skip(2).fold(
        changing("changes-each-time", plain, of_macro, [&many[0], &many[1], ""]),
        |case, text| case.then("changes", put("c.h", text)),
    );
    vec![
        free_by_number("unused-macro", plain, STAMPED_C, stamp, FUNCTION).both(),
        free_by_number("unused-macro-debug", debug, STAMPED_C, stamp, FUNCTION),
        free_by_number("unused-macro-dwarf4", "cc -g -gdwarf-4 -c x.c -o x.o", STAMPED_C, stamp, FUNCTION).both(),
        free_by_number("unused-macro-sanitized", "cc -fsanitize=undefined -c x.c -o x.o", STAMPED_C, stamp, FUNCTION),
        free_by_number("unused-macro-c++", "c++ -O2 -g -std=c++17 -c x.c -o x.o", STAMPED_C, stamp, FUNCTION),
        free_by_number("comment-behind", debug, STAMPED_C, "int g(int); // {}\nint h(int); /* {}\n {} */\n", FUNCTION),
        free_by_number("comment-alone", debug, STAMPED_C, "/* {} */\n", FUNCTION),
        free_by_number("inactive", debug, STAMPED_C, "#ifdef OFF\nint g{}(void);\n#endif\n", FUNCTION),
        free("blanks-in-macro", debug, "#include \"c.h\"\nF(a)\n", [
            "#define F(x) int x(int b){ return b + 1; }\n",
            "#define F(x)   int x(int b) {return b + 1 ;}\n",
            "#define F(x) int  x(int b) \\\n {return  b + 1 ;}\n",
        ]),
        free_by_number("depfile", "cc -MD -MP -MF x.d -c x.c -o x.o", STAMPED_C, stamp, FUNCTION).both(),
        free_by_number("depfile-users", "cc -MMD -c x.c -o x.o", STAMPED_C, stamp, FUNCTION).both(),
        free_by_number("forced", "cc -Wp,-MD,x.d -Os -include c.h -c x.c -o x.o", "int a;\n", stamp, "extern int a;\n").both(),
        free_by_number("tested-only", plain, STAMPED_C, "#define STAMP {}\n#ifdef STAMP\n#endif\n", FUNCTION).both(),
        many,
        // What counts.
        counts_by_number("used-macro", debug, of_macro, "#define A {}\n", "").both(),
        counts_by_number("used-macro-in-macro", debug, of_macro, "#define B {}\n#define A B\n", "").both(),
        counts("line-in-macro", plain, "#include \"c.h\"\nint a(int b){ return f(b); }\n", [
            "#define S 1\nstatic int f(int a){ return a + __LINE__; }\n",
            "#define S 2\nstatic int f(int a){ return a + __LINE__; }\n",
            "#define S 2\n\nstatic int f(int a){ return a + __LINE__; }\n",
        ]).both(),
        counts("line", debug, STAMPED_C, [
            "#define S 1\nstatic int f(int a){ return a + 1; }\n",
            "#define S 2\nstatic int f(int a){ return a + 1; }\n",
            "#define S 2\n\nstatic int f(int a){ return a + 1; }\n",
        ]).both(),
        counts("column", debug, STAMPED_C, [
            "/* a */ static inline int f(int a){ return a + 1; }\n",
            "/* b */ static inline int f(int a){ return a + 1; }\n",
            "/* some */ static inline int f(int a){ return a + 1; }\n",
        ]).both(),
        counts("column-within", debug, STAMPED_C, [
            "static inline int f(int a){ return a + 1; } // a\n",
            "static inline int f(int a){ return a + 1; } // b\n",
            "static inline int f(int a){ /* c */ return a + 1; }\n",
        ]).both(),
        counts("column-of-arguments", debug, "#include \"c.h\"\nint a(int b){ return f(b); }\n", [
            "#define F(x, y) x + y\nstatic int f(int a){ return F(a,\n  a)+a*f(a-1); } // a\n",
            "#define F(x, y) x + y\nstatic int f(int a){ return F(a,\n  a)+a*f(a-1); } // b\n",
            "#define F(x, y) x + y\nstatic int f(int a){ return F(a,\n a)+a*f(a-1); } // b\n",
        ]).both(),
        counts("column-builtin", "cc -c x.c -o x.o", STAMPED_C, [
            "static int f(int a){ return a + __builtin_COLUMN(); } // a\n",
            "static int f(int a){ return a + __builtin_COLUMN(); } // b\n",
            "static int f(int a){ return  a + __builtin_COLUMN(); }\n",
        ]).clang(),
        counts("column-source-location", "c++ -std=c++20 -c x.c -o x.o", STAMPED_C, [
            "#include <source_location>\nstatic int f(int a){ return a + std::source_location::current().column(); } // a\n",
            "#include <source_location>\nstatic int f(int a){ return a + std::source_location::current().column(); } // b\n",
            "#include <source_location>\nstatic int f(int a){ return  a + std::source_location::current().column(); } // b\n",
        ]),
        counts("column-in-warning", plain, STAMPED_C, [
            "static int f(int a){\n if (a)\n  a++;\nreturn a; }  /* a */\n",
            "static int f(int a){\n if (a)\n  a++;\nreturn a; }  /* b */\n",
            "static int f(int a){\n if (a)\n  a++;\n  return a; }  /* b */\n",
        ]).both(),
        counts_by_number("fall-through", plain, STAMPED_C, &switch.replace("{}", " /* {} fallthrough */"), ""),
        counts("fall-through-gone", plain, STAMPED_C, [
            &switch.replace("{}", " /* fallthrough */ /* a */"),
            &switch.replace("{}", " /* fallthrough */ /* b */"),
            &switch.replace("{}", " /* falls */"),
        ]),
        counts_by_number("macros-in-debug-information", "cc -g3 -c x.c -o x.o", STAMPED_C, stamp, FUNCTION).both(),
        counts_by_number("macros-in-debug-information-gdb", "cc -ggdb3 -c x.c -o x.o", STAMPED_C, stamp, FUNCTION).both(),
        counts_by_number("macros-in-debug-information-flag", "cc -g -fdebug-macro -c x.c -o x.o", STAMPED_C, stamp, FUNCTION).clang(),
        counts_by_number("checksums", "cc -g -gdwarf-5 -c x.c -o x.o", STAMPED_C, stamp, FUNCTION).both(),
        counts_by_number("saved", "cc -save-temps -c x.c -o x.o", STAMPED_C, stamp, FUNCTION).both(),
        counts_by_number("unused-macros-warned", "cc -Wunused-macros -c x.c -o x.o", "#include \"c.h\"\n#define B A\nint a;\n", stamp, "").both(),
        counts_by_number("message", plain, "#include \"c.h\"\nint a(void){ int unused; return 1; }\n", stamp, "").both(),
        counts("message-appears", plain, STAMPED_C, [
            "#define S 1\nstatic int f(int a){ return a + 1; }\n",
            "#define S 2\nstatic int f(int a){ return a + 1; }\n",
            "#warning S\nstatic int f(int a){ return a + 1; }\n",
        ]).both(),
        counts("macro-is-defined-again", plain, STAMPED_C, [
            "#define S 1\n#define T 1\nstatic int f(int a){ return a + 1; }\n",
            "#define S 2\n#define T 1\nstatic int f(int a){ return a + 1; }\n",
            "#define S 2\n#define S 1\nstatic int f(int a){ return a + 1; }\n",
        ]).both(),
        counts_by_number("assembler-source", "cc -c x.S -o x.o", "", stamp, "").file("x.S", "#include \"c.h\"\n nop\n"),
        counts_by_number("preprocessed", "cc -E x.c -o x.o", STAMPED_C, stamp, FUNCTION).both(),
        counts_by_number("comments-kept", "cc -E -C x.c -o x.o", STAMPED_C, "/* {} */\n", FUNCTION).both(),
        counts_by_number("incbin", "cc -c x.c -o x.o", "#include \"c.h\"\nasm(\".incbin \\\"c.h\\\"\");\n", stamp, "").both(),
        counts_by_number("incbin-in-pieces", "cc -c x.c -o x.o", "#include \"c.h\"\nasm(\".inc\" \"bin \\\"c\" \".h\\\"\");\n", stamp, "").both(),
        counts_by_number("incbin-alone", "cc -c x.c -o x.o", "asm(\".incbin \\\"c.h\\\"\");\n", stamp, "").both(),
        counts("line-directive", debug, STAMPED_C, [
            "#line 7 \"y.h\"\nstatic int f(int a){ return a + 1; } // a\n",
            "#line 7 \"y.h\"\nstatic int f(int a){ return a + 1; } // b\n",
            "#line 8 \"y.h\"\nstatic int f(int a){ return a + 1; } // b\n",
        ]).both(),
        counts("line-directive-column", debug, STAMPED_C, [
            "#line 7 \"y.h\"\nstatic int f(int a){ return a + 1; } // a\n",
            "#line 7 \"y.h\"\nstatic int f(int a){ return a + 1; } // b\n",
            "#line 7 \"y.h\"\nstatic int f(int a){ /**/ return a + 1; } // b\n",
        ]).both(),
        // What the preprocessor does only in a compile.
        counts_by_number("pragma-target", bare, &active("#pragma GCC target(\"avx2\")", "__AVX2__"), number, "").both(),
        counts_by_number("pragma-optimize", bare, &active("#pragma GCC optimize(\"fast-math\")", "__FAST_MATH__"), number, "").both(),
        counts_by_number("pragma-in-macro", bare, &active("#define P _Pragma(\"GCC optimize(\\\"O2\\\")\")\nP", "__OPTIMIZE__"), number, "").both(),
        counts_by_number("pragma-unroll", "cc -O2 -c x.c -o x.o", &looped("unroll A"), number, "").both(),
        counts_by_number("pragma-loop", "cc -O2 -c x.c -o x.o", &looped("clang loop unroll_count(A)"), number, "").both(),
        counts("pragma-pack", bare, "#include \"c.h\"\n#pragma pack(A)\nstruct s { char a; long b; };\nint a = sizeof(struct s);\n",
            ["#define A 1\n", "#define A 2\n", "#define A 4\n"]).clang(),
        counts("pragma-weak", bare, "#include \"c.h\"\n#pragma weak A\nint a, b;\n",
            ["#define A a\n", "#define A  a\n", "#define A b\n"]).clang(),
        counts("pragma-warns", bare, "#pragma GCC diagnostic warning \"-Wundef\"\n#include \"c.h\"\n#if A\n#endif\nint a;\n",
            ["#define A 0\n#define B 1\n", "#define A 0\n#define B 2\n", "#define B 3\n"]).both(),
        counts("pragma-fails", bare, "#pragma GCC diagnostic error \"-Wundef\"\n#include \"c.h\"\n#if A\n#endif\nint a;\n",
            ["#define A 0\n#define B 1\n", "#define A 0\n#define B 2\n", "#define B 3\n"]).both(),
        counts("pragma-documentation", bare, "#pragma GCC diagnostic warning \"-Wdocumentation\"\n#include \"c.h\"\nint a;\n",
            ["/** @param a b */\nint f(int a);\n", "/** @param a c */\nint f(int a);\n", "/** @param d c */\nint f(int a);\n"]).clang(),
        free_by_number("harmless-pragmas", plain, "#pragma GCC diagnostic push\n#pragma GCC diagnostic ignored \"-Wall\"\n#include \"c.h\"\n\
            #pragma GCC diagnostic pop\n#pragma GCC visibility push(hidden)\n#pragma pack(push, 1)\nint a;\n#pragma pack(pop)\n", number, "").both(),
        free_by_number("instruction-set-headers", "cc -O2 -c x.c -o x.o", "#include <immintrin.h>\n#include \"c.h\"\nint a;\n", number, "").both(),
        counts("name-of-lambda", "c++ -c x.c -o x.o", "#include \"c.h\"\nconst char *a = f();\n", ["/*a*/", "/*b*/", "/*cc*/"].map(|comment| format!(
            "template<class T> const char *n(T){{ return __PRETTY_FUNCTION__; }}\ninline const char *f(){{ {comment} return n([]{{}}); }}\n",
        )).each_ref().map(String::as_str)).both(),
        counts("warning-by-default", bare, STAMPED_C, [
            "#define E (a == 1)\nstatic int f(int a){ if (E) return 1; return 0; } // a\n",
            "#define E (a == 1)\nstatic int f(int a){ if (E) return 1; return 0; } // b\n",
            "#define F (a == 1)\nstatic int f(int a){ if ((a == 1)) return 1; return 0; } // b\n",
        ]).both(),
        counts("macro-of-its-own-name", plain, "#include \"c.h\"\nint a(int b){ b = b; return b; }\n",
            ["#define b b\n#define S 1\n", "#define b b\n#define S 2\n", "#define S 2\n"]).both(),
        counts("function-macro-of-its-own-name", "cc -g -gdwarf-4 -c x.c -o x.o", "#include \"c.h\"\nint f(int); int a(int b){ return f(b/3); }\n",
            ["#define f(x) f(x)\n#define S 1\n", "#define f(x) f(x)\n#define S 2\n", "#define S 2\n"]).both(),
        counts("directive-in-indented-lines", plain, STAMPED_C, [
            "static int f(int a){\n    if (a)\n        a++;\n#if S == 1\n#endif\n        a++;\n    return a;\n}\n",
            "static int f(int a){\n    if (a)\n        a++;\n#if S == 2\n#endif\n        a++;\n    return a;\n}\n",
            "static int f(int a){\n    if (a)\n        a++;\n\n\n        a++;\n    return a;\n}\n",
        ]).both(),
        counts("comment-in-indented-lines", plain, STAMPED_C, [
            "static int f(int a){\n    if (a)\n        a++;\n // a\n        a++;\n    return a;\n}\n",
            "static int f(int a){\n    if (a)\n        a++;\n // b\n        a++;\n    return a;\n}\n",
            "static int f(int a){\n    if (a)\n        a++;\n        // b\n        a++;\n    return a;\n}\n",
        ]).both(),
        counts("counter", plain, "#include \"c.h\"\nint a = __COUNTER__;\n", [
            "#define S 1\n", "#define S 2\n", "#if __COUNTER__\n#endif\n",
        ]).both(),
        counts("pushed-macro", plain, of_macro, [
            "#define A 1\n#pragma push_macro(\"A\")\n#undef A\n#define A 2\n",
            "#define A 1\n#pragma push_macro(\"A\")\n#undef A\n#define A 2 /**/\n",
            "#define A 1\n#pragma push_macro(\"A\")\n#undef A\n#define A 2\n#pragma pop_macro(\"A\")\n",
        ]).both(),
        counts("includes-another", "cc -MD -c x.c -o x.o", STAMPED_C, [
            "#define S 1\n\nstatic int f(int a){ return a + 1; }\n",
            "#define S 2\n\nstatic int f(int a){ return a + 1; }\n",
            "#define S 2\n#include \"n.h\"\nstatic int f(int a){ return a + 1; }\n",
        ]).both().file("n.h", ""),
        counts("includes-again", "cc -MD -c x.c -o x.o", "#include \"n.h\"\n#include \"c.h\"\nint a(int b){ return f(b); }\n", [
            "#define S 1\n\nstatic int f(int a){ return a + 1; }\n",
            "#define S 2\n\nstatic int f(int a){ return a + 1; }\n",
            "#define S 2\n#include \"d/../n.h\"\nstatic int f(int a){ return a + 1; }\n",
        ]).both().dir("d").file("n.h", "#pragma once\n"),
        // A file appears that only the third version looks for.
        changing("looks-for-another", plain, STAMPED_C, [
            "#define S 1\n\n\nstatic int f(int a){ return a + 1; }\n", "#define S 2\n\n\nstatic int f(int a){ return a + 1; }\n", "",
        ]).both()
            .back("third", put("c.h", "#if __has_include(\"n.h\")\n#include \"n.h\"\n#endif\nstatic int f(int a){ return a + 1; }\n"))
            .then("appears", put("n.h", "int n;\n"))
            .then("changes", put("n.h", "int m;\n"))
            .back("is gone", rm("n.h")),
        changing("other-input-changes", plain, "#include \"c.h\"\n#include \"n.h\"\nint a = N;\n", ["#define S 1\n", "#define S 2\n", ""])
            .both().file("n.h", "#define N 1\n")
            .then("both change", all([put("c.h", "#define S 3\n"), put("n.h", "#define N 2\n")]))
            .then("the other alone", put("n.h", "#define N 3\n"))
            .back("back", put("n.h", "#define N 1\n")),
        changing("is-gone", plain, STAMPED_C, ["#define S 1\nint f(int);\n", "#define S 2\nint f(int);\n", ""]).both()
            .then("gone", rm("c.h"))
            .then("is a directory", sh("mkdir c.h"))
            .back("back", all([sh("rmdir c.h"), put("c.h", "#define S 3\nint f(int);\n")])),
        changing("fails", plain, STAMPED_C, ["#define S 1\nint f(int);\n", "#define S 2\nint f(int);\n", ""]).both()
            .then("error", put("c.h", "#error S\nint f(int);\n"))
            .then("syntax error", put("c.h", "#define S 3\nint f(int;\n"))
            .back("back", put("c.h", "#define S 3\nint f(int);\n")),
    ]
}
