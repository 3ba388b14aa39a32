/* manifest.h - manifest.json of a checkpoint: built, sealed with a digest of
 * itself, read and checked. Internal to train. */
#pragma once

#include "base/file/hash.h"
#include "train/checkpoint/checkpoint.h"

/* Keys of a file's digest: of its bytes (hash_file), or of a shard's parts
 * (st_digest). */
#define MANIFEST_DIGEST       "xxh3_128"
#define MANIFEST_PARTS_DIGEST "parts_xxh3_128"

/* Everything but the files and the seal. New reference. */
json_t *manifest_build(
        const struct checkpoint_writer *writer,
        const struct train_state *state);
/* A member of "files". `holds`, of a shard, is taken: an entry for each range
 * (arrays.h); else NULL. New reference. */
json_t *manifest_file(
        const char *name, uint64_t bytes, const char *digest, json_t *holds);
/* Add the digest over everything else; call last. */
void manifest_seal(json_t *manifest);

/* Read DIR/manifest.json: form, format number, seal, and that file names stay
 * in the folder. ZD_ERR_DATA naming what is wrong. New reference. */
enum zd_status manifest_read(const char *dir, json_t **manifest_out);
/* scan.c: read it, and check its files. *manifest_out is set also where only
 * the files are wrong, else NULL. */
enum zd_status manifest_open(
        const char *dir, enum checkpoint_check check, json_t **manifest_out);
/* A file has as many bytes as the manifest says. */
enum zd_status manifest_check_bytes(
        const char *path, uint64_t bytes, uint64_t expected);

struct train_state manifest_state(const json_t *manifest);
/* Of all files that it lists. */
json_int_t manifest_bytes(const json_t *manifest);

/* Does the job file give another batch than when the checkpoint was made? */
bool manifest_batch_changed(
        const json_t *manifest, const struct train_options *train);

/* [out, in]. New reference. */
json_t *manifest_shape(const struct param *param);
/* The codes that the base lies in, {"format", "nested"}; NULL: in none. New
 * reference. */
json_t *manifest_codes(const struct param_table *table);
/* What a resumed run compares: the data, and the settings, of a job. New
 * references. */
json_t *manifest_data(
        const struct train_job *job, const struct run_identity *identity);
json_t *manifest_settings(const struct train_job *job, int64_t global_batch);
