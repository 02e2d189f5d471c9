//! Class C, outputs: which files a tool writes, and what exists before.

mod existing;
mod extra;

use crate::case::{Case, case};
use crate::cases::texts::{H1, H2, X_C};
use crate::change::{nothing, put};

pub(super) fn cases() -> Vec<Case> {
    let parts = [depfiles, modes, extra::cases, existing::cases];
    parts.iter().flat_map(|cases| cases()).collect()
}

fn hello(name: &str) -> Case {
    case(format!("C/{name}")).both().file("x.c", X_C).file("h.h", H1)
}

/// Depfiles by every spelling of their options.
#[rustfmt::skip]
fn depfiles() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, args) in [
        ("MD", "-MD"), ("MMD-MP", "-MMD -MP"), ("MD-MF", "-MD -MF d.d"), ("MD-MFjoined", "-MD -MFd.d"),
        ("MD-MT", "-MD -MT t1"),
        ("MD-MT-empty", "-MD -MT ''"), ("MD-MQ", "-MD -MQ 'a$b c' -MT second"), ("Wp-MD", "-Wp,-MD,w.d"),
        ("Wp-MMD-MT", "-Wp,-MMD,w.d,-MT,tt"),
        ("MD-MF-twice", "-MD -MF one.d -MF two.d"), ("MD-and-MMD", "-MD -MMD"), ("MD-MF-sub", "-MD -MF out/sub.d"),
        ("MD-MF-stdout", "-MD -MF /dev/stdout"),
        ("MD-MF-dash", "-MD -MF -"), ("MD-MF-null", "-MD -MF /dev/null"), ("MD-MF-is-output", "-MD -MF x.o"),
        ("MF-alone", "-MF d.d"), ("MP-alone", "-MP"),
        ("MD-MG", "-MD -MG"), ("MD-dumpbase", "-MD -dumpbase zz"),
        ("MD-MT-long", "-MD -MT aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
    ] {
        let cmd = |more: &str, output: &str| format!("cc {args} {more} -c x.c -o {output}");
        let case = hello(&format!("dep-{name}")).dir("out").cmd(&cmd("", "x.o")).twice().cmd(&cmd("", "y.o"))
            .changes("other -o", nothing())
            .cmd(&cmd("-MT t2", "x.o")).changes("other -MT", nothing()).cmd(&cmd("", "x.o")).back("back", nothing());
        // Depfiles that go to a device, and combinations that fail, need not hit.
        let odd = ["MD-MF-stdout", "MD-MF-dash", "MF-alone", "MP-alone", "MD-MF-is-output", "MD-MG", "MD-dumpbase", "MD-MF-null"].contains(&name);
        cases.push(if odd { case.need_not_hit() } else { case.provable() });
    }
    let grows = |name: &str,
    variable: &str| hello(name).env(variable, "deps target").cmd("cc -c x.c -o x.o").cold().over().may_miss().over()
        .may_miss()
        .usual_env().env(variable, "deps").then("without a target", nothing()).usual_env()
        .then("without the variable", nothing()).again();
    cases.extend([
        hello("dep-added-later").cmd("cc -c x.c -o x.o").twice().cmd("cc -MD -c x.c -o x.o").changes("-MD", nothing())
            .cmd("cc -MMD -c x.c -o x.o").changes("-MMD", nothing()).cmd("cc -MD -MP -MF x.d -c x.c -o x.o")
            .changes("-MP", nothing())
            .cmd("cc -c x.c -o x.o").back("none", nothing()),
        hello("dep-without-o").cmd("cc -MD -c x.c").twice().over(),
        hello("dep-output-in-directory").dir("o").cmd("cc -MD -c x.c -o o/x.o").twice().over(),
        hello("dep-of-absolute-source").cmd("cc -MD -c {root}/x.c -o x.o").twice(),
        hello("dep-odd-names").file("a b#c$.c", "#include \"d e.h\"\nint a;\n").file("d e.h", "")
            .cmd("cc -MD -MP -c 'a b#c$.c' -o x.o").twice(),
        hello("dep-long-lines")
            .file("x.c", "#include \"sub/directory/with/a/rather/long/name/of/a/header/one.h\"\n#include \"sub/directory/with/a/rather/long/name/of/a/header/two.h\"\n")
            .file("sub/directory/with/a/rather/long/name/of/a/header/one.h", "")
            .file("sub/directory/with/a/rather/long/name/of/a/header/two.h", "").cmd("cc -MD -c x.c -o x.o").twice(),
        hello("dep-header-order").file("x.c", "#include \"h.h\"\n#include \"g.h\"\n").file("g.h", "")
            .cmd("cc -MD -c x.c -o x.o").twice()
            .changes("turned", put("x.c", "#include \"g.h\"\n#include \"h.h\"\n")),
        hello("dep-missing-header").cmd("cc -MD -c x.c -o x.o").file("x.c", "#include \"none.h\"\n").twice()
            .changes("appears", put("none.h", "")),
        hello("dep-unwritable").dir("o").setup(crate::change::chmod("o", 0o555)).cmd("cc -MD -MF o/d -c x.c -o x.o")
            .repeats(),
        hello("dep-no-directory").cmd("cc -MD -MF none/d -c x.c -o x.o").repeats(),
        grows("dep-by-DEPENDENCIES_OUTPUT", "DEPENDENCIES_OUTPUT"),
        grows("dep-by-SUNPRO_DEPENDENCIES", "SUNPRO_DEPENDENCIES"),
        hello("dep-M-forms").cmd("cc -M x.c").twice().cmd("cc -MM x.c -MF d.d").changes("-MM -MF", nothing())
            .cmd("cc -MM -MG x.c").changes("-MG", nothing())
            .changes("edited", put("h.h", "#include \"new.h\"\n")).cmd("cc -MM -MT q -c x.c -o x.o")
            .then("-MM with -c", put("h.h", H1)),
    ]);
    cases
}

