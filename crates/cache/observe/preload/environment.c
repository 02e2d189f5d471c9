/* The start of the library in a program: finds the log and the library's own path, removes both
 * variables from the tool's environment, and writes the START and OBJECT events. Also adds the two
 * variables to the environment of the programs that are executed next. */
#include "objects.h"
#include "real.h"

struct own own;

#define LOG_NAME "LARDER_PRELOAD_LOG="
#define PRELOAD_NAME "LD_PRELOAD="

static int own_path(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    (void)data;
    if (!object_is_own(info))
        return 0;
    size_t length = info->name ? text_length(info->name) : 0;
    if (length > 0 && length < sizeof own.preload) {
        memcpy(own.preload, info->name, length + 1);
        own.preload_len = length;
    }
    return 1;
}

static void object_event(const char *name)
{
    struct stat st;
    long result = raw_stat(AT_FDCWD, name, &st, 0);
    looked_event(LARDER_OBJECT, 0, name, result, &st);
}

struct walk {
    bool first;
    const char *interpreter; /* the main program's ELF interpreter */
    bool seen;
};

static int each_object(struct dl_phdr_info *info, size_t size, void *data)
{
    struct walk *walk = data;
    (void)size;
    if (walk->first) { /* the main program */
        walk->first = false;
        for (unsigned i = 0; i < info->phnum; i++)
            if (info->phdr[i].p_type == PT_INTERP)
                walk->interpreter = (const char *)(info->address + info->phdr[i].p_vaddr);
        return 0;
    }
    if (!info->name || !text_has_slash(info->name) || object_is_own(info))
        return 0;
    if (walk->interpreter && text_equal(walk->interpreter, info->name))
        walk->seen = true;
    object_event(info->name);
    return 0;
}

void objects_event(void)
{
    struct walk walk = {true, NULL, false};
    if (!log_on())
        return;
    dl_iterate_phdr(each_object, &walk);
    if (walk.interpreter && !walk.seen)
        object_event(walk.interpreter);
}

struct search {
    const char *name;
    bool found;
};

/* glibc only: musl compares the name that an object was loaded by instead. */
static int each_named(struct dl_phdr_info *info, size_t size, void *data)
{
    struct search *search = data;
    struct object object;
    (void)size;
    search->found = gnu_get_libc_version && object_read(info, &object) && object.own_name && text_equal(object.own_name, search->name);
    return search->found;
}

/* Returns true if the loader has an object of this name. dlopen then takes that one without looking
 * for another: dlopen(3), "if the same shared object is opened again". Only the objects of the
 * default namespace are checked. A run in which dlmopen is called is not recorded anyway. */
bool object_is_loaded(const char *name)
{
    struct search search = {name, false};
    dl_iterate_phdr(each_named, &search);
    return search.found;
}

#define FIRST_OBJECTS 64

/* The addresses of the objects that the loader loaded before the program called dlopen first. */
static struct range {
    unsigned long start, end;
} firsts[FIRST_OBJECTS];
static unsigned firsts_count;
static uint32_t late_state; /* 0: dlopen was not called; 1: being set up; 2: `firsts` is complete */

static int each_first(struct dl_phdr_info *info, size_t size, void *data)
{
    struct range range = {~0ul, 0};
    (void)size;
    (void)data;
    for (unsigned i = 0; i < info->phnum; i++) {
        unsigned long start = info->address + info->phdr[i].p_vaddr;
        if (info->phdr[i].p_type != PT_LOAD)
            continue;
        range.start = start < range.start ? start : range.start;
        range.end = start + info->phdr[i].p_memsz > range.end ? start + info->phdr[i].p_memsz : range.end;
    }
    if (firsts_count < FIRST_OBJECTS) /* an object without room counts as late */
        firsts[firsts_count++] = range;
    return 0;
}

void late_begins(void)
{
    if (!exchange_atomically(&late_state, 0, 1))
        return;
    dl_iterate_phdr(each_first, NULL);
    __atomic_store_n(&late_state, 2, __ATOMIC_RELEASE);
}

