/* Starting programs: the exec family, posix_spawn, system and popen.
 *
 * A program that can be observed gets the library's two variables. Any other program is started as
 * the caller asked, and logged as a DROP. Much of this runs in a vfork child, in the parent's
 * memory, so everything is on the stack. */
#include "real.h"

typedef char *const *words;

/* Every libc has `environ`, but for this library it is a weak symbol. */
#define ENVIRON (&environ ? environ : NULL)

bool spawn_moves;

EXPORT int execve(const char *path, words argv, words envp);
EXPORT int execvp(const char *name, words argv);
EXPORT int execvpe(const char *name, words argv, words envp);
EXPORT int posix_spawn(int *pid, const char *path, const void *actions, const void *attributes,
                       words argv, words envp);
EXPORT int posix_spawnp(int *pid, const char *name, const void *actions, const void *attributes,
                        words argv, words envp);
EXPORT int system(const char *command);
EXPORT void *popen(const char *command, const char *mode);

bool exec_announce(const char *path)
{
    struct target target;
    struct text text, final;
    target_look(&target, path);
    struct larder_event event = event_new(LARDER_EXEC, false);
    if (!target.error)
        event_stat(&event, &target.st);
    if (target.reason == LARDER_DROP_STATIC && !target.script && event_is_of_wrapper(&event))
        target.reason = 0;
    if (!target.reason && raw_access(own.preload, 4) != 0)
        target.reason = LARDER_DROP_PRELOAD_GONE;
    if (target.reason)
        event.kind = LARDER_DROP;
    event.extra = target.reason;
    if (target.error && !target.reason)
        event.error = target.error;
    text_path(&text, AT_FDCWD, target.error == EFAULT ? NULL : path);
    text_path(&final, AT_FDCWD, target.script ? target.final : NULL);
    log_write(&event, &text, &final);
    return target.reason == 0 && !log_closing();
}

static void failed_event(const char *path, int error)
{
    struct larder_event event = event_new(LARDER_EXEC_FAILED, false);
    struct text text;
    event.error = error;
    text_path(&text, AT_FDCWD, error == EFAULT ? NULL : path);
    log_write(&event, &text, NULL);
}

/* Returns true if a program could not be started because its arguments and variables are too long.
 * Without the library's own variables they may be short enough. The program is then not observed. */
static bool is_too_long(int error, bool has_own, const char *path)
{
    if (error != E2BIG || !has_own)
        return false;
    drop_event(LARDER_DROP_UNSUPPORTED, "long arguments", 0, path);
    return true;
}

static int run(const char *path, words argv, words envp)
{
    if (!log_on())
        return REAL(execve)(path, argv, envp);
    words with = exec_announce(path) ? ENVIRONMENT_WITH_OWN(envp) : (char **)envp;
    int result = DONE(REAL(execve)(path, argv, with));
    if (is_too_long(errno, with != envp, path))
        result = DONE(REAL(execve)(path, argv, envp));
    failed_event(path, errno);
    return result;
}

EXPORT int execve(const char *path, words argv, words envp) { return run(path, argv, envp); }

EXPORT int execv(const char *path, words argv) { return run(path, argv, ENVIRON); }

/* Writes the next candidate of PATH into `to`. `from` moves on, and becomes NULL at the end.
 * Returns false if the candidate is too long. */
static bool candidate(const char **from, const char *name, size_t name_len, char *to)
{
    const char *entry = *from, *end = entry;
    while (*end && *end != ':')
        end++;
    *from = *end ? end + 1 : NULL;
    size_t length = (size_t)(end - entry);
    if (length >= TEXT_MAX - 1)
        return false;
    memcpy(to, entry, length);
    if (length)
        to[length++] = '/';
    memcpy(to + length, name, name_len + 1);
    return true;
}

static const char *search_path(void)
{
    for (char **entry = ENVIRON; entry && *entry; entry++) {
        const char *value = text_after(*entry, "PATH=");
        if (value)
            return value;
    }
    return gnu_get_libc_version ? "/bin:/usr/bin" : "/usr/local/bin:/bin:/usr/bin";
}

