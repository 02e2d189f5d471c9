/* Takes samples: the kernel watches one process of a program as well, which shows whether the
 * library misses anything that the program does.
 *
 * The process asks the sampler, which attaches to it (ptrace). Then the process executes its
 * program once more, so that the loader's calls are seen too. At this point no constructor has run
 * except the library's own.
 *
 * No process waits for ever. If the sampler does not answer in time, the process goes on unwatched.
 * If the sampler ends or is killed, the kernel lets the processes that it watches go on. */
#include "common.h"

#define AT_INTERPRETER 7 /* AT_BASE */
#define AT_IS_SECURE 23
#define AT_FILE_NAME 31 /* AT_EXECFN */
#define SIGNAL_WAKES 23 /* SIGURG: another process with that pid ignores it */
#define ALLOW_TRACER 0x59616d61 /* PR_SET_PTRACER, for Yama's ptrace_scope 1 */
#define PATIENCE_MS 5
#define TIMES 60
#define ENTRIES 64
#define INTERPRETER_WORDS 8

/* Returns a key that identifies one version of a program's file during a run. It is never 0. */
static uint64_t key_of(const struct stat *st)
{
    uint64_t parts[] = {st->st_dev, st->st_ino, (uint64_t)st->st_size, (uint64_t)st->st_mtime,
                        (uint64_t)st->st_mtime_nsec};
    uint64_t key = 14695981039346656037u;
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) {
        key = (key ^ parts[i]) * 0x9e3779b97f4a7c15u;
        key ^= key >> 32;
    }
    return key ? key : 1;
}

/* Returns true for variables by which libc finds locales, messages and time zones, or tunes
 * itself. */
