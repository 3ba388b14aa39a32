/* fuzz_files.h - what the kinds of fuzz_files have in common. */
#pragma once

#include "base/file/safetensors.h"
#include "tests/support/fuzz.h"
#include "tests/support/scratch.h"

#include <stdbool.h>

/* Abort, saying which input it was, unless it is so. */
void fuzz_need(bool is_good, const char *what);
/* A refusal that a file deserves; clears it. */
void fuzz_need_refusal(enum zd_status status);
/* A number of the text becomes another, or a bit changes. At most `max` bytes;
 * returns how many. */
size_t fuzz_mutate(char *data, size_t bytes, size_t max, uint64_t *state);

/* --- tensors --- */

enum { FUZZ_TENSORS_MAX = 64, FUZZ_NAME_BYTES = 160 };

struct fuzz_tensor {
    char name[FUZZ_NAME_BYTES], dtype[12];
    int dims;
    int64_t shape[ST_DIMS_MAX];
    char *data; /* of the fixture, or made by this input */
    size_t bytes;
    int file; /* of two */
};

struct fuzz_tensors {
    int count;
    struct fuzz_tensor at[FUZZ_TENSORS_MAX];
};

void fuzz_tensors_read(const char *path, struct fuzz_tensors *out);
/* A new input: `to` begins as `from`, and data made by the last one is gone. */
void fuzz_tensors_begin(
        struct fuzz_tensors *to, const struct fuzz_tensors *from);
/* One is missing, there twice, or has another name, form or content. */
void fuzz_tensors_change(struct fuzz_tensors *all, uint64_t *state);
/* Write those of one file, or with -1 all. `state` not NULL: one header in
 * sixteen is not sound. */
void fuzz_tensors_write(
        const char *path, const struct fuzz_tensors *all, int file,
        uint64_t *state);

/* --- a model in codes, or an adapter --- */

void fuzz_download(
        bool is_adapter, struct scratch *scratch, uint64_t input,
        uint64_t *state);
