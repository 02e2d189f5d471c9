/* Writes events into the shared log. Also has the texts of events and the few string functions that
 * the library needs.
 *
 * Everything here may run in a signal handler and in a vfork child, so it takes no lock. Its only
 * static state is the mapping of the log and `last_pid`. */
#include "common.h"

int log_state;
struct larder_header *header;
static uint64_t capacity;

uint64_t log_capacity(void) { return capacity; }

/* Eight bytes at any address. */
typedef uint64_t __attribute__((may_alias, aligned(1))) piece;

/* Copies from front to back, which memmove relies on. */
void *memcpy(void *to, const void *from, size_t size)
{
    char *at = to;
    const char *byte = from;
#if defined(__x86_64__)
    /* The processor's string instruction takes about 35 ns to start. In that time this loop copies
     * a path. */
    if (size > 256) {
        __asm__ volatile("rep movsb" : "+D"(at), "+S"(byte), "+c"(size) : : "memory");
        return to;
    }
#endif
    for (; size >= sizeof(piece); size -= sizeof(piece), at += sizeof(piece), byte += sizeof(piece))
        *(piece *)at = *(const piece *)byte;
    while (size--)
        *at++ = *byte++;
    return to;
}

void *memmove(void *to, const void *from, size_t size)
{
    char *at = to;
    const char *byte = from;
    if (at <= byte || at >= byte + size)
        return memcpy(to, from, size);
    while (size--)
        at[size] = byte[size];
    return to;
}

void *memset(void *at, int byte, size_t size)
{
    for (char *to = at; size--;)
        *to++ = (char)byte;
    return at;
}

int memcmp(const void *a, const void *b, size_t size)
{
    const unsigned char *x = a, *y = b;
    for (; size--; x++, y++)
        if (*x != *y)
            return *x < *y ? -1 : 1;
    return 0;
}

size_t text_length(const char *text)
{
    const char *end = text;
    while (*end)
        end++;
    return (size_t)(end - text);
}

