/* print.c - the resolved job, for people, programs and other ranks. */
#include "daemon/job/job_internal.h"

#include "base/text_stream.h"

#include <stdlib.h>
#include <string.h>

/* --- a row: value and origin --- */

/* The value that the adapter of lora.path has for a key that is not in the job;
 * NULL: none. */
static const json_t *adapter_value(
        const struct job *job, const struct schema_key *key)
{
    const json_t *value = json_object_get(job->adapter, key->name);
    bool holds = key->flags & SCHEMA_ADAPTER &&
                 !job->keys[schema_index(key)].given &&
                 strcmp(key->name, "init_lora_weights") != 0;
    return holds && !json_is_null(value) ? value : NULL;
}

/* The three batch sizes are shown as they are settled, when they are. */
static json_t *row_value(const struct job *job, const struct schema_key *key)
{
    int64_t settled = 0;
    const json_t *adapter = adapter_value(job, key);
    if (adapter)
        return json_incref((json_t *)adapter);
    if (strcmp(key->name, "per_device_train_batch_size") == 0)
        settled = job->per_device;
    else if (strcmp(key->name, "gradient_accumulation_steps") == 0)
        settled = job->accumulation;
    else if (strcmp(key->name, "global_batch_size") == 0)
        settled = job->global_batch;
    if (settled)
        return json_integer(settled);
    return value_json(key, &job->options);
}

static void batch_origin(const struct job *job, char *out, size_t out_bytes)
{
    const struct mesh_sizes *mesh = &job->options.parallel;
    int sharers = mesh->cp * mesh->tp, samplers = job->world / sharers;
    if (sharers > 1)
        snprintf(
                out, out_bytes,
                "from the other two, for %d group%s of %d ranks", samplers,
                samplers == 1 ? "" : "s", sharers);
    else
        snprintf(
                out, out_bytes, "from the other two, for %d rank%s", samplers,
                samplers == 1 ? "" : "s");
}

static void row_origin(
        const struct job *job, const struct schema_key *key, char *out,
        size_t out_bytes)
{
    const struct job_key *is = &job->keys[schema_index(key)];
    const struct toml_node *node = is->given;
    bool is_batch = key->type != SCHEMA_BOOL &&
                    (strstr(key->name, "batch_size") ||
                     strcmp(key->name, "gradient_accumulation_steps") == 0);
    if (is->unused)
        snprintf(out, out_bytes, "%s", is->unused);
    else if (node && node->place.line)
        snprintf(
                out, out_bytes, "%s:%d", node->key_place.source->name,
                node->key_place.line);
    else if (node)
        snprintf(out, out_bytes, "%s", node->place.source->name);
    else if (adapter_value(job, key))
        snprintf(out, out_bytes, "lora.path");
    else if (is->derived)
        snprintf(out, out_bytes, "%s", is->derived);
    else if (
            is_batch && strcmp(key->section, "train") == 0 && job->world &&
            (job->options.train.global_batch_size ||
             strcmp(key->name, "global_batch_size") == 0))
        batch_origin(job, out, out_bytes);
    else
        snprintf(out, out_bytes, "default");
}

static bool is_entry(const struct schema_key *key)
{
    return strncmp(key->section, "data.", 5) == 0;
}

/* --- text --- */

static void print_members(const json_t *table, FILE *stream)
{
    JSON_MEMBERS(name, value, table) {
        toml_write_key(stream, name);
        fputs(" = ", stream);
        toml_write(stream, value);
        fputc('\n', stream);
    }
}

static void print_tables(
        const struct schema_key *key, const json_t *value, FILE *stream)
{
    if (json_is_object(value))
        fprintf(stream, "\n[%s.%s]\n", key->section, key->name);
    print_members(value, stream);
    JSON_EACH(entry, value) {
        fprintf(stream, "\n[[%s.%s]]\n", key->section, key->name);
        print_members(entry, stream);
    }
}

static void print_row(
        const struct job *job, const struct schema_key *key, FILE *stream)
{
    char origin[1200], *text = NULL;
    const char *unused = job->keys[schema_index(key)].unused;
    if (unused) {
        fprintf(stream, "# %-32s %s\n", key->name, unused);
        return;
    }
    json_auto_t *value = row_value(job, key);
    if (!value)
        return;
    if (key->type == SCHEMA_ENTRIES || key->type == SCHEMA_TABLE)
        print_tables(key, value, stream);
    else {
        FILE *line = text_stream_open(&text, NULL);
        fprintf(line, "%s = ", key->name);
        toml_write(line, value);
        fclose(line);
        row_origin(job, key, origin, sizeof origin);
        for (char *c = origin; *c; c++) /* a comment is one line */
            if ((unsigned char)*c < 0x20 || *c == 0x7f)
                *c = '?';
        fprintf(stream, "%-42s # %s\n", text, origin);
        free(text);
    }
}

void job_print(const struct job *job, FILE *stream)
{
    const char *section = "";
    if (job->world)
        fprintf(stream, "# %s, resolved for %d rank%s\n", job->sources[0]->name,
                job->world, job->world == 1 ? "" : "s");
    else
        fprintf(stream, "# %s, resolved\n", job->sources[0]->name);
    ZD_EACH(key, schema_table, schema_count) {
        if (is_entry(key))
            continue;
        if (strcmp(section, key->section) != 0) {
            section = key->section;
            fprintf(stream, "\n[%s]\n", section);
        }
        print_row(job, key, stream);
    }
}

/* --- JSON --- */

json_t *job_json(const struct job *job)
{
    json_t *values = json_object();
    ZD_EACH(key, schema_table, schema_count) {
        char name[160], origin[1200];
        if (is_entry(key) || key->type == SCHEMA_EXTENDS)
            continue;
        row_origin(job, key, origin, sizeof origin);
        ZD_PRINT(
                name, "%s%s%s", key->section, key->section[0] ? "." : "",
                key->name);
        json_object_set_new(
                values, name,
                json_pack(
                        "{s:o, s:s*}", "value", row_value(job, key), "origin",
                        origin));
    }
    return json_pack(
            "{s:s*, s:o, s:o}", "file", job->sources[0]->name, "world",
            job->world ? json_integer(job->world) : json_null(), "values",
            values);
}

json_t *job_given_json(const struct job *job)
{
    json_t *given = json_object();
    for (int i = 0; i < schema_count; i++)
        if (schema_table[i].flags & SCHEMA_ADAPTER && job->keys[i].given &&
            !job->keys[i].refused)
            json_object_set_new(
                    given, schema_table[i].name,
                    value_json(&schema_table[i], &job->options));
    return given;
}

/* --- what ranks compare --- */

json_t *job_values(const struct job *job)
{
    json_t *values = json_object();
    ZD_EACH(key, schema_table, schema_count) {
        char name[160];
        if (key->flags & SCHEMA_PER_RANK || is_entry(key))
            continue;
        ZD_PRINT(name, "%s.%s", key->section, key->name);
        json_t *value = row_value(job, key);
        if (value)
            json_object_set_new(values, name, value);
    }
    return values;
}

char *job_canonical(const struct job *job)
{
    char *text = NULL;
    FILE *stream = text_stream_open(&text, NULL);
    JSON_MEMBERS(name, value, job->options.values) {
        fprintf(stream, "%s = ", name);
        json_dumpf(
                value, stream, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS);
        fputc('\n', stream);
    }
    fclose(stream);
    return text;
}
