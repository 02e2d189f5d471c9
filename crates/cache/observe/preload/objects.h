/* The objects of this process as the dynamic loader lists them, and the symbols that each
 * defines. */
#ifndef LARDER_OBJECTS_H
#define LARDER_OBJECTS_H

#include "common.h"

#include <linux/elf.h>

/* The first members of libc's structure of this name (link.h). */
struct dl_phdr_info {
    unsigned long address;
    const char *name;
    const Elf64_Phdr *phdr;
    uint16_t phnum;
};

/* Calls `each` for the program, the preloaded objects and the libraries, in the order in which the
 * loader searches them, until it returns something else than 0. All libcs that we know have it. */
extern WEAK int dl_iterate_phdr(int (*each)(struct dl_phdr_info *, size_t, void *), void *data);

/* What the dynamic section of an object says. Missing entries are NULL or 0. */
struct object {
    unsigned long address; /* is added to addresses in the file */
    const char *own_name;  /* DT_SONAME */
    const char *names;     /* DT_STRTAB */
    Elf64_Sym *symbols;    /* DT_SYMTAB */
    const uint16_t *versions;
    const uint32_t *gnu_hash, *hash;
    const Elf64_Rela *relocations;
    size_t relocations_size; /* bytes */
};

/* Returns true if the object is this library. */
bool object_is_own(const struct dl_phdr_info *info);
/* Returns false if the object has no dynamic section with names and symbols. */
bool object_read(const struct dl_phdr_info *info, struct object *object);

/* A name that is looked up in several objects. Its hashes are computed once. */
struct wanted {
    const char *name;
    uint32_t gnu_hash, hash;
};
struct wanted wanted(const char *name);
/* Returns the symbol of this name that the object defines, or NULL. A default version is preferred.
 * A version that only older programs use (foo@VERSION) is returned if there is no other. */
Elf64_Sym *object_defines(const struct object *object, const struct wanted *wanted, bool *is_default);
/* Returns how many symbols precede the first one that the object defines. These are the symbols
 * that the object needs from others. */
size_t object_needed_count(const struct object *object);
/* Returns the address of a function. A resolver in the object may choose it (STT_GNU_IFUNC). */
void *object_address(const struct object *object, const Elf64_Sym *symbol);

#endif
