/* begin.c - looks at the model, the data and the machine. */
#include "daemon/init/begin.h"

#include "base/must.h"
#include "base/units.h"
#include "data/stream.h"
#include "model/files/config.h"
#include "model/files/hub.h"
#include "model/params.h"
#include "train/plan/search.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_BYTES = 1 << 22, DOCUMENTS = 4096, BYTES_A_TOKEN = 4 };

struct facts {
    struct model_config config;
    int64_t parameters;
    enum data_format format;
    uint64_t bytes;     /* of the text of all files, about */
    int64_t document;   /* 95th percentile of their bytes */
    bool has_documents; /* a line each */
    bool has_eval;      /* a folder with a split to evaluate on */
    int cutoff, samples_a_step;
    int64_t samples; /* of an epoch, about */
};

static void facts_fini(struct facts *facts)
{
    model_config_fini(&facts->config);
}

/* --- the data ------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Of the first megabytes: how long documents are, and how many bytes of text a
 * byte of the file gives. */
static enum zd_status measure(
        const struct data_file *file, struct facts *facts, double *ratio_out)
{
    int64_t lengths[DOCUMENTS];
    struct data_stream *stream;
    int count = 0;
    size_t bytes;
    ZD_TRY(data_stream_open(file, RECORD_MAX_BYTES, &stream));
    ZD_FREED char *text = zd_must(malloc(LOOK_BYTES));
    enum zd_status status = data_stream_read(stream, text, LOOK_BYTES, &bytes);
    double consumed = (double)data_stream_consumed(stream);
    for (size_t at = 0; status == ZD_OK && at < bytes && count < DOCUMENTS;) {
        char *end = memchr(text + at, '\n', bytes - at);
        size_t next = end ? (size_t)(end - text) : bytes;
        lengths[count++] = (int64_t)(next - at);
        at = next + 1;
    }
    data_stream_close(stream);
    qsort(lengths, (size_t)count, sizeof lengths[0], by_value);
    if (file->has_lines)
        facts->document = count ? lengths[(count - 1) * 19 / 20] : 0;
    *ratio_out = file->container && consumed > 0 ? (double)bytes / consumed : 1;
    return status;
}

/* What a job file says with a key, the command line says with an option. */
static enum zd_status fail_data(const char *path, enum zd_status status)
{
    struct zd_error error = *zd_error_get();
    char key[6] = "", help[HUB_HELP_BYTES];
    if (strcmp(error.code, "E0430") == 0 && hub_help_data(path, help))
        ZD_PRINT(error.help, "%s", help);
    else if (sscanf(error.help, "choose one: %5[a-z]", key) != 1)
        return status;
    else
        ZD_PRINT(error.help, "choose one: --data-%s NAME", key);
    zd_error_set(&error);
    return status;
}

static enum zd_status look_at_data(
        const struct begin_request *request, struct facts *facts)
{
    struct data_entry entry = data_entry_default();
    struct file_list list;
    double ratio = 1;
    entry.path = request->data;
    entry.name = request->data_name ? request->data_name : entry.name;
    entry.split = request->data_split ? request->data_split : entry.split;
    enum zd_status status = sources_find(&entry, &list);
    if (status != ZD_OK)
        return fail_data(request->data, status);
    for (int i = 0; i < list.count; i++)
        facts->bytes += list.files[i].bytes;
    facts->format = list.files[0].format;
    facts->has_documents = list.files[0].has_lines && !list.is_tokens;
    status = list.is_tokens ? ZD_OK : measure(&list.files[0], facts, &ratio);
    facts->bytes = (uint64_t)(ratio * (double)facts->bytes);
    char trained[sizeof list.which];
    memcpy(trained, list.which, sizeof trained);
    sources_free(&list);
    entry.is_eval = true;
    entry.split = data_entry_default().split;
    if (status != ZD_OK || !trained[0])
        return status;
    if (sources_find(&entry, &list) == ZD_OK) {
        facts->has_eval = strcmp(list.which, trained) != 0;
        sources_free(&list);
    }
    zd_error_clear();
    return ZD_OK;
}

/* Long enough for nearly every document, if each is a sample, with what a chat
 * template adds to it; short enough for plain text to fill several steps. */
