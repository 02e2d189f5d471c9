//! Inputs that an option names, and inputs that the compiler finds by itself.

use crate::case::{Case, case};
use crate::cases::texts::{H1, H2, MAIN_C, X_C};
use crate::change::{AGE_S, Change, all, nothing, put, put_old, rm, script, sh, touch};
use crate::machine::Need;

const KEY_C: &str = "#ifndef K\n#define K 0\n#endif\nint f(void){return K;}\n";
const PROFILED_C: &str = "__attribute__((noinline)) int g(int a){return a*7;}\n\
    int f(int a){if(a>3){a=g(a);a+=g(a+1);}return a;}\n\
    int main(int c,char**v){int s=0;for(int i=0;i<c*100;i++)s+=f(i);return s&1;}\n";

/// A file that an option names is edited, removed, and restored.
fn named(name: &str, cmd: &str, file: &str, one: &str, two: &str) -> Case {
    let case = case(format!("A/file-{name}")).file("x.c", KEY_C).file(file, one).cmd(cmd).twice();
    case.changes("edited", put(file, two)).then("gone", rm(file)).back("back", put(file, one))
}

#[rustfmt::skip]
pub(super) fn cases() -> Vec<Case> {
    let (k1, k2) = ("#define K 1\n", "#define K 2\n");
    let mut cases = vec![
        named("include", "cc -include p.h -c x.c -o x.o", "p.h", k1, k2).both().provable(),
        named("imacros", "cc -imacros p.h -c x.c -o x.o", "p.h", k1, k2).both().provable(),
        named("rsp", "cc @args -c x.c -o x.o", "args", "-DK=1 -O1", "-DK=2 -O1").both(),
        named("rsp-everything", "cc @args", "args", "-DK=1 -c x.c -o x.o", "-DK=2 -c x.c -o x.o").both(),
        named("rsp-quotes", "cc @args -c x.c -o x.o", "args", "'-DK=1 + 1'\n", "\"-DK=2 \\\n+ 1\"\n").both(),
        named("specs", "cc -specs=s.specs -c x.c -o x.o", "s.specs", "*cc1_options:\n+ -DK=5\n", "*cc1_options:\n+ -DK=6\n"),
        named("clang-config", "cc --config ./k.cfg -c x.c -o x.o", "k.cfg", "-DK=1\n", "-DK=2\n").clang(),
        case("A/file-wrapper").file("x.c", KEY_C).setup(script("w", "exec \"$@\"\n"))
            .cmd("cc -wrapper ./w -c x.c -o x.o").twice()
            .changes("edited", script("w", "case $1 in *cc1) exec \"$@\" -DK=3;; esac\nexec \"$@\"\n"))
            .then("gone", rm("w"))
            .back("back", script("w", "exec \"$@\"\n")),
        case("A/file-rsp-nested").both().file("x.c", KEY_C).file("a1", "@a2").file("a2", "-DK=1")
            .cmd("cc @a1 -c x.c -o x.o").twice()
            .changes("edited", put("a2", "-DK=2")).then("gone", rm("a2")).back("back", put("a2", "-DK=1")),
        case("A/file-rsp-appears").both().file("x.c", KEY_C).cmd("cc @args -c x.c -o x.o").cold()
            .then("appears", put("args", "-DK=1")),
        case("A/file-rsp-same-text-other-words").both().file("x.c", KEY_C).file("args", "-DK=1 -DL=2")
            .cmd("cc @args -c x.c -o x.o").twice()
            .then("one word", put("args", "'-DK=1 -DL=2'")),
        case("A/file-ignorelist").clang().file("x.c", "int g[4]; int f(int i){return g[i];}\n").file("ig", "fun:nope\n")
            .cmd("cc -fsanitize=address -fsanitize-ignorelist=ig -c x.c -o x.o").twice()
            .changes("edited", put("ig", "fun:f\nglobal:g\n"))
            .then("gone", rm("ig")).back("back", put("ig", "fun:nope\n")),
        case("A/file-sanitize-coverage-list").clang().file("x.c", "int f(int i){return i?1:2;}\n")
            .file("al", "src:*\nfun:*\n")
            .cmd("cc -fsanitize-coverage=trace-pc-guard -fsanitize-coverage-allowlist=al -c x.c -o x.o").twice()
            .changes("edited", put("al", "src:no\n")),
        case("A/file-xray-list").clang().file("x.c", "int f(int i){return i?1:2;}\n").file("al", "[always]\nfun:f\n")
            .cmd("cc -fxray-instrument -fxray-attr-list=al -c x.c -o x.o").twice()
            .changes("edited", put("al", "[never]\nfun:f\n")),
        case("A/file-vfs-overlay").clang().file("x.c", X_C).file("one.h", H1).file("two.h", H2)
            .file("o.yaml", overlay("one"))
            .cmd("cc -ivfsoverlay o.yaml -I{root}/v -c x.c -o x.o").twice()
            .changes("edited", put("o.yaml", overlay("two")))
            .then("what it leads to", put("two.h", "#define H 5\n")),
        case("A/file-profile-list").clang().file("x.c", "int f(int i){return i?1:2;}\nint g(void){return 1;}\n")
            .file("l", "fun:f\n")
            .cmd("cc -fprofile-instr-generate -fprofile-list=l -c x.c -o x.o").twice()
            .changes("edited", put("l", "fun:g\n")),
        case("A/pragma-dependency-times").file("x.c", "#pragma GCC dependency \"g.y\"\nint a;\n").file("g.y", "")
            .cmd("cc -c x.c -o x.o")
            .twice().then("newer than the source", put("g.y", ""))
            .then("older again", crate::change::touch("g.y", -9 * AGE_S))
            .then("source older still", crate::change::touch("x.c", -20 * AGE_S)),
        case("A/pragma-dependency-times-clang").clang().file("x.c", "#pragma GCC dependency \"g.y\"\nint a;\n")
            .file("g.y", "")
            .cmd("cc -c x.c -o x.o").twice().then("newer than the source", put("g.y", ""))
            .then("older again", crate::change::touch("g.y", -9 * AGE_S)),
        case("A/include-in-working-directory").clang().file("w/x.c", X_C).file("w/h.h", H1).file("h.h", H2)
            .cmd("cc -working-directory {root}/w -c x.c -o x.o").twice()
            .changes("edited", put("w/h.h", "#define H 3\n"))
            .back("the other edited", all([put_old("w/h.h", H1), put("h.h", "#define H 4\n")])),
    ];
    cases.extend(modules());
    cases.extend(plugins());
    cases.extend(profiles());
    cases
}

