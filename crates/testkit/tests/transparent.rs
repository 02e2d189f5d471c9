//! A tool cannot notice that it is observed. If the observer may have changed what a tool does, the
//! run is not recorded.
#![cfg(target_os = "linux")]

use larder_testkit::{Place, has, larder, probe_skip};

/// Asks in two ways (weak symbols and `dlsym`) whether functions exist, and starts a program in
/// another directory. As Rust's standard library does, it uses `posix_spawn` if that can change
/// directories, and `fork` otherwise.
const ASKS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#define EACH(X) X(getrandom) X(getentropy) X(statx) X(renameat2) X(getdents64) X(execveat) X(fts64_open) X(stat) \
    X(fstatat64) X(arc4random) X(arc4random_buf) X(pidfd_spawn) X(pidfd_spawnp) \
    X(posix_spawn_file_actions_addchdir_np) X(posix_spawn_file_actions_addfchdir_np) \
    X(posix_spawn_file_actions_addchdir) X(posix_spawn_file_actions_addfchdir)
#define WEAK(name) extern char name##_ __asm__(#name) __attribute__((weak));
EACH(WEAK)
int main(void)
{
#define SAY(name) printf(#name " %d %d\n", &name##_ != 0, dlsym(RTLD_DEFAULT, #name) != 0);
    EACH(SAY)
    fflush(stdout);
    int (*moves)(void *, const char *) = dlsym(RTLD_DEFAULT, "posix_spawn_file_actions_addchdir_np");
    char *words[] = {"/bin/pwd", 0}, *none[] = {0};
    pid_t child;
    if (moves) {
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        int error = moves(&actions, "/");
        if (!error)
            error = posix_spawn(&child, words[0], &actions, 0, words, none);
        if (error)
            return puts(strerror(error)), 1;
    } else if ((child = fork()) == 0) {
        _exit(chdir("/") || execve(words[0], words, none));
    }
    int status;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}
"#;

/// A program finds the functions of its libc, but none that only the preloaded library defines.
#[test]
fn functions_that_libc_lacks_are_not_offered() {
    probe_skip!(has("gcc"), "gcc is not installed");
    for compiler in ["gcc", "musl-gcc"] {
        let place = Place::new();
        place.put("ask.c", ASKS);
        if !has(compiler) || place.run(&[compiler, "-o", "ask", "ask.c", "-ldl"]).run().code != Some(0) {
            eprintln!("skipped: {compiler} does not work here");
            continue;
        }
        place.settle();
        let plain = place.run(&["./ask"]).run().ends(0);
        for observer in ["preload", "kernel", "auto"] {
            let run = place.larder(&["run", "--", "./ask"]).env("LARDER_OBSERVER", observer).env("LARDER_RECACHE", "1");
            let ran = run.run();
            // musl's loader keeps the address of the symbol table, so `dlsym` still finds functions
            // that its libc lacks.
            if compiler == "gcc" || observer == "kernel" {
                assert_eq!(ran, plain, "{compiler}, {observer}");
            } else {
                assert_eq!(ran.code, Some(0), "{compiler}, {observer}");
            }
        }
    }
}

/// Opens a file and stats it while a timer fires whose handler has no `SA_RESTART`, and counts the
/// calls that fail with EINTR.
const INTERRUPTED: &str = r#"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
static void tick(int signal) { (void)signal; }
int main(void)
{
    struct sigaction action = {.sa_handler = tick};
    struct itimerval timer = {{0, 1000}, {0, 1000}};
    struct stat st;
    int interrupted = 0;
    sigaction(SIGALRM, &action, 0);
    setitimer(ITIMER_REAL, &timer, 0);
    for (int i = 0; i < 3000; i++) {
        int fd = open("timer.c", O_RDONLY);
        interrupted += fd < 0 && errno == EINTR;
        close(fd);
        interrupted += stat("timer.c", &st) && errno == EINTR;
    }
    printf("%d interrupted\n", interrupted);
    return 0;
}
"#;

/// A call may fail with EINTR only because the kernel observer was asked about it. What the program
/// does then must never be recorded.
#[test]
fn interrupted_calls_are_not_recorded() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = Place::new();
    place.put("timer.c", INTERRUPTED);
    place.run(&["gcc", "-o", "timer", "timer.c"]).run().ends(0);
    place.run(&["gcc", "-static", "-o", "timer-static", "timer.c"]).run().ends(0);
    place.settle();
    let mut seen = 0;
    for program in ["./timer", "./timer-static"] {
        for _ in 0..10 {
            let run = place.larder(&["run", "--", program]).env("LARDER_OBSERVER", "kernel");
            let (ran, outcome) = place.counted(run.env("LARDER_RECACHE", "1"));
            let is_as_plain = ran.stdout == "0 interrupted\n";
            seen += usize::from(!is_as_plain);
            assert!(is_as_plain || outcome == "miss:interrupted", "{program}: {outcome}, {ran:?}");
        }
        let ran = place.larder(&["run", "--", program]).env("LARDER_OBSERVER", "kernel").run().ends(0);
        eprintln!("{program}: {seen} runs were interrupted, and then {}", ran.stdout.trim_end());
    }
}

/// `larder doctor` compiles a line to show whether compiles work on this machine.
#[test]
fn doctor_compiles() {
    probe_skip!(has("gcc"), "gcc is not installed");
    probe_skip!(larder().with_file_name("larderd").exists(), "larderd does not lie beside larder");
    let place = Place::new();
    let says = |observer: &str| place.larder(&["doctor"]).env("LARDER_OBSERVER", observer).run().stdout;
    for observer in ["auto", "preload", "kernel"] {
        let said = says(observer);
        let is_compiler = |line: &&str| line.split_whitespace().nth(1) == Some("compiler") && line.contains("gcc");
        let lines: Vec<&str> = said.lines().filter(is_compiler).collect();
        assert!(!lines.is_empty(), "{said}");
        let answered = "one line was compiled, recorded, and answered from the store";
        assert!(lines.iter().all(|line| line.starts_with("ok") && line.ends_with(answered)), "{observer}: {lines:#?}");
    }
    // With the depfile observer this command is not cached, and doctor says so.
    let said = says("depfile");
    assert!(said.contains("one line was compiled twice, and the second was no hit: bypass"), "{said}");
}
