#include "train/checkpoint/manifest.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "kernels/kernels.h"
#include "model/quantized/base_digest.h"
#include "train/checkpoint/arrays.h"
#include "zd_config.h"

#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

/* Limit in bytes: a thousand shards of 70B parameters have about 30 million. */
static const uint64_t MANIFEST_MAX = 256 << 20;
/* limit of values in a manifest: one per tensor and rank */
enum { VALUES_MAX = 4000000 };

/* Writes whole numbers without a decimal point, for people. */
static json_t *plain_number(double value)
{
    if (value == (double)(json_int_t)value && fabs(value) < 1e15)
        return json_integer((json_int_t)value);
    return json_real(value);
}

static const char *state_type_name(const struct optim_options *optim)
{
    static const enum optim_format formats[] = {
            [OPTIM_STATE_FP32] = OPTIM_FP32,
            [OPTIM_STATE_BF16] = OPTIM_BF16,
            [OPTIM_STATE_8BIT] = OPTIM_8BIT};
    return format_name(formats[optim->state_type]);
}

/* For adapters only what may change; match.c compares the rest. */
json_t *manifest_settings(const struct train_job *job, int64_t global_batch)
{
    static const char *const kept[] = {
            "optim.",         "train.",          "checkpoint.save_",
            "log.logging_",   "eval.eval_steps", "lora.lora_dropout",
            "lora.loraplus_",
    };
    json_t *settings = json_object();
    JSON_MEMBERS(key, value, job->values)
        for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
            if (strncmp(key, kept[i], strlen(kept[i])) == 0)
                json_object_set_new(settings, key, json_deep_copy(value));
    json_object_set_new(
            settings, "train.global_batch_size", json_integer(global_batch));
    return settings;
}

/* JSON of a word; "true" and "false" become booleans. */
static json_t *word_json(const char *word)
{
    return strcmp(word, "true") == 0    ? json_true()
           : strcmp(word, "false") == 0 ? json_false()
                                        : json_string(word);
}

json_t *manifest_data(
        const struct train_job *job, const struct run_identity *identity)
{
    static const char *const longs[] = {"truncate", "split", "drop"};
    const json_t *scaling = job->model.rope_scaling;
    return json_pack(
            "{s:s, s:s, s:i, s:o, s:s, s:o, s:I, s:s*, s:o, s:O*, s:O*}",
            "digest", identity->data_digest, "tokenizer",
            identity->tokenizer_digest, "cutoff_len", job->data.cutoff_len,
            "packing", word_json(identity->packing), "long_documents",
            longs[job->data.long_documents], "shuffle",
            word_json(identity->order), "data_seed",
            (json_int_t)job->job.data_seed, "template_date",
            identity->template_date, "rope_scaling",
            scaling ? json_deep_copy(scaling) : json_string("none"),
            "chat_template", json_object_get(job->values, "data.chat_template"),
            "train_on", json_object_get(job->values, "data.train_on"));
}

/* NULL unless the job uses fp16. */
static json_t *loss_scale_json(const struct loss_scale *state)
{
    if (!(state->scale > 0))
        return NULL;
    return json_pack(
            "{s:o, s:I, s:i}", "scale", plain_number(state->scale),
            "good_steps", (json_int_t)state->good_steps, "hysteresis",
            state->hysteresis);
}

json_t *manifest_shape(const struct param *param)
{
    json_t *shape = json_array();
    for (int d = 0; d < param->dims; d++)
        json_array_append_new(shape, json_integer(param->shape[d]));
    return shape;
}

static json_t *tensors_json(const struct param_table *table)
{
    json_t *tensors = json_object();
    for (int id = 0; id < table->count; id++)
        json_object_set_new(
                tensors, table->params[id].name,
                manifest_shape(&table->params[id]));
    return tensors;
}

/* The number of tensors per format of a lane. */
static json_t *lane_json(const struct zero_plan *plan, enum optim_lane lane)
{
    int counts[OPTIM_BLOCKS + 1] = {0};
    json_t *formats = json_object();
    for (int id = 0; id < plan->request.table->count; id++)
        counts[zero_layout_of(plan, id).lane[lane]]++;
    for (int format = OPTIM_FP32; format <= OPTIM_BLOCKS; format++)
        if (counts[format])
            json_object_set_new(
                    formats, format_name((enum optim_format)format),
                    json_integer(counts[format]));
    return formats;
}

