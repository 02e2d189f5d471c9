/* older KERNEL COMMAND...: runs a command and every process that it starts with the mount calls of
   an older kernel. KERNEL is 5.10, 6.1, 6.12 or 6.14. A seccomp filter stops only the calls that
   such a kernel would answer differently, and a tracer (ptrace) gives them that kernel's answer:

     call                                     before   answer
     open_tree(OPEN_TREE_CLONE) of a mount
       outside the thread's mount namespace   6.15     EINVAL
     overlay: a layer in a mount outside the
       thread's mount namespace               6.15     EINVAL from FSCONFIG_CMD_CREATE
     fsconfig, overlay: a descriptor          6.13     EINVAL; before 6.5 EOPNOTSUPP
     fsconfig, EROFS: a source that is a file 6.12     ENOTBLK from FSCONFIG_CMD_CREATE
     statx: STATX_MNT_ID_UNIQUE               6.8      the bit is ignored
     statmount                                6.8      ENOSYS
     getsockopt: SO_PEERPIDFD                 6.5      ENOPROTOOPT
     mount_setattr of squashfs: owners        6.2      EINVAL
     mount_setattr                            5.12     ENOSYS
     fsconfig, EROFS: device                  5.16     EINVAL
     overlay in a user namespace              5.11     EPERM from FSCONFIG_CMD_CREATE

   These answers were observed on Debian's kernels 5.10.262, 6.1.192 and 6.12.118. COMMAND keeps the
   process ID of this program. Processes that it leaves running are traced until they end.
   Exit code 125: the calls cannot be traced here. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>
#ifndef __x86_64__
#error "this program knows the registers of x86-64 only"
#endif

enum { FSOPEN = 430, FSCONFIG = 431, OPEN_TREE = 428, MOUNT_SETATTR = 442, STATMOUNT = 457 };
enum { SET_STRING = 1, SET_FD = 5, CREATE = 6 };
enum { MNT_ID_UNIQUE = 0x4000, PEERPIDFD = 77, SQUASHFS = 0x73717368 };

/* The kernel to imitate, as 100 * major + minor: 510, 601, 612 or 614. */
static int kernel;

/* The file system that a thread is creating by fsopen and fsconfig, and the error that its creation
   will get. This assumes that a thread finishes one file system before it begins the next. */
static struct making { pid_t thread; char kind[16]; int answer; } makings[4096];

static struct making *making_of(pid_t thread) {
    for (int i = 0; i < 4096; i++)
        if (makings[i].thread == thread || makings[i].thread == 0) { makings[i].thread = thread; return &makings[i]; }
    memset(makings, 0, sizeof makings);
    return making_of(thread);
}

static void read_text(pid_t thread, unsigned long long from, char *to, size_t size) {
    memset(to, 0, size);
    for (size_t at = 0; at + 1 < size; at++) {
        struct iovec ours = {to + at, 1}, theirs = {(void *)(from + at), 1};
        if (process_vm_readv(thread, &ours, 1, &theirs, 1, 0) != 1 || !to[at]) { to[at] = 0; return; }
    }
}

/* Returns 1 if the mount of this descriptor is in the mount namespace of the thread. */
static int sees(pid_t thread, int fd) {
    char path[64], *line = NULL; size_t size = 0; long number = -1; int found = 0;
    snprintf(path, sizeof path, "/proc/%d/fdinfo/%d", thread, fd);
    FILE *file = fopen(path, "r");
    while (file && getline(&line, &size, file) > 0) sscanf(line, "mnt_id: %ld", &number);
    if (file) fclose(file);
    snprintf(path, sizeof path, "/proc/%d/mountinfo", thread);
    file = fopen(path, "r");
    while (file && getline(&line, &size, file) > 0) found |= atol(line) == number;
    if (file) fclose(file);
    free(line);
    return found;
}

/* Returns 1 if the thread is in the initial user namespace. */
static int has_all_users(pid_t thread) {
    char path[64]; long inside = -1, outside = -1, count = 0;
    snprintf(path, sizeof path, "/proc/%d/uid_map", thread);
    FILE *file = fopen(path, "r");
    if (!file) return 1;
    int got = fscanf(file, "%ld %ld %ld", &inside, &outside, &count);
    fclose(file);
    return got == 3 && inside == 0 && outside == 0 && count == 4294967295L;
}

static int is_squashfs(pid_t thread, int fd) {
    char path[64]; struct statfs found;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", thread, fd);
    return !statfs(path, &found) && found.f_type == SQUASHFS;
}

