/* main.c - zerod-docs: the reference from the tables that the programs use.
 * Part of the build; not installed. */
#include "base/file/fs.h"
#include "daemon/cli/complete.h"
#include "daemon/reference/fit_page.h"
#include "daemon/reference/job_page.h"
#include "daemon/reference/metrics_page.h"
#include "daemon/reference/programs.h"

#include <stdlib.h>
#include <string.h>

static int fail_usage(void)
{
    fputs("zerod-docs page FILE          the page with its tables as they are\n"
          "zerod-docs page FILE --write  the same, into that file\n"
          "zerod-docs fits FILE [--write] likewise, docs/measured/fit.md\n"
          "zerod-docs metrics FILE [--write] likewise, docs/metrics.md\n"
          "zerod-docs completions bash|zsh|fish zerod|zerodctl\n"
          "zerod-docs man zerod|zerodctl|job.toml\n",
          stderr);
    return zd_exit_code(ZD_ERR_USAGE);
}

static enum zd_status put_page(
        enum zd_status (*make)(const char *path, char **text_out),
        const char *path, bool writes)
{
    char *text;
    ZD_TRY(make(path, &text));
    enum zd_status status = ZD_OK;
    if (writes)
        status = fs_write_file(path, text, strlen(text));
    else
        fputs(text, stdout);
    free(text);
    return status;
}

static const struct cli_program *find_program(const char *name)
{
    static const struct cli_program *const programs[] = {
            &zerod_program, &zerodctl_program};
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++)
        if (strcmp(programs[i]->name, name) == 0)
            return programs[i];
    return NULL;
}

int main(int argc, char **argv)
{
    enum zd_status status = ZD_OK;
    const char *what = argc > 1 ? argv[1] : "";
    const char *name = argc > 2 ? argv[argc - 1] : "";
    const struct cli_program *program = find_program(name);
    bool writes = argc == 4 && strcmp(argv[3], "--write") == 0;
    if (strcmp(what, "page") == 0 && (argc == 3 || writes))
        status = put_page(job_page_make, argv[2], writes);
    else if (strcmp(what, "fits") == 0 && (argc == 3 || writes))
        status = put_page(fit_page_make, argv[2], writes);
    else if (strcmp(what, "metrics") == 0 && (argc == 3 || writes))
        status = put_page(metrics_page_make, argv[2], writes);
    else if (strcmp(what, "completions") == 0 && program)
        status = complete_print_script(program->name, argv[2], stdout);
    else if (strcmp(what, "man") == 0 && program)
        man_put_program(
                stdout, program,
                program == &zerod_program ? &man_zerod : &man_zerodctl);
    else if (strcmp(what, "man") == 0 && strcmp(name, "job.toml") == 0)
        man_put_job(stdout);
    else
        return fail_usage();
    zd_error_print(stderr, zd_error_get());
    return zd_exit_code(status);
}
