/* schema_table.c - every key of job.toml. See schema.h for what a line means.
 */
#include "daemon/job/schema.h"

#include <limits.h>

#define JOB(field)   offsetof(struct train_job, field)
#define ENTRY(field) offsetof(struct data_entry, field)
#define SCALE_MAX    4294967296.0 /* 2^32 */
#define COUNT_MAX    9.0e15       /* integers that a double holds exactly */

/* clang-format off */
static const struct schema_choice resumes[] = {{"auto", RESUME_AUTO}, {"never", RESUME_NEVER}, {"must", RESUME_MUST}, {NULL, RESUME_PATH}};
static const struct schema_choice sockets[] = {{"auto", CONTROL_AUTO}, {"none", CONTROL_NONE}, {NULL, CONTROL_PATH}};
static const struct schema_choice checkpointings[] = {{"none", CHECKPOINTING_NONE}, {"selective", CHECKPOINTING_SELECTIVE}, {"full", CHECKPOINTING_FULL}, {"sqrt", CHECKPOINTING_SQRT}, {"auto", CHECKPOINTING_AUTO}, {0}};
static const struct schema_choice on_sigterm[] = {{"checkpoint_and_exit", ON_SIGNAL_CHECKPOINT_AND_EXIT}, {"exit", ON_SIGNAL_EXIT}, {0}};
static const struct schema_choice on_sigusr[] = {{"checkpoint_and_exit", ON_SIGNAL_CHECKPOINT_AND_EXIT}, {"checkpoint", ON_SIGNAL_CHECKPOINT}, {"exit", ON_SIGNAL_EXIT}, {0}};
static const struct schema_choice device_backends[] = {{"auto", DEVICE_AUTO}, {"cpu", DEVICE_CPU}, {"cuda", DEVICE_CUDA}, {0}};
static const struct schema_choice model_inits[] = {{"pretrained", MODEL_PRETRAINED}, {"random", MODEL_RANDOM}, {0}};
static const struct schema_choice lora_inits[] = {{"default", LORA_INIT_DEFAULT}, {"gaussian", LORA_INIT_GAUSSIAN}, {0}};
static const struct schema_choice lora_bases[] = {{"none", LORA_BASE_NONE}, {"nf4", LORA_BASE_NF4}, {"fp4", LORA_BASE_FP4}, {"int8", LORA_BASE_INT8}, {"fp8", LORA_BASE_FP8}, {0}};
static const struct schema_choice attentions[] = {{"auto", ATTENTION_AUTO}, {"cudnn", ATTENTION_CUDNN}, {"own", ATTENTION_OWN}, {0}};
static const struct schema_choice dtypes[] = {{"bf16", DTYPE_BF16}, {"fp32", DTYPE_FP32}, {"bfloat16", DTYPE_BF16, "="}, {"float32", DTYPE_FP32, "="}, {"fp16", DTYPE_FP16}, {"float16", DTYPE_FP16, "="}, {"fp8", 0, "set dtype = \"bf16\" and fp8 = \"tensorwise\" in [train]"}, {0}};
static const struct schema_choice fp8_modes[] = {{"none", FP8_NONE}, {"tensorwise", FP8_TENSORWISE}, {"blockwise", FP8_BLOCKWISE}, {0}};
static const struct schema_choice export_dtypes[] = {{"auto", -1}, {"bf16", DTYPE_BF16}, {"fp16", DTYPE_FP16}, {"fp32", DTYPE_FP32}, {0}};
/* The names, and what the reference says of them, are those of the rows. */
static const struct schema_choice chat_templates[] = {
#define LAYOUT(value, name, markers, help) {name, value},
#include "data/layouts.inc"
        {NULL, CHAT_FILE}};
#undef LAYOUT
static const char chat_template_help[] =
        "How conversations are rendered as text"
#define LAYOUT(value, name, markers, help) "; " name ": " help
#include "data/layouts.inc"
        "; a path: the template in that file";
#undef LAYOUT
static const struct schema_choice data_formats[] = {
#define FORMAT(value, name, ...) {name, value},
#include "data/formats.inc"
        {0}};
#undef FORMAT
static const char data_format_help[] =
        "Format of the files"
#define FORMAT(value, name, help, ...) "; " name ": " help
#include "data/formats.inc"
        ;
#undef FORMAT
static const struct schema_choice packings[] = {{"auto", PACKING_AUTO}, {"true", PACKING_STREAM}, {"false", PACKING_NO}, {"documents", PACKING_DOCUMENTS}, {0}};
static const struct schema_choice long_documents[] = {{"truncate", LONG_TRUNCATE}, {"split", LONG_SPLIT}, {"drop", LONG_DROP}, {0}};
static const struct schema_choice shuffles[] = {{"auto", SHUFFLE_AUTO}, {"true", SHUFFLE_WHOLE}, {"false", SHUFFLE_NO}, {"windows", SHUFFLE_WINDOWS}, {0}};
static const struct schema_choice bad_rows[] = {{"stop", BAD_ROW_STOP}, {"skip", BAD_ROW_SKIP}, {0}};
static const struct schema_choice train_ons[] = {{"assistant", TRAIN_ON_ASSISTANT}, {"all", TRAIN_ON_ALL}, {"last", TRAIN_ON_LAST}, {0}};
/* The words that we print, then those of Hugging Face's OptimizerNames and of
 * bitsandbytes for the same. */
