/* match.c - is this checkpoint one of this run? The model and the
 * data must be the same; settings may change, and each change is said. */
#include "base/log.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/names.h"

#include <stdlib.h>
#include <string.h>

static bool same_shape(const json_t *shape, const struct param *param)
{
    if ((int)json_array_size(shape) != param->dims)
        return false;
    for (int d = 0; d < param->dims; d++)
        if (json_integer_value(json_array_get(shape, (size_t)d)) !=
            param->shape[d])
            return false;
    return true;
}

enum zd_status checkpoint_match_model(
        const struct checkpoint *checkpoint, const struct param_table *table)
{
    const json_t *tensors =
            json_object_get(checkpoint_manifest(checkpoint), "tensors");
    for (int id = 0; id < table->count; id++) {
        const struct param *param = &table->params[id];
        const json_t *shape = json_object_get(tensors, param->name);
        if (!shape)
            return ZD_FAIL(
                    ZD_ERR_DATA, "E0810",
                    "the checkpoint is of another model: it has no %s",
                    param->name);
        if (!same_shape(shape, param))
            return ZD_FAIL(
                    ZD_ERR_DATA, "E0810",
                    "the checkpoint is of another model: the shape of %s "
                    "differs",
                    param->name);
    }
    if ((int)json_object_size(tensors) != table->count)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0810",
                "the checkpoint is of another model: it has %zu tensors, this "
                "model %d",
                json_object_size(tensors), table->count);
    return ZD_OK;
}

static enum zd_status fail_differs(
        const char *what, const json_t *was, const char *now)
{
    char *text = json_dumps(was, JSON_ENCODE_ANY);
    ZD_FAIL(ZD_ERR_CONFIG, "E0811",
            "the checkpoint was made with other data: %s was %s, is %s", what,
            text ? text : "unknown", now);
    free(text);
    zd_fail_help("restore the setting, or use a new job.output_dir");
    return ZD_ERR_CONFIG;
}

static enum zd_status match_data(
        const json_t *data, const struct train_job *job,
        const struct run_identity *identity)
{
    char number[32];
    const json_t *was = json_object_get(data, "tokenizer");
    if (strcmp(json_string_value(was) ? json_string_value(was) : "",
               identity->tokenizer_digest) != 0)
        return fail_differs("the tokenizer", was, identity->tokenizer_digest);
    was = json_object_get(data, "cutoff_len");
    snprintf(number, sizeof number, "%d", job->data.cutoff_len);
    if (json_integer_value(was) != job->data.cutoff_len)
        return fail_differs("data.cutoff_len", was, number);
    was = json_object_get(data, "packing");
    if (json_is_true(was) != job->data.packing)
        return fail_differs(
                "data.packing", was, job->data.packing ? "true" : "false");
    was = json_object_get(data, "shuffle");
    if (json_is_true(was) != job->data.shuffle)
        return fail_differs(
                "data.shuffle", was, job->data.shuffle ? "true" : "false");
    was = json_object_get(data, "data_seed");
    snprintf(
            number, sizeof number, "%llu",
            (unsigned long long)job->job.data_seed);
    if ((uint64_t)json_integer_value(was) != job->job.data_seed)
        return fail_differs("job.data_seed", was, number);
    was = json_object_get(data, "digest");
    if (strcmp(json_string_value(was) ? json_string_value(was) : "",
               identity->data_digest) != 0)
        return fail_differs(
                "the content of [[data.train]]", was, identity->data_digest);
    return ZD_OK;
}

static void say_change(const char *key, const json_t *before, const json_t *now)
{
    char *a = json_dumps(before, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    char *b = json_dumps(now, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    zd_log_info(
            "resuming with %s = %s (was %s)", key, b ? b : "?", a ? a : "?");
    free(a);
    free(b);
}

/* optim.name as a job file has it: 8-bit states are a part of it. */
static json_t *optimizer_of(const json_t *settings)
{
    const char *name =
            json_string_value(json_object_get(settings, "optim.name"));
    const char *states =
            json_string_value(json_object_get(settings, "optim.state_dtype"));
    bool is_8bit = states && strcmp(states, format_name(OPTIM_8BIT)) == 0;
    return json_sprintf("%s%s", name ? name : "adamw", is_8bit ? "_8bit" : "");
}

static bool is_of_optimizer(const char *key)
{
    return strcmp(key, "optim.name") == 0 ||
           strcmp(key, "optim.state_dtype") == 0;
}

/* A change of the name tells that of the states. */
static void say_optimizer(const json_t *before, const json_t *now)
{
    static const char states[] = "optim.state_dtype";
    json_t *a = optimizer_of(before), *b = optimizer_of(now);
    const json_t *was = json_object_get(before, states);
    const json_t *is = json_object_get(now, states);
    if (!json_equal(a, b))
        say_change("optim.name", a, b);
    else if (was && !json_equal(was, is))
        say_change(states, was, is);
    json_decref(a);
    json_decref(b);
}

static void say_changes(const json_t *before, const json_t *now)
{
    say_optimizer(before, now);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)now, key, value)
    {
        const json_t *old = json_object_get(before, key);
        if (old && !json_equal(old, value) && !is_of_optimizer(key))
            say_change(key, old, value);
    }
}

enum zd_status checkpoint_match_run(
        const struct checkpoint *checkpoint, const struct train_job *job,
        int64_t global_batch, const struct run_identity *identity)
{
    const json_t *manifest = checkpoint_manifest(checkpoint);
    const json_t *before = json_object_get(manifest, "settings");
    ZD_TRY(match_data(json_object_get(manifest, "data"), job, identity));
    json_t *now = manifest_settings(job, global_batch);
    say_changes(before, now);
    json_decref(now);
    return ZD_OK;
}
