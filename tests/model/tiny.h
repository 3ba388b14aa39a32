/* tiny.h - a small model, held whole, for tests of the passes. */
#pragma once

#include "base/number/rng.h"
#include "model/adapters/lora.h"
#include "model/files/config.h"
#include "model/files/weights_hf.h"
#include "model/replicated_params.h"
#include "model/slice.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct tiny {
    struct model_config config;
    struct param_table table;
    struct arena_plan plan;
    struct arena arena;
    struct replicated_params *replica;
    float *grads;  /* of all tensors, one after the other */
    bool *written; /* (unit_count) a unit's, since they were set to false */
    struct model *model;
    struct model_hooks hooks;
    struct model_shape shape;
};

/* To train in fp32, with a head in chunks of 7 tokens. */
static inline struct model_shape tiny_shape(
        int B, int T, struct checkpointing checkpointing)
{
    return (struct model_shape){
            .B = B,
            .T = T,
            .eval_B = B,
            .checkpointing = checkpointing,
            .dtype = DTYPE_FP32,
            .head_chunk = 7,
            .train = true,
    };
}

/* For whatever must not fail on the way to what is tested. */
static inline void tiny_must(enum zd_status status)
{
    if (status == ZD_OK)
        return;
    zd_error_print(stderr, zd_error_get());
    abort();
}

/* Of cases/shapes.json, or JSON itself. */
static inline void tiny_config(const char *text, struct model_config *config)
{
    char path[4096];
    json_t *all = NULL, *json;
    snprintf(
            path, sizeof path, "%s/../model/cases/shapes.json",
            getenv("ZEROD_FIXTURES"));
    if (text[0] == '{') {
        tiny_must(json_parse(text, strlen(text), "test", ZD_ERR_BUG, &json));
    } else {
        tiny_must(json_parse_file(path, 1 << 20, &all));
        json = json_incref(json_object_get(all, text));
    }
    tiny_must(model_config_parse(json, text, ZD_ERR_CONFIG, config));
    json_decref(json);
    json_decref(all);
}

/* The table, adapted. */
static inline void tiny_adapt(
        struct tiny *t, const struct lora_options *options)
{
    struct peft_config adapter;
    tiny_must(lora_config(options, &adapter));
    tiny_must(lora_extend(&t->config, &adapter, options, &t->table));
    peft_config_fini(&adapter);
}

/* NULL: frozen, or a model that does not train. */
static inline float *tiny_grad(const struct tiny *t, int id)
{
    char *first = replicated_param(t->replica, 0);
    size_t at = (size_t)((char *)replicated_param(t->replica, id) - first) /
                dtype_bytes(t->shape.dtype);
    bool has_grad = t->shape.train && t->table.params[id].trainable;
    return has_grad ? t->grads + at : NULL;
}

static inline enum zd_status tiny_params_acquire(
        void *ctx, int unit, const void **params)
{
    struct tiny *t = ctx;
    return replicated_hooks(t->replica)
            .params_acquire(t->replica, unit, params);
}

static inline enum zd_status tiny_params_release(void *ctx, int unit)
{
    return ZD_OK;
}

static inline enum zd_status tiny_grads_acquire(
        void *ctx, int unit, void **grads, bool *accumulate_out)
{
    struct tiny *t = ctx;
    const int *first = t->table.unit_first;
    for (int id = first[unit]; id < first[unit + 1]; id++)
        grads[id] = tiny_grad(t, id);
    *accumulate_out = t->written[unit];
    return ZD_OK;
}

static inline enum zd_status tiny_grads_release(void *ctx, int unit)
{
    struct tiny *t = ctx;
    t->written[unit] = true;
    return ZD_OK;
}

static inline struct model_hooks tiny_hooks(struct tiny *t)
{
    return (struct model_hooks){
            t, tiny_params_acquire, tiny_params_release, tiny_grads_acquire,
            tiny_grads_release};
}

/* The next micro-batch writes the gradients, those after it add to them. */
static inline void tiny_step_begin(struct tiny *t)
{
    memset(t->written, 0, (size_t)t->table.unit_count * sizeof *t->written);
}

static inline void tiny_build(
        struct tiny *t, const struct model_shape *shape,
        const struct kernels *kernels, const struct weight_source *source)
{
    t->shape = *shape;
    arena_plan_init(&t->plan);
    tiny_must(model_plan(&t->config, &t->table, shape, &t->plan));
    tiny_must(arena_take(&t->arena, &t->plan));
    tiny_must(replicated_create(&t->table, shape->dtype, source, &t->replica));
    t->grads = calloc(t->table.total, sizeof *t->grads);
    t->written = calloc((size_t)t->table.unit_count, sizeof *t->written);
    t->hooks = tiny_hooks(t);
    tiny_must(model_create(
            &t->config, &t->table, shape, kernels, &t->arena, &t->model));
}

