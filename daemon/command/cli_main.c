#include "daemon/command/cli.h"

#include "daemon/cli/complete.h"
#include "daemon/cli/help.h"
#include "daemon/cli/output.h"
#include "daemon/cli/parse.h"
#include "zd_config.h"

static void print_version(bool json)
{
    static const struct {
        const char *name;
        bool has;
    } parts[] = {
            {"onednn", ZD_HAVE_ONEDNN},
            {"openblas", ZD_HAVE_OPENBLAS},
            {"cuda", ZD_HAVE_CUDA},
            {"nccl", ZD_HAVE_NCCL}};
    if (!json) {
        printf("zerod %s\n", ZD_VERSION);
        return;
    }
    json_t *object =
            json_pack("{s:s, s:s}", "name", "zerod", "version", ZD_VERSION);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        json_object_set_new(object, parts[i].name, json_boolean(parts[i].has));
    output_json(object);
    json_decref(object);
}

int cli_main(int argc, char **argv)
{
    struct cli_args args;
    const struct cli_command *command = NULL;
    bool json;
    enum zd_status status;

    if (cli_is_version(argc, argv, &json, &status)) {
        if (status == ZD_OK)
            print_version(json);
    } else if (complete_main(&zerod_program, argc, argv, cli_complete_value)) {
        status = ZD_OK;
    } else {
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
