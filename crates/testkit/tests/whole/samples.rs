//! In the first run of a whole command, larder learns about its programs from samples: the kernel
//! observer watches a few processes of each program.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use larder_testkit::{has, larder, probe_skip, write_program};

use crate::project::Project;

/// C code that makes `openat` and `read` system calls by its own instructions. `raw(path)` returns
/// the file's first byte.
const RAW: &str = r#"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <spawn.h>
#include <unistd.h>
extern char **environ;
static long call(long n, long a, long b, long c, long d) {
    long r;
#if defined(__x86_64__)
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
#else
    register long x8 __asm__("x8") = n; register long x0 __asm__("x0") = a; register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c; register long x3 __asm__("x3") = d;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    r = x0;
#endif
    return r;
}
static int raw(const char *path) {
    char byte = '?';
    long fd = call(SYS_openat, -100, (long)path, 0, 0);
    call(SYS_read, fd, (long)&byte, 1, 0);
    return byte;
}
"#;

/// Returns a project with a program `tool` that is compiled from `RAW` and this text, or `None` if
/// it cannot be compiled.
fn with_tool(text: &str, flags: &[&str]) -> Option<Project> {
    let project = Project::of(&[("in", "1\n")]);
    let source = project.place.path("tool.c");
    std::fs::write(&source, format!("{RAW}{text}")).expect("cannot write the file");
    let tool = project.place.path("work/pristine/tool");
    let made = Command::new("gcc").args(flags).arg("-w").arg("-o").args([&tool, &source]).status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("skipped: gcc cannot compile the program with these flags: {flags:?}");
        return None;
    }
    let hour = std::time::SystemTime::now() - Duration::from_secs(3600);
    let file = std::fs::File::options().append(true).open(&tool).expect("cannot open the file");
    file.set_modified(hour).expect("cannot set the mtime");
    Some(project)
}

/// Asserts that the first run of a script is recorded, and the second one hits.
#[track_caller]
fn first_run_is_recorded(project: &Project, script: &str) {
    let outcomes: Vec<String> = (0..2).map(|_| project.compared(0, &["sh", "-c", script])).collect();
    assert_eq!(outcomes, ["miss", "hit"], "{script}");
}

#[test]
fn the_first_run_is_recorded() {
    let project = Project::of(&[("in", "x\n")]);
    let script = "for i in 1 2 3 4; do sed s/x/y/ in | grep y | sort > out$i; expr $i + 1 > /dev/null; done; \
                  (cd / && ls > /dev/null); test -f none || cat in > d";
    first_run_is_recorded(&project, script);
    // The programs of that run are known now, so another command with them is recorded at once.
    project.change("in", "z\n");
    assert_eq!(project.compared(0, &["sh", "-c", "sed s/z/y/ in > other"]), "miss");
    assert_eq!(project.compared(0, &["sh", "-c", "sed s/z/y/ in > other"]), "hit");
}

#[test]
fn however_a_program_is_started() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let ways = [
        "int pid; char *v[] = {\"cat\", \"in\", 0}; posix_spawnp(&pid, \"cat\", 0, 0, v, environ); wait(0);",
        "if (!vfork()) { execlp(\"cat\", \"cat\", \"in\", (char *)0); _exit(1); } wait(0);",
        "if (!fork()) { execlp(\"cat\", \"cat\", \"in\", (char *)0); _exit(1); } wait(0);",
        "system(\"cat in\");",
        "FILE *f = popen(\"cat in\", \"r\"); char line[9]; fputs(fgets(line, 9, f), stdout); pclose(f);",
        "execlp(\"cat\", \"cat\", \"in\", (char *)0);",
    ];
    for way in ways {
        let text = format!("int main(int argc, char **argv) {{ if (argc > 1) return 0; {way} return 0; }}");
        let Some(project) = with_tool(&text, &[]) else { return };
        eprintln!("{way}");
        // A process that executes another program is sampled as a whole.
        first_run_is_recorded(&project, "./tool > out; ./tool no; ./tool >> out");
    }
}

#[test]
fn a_program_with_threads() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let text = "#include <pthread.h>\n\
        static void *thread(void *x) { for (int i = 0; i < 50; i++) { close(open(\"in\", 0)); access(x, 0); } return 0; }\n\
        int main(void) { pthread_t t[4]; char *names[] = {\"a\", \"b\", \"c\", \"d\"};\n\
        for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, thread, names[i]);\n\
        for (int i = 0; i < 4; i++) pthread_join(t[i], 0);\n return 0; }";
    let Some(project) = with_tool(text, &["-pthread"]) else { return };
    first_run_is_recorded(&project, "./tool; cat in > out");
}

