#include "base/must.h"
#include "base/words.h"
#include "model/config_keys.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static const char *const type_names[ROPE_TYPES] = {
        [ROPE_DEFAULT] = "default",   [ROPE_LINEAR] = "linear",
        [ROPE_DYNAMIC] = "dynamic",   [ROPE_YARN] = "yarn",
        [ROPE_LONGROPE] = "longrope", [ROPE_LLAMA3] = "llama3"};

static enum zd_status read_type(
        const struct config_reader *r, const char *key,
        const struct model_family *family, enum rope_type *out)
{
    const json_t *value = config_get(r, "rope_type");
    if (!value)
        value = config_get(r, "type");
    const char *name = value ? json_string_value(value) : "default";
    bool is_old =
            name && (strcmp(name, "su") == 0 || strcmp(name, "yarn") == 0);
    if (family->longrope && is_old)
        name = "longrope";
    for (int type = 0; name && type < ROPE_TYPES; type++) {
        bool is_known = !family->longrope || type == ROPE_DEFAULT ||
                        type == ROPE_LONGROPE;
        if (is_known && strcmp(name, type_names[type]) == 0) {
            *out = type;
            return ZD_OK;
        }
    }
    config_lacks(
            r, "`%s`: `rope_type` = \"%.40s\" is not supported", key,
            name ? name : "?");
    return zd_fail_help(
            family->longrope
                    ? "a %s model has default or longrope (su and yarn are its "
                      "older names)"
                    : "default, linear, dynamic, yarn, longrope and llama3 are "
                      "supported",
            family->name);
}

/* --- what each type reads ------------------------------------------------- */

enum {
    LINEAR = 1 << ROPE_LINEAR,
    DYNAMIC = 1 << ROPE_DYNAMIC,
    YARN = 1 << ROPE_YARN,
    LONGROPE = 1 << ROPE_LONGROPE,
    LLAMA3 = 1 << ROPE_LLAMA3
};

static const char other_keys[] =
        "rope_type type rope_theta partial_rotary_factor attention_factor "
        "mscale mscale_all_dim truncate llama_4_scaling_beta";

/* The keys of a table: types that read it as a number to `field` of a set, and
 * types that need it. other_keys are read below. */
static const struct key {
    const char *name;
    unsigned needed, reads;
    size_t field;
    double absent;
} table_keys[] = {
        {"factor", LINEAR | DYNAMIC | LLAMA3,
         LINEAR | DYNAMIC | LLAMA3 | YARN | LONGROPE,
         offsetof(struct rope_set, factor)},
        {"beta_fast", 0, YARN, offsetof(struct rope_set, beta_fast), 32},
        {"beta_slow", 0, YARN, offsetof(struct rope_set, beta_slow), 1},
        {"short_factor", LONGROPE},
        {"long_factor", LONGROPE},
        {"low_freq_factor", LLAMA3, LLAMA3,
         offsetof(struct rope_set, low_freq_factor)},
        {"high_freq_factor", LLAMA3, LLAMA3,
         offsetof(struct rope_set, high_freq_factor)},
        {"original_max_position_embeddings", LLAMA3},
        {0},
};

/* Checks for keys that no type has: E0305 or config->unknown. */
static enum zd_status check_keys(
        const struct config_reader *r, const char *table,
        struct model_config *c)
{
    char whole[128];
    JSON_MEMBERS(name, value, r->json) {
        const struct key *key = table_keys;
        while (key->name && strcmp(name, key->name) != 0)
            key++;
        ZD_PRINT(whole, "%s.%.60s", table, name);
        if (!key->name && !words_have(other_keys, " ", name))
            ZD_TRY(config_unknown(r, c, whole, NULL));
    }
    return ZD_OK;
}

