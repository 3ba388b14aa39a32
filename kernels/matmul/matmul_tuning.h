/* matmul_tuning.h - the file that remembers which algorithm was the fastest, so
 * that only the first start on a kind of GPU times anything.
 *
 *   $XDG_CACHE_HOME/zerod/products-<GPU>-<library>.txt     (~/.cache without
 * it)
 *
 * Text: a line with the digest of what follows, the GPU, the library, then one
 * line for each key. An algorithm is the library's own 64 bytes, good for
 * the same version of it. A file that is damaged, of another format, GPU or
 * library is ignored, with a notice, and replaced at the next addition.
 *
 * Several processes of a host may add at once: an addition is made under a lock
 * (flock of the file's name + ".lock"), reads what others added meanwhile, and
 * replaces the file by rename. So the first to time a shape decides for all
 * ranks of a host, also in the very first run. Nothing here is an error:
 * without a place to write, choices last as long as the process. */
#pragma once

#include "kernels/matmul/matmul_cuda.h"

/* Whether an epilogue is faster than its parts; plain matmuls have none. */
enum tuned_parts { TUNED_UNDECIDED, TUNED_FUSED, TUNED_APART };

struct tuned {
    struct matmul_key key;
    enum tuned_parts parts;
    uint64_t algorithm[8];
    uint32_t workspace_kib; /* that was offered to the library */
    float microseconds;
};

struct tuning;

/* `gpu`: name and multiprocessors; `library`: name and version. Reads the file
 * if there is one. */
struct tuning *tuning_create(const char *gpu, const char *library);
/* The same without a file. */
struct tuning *tuning_create_empty(const char *gpu, const char *library);
void tuning_destroy(struct tuning *tuning);

const struct tuned *tuning_find(
        const struct tuning *tuning, const struct matmul_key *key,
        uint32_t workspace_kib);

/* Takes the lock, if it can be had within `timeout_ms`, and reads what others
 * have added. Between the two calls no one else adds. */
void tuning_lock(struct tuning *tuning, int timeout_ms);
void tuning_unlock(struct tuning *tuning);
/* Adds it, here and in the file; replaces one of the same key. */
void tuning_add(struct tuning *tuning, const struct tuned *tuned);

/* All of it as the file has it; the caller's, to free. */
char *tuning_text(const struct tuning *tuning);
/* What such a text has. NULL, or why it is not taken: static. */
const char *tuning_take(struct tuning *tuning, const char *text);

/* "" when there is no place for it. */
const char *tuning_path(const struct tuning *tuning);
