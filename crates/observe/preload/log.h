/* The wire format of the observer's log: what the preloaded library writes and
 * what the supervisor (Rust) decodes.  Numbers here never change their meaning;
 * a change that readers must know about raises LARDER_LOG_VERSION.
 *
 * The log is one file (a memfd of the supervisor), mapped shared by every
 * observed process.  All numbers are in the machine's byte order.
 *
 *   offset 0      struct larder_header
 *   offset 4096   struct larder_program, LARDER_PROGRAMS of them
 *   offset 12288  struct larder_known, LARDER_KNOWN_FILES of them
 *   offset 20480  events, each at a multiple of 8, one after the other
 *
 * A writer reserves room by an atomic addition to `tail`, fills the event in and
 * commits it by a release store of `size`, its first field.  A reader goes from
 * 20480 to `tail` (to `capacity` at most); an event whose size is 0 was never
 * committed: its writer died, and as its length is unknown nothing after it can
 * be read.  When an event does not fit, `overflow` says so and the event is
 * lost (`tail` goes on growing and may exceed `capacity`).
 *
 * The supervisor makes the file: magic, version, capacity (the file's size),
 * tail = 20480, the wrapper, when the run began; everything else 0.
 *
 * Where a sampler is at work, a program that begins and of which there are not
 * enough samples yet asks it to have the kernel tell what one process does: it
 * takes a free desk, fills it in, waits to hear, and executes itself anew.
 */
#ifndef LARDER_LOG_H
#define LARDER_LOG_H

#include <stdint.h>

#define LARDER_LOG_MAGIC "LARDLOG1" /* the first 8 bytes, without a NUL */
#define LARDER_LOG_VERSION 5u
#define LARDER_LOG_START 20480u /* where the first event is */

#define LARDER_OVERFLOW_LOST 1u    /* an event did not fit */
#define LARDER_OVERFLOW_CLOSING 2u /* the supervisor ends: nothing is preloaded into what is executed from now on */

#define LARDER_KERNEL_ASKS 4u /* no loss: the kernel asks the supervisor as well before each call */

#define LARDER_DESKS 32        /* processes that are watched, or ask for it, at a time */
#define LARDER_PROGRAMS_AT 4096u
#define LARDER_PROGRAMS 512    /* more are not sampled in one run */
#define LARDER_KNOWN_AT 12288u
#define LARDER_KNOWN_FILES 512
#define LARDER_SAMPLES 3u      /* of each program; with other options, one more */
#define LARDER_KNOWN ((uint64_t)1 << 32) /* so many: whatever its options, it is not sampled any more */
#define LARDER_UNANSWERED 4u   /* then nobody asks any more */

enum larder_desk_phase {
    LARDER_DESK_FREE = 0,
    LARDER_DESK_TAKEN = 1,   /* being filled in */
    LARDER_DESK_ASKS = 2,    /* the process waits to hear */
    LARDER_DESK_WATCHED = 3, /* it is watched; the sampler frees the desk when it is not any more */
    LARDER_DESK_REFUSED = 4, /* it is not; whoever asked frees the desk */
    LARDER_DESK_GIVEN_UP = 5, /* it is watched, and did not begin anew */
};

struct larder_desk {
    uint32_t phase;    /* enum larder_desk_phase; what is waited on */
    uint32_t pid;
    uint64_t program;  /* which struct larder_program; in the upper half, which one for its options */
    uint64_t address;  /* where in the process the desk's number and the program's key are, 8 bytes each: it is that one */
};

struct larder_program {
    uint64_t key; /* made of what stat says of the file, or of that and options; 0: nobody's yet */
    uint64_t samples;
};

/* What a process found out about a file, for the others (known.c).  The supervisor does not read it. */
struct larder_known {
    uint64_t check;
    uint64_t value; /* 0: nothing */
};