/* Adam's t of tensors that did not train from the first step on; NULL: none. */
static json_t *steps_json(
        const struct checkpoint_writer *writer, const struct train_state *state)
{
    const struct param_table *table = &writer->plan->table;
    json_auto_t *steps = json_object();
    for (int id = 0; id < table->count; id++) {
        int64_t began = zero_began(writer->zero, id);
        if (began && !writer->job->checkpoint.save_only_model)
            json_object_set_new(
                    steps, table->params[id].name,
                    json_integer((json_int_t)(state->applied_steps - began)));
    }
    return json_object_size(steps) ? json_incref(steps) : NULL;
}

/* The optimizer, its states' formats (with numbers of tensors), and their t;
 * takes ownership of `steps`. */
static json_t *optimizer_json(const struct zero_plan *plan, json_t *steps)
{
    const struct optim_options *optim = &plan->request.optim;
    return json_pack(
            "{s:s, s:s, s:s, s:b, s:o, s:o, s:o*}", "name",
            train_optimizer_name(optim->name), "master",
            optim->master == OPTIM_MASTER_NONE ? "none" : "fp32", "state_dtype",
            state_type_name(optim), "stable_embedding", optim->stable_embedding,
            "m", lane_json(plan, OPTIM_M), "v", lane_json(plan, OPTIM_V), "t",
            steps);
}

json_t *manifest_codes(const struct param_table *table)
{
    for (int id = 0; id < table->count; id++)
        if (param_is_quantized(table, id))
            return json_pack(
                    "{s:s, s:b}", "format", param_codes_name(table), "nested",
                    table->codes[id].nested_block > 0);
    return NULL;
}

/* Where the frozen tensors are, which no shard holds; NULL: all train. Random
 * ones come from a seed. */
static json_t *base_json(const struct checkpoint_writer *writer)
{
    char digest[BASE_DIGEST_TEXT];
    const struct job_plan *plan = writer->plan;
    const struct train_job *job = writer->job;
    if (!param_has_base(&plan->table))
        return NULL;
    base_digest_text(writer->base_digest, digest);
    json_t *seed = train_stored_base(job)
                           ? NULL
                           : json_integer((json_int_t)job->job.seed);
    return json_pack(
            "{s:s?, s:o*, s:s, s:s, s:o*}", "path", job->model.path, "seed",
            seed, "digest", digest, "format", job_plan_base_format(plan),
            "codes", manifest_codes(&plan->table));
}

/* The algorithms of matmuls on rank 0's GPU, chosen by timing; NULL: none. */
static json_t *products_json(void)
{
    ZD_FREED char *text = kernels_products_text();
    return text ? json_string(text) : NULL;
}

/* The members of "progress": counts (0 or more), steps (-1: none), and losses.
 */
enum counter_type { COUNT, STEP, LOSS };
static const struct counter {
    const char *key;
    size_t offset; /* in struct train_state */
    enum counter_type type;
} progress_counters[] = {
#define FIELD(name, type)                                                      \
    {                                                                          \
#name, offsetof(struct train_state, name), type                        \
    }
        FIELD(samples_taken, COUNT),    FIELD(tokens_seen, COUNT),
        FIELD(applied_steps, COUNT),    FIELD(skipped_steps, COUNT),
        FIELD(skipped_in_a_row, COUNT), FIELD(max_steps, COUNT),
        FIELD(eval_loss, LOSS),         FIELD(eval_step, STEP),
        FIELD(best_eval_loss, LOSS),    FIELD(best_step, STEP),
#undef FIELD
};
enum { COUNTERS = sizeof progress_counters / sizeof progress_counters[0] };

