/* llamafactory.c - LLaMA-Factory's files: Hugging Face's arguments (hf.c), and
 * its own (0.9). */
#include "daemon/init/trainer_words.h"

#include <string.h>

static void take_type(
        struct foreign *foreign, const char *name, const json_t *value)
{
    const char *type = json_string_value(value);
    if (type && !strcmp(type, "lora"))
        foreign_set(foreign, name, "lora.enabled", json_true());
    else if (type && !strcmp(type, "full"))
        foreign_set(foreign, name, "lora.enabled", json_false());
    else
        foreign_refuse(foreign, name, value, "it is lora or full");
}

/* "all", or names with commas. */
static void take_names(
        struct foreign *foreign, const char *name, const json_t *value)
{
    bool is_target = !strcmp(name, "lora_target");
    const char *text = json_string_value(value);
    json_t *list = json_array();
    for (; text && *text; text += strspn(text, ", ")) {
        size_t bytes = strcspn(text, ", ");
        json_array_append_new(list, json_stringn(text, bytes));
        text += bytes;
    }
    if (is_target && json_is_string(value) &&
        !strcmp(json_string_value(value), "all"))
        foreign_set(
                foreign, name, "lora.target_modules",
                json_string("all-linear"));
    else if (json_array_size(list))
        foreign_set(
                foreign, name,
                is_target ? "lora.target_modules" : "lora.modules_to_save",
                json_incref(list));
    json_decref(list);
}

/* A name in dataset_info.json, whose records go through `template`. */
static void take_dataset(
        struct foreign *foreign, const char *name, const json_t *value)
{
    if (foreign_is_open(value))
        return;
    if (!strcmp(name, "dataset") && json_array_size(foreign->draft->train))
        draft_note(foreign->draft, name, "overridden by --data");
    else
        foreign_refuse(
                foreign, name, value,
                "a name in dataset_info.json, of records that go through its "
                "template: write them as \"messages\" and name the file with "
                "--data");
}

static void take_split(
        struct foreign *foreign, const char *name, const json_t *value)
{
    if (json_number_value(value) >= 1)
        foreign_refuse(
                foreign, name, value,
                "a number of samples; here it is a share (data.val_split)");
    else if (json_number_value(value) > 0)
        foreign_set(foreign, name, "data.val_split", json_deep_copy(value));
}

static void finish(struct foreign *foreign)
{
    struct draft *draft = foreign->draft;
    const json_t *rank = foreign_get(foreign, "lora_rank");
    if (!foreign_get(foreign, "finetuning_type"))
        draft_set(draft, "lora.enabled", json_true(), "their default");
    const json_t *enabled = json_object_get(
            json_object_get(draft->values, "lora.enabled"), "value");
    if (json_is_true(enabled)) {
        if (foreign_is_open(foreign_get(foreign, "lora_alpha")))
            draft_set(
                    draft, "lora.lora_alpha",
                    json_integer(2 * (rank ? json_integer_value(rank) : 8)),
                    "their default: twice the rank");
        draft_set(draft, "lora.r", json_integer(8), "their default");
        draft_set(
                draft, "lora.target_modules", json_string("all-linear"),
                "their default");
        draft_set(draft, "lora.lora_dropout", json_real(0), "their default");
    } else {
        draft_remove(draft, "lora.enabled");
        if (foreign_get(foreign, "finetuning_type"))
            draft_note(draft, "finetuning_type", "the whole model is trained");
    }
    foreign_hf.finish(foreign);
}

/* clang-format off */
static const struct foreign_row rows[] = {
{"stage", FOREIGN_OFF, .words = "sft|pt", .why = "zerod trains on text: sft and pt"},
{"finetuning_type", FOREIGN_CALL, .take = take_type},
{"lora_rank", FOREIGN_KEY, "lora.r"},
{"lora_target additional_target", FOREIGN_CALL, .take = take_names},
{"loraplus_lr_ratio", FOREIGN_KEY, "lora.loraplus_lr_ratio"},
{"adapter_name_or_path", FOREIGN_KEY, "lora.path"},
{"quantization_bit", FOREIGN_WORD, "lora.quantize_base", "4=nf4|8=int8", .why = "it is 4 or 8"},
{"quantization_method", FOREIGN_OFF, .words = "bnb|bitsandbytes|BNB", .why = "weights are quantized as bitsandbytes does"},
{"quantization_type", FOREIGN_OFF, .words = "nf4", .why = "set lora.quantize_base in the job"},
{"double_quantization", FOREIGN_NOTE, .why = "lora.double_quant, where the base is quantized"},
{"dataset eval_dataset", FOREIGN_CALL, .take = take_dataset},
{"dataset_dir media_dir buffer_size overwrite_cache data_shared_file_system", FOREIGN_NOTE, .why = "data are local files"},
{"mix_strategy", FOREIGN_OFF, .words = "concat", .why = "sources are mixed by their weight, in [[data.train]]"},
{"tokenized_path interleave_probs", FOREIGN_OFF, .words = "", .why = "data are read by [[data.train]]"},
{"template", FOREIGN_WORD, "data.chat_template", "llama3=llama3|chatml=chatml", .why = "of their templates zerod has llama3 and chatml; remove the line, and set data.chat_template in the job that is written"},
{"default_system tool_format", FOREIGN_OFF, .words = "", .why = "a system message stands in the data"},
{"enable_thinking", FOREIGN_NOTE, .why = "templates here have no thinking"},
{"cutoff_len", FOREIGN_KEY, "data.cutoff_len", .absent = "2048"},
{"max_samples", FOREIGN_KEY, "data.train.max_samples"},
{"packing", FOREIGN_KEY, "data.packing", .absent = "false"},
{"neat_packing", FOREIGN_NOTE, .why = "attention stays within a document"},
{"train_on_prompt", FOREIGN_WORD, "data.train_on", "true=all|false=assistant", .absent = "false"},
{"mask_history", FOREIGN_OFF, .words = "false", .why = "every turn of the assistant is trained on"},
{"disable_shuffling", FOREIGN_WORD, "data.shuffle", "true=false|false=true"},
{"val_size", FOREIGN_CALL, .take = take_split},
{"disable_gradient_checkpointing", FOREIGN_WORD, "train.gradient_checkpointing", "true=none|false=full", .absent = "false"},
{"flash_attn enable_liger_kernel use_unsloth use_unsloth_gc use_kv_cache use_reentrant_gc upcast_layernorm upcast_lmhead_output",
 FOREIGN_NOTE, .why = "an implementation of the same"},
{"plot_loss include_effective_tokens_per_second print_param_status infer_* export_* swanlab_* use_swanlab", FOREIGN_NOTE, .why = "output only"},
{"hf_hub_token ms_hub_token om_hub_token", FOREIGN_NOTE, .why = "nothing is uploaded"},
{"use_galore use_apollo use_badam use_llama_pro use_adam_mini use_muon use_dft_loss use_eaft_loss pissa_init create_new_adapter pure_bf16 shift_attn resize_vocab moe_aux_loss_coef mixture_of_depths compute_accuracy predict_with_generate",
 FOREIGN_OFF, .words = "false", .why = "zerod does not have it"},
{"rope_scaling", FOREIGN_OFF, .words = "", .why = "the model is as its config.json says"},
};
/* clang-format on */

const struct foreign_format foreign_llamafactory = {
        .name = "a LLaMA-Factory file",
        .option = "llamafactory",
        .base = &foreign_hf,
        .is_yaml = true,
        .rows = rows,
        .row_count = sizeof rows / sizeof rows[0],
        .finish = finish,
};