/// Modes of outputs.
#[rustfmt::skip]
fn modes() -> Vec<Case> {
    let mut cases: Vec<Case> = ["077", "000", "027", "002", "777"].map(|mask| hello(&format!("umask-{mask}"))
        .prelude(&format!("umask {mask}"))
        .cmd("cc -MD -MF x.d -c x.c -o x.o").twice().over()).to_vec();
    // With umask 777 no user can read or write the output, so these steps need not hit.
    cases[4] = cases[4].clone().need_not_hit();
    let changing = |name: &str, cmd: &str, file: &str| {
        let case = hello(name).file("m.c", crate::cases::texts::MAIN_C).setup(crate::change::sh("gcc -c m.c -o m.o")).cmd(cmd)
            .twice();
        case.prelude("umask 077").back("077", nothing()).prelude("umask 002").back("002", nothing())
            .prelude("umask 022").back("022", nothing())
            .then("an old one is there", put(file, "old")).hits().prelude("umask 077")
            .then("an old one, 077", put(file, "old")).hits()
    };
    cases.extend([
        changing("umask-changes-c", "cc -MD -MF x.d -c x.c -o x.o", "x.o"),
        changing("umask-changes-S", "cc -S x.c -o x.s", "x.s"),
        changing("umask-changes-link", "cc m.c -o x", "x"),
        changing("umask-changes-link-of-object", "cc m.o -o x", "x"),
        changing("umask-changes-ar", "ar rcs x.a m.o", "y.a"),
        changing("umask-changes-run", "cc -E x.c -o x.i", "x.i"),
        hello("umask-changes-any").any_sh("cat h.h > y; mkdir -p d; cp h.h d/z").twice().prelude("umask 077")
            .then("077", nothing()).prelude("umask 022").then("022", nothing()).hits(),
        hello("set-group-id-directory").setup(crate::change::sh("mkdir o; chmod 2775 o; chgrp 7 o || :"))
            .cmd("cc -c x.c -o o/x.o").twice(),
        hello("default-acl").needs(crate::machine::Need::Works("setfacl -d -m u:7:rwx .", "access lists"))
            .setup(crate::change::sh("mkdir o; setfacl -d -m g::rwx o"))
            .cmd("cc -c x.c -o o/x.o").twice().changes("edited", put("h.h", H2)),
    ]);
    cases
}