fn overlay(which: &str) -> String {
    format!(
        "{{'version':0,'roots':[{{'type':'directory','name':'@ROOT@/v','contents':[{{'type':'file','name':'h.h',\
             'external-contents':'@ROOT@/{which}.h'}}]}}]}}\n"
    )
}

#[rustfmt::skip]
fn modules() -> Vec<Case> {
    let unit = |name: &str| case(name).clang().file("x.c", "#include \"m.h\"\nint f(void){return H;}\n").file("m.h", H1)
        .file("n.h", H2)
        .loose("mc*", "names and content of a module cache hold hashes and times");
    vec![
        unit("A/module-map").file("m.map", "module M { header \"m.h\" export * }\n")
            .cmd("cc -fmodules -fmodule-map-file=m.map -fmodules-cache-path=mc -c x.c -o x.o").cold()
            .then("again", rm("none")).over().may_miss()
            .then("map edited", put("m.map", "module M { header \"n.h\" header \"m.h\" export * }\n"))
            .then("header edited", put("m.h", "#define H 3\n")),
        unit("A/module-map-implicit").cmd("cc -fmodules -fmodules-cache-path=mc -I. -c x.c -o x.o").cold()
            .then("a map appears", put("module.modulemap", "module M { header \"m.h\" export * }\n"))
            .then("header edited", put("m.h", "#define H 3\n")).then("the map goes", rm("module.modulemap")),
        unit("A/module-off").file("m.map", "module M { header \"m.h\" export * }\n")
            .cmd("cc -fno-cxx-modules -c x.c -o x.o").twice()
            .changes("header edited", put("m.h", "#define H 3\n")),
    ]
}

