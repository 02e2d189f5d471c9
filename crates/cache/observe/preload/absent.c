/* Hides functions that this library has and the program's libc lacks.
 *
 * A program finds out whether a function exists by a weak reference or by dlsym. For example,
 * Rust's standard library calls posix_spawn_file_actions_addchdir_np if there is one (glibc 2.29),
 * and forks if there is none. It must not find ours, which would have nothing to call. So when the
 * library begins:
 *
 *  1. It looks in the objects behind this one for each function that is newer than the oldest
 *     supported libc.
 *  2. It copies this library's symbol table without the functions that are missing, and points
 *     the dynamic section to the copy. glibc's loader reads that entry at each search, so later
 *     searches (dlsym, dlopen, lazy binding) do not find the functions.
 *  3. It sets weak references that the loader has already bound to this library to 0, as the loader
 *     would have left them.
 *
 * musl's loader keeps the address of the table for itself, so step 2 has no effect there. */
#include "objects.h"
#include "real.h"

#define SYMBOLS_MAX 384
#define PROTECT_READ 1
#define PROTECT_WRITE 2
#define PAGE_BYTES_KEY 6 /* AT_PAGESZ */
#ifndef PT_GNU_RELRO
#define PT_GNU_RELRO 0x6474e552
#endif
#if defined(__x86_64__)
#define RELOCATION_WORD 1   /* R_X86_64_64 */
#define RELOCATION_SLOT 6   /* R_X86_64_GLOB_DAT */
#else
#define RELOCATION_WORD 257  /* R_AARCH64_ABS64 */
#define RELOCATION_SLOT 1025 /* R_AARCH64_GLOB_DAT */
#endif

extern WEAK unsigned long getauxval(unsigned long type);

/* Functions that are newer than glibc 2.17, by glibc's release notes: 2.23, 2.25, 2.27, 2.28, 2.29,
 * 2.30, 2.33, 2.34, 2.36, 2.39, 2.43. Before 2.34, pthread_create is in a library of its own, and
 * programs take its existence for the sign that there are threads. */
static const uint16_t newer[] = {
    R_fts64_open, R_getrandom, R_getentropy, R_statx, R_renameat2, R_posix_spawn_file_actions_addchdir_np,
    R_posix_spawn_file_actions_addfchdir_np, R_getdents64, R_stat, R_lstat, R_fstatat, R_stat64, R_lstat64, R_fstatat64,
    R_mknod, R_mknodat, R_execveat, R_arc4random, R_arc4random_buf, R_arc4random_uniform, R_pidfd_spawn, R_pidfd_spawnp,
    R_posix_spawn_file_actions_addchdir, R_posix_spawn_file_actions_addfchdir, R_copy_file_range, R_memfd_create,
    R_fcntl64, R__Fork, R_pthread_create,
};

/* A copy of this library's symbol table without the missing functions. It is unused if none is
 * missing. */
static Elf64_Sym symbols[SYMBOLS_MAX];

struct own_object {
    struct object object;
    Elf64_Dyn *table; /* the entry with the address of the symbol table */
};

static int find_own_object(struct dl_phdr_info *info, size_t size, void *data)
{
    struct own_object *found = data;
    (void)size;
    if (!object_is_own(info))
        return 0;
    if (!object_read(info, &found->object))
        return 1;
    for (unsigned i = 0; i < info->phnum; i++)
        if (info->phdr[i].p_type == PT_DYNAMIC)
            found->table = (Elf64_Dyn *)(info->address + info->phdr[i].p_vaddr);
    while (found->table && found->table->d_tag != DT_SYMTAB)
        found->table = found->table->d_tag == DT_NULL ? NULL : found->table + 1;
    return 1;
}

/* Returns how many symbols an object has, by its hash table: the last chain ends with the last
 * symbol. */
static size_t symbol_count(const struct object *object)
{
    if (!object->gnu_hash)
        return object->hash ? object->hash[1] : 0;
    uint32_t count = object->gnu_hash[0], first = object->gnu_hash[1], last = 0;
    const uint32_t *buckets = (const uint32_t *)((const uint64_t *)(object->gnu_hash + 4) + object->gnu_hash[2]);
    const uint32_t *chain = buckets + count;
    for (uint32_t i = 0; i < count; i++)
        last = buckets[i] > last ? buckets[i] : last;
    if (last < first)
        return first;
    while (!(chain[last++ - first] & 1))
        ;
    return last;
}

