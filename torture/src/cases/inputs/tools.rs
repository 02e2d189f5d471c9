//! Cases in which the tool, or a program that it starts such as `as`, is replaced, shadowed, or
//! found elsewhere, and cases in which its arguments or variables change.

use crate::case::{Case, case};
use crate::cases::texts::{H1, H2, MAIN_C, X_C};
use crate::change::{AGE_S, Change, PATH, all, copy, link, mv, nothing, put, rm, script, sh, symlink, touch};
use crate::machine::Need;

const AS_C: &str = "__asm__(\".globl vv\\n.data\\nvv: .quad V\\n\");\n";
const KEY_C: &str = "#ifndef K\n#define K 0\n#endif\nint f(void){return K;}\n";

fn assembler(at: &str, value: u8) -> Change {
    script(at, format!("exec /usr/bin/as --defsym V={value} \"$@\"\n"))
}

/// A compiler that is a script, whose mtime is always the same.
fn my_cc(value: u8) -> Change {
    all([script("my-cc", format!("exec @CC@ -DK={value} \"$@\"\n")), Change::Time("my-cc".into(), 1_000_000_000)])
}

#[rustfmt::skip]
pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        case("A/as-by-B").file("x.c", AS_C).setup(assembler("bd/as", 1)).cmd("cc -Bbd -c x.c -o x.o").twice()
            .changes("another", assembler("bd/as", 2)).back("back", assembler("bd/as", 1)),
        case("A/as-by-B-clang").clang().file("x.c", AS_C).setup(assembler("bd/as", 1))
            .cmd("cc -fno-integrated-as -Bbd -c x.c -o x.o").twice()
            .changes("another", assembler("bd/as", 2)),
        case("A/as-by-COMPILER_PATH-clang").clang().file("x.c", AS_C).setup(assembler("bd/as", 1))
            .env("COMPILER_PATH", "{root}/bd")
            .cmd("cc -fno-integrated-as -c x.c -o x.o").cold().then("another", assembler("bd/as", 2)),
        case("A/as-by-COMPILER_PATH-gcc").file("x.c", AS_C).setup(assembler("bd/as", 1)).setup(assembler("be/as", 2))
            .env("COMPILER_PATH", "bd")
            .cmd("cc -c x.c -o x.o").twice().changes("another", assembler("bd/as", 3)).usual_env()
            .env("COMPILER_PATH", "be")
            .changes("another directory", nothing()).usual_env().env("COMPILER_PATH", "none:be")
            .then("found later", nothing()),
        case("A/as-by-GCC_EXEC_PREFIX").file("x.c", AS_C).setup(assembler("bd/as", 1))
            .env("GCC_EXEC_PREFIX", "{root}/bd/").cmd("cc -c x.c -o x.o")
            .cold().then("another", assembler("bd/as", 2)),
        case("A/as-by-PATH").file("x.c", AS_C).setup(assembler("bd/as", 1)).env("PATH", format!("{{root}}/bd:{PATH}"))
            .cmd("cc -no-canonical-prefixes -c x.c -o x.o").cold().then("another", assembler("bd/as", 2)),
        case("A/as-by-PATH-appears").clang().file("x.c", KEY_C).dir("bd").env("PATH", format!("{{root}}/bd:{PATH}"))
            .cmd("cc -fno-integrated-as -c x.c -o x.o").cold()
            .then("appears", script("bd/as", "exec /usr/bin/as --defsym NEW=1 \"$@\"\n"))
            .then("goes", rm("bd/as")),
        case("A/as-appears").file("x.c", KEY_C).dir("bd").cmd("cc -Bbd -c x.c -o x.o").twice()
            .changes("appears", script("bd/as", "exec /usr/bin/as --defsym NEW=1 \"$@\"\n")).back("goes", rm("bd/as")),
        case("A/as-loses-execution").file("x.c", KEY_C)
            .setup(script("bd/as", "exec /usr/bin/as --defsym NEW=1 \"$@\"\n"))
            .cmd("cc -Bbd -c x.c -o x.o").twice().changes("no longer a program", crate::change::chmod("bd/as", 0o644))
            .back("again one", crate::change::chmod("bd/as", 0o755)),
        case("A/as-reads-variable").file("x.c", AS_C)
            .setup(script("bd/as", "exec /usr/bin/as --defsym V=${VALUE:-0} \"$@\"\n"))
            .cmd("cc -Bbd -c x.c -o x.o").twice().env("VALUE", "1").changes("set", nothing()).usual_env()
            .env("VALUE", "2").changes("another", nothing())
            .usual_env().env("VALUE", "1").back("back", nothing()).usual_env().back("unset", nothing()),
        case("A/as-reads-file").file("x.c", AS_C).file("v", "1")
            .setup(script("bd/as", "exec /usr/bin/as --defsym V=$(cat v) \"$@\"\n"))
            .cmd("cc -Bbd -c x.c -o x.o").twice().changes("edited", put("v", "2")).back("back", put("v", "1")),
        case("A/as-reads-clock").file("x.c", AS_C)
            .setup(script("bd/as", "exec /usr/bin/as --defsym V=$(date +%s%N) \"$@\"\n"))
            .cmd("cc -Bbd -c x.c -o x.o").cold().fresh().then("again", nothing()).fresh()
            .loose("x.o", "it holds the time"),
        case("A/cc1-replaced").file("x.c", KEY_C).setup(cc1(1)).cmd("cc -Bbd -c x.c -o x.o").twice()
            .changes("another", cc1(2)).back("back", cc1(1)),
        case("A/cc1-appears").file("x.c", KEY_C).cmd("cc -Bbd -c x.c -o x.o").twice().changes("appears", cc1(1))
            .back("goes", rm("bd")),
        case("A/collect2-and-ld-replaced").file("x.c", MAIN_C).setup(ld(1)).cmd("cc -Bbd x.c -o x").twice()
            .changes("another", ld(2))
            .back("back", ld(1)),
        case("A/tool-same-size-and-time").both().file("x.c", KEY_C).setup(my_cc(1)).cmd("./my-cc -c x.c -o x.o").twice()
            .changes("another", my_cc(2)).back("back", my_cc(1)),
        case("A/tool-inner").both().file("x.c", KEY_C).setup(inner(1))
            .setup(script("my-cc", "exec \"$(dirname \"$0\")/inner\" \"$@\"\n"))
            .cmd("./my-cc -c x.c -o x.o").twice().changes("another", inner(2)).back("back", inner(1)),
        case("A/tool-by-link").both().file("x.c", KEY_C).setup(sh("ln -s $(command -v $CC) my-gcc"))
            .cmd("./my-gcc -c x.c -o x.o").twice()
            .then("a script", all([rm("my-gcc"), script("my-gcc", "exec @CC@ -DK=9 \"$@\"\n")])).again(),
        case("A/tool-absolute").both().file("x.c", KEY_C).sh("$WRAP /usr/bin/${CC##* } -c x.c -o x.o").twice(),
        case("A/tool-shadowed-on-PATH").both().file("x.c", KEY_C).env("PATH", format!("{{root}}/bin:{PATH}"))
            .cmd("cc -c x.c -o x.o").twice()
            .changes("appears", script("bin/@", "")).may_miss().then("a compiler appears", sh("mkdir -p bin; \
                printf '#!/bin/sh\\nexec /usr/bin/%s -DK=4 \"$@\"\\n' $CC > bin/$CC; chmod 755 bin/$CC")).again()
                    .back("it goes", rm("bin")),
        case("A/tool-shadowed-by-no-program").both().file("x.c", KEY_C).dir("bin")
            .env("PATH", format!("{{root}}/bin:{PATH}")).cmd("cc -c x.c -o x.o").twice()
            .then("a file that is no program", sh("mkdir -p bin; : > bin/$CC")).again()
            .then("a directory", sh("rm -r bin; mkdir -p bin/$CC")).again(),
        case("A/tool-relative-PATH").both().file("x.c", KEY_C).env("PATH", format!("bin:{PATH}"))
            .setup(sh("mkdir bin; printf '#!/bin/sh\\nexec /usr/bin/%s -DK=4 \"$@\"\\n' $CC > bin/$CC; chmod 755 bin/$CC"))
            .cmd("cc -c x.c -o x.o").twice().then("it goes", rm("bin")).again(),
        case("A/tool-missing").file("x.c", KEY_C).cmd("no-such-gcc -c x.c -o x.o").sh("$WRAP no-such-gcc -c x.c -o x.o")
            .cold().any_stderr(),
        case("A/tool-not-executable").file("x.c", KEY_C).file("my-gcc", "#!/bin/sh\n")
            .sh("$WRAP ./my-gcc -c x.c -o x.o").cold().any_stderr(),
        case("A/tool-script-reads-stdin").both().file("x.c", KEY_C)
            .setup(script("my-cc", "exec @CC@ -DK=$(cat) \"$@\"\n"))
            .cmd("./my-cc -c x.c -o x.o").stdin("1").cold().stdin("2").then("other input", nothing()).stdin("1")
            .then("first input", nothing()),
        case("A/tool-script-appends-log").both().file("x.c", KEY_C)
            .setup(script("my-cc", "echo called >> log\nexec @CC@ \"$@\"\n"))
            .cmd("./my-cc -c x.c -o x.o").cold().over().may_miss().over().may_miss(),
        case("A/tool-script-counts").both().file("x.c", KEY_C).file("n", "1")
            .setup(script("my-cc", "n=$(cat n); echo $((n+1)) > n; exec @CC@ -DK=$n \"$@\"\n"))
            .cmd("./my-cc -c x.c -o x.o").cold().over().may_miss().over().may_miss(),
        case("A/tool-script-by-name").both().file("x.c", KEY_C)
            .setup(script("my-cc", "case $0 in *two*) K=2;; *) K=1;; esac\nexec @CC@ -DK=$K \"$@\"\n"))
            .setup(symlink("my-cc", "two-cc")).cmd("./my-cc -c x.c -o x.o").twice().cmd("./two-cc -c x.c -o x.o")
            .changes("by the other name", nothing()),
        case("A/tool-library-replaced").both().file("x.c", KEY_C).setup(library_tool("say1"))
            .setup(sh("gcc -o my-gcc main.c -L. -lk -Wl,-rpath,'$ORIGIN'"))
            .cmd("./my-gcc -c x.c -o x.o").twice().changes("another library", library_tool("say2")),
        case("A/tool-LD_LIBRARY_PATH").both().file("x.c", KEY_C).setup(library_tool("say1"))
            .setup(sh("gcc -o my-gcc main.c -L. -lk; mkdir o; mv libk.so o"))
            .env("LD_LIBRARY_PATH", "{root}/n:{root}/o").cmd("./my-gcc -c x.c -o x.o").cold()
            .then("another ahead", all([library_tool("say2"), crate::change::dir("n"), mv("libk.so", "n/libk.so")])),
        case("A/tool-LD_PRELOAD").both().file("x.c", KEY_C).setup(preload(1)).cmd("cc -c x.c -o x.o").twice()
            .env("LD_PRELOAD", "{root}/pre.so")
            .then("a library is loaded", nothing()).then("another", preload(2)).usual_env().back("none", nothing()),
        case("A/tool-static").needs(Need::Works("echo 'int main(){}'>x.c; gcc -static x.c", "static libc"))
            .file("x.c", KEY_C)
            .file("main.c", "#include <unistd.h>\nint main(int c,char**v){v[0]=\"gcc\";execv(\"/usr/bin/gcc\",v);return 9;}\n")
            .setup(sh("gcc -static -o my-gcc main.c")).cmd("./my-gcc -c x.c -o x.o").repeats()
            .then("source edited", put("x.c", "int g;\n")),
        case("A/tool-set-user-id").needs(Need::Root).file("x.c", KEY_C)
            .file("main.c", "#include <unistd.h>\nint main(int c,char**v){v[0]=\"gcc\";execv(\"/usr/bin/gcc\",v);return 9;}\n")
            .setup(sh("gcc -o my-gcc main.c; chmod 4755 my-gcc")).cmd("./my-gcc -c x.c -o x.o").repeats()
            .then("source edited", put("x.c", "int g;\n")),
    ];
    cases.extend(links_and_copies());
    cases.extend(arguments_and_variables());
    cases
}

