//! The commands by which a `./configure` tests a compiler: links, programs, failures and
//! preprocessing. Each runs in one directory and then in a second one, where the answer and the
//! files must be those of the compiler without larder.

use std::fs;

use larder_testkit::{Place, Tree, has, probe_skip};

const FIRST: &str = "first";
const SECOND: &str = "second-and-longer/place";

/// Creates two directories with the same files. `@` in a text is replaced by the path of the
/// directory.
fn places(files: &[(&str, &str)]) -> Place {
    let place = Place::new();
    for tree in [FIRST, SECOND] {
        let top = place.text(&format!("work/{tree}"));
        for (name, text) in files {
            place.put(&format!("{tree}/{name}"), text.replace('@', &top));
        }
    }
    place
}

/// Runs a command in the first directory, then in the second, and returns the outcome of the second
/// run. `@` is replaced by the path of the directory.
#[track_caller]
fn second(place: &Place, line: &str) -> String {
    let cwd = |tree: &str| place.path("work").join(tree);
    let words = |tree: &str| -> Vec<String> {
        line.split(' ').map(|word| word.replace('@', &place.text(&format!("work/{tree}")))).collect()
    };
    let before = [FIRST, SECOND].map(|tree| Tree::of(&cwd(tree)));
    let plain = place.run(&words(SECOND)).cwd(cwd(SECOND)).run();
    let left = Tree::of(&cwd(SECOND));
    before[1].put_back(&cwd(SECOND));
    let run = |tree: &str| {
        let words = words(tree);
        place.counted(place.larder(&words.iter().map(String::as_str).collect::<Vec<_>>()).cwd(cwd(tree)))
    };
    let (_, first) = run(FIRST);
    assert!(first.starts_with("miss"), "{line}: {first}");
    let (ran, outcome) = run(SECOND);
    let said = |text: &str| without_temporary_names(text);
    assert_eq!(
        (ran.code, said(&ran.stdout), said(&ran.stderr)),
        (plain.code, said(&plain.stdout), said(&plain.stderr)),
        "{line}"
    );
    if let Some(difference) = Tree::of(&cwd(SECOND)).difference(&left) {
        panic!("{line} ({outcome}): files differ (with larder / without): {difference}");
    }
    for (tree, before) in [FIRST, SECOND].iter().zip(before) {
        before.put_back(&cwd(tree));
    }
    outcome
}

/// Removes the random part of names such as `/tmp/ccXXXXXX.o`, which differ in each run.
fn without_temporary_names(text: &str) -> String {
    let mut parts = text.split("/cc");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + "/cc" + part.trim_start_matches(|c: char| c.is_ascii_alphanumeric()))
}

const SOURCES: [(&str, &str); 9] = [
    ("confdefs.h", "#define PREFIX \"@/inst\"\n#define HAVE_X 1\n"),
    ("conftest.c", "#include \"confdefs.h\"\n#include <stdio.h>\nint main(void) { return puts(\"x\") < 0; }\n"),
    ("shows.c", "#include \"confdefs.h\"\n#include <stdio.h>\nint main(void) { return puts(PREFIX) < 0; }\n"),
    ("own.c", "#define PREFIX \"@/inst\"\nint main(void) { return 0; }\n"),
    ("file.c", "const char *file = __FILE__;\nint main(void) { return 0; }\n"),
    ("fails.c", "int main(void) { return not_there(); }\n"),
    ("broken.c", "int main(void) { return ; }}\n"),
    ("inc/dep.h", "int dep(void);\n"),
    ("lib/libtext.so", "GROUP ( @/lib/libdep.a )\n"),
];

/// Creates the two directories with `SOURCES`, and with libraries in `lib`.
fn checks() -> Place {
    let place = places(&SOURCES);
    place.put("dep.c", "int dep(void) { return 1; }\n");
    for line in ["gcc -O2 -c dep.c -o dep.o", "ar crD libdep.a dep.o", "gcc -shared -o libnameless.so dep.o"] {
        place.run(&line.split(' ').collect::<Vec<_>>()).run().ends(0);
    }
    for name in ["libdep.a", "libnameless.so"] {
        for tree in [FIRST, SECOND] {
            place.put(&format!("{tree}/lib/{name}"), place.read(name));
        }
    }
    place
}

