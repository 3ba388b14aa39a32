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
/* A value that no model has; one that is not supported. */
#define config_bad(reader, ...)   config_fail(reader, "E0302", __VA_ARGS__)
#define config_lacks(reader, ...) config_fail(reader, "E0304", __VA_ARGS__)
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
 * default. The caller owns the result. */
json_t *config_keys_complete(
        const struct config_reader *reader, const struct model_config *config);

/* --- config_layers.c: the type of each layer --------------------------------
 */

/* Fills config->layer_attention by the family's window rule and, where its
 * class in transformers reads them, layer_types and no_rope_layers. After
 * `settle`: config->ropes are known; with two sets layers that slide take the
 * second. E0302, E0304: a type that is unknown, a list of another length. */
enum zd_status config_read_layers(
        const struct config_reader *reader, struct model_config *config);

/* Twice the tokens that a token of layer 1 .. L sees on average, of T: T itself
 * where the layer has no window. */
double layer_seen_twice(const struct model_config *config, int layer, int T);

/* --- config_rope.c: how heads turn ------------------------------------------
 */

/* One set from `table` (NULL: type default), the value of key `key`:
 * rope_scaling of transformers 4, rope_parameters of 5, or the part of it for a
 * type of layer. theta and partial: where the table does not say. head_dim and
 * max_positions are known. E0302 a bad value, E0304 an unknown type, E0305 or
 * config->unknown an unknown key. */
enum zd_status config_read_rope(
        const struct config_reader *reader, const char *key,
        const json_t *table, double theta, double partial,
        struct model_config *config, struct rope_set *out);

/* The set of a family that has one: as above, from rope_scaling if it is there,
 * else rope_parameters, with rope_theta (`theta`: where it is absent) and
 * partial_rotary_factor beside them. */
enum zd_status config_read_ropes(
        const struct config_reader *reader, double theta,
        struct model_config *config);

static inline int rope_pairs(const struct rope_set *set)
{
    return (set->dims + 1) / 2;
}