static void choose_shape(const struct begin_request *request, struct facts *out)
{
    enum { LEAST = 32, MOST = 4096, PLAIN = 2048, STEPS = 8, BATCH = 32 };
    enum { TEMPLATE = 64 };
    bool has_prompts = out->has_documents && out->format != DATA_TEXT;
    int64_t tokens = (int64_t)(out->bytes / BYTES_A_TOKEN);
    int64_t wanted = out->has_documents ? out->document / BYTES_A_TOKEN : PLAIN;
    int cutoff = LEAST;
    if (has_prompts)
        wanted += TEMPLATE;
    while (cutoff < wanted && cutoff < MOST)
        cutoff *= 2;
    while (!has_prompts && cutoff > LEAST &&
           tokens / cutoff < STEPS * request->world)
        cutoff /= 2;
    if (cutoff > out->config.max_positions)
        cutoff = out->config.max_positions;
    out->cutoff = cutoff;
    out->samples = tokens / cutoff;
    int batch = request->world;
    while (2 * batch <= BATCH && 2 * batch * STEPS <= out->samples)
        batch *= 2;
    out->samples_a_step = batch;
}

static enum zd_status look(
        const struct begin_request *request, struct facts *facts)
{
    ZD_SCOPED(param_table_fini) struct param_table table = {0};
    ZD_TRY(model_config_read(request->model, true, &facts->config));
    ZD_TRY(param_table_build(&facts->config, NULL, 0, &table));
    facts->parameters = (int64_t)table.total;
    ZD_TRY(look_at_data(request, facts));
    choose_shape(request, facts);
    return ZD_OK;
}

/* --- the job -------------------------------------------------------------- */

static void write_data(
        const struct begin_request *request, const struct facts *facts,
        struct draft *draft)
{
    enum { FEW = 200 };
    char why[160];
    bool has_prompts = facts->format != DATA_TEXT;
    if (facts->has_documents)
        ZD_PRINT(
                why,
                "95th percentile of document length: about %" PRId64 " bytes%s",
                facts->document,
                has_prompts ? "; documents are packed whole" : "");
    else
        ZD_PRINT(why, "the text is cut into such samples");
    draft_set(draft, "data.cutoff_len", json_integer(facts->cutoff), why);
    draft_set_source(
            draft_source(draft), request->data, NULL, request->data_name,
            request->data_split);
    if (facts->has_eval) {
        json_t *eval = json_object();
        draft_set_source(
                eval, request->data, "its validation or test split",
                request->data_name, NULL);
        json_array_append_new(draft->eval, eval);
    } else if (facts->samples >= FEW)
        draft_set(
                draft, "data.val_split", json_real(0.02),
                "kept for evaluation");
    else
        draft_set(
                draft, "eval.eval_strategy", json_string("no"),
                "there is little data");
}

static void write_rest(
        const struct begin_request *request, const struct facts *facts,
        enum begin_kind kind, struct draft *draft)
{
    bool adapts = kind != BEGIN_FULL, is_stored = facts->config.is_quantized;
    char as_it_is[80] = "adapters are trained, the model stays as it is";
    const struct {
        bool is_set;
        const char *key, *value, *why; /* value: JSON */
    } rows[] = {
            {adapts, "lora.enabled", "true", as_it_is},
            {adapts, "lora.r", "16", "rank of the adapters"},
            {adapts, "lora.lora_alpha", "32", NULL},
            {adapts, "lora.target_modules", "\"all-linear\"",
             "the linear modules of all layers"},
            {kind == BEGIN_QLORA && !is_stored, "lora.quantize_base", "\"nf4\"",
             "the model is held in 4 bits"},
            {true, "train.num_train_epochs", "3.0", "passes over the data"},
            {true, "train.dtype", "\"bf16\"", NULL},
            {true, "optim.learning_rate", adapts ? "2e-4" : "1e-5",
             adapts ? "about ten times what the whole model would take" : NULL},
            {true, "optim.warmup_steps", "0.03", "of all steps"}};
    if (is_stored)
        ZD_PRINT(
                as_it_is, "the model stays as it is stored: %s",
                model_config_stored_name(&facts->config));
    draft_set(draft, "model.path", json_string(request->model), NULL);
    write_data(request, facts, draft);
    draft_set(
            draft, "train.global_batch_size",
            json_integer(facts->samples_a_step), "samples of a step");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].is_set)
            draft_set(
                    draft, rows[i].key,
                    json_loads(rows[i].value, JSON_DECODE_ANY, NULL),
                    rows[i].why);
}

/* --- what fits ------------------------------------------------------------ */

static json_t *setting_value(const struct plan_setting *setting)
{
    json_t *value = setting->is_text
                            ? NULL
                            : json_loads(setting->value, JSON_DECODE_ANY, NULL);
    return value ? value : json_string(setting->value);
}

void draft_set_found(struct draft *draft, const struct plan_found *found)
{
    ZD_EACH(setting, found->settings.list, found->settings.count)
        draft_replace(
                draft, setting->key, setting_value(setting), setting->why);
}

