//! Output of real compilers in two places: messages with and without colours, preprocessed sources,
//! lists of headers.

use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use larder_relocate::{Places, Rule, relocate};

use crate::support::{Place, is_there};

/// A source that causes many messages.
const BAD: &str = "#include <stdio.h>\n#include \"bad.h\"\n#include \"inner.h\"\n#warning \"as it is\"\n\
    int bad(int a, char *s) { int unused; a = s; printf(\"%s\", a); return undeclared + FIELD(a); }\n\
    _Static_assert(sizeof(int) == 3, \"no\");\n";
const BAD_HEADER: &str = "#define FIELD(x) ((x).field)\nstatic int never_used(void) { return \"text\"; }\n";

fn fill(place: &Place) {
    place.fill();
    std::fs::write(place.sources.join("bad.c"), BAD).expect("a source");
    std::fs::write(place.sources.join("bad.h"), BAD_HEADER).expect("a header");
}

/// Returns standard output and standard error.
fn printed(place: &Place, compiler: &str, flags: &[&str], source: &str) -> [Vec<u8>; 2] {
    let output = Command::new(compiler)
        .args(flags)
        .arg("-I")
        .arg(place.base.join("inc"))
        .args(["-Wall", "-Wextra"])
        .arg(place.source(source, true))
        .current_dir(place.base.join("build"))
        .env("LC_ALL", "C.UTF-8")
        .output()
        .expect("a compiler");
    [output.stdout, output.stderr]
}

#[test]
fn what_is_printed() {
    let dir = tempfile::tempdir().expect("a directory");
    let base = dir.path().canonicalize().expect("a directory");
    let mut counts = [0, 0];
    for (from, to) in [("a", "some/where/deeper/and/longer/than/a/line/of/a/terminal/usually/is"), ("one", "two")] {
        let (from, to) = (Place::whole(&base.join(from)), Place::whole(&base.join(to)));
        fill(&from);
        fill(&to);
        let places = Places { from: &[from.base.as_os_str().as_bytes()], to: &[to.base.as_os_str().as_bytes()] };
        for compiler in ["gcc", "clang", "g++", "clang++"].into_iter().filter(|compiler| is_there(compiler)) {
            let flags: [&[&str]; 8] = [
                &["-fsyntax-only"],
                &["-fsyntax-only", "-fdiagnostics-color=always"],
                &["-fsyntax-only", "-fdiagnostics-format=json"],
                &["-fsyntax-only", "-fno-diagnostics-show-caret"],
                &["-E"],
                &["-E", "-g3", "-dD"],
                &["-E", "-P"],
                &["-fsyntax-only", "-H"],
            ];
            for flags in flags {
                for source in ["bad.c", "list.c"] {
                    let here = printed(&from, compiler, flags, source);
                    let there = printed(&to, compiler, flags, source);
                    for (here, there) in here.iter().zip(&there) {
                        match relocate(Rule::Text, here, &places) {
                            Some(made) => {
                                let shown = String::from_utf8_lossy;
                                assert_eq!(shown(&made), shown(there), "{compiler} {flags:?} {source}");
                                counts[0] += 1;
                            }
                            None => {
                                println!("refused: {compiler} {flags:?} {source}");
                                counts[1] += 1;
                            }
                        }
                    }
                }
            }
        }
    }
    println!("{} equal, {} refused, 0 different", counts[0], counts[1]);
}
