//! A run that failed because of a shortage or a failing device is not recorded, so the tool
//! succeeds once the shortage is over. This holds for each observer, and for messages in any
//! language.
#![cfg(target_os = "linux")]

use std::fs;
use std::process::{Command, Stdio};

use larder_testkit::{Counters, Place, can_mount, has, is_root, larder, probe_skip};

const GERMAN: &str = "de_DE.UTF-8";
/// Each observer. With `auto`, both the library and the kernel watch the first run of a tool.
const OBSERVERS: [&str; 4] = ["auto", "preload", "kernel", "depfile"];
/// A line of a script that defines `$AS`, a prefix that runs a command as a user without special
/// rights.
const OTHER: &str =
    "AS=\"setpriv --reuid 4242 --regid 4242 --clear-groups\"; chmod 755 .. && chown -R 4242 .. || exit 9\n";

/// A source that compiles to 400 kB of object file, and to more assembly than that.
const LARGE: &str = "const char large[400000] = {1, 2, 3};\nint f(void) { return large[5]; }\n";

/// Returns the locale that translates a compiler's messages if it is installed, and `C` otherwise.
fn locale() -> &'static str {
    let listed = Command::new("locale").arg("-a").output().map(|ran| ran.stdout).unwrap_or_default();
    let listed = String::from_utf8_lossy(&listed).to_lowercase();
    if listed.lines().any(|name| name == "de_de.utf8") {
        return GERMAN;
    }
    println!("skipped: the locale {GERMAN} is not installed, so messages are in English");
    "C"
}

fn compilers() -> impl Iterator<Item = &'static str> {
    ["gcc", "clang"].into_iter().filter(|compiler| {
        let is_there = has(compiler);
        if !is_there {
            println!("skipped: {compiler} is not installed");
        }
        is_there
    })
}

/// Runs a script in its own mount namespace. `$L` in it is larder. For each run of larder the
/// script prints one line, `succeeded` or `failed`. All runs but the last must fail, and none may
/// hit.
fn each_run_fails_but_the_last(place: &Place, variables: &[(&str, &str)], script: &str) {
    let helpers = "PATH=$PATH:/usr/sbin:/sbin; run() { if \"$@\"; then echo succeeded; else echo failed; fi; }\n";
    let script = format!("{helpers}{script}\n$AS $L stats --json > ../stats");
    place.settle();
    let run = place.run(&["unshare", "-m", "sh", "-c", &script]).env("L", larder()).env("LC_ALL", locale());
    let ran = variables.iter().fold(run, |run, (name, value)| run.env(name, value)).run();
    let counted = Counters::parse(&fs::read_to_string(place.path("stats")).unwrap_or_default());
    let what = format!("{variables:?}: {ran:#?}, {counted:?}");
    let lines: Vec<&str> = ran.stdout.lines().collect();
    let (last, others) = lines.split_last().unwrap_or_else(|| panic!("{what}"));
    assert!(ran.code == Some(0) && !others.is_empty(), "{what}");
    assert!(*last == "succeeded" && others.iter().all(|line| *line == "failed"), "{what}");
    assert!(counted.get("hit") == 0 && counted.total() > 0, "{what}");
}

/// Runs a script like [`each_run_fails_but_the_last`], once for each compiler (`$CC`) and each
/// observer.
fn each(script: &str) {
    for compiler in compilers() {
        for observer in OBSERVERS {
            let place = Place::new();
            place.put("large.c", LARGE);
            each_run_fails_but_the_last(&place, &[("CC", compiler), ("LARDER_OBSERVER", observer)], script);
        }
    }
}

/// The file system of the compiler's temporary files and outputs is full.
#[test]
fn a_full_file_system() {
    probe_skip!(can_mount(), "nothing can be mounted here");
    each(
        "mkdir full && mount -t tmpfs -o size=64k none full || exit 9
         export TMPDIR=$PWD/full
         run $L $CC -c large.c -MD -MF full/x.d -o full/x.o
         run $L $CC -c large.c -MD -MF full/x.d -o full/x.o
         mount -o remount,size=8m full || exit 9
         run $L $CC -c large.c -MD -MF full/x.d -o full/x.o",
    );
}

/// The file system becomes full after larder has learned how to observe the compiler. It also holds
/// sources that can be compiled.
#[test]
fn a_full_file_system_that_was_not_full_before() {
    probe_skip!(can_mount(), "nothing can be mounted here");
    each(
        "mkdir full && mount -t tmpfs -o size=8m none full || exit 9
         for i in 1 2 3; do echo \"int a$i;\" > full/small$i.c; done; sleep 0.1
         for i in 1 2 3; do $L $CC -c full/small$i.c -MD -MF full/x.d -o full/x.o || exit 9; done
         rm full/x.o; mount -o remount,size=64k full || exit 9
         TMPDIR=$PWD/full; export TMPDIR
         run $L $CC -c large.c -MD -MF full/x.d -o full/x.o
         run $L $CC -c large.c -MD -MF full/x.d -o full/x.o
         mount -o remount,size=8m full || exit 9
         run $L $CC -c large.c -MD -MF full/x.d -o full/x.o",
    );
}

