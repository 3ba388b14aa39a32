/* opened.h - a model of tests/fixtures: its configuration, table and weights.
 */
#pragma once

#include "tests/model/tiny.h"

enum { PATH_BYTES = 4000 };

struct opened {
    char dir[PATH_BYTES];
    struct model_config config;
    struct param_table table;
    struct weight_source source;
    enum dtype storage;
};

/* `path` is in tests/fixtures. */
static inline void opened_init(struct opened *o, const char *path)
{
    memset(o, 0, sizeof *o);
    snprintf(o->dir, sizeof o->dir, "%s/%s", getenv("ZEROD_FIXTURES"), path);
    tiny_must(model_config_read(o->dir, true, &o->config));
    tiny_must(param_table_build(&o->config, NULL, 0, &o->table));
    tiny_must(weights_open_hf(
            o->dir, &o->config, &o->table, &o->storage, &o->source));
}

/* The model that adapters/NAME is of, whose name begins with the model's. */
static inline void opened_base(struct opened *o, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "%.*s/model", (int)strcspn(name, "-"), name);
    opened_init(o, path);
}

static inline void opened_fini(struct opened *o)
{
    weights_close(&o->source);
    param_table_fini(&o->table);
    model_config_fini(&o->config);
}

/* All of a tensor, in ranges of so many elements; the caller frees it. */
static inline float *read_all(
        const struct weight_source *source, int id, size_t count, size_t range)
{
    float *values = malloc(count * sizeof *values);
    for (size_t at = 0; at < count; at += range)
        tiny_must(source->read(
                source->ctx, id, at, count - at < range ? count - at : range,
                values + at));
    return values;
}
