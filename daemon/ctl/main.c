#include "daemon/cli/complete.h"
#include "daemon/cli/output.h"
#include "daemon/ctl/ctl.h"
#include "zd_config.h"

int main(int argc, char **argv)
{
    struct cli_args args;
    const struct cli_command *command = NULL;
    enum zd_status status = ZD_OK;
    output_init();
    if (cli_is_version(argc, argv)) {
        printf("zerodctl %s\n", ZD_VERSION);
    } else if (!complete_main(
                       &zerodctl_program, argc, argv, ctl_complete_value)) {
        status = cli_parse(&zerodctl_program, argc, argv, &args, &command);
        if (status == ZD_OK && args.line.help) {
            cli_print_help(&zerodctl_program, command, stdout);
        } else if (status == ZD_OK) {
            args.look = look_of_stdout();
            status = command->run(&args);
            target_fini(&args.target);
        }
    }
    zd_error_print(stderr, zd_error_get());
    return output_finish(zd_exit_code(status));
}
