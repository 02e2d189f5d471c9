//! State that a command inherits, and may depend on although no text names it: search paths,
//! ignored signals and niceness.

use crate::case::{Case, case};
use crate::change::{nothing, put, rm, script, sh};

#[rustfmt::skip]
pub(super) fn cases() -> Vec<Case> {
    // Directories in the working directory always count by their paths, so these are beside it.
    let along = |name: &str, text: &str| case(format!("B/PATH-{name}")).file("w/in", "1\n").dir("t").cwd("w").any_sh(text)
        .prelude("PATH=/gone/1:$PATH").twice();
    // These depend on the text of the variable, so another value must not hit with the first
    // result.
    let shown = |name: &str, text: &str| along(name, text)
        .prelude("PATH=/gone/22:$PATH").then("another directory", nothing())
        .prelude("PATH=$PATH:/gone/1").then("the directory last", nothing());
    let other = |variable: &str, text: &str| case(format!("B/{variable}-of-command")).file("in", "1\n").any_sh(text)
        .prelude(&format!("export {variable}=/gone/1")).twice()
        .prelude(&format!("export {variable}=/gone/22")).back("another directory", nothing())
        .prelude("").back("none", nothing());
    let read = |name: &str, text: &str| case(format!("B/{name}")).file("in", "1\n").any_sh(text)
        .prelude("export MANPATH=/gone/1 PYTHONPATH=/gone/1").twice()
        .prelude("export MANPATH=/gone/22 PYTHONPATH=/gone/22").then("another directory", nothing());
    let mut cases = vec![
        along("of-command", "cat in > res")
            .prelude("PATH=/gone/22:$PATH").back("another directory that is not there", nothing())
            .prelude("PATH=${PWD%/w}/t:$PATH").back("an empty one", nothing())
            .changes("a program that was looked for", script("t/cat", "echo own"))
            .changes("another program", script("t/cut", "echo no"))
            .back("no such program", rm("t/cat")),
        along("of-absent-program", "nosuchprogram || echo none")
            .prelude("PATH=${PWD%/w}/t:$PATH").back("an empty directory", nothing())
            .changes("the program", script("t/nosuchprogram", "echo here")),
        along("of-script", "sh -c 'cat in | sed s/1/2/' > res; command -v cat")
            .prelude("PATH=/gone/22:$PATH").back("another directory", nothing())
            .prelude("PATH=${PWD%/w}/t:$PATH").then("an empty one", nothing())
            .changes("sed", script("t/sed", "cat >/dev/null; echo own")),
        along("of-make", "make -s -f in.mk").file("w/in.mk", "all:\n\t@cat in > res\n\t@grep -c 1 in\n")
            .prelude("PATH=/gone/22:$PATH").back("another directory", nothing())
            .prelude("PATH=${PWD%/w}/t:$PATH").then("an empty one", nothing())
            .changes("grep", script("t/grep", "echo own")),
        along("of-which", "which cat; which -a nosuchprogram; true")
            .prelude("PATH=/gone/22:$PATH").back("another directory", nothing())
            .prelude("PATH=${PWD%/w}/t:$PATH").then("an empty one", nothing())
            .changes("the program", script("t/cat", "echo own")),
        along("of-find", "find . -name in -exec cat {} ';'")
            .prelude("PATH=/gone/22:$PATH").then("another directory", nothing())
            .changes("a program in a directory that was left out", script("t/cat", "echo own"))
            .prelude("PATH=${PWD%/w}/t:$PATH").changes("the directory", nothing()),
        case("B/PATH-with-slash").file("in", "1\n").setup(script("t/tool", "echo t")).setup(script("u/tool", "echo u")).any_sh("tool")
            .prelude("PATH=$PWD/t/:$PATH").twice().prelude("PATH=$PWD/u/:$PATH").then("another", nothing())
            .prelude("PATH=$PWD/./t:$PATH").then("with a dot", nothing()).prelude("PATH=$PWD//u:$PATH").then("with two slashes", nothing()),
        case("B/PATH-relative").dir("w").setup(script("w/t/tool", "echo t")).setup(script("u/tool", "echo u")).cwd("w").any_sh("tool")
            .prelude("PATH=t:$PATH").twice().prelude("PATH=${PWD%/w}/u:t:$PATH").then("another before it", nothing()),
        case("B/PATH-empty").setup(script("tool", "echo here")).any("/bin/sh -c 'tool || echo none'")
            .prelude("PATH=/gone").twice().prelude("PATH=").then("the working directory", nothing())
            .prelude("PATH=/gone:").then("the working directory last", nothing()).prelude("unset PATH").then("unset", nothing()),
        along("made-on-the-way", "mkdir t; printf '#!/bin/sh\\necho own\\n' > t/cat; chmod +x t/cat; cat in")
            .prelude("PATH=$PWD/t:$PATH").then("the directory", nothing()),
        along("linked-on-the-way", "ln -s {root}/u t; cat in").setup(script("u/cat", "echo own"))
            .prelude("PATH=$PWD/t:$PATH").then("the directory", nothing()),
        along("made-elsewhere", "printf '#!/bin/sh\\necho own\\n' > {root}/t/cat; chmod +x {root}/t/cat; cat in; rm {root}/t/cat")
            .prelude("PATH=${PWD%/w}/t:$PATH").then("the directory", nothing()),
        case("B/PATH-order").file("in", "1\n").setup(script("t/cat", "echo t")).setup(script("u/cat", "echo u")).any_sh("cat in")
            .prelude("PATH=$PWD/t:$PWD/u:$PATH").twice()
            .prelude("PATH=$PWD/u:$PWD/t:$PATH").then("turned", nothing())
            .prelude("PATH=$PWD/t:$PATH:$PWD/u").then("another order", nothing())
            .changes("one is gone", rm("t/cat")),
        case("B/PATH-not-executable").file("in", "1\n").file("t/cat", "echo t\n").setup(script("u/cat", "echo u")).any_sh("cat in")
            .prelude("PATH=$PWD/t:$PWD/u:$PATH").twice()
            .prelude("PATH=$PWD/t:$PATH").then("without the second", nothing()),
        shown("length", "echo ${#PATH}"),
        shown("matched", "case $PATH in */gone/1:*) echo first;; *) echo other;; esac"),
        shown("by-eval", "n=TH; eval echo \"\\$PA$n\""),
        shown("by-env", "env | grep ^PA"),
        shown("by-printenv", "printenv PATH"),
        shown("by-set", "set | grep '^PA'"),
        shown("by-python", "python3 -c 'import os; print(len(os.get_exec_path()))'").program("python3"),
        shown("by-perl", "perl -e 'print join q(,), map { $ENV{$_} } grep { /^PA/ } keys %ENV'").program("perl"),
        shown("by-awk", "awk 'BEGIN { for (n in ENVIRON) if (n ~ /^PA/) print ENVIRON[n] }'"),
        shown("by-make", "make -s -f in.mk").file("w/in.mk", "n = TH\nall:\n\t@echo $(PA$(n))\n"),
        shown("by-program", "./show").file("w/show.c", "#include <stdio.h>\nextern char **environ;\nint main(void) \
            { for (char **e = environ; *e; e++) if (**e == 'P' && (*e)[2] == 'T') puts(*e); return 0; }\n")
            .setup(sh("gcc w/show.c -o w/show")),
        read("MANPATH-shown", "echo $MANPATH"),
        read("PYTHONPATH-read", "python3 -c 'import sys; print([p for p in sys.path if \"gone\" in p])'").program("python3"),
        case("B/CPATH-of-compile-in-command").files(&[("x.c", "#include <h.h>\nint f(void){return H;}\n"), ("a/h.h", "#define H 1\n"), ("b/h.h", "#define H 2\n")])
            .sh("$CC -c x.c -o x.o").env("CPATH", "a").twice().env("CPATH", "b").then("another directory", nothing())
            .changes("the header", put("b/h.h", "#define H 3\n")),
        case("B/signals-of-command").file("in", "1\n").any_sh("cat in > res").twice()
            .prelude("trap '' HUP").back("as by nohup", nothing())
            .prelude("trap '' INT QUIT").back("as in the background", nothing())
            .prelude("").back("none ignored", nothing()),
        case("B/signals-shown").any("bash -c trap").program("bash").twice()
            .prelude("trap '' HUP").then("as by nohup", nothing()),
        case("B/signals-shown-by-p").any("bash -c 'trap -p HUP; true'").program("bash").twice()
            .prelude("trap '' HUP").then("as by nohup", nothing()),
        case("B/signals-sent").any_sh("trap 'echo got' HUP; kill -HUP $$; echo end").twice()
            .prelude("trap '' HUP").then("as by nohup", nothing()),
        case("B/signals-read-by-python").any_py("import signal; print(signal.getsignal(signal.SIGHUP))").program("python3").twice()
            .prelude("trap '' HUP").then("as by nohup", nothing()),
        case("B/login-asked").file("l.c", "#include <stdio.h>\n#include <unistd.h>\nint main(void) \
            { char *l = getlogin(); puts(l ? l : \"none\"); return 0; }\n").any_sh("gcc l.c -o l && ./l; rm l").twice(),
        case("B/prose-read-by-perl").file("in", "a side-effect, newer\n").program("perl")
            .any("perl -e 'open F, \"in\"; print <F>'").twice().changes("edited", put("in", "newer still\n")),
        case("B/order-asked-by-perls-shell").program("perl").file("x.pl", "system('[ a -nt b ] && echo later || echo earlier');\n")
            .setup(sh("touch -d 2020-01-02 a; touch -d 2020-01-01 b")).any("perl x.pl").twice()
            .changes("the other order", sh("touch -d 2019-01-01 a")).need_not_hit(),
        case("B/niceness-shown").any("nice").program("renice").twice()
            .prelude("renice -n 5 -p $$ >/dev/null").then("nicer", nothing()),
    ];
    let unused = ["MANPATH", "PYTHONPATH", "PERL5LIB", "PKG_CONFIG_PATH", "CPATH", "LIBRARY_PATH"];
    cases.extend(unused.map(|variable| other(variable, "cat in > res")));
    cases
}
