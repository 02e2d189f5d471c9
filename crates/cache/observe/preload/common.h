/* Declarations that the files of the preloaded library share: the functions of the log, the texts
 * that events are made of, and the library's own string functions.
 *
 * No header of a C library is included, because the same object must work in glibc and in musl. */
#ifndef LARDER_COMMON_H
#define LARDER_COMMON_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "log.h"
#include "syscall.h"

#define EXPORT __attribute__((visibility("default")))
#define WEAK __attribute__((weak))

#define TYPE_MASK 0170000u
#define TYPE_REGULAR 0100000u
#define TYPE_DIRECTORY 0040000u
#define TEXT_MAX 4096

/* Symbols of libc, if there is a libc that has them. */
extern WEAK char **environ;
extern WEAK int *__errno_location(void);
extern WEAK const char *gnu_get_libc_version(void);

#define errno (*__errno_location())

/* The library's own string functions (log.c). gcc may emit calls of the first four by itself. */
void *memcpy(void *to, const void *from, size_t size);
void *memmove(void *to, const void *from, size_t size);
void *memset(void *at, int byte, size_t size);
int memcmp(const void *a, const void *b, size_t size);
size_t text_length(const char *text);
bool text_equal(const char *a, const char *b);
bool text_has_slash(const char *text);
/* Returns the rest of `text` after `prefix`, or NULL if `text` does not begin with it. */
const char *text_after(const char *text, const char *prefix);

/* A path or another string of an event: [dir "/"] tail. */
struct text {
    const char *tail;
    uint32_t tail_len;
    uint32_t dir_len;
    bool has_dir;
    char dir[TEXT_MAX];
};

void text_raw(struct text *t, const char *bytes, size_t length);
void text_string(struct text *t, const char *string);
/* Sets a path relative to the directory of `dirfd`. NULL becomes an empty text. */
void text_path(struct text *t, int dirfd, const char *path);
/* text_path in two steps, for calls that may change the path of the directory. */
void text_dir(struct text *t, int dirfd);
void text_tail(struct text *t, const char *path);
/* Sets the path of a descriptor itself. */
void text_fd(struct text *t, int fd);

/* The state of the log (log.c). 0: not looked for yet, 1: being set up, 2: open, 3: not used. */
extern int log_state;
extern struct larder_header *header;
bool log_wake(void); /* environment.c */

static inline bool log_on(void)
{
    int state = __atomic_load_n(&log_state, __ATOMIC_ACQUIRE);
    if (__builtin_expect(state == 2, 1))
        return true;
    return state == 0 && log_wake();
}

bool log_open(const char *path);
/* Returns the offset at which the log ends. */
uint64_t log_capacity(void);
/* Writes an event. Returns its offset, or 0 if there was no room. */
uint64_t log_write(struct larder_event *event, const struct text *path, const struct text *path2);
void event_stat(struct larder_event *event, const struct stat *st);
/* Returns true if the event's dev and ino are those of the wrapper's program. */
bool event_is_of_wrapper(const struct larder_event *event);
/* Returns true if errno is EINTR and the kernel asks as well, so that the call is to be repeated
 * (DONE in real.h). */
bool log_interrupted(void);
/* Returns a new event. Its error is errno if `failed`. */
struct larder_event event_new(unsigned kind, bool failed);
/* Write the most common events. They do nothing if the log is not open. */
void path_event(unsigned kind, bool failed, int dirfd, const char *path, unsigned flags, uint32_t extra);
void fd_event(unsigned kind, bool failed, int fd, uint32_t extra);
/* Writes an event for a path from the result of a raw_stat that follows links. */
void looked_event(unsigned kind, unsigned flags, const char *path, long result, const struct stat *st);
/* Notes that a descriptor was opened, and whether for writing (close.c). */
void close_watch(int fd, bool for_writing);
/* Writes an event if a function failed with an error that says that a resource is short
 * (shortage.c). */
