/* safetensors.h - the one tensor file format we read and write.
 *
 * Source:  huggingface/safetensors README and safetensors/src/tensor.rs; the
 *          checks are made in the reference implementation's order, plus: no
 *          duplicate keys, at most 1,000,000 tensors, integers only.
 * Reading: pread, never mmap (a file that changes under us must not be able to
 *          kill the process); nothing is trusted before it is checked.
 * Errors:  ZD_ERR_DATA naming file and tensor. */
#pragma once

#include "base/file/hash.h"
#include "base/file/json.h"
#include "base/number/dtype.h"
#include "base/status.h"

#include <stdint.h>

enum { ST_DIMS_MAX = 8 };

struct st_tensor {
    char *name;     /* owned by the file */
    char dtype[12]; /* as written: "F32", "BF16", "U8", ... */
    int dims;
    int64_t shape[ST_DIMS_MAX];
    uint64_t count; /* elements */
    uint64_t begin; /* byte offset in the file (absolute) */
    uint64_t bytes;
};

struct st_file {
    char *path;
    int fd; /* -1: closed by st_rest */
    uint64_t file_bytes;
    struct st_tensor *tensors; /* sorted by name */
    int tensor_count;
    json_t *metadata; /* object of strings, or NULL */
};

enum zd_status st_open(const char *path, struct st_file **file_out);
void st_close(struct st_file *file);
/* st_rest closes the descriptor but keeps the parsed header; st_wake opens it
 * again. ZD_ERR_DATA when the file's length has changed. */
void st_rest(struct st_file *file);
enum zd_status st_wake(struct st_file *file);
const struct st_tensor *st_find(const struct st_file *file, const char *name);
/* Elements [first, first+count) as fp32, from F32, BF16 or F16 storage. */
enum zd_status st_read_float(
        const struct st_file *file, const struct st_tensor *tensor,
        uint64_t first, size_t count, float *out);
/* Raw bytes [first, first+bytes) of the tensor. */
enum zd_status st_read_bytes(
        const struct st_file *file, const struct st_tensor *tensor,
        uint64_t first, size_t bytes, void *out);

/* xxh3-128 over the digests (as text) of the header, that is, everything before
 * the first tensor, and of each tensor in file order. So parts may be written
 * and read in any order. Reads every byte. */
enum zd_status st_digest(const char *path, char hex[HASH_HEX]);
/* The digest of one tensor. */
enum zd_status st_tensor_digest(
        const struct st_file *file, const struct st_tensor *tensor,
        char hex[HASH_HEX]);

/* Writer: declare all tensors, then write the data of each, in any order. They
 * are laid out like the reference writer's (dtype descending, then name). The
 * file is created with O_EXCL at its full length; digests are computed during
 * writing. */
struct st_writer;
struct st_entry {
    const char *name;
    const char *dtype; /* "F32", "BF16", "F16", ... */
    int dims;
    int64_t shape[ST_DIMS_MAX];
};
/* `metadata` (object of strings) is borrowed; {"format":"pt"} is always added.
 * `entries` are copied. */
enum zd_status st_writer_create(
        const char *path, const struct st_entry *entries, int entry_count,
        const json_t *metadata, struct st_writer **writer_out);
/* Append bytes of that tensor. */
enum zd_status st_writer_add(
        struct st_writer *writer, int entry, const void *data, size_t bytes);
/* The writer's own memory for the next bytes of that tensor, which the next
 * call must add. Adding from it makes no copy. */
enum { ST_ROOM_MAX = 4 << 20 };
void *st_writer_room(struct st_writer *writer, int entry, size_t bytes);
/* xxh3-128 of a tensor whose bytes are all written; borrowed. */
const char *st_writer_digest(const struct st_writer *writer, int entry);
/* fsync and close; fails when bytes are missing. The digest (as st_digest) and
 * bytes may be NULL. Frees the writer whatever happens. */
enum zd_status st_writer_finish(
        struct st_writer *writer, char *digest_hex, uint64_t *bytes_out);
/* Instead of writing the data: others write the tensors at their offsets
 * (st_open). fsync and close; frees the writer. */
enum zd_status st_writer_leave(struct st_writer *writer);
/* Close and unlink an unfinished file. */
void st_writer_abandon(struct st_writer *writer);

/* --- for the writer ------------------------------------------------------- */

/* Rank of a type in the reference's order (files hold higher ranks first); -1:
 * no such type. */
int st_dtype_rank(const char *dtype);
/* Elements and bytes of a tensor, checked against overflow. */
enum zd_status st_dtype_extent(
        const char *path, const char *name, const char *dtype, int dims,
        const int64_t *shape, uint64_t *count_out, uint64_t *bytes_out);
