/* Stands in front of the compiler and does the least that a cache could do. If a file with the object's
 * name was kept, it copies that file and the depfile. Otherwise it executes the compiler. It checks no
 * inputs. It is compiled with TREE, the build tree, and KEPT, a copy of that tree after a build. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char tree[] = TREE, kept[] = KEPT;

/* Opens the kept file for `name`, which is relative to the working directory. Returns -1 if there is
 * none, or if its path is too long. */
static int kept_file(const char *name) {
    char path[PATH_MAX], from[PATH_MAX];
    if (*name == '/') {
        if (snprintf(path, sizeof path, "%s", name) >= (int)sizeof path) return -1;
    } else {
        if (!getcwd(path, sizeof path)) return -1;
        size_t length = strlen(path);
        if (snprintf(path + length, sizeof path - length, "/%s", name) >= (int)(sizeof path - length)) return -1;
    }
    if (strncmp(path, tree, sizeof tree - 1) || path[sizeof tree - 1] != '/') return -1;
    if (snprintf(from, sizeof from, "%s%s", kept, path + sizeof tree - 1) >= (int)sizeof from) return -1;
    return open(from, O_RDONLY | O_CLOEXEC);
}

static int put(int from, const char *name) {
    struct stat about;
    int to = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (to < 0 || fstat(from, &about)) return 0;
    for (off_t left = about.st_size; left > 0;) {
        ssize_t moved = copy_file_range(from, NULL, to, NULL, (size_t)left, 0);
        if (moved <= 0) return 0;
        left -= moved;
    }
    return 1;
}

/* Writes `name` with another extension to `to`, in the working directory if `here`. Returns 0 if it is
 * too long. */
static int with_end(char *to, size_t size, const char *name, const char *end, int here) {
    const char *slash = here ? strrchr(name, '/') : NULL;
    const char *base = slash ? slash + 1 : name;
    const char *dot = strrchr(base, '.');
    int length = dot && !strchr(dot, '/') ? (int)(dot - base) : (int)strlen(base);
    return snprintf(to, size, "%.*s%s", length, base, end) < (int)size;
}

int main(int count, char **args) {
    const char *object = NULL, *depfile = NULL, *source = NULL;
    int compiles = 0, depends = 0;
    for (int at = 2; at < count; at++) {
        const char *word = args[at];
        if (!strcmp(word, "-c")) compiles = 1;
        else if (!strcmp(word, "-MD") || !strcmp(word, "-MMD")) depends = 1;
        else if (!strcmp(word, "-o") && at + 1 < count) object = args[++at];
        else if (!strcmp(word, "-MF") && at + 1 < count) depfile = args[++at];
        else if (!strcmp(word, "-MT") || !strcmp(word, "-MQ") || !strcmp(word, "-include") || !strcmp(word, "-I")) at++;
        else if (*word != '-') source = word;
    }
    char object_name[PATH_MAX], depfile_name[PATH_MAX];
    if (compiles && !object && source && with_end(object_name, sizeof object_name, source, ".o", 1)) object = object_name;
    if (depends && object && !depfile && with_end(depfile_name, sizeof depfile_name, object, ".d", 0))
        depfile = depfile_name;
    int from = compiles && object ? kept_file(object) : -1;
    int depends_on = from >= 0 && depfile ? kept_file(depfile) : -1;
    if (from >= 0 && put(from, object) && (depends_on < 0 || put(depends_on, depfile))) return 0;
    if (count > 1) execvp(args[1], args + 1);
    return 127;
}
