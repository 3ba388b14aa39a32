/* command_init.c - zerod init: a job file from a model and data, from another
 * trainer's file, or one of the recipes. */
#include "base/file/fs.h"
#include "base/must.h"
#include "daemon/cli/output.h"
#include "daemon/command/cli.h"
#include "daemon/init/begin.h"
#include "daemon/init/embedded.h"
#include "daemon/init/foreign.h"
#include "model/config.h"
#include "model/files/config.h"
#include "train/plan/machine.h"

#include <stdlib.h>
#include <string.h>

/* The first sentence of its comment. Lines are joined; the sentence ends with a
 * full stop and a blank, or with the comment, and so does what follows a colon
 * or a semicolon. */
static void put_title(const struct embedded *recipe, FILE *stream)
{
    const char *at = recipe->text;
    while (*at) {
        if (at[0] == '\n') {
            if (strncmp(at, "\n# ", 3) != 0 || at[3] == ' ')
                return;
            fputc(' ', stream);
            at += 3;
            continue;
        }
        if (strchr(".:;", at[0]) && (at[1] == ' ' || at[1] == '\n'))
            return;
        if (!(at == recipe->text && at[0] == '#') &&
            !(at == recipe->text + 1 && at[0] == ' '))
            fputc(*at, stream);
        at++;
    }
}

static void list_recipes(void)
{
    struct embedded recipe;
    OUTPUT(stream);
    for (int i = 0; (recipe = embedded_at(embedded_recipes, i)).name; i++) {
        fprintf(stream, "%-26s ", recipe.name);
        put_title(&recipe, stream);
        fputc('\n', stream);
    }
}

static enum zd_status write_out(const struct cli_args *args, const char *text)
{
    if (!args->out) {
        OUTPUT(stream);
        fputs(text, stream);
        return ZD_OK;
    }
    ZD_TRY(cli_check_new(args->out, "-o"));
    ZD_TRY(fs_write_file(args->out, text, strlen(text)));
    cli_configure_log(args, -1);
    zd_log_info("%s is written; next: zerod validate %s", args->out, args->out);
    return ZD_OK;
}

static enum zd_status write_recipe(const struct cli_args *args)
{
    const char *name = args->line.operands[0];
    struct embedded recipe = embedded_find(embedded_recipes, name);
    if (recipe.name)
        return write_out(args, recipe.text);
    ZD_FAIL(ZD_ERR_USAGE, "E0101", "there is no recipe `%.100s`", name);
    return zd_fail_help("zerod init --list");
}

/* --- a draft -------------------------------------------------------------- */

/* Why `zerod validate` would refuse the job, as this thread's error record.
 * Nothing is told of a job whose files are elsewhere. */
static enum zd_status check_ready(const char *text, int world)
{
    const struct job_request request = {
            .path = "the job",
            .text = text,
            .world = world,
            .paths = JOB_PATHS_EXIST};
    struct job *job;
    bool is_part;
    enum zd_status status = job_load(&request, &job);
    ZD_THEN(status, cli_check_data(job_options(job), false, &is_part));
    ZD_EACH(problem, job_problems(job)->items, job_problems(job)->count) {
        if (strcmp(problem->code, "E0219") == 0) {
            zd_error_clear();
            status = ZD_OK;
            break;
        }
        ZD_FAIL(problem->status, problem->code, "%s", problem->what);
        zd_fail_help("%s", problem->help ? problem->help : "");
    }
    job_free(job);
    return status;
}

/* The job file. Where it cannot run yet, a comment in it and a line on stderr
 * say why, and how to go on; the status is that of `zerod validate`, without a
 * record. */
static enum zd_status write_draft(
        const struct cli_args *args, struct draft *draft)
{
    struct cli_args quiet = *args; /* reading data tells how far it is */
    ZD_FREED char *text = draft_write(draft);
    quiet.quiet = true;
    cli_configure_log(&quiet, -1);
    enum zd_status ready = check_ready(text, (int)args->world);
    if (ready != ZD_OK) {
        const struct zd_error *error = zd_error_get();
        const char *mark = error->help[0] ? ": " : "";
        draft_say(
                draft, "NOT READY, `zerod validate` refuses the job: %s%s%s",
                error->what, mark, error->help);
        zd_log_warning(
                "`zerod validate` refuses the job: %s%s%s", error->what, mark,
                error->help);
        zd_error_clear();
        free(text);
        text = draft_write(draft);
    }
    ZD_TRY(write_out(args, text));
    return ready;
}

/* --- another trainer's file ----------------------------------------------- */

struct origin {
    const char *option, *path; /* --from-`option` `path` */
};

/* How many of the options were given; *out is the last. */
static int find_origin(const struct cli_args *args, struct origin *out)
{
    const struct origin all[] = {
            {"deepspeed", args->from_deepspeed},
            {"hf", args->from_hf},
            {"axolotl", args->from_axolotl},
            {"llamafactory", args->from_llamafactory},
            {"torchtune", args->from_torchtune}};
    int count = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].path) {
            *out = all[i];
            count++;
        }
    return count;
}

/* What the file does not name, the command line does. */
static void check_named(const struct origin *origin, struct draft *draft)
{
    const struct toml_place nowhere = {0};
    if (!draft_has(draft, "model.path"))
        problem_add(
                &draft->problems, ZD_ERR_USAGE, "E0101", nowhere, NULL,
                "%.300s names no model: give --model DIR", origin->path);
    if (!json_array_size(draft->train))
        problem_add(
                &draft->problems, ZD_ERR_USAGE, "E0101", nowhere, NULL,
                "%.300s names no data: give --data PATH", origin->path);
}

