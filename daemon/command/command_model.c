/* command_model.c - checkpoints, exported models, and text from them. */
#include "daemon/command/cli.h"
#include "train/checkpoint/cli.h"
#include "train/text/generate.h"

#include <string.h>

enum zd_status command_export(struct cli_args *args, int *argc, char ***argv)
{
    static const enum dtype types[] = {DTYPE_FP32, DTYPE_BF16, DTYPE_FP16};
    enum dtype dtype = DTYPE_FP32;
    for (size_t i = 0; args->dtype && i < sizeof types / sizeof types[0]; i++)
        if (strcmp(args->dtype, dtype_name(types[i])) == 0)
            dtype = types[i];
    return train_export(
            args->line.operands[0], args->out, args->dtype != NULL, dtype);
}

enum zd_status command_ckpt_ls(struct cli_args *args, int *argc, char ***argv)
{
    return checkpoint_ls(args->line.operands[0], cli_wants_json(args), stdout);
}

enum zd_status command_ckpt_show(struct cli_args *args, int *argc, char ***argv)
{
    return checkpoint_show(
            args->line.operands[0], cli_wants_json(args), stdout);
}

enum zd_status command_ckpt_verify(
        struct cli_args *args, int *argc, char ***argv)
{
    return checkpoint_verify(
            args->line.operands[0], cli_wants_json(args), stdout);
}

enum zd_status command_generate(struct cli_args *args, int *argc, char ***argv)
{
    struct generate_options options = generate_options_default();
    options.model = args->model;
    options.prompt = args->prompt;
    options.max_new_tokens = (int)args->max_new_tokens;
    options.temperature = args->temperature;
    options.top_p = args->top_p;
    options.seed = (uint64_t)args->seed;
    return generate_text(&options, stdout);
}
