/* raw_runs.c - which part of a file has which tokens. */
#include "data/raw.h"

#include "base/must.h"

void raw_add_run(struct raw *raw, int file, uint64_t offset, uint64_t count)
{
    uint64_t width = (uint64_t)raw->files[file].width;
    if (count == 0)
        return;
    if (raw->run_count > 0) {
        const struct raw_run *last = &raw->runs[raw->run_count - 1];
        if (last->file == file &&
            last->offset + (raw->count - last->begin) * width == offset) {
            raw->count += count;
            return;
        }
    }
    raw->runs =
            zd_grow(raw->runs, &raw->run_capacity, raw->run_count + 1,
                    sizeof *raw->runs);
    raw->runs[raw->run_count++] = (struct raw_run){raw->count, offset, file};
    raw->count += count;
}
