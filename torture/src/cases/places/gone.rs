//! Places that are removed before the next one is used, what lies above a place, and search paths.

use crate::case::{Case, case};
use crate::change::{Change, all, nothing, put, rm, script, sh};

const PLAIN: [(&str, &str); 2] = [("x.c", "#include \"h.h\"\nint f(void){return H;}\n"), ("h.h", "#define H 1\n")];

/// Builds a generator that copies a source with words that name times.
const GENERATOR: &str = "out: gen in.c\n\t./gen in.c > out\n\
    gen: gen.c\n\tgcc -o gen gen.c\n\
    gen.c:\n\techo '#include <stdio.h>' > gen.c\n\
    \techo 'int main(int n,char**a){int c;FILE*i=fopen(a[1],\"r\");while((c=getc(i))!=EOF)putchar(c);return 0;}' >> gen.c\n\
    in.c:\n\techo 'int f(void){return stat(0,0) + mtime;}' > in.c\n";

/// Builds a generator that prints the mtime of a file.
const TELLS_TIMES: &str = "out: gen\n\t./gen x.c > out\n\
    gen: gen.c\n\tgcc -o gen gen.c\n\
    gen.c:\n\tprintf '#include <stdio.h>\\n#include <sys/stat.h>\\n' > gen.c\n\
    \techo 'int main(int n,char**a){struct stat s;stat(a[1],&s);printf(\"%ld\",(long)s.st_mtime);return 0;}' >> gen.c\n";

/// Makes the place `jobs/NAME/src` and removes all others.
fn only(name: &str) -> Change {
    let files = PLAIN.map(|(file, text)| put(format!("jobs/{name}/src/{file}"), text));
    all([rm("jobs")].into_iter().chain(files).chain([sh("touch -d '2020-01-01' jobs/*/src/*")]))
}

/// Runs the command of `case` in four places, of which only one exists at a time.
fn in_jobs(case: Case) -> Case {
    let case = case.setup(only("1")).cwd("jobs/1/src").cold();
    let case = case.cwd("jobs/22/src").then("second job", only("22"));
    let case = case.cwd("jobs/333/src").back("third job", only("333"));
    case.cwd("jobs/4444/src").back("fourth job", only("4444"))
}

/// Runs a command in three places, each time with another previous directory of the shell.
fn after(name: &str, text: &str, previous: [&str; 3]) -> Case {
    let export = |directory: &str| match directory {
        "" => "unset OLDPWD".to_owned(),
        directory => format!("export OLDPWD={directory}"),
    };
    let mut case = case(format!("B/after-{name}")).any_sh(text);
    for (job, previous) in ["1", "22", "333"].iter().zip(previous) {
        case = case.cwd(format!("jobs/{job}/src")).prelude(&export(previous)).then(&format!("job {job}"), only(job));
    }
    case
}

