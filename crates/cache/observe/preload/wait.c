/* Children that died by a signal, or exited as a part of gcc does after an internal error. Their
 * death may not happen in the next run, and the parent may then do something else. */
#include "real.h"

/* Writes an event if a child has ended in such a way. Stopped and continued children have not
 * ended. After an ordinary exit, the signal is 0. */
static void died(int child, int status)
{
    unsigned signal = (unsigned)status & 0x7f;
    bool internal = !signal && ((unsigned)status >> 8 & 0xff) == LARDER_EXIT_INTERNAL;
    if (child <= 0 || (!signal && !internal) || signal == 0x7f || !log_on())
        return;
    struct larder_event event = event_new(LARDER_DIED, false);
    event.extra = signal;
    event.mode = (uint32_t)child;
    log_write(&event, NULL, NULL);
}

EXPORT int waitpid(int pid, int *status, int options)
{
    int own_status = 0, *to = status ? status : &own_status;
    int child = REAL(waitpid)(pid, to, options);
    if (child > 0)
        died(child, *to);
    return child;
}

EXPORT int wait(int *status)
{
    int own_status = 0, *to = status ? status : &own_status;
    int child = REAL(wait)(to);
    if (child > 0)
        died(child, *to);
    return child;
}

EXPORT int wait3(int *status, int options, void *usage)
{
    int own_status = 0, *to = status ? status : &own_status;
    int child = REAL(wait3)(to, options, usage);
    if (child > 0)
        died(child, *to);
    return child;
}

EXPORT int wait4(int pid, int *status, int options, void *usage)
{
    int own_status = 0, *to = status ? status : &own_status;
    int child = REAL(wait4)(pid, to, options, usage);
    if (child > 0)
        died(child, *to);
    return child;
}

/* The first members of siginfo_t, which are the same on x86-64 and aarch64. */
struct child_info {
    int signal, error, code, pad, pid, uid, status;
};

#define CODE_EXITED 1
#define CODE_KILLED 2
#define CODE_DUMPED 3

EXPORT int waitid(int type, unsigned id, void *info, int options)
{
    int result = REAL(waitid)(type, id, info, options);
    const struct child_info *child = info;
    if (result == 0 && child && (child->code == CODE_KILLED || child->code == CODE_DUMPED))
        died(child->pid, child->status);
    if (result == 0 && child && child->code == CODE_EXITED)
        died(child->pid, child->status << 8);
    return result;
}
