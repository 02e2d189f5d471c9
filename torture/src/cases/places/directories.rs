//! One file from several directories and by several paths: through links, as a link, hard link or
//! copy.

use crate::case::{Case, case};
use crate::cases::texts::{H1, H2, H3, X_C};
use crate::change::{Change, all, copy, dir, link, mv, nothing, put, put_old, rm, swap, symlink};

/// A change that gives a file a second path.
type Same = fn(&str, &str) -> Change;

const V_C: &str = "#include \"h.h\"\nint v = H;\n";

#[rustfmt::skip]
pub(super) fn cases() -> Vec<Case> {
    let up = |name: &str| case(name).both().file("src/x.c", V_C).file("src/h.h", H1);
    let two = |name: &str,
    source: &str| case(name).both().file("m.c", source).file("p/inc/h.h", H1).file("q/inc/h.h", H2).cwd("p");
    let mut cases = vec![
        two("B/relative-I-of-two-directories", V_C).cmd("cc -Iinc -c {root}/m.c -o o.o").twice().cwd("q")
            .changes("other directory", nothing())
            .cwd("p").back("first directory", nothing()),
        two("B/relative-include-of-two-directories", V_C)
            .cmd("cc -include inc/h.h -iquote . -Iinc -c {root}/m.c -o {root}/o.o").twice()
            .cwd("q").changes("other directory", nothing()),
        two("B/relative-rsp-of-two-directories", "int v = H;\n").file("p/r", "-DH=1").file("q/r", "-DH=2")
            .cmd("cc @r -c {root}/m.c -o o.o").twice()
            .cwd("q").changes("other directory", nothing()),
        two("B/relative-CPATH-of-two-directories", "#include <h.h>\nint v = H;\n").env("CPATH", "inc")
            .cmd("cc -c {root}/m.c -o o.o").twice()
            .cwd("q").changes("other directory", nothing()),
        two("B/absolute-CPATH-of-two-directories", "#include <h.h>\nint v = H;\n").env("CPATH", "{root}/p/inc")
            .cmd("cc -c {root}/m.c -o o.o").twice()
            .usual_env().env("CPATH", "{root}/q/inc").changes("other path", nothing()),
        case("B/g-of-two-directories").both().file("m.c", "int v = 1;\n").dir("p").dir("q").cwd("p")
            .cmd("cc -g -c {root}/m.c -o o.o").twice()
            .cwd("q").changes("other directory", nothing()).cwd("p").back("first directory", nothing()),
        case("B/no-g-of-two-directories").both().file("m.c", "int v = 1;\n").dir("p").dir("q").cwd("p")
            .cmd("cc -c {root}/m.c -o o.o").twice()
            .cwd("q").then("other directory", nothing()),
        up("B/parent-source-with-decoy").file("build/src/x.c", "int decoy;\n").file("build/src/h.h", "#define H 9\n")
            .cwd("build")
            .cmd("cc ../src/x.c -I../src -c -o o.o").twice().changes("edited", put("src/h.h", H3))
            .back("decoy edited", all([put_old("src/h.h", H1), put("build/src/h.h", H2)])),
        up("B/build-parent-source").dir("build").cmd("cc -g -c src/x.c -o x.o").twice()
            .cmd("cc -g -c build/../src/x.c -o x.o")
            .changes("through build/..", nothing()).changes("edited", put("src/h.h", H3))
            .then("build is a link", all([rm("build"), dir("d/e"), symlink("d/e", "build")])),
        up("B/dot-slash").cmd("cc -g -c src/x.c -o x.o").twice().cmd("cc -g -c ./src/x.c -o x.o")
            .changes("./", nothing())
            .cmd("cc -g -c src//x.c -o x.o").changes("//", nothing()).cmd("cc -g -c src/./x.c -o ./x.o")
            .changes("/./", nothing()),
        case("B/link-parent-with-decoy").both().file("real/deep/k", "").file("real/inc/h.h", H1)
            .file("inc/h.h", "#define H 7\n").file("x.c", V_C)
            .setup(symlink("real/deep", "l")).cmd("cc -I{root}/l/../inc -c x.c -o x.o").twice()
            .changes("edited", put("real/inc/h.h", H3))
            .back("decoy edited", all([put_old("real/inc/h.h", H1), put("inc/h.h", H2)]))
            .then("link elsewhere", all([dir("other"), symlink("other", "l")])),
        case("B/cwd-through-link").both().file("real/x.c", "int f(void){return 1;}\n").setup(symlink("real", "sym"))
            .cwd("real").cmd("cc -g -c x.c -o x.o").twice()
            .cwd("sym").then("through the link", nothing()).cwd("real").back("real again", nothing())
            .cwd("sym").env("PWD", "{root}/real").then("real PWD", nothing()).usual_env().cwd("real")
            .env("PWD", "{root}/sym").then("link PWD", nothing())
            .usual_env().env("PWD", "/usr").then("lying PWD", nothing()).usual_env().env("PWD", "relative")
            .then("relative PWD", nothing())
            .usual_env().env("PWD", "").then("empty PWD", nothing()).usual_env().without("PWD")
            .then("no PWD", nothing()).cwd("sym").then("no PWD, link", nothing()),
        case("B/cwd-by-two-links").both().file("real/x.c", "const char *p=__FILE__;\n").setup(symlink("real", "s1"))
            .setup(symlink("real", "s2"))
            .cwd("s1").cmd("cc -g -c {cwd}/x.c -o {cwd}/x.o").twice().cwd("s2").changes("the other", nothing()),
        case("B/swapped-directories").both().file("p/x.c", "int f(void){return 1;}\n")
            .file("q/x.c", "int f(void){return 2;}\n").cmd("cc -c p/x.c -o x.o").twice()
            .changes("swapped", all([mv("p", "t"), mv("q", "p"), mv("t", "q")]))
            .back("back", all([mv("p", "t"), mv("q", "p"), mv("t", "q")])),
        case("B/source-is-a-link").both().file("r/x.c", V_C).file("r/h.h", H1).file("h.h", H2)
            .setup(symlink("r/x.c", "x.c")).cmd("cc -MD -c x.c -o x.o").twice()
            .changes("header beside the link goes", rm("h.h")).may_miss()
            .changes("is found through -I", put("i/h.h", H3)).may_miss(),
    ];
    let forests: [(&str, Same); 3] = [
        ("symlink", |file, name| symlink(format!("@ROOT@/{file}"), name)),
        ("hard-link", |file, name| link(file, name)),
        ("copy", |file, name| copy(file, name)),
    ];
    for (name, same) in forests {
        let how = |at: &str| all(["x.c", "h.h"].map(|file| same(&format!("store/{file}"), &format!("{at}/{file}"))));
        cases.push(case(format!("B/sandbox-of-{name}")).both().file("store/x.c", X_C).file("store/h.h", H1)
            .setup(how("s/1")).cwd("s/1").cmd("cc -c x.c -o x.o").twice()
            .cwd("s/2222").back("next sandbox", all([rm("s/1"), how("s/2222")]))
            .cwd("s/3").changes("store edited", all([swap("store/h.h", H2), rm("s/2222"), how("s/3")]))
            .changes("store swapped", all([rm("s/3"), mv("store/h.h", "store/old"), put_old("store/h.h", H3), how("s/3")])));
    }
    cases
}
