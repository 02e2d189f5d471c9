//! Paths that lead to files which the command makes, paths that it found free, and outputs that it
//! could not make.

use std::os::unix::fs::symlink;

use super::project::Project;

/// A script, and commands that change what its next run finds.
struct Case {
    script: &'static str,
    change: &'static [&'static str],
}

const CASES: &[Case] = &[
    // A file that did not exist is made, so a second run finds it.
    Case { script: "cat y.o 2>/dev/null | wc -c; gcc -c y.c -o y.o", change: &["gcc -c y.c -o y.o"] },
    Case { script: "./p 2>/dev/null || echo no; gcc m.c -o p", change: &["gcc m.c -o p"] },
    // An existing symbolic link leads to a file that the command makes.
    Case { script: "echo new > a; cat l", change: &["rm l", "rm l; echo other > l", "rm l; ln -s in l"] },
    Case { script: "echo a > a; echo b > l", change: &["rm l; echo old > l", "rm l; ln -s in l"] },
    Case { script: "echo x > d/f; cat ld/f", change: &["rm ld", "rm ld; mkdir ld; echo other > ld/f", "ln -sfn e ld"] },
    Case { script: "echo x > d/f; ls ld/f && test -f ld/f && echo is", change: &["rm ld", "rm ld; mkdir ld"] },
    // A symbolic link is made and removed again.
    Case { script: "ln -s a b && rm b && echo ok", change: &["echo keep > b"] },
    Case { script: "ln -s a t && mv t b && rm b && echo ok", change: &["echo x > b", "echo x > t", "mkdir t"] },
    Case { script: "rm -f b; ln -s a b; rm b; echo ok", change: &["echo x > b", "ln -s in b"] },
    // The target of a link is no input.
    Case { script: "ln -s /dev/null b", change: &["echo > b"] },
    Case { script: "ln -s /proc/self/exe b; ln -s /dev/zero t; rm t; ln -s . t; rm t", change: &["echo > b"] },
    // A file is made by a path with `..`, and used by the path without.
    Case { script: "[ -e b ] || echo no; cd d; cat in > ../b; cd ..; cat b; cp -p b e", change: &["echo > b"] },
    Case { script: "cd d; echo 1 > ../b; cd ..; mv b t; echo 2 > b; rm b", change: &["echo > b", "rm -r d"] },
    Case { script: "mkdir b; cd b; echo 1 > ../t; cd ..; rm t; rmdir b", change: &["echo > t", "mkdir b"] },
    Case { script: "cd d; gcc ../m.c -o ../b; cd ..; [ b -nt in ] && ./b", change: &["echo > b"] },
    // The directory is a link first, so the path without `..` is another file.
    Case { script: "ln -s e/g b; cat in > b/../t; rm b; mkdir b; cat t", change: &["echo other > t", "rm t"] },
    Case { script: "cat in > ld2/../t; rm ld2; mkdir ld2; cat t; rm t", change: &["echo other > t", "rm t"] },
    // The script depends on a file that it does not replace, and on the file that would have
    // replaced it.
    Case { script: "mv -n in m.c; echo $?", change: &["rm in", "rm m.c"] },
    Case { script: "ln in m.c 2>/dev/null || ls m.c", change: &["rm in", "rm m.c"] },
    // A link is followed or read before it is replaced or removed, so where it leads counts.
    Case { script: "ln -sf in lm; ls d", change: &["ln -sfn d lm", "ln -sfn nowhere lm", "ln -sfn lm lm", "rm lm"] },
    Case { script: "readlink lm; ln -sfn in lm", change: &["ln -sfn in lm", "ln -sfn d lm", "ln -sfn $PWD/m.c lm"] },
    Case { script: "cat lm; rm -f lm; cp y.c lm", change: &["ln -sfn in lm", "echo int z; > m.c", "ln -sfn lm lm"] },
    Case { script: "[ -e lm ] || echo no; rm -f lm", change: &["ln -sfn nowhere lm", "ln -sfn lm lm", "ln -sfn d lm"] },
    // The size of a file that the script replaces counts.
    Case { script: "[ -s t ] && echo some || echo none; echo 1 > t", change: &[": > t", "echo old > t", "rm t"] },
    Case { script: "find . -name t -empty; rm -f t", change: &[": > t", "echo old > t", "rm t"] },
    // Only half of the outputs can be put in place.
    Case { script: "[ -e a ] && echo already; echo 1 > a; echo 2 > d/b", change: &["rm -r d", "rm -r d; echo > a"] },
    Case { script: "ls; echo 1 > a; echo 2 > d/b", change: &["rm -r d", "rm -r d; echo > a"] },
];

#[test]
fn what_names_lead_to() {
    for Case { script, change } in CASES {
        let project = Project::of(&[
            ("in", "in\n"),
            ("y.c", "int y;\n"),
            ("m.c", "int main(void) { return 0; }\n"),
            ("d/in", "\n"),
            ("e/f", "other\n"),
            ("e/g/h", "\n"),
            ("t", "own\n"),
        ]);
        let pristine = project.place.path("work/pristine");
        symlink("a", pristine.join("l")).expect("cannot create the link");
        symlink("d", pristine.join("ld")).expect("cannot create the link");
        symlink("e/g", pristine.join("ld2")).expect("cannot create the link");
        symlink("m.c", pristine.join("lm")).expect("cannot create the link");
        let argv = ["sh", "-c", script];
        for at in [0, 0, 1, 2] {
            project.compared(at, &argv);
        }
        // Run in the same place once more, over the files of the run before.
        project.compared_again(2, &argv);
        for change in *change {
            for at in [0, 2] {
                project.compared_after(at, &argv, change);
            }
        }
        project.compared(2, &argv);
    }
}

#[test]
fn a_link_takes_the_place_of_what_was_there() {
    for script in ["ln -sf e/f l", "ln -sfn e ld", "rm -f in; ln -s e/f in", "rm -f l; ln -s e/f l"] {
        let project = Project::of(&[("in", "in\n"), ("d/in", "\n"), ("e/f", "other\n")]);
        let pristine = project.place.path("work/pristine");
        symlink("in", pristine.join("l")).expect("cannot create the link");
        symlink("d", pristine.join("ld")).expect("cannot create the link");
        let argv = ["sh", "-c", script];
        for at in [0, 0, 1, 2] {
            project.compared(at, &argv);
        }
        assert_eq!(project.compared(3, &argv), "hit", "{script}");
        project.compared_after(3, &argv, "rm l ld in; mkdir l ld in");
    }
}

#[test]
fn a_source_that_asks_for_its_output() {
    let project = Project::of(&[("x.c", "#if __has_include(\"o.h\")\n#error there\n#endif\nint a;\n")]);
    let argv = ["gcc", "-c", "x.c", "-o", "o.h"];
    project.compared(0, &argv);
    project.compared_again(0, &argv);
}

#[test]
fn what_is_made_by_another_path_is_an_output() {
    let scripts = [
        "ln -s /dev/null b",
        "ln -s /dev/null t; rm t; echo > b",
        "[ -e b ] || echo no; cd d; cat in > ../b; cd ..; cat b",
        "[ -e b ] || echo no; cd d; gcc ../m.c -o ../b; cd ..; [ -x b ] && ./b",
        "cd d; echo 1 > ../t; cd ..; mv t b",
    ];
    for script in scripts {
        let project = Project::of(&[("m.c", "int main(void) { return 0; }\n"), ("d/in", "in\n")]);
        let outcomes = [0, 1, 2].map(|at| project.compared(at, &["sh", "-c", script]));
        assert_eq!(outcomes[2], "hit", "{script}: {outcomes:?}");
    }
}
