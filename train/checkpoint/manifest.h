/* manifest.h - manifest.json of a checkpoint: built, sealed with a digest of
 * itself, read and checked. Internal to train. */
#pragma once

#include "base/file/hash.h"
#include "train/checkpoint/checkpoint.h"

/* Keys of a file's digest: of all bytes (hash_file), or of a shard's parts
 * (st_digest). */
#define MANIFEST_DIGEST       "xxh3_128"
#define MANIFEST_PARTS_DIGEST "parts_xxh3_128"

/* Builds everything except files and seal. New reference. */
json_t *manifest_build(
        const struct checkpoint_writer *writer,
        const struct train_state *state);
/* A member of "files". `holds`: for a shard the entries of its ranges
 * (arrays.h; takes ownership), else NULL. New reference. */
json_t *manifest_file(
        const char *name, uint64_t bytes, const char *digest, json_t *holds);
/* Adds the digest of everything else; call last. */
void manifest_seal(json_t *manifest);

/* Reads DIR/manifest.json and checks its form, format number and seal, and that
 * file names stay in the folder. ZD_ERR_DATA names the problem. New reference.
 */
enum zd_status manifest_read(const char *dir, json_t **manifest_out);
/* scan.c: reads the manifest and checks its files. *manifest_out is also set if
 * only files are damaged, else NULL. */
enum zd_status manifest_open(
        const char *dir, enum checkpoint_check check, json_t **manifest_out);
/* Checks a file's size against the manifest. */
enum zd_status manifest_check_bytes(
        const char *path, uint64_t bytes, uint64_t expected);

struct train_state manifest_state(const json_t *manifest);
/* The bytes of all listed files. */
json_int_t manifest_bytes(const json_t *manifest);

/* Has the job file's batch changed since the checkpoint? */
bool manifest_batch_changed(
        const json_t *manifest, const struct train_options *train);

/* [out, in]. New reference. */
json_t *manifest_shape(const struct param *param);
/* The quantization of the base, {"format", "nested"}; NULL: none. New
 * reference. */
json_t *manifest_codes(const struct param_table *table);
/* The job's data and settings, which a resumed run compares. New references. */
json_t *manifest_data(
        const struct train_job *job, const struct run_identity *identity);
json_t *manifest_settings(const struct train_job *job, int64_t global_batch);