fn cc1(value: u8) -> Change {
    script("bd/cc1", format!("exec \"$(/usr/bin/gcc -print-prog-name=cc1)\" \"$@\" -DK={value}\n"))
}

fn ld(value: u8) -> Change {
    script("bd/ld", format!("exec /usr/bin/ld --defsym zz={value} \"$@\"\n"))
}

fn inner(value: u8) -> Change {
    script("inner", format!("exec @CC@ -DK={value} \"$@\"\n"))
}

/// Makes a compiler that adds a definition, which it gets from a shared library.
fn library_tool(value: &str) -> Change {
    all([
        put("k.c", format!("const char *k(void){{return \"-DK={}\";}}\n", &value[3..])),
        put(
            "main.c",
            "#include <unistd.h>\nconst char*k(void);\nint main(int c,char**v){char*a[99]={\"@CC@\",(char*)k()};\
             for(int i=1;i<c;i++)a[i+1]=v[i];execvp(a[0],a);return 9;}\n",
        ),
        sh("gcc -shared -fPIC k.c -o libk.so"),
    ])
}

fn preload(value: u8) -> Change {
    all([
        put(
            "pre.c",
            format!(
                "#include <unistd.h>\n__attribute__((constructor)) static void f(void){{write(2,\"{value}\\n\",2);}}\n"
            ),
        ),
        sh("gcc -w -shared -fPIC pre.c -o pre.so"),
    ])
}

