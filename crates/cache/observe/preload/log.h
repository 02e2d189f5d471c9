/* The wire format of the observer's log: what the preloaded library writes and what the supervisor
 * (the wrapper, in Rust) decodes. Numbers here never change their meaning. A change that readers
 * must know about raises LARDER_LOG_VERSION.
 *
 * The log is one file (a memfd of the supervisor), which every observed process maps shared. All
 * numbers are in the machine's byte order.
 *
 *   offset 0      struct larder_header
 *   offset 4096   struct larder_program, LARDER_PROGRAMS of them
 *   offset 12288  struct larder_known, LARDER_KNOWN_FILES of them
 *   offset 20480  events, each at a multiple of 8, one after the other
 *
 * Writing an event:
 *   1. The writer reserves room by an atomic addition to `tail`.
 *   2. It fills the event in.
 *   3. It commits the event by a release store of `size`, its first field.
 *
 * A reader goes from offset 20480 to `tail`, but not beyond `capacity`. An event whose size is 0
 * was never committed: its writer died. Its length is unknown, so nothing after it can be read. If
 * an event does not fit, it is lost and `overflow` says so. `tail` then still grows, and may exceed
 * `capacity`.
 *
 * The supervisor creates the file with these fields set: magic, version, capacity (the file's
 * size), tail = 20480, wrapper_dev, wrapper_ino, began_s. Everything else is 0.
 *
 * If a sampler is at work, a program that begins and does not have enough samples yet asks it for
 * one, which means that the kernel observes its process as well:
 *   1. The process takes a free slot, fills it in, and waits for the answer.
 *   2. The sampler attaches to the process.
 *   3. The process executes its program once more.
 */
#ifndef LARDER_LOG_H
#define LARDER_LOG_H

#include <stdint.h>

#define LARDER_LOG_MAGIC "LARDLOG1" /* the first 8 bytes, without a NUL */
#define LARDER_LOG_VERSION 8u
#define LARDER_LOG_START 20480u /* the offset of the first event */

/* The bits of `overflow` in the header. */
#define LARDER_OVERFLOW_LOST 1u    /* an event did not fit */
#define LARDER_OVERFLOW_CLOSING 2u /* the supervisor ends: do not preload into new programs */

/* Not a loss: the kernel asks the supervisor as well before each system call. */
#define LARDER_KERNEL_ASKS 4u

#define LARDER_SAMPLE_SLOTS 32 /* the most processes that are sampled or ask for it at a time */
#define LARDER_PROGRAMS_AT 4096u
#define LARDER_PROGRAMS 512    /* the most programs that are sampled in one run */
#define LARDER_KNOWN_AT 12288u
#define LARDER_KNOWN_FILES 512
#define LARDER_SAMPLES 3u      /* enough for a program; one more for each new set of options */
/* A program with so many samples is not sampled any more, whatever its options. */
#define LARDER_KNOWN ((uint64_t)1 << 32)
#define LARDER_UNANSWERED 4u   /* after so many unanswered questions, no process asks any more */

enum larder_slot_phase {
    LARDER_SLOT_FREE = 0,
    LARDER_SLOT_TAKEN = 1,   /* the process is filling it in */
    LARDER_SLOT_ASKS = 2,    /* the process waits for an answer */
    LARDER_SLOT_WATCHED = 3, /* the process is watched; the sampler frees the slot afterwards */
    LARDER_SLOT_REFUSED = 4, /* the process is not watched; it frees the slot itself */
    LARDER_SLOT_GIVEN_UP = 5, /* the process is watched, and did not execute its program anew */
};

struct larder_sample_slot {
    uint32_t phase;    /* enum larder_slot_phase; the process waits for it to change (futex) */
    uint32_t pid;
    /* The index of the program in the table of struct larder_program. The upper half is the index
     * of the entry for the program with its options. */
    uint64_t program;
    /* An address in the process. There are the slot's number and the program's key, 8 bytes each.
     * The sampler knows by them that `pid` is the process that asks. */
    uint64_t address;
};

struct larder_program {
    uint64_t key; /* a hash of the file's stat, or of that and of options; 0: the entry is free */
    uint64_t samples;
};

/* A fact about a file that one process found out, for the other processes (known.c). The supervisor
 * does not read it. */
struct larder_known {
    uint64_t check;
    uint64_t value; /* 0: the entry is free */
};

struct larder_header {
    char magic[8];
    uint32_t version;
    uint32_t overflow; /* LARDER_OVERFLOW_LOST, LARDER_OVERFLOW_CLOSING, LARDER_KERNEL_ASKS */
    uint64_t capacity;
    uint64_t tail;
    /* The wrapper's program, as dev and ino of an event. If the tool starts a wrapper again, that
     * wrapper finds this log by the library's variables and writes its events into it. */
    uint64_t wrapper_dev;
    uint64_t wrapper_ino;
    uint64_t sampler; /* the pid of the sampler, which SIGURG wakes; 0: none */
    uint64_t sampler_ends;
    uint64_t unanswered; /* how often the sampler did not answer in time */
    uint64_t began_s; /* the start of the run, in seconds since 1970; 0: unknown */
    struct larder_sample_slot slots[LARDER_SAMPLE_SLOTS];
};

