//! Checkouts with unusual paths, and directories that were removed.

use super::checkouts::{ABSOLUTE, FAR, Far, HEADER, NAMES_ITSELF, RELATIVE, SOURCE, fill, in_two};
use crate::case::{Case, case};
use crate::change::{all, nothing, put, rm, sh};

#[rustfmt::skip]
pub(super) fn cases() -> Vec<Case> {
    let itself = [NAMES_ITSELF, HEADER];
    let plain = [SOURCE, HEADER];
    let moved = || all([crate::change::dir("m/o/v/e"), crate::change::mv("a", "m/o/v/e/d")]);
    let odd = |name: &str, other: &str| {
        in_two(case(format!("B/place-{name}"))
            .both(), &itself, &format!("cc -g -MD -MF x.d {ABSOLUTE}"), Far::Differs, other)
    };
    let relative = |name: &str, other: &str| {
        in_two(case(format!("B/place-{name}-relative"))
            .both(), &plain, &format!("cc -MD -MF x.d {RELATIVE}"), Far::Hits, other)
    };
    let odd_names = [
        ("below-other", "a/a"), ("name-is-prefix", "aa"), ("shorter", "b"), ("same-length", "c"), ("space", "b b/c  d"),
        ("quotes", "b/it's \"q\""), ("dollar", "b/$x$$"),
        ("hash", "b/#x"), ("colon", "b/x:y"), ("backslash", "b/x\\y"), ("equals", "b/x=y"), ("percent", "b/%s%n"),
        ("at", "b/@x"), ("dash", "b/-x"),
        ("newline", "b/x\ny"), ("unicode", "b/ü→"), ("dots", "b/..."), ("star", "b/*?[x]"), ("tab", "b/x\ty"),
        ("comma", "b/x,y"),
    ];
    let mut cases: Vec<Case> = odd_names.iter().map(|(name, other)| odd(name, other)).collect();
    cases.extend(odd_names.iter().map(|(name, other)| relative(name, other)));
    cases.extend([
        not_text(),
        case("B/header-differs-elsewhere").both().setup(fill("a", &plain)).setup(fill(FAR, &plain))
            .setup(put(format!("{FAR}/inc/h.h"), "#define H 43\n"))
            .cmd(&format!("cc {RELATIVE}")).cwd("a").twice().cwd(FAR).changes("elsewhere", nothing())
            .cmd(&format!("cc {ABSOLUTE}"))
            .cwd("a").changes("absolute here", nothing()).cwd(FAR).changes("absolute elsewhere", nothing()),
        case("B/source-differs-elsewhere").both().setup(fill("a", &plain)).setup(fill(FAR, &plain))
            .setup(put(format!("{FAR}/src/x.c"), "int other;\n"))
            .cmd(&format!("cc {RELATIVE}")).cwd("a").twice().cwd(FAR).changes("elsewhere", nothing()),
        case("B/header-missing-elsewhere").both().setup(fill("a", &plain)).setup(fill(FAR, &plain))
            .setup(rm(format!("{FAR}/inc/h.h")))
            .cmd(&format!("cc {RELATIVE}")).cwd("a").twice().cwd(FAR).changes("elsewhere", nothing()),
        case("B/first-deleted").both().setup(fill("a", &plain)).setup(fill(FAR, &plain)).cmd(&format!("cc {RELATIVE}"))
            .cwd("a").twice()
            .cwd(FAR).back("elsewhere", rm("a")),
        case("B/first-deleted-absolute").both().setup(fill("a", &plain)).setup(fill(FAR, &plain))
            .cmd(&format!("cc -MD {ABSOLUTE}")).cwd("a").twice()
            .cwd(FAR).back("elsewhere", rm("a")),
        case("B/moved").both().setup(fill("a", &plain)).cmd(&format!("cc {RELATIVE}")).cwd("a").twice().cwd("m/o/v/e/d")
            .back("moved", moved()),
        // A path in an object or library leads to where it was made, also after it was moved.
        case("B/moved-object-names-source").program("objdump").cmd("objdump -S x.o").cwd("a")
            .setup(sh("mkdir a; cd a; echo 'int f(void){return 1;}' > x.c; gcc -g -c x.c")).twice()
            .cwd("m/o/v/e/d").changes("moved", moved()),
        case("B/moved-library-names-library").both().cmd("cc m.o -L. -lk -o m").cwd("a")
            .setup(sh("mkdir -p a/l; cd a; echo 'int z(void){return 1;}' > z.c; gcc -shared -fPIC z.c -o l/libz9.so
                echo 'int z(void); int k(void){return z();}' > k.c
                gcc -shared -fPIC k.c -o libk.so -Ll -lz9 -Wl,-rpath,$PWD/l
                echo 'int k(void); int main(void){return k();}' > m.c; gcc -c m.c")).twice()
            .cwd("m/o/v/e/d").then("moved", moved()),
        case("B/deleted-and-made-anew").both().setup(fill("a", &plain)).cmd(&format!("cc -g {RELATIVE}")).cwd("a")
            .twice()
            .back("made anew", all([rm("a"), fill("a", &plain), sh("touch -d '1 hour ago' a/src/x.c a/inc/h.h")])),
        case("B/read-only-sources").both().setup(fill("a", &plain)).setup(fill(FAR, &plain))
            .setup(sh("chmod -R a-w a/src a/inc"))
            .cmd(&format!("cc {RELATIVE}")).cwd("a").twice().cwd(FAR).back("elsewhere", nothing()),
        case("B/deep").both().setup(fill(&"d/".repeat(80), &plain)).cmd(&format!("cc -g -MD {ABSOLUTE}"))
            .cwd("d/".repeat(80)).twice(),
        case("B/root-directory").both().file("x.c", "int f(void){return 1;}\n").cmd("cc -g -c {root}/x.c -o {root}/x.o")
            .cwd("/").twice()
            .cwd("/usr").then("from /usr", nothing()),
        case("B/working-directory-gone").both().file("x.c", "int a;\n").dir("d").cwd("d")
            .sh("rmdir ../d; $CC -c {root}/x.c -o {root}/x.o").repeats(),
    ]);
    cases
}

/// A checkout whose path is not valid UTF-8.
fn not_text() -> Case {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;
    let dir = PathBuf::from(OsStr::from_bytes(b"b\xff\xfe/p"));
    let case = case("B/place-no-text").both().setup(fill("a", &[NAMES_ITSELF, HEADER]));
    let case = case.file(dir.join("src/x.c"), NAMES_ITSELF.1).file(dir.join("inc/h.h"), HEADER.1).dir(dir.join("out"));
    let case = case.cmd(&format!("cc -g -MD -MF x.d {ABSOLUTE}")).cwd("a").twice();
    case.cwd(dir).changes("elsewhere", nothing()).cwd("a").back("first place again", nothing())
}