/// Code that is loaded into the compiler.
#[rustfmt::skip]
fn plugins() -> Vec<Case> {
    let plugin = |says: &str| sh(format!("printf '#include <stdio.h>\\nint plugin_is_GPL_compatible;\\n\
        int plugin_init(void*a,void*b){{fputs(\"{says}\\\\n\",stderr);return 0;}}\\n' > p.c; gcc -shared -fPIC p.c -o p.so"));
    let reads = "#include <stdio.h>\nint plugin_is_GPL_compatible;\nint plugin_init(void*a,void*b){char t[9]=\"none\\n\";\
        FILE*f=fopen(\"data\",\"r\");if(f)fgets(t,9,f);fputs(t,stderr);return 0;}\n";
    let probe = Need::Works("echo 'int plugin_is_GPL_compatible;int plugin_init(void*a,void*b){return 0;}'>p.c; gcc -shared -fPIC p.c -o p.so; \
        gcc -fplugin=./p.so -x c -c /dev/null", "plugins in gcc");
    vec![
        case("A/plugin").needs(probe).file("x.c", X_C).file("h.h", H1).setup(plugin("one"))
            .cmd("cc -fplugin=./p.so -c x.c -o x.o").twice()
            .changes("another plugin", plugin("two")).then("gone", rm("p.so")).back("back", plugin("one")).may_miss(),
        case("A/plugin-reads-a-file").needs(probe).file("x.c", X_C).file("h.h", H1).file("p.c", reads)
            .setup(sh("gcc -shared -fPIC p.c -o p.so"))
            .cmd("cc -fplugin=./p.so -c x.c -o x.o").twice().changes("the file appears", put("data", "one\n"))
            .changes("edited", put("data", "two\n"))
            .back("goes", rm("data")),
        case("A/plugin-uses-an-mtime").needs(probe).file("x.c", X_C).file("h.h", H1).file("data", "one\n")
            .file("p.c", "#include <stdio.h>\n#include <sys/stat.h>\nint plugin_is_GPL_compatible;\nint plugin_init(void*a,void*b)\
                {struct stat s;if(!stat(\"data\",&s))fprintf(stderr,\"%ld\\n\",(long)s.st_mtime);return 0;}\n")
            .setup(sh("gcc -shared -fPIC p.c -o p.so"))
            .cmd("cc -fplugin=./p.so -c x.c -o x.o").twice().changes("touched", touch("data", -9 * AGE_S)),
        case("A/plugin-reads-the-clock").needs(probe).file("x.c", X_C).file("h.h", H1)
            .file("p.c", "#include <stdio.h>\n#include <time.h>\nint plugin_is_GPL_compatible;\nint plugin_init(void*a,void*b)\
                {fprintf(stderr,\"%ld\\n\",(long)(time(0)/60%2));return 0;}\n")
            .setup(sh("gcc -shared -fPIC p.c -o p.so"))
            .cmd("cc -fplugin=./p.so -c x.c -o x.o").cold().any_stderr().fresh().then("again", nothing()).any_stderr().fresh(),
        case("A/plugin-linked-library").needs(probe).file("x.c", X_C).file("h.h", H1)
            .file("p.c", "int plugin_is_GPL_compatible;void say(void);int plugin_init(void*a,void*b){say();return 0;}\n")
            .setup(library("one")).setup(sh("gcc -shared -fPIC p.c -o p.so -L. -lsay -Wl,-rpath,$PWD"))
            .cmd("cc -fplugin=./p.so -c x.c -o x.o").twice().changes("its library is another", library("two")),
        case("A/clang-plugin-appears").clang().file("x.c", MAIN_C).cmd("cc -fplugin=./p.so -c x.c -o x.o").cold()
            .then("appears", put("p.so", "no library")),
    ]
}

fn library(says: &str) -> Change {
    sh(format!(
        "printf '#include <stdio.h>\\nvoid say(void){{fputs(\"{says}\\\\n\",stderr);}}\\n' > say.c; \
         gcc -shared -fPIC say.c -o libsay.so"
    ))
}

#[rustfmt::skip]
fn profiles() -> Vec<Case> {
    let gcda = |arguments: &str| sh(format!("rm -f x.gcda; gcc -frandom-seed=1 -O2 -fprofile-generate -c x.c -o x.o; \
        gcc -fprofile-generate x.o -o x; ./x {arguments} || :; rm -f x x.o"));
    let raw = |arguments: &str| sh(format!("clang -fprofile-instr-generate x.c -o x; LLVM_PROFILE_FILE=raw ./x {arguments} || :; \
        $(ls /usr/bin/llvm-profdata* | head -1) merge raw -o p.data; rm -f x raw"));
    let sample = "f:100:100\n 1: 90\n";
    vec![
        case("A/profile-use").file("x.c", PROFILED_C).setup(gcda(""))
            .cmd("cc -frandom-seed=1 -O2 -fprofile-use -Wno-missing-profile -c x.c -o x.o").twice()
            .changes("another profile", gcda("1 2 3 4 5 6 7 8 9")).then("no profile", rm("x.gcda")).again(),
        case("A/profile-use-dir").file("x.c", PROFILED_C).setup(gcda("")).setup(sh("mkdir d; mv x.gcda d/x.gcda"))
            .cmd("cc -frandom-seed=1 -O2 -fprofile-use=d/x.gcda -Wno-missing-profile -c x.c -o x.o").twice()
            .then("gone", rm("d/x.gcda")).again(),
        case("A/profile-use-appears").file("x.c", PROFILED_C)
            .cmd("cc -frandom-seed=1 -O2 -fprofile-use -Wno-missing-profile -c x.c -o x.o")
            .twice().then("appears", gcda("1")).again(),
        case("A/profile-auto").clang().file("x.c", PROFILED_C).file("s.prof", sample)
            .cmd("cc -O2 -g -fprofile-sample-use=s.prof -c x.c -o x.o").twice()
            .changes("edited", put("s.prof", "f:900:1\n 1: 1\ng:9:9\n 1: 9\n"))
            .then("gone", rm("s.prof")),
        case("A/profile-instr-use").clang()
            .needs(Need::Works("ls /usr/bin/llvm-profdata*; echo 'int main(){}'>x.c; clang -fprofile-instr-generate x.c",
                "clang's profile run time")).file("x.c", PROFILED_C).setup(raw(""))
            .cmd("cc -O2 -fprofile-instr-use=p.data -c x.c -o x.o").twice().changes("another profile", raw("1 2 3 4")),
    ]
}
