/* config_keys.h - a model configuration read by a family's table of keys. */
#pragma once

#include "model/config.h"
#include "model/family.h"

/* Bounds that keep every product of two of them inside 64 bits, and far above
 * any model there is. */
enum {
    VOCAB_MAX = 1 << 24,
    WIDTH_MAX = 1 << 20,
    LAYERS_MAX = 1 << 14,
    HEADS_MAX = 1 << 14,
    HEAD_DIM_MAX = 512, /* what the attention kernels hold per head */
    POSITIONS_MAX = 1 << 28
};

/* What is read, and what a mistake in it is. */
struct config_reader {
    const json_t *json;
    const char *name;
    enum zd_status on_error;
    const char *wrong; /* code of config_wrong */
};

/* Record a mistake, with its place; reader->on_error. */
#define config_fail(reader, code, ...)                                         \
    (ZD_FAIL((reader)->on_error, code, __VA_ARGS__),                           \
     zd_fail_where("%s", (reader)->name))
/* A value as JSON, cut short; NULL: "absent". */
enum { CONFIG_TEXT = 81 };
const char *config_text(const json_t *value, char out[CONFIG_TEXT]);
/* The value of `key` is not what is expected. */
enum zd_status config_wrong(
        const struct config_reader *reader, const char *key,
        const char *expected);
/* The value under `key`; NULL when it is absent or null. */
const json_t *config_get(const struct config_reader *reader, const char *key);
enum zd_status config_read_int(
        const struct config_reader *reader, const char *key, int absent,
        int max, int *out);
enum zd_status config_read_real(
        const struct config_reader *reader, const char *key, double absent,
        double *out);
/* Absent, null, or a value of that kind that asks for nothing we lack. */
bool config_is_neutral(const json_t *value, enum config_kind kind);
/* E0304: `key` has a value that is not supported. */
enum zd_status config_refuse(
        const struct config_reader *reader, const char *key,
        enum config_kind kind);

/* A key that nothing reads: E0305, if a person typed it (ZD_ERR_CONFIG), else
 * it may belong to another program, and is one of config->unknown. `nearest`: a
 * key that may be meant, or NULL. */
enum zd_status config_unknown(
        const struct config_reader *reader, struct model_config *config,
        const char *name, const char *nearest);

/* All keys of config->family: E0304 unsupported ones whose value changes the
 * model, and E0305, where a person typed them (ZD_ERR_CONFIG), unknown ones;
 * then the values. */
enum zd_status config_keys_read(
        const struct config_reader *reader, struct model_config *config);
/* The keys as given plus every one whose absence transformers would fill with a
 * default of its own. New reference. */
json_t *config_keys_complete(
        const struct config_reader *reader, const struct model_config *config);
