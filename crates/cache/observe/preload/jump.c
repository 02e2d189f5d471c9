/* Functions of which only the call is logged, before it is made. Each consists of a few
 * instructions that save the arguments, ask `jump_plan` where to go, and jump there.
 *
 * So the real function sees its own caller. That matters because dlopen searches libraries by its
 * caller, and syscall may return twice. */
#include "real.h"

#define FAMILY_NETLINK 16

enum plan { PLAN_UNSUPPORTED, PLAN_FEXECVE, PLAN_TIME, PLAN_IDENTITY, PLAN_NET, PLAN_INTERFACES, PLAN_SOCKET,
            PLAN_UMASK, PLAN_RANDOM, PLAN_DLOPEN, PLAN_SYSCALL, PLAN_GLOB, PLAN_ADDOPEN, PLAN_ADDCHDIR,
            PLAN_DIRECTORY };

struct jump {
    enum real real;
    enum plan plan;
    unsigned extra;
};

#if defined(__x86_64__)
#define TRAMPOLINE(symbol)                                                                  \
    __asm__(".pushsection .text\n.balign 16\n.globl " #symbol "\n.type " #symbol ",@function\n" \
            #symbol ":\n.cfi_startproc\nendbr64\n"                                          \
            "push %r9\npush %r8\npush %rcx\npush %rdx\npush %rsi\npush %rdi\npush %rax\n"   \
            ".cfi_adjust_cfa_offset 56\n"                                                   \
            "lea 8(%rsp), %rdi\nlea jump_" #symbol "(%rip), %rsi\ncall jump_plan\n"         \
            "mov %rax, %r11\n"                                                              \
            "pop %rax\npop %rdi\npop %rsi\npop %rdx\npop %rcx\npop %r8\npop %r9\n"          \
            ".cfi_adjust_cfa_offset -56\n"                                                  \
            "jmp *%r11\n.cfi_endproc\n.size " #symbol ",.-" #symbol "\n.popsection\n")
#else
#define TRAMPOLINE(symbol)                                                                  \
    __asm__(".pushsection .text\n.balign 16\n.globl " #symbol "\n.type " #symbol ",%function\n" \
            #symbol ":\n.cfi_startproc\nhint #34\n"                                         \
            "stp x29, x30, [sp, #-96]!\n.cfi_def_cfa_offset 96\n"                           \
            ".cfi_offset 29, -96\n.cfi_offset 30, -88\nmov x29, sp\n"                       \
            "stp x0, x1, [sp, #16]\nstp x2, x3, [sp, #32]\n"                                \
            "stp x4, x5, [sp, #48]\nstp x6, x7, [sp, #64]\nstr x8, [sp, #80]\n"             \
            "add x0, sp, #16\nadrp x1, jump_" #symbol "\nadd x1, x1, :lo12:jump_" #symbol "\n" \
            "bl jump_plan\nmov x16, x0\n"                                                   \
            "ldp x0, x1, [sp, #16]\nldp x2, x3, [sp, #32]\n"                                \
            "ldp x4, x5, [sp, #48]\nldp x6, x7, [sp, #64]\nldr x8, [sp, #80]\n"             \
            "ldp x29, x30, [sp], #96\n.cfi_restore 29\n.cfi_restore 30\n.cfi_def_cfa_offset 0\n" \
            "br x16\n.cfi_endproc\n.size " #symbol ",.-" #symbol "\n.popsection\n")
#endif

#define JUMP(name, plan, extra)                                                             \
    __attribute__((used)) const struct jump jump_##name = {R_##name, plan, extra};         \
    TRAMPOLINE(name)

JUMP(dlopen, PLAN_DLOPEN, 0);
JUMP(syscall, PLAN_SYSCALL, 0);
JUMP(glob, PLAN_GLOB, 0);
JUMP(glob64, PLAN_GLOB, 0);
JUMP(dlmopen, PLAN_UNSUPPORTED, 0);
JUMP(ftw, PLAN_UNSUPPORTED, 0);
JUMP(ftw64, PLAN_UNSUPPORTED, 0);
JUMP(nftw, PLAN_UNSUPPORTED, 0);
JUMP(nftw64, PLAN_UNSUPPORTED, 0);
JUMP(fts_open, PLAN_UNSUPPORTED, 0);
JUMP(fts64_open, PLAN_UNSUPPORTED, 0);
JUMP(wordexp, PLAN_UNSUPPORTED, 0);
JUMP(chroot, PLAN_UNSUPPORTED, 0);
JUMP(unshare, PLAN_UNSUPPORTED, 0);
JUMP(setns, PLAN_UNSUPPORTED, 0);
JUMP(execveat, PLAN_UNSUPPORTED, 0);
JUMP(pidfd_spawn, PLAN_UNSUPPORTED, 0);
JUMP(pidfd_spawnp, PLAN_UNSUPPORTED, 0);
JUMP(fexecve, PLAN_FEXECVE, 0);
JUMP(posix_spawn_file_actions_addopen, PLAN_ADDOPEN, 0);
JUMP(posix_spawn_file_actions_addchdir_np, PLAN_ADDCHDIR, 0);
JUMP(posix_spawn_file_actions_addfchdir_np, PLAN_ADDCHDIR, 0);
JUMP(posix_spawn_file_actions_addchdir, PLAN_ADDCHDIR, 0);
JUMP(posix_spawn_file_actions_addfchdir, PLAN_ADDCHDIR, 0);
JUMP(time, PLAN_TIME, LARDER_TIME_TIME);
JUMP(gettimeofday, PLAN_TIME, LARDER_TIME_GETTIMEOFDAY);
JUMP(clock_gettime, PLAN_TIME, LARDER_TIME_CLOCK);
JUMP(timespec_get, PLAN_TIME, LARDER_TIME_TIME);
JUMP(ftime, PLAN_TIME, LARDER_TIME_TIME);
JUMP(localtime, PLAN_TIME, LARDER_TIME_LOCAL);
JUMP(localtime_r, PLAN_TIME, LARDER_TIME_LOCAL);
JUMP(ctime, PLAN_TIME, LARDER_TIME_LOCAL);
JUMP(ctime_r, PLAN_TIME, LARDER_TIME_LOCAL);
JUMP(mktime, PLAN_TIME, LARDER_TIME_LOCAL);
JUMP(umask, PLAN_UMASK, 0);
JUMP(getrandom, PLAN_RANDOM, 0);
JUMP(getentropy, PLAN_RANDOM, 0);
JUMP(arc4random, PLAN_RANDOM, 0);
JUMP(arc4random_buf, PLAN_RANDOM, 0);
JUMP(arc4random_uniform, PLAN_RANDOM, 0);
JUMP(uname, PLAN_IDENTITY, 1);
JUMP(gethostname, PLAN_IDENTITY, 2);
JUMP(getdomainname, PLAN_IDENTITY, 3);
JUMP(getaddrinfo, PLAN_NET, 1);
JUMP(gethostbyname, PLAN_NET, 0);
JUMP(getifaddrs, PLAN_INTERFACES, 0);
JUMP(socket, PLAN_SOCKET, 0);
JUMP(getcwd, PLAN_DIRECTORY, 0);
JUMP(get_current_dir_name, PLAN_DIRECTORY, 0);

/* Returns true the first time for each bit. */
static bool first(unsigned bit)
{
    static unsigned seen;
    unsigned before = __atomic_load_n(&seen, __ATOMIC_RELAXED);
    if (before & 1u << bit)
        return false;
    /* A race returns true twice, which is harmless. */
    __atomic_store_n(&seen, before | 1u << bit, __ATOMIC_RELAXED);
    return true;
}

/* Where the trampolines leave the address that the function returns to, as an index into the saved
 * arguments. */
#if defined(__x86_64__)
#define CALLER 6
#else
#define CALLER -1
#endif

/* How often this process has asked for times, local times and random numbers. Some programs are
 * known to ask once or twice in every run, so the count matters. */
static unsigned times, locals, randoms;

static bool one_of_few(unsigned *count)
{
    return __atomic_load_n(count, __ATOMIC_RELAXED) < LARDER_FEW &&
           __atomic_fetch_add(count, 1, __ATOMIC_RELAXED) < LARDER_FEW;
}

static void number_event(unsigned kind, uint32_t extra, const char *name)
{
    struct larder_event event = event_new(kind, false);
    struct text text;
    event.extra = extra;
    text_string(&text, name);
    log_write(&event, &text, NULL);
}

/* Writes the event of reading the clock, with the stat of standard output if that is a regular
 * file. */
static void time_event(uint32_t extra)
{
    struct larder_event event = event_new(LARDER_TIME, false);
    struct stat st;
    event.extra = extra;
    if (raw_fstat(1, &st) == 0 && (st.st_mode & TYPE_MASK) == TYPE_REGULAR)
        event_stat(&event, &st);
    log_write(&event, NULL, NULL);
}

/* Returns true for system calls that take a path, list a directory or start a program. Made by
 * syscall(), they bypass the other functions of this library. */
static bool names_something(unsigned long number)
{
    static const unsigned short table[] = {
#include "numbers.h"
    };
    for (unsigned i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i] == number)
            return true;
    return false;
}

/* Writes an OPEN if syscall() opens a file below /proc or /sys for reading, and returns true. The
 * event has what can be seen before the call. jemalloc reads the kernel's settings in this way. */
static bool opens_setting(const unsigned long *arguments)
{
    const char *path = NULL;
    unsigned long flags = O_WRONLY;
    struct stat st;
#ifdef __NR_open
    if (arguments[0] == __NR_open)
        path = (const char *)arguments[1], flags = arguments[2];
#endif
    if (arguments[0] == __NR_openat)
        path = (const char *)arguments[2], flags = arguments[3];
    if (!path || (flags & (O_ACCMODE | O_CREAT | O_TRUNC)) != O_RDONLY)
        return false;
    long result = raw_stat(AT_FDCWD, path, &st, 0);
    if (result == -EFAULT || (!text_after(path, "/proc/") && !text_after(path, "/sys/")))
        return false;
    looked_event(LARDER_OPEN, LARDER_OPEN_READ, path, result, &st);
    return true;
}

/* Does a dlopen of a path. Its caller does not matter for the search, so we can call it ourselves
 * and wait for the result. If it fails because there is no such file, it looked at nothing else. */
static void *dlopen_path(const char *name, int flags)
{
    void *handle = ((void *(*)(const char *, int))real_get(R_dlopen))(name, flags);
    int before = errno;
    struct stat st;
    long result = handle ? 0 : raw_stat(AT_FDCWD, name, &st, 0);
    if (handle)
        objects_event();
    else if (result == -ENOENT || result == -ENOTDIR)
        looked_event(LARDER_OPEN, LARDER_OPEN_READ, name, result, &st);
    else
        drop_event(LARDER_DROP_UNSUPPORTED, "dlopen", 0, name);
    errno = before;
    return handle;
}

/* Calls glob with our own functions for its accesses, so that each access is logged. */
#define GLOB_ALTDIRFUNC (1u << 9)
#define GLOB_TILDE (1u << 12 | 1u << 14) /* needs the home directories of users */

struct glob_result { /* glob_t of glibc */
    size_t count;
    char **paths;
    size_t reserved;
    int flags;
    void (*closedir)(void *);
    void *(*readdir)(void *);
    void *(*opendir)(const char *);
    int (*lstat)(const char *, void *);
    int (*stat)(const char *, void *);
};

extern WEAK void *readdir(void *);
extern WEAK int closedir(void *);
extern void *opendir(const char *);
extern int lstat(const char *, struct stat *);
extern int stat(const char *, struct stat *);
extern int __lxstat(int, const char *, void *);
extern int __xstat(int, const char *, void *);

/* Programs of glibc before 2.33 contain lstat and stat, which call these functions with the version
 * of the structure. */
#if defined(__x86_64__)
#define STAT_VERSION 1
#else
#define STAT_VERSION 0
#endif

static void close_directory(void *directory) { closedir(directory); }

static int look_at_link(const char *path, void *to)
{
    return real_has(R_lstat) ? lstat(path, to) : __lxstat(STAT_VERSION, path, to);
}

static int look_through(const char *path, void *to)
{
    return real_has(R_stat) ? stat(path, to) : __xstat(STAT_VERSION, path, to);
}

static int glob_with(enum real which, const char *pattern, int flags, void *failed, struct glob_result *to)
{
    struct glob_result before = *to;
    to->closedir = close_directory;
    to->readdir = readdir;
    to->opendir = opendir;
    to->lstat = look_at_link;
    to->stat = look_through;
    int result = ((int (*)(const char *, int, void *, void *))real_get(which))(
        pattern, flags | (int)GLOB_ALTDIRFUNC, failed, to);
    to->flags &= ~(int)GLOB_ALTDIRFUNC;
    to->closedir = before.closedir;
    to->readdir = before.readdir;
    to->opendir = before.opendir;
    to->lstat = before.lstat;
    to->stat = before.stat;
    return result;
}

static int glob_observed(const char *pattern, int flags, void *failed, struct glob_result *to)
{
    return glob_with(R_glob, pattern, flags, failed, to);
}

static int glob64_observed(const char *pattern, int flags, void *failed, struct glob_result *to)
{
    return glob_with(R_glob64, pattern, flags, failed, to);
}

static bool can_glob(unsigned long flags)
{
    return gnu_get_libc_version && &readdir && &closedir && (real_has(R_lstat) || real_has(R___lxstat)) &&
           (real_has(R_stat) || real_has(R___xstat)) && !(flags & GLOB_TILDE);
}

static bool plain_path(const char *name)
{
    if (!text_has_slash(name))
        return false;
    for (; *name; name++)
        if (*name == '$')
            return false;
    return true;
}

/* Returns true if getaddrinfo only converts an address in digits. There is one result then, so
 * nothing needs the network to sort several (netdb.h). */
static bool needs_no_network(const char *node, const char *service, const int *hints)
{
    enum { NUMERIC_HOST = 0x0004, ONLY_OF_HERE = 0x0020, NUMERIC_SERVICE = 0x0400 };
    return node && hints && (*hints & NUMERIC_HOST) && !(*hints & ONLY_OF_HERE) &&
           (!service || (*hints & NUMERIC_SERVICE));
}

__attribute__((used)) void *jump_plan(const unsigned long *arguments, const struct jump *jump)
{
    void *real = real_get(jump->real);
    const char *name = real_name(jump->real);
    if (!log_on())
        return real;
    switch (jump->plan) {
    case PLAN_FEXECVE:
        number_event(LARDER_DROP, LARDER_DROP_FEXECVE, name);
        break;
    case PLAN_TIME:
        late_event(LARDER_LATE_CLOCK, arguments[CALLER], name, false);
        /* CLOCK_REALTIME, _COARSE, TAI */
        if (jump->real == R_clock_gettime && (int)arguments[0] != 0 && (int)arguments[0] != 5 &&
            (int)arguments[0] != 11)
            break;
        if (one_of_few(jump->extra == LARDER_TIME_LOCAL ? &locals : &times))
            time_event(jump->extra);
        break;
    case PLAN_RANDOM:
        late_event(LARDER_LATE_RANDOM, arguments[CALLER], name, false);
        if (one_of_few(&randoms))
            number_event(LARDER_RANDOM, 0, name);
        break;
    case PLAN_DIRECTORY:
        late_event(LARDER_LATE_DIRECTORY, arguments[CALLER], name, false);
        break;
    case PLAN_IDENTITY:
        if (first(8 + jump->extra))
            number_event(LARDER_IDENTITY, 0, name);
        break;
    case PLAN_UMASK:
        if (first(16))
            number_event(LARDER_UMASK, (uint32_t)arguments[0] & 0777, NULL);
        break;
    case PLAN_NET:
        if (jump->extra && needs_no_network((const char *)arguments[0], (const char *)arguments[1],
                                              (const int *)arguments[2]))
            break;
        number_event(LARDER_NET, 0, name);
        break;
    case PLAN_INTERFACES:
        number_event(LARDER_NET, FAMILY_NETLINK, name);
        if (one_of_few(&times)) /* glibc numbers its requests by the time */
            time_event(LARDER_TIME_TIME);
        break;
    case PLAN_SOCKET:
        if ((int)arguments[0] != 1)
            number_event(LARDER_NET, (uint32_t)arguments[0], name);
        break;
    case PLAN_GLOB:
        if (arguments[1] & GLOB_ALTDIRFUNC) /* the caller's functions make the accesses */
            break;
        if (can_glob(arguments[1]))
            return jump->real == R_glob ? (void *)glob_observed : (void *)glob64_observed;
        drop_event(LARDER_DROP_UNSUPPORTED, name, 0, NULL);
        break;
    case PLAN_SYSCALL:
        if (arguments[0] == __NR_getrandom)
            late_event(LARDER_LATE_RANDOM, arguments[CALLER], name, false);
        if (arguments[0] == __NR_clock_gettime || arguments[0] == __NR_gettimeofday)
            late_event(LARDER_LATE_CLOCK, arguments[CALLER], name, false);
        if (arguments[0] == __NR_getrandom && one_of_few(&randoms))
            number_event(LARDER_RANDOM, 0, "getrandom");
        if (names_something(arguments[0]) && !opens_setting(arguments))
            drop_event(LARDER_DROP_UNSUPPORTED, name, (uint32_t)arguments[0], NULL);
        break;
    case PLAN_DLOPEN:
        if (!arguments[0])
            break;
        late_begins();
        if (plain_path((const char *)arguments[0]))
            return (void *)dlopen_path;
        if (object_is_loaded((const char *)arguments[0]))
            break; /* the loader looks for no file */
        drop_event(LARDER_DROP_UNSUPPORTED, name, 0, (const char *)arguments[0]);
        break;
    case PLAN_ADDCHDIR:
        __atomic_store_n(&spawn_moves, true, __ATOMIC_RELAXED);
        break;
    case PLAN_ADDOPEN:
        if (text_equal((const char *)arguments[2], "/dev/null"))
            break;
        drop_event(LARDER_DROP_UNSUPPORTED, name, 0, (const char *)arguments[2]);
        break;
    default:
        drop_event(LARDER_DROP_UNSUPPORTED, name, 0, NULL);
    }
    return real;
}