struct holder {
    unsigned long address;
    const char *name;
};

static int each_holder(struct dl_phdr_info *info, size_t size, void *data)
{
    struct holder *holder = data;
    (void)size;
    for (unsigned i = 0; i < info->phnum; i++)
        if (info->phdr[i].p_type == PT_LOAD &&
            holder->address - info->address - info->phdr[i].p_vaddr < info->phdr[i].p_memsz)
            holder->name = info->name;
    return holder->name != NULL;
}

/* Returns true if the code at this address is late. */
static bool is_late(unsigned long caller)
{
    if (__atomic_load_n(&late_state, __ATOMIC_ACQUIRE) != 2)
        return false;
    for (unsigned i = 0; i < firsts_count; i++)
        if (caller - firsts[i].start < firsts[i].end - firsts[i].start)
            return false;
    return true;
}

uint32_t late_mark(const void *caller)
{
    return is_late((unsigned long)caller) ? LARDER_BY_LATE : 0;
}

void late_event(unsigned extra, unsigned long caller, const char *name, bool is_unset)
{
    static unsigned counts[6];
    if (!is_late(caller))
        return;
    if (extra != LARDER_LATE_VARIABLE && __atomic_fetch_add(&counts[extra], 1, __ATOMIC_RELAXED) >= LARDER_FEW)
        return;
    struct larder_event event = event_new(LARDER_LATE, false);
    struct holder holder = {caller, NULL};
    struct text text, text2;
    dl_iterate_phdr(each_holder, &holder);
    event.extra = extra;
    event.error = is_unset ? ENOENT : 0;
    text_string(&text, name);
    text_string(&text2, holder.name ? holder.name : "?");
    log_write(&event, &text, &text2);
}

void late_path(void *caller, const char *path)
{
    static const char *const starts[] = {"/dev/", "/proc/", "/sys/"};
    bool is_one = false;
    if (__atomic_load_n(&late_state, __ATOMIC_ACQUIRE) != 2 || !path)
        return;
    for (unsigned i = 0; i < sizeof starts / sizeof *starts; i++)
        is_one |= text_after(path, starts[i]) != NULL;
    if (!is_one || text_equal(path, "/dev/null") || text_equal(path, "/dev/zero"))
        return;
    bool is_random = text_equal(path, "/dev/urandom") || text_equal(path, "/dev/random");
    late_event(is_random ? LARDER_LATE_RANDOM : LARDER_LATE_DEVICE, (unsigned long)caller, path, false);
}

/* Finds the arguments of the program. The kernel lays out their number, the arguments, NULL, and
 * then the environment. That is still so as long as only the constructors of libraries have run. */
static char **find_arguments(char **envp)
{
    if (!envp || envp[-1])
        return NULL;
    char **argv = envp - 1;
    for (long count = 0; count < 65536; count++, argv--)
        if ((long)argv[-1] == count)
            return argv;
    return NULL;
}

/* Appends one argument to the text of a START event (log.h). Returns the new size. */
static size_t add_argument(char to[LARDER_ARGUMENTS_MAX], size_t size, const char *text)
{
    for (; *text && size < LARDER_ARGUMENTS_MAX; text++)
        to[size++] = *text;
    if (size < LARDER_ARGUMENTS_MAX)
        to[size++] = LARDER_ARGUMENT_END;
    return size;
}

static size_t arguments(char to[LARDER_ARGUMENTS_MAX], char **argv)
{
    size_t size = 0;
    if (!argv) { /* unknown, which is marked like arguments that are too long */
        memset(to, '?', LARDER_ARGUMENTS_MAX);
        return LARDER_ARGUMENTS_MAX;
    }
    for (char **word = argv; word[0] && word[1] && size < LARDER_ARGUMENTS_MAX; word++)
        size = add_argument(to, size, word[1]);
    return size;
}

