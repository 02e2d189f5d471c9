/* Looking up the next definition of each interposed function. */
#include "real.h"

extern WEAK void *dlsym(void *handle, const char *name);
extern WEAK char *dlerror(void);

#define RTLD_NEXT ((void *)-1l)

void *real_table[R_COUNT];

static long missing_number(void)
{
    if (__errno_location)
        errno = ENOSYS;
    return -1;
}

static void *missing_pointer(void)
{
    if (__errno_location)
        errno = ENOSYS;
    return NULL;
}

/* One after the other, and where each begins: pointers would be relocated in every process. */
static const struct {
#define TEXT(name) char name_##name[sizeof #name];
    REAL_LIST(TEXT, TEXT)
#undef TEXT
} texts = {
#define TEXT(name) #name,
    REAL_LIST(TEXT, TEXT)
#undef TEXT
};

static const uint16_t begins[R_COUNT] = {
#define BEGIN(name) [R_##name] = __builtin_offsetof(__typeof__(texts), name_##name),
    REAL_LIST(BEGIN, BEGIN)
#undef BEGIN
};

static const bool gives_pointer[R_COUNT] = {
#define NUMBER(name)
#define POINTER(name) [R_##name] = true,
    REAL_LIST(NUMBER, POINTER)
#undef NUMBER
#undef POINTER
};

bool real_ready(void) { return dlsym != NULL; }

const char *real_name(enum real which) { return (const char *)&texts + begins[which]; }

void *real_find(enum real which)
{
    int before = __errno_location ? errno : 0;
    void *found = dlsym ? dlsym(RTLD_NEXT, real_name(which)) : NULL;
    if (!found)
        found = gives_pointer[which] ? (void *)missing_pointer : (void *)missing_number;
    if (__errno_location)
        errno = before;
    __atomic_store_n(&real_table[which], found, __ATOMIC_RELAXED);
    return found;
}

bool real_has(enum real which)
{
    void *found = real_get(which);
    return found != (void *)missing_pointer && found != (void *)missing_number;
}

void real_find_core(void)
{
    static const enum real core[] = {R_execve, R_open, R_open64, R_chdir, R_unlink, R_getenv};
    for (unsigned i = 0; i < sizeof core / sizeof *core; i++)
        real_get(core[i]);
}

void real_find_all(void)
{
    static bool done;
    bool some_missing = false;
    if (done)
        return;
    done = true;
    for (int which = 0; which < R_COUNT; which++)
        some_missing |= !real_has((enum real)which);
    if (some_missing && dlerror)
        dlerror(); /* or the tool would be told of a failure that is ours */
}
