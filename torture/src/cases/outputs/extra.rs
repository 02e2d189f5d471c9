//! Outputs besides the one that was requested. Each must be right after a hit, or the tool must be
//! run.

use crate::case::{Case, case};
use crate::cases::texts::{H1, X_C};
use crate::change::{dir, nothing, put, rm, sh, symlink};
use crate::machine::Need;

const LOOP_C: &str = "#include \"h.h\"\nint f(int *a,int n){int s=0;for(int i=0;i<n;i++)s+=a[i]*H;return s;}\n";

fn looped(name: &str) -> Case {
    case(format!("C/{name}")).file("x.c", LOOP_C).file("h.h", "#define H 3\n")
}

/// Makes the case of an option with these runs: cold, warm, over existing outputs, with another
/// output, after an edit.
fn option(name: &str, args: &str) -> Case {
    let cmd = |output: &str| format!("cc {args} -c x.c -o {output}");
    let case = looped(&format!("with-{name}")).cmd(&cmd("x.o")).twice().over();
    let case = case.cmd(&cmd("y.o")).changes("other -o", nothing()).cmd(&cmd("x.o"));
    case.changes("edited", put("h.h", "#define H 4\n")).back("back", put("h.h", "#define H 3\n"))
}

#[rustfmt::skip]
pub(super) fn cases() -> Vec<Case> {
    let (seed, stamp) = ("-frandom-seed=1", "gcc puts a random number into it");
    let mut cases = vec![
        option("coverage", &format!("--coverage {seed}")),
        option("coverage-unseeded", "--coverage").loose("*.gcno", stamp).loose("*.o", stamp),
        option("test-coverage", &format!("-ftest-coverage {seed}")),
        option("profile-generate", &format!("-fprofile-generate {seed}")),
        option("profile-arcs-dir", &format!("-fprofile-arcs -fprofile-dir=p {seed}")),
        option("stack-usage", "-fstack-usage").both(),
        option("callgraph-info", "-fcallgraph-info=su,da"),
        option("split-dwarf", "-g -gsplit-dwarf").both(),
        option("save-temps", "-save-temps").both(),
        option("save-temps-obj", "-save-temps=obj").both(),
        option("save-temps-cwd", "-save-temps=cwd").both(),
        option("dump-tree", "-O1 -fdump-tree-optimized"),
        option("dump-tree-all", "-O1 -fdump-tree-all"),
        option("dump-tree-file", "-O1 -fdump-tree-optimized=dump.txt"),
        option("dump-tree-stdout", "-O1 -fdump-tree-optimized=/dev/stdout"),
        option("dump-rtl", "-O1 -fdump-rtl-final"),
        option("dump-ipa", "-O2 -fdump-ipa-inline").loose("*.inline", "it holds addresses").need_not_hit(),
        option("dump-lang", "-fdump-lang-all"),
        option("dump-passes", "-O1 -fdump-passes"),
        option("dump-earlydebug", "-g -fdump-earlydebug").loose("*.earlydebug", "it holds addresses").need_not_hit(),
        option("dumpbase", &format!("--coverage -dumpbase zz {seed}")),
        option("dumpdir", "-fstack-usage -dumpdir pre-"),
        option("opt-info", "-O3 -fopt-info-all=opt.txt").may_miss().need_not_hit(),
        option("opt-info-stderr", "-O3 -fopt-info-vec"),
        option("aux-info", "-aux-info aux.txt"),
        option("Wa-listing", "-Wa,-aln=x.lst")
            .mask(r"/[^ \t\n]*/cc\w{6}\.s|cc\w{6}\.s", "gcc's temporary name is in the listing"),
        option("Wa-listing-stdout", "-Wa,-al")
            .mask(r"/[^ \t\n]*/cc\w{6}\.s|cc\w{6}\.s", "gcc's temporary name is in the listing"),
        option("Wa-MD", "-Wa,--MD,a.d").mask(r"/[^ \t\n]*/cc\w{6}\.s", "gcc's temporary name is in it"),
        option("flto", &format!("-flto {seed}")),
        option("flto-unseeded", "-flto").loose("*.o", "gcc names sections at random"),
        option("flto-fat", &format!("-flto -ffat-lto-objects {seed}")),
        option("time-report", "-ftime-report").any_stderr_ever().never_hits(),
        option("Wp-time-report", "-Wp,-ftime-report").any_stderr_ever().never_hits(),
        option("time-report-by-configuration", "--config ./o.cfg").clang().file("o.cfg", "-ftime-report\n")
            .any_stderr_ever().never_hits(),
        option("Xpreprocessor-time-report", "-Xpreprocessor -ftime-report").any_stderr_ever().never_hits(),
        option("mem-report", "-fmem-report").any_stderr_ever().never_hits(),
        option("pipe", "-pipe").both(),
        option("march-native", "-march=native -O2").both(),
        option("mtune-native", "-mtune=native -O2").both(),
        option("record-switches", "-frecord-gcc-switches").both(),
        option("g3", "-g3").both(),
        option("gz", "-g -gz").both(),
        option("ggdb", "-ggdb -gdwarf-5 -fno-eliminate-unused-debug-types"),
        option("directives-only", "-fdirectives-only"),
        option("sanitize", "-fsanitize=address,undefined").both(),
        option("instrument", "-finstrument-functions -pg"),
        option("no-o-extension", "-fPIC -fvisibility=hidden -fno-plt").both(),
        option("diagnostics-file", "-Wall -fdiagnostics-format=json-file"),
        option("sarif-file", "-Wall -fdiagnostics-format=sarif-file").loose("*.sarif", "it holds times").never_hits(),
        option("sarif-stderr", "-Wall -fdiagnostics-format=sarif-stderr").any_stderr_ever().never_hits(),
        option("compare-debug", "-fcompare-debug"),
        option("print-missing", "-fdump-go-spec=spec.go"),
        option("mod-mapper-list", "-fdump-final-insns=insns.txt"),
        option("ada-spec", "-fdump-ada-spec"),
        option("trampolines-dump-noaddr", "-O1 -da -fdump-noaddr"),
    ];
    cases.extend(of_clang());
    cases.extend(elsewhere());
    cases
}