static enum zd_status read_numbers(
        const struct config_reader *r, struct rope_set *s)
{
    unsigned type = 1u << s->type;
    for (const struct key *key = table_keys; key->name; key++) {
        double *out = (double *)(void *)((char *)s + key->field);
        bool is_there = config_get(r, key->name);
        if (key->needed & type && !is_there)
            return config_bad(
                    r, "rope_type \"%s\" needs the key `%s`",
                    type_names[s->type], key->name);
        if (key->reads & type)
            ZD_TRY(config_read_real(r, key->name, key->absent, out));
    }
    /* absent or null: the ratio of both lengths */
    if (type & (YARN | LONGROPE) && !config_get(r, "factor"))
        s->factor = (double)s->positions / s->original_positions;
    else if (s->factor < 1)
        return config_wrong(r, "factor", "a number of at least 1");
    return ZD_OK;
}

/* YaRN, section 3.4: scales scores by the logarithm of the factor. */
static double magnitude(double factor, double scale)
{
    return factor > 1 ? 0.1 * scale * log(factor) + 1 : 1;
}

/* `truncate` is true by default. */
static enum zd_status read_yarn(
        const struct config_reader *r, struct rope_set *s)
{
    double scale, all;
    const json_t *truncate = json_object_get(r->json, "truncate");
    s->truncate = !truncate || json_is_true(truncate);
    if (truncate && !json_is_boolean(truncate) && !json_is_null(truncate))
        return config_wrong(r, "truncate", "true or false");
    if (!json_object_get(r->json, "factor"))
        return config_bad(r, "rope_type \"yarn\" needs the key `factor`");
    ZD_TRY(config_read_real(r, "mscale", 0, &scale));
    ZD_TRY(config_read_real(r, "mscale_all_dim", 0, &all));
    s->beta_fast = s->beta_fast > 0 ? s->beta_fast : 32;
    s->beta_slow = s->beta_slow > 0 ? s->beta_slow : 1;
    s->attention_factor =
            scale > 0 && all > 0
                    ? magnitude(s->factor, scale) / magnitude(s->factor, all)
                    : magnitude(s->factor, 1);
    return ZD_OK;
}

static enum zd_status read_factors(
        const struct config_reader *r, const char *key, int pairs, double *out)
{
    char expected[64];
    const json_t *list = config_get(r, key);
    bool ok = json_array_size(list) == (size_t)pairs;
    for (int i = 0; ok && i < pairs; i++) {
        const json_t *value = json_array_get(list, (size_t)i);
        out[i] = json_number_value(value);
        ok = json_is_number(value) && isfinite(out[i]) && out[i] > 0;
    }
    if (ok)
        return ZD_OK;
    ZD_PRINT(expected, "a list of %d numbers above 0", pairs);
    return config_wrong(r, key, expected);
}

static enum zd_status read_longrope(
        const struct config_reader *r, struct rope_set *s)
{
    int pairs = rope_pairs(s);
    s->factors = zd_array(2 * (size_t)pairs, sizeof *s->factors);
    ZD_TRY(read_factors(r, "short_factor", pairs, s->factors));
    ZD_TRY(read_factors(r, "long_factor", pairs, s->factors + pairs));
    if (s->factor > 1)
        s->attention_factor =
                sqrt(1 + log(s->factor) / log(s->original_positions));
    return ZD_OK;
}

static enum zd_status read_scaling(
        const struct config_reader *r, struct rope_set *s)
{
    ZD_TRY(read_numbers(r, s));
    if (s->type == ROPE_DYNAMIC && s->dims <= 2)
        return config_bad(
                r, "rope_type \"dynamic\" needs heads of more than 2 channels "
                   "that turn");
    if (s->type == ROPE_LLAMA3 &&
        !(s->low_freq_factor > 0 && s->high_freq_factor > s->low_freq_factor))
        return config_bad(
                r,
                "rope_type \"llama3\" needs 0 < low_freq_factor < "
                "high_freq_factor, not %g, %g",
                s->low_freq_factor, s->high_freq_factor);
    return s->type == ROPE_YARN       ? read_yarn(r, s)
           : s->type == ROPE_LONGROPE ? read_longrope(r, s)
                                      : ZD_OK;
}

