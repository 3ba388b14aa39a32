/* command_plan_fit.c - zerod plan --fit, --max and --min. */
#include "base/file/fs.h"
#include "base/must.h"
#include "base/units.h"
#include "base/words.h"
#include "daemon/cli/output.h"
#include "daemon/command/cli.h"
#include "daemon/init/begin.h"
#include "train/plan/machine.h"
#include "train/plan/search.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- what is asked -------------------------------------------------------- */

static enum zd_status read_allow(const char *list, unsigned *out)
{
    static const char *const words[] = {
            "optim", "dtype", "lora", "quantize", "mesh"};
    enum {
        WORDS = sizeof words / sizeof words[0]
    }; /* in PLAN_ALLOW_*'s order */
    *out = 0;
    char word[32];
    while (words_next(&list, ",", word, sizeof word)) {
        int i = 0;
        while (i < WORDS && strcmp(words[i], word) != 0)
            i++;
        if (i == WORDS)
            return ZD_FAIL(
                    ZD_ERR_USAGE, "E0101",
                    "--allow takes optim, dtype, lora, quantize and mesh, "
                    "separated by commas, not `%s`",
                    word);
        *out |= 1u << i;
    }
    return ZD_OK;
}

static enum zd_status read_disk(const char *text, uint64_t *out)
{
    double bytes = 0;
    *out = 0;
    if (!text)
        return ZD_OK;
    if (!words_size(text, &bytes) || bytes < 1 || bytes > 1e18)
        return ZD_FAIL(
                ZD_ERR_CONFIG, "E0206",
                "--disk %.60s: not a size of at least one byte, like 1TB",
                text);
    *out = (uint64_t)bytes;
    return ZD_OK;
}

static enum zd_status read_search(
        const struct cli_args *args, const struct job *job,
        struct plan_calibration *here, struct plan_search *out)
{
    *out = (struct plan_search){
            .job = job_options(job),
            .world = (int)(args->world ? args->world : 1),
            .local_size = (int)args->per_node};
    ZD_TRY(cli_machine(
            args, job_options(job)->device.backend, here, &out->machine));
    ZD_TRY(read_allow(args->allow, &out->allow));
    return read_disk(args->disk, &out->disk);
}

/* What more could be allowed, of what the job does not have already. */
static enum zd_status tell_of_allow(
        const struct plan_search *search, enum zd_status status)
{
    const struct train_job *job = search->job;
    const struct {
        bool is_left;
        const char *word, *what;
    } allows[] = {
            {job->optim.state_type != OPTIM_STATE_8BIT, "optim",
             "8-bit states"},
            {!job->lora.enabled, "lora", "adapters"},
            {job->lora.quantize_base == LORA_BASE_NONE, "quantize",
             "a base in 4 bits"}};
    struct text_buffer words = TEXT_BUFFER(60), tried = TEXT_BUFFER(100);
    struct zd_error error = *zd_error_get();
    size_t used = strlen(error.help);
    for (int i = 0; i < 3; i++)
        if (allows[i].is_left) {
            const char *comma = words.used ? "," : "";
            text_buffer_add(&words, "%s%s", comma, allows[i].word);
            text_buffer_add(
                    &tried, "%s%s%s", comma, *comma ? " " : "", allows[i].what);
        }
    if (status != ZD_ERR_UNFIT || search->allow & PLAN_ALLOW_QUANTIZE ||
        !words.used)
        return status;
    snprintf(
            error.help + used, sizeof error.help - used,
            "%s--fit --allow %s also tries %s", used ? "\n" : "", words.out,
            tried.out);
    zd_error_set(&error);
    return status;
}

/* --- --fit, as it is told ------------------------------------------------- */

enum { WORDS_MAX = 1200 };

static json_t *found_json(const struct plan_found *found)
{
    struct text_buffer arguments = TEXT_BUFFER(WORDS_MAX);
    struct text_buffer why = TEXT_BUFFER(WORDS_MAX);
    json_t *set = json_object();
    settings_print(&found->settings, &arguments);
    settings_explain(&found->settings, &why);
    for (int i = 0; i < found->settings.count; i++)
        json_object_set_new(
                set, found->settings.list[i].key,
                json_string(found->settings.list[i].value));
    return json_pack(
            "{s:o, s:s, s:s, s:{s:I, s:I, s:I, s:I}, s:I, s:o}", "set", set,
            "arguments", arguments.out, "words", why.out, "bytes", "device",
            (json_int_t)found->device, "host", (json_int_t)found->host,
            "pinned", (json_int_t)found->pinned, "disk",
            (json_int_t)found->disk, "snapshot", (json_int_t)found->snapshot,
            "predicted", plan_prediction_json(&found->predicted, NULL));
}

