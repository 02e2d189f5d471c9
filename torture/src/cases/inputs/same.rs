//! Two paths of one file: `#pragma once`, `#import`, and search directories that are the same. Also
//! inputs that are not regular files.
//!
//! gcc regards two headers as one if size, mtime and content are equal, clang if the inode is the
//! same.

use crate::case::{Case, case};
use crate::cases::texts::{H1, H2};
use crate::change::{AGE_S, Change, all, copy, link, put, rm, symlink, touch};
use crate::machine::Need;

/// Each inclusion of the header makes one definition, so their number shows how often it was
/// included.
const ONCE_H: &str = "#pragma once\nN\n";
const TWICE_C: &str = "#define P(a,b) a##b\n#define Q(a,b) P(a,b)\n#define N int Q(v,__COUNTER__) = 1;\n\
                       #include \"a/h.h\"\n#include \"b/h.h\"\nint end;\n";
const IMPORT_C: &str = "#define P(a,b) a##b\n#define Q(a,b) P(a,b)\n#define N int Q(v,__COUNTER__) = 1;\n\
                        #import \"a/h.h\"\n#import \"b/h.h\"\nint end;\n";

#[rustfmt::skip]
pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, source, header) in [("pragma-once", TWICE_C, ONCE_H), ("import", IMPORT_C, "N\n")] {
        let both = |what: &str| case(format!("A/{name}-{what}")).both().file("x.c", source).file("a/h.h", header)
            .file("b/h.h", header)
            .cmd("cc -Wno-deprecated -MD -c x.c -o x.o");
        cases.extend([
            both("times").twice().then("times differ", touch("b/h.h", -9 * AGE_S)).again()
                .then("times are equal again", copy_time()).again(),
            both("times-first-differ").then("cold", touch("b/h.h", -9 * AGE_S)).then("times are equal", copy_time())
                .again(),
            both("both-touched").twice().then("both", all([touch("a/h.h", -50), copy_time()])),
            both("hard-link").twice().then("one file", link("a/h.h", "b/h.h")).again()
                .then("two again", copy("b/h.h", "c")).keep()
                .then("copied over", all([rm("b/h.h"), copy("a/h.h", "b/h.h")])).again(),
            both("link").twice().then("a link", symlink("../a/h.h", "b/h.h")).again(),
            both("dir-link").twice().then("one directory", all([rm("b"), symlink("a", "b")])).again(),
            both("content").twice().then("content differs", all([put("b/h.h", format!("{header}/**/")), copy_time()]))
                .again(),
            both("edited").twice()
                .changes("edited", all([put("a/h.h", format!("{header}int more;\n")), put("b/h.h", format!("{header}int more;\n"))])),
        ]);
    }
    cases.extend(inode_numbers());
    cases.extend(directories());
    cases.extend(no_plain_files());
    cases
}

fn copy_time() -> Change {
    crate::change::sh("touch -r a/h.h b/h.h")
}

/// Lists cases in which clang makes the inode number of an input part of a name.
#[rustfmt::skip]
fn inode_numbers() -> Vec<Case> {
    let region = "static inline int f(int n){\n#pragma omp target map(tofrom:n)\n{ n += 1; }\nreturn n;}\n";
    let new = |path: &str| all([copy(path, "new"), crate::change::mv("new", path)]);
    vec![
        case("A/inode-number-of-source").clang().file("x.c", format!("{region}int g(void){{return f(1);}}\n"))
            .cmd("cc -fopenmp -c x.c -o x.o").twice().then("another file", new("x.c")).again(),
        case("A/inode-number-of-header").clang().file("x.c", "#include \"h.h\"\nint g(void){return f(1);}\n")
            .file("h.h", region)
            .cmd("cc -fopenmp -S -o - x.c").twice().back("another source", new("x.c"))
            .then("another header", new("h.h")).again(),
        case("A/inode-number-of-device-code").clang()
            .file("x.hip", "static __attribute__((device)) int v;\n__attribute__((global)) void k();\nvoid *g(){return &v;}\n")
            .needs(Need::Works("echo > x.hip; clang -x hip --cuda-host-only -nogpuinc -nogpulib -fgpu-rdc -S x.hip", "clang for HIP"))
            .cmd("cc -x hip --cuda-host-only -nogpuinc -nogpulib -fgpu-rdc -fuse-cuid=none -S x.hip -o x.s").twice()
            .then("another file", new("x.hip")).again(),
    ]
}

const NEXT_C: &str = "#include <h.h>\nint f(void){return H;}\n";

