/* refuse REFUSAL... -- COMMAND: runs COMMAND under a seccomp filter that makes some system calls
 * fail.
 *
 * REFUSAL is FIRST[-LAST][@ARGUMENT:VALUE | @ARGUMENT&BITS]=ERROR, where all words are numbers.
 * System calls from FIRST to LAST fail with the errno ERROR. With a condition, they fail only if
 * argument number ARGUMENT (counted from 0) has this VALUE, or has one of these BITS set. For
 * example, `437=38` imitates a kernel without openat2, and `317@1&8=22` one whose seccomp has no
 * notifications. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STEPS_MAX 4000
#define LOAD(field) (struct sock_filter) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))

static struct sock_filter steps[STEPS_MAX + 8];
static unsigned short count;

static void add(struct sock_filter step)
{
    if (count >= STEPS_MAX) {
        fprintf(stderr, "refuse: too many refusals\n");
        exit(125);
    }
    steps[count++] = step;
}

static unsigned number(char **at)
{
    char *end;
    unsigned long value = strtoul(*at, &end, 0);
    if (end == *at) {
        fprintf(stderr, "refuse: not a number: %s\n", *at);
        exit(125);
    }
    *at = end;
    return (unsigned)value;
}

static void refuse(char *text)
{
    unsigned first = number(&text), last = first, value = 0, argument = 0;
    char condition = 0;
    if (*text == '-') {
        text++;
        last = number(&text);
    }
    if (*text == '@') {
        text++;
        argument = number(&text);
        condition = *text++;
        value = number(&text);
    }
    text += *text == '=';
    unsigned error = number(&text);
    unsigned char skip = condition ? 3 : 1;
    add(LOAD(nr));
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, first, 0, (unsigned char)(skip + 1)));
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, last, skip, 0));
    if (condition) {
        add(LOAD(args[argument]));
        unsigned short test = condition == '&' ? BPF_JSET : BPF_JEQ;
        add((struct sock_filter)BPF_JUMP(BPF_JMP | test | BPF_K, value, 0, 1));
    }
    add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error));
}

int main(int argc, char **argv)
{
    int at = 1;
    for (; at < argc && strcmp(argv[at], "--"); at++)
        refuse(argv[at]);
    add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    struct sock_fprog program = {count, steps};
    /* The superuser may install a filter without no_new_privs. Then set-user-ID programs keep their
     * rights, as they do elsewhere. */
    if (geteuid() != 0)
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (count > 1 && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) {
        fprintf(stderr, "refuse: cannot install the seccomp filter: %s\n", strerror(errno));
        return 125;
    }
    if (at + 1 < argc)
        execvp(argv[at + 1], argv + at + 1);
    return 127;
}
