/* command_plan_fit.c - zerod plan --fit, --max and --min. */
#include "base/file/fs.h"
#include "daemon/cli/output.h"
#include "daemon/command/cli.h"
#include "daemon/job/value_words.h"
#include "train/plan/advice.h"
#include "train/plan/calibration.h"
#include "train/plan/search.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- what is asked -------------------------------------------------------- */

static enum zd_status read_allow(const char *list, unsigned *out)
{
    static const struct {
        const char *word;
        unsigned bit;
    } words[] = {
            {"optim", PLAN_ALLOW_OPTIM},
            {"dtype", PLAN_ALLOW_DTYPE},
            {"lora", PLAN_ALLOW_LORA},
            {"quantize", PLAN_ALLOW_QUANTIZE}};
    enum { WORDS = sizeof words / sizeof words[0] };
    *out = 0;
    for (const char *at = list; at && *at;) {
        size_t bytes = strcspn(at, ",");
        int i = 0;
        while (i < WORDS && (strlen(words[i].word) != bytes ||
                             strncmp(words[i].word, at, bytes) != 0))
            i++;
        if (i == WORDS)
            return ZD_FAIL(
                    ZD_ERR_USAGE, "E0101",
                    "--allow takes optim, dtype, lora and quantize, with "
                    "commas "
                    "between them, and not `%.*s`",
                    (int)bytes, at);
        *out |= words[i].bit;
        at += bytes + (at[bytes] == ',');
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
                "--disk %.60s: it is a size of at least a byte, such as 1TB",
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
    ZD_TRY(cli_machine(args, job, here, &out->machine));
    ZD_TRY(read_allow(args->allow, &out->allow));
    return read_disk(args->disk, &out->disk);
}

/* --- --fit, as it is told ------------------------------------------------- */

static json_t *found_json(
        const struct plan_found *found, const struct plan_setting *settings,
        int count)
{
    char words[800] = "", why[1200] = "";
    struct text_buffer text = {.out = words, .bytes = sizeof words};
    struct text_buffer reasons = {.out = why, .bytes = sizeof why};
    json_t *set = json_object();
    for (int i = 0; i < count; i++)
        json_object_set_new(
                set, settings[i].key, json_string(settings[i].value));
    settings_print(settings, count, &text);
    settings_explain(settings, count, &reasons);
    return json_pack(
            "{s:o, s:s, s:s, s:{s:I, s:I, s:I, s:I}, s:o}", "set", set,
            "arguments", words, "words", why, "bytes", "device",
            (json_int_t)found->device, "host", (json_int_t)found->host,
            "pinned", (json_int_t)found->pinned, "disk",
            (json_int_t)found->disk, "predicted",
            plan_prediction_json(&found->predicted));
}

static void print_json(
        const struct plan_search *search, const struct plan_found *found,
        int count)
{
    struct plan_setting settings[PLAN_SETTINGS_MAX];
    json_t *fits = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(
                fits,
                found_json(
                        &found[i], settings,
                        plan_found_settings(search, &found[i], settings)));
    json_t *json = json_pack(
            "{s:i, s:s, s:b, s:o}", "world", search->world, "machine",
            search->machine->name, "calibrated", search->machine->is_measured,
            "fits", fits);
    output_json(json);
    json_decref(json);
}

static double gib(uint64_t bytes)
{
    return (double)bytes / (1 << 30);
}

static void add_bytes(
        struct text_buffer *text, uint64_t bytes, uint64_t first,
        const char *memory)
{
    bool is_more = bytes > first;
    double more = gib(is_more ? bytes - first : first - bytes);
    if (more >= 0.01 * gib(first) && more > 0)
        text_buffer_add(
                text, "%s%.3g GiB %s %s memory", text->used ? ", " : "", more,
                is_more ? "more" : "less", memory);
}

/* What it gives up for what, against the first. */
static void print_against(
        const struct plan_found *found, const struct plan_found *first,
        FILE *stream)
{
    char words[300] = "";
    struct text_buffer text = {.out = words, .bytes = sizeof words};
    double slower = found->predicted.step_seconds /
                            first->predicted.step_seconds -
                    1;
    if (slower >= 0.005)
        text_buffer_add(&text, "%.0f %% slower", 100 * slower);
    add_bytes(&text, found->device, first->device, "device");
    add_bytes(&text, found->host, first->host, "host");
    add_bytes(&text, found->disk, first->disk, "disk");
    if (text.used)
        fprintf(stream, "          against the first: %s\n", words);
}

/* One that is listed, and is faster, takes no more of any memory, but for a
 * twentieth. The job as it is has a line in any case. */
static bool hardly_differs(
        const struct plan_found *found, const struct plan_found *listed)
{
    const double much = 1.05;
    return (double)listed->device <= much * (double)found->device &&
           (double)listed->host <= much * (double)found->host &&
           (double)listed->disk <= much * (double)found->disk &&
           (found->cost > 0 || listed->cost == 0);
}

static bool is_new(
        const struct plan_found *found, const struct plan_found *const *listed,
        int count)
{
    for (int i = 0; i < count; i++)
        if (hardly_differs(found, listed[i]))
            return false;
    return true;
}

static void print_found(
        const struct plan_found *found, const struct plan_found *first,
        const struct plan_setting *settings, int count, int digits,
        FILE *stream)
{
    char words[800] = "", why[1200] = "";
    struct text_buffer text = {.out = words, .bytes = sizeof words};
    struct text_buffer reasons = {.out = why, .bytes = sizeof why};
    settings_print(settings, count, &text);
    settings_explain(settings, count, &reasons);
    fprintf(stream, "%9.*g s a step, %s binds; GiB: device %.3f, host %.3f",
            digits, found->predicted.step_seconds,
            plan_resource_name(found->predicted.binds), gib(found->device),
            gib(found->host));
    if (found->disk)
        fprintf(stream, ", disk %.3f", gib(found->disk));
    fputc('\n', stream);
    if (first)
        print_against(found, first, stream);
    fprintf(stream, "          %s\n", count ? why : "the job as it is");
    if (count)
        fprintf(stream, "          %s\n", words);
}

static void print_found_all(
        const struct plan_search *search, const struct plan_found *found,
        int count)
{
    enum { LINES = 3 };
    struct plan_setting settings[PLAN_SETTINGS_MAX];
    const struct plan_found *listed[LINES];
    struct output output;
    int lines = 0;
    FILE *stream = output_begin(&output);
    fprintf(stream,
            "%d job%s fit%s, of the same samples a step; by time, "
            "predicted for %s (%s):\n",
            count, count == 1 ? "" : "s", count == 1 ? "s" : "",
            search->machine->name, search->machine->what);
    for (int i = 0; i < count && lines < LINES; i++) {
        if (!is_new(&found[i], listed, lines))
            continue;
        listed[lines++] = &found[i];
        print_found(
                &found[i], lines > 1 ? listed[0] : NULL, settings,
                plan_found_settings(search, &found[i], settings),
                plan_machine_digits(search->machine), stream);
    }
    if (count > lines)
        fprintf(stream,
                "%d more are slower, or hardly differ (--format json)\n",
                count - lines);
    if (search->machine->is_guess)
        fprintf(stream, "%s.\n", plan_guess_words);
    else
        fputs(search->machine->is_measured
                  ? "The times are computed from what was measured here.\n"
                  : "The times are computed from data sheets and were not "
                    "compared with a run.\n",
          stream);
    output_end(&output);
}

/* --- --write -------------------------------------------------------------- */

/* A value as a file has it. What --set gives is TOML if it parses, else a
 * string. */
static bool is_bare(const char *value)
{
    char *end;
    if (strchr("[{\"'", value[0]) && value[0])
        return true;
    strtod(value, &end);
    return (*value && !*end) || !strcmp(value, "true") ||
           !strcmp(value, "false");
}

struct line {
    char section[64], key[96], value[512];
    const char *why;
    bool bare;
};

struct job_text {
    struct line lines[CLI_LIST_MAX + PLAN_SETTINGS_MAX];
    int count;
};

static size_t shorter(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The later of two that set the same key holds. */
static void add_line(
        struct job_text *text, const char *name, size_t name_bytes,
        const char *value, bool bare, const char *why)
{
    struct line line = {.why = why, .bare = bare};
    char key[160];
    name_bytes = shorter(name_bytes, sizeof key - 1);
    snprintf(key, sizeof key, "%.*s", (int)name_bytes, name);
    char *dot = strrchr(key, '.');
    if (!dot)
        return;
    *dot = '\0';
    snprintf(line.section, sizeof line.section, "%.63s", key);
    snprintf(line.key, sizeof line.key, "%.95s", dot + 1);
    snprintf(line.value, sizeof line.value, "%.511s", value);
    int i = 0;
    while (i < text->count &&
           (strcmp(text->lines[i].section, line.section) != 0 ||
            strcmp(text->lines[i].key, line.key) != 0))
        i++;
    text->lines[i] = line;
    text->count += i == text->count;
}

static int by_section(const void *a, const void *b)
{
    const struct line *x = a, *y = b;
    int order = strcmp(x->section, y->section);
    return order ? order : strcmp(x->key, y->key);
}

static void write_lines(struct job_text *text, FILE *stream)
{
    const char *section = "";
    qsort(text->lines, (size_t)text->count, sizeof *text->lines, by_section);
    for (int i = 0; i < text->count; i++) {
        const struct line *line = &text->lines[i];
        const char *quote = line->bare ? "" : "\"";
        if (strcmp(section, line->section) != 0)
            fprintf(stream, "\n[%s]\n", line->section);
        section = line->section;
        fprintf(stream, "%s = %s%s%s  # %s\n", line->key, quote, line->value,
                quote, line->why);
    }
}

static const char *trimmed_end(const char *begin, const char *end)
{
    while (end > begin && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    return end;
}

static bool is_key(const char *typed, size_t bytes, const char *key)
{
    return bytes == strlen(key) && strncmp(typed, key, bytes) == 0;
}

static void add_sets(struct job_text *text, const struct cli_args *args)
{
    for (int i = 0; i < args->sets.count; i++) {
        const char *set = args->sets.items[i], *equals = strchr(set, '=');
        const char *value = equals + 1 + strspn(equals + 1, " \t");
        size_t bytes = (size_t)(trimmed_end(set, equals) - set);
        if (is_key(set, bytes, "device.memory_limit") ||
            is_key(set, bytes, "device.host_memory_limit"))
            continue;
        add_line(text, set, bytes, value, is_bare(value), "given by --set");
    }
}

/* The job file as the new one names it: by its name where both lie in one
 * folder, else by its whole path. NULL: it is not there any more. */
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
        const struct cli_args *args, const struct plan_search *search,
        const struct plan_found *best)
{
    const char *path = args->job ? args->job : args->line.operands[0];
    struct plan_setting settings[PLAN_SETTINGS_MAX];
    int count = plan_found_settings(search, best, settings);
    struct job_text *text = calloc(1, sizeof *text);
    char *base = base_of(path, args->write), *out = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&out, &bytes);
    enum zd_status status = ZD_ERR_MEMORY;
    if (text && base && stream) {
        fprintf(stream,
                "# The fastest by prediction of what fits %d rank%s: %.3f s a "
                "step on %s (%s).\n# A rank takes %" PRIu64
                " bytes of the device, %" PRIu64 " of the host and\n# %" PRIu64
                " of the disk.\n",
                search->world, search->world == 1 ? "" : "s",
                best->predicted.step_seconds, search->machine->name,
                search->machine->is_measured ? "measured"
                                             : "from data sheets, not measured",
                best->device, best->host, best->disk);
        fprintf(stream, "extends = \"%s\"\n", base);
        add_sets(text, args);
        for (int i = 0; i < count; i++)
            add_line(
                    text, settings[i].key, strlen(settings[i].key),
                    settings[i].value, !settings[i].is_text, settings[i].why);
        write_lines(text, stream);
    }
    bool is_whole = stream && fclose(stream) == 0 && text && base;
    if (is_whole)
        status = fs_write_file(args->write, out, bytes);
    else
        ZD_FAIL(status, "E0602", "out of memory writing %.200s", args->write);
    free(out);
    free(base);
    free(text);
    return status;
}

/* --- commands ------------------------------------------------------------- */

static enum zd_status check_write(const struct cli_args *args)
{
    const char *job = args->job ? args->job : args->line.operands[0];
    if (!args->write || strcmp(args->write, job) != 0)
        return ZD_OK;
    return ZD_FAIL(
            ZD_ERR_USAGE, "E0101",
            "--write %.200s is the job itself, which the new file extends",
            args->write);
}

enum zd_status command_plan_fit(
        const struct cli_args *args, const struct job *job)
{
    struct plan_calibration here;
    struct plan_search search;
    struct plan_found *found = NULL;
    int count = 0;
    ZD_TRY(check_write(args));
    ZD_TRY(read_search(args, job, &here, &search));
    ZD_TRY(plan_search_fits(&search, &found, &count));
    enum zd_status status = ZD_OK;
    if (args->write)
        status = write_job(args, &search, &found[0]);
    if (status == ZD_OK && cli_wants_json(args))
        print_json(&search, found, count);
    else if (status == ZD_OK)
        print_found_all(&search, found, count);
    free(found);
    return status;
}

/* With --fit also how. */
static void tell_most(
        const struct cli_args *args, const char *kind, const char *what,
        const struct plan_most_found *most)
{
    struct output output;
    if (cli_wants_json(args)) {
        json_t *json = json_pack(
                "{s:{s:s, s:I, s:s*, s:o*}}", kind, "what", what, "value",
                (json_int_t)most->value, "name", most->name, "fit",
                args->fit ? found_json(
                                    &most->best, most->settings,
                                    most->setting_count)
                          : NULL);
        output_json(json);
        json_decref(json);
        return;
    }
    FILE *stream = output_begin(&output);
    fprintf(stream, "%s %" PRId64, what, most->value);
    if (most->name)
        fprintf(stream, " (%s)", most->name);
    fputc('\n', stream);
    if (args->fit)
        print_found(
                &most->best, NULL, most->settings, most->setting_count, 3,
                stream);
    output_end(&output);
}

enum zd_status command_plan_max(
        const struct cli_args *args, const struct job *job)
{
    struct plan_calibration here;
    struct plan_search search;
    struct plan_most_found most;
    enum plan_most what = args->max[0] == 'b'   ? PLAN_MOST_BATCH
                          : args->max[0] == 's' ? PLAN_MOST_SEQ
                                                : PLAN_MOST_MODEL;
    ZD_TRY(read_search(args, job, &here, &search));
    ZD_TRY(plan_search_most(&search, what, args->fit, &most));
    tell_most(args, "max", args->max, &most);
    return ZD_OK;
}

enum zd_status command_plan_min(
        const struct cli_args *args, const struct job *job)
{
    struct plan_calibration here;
    struct plan_search search;
    struct plan_most_found most;
    ZD_TRY(read_search(args, job, &here, &search));
    ZD_TRY(plan_search_world(&search, args->fit, &most));
    tell_most(args, "min", args->min, &most);
    return ZD_OK;
}