/// Lists cases of search directories that become the same, which compilers then search only once.
#[rustfmt::skip]
fn directories() -> Vec<Case> {
    let next = |name: &str| case(name).both().file("x.c", NEXT_C).file("a/h.h", "#include_next <h.h>\n")
        .file("b/h.h", "#include_next <h.h>\n").file("c/h.h", H1).cmd("cc -Ia -Ib -Ic -MD -c x.c -o x.o");
    vec![
        next("A/dirs-become-one").twice().then("by a link", all([rm("b"), symlink("a", "b")])).again(),
        next("A/dirs-become-one-of-system").cmd("cc -Ia -isystem b -isystem c -MD -c x.c -o x.o").twice()
            .then("by a link", all([rm("a"), symlink("b", "a")])).again(),
        case("A/dirs-become-one-has-next").both().file("x.c", NEXT_C).file("b/k", "")
            .file("a/h.h", "#if __has_include_next(<h.h>)\n#include_next <h.h>\n#else\n#define H 9\n#endif\n")
            .file("c/h.h", H2)
            .cmd("cc -Ia -Ib -c x.c -o x.o").twice().then("b is c", all([rm("b"), symlink("c", "b")])).again()
            .then("b is a", symlink("a", "b")).again(),
        case("A/dirs-system-demotes").both().file("x.c", "#include <h.h>\nint f(void){return H;}\n")
            .file("b/h.h", "#define H 1\n#define H 2\n")
            .dir("a").cmd("cc -Ia -isystem b -c x.c -o x.o").twice()
            .then("the same directory by both names", all([rm("a"), symlink("b", "a")])).again()
            .back("back", all([rm("a"), crate::change::dir("a")])),
        case("A/dir-becomes-absent-link").both().file("x.c", NEXT_C).file("b/h.h", H1).dir("a")
            .cmd("cc -Ia -Ib -c x.c -o x.o").twice()
            .then("a link to nothing", all([rm("a"), symlink("none", "a")])).then("which appears", put("none/h.h", H2))
            .again(),
    ]
}

/// FIFOs, devices, standard input.
#[rustfmt::skip]
fn no_plain_files() -> Vec<Case> {
    let fifo = "timeout 9 cat text > p/h.h & timeout 9 $CC -Ip -c x.c -o x.o; r=$?; wait; exit $r";
    vec![
        case("A/fifo-header").both().file("x.c", NEXT_C).setup(crate::change::dir("p"))
            .setup(Change::Fifo("p/h.h".into())).file("text", H1)
            .sh(fifo).cold().then("again", rm("none")).then("other text", put("text", H2)),
        case("A/fifo-source").both().setup(Change::Fifo("x.c".into())).file("text", "int a;\n")
            .sh("timeout 9 cat text > x.c & timeout 9 $CC -c x.c -o x.o; r=$?; wait; exit $r")
            .cold().then("again", rm("none")).then("other text", put("text", "int b;\n")),
        case("A/dev-null-source").both().cmd("cc -x c -c /dev/null -o x.o").cold().then("again", rm("none")),
        case("A/dev-null-header").both().file("x.c", "int a;\n").cmd("cc -include /dev/null -c x.c -o x.o").twice(),
        case("A/dev-stdin-source").both().cmd("cc -x c -c /dev/stdin -o x.o").stdin("int a;\n").cold()
            .then("again", rm("none"))
            .stdin("int b;\n").then("other text", rm("none")).then("other text, again", rm("none")),
        case("A/dev-fd-source").both().cmd("cc -x c -c /dev/fd/0 -o x.o").stdin("int a;\n").cold().stdin("int b;\n")
            .then("other text", rm("none")),
        case("A/proc-fd-source").both().cmd("cc -x c -c /proc/self/fd/0 -o x.o").stdin("int a;\n").cold()
            .stdin("int b;\n").then("other text", rm("none")),
        case("A/stdin-by-include").both().file("x.c", "int f(void){return H;}\n")
            .cmd("cc -include /dev/stdin -c x.c -o x.o").stdin(H1).cold()
            .stdin(H2).then("other text", rm("none")),
        case("A/stdin-included").both().file("x.c", "#include \"/dev/stdin\"\nint f(void){return H;}\n")
            .cmd("cc -c x.c -o x.o").stdin(H1).cold()
            .stdin(H2).then("other text", rm("none")),
        case("A/rsp-from-stdin").both().file("x.c", "int f(void){return H;}\n").cmd("cc @/dev/stdin -c x.c -o x.o")
            .stdin("-DH=1").cold()
            .stdin("-DH=2").then("other text", rm("none")),
        case("A/source-by-process-substitution").both().program("bash").file("text", "int a;\n")
            .sh("bash -c \"$CC -x c -c <(cat text) -o x.o\"").cold().then("other text", put("text", "int b;\n")),
        case("A/source-is-a-directory").both().dir("x.c").cmd("cc -c x.c -o x.o").cold().then("again", rm("none"))
            .then("becomes a file", all([rm("x.c"), put("x.c", "int a;\n")])),
        case("A/proc-header").both().file("x.c", "#include \"/proc/self/comm\"\nint a;\n")
            .cmd("cc -Dcc1=int -Dclang=int -c x.c -o x.o").cold(),
    ]
}