#[test]
fn links() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = checks();
    for line in [
        "gcc -o conftest -g -O2 conftest.c",
        "gcc -g conftest.c",
        "gcc -o conftest -O2 -I@/inc -L@/lib conftest.c -ldep",
        "gcc -o conftest -g -O2 -I@/inc -L@/lib conftest.c -ldep -lm",
        "gcc -o conftest -g -O2 @/conftest.c @/lib/libdep.a",
        "gcc -o @/conftest -g own.c",
        "gcc -shared -fPIC -g -o libx.so conftest.c -Wl,-soname,libx.so",
        "gcc -static -g -o conftest conftest.c",
    ] {
        assert_eq!(second(&place, line), "hit", "{line}");
    }
}

#[test]
fn links_of_clang() {
    probe_skip!(has("clang"), "clang is not installed");
    let place = checks();
    for line in ["clang -o conftest -g -O2 conftest.c", "clang -o conftest -O2 -I@/inc -L@/lib conftest.c -ldep"] {
        assert_eq!(second(&place, line), "hit", "{line}");
    }
}

#[test]
fn failures_and_preprocessing() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = checks();
    for line in [
        "gcc -o conftest -g -O2 fails.c",
        "gcc -o conftest -g -L@/lib @/fails.c",
        "gcc -c -g -O2 broken.c",
        "gcc -o conftest conftest.c -lnot-there",
        "gcc -E -I@/inc conftest.c",
        "gcc -E @/broken.c",
        "gcc -E shows.c",
        "gcc -E -DDIRECTORY=\"@/inst\" shows.c",
    ] {
        assert_eq!(second(&place, line), "hit", "{line}");
    }
}

/// Objects with debug information contain the path of their directory, so their bytes differ. They
/// count as the same input nevertheless.
#[test]
fn links_of_objects() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = checks();
    for tree in [FIRST, SECOND] {
        for line in ["gcc -g -O2 -c conftest.c", "gcc -g -c own.c -o lib/own.o", "gcc -c -fPIC -g file.c"] {
            place.run(&line.split(' ').collect::<Vec<_>>()).cwd(place.path("work").join(tree)).run().ends(0);
        }
    }
    for line in [
        "gcc -o conftest conftest.o",
        "gcc -g -o conftest @/conftest.o -L@/lib -ldep",
        "gcc -s -o conftest conftest.o",
        "gcc -g -O2 -o conftest conftest.c lib/own.o -Wl,-z,muldefs",
    ] {
        assert_eq!(second(&place, line), "hit", "{line}");
    }
    let shared = "gcc -shared -o libx.so file.o";
    assert_eq!(second(&place, shared), "hit", "the debug information holds the relative path of the source");
    for line in
        ["gcc -o conftest conftest.o -Wl,-M", "gcc -s -o conftest conftest.o -Wl,-M", "ar crD libx.a conftest.o"]
    {
        let outcome = second(&place, line);
        assert!(outcome.starts_with("miss"), "{line}: {outcome}");
    }
    // A different object.
    place.put("other.c", "int main(void) { return 7; }\n");
    let other = place.text("work/other.c");
    place.run(&["gcc", "-g", "-c", &other, "-o", "conftest.o"]).cwd(place.path("work").join(SECOND)).run().ends(0);
    assert_eq!(second(&place, "gcc -o changed conftest.o"), "miss");
}

/// These results contain the path of the directory, or larder cannot prove that they do not.
#[test]
fn what_serves_one_place_only() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = checks();
    for line in [
        "gcc -o conftest shows.c",
        "gcc -o conftest -g @/file.c",
        "gcc -o conftest conftest.c -Wl,-rpath,@/lib",
        "gcc -o conftest -Wl,--no-as-needed conftest.c @/lib/libnameless.so",
        "gcc -o conftest conftest.c -Wl,--defsym=x=1,-L@/lib",
        "gcc -o conftest -g -gz conftest.c",
        "gcc -o conftest -g -flto conftest.c",
        "gcc -o conftest -gdwarf-4 conftest.c",
        "gcc -o conftest conftest.c -Llib -ltext",
        "gcc -o conftest -g conftest.c -Wl,-M",
    ] {
        let outcome = second(&place, line);
        assert!(outcome.starts_with("miss"), "{line}: {outcome}");
    }
}

