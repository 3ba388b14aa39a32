#include "base/device/populate.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Of a mapping of this size; -1: this kernel has no such madvise. */
static long pages_there(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), count = bytes / page;
    char *memory =
            mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    unsigned char *seen = malloc(count);
    long there = 0;
    cr_assert_neq(memory, MAP_FAILED);
    populate(memory, bytes);
    cr_assert_eq(mincore(memory, bytes, seen), 0);
    for (size_t i = 0; i < count; i++)
        there += seen[i] & 1;
    if (madvise(memory, page, 23) != 0)
        there = -1;
    free(seen);
    munmap(memory, bytes);
    return there;
}

Test(populate, every_page_of_a_mapping_is_there)
{
    /* two pieces and a little; and a small one */
    static const size_t sizes[] = {((size_t)513 << 20) + 4096, 1 << 20};
    for (int i = 0; i < 2; i++) {
        long there = pages_there(sizes[i]);
        if (there < 0)
            cr_skip_test("this kernel populates nothing");
        cr_expect_eq(there, (long)sizes[i] / sysconf(_SC_PAGESIZE));
    }
}

static bool is_there(const char *memory)
{
    unsigned char seen = 0;
    cr_assert_eq(mincore((void *)memory, 1, &seen), 0);
    return seen & 1;
}

/* Ends at its last page, or when the test's time is over. */
Test(populate, a_background_thread_reaches_every_page, .timeout = 120)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = ((size_t)40 << 20) + page;
    char *memory =
            mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(memory, MAP_FAILED);
    /* as a span of the arena lies in it, not at a page's beginning */
    struct populating *populating = populate_begin(memory + 256, bytes - 256);
    cr_assert_not_null(populating);
    for (size_t at = page; at + page <= bytes; at += page)
        while (!is_there(memory + at))
            sched_yield();
    populate_end(populating);
    cr_expect(!is_there(memory), "a page that is not all its own");
    munmap(memory, bytes);
}

Test(populate, what_others_write_stays)
{
    size_t bytes = (size_t)64 << 20;
    char *memory =
            mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(memory, MAP_FAILED);
    for (int round = 0; round < 20; round++) {
        struct populating *populating = populate_begin(memory, bytes);
        memset(memory, 1 + round, bytes / 8);
        populate_stop(populating);
        populate_end(populating);
        for (size_t at = 0; at < bytes / 8; at += 4096)
            cr_assert_eq(memory[at], 1 + round);
        cr_assert_eq(madvise(memory, bytes, MADV_DONTNEED), 0);
    }
    populate_end(NULL);
    munmap(memory, bytes);
}
