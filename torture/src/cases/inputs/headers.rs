//! A header appears earlier on the search path than the one in use, for each kind of search path.

use crate::case::{Case, case};
use crate::cases::texts::{ANGLE_C, H1, H2, H3, X_C};
use crate::change::{Change, all, chmod, dir, link, mv, nothing, put, put_old, rm, symlink};
use std::path::{Path, PathBuf};

/// A header appears, is edited, and is removed again, with the directories that were made for it.
fn appears(case: Case, cmd: &str, header: &str) -> Case {
    let goes = first_new(&case, Path::new(header));
    let with = case.both().provable().cmd(cmd).twice().changes("appears", put(header, H2));
    with.changes("is edited", put(header, H3)).back("goes", rm(goes))
}

/// The topmost directory above `header` that the case does not have, or else `header` itself.
fn first_new(case: &Case, header: &Path) -> PathBuf {
    let made: Vec<&Path> = case
        .files
        .iter()
        .filter_map(|change| match change {
            Change::Put(path, _) | Change::Directory(path, _) => Some(path.as_path()),
            _ => None,
        })
        .collect();
    let is_new = |path: &&Path| !path.as_os_str().is_empty() && !made.iter().any(|made| made.starts_with(path));
    header.ancestors().filter(is_new).last().unwrap_or(header).to_owned()
}

const OBJ: &str = "-c x.c -o x.o";
const BESIDE_C: &str = "#include \"h.h\"\nint f(void){return H;}\n";
const SUB_C: &str = "#include <s/h.h>\nint f(void){return H;}\n";
const STDIO_C: &str = "#include <stdio.h>\n#ifndef H\n#define H 0\n#endif\nint f(void){return H;}\n";
const NEXT_C: &str = "#include_next <h.h>\n";
const HAS_C: &str =
    "#if __has_include(\"o.h\")\n#include \"o.h\"\n#else\n#define H 1\n#endif\nint f(void){return H;}\n";
const ASKS_C: &str = "#if __has_include(<q/o.h>)\nint f(void){return 2;}\n#else\nint f(void){return 1;}\n#endif\n";
const HAS_NEXT: &str = "#if __has_include_next(<h.h>)\n#include_next <h.h>\n#else\n#define H 7\n#endif\n";

