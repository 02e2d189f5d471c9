/* A table in the log of facts about files, so that each process of a run need not find them out
 * again. All processes share the table without a lock. */
#include "common.h"

#define AT_INTERPRETER 7 /* AT_BASE */
#define AT_FILE_NAME 31  /* AT_EXECFN */
/* A file that has changed in so many seconds before the run could change again unnoticed. */
#define SETTLED_S 2
#define WINDOW 8

extern WEAK unsigned long getauxval(unsigned long type);

static uint64_t mix(uint64_t key, uint64_t word)
{
    key = (key ^ word) * 0x9e3779b97f4a7c15u;
    return key ^ key >> 32;
}

static uint64_t key_of(uint64_t first, const struct stat *st)
{
    const uint64_t parts[] = {st->st_dev, st->st_ino, st->st_mode, (uint64_t)st->st_size, (uint64_t)st->st_mtime,
                              (uint64_t)st->st_mtime_nsec, (uint64_t)st->st_ctime, (uint64_t)st->st_ctime_nsec};
    uint64_t key = mix(14695981039346656037u, first);
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++)
        key = mix(key, parts[i]);
    return key ? key : 1;
}

static struct larder_known *place(uint64_t key, unsigned step)
{
    struct larder_known *table = (void *)((char *)header + LARDER_KNOWN_AT);
    return &table[(key + step) % LARDER_KNOWN_FILES];
}

/* Returns the value for a key, or 0. The two words of an entry are written one after the other. If
 * two processes write an entry at once, its `check` matches no key. */
static uint64_t find(uint64_t key)
{
    for (unsigned step = 0; step < WINDOW; step++) {
        uint64_t value = __atomic_load_n(&place(key, step)->value, __ATOMIC_ACQUIRE);
        if (value && (__atomic_load_n(&place(key, step)->check, __ATOMIC_ACQUIRE) ^ mix(key, value)) == key)
            return value;
    }
    return 0;
}

static void keep(uint64_t key, uint64_t value)
{
    unsigned step = 0;
    while (step < WINDOW && __atomic_load_n(&place(key, step)->value, __ATOMIC_RELAXED))
        step++;
    struct larder_known *to = place(key, step % WINDOW);
    __atomic_store_n(&to->check, key ^ mix(key, value), __ATOMIC_RELEASE);
    __atomic_store_n(&to->value, value, __ATOMIC_RELEASE);
}

static uint64_t key_of_begun(const char *name, const struct stat *st)
{
    uint64_t key = 1;
    for (; *name; name++)
        key = (key ^ (unsigned char)*name) * 0x100000001b3u;
    return key_of(key, st);
}

static const char *name_of_begun(void)
{
    if (!getauxval)
        return NULL;
    int before = errno;
    bool loaded = getauxval(AT_INTERPRETER) != 0; /* else started by naming the loader */
    const char *name = (const char *)getauxval(AT_FILE_NAME);
    errno = before;
    return loaded && name && name[0] == '/' ? name : NULL;
}

/* Finds the START event of an earlier process that executed the same program by the same path, and
 * takes the program's real path from there. If the path leads to the same file as then, it has done
 * so since before this process was executed, or the file's ctime would differ. The file of a script
 * is not that of the program, so a script never matches. */
bool known_begun(struct begun *begun)
{
    /* If the kernel asks as well, this stat would be taken for the program's own. */
    if (header->overflow & LARDER_KERNEL_ASKS || sample_watches((uint32_t)raw_getpid()))
        return false;
    begun->name = name_of_begun();
    if (!begun->name || raw_stat(AT_FDCWD, begun->name, &begun->st, 0) != 0)
        return false;
    begun->key = key_of_begun(begun->name, &begun->st);
    uint64_t at = find(begun->key);
    if (at < LARDER_LOG_START || at % 8 || at + sizeof(struct larder_event) > log_capacity())
        return false;
    const struct larder_event *event = (const void *)((const char *)header + at);
    struct larder_event expected = event_new(LARDER_START, false);
    event_stat(&expected, &begun->st);
    if (!__atomic_load_n(&event->size, __ATOMIC_ACQUIRE) || event->kind != LARDER_START || event->error ||
        event->path_len >= TEXT_MAX || at + sizeof *event + event->path_len > log_capacity() ||
        event->dev != expected.dev || event->ino != expected.ino || event->bytes != expected.bytes ||
        event->mtime_ns != expected.mtime_ns || event->ctime_ns != expected.ctime_ns || event->mode != expected.mode)
        return false;
    begun->path = (const char *)(event + 1);
    begun->path_len = event->path_len;
    return true;
}

void begun_is_known(const struct begun *begun, uint64_t at)
{
    if (begun->key && at)
        keep(begun->key, at);
}

#define VERDICT 2 /* the first word of a key for a verdict */

/* The verdict on a program depends only on its file's content and mode. */
bool known_verdict(const struct stat *st, unsigned *reason)
{
    uint64_t value = log_on() ? find(key_of(VERDICT, st)) : 0;
    if (!value || value > LARDER_DROP_UNSUPPORTED + 1)
        return false;
    *reason = (unsigned)value - 1;
    return true;
}

void verdict_is_known(const struct stat *st, unsigned reason)
{
    uint64_t newest = (uint64_t)(st->st_ctime > st->st_mtime ? st->st_ctime : st->st_mtime);
    if (log_on() && newest + SETTLED_S < header->began_s)
        keep(key_of(VERDICT, st), reason + 1);
}