/// A program opens more files than it may. larder itself needs fewer.
#[test]
fn too_few_descriptors() {
    probe_skip!(has("prlimit") && has("perl") && can_mount(), "no prlimit, perl or mounts");
    for observer in ["auto", "preload", "kernel"] {
        for way in ["open(my $f, '<', 'large.c')", "pipe(my $f, my $g)", "opendir(my $f, '.')"] {
            let place = Place::new();
            place.put("large.c", LARGE);
            let script = "
                run prlimit --nofile=64:64 $L run -- perl -e \"$PROGRAM\"
                run prlimit --nofile=64:64 $L run -- perl -e \"$PROGRAM\"
                run $L run -- perl -e \"$PROGRAM\"";
            let program = format!("for (1..100) {{ {way} or exit 1; push @kept, $f, $g }}");
            let variables = [("PROGRAM", program.as_str()), ("LARDER_OBSERVER", observer)];
            each_run_fails_but_the_last(&place, &variables, script);
        }
    }
}

/// No process can be started. The limit does not apply to the superuser, so the test runs as
/// another user.
#[test]
fn too_few_processes() {
    probe_skip!(is_root() && has("setpriv") && has("prlimit"), "not the superuser, or no setpriv or prlimit");
    probe_skip!(can_mount(), "nothing can be mounted here");
    probe_skip!(has("gcc"), "gcc is not installed");
    // clang starts no process for a compile. gcc tries four times, which takes seven seconds.
    for observer in ["auto", "preload"] {
        let place = Place::new();
        place.put("large.c", LARGE);
        let script = "
            run $AS prlimit --nproc=1:1 $L gcc -c large.c -o x.o
            run $AS $L gcc -c large.c -o x.o";
        each_run_fails_but_the_last(&place, &[("LARDER_OBSERVER", observer)], &format!("{OTHER}{script}"));
    }
}

/// The sizes of files and of memory are limited before the run begins.
#[test]
fn limited_sizes() {
    probe_skip!(has("prlimit") && can_mount(), "no prlimit, or no mounts");
    for limit in ["fsize=1000:1000", "as=40000000:40000000", "data=2000000:2000000"] {
        each(&format!(
            "run prlimit --{limit} $L $CC -c large.c -MD -MF x.d -o x.o
                 run $L $CC -c large.c -MD -MF x.d -o x.o"
        ));
    }
}

/// One program of the run limits the memory of another one.
#[test]
fn limited_memory_inside_a_run() {
    probe_skip!(has("bash") && has("perl") && can_mount(), "no bash, perl or mounts");
    for observer in ["auto", "preload", "kernel"] {
        let place = Place::new();
        place.put("limit", "unlimited\n");
        let script = "
            echo 200000 > ../limit; : > x
            run $L run -- bash -c 'ulimit -v `cat ../limit`; perl -e \"\\$x = q(a) x 500_000_000\" 2> /dev/null'
            rm x; echo unlimited > ../limit
            run $L run -- bash -c 'ulimit -v `cat ../limit`; perl -e \"\\$x = q(a) x 500_000_000\" 2> /dev/null'";
        each_run_fails_but_the_last(&place, &[("LARDER_OBSERVER", observer)], script);
    }
}

/// A quota is exhausted on a file system that has room.
#[test]
fn a_quota() {
    probe_skip!(is_root() && has("setpriv") && can_mount(), "not the superuser, or no setpriv or mounts");
    let probe =
        "f=$(mktemp) && d=$(mktemp -d) && truncate -s 4M $f && mkfs.ext4 -q -F -O quota -E quotatype=usrquota $f &&
         mount -o loop,usrquota $f $d && setquota -u 4242 10 10 0 0 $d; code=$?; umount $d; rm -r $f $d; exit $code";
    probe_skip!(is_possible(probe), "no quotas, no loop devices, or no setquota here");
    each(&format!(
        "{OTHER}
         truncate -s 16M ../image && mkfs.ext4 -q -F -O quota -E quotatype=usrquota ../image && mkdir full || exit 9
         mount -o loop,usrquota ../image full && setquota -u 4242 100 100 0 0 full && chown 4242 full || exit 9
         run $AS $L $CC -c large.c -MD -MF x.d -o full/x.o
         run $AS $L $CC -c large.c -MD -MF x.d -o full/x.o
         setquota -u 4242 0 0 0 0 full || exit 9
         run $AS $L $CC -c large.c -MD -MF x.d -o full/x.o; umount full"
    ));
}