/* Returns true for errors after which the next entry of PATH is tried. */
static bool goes_on(int error)
{
    if (error == EACCES || error == ENOENT || error == ENOTDIR)
        return true;
    return gnu_get_libc_version && (error == ESTALE || error == ENODEV || error == ETIMEDOUT);
}

/* Has the shell run a file that is no program. glibc does so and musl does not. */
static void as_script(const char *path, words argv, words envp)
{
    size_t count = 0;
    if (!gnu_get_libc_version)
        return;
    while (argv[count])
        count++;
    const char **with = __builtin_alloca((count + 3) * sizeof *with);
    with[0] = "/bin/sh";
    with[1] = path;
    if (count > 1)
        memcpy(with + 2, argv + 1, count * sizeof *with);
    else
        with[2] = NULL;
    run(with[0], (words)with, envp);
}

static int run_along_path(const char *name, words argv, words envp)
{
    char path[TEXT_MAX + 260];
    bool denied = false;
    if (!*name) {
        errno = ENOENT;
        return -1;
    }
    if (text_has_slash(name)) {
        run(name, argv, envp);
        if (errno == ENOEXEC)
            as_script(name, argv, envp);
        return -1;
    }
    size_t length = text_length(name);
    if (length > 255) {
        errno = ENAMETOOLONG;
        return -1;
    }
    errno = ENOENT;
    for (const char *rest = search_path(); rest;) {
        if (!candidate(&rest, name, length, path))
            continue;
        run(path, argv, envp);
        if (errno == ENOEXEC)
            as_script(path, argv, envp);
        if (!goes_on(errno))
            return -1;
        denied |= errno == EACCES;
    }
    if (denied)
        errno = EACCES;
    return -1;
}

EXPORT int execvpe(const char *name, words argv, words envp)
{
    return log_on() ? run_along_path(name, argv, envp) : REAL(execvpe)(name, argv, envp);
}

EXPORT int execvp(const char *name, words argv)
{
    return log_on() ? run_along_path(name, argv, ENVIRON) : REAL(execvp)(name, argv);
}

/* The arguments of execl and its relatives. The list is read twice: to count them and to copy
 * them. */
#define ARGUMENTS(first)                                                                   \
    ({                                                                                     \
        va_list list_;                                                                     \
        size_t count_ = 1;                                                                 \
        va_start(list_, first);                                                            \
        for (const char *one_ = (first); one_; one_ = va_arg(list_, const char *))         \
            count_++;                                                                      \
        va_end(list_);                                                                     \
        const char **argv_ = __builtin_alloca(count_ * sizeof *argv_);                     \
        va_start(list, first);                                                             \
        argv_[0] = (first);                                                                \
        for (size_t at_ = 1; at_ < count_; at_++)                                          \
            argv_[at_] = va_arg(list, const char *);                                       \
        (words) argv_;                                                                     \
    })

EXPORT int execl(const char *path, const char *first, ...)
{
    va_list list;
    words argv = ARGUMENTS(first);
    va_end(list);
    return run(path, argv, ENVIRON);
}

EXPORT int execlp(const char *name, const char *first, ...)
{
    va_list list;
    words argv = ARGUMENTS(first);
    va_end(list);
    return log_on() ? run_along_path(name, argv, ENVIRON) : REAL(execvp)(name, argv);
}

EXPORT int execle(const char *path, const char *first, ...)
{
    va_list list;
    words argv = ARGUMENTS(first);
    words envp = va_arg(list, words);
    va_end(list);
    return run(path, argv, envp);
}

