//! Any command: what shells and the small tools of every build read, and what they ask the system
//! for.

use crate::case::{Case, case};
use crate::change::{
    AGE_S, Change, all, chmod, copy, dir, link, nothing, put, put_old, rm, script, sh, swap, symlink, touch,
};

fn run(name: &str) -> Case {
    case(format!("F/run-{name}")).file("in", "one\n").file("d/a", "a\n").file("d/b", "b\n")
}

pub(super) fn cases() -> Vec<Case> {
    let parts = [plain, times, lists, writes, ends];
    parts.iter().flat_map(|cases| cases()).collect()
}

#[rustfmt::skip]
fn plain() -> Vec<Case> {
    let edited = || swap("in", "two\n");
    let mut cases: Vec<Case> = [
        ("cat", "cat in"), ("cp", "cp in out"), ("sed", "sed s/o/0/ in"), ("awk", "awk {print(NR,$0)} in"),
        ("sort", "sort in d/a"), ("md5sum", "md5sum in"), ("wc", "wc in"), ("grep", "grep -c o in"),
        ("head", "head -c2 in"), ("od", "od -c in"), ("tr-by-sh", "sh -c 'tr o 0 < in > out'"),
        ("redirect", "sh -c 'cat in > out'"), ("pipe", "sh -c 'cat in | sed s/o/0/ | tr a-z A-Z'"),
        ("here", "sh -c 'cat in - <<E\nmore\nE'"),
        ("substitution", "sh -c 'echo $(cat in)'"), ("read", "sh -c 'read x < in; echo $x'"),
        ("source", "sh -c '. ./in 2>&1; :'"), ("test", "sh -c 'test -s in && echo yes'"), ("cmp", "cmp in d/a"),
        ("diff", "diff in d/a"), ("m4", "m4 in"),
        ("perl", "perl -pe s/o/0/ in"), ("xxd-like", "od -An -tx1 in"), ("tee", "sh -c 'tee out < in'"),
        ("dd", "dd if=in of=out status=none"), ("install", "install -m 750 in out"), ("gzip", "gzip -n -c in"),
        ("base64", "base64 in"),
        ("sh-cat-many", "sh -c 'for f in in d/a d/b; do cat $f; done > out'"), ("printf", "printf %s\\n x"),
        ("true", "true"), ("echo", "echo x y"), ("python", "/usr/bin/python3 -c 'print(open(\"in\").read())'"),
    ].iter()
        .map(|(name, line)| run(name).any(line).twice().changes("edited", edited()).back("back", swap("in", "one\n")))
        .collect();
    // This row is replaced by a case that is skipped if m4 is not installed.
    cases.retain(|case| !["F/run-m4"].contains(&case.name.as_str()));
    cases.extend([
        run("m4").program("m4").any("m4 in").twice().changes("edited", edited()),
        run("gzip-names-time").any("gzip -k in").cold().then("touched", touch("in", -50)),
        run("script").setup(script("s", "cat in; echo $1\n")).any("./s x").twice().changes("edited", edited())
            .changes("script edited", script("s", "cat in; echo 2 $1\n")).any("./s y")
            .changes("other argument", nothing()),
        run("script-interpreter").setup(script("s", "cat in\n"))
            .setup(sh("cp /bin/cat i; printf '#!%s/i\\nx\\n' $PWD > t; chmod 755 t")).any("./t").twice()
            .then("another interpreter", sh("cp /bin/echo i")),
        run("script-sources").setup(script("s", ". ./lib\nf\n")).file("lib", "f() { echo 1; }\n").any("./s").twice()
            .changes("edited", put("lib", "f() { echo 2; }\n")),
        run("program-on-path").setup(script("bin/tool", "echo 1\n"))
            .env("PATH", "{root}/early:{root}/bin:/usr/bin:/bin").any("tool").twice()
            .changes("appears earlier", script("early/tool", "echo 2\n")).then("goes", rm("early")).hits(),
        run("program-by-sh-on-path").setup(script("bin/tool", "echo 1\n"))
            .env("PATH", "{root}/early:{root}/bin:/usr/bin:/bin").any_sh("tool; command -v tool").twice()
            .changes("appears earlier", script("early/tool", "echo 2\n")).back("goes", rm("early")),
        run("stdin").any("cat").stdin("one\n").twice().stdin("two\n").changes("other text", nothing()).stdin("one\n")
            .back("first text", nothing()),
        run("stdin-part").any("head -c2").stdin("one\n").twice().stdin("onx\n").then("what is not read", nothing()),
        run("stdin-of-sh").any_sh("cat; cat in").stdin("x\n").twice().changes("edited", edited()).stdin("y\n")
            .changes("other text", nothing()),
        run("stdin-not-read").any_sh("cat in").stdin("x\n").twice().stdin("y\n").then("other text", nothing()),
        run("stdin-left-for-others").sh("seq 9 | { $RUN cat in; cat; }").repeats(),
        run("stdin-left-in-part").sh("seq 9 > s; { $RUN sh -c 'read x; echo $x'; cat; } < s").repeats(),
        run("stdin-is-file").sh("$RUN cat < in").repeats().then("edited", edited()),
        run("stdin-is-file-position").sh("{ read x; $RUN cat; } < d/a; { $RUN cat; } < d/a").file("d/a", "1\n2\n")
            .repeats(),
        run("script-from-stdin").any("sh").stdin("cat in\n").twice().stdin("cat d/a\n").changes("another", nothing()),
        run("tty").any_sh("test -t 1 && echo tty; test -t 0 && echo in; cat in").tty(24, 80).repeats()
            .piped().then("piped", nothing()),
        run("tty-size").any("stty size").tty(24, 80).repeats().tty(30, 100)
            .then("another", nothing()),
        run("env-one").any_sh("echo $X").env("X", "1").twice().usual_env().env("X", "2").changes("another", nothing())
            .usual_env().changes("unset", nothing()).env("X", "1").back("back", nothing()),
        run("env-all").any("env -u LARDER_DIR -u LARDER_OBSERVER")
            .mask("LD_PRELOAD=.*\n|LARDER.*\n|_=.*\n", "variables of the cache").env("X", "1").repeats()
            .usual_env().env("X", "2").then("another", nothing()),
        run("env-by-printenv").any("printenv X").env("X", "1").repeats().usual_env().env("X", "2")
            .then("another", nothing()).usual_env().then("unset", nothing()),
        run("env-by-proc").any_sh("tr '\\0' '\\n' < /proc/self/environ | grep ^X=").env("X", "1").cold().usual_env()
            .env("X", "2").then("another", nothing()),
        run("env-listed-by-python")
            .any_py("import os; print(sorted(name for name in os.environ if name.startswith('SSH_')))").twice()
            .env("SSH_TTY", "x").then("set", nothing()),
        run("env-unused").any("cat in").twice().env("UNUSED", "1").then("set", nothing()).hits(),
        run("job-variable-unused").any("cat in").env("GITHUB_SHA", "1").twice().env("GITHUB_SHA", "2")
            .then("another job", nothing()).hits(),
        run("job-variable-named").any_sh("echo $CI_JOB_ID").env("CI_JOB_ID", "1").twice().env("CI_JOB_ID", "2")
            .changes("another job", nothing()),
        run("job-variable-listed").any_sh("env | grep ^BUILD_N").env("BUILD_NUMBER", "1").twice()
            .env("BUILD_NUMBER", "2").changes("another job", nothing()).env("BUILD_NUMBER", "3").changes("a third", nothing()),
        run("cwd").any("pwd").twice().cwd("d").changes("another", nothing()).any("pwd -P").then("-P", nothing()),
        run("cwd-relative-input").any("cat a").cwd("d").file("e/a", "e\n").twice().cwd("e")
            .changes("another", nothing()),
        run("umask").any_sh("umask; : > out").cold().prelude("umask 077").then("077", nothing()).prelude("")
            .then("back", nothing()),
        run("missing-input").any("cat none").twice().changes("appears", put("none", "x\n")).then("goes", rm("none"))
            .hits(),
        run("unreadable-input").any("cat in").twice().changes("unreadable", chmod("in", 0))
            .back("readable", chmod("in", 0o644)),
        run("link-input").setup(symlink("in", "l")).any("cat l").twice().changes("leads elsewhere", symlink("d/a", "l"))
            .any("readlink l").then("readlink", nothing()).then("back", symlink("in", "l")),
        run("same-size-old-time").any("cat in").twice().changes("edited", swap("in", "two\n")),
        run("word-of-larder").sh("$RUN stats >/dev/null 2>&1; echo $?").cold(),
        run("unknown-program").sh("$RUN no-such-program; echo $?").cold().any_stderr(),
        run("not-executable").sh("$RUN ./in; echo $?").cold().any_stderr(),
        run("directory-as-program").sh("$RUN ./d; echo $?").cold().any_stderr(),
        run("no-such-cwd-file").any("sed s/a/b/ none").twice(),
        run("ignores-case").any_sh("ls IN in 2>&1").repeats().then("appears", put("IN", "")),
        run("reads-binary").setup(sh("head -c 100000 /dev/zero > z")).any("sha256sum z").twice()
            .then("one bit", sh("printf x | dd of=z bs=1 seek=77777 conv=notrunc 2>/dev/null")),
        run("compiler-inside").file("x.c", "#include \"h.h\"\nint v=H;\n").file("h.h", "#define H 1\n")
            .any_sh("gcc -c x.c -o x.o && nm x.o").twice().changes("edited", put("h.h", "#define H 2\nint w;\n")),
        run("larder-inside").file("x.c", "int v;\n").sh("$RUN sh -c \"$CC -c x.c -o x.o; nm x.o\"").repeats(),
        run("run-inside-run").sh("$RUN $RUN cat in").repeats().then("edited", edited()),
    ]);
    cases
}

