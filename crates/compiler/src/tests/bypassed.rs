//! Command lines that are not ours, and why.

use super::{Files, words};
use crate::{Family, parse};
use larder_model::Bypass;

#[rustfmt::skip]
const ROWS: &[(&str, Bypass)] = &[
    ("", Bypass::NoCompile),
    ("x.c", Bypass::NoCompile),
    ("x.c -o x", Bypass::NoCompile),
    ("x.o -o x -lm", Bypass::NoCompile),
    ("-shared x.o -o libx.so", Bypass::NoCompile),
    ("-o -c x.c", Bypass::NoCompile),
    ("--analyze -c x.c", Bypass::NoCompile),
    ("-E x.c", Bypass::Preprocess),
    ("-E -c x.c", Bypass::Preprocess),
    ("-E -S x.c", Bypass::Preprocess),
    ("-S -E x.c", Bypass::Preprocess),
    ("-M x.c", Bypass::Preprocess),
    ("-MM -c x.c -o y.o", Bypass::Preprocess),
    ("-E -", Bypass::Preprocess),
    ("-Wp,-M -c x.c", Bypass::Preprocess),
    ("-S x.c", Bypass::Assembly),
    ("-S -c x.c", Bypass::Assembly),
    ("-fsyntax-only x.c", Bypass::SyntaxOnly),
    ("-fsyntax-only -c x.c", Bypass::SyntaxOnly),
    ("-c", Bypass::NoSource),
    ("-c x.o", Bypass::NoSource),
    ("-c -o x.c", Bypass::NoSource),
    ("-c -Dx.c -I x.c", Bypass::NoSource),
    ("-c x.c y.c", Bypass::SeveralSources),
    ("-c x.c y.cu", Bypass::SeveralSources),
    ("-c x.c -x c y.o", Bypass::SeveralSources),
    ("-c x.c @source", Bypass::SeveralSources),
    ("-c x.c -arch x86_64 -arch arm64", Bypass::SeveralSources),
    ("-c -x c -", Bypass::StandardInput),
    ("-c -x c /dev/stdin -o y.o", Bypass::StandardInput),
    ("-c x.c -o -", Bypass::OutputToStdout),
    ("-c x.c -o /dev/null", Bypass::OutputToStdout),
    ("-c x.c -o /dev/stdout", Bypass::OutputToStdout),
    ("-### -c x.c", Bypass::AsksOnly),
    ("-v -c x.c", Bypass::AsksOnly),
    ("-v", Bypass::AsksOnly),
    ("-V", Bypass::AsksOnly),
    ("--version", Bypass::AsksOnly),
    ("--help=optimizers", Bypass::AsksOnly),
    ("--target-help", Bypass::AsksOnly),
    ("-dumpmachine", Bypass::AsksOnly),
    ("-dumpspecs", Bypass::AsksOnly),
    ("-print-prog-name=as", Bypass::AsksOnly),
    ("--print-search-dirs", Bypass::AsksOnly),
    ("-print-file-name=x -c x.c", Bypass::AsksOnly),
    ("-Q -c x.c", Bypass::AsksOnly),
    ("-c x.c -fmodules-ts", Bypass::TooHard),
    ("-c x.cc -fmodules", Bypass::TooHard),
    ("-c x.cc -fmodule-file=m.pcm", Bypass::TooHard),
    ("-c x.cc -fcxx-modules", Bypass::TooHard),
    ("-c x.cc -Xclang -fmodules", Bypass::TooHard),
    ("-c x.c -Xclang -emit-pch", Bypass::TooHard),
    ("-c x.c -include-pch x.pch", Bypass::TooHard),
    ("-c x.c -emit-ast", Bypass::TooHard),
    ("-c x.c -ftime-report", Bypass::TooHard),
    ("-c x.c -ftime-trace=t.json", Bypass::TooHard),
    ("-c x.c -save-stats=obj", Bypass::TooHard),
    ("-c x.c -mllvm -time-passes", Bypass::TooHard),
    ("-c x.h", Bypass::TooHard),
    ("-c -x c++-header x.h", Bypass::TooHard),
    ("-c -x c++-header y.cc", Bypass::TooHard),
    ("-c x.cppm", Bypass::TooHard),
    ("-c --driver-mode=cl x.c", Bypass::TooHard),
    ("-c x.cu", Bypass::LanguageUnknown),
    ("-c -x cuda x.c", Bypass::LanguageUnknown),
    ("-c -x go x", Bypass::LanguageUnknown),
    ("-c x.c @missing", Bypass::ResponseFile),
    ("-c x.c @loop", Bypass::ResponseFile),
];

#[test]
fn reasons() {
    for family in [Family::Gcc, Family::Clang, Family::Generic] {
        for (line, expect) in ROWS {
            let outcome = parse(family, &words(line), &Files);
            assert_eq!(outcome.as_ref().err(), Some(expect), "{family:?} {line}: {outcome:?}");
        }
    }
}
