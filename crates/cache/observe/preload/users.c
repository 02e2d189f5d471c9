/* Names of users and groups. libc reads them from files, and the library does not see that. Whether a
 * program asks for a name may depend on its arguments, so one observed run does not tell. */
#include "real.h"

/* Writes an OPEN, as if the program had read the file itself. */
static void read_names(const char *path)
{
    if (!log_on())
        return;
    int before = errno;
    struct stat st;
    long result = raw_stat(AT_FDCWD, path, &st, 0);
    looked_event(LARDER_OPEN, LARDER_OPEN_READ, path, result, &st);
    errno = before;
}

#define NAMES(type, name, file, declared, passed)                                           \
    EXPORT type name declared                                                               \
    {                                                                                       \
        type result = REAL(name) passed;                                                    \
        read_names(file);                                                                   \
        return result;                                                                      \
    }
#define USERS "/etc/passwd"
#define GROUPS "/etc/group"
NAMES(void *, getpwnam, USERS, (const char *user), (user))
NAMES(void *, getpwuid, USERS, (unsigned user), (user))
NAMES(void *, getpwent, USERS, (void), ())
NAMES(void *, getgrnam, GROUPS, (const char *group), (group))
NAMES(void *, getgrgid, GROUPS, (unsigned group), (group))
NAMES(void *, getgrent, GROUPS, (void), ())
#define TEXT void *to, char *text, size_t size, void **found
NAMES(int, getpwnam_r, USERS, (const char *user, TEXT), (user, to, text, size, found))
NAMES(int, getpwuid_r, USERS, (unsigned user, TEXT), (user, to, text, size, found))
NAMES(int, getpwent_r, USERS, (TEXT), (to, text, size, found))
NAMES(int, getgrnam_r, GROUPS, (const char *group, TEXT), (group, to, text, size, found))
NAMES(int, getgrgid_r, GROUPS, (unsigned group, TEXT), (group, to, text, size, found))
NAMES(int, getgrent_r, GROUPS, (TEXT), (to, text, size, found))
NAMES(int, getgrouplist, GROUPS, (const char *user, unsigned group, unsigned *groups, int *count),
      (user, group, groups, count))
NAMES(int, initgroups, GROUPS, (const char *user, unsigned group), (user, group))