bool text_equal(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

bool text_has_slash(const char *text)
{
    for (; *text; text++)
        if (*text == '/')
            return true;
    return false;
}

const char *text_after(const char *text, const char *prefix)
{
    while (*prefix)
        if (*text++ != *prefix++)
            return NULL;
    return text;
}

void text_raw(struct text *t, const char *bytes, size_t length)
{
    t->tail = bytes;
    t->tail_len = (uint32_t)length;
    t->dir_len = 0;
    t->has_dir = false;
}

void text_string(struct text *t, const char *string)
{
    text_raw(t, string, string ? text_length(string) : 0);
}

/* Writes "/proc/self/fd/N" into at least 32 bytes. */
static void fd_name(char *to, int fd)
{
    char digits[12];
    int count = 0;
    unsigned number = (unsigned)fd;
    do
        digits[count++] = (char)('0' + number % 10);
    while (number /= 10);
    memcpy(to, "/proc/self/fd/", 14);
    to += 14;
    while (count)
        *to++ = digits[--count];
    *to = 0;
}

void text_dir(struct text *t, int dirfd)
{
    long length;
    text_raw(t, "", 0);
    if (dirfd == AT_FDCWD) {
        length = raw_getcwd(t->dir, sizeof t->dir) - 1;
    } else {
        char name[32];
        fd_name(name, dirfd);
        length = dirfd < 0 ? -1 : raw_readlink(name, t->dir, sizeof t->dir);
    }
    if (length < 1 || t->dir[0] != '/')
        return;
    t->has_dir = true;
    t->dir_len = length == 1 ? 0 : (uint32_t)length; /* "/" itself becomes empty */
}

void text_tail(struct text *t, const char *path)
{
    t->tail = path;
    t->tail_len = path ? (uint32_t)text_length(path) : 0;
    if (t->tail_len == 0 || path[0] == '/')
        t->has_dir = false;
}

void text_path(struct text *t, int dirfd, const char *path)
{
    if (path && path[0] && path[0] != '/')
        text_dir(t, dirfd);
    else
        text_raw(t, "", 0);
    text_tail(t, path);
}

void text_fd(struct text *t, int fd)
{
    text_dir(t, fd < 0 ? -1 : fd);
    if (!t->has_dir)
        return;
    t->has_dir = false;
    t->tail = t->dir;
    t->tail_len = t->dir_len ? t->dir_len : 1;
}

bool log_open(const char *path)
{
    struct stat st;
    bool good = false;
    long fd = raw_open(path, O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return false;
    if (raw_fstat((int)fd, &st) == 0 && (st.st_mode & TYPE_MASK) == TYPE_REGULAR &&
        st.st_size > (long)LARDER_LOG_START) {
        /* 3: readable and writable; 1: shared */
        void *at = raw_mmap((unsigned long)st.st_size, 3, 1, (int)fd);
        if ((unsigned long)at < -4095ul) {
            struct larder_header *found = at;
            good = memcmp(found->magic, LARDER_LOG_MAGIC, 8) == 0 &&
                   found->version == LARDER_LOG_VERSION;
            if (good) {
                header = found;
                capacity = found->capacity < (uint64_t)st.st_size ? found->capacity
                                                                  : (uint64_t)st.st_size;
            } else {
                raw_munmap(at, (unsigned long)st.st_size);
            }
        }
    }
    raw_close((int)fd);
    return good;
}

static uint32_t text_size(const struct text *t)
{
    return t ? t->tail_len + (t->has_dir ? t->dir_len + 1 : 0) : 0;
}

static char *text_copy(char *to, const struct text *t)
{
    if (!t)
        return to;
    if (t->has_dir) {
        memcpy(to, t->dir, t->dir_len);
        to += t->dir_len;
        *to++ = '/';
    }
    memcpy(to, t->tail, t->tail_len);
    return to + t->tail_len;
}

/* The pid that wrote the last event from this memory. A forked process has a copy of its parent's
 * memory, with the parent's pid in it. A vfork child shares the memory with its parent, so either
 * of the two may seem to be new. The reader tells them apart by the parent's pid. */
static uint32_t last_pid;

static uint32_t own_pid(void)
{
    uint32_t pid = (uint32_t)raw_getpid();
    uint32_t before = __atomic_load_n(&last_pid, __ATOMIC_RELAXED);
    if (before == pid) /* not written again: a write copies the page after a fork */
        return pid;
    __atomic_store_n(&last_pid, pid, __ATOMIC_RELAXED);
    if (before) {
        struct larder_event forked = event_new(LARDER_FORKED, false);
        forked.extra = (uint32_t)raw_getppid();
        forked.mode = before;
        log_write(&forked, NULL, NULL);
    }
    return pid;
}

uint64_t log_write(struct larder_event *event, const struct text *path, const struct text *path2)
{
    event->pid = own_pid();
    event->path_len = text_size(path);
    event->path2_len = text_size(path2);
    uint64_t used = sizeof *event + (uint64_t)event->path_len + event->path2_len;
    uint64_t size = (used + 7) & ~(uint64_t)7;
    uint64_t at = size > UINT32_MAX ? UINT64_MAX - size
                                    : add_atomically(&header->tail, size);
    if (at + size > capacity || at < LARDER_LOG_START) {
        __atomic_fetch_or(&header->overflow, LARDER_OVERFLOW_LOST, __ATOMIC_RELAXED);
        return 0;
    }
    struct larder_event *to = (struct larder_event *)((char *)header + at);
    event->size = 0;
    memcpy(to, event, sizeof *event);
    text_copy(text_copy((char *)(to + 1), path), path2);
    /* The padding is 0 already, because no byte of the log is written twice. */
    __atomic_store_n(&to->size, (uint32_t)size, __ATOMIC_RELEASE);
    return at;
}

/* Call this after the EXEC event was written. The supervisor sets the bit first, and then waits for
 * the programs whose events say that they are being executed. Each side stores one thing and then
 * loads the other side's. Without a fence in between, both could load the old value, even on
 * x86-64, where a load may pass an earlier store. */
bool log_closing(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return __atomic_load_n(&header->overflow, __ATOMIC_SEQ_CST) & LARDER_OVERFLOW_CLOSING;
}

void event_stat(struct larder_event *event, const struct stat *st)
{
    uint64_t dev = st->st_dev;
    uint64_t major = ((dev >> 8) & 0xfff) | ((dev >> 32) & ~(uint64_t)0xfff);
    uint64_t minor = (dev & 0xff) | ((dev >> 12) & ~(uint64_t)0xff & 0xffffffff);
    event->dev = major << 32 | minor;
    event->ino = st->st_ino;
    event->bytes = (uint64_t)st->st_size;
    event->mtime_ns = (int64_t)st->st_mtime * 1000000000 + (int64_t)st->st_mtime_nsec;
    event->ctime_ns = (int64_t)st->st_ctime * 1000000000 + (int64_t)st->st_ctime_nsec;
    event->mode = st->st_mode;
}

bool log_interrupted(void)
{
    return errno == EINTR && log_state == 2 && header->overflow & LARDER_KERNEL_ASKS;
}

bool event_is_of_wrapper(const struct larder_event *event)
{
    return header->wrapper_ino && event->dev == header->wrapper_dev && event->ino == header->wrapper_ino;
}

struct larder_event event_new(unsigned kind, bool failed)
{
    struct larder_event event = {0};
    event.kind = (uint16_t)kind;
    event.error = failed ? errno : 0;
    return event;
}

void path_event(unsigned kind, bool failed, int dirfd, const char *path, unsigned flags, uint32_t extra)
{
    if (!log_on())
        return;
    struct larder_event event = event_new(kind, failed);
    struct text text;
    event.flags = (uint16_t)flags;
    event.extra = extra;
    text_path(&text, dirfd, event.error == EFAULT ? NULL : path);
    log_write(&event, &text, NULL);
}

void fd_event(unsigned kind, bool failed, int fd, uint32_t extra)
{
    if (!log_on())
        return;
    struct larder_event event = event_new(kind, failed);
    struct text text;
    event.extra = extra;
    text_fd(&text, fd);
    log_write(&event, &text, NULL);
}

void drop_event(unsigned reason, const char *function, uint32_t number, const char *path2)
{
    if (!log_on())
        return;
    struct larder_event event = event_new(LARDER_DROP, false);
    struct text text, text2;
    event.extra = reason;
    event.mode = number;
    text_string(&text, function);
    text_string(&text2, path2);
    log_write(&event, &text, &text2);
}

void looked_event(unsigned kind, unsigned flags, const char *path, long result, const struct stat *st)
{
    if (!log_on())
        return;
    struct larder_event event = event_new(kind, false);
    struct text text;
    event.flags = (uint16_t)flags;
    event.error = (int)-result;
    if (result == 0)
        event_stat(&event, st);
    text_path(&text, AT_FDCWD, path);
    log_write(&event, &text, NULL);
}
