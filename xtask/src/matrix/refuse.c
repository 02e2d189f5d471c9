/* Runs a command with system calls refused, by their numbers, as an old kernel or a container's seccomp profile refuses them:
 *     refuse ERRNO NUMBER[-NUMBER]... -- COMMAND... */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct sock_filter filter[256];
    unsigned short length = 0;
    int at = 2;
    unsigned error = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (; at < argc && strcmp(argv[at], "--"); at++) {
        unsigned from = 0, to = 0;
        int read = sscanf(argv[at], "%u-%u", &from, &to);
        if (read < 1 || length > 250)
            return 125;
        if (read == 1)
            to = from;
        /* from <= number <= to: refuse, else the next test. */
        filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, from, 0, 2);
        filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, to, 1, 0);
        filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error);
    }
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    if (at + 1 >= argc) {
        fprintf(stderr, "refuse ERRNO NUMBER[-NUMBER]... -- COMMAND...\n");
        return 125;
    }
    struct sock_fprog program = {length, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        perror("refuse: seccomp");
        return 125;
    }
    execvp(argv[at + 1], argv + at + 1);
    perror(argv[at + 1]);
    return 127;
}
