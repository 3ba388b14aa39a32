/* fp8.c - train.fp8 in the plan: checks machine and model, and lists the
 * modules that stay in bf16. */
#include "model/fp8.h"
#include "train/plan/fit.h"
#include "train/plan/predict.h"

#include <string.h>

static const char *const modes[] = {"none", "tensorwise", "blockwise"};

bool plan_has_fp8(enum fp8_mode mode, int capability)
{
    return mode == FP8_BLOCKWISE ? capability == 90 : capability >= 89;
}

static const char *needed_capability(enum fp8_mode mode)
{
    return mode == FP8_BLOCKWISE ? "9.0" : "8.9 or higher";
}

static enum zd_status check_gpu(enum fp8_mode mode)
{
    struct device_facts facts = device_facts();
    int capability = 10 * facts.major + facts.minor;
    if (facts.backend != DEVICE_CUDA || plan_has_fp8(mode, capability))
        return ZD_OK;
    ZD_FAIL(ZD_ERR_CONFIG, "E0213",
            "train.fp8 = \"%s\" needs a GPU of compute capability %s, and %s "
            "has %d.%d",
            modes[mode], needed_capability(mode), facts.name, facts.major,
            facts.minor);
    return zd_fail_help(
            "train.fp8 = \"%s\"",
            mode == FP8_BLOCKWISE && capability >= 89 ? "tensorwise" : "none");
}

void plan_warn_of_fp8(
        const struct job_plan *plan, const struct plan_machine *machine)
{
    enum fp8_mode mode = plan->shape.fp8;
    int has = machine->capability;
    if (mode != FP8_NONE && plan->backend == DEVICE_CUDA && has &&
        !plan_has_fp8(mode, has))
        zd_log_warning(
                "train.fp8 = \"%s\" needs a GPU of compute capability %s, and "
                "%s has %d.%d: a run there would be refused",
                modes[mode], needed_capability(mode), machine->name, has / 10,
                has % 10);
}

bool plan_multiplies_codes(const struct job_plan *plan)
{
    return plan->shape.fp8 == FP8_BLOCKWISE &&
           param_codes_packed(&plan->table) == 1 &&
           !strcmp(param_codes_name(&plan->table), "fp8");
}

enum zd_status job_check_fp8_base(
        const struct train_job *job, const struct param_table *table)
{
    if (job->train.fp8 == FP8_NONE || !table->codes ||
        !strcmp(param_codes_name(table), "fp8"))
        return ZD_OK;
    ZD_FAIL(ZD_ERR_CONFIG, "E0213",
            "train.fp8 = \"%s\" over a base in %s, whose weights would be "
            "rounded twice",
            modes[job->train.fp8], param_codes_name(table));
    return zd_fail_help("train.fp8 = \"none\"");
}

enum zd_status plan_check_fp8(
        const struct train_job *job, const struct job_plan *plan)
{
    if (job->train.fp8 == FP8_NONE)
        return ZD_OK;
    ZD_TRY(job_check_fp8_base(job, &plan->table));
    return plan->backend == DEVICE_CUDA ? check_gpu(job->train.fp8) : ZD_OK;
}

/* "self_attn.k_proj" of "model.layers.0.self_attn.k_proj.weight". */
static json_t *module_name(
        const struct model_family *family, const struct param *param)
{
    const char *name = param->name;
    size_t prefix = strlen(family->layer_prefix);
    if (!strncmp(name, family->layer_prefix, prefix))
        name += prefix + strspn(name + prefix, "0123456789.");
    const char *end = strstr(name, ".weight");
    return json_stringn(name, end ? (size_t)(end - name) : strlen(name));
}

json_t *plan_fp8_json(const struct job_plan *plan)
{
    const struct param_table *table = plan_slice_table(plan);
    struct fp8_use use = fp8_use_of(table, &plan->shape);
    if (!use.mode)
        return NULL;
    json_t *names = json_array();
    for (int id = table->unit_first[1]; id < table->unit_first[2]; id++)
        if (param_is_linear(&table->params[id]) &&
            !fp8_has(&use, &table->params[id]))
            json_array_append_new(
                    names,
                    module_name(plan->config.family, &table->params[id]));
    return json_pack("{s:s, s:o}", "mode", modes[use.mode], "bf16", names);
}
