/* A program for larder to observe. It reads a file and a directory, and writes what it found. It is
 * built in several ways, because the linking of a program decides how larder can observe it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef OWN_MALLOC
static char heap[1 << 20];
static size_t used;
void *malloc(size_t size)
{
    size_t at = used;
    used += (size + 31) & ~(size_t)31;
    return used <= sizeof heap ? heap + at : NULL;
}
void free(void *memory) { (void)memory; }
void *calloc(size_t count, size_t size) { return malloc(count * size); }
void *realloc(void *memory, size_t size)
{
    void *other = malloc(size);
    if (other && memory)
        memmove(other, memory, (size_t)(heap + sizeof heap - (char *)memory) < size ? 0 : size);
    return other;
}
#endif

#ifdef OWN_OPEN
int open(const char *path, int flags, ...) { return (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0666); }
#endif

int main(int argc, char **argv)
{
    char text[4096];
    struct stat stat_of;
    int from, names = 0;
    ssize_t length;
    DIR *dir;
    FILE *to;
    if (argc != 4 || (from = open(argv[1], O_RDONLY)) < 0)
        return 2;
    length = read(from, text, sizeof text);
    close(from);
    if (length < 0 || stat(argv[1], &stat_of) || !(dir = opendir(argv[2])))
        return 3;
    while (readdir(dir))
        names++;
    closedir(dir);
    if (!(to = fopen(argv[3], "w")))
        return 4;
    fprintf(to, "%.*s%ld bytes, %d names, local %d\n", (int)length, text, (long)stat_of.st_size, names,
            access("absent", F_OK) == 0);
    puts("done");
    return fclose(to) != 0;
}