#[rustfmt::skip]
fn of_clang() -> Vec<Case> {
    let named = |name: &str, args: &str| option(&format!("clang-{name}"), args).clang();
    vec![
        named("dia", "--serialize-diagnostics x.dia -Wall"),
        named("dia-old", "-serialize-diagnostics x.dia -Wextra"),
        named("opt-record", "-O2 -fsave-optimization-record"),
        named("opt-record-file", "-O2 -foptimization-record-file=r.yaml"),
        named("time-trace", "-ftime-trace").loose("*.json", "it holds times").never_hits(),
        named("time-report", "-ftime-report").any_stderr_ever().never_hits(),
        named("MJ", "-MJ cdb.json"),
        named("proc-stat-report", "-fproc-stat-report").varies(),
        named("save-stats", "-save-stats").loose("*.stats", "it holds times").never_hits(),
        named("print-stats", "-Xclang -print-stats").any_stderr_ever().never_hits(),
        named("coverage", "--coverage"),
        named("coverage-note", "-Xclang -coverage-notes-file=n.gcno --coverage").need_not_hit(),
        named("emit-llvm", "-emit-llvm"),
        named("flto", "-flto"),
        named("flto-thin", "-flto=thin"),
        named("embed-bitcode", "-fembed-bitcode"),
        named("arch", "--target=x86_64-apple-darwin -arch x86_64 -arch arm64"),
        named("one-arch", "--target=x86_64-apple-darwin -arch x86_64"),
        named("target", "--target=aarch64-linux-gnu"),
        named("Wa-listing", "-fno-integrated-as -Wa,-aln=x.lst")
            .mask(r"/[^ \t\n]*\.s\b", "clang's temporary name is in the listing"),
        named("ast", "-emit-ast"),
        named("verify", "-Xclang -verify=none"),
        named("header-include-file", "-Xclang -header-include-file -Xclang hif -Xclang -sys-header-deps"),
        named("module-file-info", "-fmodules -fmodules-cache-path=mc")
            .loose("mc*", "a module cache holds hashes and times").need_not_hit(),
        named("crash-dir", "-fcrash-diagnostics-dir=crash"),
        named("rewrite", "-Xclang -dwarf-debug-flags -Xclang text"),
        named("pch-instantiate", "-Xclang -fno-pch-timestamp"),
        named("mllvm", "-mllvm -print-after=none"),
        named("dot-cfg", "-Xclang -analyzer-output=text"),
    ]
}

