/* tables.c - zerod-tables: the tables of the programs as JSON, for pages.py.
 * Part of the build; not installed. */
#include "daemon/cli/output.h"

#include "base/must.h"
#include "base/units.h"
#include "base/words.h"
#include "daemon/cli/program.h"
#include "daemon/job/job_internal.h"
#include "daemon/state/run_state.h"
#include "model/families/families.h"
#include "train/plan/fit.h"
#include "train/plan/models.h"
#include "train/plan/search.h"
#include "zd_config.h"

#include <string.h>

/* --- what fits --- */

enum { SAMPLES = 8, TOKENS = 2048 };

/* Devices as they are sold. */
static const char *const sizes[] = {"6 GiB",  "8 GiB",  "12 GiB", "16 GiB",
                                    "24 GiB", "32 GiB", "40 GiB", "48 GiB",
                                    "80 GiB", "141 GB"};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

enum kind { WHOLE, WHOLE_8BIT, LORA, QLORA, KINDS };

/* On one GPU, with as much memory of the host as it likes. */
static struct train_job job_of(json_t *config, int positions, enum kind kind)
{
    struct train_job job = train_job_default();
    job.model.config = config;
    job.model.attn = ATTENTION_OWN; /* whatever this was built with */
    job.data.cutoff_len = positions < TOKENS ? positions : TOKENS;
    job.device.backend = DEVICE_CUDA;
    job.device.cpu_threads = 1;
    job.device.host_memory_limit = (uint64_t)1 << 50;
    job.train.per_device_train_batch_size = SAMPLES;
    job.train.gradient_accumulation_steps = 1;
    job.offload.nvme_path = "";
    job.lora.enabled = kind == LORA || kind == QLORA;
    if (kind == WHOLE_8BIT)
        job.optim.state_type = OPTIM_STATE_8BIT;
    if (kind == QLORA)
        job.lora.quantize_base = LORA_BASE_NF4;
    return job;
}

static json_t *found_text(const struct plan_found *found)
{
    const unsigned char *option = found->candidate.option;
    char mode[PLAN_NAME_MAX];
    plan_checkpointing_name(found->choice.checkpointing, mode);
    return json_sprintf(
            "%.1f + %.1f %s %d%s%s%s%s%s", units_gib(found->device),
            units_gib(found->host - found->snapshot), mode, found->choice.B,
            option[CHOOSE_PLACE] == PLACE_CPU     ? " o"
            : option[CHOOSE_PLACE] == PLACE_PAGED ? " paged"
                                                  : "",
            option[CHOOSE_PARAMS] == PARAMS_CPU ? " p" : "",
            option[CHOOSE_ACTIVATIONS] == ACTIVATIONS_CPU ? " a" : "",
            found->choice.mlp_pieces > 1 ? " t" : "",
            found->choice.by_layer ? " b" : "");
}

static json_t *cell(const struct plan_search *search)
{
    ZD_FREED struct plan_found *found = NULL;
    int count = 0;
    json_t *text = plan_search_fits(search, &found, &count) == ZD_OK
                           ? found_text(&found[0])
                           : json_string("-");
    zd_error_clear();
    return text;
}

/* What it would need at least of the device. */
static json_t *least(const struct plan_search *search)
{
    struct plan_smallest smallest;
    json_t *text = plan_search_smallest(search, NULL, &smallest) == ZD_OK
                           ? found_text(&smallest.any)
                           : json_string("");
    zd_error_clear();
    return text;
}

static json_t *row(const struct plan_model *model, json_t *config, int size)
{
    bool is_least = size == SIZES;
    json_t *cells = json_pack("[s]", is_least ? "the least" : sizes[size]);
    double bytes = 1;
    if (!is_least)
        words_size(sizes[size], &bytes);
    for (enum kind kind = WHOLE; kind < KINDS; kind++) {
        struct train_job job = job_of(config, model->positions, kind);
        const struct plan_search search = {
                .job = &job,
                .world = 1,
                .local_size = 1,
                .machine = plan_machine_find("h100")};
        job.device.memory_limit = (uint64_t)bytes;
        json_array_append_new(cells, is_least ? least(&search) : cell(&search));
    }
    return cells;
}

/* What `zerod plan --fit` finds for the models that it knows, for
 * docs/measured/fit.md: [{"model", "rows": [[device, whole, whole in 8 bits,
 * LoRA, QLoRA]]}]; the last row is the least that the device must have. */
static json_t *fits_json(void)
{
    const struct plan_model *model;
    json_t *fits = json_array();
    for (int i = 0; (model = plan_model_at(i)); i++) {
        json_t *config = plan_model_config(model), *rows = json_array();
        for (int size = 0; size <= SIZES; size++)
            json_array_append_new(rows, row(model, config, size));
        json_array_append_new(
                fits,
                json_pack("{s:s, s:o}", "model", model->name, "rows", rows));
        json_decref(config);
    }
    return fits;
}

extern const struct cli_program zerod_program, zerodctl_program;

/* --- programs ------------------------------------------------------------- */

