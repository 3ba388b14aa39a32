/* match.c - does this checkpoint belong to this run? Model and data must be the
 * same, and for adapters their modules, ranks, scale, and the format of the
 * base. Other settings may change; each change is logged. */
#include "base/log.h"
#include "model/quantized/base_digest.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/pieces.h"

#include <string.h>

static enum zd_status fail_model(const struct checkpoint *checkpoint)
{
    zd_fail_where("%s", checkpoint->path);
    zd_fail_help("set [model] to the model that was trained there; train "
                 "another one in a new job.output_dir");
    return ZD_ERR_DATA;
}

enum { VALUE_TEXT = 400 };
/* As JSON, truncated to `out`. */
static const char *text_of(const json_t *value, char out[VALUE_TEXT])
{
    const size_t room = VALUE_TEXT - 1;
    size_t bytes = json_dumpb(
            value, out, room, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    out[bytes < room ? bytes : room] = '\0';
    return value ? out : "unknown";
}

static enum zd_status match_shape(
        const struct checkpoint *checkpoint, const struct param *param,
        const json_t *was)
{
    char there[VALUE_TEXT], here[VALUE_TEXT];
    json_auto_t *is = manifest_shape(param);
    bool same = was && json_equal(was, is);
    if (!was)
        ZD_BAD("E0810", "the checkpoint is of another model: it has no %s",
               param->name);
    else if (!same)
        ZD_BAD("E0810",
               "the checkpoint is of another model: %s is %s there and %s in "
               "this job",
               param->name, text_of(was, there), text_of(is, here));
    return same ? ZD_OK : fail_model(checkpoint);
}

enum zd_status checkpoint_match_model(
        const struct checkpoint *checkpoint, const struct param_table *table)
{
    const json_t *tensors = json_object_get(checkpoint->manifest, "tensors");
    for (int id = 0; id < table->count; id++)
        ZD_TRY(match_shape(
                checkpoint, &table->params[id],
                json_object_get(tensors, table->params[id].name)));
    if ((int)json_object_size(tensors) == table->count)
        return ZD_OK;
    ZD_BAD("E0810",
           "the checkpoint is of another model: it has %zu tensors, the model "
           "of this job %d",
           json_object_size(tensors), table->count);
    return fail_model(checkpoint);
}

static enum zd_status fail_data(
        const char *what, bool is_digest, const json_t *before,
        const json_t *now)
{
    char a[VALUE_TEXT], b[VALUE_TEXT];
    if (is_digest)
        ZD_FAIL(ZD_ERR_CONFIG, "E0811",
                "the checkpoint was made otherwise: %s changed", what);
    else
        ZD_FAIL(ZD_ERR_CONFIG, "E0811",
                "the checkpoint was made otherwise: %s was %s, is %s", what,
                text_of(before, a), text_of(now, b));
    return zd_fail_help(
            "restore it, or use a new job.output_dir, or start at step 1 with "
            "run.resume = \"never\"");
}

static enum zd_status match_data(
        const json_t *was, const struct train_job *job,
        const struct run_identity *identity)
{
    static const struct {
        const char *key, *what;
        const char *before;      /* value before the key existed */
        bool is_digest, is_part; /* is_part: covered by "digest"; ignored if
                                    that is the same */
    } parts[] = {
            {"tokenizer", "the tokenizer", .is_digest = true},
            {"cutoff_len", "data.cutoff_len"},
            {"packing", "data.packing"},
            {"long_documents", "data.long_documents", "truncate"},
            {"shuffle", "data.shuffle"},
            {"data_seed", "job.data_seed"},
            {"rope_scaling", "model.rope_scaling", "none"},
            {"chat_template", "data.chat_template", .is_part = true},
            {"train_on", "data.train_on", .is_part = true},
            {"template_date", "data.template_date", .is_part = true},
            {"digest",
             "what [[data.train]] gives (its files, or the text of the chat "
             "template)",
             .is_digest = true}};
    json_auto_t *is = manifest_data(job, identity);
    bool same_data = json_equal(
            json_object_get(was, "digest"), json_object_get(is, "digest"));
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const json_t *found = json_object_get(was, parts[i].key);
        const json_t *now = json_object_get(is, parts[i].key);
        json_auto_t *before = found || !parts[i].before
                                      ? json_incref((json_t *)(uintptr_t)found)
                                      : json_string(parts[i].before);
        bool counts = !parts[i].is_part || (found && !same_data);
        if (counts && !json_equal(before, now))
            return fail_data(parts[i].what, parts[i].is_digest, before, now);
    }
    return ZD_OK;
}

/* 1 and 1.0 are the same. */
static bool is_same(const json_t *a, const json_t *b)
{
    return json_is_number(a) && json_is_number(b)
                   ? json_number_value(a) == json_number_value(b)
                   : json_equal(a, b);
}