/// Commands that use mtimes of files.
#[rustfmt::skip]
fn times() -> Vec<Case> {
    let timed = |name: &str,
    line: &str| run(&format!("time-{name}")).any_sh(line).repeats()
        .then("one touched", touch("d/a", -9 * AGE_S)).then("the other touched", touch("d/b", -9 * AGE_S))
        .then("newer", touch("d/a", -5)).then("size", put_old("d/a", "longer\n")).then("mode", chmod("d/a", 0o600));
    vec![
        timed("test-nt", "test d/a -nt d/b && echo newer || echo older"),
        timed("test-ot", "[ d/a -ot d/b ] && echo older; [ d/b -nt d/a ] && echo newer"),
        timed("test-ef", "[ d/a -ef d/b ] && echo same; [ d/a -ef d/a ] && echo one"),
        timed("test-owner", "[ -O d/a ] && echo own; /usr/bin/test -O d/b && echo own; :")
            .then("owner", sh("chown 7 d/a 2>/dev/null; :")),
        timed("test-odd-modes", "[ -u d/a ] && echo u; [ -k d ] && echo k; :").then("sticky", chmod("d", 0o1755)),
        timed("find-newer", "find d -newer d/b -type f | sort"),
        timed("find-mtime", "find d -type f -mmin +120 | sort"),
        timed("find-printf", "find d -type f -printf '%p %s %T@ %m\\n' | sort"),
        timed("find-size", "find d -type f -size +3c | sort"),
        timed("find-perm", "find d -type f -perm 600 | sort"),
        timed("ls-l", "ls -l --time-style=+%s d | tail -n +2"),
        timed("ls-t", "ls -t d"),
        timed("of-standard-input", "gzip < d/a | sha256sum; stat -c '%Y %a' - < d/b"),
        timed("stat-mtime", "stat -c '%Y %n' d/a d/b"),
        timed("stat-mode", "stat -c '%a %s %n' d/a d/b"),
        timed("stat-owner", "stat -c '%u %g' d/a"),
        timed("tar", "tar cf - d/a d/b | sha256sum"),
        timed("cmake-tar", "cmake -E tar cf out.tar d/a d/b").program("cmake"),
        timed("tar-sorted", "tar --sort=name -cf out.tar d"),
        timed("cpio-like-zip", "tar czf out.tgz --mtime=@0 d/a"),
        timed("cp-p", "cp -p d/a out; stat -c '%Y %a' out"),
        timed("cp-a", "cp -a d e"),
        timed("cp-u", "cp -u d/a d/b; cat d/b"),
        timed("mv-u", "cp d/a t; mv -u t d/b; cat d/b"),
        timed("touch-r", "touch -r d/a out; stat -c %Y out"),
        timed("install-p", "install -p d/a out; stat -c %Y out"),
        timed("rsync-like", "[ d/a -nt out ] && cp d/a out; ls"),
        timed("date-r", "date -u -r d/a +%s"),
        timed("python-getmtime", "/usr/bin/python3 -c 'import os; print(int(os.path.getmtime(\"d/a\")))'"),
        timed("python-stat", "/usr/bin/python3 -c 'import os; print(os.stat(\"d/a\").st_mtime > os.stat(\"d/b\").st_mtime)'"),
        timed("perl-M", "perl -e 'print((stat \"d/a\")[9], \"\\n\"); print -s \"d/a\"'"),
        timed("make", "printf 'd/b: d/a\\n\\techo made\\n' > Makefile; make -s; rm Makefile"),
        timed("inode", "stat -c %i d/a d/b").then("a copy", all([copy("d/a", "t"), crate::change::mv("t", "d/a")])),
        timed("links", "stat -c %h d/a").then("a link more", link("d/a", "e")),
        timed("blocks", "du -B1 d/a; stat -c %b d/a"),
        timed("atime", "stat -c %X d/a >/dev/null; cat d/a"),
        timed("ctime", "stat -c %Z d/a | wc -c"),
        timed("file-existence-only", "test -e d/a && echo there; test -d d && echo dir; test -x d/a && echo runs"),
        timed("file-is-empty", "test -s d/a && echo full").then("emptied", put("d/a", "")),
        timed("directory-nt", "[ d -nt e ] && echo newer || echo older").setup(dir("e"))
            .then("directory older", touch("d", -9 * AGE_S)).then("directory newer", touch("d", -5)),
        timed("directory-nt-by-test", "/usr/bin/test d -nt e; echo $?").setup(dir("e"))
            .then("directory older", touch("d", -9 * AGE_S)).then("directory newer", touch("d", -5)),
        timed("ls-t-directories", "ls -t").setup(dir("e"))
            .then("directory older", touch("d", -9 * AGE_S)).then("directory newer", touch("d", -5)),
        timed("dir-time", "stat -c %Y d").then("a name more", all([put("d/c", ""), touch("d", -77)])),
    ]
}

