/* store_case.h - a file store of small chunks of every layout, and workers that
 * go through lists of them beside a model in memory: of each chunk's parts, how
 * often they were written, from which their bytes follow. */
#pragma once

#include "offload/store.h"
#include "tests/support/scratch.h"

#include <pthread.h>

enum { CASE_EXTENTS = 6, CASE_CHUNKS_MAX = 256, CASE_WORKERS_MAX = 4 };

struct store_setup {
    bool params; /* on NVMe, with the slots */
    bool accumulates;
    int threads; /* offload.threads: sizes the ring */
    uint64_t chunk_bytes, block_bytes;
    int queue_depth; /* 0: 8 */
};

struct store_case {
    struct scratch scratch;
    struct offload_options options;
    struct optim_options optim;
    size_t segment_counts[2], segment_offsets[2];
    struct offload_extent extents[CASE_EXTENTS];
    struct offload_request request;
    struct offload_place place;
    struct chunk chunks[CASE_CHUNKS_MAX];
    int chunk_count;
    size_t ring_bytes, file_bytes;
    struct arena_plan plan;
    struct arena arena;
    struct store_request store_request;
    struct store_file *store;
    int times[4][CASE_CHUNKS_MAX]; /* written, by part */
};

void case_init(struct store_case *test, const struct store_setup *setup);
void case_fini(struct store_case *test);

/* `workers` go through the list: they read what it reads and compare, write
 * what it writes. Returns the number of arrays that differ from the model, or
 * -1 when a call failed (*error_out). */
int case_go_through(
        struct store_case *test, const struct store_list *list, int workers,
        struct zd_error *error_out);
/* Random lists, overlapping, `workers` on each; the same as above, summed. */
int case_random_lists(
        struct store_case *test, int lists, int workers, unsigned seed);
