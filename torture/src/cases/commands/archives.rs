//! Archives, and the tools that change object files.

use crate::case::{Case, case};
use crate::change::{all, chmod, link, nothing, put, rm, sh, symlink, touch};

fn objects(name: &str) -> Case {
    case(format!("F/{name}")).setup(sh("for n in a b c; do echo \"int $n;\" > $n.c; gcc -g -c $n.c; done; rm *.c"))
}

#[rustfmt::skip]
pub(super) fn cases() -> Vec<Case> {
    let changed = || sh("echo 'int a=5;' > a.c; gcc -c a.c; rm a.c");
    let existing = || sh("rm -f x.a; ar rcsD x.a a.o c.o; touch -d '1 hour ago' x.a");
    let mut cases = vec![
        objects("ar-new").cmd("ar rcs x.a a.o b.o").twice().changes("member edited", changed())
            .then("member touched", touch("a.o", -50)),
        objects("ar-new-D").cmd("ar rcsD x.a a.o b.o").twice().changes("member edited", changed())
            .back("another touched", all([touch("b.o", -50)])).may_miss(),
        objects("ar-new-U").cmd("ar rcSU x.a a.o b.o").repeats()
            .then("member touched", touch("a.o", -50)).then("mode", chmod("a.o", 0o600)),
        objects("ar-new-U-with-symbols").cmd("ar rcsU x.a a.o b.o").loose("x.a", "it holds the time").repeats()
            .never_hits(),
        objects("ranlib-U").cmd("ranlib -U x.a").setup(existing()).loose("x.a", "it holds the time").repeats()
            .never_hits(),
        objects("run-ar-U-with-symbols").any_sh("ar rcsU x.a a.o b.o").loose("x.a", "it holds the time").repeats()
            .never_hits(),
        objects("strip-U-archive").setup(existing()).cmd("strip -U x.a -o y.a").loose("y.a", "it holds the time").repeats()
            .never_hits(),
        objects("run-strip-U-archive").setup(existing()).any_sh("strip -U x.a -o y.a").loose("y.a", "it holds the time")
            .repeats().never_hits(),
        objects("ar-quick").cmd("ar qcD x.a a.o b.o").repeats().over().may_miss().over()
            .may_miss(),
        objects("ar-order").cmd("ar rcsD x.a a.o b.o").twice().cmd("ar rcsD x.a b.o a.o").changes("turned", nothing()),
        objects("ar-replace").setup(existing()).cmd("ar rcsD x.a a.o b.o").repeats()
            .then("member edited", changed()).over().may_miss(),
        objects("ar-replace-other-archive").setup(existing()).cmd("ar rcsD x.a b.o").cold()
            .then("another archive is there", sh("rm x.a; ar rcsD x.a c.o")).then("none is there", rm("x.a")),
        objects("ar-update").setup(existing()).cmd("ar ruSU x.a a.o").cold()
            .then("older member", all([changed(), touch("a.o", -100_000)])).then("newer member", touch("a.o", 0)),
        objects("ar-update-D").setup(existing()).cmd("ar ruD x.a a.o").any_stderr_ever().cold()
            .then("newer member", touch("a.o", 0)),
        objects("ar-delete").setup(existing()).cmd("ar dD x.a a.o").repeats().over().may_miss(),
        objects("ar-move").setup(existing()).cmd("ar mD x.a a.o").repeats(),
        objects("ar-list").setup(existing()).cmd("ar t x.a").twice().changes("another", sh("rm x.a; ar rcsD x.a b.o")),
        objects("ar-list-verbose").setup(sh("ar rcsU x.a a.o")).cmd("ar tv x.a").cold()
            .then("another time", all([touch("a.o", -100_000), sh("ar rcsU x.a a.o")])),
        objects("ar-print").setup(existing()).cmd("ar p x.a a.o").twice(),
        objects("ar-extract").setup(existing()).setup(rm("a.o")).cmd("ar x x.a").repeats().over()
            .may_miss(),
        objects("ar-extract-times").setup(sh("touch -d @1000000 a.o; ar rcsU x.a a.o; rm a.o")).cmd("ar xo x.a").repeats(),
        objects("ar-thin").cmd("ar rcsDT x.a a.o b.o").repeats().then("member edited", changed()),
        objects("ar-thin-used")
            .setup(sh("ar rcsDT x.a a.o b.o; echo 'extern int a;int main(void){return a;}' > m.c; gcc -c m.c"))
            .cmd("cc m.o x.a -o x").twice().changes("member edited", changed()),
        objects("ar-script").cmd("ar -M").stdin("CREATE x.a\nADDMOD a.o\nSAVE\nEND\n").cold()
            .stdin("CREATE x.a\nADDMOD b.o\nSAVE\nEND\n").then("another", nothing()),
        objects("ar-verbose").cmd("ar rcvsD x.a a.o").twice(),
        objects("ar-rsp").file("r", "a.o b.o").cmd("ar rcsD x.a @r").twice().changes("fewer", put("r", "a.o")),
        objects("ar-missing-member").cmd("ar rcsD x.a a.o none.o").repeats(),
        objects("ar-not-an-archive").file("x.a", "text").cmd("ar rcsD x.a a.o").repeats(),
        objects("ar-read-only").setup(existing()).setup(chmod("x.a", 0o444)).cmd("ar rcsD x.a b.o").repeats(),
        objects("ar-through-link").setup(sh("ar rcsD real.a a.o")).setup(symlink("real.a", "x.a"))
            .cmd("ar rcsD x.a b.o").repeats(),
        objects("ar-hard-link").setup(existing()).setup(link("x.a", "y.a")).cmd("ar rcsD x.a b.o").repeats(),
        objects("llvm-nm-stdin").program("llvm-nm").sh("$WRAP llvm-nm - < a.o").repeats()
            .then("another", sh("cp b.o a.o")),
        objects("llvm-objcopy-stdin").program("llvm-objcopy").sh("$WRAP llvm-objcopy - x.o < a.o").repeats()
            .then("another", sh("cp b.o a.o")),
        objects("strip-hard-link").cmd("strip -g a.o").cold().then("a link", link("a.o", "d.o"))
            .then("another", sh("ln -sf c.o a.o; ln -f c.o e.o")),
        objects("objcopy-hard-link").setup(link("a.o", "d.o")).cmd("objcopy --strip-debug a.o").repeats(),
        objects("ar-nothing-to-do").setup(existing()).cmd("ar rcsD x.a a.o").over().may_miss().then("again", nothing()),
        objects("ranlib").setup(sh("ar qcSD x.a a.o b.o")).cmd("ranlib -D x.a").repeats().over()
            .may_miss(),
        objects("ranlib-times").setup(sh("ar qcSU x.a a.o b.o")).cmd("ranlib -U x.a")
            .loose("x.a", "the time of the index").repeats(),
        objects("ar-s").setup(sh("ar qcSD x.a a.o b.o")).cmd("ar sD x.a").repeats(),
        objects("gcc-ar").program("gcc-ar").cmd("gcc-ar rcsD x.a a.o b.o").repeats(),
        objects("llvm-ar").program("llvm-ar").cmd("llvm-ar rcsD x.a a.o b.o").repeats(),
        objects("ar-then-rm-then-ar").sh("rm -f x.a; $WRAP ar rcsD x.a a.o b.o").repeats().hits()
            .over().then("member edited", changed()),
    ];
    for (name, line) in [
        ("strip", "strip -g a.o"), ("strip-o", "strip -g -o s.o a.o"), ("strip-p", "strip -p -g a.o"),
        ("objcopy-in-place", "objcopy --add-section n=b.o a.o"),
        ("objcopy", "objcopy --only-keep-debug a.o a.debug"),
        ("objcopy-debuglink", "objcopy --add-gnu-debuglink=b.o a.o d.o"), ("objdump", "objdump -d a.o"),
        ("nm", "nm a.o b.o"),
        ("size", "size a.o"), ("readelf", "readelf -a a.o"), ("strings", "strings a.o"), ("c++filt", "c++filt _Z1fv"),
        ("addr2line", "addr2line -e a.o 0"),
        ("dwp", "dwp -o x.dwp a.o"), ("elfedit", "elfedit --output-osabi=FreeBSD a.o"), ("as", "as -o z.o none.s"),
        ("gcov", "gcov none.gcda"),
    ] {
        let program = line.split(' ').next().unwrap_or_default();
        cases.push(objects(&format!("binutils-{name}")).program(program).mask(r"st[0-9A-Za-z]{6}\b", "objcopy's temporary name")
            .cmd(line).repeats().then("edited", changed()).over().may_miss());
        let any = objects(&format!("binutils-run-{name}")).program(program).any(line).repeats();
        let reads_only = !["strip", "strip-p", "objcopy-in-place", "elfedit", "dwp", "as", "gcov"].contains(&name);
        cases.push(if reads_only { any.hits().changes("edited", changed())
            .may_miss() } else { any.then("edited", changed()) });
    }
    cases
}