enum zd_status checkpoint_match_run(
        const struct checkpoint *checkpoint, const struct train_job *job,
        int64_t global_batch, const struct run_identity *identity)
{
    const json_t *manifest = checkpoint->manifest;
    const json_t *before = json_object_get(manifest, "settings");
    char a[VALUE_TEXT], b[VALUE_TEXT];
    ZD_TRY(match_data(json_object_get(manifest, "data"), job, identity));
    /* live_resume logs a batch that was `set` */
    const struct train_setting *accumulation =
            &train_settings[SET_ACCUMULATION];
    bool keeps_batch =
            checkpoint_state(checkpoint).live.given[SET_ACCUMULATION] &&
            !manifest_batch_changed(manifest, &job->train);
    json_auto_t *now = manifest_settings(job, global_batch);
    JSON_MEMBERS(key, value, now) {
        const json_t *old = json_object_get(before, key);
        bool is_set = keeps_batch && strcmp(key, accumulation->key) == 0;
        if (old && !is_same(old, value) && !is_set)
            zd_log_info(
                    "resuming with %s = %s (was %s)", key, text_of(value, b),
                    text_of(old, a));
    }
    return ZD_OK;
}

/* --- adapters ------------------------------------------------------------- */

static enum zd_status fail_adapter(
        const struct checkpoint *checkpoint, const char *what,
        const json_t *before, const json_t *now)
{
    char a[VALUE_TEXT], b[VALUE_TEXT];
    ZD_FAIL(ZD_ERR_CONFIG, "E0817", "%s was made with %s = %s, which is %s now",
            checkpoint->path, what, text_of(before, a), text_of(now, b));
    return zd_fail_help(
            "restore the setting; or export the checkpoint, and continue from "
            "the export with another job.output_dir");
}

/* manifest_codes in words: "nf4 with double_quant". New reference. */
static json_t *base_word(const json_t *codes)
{
    const char *format = json_string_value(json_object_get(codes, "format"));
    bool is_nested = json_is_true(json_object_get(codes, "nested"));
    return json_sprintf(
            "%s%s", format ? format : "none",
            is_nested ? " with double_quant" : "");
}

enum zd_status checkpoint_match_adapter(
        const struct checkpoint *checkpoint, const struct job_plan *plan)
{
    static const char *const keys[] = {
            "lora.r",
            "lora.lora_alpha",
            "lora.use_rslora",
            "lora.use_dora",
            "lora.target_modules",
            "lora.rank_pattern",
            "lora.alpha_pattern"};
    const json_t *adapter = json_object_get(checkpoint->manifest, "adapter");
    const json_t *config = json_object_get(adapter, "config");
    const json_t *codes = json_object_get(checkpoint_base(checkpoint), "codes");
    if (!config != !plan->table.adapters)
        return fail_adapter(
                checkpoint, "lora.enabled", config ? json_true() : json_false(),
                config ? json_false() : json_true());
    for (size_t i = 0; config && i < sizeof keys / sizeof keys[0]; i++) {
        const char *key = keys[i] + strlen("lora.");
        const json_t *before = json_object_get(config, key);
        const json_t *now = json_object_get(plan->adapter.json, key);
        if (before ? !is_same(before, now) : json_object_size(now) > 0)
            return fail_adapter(checkpoint, keys[i], before, now);
    }
    json_auto_t *now = manifest_codes(&plan->table);
    json_auto_t *a = base_word(codes), *b = base_word(now);
    return !config || json_equal(codes, now) || (!codes && !now)
                   ? ZD_OK
                   : fail_adapter(checkpoint, "lora.quantize_base", a, b);
}

/* --- the base ------------------------------------------------------------- */

enum zd_status checkpoint_match_digest(
        const struct checkpoint *checkpoint, uint64_t now, const char *where,
        const char *help)
{
    char digest[BASE_DIGEST_TEXT];
    const char *was = json_string_at(checkpoint_base(checkpoint), "digest");
    base_digest_text(now, digest);
    if (was && strcmp(was, digest) == 0)
        return ZD_OK;
    ZD_BAD("E0327",
           "%s was trained on another base: its digest was %s, that of %s is "
           "%s",
           checkpoint->path, was ? was : "nothing", where, digest);
    return zd_fail_help("%s", help);
}

enum zd_status checkpoint_match_base(
        const struct checkpoint *checkpoint, const struct param_table *table,
        const uint64_t *digests)
{
    uint64_t digest = 0;
    bool lacks = false;
    for (int id = 0; id < table->count; id++) {
        const struct param *param = &table->params[id];
        bool has_trained = pieces_trained(checkpoint, param->name);
        lacks |= !has_trained;
        digest += has_trained ? 0 : digests[id];
        if (param->trainable || !has_trained)
            continue;
        ZD_FAIL(ZD_ERR_CONFIG, "E0812",
                "%s has trained %s, which is frozen now: later checkpoints "
                "would lose it",
                checkpoint->path, param->name);
        return zd_fail_help(
                "let it train, or export the checkpoint and begin with "
                "that model in another job.output_dir");
    }
    if (!lacks)
        return ZD_OK;
    return checkpoint_match_digest(
            checkpoint, digest, "model.path",
            "restore the base, or use a new job.output_dir");
}
