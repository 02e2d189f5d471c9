/* The program that the preloaded library is tried on (src/preload/self_test.rs).
 *
 * It has no start files and no interpreter of its own: the path of the loader that is to be tried
 * replaces the one that it was linked with. It needs one library, libc.so.6, which is the name of
 * libc for glibc's loader. musl's loader takes any libc.* for its own libc.
 *
 * It does what every tool does and checks the results. Its exit code is SUCCESS, or the number of
 * the first step whose result differs from that without the library. */

#define SUCCESS 42
#define ENOENT 2

extern int open(const char *path, int flags, ...);
extern long read(int fd, void *to, unsigned long size);
extern int close(int fd);
extern int access(const char *path, int mode);
extern void *fopen(const char *path, const char *mode);
extern int fclose(void *file);
extern char *getenv(const char *name);
extern char *realpath(const char *path, char *to);
extern int *__errno_location(void);
extern void _exit(int code) __attribute__((noreturn));

static int first_wrong_step(void)
{
    char head[4] = {0};
    int fd = open("/proc/self/exe", 0);
    if (fd < 0)
        return 1;
    if (read(fd, head, 4) != 4 || head[0] != 0x7f || head[1] != 'E')
        return 2;
    if (close(fd) != 0)
        return 3;
    if (access("/larder/self-test/nothing", 0) != -1 || *__errno_location() != ENOENT)
        return 4;
    void *file = fopen("/proc/self/exe", "r");
    if (!file || fclose(file) != 0)
        return 5;
    const char *set = getenv("LARDER_SELF_TEST");
    if (!set || set[0] != '1')
        return 6;
    if (getenv("LARDER_PRELOAD_LOG") || getenv("LD_PRELOAD")) /* the library removes both */
        return 7;
    if (!realpath("/proc", 0))
        return 8;
    return SUCCESS;
}

__attribute__((used, noreturn)) static void run(void) { _exit(first_wrong_step()); }

#if defined(__x86_64__)
__asm__(".globl _start\n_start:\n xor %ebp, %ebp\n and $-16, %rsp\n call run\n");
#elif defined(__aarch64__)
__asm__(".globl _start\n_start:\n mov x29, xzr\n mov x30, xzr\n bl run\n");
#endif
