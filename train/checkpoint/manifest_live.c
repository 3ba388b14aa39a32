/* manifest_live.c - what `set` has changed in a run, as its checkpoints hold it
 * (train_live). Nothing is written of a run in which nothing was set. */
#include "train/checkpoint/manifest.h"

static bool is_empty(const struct train_live *live)
{
    return !(live->rate_set > 0) && !live->has_max_grad_norm &&
           !live->accumulation && !live->logging_steps && !live->save_steps &&
           !live->eval_steps;
}

/* As the job file has it, 0 where it says nothing. */
static json_t *batch_json(const struct train_options *train)
{
    return json_pack(
            "{s:I, s:i, s:i}", "global_batch_size",
            (json_int_t)train->global_batch_size, "per_device_train_batch_size",
            train->per_device_train_batch_size, "gradient_accumulation_steps",
            train->gradient_accumulation_steps);
}

json_t *manifest_live(
        const struct train_live *live, const struct train_options *train)
{
    if (is_empty(live))
        return NULL;
    return json_pack(
            "{s:f, s:f, s:o, s:I, s:I, s:I, s:I, s:I, s:o}", "rate_set",
            live->rate_set, "rate_base", live->rate_base, "max_grad_norm",
            live->has_max_grad_norm ? json_real(live->max_grad_norm)
                                    : json_null(),
            "accumulation", (json_int_t)live->accumulation, "global_batch",
            (json_int_t)live->global_batch, "logging_steps",
            (json_int_t)live->logging_steps, "save_steps",
            (json_int_t)live->save_steps, "eval_steps",
            (json_int_t)live->eval_steps, "batch_of_job", batch_json(train));
}

struct train_live manifest_read_live(const json_t *manifest)
{
    const json_t *live = json_object_get(manifest, "live");
    const json_t *norm = json_object_get(live, "max_grad_norm");
    struct train_live read = {
            .rate_set = json_number_value(json_object_get(live, "rate_set")),
            .rate_base = json_number_value(json_object_get(live, "rate_base")),
            .has_max_grad_norm = json_is_number(norm),
            .max_grad_norm = json_number_value(norm)};
    struct {
        const char *key;
        int64_t *value;
    } counts[] = {
            {"accumulation", &read.accumulation},
            {"global_batch", &read.global_batch},
            {"logging_steps", &read.logging_steps},
            {"save_steps", &read.save_steps},
            {"eval_steps", &read.eval_steps},
    };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        *counts[i].value =
                json_integer_value(json_object_get(live, counts[i].key));
    return read;
}

bool manifest_count_is_sound(
        const json_t *object, const char *key, json_int_t most)
{
    const json_t *count = json_object_get(object, key);
    return !count ||
           (json_is_integer(count) && json_integer_value(count) >= 0 &&
            json_integer_value(count) <= most);
}

bool manifest_live_is_sound(const json_t *manifest)
{
    static const char *const rates[] = {
            "rate_set", "rate_base", "max_grad_norm"};
    static const char *const counts[] = {
            "accumulation", "global_batch", "logging_steps", "save_steps",
            "eval_steps"};
    const json_t *live = json_object_get(manifest, "live");
    struct train_live read = manifest_read_live(manifest);
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        const json_t *rate = json_object_get(live, rates[i]);
        if (json_is_number(rate) && json_number_value(rate) < 0)
            return false;
    }
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (!manifest_count_is_sound(live, counts[i], INT32_MAX))
            return false;
    return read.global_batch >= read.accumulation;
}

bool manifest_batch_changed(
        const json_t *manifest, const struct train_options *train)
{
    const json_t *live = json_object_get(manifest, "live");
    json_t *now = batch_json(train);
    bool changed = !json_equal(json_object_get(live, "batch_of_job"), now);
    json_decref(now);
    return changed;
}
