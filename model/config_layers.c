#include "base/must.h"
#include "model/config_keys.h"

#include <string.h>

/* The keys that determine which layers slide. */
struct layer_rule {
    const struct config_reader *r;
    const struct model_config *c;
    const json_t *types, *rotates; /* lists of all layers; NULL: absent */
    int window;                    /* 0: no layer slides */
    int from, pattern, interval;
};

static enum zd_status read_list(
        const struct layer_rule *rule, const char *key, const json_t **out)
{
    char expected[64];
    int layers = rule->c->layers;
    const json_t *list = *out = config_get(rule->r, key);
    if (!list ||
        (json_is_array(list) && json_array_size(list) == (size_t)layers))
        return ZD_OK;
    ZD_PRINT(expected, "a list of %d, one for each layer", layers);
    return config_wrong(rule->r, key, expected);
}

/* Mistral's class has a window of 4096 if the key is absent from a file. In a
 * job's [model.config], which cannot contain null, absent means none. */
static enum zd_status read_window(struct layer_rule *rule)
{
    const struct config_reader *r = rule->r;
    const struct model_family *family = rule->c->family;
    const json_t *use = config_get(r, "use_sliding_window");
    enum window_rule kind = family->window;
    bool switched = kind == WINDOW_LAST || kind == WINDOW_NOPE;
    bool is_none = json_object_get(r->json, "sliding_window") ||
                   (kind == WINDOW_ALL && r->on_error == ZD_ERR_CONFIG);
    if (use && !json_is_boolean(use))
        return config_wrong(r, "use_sliding_window", "true or false");
    if (kind == WINDOW_NONE || (switched && !json_is_true(use)))
        return ZD_OK;
    return config_read_int(
            r, "sliding_window", is_none ? 0 : family->window_tokens,
            POSITIONS_MAX, &rule->window);
}

static enum zd_status read_rule(struct layer_rule *rule)
{
    const struct config_reader *r = rule->r;
    const struct model_family *family = rule->c->family;
    const json_t *from = config_get(r, "max_window_layers");
    ZD_TRY(read_list(rule, "layer_types", &rule->types));
    ZD_TRY(read_window(rule));
    ZD_TRY(config_read_int(
            r, "sliding_window_pattern", family->window_pattern, LAYERS_MAX,
            &rule->pattern));
    /* both classes with this key default to 28; it may be 0 */
    if (!json_is_integer(from) || json_integer_value(from) != 0)
        ZD_TRY(config_read_int(
                r, "max_window_layers", 28, LAYERS_MAX, &rule->from));
    if (family->window != WINDOW_NOPE)
        return ZD_OK;
    ZD_TRY(read_list(rule, "no_rope_layers", &rule->rotates));
    return config_read_int(
            r, "no_rope_layer_interval", 4, LAYERS_MAX, &rule->interval);
}

static enum zd_status layer_rotates(
        const struct layer_rule *rule, int layer, bool *out)
{
    const json_t *value = json_array_get(rule->rotates, (size_t)layer);
    *out = !rule->interval || (layer + 1) % rule->interval != 0;
    if (!value)
        return ZD_OK;
    *out = json_integer_value(value) == 1;
    if (json_is_integer(value) && (*out || json_integer_value(value) == 0))
        return ZD_OK;
    return config_wrong(
            rule->r, "no_rope_layers",
            "a list of 1 (rotates) and 0 (does not)");
}

/* "attention" is the older name of "full_attention". */
static enum zd_status slides_by_list(
        const struct layer_rule *rule, int layer, bool *slides)
{
    const char *name =
            json_string_value(json_array_get(rule->types, (size_t)layer));
    bool by_rule = *slides;
    *slides = name && strcmp(name, "sliding_attention") == 0;
    if (!name || (!*slides && strcmp(name, "full_attention") != 0 &&
                  strcmp(name, "attention") != 0))
        return config_lacks(
                rule->r,
                "`layer_types` of layer %d = \"%.40s\" is not supported; "
                "full_attention and sliding_attention are",
                layer, name ? name : "?");
    if (*slides && !rule->window)
        return config_bad(
                rule->r,
                "`layer_types` of layer %d = \"sliding_attention\", but there "
                "is no `sliding_window` in use",
                layer);
    if (*slides == by_rule || rule->c->family->layer_types)
        return ZD_OK;
    return config_lacks(
            rule->r,
            "`layer_types` of layer %d differs from what `sliding_window` "
            "says, and a %s model has one kind of layer",
            layer, rule->c->family->name);
}

enum zd_status config_read_layers(
        const struct config_reader *r, struct model_config *c)
{
    struct layer_rule rule = {r, c};
    enum window_rule kind = c->family->window;
    ZD_TRY(read_rule(&rule));
    c->layer_attention =
            zd_array((size_t)c->layers, sizeof *c->layer_attention);
    for (int i = 0; i < c->layers; i++) {
        struct layer_attention *out = &c->layer_attention[i];
        bool rotates;
        ZD_TRY(layer_rotates(&rule, i, &rotates));
        bool slides = rule.window > 0 &&
                      (kind == WINDOW_ALL ||
                       (kind == WINDOW_LAST && i >= rule.from) ||
                       (kind == WINDOW_NOPE && !rotates) ||
                       (kind == WINDOW_PATTERN && (i + 1) % rule.pattern != 0));
        if (rule.types)
            ZD_TRY(slides_by_list(&rule, i, &slides));
        out->window = slides ? rule.window : 0;
        out->rope = !c->rope_count || !rotates     ? -1
                    : slides && c->rope_count == 2 ? 1
                                                   : 0;
    }
    return ZD_OK;
}

double layer_seen_twice(const struct model_config *config, int layer, int T)
{
    double window = config->layer_attention[layer - 1].window;
    return window > 0 && window < T ? window * (2 - window / T) : T;
}