/* --- a set ---------------------------------------------------------------- */

static enum zd_status read_dims(
        const struct config_reader *r, const struct model_config *c,
        double partial, struct rope_set *s)
{
    ZD_TRY(config_read_real(r, "partial_rotary_factor", partial, &partial));
    if (partial != 1 && !c->family->partial_rotary)
        return config_lacks(
                r,
                "`partial_rotary_factor` = %g is not supported in a %s model",
                partial, c->family->name);
    s->dims = partial <= 1 ? (int)(c->head_dim * partial) : 0;
    return s->dims > 0
                   ? ZD_OK
                   : config_bad(
                             r,
                             "`partial_rotary_factor` must be at most 1 and "
                             "leave a channel of %d, not %g",
                             c->head_dim, partial);
}

/* A key beside the table, as in Phi-3, has priority over the one inside. */
static enum zd_status read_original(
        const struct config_reader *r, const struct model_config *c,
        struct rope_set *s)
{
    if (s->type < ROPE_YARN)
        return ZD_OK;
    s->original_positions = c->original_positions;
    if (!s->original_positions)
        ZD_TRY(config_read_int(
                r, "original_max_position_embeddings", s->positions,
                POSITIONS_MAX, &s->original_positions));
    return s->original_positions > 1
                   ? ZD_OK
                   : config_wrong(
                             r, "original_max_position_embeddings",
                             "an integer above 1");
}

/* Reads a set from the table r->json. */
static enum zd_status read_set(
        const struct config_reader *r, const char *key, double theta,
        double partial, struct model_config *c, struct rope_set *s)
{
    ZD_TRY(read_type(r, key, c->family, &s->type));
    ZD_TRY(check_keys(r, key, c));
    ZD_TRY(config_read_real(r, "rope_theta", theta, &s->theta));
    if (s->theta <= 1)
        return config_bad(r, "`rope_theta` must be above 1, not %g", s->theta);
    ZD_TRY(read_dims(r, c, partial, s));
    ZD_TRY(read_original(r, c, s));
    ZD_TRY(read_scaling(r, s));
    if (s->type != ROPE_YARN && s->type != ROPE_LONGROPE)
        return ZD_OK;
    return config_read_real(
            r, "attention_factor", s->attention_factor, &s->attention_factor);
}

enum zd_status config_read_rope(
        const struct config_reader *reader, const char *key,
        const json_t *table, double theta, double partial,
        struct model_config *c, struct rope_set *s)
{
    struct config_reader r = *reader;
    json_auto_t *empty = zd_must(json_object());
    r.json = table ? table : empty;
    *s = (struct rope_set){
            .factor = 1, .attention_factor = 1, .positions = c->max_positions};
    return json_is_object(r.json)
                   ? read_set(&r, key, theta, partial, c, s)
                   : config_wrong(reader, key, "a table of keys");
}

enum zd_status config_read_ropes(
        const struct config_reader *r, double theta, struct model_config *c)
{
    const char *key =
            config_get(r, "rope_scaling") ? "rope_scaling" : "rope_parameters";
    const json_t *table = config_get(r, key);
    double partial;
    ZD_TRY(config_read_real(r, "rope_theta", theta, &theta));
    partial = c->family->partial_rotary ? c->family->partial_rotary : 1;
    ZD_TRY(config_read_real(r, "partial_rotary_factor", partial, &partial));
    JSON_MEMBERS(name, value, table) {
        if (json_is_object(value)) { /* one set per type of layer */
            struct config_reader inner = *r;
            inner.json = table;
            return config_refuse(&inner, name, CONFIG_NULL);
        }
    }
    c->rope_count = 1;
    return config_read_rope(r, key, table, theta, partial, c, &c->ropes[0]);
}
