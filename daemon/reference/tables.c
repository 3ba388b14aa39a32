/* tables.c - zerod-tables: the tables of the programs as JSON, for pages.py.
 * Part of the build; not installed. */
#include "daemon/cli/output.h"
#include "daemon/cli/program.h"
#include "daemon/job/job_internal.h"
#include "daemon/reference/fits.h"
#include "daemon/state/run_state.h"
#include "model/families/families.h"
#include "zd_config.h"

#include <string.h>

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