/* Finds out which program this is. Returns 0, or the negative errno of its stat. */
static long look_at_begun(struct begun *begun)
{
    *begun = (struct begun){.name = NULL};
    return known_begun(begun) ? 0 : raw_stat(AT_FDCWD, "/proc/self/exe", &begun->st, 0);
}

/* Returns the bits of enum larder_start for these variables. */
static uint16_t start_flags(char **envp)
{
    uint16_t flags = 0;
    for (char **entry = envp; entry && *entry; entry++) {
        flags |= text_after(*entry, "PWD=/") ? LARDER_START_PWD : 0;
        flags |= text_after(*entry, "OLDPWD=") ? LARDER_START_OLDPWD : 0;
    }
    return flags;
}

static void start_event(char **envp, char **argv, const struct begun *begun, long result)
{
    struct larder_event event = event_new(LARDER_START, false);
    event.flags = start_flags(envp);
    struct text text, text2;
    char words[LARDER_ARGUMENTS_MAX];
    event.extra = (uint32_t)raw_getppid();
    if (begun->path) {
        text_raw(&text, begun->path, begun->path_len);
    } else {
        long length = raw_readlink("/proc/self/exe", text.dir, sizeof text.dir);
        text_raw(&text, text.dir, length > 0 ? (size_t)length : 0);
    }
    if (result == 0)
        event_stat(&event, &begun->st);
    else
        event.error = (int)-result;
    text_raw(&text2, words, arguments(words, argv));
    uint64_t at = log_write(&event, &text, &text2);
    if (!begun->path && result == 0)
        begun_is_known(begun, at);
}

/* Writes a GETENV for each variable that tells libc where its own files are. libc reads such files
 * unseen, and a program may find other values than the command did. */
static void paths_of_libc(char **envp)
{
    static const char names[][12] = {"LOCPATH=", "GCONV_PATH=", "NLSPATH=", "TZDIR=", "TZ="};
    for (char **entry = envp; entry && *entry; entry++)
        for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
            const char *value = text_after(*entry, names[i]);
            if (!value || !text_has_slash(value))
                continue;
            struct larder_event event = event_new(LARDER_GETENV, false);
            struct text text, text2;
            text_raw(&text, *entry, (size_t)(value - *entry) - 1);
            text_string(&text2, value);
            log_write(&event, &text, &text2);
        }
}

static void forget(char **entry)
{
    do
        entry[0] = entry[1];
    while (*entry++);
}

/* Finds the two variables in `envp`. Returns false if one is missing, or if LD_PRELOAD names
 * another library first, which belongs to another observer. */
static bool find_own(char **envp, char ***log_at, char ***preload_at)
{
    char **log = NULL, **preload = NULL;
    for (char **entry = envp; *entry; entry++) {
        if (!log && text_after(*entry, LOG_NAME))
            log = entry;
        if (!preload && text_after(*entry, PRELOAD_NAME))
            preload = entry;
    }
    if (!log || !preload)
        return false;
    size_t length = text_length(*log);
    char *value = *preload + sizeof PRELOAD_NAME - 1;
    const char *rest = text_after(value, own.preload);
    if (!rest || (*rest && *rest != ':' && *rest != ' ') || length >= sizeof own.log)
        return false;
    memcpy(own.log, *log, length + 1);
    *log_at = log;
    *preload_at = preload;
    return true;
}

/* Removes the two variables. */
static void hide(char **log, char **preload)
{
    char *value = *preload + sizeof PRELOAD_NAME - 1;
    const char *rest = value + own.preload_len;
    if (*rest) { /* the rest is the tool's own value, even if it is empty */
        memmove(value, rest + 1, text_length(rest + 1) + 1);
        forget(log);
    } else {
        char **later = log > preload ? log : preload, **sooner = log > preload ? preload : log;
        forget(later);
        forget(sooner);
    }
}