static void print_json(
        const struct plan_search *search, const struct plan_found *found,
        int count)
{
    const struct plan_machine *machine = search->machine;
    json_t *fits = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(fits, found_json(&found[i]));
    json_auto_t *json = json_pack(
            "{s:i, s:s, s:b, s:o}", "world", search->world, "machine",
            machine->name, "calibrated", machine->is_measured, "fits", fits);
    output_json(json);
}

/* Skip one if a listed one, which is faster, takes no more of any memory,
 * within 5 %. The job as it is always has a line. */
static bool is_new(
        const struct plan_found *found, const struct plan_found *const *listed,
        int count)
{
    const double much = 1.05;
    for (int i = 0; i < count; i++)
        if ((double)listed[i]->device <= much * (double)found->device &&
            (double)listed[i]->host <= much * (double)found->host &&
            (double)listed[i]->disk <= much * (double)found->disk &&
            (found->cost > 0 || listed[i]->cost == 0))
            return false;
    return true;
}

static void print_found(
        const struct plan_found *found, int digits, FILE *stream)
{
    struct text_buffer arguments = TEXT_BUFFER(WORDS_MAX);
    struct text_buffer why = TEXT_BUFFER(WORDS_MAX);
    settings_print(&found->settings, &arguments);
    settings_explain(&found->settings, &why);
    fprintf(stream, "%9s s a step, %s binds; GiB: device %.3f, host %.3f",
            UNITS_NUMBER(found->predicted.step_seconds, digits),
            plan_resource_words[found->predicted.binds],
            units_gib(found->device), units_gib(found->host));
    if (found->snapshot)
        fprintf(stream, " (%.3f without checkpoint.snapshot)",
                units_gib(found->host - found->snapshot));
    if (found->disk)
        fprintf(stream, ", disk %.3f", units_gib(found->disk));
    fputc('\n', stream);
    fprintf(stream, "          %s\n", why.used ? why.out : "the job as it is");
    if (why.used)
        fprintf(stream, "          %s\n", arguments.out);
}

static void print_found_all(
        const struct plan_search *search, const struct plan_found *found,
        int count)
{
    enum { LINES = 3 };
    const struct plan_machine *machine = search->machine;
    const struct plan_found *listed[LINES];
    int lines = 0;
    OUTPUT(stream);
    fprintf(stream,
            "%d job%s fit%s, of the same samples a step; by time, "
            "predicted for %s (%s):\n",
            count, count == 1 ? "" : "s", count == 1 ? "s" : "", machine->name,
            machine->what);
    for (int i = 0; i < count && lines < LINES; i++) {
        if (!is_new(&found[i], listed, lines))
            continue;
        listed[lines++] = &found[i];
        print_found(&found[i], plan_machine_digits(machine), stream);
    }
    if (count > lines)
        fprintf(stream,
                "%d more are slower, or hardly differ (--format json)\n",
                count - lines);
    fprintf(stream, "%s; for another GPU: --machine NAME.\n",
            machine->is_guess      ? plan_guess_words
            : machine->is_measured ? "The times are computed from what was "
                                     "measured here"
                                   : "The times are computed from data sheets "
                                     "and were not compared with a run");
}

/* --- --write -------------------------------------------------------------- */

/* What --set gave, but for the limits of this machine. A table is one value:
 * what --set changed in it is not told apart. */
static void add_sets(
        struct draft *draft, const struct cli_args *args, const struct job *job)
{
    json_auto_t *all = job_json(job);
    JSON_MEMBERS(key, row, json_object_get(all, "values")) {
        size_t bytes = strlen(key);
        const char *origin = json_string_at(row, "origin");
        bool is_set = strncmp(origin, "--set ", 6) == 0;
        for (int i = 0; i < args->sets.count; i++)
            is_set |= strncmp(args->sets.items[i], key, bytes) == 0 &&
                      args->sets.items[i][bytes] == '.';
        if (is_set && !strstr(key, "memory_limit"))
            draft_set(
                    draft, key, json_incref(json_object_get(row, "value")),
                    "given by --set");
    }
}

/* The job file as the new one names it: by its name if both are in one folder,
 * else by its whole path. NULL: it no longer exists. */
static char *base_of(const char *job, const char *file)
{
    const char *job_slash = strrchr(job, '/'), *slash = strrchr(file, '/');
    size_t job_bytes = job_slash ? (size_t)(job_slash - job) : 0;
    size_t bytes = slash ? (size_t)(slash - file) : 0;
    if (!!slash == !!job_slash && bytes == job_bytes &&
        strncmp(job, file, bytes) == 0)
        return strdup(job_slash ? job_slash + 1 : job);
    return realpath(job, NULL);
}

