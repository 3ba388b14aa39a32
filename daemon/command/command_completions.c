#include "daemon/command/cli.h"
#include "daemon/command/completions.h"

enum zd_status command_completions(
        struct cli_args *args, int *argc, char ***argv)
{
    struct completion_keys *keys = completion_job_keys();
    enum zd_status status = completions_print(
            args->program, keys, args->line.operands[0], stdout);
    completion_job_keys_free(keys);
    return status;
}
