/* job_case.h - job files from text, for the tests of daemon. */
#ifndef ZD_TESTS_JOB_CASE_H
#define ZD_TESTS_JOB_CASE_H

#include "daemon/job/job.h"
#include "tests/support/scratch.h"

/* What makes any text a whole job: put behind it, so that lines keep their
 * numbers. NAME_data is a file of the scratch folder. */
#define JOB_REST                                                               \
    "\n[model.config]\nmodel_type = \"llama\"\nhidden_size = 64\n"             \
    "num_hidden_layers = 2\nnum_attention_heads = 4\n"                         \
    "num_key_value_heads = 2\nintermediate_size = 128\nvocab_size = 300\n"     \
    "max_position_embeddings = 4096\n\n[[data.train]]\npath = "                \
    "\"/dev/null\"\n"

/* Characters, for texts that are too long. */
#define SIXTEEN "abcdefghijklmnop"

struct job_case {
    struct scratch scratch;
    struct job *job;
    enum zd_status status;
    const struct problems *problems;
};

static inline void job_case_load(
        struct job_case *c, const char *name, const char *text,
        const struct job_override *sets, int set_count, int world)
{
    struct zd_log_options log = {.level = ZD_LOG_ERROR, .rank = -1};
    char path[PATH_MAX];
    zd_log_configure(&log);
    snprintf(
            path, sizeof path, "%s",
            scratch_file(&c->scratch, name, text, strlen(text)));
    struct job_request request = {
            .path = path,
            .overrides = sets,
            .override_count = set_count,
            .world = world};
    c->status = job_load(&request, &c->job);
    c->problems = job_problems(c->job);
}

/* `text` alone. */
static inline void job_case_init_alone(struct job_case *c, const char *text)
{
    memset(c, 0, sizeof *c);
    scratch_init(&c->scratch);
    job_case_load(c, "job.toml", text, NULL, 0, 0);
}

/* `text` and what a whole job needs. */
static inline void job_case_init(struct job_case *c, const char *text)
{
    char *whole = NULL;
    if (asprintf(&whole, "%s%s", text, JOB_REST) < 0)
        abort();
    job_case_init_alone(c, whole);
    free(whole);
}

static inline void job_case_fini(struct job_case *c)
{
    job_free(c->job);
    scratch_fini(&c->scratch);
}

#endif