static enum zd_status write_job(
        const struct cli_args *args, const struct job *job,
        const struct plan_search *search, const struct plan_found *best)
{
    ZD_FREED char *base = base_of(cli_job_path(args), args->write);
    struct draft draft;
    if (!base)
        return ZD_FAIL(
                ZD_ERR_IO, "E0222", "cannot read %s", cli_job_path(args));
    draft_init(&draft);
    draft_say(
            &draft,
            "The fastest by prediction of what fits %d rank%s: %.3f s a step "
            "on %s (%s).",
            search->world, search->world == 1 ? "" : "s",
            best->predicted.step_seconds, search->machine->name,
            search->machine->is_measured ? "measured"
                                         : "from data sheets, not measured");
    draft_say(
            &draft,
            "A rank takes %" PRIu64 " bytes of the device, %" PRIu64
            " of the host (%" PRIu64
            " without checkpoint.snapshot) and %" PRIu64 " of the disk.",
            best->device, best->host, best->host - best->snapshot, best->disk);
    draft_set(&draft, ".extends", json_string(base), NULL);
    add_sets(&draft, args, job);
    draft_set_found(&draft, best);
    ZD_FREED char *text = draft_write(&draft);
    draft_fini(&draft);
    return fs_write_file(args->write, text, strlen(text));
}

/* --- commands ------------------------------------------------------------- */

enum zd_status command_plan_fit(
        const struct cli_args *args, const struct job *job)
{
    struct plan_calibration here;
    struct plan_search search;
    ZD_FREED struct plan_found *found = NULL;
    int count = 0;
    if (args->write && strcmp(args->write, cli_job_path(args)) == 0)
        return ZD_FAIL(
                ZD_ERR_USAGE, "E0101",
                "--write %.200s is the job itself, which the new file extends",
                args->write);
    if (args->write)
        ZD_TRY(cli_check_new(args->write, "--write"));
    ZD_TRY(read_search(args, job, &here, &search));
    enum zd_status status = plan_search_fits(&search, &found, &count);
    if (status != ZD_OK)
        return tell_of_allow(&search, status);
    if (args->write)
        status = write_job(args, job, &search, &found[0]);
    if (status == ZD_OK && cli_wants_json(args))
        print_json(&search, found, count);
    else if (status == ZD_OK)
        print_found_all(&search, found, count);
    return status;
}

/* What is asked: its word, and the argument of a command that has so much. */
static const struct {
    const char *word, *argument;
} amounts[] = {
        [PLAN_MOST_BATCH] =
                {"batch", "--set train.per_device_train_batch_size="},
        [PLAN_MOST_SEQ] = {"seq", "--set data.cutoff_len="},
        [PLAN_MOST_MODEL] = {"model", NULL},
        [PLAN_MOST_WORLD] = {"world", "--world "}};

static enum plan_most most_of(const char *word)
{
    int what = 0;
    while (strcmp(amounts[what].word, word) != 0)
        what++;
    return (enum plan_most)what;
}

/* With --fit also how. */
enum zd_status command_plan_most(
        const struct cli_args *args, const struct job *job)
{
    const char *word = args->max ? args->max : args->min;
    const enum plan_most what = most_of(word);
    char argument[160] = "";
    struct plan_calibration here;
    struct plan_search search;
    struct plan_most_found most;
    ZD_TRY(read_search(args, job, &here, &search));
    enum zd_status status = plan_search_most(&search, what, args->fit, &most);
    if (status != ZD_OK)
        return tell_of_allow(&search, status);
    if (amounts[what].argument)
        ZD_PRINT(argument, "%s%" PRId64, amounts[what].argument, most.value);
    if (most.global)
        snprintf(
                argument + strlen(argument), sizeof argument - strlen(argument),
                " --set train.global_batch_size=%" PRId64, most.global);
    if (cli_wants_json(args)) {
        json_auto_t *json = json_pack(
                "{s:{s:s, s:I, s:s*, s:s*, s:o*}}", args->max ? "max" : "min",
                "what", word, "value", (json_int_t)most.value, "name",
                most.name, "argument", *argument ? argument : NULL, "fit",
                args->fit ? found_json(&most.best) : NULL);
        output_json(json);
        return ZD_OK;
    }
    OUTPUT(stream);
    fprintf(stream, "%s %" PRId64 "%s", word, most.value,
            what == PLAN_MOST_MODEL ? " parameters" : "");
    if (most.name)
        fprintf(stream, " (%s)", most.name);
    fputc('\n', stream);
    if (*argument)
        fprintf(stream, "          %s\n", argument);
    if (args->fit)
        print_found(&most.best, 3, stream);
    return ZD_OK;
}
