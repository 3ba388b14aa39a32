#include "model/config_layers.h"
#include "base/must.h"

#include <string.h>

/* The keys that say which layers slide. */
struct layer_rule {
    const json_t *types, *rotates; /* lists of all layers; NULL: absent */
    int window;                    /* 0: no layer slides */
    int from, pattern, interval;
};

static enum zd_status read_list(
        const struct config_reader *r, const char *key, int layers,
        const json_t **out)
{
    char expected[64];
    const json_t *list = *out = config_get(r, key);
    if (!list ||
        (json_is_array(list) && json_array_size(list) == (size_t)layers))
        return ZD_OK;
    snprintf(
            expected, sizeof expected, "a list of %d, one for each layer",
            layers);
    return config_wrong(r, key, expected);
}

/* Mistral's class has a window of 4096 when the key is absent from a file; in a
 * job's own [model.config], which cannot write null, absent means none. */
static enum zd_status read_window(
        const struct config_reader *r, const struct model_family *family,
        int *window)
{
    const json_t *use = config_get(r, "use_sliding_window");
    bool switched =
            family->window == WINDOW_LAST || family->window == WINDOW_NOPE;
    bool is_there = json_object_get(r->json, "sliding_window");
    int absent = is_there || (family->window == WINDOW_ALL &&
                              r->on_error == ZD_ERR_CONFIG)
                         ? 0
                         : family->window_tokens;
    *window = 0;
    if (use && !json_is_boolean(use))
        return config_wrong(r, "use_sliding_window", "true or false");
    if (family->window == WINDOW_NONE || (switched && !json_is_true(use)))
        return ZD_OK;
    return config_read_int(r, "sliding_window", absent, POSITIONS_MAX, window);
}

static enum zd_status read_rule(
        const struct config_reader *r, const struct model_config *c,
        struct layer_rule *rule)
{
    const json_t *from = config_get(r, "max_window_layers");
    const struct model_family *family = c->family;
    ZD_TRY(read_list(r, "layer_types", c->layers, &rule->types));
    ZD_TRY(read_window(r, family, &rule->window));
    ZD_TRY(config_read_int(
            r, "sliding_window_pattern", family->window_pattern, LAYERS_MAX,
            &rule->pattern));
    rule->from = 28; /* of both classes that have the key */
    if (from && json_is_integer(from) && json_integer_value(from) == 0)
        rule->from = 0;
    else
        ZD_TRY(config_read_int(
                r, "max_window_layers", 28, LAYERS_MAX, &rule->from));
    if (family->window != WINDOW_NOPE)
        return ZD_OK;
    ZD_TRY(read_list(r, "no_rope_layers", c->layers, &rule->rotates));
    return config_read_int(
            r, "no_rope_layer_interval", 4, LAYERS_MAX, &rule->interval);
}

/* 1: it does. */
static enum zd_status layer_rotates(
        const struct config_reader *r, const struct layer_rule *rule, int layer,
        bool *out)
{
    const json_t *value = json_array_get(rule->rotates, (size_t)layer);
    *out = !rule->interval || (layer + 1) % rule->interval != 0;
    if (!value)
        return ZD_OK;
    *out = json_integer_value(value) == 1;
    if (json_is_integer(value) && (*out || json_integer_value(value) == 0))
        return ZD_OK;
    return config_wrong(
            r, "no_rope_layers", "a list of 1 (rotates) and 0 (does not)");
}

static bool slides_by_rule(
        enum window_rule window, const struct layer_rule *rule, int layer,
        bool rotates)
{
    switch (window) {
    case WINDOW_ALL:
        return rule->window > 0;
    case WINDOW_LAST:
        return rule->window > 0 && layer >= rule->from;
    case WINDOW_NOPE:
        return rule->window > 0 && !rotates;
    case WINDOW_PATTERN:
        return rule->window > 0 && (layer + 1) % rule->pattern != 0;
    default:
        return false;
    }
}

/* "attention" is the older name of "full_attention". */
static enum zd_status slides_by_list(
        const struct config_reader *r, const struct layer_rule *rule, int layer,
        bool *slides)
{
    const char *name =
            json_string_value(json_array_get(rule->types, (size_t)layer));
    *slides = name && strcmp(name, "sliding_attention") == 0;
    if (!name || (!*slides && strcmp(name, "full_attention") != 0 &&
                  strcmp(name, "attention") != 0))
        return config_fail(
                r, "E0304",
                "`layer_types` of layer %d = \"%.40s\" is not supported; "
                "full_attention and sliding_attention are",
                layer, name ? name : "?");
    if (*slides && !rule->window)
        return config_fail(
                r, "E0302",
                "`layer_types` of layer %d = \"sliding_attention\", but there "
                "is no `sliding_window` in use",
                layer);
    return ZD_OK;
}

static enum zd_status read_layer(
        const struct config_reader *r, const struct model_config *c,
        const struct layer_rule *rule, int layer, struct layer_attention *out)
{
    bool rotates, slides, listed;
    ZD_TRY(layer_rotates(r, rule, layer, &rotates));
    slides = slides_by_rule(c->family->window, rule, layer, rotates);
    if (rule->types) {
        ZD_TRY(slides_by_list(r, rule, layer, &listed));
        if (listed != slides && !c->family->layer_types)
            return config_fail(
                    r, "E0304",
                    "`layer_types` of layer %d differs from what "
                    "`sliding_window` says, and a %s model has one kind of "
                    "layer",
                    layer, c->family->name);
        slides = listed;
    }
    out->window = slides ? rule->window : 0;
    out->rope = !c->rope_count || !rotates     ? -1
                : slides && c->rope_count == 2 ? 1
                                               : 0;
    return ZD_OK;
}

enum zd_status config_read_layers(
        const struct config_reader *r, struct model_config *c)
{
    struct layer_rule rule = {0};
    ZD_TRY(read_rule(r, c, &rule));
    c->layer_attention =
            zd_array((size_t)c->layers, sizeof *c->layer_attention);
    for (int i = 0; i < c->layers; i++)
        ZD_TRY(read_layer(r, c, &rule, i, &c->layer_attention[i]));
    return ZD_OK;
}

double layer_seen_twice(const struct model_config *config, int layer, int T)
{
    double window = config->layer_attention[layer - 1].window;
    return window > 0 && window < T ? window * (2 - window / T) : T;
}
