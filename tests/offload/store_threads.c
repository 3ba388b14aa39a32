/* Workers, the thread that reads and writes, and the store between them, for
 * the thread sanitizer. Prints TAP. (It sees nothing of what the kernel writes
 * into memory for io_uring, so the backend is `threads`, whose transfers it
 * sees.) */
#include "tests/offload/store_case.h"

static bool go(bool params, int ring_threads, int workers, unsigned seed)
{
    struct store_case test;
    struct store_setup setup = {
            .backend = AIO_THREADS,
            .params = params,
            .threads = ring_threads,
            .chunk_bytes = 4096,
            .block_bytes = 4096,
            .overlaps = true};
    case_init(&test, &setup);
    bool holds = case_random_lists(&test, 60, workers, seed) == 0;
    case_fini(&test);
    return holds;
}

int main(void)
{
    bool results[] = {go(false, 1, 1, 1), go(true, 1, 4, 2), go(true, 3, 4, 3)};
    int count = sizeof results / sizeof *results, failed = 0;
    printf("1..%d\n", count);
    for (int i = 0; i < count; i++) {
        printf("%s %d - lists of chunks, %d\n", results[i] ? "ok" : "not ok",
               i + 1, i);
        failed += !results[i];
    }
    return failed > 0;
}
