/* command_model.c - checkpoints, exported models, adapters, and text from them.
 */
#include "daemon/cli/fill.h"
#include "daemon/cli/output.h"
#include "daemon/command/cli.h"
#include "model/files/config.h"
#include "model/files/export_hf.h"
#include "model/files/weights_hf.h"
#include "train/checkpoint/cli.h"
#include "train/text/generate.h"

#include "base/file/fs.h"
#include "base/must.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* --dtype; `absent` without it. */
static enum dtype dtype_of(const struct cli_args *args, enum dtype absent)
{
    static const enum dtype types[] = {DTYPE_FP32, DTYPE_BF16, DTYPE_FP16};
    for (size_t i = 0; args->dtype && i < sizeof types / sizeof types[0]; i++)
        if (strcmp(args->dtype, dtype_name(types[i])) == 0)
            return types[i];
    return absent;
}

/* What is written replaces a folder of an earlier export: not one that is read
 * meanwhile. `which` is how it was named. */
static enum zd_status check_out(
        const struct cli_args *args, const char *which, const char *input)
{
    struct stat out, in;
    if (!input || stat(args->out, &out) != 0 || stat(input, &in) != 0 ||
        out.st_dev != in.st_dev || out.st_ino != in.st_ino)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_CREATE, "E0314",
            "-o %s is the folder of %s; the result would replace it", args->out,
            which);
    return zd_fail_help("name another folder with -o");
}

static bool has_file(const char *folder, const char *name)
{
    return fs_exists(fs_in(folder, name).text);
}

static void tell_written(const struct cli_args *args, bool replaces)
{
    bool is_adapter = has_file(args->out, "adapter_config.json");
    OUTPUT(stream);
    fprintf(stream, "%s: %s written%s\n", args->out,
            is_adapter ? "adapter" : "model",
            replaces ? ", in place of the one that zerod wrote there before"
                     : "");
}

enum zd_status command_export(struct cli_args *args)
{
    bool is_nf4 = args->quantize && strcmp(args->quantize, "nf4") == 0;
    struct quantize_options quantize = {
            .format = is_nf4 ? QUANT_NF4 : QUANT_INT8,
            .double_quant = args->double_quant};
    if (args->double_quant && !is_nf4)
        return ZD_FAIL(
                ZD_ERR_USAGE, "E0101", "--double-quant needs --quantize nf4");
    enum dtype dtype = dtype_of(args, DTYPE_FP32);
    bool replaces = has_file(args->out, "config.json") ||
                    has_file(args->out, "adapter_config.json");
    ZD_TRY(check_out(args, "--base", args->base));
    ZD_TRY(train_export(&(struct train_export){
            .path = args->line.operands[0],
            .out_dir = args->out,
            .dtype = args->dtype ? &dtype : NULL,
            .quantize = args->quantize ? &quantize : NULL,
            .merges = args->merge,
            .base = args->base}));
    tell_written(args, replaces);
    return ZD_OK;
}

/* --- adapters --- */

/* The adapters of a command line: DIR, or DIR=WEIGHT. */
struct adapters {
    struct adapter_choice choices[CLI_LIST_MAX]; /* their folders are owned */
    int count;
};

static enum zd_status adapters_init(
        struct adapters *adapters, const struct cli_list *list)
{
    for (int i = 0; i < list->count; i++) {
        char *dir = zd_must(strdup(list->items[i]));
        char *mark = strrchr(dir, '='), *end;
        struct adapter_choice *choice = &adapters->choices[adapters->count++];
        *choice = (struct adapter_choice){dir, 1};
        if (mark && !fs_is_dir(dir)) {
            choice->weight = strtod(mark + 1, &end);
            if (end == mark + 1 || *end || !isfinite(choice->weight))
                return ZD_FAIL(
                        ZD_ERR_USAGE, "E0101",
                        "--adapter takes DIR or DIR=WEIGHT, not `%s`", dir);
            *mark = '\0';
        }
    }
    return ZD_OK;
}

static void adapters_fini(struct adapters *adapters)
{
    for (int i = 0; i < adapters->count; i++)
        free((char *)adapters->choices[i].dir);
}

static enum zd_status merge(
        const struct cli_args *args, const struct adapters *adapters,
        const struct model_config *config, const struct param_table *table)
{
    ZD_SCOPED(weights_close) struct weight_source source = {0};
    enum dtype storage;
    ZD_TRY(check_out(args, "--base", args->base));
    for (int i = 0; i < adapters->count; i++)
        ZD_TRY(check_out(args, "--adapter", adapters->choices[i].dir));
    ZD_TRY(weights_export_check(args->out, false));
    ZD_TRY(weights_open_adapted(
            args->base, config, table, adapters->choices, adapters->count,
            &storage, &source));
    if (config->is_quantized)
        merge_tell_codes(args->base);
    const struct hf_export_job job = {
            .dir = args->out,
            .config = config,
            .table = table,
            .dtype = dtype_of(args, storage),
            .max_shard_bytes = 5000000000u,
            .copy_from = args->base,
            .file_prefix = weights_hf_has_prefix(args->base, config),
            .others_from = args->base,
    };
    return weights_export(&job, EXPORT_ALL, &source, 0, 1);
}

