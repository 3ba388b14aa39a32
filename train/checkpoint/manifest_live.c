/* manifest_live.c - what `set` has changed in a run, as its checkpoints hold it
 * (train_live). Nothing is written of a run in which nothing was set. */
#include "train/checkpoint/manifest.h"

/* The members of "live" that were set: 0 where not, but for max_grad_norm,
 * which is null. */
static const struct field {
    const char *key;
    enum train_setting_id id;
    bool is_count;
} fields[] = {
        {"rate_set", SET_LEARNING_RATE, false},
        {"max_grad_norm", SET_MAX_GRAD_NORM, false},
        {"accumulation", SET_ACCUMULATION, true},
        {"logging_steps", SET_LOGGING_STEPS, true},
        {"save_steps", SET_SAVE_STEPS, true},
        {"eval_steps", SET_EVAL_STEPS, true},
};
enum { FIELDS = sizeof fields / sizeof fields[0] };

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
    bool is_empty = true;
    json_t *json = json_pack(
            "{s:f, s:I, s:o}", "rate_base", live->rate_base, "global_batch",
            (json_int_t)live->global_batch, "batch_of_job", batch_json(train));
    for (int i = 0; i < FIELDS; i++) {
        bool is_given = live->given[fields[i].id];
        double value = is_given ? live->value[fields[i].id] : 0;
        bool is_null = !is_given && fields[i].id == SET_MAX_GRAD_NORM;
        is_empty = is_empty && !is_given;
        json_object_set_new(
                json, fields[i].key,
                fields[i].is_count ? json_integer((json_int_t)value)
                : is_null          ? json_null()
                                   : json_real(value));
    }
    if (!is_empty)
        return json;
    json_decref(json);
    return NULL;
}

struct train_live manifest_read_live(const json_t *manifest)
{
    const json_t *live = json_object_get(manifest, "live");
    struct train_live read = {
            .rate_base = json_number_value(json_object_get(live, "rate_base")),
            .global_batch = json_integer_at(live, "global_batch")};
    for (int i = 0; i < FIELDS; i++) {
        const json_t *value = json_object_get(live, fields[i].key);
        enum train_setting_id id = fields[i].id;
        read.value[id] = fields[i].is_count ? (double)json_integer_value(value)
                                            : json_number_value(value);
        read.given[id] = id == SET_MAX_GRAD_NORM ? json_is_number(value)
                                                 : read.value[id] > 0;
    }
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
    const json_t *live = json_object_get(manifest, "live");
    struct train_live read = manifest_read_live(manifest);
    for (int i = 0; i < FIELDS; i++)
        if (read.value[fields[i].id] < 0 ||
            (fields[i].is_count &&
             !manifest_count_is_sound(live, fields[i].key, INT32_MAX)))
            return false;
    return read.rate_base >= 0 &&
           manifest_count_is_sound(live, "global_batch", INT32_MAX) &&
           (double)read.global_batch >= read.value[SET_ACCUMULATION];
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