/* Returns the new log state: 2 open, 3 not used, 0 not possible now. */
static int begin(char **envp, char **argv, bool is_first, struct begun *begun, long *result)
{
    char **log, **preload;
    if (!envp || !dl_iterate_phdr || !__errno_location || !real_ready())
        return 0;
    if (!own.preload_len)
        dl_iterate_phdr(own_path, NULL);
    if (!own.preload_len || !find_own(envp, &log, &preload))
        return 0;
    bool open = log_open(own.log + sizeof LOG_NAME - 1);
    if (open)
        *result = look_at_begun(begun);
    if (open && is_first && *result == 0)
        sample(&begun->st, argv, envp);
    hide(log, preload);
    return open ? 2 : 3;
}

static bool wake(char **envp, int otherwise, bool is_first)
{
    /* There are no threads before the constructors are done. */
    if (log_state)
        return log_state == 2;
    log_state = 1;
    char **argv = find_arguments(envp); /* before the variables are removed */
    struct begun begun;
    long result = -ENOENT;
    int state = begin(envp, argv, is_first, &begun, &result);
    __atomic_store_n(&log_state, state ? state : otherwise, __ATOMIC_RELEASE);
    if (state != 2)
        return false;
    start_event(envp, argv, &begun, result);
    objects_event();
    paths_of_libc(envp);
    return true;
}

/* Opens the log early, because another library's constructor came first and called one of our
 * functions. */
bool log_wake(void)
{
    return &environ && environ && wake(environ, 0, false);
}

/* Counts the objects that musl has loaded besides itself, the program, this library, and the
 * kernel's own object. musl has no order of constructors by which ours could be the first. */
static int count_others(struct dl_phdr_info *info, size_t size, void *count)
{
    (void)size;
    const char *name = info->name;
    *(unsigned *)count += name && *name && !text_equal(name, own.preload) && !text_after(name, "linux-") &&
                          !text_after(name, "/lib/ld-musl-");
    return 0;
}

static bool is_alone(void)
{
    unsigned others = 0;
    dl_iterate_phdr(own_path, NULL);
    dl_iterate_phdr(count_others, &others);
    return !others;
}

/* glibc passes the arguments to a constructor. If glibc has not set `environ` yet, no other
 * constructor has run: glibc's own come before all others except for those of a library that is
 * linked with -z initfirst, as this one is. musl passes no arguments. */
__attribute__((constructor)) static void construct(int argc, char **argv, char **envp)
{
    (void)argc;
    (void)argv;
    bool is_glibc = gnu_get_libc_version != NULL;
    if (&environ && environ)
        wake(environ, 3, !is_glibc && dl_iterate_phdr && is_alone());
    else
        wake(is_glibc ? envp : NULL, 3, true);
    real_find_core();
    hide_absent();
}

size_t environment_count(char *const envp[], size_t *bytes)
{
    size_t count = 0;
    *bytes = sizeof PRELOAD_NAME + own.preload_len + 1;
    for (; envp && envp[count]; count++) {
        const char *value = text_after(envp[count], PRELOAD_NAME);
        if (value)
            *bytes += text_length(value) + 1;
    }
    return count;
}

/* Fills `array`, which has room for count + 3 pointers and then for the text of LD_PRELOAD. If the
 * caller has that variable, it stays in its place, because the tool sees the order. */
char **environment_fill(char **array, char *const envp[], size_t count)
{
    if ((unsigned long)array >= -4095ul)
        return (char **)envp;
    char *text = (char *)(array + count + 3);
    size_t at = 0;
    bool placed = false;
    memcpy(text, PRELOAD_NAME, sizeof PRELOAD_NAME - 1);
    memcpy(text + sizeof PRELOAD_NAME - 1, own.preload, own.preload_len + 1);
    for (; at < count; at++) {
        const char *value = placed ? NULL : text_after(envp[at], PRELOAD_NAME);
        array[at] = value ? text : envp[at];
        if (value) {
            char *to = text + sizeof PRELOAD_NAME - 1 + own.preload_len;
            *to++ = ':';
            memcpy(to, value, text_length(value) + 1);
            placed = true;
        }
    }
    if (!placed)
        array[at++] = text;
    array[at++] = own.log;
    array[at] = NULL;
    return array;
}
