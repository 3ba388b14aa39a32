/* section_lora.c - [lora]: what follows from it, and whether the model has what
 * it names. */
#include "base/file/fs.h"
#include "base/must.h"
#include "daemon/job/job_internal.h"
#include "model/adapters/peft.h"
#include "model/files/config.h"
#include "train/plan/plan.h"

#include <string.h>

static void list_given(struct job *job)
{
    struct lora_options *lora = &job->options.lora;
    lora->given = json_object();
    for (int i = 0; i < schema_count; i++)
        if (schema_table[i].flags & SCHEMA_ADAPTER && job->keys[i].given &&
            !job->keys[i].refused)
            json_object_set_new(
                    lora->given, schema_table[i].name,
                    value_json(&schema_table[i], &job->options));
}

/* Without adapters. Keys of a section that says neither yes nor no: the whole
 * model would train, which is hardly what was meant; the first is told, but
 * quantize_base, of which contradictions.c says more. */
static void leave_out(struct job *job)
{
    bool may_tell = !job_key(job, "lora.enabled")->given &&
                    job->options.lora.quantize_base == LORA_BASE_NONE;
    for (int i = 0; i < schema_count; i++) {
        const char *key = schema_table[i].name;
        if (strcmp(schema_table[i].section, "lora") != 0 ||
            !strcmp(key, "enabled") || !strcmp(key, "path"))
            continue;
        bool is_told = may_tell && strcmp(key, "quantize_base") != 0;
        may_tell = may_tell && !(is_told && job->keys[i].given);
        job_idle(
                job, job_string(job, "lora.%s", key),
                "only with enabled = true", is_told, "enabled = true in [lora]",
                job_string(
                        job,
                        "lora.%s without adapters: lora.enabled is not given",
                        key));
    }
}

/* What lora.path says is told with the model. */
static void read_adapter(struct job *job)
{
    struct peft_config adapter;
    if (!job->options.lora.path || !fs_exists(job->options.lora.path))
        return;
    if (lora_config(&job->options.lora, &adapter) != ZD_OK) {
        zd_error_clear();
        return;
    }
    job->adapter = json_incref(adapter.json);
    peft_config_fini(&adapter);
}

const json_t *job_adapter_value(
        const struct job *job, const struct schema_key *key)
{
    const json_t *value = json_object_get(job->adapter, key->name);
    bool holds = key->flags & SCHEMA_ADAPTER &&
                 !job->keys[schema_index(key)].given &&
                 strcmp(key->name, "init_lora_weights") != 0;
    return holds && !json_is_null(value) ? value : NULL;
}

void job_settle_lora(struct job *job)
{
    struct lora_options *lora = &job->options.lora;
    struct checkpoint_options *checkpoint = &job->options.checkpoint;
    list_given(job);
    lora->gives_quantize_base =
            job_key(job, "lora.quantize_base")->given != NULL;
    lora->gives_double_quant = job_key(job, "lora.double_quant")->given != NULL;
    if (lora->path && !job_key(job, "lora.enabled")->given) {
        lora->enabled = true;
        job_key(job, "lora.enabled")->derived = "from lora.path";
    }
    if (!lora->enabled) {
        leave_out(job);
        return;
    }
    if (!lora->gives_double_quant && lora->quantize_base != LORA_BASE_NF4 &&
        lora->quantize_base != LORA_BASE_FP4)
        job_key(job, "lora.double_quant")->unused = "only with nf4 and fp4";
    read_adapter(job);
    if (!job_key(job, "checkpoint.export")->given) {
        checkpoint->export = EXPORT_PEFT;
        job_key(job, "checkpoint.export")->derived = "from [lora]";
    }
}

/* This thread's error record at the key of [lora] that it speaks of: "lora.r =
 * 8 is ..", "`r` must ..". */
static void take_record(struct job *job)
{
    bool has_path = job->options.lora.path != NULL;
    const char *what = zd_error_get()->what;
    const char *key = strncmp(what, "lora.", 5) == 0 ? what + 5
                      : what[0] == '`' && !has_path  ? what + 1
                                                     : "";
    const char *name = job_string(
            job, "lora.%.*s", (int)strspn(key, "abcdefghijklmnopqrstuvwxyz_"),
            key);
    if (!schema_find("lora", name + 5))
        name = has_path ? "lora.path" : "lora.enabled";
    job_take_record(job, name);
}

/* Do the tensors of lora.path fit the model, with the rows that its tokenizer
 * adds? */
static enum zd_status check_stored(const struct job *job)
{
    struct peft_adapter stored;
    ZD_SCOPED(param_table_fini) struct param_table table = {0};
    ZD_SCOPED(model_config_fini) struct model_config grown = {0};
    ZD_TRY(job_plan_config(&job->options, &grown));
    ZD_TRY(job_plan_vocabulary(&job->options, &grown));
    ZD_TRY(param_table_build(&grown, NULL, 0, &table));
    ZD_TRY(peft_open(job->options.lora.path, &grown, &table, &stored));
    peft_close(&stored);
    return ZD_OK;
}

void job_check_adapters(
        struct job *job, const struct model_config *config,
        struct param_table *table)
{
    const struct lora_options *lora = &job->options.lora;
    struct peft_config adapter;
    if (!lora->enabled || (lora->path && !fs_exists(lora->path)))
        return; /* the latter is told with the paths */
    for (int i = 0; i < schema_count; i++)
        if (schema_table[i].flags & SCHEMA_ADAPTER && job->keys[i].refused)
            return;
    enum zd_status status = lora_config(lora, &adapter);
    if (status == ZD_OK) {
        status = lora_extend(config, &adapter, lora, table);
        peft_config_fini(&adapter);
    }
    if (status == ZD_OK && lora->path)
        status = check_stored(job);
    ZD_THEN(status,
            lora_quantize(
                    config, lora, train_stored_base(&job->options), table));
    if (status != ZD_OK) {
        take_record(job);
        return;
    }
    if (lora->quantize_base != LORA_BASE_NONE)
        return; /* contradictions.c says what goes with it */
    if (lora->gives_double_quant && lora->double_quant && !config->is_quantized)
        job_refuse(
                job, "E0213", "lora.double_quant", NULL,
                "double_quant without quantize_base: no weight is quantized");
    if (job_check_fp8_base(&job->options, table) != ZD_OK)
        job_take_record(job, "train.fp8");
}
