#include "daemon/job/job_internal.h"

#include "base/must.h"
#include "base/text_buffer.h"
#include "base/text_stream.h"

#include <stdlib.h>
#include <string.h>

static void *pool_keep(struct job *job, void *memory)
{
    job->pool =
            zd_grow(job->pool, &job->pool_capacity, job->pool_count + 1,
                    sizeof *job->pool);
    return job->pool[job->pool_count++] = memory;
}

void *job_alloc(struct job *job, size_t bytes)
{
    return pool_keep(job, zd_must(calloc(1, bytes)));
}

const char *job_string(struct job *job, const char *format, ...)
{
    TEXT_OF_ARGS(text, format);
    return pool_keep(job, text);
}

void job_note(struct job *job, const char *format, ...)
{
    ZD_FREED TEXT_OF_ARGS(line, format);
    json_array_append_new(job->notes, json_string(line));
}

struct toml_source *job_source(struct job *job, const char *name)
{
    size_t count = (size_t)job->source_count + 1;
    struct toml_source *source = zd_must(calloc(1, sizeof *source));
    job->sources = zd_must(realloc(job->sources, count * sizeof *job->sources));
    job->sources[job->source_count++] = source;
    source->name = zd_must(strdup(name));
    return source;
}

/* --- where things stand --- */

struct job_key *job_key(const struct job *job, const char *name)
{
    const char *dot = strrchr(name, '.');
    char section[SCHEMA_NAME_MAX];
    ZD_PRINT(section, "%.*s", (int)(dot - name), name);
    return &job->keys[schema_index(schema_find(section, dot + 1))];
}

struct toml_place job_place(const struct job *job, const char *name)
{
    const struct job_key *key = job_key(job, name);
    const char *section = schema_table[key - job->keys].section;
    if (key->given)
        return key->given->key_place;
    const struct toml_node *table =
            job->root ? toml_find(job->root, section) : NULL;
    return table ? table->place
                 : (struct toml_place){.source = job->sources[0]};
}

void job_refuse(
        struct job *job, const char *code, const char *name, const char *help,
        const char *format, ...)
{
    ZD_FREED TEXT_OF_ARGS(what, format);
    job_tell(job, code, job_place(job, name), NULL, "%s", what);
    if (help)
        problem_help(&job->problems, "%s", help);
}

void job_take_record(struct job *job, const char *name)
{
    problem_take_record(&job->problems, job_place(job, name));
}

void job_idle(
        struct job *job, const char *name, const char *unused, bool is_told,
        const char *help, const char *what)
{
    struct job_key *key = job_key(job, name);
    key->unused = unused;
    if (is_told && key->given)
        job_refuse(job, "E0213", name, help, "%s", what);
}

/* --- life --- */

struct job *job_create(const char *path)
{
    struct job *job = zd_array(1, sizeof *job);
    job->keys = zd_array((size_t)schema_count, sizeof *job->keys);
    job->options = train_job_default();
    job->notes = json_array();
    job->path = job_string(job, "%s", path);
    return job;
}

void job_free(struct job *job)
{
    if (!job)
        return;
    problems_fini(&job->problems);
    toml_free(job->root);
    for (int i = 0; i < job->source_count; i++) {
        free(job->sources[i]->name);
        free(job->sources[i]->text);
        free(job->sources[i]);
    }
    for (size_t i = 0; i < job->pool_count; i++)
        free(job->pool[i]);
    json_decref(job->notes);
    json_decref(job->adapter);
    json_decref(job->options.values);
    json_decref(job->options.model.config);
    json_decref(job->options.model.rope_scaling);
    json_decref(job->options.lora.given);
    json_decref(job->options.lora.target_modules);
    json_decref(job->options.lora.exclude_modules);
    json_decref(job->options.lora.layers_to_transform);
    json_decref(job->options.lora.rank_pattern);
    json_decref(job->options.lora.alpha_pattern);
    free(job->sources);
    free(job->pool);
    free(job->keys);
    free(job);
}

bool job_idle_keys(const struct job *job, char *out, size_t bytes)
{
    struct text_buffer text = {.out = out, .bytes = bytes};
    bool on_cpu =
            device_resolve(job_options(job)->device.backend) == DEVICE_CPU;
    for (int i = 0; on_cpu && i < schema_count; i++)
        if (job->keys[i].given && schema_table[i].flags & SCHEMA_GPU)
            text_buffer_add(
                    &text, "%s%s.%s", text.used ? ", " : "",
                    schema_table[i].section, schema_table[i].name);
    return text.used > 0;
}

const struct problems *job_problems(const struct job *job)
{
    return &job->problems;
}

const struct train_job *job_options(const struct job *job)
{
    return &job->options;
}
