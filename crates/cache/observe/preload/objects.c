/* Reads what the dynamic loader has in memory: dynamic sections and symbol tables (System V ABI,
 * chapter 5; the GNU hash table as glibc's loader reads it). */
#include "objects.h"

#ifndef DT_GNU_HASH
#define DT_GNU_HASH 0x6ffffef5
#endif
#ifndef DT_VERSYM
#define DT_VERSYM 0x6ffffff0
#endif
#ifndef DT_SONAME
#define DT_SONAME 14
#endif
#ifndef STT_GNU_IFUNC
#define STT_GNU_IFUNC 10
#endif
#define VERSION_HIDDEN 0x8000u
#define VERSION_LOCAL 0u

extern WEAK unsigned long getauxval(unsigned long type);

bool object_is_own(const struct dl_phdr_info *info)
{
    unsigned long here = (unsigned long)&own;
    for (unsigned i = 0; i < info->phnum; i++)
        if (info->phdr[i].p_type == PT_LOAD && here - info->address >= info->phdr[i].p_vaddr &&
            here - info->address - info->phdr[i].p_vaddr < info->phdr[i].p_memsz)
            return true;
    return false;
}

/* Converts an address of the dynamic section. glibc's loader has made these addresses absolute.
 * musl's has not, and no loader does so for the kernel's own object. */
static const void *pointer(const struct object *object, unsigned long value)
{
    return (const void *)(value < object->address ? object->address + value : value);
}

bool object_read(const struct dl_phdr_info *info, struct object *object)
{
    const Elf64_Dyn *entry = NULL;
    unsigned long own_name = 0;
    memset(object, 0, sizeof *object);
    object->address = info->address;
    for (unsigned i = 0; i < info->phnum; i++)
        if (info->phdr[i].p_type == PT_DYNAMIC)
            entry = (const Elf64_Dyn *)(info->address + info->phdr[i].p_vaddr);
    for (; entry && entry->d_tag != DT_NULL; entry++) {
        unsigned long value = entry->d_un.d_val;
        switch (entry->d_tag) {
        case DT_STRTAB: object->names = pointer(object, value); break;
        case DT_SYMTAB: object->symbols = (Elf64_Sym *)pointer(object, value); break;
        case DT_VERSYM: object->versions = pointer(object, value); break;
        case DT_GNU_HASH: object->gnu_hash = pointer(object, value); break;
        case DT_HASH: object->hash = pointer(object, value); break;
        case DT_RELA: object->relocations = pointer(object, value); break;
        case DT_RELASZ: object->relocations_size = value; break;
        case DT_SONAME: own_name = value; break;
        default: break;
        }
    }
    if (object->names && own_name)
        object->own_name = object->names + own_name;
    return object->names && object->symbols;
}

struct wanted wanted(const char *name)
{
    struct wanted wanted = {name, 5381, 0};
    for (const unsigned char *at = (const unsigned char *)name; *at; at++) {
        wanted.gnu_hash = wanted.gnu_hash * 33 + *at;
        wanted.hash = (wanted.hash << 4) + *at;
        wanted.hash = (wanted.hash ^ (wanted.hash >> 24 & 0xf0)) & 0x0fffffff;
    }
    return wanted;
}

/* Returns true if symbol `index` defines the wanted name. `*is_default` tells whether its version
 * is the default one (objects.h). */
static bool matches(const struct object *object, const struct wanted *wanted, uint32_t index, bool *is_default)
{
    const Elf64_Sym *symbol = &object->symbols[index];
    unsigned type = symbol->st_info & 0xf;
    if (symbol->st_shndx == SHN_UNDEF || !symbol->st_value ||
        (type != STT_NOTYPE && type != STT_FUNC && type != STT_GNU_IFUNC) ||
        !text_equal(object->names + symbol->st_name, wanted->name))
        return false;
    uint16_t version = object->versions ? object->versions[index] : 1;
    *is_default = !(version & VERSION_HIDDEN);
    return version != VERSION_LOCAL;
}

Elf64_Sym *object_defines(const struct object *object, const struct wanted *wanted, bool *is_default)
{
    Elf64_Sym *older = NULL;
    if (object->gnu_hash) {
        uint32_t count = object->gnu_hash[0], first = object->gnu_hash[1], words = object->gnu_hash[2];
        uint32_t hash = wanted->gnu_hash, other = hash >> object->gnu_hash[3];
        const uint64_t *filter = (const uint64_t *)(object->gnu_hash + 4);
        const uint32_t *buckets = (const uint32_t *)(filter + words), *chain = buckets + count;
        if (!count || !words || !(filter[hash / 64 % words] >> hash % 64 & filter[hash / 64 % words] >> other % 64 & 1))
            return NULL;
        uint32_t index = buckets[hash % count];
        if (index < first)
            return NULL;
        do {
            if ((chain[index - first] | 1) == (hash | 1) && matches(object, wanted, index, is_default)) {
                if (*is_default)
                    return &object->symbols[index];
                older = &object->symbols[index];
            }
        } while (!(chain[index++ - first] & 1));
    } else if (object->hash && object->hash[0]) {
        const uint32_t *buckets = object->hash + 2, *chain = buckets + object->hash[0];
        for (uint32_t index = buckets[wanted->hash % object->hash[0]]; index; index = chain[index])
            if (matches(object, wanted, index, is_default)) {
                if (*is_default)
                    return &object->symbols[index];
                older = &object->symbols[index];
            }
    }
    *is_default = false;
    return older;
}

size_t object_needed_count(const struct object *object)
{
    return object->gnu_hash ? object->gnu_hash[1] : object->hash ? object->hash[1] : 0;
}

void *object_address(const struct object *object, const Elf64_Sym *symbol)
{
    unsigned long address = object->address + symbol->st_value;
    if ((symbol->st_info & 0xf) != STT_GNU_IFUNC)
        return (void *)address;
#if defined(__aarch64__)
    /* Call the resolver as glibc's loader does: with the capabilities, in them a flag that says
     * that there is a second argument, and that argument. */
    enum { CAPABILITIES = 16, CAPABILITIES_2 = 26 };
    struct {
        unsigned long size, capabilities, capabilities_2;
    } more = {sizeof more, getauxval ? getauxval(CAPABILITIES) : 0, getauxval ? getauxval(CAPABILITIES_2) : 0};
    return ((void *(*)(unsigned long, void *))address)(more.capabilities | 1ul << 62, &more);
#else
    return ((void *(*)(void))address)();
#endif
}
