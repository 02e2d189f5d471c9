//! Command lines that larder handles: source, output, depfile, and whether the processor may be
//! queried.

use super::{Files, words};
use crate::{Family, StandardInput, parse};

/// Returns `source output [depfile] [stdin] [processor]` as one line, or the reason for a
/// bypass.
fn summary(family: Family, line: &str) -> String {
    let invocation = match parse(family, &words(line), &Files) {
        Ok(invocation) => invocation,
        Err(bypass) => return format!("bypass {}", bypass.code()),
    };
    assert_eq!(invocation.family, family);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut parts = vec![text(&invocation.source), text(&invocation.output.unwrap_or_default())];
    parts.extend(invocation.depfile.map(|depfile| format!("d:{}", text(&depfile))));
    parts.extend((invocation.standard_input == StandardInput::Read).then(|| "stdin".to_owned()));
    parts.extend(invocation.asks_processor.then(|| "processor".to_owned()));
    parts.join(" ")
}

fn check(family: Family, rows: &[(&str, &str)]) {
    for (line, expect) in rows {
        assert_eq!(summary(family, line), *expect, "{line}");
    }
}

/// Rows that hold for gcc and for clang.
#[rustfmt::skip]
const BOTH: &[(&str, &str)] = &[
    ("-c x.c", "x.c x.o"),
    ("-c dir/x.y.c", "dir/x.y.c x.y.o"),
    ("x.c -c -o y.o", "x.c y.o"),
    ("-c x.c -oy.o", "x.c y.o"),
    ("-c x.c -o y.o -o z.o", "x.c z.o"),
    ("-c x.c --output=z.o", "x.c z.o"),
    ("-c x.c --output z.o", "x.c z.o"),
    ("--compile x.c", "x.c x.o"),
    ("-c a␣b.c -o c␣d.o", "a b.c c d.o"),
    ("-c x.c -I inc.c -D A.c -U B.c -L d.c -l m.c", "x.c x.o"),
    ("-c x.c -include a.c -imacros b.c -isystem c.c -iquote d.c -idirafter e.c", "x.c x.o"),
    ("-c x.c -isysroot a.c -iprefix b.c -iwithprefix c.c -iwithprefixbefore d.c -imultilib e.c", "x.c x.o"),
    ("-c x.c -Xassembler a.c -Xlinker b.c -Xpreprocessor c.c -T d.c -u e.c -z f.c -e g.c -B h.c", "x.c x.o"),
    ("-c x.c --param a.c --sysroot b.c -A c.c -MT d.c -MQ e.c -F f.c -G g.c", "x.c x.o"),
    ("-c x.c --sysroot=/s --param=a=1 -Ia.c", "x.c x.o"),
    ("-c x.c y.o libz.a z.so", "x.c x.o"),
    ("-c x.c --some-new-flag -fnever-heard -Wnew", "x.c x.o"),
    ("-c x.cc -std=c++20 -fcoroutines -H -pipe -save-temps -Bdir", "x.cc x.o"),
    ("-c x.c -fprofile-use=p -flto -g3 -gsplit-dwarf -fdiagnostics-color", "x.c x.o"),
    ("-x c++ -c x", "x x.o"),
    ("-xc++ -c x", "x x.o"),
    ("-x c -c x.h", "x.h x.o"),
    ("-x c -c x.o", "x.o x.o"),
    ("-c -x c++ -x none x.c", "x.c x.o"),
    ("-c x.c -x none y.o", "x.c x.o"),
    ("-c x.S", "x.S x.o"),
    ("-x assembler-with-cpp -c x.asm", "x.asm x.o"),
    ("-c x.f90 -J mods", "x.f90 x.o"),
    ("-c x.mm", "x.mm x.o"),
    ("-c x.s -Wa,-", "x.s x.o stdin"),
    ("-c x.s -Xassembler -", "x.s x.o stdin"),
    ("-c x.c -Wa,-mbig-obj -MF - -fprofile-use=-", "x.c x.o stdin"),
    ("-c x.c -MD", "x.c x.o d:x.d"),
    ("-c x.c -MMD", "x.c x.o d:x.d"),
    ("-c x.c -MD -MMD", "x.c x.o d:x.d"),
    ("-c x.c -MD -o o/y.o", "x.c o/y.o d:o/y.d"),
    ("-c x.c -MMD -o y", "x.c y d:y.d"),
    ("-c x.c -MD -MF o/f.d -MP", "x.c x.o d:o/f.d"),
    ("-c x.c -MD -MFf.d", "x.c x.o d:f.d"),
    ("-c x.c -MF a.d -MD -MF b.d", "x.c x.o d:b.d"),
    ("-c x.c -MF f.d", "x.c x.o"),
    ("-c x.c -MD -MF -", "x.c x.o"),
    ("-c x.c -MD -MF x.c", "x.c x.o d:x.c"),
    ("-c x.c -Wp,-MD,q.d -o y.o", "x.c y.o d:q.d"),
    ("-c x.c -Wp,-MMD,o/.y.o.d -o o/y.o", "x.c o/y.o d:o/.y.o.d"),
    ("-c x.c -Wp,-DA,-MMD,q.d,-MT,t", "x.c x.o d:q.d"),
    ("-c x.c -Wp,-MMD,-MF,q.d", "x.c x.o d:q.d"),
    ("-c x.c -Wa,-MD,q.d -Wl,-o,z", "x.c x.o"),
    ("-c x.c -march=native", "x.c x.o processor"),
    ("-c x.c -mtune=native", "x.c x.o processor"),
    ("-c x.c -mcpu=native+crc", "x.c x.o processor"),
    ("-c x.c -march=x86-64-v3 -Inative", "x.c x.o"),
    ("-c x.c -fplugin=p.so", "x.c x.o processor"),
    ("-c x.c -specs=s", "x.c x.o processor"),
    ("-c x.c @flags", "x.c x.o processor"),
    ("@source", "a b.c a b.o"),
    ("@nested", "a b.c x.o"),
    ("@source -o @x.o", "bypass response-file"),
    ("-c x.c -o", "x.c "),
    ("", " "),
    ("x.c", "x.c "),
    ("x.c -o x", "x.c x"),
    ("x.o -o x -lm", "x.o x"),
    ("-shared x.o -o libx.so", "x.o libx.so"),
    ("-o -c x.c", "x.c -c"),
    ("-E x.c", "x.c "),
    ("-E -c x.c -o x.i", "x.c x.i"),
    ("-M x.c", "x.c "),
    ("-Wp,-M -c x.c", "x.c "),
    ("-S x.c", "x.c "),
    ("-fsyntax-only -c x.c", "x.c "),
    ("-c", " "),
    ("-c x.o", "x.o "),
    ("-c x.c y.c", "x.c "),
    ("-c x.c y.c -MD", "x.c "),
    ("-c x.c @source", "x.c "),
    ("-c x.c -arch x86_64 -arch arm64", "x.c x.o"),
    ("-E -", "  stdin"),
    ("-c -x c -", "  stdin"),
    ("-c x.c -o -", "x.c "),
    ("-v -c x.c", "x.c x.o"),
    ("--version", " "),
    ("-print-file-name=x", " "),
    ("-fsyntax-only x.h", "x.h "),
    ("-c x.cu", "x.cu x.o"),
];

