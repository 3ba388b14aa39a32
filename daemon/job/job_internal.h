/* job_internal.h - the steps of job_load, for the files of this folder alone.
 */
#pragma once

#include "base/file/hash.h"
#include "daemon/job/job.h"
#include "daemon/job/schema.h"
#include "daemon/job/toml/toml_door.h"

struct job_key {                   /* of the schema, in this job */
    const struct toml_node *given; /* NULL: not given */
    bool refused;                  /* given, but no good: its field is not to be
                                      compared with others */
    const char *derived; /* where a value that was not given follows from; NULL:
                            the default */
    const char *unused;  /* why the value has no effect in this job: it is
                            printed as a comment; NULL: it has one */
};

struct job {
    struct train_job options;
    struct problems problems;
    struct toml_node *root;       /* all files and overrides, merged */
    struct toml_source **sources; /* owned */
    int source_count;
    void **pool; /* owned: strings and arrays of options */
    size_t pool_count, pool_capacity;
    struct job_key *keys; /* (schema_count) */
    json_t *adapter;      /* adapter_config.json of lora.path; NULL: none */
    json_t *notes;        /* [line] */
    const char *path;
    char digest[HASH_HEX];
    bool is_partial; /* a file could not be read: report no missing keys */
    int world;
    int per_device, accumulation;      /* settled; 0: not known */
    enum optim_state_type named_state; /* by optim.name */
    int64_t global_batch;
};

/* Empty, with every default. */
struct job *job_create(const char *path);
/* print.c: train_job.values; new reference. */
json_t *job_values(const struct job *job);
/* .. lora_options.given; new reference. */
json_t *job_given_json(const struct job *job);
/* Memory that lives as long as the job, cleared. */
void *job_alloc(struct job *job, size_t bytes);
const char *job_string(struct job *job, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
/* A line for the screen, told when the job is read: before the ranks have
 * joined none knows whose it is. */
void job_note(struct job *job, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
struct toml_source *job_source(struct job *job, const char *name);
/* `name`: "section.name" of a key of the schema. */
struct job_key *job_key(const struct job *job, const char *name);
/* Where the key was given; where its section or the file begins when it was
 * not. */
struct toml_place job_place(const struct job *job, const char *name);
/* problem_add of the job file itself. */
#define job_tell(job, ...)                                                     \
    problem_add(&(job)->problems, ZD_ERR_CONFIG, __VA_ARGS__)
/* A problem (ZD_ERR_CONFIG) at a key; `help` may be NULL. */
void job_refuse(
        struct job *job, const char *code, const char *name, const char *help,
        const char *format, ...) __attribute__((format(printf, 5, 6)));
/* This thread's error record, as a problem at a key. */
void job_take_record(struct job *job, const char *name);
/* The value has no effect here: a problem (`what`, `help`) if it is given and
 * `is_told`. */
void job_idle(
        struct job *job, const char *name, const char *unused, bool is_told,
        const char *help, const char *what);

/* 1. tree.c: read the files, resolve aliases, merge, apply overrides. */
void job_read_tree(struct job *job, const struct job_request *request);
/* 2. keys.c: unknown keys, types, ranges; fill options. */
void job_read_values(struct job *job);
/* .. of one section, reporting no errors. */
void job_read_quietly(struct job *job, const char *section);
/* 3. settle.c: defaults that follow from others, the batch. */
void job_settle(struct job *job);
/* 4. check.c, contradictions.c: contradictions, paths that do not exist. */
void job_check(struct job *job);
void job_check_contradictions(struct job *job);
void job_check_paths(struct job *job);

/* value.c: one value between TOML, the options, and JSON. `base` is the struct
 * that the key's offsets are of. */
enum value_fault {
    VALUE_FINE,
    VALUE_TYPE, /* TOML of another kind */
    VALUE_RANGE,
    VALUE_WORD, /* a string that is none of the accepted ones */
    VALUE_TOLD  /* a problem is there already */
};
enum value_fault value_read(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *base);
/* New reference. NULL for keys that have no field. */
json_t *value_json(const struct schema_key *key, const void *base);
/* The default, in the same way. */
json_t *value_default(const struct schema_key *key);