/// larder must find out that the program makes its own system calls, whichever run and process
/// makes them.
#[test]
fn a_program_that_goes_by_its_own_system_calls_is_found_out() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let rows = [
        ("printf(\"%c\\n\", raw(\"in\"));", "./tool > out"),
        ("if (argc > 1) printf(\"%c\\n\", raw(\"in\"));", "./tool; ./tool x > out"),
        ("if (argc > 1) printf(\"%c\\n\", raw(\"in\"));", "./tool; ./tool; ./tool x > out; ./tool; ./tool"),
        ("fflush(stdout); if (!fork()) { printf(\"%c\\n\", raw(\"in\")); exit(0); } wait(0);", "./tool > out"),
        (
            "int status; if (!vfork()) _exit(raw(\"in\")); wait(&status); printf(\"%d\\n\", status >> 8);",
            "./tool > out",
        ),
        (
            "int status; if (!call(SYS_clone, 0x800000 | SIGCHLD, 0, 0, 0)) _exit(raw(\"in\")); wait(&status); \
             printf(\"%d\\n\", status >> 8);",
            "./tool > out",
        ),
        ("pthread_t t; void *c; pthread_create(&t, 0, thread, 0); pthread_join(t, &c); puts(c);", "./tool > out"),
        // The program that ran was removed, and made the system calls in only one of two runs.
        ("if (argc > 1) printf(\"%c\\n\", raw(\"in\"));", "cp tool t; ./t; ./t x > out; rm t"),
        ("printf(\"%c\\n\", raw(\"in\"));", "./tool > out; mv tool t; cat < t > tool; rm t; chmod 644 tool"),
    ];
    for (way, script) in rows {
        let text = format!(
            "#include <pthread.h>\nstatic void *thread(void *x) {{ static char c[2]; c[0] = raw(\"in\"); return c; }}\n\
             int main(int argc, char **argv) {{ {way} return 0; }}"
        );
        let Some(project) = with_tool(&text, &["-pthread"]) else { return };
        let argv = ["sh", "-c", script];
        let first = project.compared(0, &argv);
        assert_ne!(first, "miss", "{way} {script}: the run must not be recorded");
        project.compared(0, &argv);
        // Any record must depend on the file that only the kernel saw, so this change must not hit.
        project.change("in", "2\n");
        assert_ne!(project.compared(0, &argv), "hit", "{way} {script}");
    }
}

#[test]
fn a_program_of_which_only_the_beginning_was_seen() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let text =
        "int main(void) { for (int i = 0; i < 9000; i++) close(open(\"in\", 0)); printf(\"%c\\n\", raw(\"in\")); }";
    let Some(project) = with_tool(text, &[]) else { return };
    let argv = ["sh", "-c", "./tool > out"];
    assert_ne!(project.compared(0, &argv), "miss");
    project.compared(0, &argv);
    project.change("in", "2\n");
    assert_ne!(project.compared(0, &argv), "hit");
}

/// As in Meson's checks, the program that ran first was replaced by another file at the end. larder
/// knows it by its content.
#[test]
fn a_program_that_is_made_twice_is_judged_in_other_places() {
    probe_skip!(has("cc"), "cc is not installed");
    let project = Project::of(&[("x.c", "int main(void) { return 0; }\n")]);
    let argv = ["sh", "-c", "cc x.c -o x && ./x && cc x.c -o x && ./x"];
    let outcomes: Vec<String> = (0..4).map(|at| project.compared(at, &argv)).collect();
    assert_eq!(outcomes, ["miss", "miss", "hit", "hit"]);
}

#[test]
fn a_static_program_is_left_to_the_kernel() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let Some(project) = with_tool("int main(void) { printf(\"%c\\n\", raw(\"in\")); }", &["-static"]) else { return };
    let argv = ["sh", "-c", "./tool > out; cat in > copy"];
    let outcomes: Vec<String> = (0..3).map(|_| project.compared(0, &argv)).collect();
    assert_eq!(outcomes[1..], ["miss", "hit"], "{outcomes:?}");
    project.change("in", "2\n");
    assert_eq!(project.compared(0, &argv), "miss");
}

