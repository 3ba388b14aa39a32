/* matmul_tuning.h - the file that remembers the fastest algorithms, so that
 * only the first start on a kind of GPU times any.
 *
 *   $XDG_CACHE_HOME/zerod/products-<GPU>-<library>.txt  (default: ~/.cache)
 *
 * Text: a line with the digest of the rest, the GPU, the library, then one line
 * per key. An algorithm is the library's own 64 bytes, valid for the same
 * version. A file that is damaged, or from another format, GPU or library, is
 * ignored with a warning and replaced at the next addition.
 *
 * Several processes of a host may add at once: each takes a lock (flock of the
 * file's name + ".lock"), reads what others have added, and replaces the file
 * by rename. So the first process to time a shape decides for all ranks of a
 * host, even in the first run. No failure is an error: if the file cannot be
 * written, choices last as long as the process. */
#pragma once

#include "kernels/matmul/matmul_cuda.h"

/* Whether an epilogue is faster than its parts; plain matmuls have none. */
enum tuned_parts { TUNED_UNDECIDED, TUNED_FUSED, TUNED_APART };

struct tuned {
    struct matmul_key key;
    enum tuned_parts parts;
    uint64_t algorithm[8];
    uint32_t workspace_kib; /* the library's */
    float microseconds;
};

struct tuning;

/* `gpu`: name and multiprocessors; `library`: name and version. Reads the file
 * if it exists. */
struct tuning *tuning_create(const char *gpu, const char *library);
/* The same without a file. */
struct tuning *tuning_create_empty(const char *gpu, const char *library);
void tuning_destroy(struct tuning *tuning);

const struct tuned *tuning_find(
        const struct tuning *tuning, const struct matmul_key *key,
        uint32_t workspace_kib);

/* Takes the lock, if possible within `timeout_ms`, and reads what others have
 * added. No other process adds until tuning_unlock. */
void tuning_lock(struct tuning *tuning, int timeout_ms);
void tuning_unlock(struct tuning *tuning);
/* Adds an entry, here and in the file; replaces one with the same key. */
void tuning_add(struct tuning *tuning, const struct tuned *tuned);

/* All entries in the file's format; the caller frees the text. */
char *tuning_text(const struct tuning *tuning);
/* Adds the entries of such a text. Returns NULL, or why it is rejected
 * (static). */
const char *tuning_take(struct tuning *tuning, const char *text);

/* "": there is no file. */
const char *tuning_path(const struct tuning *tuning);