#[rustfmt::skip]
pub(super) fn cases() -> Vec<Case> {
    let angle = |name: &str| case(name).file("x.c", ANGLE_C).file("b/h.h", H1);
    let mut cases = vec![
        appears(angle("A/shadow-I").dir("a"), "cc -Ia -Ib -c x.c -o x.o", "a/h.h"),
        appears(angle("A/shadow-I-MD").dir("a"), "cc -Ia -Ib -MD -c x.c -o x.o", "a/h.h"),
        appears(angle("A/shadow-I-MMD-MP").dir("a"), "cc -Ia -Ib -MMD -MP -MF d -c x.c -o x.o", "a/h.h"),
        appears(angle("A/shadow-absent-dir"), "cc -Ia -Ib -c x.c -o x.o", "a/h.h"),
        appears(angle("A/shadow-deep-absent-dir"), "cc -Ia/b/c/d -Ib -c x.c -o x.o", "a/b/c/d/h.h"),
        appears(angle("A/shadow-many-dirs").dir("a3"), "cc -Ia1 -Ia2 -Ia3 -Ia4 -Ia5 -Ib -c x.c -o x.o", "a3/h.h"),
        appears(angle("A/shadow-isystem").dir("a"), "cc -isystem a -isystem b -c x.c -o x.o", "a/h.h"),
        appears(angle("A/shadow-I-before-isystem"), "cc -isystem b -Ia -c x.c -o x.o", "a/h.h"),
        appears(angle("A/shadow-idirafter").dir("a"), "cc -idirafter a -idirafter b -c x.c -o x.o", "a/h.h"),
        appears(angle("A/shadow-rsp").file("r", "-Ia -Ib").dir("a"), "cc @r -c x.c -o x.o", "a/h.h"),
        appears(angle("A/shadow-CPATH").env("CPATH", "a:b"), "cc -c x.c -o x.o", "a/h.h"),
        appears(angle("A/shadow-CPATH-empty-part").env("CPATH", ":b"), "cc -c x.c -o x.o", "h.h"),
        appears(angle("A/shadow-C_INCLUDE_PATH").env("C_INCLUDE_PATH", "a:b"), "cc -c x.c -o x.o", "a/h.h"),
        appears(case("A/shadow-CPLUS_INCLUDE_PATH").file("x.cc", ANGLE_C).file("b/h.h", H1)
            .env("CPLUS_INCLUDE_PATH", "a:b"),
            "c++ -c x.cc -o x.o", "a/h.h"),
        appears(case("A/shadow-sub").file("x.c", SUB_C).file("b/s/h.h", H1)
            .dir("a/s"), "cc -Ia -Ib -c x.c -o x.o", "a/s/h.h"),
        appears(case("A/shadow-new-sub").file("x.c", SUB_C).file("b/s/h.h", H1)
            .dir("a"), "cc -Ia -Ib -c x.c -o x.o", "a/s/h.h"),
        appears(case("A/shadow-quote-beside-source").file("s/x.c", BESIDE_C)
            .file("b/h.h", H1), "cc -Ib -c s/x.c -o x.o", "s/h.h"),
        appears(case("A/shadow-quote-beside-header").file("x.c", "#include \"i/o.h\"\nint f(void){return H;}\n")
            .file("i/o.h", "#include \"h.h\"\n").file("b/h.h", H1), "cc -Ib -c x.c -o x.o", "i/h.h"),
        appears(case("A/shadow-quote-in-cwd-is-none").file("s/x.c", BESIDE_C)
            .file("b/h.h", H1), "cc -Ib -c s/x.c -o x.o", "h.h"),
        appears(case("A/shadow-iquote").file("x.c", BESIDE_C)
            .file("b/h.h", H1), "cc -iquote a -iquote b -c x.c -o x.o", "a/h.h"),
        appears(case("A/shadow-iquote-before-I").file("x.c", BESIDE_C)
            .file("b/h.h", H1), "cc -Ib -iquote a -c x.c -o x.o", "a/h.h"),
        appears(case("A/shadow-system").file("x.c", STDIO_C), "cc -Ia -c x.c -o x.o", "a/stdio.h"),
        appears(case("A/shadow-system-by-isystem").file("x.c", STDIO_C), "cc -isystem a -c x.c -o x.o", "a/stdio.h"),
        appears(case("A/shadow-include-next").file("x.c", ANGLE_C).file("a/h.h", NEXT_C).file("c/h.h", H1).dir("b"),
            "cc -Ia -Ib -Ic -c x.c -o x.o", "b/h.h"),
        appears(case("A/shadow-computed").file("x.c", "#include WHICH\nint f(void){return H;}\n").file("b/h.h", H1),
            "cc -DWHICH=<h.h> -Ia -Ib -c x.c -o x.o", "a/h.h"),
        appears(case("A/shadow-forced").file("x.c", "int f(void){return H;}\n")
            .file("b/h.h", H1), "cc -include h.h -Ib -c x.c -o x.o", "h.h"),
        appears(case("A/shadow-imacros").file("x.c", "int f(void){return H;}\n")
            .file("b/h.h", H1), "cc -imacros h.h -Ib -c x.c -o x.o", "h.h"),
        appears(case("A/shadow-asm").file("x.S", "#include <h.h>\n.data\n.long H\n")
            .file("b/h.h", H1), "cc -Ia -Ib -c x.S -o x.o", "a/h.h"),
        appears(case("A/has-include").file("x.c", HAS_C), "cc -c x.c -o x.o", "o.h"),
        appears(case("A/has-include-only-asks").file("x.c", ASKS_C).dir("i"), "cc -Ii -c x.c -o x.o", "i/q/o.h"),
        appears(case("A/has-include-next").file("x.c", ANGLE_C)
            .file("a/h.h", HAS_NEXT), "cc -Ia -Ib -c x.c -o x.o", "b/h.h"),
        appears(case("A/has-include-c++").file("x.cc", HAS_C), "c++ -c x.cc -o x.o", "o.h"),
        appears(case("A/gch-beside-header").file("x.c", X_C).file("h.h", H1), "cc -c x.c -o x.o", "h.h.gch")
            .need_not_hit(),
        appears(case("A/missing-include-dirs").file("x.c", X_C)
            .file("h.h", H1), "cc -Ino -Wmissing-include-dirs -c x.c -o x.o", "no/h.h"),
    ];
    cases.extend(odd_shadows());
    cases.extend(moves());
    cases
}

/// What appears earlier on the search path is not a regular file.
#[rustfmt::skip]
fn odd_shadows() -> Vec<Case> {
    let odd = |name: &str, label: &str, change: Change| {
        case(format!("A/shadow-by-{name}")).both().file("x.c", ANGLE_C).file("b/h.h", H1).file("z.h", H2).dir("a")
            .cmd(&format!("cc -Ia -Ib {OBJ}")).twice().then(label, change).back("goes", all([rm("a"), dir("a")]))
    };
    vec![
        odd("link", "a link appears", symlink("../z.h", "a/h.h")),
        odd("hard-link", "a hard link appears", link("z.h", "a/h.h")),
        odd("dangling-link", "a link to nothing appears", symlink("none", "a/h.h")),
        odd("link-loop", "a link to itself appears", symlink("h.h", "a/h.h")),
        odd("directory", "a directory appears", dir("a/h.h")),
        odd("unreadable-file", "a file that nobody may read appears", all([put("a/h.h", H2), chmod("a/h.h", 0)])),
        odd("unreadable-dir", "a directory that nobody may enter", all([put("a/h.h", H2), chmod("a", 0)])),
        odd("unsearchable-dir", "a directory that may only be listed", all([put("a/h.h", H2), chmod("a", 0o444)])),
        odd("searchable-dir", "a directory that may not be listed", all([put("a/h.h", H2), chmod("a", 0o111)])),
        odd("empty-file", "an empty file appears", put("a/h.h", "")),
        odd("moved-file", "the file in use moves ahead", mv("b/h.h", "a/h.h")).may_miss(),
        odd("dir-that-is-a-file", "a directory becomes a file", all([rm("a"), put("a", "")])),
        odd("dir-that-is-a-link", "a directory becomes a link", all([rm("a"), put("l/h.h", H3), symlink("l", "a")])),
        odd("nothing", "an unrelated file appears", put("a/other.h", H2)).back("again", put("a/third.h", H3)),
    ]
}