/// The library exists in the first directory, but not in the second one.
#[test]
fn a_library_that_went() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = checks();
    fs::remove_file(place.path("work").join(SECOND).join("lib/libdep.a")).expect("cannot remove the file");
    assert_eq!(second(&place, "gcc -o conftest -L@/lib conftest.c -ldep"), "miss");
    fs::remove_file(place.path("work").join(SECOND).join("inc/dep.h")).expect("cannot remove the file");
    assert_eq!(second(&place, "gcc -E -I@/inc -include dep.h conftest.c"), "miss");
}

/// zlib's `./configure` names its test files by the process ID of its shell. The files must be
/// those that the compiler leaves for the same name.
#[test]
fn names_of_processes() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = places(&[
        ("t.c", "int main(void) { return 0; }\n"),
        ("file.c", "const char *f(void) { return __FILE__; }\nint main(void) { return !f(); }\n"),
        ("broken.c", "int main(void) { return ; }}\n"),
    ]);
    let run = |source: &str, line: &str| {
        let line = line.replace('@', "zt$$");
        let larder = larder_testkit::larder().display().to_string();
        let script = format!(
            "cp -p {source} zt$$.c; {larder} {line} 2>err1; code=$?; mkdir old; for f in zt$$.o zt$$; do test ! -f $f || mv $f old; done
             {line} 2>err2; test $? = $code && cmp err1 err2
             for f in zt$$.o zt$$; do test ! -f $f || cmp $f old/$f; done; ls old | wc -l; rm -r zt$$* old err?"
        );
        place.settle();
        let (ran, outcome) = place.counted(place.run(&["sh", "-c", &script]).cwd(place.path("work").join(FIRST)));
        let left = if source == "broken.c" { "0\n" } else { "1\n" };
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), (left, ""), "{line}");
        outcome
    };
    for (source, line) in [
        ("t.c", "gcc -O2 -c @.c"),
        ("t.c", "gcc -O2 @.c -o @"),
        ("t.c", "gcc -O2 -shared -fPIC @.c -o @ -Wl,--build-id"),
        ("broken.c", "gcc -c @.c"),
    ] {
        assert_eq!([run(source, line), run(source, line)], ["miss", "hit"], "{line}");
    }
    // Here the name becomes part of the result.
    for (source, line) in [("file.c", "gcc -c @.c"), ("t.c", "gcc -g -c @.c"), ("file.c", "gcc @.c -o @")] {
        assert_eq!([run(source, line), run(source, line)], ["miss", "miss"], "{line}");
    }
}

/// `setup.py` scripts name the files of their checks by Python's `tempfile`, in `TMPDIR`. The first
/// file and its directory are gone when the second run begins.
#[test]
fn names_of_python() {
    probe_skip!(has("gcc") && has("python3"), "gcc or python3 is not installed");
    const SCRIPT: &str = "
import os, subprocess, sys, tempfile
command = sys.argv[1:]
with tempfile.NamedTemporaryFile('wt', suffix='.c') as source, tempfile.TemporaryDirectory() as out:
    source.write('#include <stddef.h>\\nint main(void) { return 0; }\\n')
    source.flush()
    made = out + os.path.splitext(source.name)[0] + '.o'
    os.makedirs(os.path.dirname(made))
    def run(words):
        ran = subprocess.run(words + ['-O2', '-c', source.name, '-o', made], capture_output=True)
        return ran.returncode, ran.stdout, ran.stderr, open(made, 'rb').read()
    if run(command) != run(command[1:]):
        print('they differ')
";
    let place = places(&[]);
    place.put("temporary/of-this-job", "");
    let run = |temporary: &str| {
        place.settle();
        let larder = larder_testkit::larder().display().to_string();
        let run = place.run(&["python3", "-c", SCRIPT, &larder, "gcc"]).env("TMPDIR", temporary);
        let (ran, outcome) = place.counted(run);
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", ""));
        outcome
    };
    for temporary in ["/tmp", &place.text("work/temporary")] {
        assert_eq!([run(temporary), run(temporary)], ["miss", "hit"], "{temporary}");
    }
}
