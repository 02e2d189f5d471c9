/* Closing of files that were open for writing. The event has the stat of the file at that time. The
 * supervisor compares it with the file at the end, and so knows whether another process has written
 * to it since. */
#include "real.h"

#define DESCRIPTORS 4096

/* One bit for each descriptor that was opened for writing. Closing does not clear it: a vfork
 * child, which shares its parent's memory, closes descriptors that the parent keeps. */
static uint64_t writing[DESCRIPTORS / 64];

void close_watch(int fd, bool for_writing)
{
    if (fd < 0 || fd >= DESCRIPTORS)
        return;
    uint64_t bit = (uint64_t)1 << (fd & 63), *word = &writing[fd / 64];
    /* Most descriptors are opened for reading, so the word need not be written. The update is
     * atomic because another thread may change another descriptor's bit at the same time. */
    if (for_writing == !!(__atomic_load_n(word, __ATOMIC_RELAXED) & bit))
        return;
    if (for_writing)
        __atomic_fetch_or(word, bit, __ATOMIC_RELAXED);
    else
        __atomic_fetch_and(word, ~bit, __ATOMIC_RELAXED);
}

static bool watched(int fd)
{
    return fd >= 0 && fd < DESCRIPTORS &&
           (__atomic_load_n(&writing[fd / 64], __ATOMIC_RELAXED) >> (fd & 63) & 1);
}

static void closing(int fd)
{
    struct stat st;
    if (!log_on() || raw_fstat(fd, &st) != 0)
        return;
    struct larder_event event = event_new(LARDER_CLOSED, false);
    event_stat(&event, &st);
    log_write(&event, NULL, NULL);
}

EXPORT int close(int fd)
{
    if (watched(fd))
        closing(fd);
    int result = DONE(REAL(close)(fd));
    if (result != 0)
        shortage_of(errno, "close");
    return result;
}

extern WEAK int fileno(void *file);
extern int fflush(void *file); /* shortage.c */

/* Writes what is still in the stream's buffer first, as libc's fclose would. */
EXPORT int fclose(void *file)
{
    if (file && real_has(R_ferror))
        stream_ends(file);
    if (file && fileno && real_has(R_fflush) && watched(fileno(file))) {
        int before = errno;
        if (fflush(file) != 0) {
            /* libc has dropped what could not be written, and its fclose would not report that. */
            int error = errno;
            closing(fileno(file));
            REAL(fclose)(file);
            errno = error;
            return -1;
        }
        closing(fileno(file));
        errno = before;
    }
    int result = REAL(fclose)(file);
    if (result != 0)
        shortage_of(errno, "fclose");
    return result;
}