#define IN_FP32 0
#define IN_8BIT SCHEMA_STATES_8BIT
#define OPTIMIZER_VALUE(ID, states, is_paged)                                  \
    (OPTIM_##ID | IN_##states | ((is_paged) ? SCHEMA_STATES_PAGED : 0))
static const struct schema_choice optimizers[] = {
#define OPTIM_WORD(word, ...) {word, OPTIMIZER_VALUE(__VA_ARGS__)},
#include "optim/optimizers.inc"
#define OPTIM_ALIAS(word, ...) {word, OPTIMIZER_VALUE(__VA_ARGS__), "="},
#include "optim/optimizers.inc"
        {0}};
#undef OPTIMIZER_VALUE
#undef IN_FP32
#undef IN_8BIT
static const struct schema_choice state_dtypes[] = {{"fp32", OPTIM_STATE_FP32}, {"bf16", OPTIM_STATE_BF16}, {"8bit", OPTIM_STATE_8BIT}, {"float32", OPTIM_STATE_FP32, "="}, {"bfloat16", OPTIM_STATE_BF16, "="}, {0}};
static const struct schema_choice masters[] = {{"fp32", OPTIM_MASTER_FP32}, {"none", OPTIM_MASTER_NONE}, {0}};
static const struct schema_choice schedules[] = {{"linear", LR_LINEAR}, {"cosine", LR_COSINE}, {"constant", LR_CONSTANT}, {"constant_with_warmup", LR_CONSTANT, "="}, {"wsd", LR_WSD}, {0}};
static const struct schema_choice device_streams[] = {{"auto", DEVICE_STREAMS_AUTO}, {"inline", DEVICE_STREAMS_INLINE}, {"threads", DEVICE_STREAMS_THREADS}, {0}};
static const struct schema_choice tiers[] = {{"none", OFFLOAD_NONE}, {"cpu", OFFLOAD_CPU}, {"nvme", OFFLOAD_NVME}, {0}};
static const struct schema_choice host_tiers[] = {{"none", OFFLOAD_NONE}, {"cpu", OFFLOAD_CPU}, {0}};
static const struct schema_choice clippings[] = {{"wait", OFFLOAD_CLIP_WAIT}, {"undo", OFFLOAD_CLIP_UNDO}, {0}};
static const struct schema_choice orders[] = {{"auto", ORDER_AUTO}, {"depth_first", ORDER_DEPTH_FIRST}, {"breadth_first", ORDER_BREADTH_FIRST}, {0}};
static const struct schema_choice accumulates[] = {{"auto", OFFLOAD_ACCUMULATE_AUTO}, {"device", OFFLOAD_ACCUMULATE_DEVICE}, {"host", OFFLOAD_ACCUMULATE_HOST}, {0}};
static const struct schema_choice output_modes[] = {{"0700", 0700}, {"0750", 0750}, {"0755", 0755}, {"0770", 0770}, {"02750", 02750}, {"02770", 02770}, {0}};
static const struct schema_choice cp_comm_types[] = {{"auto", CP_AUTO}, {"allgather", CP_ALLGATHER}, {"a2a", CP_A2A}, {0}};
static const struct schema_choice comm_backends[] = {{"auto", COMM_AUTO}, {"mpi", COMM_MPI}, {"nccl", COMM_NCCL}, {0}};
static const struct schema_choice comm_hierarchies[] = {{"auto", COMM_LEVELS_AUTO}, {"false", COMM_LEVELS_ONE}, {"true", COMM_LEVELS_TWO}, {0}};
static const struct schema_choice comm_sums[] = {{"fast", COMM_REDUCE_FAST}, {"ordered", COMM_REDUCE_ORDERED}, {0}};
static const struct schema_choice comm_reduce_dtypes[] = {{"auto", COMM_REDUCE_DTYPE_AUTO}, {"fp32", COMM_REDUCE_DTYPE_FP32}, {"compute", COMM_REDUCE_DTYPE_COMPUTE}, {0}};
static const struct schema_choice eval_strategies[] = {{"no", EVAL_NO}, {"steps", EVAL_STEPS}, {"epoch", EVAL_EPOCH}, {0}};
static const struct schema_choice save_strategies[] = {{"no", SAVE_NO}, {"steps", SAVE_STEPS}, {"epoch", SAVE_EPOCH}, {"time", SAVE_TIME}, {"best", SAVE_BEST}, {0}};
static const struct schema_choice best_metrics[] = {{"eval_loss", BEST_EVAL_LOSS}, {"loss", BEST_EVAL_LOSS, "="}, {0}};
static const struct schema_choice exports[] = {{"none", EXPORT_NONE}, {"hf", EXPORT_HF}, {"peft", EXPORT_PEFT}, {0}};
static const struct schema_choice nan_guards[] = {{"skip", GUARD_SKIP}, {"stop", GUARD_STOP}, {0}};
static const struct schema_choice log_levels[] = {{"debug", ZD_LOG_DEBUG}, {"info", ZD_LOG_INFO}, {"warning", ZD_LOG_WARNING}, {"error", ZD_LOG_ERROR}, {0}};
static const struct schema_choice progress_modes[] = {{"auto", PROGRESS_AUTO}, {"bar", PROGRESS_BAR}, {"lines", PROGRESS_LINES}, {"none", PROGRESS_NONE}, {0}};
static const struct schema_choice rank_logs[] = {{"files", RANK_LOGS_FILES}, {"stdout", RANK_LOGS_STDOUT}, {"none", RANK_LOGS_NONE}, {0}};
static const struct schema_choice log_formats[] = {{"text", 0}, {"json", 1}, {0}};
const struct schema_key schema_table[] = {
{"", "schema", SCHEMA_VERSION, .help = "Version of the job file format"},
{"", "extends", SCHEMA_EXTENDS, .help = "Base file, relative to this one; this file overrides it key by key"},

{"job", "name", SCHEMA_NAME, JOB(job.name), .help = "Name of the job, also of its socket, its page and its default folder", .fallback = "the job file's name without its ending"},
{"job", "output_dir", SCHEMA_STRING, JOB(job.output_dir), .help = "Folder of checkpoints, metrics and the exported model", .fallback = "`\"out/NAME\"`"},
{"job", "output_mode", SCHEMA_ENUM, JOB(job.output_mode), .choices = output_modes, .help = "Mode of a new output_dir, independent of the umask; the folder holds samples, prompts and the model. An existing folder keeps its mode"},
{"job", "run_name", SCHEMA_STRING, JOB(job.run_name), .help = "Free text for reports"},
{"job", "seed", SCHEMA_UINT64, JOB(job.seed), .max = COUNT_MAX, .help = "Seed of random initial weights and of samples"},
{"job", "data_seed", SCHEMA_UINT64, JOB(job.data_seed), .max = COUNT_MAX, .help = "Seed of the shuffle", .fallback = "`job.seed`"},

{"run", "resume", SCHEMA_WORD_OR_PATH, JOB(run.resume), JOB(run.resume_path), .choices = resumes, .help = "auto: resume from the newest checkpoint that verifies, else start at step 1; never: start at step 1, replacing checkpoints of the same steps; must: like auto, but without a checkpoint end with an error; a path: resume from that checkpoint"},
{"run", "stop_after", SCHEMA_INT64, JOB(run.stop_after), .max = COUNT_MAX, .help = "Save a checkpoint after this step and end; the schedule stays the same; 0 = off"},
{"run", "deadline", SCHEMA_DURATION, JOB(run.deadline), .flags = SCHEMA_AUTO | SCHEMA_ABOVE_MIN, .max = 1e9, .help = "Save a checkpoint and exit with 75 before this much time has passed since the start; auto: before `SLURM_JOB_END_TIME`, if it is set"},
{"run", "deadline_margin", SCHEMA_DURATION, JOB(run.deadline_margin), .flags = SCHEMA_AUTO | SCHEMA_ABOVE_MIN, .max = 1e9, .help = "Time reserved for that checkpoint; auto: twice the last save and two steps"},
{"run", "on_sigterm", SCHEMA_ENUM, JOB(run.on_sigterm), .choices = on_sigterm, .help = "What SIGTERM and SIGINT do"},
{"run", "on_sigusr1", SCHEMA_ENUM, JOB(run.on_sigusr1), .choices = on_sigusr, .help = "What SIGUSR1 does"},
{"run", "on_sigusr2", SCHEMA_ENUM, JOB(run.on_sigusr2), .choices = on_sigusr, .help = "What SIGUSR2 does"},

{"device", "backend", SCHEMA_ENUM, JOB(device.backend), .choices = device_backends, .flags = SCHEMA_PER_RANK, .help = "Device that computes; auto: a GPU if there is one"},
{"device", "gpus", SCHEMA_STRING, JOB(device.gpus), .flags = SCHEMA_GPU | SCHEMA_PER_RANK, .help = "GPUs that the ranks of a host take in turn, counted after `CUDA_VISIBLE_DEVICES`: `\"0,2\"`; auto: all"},
{"device", "memory_limit", SCHEMA_LIMIT, JOB(device.memory_limit), JOB(device.memory_limit_fraction), .flags = SCHEMA_PER_RANK, .help = "Device memory that a rank may use; 0 = all that is available"},
{"device", "host_memory_limit", SCHEMA_LIMIT, JOB(device.host_memory_limit), JOB(device.host_memory_limit_fraction), .flags = SCHEMA_PER_RANK, .help = "Host memory that a rank may use; 0 = all that is available"},
{"device", "cpu_threads", SCHEMA_INT, JOB(device.cpu_threads), .flags = SCHEMA_AUTO | SCHEMA_PER_RANK, .min = 1, .max = 4096, .help = "Threads per rank; auto: OMP_NUM_THREADS, else from the affinity mask"},
{"device", "streams", SCHEMA_ENUM, JOB(device.streams), .choices = device_streams, .flags = SCHEMA_PER_RANK, .help = "How the CPU device copies: on threads of their own, or inline"},
{"device", "numa_bind", SCHEMA_BOOL, JOB(device.numa_bind), .flags = SCHEMA_GPU | SCHEMA_PER_RANK, .help = "Keep a rank's threads and page-locked memory on the NUMA node of its GPU"},

{"model", "path", SCHEMA_STRING, JOB(model.path), .flags = SCHEMA_NULLABLE, .help = "Hugging Face directory of the model"},
{"model", "tokenizer", SCHEMA_STRING, JOB(model.tokenizer), .flags = SCHEMA_NULLABLE, .help = "tokenizer.json or its directory; `\"bytes\"`: every byte is a token", .fallback = "`model.path`; with [model.config] `\"bytes\"`"},
{"model", "init", SCHEMA_ENUM, JOB(model.init), .choices = model_inits, .help = "Initial weights: from the model's files, or random", .fallback = "`\"pretrained\"`; with [model.config] `\"random\"`"},
{"model", "dtype", SCHEMA_ENUM, JOB(model.dtype), .choices = export_dtypes, .help = "Element type of the exported model; auto: as it was stored"},
{"model", "attn", SCHEMA_ENUM, JOB(model.attn), .flags = SCHEMA_GPU, .choices = attentions, .help = "Attention on a GPU; auto: cuDNN if it is installed, sums in a fixed order and is the faster when timed, else our own kernels; cudnn: cuDNN in any order of sums, an error if it is missing; own: our own kernels"},
{"model", "rope_scaling", SCHEMA_TABLE, JOB(model.rope_scaling), .help = "Scaling of rotary positions in place of the model's, with the keys of transformers: `{rope_type = \"yarn\", factor = 4.0, original_max_position_embeddings = 32768}`; the model then has as many positions as both make, also in the exported config.json"},
{"model", "config", SCHEMA_TABLE, JOB(model.config), .help = "Model from scratch: the keys of Hugging Face's config.json"},

{"lora", "enabled", SCHEMA_BOOL, JOB(lora.enabled), .help = "Train low-rank adapters on a frozen model", .fallback = "`false`; with `path` `true`"},
{"lora", "path", SCHEMA_STRING, JOB(lora.path), .flags = SCHEMA_NULLABLE, .help = "Folder of a PEFT adapter to continue from; its configuration sets the keys below"},
{"lora", "r", SCHEMA_INT, JOB(lora.r), .flags = SCHEMA_ADAPTER, .min = 1, .max = 65536, .help = "Rank of the adapters"},
{"lora", "lora_alpha", SCHEMA_REAL, JOB(lora.lora_alpha), .flags = SCHEMA_ADAPTER | SCHEMA_ABOVE_MIN, .max = 1e9, .help = "Adapters are multiplied by lora_alpha / r"},
{"lora", "lora_dropout", SCHEMA_REAL, JOB(lora.lora_dropout), .flags = SCHEMA_ADAPTER | SCHEMA_BELOW_MAX, .max = 1, .help = "Dropout rate on the inputs of adapters"},
{"lora", "target_modules", SCHEMA_MODULES, JOB(lora.target_modules), .flags = SCHEMA_ADAPTER, .help = "Modules that get adapters: names, a pattern, or `\"all-linear\"` (all linear modules of the layers)"},
{"lora", "exclude_modules", SCHEMA_MODULES, JOB(lora.exclude_modules), .flags = SCHEMA_ADAPTER | SCHEMA_NULLABLE, .help = "Modules among the targets that get no adapter"},
{"lora", "layers_to_transform", SCHEMA_LAYERS, JOB(lora.layers_to_transform), .flags = SCHEMA_ADAPTER | SCHEMA_NULLABLE, .help = "Layers, from 0, whose modules get adapters", .fallback = "all"},
{"lora", "modules_to_save", SCHEMA_STRINGS, JOB(lora.modules_to_save), JOB(lora.modules_to_save_count), .flags = SCHEMA_ADAPTER, .help = "Modules that are trained in full in addition to the adapters"},
{"lora", "use_rslora", SCHEMA_BOOL, JOB(lora.use_rslora), .flags = SCHEMA_ADAPTER, .help = "Multiply by lora_alpha / sqrt(r)"},
{"lora", "use_dora", SCHEMA_BOOL, JOB(lora.use_dora), .flags = SCHEMA_ADAPTER, .help = "Train the norms of rows separately from their directions (DoRA)"},
{"lora", "init_lora_weights", SCHEMA_ENUM, JOB(lora.init_lora_weights), .flags = SCHEMA_ADAPTER, .choices = lora_inits, .help = "Initial A; default: uniform within 1 / sqrt(inputs); gaussian: normal with standard deviation 1 / r. B starts at 0"},
{"lora", "loraplus_lr_ratio", SCHEMA_REAL, JOB(lora.loraplus_lr_ratio), .flags = SCHEMA_ABOVE_MIN, .max = 1e6, .help = "Learning rate of B divided by the learning rate of A (LoRA+)"},
{"lora", "quantize_base", SCHEMA_ENUM, JOB(lora.quantize_base), .choices = lora_bases, .help = "Format to which the layers' frozen weights are quantized when they are loaded (QLoRA)", .fallback = "`\"none\"`; for a model stored quantized, its format"},
{"lora", "double_quant", SCHEMA_BOOL, JOB(lora.double_quant), .help = "With nf4 and fp4: also quantize the block scales, to 8 bits", .fallback = "`true`; for a model stored quantized, as stored"},
{"lora", "rank_pattern", SCHEMA_TABLE, JOB(lora.rank_pattern), .flags = SCHEMA_ADAPTER, .help = "Ranks of some modules: pattern = rank; the first pattern that matches applies"},
{"lora", "alpha_pattern", SCHEMA_TABLE, JOB(lora.alpha_pattern), .flags = SCHEMA_ADAPTER, .help = "lora_alpha of some modules: pattern = alpha; the first pattern that matches applies"},

{"data", "cutoff_len", SCHEMA_INT, JOB(data.cutoff_len), .min = 1, .max = 16777216, .aliases = "seq_len sequence_len max_seq_length block_size", .help = "Sequence length T in tokens; left out: the model's positions if they are fewer"},
{"data", "packing", SCHEMA_ENUM, JOB(data.packing), .choices = packings, .help = "How documents become samples; documents: whole ones, as many as fit; true: one stream, cut every cutoff_len tokens; false: one each; auto: documents for prompts and conversations, true for plain text. Attention stays within a document"},
{"data", "long_documents", SCHEMA_ENUM, JOB(data.long_documents), .choices = long_documents, .help = "A document longer than cutoff_len is cut there (truncate), goes on in further samples (split) or is left out (drop); not with packing = true"},
{"data", "on_bad_row", SCHEMA_ENUM, JOB(data.on_bad_row), .choices = bad_rows, .help = "A row that cannot be read ends the job (stop), or is left out, counted and told (skip)"},
{"data", "shuffle", SCHEMA_ENUM, JOB(data.shuffle), .choices = shuffles, .help = "Take samples in an order drawn from job.data_seed; true: all of an epoch; windows: within windows of the files' order, so that text is tokenized while it is trained on; auto: windows for text of 1 GiB or more that is packed as a stream, else true"},
{"data", "chat_template", SCHEMA_WORD_OR_PATH, JOB(data.chat_template), JOB(data.chat_file), .choices = chat_templates, .help = chat_template_help},
{"data", "template_date", SCHEMA_STRING, JOB(data.template_date), .flags = SCHEMA_NULLABLE, .help = "Date \"YYYY-MM-DD\" that a chat template gets from strftime_now", .fallback = "the day of the first start"},
{"data", "train_on", SCHEMA_ENUM, JOB(data.train_on), .choices = train_ons, .help = "Tokens that the loss counts; assistant: the assistant's turns, outputs and completions; last: of a conversation only the last turn of the assistant; all: every token"},
{"data", "add_eos", SCHEMA_BOOL, JOB(data.add_eos), .help = "Append the end-of-text token to every document"},
{"data", "cache_dir", SCHEMA_STRING, JOB(data.cache_dir), .flags = SCHEMA_PER_RANK, .help = "Folder of tokenized data; auto: the user's cache folder"},
{"data", "cache_shared", SCHEMA_BOOL, JOB(data.cache_shared), .flags = SCHEMA_PER_RANK, .help = "Use files in cache_dir that belong to another user; the owner of a file decides what is trained on"},
{"data", "preprocessing_threads", SCHEMA_INT, JOB(data.preprocessing_threads), .flags = SCHEMA_AUTO | SCHEMA_PER_RANK, .min = 1, .max = 4096, .help = "Threads that tokenize"},
{"data", "prefetch", SCHEMA_INT, JOB(data.prefetch), .flags = SCHEMA_PER_RANK, .min = 1, .max = 1024, .help = "Batches to read ahead"},
{"data", "val_split", SCHEMA_REAL, JOB(data.val_split), .flags = SCHEMA_BELOW_MAX, .max = 1, .help = "Share of the training samples kept for evaluation"},
{"data", "train", SCHEMA_ENTRIES, JOB(data.train), JOB(data.train_count), .help = "[[data.train]]: what to train on, one table per source", .fallback = "required"},
{"data", "eval", SCHEMA_ENTRIES, JOB(data.eval), JOB(data.eval_count), .help = "[[data.eval]]: what to evaluate on"},

#define ENTRY_KEYS(section) \
    {section, "format", SCHEMA_ENUM, ENTRY(format), .choices = data_formats, .help = data_format_help}, \
    {section, "weight", SCHEMA_REAL, ENTRY(weight), .max = 1e9, .help = "Share of the samples that are of this source, in proportion to the weights of all; 0 = no weights: all samples of every source"}, \
    {section, "field", SCHEMA_STRING, ENTRY(field), .help = "JSONL key of the text"}, \
    {section, "messages_field", SCHEMA_STRING, ENTRY(messages_field), .help = "JSONL key of the conversation"}, \
    {section, "role_field", SCHEMA_STRING, ENTRY(role_field), .help = "Key of a message's role"}, \
    {section, "content_field", SCHEMA_STRING, ENTRY(content_field), .help = "Key of a message's text"}, \
    {section, "columns", SCHEMA_STRINGS, ENTRY(columns), ENTRY(column_count), .help = "Columns that are taken, each \"its name=our name\" (`\"question=prompt\"`); none: all"}, \
    {section, "roles", SCHEMA_STRINGS, ENTRY(roles), ENTRY(role_count), .help = "Names of roles, each \"its name=our name\" (`\"bot=assistant\"`)"}, \
    {section, "max_samples", SCHEMA_INT64, ENTRY(max_samples), .max = COUNT_MAX, .help = "Use at most this many samples; 0 = all"}
{"data.train", "name", SCHEMA_STRING, ENTRY(name), .help = "Configuration of a folder, or set of its dataset_info.json"},
{"data.train", "path", SCHEMA_STRING, ENTRY(path), .help = "File, pattern (`*`, `**`, `{a,b}`) or folder of a hub's data set; .parquet .jsonl .json .txt, also .gz .zst; .bin(+.idx)", .fallback = "required"},
{"data.train", "split", SCHEMA_STRING, ENTRY(split), .help = "Split of a folder; auto: train"},
ENTRY_KEYS("data.train"),

{"data.eval", "name", SCHEMA_STRING, ENTRY(name), .help = "Name in reports; configuration of a folder"},
{"data.eval", "path", SCHEMA_STRING, ENTRY(path), .help = "File, pattern or folder", .fallback = "required"},
{"data.eval", "split", SCHEMA_STRING, ENTRY(split), .help = "Split of a folder; auto: validation, else test"},
ENTRY_KEYS("data.eval"),
#undef ENTRY_KEYS

{"train", "max_steps", SCHEMA_INT64, JOB(train.max_steps), .flags = SCHEMA_NOT_ZERO, .min = -1, .max = COUNT_MAX, .aliases = "max_iters", .help = "Length of the schedule in steps; -1: from num_train_epochs"},
{"train", "num_train_epochs", SCHEMA_REAL, JOB(train.num_train_epochs), .flags = SCHEMA_ABOVE_MIN, .max = 1e9, .aliases = "epochs num_epochs", .help = "Passes over the data when max_steps is not given"},
{"train", "per_device_train_batch_size", SCHEMA_INT, JOB(train.per_device_train_batch_size), .flags = SCHEMA_AUTO, .min = 1, .max = 1 << 24, .aliases = "micro_batch_size train_micro_batch_size_per_gpu batch_size", .help = "Samples of one micro-batch on one rank, or on the group that shares them (B)", .fallback = "4, or what the other two give"},
{"train", "gradient_accumulation_steps", SCHEMA_INT, JOB(train.gradient_accumulation_steps), .flags = SCHEMA_AUTO, .min = 1, .max = 1 << 24, .help = "Micro-batches of a step (A)", .fallback = "1, or what the other two give"},
{"train", "accumulation_order", SCHEMA_ENUM, JOB(train.accumulation_order), .choices = orders, .help = "depth_first: each micro-batch through all layers; breadth_first: all micro-batches through a layer, then the next, so weights are moved and gradients sent once a step, and what gradient_checkpointing keeps is kept for all; auto: breadth_first if bits stay the same and the plan says 3 % less time, see docs/offload.md"},
{"train", "global_batch_size", SCHEMA_INT64, JOB(train.global_batch_size), .flags = SCHEMA_AUTO, .min = 1, .max = 1e12, .aliases = "train_batch_size", .help = "Samples of a step over all ranks (G = B x A x groups of cp_size x tp_size ranks)", .fallback = "B x A x groups"},
{"train", "dtype", SCHEMA_ENUM, JOB(train.dtype), .choices = dtypes, .help = "Compute type; master weights are fp32"},
{"train", "tf32", SCHEMA_BOOL, JOB(train.tf32), .flags = SCHEMA_GPU, .help = "On a GPU, compute fp32 matmuls in TF32; a CPU always uses fp32"},
{"train", "fp8", SCHEMA_ENUM, JOB(train.fp8), .choices = fp8_modes, .help = "With dtype bf16, compute the layers' matmuls in FP8; tensorwise: one scale for each tensor, gradients in E5M2 (compute capability 8.9 or higher); blockwise: one scale for each 128 elements of a token and each 128 x 128 of a weight (capability 9.0). Embedding, head, norms, attention and adapters stay in bf16, and so do modules with a side that is not a multiple of 16 (q, k and v together, gate and up together)"},
{"train", "gradient_checkpointing", SCHEMA_CHECKPOINTING, JOB(train.gradient_checkpointing), .choices = checkpointings, .help = "Which activations are kept for backward; the rest is recomputed"},
{"train", "tiled_mlp", SCHEMA_INT, JOB(train.tiled_mlp), .flags = SCHEMA_AUTO, .min = 1, .max = 1 << 20, .help = "Compute the MLP of a layer in this many pieces of a micro-batch's tokens, one after the other, and again in backward; 1: in one, as gradient_checkpointing says; auto: 1, or what makes the job fit"},
{"train", "freeze", SCHEMA_STRINGS, JOB(train.freeze), JOB(train.freeze_count), .help = "Patterns of tensor names; matching tensors are not trained and not saved in checkpoints"},
{"train", "average_tokens_across_devices", SCHEMA_BOOL, JOB(train.average_tokens_across_devices), .help = "Divide the loss by the tokens of the whole step"},
{"train", "auto_find_batch_size", SCHEMA_BOOL, JOB(train.auto_find_batch_size), .help = "Halve the micro-batch until the plan fits"},

{"train.fp16", "loss_scale", SCHEMA_REAL, JOB(train.fp16.loss_scale), .max = SCALE_MAX, .help = "Fixed loss scale; 0 = dynamic", .note = "Only with `train.dtype = \"fp16\"`; the keys have DeepSpeed's names"},
{"train.fp16", "initial_scale_power", SCHEMA_INT, JOB(train.fp16.initial_scale_power), .max = 32, .help = "First dynamic scale, as a power of two"},
{"train.fp16", "loss_scale_window", SCHEMA_INT, JOB(train.fp16.loss_scale_window), .min = 1, .max = 1e9, .help = "Good steps before the scale grows"},
{"train.fp16", "hysteresis", SCHEMA_INT, JOB(train.fp16.hysteresis), .min = 1, .max = 1e6, .help = "Overflows before the scale shrinks"},
{"train.fp16", "min_loss_scale", SCHEMA_REAL, JOB(train.fp16.min_loss_scale), .flags = SCHEMA_ABOVE_MIN, .max = SCALE_MAX, .help = "Smallest loss scale"},

{"optim", "name", SCHEMA_OPTIMIZER, JOB(optim), .choices = optimizers, .aliases = "optimizer", .help = "Optimizer and the type of its states; paged: states that do not fit on the device stay on the host. The names that Hugging Face and bitsandbytes use are accepted too: docs/optimizers.md"},
{"optim", "state_dtype", SCHEMA_ENUM, JOB(state_dtype), .choices = state_dtypes, .help = "Type of the states; bf16 only for `adamw`, 8bit only for the names that end in 8bit", .fallback = "by `optim.name`"},
{"optim", "stable_embedding", SCHEMA_BOOL, JOB(optim.stable_embedding), .help = "Embeddings keep 32-bit states"},
{"optim", "master", SCHEMA_ENUM, JOB(optim.master), .choices = masters, .help = "Master weights; none: with `train.dtype = \"bf16\"`, weights are rounded stochastically"},
{"optim", "learning_rate", SCHEMA_REAL, JOB(optim.learning_rate), .max = 1e6, .aliases = "lr", .help = "Largest learning rate of the schedule"},
{"optim", "lr_scheduler_type", SCHEMA_ENUM, JOB(optim.lr_scheduler_type), .choices = schedules, .help = "Shape of the schedule after the warm-up"},
{"optim", "min_lr_ratio", SCHEMA_REAL, JOB(optim.min_lr_ratio), .max = 1, .help = "Last learning rate divided by the largest"},
{"optim", "warmup_steps", SCHEMA_STEPS, JOB(optim.warmup_steps), .max = COUNT_MAX, .help = "Warm-up steps, or a fraction below 1 of all steps"},
{"optim", "wsd_decay_steps", SCHEMA_STEPS, JOB(optim.wsd_decay_steps), .max = COUNT_MAX, .help = "Decay steps at the end of wsd, or a fraction of all steps"},
{"optim", "weight_decay", SCHEMA_REAL, JOB(optim.weight_decay), .max = 1e6, .help = "Weight decay of matrices; norms and biases are not decayed"},
#define BELOW SCHEMA_BELOW_MAX
#define UP_TO 0
#define OPTIM_PARAM(key, value, bound, most, other, text, from) {"optim", #key, SCHEMA_REAL, JOB(optim.key), .flags = bound, .max = most, .aliases = other, .help = text, .fallback = from},
#include "optim/optimizers.inc"
#undef BELOW
#undef UP_TO
{"optim", "max_grad_norm", SCHEMA_REAL, JOB(optim.max_grad_norm), .max = 1e30, .aliases = "gradient_clipping grad_clip", .help = "Clip gradients to this norm; 0 = off"},

{"zero", "stage", SCHEMA_INT, JOB(zero.stage), .max = 3, .help = "What is sharded; 0: nothing; 1: optimizer states; 2: also gradients; 3: also parameters"},
{"zero", "overlap_comm", SCHEMA_BOOL, JOB(zero.overlap_comm), .help = "Start collectives early and wait for them late"},
{"zero", "prefetch_bucket_size", SCHEMA_INT64, JOB(zero.prefetch_bucket_size), .flags = SCHEMA_AUTO, .min = 1, .max = COUNT_MAX, .aliases = "stage3_prefetch_bucket_size", .help = "Parameter elements gathered ahead (stage 3); auto: the next unit"},

{"parallel", "dp_replicate_size", SCHEMA_INT, JOB(parallel.replicate), .flags = SCHEMA_AUTO | SCHEMA_ZERO | SCHEMA_NOT_ZERO, .min = -1, .max = 1 << 20, .aliases = "data_parallel_replicate_degree", .help = "Groups of ranks that each hold all shards; gathers stay within a group, masters and states are still cut over all ranks; auto (-1): all ranks, divided by the other sizes, if dp_shard_size is given, else 1", .note = "How the sizes combine, and which to use when: docs/clusters.md"},
{"parallel", "dp_shard_size", SCHEMA_INT, JOB(parallel.shard), .flags = SCHEMA_AUTO | SCHEMA_ZERO | SCHEMA_NOT_ZERO, .min = -1, .max = 1 << 20, .aliases = "data_parallel_shard_degree", .help = "Neighboring ranks that cut parameters and gradients among them; auto (-1): all ranks, divided by the other sizes"},
{"parallel", "cp_size", SCHEMA_INT, JOB(parallel.cp), .min = 1, .max = 1 << 16, .aliases = "context_parallel_degree context_parallel_size", .help = "Neighboring ranks that share each sample: two pieces of its tokens each; 2 x cp_size x tp_size must divide cutoff_len"},
{"parallel", "cp_comm_type", SCHEMA_ENUM, JOB(cp_comm_type), .choices = cp_comm_types, .help = "What the ranks of a cp group exchange for attention; allgather: keys and values of all tokens; a2a: heads, if cp_size divides the query and key-value heads of a rank; auto: what sends less"},
{"parallel", "tp_size", SCHEMA_INT, JOB(parallel.tp), .min = 1, .max = 1 << 16, .aliases = "tensor_parallel_degree tensor_model_parallel_size", .help = "Neighboring ranks that cut each layer's matrices, and train on the same samples; must divide the heads, the feed-forward width and cutoff_len"},

{"offload", "optimizer", SCHEMA_ENUM, JOB(offload.optimizer), .choices = tiers, .help = "Where master weights and moments are kept; with cpu and nvme the update runs on the host"},
{"offload", "params", SCHEMA_ENUM, JOB(offload.params), .choices = tiers, .help = "Where parameters are kept between uses (stage 3, or one rank)"},
{"offload", "activations", SCHEMA_ENUM, JOB(offload.activations), .choices = host_tiers, .help = "Where checkpointed layer inputs are kept until backward"},
{"offload", "threads", SCHEMA_INT, JOB(offload.threads), .flags = SCHEMA_AUTO | SCHEMA_PER_RANK, .min = 1, .max = 4096, .help = "Worker threads per rank; auto: from the affinity mask"},
{"offload", "chunk_bytes", SCHEMA_SIZE, JOB(offload.chunk_bytes), .max = 1e12, .help = "Bytes of master weights that a worker updates at a time; 0 = auto"},
{"offload", "clipping", SCHEMA_ENUM, JOB(offload.clipping), .choices = clippings, .help = "wait: update when the norm is known; undo: update at once, and undo the update if the step must be clipped"},
{"offload", "undo_memory", SCHEMA_SIZE, JOB(offload.undo_memory), .flags = SCHEMA_AUTO | SCHEMA_ZERO, .help = "Host memory of a rank that clipping = \"undo\" may use for old values; layers for which it does not suffice wait for the norm; auto: all that is left"},
{"offload", "device_update", SCHEMA_REAL, JOB(offload.device_update), .flags = SCHEMA_AUTO | SCHEMA_ZERO, .max = 1, .help = "Share of the update that the device makes instead of the host; its states are copied there and back; auto: the fastest share by what `zerod bench calibrate` measured, 0 without it"},
{"offload", "accumulate", SCHEMA_ENUM, JOB(offload.accumulate), .choices = accumulates, .help = "Where gradients of several micro-batches are summed"},
{"offload", "nvme_path", SCHEMA_STRING, JOB(offload.nvme_path), .flags = SCHEMA_NULLABLE | SCHEMA_PER_RANK, .help = "Folder of the NVMe tier"},

{"aio", "block_size", SCHEMA_UINT64, JOB(offload.aio.block_bytes), .min = 4096, .max = 1 << 30, .help = "Most bytes of one transfer", .note = "For the tier `nvme` of [offload]"},
{"aio", "queue_depth", SCHEMA_INT, JOB(offload.aio.queue_depth), .min = 1, .max = 256, .help = "Transfers in flight, each in a thread"},

{"comm", "backend", SCHEMA_ENUM, JOB(comm.backend), .choices = comm_backends, .help = "Transport of the collectives"},
{"comm", "timeout", SCHEMA_DURATION, JOB(comm.timeout), .flags = SCHEMA_AUTO | SCHEMA_ZERO, .max = 1e9, .help = "Longest time that a rank may wait for others; a longer wait is a hang and ends the job with 75. auto: 5 times the longest step, at least 10s; before step 2 ten times that, at least ten predicted steps; 0s = no limit"},
{"comm", "hierarchical", SCHEMA_ENUM, JOB(comm.hierarchical), .choices = comm_hierarchies, .help = "Collectives in two levels, within nodes and between them; auto: with NCCL on several nodes"},
{"comm", "reduce", SCHEMA_ENUM, JOB(comm.reduce), .flags = SCHEMA_GPU, .choices = comm_sums, .help = "Order of sums over NCCL; fast: the order of its rings; ordered: rank order, with the bits of MPI on any number of GPUs"},
{"comm", "reduce_dtype", SCHEMA_ENUM, JOB(comm.reduce_dtype), .choices = comm_reduce_dtypes, .help = "Type in which the gradients of a step with one micro-batch are sent; NCCL's fast sums use this type too. auto: fp32 above 64 ranks, else the compute type"},
{"comm", "max_ctas", SCHEMA_INT, JOB(comm.max_ctas), .flags = SCHEMA_GPU | SCHEMA_AUTO | SCHEMA_ZERO, .max = 64, .help = "Multiprocessors that NCCL may use; matmuls are planned for the others. auto: an eighth, 8 to 16; 0 = NCCL chooses, and matmuls are planned for all"},

{"eval", "eval_strategy", SCHEMA_ENUM, JOB(eval.eval_strategy), .choices = eval_strategies, .help = "When to evaluate"},
{"eval", "eval_steps", SCHEMA_STEPS, JOB(eval.eval_steps), .flags = SCHEMA_ABOVE_MIN, .max = COUNT_MAX, .help = "Steps between evaluations, or a fraction of all steps"},
{"eval", "per_device_eval_batch_size", SCHEMA_INT, JOB(eval.per_device_eval_batch_size), .min = 1, .max = 1 << 24, .help = "Samples of one evaluation batch on one rank"},
{"eval", "max_batches", SCHEMA_INT64, JOB(eval.max_batches), .max = COUNT_MAX, .help = "Batches of one evaluation; 0 = all"},
{"eval", "eval_on_start", SCHEMA_BOOL, JOB(eval.eval_on_start), .help = "Evaluate before step 1"},

{"sample", "steps", SCHEMA_INT64, JOB(sample.steps), .max = COUNT_MAX, .help = "Steps between sampled texts; 0 = off"},
{"sample", "prompts", SCHEMA_STRINGS, JOB(sample.prompts), JOB(sample.prompt_count), .help = "Texts to continue"},
{"sample", "chat", SCHEMA_BOOL, JOB(sample.chat), .help = "A prompt is a user's message, rendered as the data's conversations are, and the model's answer is sampled"},
{"sample", "max_new_tokens", SCHEMA_INT, JOB(sample.max_new_tokens), .min = 1, .max = 1 << 24, .help = "Most tokens of a continuation"},
{"sample", "temperature", SCHEMA_REAL, JOB(sample.temperature), .max = 1000, .help = "Sampling temperature; 0 = greedy"},
{"sample", "top_p", SCHEMA_REAL, JOB(sample.top_p), .flags = SCHEMA_ABOVE_MIN, .max = 1, .help = "Sample from the most likely tokens up to this probability"},

{"checkpoint", "save_strategy", SCHEMA_ENUM, JOB(checkpoint.save_strategy), .choices = save_strategies, .help = "When to save; the last step is always saved, except with no"},
{"checkpoint", "save_steps", SCHEMA_STEPS, JOB(checkpoint.save_steps), .flags = SCHEMA_ABOVE_MIN, .max = COUNT_MAX, .help = "Steps between checkpoints, or a fraction of all steps"},
{"checkpoint", "save_every", SCHEMA_DURATION, JOB(checkpoint.save_every_seconds), .flags = SCHEMA_ABOVE_MIN, .max = 1e9, .help = "Time between checkpoints with save_strategy = \"time\""},
{"checkpoint", "save_total_limit", SCHEMA_INT, JOB(checkpoint.save_total_limit), .max = INT_MAX, .help = "Checkpoints kept; 0 = all"},
{"checkpoint", "save_only_model", SCHEMA_BOOL, JOB(checkpoint.save_only_model), .help = "Save weights without optimizer states"},
{"checkpoint", "async_save", SCHEMA_BOOL, JOB(checkpoint.async_save), .help = "Save in the background: training continues while a thread of each rank writes a copy"},
{"checkpoint", "snapshot_memory", SCHEMA_SIZE, JOB(checkpoint.snapshot_bytes), .flags = SCHEMA_AUTO | SCHEMA_ABOVE_MIN, .max = 1e18, .help = "Most host memory of a rank for that copy; auto: what is free. If the copy does not fit, saves are synchronous; for offloaded states, memory for part of the copy is enough"},
{"checkpoint", "timeout", SCHEMA_DURATION, JOB(comm.files_timeout), .max = 1e9, .help = "The job ends with 74 if a save or load finishes no read, write or fsync for this long, or if no data comes for this long. A background save that is stuck ends it only once the run waits for it. 0s = never"},
{"checkpoint", "verify", SCHEMA_BOOL, JOB(checkpoint.verify), .help = "Check digests when loading"},
{"checkpoint", "metric_for_best_model", SCHEMA_ENUM, JOB(checkpoint.metric_for_best_model), .choices = best_metrics, .help = "Metric of save_strategy = \"best\": the evaluation loss"},
{"checkpoint", "greater_is_better", SCHEMA_BOOL, JOB(checkpoint.greater_is_better), .help = "Larger values of the metric are better"},
{"checkpoint", "export", SCHEMA_ENUM, JOB(checkpoint.export), .choices = exports, .help = "What the end of the run exports; hf: the model, to output_dir/hf; peft: the adapter, to output_dir/peft", .fallback = "`\"hf\"`; with [lora] `\"peft\"`"},
{"checkpoint", "max_shard_size", SCHEMA_SIZE, JOB(checkpoint.max_shard_bytes), .flags = SCHEMA_ABOVE_MIN, .max = 1e18, .help = "Largest file of an exported model"},

{"guard", "nan", SCHEMA_ENUM, JOB(guard.nan), .choices = nan_guards, .help = "What to do if a loss or norm is not finite; skip: skip the step, stop after five in a row; stop: stop at once"},

{"log", "level", SCHEMA_ENUM, JOB(log.level), .choices = log_levels, .help = "Lowest level of log lines shown"},
{"log", "logging_steps", SCHEMA_STEPS, JOB(log.logging_steps), .flags = SCHEMA_ABOVE_MIN, .max = COUNT_MAX, .help = "Steps between lines on the screen, or a fraction of all steps"},
{"log", "logging_first_step", SCHEMA_BOOL, JOB(log.logging_first_step), .help = "Show step 1 too"},
{"log", "progress", SCHEMA_ENUM, JOB(log.progress), .choices = progress_modes, .help = "auto: a bar on a terminal, lines otherwise"},
{"log", "step_breakdown", SCHEMA_BOOL, JOB(log.step_breakdown), .help = "Print the time of each phase of a shown step"},
{"log", "rank_logs", SCHEMA_ENUM, JOB(log.rank_logs), .choices = rank_logs, .help = "Where log lines of ranks other than 0 go: output_dir/logs, the screen, or nowhere"},
{"log", "format", SCHEMA_ENUM, JOB(log.json), .choices = log_formats, .help = "Log lines as text, or one JSON object per line"},

{"report", "tensorboard", SCHEMA_BOOL, JOB(report.tensorboard), .help = "TensorBoard's event file in output_dir", .note = "What a run writes beside metrics.jsonl"},
{"report", "trainer_state", SCHEMA_BOOL, JOB(report.trainer_state), .help = "trainer_state.json in each checkpoint, as Hugging Face tools read it"},
{"report", "html", SCHEMA_BOOL, JOB(report.html), .help = "Write report.html to output_dir at the end: the page with the run's numbers"},
{"report", "prometheus_textfile", SCHEMA_STRING, JOB(report.prometheus_textfile), .flags = SCHEMA_NULLABLE | SCHEMA_PER_RANK, .help = "Folder of node_exporter's text files"},

{"control", "socket", SCHEMA_WORD_OR_PATH, JOB(control.socket), JOB(control.socket_path), .flags = SCHEMA_SLASH, .choices = sockets, .help = "Control socket of rank 0; auto: below XDG_RUNTIME_DIR; a path may have 107 bytes", .note = "Who may query and steer a running job: docs/control.md"},
{"control", "metrics_listen", SCHEMA_STRING, JOB(control.metrics_listen), .flags = SCHEMA_NULLABLE | SCHEMA_PER_RANK, .help = "HOST:PORT that answers GET /metrics and nothing else, to anyone: `\"127.0.0.1:9479\"`, `\"[::1]:9479\"`"},
{"control", "readonly", SCHEMA_BOOL, JOB(control.readonly), .flags = SCHEMA_PER_RANK, .help = "Refuse commands on the socket"},
};
/* clang-format on */

const int schema_count = sizeof schema_table / sizeof schema_table[0];
