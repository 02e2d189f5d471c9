//! Tests of [`scan`] on short texts.

use super::*;

fn includes(text: &str) -> Vec<String> {
    let found = scan(text.as_bytes(), false).unwrap_or_else(|why| panic!("{text}: {why}")).includes;
    let shown = |include: &Include| {
        let name = String::from_utf8_lossy(&include.name).into_owned();
        let name = if include.quoted { format!("\"{name}\"") } else { format!("<{name}>") };
        if include.everywhere { format!("{name}*") } else { name }
    };
    found.iter().map(shown).collect()
}

fn refused(text: &str, system: bool) {
    assert!(scan(text.as_bytes(), system).is_err(), "{text}");
}

#[test]
fn directives() {
    let check = |text: &str, expect: &[&str]| assert_eq!(includes(text), expect, "{text}");
    check("#include <a.h>\n#include \"b.h\"\n", &["<a.h>", "\"b.h\""]);
    check(" # /* x */ include /* y */ <a.h> // z\n", &["<a.h>"]);
    check("%:include <a.h>\n", &["<a.h>"]);
    check("#include_next <a.h>\n#import \"b.h\"", &["<a.h>*", "\"b.h\"*"]);
    check("#inc\\\nlude <a.h>\n#if 0\n#include <b.h>\n#endif\n", &["<a.h>", "<b.h>"]);
    check("// #include <a.h>\n/* #include <b.h>\n#include X */ char *s = \"#include <c.h>\";\n", &[]);
    check("int x = 1'000; /* it's */\n#include <a.h>\n", &["<a.h>"]);
    check("char a = '\"'; \n#include <a.h>\n char b = '\"';", &["<a.h>"]);
    check("#error it's /* so\n#include <a.h>\n", &["<a.h>"]);
    check("x.include(); p->increment(); a.b.inc;", &[]);
}

#[test]
fn refusals() {
    for text in [
        "#include HEADER\n",
        "%:include HEADER\n",
        "#include\n",
        "#embed \"x\"\n",
        "int x ??= 1;",
        "#if __has_embed(\"x\")\n",
        "#define H __has_\\\ninclude\n",
        "char *s = __TI\\\nME__;",
        "char *s = CAT(__TI, ME__);",
        "#pragma GCC dependency \"x\"\n",
        "_Pragma(\"GCC dependency \\\"x\\\"\")",
        "#pragma GCC pch_preprocess \"x\"\n",
        "asm(\".incbin \\\"x\\\"\");",
        "const char *s = \"x.inc\";",
        "#define X STR(.incbin)\n",
        "import <a.h>;\n",
        "export module x;\n",
        "auto s = R\"(/*)\"; char *t = __TIME__;",
        "int c = 1'/*'; char *t = __TIME__; //*/",
    ] {
        refused(text, false);
    }
    refused("#if __has_include(<a.h>)\n", false);
    refused("#if __has_include(X)\n", true);
    refused("#define H __has_include\n", true);
    refused("x = __DATE__", true);
}

#[test]
fn of_the_system() {
    let found = |text: &str| scan(text.as_bytes(), true).expect("is understood").includes;
    assert_eq!(found("#if __has_include(<a.h>)\n").len(), 1);
    assert_eq!(found("#if defined __has_include && defined(__has_include)\n#ifdef __has_include\n").len(), 0);
}

#[test]
fn assembler() {
    let check = |text: &str, assembler, pieces| {
        let found = scan(text.as_bytes(), false).expect("is understood");
        assert_eq!((found.assembler, found.pieces), (assembler, pieces), "{text}");
    };
    check("asm(\"nop\");", true, false);
    check("asm(\".in\" \"cbin x\");", true, true);
    check("asm(\"\\56x\");", true, true);
    check("#define S(x) #x\n", false, true);
    check("#define S(x) a##x\n", false, false);
    check("int x;", false, false);
}
