/* cli_table.c - every command and every option. */
#include "base/words.h"
#include "daemon/command/cli.h"

#define ARG(field)   offsetof(struct cli_args, field)
#define COUNT(table) (int)(sizeof table / sizeof table[0])

/* clang-format off */
static const struct cli_option options[] = {
{"job", 0, "FILE", CLI_TEXT, ARG(job), NULL, "The job file"},
{"set", 0, "SECTION.KEY=VALUE", CLI_SETTING, ARG(sets), NULL, "Override a key of the job file; may be repeated"},
{"resume", 0, "auto|never|must|PATH", CLI_TEXT, ARG(resume), NULL, "Where to resume from (run.resume)"},
{"stop-after", 0, "N", CLI_NUMBER, ARG(stop_after), NULL, "End after step N with a checkpoint (run.stop_after)"},
{"max-steps", 0, "N", CLI_COUNT, ARG(max_steps), NULL, "Length of the schedule (train.max_steps)"},
{"force", 0, NULL, CLI_FLAG, ARG(force), NULL, "Run a job that does not fit; one that takes more than the machine has ends with 69"},
{"quiet", 'q', NULL, CLI_FLAG, ARG(quiet), NULL, "Warnings and errors only"},
{"verbose", 'v', NULL, CLI_FLAG, ARG(verbose), NULL, "Debug messages too"},
{"log-format", 0, "text|json", CLI_CHOICE, ARG(log_format), "text|json", "Format of the log lines on stderr"},
{"no-progress", 0, NULL, CLI_FLAG, ARG(no_progress), NULL, "Show neither the bar nor step lines"},
{"world", 0, "N", CLI_COUNT, ARG(world), NULL, "Number of ranks"},
{"per-node", 0, "K", CLI_COUNT, ARG(per_node), NULL, "Ranks per node, a divisor of N; default: one node, on GPUs as many as this machine has"},
{"device-memory", 0, "SIZE", CLI_TEXT, ARG(device_memory), NULL, "Device memory of a rank (device.memory_limit)"},
{"host-memory", 0, "SIZE", CLI_TEXT, ARG(host_memory), NULL, "Host memory of a rank (device.host_memory_limit)"},
{"disk", 0, "SIZE", CLI_TEXT, ARG(disk), NULL, "Room of a rank in offload.nvme_path; default: no limit"},
{"fit", 0, NULL, CLI_FLAG, ARG(fit), NULL, "Search for changes that make the job fit; the predicted fastest first"},
{"allow", 0, "LIST", CLI_TEXT, ARG(allow), NULL, "More that --fit may change, separated by commas: optim (states and masters), dtype, lora (adapters), quantize (with adapters: the model in nf4), mesh (replicas of shards, cp_size and tp_size)"},
{"write", 0, "FILE", CLI_TEXT, ARG(write), NULL, "Write the first result as a job file that extends this one"},
{"max", 0, "batch|seq|model", CLI_CHOICE, ARG(max), "batch|seq|model", "Find the largest value that fits; the rest stays as it is (with --fit it may change)"},
{"min", 0, "world", CLI_CHOICE, ARG(min), "world", "The fewest ranks that the job fits on"},
{"machine", 0, "NAME", CLI_CHOICE, ARG(machine), "here|h100|h200|a100|4090|amx|cpu", "Machine to plan for, its device and times: here, h100, h200, a100, 4090, amx or cpu; default: this machine's calibration, else a table for the backend"},
{"seconds", 0, "N", CLI_SOME, ARG(seconds), NULL, "Measure for about N seconds (120)"},
{"threads", 0, "N", CLI_COUNT, ARG(threads), NULL, "Threads of a rank; default: OMP_NUM_THREADS, else from the affinity mask, as a run takes them"},
{"json", 0, NULL, CLI_FLAG, ARG(json), NULL, "The same as --format json"},
{"all", 0, NULL, CLI_FLAG, ARG(all), NULL, "Read all of the data, into the cache that a run uses"},
{"print", 0, NULL, CLI_FLAG, ARG(print), NULL, "Print every resolved value and its origin"},
{"format", 0, "text|json", CLI_CHOICE, ARG(format), "text|json", "Output format"},
{"out", 'o', "PATH", CLI_TEXT, ARG(out), NULL, "Output folder; with init a file, else stdout"},
{"dtype", 0, "bf16|fp16|fp32", CLI_CHOICE, ARG(dtype), "bf16|fp16|fp32", "Element type of the files; default: as the model was stored"},
{"quantize", 0, "nf4|int8", CLI_CHOICE, ARG(quantize), "nf4|int8", "Quantize the linear weights of the layers, as transformers loads them with bitsandbytes"},
{"double-quant", 0, NULL, CLI_FLAG, ARG(double_quant), NULL, "With nf4: quantize the block scales to 8 bits too"},
{"merge", 0, NULL, CLI_FLAG, ARG(merge), NULL, "For a checkpoint of adapters: write the merged model instead of the adapter"},
{"model", 0, "DIR", CLI_TEXT, ARG(model), NULL, "A Hugging Face directory"},
{"data", 0, "PATH", CLI_TEXT, ARG(data), NULL, "Training data: a file, a pattern or a folder"},
{"data-name", 0, "NAME", CLI_TEXT, ARG(data_name), NULL, "Which set of the folder that --data names, if it has several and no default"},
{"data-split", 0, "NAME", CLI_TEXT, ARG(data_split), NULL, "Which split of that folder to train on (train)"},
{"full", 0, NULL, CLI_FLAG, ARG(full), NULL, "Train the whole model"},
{"lora", 0, NULL, CLI_FLAG, ARG(lora), NULL, "Train adapters on the frozen model"},
{"qlora", 0, NULL, CLI_FLAG, ARG(qlora), NULL, "Train adapters on the frozen model in 4 bits"},
{"from-deepspeed", 0, "FILE", CLI_TEXT, ARG(from_deepspeed), NULL, "A DeepSpeed configuration (JSON); with --model and --data"},
{"from-hf", 0, "FILE", CLI_TEXT, ARG(from_hf), NULL, "Hugging Face's training arguments (JSON); --model and --data override it"},
{"from-axolotl", 0, "FILE", CLI_TEXT, ARG(from_axolotl), NULL, "An axolotl file (YAML); --model and --data override it"},
{"from-llamafactory", 0, "FILE", CLI_TEXT, ARG(from_llamafactory), NULL, "A LLaMA-Factory file (YAML); --model and --data override it"},
{"from-torchtune", 0, "FILE", CLI_TEXT, ARG(from_torchtune), NULL, "A torchtune configuration (YAML); --model and --data override it"},
{"list", 0, NULL, CLI_FLAG, ARG(list), NULL, "List the recipes"},
{"base", 0, "DIR", CLI_TEXT, ARG(base), NULL, "The Hugging Face directory that training began from"},
{"adapter", 0, "DIR[=WEIGHT]", CLI_LIST, ARG(adapters), NULL, "A PEFT adapter and its weight (1); may be repeated"},
{"prompt", 0, "TEXT", CLI_LIST, ARG(prompts), NULL, "Text to continue; if repeated, each result is a line of JSON"},
{"chat", 0, NULL, CLI_FLAG, ARG(chat), NULL, "Treat each prompt as a user's message; stop at the end of the assistant's turn"},
{"max-new-tokens", 0, "N", CLI_COUNT, ARG(max_new_tokens), NULL, "Generate at most N tokens (64)"},
{"temperature", 0, "T", CLI_REAL, ARG(temperature), NULL, "Sampling temperature; without it, greedy"},
{"top-p", 0, "P", CLI_SHARE, ARG(top_p), NULL, "Sample from the most likely tokens up to this probability (1)"},
{"seed", 0, "S", CLI_NUMBER, ARG(seed), NULL, "Seed of the sampling"},
{"count", 0, "N", CLI_NUMBER, ARG(count), NULL, "Samples to show (3)"},
{"ids", 0, NULL, CLI_FLAG, ARG(ids), NULL, "Print each token on its own line, with its id"},
{"html", 0, "FILE", CLI_TEXT, ARG(html), NULL, "Write the result to FILE as a page"},
{"help", 'h', NULL, CLI_FLAG, ARG(line.help), NULL, "Show this help"},
};

