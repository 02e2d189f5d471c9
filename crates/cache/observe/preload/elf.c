/* Judges programs that are about to be executed: can the library go along? A program of another
 * class or machine, or a static or set-user-id one, would not load the library. A sanitized one
 * would abort because of it. */
#include "common.h"

#include <linux/elf.h>

#define DEPTH 4
#ifndef DT_GNU_HASH
#define DT_GNU_HASH 0x6ffffef5
#endif
#define SEGMENTS 64

struct elf {
    int fd;
    unsigned count;
    Elf64_Phdr segments[SEGMENTS];
    uint64_t strings, strings_size, symbols, hash;
};

static bool read_at(int fd, void *to, size_t size, uint64_t offset)
{
    return raw_pread(fd, to, size, (long)offset) == (long)size;
}

/* Returns the offset in the file of an address of the program, or 0 if the file does not have
 * it. */
static uint64_t file_offset(const struct elf *elf, uint64_t address)
{
    for (unsigned i = 0; i < elf->count; i++) {
        const Elf64_Phdr *s = &elf->segments[i];
        if (s->p_type == PT_LOAD && address - s->p_vaddr < s->p_filesz && address >= s->p_vaddr)
            return address - s->p_vaddr + s->p_offset;
    }
    return 0;
}

/* Reads up to 63 bytes of the string table, and adds a NUL. */
static void string_at(const struct elf *elf, uint64_t at, char to[64])
{
    long size = 0;
    if (at < elf->strings_size)
        size = raw_pread(elf->fd, to, elf->strings_size - at < 63 ? elf->strings_size - at : 63,
                         (long)(elf->strings + at));
    to[size > 0 ? size : 0] = 0;
}

static bool is_runtime(const char *name)
{
    static const char runtimes[][14] = {"libasan.", "liblsan.", "libtsan.", "libhwasan.",
                                           "libmsan.", "libclang_rt."};
    const char *last = name;
    for (const char *at = name; *at; at++)
        if (*at == '/')
            last = at + 1;
    for (unsigned i = 0; i < sizeof runtimes / sizeof *runtimes; i++)
        if (text_after(last, runtimes[i]))
            return true;
    return false;
}

/* Returns true if the program itself defines a symbol, by its GNU hash table. */
static bool defines(const struct elf *elf, const char *symbol)
{
    uint32_t head[4], hash = 5381, bucket, value;
    uint64_t word;
    for (const char *at = symbol; *at; at++)
        hash = hash * 33 + (unsigned char)*at;
    if (!read_at(elf->fd, head, sizeof head, elf->hash) || !head[0] || !head[2])
        return false;
    uint64_t at = elf->hash + sizeof head;
    if (!read_at(elf->fd, &word, 8, at + 8 * (uint64_t)((hash / 64) & (head[2] - 1))))
        return false;
    if (!(word >> (hash % 64) & word >> ((hash >> head[3]) % 64) & 1))
        return false;
    at += 8 * (uint64_t)head[2];
    if (!read_at(elf->fd, &bucket, 4, at + 4 * (uint64_t)(hash % head[0])) || bucket < head[1])
        return false;
    at += 4 * (uint64_t)head[0];
    for (uint32_t i = bucket, tries = 0; tries < 4096; i++, tries++) {
        if (!read_at(elf->fd, &value, 4, at + 4 * (uint64_t)(i - head[1])))
            return false;
        if ((value | 1) == (hash | 1)) {
            Elf64_Sym sym;
            char name[64];
            if (!read_at(elf->fd, &sym, sizeof sym, elf->symbols + (uint64_t)i * sizeof sym))
                return false;
            string_at(elf, sym.st_name, name);
            if (text_equal(name, symbol))
                return true;
        }
        if (value & 1)
            return false;
    }
    return false;
}

static bool is_sanitized(struct elf *elf)
{
    static const char marks[][16] = {"__asan_init", "__tsan_init", "__msan_init",
                                        "__hwasan_init", "__lsan_init"};
    const Elf64_Phdr *dynamic = NULL;
    Elf64_Dyn entries[32];
    char name[64];
    for (unsigned i = 0; i < elf->count; i++)
        if (elf->segments[i].p_type == PT_DYNAMIC)
            dynamic = &elf->segments[i];
    if (!dynamic)
        return false;
    uint64_t count = dynamic->p_filesz / sizeof *entries;
    /* Two rounds, because the place of the strings is known only after the first. */
    for (int round = 0; round < 2; round++) {
        for (uint64_t at = 0; at < count;) {
            uint64_t some = count - at < 32 ? count - at : 32;
            if (!read_at(elf->fd, entries, some * sizeof *entries,
                         dynamic->p_offset + at * sizeof *entries))
                return false;
            at += some;
            for (uint64_t i = 0; i < some; i++) {
                uint64_t value = entries[i].d_un.d_val;
                if (entries[i].d_tag == DT_NULL) {
                    at = count;
                    break;
                }
                if (round == 1) {
                    if (entries[i].d_tag != DT_NEEDED)
                        continue;
                    string_at(elf, value, name);
                    if (is_runtime(name))
                        return true;
                } else if (entries[i].d_tag == DT_STRTAB) {
                    elf->strings = file_offset(elf, value);
                } else if (entries[i].d_tag == DT_STRSZ) {
                    elf->strings_size = value;
                } else if (entries[i].d_tag == DT_SYMTAB) {
                    elf->symbols = file_offset(elf, value);
                } else if (entries[i].d_tag == DT_GNU_HASH) {
                    elf->hash = file_offset(elf, value);
                }
            }
        }
        if (!elf->strings)
            return false;
    }
    if (elf->hash && elf->symbols) {
        for (unsigned i = 0; i < sizeof marks / sizeof *marks; i++)
            if (defines(elf, marks[i]))
                return true;
        return false;
    }
    /* There is no GNU hash table. Search the strings, in pieces that overlap. */
    char piece[4096];
    for (uint64_t at = 0; at < elf->strings_size;) {
        uint64_t some = elf->strings_size - at < sizeof piece ? elf->strings_size - at : sizeof piece;
        if (!read_at(elf->fd, piece, some, elf->strings + at))
            return false;
        for (uint64_t i = 0; i + 12 <= some; i++)
            if (piece[i] == '_' && piece[i + 1] == '_')
                for (unsigned m = 0; m < sizeof marks / sizeof *marks; m++)
                    if (i + text_length(marks[m]) < some &&
                        memcmp(piece + i, marks[m], text_length(marks[m]) + 1) == 0)
                        return true;
        if (some < sizeof piece)
            return false;
        at += some - 32;
    }
    return false;
}

