/* manifest_live.c - what `set` has changed in a run, as its checkpoints hold it
 * (train_live). Nothing is written of a run in which nothing was set. */
#include "train/checkpoint/manifest.h"

#include <stddef.h>

/* The members of "live". max_grad_norm is null unless it was set. */
static const struct field {
    const char *key;
    size_t offset; /* in struct train_live */
    bool is_count; /* an int64_t, else a double */
} fields[] = {
#define RATE(name)                                                             \
    {                                                                          \
#name, offsetof(struct train_live, name), false                        \
    }
#define COUNT(name)                                                            \
    {                                                                          \
#name, offsetof(struct train_live, name), true                         \
    }
        RATE(rate_set),      RATE(rate_base),     RATE(max_grad_norm),
        COUNT(accumulation), COUNT(global_batch), COUNT(logging_steps),
        COUNT(save_steps),   COUNT(eval_steps),
#undef RATE
#undef COUNT
};
enum { FIELDS = sizeof fields / sizeof fields[0] };

static bool is_norm(const struct field *field)
{
    return field->offset == offsetof(struct train_live, max_grad_norm);
}

static json_t *field_json(
        const struct train_live *live, const struct field *field)
{
    const void *at = (const char *)live + field->offset;
    if (is_norm(field) && !live->has_max_grad_norm)
        return json_null();
    return field->is_count ? json_integer(*(const int64_t *)at)
                           : json_real(*(const double *)at);
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
    bool is_empty = !live->has_max_grad_norm;
    json_t *json = json_object();
    for (int i = 0; i < FIELDS; i++) {
        json_t *value = field_json(live, &fields[i]);
        is_empty = is_empty && !(json_number_value(value) > 0);
        json_object_set_new(json, fields[i].key, value);
    }
    json_object_set_new(json, "batch_of_job", batch_json(train));
    if (!is_empty)
        return json;
    json_decref(json);
    return NULL;
}

struct train_live manifest_read_live(const json_t *manifest)
{
    const json_t *live = json_object_get(manifest, "live");
    struct train_live read = {0};
    for (int i = 0; i < FIELDS; i++) {
        const json_t *value = json_object_get(live, fields[i].key);
        void *at = (char *)&read + fields[i].offset;
        if (is_norm(&fields[i]))
            read.has_max_grad_norm = json_is_number(value);
        if (fields[i].is_count)
            *(int64_t *)at = json_integer_value(value);
        else
            *(double *)at = json_number_value(value);
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
        if (fields[i].is_count
                    ? !manifest_count_is_sound(live, fields[i].key, INT32_MAX)
                    : json_number_value(json_object_get(live, fields[i].key)) <
                              0)
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