/// A process that is started again under observation must look the same to itself and to other
/// processes.
#[test]
fn nothing_is_noticed() {
    let project = Project::of(&[("in", "x\n")]);
    project.tool("tool", "cat /proc/$$/comm; echo \"$0\" \"$#\" \"$@\"; tr '\\0' ' ' < /proc/$$/cmdline; echo");
    let nested = project.text(0, "tool");
    project.tool("ways", &format!("exec sh ./tool \"$@\"; # {nested}"));
    let list = project.place.path("work/pristine/list.awk");
    write_program(list, "#!/usr/bin/awk -f\nBEGIN { print ARGV[0], ARGV[1] }\n");
    project.age("list.awk", 3600);
    let loader =
        ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"].into_iter().find(|l| Path::new(l).exists());
    let scripts = [
        "./tool",
        "./tool '' 'a b' \"$(printf 'c\\nd')\"",
        "PATH=$PWD:$PATH; tool one two",
        "cd /; $OLDPWD/tool x",
        "./ways 1 2",
        "./list.awk 3",
        "env -i ./tool x",
        "sh -c 'exec cat in' ; sh -c 'cat /proc/self/comm'",
        "cat in | (cat; cat) | cat; exit 3",
        "sh -c 'kill -9 $$'; sh -c 'kill -15 $$'; echo $?",
        "yes | head -n 2",
        "(sleep 0.02; cat in) & wait; sh -c 'sleep 0.01 & echo x'",
        // These scripts print the CPU affinity of a process, of its children and of its parents.
        "nproc; grep -h Cpus_allowed_list /proc/self/status /proc/$PPID/status; sh -c 'nproc; nproc' | cat",
        "sh -c 'sh -c \"grep -h Cpus_allowed /proc/\\$PPID/status; nproc\"; exec grep -h Cpus_allowed /proc/$$/status'",
        "taskset -p $$ | sed 's/pid [0-9]*//'",
        "taskset 1 sh -c 'nproc; taskset -p $$' | sed 's/pid [0-9]*//'",
        "timeout 5 cat in; trap 'echo caught' USR1; sh -c 'kill -USR1 $PPID'; echo $?",
    ];
    for script in scripts.iter().copied().map(str::to_owned).chain(loader.map(|l| format!("{l} /bin/echo a b"))) {
        let argv = ["sh", "-c", &script];
        for _ in 0..2 {
            project.lay_out(0);
            let plain = project.plain(0, &argv);
            project.lay_out(0);
            assert_eq!(project.through_larder(0, &argv).0, plain, "{script}");
        }
    }
    if has("bash") {
        let argv = ["bash", "-c", "exec -a other bash -c 'echo $0; cat /proc/$$/comm'"];
        project.lay_out(0);
        assert_eq!(project.through_larder(0, &argv).0, project.plain(0, &argv));
    }
}

/// Constructors must run only once. This holds for libraries that the program is linked with, and
/// for libraries that the build itself preloads.
#[test]
fn constructors_run_once() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let Some(project) = with_tool("int main(void) { return 0; }", &[]) else { return };
    let pristine = project.place.path("work/pristine");
    let library = "#include <unistd.h>\n\
        __attribute__((constructor)) static void begins(void) { write(1, NAME, sizeof NAME - 1); }\n";
    let compile = |name: &str, flags: &[&str]| {
        let source = project.place.path("library.c");
        std::fs::write(&source, library).expect("cannot write the file");
        let made = Command::new("gcc").args(["-w", "-o"]).arg(pristine.join(name)).arg(source).args(flags).status();
        assert!(made.is_ok_and(|status| status.success()), "gcc cannot compile {name}");
    };
    compile("libone.so", &["-shared", "-fPIC", "-DNAME=\"one \""]);
    compile("libfirst.so", &["-shared", "-fPIC", "-DNAME=\"first \"", "-Wl,-z,initfirst"]);
    let linked = project.place.path("main.c");
    std::fs::write(&linked, "int main(void) { return 0; }\n").expect("cannot write the file");
    for name in ["one", "first"] {
        let mut gcc = Command::new("gcc");
        gcc.arg("-o").arg(pristine.join(format!("with-{name}"))).arg(&linked).arg("-L").arg(&pristine);
        let made = gcc.args(["-Wl,--no-as-needed", &format!("-l{name}"), "-Wl,-rpath,$ORIGIN"]).status();
        assert!(made.is_ok_and(|status| status.success()), "gcc cannot link a program with {name}");
    }
    for script in ["./with-one", "./with-first", "LD_PRELOAD=$PWD/libone.so cat in; LD_PRELOAD=$PWD/libfirst.so cat in"]
    {
        let argv = ["sh", "-c", script];
        project.lay_out(0);
        let plain = project.plain(0, &argv);
        project.lay_out(0);
        assert_eq!(project.through_larder(0, &argv).0, plain, "{script}");
    }
}

