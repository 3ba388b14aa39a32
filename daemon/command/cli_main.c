#include "daemon/command/cli.h"

#include "daemon/cli/complete.h"
#include "daemon/cli/help.h"
#include "daemon/cli/output.h"
#include "daemon/cli/parse.h"
#include "zd_config.h"

int cli_main(int argc, char **argv)
{
    struct cli_args args;
    const struct cli_command *command = NULL;
    enum zd_status status = ZD_OK;

    if (cli_is_version(argc, argv)) {
        printf("zerod %s\n", ZD_VERSION);
    } else if (!complete_main(&zerod_program, argc, argv, cli_complete_value)) {
        status = cli_parse(&zerod_program, argc, argv, &args, &command);
        if (status != ZD_OK)
            status = command_run_refused(status, &argc, &argv);
        if (status == ZD_OK && args.line.help)
            cli_print_help(&zerod_program, command, stdout);
        else if (status == ZD_OK) {
            struct zd_log_options log = cli_log_options(&args);
            zd_log_configure(&log);
            args.program = &zerod_program;
            status = command->run(&args, &argc, &argv);
        }
    }
    zd_error_print(stderr, zd_error_get());
    int code = zd_exit_code(status);
    return output_finish(code);
}
