//! Code generators: Python, bison, flex, protoc, and the files that they import and list.

use crate::case::{Case, case};
use crate::change::{all, nothing, put, rm, sh, touch};

const GEN: &str = "import mod, sys\nopen('out.c','w').write('int v=%d;\\n' % mod.VALUE)\n";
const GRAMMAR: &str = "%token A\n%%\ns: A;\n%%\n";
const LEXER: &str = "%option noyywrap\n%%\na return 1;\n%%\n";
const PROTO: &str = "syntax = \"proto3\";\nimport \"q.proto\";\nmessage P { Q q = 1; }\n";

#[rustfmt::skip]
pub(super) fn cases() -> Vec<Case> {
    let python = |name: &str,
    text: &str| case(format!("F/python-{name}")).program("/usr/bin/python3").file("gen.py", text)
        .env("PYTHONDONTWRITEBYTECODE", "1").any("/usr/bin/python3 gen.py");
    let module = |value: u8| put("mod.py", format!("VALUE = {value}\n"));
    vec![
        python("plain", "print(sum(range(10)))\n").twice().changes("edited", put("gen.py", "print(sum(range(11)))\n")),
        python("module", GEN).setup(module(1)).twice().changes("module edited", module(2)).back("back", module(1)),
        python("module-same-size-old-time", GEN).setup(module(1)).twice()
            .changes("module edited", crate::change::swap("mod.py", "VALUE = 2\n")),
        python("module-bytecode", GEN).usual_env().setup(module(1)).cold().over().may_miss()
            .then("module edited", module(2)).loose("__pycache__*", "bytecode holds times"),
        python("module-appears-earlier", GEN).setup(module(1)).usual_env().env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PYTHONPATH", "{root}/early:{root}/late").setup(sh("mkdir early late; mv mod.py late")).twice()
            .changes("appears", put("early/mod.py", "VALUE = 7\n")).back("goes", rm("early/mod.py")),
        python("module-shadows-standard", "import json\nprint(json.dumps(1))\n").twice()
            .changes("appears", put("json.py", "def dumps(x): return 'mine'\n")).back("goes", rm("json.py")),
        python("package", "import p.q\nprint(p.q.V)\n").file("p/__init__.py", "").file("p/q.py", "V = 1\n").twice()
            .changes("edited", put("p/q.py", "V = 2\n")).changes("package", put("p/__init__.py", "print('hello')\n")),
        python("PYTHONPATH", GEN).file("a/mod.py", "VALUE = 1\n").file("b/mod.py", "VALUE = 2\n")
            .env("PYTHONPATH", "{root}/a").twice().usual_env().env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PYTHONPATH", "{root}/b").changes("another", nothing()),
        python("variable", "import os\nprint(os.environ.get('X'))\n").twice().env("X", "1").changes("set", nothing()),
        python("environ-all", "import os\nprint(len([k for k in os.environ if k.startswith('Y')]))\n").cold()
            .env("YES", "1").then("set", nothing()),
        python("arguments", "import sys\nprint(sys.argv)\n").twice().any("/usr/bin/python3 gen.py x")
            .changes("another", nothing()),
        python("stdin", "import sys\nprint(sys.stdin.read())\n").stdin("1").twice().stdin("2")
            .changes("other text", nothing()),
        python("subprocess", "import subprocess\nprint(subprocess.check_output(['cat','in']))\n").file("in", "1\n")
            .twice().changes("edited", put("in", "2\n")),
        python("template", "import string\nopen('out','w').write(string.Template(open('t').read()).substitute(x=1))\n")
            .file("t", "$x a\n").twice().changes("edited", put("t", "$x b\n")),
        python("directory-before-the-one-above", "import pathlib\nd=pathlib.Path('a/b/c')\nd.mkdir(parents=True, exist_ok=True)\n(d/'out').write_text('x')\n")
            .twice().then("one is there", sh("mkdir -m 700 a")).then("a file is there", all([rm("a"), put("a", "x")]))
            .back("none is there", rm("a")),
        python("glob-of-inputs", "import glob\nopen('out','w').write('\\n'.join(sorted(glob.glob('i/*.x'))))\n")
            .file("i/a.x", "").twice().changes("one more", put("i/b.x", "")).back("one less", rm("i/b.x"))
            .then("not of the pattern", put("i/c.y", "")),
        python("hash-seed", "print(list({'a','b','c','d','e'}))\n").env("PYTHONHASHSEED", "1").twice().may_miss()
            .usual_env().env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONHASHSEED", "2").then("another", nothing()),
        python("writes-only-if-changed", "import os\nnew='x\\n'\nif not os.path.exists('out') or open('out').read()!=new: open('out','w').write(new)\n")
            .twice().over().may_miss().then("differs", put("out", "old\n")).then("is the same", put("out", "x\n")),
        python("temporary", "import tempfile,os\nf=tempfile.NamedTemporaryFile('w',delete=False); f.write('x'); f.close(); print(open(f.name).read()); os.unlink(f.name)\n")
            .twice().may_miss(),
        python("imports-that-draw", "import random, tempfile, secrets, multiprocessing, uuid\nprint(open('in').read())\n")
            .file("in", "1\n").repeats().again().then("edited", put("in", "2\n")).then("edited, again", nothing()).again(),
        python("imports-that-read-the-clock", "import logging, concurrent.futures\nprint(open('in').read())\n")
            .file("in", "1\n").repeats().again().then("edited", put("in", "2\n")),
        python("imports-that-know-mtimes", "import zipfile, tarfile, shutil\nopen('out', 'w').write('x')\n").twice()
            .then("directory newer", touch(".", 0)).then("directory older", touch(".", -9999)),
        python("random-seeded", "import random\nrandom.seed(7)\nprint(random.choice('abcdefgh'), random.Random(8).random())\n")
            .repeats().again(),
        python("random-of-few", "import random\nprint(random.choice('ab'))\n").repeats().then("third", nothing())
            .then("fourth", nothing()).varies(),
        python("random-in-a-module", "import mod\nprint(mod.VALUE)\n").setup(put("mod.py", "from random import *\nVALUE = choice('ab')\n"))
            .repeats().then("third", nothing()).then("fourth", nothing()).varies(),
        python("random-number", "import secrets, uuid\nprint(uuid.uuid4(), secrets.token_hex())\n").repeats()
            .then("third", nothing()).varies(),
        python("random-of-the-library", "import email.utils\nprint(email.utils.make_msgid(domain='x'))\n").repeats()
            .then("third", nothing()).varies(),
        python("date-of-today", "import logging, datetime\nprint(datetime.date.today())\n").repeats()
            .then("third", nothing()).never_hits(),
        python("year-of-a-log", "import logging, sys\nlogging.basicConfig(format='%(asctime)s', datefmt='%Y', stream=sys.stdout)\nlogging.error('')\n")
            .repeats().then("third", nothing()).never_hits(),
        python("time-of-the-import", "import logging\nprint(logging._startTime)\n").repeats().then("third", nothing()).varies(),
        python("mtime-of-its-directory", "import os, json\nm = os.stat('.').st_mtime\nimport xml\nprint(m)\n").cold()
            .then("directory newer", touch(".", 0)).then("directory older", touch(".", -9999)).need_not_hit(),
        python("error", "import none\n").cold().then("appears", put("none.py", "print('now')\n")),
        python("exit", "import sys; sys.exit(5)\n").twice(),
        python("threads", "import threading\nt=threading.Thread(target=lambda: open('out','w').write(open('in').read())); t.start(); t.join()\n")
            .file("in", "1\n").twice().changes("edited", put("in", "2\n")),
        python("fork", "import os\np=os.fork()\nif p==0:\n open('out','w').write(open('in').read()); os._exit(0)\nos.waitpid(p,0)\n")
            .file("in", "1\n").twice().changes("edited", put("in", "2\n")),
        python("multiprocessing", "import multiprocessing as m\ndef f(n): return open('in').read()*n\nif __name__=='__main__': print(m.Pool(2).map(f,[1,2]))\n")
            .file("in", "1\n").repeats().then("edited", put("in", "2\n")),
        python("ctypes", "import ctypes\nprint(ctypes.CDLL(None).abs(-5))\n").repeats(),
        python("chdir", "import os\nos.chdir('i'); print(open('a').read())\n").file("i/a", "1\n").twice()
            .changes("edited", put("i/a", "2\n")),
        python("shebang", "")
            .setup(sh("printf '#!/usr/bin/env python3\\nprint(open(\"in\").read())\\n' > s.py; chmod 755 s.py"))
            .file("in", "1\n").any("./s.py").twice().changes("edited", put("in", "2\n")),
        case("F/bison").program("bison").file("g.y", GRAMMAR).any("bison -d g.y -o g.c").twice()
            .changes("edited", put("g.y", "%token A B\n%%\ns: A | B;\n%%\n")).over().may_miss(),
        case("F/bison-report").program("bison").file("g.y", GRAMMAR).any("bison -v --graph g.y -o g.c").twice(),
        case("F/bison-warns").program("bison").file("g.y", "%token A\n%%\ns: A | A;\n%%\n")
            .any("bison -Wall g.y -o g.c").twice(),
        case("F/bison-fails").program("bison").file("g.y", "%%\ns: nope;\n").any("bison g.y -o g.c").twice()
            .changes("mended", put("g.y", GRAMMAR)),
        case("F/bison-skeleton").program("bison").file("g.y", GRAMMAR).file("s.c", "").any("bison -S ./s.c g.y -o g.c")
            .cold().then("skeleton edited", put("s.c", "m4_divert(0)x\n")),
        case("F/bison-other-place").program("bison").file("a/g.y", GRAMMAR).file("bbb/c/g.y", GRAMMAR).cwd("a")
            .any("bison -d g.y -o g.c").twice().cwd("bbb/c").then("elsewhere", nothing()),
        case("F/flex").program("flex").file("l.l", LEXER).any("flex -o l.c l.l").twice()
            .changes("edited", put("l.l", "%option noyywrap\n%%\nb return 2;\n%%\n")).over().may_miss(),
        case("F/flex-stdout").program("flex").file("l.l", LEXER).any("flex -t l.l").twice(),
        case("F/flex-header").program("flex").file("l.l", LEXER).any("flex --header-file=l.h -o l.c l.l").twice(),
        case("F/flex-stdin").program("flex").any("flex -t").stdin(LEXER).twice().stdin("%%\nc return 3;\n%%\n")
            .changes("other text", nothing()),
        case("F/protoc").program("protoc").file("p.proto", PROTO)
            .file("q.proto", "syntax = \"proto3\";\nmessage Q { int32 a = 1; }\n").dir("out")
            .any("protoc --cpp_out=out p.proto q.proto").twice()
            .changes("imported one edited", put("q.proto", "syntax = \"proto3\";\nmessage Q { int32 a = 1; int32 b = 2; }\n")),
        case("F/protoc-descriptor").program("protoc").file("p.proto", PROTO)
            .file("q.proto", "syntax = \"proto3\";\nmessage Q { int32 a = 1; }\n")
            .any("protoc -o p.desc --include_imports --dependency_out=p.d p.proto").twice()
            .changes("imported one edited", put("q.proto", "syntax = \"proto3\";\nmessage Q { int64 a = 1; }\n")),
        case("F/protoc-import-path").program("protoc").file("p.proto", PROTO)
            .file("b/q.proto", "syntax = \"proto3\";\nmessage Q { int32 a = 1; }\n").dir("a")
            .any("protoc -I. -Ia -Ib -o p.desc p.proto").twice()
            .then("appears earlier", put("a/q.proto", "syntax = \"proto3\";\nmessage Q { int64 z = 9; }\n")).again()
            .back("goes", rm("a/q.proto")),
        case("F/protoc-python").program("protoc").file("q.proto", "syntax = \"proto3\";\nmessage Q { int32 a = 1; }\n")
            .any("protoc --python_out=. q.proto").twice(),
        case("F/protoc-plugin").program("protoc").program("/usr/bin/python3")
            .file("q.proto", "syntax = \"proto3\";\nmessage Q { int32 a = 1; }\n")
            .setup(crate::change::script("gen", "cat >/dev/null; cat answer\n")).file("answer", "")
            .any("protoc --plugin=protoc-gen-x=./gen --x_out=. q.proto").twice()
            .then("answer edited", put("answer", "\n\u{2}no")),
        case("F/protoc-fails").program("protoc").file("p.proto", PROTO).any("protoc -o p.desc p.proto").twice()
            .then("appears", put("q.proto", "syntax = \"proto3\";\nmessage Q { int32 a = 1; }\n")),
        case("F/perl-module").program("perl").file("g.pl", "use lib '.'; use M; print M::v();\n")
            .file("M.pm", "package M; sub v { 1 } 1;\n").any("perl g.pl").twice()
            .changes("module edited", put("M.pm", "package M; sub v { 2 } 1;\n")),
        case("F/perl-hash-order").program("perl").any("perl -e 'print keys %{{map{$_=>1}a..z}}'").repeats().varies(),
        case("F/tclsh").program("tclsh").file("g.tcl", "source lib.tcl\nputs $v\n").file("lib.tcl", "set v 1\n")
            .any("tclsh g.tcl").twice().changes("edited", put("lib.tcl", "set v 2\n")),
        case("F/m4").program("m4").file("g.m4", "include(`inc.m4')V\n").file("inc.m4", "define(V,1)").any("m4 g.m4")
            .twice().changes("edited", put("inc.m4", "define(V,2)")),
        case("F/awk-program").file("p.awk", "{ print NR, $0 }\n").file("in", "x\n").any("awk -f p.awk in").twice()
            .changes("program edited", put("p.awk", "{ print $0 }\n")),
        case("F/sed-script").file("s.sed", "s/x/y/\n").file("in", "x\n").any("sed -f s.sed in").twice()
            .changes("script edited", put("s.sed", "s/x/z/\n")),
        case("F/sed-writes").file("s.sed", "s/x/y/w out\n").file("in", "x\n").any("sed -n -f s.sed in").twice()
            .changes("edited", put("in", "xx\n")),
        case("F/make-by-run").file("Makefile", "out: in\n\tcp in out\n").file("in", "1\n").any("make -s").repeats()
            .over().may_miss().then("edited", put("in", "2\n"))
            .then("output newer", all([put("out", "old\n")])),
        case("F/make-directory-by-run").file("Makefile", "out: in\n\tmkdir -p out; cp in out/x; touch out\n").file("in", "1\n")
            .any("make").cold().then("again", nothing()).then("there", put("out/x", "old\n")).again()
            .then("older", touch("out", -2 * crate::change::AGE_S)).then("older, again", nothing())
            .then("newer", touch("out", -5)),
        case("F/make-of-directory-by-run").file("Makefile", "out: d\n\tls d > out\n").file("d/a", "").any("make").cold()
            .then("again", nothing()).then("there", put("out", "old\n"))
            .then("directory newer", touch("d", 0)).then("older", touch("d", -9999)),
        case("F/git-describe").program("git")
            .setup(sh("git init -q .; git -c user.name=a -c user.email=b commit -q --allow-empty -m one"))
            .any("git log --format=%s").repeats()
            .then("a commit more", sh("git -c user.name=a -c user.email=b commit -q --allow-empty -m two"))
            .loose(".git*", "git's own files"),
        case("F/ls-by-version-script")
            .setup(crate::change::script("version.sh", "if [ -e VERSION ]; then cat VERSION; else echo unknown; fi\n"))
            .any("./version.sh").twice().changes("appears", put("VERSION", "1.0\n"))
            .changes("edited", put("VERSION", "1.1\n")).back("goes", rm("VERSION")),
    ]
}
