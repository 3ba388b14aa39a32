/* raw_runs.c - which part of a file has which tokens. */
#include "data/raw.h"

#include <stdlib.h>

enum zd_status raw_add_run(
        struct raw *raw, int file, uint64_t offset, uint64_t count)
{
    uint64_t width = (uint64_t)raw->files[file].width;
    if (count == 0)
        return ZD_OK;
    if (raw->run_count > 0) {
        const struct raw_run *last = &raw->runs[raw->run_count - 1];
        if (last->file == file &&
            last->offset + (raw->count - last->begin) * width == offset) {
            raw->count += count;
            return ZD_OK;
        }
    }
    if (raw->run_count == raw->run_capacity) {
        size_t capacity = raw->run_capacity ? 2 * raw->run_capacity : 16;
        struct raw_run *runs = realloc(raw->runs, capacity * sizeof *runs);
        if (!runs)
            return ZD_FAIL(
                    ZD_ERR_MEMORY, "E0602", "out of memory reading %s",
                    raw->files[file].path);
        raw->runs = runs;
        raw->run_capacity = capacity;
    }
    raw->runs[raw->run_count++] = (struct raw_run){raw->count, offset, file};
    raw->count += count;
    return ZD_OK;
}