static int spawn(int *pid, const char *path, const void *actions, const void *attributes,
                 words argv, words envp)
{
    int child = 0;
    if (actions && path && path[0] != '/' && __atomic_load_n(&spawn_moves, __ATOMIC_RELAXED)) {
        drop_event(LARDER_DROP_UNSUPPORTED, "posix_spawn", 0, path);
        return REAL(posix_spawn)(pid, path, actions, attributes, argv, envp);
    }
    words with = exec_announce(path) ? ENVIRONMENT_WITH_OWN(envp) : (char **)envp;
    int result = REAL(posix_spawn)(&child, path, actions, attributes, argv, with);
    if (is_too_long(result, with != envp, path))
        result = REAL(posix_spawn)(&child, path, actions, attributes, argv, envp);
    if (result != 0) {
        failed_event(path, result);
        return result;
    }
    if (pid)
        *pid = child;
    struct larder_event event = event_new(LARDER_SPAWNED, false);
    struct text text;
    event.extra = (uint32_t)child;
    text_path(&text, AT_FDCWD, path);
    log_write(&event, &text, NULL);
    return 0;
}

EXPORT int posix_spawn(int *pid, const char *path, const void *actions, const void *attributes,
                       words argv, words envp)
{
    return log_on() ? spawn(pid, path, actions, attributes, argv, envp)
                    : REAL(posix_spawn)(pid, path, actions, attributes, argv, envp);
}

EXPORT int posix_spawnp(int *pid, const char *name, const void *actions, const void *attributes,
                        words argv, words envp)
{
    char path[TEXT_MAX + 260];
    struct stat st;
    if (!log_on())
        return REAL(posix_spawnp)(pid, name, actions, attributes, argv, envp);
    if (text_has_slash(name))
        return spawn(pid, name, actions, attributes, argv, envp);
    size_t length = text_length(name);
    if (length > 0 && length <= 255)
        for (const char *rest = search_path(); rest;) {
            if (!candidate(&rest, name, length, path))
                continue;
            long error = -raw_access(path, 1);
            if (error == 0 && raw_stat(AT_FDCWD, path, &st, 0) == 0 &&
                (st.st_mode & TYPE_MASK) != TYPE_REGULAR)
                error = EACCES;
            if (error == 0) {
                error = spawn(pid, path, actions, attributes, argv, envp);
                if (error == 0 || !goes_on((int)error))
                    return (int)error;
                continue;
            }
            struct larder_event event = event_new(LARDER_EXEC, false);
            struct text text;
            event.error = (int)error;
            text_path(&text, AT_FDCWD, path);
            log_write(&event, &text, NULL);
            failed_event(path, (int)error);
            if (!goes_on((int)error))
                break;
        }
    /* Called for its exact error. */
    int result = REAL(posix_spawnp)(pid, name, actions, attributes, argv, envp);
    if (result == 0) /* it found a program that the loop above did not find */
        drop_event(LARDER_DROP_UNSUPPORTED, "posix_spawnp", 0, name);
    return result;
}

/* Writes an event before system() or popen(). Returns true if the shell can be observed. */
static bool shell_announce(const char *command)
{
    struct target target;
    struct text text, text2;
    target_look(&target, "/bin/sh");
    if (!target.reason && raw_access(own.preload, 4) != 0)
        target.reason = LARDER_DROP_PRELOAD_GONE;
    struct larder_event event = event_new(target.reason ? LARDER_DROP : LARDER_ANONYMOUS, false);
    event.extra = target.reason;
    if (!target.error)
        event_stat(&event, &target.st);
    text_string(&text, "/bin/sh");
    text_string(&text2, command);
    log_write(&event, &text, &text2);
    return target.reason == 0 && !log_closing();
}

EXPORT int system(const char *command)
{
    if (!command || !&environ || !log_on() || !shell_announce(command))
        return REAL(system)(command);
    char **before = environ, **with = ENVIRONMENT_WITH_OWN(before);
    environ = with;
    int result = REAL(system)(command);
    if (environ == with)
        environ = before;
    if (result == -1)
        shortage_of(errno, "system");
    return result;
}

EXPORT void *popen(const char *command, const char *mode)
{
    if (!command || !&environ || !log_on() || !shell_announce(command))
        return REAL(popen)(command, mode);
    char **before = environ, **with = ENVIRONMENT_WITH_OWN(before);
    environ = with;
    void *result = REAL(popen)(command, mode);
    if (environ == with)
        environ = before;
    if (!result)
        shortage_of(errno, "popen");
    return result;
}
