/* Workers, the thread that reads and writes, and the store between them, for
 * the thread sanitizer. Prints TAP. */
#include "tests/offload/store_case.h"
#include "tests/support/tap.h"

static bool go(bool params, int ring_threads, int workers, unsigned seed)
{
    struct store_case test;
    struct store_setup setup = {
            .params = params,
            .threads = ring_threads,
            .chunk_bytes = 4096,
            .block_bytes = 4096};
    case_init(&test, &setup);
    bool holds = case_random_lists(&test, 60, workers, seed) == 0;
    case_fini(&test);
    return holds;
}

int main(void)
{
    tap_ok(go(false, 1, 1, 1), "lists of chunks, one worker");
    tap_ok(go(true, 1, 4, 2), "slots in the file, four workers");
    tap_ok(go(true, 3, 4, 3), "a longer ring");
    return tap_done();
}