/// An observed process may trace others itself, or be traced by them.
#[test]
fn a_debugger_inside() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let text = "int main(int argc, char **argv) {\n\
        int status, stops = 0, pid = fork();\n\
        if (!pid) {\n\
            if (argc < 2 && ptrace(PTRACE_TRACEME, 0, 0, 0)) return 9;\n\
            raise(SIGSTOP); execlp(\"cat\", \"cat\", \"in\", (char *)0); return 8;\n\
        }\n\
        if (argc > 1) { waitpid(pid, &status, WUNTRACED); if (ptrace(PTRACE_SEIZE, pid, 0, 0)) return 7; kill(pid, SIGCONT); }\n\
        while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {\n\
            int group = argc > 1 && status >> 16;\n\
            stops++; ptrace(PTRACE_CONT, pid, 0, group || WSTOPSIG(status) == SIGTRAP || WSTOPSIG(status) == SIGSTOP ? 0 : WSTOPSIG(status));\n\
        }\n\
        printf(\"%d %d\\n\", stops > 0, status); return 0; }";
    let Some(project) = with_tool(text, &[]) else { return };
    for script in ["./tool", "./tool x"] {
        project.compared(0, &["sh", "-c", script]);
    }
}

/// If larder is killed, the process that is being watched goes on, and so does the rest of the
/// build.
#[test]
fn a_build_goes_on_when_larder_is_killed() {
    let script =
        "i=0; while [ $i -lt 60 ]; do cp /bin/cat ./c$i; ./c$i in > o; rm c$i; i=$((i + 1)); done; echo x > done";
    for after_ms in [0, 5, 17, 40, 90] {
        let project = Project::of(&[("in", "x\n")]);
        let top = project.lay_out(0);
        let mut run = Command::new(larder());
        run.args(["run", "--", "sh", "-c", script]).current_dir(&top).env("LARDER_DIR", project.place.path("store"));
        run.stdin(std::process::Stdio::null());
        let mut child = run.spawn().expect("cannot start the command");
        let first = Instant::now();
        while !Path::new(&top).join("o").exists() {
            assert!(first.elapsed() < Duration::from_secs(30), "the script did not begin within 30 seconds");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(after_ms));
        child.kill().expect("cannot kill the process");
        child.wait().expect("cannot wait for the command");
        let began = Instant::now();
        while !Path::new(&top).join("done").exists() {
            assert!(
                began.elapsed() < Duration::from_secs(30),
                "larder was killed after {after_ms} ms, and then the script stopped"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A compile through larder inside the first run is recorded as well.
#[test]
fn a_compile_inside_the_first_run() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let project = Project::of(&[("x.c", "#include \"x.h\"\nint x = X;\n"), ("x.h", "#define X 1\n")]);
    let script = format!("{} gcc -c x.c; cat x.h > copy", larder().display());
    let argv = ["sh", "-c", &script];
    assert_eq!(project.compared_inside(0, &argv), ["miss", "miss"]);
    assert_eq!(project.compared_inside(0, &argv), ["hit"]);
    project.change("x.h", "#define X 2\n");
    assert_eq!(project.compared_inside(0, &argv), ["miss", "miss"]);
    project.change("x.h", "#define X 1\n");
    let argv = ["sh", "-c", &format!("{script}; true")];
    assert_eq!(project.compared_inside(0, &argv), ["hit", "miss"]);
}

/// The compile runs in another environment than the command, as a `configure` sets one.
#[test]
fn a_compile_inside_that_is_judged_in_its_own_environment() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let project = Project::of(&[("x.c", "int x = 1;\n")]);
    let script = format!("LC_ALL=C; export LC_ALL; {} gcc -c x.c; cat x.c > copy", larder().display());
    let argv = ["sh", "-c", &script];
    assert_eq!(project.compared_inside(0, &argv), ["miss", "miss"]);
    assert_eq!(project.compared_inside(0, &argv), ["hit"]);
}
