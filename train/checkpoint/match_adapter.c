/* match_adapter.c - are the adapters of a checkpoint those that [lora] asks
 * for? Which modules have one, its rank, and what B A is multiplied by are what
 * A and B mean; so is the format of the base that they were trained on. */
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/manifest.h"

#include <stdlib.h>
#include <string.h>

static enum zd_status refuse_help(void)
{
    zd_fail_help("give it back; or export the checkpoint, and go on from that "
                 "in another job.output_dir");
    return ZD_ERR_CONFIG;
}

/* Of weight `id`: as the checkpoint's configuration has it, and as the table
 * of the plan does. */
static enum zd_status match_module(
        const struct checkpoint *checkpoint, const struct peft_config *before,
        const struct job_plan *plan, int id)
{
    const struct adapter *now = &plan->table.adapters[id];
    const struct peft_view view = {&plan->config, before, &plan->table};
    struct module weight = peft_view_module(&view, id);
    const char *module = weight.name;
    struct peft_factors had = peft_factors(&view, id);
    int r = had.r;
    float scale = (float)had.scale;
    if (r == now->r && (r == 0 || scale == now->scale))
        return ZD_OK;
    const char *path = checkpoint_path(checkpoint);
    if (r == 0 || now->r == 0)
        ZD_FAIL(ZD_ERR_CONFIG, "E0817",
                "%s has %s adapter of `%s`, but [lora] asks for %s", path,
                r ? "an" : "no", module, r ? "none" : "one");
    else if (r != now->r)
        ZD_FAIL(ZD_ERR_CONFIG, "E0817",
                "%s has an adapter of rank %d of `%s`, but [lora] asks for "
                "rank %d",
                path, r, module, now->r);
    else
        ZD_FAIL(ZD_ERR_CONFIG, "E0817",
                "%s multiplies the adapter of `%s` by %g, and lora_alpha, "
                "use_rslora or alpha_pattern of [lora] by %g",
                path, module, scale, now->scale);
    return refuse_help();
}

static enum zd_status match_config(
        const struct checkpoint *checkpoint, const struct peft_config *before,
        const struct job_plan *plan)
{
    for (int id = 0; id < plan->table.count; id++)
        ZD_TRY(match_module(checkpoint, before, plan, id));
    if (before->use_dora == plan->adapter.use_dora)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_CONFIG, "E0817",
            "%s was made with lora.use_dora = %s, which is %s now",
            checkpoint_path(checkpoint), before->use_dora ? "true" : "false",
            plan->adapter.use_dora ? "true" : "false");
    return refuse_help();
}

/* "nf4", and whether its scales are in codes too; "none". */
static const char *format_of(const json_t *codes, bool *nested_out)
{
    const char *format = json_string_at(codes, "format");
    *nested_out = json_is_true(json_object_get(codes, "nested"));
    return format ? format : "none";
}

static enum zd_status match_codes(
        const struct checkpoint *checkpoint, const struct job_plan *plan)
{
    bool was_nested, is_nested;
    json_t *now = manifest_codes(&plan->table);
    const char *was = format_of(
            json_object_get(checkpoint_base(checkpoint), "codes"), &was_nested);
    const char *is = format_of(now, &is_nested);
    bool same = strcmp(was, is) == 0 && was_nested == is_nested;
    if (!same)
        ZD_FAIL(ZD_ERR_CONFIG, "E0817",
                "%s was trained on a base with lora.quantize_base = \"%s\"%s, "
                "which is \"%s\"%s now",
                checkpoint_path(checkpoint), was,
                was_nested ? " and double_quant" : "", is,
                is_nested ? " and double_quant" : "");
    json_decref(now);
    return same ? ZD_OK : refuse_help();
}

enum zd_status checkpoint_match_adapter(
        const struct checkpoint *checkpoint, const struct job_plan *plan)
{
    const json_t *config = json_object_get(
            json_object_get(checkpoint_manifest(checkpoint), "adapter"),
            "config");
    struct peft_config before = {0};
    if (!config && !plan->table.adapters)
        return ZD_OK;
    if (!config || !plan->table.adapters) {
        ZD_FAIL(ZD_ERR_CONFIG, "E0817",
                config ? "%s has trained adapters, and without [lora] the "
                         "model itself would train"
                       : "%s has trained the model itself, and [lora] would "
                         "train adapters on it",
                checkpoint_path(checkpoint));
        return refuse_help();
    }
    ZD_TRY(peft_config_parse(
            config, checkpoint_path(checkpoint), ZD_ERR_DATA, &before));
    enum zd_status status = match_config(checkpoint, &before, plan);
    peft_config_fini(&before);
    ZD_TRY(status);
    return match_codes(checkpoint, plan);
}
