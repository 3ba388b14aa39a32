#include "base/copy.h"

#include <criterion/criterion.h>
#include <string.h>

/* Every beginning within a line, and lengths with and without whole lines. */
Test(copy, is_memcpy)
{
    enum { ROOM = 1024, LENGTHS = 400 };
    unsigned char from[ROOM], want[ROOM], got[ROOM];
    for (int i = 0; i < ROOM; i++)
        from[i] = (unsigned char)(i * 7 + i / 256);
    for (size_t to = 0; to < 64; to++)
        for (size_t bytes = 0; bytes < LENGTHS; bytes += 1 + bytes / 8) {
            size_t at = (3 * to + bytes) % 64;
            memset(want, 0xee, ROOM);
            memset(got, 0xee, ROOM);
            memcpy(want + to, from + at, bytes);
            copy_past_cache(got + to, from + at, bytes);
            cr_assert_arr_eq(
                    got, want, ROOM, "%zu bytes from %zu to %zu", bytes, at,
                    to);
        }
}