void shortage_of(int error, const char *function);
/* Notes that a stream is about to be closed, or its error mark to be removed. */
void stream_ends(void *stream);
void drop_event(unsigned reason, const char *function, uint32_t number, const char *path2);

/* Adds atomically, and returns the value before. */
static inline uint64_t add_atomically(uint64_t *to, uint64_t more)
{
    return __atomic_fetch_add(to, more, __ATOMIC_RELAXED);
}

/* Stores `after` in `*word` if it is `before`. Returns whether it was. */
static inline bool exchange_atomically(uint32_t *word, uint32_t before, uint32_t after)
{
    return __atomic_compare_exchange_n(word, &before, after, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* Asks the sampler to watch this process, if that is wanted. If the sampler does, this executes
 * the program once more and does not return (sample.c). Call it before any other constructor has
 * run. */
void sample(const struct stat *own_file, char **argv, char **envp);
/* Returns true if the sampler watches the process. */
bool sample_watches(uint32_t pid);

/* The program that began, as far as other processes of the run have found out about it
 * (known.c). */
struct begun {
    struct stat st;
    const char *name; /* the path it was executed by, if absolute */
    uint64_t key;     /* the key of the file under that name; 0: none */
    const char *path; /* what /proc/self/exe says */
    size_t path_len;
};
bool known_begun(struct begun *begun);
/* Notes that the START event of the program is at this offset. */
void begun_is_known(const struct begun *begun, uint64_t at);
/* Finds out whether the library may go along with a program (enum larder_drop, or 0). Returns false
 * if that is not known. */
bool known_verdict(const struct stat *st, unsigned *reason);
void verdict_is_known(const struct stat *st, unsigned reason);

/* The environment and the library itself (environment.c). */
struct own {
    char preload[128]; /* the library's path, as the loader knows it: below /proc */
    char log[128];     /* "LARDER_PRELOAD_LOG=..." */
    size_t preload_len;
};
extern struct own own;
void objects_event(void);
bool object_is_loaded(const char *name);
/* Notes that the program calls dlopen. Code at other addresses than those of the objects that are
 * loaded now is late. */
void late_begins(void);
/* Writes a LATE event if the code at this address is late. */
void late_event(unsigned extra, unsigned long caller, const char *name, bool is_unset);
/* Writes a LATE event if the code at this address is late and the path is that of a device, or tells
 * something about the process or the system. A program may be known to use such a path without
 * effect on its result, but not code that it loads. */
void late_path(void *caller, const char *path);
/* Returns LARDER_BY_LATE if the code at this address is late, and 0 otherwise. */
uint32_t late_mark(const void *caller);
size_t environment_count(char *const envp[], size_t *bytes);
char **environment_fill(char **array, char *const envp[], size_t count);

/* Returns `envp` with the library's two variables added. It is on the caller's stack, or in a
 * mapping of its own if it is very long, because the stack may be that of a vfork parent. */
#define ENVIRONMENT_WITH_OWN(envp)                                                          \
    ({                                                                                      \
        size_t bytes_;                                                                      \
        size_t count_ = environment_count((envp), &bytes_);                                 \
        size_t all_ = (count_ + 3) * sizeof(char *) + bytes_;                               \
        char **array_ = all_ < 262144 ? (char **)__builtin_alloca(all_)                     \
                                      : (char **)raw_mmap(all_, 3, 0x22, -1);               \
        environment_fill(array_, (envp), count_);                                           \
    })

/* A program that is about to be executed (elf.c). */
struct target {
    int error;       /* the errno of its stat, or 0 */
    unsigned reason; /* enum larder_drop, or 0 */
    bool script;     /* `final` is the interpreter, not the file itself */
    struct stat st;
    char final[260];
};
void target_look(struct target *target, const char *path);
/* Judges the program and writes an EXEC or DROP. Returns true if the library may go along
 * (exec.c). */
bool exec_announce(const char *path);
bool log_closing(void);
/* True if some file actions of this process change the child's directory. Then it is unknown what a
 * relative path means to posix_spawn. */
extern bool spawn_moves;

#endif