/// Commands that list directories.
#[rustfmt::skip]
fn lists() -> Vec<Case> {
    let listed = |name: &str,
    line: &str| run(&format!("list-{name}")).any_sh(line).twice().changes("a name more", put("d/c", "c\n"))
        .then("in a new directory", put("d/e/f", "f\n"))
        .then("a name less", rm("d/a")).then("hidden", put("d/.h", "")).back("back", rm("d/c")).may_miss();
    let py = |name: &str,
    text: &str| run(&format!("list-python-{name}")).any_py(text).twice().changes("a name more", put("d/c", "c\n"))
        .then("in a new directory", put("d/e/f", "f\n")).then("a name less", rm("d/a"))
        .then("a directory in its place", all([rm("d/b"), put("d/b/g", "g\n")]));
    vec![
        listed("glob", "echo d/*"), listed("glob-none", "echo d/*.zz"), listed("glob-part", "cat d/[ab]"),
        listed("glob-recursive", "echo */*"), listed("ls", "ls d"), listed("ls-A", "ls -A d"),
        listed("ls-R", "ls -R ."),
        listed("find", "find d | sort"), listed("find-name", "find . -name '[abc]' | sort"),
        listed("cat-all", "cat d/* 2>/dev/null; :"), listed("wc-all", "wc -l d/* 2>/dev/null; :"),
        listed("grep-r", "grep -r . d | sort"),
        listed("du", "du -a --apparent-size d | sort"), listed("tar-names", "tar cf - d | tar tf - | sort"),
        listed("cp-r", "cp -r d out"), listed("diff-r", "diff -r d e; :"), listed("tree-order", "ls -U d | sort"),
        listed("count", "ls d | wc -l"),
        py("listdir", "import os; print(sorted(os.listdir('d')))"),
        py("walk", "import os; print(sorted((p,sorted(d),sorted(f)) for p,d,f in os.walk('d')))"),
        py("glob", "import glob; print(sorted(glob.glob('d/**',recursive=True)))"),
        py("scandir", "import os; print(sorted(e.name for e in os.scandir('d') if e.is_file()))"),
        py("pathlib", "import pathlib; print(sorted(map(str,pathlib.Path('.').rglob('*'))))"),
        py("exists", "import os; print([os.path.exists('d/'+n) for n in 'abc'])"),
        run("list-order").setup(dir("big")).setup(sh("for i in $(seq 300); do : > big/f$i; done")).any("ls big").twice()
            .changes("one more", put("big/f1000", "")),
        run("list-make-pattern").file("Makefile", "all:\n\t@echo $(wildcard d/*/)\n").program("make").any("make")
            .twice().changes("a file becomes a directory", all([rm("d/a"), put("d/a/x", "x\n")])),
        run("list-ls-kinds").any("ls -p d").twice()
            .changes("a file becomes a directory", all([rm("d/a"), put("d/a/x", "x\n")]))
            .any("ls -F d").then("-F", nothing()).then("a file again", all([rm("d/a"), put("d/a", "a\n")]))
            .any("ls -R d").then("-R", nothing()).then("a directory", all([rm("d/a"), put("d/a/x", "x\n")])),
        run("list-by-another-path").setup(dir("real")).setup(symlink("real", "l")).any_sh("cat in > l/out; ls real").twice()
            .then("leads elsewhere", sh("mkdir other; ln -sfn other l")).again().back("back", symlink("real", "l")),
        run("looks-by-another-path").setup(dir("real")).setup(symlink("real", "l"))
            .any_sh("cat real/out 2>/dev/null; cat in > l/out; cat real/out; rm l/out").twice().may_miss()
            .then("leads elsewhere", sh("mkdir other; ln -sfn other l")).again().may_miss().back("back", symlink("real", "l")).may_miss(),
        run("list-nothing-changed").any_sh("echo d/*").twice().then("another directory", put("e/x", "")).hits()
            .then("a file edited", put("d/a", "other\n")).hits(),
    ]
}