static bool is_of_libc(const char *variable)
{
    static const char names[][13] = {"LANG=", "LANGUAGE=", "LC_", "LOCPATH=", "NLSPATH=", "TZ=", "TZDIR=", "GCONV_PATH=",
                                     "CHARSET=", "MALLOC_", "GLIBC_"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (text_after(variable, names[i]))
            return true;
    return false;
}

/* Returns a key of the program, its options, and libc's variables, because the program may read
 * other files with other ones. Only short options and the names of long options count. Other
 * arguments differ in nearly every run. */
static uint64_t key_with_options(uint64_t key, char **argv, char **envp)
{
    for (char **entry = envp; *entry; entry++) {
        if (!is_of_libc(*entry))
            continue;
        for (const char *at = *entry; *at; at++)
            key = (key ^ (unsigned char)*at) * 0x9e3779b97f4a7c15u;
        key ^= key >> 31;
    }
    for (char **word = argv + 1; argv[0] && *word; word++) {
        const char *option = *word;
        if (option[0] != '-' || !option[1] || (option[1] != '-' && text_length(option) > 3))
            continue;
        for (; *option && *option != '='; option++)
            key = (key ^ (unsigned char)*option) * 0x9e3779b97f4a7c15u;
        key ^= key >> 29;
    }
    return key ? key : 1;
}

/* Returns the index of the program in the table, or LARDER_PROGRAMS if there is no room. */
static unsigned place_of(uint64_t key)
{
    struct larder_program *programs = (void *)((char *)header + LARDER_PROGRAMS_AT);
    for (unsigned tries = 0; tries < LARDER_PROGRAMS; tries++) {
        unsigned at = (unsigned)((key + tries) % LARDER_PROGRAMS);
        uint64_t found = __atomic_load_n(&programs[at].key, __ATOMIC_ACQUIRE);
        if (found == key)
            return at;
        if (!found) {
            /* If two processes take the entry at once, the later one gets it, and both ask. */
            __atomic_store_n(&programs[at].key, key, __ATOMIC_RELEASE);
            return at;
        }
    }
    return LARDER_PROGRAMS;
}

bool sample_watches(uint32_t pid)
{
    for (unsigned i = 0; i < LARDER_SAMPLE_SLOTS; i++)
        if (__atomic_load_n(&header->slots[i].phase, __ATOMIC_ACQUIRE) == LARDER_SLOT_WATCHED &&
            header->slots[i].pid == pid)
            return true;
    return false;
}

static bool is_script(const char *path)
{
    char head[2];
    long fd = raw_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    bool is = raw_pread((int)fd, head, 2, 0) == 2 && head[0] == '#' && head[1] == '!';
    raw_close((int)fd);
    return is;
}

/* Returns the path by which this program can be executed just as it was, and moves `*argv` to the
 * arguments for that. Returns NULL if they are unknown. The interpreter of a script finds extra
 * words before those of the script, because the kernel has put them there. */
static const char *way_back(const struct stat *own_file, char ***argv, struct stat *found)
{
    uint64_t entries[2 * ENTRIES];
    const char *name = NULL;
    bool loaded = false;
    long fd = raw_open("/proc/self/auxv", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    long size = raw_pread((int)fd, entries, sizeof entries, 0);
    raw_close((int)fd);
    for (long at = 0; at + 1 < size / 8 && entries[at]; at += 2) {
        if (entries[at] == AT_FILE_NAME)
            name = (const char *)entries[at + 1];
        if (entries[at] == AT_INTERPRETER)
            loaded = entries[at + 1] != 0;
        if (entries[at] == AT_IS_SECURE && entries[at + 1])
            return NULL;
    }
    /* If AT_BASE is 0, the program was started by naming the loader. A path below /dev/fd or
     * /proc may name a descriptor that is closed by now. */
    if (!loaded || !name || !**argv || text_after(name, "/dev/fd/") || text_after(name, "/proc/"))
        return NULL;
    if (raw_stat(AT_FDCWD, name, found, 0) != 0)
        return NULL;
    if (key_of(found) == key_of(own_file))
        return name;
    for (unsigned i = 1; i <= INTERPRETER_WORDS && (*argv)[i]; i++)
        if (text_equal((*argv)[i], name)) {
            *argv += i;
            return is_script(name) ? name : NULL;
        }
    return NULL;
}

/* Returns the slot if the sampler has attached to this process, and otherwise NULL. */
static struct larder_sample_slot *ask(uint32_t pid, unsigned place, unsigned options)
{
    struct larder_program *programs = (void *)((char *)header + LARDER_PROGRAMS_AT);
    struct larder_sample_slot *slot = NULL;
    unsigned at = 0;
    for (; at < LARDER_SAMPLE_SLOTS && !slot; at++)
        if (exchange_atomically(&header->slots[at].phase, LARDER_SLOT_FREE, LARDER_SLOT_TAKEN))
            slot = &header->slots[at];
    if (!slot)
        return NULL;
    volatile uint64_t sign[2] = {at - 1, programs[place].key};
    int sampler = (int)header->sampler;
    slot->pid = pid;
    slot->program = place | (uint64_t)options << 32;
    slot->address = (uint64_t)(unsigned long)sign;
    raw_prctl(ALLOW_TRACER, (unsigned long)sampler);
    __atomic_store_n(&slot->phase, LARDER_SLOT_ASKS, __ATOMIC_SEQ_CST);
    /* The signal may arrive just before the sampler waits, so it is sent again each time. */
    for (unsigned times = 0; times < TIMES && raw_kill(sampler, SIGNAL_WAKES) == 0; times++) {
        raw_wait_on(&slot->phase, LARDER_SLOT_ASKS, PATIENCE_MS);
        if (__atomic_load_n(&slot->phase, __ATOMIC_ACQUIRE) != LARDER_SLOT_ASKS)
            break;
    }
    if (exchange_atomically(&slot->phase, LARDER_SLOT_ASKS, LARDER_SLOT_FREE)) {
        if (add_atomically(&header->unanswered, 1) + 1 >= LARDER_UNANSWERED)
            __atomic_store_n(&header->sampler, 0, __ATOMIC_RELAXED);
        return NULL;
    }
    if (exchange_atomically(&slot->phase, LARDER_SLOT_REFUSED, LARDER_SLOT_FREE))
        return NULL;
    bool watched = __atomic_load_n(&slot->phase, __ATOMIC_ACQUIRE) == LARDER_SLOT_WATCHED && slot->pid == pid;
    return watched ? slot : NULL;
}

void sample(const struct stat *own_file, char **argv, char **envp)
{
    struct larder_program *programs = (void *)((char *)header + LARDER_PROGRAMS_AT);
    struct stat found, now;
    if (!header->sampler || !argv)
        return;
    uint64_t key = key_of(own_file);
    unsigned place = place_of(key);
    if (place == LARDER_PROGRAMS || programs[place].samples >= LARDER_KNOWN)
        return;
    unsigned options = place_of(key_with_options(key, argv, envp));
    if (options == LARDER_PROGRAMS)
        return;
    uint32_t pid = (uint32_t)raw_getpid();
    bool enough = programs[place].samples >= LARDER_SAMPLES && programs[options].samples;
    if (enough || sample_watches(pid))
        return;
    const char *path = way_back(own_file, &argv, &found);
    struct larder_sample_slot *slot = path ? ask(pid, place, options) : NULL;
    if (!slot)
        return;
    /* The path may lead to another file by now. */
    if (raw_stat(AT_FDCWD, path, &now, 0) == 0 && key_of(&now) == key_of(&found))
        raw_execve(path, argv, envp);
    __atomic_store_n(&slot->phase, LARDER_SLOT_GIVEN_UP, __ATOMIC_SEQ_CST);
}
