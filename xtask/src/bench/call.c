/* Stands where the compiler is expected, runs what is measured, and appends one line for each call to a file: when it began
 * and ended (seconds), the process id that the callee had, its CPU time (microseconds), how it ended, and what kind of call it
 * was. Compiled with BEHIND, the words that come before the arguments, and LOG. Without LOG it only becomes what it runs: where a
 * whole command is observed, a clock and a file elsewhere would be part of what was seen. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static const char *const behind[] = { BEHIND };
enum { BEHIND_COUNT = sizeof behind / sizeof *behind };

#ifndef LOG

int main(int count, char **args) {
    const char *words[BEHIND_COUNT + count];
    memcpy(words, behind, sizeof behind);
    memcpy(words + BEHIND_COUNT, args + 1, (size_t)count * sizeof *words);
    execvp(behind[0], (char **)words);
    return 127;
}

#else

static const char *kind(char **args) {
    const char *found = "question";
    for (; *args; args++) {
        if (!strcmp(*args, "-c") || !strcmp(*args, "-S")) return "compile";
        if (!strcmp(*args, "-E") || !strcmp(*args, "-M") || !strcmp(*args, "-MM")) return "preprocess";
        if (!strcmp(*args, "-v") || !strcmp(*args, "-V") || !strcmp(*args, "-qversion")) return "question";
        if (!strncmp(*args, "--", 2) || !strncmp(*args, "-print", 6) || !strncmp(*args, "-dump", 5)) return "question";
        if (**args != '-') found = "link";
    }
    return found;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int count, char **args) {
    const char *words[BEHIND_COUNT + count];
    memcpy(words, behind, sizeof behind);
    memcpy(words + BEHIND_COUNT, args + 1, (size_t)count * sizeof *words);

    double start = now();
    pid_t pid;
    if (posix_spawnp(&pid, behind[0], NULL, NULL, (char **)words, environ)) return 127;
    int status;
    struct rusage cost;
    if (wait4(pid, &status, 0, &cost) != pid) return 127;

    long micros = (cost.ru_utime.tv_sec + cost.ru_stime.tv_sec) * 1000000L + cost.ru_utime.tv_usec + cost.ru_stime.tv_usec;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    char line[160];
    int length = snprintf(line, sizeof line, "%.6f %.6f %d %ld %d %s\n", start, now(), (int)pid, micros, code, kind(args + 1));
    int file = open(LOG, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0 || write(file, line, (size_t)length) != length) return 126;
    if (WIFSIGNALED(status)) raise(WTERMSIG(status));
    return code;
}

#endif