static json_t *progress_json(const struct train_state *state)
{
    json_t *progress = json_object();
    json_t *loss_scale = loss_scale_json(&state->loss_scale);
    ZD_EACH(counter, progress_counters, COUNTERS) {
        const void *at = (const char *)state + counter->offset;
        json_object_set_new(
                progress, counter->key,
                counter->type == LOSS
                        ? json_number_or_null(*(const double *)at)
                        : json_integer((json_int_t) * (const int64_t *)at));
    }
    if (loss_scale)
        json_object_set_new(progress, "loss_scale", loss_scale);
    return progress;
}

/* --- what `set` changed --------------------------------------------------- *
 *
 * Nothing is written of a run in which nothing was set. */

/* The members of "live": 0 if not set, except max_grad_norm, which is null. */
static const char *const live_keys[SETTINGS] = {
        [SET_LEARNING_RATE] = "rate_set",
        [SET_MAX_GRAD_NORM] = "max_grad_norm",
        [SET_ACCUMULATION] = "accumulation",
        [SET_LOGGING_STEPS] = "logging_steps",
        [SET_SAVE_STEPS] = "save_steps",
        [SET_EVAL_STEPS] = "eval_steps"};

/* As in the job file; 0: not given. */
static json_t *batch_json(const struct train_options *train)
{
    return json_pack(
            "{s:I, s:i, s:i}", "global_batch_size",
            (json_int_t)train->global_batch_size, "per_device_train_batch_size",
            train->per_device_train_batch_size, "gradient_accumulation_steps",
            train->gradient_accumulation_steps);
}

static json_t *live_json(
        const struct train_live *live, const struct train_options *train)
{
    bool is_empty = true;
    json_auto_t *json = json_pack(
            "{s:f, s:I, s:o}", "rate_base", live->rate_base, "global_batch",
            (json_int_t)live->global_batch, "batch_of_job", batch_json(train));
    for (int id = 0; id < SETTINGS; id++) {
        bool is_given = live->given[id];
        double value = is_given ? live->value[id] : 0;
        bool is_null = !is_given && id == SET_MAX_GRAD_NORM;
        is_empty = is_empty && !is_given;
        json_object_set_new(
                json, live_keys[id],
                train_settings[id].is_integer ? json_integer((json_int_t)value)
                : is_null                     ? json_null()
                                              : json_real(value));
    }
    return is_empty ? NULL : json_incref(json);
}

static struct train_live live_of(const json_t *manifest)
{
    const json_t *live = json_object_get(manifest, "live");
    struct train_live read = {
            .rate_base = json_number_value(json_object_get(live, "rate_base")),
            .global_batch = json_integer_at(live, "global_batch")};
    for (int id = 0; id < SETTINGS; id++) {
        const json_t *value = json_object_get(live, live_keys[id]);
        read.value[id] = train_settings[id].is_integer
                                 ? (double)json_integer_value(value)
                                 : json_number_value(value);
        read.given[id] = id == SET_MAX_GRAD_NORM ? json_is_number(value)
                                                 : read.value[id] > 0;
    }
    return read;
}

/* Valid: absent, or a whole number from 0 to `most`. */
static bool count_is_sound(
        const json_t *object, const char *key, json_int_t most)
{
    const json_t *count = json_object_get(object, key);
    return !count ||
           (json_is_integer(count) && json_integer_value(count) >= 0 &&
            json_integer_value(count) <= most);
}

static bool live_is_sound(const json_t *manifest)
{
    const json_t *live = json_object_get(manifest, "live");
    struct train_live read = live_of(manifest);
    for (int id = 0; id < SETTINGS; id++)
        if (read.value[id] < 0 ||
            (train_settings[id].is_integer &&
             !count_is_sound(live, live_keys[id], INT32_MAX)))
            return false;
    return read.rate_base >= 0 &&
           count_is_sound(live, "global_batch", INT32_MAX) &&
           (double)read.global_batch >= read.value[SET_ACCUMULATION];
}

bool manifest_batch_changed(
        const json_t *manifest, const struct train_options *train)
{
    const json_t *live = json_object_get(manifest, "live");
    json_auto_t *now = batch_json(train);
    return !json_equal(json_object_get(live, "batch_of_job"), now);
}

/* --- all of it ------------------------------------------------------------ */

