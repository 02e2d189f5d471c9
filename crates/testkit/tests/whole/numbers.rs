//! Process IDs in whole commands that produce binaries: which uses make a result unusable in
//! another run, and which do not.

use larder_testkit::{has, probe_skip};

use crate::project::Project;

/// A part of libtool's script. The process ID stands in lines that are never executed, and `\$$`
/// stands before the name of a variable.
const LIBTOOL: &str = r#"#! /bin/sh
func_mktempdir ()
{
    if test : = "$opt_dry_run"; then
      _G_tmpdir=$_G_template-$$
    else
      _G_tmpdir=$_G_template-${RANDOM-0}$$
    fi
}
runpath_var=LD_RUN_PATH
if eval "test -z \"\$$runpath_var\""; then
  "$@"
fi
"#;

/// A part of automake's makefiles: `$$` for the shell, and the process ID in a rule that is not
/// used.
const MAKEFILE: &str = r#"all: prog
prog: a.o
	./libtool $(CC) -o $@ a.o
a.o: a.c
	list='x y'; for p in $$list; do echo "$$p" | sed 's/z$$//'; done; $(CC) -c -o $@ a.c
distcheck:
	true \
	  && dc_destdir="$${TMPDIR-/tmp}/am-dc-$$$$/" \
	  && mkdir "$$dc_destdir"
"#;

fn by_libtool(source: &str) -> Project {
    let project = Project::of(&[("Makefile", MAKEFILE), ("a.c", source)]);
    project.tool("libtool", LIBTOOL);
    project
}

/// The source calls `getpid`, but the program is never run.
#[test]
fn the_second_run_is_answered() {
    probe_skip!(has("make") && has("cc"), "make or cc is not installed");
    let project = by_libtool("#include <unistd.h>\nint main(void) { return getpid() == 1; }\n");
    let outcomes = [(); 2].map(|()| project.compared(0, &["make"]));
    assert_eq!(outcomes, ["miss", "hit"]);
}

/// The program is run, and does not ask for a process ID.
#[test]
fn what_is_made_and_run() {
    probe_skip!(has("make") && has("cc"), "make or cc is not installed");
    let project = by_libtool("#include <stdio.h>\nint main(void) { return puts(\"made\") < 0; }\n");
    let argv = ["sh", "-c", "make && ./prog > out"];
    let outcomes = [(); 2].map(|()| project.compared(0, &argv));
    assert_eq!(outcomes, ["miss", "hit"]);
}

/// Each of these makefiles puts a process ID into an object.
#[test]
fn never_answered() {
    probe_skip!(has("make") && has("cc"), "make or cc is not installed");
    let printing = "#include <stdio.h>\n#include <unistd.h>\nint main(void) { return printf(\"%d\", getpid()) < 0; }\n";
    let asking = "#define _GNU_SOURCE\n#include <stdio.h>\n#include <unistd.h>\n#include <sys/syscall.h>\n\
        int main(void) { return printf(\"%ld\", syscall(SYS_getpid)) < 0; }\n";
    let plain = "int x = N;\n";
    for (makefile, source) in [
        ("x.o: x.c\n\t$(CC) -o prog x.c && $(CC) -DN=`./prog` -x c -c -o $@ n\n", printing),
        ("x.o: x.c\n\t$(CC) -o prog x.c && $(CC) -DN=`./prog` -x c -c -o $@ n && rm prog\n", printing),
        ("x.o: x.c\n\t$(CC) -o prog x.c && $(CC) -DN=`./prog` -x c -c -o $@ n\n", asking),
        ("x.o: x.c\n\techo x$$$$ | sed s/x/-DN=/ > args; $(CC) @args -c x.c\n", plain),
        ("S = $$\nx.o: x.c\n\techo x$(S)$(S) | sed s/x/-DN=/ > args; $(CC) @args -c x.c\n", plain),
        ("x.o: x.c\n\tsed -n 's/^#//p' Makefile | sh\n#n=x$$; cc -DN=${n#x} -c x.c\n", plain),
        ("x.o: x.c\n\tn=x$$$$; $(CC) -DN=$${n#x} -c x.c\n", plain),
        ("x.o: x.c\n\tsh ./script\n", plain),
    ] {
        let project = Project::of(&[
            ("Makefile", makefile),
            ("x.c", source),
            ("n", "int x = N;\n"),
            ("script", "rm -f conf$$.dir\nn=conf$$\ncc -DN=${n#conf} -c x.c\n"),
        ]);
        let mut outcomes = Vec::new();
        for at in [0, 0, 1, 0] {
            project.lay_out(at);
            let (ran, inner) = project.through_larder(at, &["make"]);
            assert_eq!(ran.code, Some(0), "{makefile}: {ran:?}");
            outcomes.extend(inner);
        }
        assert!(outcomes.iter().all(|outcome| outcome != "hit"), "{makefile}: {outcomes:?}");
    }
}

/// The script uses its process ID in lines that are known to be harmless, but another line copies
/// the name into the output.
#[test]
fn names_that_are_known_are_searched_for() {
    let project = Project::of(&[("in", "x\n")]);
    let script = "rm -f conf$$.dir\nmkdir conf$$.dir\nls -d conf*.dir > out\nrm -rf conf*.dir";
    for outcome in ["miss", "miss"] {
        project.lay_out(0);
        assert_eq!(project.through_larder(0, &["sh", "-c", script]).1, [outcome]);
    }
}

/// Compressed bytes contain `$$` and `$!` by chance. A script that says so is not recorded.
#[test]
fn compressed_bytes_are_no_script() {
    let outcomes = |text: &str| {
        let project = Project::of(&[("packed", text)]);
        [0, 1, 2].map(|at| project.compared_at(&"p".repeat(at + 1), &["sh", "-c", "cat packed > out"]))
    };
    assert_eq!(outcomes("BZh91AY&SY\u{1} _*$$*$! x=$(($$ % 2))\n"), ["miss", "miss", "hit"]);
    let refused = outcomes("#!/bin/sh\nx=$(($$ % 2))\n");
    assert!(refused.iter().all(|outcome| outcome.contains("process ID")), "{refused:?}");
}

/// Scripts and programs that print addresses, and ids of processes that they started, without a word
/// for that in a script.
#[test]
fn numbers_that_no_word_announces() {
    probe_skip!(has("perl") && has("cc"), "perl or cc is not installed");
    let project = Project::of(&[("in", "x\n")]);
    let pristine = project.place.path("work/pristine");
    let source = pristine.join("x.c");
    let program = "#include <stdio.h>\n#include <unistd.h>\nint main(void) { return printf(\"%d\", getpid()) < 0; }\n";
    std::fs::write(&source, program).expect("cannot write the source");
    let mut compile = std::process::Command::new("cc");
    assert!(compile.arg("-o").arg(pristine.join("prog")).arg(&source).status().expect("cc does not start").success());
    for script in ["perl -e 'print {}'", "perl -e 'fork or exit; print wait' > out", "./prog", "./prog > out"] {
        for outcome in ["miss", "miss", "miss"] {
            project.lay_out(0);
            assert_eq!(project.through_larder(0, &["sh", "-c", script]).1, [outcome], "{script}");
        }
    }
}