static unsigned judge_elf(int fd, const Elf64_Ehdr *header, long got)
{
    struct elf elf;
    bool interpreter = false;
#if defined(__x86_64__)
    const unsigned machine = EM_X86_64;
#else
    const unsigned machine = EM_AARCH64;
#endif
    if (got < (long)sizeof *header || header->e_ident[4] != ELFCLASS64 || header->e_ident[5] != 1 ||
        header->e_machine != machine || header->e_phentsize != sizeof(Elf64_Phdr))
        return LARDER_DROP_CLASS;
    elf.fd = fd;
    elf.count = header->e_phnum;
    elf.strings = elf.strings_size = elf.symbols = elf.hash = 0;
    if (elf.count > SEGMENTS)
        return LARDER_DROP_UNREADABLE;
    if (!read_at(fd, elf.segments, elf.count * sizeof(Elf64_Phdr), header->e_phoff))
        return LARDER_DROP_UNREADABLE;
    for (unsigned i = 0; i < elf.count; i++)
        interpreter |= elf.segments[i].p_type == PT_INTERP;
    if (!interpreter)
        return LARDER_DROP_STATIC;
    return is_sanitized(&elf) ? LARDER_DROP_SANITIZED : 0;
}

/* Finds the interpreter of a "#!" line as the kernel does. Returns false if there is none. */
static bool script_interpreter(const char *line, long size, char to[256])
{
    long at = 2, length = 0;
    while (at < size && (line[at] == ' ' || line[at] == '\t'))
        at++;
    while (at < size && length < 255 && line[at] && line[at] != ' ' && line[at] != '\t' && line[at] != '\n')
        to[length++] = line[at++];
    to[length] = 0;
    return length > 0;
}

/* Judges one file. Returns 1 if it is a script whose interpreter, in `next`, is to be judged as
 * well. */
static int look(struct target *target, const char *path, struct stat *st, char next[256])
{
    union {
        Elf64_Ehdr header;
        char bytes[256];
    } start;
    char capabilities[64];
    int go_on = 0;
    long result = raw_stat(AT_FDCWD, path, st, 0);
    if (result < 0) {
        target->error = (int)-result;
        return 0;
    }
    if ((st->st_mode & TYPE_MASK) != TYPE_REGULAR || !(st->st_mode & 0111))
        return 0; /* executing it will fail by itself */
    if (known_verdict(st, &target->reason))
        return 0;
    long fd = raw_open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        if (raw_access(path, 1) == 0)
            target->reason = LARDER_DROP_UNREADABLE;
        return 0;
    }
    long got = raw_pread((int)fd, start.bytes, sizeof start.bytes, 0);
    if (got >= 2 && start.bytes[0] == '#' && start.bytes[1] == '!') {
        go_on = script_interpreter(start.bytes, got, next);
    } else if (got >= 16 && memcmp(start.bytes, "\177ELF", 4) == 0) {
        if ((st->st_mode & 04000) || (st->st_mode & 02010) == 02010 ||
            raw_fgetxattr((int)fd, "security.capability", capabilities, sizeof capabilities) > 0)
            target->reason = LARDER_DROP_SUID;
        else
            target->reason = judge_elf((int)fd, &start.header, got);
        verdict_is_known(st, target->reason);
    } else if (got < 0) {
        target->reason = LARDER_DROP_UNREADABLE;
    }
    raw_close((int)fd);
    return go_on;
}

void target_look(struct target *target, const char *path)
{
    char next[256];
    struct stat st;
    target->error = 0;
    target->reason = 0;
    target->script = false;
    memset(&target->st, 0, sizeof target->st);
    if (!look(target, path, &target->st, next))
        return;
    for (int depth = 0; depth < DEPTH; depth++) {
        memcpy(target->final, next, sizeof next);
        target->script = true;
        bool more = look(target, target->final, &st, next);
        struct larder_event event = event_new(LARDER_STAT, false);
        struct text text;
        event.error = target->error;
        if (!event.error)
            event_stat(&event, &st);
        target->error = 0; /* the script itself exists; executing it will report the error */
        text_path(&text, AT_FDCWD, target->final);
        log_write(&event, &text, NULL);
        if (!more)
            return;
    }
}
