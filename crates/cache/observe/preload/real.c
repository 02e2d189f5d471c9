/* Looks up the next definition of each interposed function, as dlsym(RTLD_NEXT) would find it.
 *
 * dlsym itself is not used. Before glibc 2.34 it is in libdl, which gcc, dash and cat are not
 * linked with. It also changes what dlerror returns to the tool. */
#include "objects.h"
#include "real.h"

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

/* The names of all functions in one block, and the offset of each. The loader would have to
 * relocate an array of pointers in every process. */
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

bool real_ready(void) { return dl_iterate_phdr != NULL; }

const char *real_name(enum real which) { return (const char *)&texts + begins[which]; }

struct search {
    struct wanted wanted;
    bool is_behind; /* the search has passed this library */
    void *found;
    void *older; /* a symbol version that only older programs use */
};

static int each_behind(struct dl_phdr_info *info, size_t size, void *data)
{
    struct search *search = data;
    struct object object;
    bool is_default;
    (void)size;
    if (!search->is_behind) {
        search->is_behind = object_is_own(info);
        return 0;
    }
    /* The kernel's own object (vDSO) is in the list, but the loader does not search it. */
    if (!object_read(info, &object) || (object.own_name && text_after(object.own_name, "linux-")))
        return 0;
    const Elf64_Sym *symbol = object_defines(&object, &search->wanted, &is_default);
    if (symbol && is_default)
        search->found = object_address(&object, symbol);
    else if (symbol && !search->older)
        search->older = object_address(&object, symbol);
    return search->found != NULL;
}

static void *find_behind(const char *name)
{
    struct search search = {.wanted = wanted(name)};
    if (dl_iterate_phdr)
        dl_iterate_phdr(each_behind, &search);
    return search.found ? search.found : search.older;
}

void *real_find(enum real which)
{
    int before = __errno_location ? errno : 0;
    void *found = find_behind(real_name(which));
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
    static const enum real core[] = {R_execve, R_open, R_open64, R_chdir, R_unlink, R_getenv, R_close,
                                     R_read, R_write, R_dup, R_dup2, R_fcntl, R_fork, R_mmap};
    for (unsigned i = 0; i < sizeof core / sizeof *core; i++)
        real_get(core[i]);
}