static const struct cli_command commands[] = {
{"run", "", 0, 0, "job set resume stop-after max-steps force quiet verbose log-format no-progress", "job",
    "Train; the command may be left out: zerod --job FILE", command_run, "commands", NULL},
{"validate", "FILE", 0, 1, "job world all print format set", "",
    "Check a job file and its data, and report all problems at once", command_validate, "commands",
    "Reads the first 10,000 records of each [[data.train]] and [[data.eval]] as a run does, or fewer if they have 4 million tokens."},
{"init", "[RECIPE]", 0, 1, "model data data-name data-split world full lora qlora device-memory host-memory machine from-deepspeed from-hf from-axolotl from-llamafactory from-torchtune list out", "",
    "Write a job file: for a model and data, from another trainer's file, or from a recipe", command_init, "commands",
    "--data takes a file, a folder of data (a hub's too) or a pattern such as \"data/*.jsonl\". "
    "For a model and data: the job predicted to be the fastest of those that fit this machine, with a reason after each line. The whole model trains if it fits, else adapters. "
    "Every key of another trainer's file becomes a value, or a comment if training is the same without it; one that would change training is an error (78)."},
{"plan", "[FILE]", 0, 1, "job world per-node device-memory host-memory disk fit allow write max min machine format set", "",
    "Plan memory and traffic of a job on N ranks; search for what fits", command_plan, "commands",
    "Without --world the plan is for one rank. Of the model, only config.json is needed. Where no GPU is seen the plan is the CPU's; --machine h100 or --set device.backend=cuda plans for a machine with GPUs, "
    "K of them in a node, and NCCL between them where this zerod was built with it."},
{"bench calibrate", "", 0, 0, "seconds threads format json", "",
    "Measure this machine for the plan's time predictions", command_bench_calibrate, "commands",
    "The result is kept in the user's cache folder, one file per machine. Under mpirun all ranks measure at once, and also the wire between them. Measures matmuls by shape, attention, "
    "the rest of a layer, updates, memory, copies, and the disk below the cache folder."},
{"doctor", "", 0, 0, "job set format", "",
    "Check hardware and libraries; list what zerod cannot use", command_doctor, "commands",
    "Shows the driver, libraries with their paths, GPUs, limits and MPI. Under mpirun it compares the ranks. "
    "With --job it tells whether the job would start here; `zerod validate` checks its data. A warning names each thing that zerod cannot use, what that costs, and a fix. The exit code is 69 only if the job would not run."},
{"export", "CHECKPOINT", 1, 1, "out dtype quantize double-quant merge base", "out",
    "Write a checkpoint as a Hugging Face directory", command_export, "commands",
    "A checkpoint of adapters becomes a PEFT adapter, or with --merge the merged model. Frozen tensors are not in the checkpoint; they are read from --base, or from where the run read them."},
{"merge", "", 0, 0, "base adapter out dtype", "base adapter out",
    "Merge adapters into a model and write a Hugging Face directory", command_merge, "commands",
    "DoRA and modules_to_save cannot be weighted or combined with another adapter of the same module. Memory: the largest tensor, as fp32."},
{"ckpt ls", "PATH", 1, 1, "format", "", "List the checkpoints of an output folder", command_ckpt_ls, "commands",
    "SIZES tells whether every file has the right size; `zerod ckpt verify` also reads the files."},
{"ckpt show", "PATH", 1, 1, "format", "", "Show the contents of a checkpoint", command_ckpt_show, "commands", NULL},
{"ckpt verify", "PATH", 1, 1, "format", "", "Read a checkpoint and compare its digests", command_ckpt_verify, "commands", NULL},
{"generate", "", 0, 0, "model adapter prompt chat max-new-tokens temperature top-p seed", "model prompt",
    "Generate text with a model", command_generate, "commands",
    "--chat renders a prompt by the model's own chat template, as training does with data.chat_template = \"auto\"."},
{"data inspect", "[FILE]", 0, 1, "job set count ids format html", "", "Show decoded samples of a job and their loss mask", command_data_inspect, "commands",
    "Reads all of the data. Prints the number of documents and tokens, what data.cutoff_len cuts off, and the share of targets that is trained; then the first training samples, "
    "with text that the loss does not count [-between these-] (dimmed on a terminal)."},
{"completions", "bash|zsh|fish", 1, 1, "", "", "Print a completion script of zerod for that shell", command_completions, "commands", NULL},
};
/* clang-format on */