/// Outputs that are written through links, appended to, or made by a script.
#[rustfmt::skip]
fn elsewhere() -> Vec<Case> {
    let hello = |name: &str| case(format!("C/{name}")).both().file("x.c", X_C).file("h.h", H1);
    let my_cc = |name: &str,
    text: &str| hello(name).setup(crate::change::script("my-cc", text)).cmd("./my-cc -c x.c -o x.o");
    vec![
        looped("opt-info-appended").cmd("cc -O3 -fopt-info-all=f -c x.c -o x.o").cold().over().may_miss().over()
            .may_miss(),
        looped("opt-info-existing").file("f", "before\n").cmd("cc -O3 -fopt-info-vec-optimized=f -c x.c -o x.o").repeats(),
        looped("dia-through-link").clang().setup(symlink("real.dia", "x.dia"))
            .cmd("cc --serialize-diagnostics x.dia -Wall -c x.c -o x.o").repeats().over().may_miss(),
        looped("dia-through-link-to-file").clang().file("real.dia", "old").setup(symlink("real.dia", "x.dia"))
            .cmd("cc --serialize-diagnostics x.dia -Wall -c x.c -o x.o").repeats().over()
            .may_miss(),
        looped("depfile-through-link").both().file("real.d", "old").setup(symlink("real.d", "x.d"))
            .cmd("cc -MD -c x.c -o x.o").repeats().over().may_miss(),
        looped("depfile-through-dangling-link").both().setup(symlink("real.d", "x.d")).cmd("cc -MD -c x.c -o x.o")
            .repeats(),
        my_cc("script-truncates-and-appends", "gcc \"$@\" >f 2>>f; echo done >>f\n").repeats()
            .over().may_miss(),
        my_cc("script-same-file-twice", "gcc -Wall \"$@\" >f 2>>f\n").file("x.c", crate::cases::texts::WARNS_C).repeats()
            .over().may_miss(),
        my_cc("script-makes-directories", "mkdir -p -m 700 d/e; echo x > d/e/f; gcc \"$@\"\n").twice().over(),
        my_cc("script-makes-link", "ln -sf h.h l.h; gcc \"$@\"\n").twice().over().may_miss(),
        my_cc("script-makes-hard-link", "gcc \"$@\"; ln -f x.o y.o\n").repeats().over()
            .may_miss(),
        my_cc("script-removes", "rm -f old; gcc \"$@\"\n").file("old", "").repeats(),
        my_cc("script-moves", "gcc -c x.c -o t.o; mv t.o x.o\n").twice().over(),
        my_cc("script-strips", "gcc \"$@\" && strip -g x.o\n").repeats().over().may_miss(),
        my_cc("script-edits-input", "echo '#define H 5' > h.h; gcc \"$@\"\n").cold().over().may_miss()
            .then("again", put("h.h", H1)),
        my_cc("script-chmods-output", "gcc \"$@\"; chmod 600 x.o\n").twice().over(),
        my_cc("script-touches-output", "gcc \"$@\"; touch -d @1000000 x.o\n").repeats().over()
            .may_miss(),
        my_cc("script-writes-elsewhere", "gcc \"$@\"; echo x > ../elsewhere-$$; mv ../elsewhere-* elsewhere\n").repeats(),
        my_cc("script-fifo-output", "gcc \"$@\"; mkfifo ff\n").repeats().over().may_miss(),
        my_cc("script-sparse-output", "gcc \"$@\"; truncate -s 3000000 sparse\n").repeats(),
        my_cc("script-empty-output", "gcc \"$@\"; : > empty\n").twice().over(),
        my_cc("script-no-output", "exit 0\n").repeats(),
        my_cc("script-only-talks", "echo out; echo err >&2; exit 3\n").repeats(),
        my_cc("script-exit-codes", "gcc \"$@\"; exit $(cat code)\n").file("code", "1").twice()
            .changes("2", put("code", "2")).changes("77", put("code", "77"))
            .then("126", put("code", "126")).then("127", put("code", "127")).then("128", put("code", "128"))
            .then("255", put("code", "255")),
        hello("output-name-in-rsp").file("r", "-o x.o").cmd("cc -c x.c @r").twice()
            .changes("another name", put("r", "-o y.o")),
        hello("output-twice").cmd("cc -c x.c -o x.o -o y.o").repeats(),
        hello("output-joined").cmd("cc -c x.c -ox.o").twice(),
        hello("output-without-extension").cmd("cc -MD -c x.c -o x").twice(),
        hello("output-odd-name").cmd("cc -MD -c x.c -o 'a b$c.o'").twice().over(),
        hello("output-dash-name").cmd("cc -c x.c -o ./-x.o").twice(),
        hello("output-none").cmd("cc -c x.c").twice().over(),
        hello("output-none-of-subdirectory").file("s/x.c", "int a;\n").cmd("cc -c s/x.c").twice(),
        hello("output-through-dot-dot").setup(dir("o/p")).cmd("cc -c x.c -o o/p/../x.o").twice(),
        hello("output-dir-is-link").setup(dir("real")).setup(symlink("real", "o")).cmd("cc -MD -c x.c -o o/x.o").twice()
            .over()
            .then("the link leads elsewhere", sh("mkdir other; ln -sfn other o")).again(),
        hello("output-elsewhere").setup(dir("far/away")).setup(dir("w")).cwd("w")
            .cmd("cc -MD -c ../x.c -o ../far/away/x.o").twice().over(),
        hello("output-is-source").file("x.c", "int a;\n").sh("cp x.c y.c; $CC -c y.c -o y.c").repeats(),
        hello("output-is-header").sh("cp h.h g.h; $CC -include g.h -c x.c -o g.h").repeats(),
        hello("output-is-depfile").cmd("cc -MD -MF x.o -c x.c -o x.o").repeats(),
        hello("two-outputs-are-one-file").file("a.o", "").setup(crate::change::link("a.o", "a.d"))
            .cmd("cc -MD -MF a.d -c x.c -o a.o").repeats(),
        hello("output-large").needs(Need::Program("awk"))
            .setup(sh("awk 'BEGIN{for(i=0;i<20000;i++)printf \"int v%d=%d;\\n\",i,i}' > x.c"))
            .cmd("cc -g -c x.c -o x.o").twice().over(),
        hello("output-lost").cmd("cc -MD -c x.c -o x.o").twice().keep().then("the object goes", rm("x.o")).hits().keep()
            .then("the depfile goes", rm("x.d")).hits(),
    ]
}