#[rustfmt::skip]
pub(super) fn cases() -> Vec<Case> {
    let above = |name: &str, text: &str| in_jobs(case(format!("B/gone-{name}")).any_sh(text));
    vec![
        above("mkdir-p", "mkdir -p \"$PWD/z\""),
        above("install-d", "install -d \"$PWD/z/y\""),
        above("up-and-down", "cd ..; cd src; cat x.c > res"),
        above("test-d", "test -d \"${PWD%/*}\" && echo yes"),
        above("realpath", "cat \"$(realpath ..)/src/x.c\" > res"),
        above("absent-above", "cat \"${PWD%/*}/setting\" 2>/dev/null || echo none")
            .changes("a file appears above the place", put("jobs/4444/setting", "set\n")),
        above("listed-above", "ls \"${PWD%/*}\"")
            .changes("another name above the place", put("jobs/4444/other", "")),
        above("absent-shared", "cat \"${PWD%/*/*}/setting\" 2>/dev/null || echo none")
            .changes("a file appears above all places", put("jobs/setting", "set\n")),
        above("absolute-above", "test -e {root}/jobs/22/setting && echo yes || echo no").need_not_hit()
            .changes("the absolute path appears", put("jobs/22/setting", "")),
        case("B/gone-literal-home").file("home/p/in", "1\n").file("tmp/x/in", "1\n").file("q/y/in", "1\n")
            .any_sh("cat {root}/home/.setting 2>/dev/null; cat in").cwd("tmp/x").cold()
            .cwd("home/p").then("below the home directory", nothing()).cwd("q/y").then("elsewhere", nothing())
            .changes("a setting in the home directory", put("home/.setting", "set\n")),
        in_jobs(case("B/gone-make-C").both()
            .sh("mkdir m; printf 'all:\\n\\tcd ..; $(CC) -c x.c -o x.o\\n' > m/Makefile; make -s -C m")),
        in_jobs(case("B/gone-make-C-absolute").both()
            .sh("mkdir m; cp x.c h.h m; printf 'all:\\n\\t$(CC) -c $(CURDIR)/x.c -o x.o\\n' > m/Makefile; make -s -C m; cp m/x.o .; rm -r m")),
        in_jobs(case("B/gone-assembler-options").both()
            .sh("$CC -g -Wa,--fatal-warnings,--noexecstack -c x.c -o x.o")),
        in_jobs(case("B/gone-rpath-link").both()
            .sh("$CC -g -fPIC -shared x.c -o libx.so; echo 'int f(void);int main(void){return f();}' > m.c; \
                 $CC -g m.c -o m -Wl,-rpath-link,$PWD libx.so; rm m.c")),
        in_jobs(case("B/gone-generator").file("in.mk", GENERATOR).any_sh("make -s -f {root}/in.mk")),
        in_jobs(case("B/gone-generator-asks-times").file("in.mk", TELLS_TIMES).any_sh("make -s -f {root}/in.mk")).need_not_hit(),
        in_jobs(case("B/gone-gold").program("ld.gold").sh("echo 'int main(void){return 0;}' > m.c; $CC -fuse-ld=gold m.c -o m; rm m.c")),
        // A command that lists all variables shows the previous directory, too.
        after("another-listed", "env | grep ^HOME | wc -l > res", ["/usr", "/usr/bin", "/usr/lib/gcc"]).hits(),
        after("the-same-listed", "env | grep ^HOME | wc -l > res", ["/usr", "/usr", "/usr"]).hits(),
        after("another-shown", "env | grep ^OLD", ["/usr", "/usr/bin", "/usr/lib/gcc"]),
        after("another-counted", "env | grep ^OLD | wc -c", ["/usr", "/usr/bin", "/usr/lib/gcc"]),
        after("as-long-counted", "env | grep ^OLD | wc -c", ["/usr", "/etc", "/usr/bin"]),
        after("none-counted", "env | grep -c ^OLD; true", ["/usr", "/usr/bin", ""]),
        after("none-before-counted", "env | grep -c ^OLD; true", ["", "/usr", "/usr/bin"]),
        after("another-compared", "env | grep -q ^OLD.*gcc && echo gcc; true", ["/usr", "/usr", "/usr/lib/gcc"]),
        in_jobs(case("B/gone-proc").any_sh("test -e /proc/$$ && cat x.c > res")),
        case("B/PATH-of-compile").both().files(&PLAIN).cmd("cc -c x.c -o x.o").prelude("PATH=/gone/1:$PATH").twice()
            .prelude("PATH=/gone/2:$PATH").back("another directory that is not there", nothing())
            .prelude("PATH=$OLDPWD/t:$PWD/t:$PATH").then("an empty one", crate::change::dir("t"))
            .changes("a tool of no compiler", script("t/cmake", "echo no >&2"))
            .changes("an assembler", script("t/as", "echo own >&2; exec /usr/bin/as \"$@\""))
            .changes("no assembler", rm("t/as")),
        case("B/PATH-of-link").files(&[("m.c", "int main(void){return 0;}\n")]).cmd("cc m.c -o m")
            .prelude("PATH=/gone/1:$PATH").twice()
            .prelude("PATH=$PWD/t:$PATH").then("an empty directory", crate::change::dir("t"))
            .then("a linker", script("t/ld", "echo own >&2; exec /usr/bin/ld \"$@\""))
            .changes("no linker", rm("t/ld")),
        case("B/PATH-printed").any_sh("echo $PATH").prelude("PATH=/gone/1:$PATH").twice()
            .prelude("PATH=/gone/2:$PATH").then("another", nothing()).prelude("PATH=$PATH:/gone/1").then("last", nothing()),
    ]
}