/* Returns the errno with which this call of the thread must fail, or 0 if the call may proceed. */
static int answer(pid_t thread, struct user_regs_struct *call) {
    struct making *making = making_of(thread);
    char name[32], value[4096];
    switch (call->orig_rax) {
    case FSOPEN:
        read_text(thread, call->rdi, making->kind, sizeof making->kind);
        making->answer = 0;
        return 0;
    case OPEN_TREE:
        return sees(thread, (int)call->rdi) ? 0 : EINVAL;
    case MOUNT_SETATTR:
        return kernel < 512 ? ENOSYS : kernel < 602 && is_squashfs(thread, (int)call->rdi) ? EINVAL : 0;
    case SYS_statx:
        call->r10 &= ~(unsigned long long)MNT_ID_UNIQUE;
        ptrace(PTRACE_SETREGS, thread, 0, call);
        return 0;
    case FSCONFIG: break;
    default: return 0;
    }
    int is_overlay = !strcmp(making->kind, "overlay"), is_erofs = !strcmp(making->kind, "erofs");
    if (call->rsi == CREATE)
        return is_overlay && kernel < 511 && !has_all_users(thread) ? EPERM : making->answer;
    read_text(thread, call->rdx, name, sizeof name);
    if (call->rsi == SET_FD && is_overlay) {
        if (kernel < 613) return kernel < 605 ? EOPNOTSUPP : EINVAL;
        if (!sees(thread, (int)call->r8)) making->answer = EINVAL;
    }
    if (call->rsi != SET_STRING) return 0;
    read_text(thread, call->r10, value, sizeof value);
    if (is_erofs && kernel < 516 && !strcmp(name, "device")) return EINVAL;
    if (is_erofs && kernel < 612 && !strcmp(name, "source") && strncmp(value, "/dev/", 5)) making->answer = ENOTBLK;
    int fd;
    if (is_overlay && sscanf(value, "/proc/self/fd/%d", &fd) == 1 && !sees(thread, fd)) making->answer = EINVAL;
    return 0;
}

/* Traces all attached threads until the last one has ended. */
static void attend(void) {
    int status;
    for (pid_t thread; (thread = waitpid(-1, &status, __WALL)) > 0 || errno == EINTR;) {
        if (thread <= 0 || !WIFSTOPPED(status)) continue;
        int event = status >> 16, sent = WSTOPSIG(status);
        if (event == PTRACE_EVENT_SECCOMP) {
            struct user_regs_struct call;
            int error = ptrace(PTRACE_GETREGS, thread, 0, &call) ? 0 : answer(thread, &call);
            if (error) {
                call.orig_rax = -1;
                call.rax = -error;
                ptrace(PTRACE_SETREGS, thread, 0, &call);
            }
        }
        int stops = sent == SIGSTOP || sent == SIGTSTP || sent == SIGTTIN || sent == SIGTTOU;
        if (event == PTRACE_EVENT_STOP && stops) ptrace(PTRACE_LISTEN, thread, 0, 0);
        else ptrace(PTRACE_CONT, thread, 0, event ? 0 : sent);
    }
}

static struct sock_filter filter[64];
static unsigned short steps;

static void step(struct sock_filter one) { filter[steps++] = one; }

/* Adds a filter rule: `action` for this system call. With a mask, only if the argument has one of
   these bits; with a value, only if the argument equals it. */
static void stop_at(int call, int argument, unsigned mask, unsigned value, unsigned action) {
    unsigned short begin = steps++;
    if (mask || value) {
        step((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[argument])));
        step(mask ? (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, mask, 0, 1)
                  : (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1));
    }
    step((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
    step((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    filter[begin] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, steps - begin - 1);
}

/* Installs the seccomp filter. Returns 1 on success. An ordinary user may only do so for programs
   that get no rights by a set-user-id file. */
static int is_filtered(void) {
    if (geteuid() && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 0;
    step((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    stop_at(FSOPEN, 0, 0, 0, SECCOMP_RET_TRACE);
    stop_at(FSCONFIG, 0, 0, 0, SECCOMP_RET_TRACE);
    stop_at(OPEN_TREE, 2, 1, 0, SECCOMP_RET_TRACE);
    stop_at(MOUNT_SETATTR, 0, 0, 0, SECCOMP_RET_TRACE);
    if (kernel < 608) stop_at(STATMOUNT, 0, 0, 0, SECCOMP_RET_ERRNO | ENOSYS);
    if (kernel < 608) stop_at(SYS_statx, 3, MNT_ID_UNIQUE, 0, SECCOMP_RET_TRACE);
    if (kernel < 605) stop_at(SYS_getsockopt, 2, 0, PEERPIDFD, SECCOMP_RET_ERRNO | ENOPROTOOPT);
    step((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    struct sock_fprog program = {steps, filter};
    return !syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}

int main(int count, char **words) {
    int major, minor, ready[2]; char byte = 0;
    if (count < 3 || sscanf(words[1], "%d.%d", &major, &minor) != 2 || pipe2(ready, O_CLOEXEC)) return 125;
    kernel = major * 100 + minor;
    pid_t own = getpid(), child = fork();
    if (child == 0) {
        if (fork()) _exit(0);
        setsid();
        long options = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE;
        byte = !ptrace(PTRACE_SEIZE, own, 0, options);
        int nothing = open("/dev/null", O_RDWR);
        for (int fd = 0; fd < 3; fd++) dup2(nothing, fd);
        if (write(ready[1], &byte, 1) != 1 || !byte) _exit(1);
        for (int fd = 3; fd < 1024; fd++) close(fd);
        attend();
        _exit(0);
    }
    close(ready[1]);
    waitpid(child, NULL, 0);
    if (read(ready[0], &byte, 1) != 1 || !byte || !is_filtered()) {
        fprintf(stderr, "older: cannot trace system calls here: %s\n", strerror(errno));
        return 125;
    }
    execvp(words[2], words + 2);
    fprintf(stderr, "older: %s: %s\n", words[2], strerror(errno));
    return 127;
}
