/* config_keys.h - a model configuration read by a family's table of keys. */
#pragma once

#include "model/config.h"
#include "model/family.h"

/* Bounds far above any existing model; the product of any two fits in 64 bits.
 */
enum {
    VOCAB_MAX = 1 << 24,
    WIDTH_MAX = 1 << 20,
    LAYERS_MAX = 1 << 14,
    HEADS_MAX = 1 << 14,
    HEAD_DIM_MAX = 512, /* limit of the attention kernels */
    POSITIONS_MAX = 1 << 28
};

/* What is read, and how errors are reported. */
struct config_reader {
    const json_t *json;
    const char *name;
    enum zd_status on_error;
    const char *wrong; /* code of config_wrong */
};

/* Reports an error with its place; returns reader->on_error. */
#define config_fail(reader, code, ...)                                         \
    (ZD_FAIL((reader)->on_error, code, __VA_ARGS__),                           \
     zd_fail_where("%s", (reader)->name))
/* For an invalid value; for an unsupported one. */
#define config_bad(reader, ...)   config_fail(reader, "E0302", __VA_ARGS__)
#define config_lacks(reader, ...) config_fail(reader, "E0304", __VA_ARGS__)
/* A value as JSON, truncated; NULL: "absent". */
enum { CONFIG_TEXT = 81 };
const char *config_text(const json_t *value, char out[CONFIG_TEXT]);
/* Reports that the value of `key` is not what is expected. */
enum zd_status config_wrong(
        const struct config_reader *reader, const char *key,
        const char *expected);
/* The value of `key`; NULL if absent or null. */
const json_t *config_get(const struct config_reader *reader, const char *key);
enum zd_status config_read_int(
        const struct config_reader *reader, const char *key, int absent,
        int max, int *out);
enum zd_status config_read_real(
        const struct config_reader *reader, const char *key, double absent,
        double *out);
/* True if absent, null, or a value of that kind that needs nothing unsupported.
 */
bool config_is_neutral(const json_t *value, enum config_kind kind);
/* E0304: `key` has a value that is not supported. */
enum zd_status config_refuse(
        const struct config_reader *reader, const char *key,
        enum config_kind kind);

/* Handles an unknown key: E0305 if a person typed it (ZD_ERR_CONFIG); else it
 * may belong to another program and is added to config->unknown. `nearest`: a
 * suggestion, or NULL. */
enum zd_status config_unknown(
        const struct config_reader *reader, struct model_config *config,
        const char *name, const char *nearest);

/* Checks all keys by config->family, then reads the values. E0304: an
 * unsupported key whose value changes the model. E0305: an unknown key that a
 * person typed (ZD_ERR_CONFIG). */
enum zd_status config_keys_read(
        const struct config_reader *reader, struct model_config *config);
/* The keys as given, plus the absent ones that transformers would fill with a
 * default. The caller owns the result. */
json_t *config_keys_complete(
        const struct config_reader *reader, const struct model_config *config);

/* --- config_layers.c: the type of each layer --------------------------------
 */

/* Fills config->layer_attention by the family's window rule and, where its
 * class in transformers reads them, layer_types and no_rope_layers. Call after
 * `settle`, when config->ropes are known; with two sets, sliding layers use the
 * second. E0302, E0304: an unknown type, a list of the wrong length. */
enum zd_status config_read_layers(
        const struct config_reader *reader, struct model_config *config);

/* Twice the number of tokens that a token of layer 1 .. L sees on average; T if
 * the layer has no window. */
double layer_seen_twice(const struct model_config *config, int layer, int T);

/* --- config_rope.c: how heads turn ------------------------------------------
 */

/* One set from `table` (NULL: type default), the value of key `key`:
 * rope_scaling of transformers 4, rope_parameters of 5, or its part for a type
 * of layer. theta and partial: defaults. head_dim and max_positions must be
 * known. E0302: a bad value; E0304: an unknown type; E0305 or config->unknown:
 * an unknown key. */
enum zd_status config_read_rope(
        const struct config_reader *reader, const char *key,
        const json_t *table, double theta, double partial,
        struct model_config *config, struct rope_set *out);

/* For families with one set: reads it from rope_scaling, else rope_parameters,
 * with rope_theta (default `theta`) and partial_rotary_factor beside them. */
enum zd_status config_read_ropes(
        const struct config_reader *reader, double theta,
        struct model_config *config);

static inline int rope_pairs(const struct rope_set *set)
{
    return (set->dims + 1) / 2;
}