/// Commands that write in different ways.
#[rustfmt::skip]
fn writes() -> Vec<Case> {
    let makes = |name: &str, text: &str| run(&format!("makes-{name}")).any_sh(text).twice().over().may_miss();
    let odd = |name: &str,
    text: &str| run(&format!("does-{name}")).any_sh(text).repeats().over().may_miss().over()
        .may_miss();
    vec![
        makes("file", "cat in > out"), makes("empty-file", ": > out"),
        makes("several", "for i in 1 2 3; do cat in > out$i; done"),
        makes("directories", "mkdir -p e/f/g; cat in > e/f/g/out"),
        makes("directory-modes", "mkdir -m 700 e; mkdir -m 1777 f; mkdir -m 555 g; cat in > e/out"),
        makes("link", "cat in > out; ln -s out l"), makes("dangling-link", "cat in >/dev/null; ln -sf nowhere l"),
        makes("absolute-link", "ln -sf $PWD/in l"), makes("executable", "cp in out; chmod 755 out"),
        makes("odd-modes", "cat in > out; chmod 4711 out"),
        makes("read-only", "rm -f out; cat in > out; chmod 444 out"),
        makes("odd-names", "cat in > 'a b'; cat in > \"$(printf 'n\\nl')\"; cat in > \"$(printf '\\377')\""),
        makes("large", "head -c 3000000 /dev/zero > out; cat in >> out"), makes("and-renames", "cat in > t; mv t out"),
        makes("and-removes", "cat in > t; cat t > out; rm t"),
        makes("in-temporary", "t=$(mktemp); cat in > $t; cat $t > out; rm $t"),
        makes("output-named-by-input", "cat in > out-$(cat in)"), makes("nothing", "cat in > /dev/null"),
        makes("hidden", "cat in > .out; mkdir -p .d; : > .d/f"),
        odd("append", "cat in >> out"), odd("append-twice", "echo x > f 2>>f; echo y >> f"),
        odd("count", "n=$(cat n 2>/dev/null || echo 0); echo $((n+1)) > n"), odd("edit-in-place", "sed -i s/o/0/ in"),
        odd("move-aside", "mkdir .m; test -f in && mv in .m; cat d/a > out; rm -rf .m"),
        odd("move-aside-anew", "mkdir .m; test -f in && mv in .m; cat d/a > in; rm -rf .m"),
        odd("move-aside-and-read", "mkdir .m; test -f in && mv in .m; cat .m/in; rm -rf .m").then("edited", put("in", "two\n")),
        odd("move-aside-and-link", "mkdir .m; test -f in && mv in .m; ln .m/in out; rm -rf .m").then("edited", put("in", "two\n")),
        odd("move-aside-and-back", "mkdir .m; test -f in && mv in .m; mv .m/in in; rm -rf .m").then("edited", put("in", "two\n")),
        odd("move-aside-twice", "mkdir .m; test -f in && mv in .m; mv .m .n; cat .n/in; rm -rf .n").then("edited", put("in", "two\n")),
        odd("move-aside-and-keep", "mkdir .m; test -f in && mv in .m").then("edited", put("in", "two\n")),
        odd("remove-input", "cat in; rm in"), odd("remove-all", "rm -rf d"),
        odd("rename-input", "mv in moved"), odd("rename-directory", "mv d e"),
        odd("hard-link", "cat in > out; ln out out2"), odd("hard-link-of-input", "ln -f in out"),
        odd("fifo", "mkfifo p; : > out"),
        odd("socket", "/usr/bin/python3 -c 'import socket; s=socket.socket(socket.AF_UNIX); s.bind(\"s\")'; rm s; echo done"),
        odd("sparse", "truncate -s 5000000 out"), odd("touch-input", "touch in"),
        odd("touch-output", "touch -d @1000000 out"), odd("touch-existing", "touch d/a; cat d/a"),
        odd("chmod-input", "chmod 600 in; cat in"), odd("chmod-directory", "chmod 700 d"),
        odd("chown", "chown 7:7 in 2>/dev/null; :"),
        odd("outside-cwd", "cat in > ../outside-$(basename $PWD); cat ../outside-*; rm ../outside-*"),
        odd("outside-cwd-left", "mkdir -p ../e; cat in > ../e/out; echo done"),
        odd("in-dev-shm", "t=/dev/shm/torture-$$; cat in > $t; cat $t; rm $t"),
        odd("through-link", "ln -s in l; echo new > l"),
        odd("exchange", "mv in t; mv d/a in; mv t d/a"), odd("truncate", "truncate -s 2 in"),
        odd("xattr", "setfattr -n user.x -v y in 2>/dev/null; cat in"), odd("lock", "flock in cat in"),
        odd("write-then-read", "echo x > t; cat t; echo y > t; cat t"),
        odd("read-then-write", "cat in; echo more > in"),
        odd("same-twice", "cat in > out; cat in > out"), odd("overwrite-existing", "cat in > d/a"),
        odd("partial-write", "printf X | dd of=d/a conv=notrunc 2>/dev/null"),
        odd("mkdir-existing", "mkdir d; echo $?"), odd("rmdir", "mkdir e; rmdir e; rmdir d; echo $?"),
        odd("unlink-missing", "rm none; echo $?"),
        run("existing-output").file("out", "old\n").any_sh("cat in > out").repeats()
            .then("read-only", chmod("out", 0o444)).then("mode", chmod("out", 0o600))
            .then("a link", symlink("d/a", "out")).then("hard link", link("d/a", "out")),
        run("link-that-it-replaces").setup(symlink("in", "l")).any_sh("ln -sf d/a l").repeats()
            .then("leads to a directory", sh("ln -sfn d l")).then("leads nowhere", sh("ln -sfn none l")),
        run("link-that-it-reads-and-replaces").setup(symlink("in", "l"))
            .any_sh("readlink l; test -e l && echo there; cat l 2>&1; ln -sfn d/a l").repeats()
            .then("leads elsewhere", sh("ln -sfn d/b l")).then("leads nowhere", sh("ln -sfn none l"))
            .then("leads to itself", sh("ln -sfn l l")),
        run("existing-directory").setup(dir("e")).any_sh("mkdir -p e; cat in > e/out").twice()
            .then("mode", chmod("e", 0o700)).then("not there", rm("e")),
        run("output-removed-before").any_sh("rm -f out; cat in > out").twice().over(),
        run("cp-preserves-nothing").any("cp in out").twice().then("mode of input", chmod("in", 0o755))
            .then("existing output", put("out", "old")),
        run("cp-preserves-mode").any("cp -p in out").cold().then("mode of input", chmod("in", 0o755))
            .then("time of input", touch("in", -50)),
        run("cp-r-hands-on-modes").any("cp -r d out").twice().changes("mode of the directory", chmod("d", 0o700))
            .back("back", chmod("d", 0o755)),
        run("mv").any("mv in out").repeats(),
        run("rm").any("rm in").repeats(),
        run("ln").any("ln in out").repeats(),
        run("ln-s").any("ln -s in out").repeats().then("exists", put("out", "")),
        run("mkdir").any("mkdir e").repeats().over().may_miss(),
        run("mkdir-p").any("mkdir -p e/f").repeats().over().may_miss(),
        run("touch").any("touch out").repeats().over().may_miss(),
        run("chmod").any("chmod 600 in").repeats(),
        run("tar-x").setup(sh("tar cf t.tar d; rm -r d")).any("tar xf t.tar").repeats().over()
            .may_miss(),
        run("patch").program("patch").file("p", "--- in\n+++ in\n@@ -1 +1 @@\n-one\n+two\n").any("patch -i p").repeats()
            .over().may_miss(),
    ]
}