#[rustfmt::skip]
fn moves() -> Vec<Case> {
    let two = |name: &str| case(name).both().provable().file("x.c", ANGLE_C).file("a/h.h", H1).file("b/h.h", H2);
    vec![
        two("A/vanish-and-return").cmd("cc -Ia -Ib -c x.c -o x.o").twice()
            .changes("the directory goes", mv("a", "a.old")).back("it returns", mv("a.old", "a"))
            .then("the file goes", rm("a/h.h")).back("it returns", put("a/h.h", H1)),
        two("A/order-of-I").cmd("cc -Ia -Ib -c x.c -o x.o").twice().cmd("cc -Ib -Ia -c x.c -o x.o")
            .changes("turned", nothing())
            .cmd("cc -Ia -Ib -c x.c -o x.o").back("back", nothing()),
        two("A/link-retargeted").setup(symlink("a", "inc")).cmd("cc -Iinc -MD -c x.c -o x.o").twice()
            .changes("to the other", symlink("b", "inc")).back("back", symlink("a", "inc")),
        two("A/link-chain-retargeted").setup(symlink("a", "v")).setup(symlink("v", "inc")).cmd("cc -Iinc -c x.c -o x.o")
            .twice()
            .changes("to the other", symlink("b", "v")).back("back", symlink("a", "v")),
        two("A/header-link-retargeted").setup(symlink("a/h.h", "h.h")).cmd("cc -I. -c x.c -o x.o").twice()
            .changes("to the other", symlink("b/h.h", "h.h")).back("back", symlink("a/h.h", "h.h")),
        case("A/dot-dot-after-link").both().provable().file("x.c", "#include \"l/../h.h\"\nint f(void){return H;}\n")
            .file("p/q/k", "").file("p/h.h", H1).file("h.h", H2).setup(symlink("p/q", "l")).cmd("cc -c x.c -o x.o")
            .twice()
            .changes("the link leads elsewhere", all([dir("r"), symlink("r", "l")])).back("back", symlink("p/q", "l")),
        case("A/no-longer-included").both().provable().file("x.c", "#include \"a.h\"\nint f(void){return 1;}\n")
            .file("a.h", "#include \"b.h\"\n").file("b.h", "\n").cmd("cc -MD -MF x.d -c x.c -o x.o").twice()
            .changes("gone", all([rm("b.h"), put("a.h", "\n")]))
            .back("back", all([put("b.h", "\n"), put("a.h", "#include \"b.h\"\n")])),
        case("A/include-not-reached").both().provable().file("x.c", "#ifdef NO\n#include \"n.h\"\n#endif\nint a;\n")
            .cmd("cc -c x.c -o x.o").twice().back("appears", put("n.h", "#error x\n")),
        case("A/absolute-include").both().provable().file("x.c", "#include \"@ROOT@/i/h.h\"\nint f(void){return H;}\n")
            .file("i/h.h", H1).cmd("cc -c x.c -o x.o").twice().changes("edited", put("i/h.h", H2))
            .back("back", put_old("i/h.h", H1)),
        case("A/odd-names").both()
            .file("x.c", "#include \"a b.h\"\n#include \"ü.h\"\n#include \"$x.h\"\nint f(void){return H;}\n")
            .file("a b.h", "").file("ü.h", H1).file("$x.h", "").cmd("cc -MD -c x.c -o x.o").twice()
            .changes("edited", put("ü.h", H2)).back("back", put("ü.h", H1)),
        case("A/deep-chain").both().provable().setup(crate::change::sh(
                "for i in $(seq 60); do echo \"#include \\\"h$((i+1)).h\\\"\" > h$i.h; done; echo '#define H 1' > h61.h"))
            .file("x.c", "#include \"h1.h\"\nint f(void){return H;}\n").cmd("cc -MD -c x.c -o x.o").twice()
            .changes("the last is edited", put("h61.h", H2)).back("back", put("h61.h", H1)),
        case("A/pch-beside-forced").clang().file("x.c", "int f(void){return H;}\n").file("h.h", H1)
            .cmd("cc -include h.h -c x.c -o x.o").twice()
            .then("a compiled header appears", put("h.h.pch", "no such thing"))
            .then("and another", put("h.h.gch", "no such thing"))
            .back("both go", all([rm("h.h.pch"), rm("h.h.gch")])),
    ]
}