/* An event has these 72 bytes, then `path_len` bytes of path, then `path2_len` bytes of path2, then
 * zeros up to a multiple of 8. Neither path has a NUL. `size` counts all of that.
 *
 * Paths are absolute but never normalised: "./", "..", "//" and "/" at the end stay. A relative
 * path is preceded by the process's directory (or the directory of its descriptor) and "/". An
 * empty path stays empty. A path that cannot be read (EFAULT) or was NULL becomes empty. If a path
 * is not empty and does not begin with "/", its directory is unknown, so do not trust it.
 *
 * dev, ino, bytes, mtime_ns, ctime_ns and mode are set only if the comment of the kind says "stat",
 * and are valid if error is 0. Otherwise they are 0. */
struct larder_event {
    uint32_t size;
    uint16_t kind;
    uint16_t flags;
    uint32_t pid;   /* getpid() in the process's own PID namespace */
    int32_t error;  /* 0, or the errno with which the call failed */
    uint64_t dev;   /* major << 32 | minor */
    uint64_t ino;
    uint64_t bytes; /* st_size */
    int64_t mtime_ns;
    int64_t ctime_ns;
    uint32_t mode;  /* st_mode */
    uint32_t path_len;
    uint32_t path2_len;
    uint32_t extra;
};

enum larder_kind {
    /* The library is at work in a new program image. path: what /proc/self/exe says; stat of it;
     * extra: the parent's pid; path2: the program's arguments without the first, each followed by
     * LARDER_ARGUMENT_END. path2 is cut at LARDER_ARGUMENTS_MAX bytes. flags: enum larder_start. */
    LARDER_START = 1,
    /* A shared object is loaded, or the program's ELF interpreter. path: as the loader names it;
     * stat. All objects are repeated after each dlopen. */
    LARDER_OBJECT = 2,
    /* A program is about to be executed. path; stat, error 0 if the stat worked. path2: for a "#!"
     * script, the ELF file that the kernel will start. Each interpreter on the way there has a STAT
     * event before this one. A START of the same pid follows, or EXEC_FAILED. Before a posix_spawn
     * the pid is the parent's, and SPAWNED (or EXEC_FAILED) follows. */
    LARDER_EXEC = 3,
    LARDER_EXEC_FAILED = 4, /* path, error; follows an EXEC or a DROP */
    LARDER_SPAWNED = 5,     /* posix_spawn of path succeeded; extra: the child's pid */
    /* system() or popen(): one START of an unknown pid will follow. path: /bin/sh, path2: the
     * command. */
    LARDER_ANONYMOUS = 6,
    /* Something is not observed from here on. extra: enum larder_drop. path: the program that is
     * about to be executed, or for UNSUPPORTED the name of the function. mode: for the function
     * "syscall" the number. path2: for "dlopen" the object's name. */
    LARDER_DROP = 7,
    /* flags: enum larder_open; stat of the new descriptor; extra: the mode for CREATE (as given;
     * 0666 for fopen, 0600 for mkstemp). chdir is an OPEN with PATHONLY | DIRECTORY.
     * syscall(SYS_open) below /proc or /sys is an OPEN whose stat and error were taken by path,
     * just before the call. */
    LARDER_OPEN = 8,
    LARDER_STAT = 9,      /* stat */
    LARDER_LSTAT = 10,    /* stat */
    /* extra: the requested mode (0: F_OK, also for statfs and statvfs); flags: 1 links not
     * followed, 2 effective ids */
    LARDER_ACCESS = 11,
    LARDER_READLINK = 12, /* path2: the target; flags: 1 the buffer was full, so path2 may be cut */
    LARDER_REALPATH = 13, /* path2: the result */
    LARDER_LIST = 14,     /* a directory is opened for listing; stat */
    LARDER_UNLINK = 15,
    LARDER_RENAME = 16,   /* path to path2; flags: those of renameat2, and LARDER_OPEN_NEW */
    LARDER_LINK = 17,     /* existing path, new path2; flags: 1 links followed */
    LARDER_SYMLINK = 18,  /* path: the target's text as given, path2: the path of the link */
    LARDER_MKDIR = 19,    /* extra: the mode; flags: LARDER_OPEN_TEMP for mkdtemp */
    LARDER_RMDIR = 20,
    LARDER_CHMOD = 21,    /* extra: the mode; flags: 1 links not followed */
    LARDER_TRUNCATE = 22, /* bytes: the new length */
    LARDER_UTIME = 23,    /* flags: 1 links not followed; extra: 1 sets the present time */
    LARDER_MKNOD = 24,    /* extra: the mode, with the file's type */
    LARDER_CHOWN = 25,    /* flags: 1 links not followed */
    LARDER_XATTR = 26,    /* set or removed; path2: the attribute; flags: 1 links not followed */
    LARDER_GETENV = 27,   /* path: the name, path2: the value; error ENOENT if unset */
    LARDER_UMASK = 28,    /* extra: the new value; only the first call in each process */
    /* extra: enum larder_time; stat of standard output if that is a regular file; only the first
     * LARDER_FEW calls in each process, LOCAL counted apart */
    LARDER_TIME = 29,
    /* a socket; extra: its family (0: a host is looked up); path: the function */
    LARDER_NET = 30,
    LARDER_UNIX = 31,     /* connect to path ("@..." when abstract); flags: 1 bind */
    LARDER_IDENTITY = 32, /* path: the function; only the first call in each process */
    LARDER_CLOSED = 34,   /* a descriptor that was opened for writing is closed; stat, no path */
    /* A child ended in a way that may not happen in the next run. mode: its pid; extra: the signal,
     * or 0 if it exited with LARDER_EXIT_INTERNAL */
    LARDER_DIED = 33,
    LARDER_RANDOM = 35,   /* path: the function; only the first LARDER_FEW calls in each process */
    /* The first event of a process that was forked, or the next event of a process that called
     * vfork and shared its memory with the child. extra: the parent's pid; mode: the pid that last
     * wrote an event from this memory */
    LARDER_FORKED = 36,
    /* A call failed because a resource is short or a device fails (shortage.c). error; path: that
     * of the descriptor, or the name of the function */
    LARDER_SHORTAGE = 37,
    /* An object that the program loaded by dlopen called a function that this library sees. It comes
     * besides the event of the function. extra: enum larder_late; path: the function, or for
     * VARIABLE the name of the variable and for DEVICE the path; path2: the object as the loader
     * names it; error ENOENT if the variable is unset. Only the first LARDER_FEW of each kind but
     * VARIABLE in each process */
    LARDER_LATE = 38,
};