/* Writes a word that the loader may have made read-only after it had bound everything (RELRO). If
 * the page cannot be made writable, the word is not written. The program then finds a function that
 * fails with ENOSYS, and such a failure is not recorded. */
static void set_word(const struct dl_phdr_info *info, unsigned long *at, unsigned long value)
{
    unsigned long page = getauxval ? getauxval(PAGE_BYTES_KEY) : 0;
    void *start = (void *)((unsigned long)at & -page);
    bool is_read_only = false;
    for (unsigned i = 0; i < info->phnum; i++)
        is_read_only |= info->phdr[i].p_type == PT_GNU_RELRO &&
                        (unsigned long)at - info->address - info->phdr[i].p_vaddr < info->phdr[i].p_memsz;
    if (is_read_only && (!page || raw_mprotect(start, page, PROTECT_READ | PROTECT_WRITE) != 0))
        return;
    *at = value;
    if (is_read_only)
        raw_mprotect(start, page, PROTECT_READ);
}

static int use_symbols(struct dl_phdr_info *info, size_t size, void *data)
{
    struct own_object *own_object = data;
    (void)size;
    if (!object_is_own(info))
        return 0;
    unsigned long *at = (unsigned long *)&own_object->table->d_un.d_ptr;
    set_word(info, at, (unsigned long)symbols - (*at < info->address ? info->address : 0));
    return 1;
}

/* Unbinds the references of one object to one of its symbols, if they are bound to `address`. */
static void unbind_all(const struct dl_phdr_info *info, const struct object *object, size_t symbol,
                       unsigned long address)
{
    for (size_t i = 0; i < object->relocations_size / sizeof *object->relocations; i++) {
        const Elf64_Rela *relocation = &object->relocations[i];
        unsigned type = (uint32_t)relocation->r_info;
        unsigned long *at = (unsigned long *)(info->address + relocation->r_offset);
        if (relocation->r_info >> 32 == symbol && (type == RELOCATION_WORD || type == RELOCATION_SLOT) && *at == address)
            set_word(info, at, 0);
    }
}

static int unbind_weak(struct dl_phdr_info *info, size_t size, void *data)
{
    struct own_object *own_object = data;
    struct object object;
    (void)size;
    if (object_is_own(info) || !object_read(info, &object))
        return 0;
    size_t count = object_needed_count(&object);
    for (size_t i = 1; i < count; i++) {
        const Elf64_Sym *symbol = &object.symbols[i];
        bool is_default;
        if (symbol->st_info >> 4 != STB_WEAK || symbol->st_shndx != SHN_UNDEF)
            continue;
        struct wanted name = wanted(object.names + symbol->st_name);
        /* Look in the original table, because the copy does not have the symbol any more. */
        const Elf64_Sym *ours = object_defines(&own_object->object, &name, &is_default);
        if (ours && symbols[ours - own_object->object.symbols].st_shndx == SHN_UNDEF)
            unbind_all(info, &object, i, own_object->object.address + ours->st_value);
    }
    return 0;
}

void hide_absent(void)
{
    struct own_object own_object = {.table = NULL};
    size_t count = 0;
    if (!dl_iterate_phdr)
        return;
    for (unsigned i = 0; i < sizeof newer / sizeof *newer; i++) {
        struct wanted name = wanted(real_name(newer[i]));
        bool is_default;
        if (real_has(newer[i]))
            continue;
        if (!count) {
            dl_iterate_phdr(find_own_object, &own_object);
            count = own_object.table ? symbol_count(&own_object.object) : 0;
            if (!count || count > SYMBOLS_MAX)
                return;
            memcpy(symbols, own_object.object.symbols, count * sizeof *symbols);
        }
        const Elf64_Sym *symbol = object_defines(&own_object.object, &name, &is_default);
        if (symbol) {
            symbols[symbol - own_object.object.symbols].st_shndx = SHN_UNDEF;
            symbols[symbol - own_object.object.symbols].st_value = 0;
        }
    }
    if (!count)
        return;
    dl_iterate_phdr(use_symbols, &own_object);
    dl_iterate_phdr(unbind_weak, &own_object);
}