static inline const struct kernels *tiny_plain(enum dtype dtype)
{
    const struct kernels *kernels;
    tiny_must(kernels_plain(dtype, &kernels));
    return kernels;
}

/* The configuration and its table alone; `freeze` may be NULL. */
static inline void tiny_table(
        struct tiny *t, const char *config, const char *freeze)
{
    memset(t, 0, sizeof *t);
    tiny_config(config, &t->config);
    tiny_must(
            param_table_build(&t->config, &freeze, freeze != NULL, &t->table));
}

/* .. and the plan. */
static inline void tiny_plan(
        struct tiny *t, const char *config, const char *freeze,
        const struct model_shape *shape)
{
    tiny_table(t, config, freeze);
    arena_plan_init(&t->plan);
    tiny_must(model_plan(&t->config, &t->table, shape, &t->plan));
}

/* A model of random weights on the table. */
static inline void tiny_build_random(
        struct tiny *t, const struct model_shape *shape,
        const struct kernels *kernels)
{
    struct weight_source source;
    tiny_must(weights_open_random(7, &t->table, &source));
    tiny_build(t, shape, kernels, &source);
    weights_close(&source);
}

static inline void tiny_init(
        struct tiny *t, const char *config, const char *freeze,
        const struct model_shape *shape, const struct kernels *kernels)
{
    tiny_table(t, config, freeze);
    tiny_build_random(t, shape, kernels);
}

static inline void tiny_open(
        struct tiny *t, const char *dir, const struct model_shape *shape,
        const struct kernels *kernels)
{
    struct weight_source source;
    memset(t, 0, sizeof *t);
    tiny_must(model_config_read(dir, false, &t->config));
    tiny_must(param_table_build(&t->config, NULL, 0, &t->table));
    tiny_must(weights_open_hf(dir, &t->config, &t->table, NULL, &source));
    tiny_build(t, shape, kernels, &source);
    weights_close(&source);
}

static inline void tiny_fini(struct tiny *t)
{
    model_destroy(t->model);
    replicated_destroy(t->replica);
    free(t->grads);
    free(t->written);
    arena_release(&t->arena);
    arena_plan_fini(&t->plan);
    param_table_fini(&t->table);
    model_config_fini(&t->config);
}

/* Gradients that show what is not written. */
static inline void tiny_poison(struct tiny *t)
{
    for (int id = 0; id < t->table.count; id++)
        for (size_t i = 0; i < t->table.params[id].count; i++)
            if (tiny_grad(t, id))
                tiny_grad(t, id)[i] = NAN;
}

/* Biases, norms and adapters' second factors away from the 0 and 1 that they
 * begin with, by element of the whole. */
static inline void tiny_add_noise(struct tiny *t)
{
    for (int id = 0; id < t->table.count; id++) {
        const struct param *p = &t->table.params[id];
        void *param = replicated_param(t->replica, id);
        float noise, *w = malloc(p->count * sizeof *w);
        bool begins_alike = p->dims == 1 || p->part == PARAM_LORA_B;
        struct slice_run run = {0};
        dtype_convert(w, DTYPE_FP32, param, t->shape.dtype, p->count);
        while (begins_alike && param_slice_next(p, p->count, &run))
            for (size_t i = 0; i < run.count; i++) {
                rng_normal(5, (uint64_t)id, run.whole + i, 1, &noise);
                w[run.begin + i] += 0.2f * noise;
            }
        dtype_convert(param, t->shape.dtype, w, DTYPE_FP32, p->count);
        free(w);
    }
}

/* Are the gradients, of tensors that both train, the same to the bit? */
static inline bool tiny_same_grads(struct tiny *a, struct tiny *b)
{
    for (int id = 0; id < a->table.count; id++) {
        const float *x = tiny_grad(a, id);
        const float *y = tiny_grad(b, id);
        if (x && y && memcmp(x, y, a->table.params[id].count * sizeof *x) != 0)
            return false;
    }
    return true;
}

/* The losses since the last call, added up. */
static inline double tiny_loss(struct tiny *t)
{
    struct exact_sum loss;
    tiny_must(model_loss_take(t->model, &loss));
    return exact_sum_value(&loss);
}

static inline double tiny_evaluate(
        struct tiny *t, const struct model_batch *batch)
{
    tiny_must(model_evaluate(t->model, batch, &t->hooks));
    return tiny_loss(t);
}

/* One micro-batch; gradients are left in the replica. Returns the sum of
 * losses.
 */
static inline double tiny_step(
        struct tiny *t, const struct model_batch *batch, float dloss)
{
    tiny_must(model_forward(t->model, batch, 1, dloss, &t->hooks));
    tiny_must(model_backward(t->model, &t->hooks));
    return tiny_loss(t);
}