fn is_possible(script: &str) -> bool {
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A block device fails to read the end of a header, because the file behind the loop device was
/// truncated.
#[test]
fn a_device_that_fails() {
    probe_skip!(is_root() && can_mount(), "not the superuser, or no mounts");
    let probe = "f=$(mktemp) && d=$(mktemp -d) && truncate -s 4M $f && mkfs.ext4 -q -F $f && mount -o loop $f $d;
         code=$?; umount $d; rm -r $f $d; exit $code";
    probe_skip!(is_possible(probe), "no loop devices, or no mkfs.ext4 here");
    each(
                "truncate -s 16M ../image && mkfs.ext4 -q -F -b 1024 ../image && mkdir disk && mount -o loop ../image disk || exit 9
         seq 1 300000 | sed 's,.*,// &,' > disk/long.h; echo 'int a;' >> disk/long.h; echo '#include \"long.h\"' > disk/x.c
         sync; cp ../image ../whole; truncate -s 1M ../image; echo 1 > /proc/sys/vm/drop_caches
         run $L $CC -c disk/x.c -MD -MF x.d -o x.o
         run $L $CC -c disk/x.c -MD -MF x.d -o x.o
         umount disk; mount -o loop ../whole disk || exit 9
         run $L $CC -c disk/x.c -MD -MF x.d -o x.o; umount disk",
    );
}

/// Output that a program writes only when it exits is lost if the file system is full, and the
/// program does not notice. Its result must not be recorded.
#[test]
fn output_that_is_lost_at_the_end_of_a_program() {
    probe_skip!(can_mount(), "nothing can be mounted here");
    let place = Place::new();
    place.settle();
    let script =
        "mkdir full && mount -t tmpfs -o size=4k none full && head -c 4000 /dev/zero > full/x && : > full/y || exit 9
         for i in 1 2; do $L run -- sh -c 'seq 2000 2200 > full/out; true'; done
         mount -o remount,size=8m full; $L run -- sh -c 'seq 2000 2200 > full/out; true'; wc -c < full/out";
    let ran = place.run(&["unshare", "-m", "sh", "-c", script]).env("L", larder()).run();
    assert_eq!((ran.code, ran.stdout.trim()), (Some(0), "1005"), "{ran:#?}, {:?}", place.counters());
}

/// A compile that fails because of its input is a hit the second time, in any language.
#[test]
fn failures_of_the_input_are_recorded() {
    let locale = locale();
    for compiler in compilers() {
        let place = Place::new();
        place.put("good.c", "int a;\n");
        place.put("header.c", "#include <ac_nonexistent.h>\n");
        place.put("syntax.c", "int f(void) { return x; }\n");
        place.put("main.c", "int undefined(void); int main(void) { return undefined(); }\n");
        let arguments: [&[&str]; 4] = [
            &["-c", "header.c", "-o", "x.o"],
            &["-c", "syntax.c", "-o", "x.o"],
            &["main.c", "-o", "x", "-lnonexistent"],
            &["main.c", "-o", "x"],
        ];
        // Both observers watch the first run of a tool.
        place.larder(&[compiler, "-c", "good.c", "-o", "good.o"]).env("LC_ALL", locale).run().ends(0);
        for arguments in arguments {
            let argv = [&[compiler], arguments].concat();
            let first = place.larder(&argv).env("LC_ALL", locale).run().ends(1);
            let (second, outcome) = place.counted(place.larder(&argv).env("LC_ALL", locale));
            assert_eq!((second, outcome.as_str()), (first, "hit"), "{argv:?}");
        }
    }
}

/// If the file system of the store is full, larder cannot keep what it learned about a tool. Running
/// the tool again does not help, so the store is named as the reason.
#[test]
fn a_full_store_is_the_reason() {
    probe_skip!(has("gcc") && can_mount(), "gcc is not installed, or nothing can be mounted here");
    let place = Place::new();
    place.put("x.c", "int x;\n");
    place.put("y.c", "int y;\n");
    place.settle();
    let script = "mkdir full && mount -t tmpfs -o size=1500k none full || exit 9
        LARDER_DIR=$PWD/full/store; export LARDER_DIR
        $L gcc -c x.c -o x.o; dd if=/dev/zero of=full/fill bs=64k count=24 2>/dev/null
        $L clang -c y.c -o y.o; $L clang -c y.c -o y.o
        $L image save --key k x.o; $L stats --json >../stats; $L stats";
    let script = script.replace("clang", if has("clang") { "clang" } else { "g++" });
    let ran = place.run(&["unshare", "-m", "sh", "-c", &script]).env("L", larder()).run().ends(0);
    let stats: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(place.path("stats")).expect("is there")).expect("is JSON");
    assert!(stats["fallback_reasons"]["store-full"].as_u64() >= Some(1), "{stats:#}");
    assert_eq!(stats["unrecorded_reasons"]["unjudged"], serde_json::Value::Null, "{stats:#}");
    assert!(ran.stdout.contains("free disk space, or lower max_size"), "{ran:?}");
    assert!(ran.stderr.contains(": free disk space, or set LARDER_DIR to another disk"), "{ran:?}");
}
