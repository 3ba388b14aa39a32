/* config_rope.h - how heads turn, from config.json. */
#pragma once

#include "model/config_keys.h"

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