static const struct cli_exit exits[] = {
        {0, "done"},
        {64, "command line"},
        {65, "bad data"},
        {66, "missing input"},
        {69, "does not fit"},
        {73, "cannot create"},
        {74, "I/O"},
        {75, "stopped early (start again to resume)"},
        {77, "permission"},
        {78, "job file"},
        {79, "diverged, or keeps ending the same way"},
};

static const struct cli_args defaults = {
        .max_steps = -1,
        .stop_after = -1,
        .max_new_tokens = 64,
        .count = 3,
        .top_p = 1,
        .seconds = 120,
};

/* What goes together in `zerod plan`. */
static enum zd_status check_plan(const struct cli_args *args)
{
    const char *what = NULL;
    if (args->world && args->min)
        what = "--min searches for the number of ranks: leave --world out";
    else if (args->max && args->min)
        what = "--max and --min cannot be combined";
    else if (args->write && (!args->fit || args->max || args->min))
        what = "--write needs --fit, without --max and --min";
    else if (args->allow && !args->fit)
        what = "--allow needs --fit";
    else if (args->disk && !args->fit && !args->max && !args->min)
        what = "--disk needs --fit, --max or --min";
    if (!what)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_USAGE, "E0101", "zerod plan: %s", what);
    return zd_fail_help("zerod plan --help");
}