struct larder_header {
    char magic[8];
    uint32_t version;
    uint32_t overflow; /* bits below */
    uint64_t capacity;
    uint64_t tail;
    /* The program that observes, as dev and ino of an event: where a tool starts it again, it finds this log by the
     * library's variables and writes into it what it does. */
    uint64_t wrapper_dev;
    uint64_t wrapper_ino;
    uint64_t sampler; /* the process to be asked, which SIGURG wakes; 0: none */
    uint64_t sampler_ends;
    uint64_t unanswered; /* how often it did not answer in time */
    uint64_t began_s; /* when the run began, in seconds since 1970; 0: not known */
    struct larder_desk desks[LARDER_DESKS];
};

/* 72 bytes, then `path_len` bytes of path, `path2_len` bytes of path2 (neither
 * has a NUL), then zeros up to a multiple of 8.  `size` counts all of that.
 *
 * Paths are absolute but never normalised: a relative one has the process's
 * directory (or the directory of its descriptor) and "/" before it; "./", "..",
 * "//" and "/" at the end stay.  An empty path stays empty, and so does one that
 * cannot be read (EFAULT) or was NULL.  A path that does not begin with "/" (and
 * is not empty) is one whose directory could not be found: do not trust it.
 *
 * dev, ino, bytes, mtime_ns, ctime_ns and mode are 0 unless the kind says that
 * it has "stat"; then they are valid when error is 0. */
struct larder_event {
    uint32_t size;
    uint16_t kind;
    uint16_t flags;
    uint32_t pid;   /* getpid() in the process's own namespace */
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
    /* The observer is at work in a new program image.  path: what
     * /proc/self/exe says; stat of it; extra: the parent's pid; path2: its
     * arguments but the first, each followed by LARDER_ARGUMENT_END, at most
     * LARDER_ARGUMENTS_MAX bytes: where more are, it does not end so. */
    LARDER_START = 1,
    /* A shared object is loaded, or the program's ELF interpreter.  path as the
     * loader names it; stat.  Repeated after each dlopen. */
    LARDER_OBJECT = 2,
    /* About to execute path (stat, error 0 when it could be looked at).  path2:
     * for a "#!" script, the ELF file that the kernel will start; each
     * interpreter on the way there has a STAT event before this one.  A START of
     * the same pid follows, or EXEC_FAILED.  Before a posix_spawn the pid is the
     * parent's, and SPAWNED (or EXEC_FAILED) follows. */
    LARDER_EXEC = 3,
    LARDER_EXEC_FAILED = 4, /* path, error; follows an EXEC or a DROP */
    LARDER_SPAWNED = 5,     /* posix_spawn of path succeeded; extra: the child's pid */
    /* system() or popen(): one START of a pid that is not known is to come.
     * path: /bin/sh, path2: the command. */
    LARDER_ANONYMOUS = 6,
    /* Something is not observed from here on.  extra: enum larder_drop.  path:
     * the program about to be executed, or for UNSUPPORTED the name of the
     * function; mode: for the function "syscall" the number; path2: for "dlopen"
     * the object's name. */
    LARDER_DROP = 7,
    /* flags: enum larder_open; stat of the new descriptor; extra: the mode for
     * CREATE (as given; 0666 for fopen, 0600 for mkstemp).  chdir is an OPEN
     * with PATHONLY | DIRECTORY.  syscall(SYS_open) below /proc or /sys is one
     * whose stat and error were taken by name, just before the call. */
    LARDER_OPEN = 8,
    LARDER_STAT = 9,      /* stat */
    LARDER_LSTAT = 10,    /* stat */
    /* extra: the mode asked for (0: F_OK, also statfs and statvfs); flags: 1 not
     * following, 2 effective ids */
    LARDER_ACCESS = 11,
    LARDER_READLINK = 12, /* path2: the target; flags: 1 the buffer was filled, there may be more */
    LARDER_REALPATH = 13, /* path2: the result */
    LARDER_LIST = 14,     /* the directory is opened for listing; stat */
    LARDER_UNLINK = 15,
    LARDER_RENAME = 16,   /* path to path2; flags: those of renameat2, and LARDER_OPEN_NEW */
    LARDER_LINK = 17,     /* existing path, new path2; flags: 1 following (AT_SYMLINK_FOLLOW) */
    LARDER_SYMLINK = 18,  /* path: the target's text as given, path2: the link */
    LARDER_MKDIR = 19,    /* extra: the mode; flags: LARDER_OPEN_TEMP for mkdtemp */
    LARDER_RMDIR = 20,
    LARDER_CHMOD = 21,    /* extra: the mode; flags: 1 not following */
    LARDER_TRUNCATE = 22, /* bytes: the new length */
    LARDER_UTIME = 23,    /* flags: 1 not following; extra: 1 to the present time */
    LARDER_MKNOD = 24,    /* extra: the mode, with the file's type */
    LARDER_CHOWN = 25,    /* flags: 1 not following */
    LARDER_XATTR = 26,    /* set or removed; path2: the attribute; flags: 1 not following */
    LARDER_GETENV = 27,   /* path: the name, path2: the value; error ENOENT when unset */
    LARDER_UMASK = 28,    /* extra: the value set; the first time in each process only */
    /* extra: enum larder_time; stat of standard output where that is a file; the first few times in each process, LOCAL
     * apart */
    LARDER_TIME = 29,
    LARDER_NET = 30,      /* a socket; extra: its family (0: a name is looked up, path: the function) */
    LARDER_UNIX = 31,     /* connect to path ("@..." when abstract); flags: 1 bind */
    LARDER_IDENTITY = 32, /* path: the function; the first time in each process only */
    LARDER_CLOSED = 34,   /* a descriptor that was opened for writing is closed; stat, no path */
    /* a child was found to have ended in a way that it may not the next time; mode: its pid, extra: the signal, or 0 if it
     * exited with LARDER_EXIT_INTERNAL */
    LARDER_DIED = 33,
    LARDER_RANDOM = 35,   /* path: the function; the first few times in each process */
    /* The first event of a process that was forked, or the next of one that vforked.  extra: the parent's pid; mode: the
     * pid of whoever wrote from this memory before */
    LARDER_FORKED = 36,
    /* A call failed because something runs short, or because a device fails (shortage.c).  error; path: that of the
     * descriptor, or the name of the function */
    LARDER_SHORTAGE = 37,
};