/* Their file says no length, and a model may have fewer positions than ours. */
static void keep_within_positions(struct draft *draft)
{
    static const char key[] = "data.cutoff_len";
    ZD_SCOPED(model_config_fini) struct model_config config = {0};
    const char *path = draft_text(draft, "model.path");
    if (draft_has(draft, key) || !path)
        return;
    if (model_config_read(path, true, &config) != ZD_OK)
        zd_error_clear(); /* it need not be here */
    else if (config.max_positions < train_job_default().data.cutoff_len)
        draft_set(
                draft, key, json_integer(config.max_positions),
                "the positions of the model");
}

static enum zd_status take_file(
        const struct cli_args *args, const struct origin *origin,
        struct draft *draft)
{
    json_auto_t *root = NULL;
    ZD_TRY(foreign_read(origin->option, origin->path, draft, &root));
    json_auto_t *table = foreign_table(origin->option);
    if (args->model)
        draft_set(draft, "model.path", json_string(args->model), "--model");
    if (args->data)
        draft_set_source(
                draft_source(draft), args->data, "--data", args->data_name,
                args->data_split);
    draft_say(
            draft, "Made by zerod init of %s, %s.", origin->path,
            json_string_at(table, "name"));
    foreign_take(origin->option, origin->path, root, draft, false);
    check_named(origin, draft);
    keep_within_positions(draft);
    return ZD_OK;
}

static enum zd_status convert(
        const struct cli_args *args, const struct origin *origin)
{
    struct draft draft;
    draft_init(&draft);
    enum zd_status status = take_file(args, origin, &draft);
    if (status == ZD_OK) {
        ZD_FREED char *text = draft_write(&draft);
        const struct job_request request = {
                .path = "the job",
                .text = text,
                .world = (int)args->world,
                .paths = JOB_PATHS_IGNORED};
        draft_find_problems(&draft, &request);
        status = problems_status(&draft.problems);
        if (status == ZD_OK)
            status = write_draft(args, &draft);
        else
            problems_print(&draft.problems, stderr);
    }
    draft_fini(&draft);
    return status;
}

/* --- a model and data ----------------------------------------------------- */

static enum zd_status begin(const struct cli_args *args)
{
    struct job_override overrides[2];
    struct device_options device = {.backend = DEVICE_AUTO, .gpus = "auto"};
    struct plan_calibration here;
    struct draft draft;
    struct begin_request request = {
            .model = args->model,
            .data = args->data,
            .data_name = args->data_name,
            .data_split = args->data_split,
            .kind = args->full    ? BEGIN_FULL
                    : args->lora  ? BEGIN_LORA
                    : args->qlora ? BEGIN_QLORA
                                  : BEGIN_ANY,
            .world = (int)(args->world ? args->world : 1),
            .overrides = overrides};
    if (args->device_memory)
        overrides[request.override_count++] = (struct job_override){
                "device.memory_limit", args->device_memory, "--device-memory",
                true};
    if (args->host_memory)
        overrides[request.override_count++] = (struct job_override){
                "device.host_memory_limit", args->host_memory, "--host-memory",
                true};
    cli_assume_device(args);
    struct device *gpu = command_open_gpu(&device);
    draft_init(&draft);
    enum zd_status status = cli_check_share(
            args->device_memory && strchr(args->device_memory, '%'),
            device.backend);
    ZD_THEN(status, cli_machine(args, device.backend, &here, &request.machine));
    ZD_THEN(status, begin_job(&request, &draft));
    ZD_THEN(status, write_draft(args, &draft));
    draft_fini(&draft);
    device_close(gpu);
    return status;
}

/* --- the command ---------------------------------------------------------- */

static enum zd_status check_args(const struct cli_args *args, int files)
{
    int kinds = args->full + args->lora + args->qlora;
    bool has_name = args->line.operand_count > 0;
    bool is_named = args->model || args->data;
    const char *what = NULL;
    if (files + has_name + args->list > 1)
        what = "makes one job: of one file, or one recipe";
    else if ((has_name || args->list) && (is_named || kinds))
        what = "prints a recipe unchanged: no --model, --data, --full, --lora, "
               "--qlora";
    else if (!files && !has_name && !args->list && !(args->model && args->data))
        what = "needs --model and --data, a file with --from-.., or the name "
               "of a recipe";
    else if ((args->data_name || args->data_split) && !args->data)
        what = "takes --data-name and --data-split with the folder of --data";
    else if (kinds > 1 || (kinds && files))
        what = "takes one of --full, --lora and --qlora, with --model and "
               "--data";
    if (!what)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_USAGE, "E0101", "`zerod init` %s", what);
    return zd_fail_help("zerod init --help");
}

enum zd_status command_init(struct cli_args *args)
{
    struct origin origin = {0};
    int files = find_origin(args, &origin);
    ZD_TRY(check_args(args, files));
    ZD_TRY(cli_check_limits(args, NULL));
    if (args->list) {
        list_recipes();
        return ZD_OK;
    }
    if (args->line.operand_count)
        return write_recipe(args);
    if (files)
        return convert(args, &origin);
    return begin(args);
}
