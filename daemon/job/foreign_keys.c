#include "daemon/job/foreign_keys.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

/* Names of Hugging Face's TrainingArguments, LLaMA-Factory, axolotl, DeepSpeed,
 * torchtitan and llm.c that are too far from ours for a guess by letters, or
 * near to another key. */
static const struct foreign_key keys[] = {
        {"bf16", "train", "dtype = \"bf16\""},
        {"bfloat16", "train", "dtype = \"bf16\""},
        {"fp16", "train", "dtype = \"fp16\""},
        {"fp32", "train", "dtype = \"fp32\""},
        {"mixed_precision", "train", "dtype"},
        {"precision", "train", "dtype"},
        {"torch_dtype", "train", "dtype"},
        {"dataset", "data.train", "path"},
        {"datasets", "data.train", "path"},
        {"dataset_dir", "data.train", "path"},
        {"dataset_name", "data.train", "path"},
        {"dataset_path", "data.train", "path"},
        {"data_path", "data.train", "path"},
        {"train_data", "data.train", "path"},
        {"train_file", "data.train", "path"},
        {"train_files", "data.train", "path"},
        {"eval_dataset", "data.eval", "path"},
        {"eval_file", "data.eval", "path"},
        {"validation_file", "data.eval", "path"},
        {"val_file", "data.eval", "path"},
        {"type", "data.train", "format"},
        {"text_column", "data.train", "field"},
        {"text_field", "data.train", "field"},
        {"dataset_text_field", "data.train", "field"},
        {"cutoff", "data", "cutoff_len"},
        {"context_length", "data", "cutoff_len"},
        {"max_length", "data", "cutoff_len"},
        {"max_seq_len", "data", "cutoff_len"},
        {"model_max_length", "data", "cutoff_len"},
        {"seq_length", "data", "cutoff_len"},
        {"sequence_length", "data", "cutoff_len"},
        {"pack", "data", "packing"},
        {"sample_packing", "data", "packing"},
        {"template", "data", "chat_template"},
        {"train_on_input", "data", "train_on"},
        {"train_on_inputs", "data", "train_on"},
        {"train_on_prompt", "data", "train_on"},
        {"val_size", "data", "val_split"},
        {"val_set_size", "data", "val_split"},
        {"validation_split", "data", "val_split"},
        {"base_model", "model", "path"},
        {"model_name", "model", "path"},
        {"model_name_or_path", "model", "path"},
        {"name_or_path", "model", "path"},
        {"pretrained_model_name_or_path", "model", "path"},
        {"tokenizer_name", "model", "tokenizer"},
        {"tokenizer_name_or_path", "model", "tokenizer"},
        {"tokenizer_path", "model", "tokenizer"},
        {"attn_implementation", "model", "attn"},
        {"flash_attention", "model", "attn"},
        {"flash_attn", "model", "attn"},
        {"out_dir", "job", "output_dir"},
        {"save_dir", "job", "output_dir"},
        {"resume_from", "run", "resume"},
        {"resume_from_checkpoint", "run", "resume"},
        {"steps", "train", "max_steps"},
        {"num_steps", "train", "max_steps"},
        {"total_steps", "train", "max_steps"},
        {"train_steps", "train", "max_steps"},
        {"accumulation_steps", "train", "gradient_accumulation_steps"},
        {"grad_accum", "train", "gradient_accumulation_steps"},
        {"grad_accum_steps", "train", "gradient_accumulation_steps"},
        {"local_batch_size", "train", "per_device_train_batch_size"},
        {"activation_checkpointing", "train", "gradient_checkpointing"},
        {"scheduler", "optim", "lr_scheduler_type"},
        {"lr_scheduler", "optim", "lr_scheduler_type"},
        {"lr_schedule", "optim", "lr_scheduler_type"},
        {"warmup", "optim", "warmup_steps"},
        {"warmup_iters", "optim", "warmup_steps"},
        {"max_norm", "optim", "max_grad_norm"},
        {"clip_grad", "optim", "max_grad_norm"},
        {"zero_stage", "zero", "stage"},
        {"cuda", "device", "backend"},
        {"num_threads", "device", "cpu_threads"},
        {"num_gpus", NULL, "the number of ranks: mpirun -np N zerod"},
        {"nproc_per_node", NULL, "the number of ranks: mpirun -np N zerod"},
        {"world_size", NULL, "the number of ranks: mpirun -np N zerod"},
        {"report_to", "report", "tensorboard"},
        {"load_in_4bit", "lora", "quantize_base = \"nf4\""},
        {"load_in_8bit", "lora", "quantize_base = \"int8\""},
        {"quantize", "lora", "quantize_base"},
        {"quantization", "lora", "quantize_base"},
        {"bnb_4bit_quant_type", "lora", "quantize_base"},
        {"rank", "lora", "r", "lora"},
        {"lora_r", "lora", "r"},
        {"lora_rank", "lora", "r"},
        {"alpha", "lora", "lora_alpha", "lora"},
        {"dropout", "lora", "lora_dropout", "lora"},
        {"lora_target", "lora", "target_modules"},
        {"lora_target_modules", "lora", "target_modules"},
        {"adapter_name_or_path", "lora", "path"},
        {"bias", NULL,
         "biases of the base do not train; modules_to_save trains whole "
         "modules",
         "lora"},
};

static const struct {
    const char *name, *here;
} sections[] = {
        {"training", "[train]"},
        {"trainer", "[train]"},
        {"optimizer", "[optim]"},
        {"optimiser", "[optim]"},
        {"scheduler", "[optim]"},
        {"dataset", "[[data.train]]"},
        {"datasets", "[[data.train]]"},
        {"validation", "[eval]"},
        {"evaluation", "[eval]"},
        {"tokenizer", "tokenizer in [model]"},
        {"deepspeed", "[zero]"},
        {"zero_optimization", "[zero]"},
        {"checkpointing", "[checkpoint]"},
        {"checkpoints", "[checkpoint]"},
        {"logging", "[log]"},
        {"fp16", "[train.fp16]"},
};

const struct foreign_key *foreign_key_find(
        const char *in_section, const char *name)
{
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcasecmp(keys[i].name, name) == 0 &&
            (!keys[i].only_in || strcmp(keys[i].only_in, in_section) == 0))
            return &keys[i];
    return NULL;
}

const char *foreign_section_find(const char *name)
{
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++)
        if (strcasecmp(sections[i].name, name) == 0)
            return sections[i].here;
    return NULL;
}