enum larder_drop {
    LARDER_DROP_STATIC = 1, /* no ELF interpreter */
    LARDER_DROP_SUID = 2,   /* set-user-id, set-group-id or file capabilities */
    LARDER_DROP_CLASS = 3,  /* another ELF class or machine */
    LARDER_DROP_SANITIZED = 4,
    LARDER_DROP_UNREADABLE = 5,
    LARDER_DROP_PRELOAD_GONE = 6, /* the library itself can no longer be opened */
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
    LARDER_OPEN_NEW = 1024, /* the name was not there before */
};

enum larder_time {
    LARDER_TIME_TIME = 1,
    LARDER_TIME_GETTIMEOFDAY = 2,
    LARDER_TIME_CLOCK = 3, /* clock_gettime of the real time */
    LARDER_TIME_LOCAL = 4, /* localtime, ctime, mktime */
};

#define LARDER_ARGUMENT_END '\37' /* ASCII's unit separator */
#define LARDER_ARGUMENTS_MAX 4096

/* What a part of gcc exits with after an internal error (ICE_EXIT_CODE). */
#define LARDER_EXIT_INTERNAL 4

/* That many events of one sort from a process, and no more. */
#define LARDER_FEW 4

_Static_assert(sizeof(struct larder_event) == 72, "the event is 72 bytes");
_Static_assert(sizeof(struct larder_header) == 80 + 24 * LARDER_DESKS, "the header is followed by nothing");
_Static_assert(LARDER_PROGRAMS_AT + LARDER_PROGRAMS * sizeof(struct larder_program) == LARDER_KNOWN_AT,
               "files follow the programs");
_Static_assert(LARDER_KNOWN_AT + LARDER_KNOWN_FILES * sizeof(struct larder_known) == LARDER_LOG_START,
               "events follow the files");

#endif