/* The job file is an operand or --job, and there is one. */
static enum zd_status check_job(
        const struct cli_command *command, const struct cli_args *args)
{
    bool by_operand = command->operands_max == 1 &&
                      cli_takes(&zerod_program, command, &options[0]);
    if (!by_operand)
        return ZD_OK;
    if (args->job && args->line.operand_count) {
        const char *second = args->line.operands[0];
        char size[16];
        double bytes;
        ZD_FAIL(ZD_ERR_USAGE, "E0101",
                "the job file is given twice: `%s` and `%s`", args->job,
                second);
        ZD_PRINT(size, "24%s", second);
        return words_size(size, &bytes)
                       ? zd_fail_help("write a size without a blank: %s", size)
                       : ZD_ERR_USAGE;
    }
    if (!args->job && !args->line.operand_count) {
        ZD_FAIL(ZD_ERR_USAGE, "E0101", "`zerod %s` needs a job file",
                command->name);
        return zd_fail_help("zerod %s --help", command->name);
    }
    return command->run == command_plan ? check_plan(args) : ZD_OK;
}

const struct cli_program zerod_program = {
        .name = "zerod",
        .summary = "trains language models with ZeRO over MPI",
        .examples = "  zerod --job FILE                              1 rank\n"
                    "  mpirun -np 8 --bind-to none zerod --job FILE  8 ranks\n",
        .file_hint = "did you mean `zerod --job %s`?",
        .hint = "zerod --job job.toml trains; zerod --help lists the commands",
        .commands = commands,
        .command_count = COUNT(commands),
        .unnamed = &commands[0],
        .options = options,
        .option_count = COUNT(options),
        .common = "",
        .exits = exits,
        .exit_count = COUNT(exits),
        .args_bytes = sizeof(struct cli_args),
        .defaults = &defaults,
        .check = check_job,
};