#[test]
fn both() {
    check(Family::Gcc, BOTH);
    check(Family::Clang, BOTH);
}

#[test]
fn generic_asks_the_processor_always() {
    for (line, expect) in BOTH.iter().filter(|(_, expect)| !expect.starts_with("bypass")) {
        let expect = format!("{} processor", expect.trim_end_matches(" processor"));
        assert_eq!(summary(Family::Generic, line), expect, "{line}");
    }
}

#[test]
fn gcc() {
    check(
        Family::Gcc,
        &[
            ("-c x.c -aux-info a.c -wrapper b.c", "x.c x.o processor"),
            ("-c x.c -MD -dumpbase foo.c", "x.c x.o"),
            ("-c x.c -dumpdir d.c -dumpbase-ext e.c", "x.c x.o"),
            ("-c x.h", "x.h x.o"),
            ("-c x.c -dM -dD -fdump-tree-all", "x.c x.o"),
        ],
    );
}

#[test]
fn clang() {
    let rows = &[
        ("-c x.c -Xclang -load -Xclang p.c", "x.c x.o processor"),
        ("-c x.c -Xclang -target-cpu -Xclang native", "x.c x.o processor"),
        ("-c x.c -Xarch_x86_64 -march=native -arch a.c", "x.c x.o processor"),
        ("-c x.c -mllvm a.c -target b.c -gcc-toolchain c.c -isystem-after d.c", "x.c x.o"),
        ("-c x.c -ivfsoverlay a.c -serialize-diagnostics b.c --serialize-diagnostics c.c -MJ d.c", "x.c x.o"),
        ("-c x.c -framework a.c -working-directory b.c -mthread-model c.c -meabi d.c", "x.c x.o"),
        ("-c x.c -iframework a.c -cxx-isystem b.c -stdlib++-isystem c.c -index-store-path d.c", "x.c x.o"),
        ("-c x.c --config a.c", "x.c x.o processor"),
        ("-c x.c -emit-llvm", "x.c x.bc"),
        ("-c x.c -Qunused-arguments -fno-modules -fno-cxx-modules", "x.c x.o"),
        ("-c x.c -object-file-name=y -objcmt-migrate-all", "x.c x.o"),
        ("-c x.c -arch arm64 -mllvm -inline-threshold=3", "x.c x.o"),
        ("-c -o y.o -- x.c", "x.c y.o"),
        ("-c -- -x.c", "-x.c -x.o"),
        ("-c x.ll", "x.ll x.o"),
    ];
    check(Family::Clang, rows);
    let rows: Vec<_> = rows.iter().filter(|(_, expect)| !expect.ends_with("processor")).copied().collect();
    check(Family::Gcc, &rows);
}