/* The `extra` of a STAT, LSTAT or LIST that such an object made. It may use all that the call tells,
 * such as times, sizes and the order of names. */
#define LARDER_BY_LATE (5u << 8)

/* Variables with which a program was started. A shell looks at the directories that they name. */
enum larder_start {
    LARDER_START_PWD = 1,    /* PWD is an absolute path */
    LARDER_START_OLDPWD = 2, /* OLDPWD is set */
};

enum larder_late {
    LARDER_LATE_CLOCK = 1, /* any clock, not only those of LARDER_TIME */
    LARDER_LATE_RANDOM = 2,
    LARDER_LATE_VARIABLE = 3,
    /* A path below /dev, /proc or /sys, except /dev/null and /dev/zero. Or standard input. */
    LARDER_LATE_DEVICE = 4,
    LARDER_LATE_DIRECTORY = 5, /* the path of the working directory, or what a path leads to */
};

enum larder_drop {
    LARDER_DROP_STATIC = 1, /* no ELF interpreter */
    LARDER_DROP_SUID = 2,   /* set-user-id, set-group-id or file capabilities */
    LARDER_DROP_CLASS = 3,  /* another ELF class or machine */
    LARDER_DROP_SANITIZED = 4,
    LARDER_DROP_UNREADABLE = 5,
    LARDER_DROP_PRELOAD_GONE = 6, /* the library itself cannot be opened any more */
    LARDER_DROP_FEXECVE = 7,
    LARDER_DROP_UNSUPPORTED = 8,
};

enum larder_open {
    LARDER_OPEN_READ = 1,
    LARDER_OPEN_WRITE = 2,
    LARDER_OPEN_CREATE = 4,
    LARDER_OPEN_EXCL = 8,
    LARDER_OPEN_TRUNC = 16,
    LARDER_OPEN_APPEND = 32,
    LARDER_OPEN_TEMP = 64, /* mkstemp and its family, O_TMPFILE */
    LARDER_OPEN_DIRECTORY = 128,
    LARDER_OPEN_PATHONLY = 256,
    LARDER_OPEN_NOFOLLOW = 512,
    LARDER_OPEN_NEW = 1024, /* the path did not exist before */
};

enum larder_time {
    LARDER_TIME_TIME = 1,
    LARDER_TIME_GETTIMEOFDAY = 2,
    LARDER_TIME_CLOCK = 3, /* clock_gettime of CLOCK_REALTIME and its kin */
    LARDER_TIME_LOCAL = 4, /* localtime, ctime, mktime */
};

#define LARDER_ARGUMENT_END '\37' /* ASCII's unit separator */
#define LARDER_ARGUMENTS_MAX 4096

/* The exit code of a part of gcc after an internal error (ICE_EXIT_CODE). */
#define LARDER_EXIT_INTERNAL 4

/* A process writes at most this many TIME events, as many for LOCAL, and as many RANDOM events. */
#define LARDER_FEW 4

_Static_assert(sizeof(struct larder_event) == 72, "the event is 72 bytes");
_Static_assert(sizeof(struct larder_header) == 80 + 24 * LARDER_SAMPLE_SLOTS, "the header is followed by nothing");
_Static_assert(LARDER_PROGRAMS_AT + LARDER_PROGRAMS * sizeof(struct larder_program) == LARDER_KNOWN_AT,
               "files follow the programs");
_Static_assert(LARDER_KNOWN_AT + LARDER_KNOWN_FILES * sizeof(struct larder_known) == LARDER_LOG_START,
               "events follow the files");

#endif
