//! A root directory made of bind mounts, as in a container: the path of the sources, the user and
//! the mounts differ, but the compiler and the store are the same.

use std::process::{Command, Stdio};

use larder_testkit::{Run, has, larder, probe_skip};

use crate::two::Case;

/// The fewest commands that must hit in the container.
const LEAST_HITS: u64 = 2;

/// A script that makes a root directory of bind mounts in `$1/root`, and runs the commands `$2`
/// there in `/src` with user ID 1234.
const ENTER: &str = r#"
top=$1; shift
mkdir -p "$top/root"
mount -t tmpfs none "$top/root"
cd "$top/root"
mkdir usr etc dev proc tmp src cache cc opt
ln -s usr/bin usr/lib usr/lib64 usr/sbin .
for name in usr etc dev proc; do mount --rbind "/$name" "$name"; done
mount --bind "$top/work/second" src
mkdir -p "$top/store"
mount --bind "$top/store" cache
mkdir larder
mount --bind "$LARDER_HERE" larder
if [ -L "$top/cc/gcc" ]; then ln -s /larder/larder cc/gcc; else mount --bind "$top/cc" cc; fi
exec unshare --user --map-user=1234 --map-group=1234 --root="$top/root" --wd=/src \
    env -i PATH=/usr/local/bin:/usr/bin:/bin LC_ALL=C HOME=/nowhere TMPDIR=/tmp LARDER_DIR=/cache CC=/cc/gcc sh -euc "$1"
"#;

const MAKEFILE: &str = "CFLAGS = -O2 -Iinclude -MD\nall: one.o two.o p\n%.o: src/%.c\n\t$(CC) $(CFLAGS) -c -o $@ $<\n\
    p: one.o two.o\n\t$(CC) -shared -o $@ one.o two.o\n";

fn can_make_roots() -> bool {
    let line = "unshare --user --map-user=1234 --map-group=1234 --root=/ --wd=/ true";
    let words = [UNSHARE, &["sh", "-c", line]].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A command that runs another one in a new mount namespace, without superuser rights.
const UNSHARE: &[&str] = &["unshare", "--user", "--map-root-user", "--mount"];

#[test]
fn a_root_of_another_path_and_user() {
    probe_skip!(has("make") && has("unshare"), "make or unshare is not installed");
    probe_skip!(can_make_roots(), "root directories of bind mounts cannot be made here");
    let case = |flags: &str, least_hits| {
        let files: Vec<(String, String)> = ["first", "second"]
            .into_iter()
            .flat_map(|tree| {
                [
                    ("Makefile", MAKEFILE.replace("-O2", flags)),
                    ("include/lib.h", "int one(int);\n".to_owned()),
                    ("src/one.c", "#include \"lib.h\"\nint one(int a) { return a + 1; }\n".to_owned()),
                    (
                        "src/two.c",
                        "#include <stdio.h>\n#include \"lib.h\"\nint two(void) { return puts(\"\") + one(1); }\n"
                            .to_owned(),
                    ),
                ]
                .map(|(name, text)| (format!("{tree}/{name}"), text))
            })
            .collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        Case {
            name: &format!("a root of its own, {flags}"),
            files: &files,
            first: "cd first; make >/dev/null",
            second: "make >/dev/null",
            compared: "second",
            left_out: &[],
            least_hits,
        }
        .check_by(enter);
    };
    case("-O2 -fPIC", LEAST_HITS);
    case("-O2 -fPIC -g", LEAST_HITS);
}

/// Changes a run of shell commands so that they run inside the new root directory.
fn enter(run: Run) -> Run {
    let commands = run.command.get_args().last().expect("the run is not `sh -euc COMMANDS`").to_owned();
    let work = run.command.get_current_dir().expect("the run has no working directory").to_owned();
    let top = work.parent().expect("no parent directory");
    let mut inside = Command::new(UNSHARE[0]);
    inside.args(&UNSHARE[1..]).args(["sh", "-euc", ENTER, "sh"]).arg(top).arg(&commands).current_dir("/");
    inside.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    inside.env("LARDER_HERE", larder().parent().expect("no parent directory"));
    let mut run = run;
    run.command = inside;
    run
}