/* Does any shard hold columns? The same on every rank. */
static bool saves_columns(const struct param_table *table)
{
    for (int id = 0; id < table->count; id++)
        if (table->params[id].trainable && table->params[id].slice.by_column)
            return true;
    return false;
}

json_t *manifest_build(
        const struct checkpoint_writer *writer, const struct train_state *state)
{
    json_t *progress = progress_json(state);
    json_t *steps = steps_json(writer, state);
    struct mesh mesh = writer->plan->mesh;
    const struct param_table *table = &writer->plan->table;
    bool is_newer = steps || saves_columns(writer->plan->zero.request.table);
    int format = is_newer ? CHECKPOINT_FORMAT : CHECKPOINT_FORMAT_OLDEST;
    return json_pack(
            "{s:i, s:s, s:I, s:i, s:o*, s:i, s:o, s:o*, s:I, s:o, s:o, s:o, "
            "s:o, s:s, "
            "s:b, s:s*, s:b, s:o*, s:o*, s:o*, s:{s:I, s:I}, s:[]}",
            "format", format, "zerod", ZD_VERSION, "step",
            (json_int_t)state->step, "world", comm_size(writer->comm), "mesh",
            mesh.shard < mesh.world ? job_mesh_json(mesh) : NULL, "stage",
            writer->job->zero.stage, "progress", progress, "live",
            live_json(&state->live, &writer->job->train), "last_event",
            (json_int_t)writer->last_event, "data",
            manifest_data(writer->job, &writer->identity), "settings",
            manifest_settings(writer->job, writer->global_batch), "optimizer",
            optimizer_json(&writer->plan->zero, steps), "tensors",
            tensors_json(table), "export_dtype",
            dtype_name(writer->plan->export_dtype), "gpt2_prefix",
            writer->file_prefix, "others",
            writer->plan->config.wrapper ? writer->job->model.path : NULL,
            "moments", !writer->job->checkpoint.save_only_model, "adapter",
            table->adapters
                    ? json_pack("{s:O}", "config", writer->plan->adapter.json)
                    : NULL,
            "base", base_json(writer), "products", products_json(),
            "parameters", "trainable", (json_int_t)table->trainable, "all",
            (json_int_t)table->total, "files");
}

json_t *manifest_file(
        const char *name, uint64_t bytes, const char *digest, json_t *holds)
{
    return json_pack(
            "{s:s, s:I, s:s, s:o*}", "name", name, "bytes", (json_int_t)bytes,
            holds ? MANIFEST_PARTS_DIGEST : MANIFEST_DIGEST, digest, "holds",
            holds);
}

json_int_t manifest_bytes(const json_t *manifest)
{
    json_int_t bytes = 0;
    JSON_EACH(file, json_object_get(manifest, "files"))
        bytes += json_integer_at(file, "bytes");
    return bytes;
}

/* The digest of the manifest without its seal, in canonical form. */
static void seal_of(const json_t *manifest, char hex[HASH_HEX])
{
    json_auto_t *copy = json_copy((json_t *)(uintptr_t)manifest);
    json_object_del(copy, "manifest_xxh3_128");
    ZD_FREED char *text = zd_must(json_dumps(
            copy, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17)));
    hash_bytes(text, strlen(text), hex);
}

void manifest_seal(json_t *manifest)
{
    char hex[HASH_HEX];
    seal_of(manifest, hex);
    json_object_set_new(manifest, "manifest_xxh3_128", json_string(hex));
}

static bool name_is_safe(const char *name)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "abcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t length = strlen(name);
    return length > 0 && length < 64 && name[0] != '.' &&
           strspn(name, allowed) == length;
}

static enum zd_status check_count(
        const char *path, const json_t *object, const char *key,
        json_int_t most)
{
    if (count_is_sound(object, key, most))
        return ZD_OK;
    return ZD_BAD(
            "E0802", "%s: %s is not a count of 0 to %lld", path, key,
            (long long)most);
}

/* Checks the counters of a run: none is negative, and sums of two do not
 * overflow. */
