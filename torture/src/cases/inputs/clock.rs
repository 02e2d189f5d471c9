//! Cases in which the result depends on the time of the compile, on `SOURCE_DATE_EPOCH`, or on
//! mtimes of files, and cases that only look as if it did.

use crate::case::{Case, case};
use crate::change::{AGE_S, Change, all, nothing, put, rm, touch};
use std::time::Duration;

const AND_WHY: &str = "the clock ticks between the two runs";

fn text(macro_name: &str) -> String {
    format!("const char *p = {macro_name};\n")
}

/// A case whose result contains the current second, so no run may hit.
fn now(name: &str, cmd: &str, files: &[(&str, &str)]) -> Case {
    let later = Change::Sleep(Duration::from_millis(1100));
    let case = case(format!("A/time-{name}")).both().any_time().files(files).cmd(cmd);
    case.cold().fresh().then("at once", nothing()).fresh().then("later", later).fresh()
}

#[rustfmt::skip]
pub(super) fn cases() -> Vec<Case> {
    let obj = "cc -c x.c -o x.o";
    let epoch = |value: &str, case: Case| case.usual_env().env("SOURCE_DATE_EPOCH", value);
    let mut cases = vec![
        now("TIME", obj, &[("x.c", &text("__TIME__"))]),
        now("TIME-in-header", obj, &[("x.c", "#include \"h.h\"\nconst char *p = T;\n"), ("h.h", "#define T __TIME__\n")]),
        now("TIME-pasted", obj, &[("x.c", "#define P(a,b) a##b\n#define Q(a,b) P(a,b)\nconst char *p = Q(__TI,ME__);\n")]),
        now("TIME-continued", obj, &[("x.c", "const char *p = __TI\\\nME__;\n")]),
        now("TIME-trigraph-like", "cc -trigraphs -c x.c -o x.o", &[("x.c", "const char *p = __TI??/\nME__;\n")]),
        now("TIME-by-D", "cc -DT=__TIME__ -c x.c -o x.o", &[("x.c", &text("T"))]),
        now("TIME-by-D-pasted", "cc '-DT(x)=__TI##x' -c x.c -o x.o", &[("x.c", "const char *p = T(ME__);\n")]),
        now("TIME-in-asm", "cc -c x.S -o x.o", &[("x.S", ".data\n.string __TIME__\n")]),
        now("TIME-forced", "cc -include h.h -c x.c -o x.o", &[("x.c", &text("T")), ("h.h", "#define T __TIME__\n")]),
        now("TIME-in-rsp", "cc @r -c x.c -o x.o", &[("x.c", &text("T")), ("r", "-DT=__TIME__")]),
        now("TIME-of-E", "cc -E x.c -o x.i", &[("x.c", &text("__TIME__"))]),
        now("TIME-of-S", "cc -S x.c -o x.s", &[("x.c", &text("__TIME__"))]),
        now("TIME-of-link", "cc -Wl,--build-id=none x.c -o x", &[("x.c", "const char *p = __TIME__;int main(void){return 0;}\n")]),
        now("TIME-c++", "c++ -c x.cc -o x.o", &[("x.cc", "extern const char *const p = __TIME__;\n")]),
        case("A/time-TIME-of-number").both().file("x.c", "int v = __TIME__[7];\n").cmd(obj).cold().fresh()
            .then("again", nothing()).fresh()
            .loose("x.o", AND_WHY),
        case("A/time-DATE").both().file("x.c", text("__DATE__")).cmd(obj).cold().fresh().then("again", nothing())
            .fresh(),
        case("A/time-DATE-only-named").both().provable()
            .file("x.c", "#ifdef NO\nconst char *p = __DATE__;\n#endif\nint a;\n").cmd(obj)
            .repeats(),
        case("A/time-defined-only").both().file("x.c", "#ifdef __TIME__\nint a;\n#endif\n").cmd(obj).twice(),
        case("A/time-undefined").both().file("x.c", text("__DATE__"))
            .cmd("cc -Wno-builtin-macro-redefined -D__DATE__=\"x\" -c x.c -o x.o").repeats(),
    ];
    for (name, files) in [
        ("source", [("x.c", "const char *p = __TIMESTAMP__;\n"), ("h.h", "")]),
        ("header", [("x.c", "#include \"h.h\"\nconst char *p = T;\n"), ("h.h", "#define T __TIMESTAMP__\n")]),
        ("inside-header", [("x.c", "#include \"h.h\"\n"), ("h.h", "const char *p = __TIMESTAMP__;\n")]),
        ("pasted", [("x.c", "#define P(a,b) a##b\nconst char *p = P(__TIME,STAMP__);\n"), ("h.h", "")]),
    ] {
        cases.push(case(format!("A/time-TIMESTAMP-{name}")).both().files(&files).cmd(obj).repeats()
            .then("source touched", touch("x.c", -2 * AGE_S)).then("header touched", touch("h.h", -3 * AGE_S))
            .then("both touched", all([touch("x.c", -4 * AGE_S), touch("h.h", -4 * AGE_S)])));
    }
    for name in ["DATE", "TIME"] {
        let case = case(format!("A/time-epoch-{name}")).any_time().file("x.c", text(&format!("__{name}__"))).cmd(obj);
        let case = epoch("1000000", case).twice();
        let case = epoch("900000000", case).changes("changed", nothing());
        let case = case.usual_env().then("unset", nothing());
        let case = epoch("1000000", case).back("back", nothing());
        let case = epoch("nonsense", case).then("nonsense", nothing());
        // clang reads the variable since version 16.
        let mut of_clang = case.clone().clang().need_not_hit();
        of_clang.name += "-clang";
        cases.extend([case, of_clang]);
    }
    let case = case("A/time-epoch-unused").both().provable().file("x.c", "int a;\n").cmd(obj).twice();
    cases.push(epoch("1000000", case).then("set", put("y", "")).then("again", rm("y")).hits());
    cases
}
