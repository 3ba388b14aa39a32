/* command_model.c - checkpoints, exported models, and text from them. */
#include "daemon/cli/output.h"
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

typedef enum zd_status tell_fn(const char *path, bool json, FILE *out);

static enum zd_status print(tell_fn *tell, const struct cli_args *args)
{
    struct output output;
    enum zd_status status =
            tell(args->line.operands[0], cli_wants_json(args),
                 output_begin(&output));
    output_end(&output);
    return status;
}

enum zd_status command_ckpt_ls(struct cli_args *args, int *argc, char ***argv)
{
    return print(checkpoint_ls, args);
}

enum zd_status command_ckpt_show(struct cli_args *args, int *argc, char ***argv)
{
    return print(checkpoint_show, args);
}

enum zd_status command_ckpt_verify(
        struct cli_args *args, int *argc, char ***argv)
{
    return print(checkpoint_verify, args);
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
