/* lora_names.h - what names in [lora], or in an adapter's configuration, may
 * be: modules that the model has. */
#pragma once

#include "model/adapters/lora.h"

enum zd_status lora_refuse_embedding(const char *name);
/* Targets, modules to save and layers are there; of a job's own [lora] what is
 * excluded too. ZD_ERR_CONFIG, with the names there are. */
enum zd_status lora_check_names(const struct peft_view *reader, bool of_job);
/* Patterns of the job match a module of `adapted` that has an adapter. Those of
 * an adapter that PEFT wrote may be for other models. */
enum zd_status lora_check_patterns(
        const struct peft_view *reader, const struct lora_options *options,
        const struct param_table *adapted);