static enum zd_status check_counts(const char *path, const json_t *manifest)
{
    static const struct {
        const char *key;
        json_int_t most;
    } counts[] = {
            {"step", INT64_MAX / 4},
            {"world", INT32_MAX},
            {"stage", 3},
            {"last_event", INT64_MAX / 4},
    };
    const json_t *progress = json_object_get(manifest, "progress");
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        ZD_TRY(check_count(path, manifest, counts[i].key, counts[i].most));
    for (int i = 0; i < COUNTERS; i++)
        if (progress_counters[i].type == COUNT)
            ZD_TRY(check_count(
                    path, progress, progress_counters[i].key, INT64_MAX / 4));
    if (!live_is_sound(manifest))
        return ZD_BAD(
                "E0802",
                "%s: a setting below \"live\" is negative or too large", path);
    return ZD_OK;
}

static enum zd_status check_form(const char *path, const json_t *manifest)
{
    char hex[HASH_HEX];
    const json_t *files = json_object_get(manifest, "files");
    const char *seal = json_string_at(manifest, "manifest_xxh3_128");
    json_int_t format = json_integer_at(manifest, "format");
    if (format < CHECKPOINT_FORMAT_OLDEST || format > CHECKPOINT_FORMAT) {
        ZD_BAD("E0802",
               "%s has format %lld; zerod " ZD_VERSION
               " reads formats %d and %d",
               path, (long long)format, CHECKPOINT_FORMAT_OLDEST,
               CHECKPOINT_FORMAT);
        if (format >= 1 && format < CHECKPOINT_FORMAT_OLDEST)
            zd_fail_help("zerod 0.1.0 reads it: resume with that version and "
                         "let it save once");
        return ZD_ERR_DATA;
    }
    seal_of(manifest, hex);
    if (!seal || strcmp(seal, hex) != 0)
        return ZD_BAD(
                "E0803",
                "%s was changed after it was written: its digest is %s, it "
                "states %s",
                path, hex, seal ? seal : "none");
    JSON_EACH(file, files) {
        const char *name = json_string_at(file, "name");
        if (!name || !name_is_safe(name))
            return ZD_BAD(
                    "E0802", "%s names an invalid file: %s", path,
                    name ? name : "(none)");
    }
    if (json_array_size(files) == 0 ||
        !json_is_object(json_object_get(manifest, "tensors")) ||
        !json_is_object(json_object_get(manifest, "progress")))
        return ZD_BAD("E0802", "%s lacks files, tensors or progress", path);
    return check_counts(path, manifest);
}

enum zd_status manifest_read(const char *dir, json_t **manifest_out)
{
    json_auto_t *manifest = NULL;
    const struct fs_path path = fs_in(dir, CHECKPOINT_MANIFEST);
    enum zd_status status = json_parse_file_upto(
            path.text, MANIFEST_MAX, VALUES_MAX, &manifest);
    if (status == ZD_ERR_NO_INPUT) { /* the folder exists without a manifest */
        zd_error_clear();
        return ZD_BAD(
                "E0801", "%s is not a checkpoint: it has no %s", dir,
                CHECKPOINT_MANIFEST);
    }
    ZD_TRY(status);
    ZD_TRY(check_form(path.text, manifest));
    *manifest_out = json_incref(manifest);
    return ZD_OK;
}

static double number_at(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static struct loss_scale loss_scale_of(const json_t *progress)
{
    const json_t *saved = json_object_get(progress, "loss_scale");
    if (!saved)
        return (struct loss_scale){0};
    return (struct loss_scale){
            .scale = number_at(saved, "scale"),
            .good_steps = json_integer_at(saved, "good_steps"),
            .hysteresis = (int)json_integer_at(saved, "hysteresis")};
}

struct train_state manifest_state(const json_t *manifest)
{
    const json_t *progress = json_object_get(manifest, "progress");
    struct train_state state = {
            .step = json_integer_at(manifest, "step"),
            .loss_scale = loss_scale_of(progress),
            .live = live_of(manifest)};
    ZD_EACH(counter, progress_counters, COUNTERS) {
        void *at = (char *)&state + counter->offset;
        if (counter->type == LOSS)
            *(double *)at = number_at(progress, counter->key);
        else
            *(int64_t *)at = json_integer_at(progress, counter->key);
    }
    return state;
}
