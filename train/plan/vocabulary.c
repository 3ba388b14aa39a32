/* vocabulary.c - with an embedding in lora.modules_to_save the model gets a row
 * for every token of the tokenizer. */
#include "base/file/fs.h"
#include "base/must.h"
#include "data/tokenizer/tokenizer.h"
#include "model/adapters/lora.h"
#include "model/files/config.h"
#include "model/files/hf_names.h"
#include "train/plan/plan.h"

#include <string.h>

/* New rows of an untied head are useless unless the head trains too. */
static enum zd_status check_head(
        const struct model_config *config, const struct peft_config *adapter,
        int ids)
{
    if (config->tied || peft_config_saves(adapter, "lm_head"))
        return ZD_OK;
    ZD_FAIL(ZD_ERR_CONFIG, "E0326",
            "lora.modules_to_save names the embedding, but not lm_head; "
            "the tokenizer has %d ids, the model %d rows: the model could not "
            "predict new tokens",
            ids, config->vocab_size);
    return zd_fail_help("name lm_head too");
}

static bool saves_embedding(
        const struct model_config *config, const struct peft_config *adapter)
{
    char module[HF_NAME_BYTES];
    hf_name_of_module(config, config->family->embeddings[0].name, module);
    *strrchr(module, '.') = '\0'; /* .weight */
    return peft_config_saves(adapter, module) ||
           (config->tied && peft_config_saves(adapter, "lm_head"));
}

static enum zd_status grow(
        const char *path, const struct peft_config *adapter,
        struct model_config *config)
{
    struct tokenizer *tokenizer;
    ZD_TRY(tokenizer_open(path, &tokenizer));
    int ids = tokenizer_facts(tokenizer)->vocab_size;
    tokenizer_close(tokenizer);
    if (ids <= config->vocab_size)
        return ZD_OK;
    ZD_TRY(check_head(config, adapter, ids));
    model_config_resize_vocab(config, ids);
    return ZD_OK;
}

enum zd_status job_plan_vocabulary(
        const struct train_job *job, struct model_config *config)
{
    const char *path = train_tokenizer(job);
    ZD_SCOPED(peft_config_fini) struct peft_config adapter = {0};
    if (!job->lora.enabled || job->model.config || !path || !fs_exists(path))
        return ZD_OK;
    ZD_TRY(lora_config(&job->lora, &adapter));
    return saves_embedding(config, &adapter) ? grow(path, &adapter, config)
                                             : ZD_OK;
}