/// The compiler stays the same, but is reached by another path or has another mtime.
#[rustfmt::skip]
fn links_and_copies() -> Vec<Case> {
    vec![
        case("A/tool-hard-link-of-script").both().file("x.c", KEY_C).setup(my_cc(1)).setup(link("my-cc", "same-cc"))
            .cmd("./my-cc -c x.c -o x.o")
            .twice().cmd("./same-cc -c x.c -o x.o").changes("by the other name", nothing()),
        case("A/tool-touched").both().file("x.c", KEY_C).setup(my_cc(1)).cmd("./my-cc -c x.c -o x.o").twice()
            .back("touched", touch("my-cc", -AGE_S)).back("a copy", all([copy("my-cc", "n"), mv("n", "my-cc")])),
    ]
}

#[rustfmt::skip]
fn arguments_and_variables() -> Vec<Case> {
    vec![
        case("A/arguments-are-told-apart").both().provable().file("x.c", X_C).file("h.h", H1)
            .cmd("cc '-DA=1 2' -c x.c -o x.o").twice()
            .cmd("cc -DA=1 -D2x -c x.c -o x.o").then("other words", nothing())
            .cmd("cc -DA=1 -c x.c -o x.o").changes("fewer", nothing()).cmd("cc -DA=1 -DA=1 -c x.c -o x.o")
            .changes("twice", nothing())
            .cmd("cc -DA=1 -UA -c x.c -o x.o").changes("undone", nothing()).cmd("cc -UA -DA=1 -c x.c -o x.o")
            .changes("order", nothing()),
        case("A/options-that-matter").both().file("x.c", "#include \"h.h\"\nint f(int a){return a*H/3;}\n")
            .file("h.h", H2)
            .cmd("cc -c x.c -o x.o").twice().cmd("cc -O2 -c x.c -o x.o").changes("-O2", nothing())
            .cmd("cc -O2 -O0 -c x.c -o x.o").changes("-O0 wins", nothing()).cmd("cc -fPIC -c x.c -o x.o")
            .changes("-fPIC", nothing())
            .cmd("cc -std=c99 -c x.c -o x.o").changes("-std", nothing()).cmd("cc -m32 -c x.c -o x.o")
            .changes("-m32", nothing())
            .cmd("cc -funsigned-char -c x.c -o x.o").changes("-funsigned-char", nothing())
            .cmd("cc -x c++ -c x.c -o x.o").changes("-x c++", nothing()).cmd("cc -c x.c -o x.o")
            .back("back", nothing()),
        case("A/temporary-directory-is-shown").both().file("x.c", X_C).file("h.h", H1).dir("t1").dir("t2")
            .env("TMPDIR", "{root}/t1")
            .sh("$CC -shared -fPIC -Wl,-t x.c -o x.so 2>&1 | grep -o '.*/t[12]/' | sort -u").twice()
            .usual_env().env("TMPDIR", "{root}/t2").then("another directory", nothing()).again(),
        case("A/variables-that-do-not-matter").both().provable().file("x.c", X_C).file("h.h", H1)
            .cmd("cc -c x.c -o x.o").twice()
            .env("NOTHING", "1").env("USER", "somebody").env("OLDPWD", "/").env("SHLVL", "7").back("set", nothing()),
    ]
}