enum zd_status command_merge(struct cli_args *args)
{
    ZD_SCOPED(adapters_fini) struct adapters adapters = {.count = 0};
    ZD_SCOPED(model_config_fini) struct model_config config = {0};
    ZD_SCOPED(param_table_fini) struct param_table table = {0};
    bool replaces = has_file(args->out, "config.json");
    ZD_TRY(adapters_init(&adapters, &args->adapters));
    ZD_TRY(model_config_read(args->base, true, &config));
    for (int i = 0; i < adapters.count; i++)
        ZD_TRY(peft_extend_config(adapters.choices[i].dir, &config));
    ZD_TRY(param_table_build(&config, NULL, 0, &table));
    ZD_TRY(merge(args, &adapters, &config, &table));
    tell_written(args, replaces);
    return ZD_OK;
}

/* --- looking at checkpoints --- */

static void print_rows(const struct look *look, const json_t *rows)
{
    fprintf(look->out, "%-10s %-6s %-6s %14s  %-5s %s\n", "STEP", "WORLD",
            "STAGE", "BYTES", "SIZES", "PATH");
    JSON_EACH(row, rows) {
        const json_t *ok = json_object_get(row, "ok");
        fprintf(look->out, "%-10lld %-6lld %-6lld %14lld  %-5s ",
                json_integer_at(row, "step"), json_integer_at(row, "world"),
                json_integer_at(row, "stage"), json_integer_at(row, "bytes"),
                json_is_null(ok)   ? "?"
                : json_is_true(ok) ? "ok"
                                   : "BAD");
        fill_print(look, row, "{path|s}\n");
    }
}

static void print_checkpoint(const struct look *look, const json_t *row)
{
    static const char lines[] =
            "[step     {step|w} of {progress.max_steps|w}\n]"
            "ranks    {world|w}, ZeRO stage {stage|w}\n"
            "[mesh     replicate {mesh.replicate|w}, shard {mesh.shard|w}, cp "
            "{mesh.cp|w}, tp {mesh.tp|w}\n]"
            "[samples  {progress.samples_taken|w} taken, "
            "{progress.tokens_seen|w} tokens\n]"
            "[params   {parameters.all|w}, {parameters.trainable|w} of them "
            "trained\n]"
            "[adapter  LoRA, r {adapter.config.r|w} on "
            "{adapter.config.target_modules|s}; DoRA: "
            "{adapter.config.use_dora|j}\n]"
            "[base     {base.path|s}, held in {base.format|s}\n]"
            "[random   the base is of seed {base.seed|w}, held in "
            "{base.format|s}\n]"
            "[optim    {optimizer.name|s}, masters {optimizer.master|s}; "
            "tensors with m {optimizer.m|j}, v {optimizer.v|j}\n]"
            "[scale    loss x {progress.loss_scale.scale|w}, good steps "
            "{progress.loss_scale.good_steps|w}, hysteresis "
            "{progress.loss_scale.hysteresis|w}\n]";
    const json_t *files = json_object_get(row, "files");
    fill_print(look, row, lines);
    fprintf(look->out, "tensors  %zu\n",
            json_object_size(json_object_get(row, "tensors")));
    JSON_EACH(file, files)
        fill_print(
                look, file,
                "file     {name|s}  {bytes|w} bytes[  xxh3 {xxh3_128|s}]"
                "[  xxh3 of its parts {parts_xxh3_128|s}]\n");
    fill_print(
            look, row,
            "sizes    [{ok|?}ok (zerod ckpt verify reads every byte)]"
            "[{ok|!}BAD]\n");
}

static void print_verified(const struct look *look, const json_t *row)
{
    fill_print(look, row, "[{ok|?}{path|s}: every file matches its digest\n]");
}

static enum zd_status ask(
        checkpoint_query *query, const struct cli_args *args,
        void (*print)(const struct look *look, const json_t *told))
{
    struct look look = look_of_stdout();
    json_auto_t *told = NULL;
    enum zd_status status = query(args->line.operands[0], &told);
    if (told && cli_wants_json(args)) {
        output_json(told);
    } else if (told) {
        OUTPUT(stream);
        look.out = stream;
        print(&look, told);
    }
    return status;
}

enum zd_status command_ckpt_ls(struct cli_args *args)
{
    return ask(checkpoint_ls, args, print_rows);
}

enum zd_status command_ckpt_show(struct cli_args *args)
{
    return ask(checkpoint_show, args, print_checkpoint);
}

enum zd_status command_ckpt_verify(struct cli_args *args)
{
    return ask(checkpoint_verify, args, print_verified);
}

enum zd_status command_generate(struct cli_args *args)
{
    struct generate_options options = generate_options_default();
    ZD_SCOPED(adapters_fini) struct adapters adapters = {.count = 0};
    ZD_TRY(adapters_init(&adapters, &args->adapters));
    options.adapters = adapters.choices;
    options.adapter_count = adapters.count;
    options.model = args->model;
    options.prompts = args->prompts.items;
    options.prompt_count = args->prompts.count;
    options.chat = args->chat;
    options.max_new_tokens = (int)args->max_new_tokens;
    options.temperature = args->temperature;
    options.top_p = args->top_p;
    options.seed = (uint64_t)args->seed;
    return generate_text(&options, stdout);
}