/* Of those within 5 % of the fastest, the one with the fewest settings. */
static const struct plan_found *simplest(
        const struct plan_found *found, int count)
{
    const struct plan_found *best = found;
    for (int i = 1; i < count; i++)
        if (found[i].cost < best->cost &&
            found[i].predicted.step_seconds <=
                    1.05 * found[0].predicted.step_seconds)
            best = &found[i];
    return best;
}

static void write_found(
        const struct begin_request *request, const struct plan_search *search,
        const struct plan_found *found, const struct facts *facts,
        struct draft *draft)
{
    draft_set_found(draft, found);
    draft_say(
            draft, "%s, %s parameters, on %s, for %d rank%s: by zerod init.",
            request->model, UNITS_NUMBER((double)facts->parameters, 4),
            request->data, request->world, request->world == 1 ? "" : "s");
    draft_say(
            draft,
            "A rank takes %s of device memory and %s of host memory (%s "
            "without checkpoint.snapshot); %s s a step are",
            UNITS_BYTES(found->device), UNITS_BYTES(found->host),
            UNITS_BYTES(found->host - found->snapshot),
            UNITS_NUMBER(
                    found->predicted.step_seconds,
                    plan_machine_digits(search->machine)));
    draft_say(
            draft, "predicted for %s%s%s. docs/job.md has every key.",
            search->machine->name, search->machine->is_guess ? ": " : "",
            search->machine->is_guess ? plan_guess_words : "");
}

/* Try a job of one kind; *fits_out false: the error record says why. */
static enum zd_status try_kind(
        const struct begin_request *request, const struct facts *facts,
        enum begin_kind kind, struct draft *draft, bool *fits_out)
{
    ZD_FREED struct plan_found *found = NULL;
    struct job *job;
    int count;
    *fits_out = false;
    draft_fini(draft);
    draft_init(draft);
    write_rest(request, facts, kind, draft);
    ZD_FREED char *text = draft_write(draft);
    const struct job_request made = {
            .path = "the job",
            .text = text,
            .world = request->world,
            .paths = JOB_PATHS_EXIST,
            .overrides = request->overrides,
            .override_count = request->override_count};
    enum zd_status status = job_load(&made, &job);
    if (status != ZD_OK) {
        fputs("the job of zerod init is invalid:\n", stderr);
        problems_print(job_problems(job), stderr);
        job_free(job);
        return status;
    }
    struct plan_search search = {
            .job = job_options(job),
            .world = request->world,
            .local_size = request->world,
            .machine = request->machine};
    status = plan_search_fits(&search, &found, &count);
    if (status == ZD_ERR_UNFIT) {
        search.allow = PLAN_ALLOW_OPTIM;
        struct zd_error error = *zd_error_get();
        zd_error_clear();
        status = plan_search_fits(&search, &found, &count);
        if (status == ZD_ERR_UNFIT && kind != BEGIN_FULL)
            zd_error_set(&error);
    }
    if (status == ZD_OK) {
        write_found(request, &search, simplest(found, count), facts, draft);
        *fits_out = true;
    }
    job_free(job);
    return status == ZD_ERR_UNFIT ? ZD_OK : status;
}

/* A model that is stored quantized trains as it is stored. */
static bool is_tried(
        const struct begin_request *request, const struct facts *facts,
        enum begin_kind kind)
{
    if (facts->config.is_quantized)
        return kind == BEGIN_QLORA;
    return request->kind == kind || request->kind == BEGIN_ANY;
}

static enum zd_status check_stored(
        const struct begin_request *request, const struct facts *facts)
{
    if (!facts->config.is_quantized || request->kind != BEGIN_FULL)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_DATA, "E0304",
            "%.300s is stored quantized (%s): only adapters train on it",
            request->model, model_config_stored_name(&facts->config));
    return zd_fail_help("leave --full out");
}

enum zd_status begin_job(
        const struct begin_request *request, struct draft *draft)
{
    static const enum begin_kind order[] = {
            BEGIN_FULL, BEGIN_LORA, BEGIN_QLORA};
    ZD_SCOPED(facts_fini) struct facts facts = {.cutoff = 0};
    bool fits = false;
    ZD_TRY(look(request, &facts));
    ZD_TRY(check_stored(request, &facts));
    for (int i = 0; i < 3 && !fits; i++) {
        if (!is_tried(request, &facts, order[i]))
            continue;
        zd_error_clear();
        ZD_TRY(try_kind(request, &facts, order[i], draft, &fits));
    }
    return fits ? ZD_OK : ZD_ERR_UNFIT;
}