/// Different exit codes, signals, and processes that are left running.
#[rustfmt::skip]
fn ends() -> Vec<Case> {
    let ends = |name: &str, text: &str| run(&format!("ends-{name}")).any_sh(text).repeats();
    let mut cases: Vec<Case> = [1, 2, 3, 42, 77, 99, 125, 126, 127].map(|code: u8| ends(&format!("with-{code}"), &format!("cat in; exit {code}")).hits())
        .to_vec();
    cases.extend([128, 129, 130, 137, 143, 200, 255].map(|code: u8| ends(&format!("with-{code}"), &format!("cat in; exit {code}"))));
    cases.extend(["TERM", "KILL", "SEGV", "INT", "HUP", "PIPE", "USR1"].map(|signal| ends(&format!("by-{signal}"), &format!("cat in > out; kill -{signal} $$"))));
    cases.extend([
        ends("child-by-KILL", "sh -c 'kill -KILL $$'; echo $?; cat in"),
        ends("after-failed-child", "false; cat in").hits(), ends("with-errors-on-stderr", "cat none; cat in").hits(),
        ends("daemon", "(sleep 0.1; echo late > late) >/dev/null 2>&1 </dev/null & cat in"),
        ends("daemon-with-stdout", "cat in; (sleep 0.1; echo late) &"),
        ends("daemon-by-setsid", "setsid sh -c 'sleep 0.1; : > late' >/dev/null 2>&1 </dev/null & cat in"),
        ends("background-and-wait", "cat in > o1 & cat d/a > o2 & wait; cat o1 o2"), ends("exec", "exec cat in").hits(),
        ends("nested-shells", "sh -c \"sh -c 'cat in'\"").hits(),
        ends("exec-a", "bash -c 'exec -a other cat in'").program("bash").hits(),
        ends("trap", "trap 'echo bye' EXIT; cat in").hits(), ends("timeout", "timeout 5 cat in"),
        ends("timed-out", "timeout 0.05 sleep 2; echo $?"),
        ends("network", "/usr/bin/python3 -c \"import socket\ntry: socket.create_connection(('127.0.0.1',9),0.2)\nexcept OSError as e: print(type(e).__name__)\""),
        ends("listens", "/usr/bin/python3 -c \"import socket; s=socket.socket(); s.bind(('127.0.0.1',0)); s.listen(); print('ok')\""),
        ends("resolves", "getent hosts localhost | wc -l"),
        ends("descriptor-3", "echo x >&3; cat in").any_stderr_ever(), ends("syslog", "logger -s x 2>/dev/null; cat in"),
        ends("ulimit", "ulimit -n 64; cat in"),
        ends("long-arguments", "env -i PATH=$PATH sh -c 'x=$(head -c 100000 /dev/zero | tr \"\\0\" x)
            for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do set -- \"$@\" $x; done
            for n in $(seq 96000 40 97400); do
            y=$(head -c $n /dev/zero | tr \"\\0\" x); /bin/echo \"$@\" $y 2>/dev/null | wc -c; done' sh"),
        ends("many-processes", "for i in $(seq 60); do cat in; done | wc -l").hits(),
        ends("unshare", "unshare -r cat in 2>/dev/null || cat in"),
        ends("chroot", "chroot . cat in 2>/dev/null || echo no"),
        ends("static-program", "if [ -x ./st ]; then ./st; else echo none; fi"),
        ends("stdout-order", "for i in 1 2 3; do echo out$i; echo err$i >&2; done").hits(),
        ends("much-output", "seq 100000; seq 50000 >&2").hits(), ends("binary-output", "head -c 5000 /bin/true").hits(),
        ends("no-output", ":").hits(),
        run("caller-interrupted").any_sh(": > busy; sleep 10; cat in").then("interrupted", nothing())
            .kill(rustix::process::Signal::INT, crate::step::Whom::Group).any_sh("cat in").then("then", nothing()),
        run("caller-terminated").any_sh("if [ -e slow ]; then : > busy; sleep 10; fi; cat in > out")
            .then("terminated", put("slow", "")).kill(rustix::process::Signal::TERM, crate::step::Whom::Group)
            .then("then", rm("slow")).again(),
        run("input-edited-meanwhile").any_sh("cat in; sleep 0.02; if [ -e new ]; then mv new in; fi; cat in")
            .then("edited", put("new", "two\n")).then("then", rm("new")).then("again", nothing()),
        // What libc reads by itself depends on the arguments, and on variables that the command sets.
        run("character-set-of-its-own").program("iconv").any("iconv -f ascii -t utf-8 in").cold().cold()
            .file("g/gconv-modules", "alias TORTURE// UTF-16//\n")
            .any_sh("GCONV_PATH=$PWD/g iconv -f ascii -t TORTURE in").then("another", nothing()).then("again", nothing())
            .then("edited", put("g/gconv-modules", "alias TORTURE// UTF-32//\n")),
        run("name-of-user").needs(crate::machine::Need::Mounts).setup(sh("cp /etc/passwd passwd"))
            .sh("unshare -m sh -c 'mount --bind passwd /etc/passwd; exec $RUN id -u'").cold().cold()
            .sh("unshare -m sh -c 'mount --bind passwd /etc/passwd; exec $RUN id -un'").then("name", nothing())
            .then("again", nothing()).then("renamed", sh("sed 's/^root:/torture:/' passwd > n; cat n > passwd; rm n")),
        // Neither may print `out`, because the other one may just have emptied it. Each prints one line,
        // because lines of the two may come in any order.
        run("two-at-once")
            .sh("$RUN sh -c 'cat in > out; sleep 0.02; test -e out && cat in' & $RUN sh -c 'cat in > out; sleep 0.02; test -e out && cat in'; wait")
            .repeats(),
        run("static").needs(crate::machine::Need::Works("echo 'int main(){}'>x.c; gcc -static x.c", "static libc"))
            .file("s.c", "#include <stdio.h>\nint main(void){FILE*f=fopen(\"in\",\"r\");int c;while((c=getc(f))!=EOF)putchar(c);return 0;}\n")
            .setup(Change::All(vec![sh("gcc -static s.c -o st"), rm("s.c")])).any("./st").repeats()
            .then("edited", put("in", "two\n")),
        run("static-child")
            .needs(crate::machine::Need::Works("echo 'int main(){}'>x.c; gcc -static x.c", "static libc"))
            .file("s.c", "#include <stdio.h>\nint main(void){FILE*f=fopen(\"in\",\"r\");int c;while((c=getc(f))!=EOF)putchar(c);return 0;}\n")
            .setup(sh("gcc -static s.c -o st; rm s.c")).any_sh("./st | tr a-z A-Z").repeats()
            .then("edited", put("in", "two\n")),
        run("raw-system-call")
            .file("s.c", "#include <sys/syscall.h>\n#include <unistd.h>\n#include <fcntl.h>\nint main(void){char b[99];int f=syscall(SYS_openat,AT_FDCWD,\"in\",0);int n=read(f,b,99);write(1,b,n);return 0;}\n")
            .setup(sh("gcc -w s.c -o raw; rm s.c")).any("./raw").repeats()
            .then("edited", put("in", "two\n")),
        run("inline-system-call").file("s.c", "static long c(long n,long a,long b,long d,long e){long r;register long q asm(\"r10\")=e;asm volatile(\"syscall\":\"=a\"(r):\"a\"(n),\"D\"(a),\"S\"(b),\"d\"(d),\"r\"(q):\"rcx\",\"r11\",\"memory\");return r;}\n\
            int main(void){static char b[99];long f=c(257,-100,(long)\"in\",0,0);long n=c(0,f,(long)b,99,0);c(1,1,(long)b,n,0);return 0;}\n")
                .needs(crate::machine::Need::Works("[ $(uname -m) = x86_64 ]", "x86-64"))
            .setup(sh("gcc s.c -o raw; rm s.c")).any("./raw").repeats()
            .then("edited", put("in", "two\n")),
        run("mmap")
            .file("s.c", "#include <sys/mman.h>\n#include <fcntl.h>\n#include <unistd.h>\nint main(void){int f=open(\"in\",0);char*p=mmap(0,4,PROT_READ,MAP_PRIVATE,f,0);write(1,p,4);return 0;}\n")
            .setup(sh("gcc -w s.c -o mm; rm s.c")).any("./mm").twice()
            .changes("edited", put("in", "two\n")),
        run("mmap-write")
            .file("s.c", "#include <sys/mman.h>\n#include <fcntl.h>\n#include <unistd.h>\nint main(void){int f=open(\"out\",O_RDWR|O_CREAT|O_TRUNC,0666);ftruncate(f,4);char*p=mmap(0,4,PROT_READ|PROT_WRITE,MAP_SHARED,f,0);close(f);p[0]='x';return 0;}\n")
            .setup(sh("gcc -w s.c -o mm; rm s.c")).any("./mm").repeats().over().may_miss(),
        run("io-uring-like-sendfile")
            .file("s.c", "#include <sys/sendfile.h>\n#include <fcntl.h>\n#include <unistd.h>\nint main(void){int f=open(\"in\",0),o=open(\"out\",O_WRONLY|O_CREAT|O_TRUNC,0666);sendfile(o,f,0,99);return 0;}\n")
            .setup(sh("gcc -w s.c -o sf; rm s.c"))
            .any("./sf").twice().changes("edited", put("in", "two\n")),
        run("openat-of-directory")
            .file("s.c", "#include <fcntl.h>\n#include <unistd.h>\nint main(void){char b[9];int d=open(\"d\",O_DIRECTORY);int f=openat(d,\"a\",0);write(1,b,read(f,b,9));fchdir(d);f=open(\"b\",0);write(1,b,read(f,b,9));return 0;}\n")
            .setup(sh("gcc -w s.c -o oa; rm s.c"))
            .any("./oa").twice().changes("edited", put("d/b", "other\n")).changes("the other", put("d/a", "x\n")),
    ]);
    cases
}