static json_t *options_json(const struct cli_program *program)
{
    json_t *all = json_array();
    ZD_EACH(option, program->options, program->option_count) {
        const char letter[] = {option->letter, '\0'};
        json_array_append_new(
                all, json_pack(
                             "{s:s, s:s, s:s?, s:s, s:b}", "name", option->name,
                             "letter", letter, "value", option->value, "help",
                             option->help, "common",
                             cli_takes(program, NULL, option)));
    }
    return all;
}

static json_t *commands_json(const struct cli_program *program)
{
    json_t *all = json_array();
    ZD_EACH(command, program->commands, program->command_count) {
        json_t *options = json_array();
        for (int o = 0; o < program->option_count; o++)
            if (cli_takes(program, command, &program->options[o]))
                json_array_append_new(
                        options, json_string(program->options[o].name));
        json_array_append_new(
                all, json_pack(
                             "{s:s, s:s, s:s, s:s, s:s?, s:o}", "name",
                             command->name, "operands", command->operands,
                             "help", command->help, "group", command->group,
                             "details", command->details, "options", options));
    }
    return all;
}

static json_t *program_json(const struct cli_program *program)
{
    json_t *exits = json_object();
    char code[12];
    for (int i = 0; i < program->exit_count; i++) {
        ZD_PRINT(code, "%d", program->exits[i].code);
        json_object_set_new(
                exits, code, json_string(program->exits[i].meaning));
    }
    return json_pack(
            "{s:s, s:s, s:b, s:o, s:o, s:o}", "summary", program->summary,
            "examples", program->examples, "unnamed", program->unnamed != NULL,
            "exits", exits, "options", options_json(program), "commands",
            commands_json(program));
}

/* --- keys of job.toml ----------------------------------------------------- */

/* Other words of a key of choices. */
static json_t *words_json(const struct schema_key *key)
{
    json_t *words = json_array();
    for (const struct schema_choice *c = key->choices; c && c->name; c++)
        if (c->note && !schema_is_elsewhere(c))
            json_array_append_new(words, json_string(c->name));
    return words;
}

static const char *type_name(enum schema_type type)
{
    static const char *const names[] = {
            [SCHEMA_SIZE] = "size",           [SCHEMA_LIMIT] = "limit",
            [SCHEMA_DURATION] = "duration",   [SCHEMA_ENTRIES] = "entries",
            [SCHEMA_OPTIMIZER] = "optimizer", [SCHEMA_TABLE] = "table",
            [SCHEMA_EXTENDS] = NULL};
    return names[type];
}

static json_t *keys_json(void)
{
    json_t *keys = json_array();
    char accepts[1024];
    ZD_EACH(key, schema_table, schema_count) {
        schema_accepts(key, accepts, sizeof accepts);
        json_array_append_new(
                keys,
                json_pack(
                        "{s:s, s:s, s:s?, s:s, s:b, s:b, s:s, s:s?, s:s?, "
                        "s:s?, "
                        "s:o, s:o?}",
                        "section", key->section, "name", key->name, "type",
                        type_name(key->type), "accepts", accepts, "auto",
                        !!(key->flags & SCHEMA_AUTO), "nullable",
                        !!(key->flags & SCHEMA_NULLABLE), "help", key->help,
                        "aliases", key->aliases, "fallback", key->fallback,
                        "note", key->note, "words", words_json(key), "default",
                        value_default(key)));
    }
    return keys;
}

static json_t *types_json(void)
{
    json_t *types = json_array();
    for (int i = 0; model_families[i]; i++)
        json_array_append_new(types, json_string(model_families[i]->name));
    return types;
}

/* --- metrics -------------------------------------------------------------- */

static json_t *index_json(const struct metric_index *index)
{
    if (!index)
        return json_null();
    json_t *names = json_array();
    for (int i = 0; i < index->count; i++)
        json_array_append_new(names, json_string(index->name(i)));
    return json_pack("{s:s, s:o}", "label", index->label, "names", names);
}

static json_t *metrics_json(const struct metric_table *table)
{
    static const char *const kinds[] = {
            "gauge", "counter", "info", "histogram"};
    json_t *rows = json_array();
    ZD_EACH(row, table->rows, table->count)
        json_array_append_new(
                rows,
                json_pack(
                        "{s:s?, s:s?, s:s?, s:s?, s:s, s:s?, s:s?, s:o, s:o}",
                        "name", row->flags & METRIC_SUM ? NULL : row->name,
                        "series", row->series, "help", row->help, "family",
                        row->family, "kind", kinds[row->kind], "label",
                        row->label, "label_value", row->label_value, "index",
                        index_json(row->index), "inner",
                        index_json(row->inner)));
    return rows;
}

int main(int argc, char **argv)
{
    json_auto_t *tables =
            argc == 2 && strcmp(argv[1], "fits") == 0
                    ? fits_json()
                    : json_pack(
                              "{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                              "version", ZD_VERSION, "zerod",
                              program_json(&zerod_program), "zerodctl",
                              program_json(&zerodctl_program), "keys",
                              keys_json(), "types", types_json(), "run",
                              metrics_json(&run_metrics), "step",
                              metrics_json(&step_metrics), "rank",
                              metrics_json(&rank_metrics));
    output_json(tables);
    return output_finish(0);
}
