/* job.h - job.toml read, checked and resolved.
 *
 *   file [+ extends] -> tree -> --set -> values -> defaults -> contradictions
 *
 * All errors are collected (problems.h) and reported together. Every
 * value remembers where it came from. No MPI, no weights are touched; the
 * model's config.json is read when the job names a model, of data the first
 * records where that is asked for. */
#pragma once

#include "daemon/job/toml/problems.h"
#include "train/job/options.h"

struct job_override {   /* borrowed until job_load returns */
    const char *key;    /* "section.key"; NULL: `value` is "section.key = .." */
    const char *value;  /* TOML if it parses, else a plain string */
    const char *origin; /* "--set", "--max-steps": told in errors and --print */
    bool is_text;       /* never TOML */
};

/* Are the paths of a job checked? zerod plan needs none of them. */
enum job_paths { JOB_PATHS_EXIST, JOB_PATHS_IGNORED };

struct job_request {
    const char *path;
    const char
            *text; /* the job, which `path` then only names; NULL: the file */
    const struct job_override *overrides;
    int override_count;
    bool force; /* run.force, which is no key of the file */
    int world;  /* ranks; 0: not known, then the batch is settled later */
    enum job_paths paths;
};

struct job;

/* In two steps: the files are read, and what they say is checked for `world`
 * ranks. In between the ranks join, by what [comm] says. */
struct job *job_open(const struct job_request *request);
struct comm_options job_comm_options(struct job *job);
enum zd_status job_finish(struct job *job, int world, enum job_paths paths);

/* Both. Always sets *job_out, which holds the problems when it fails.
 * ZD_ERR_CONFIG for anything in the file or an override; ZD_ERR_NO_INPUT for a
 * file, base, model or data path that does not exist; ZD_ERR_DATA for a broken
 * config.json. No error record is made: job_problems are what to print. */
enum zd_status job_load(
        const struct job_request *request, struct job **job_out);
void job_free(struct job *job);

const struct problems *job_problems(const struct job *job);
/* Strings and arrays in it live as long as the job. */
const struct train_job *job_options(const struct job *job);

/* Keys of the job that have no effect on the CPU, as "model.attn,
 * comm.max_ctas"; false: there are none. */
bool job_idle_keys(const struct job *job, char *out, size_t bytes);

/* Every key, its value and where it came from: as TOML text that can be read
 * again, or as one object {"file", "world", "values": {"train.max_steps":
 * {"value", "origin"}}}. New reference. */
void job_print(const struct job *job, FILE *stream);
json_t *job_json(const struct job *job);
/* One line "section.key = value" per key that must be equal on all ranks.
 * train_job.digest is the digest of this text. The caller frees it. */
char *job_canonical(const struct job *job);
