#include "base/device/populate.h"

#include <criterion/criterion.h>
#include <stdlib.h>
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

Test(populate, every_page_of_a_large_mapping_is_there)
{
    size_t bytes = ((size_t)513 << 20) + 4096; /* two pieces and a little */
    long there = pages_there(bytes);
    if (there < 0)
        cr_skip_test("this kernel populates nothing");
    cr_expect_eq(there, (long)(bytes / (size_t)sysconf(_SC_PAGESIZE)));
}

Test(populate, a_small_one_is_left_to_who_touches_it)
{
    cr_expect_leq(pages_there(1 << 20), 0);
}
