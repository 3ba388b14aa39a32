/*
 * faults.c - a system that refuses memory, for LD_PRELOAD: one allocation of
 * one process fails.
 *
 *   ZEROD_TEST_FAULT=N         the Nth
 *   ZEROD_TEST_FAULT=@PLACE    the first that is asked for at this place
 *   ZEROD_TEST_FAULT_RANK=R    only in rank R under Open MPI's mpirun
 *   ZEROD_TEST_FAULT_LOG=FILE  a line for each place, at the end: the number of
 *                              its first allocation, the place, and where that
 *                              is in the program (for addr2line)
 *
 * Counted is what the program asks for, itself or through the C and C++
 * libraries, jansson, libuv, pcre2 and utf8proc; not what MPI, OpenMP and
 * oneDNN ask for themselves. A place is the chain of calls that leads to it, as
 * a number that stays the same from run to run: with threads the order of
 * allocations does not.
 */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);

/* --- whose code ----------------------------------------------------------- */

/* THROUGH: asks for others. */
enum owner { FOREIGN, PROGRAM, OURS, THROUGH };
enum { RANGES = 256, DEPTH = 48, PLACES = 8192, TOLD = 8 };

static struct range {
    uintptr_t from, to;
    enum owner owner;
} ranges[RANGES];
static int range_count;
static uintptr_t program_base;

static enum owner owner_of_file(const char *path)
{
    static const char *const ours[] = {
            "libjansson", "libuv", "libpcre2", "libutf8proc"};
    static const char *const through[] = {"libc.so",  "libc-",     "libstdc++",
                                          "libgcc_s", "libfaults", "ld-"};
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    if (!*name)
        return PROGRAM;
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        if (strncmp(name, ours[i], strlen(ours[i])) == 0)
            return OURS;
    for (size_t i = 0; i < sizeof through / sizeof through[0]; i++)
        if (strncmp(name, through[i], strlen(through[i])) == 0)
            return THROUGH;
    return FOREIGN;
}

static int note_object(struct dl_phdr_info *about, size_t bytes, void *unused)
{
    enum owner owner = owner_of_file(about->dlpi_name);
    if (owner == PROGRAM && program_base)
        return 0; /* the vdso has no name either */
    if (owner == PROGRAM)
        program_base = about->dlpi_addr;
    for (int i = 0; i < about->dlpi_phnum && range_count < RANGES; i++) {
        const ElfW(Phdr) *part = &about->dlpi_phdr[i];
        uintptr_t from = about->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && (part->p_flags & PF_X))
            ranges[range_count++] =
                    (struct range){from, from + part->p_memsz, owner};
    }
    return 0;
}

static enum owner owner_of(const void *address)
{
    uintptr_t at = (uintptr_t)address;
    for (int i = 0; i < range_count; i++)
        if (at >= ranges[i].from && at < ranges[i].to)
            return ranges[i].owner;
    return FOREIGN;
}

/* --- places --------------------------------------------------------------- */

struct place {
    uint64_t hash; /* 0: free */
    uint64_t first;
    uint32_t calls[TOLD];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct place places[PLACES];
static uint64_t count, wanted_number, wanted_place;
static bool is_on;
static __thread bool is_inside;

/* Is it the program that asks? Then: where. */
static bool find_place(struct place *place)
{
    void *frames[DEPTH];
    int depth = backtrace(frames, DEPTH), told = 0, i = 1;
    while (i < depth && owner_of(frames[i]) == THROUGH)
        i++;
    if (i >= depth || owner_of(frames[i]) == FOREIGN)
        return false;
    place->hash = 14695981039346656037u;
    for (; i < depth; i++) {
        if (owner_of(frames[i]) != PROGRAM)
            continue;
        uint32_t call = (uint32_t)((uintptr_t)frames[i] - program_base);
        place->hash = (place->hash ^ call) * 1099511628211u;
        if (told < TOLD)
            place->calls[told++] = call;
    }
    return told > 0;
}

static void note_place(const struct place *place)
{
    for (uint64_t i = place->hash, tries = 0; tries < PLACES; i++, tries++) {
        struct place *known = &places[i % PLACES];
        if (known->hash == place->hash)
            return;
        if (known->hash == 0) {
            *known = *place;
            known->first = count;
            return;
        }
    }
}

static bool is_refused(void)
{
    struct place place = {0};
    bool is_it = false;
    if (!is_on || is_inside)
        return false;
    is_inside = true;
    if (find_place(&place)) {
        pthread_mutex_lock(&mutex);
        count++;
        note_place(&place);
        is_it = count == wanted_number || place.hash == wanted_place;
        if (is_it)
            wanted_number = wanted_place = 0;
        pthread_mutex_unlock(&mutex);
    }
    is_inside = false;
    if (is_it)
        errno = ENOMEM;
    return is_it;
}

/* --- from the start of main to its end ------------------------------------ */

__attribute__((constructor)) static void begin(void)
{
    const char *fault = getenv("ZEROD_TEST_FAULT");
    const char *rank = getenv("ZEROD_TEST_FAULT_RANK");
    const char *own = getenv("OMPI_COMM_WORLD_RANK");
    void *frames[4];
    bool is_program = strcmp(program_invocation_short_name, "zerod") == 0;
    if (!is_program || (rank && (!own || strcmp(rank, own) != 0)))
        return;
    if (fault && fault[0] == '@')
        wanted_place = strtoull(fault + 1, NULL, 16);
    else if (fault)
        wanted_number = strtoull(fault, NULL, 10);
    backtrace(frames, 4); /* opens what it needs */
    dl_iterate_phdr(note_object, NULL);
    is_on = true;
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("ZEROD_TEST_FAULT_LOG");
    int file =
            is_on && path
                    ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)
                    : -1;
    is_on = false;
    for (int i = 0; i < PLACES && file >= 0; i++) {
        const struct place *place = &places[i];
        if (place->hash == 0)
            continue;
        dprintf(file, "%llu %016llx", (unsigned long long)place->first,
                (unsigned long long)place->hash);
        for (int c = 0; c < TOLD && place->calls[c]; c++)
            dprintf(file, " 0x%x", place->calls[c]);
        dprintf(file, "\n");
    }
}

/* --- what is asked for memory --------------------------------------------- */

void *malloc(size_t bytes)
{
    return is_refused() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count_of, size_t bytes)
{
    return is_refused() ? NULL : __libc_calloc(count_of, bytes);
}

void *realloc(void *old, size_t bytes)
{
    return bytes && is_refused() ? NULL : __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    return is_refused() ? NULL : __libc_memalign(align, bytes);
}

int posix_memalign(void **out, size_t align, size_t bytes)
{
    if (is_refused())
        return ENOMEM;
    *out = __libc_memalign(align, bytes);
    return *out ? 0 : ENOMEM;
}
