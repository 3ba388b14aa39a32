/* section_optim.c - [optim]: what follows from the optimizer's name, and which
 * keys mean nothing to it. */
#include "daemon/job/job_internal.h"

#include "optim/optimizers.h"

#include <string.h>
#include <strings.h>

static const struct toml_node *given(const struct job *job, const char *name)
{
    return job->given[schema_index(schema_find("optim", name))];
}

/* The value that a key was given, -1 when it was not. Both keys that name the
 * states write one field, so the field does not tell. */
static int given_choice(const struct job *job, const char *name)
{
    const struct toml_node *node = given(job, name);
    const struct schema_choice *c = schema_find("optim", name)->choices;
    if (!node || node->kind != TOML_STRING)
        return -1;
    while (c->name && strcasecmp(c->name, node->string) != 0)
        c++;
    return c->name ? c->value : -1;
}

static enum optim_state_type named_state(const struct job *job)
{
    int name = given_choice(job, "name");
    return name >= 0 && name & SCHEMA_STATES_8BIT ? OPTIM_STATE_8BIT
                                                  : OPTIM_STATE_FP32;
}

/* --- what does not apply -------------------------------------------------- */

/* A hyper-parameter that was not given takes the optimizer's own default. */
static void settle_params(struct job *job)
{
    struct optim_options *optim = &job->options.optim;
    const struct optimizer *optimizer = optimizer_of(optim->name);
    for (int i = 0; i < OPTIM_PARAMS; i++) {
        const char *key = optim_param_key((enum optim_param)i);
        if (optimizer->values[i] != 0 && !given(job, key)) {
            *optim_param_value(optim, (enum optim_param)i) =
                    optimizer->values[i];
            job_derive(job, "optim", key, "from optim.name");
        }
        if (!optimizer->reads[i])
            job_idle(
                    job, "optim", key,
                    job_string(job, "not used by %s", optimizer->name),
                    job_string(
                            job, "`%s` has no effect with optim.name = \"%s\"",
                            key, optimizer->name),
                    "remove this line", job_is_sound(job, "optim", "name"));
    }
}

void job_settle_optim(struct job *job)
{
    struct optim_options *optim = &job->options.optim;
    const struct toml_node *name = given(job, "name");
    if (name && name->kind == TOML_STRING)
        job->options.optimizer = name->string;
    int state = given_choice(job, "state_dtype");
    job->options.names_states = state >= 0;
    optim->state_type =
            state >= 0 ? (enum optim_state_type)state : named_state(job);
    if (state < 0 && given(job, "name"))
        job_derive(job, "optim", "state_dtype", "from optim.name");
    settle_params(job);
}

static void tell(struct job *job, const char *key, const char *what)
{
    problem_add(
            &job->problems, ZD_ERR_CONFIG, "E0213",
            job_place(job, "optim", key), NULL, "%s", what);
}

void job_check_optim(struct job *job)
{
    const struct optim_options *optim = &job->options.optim;
    const struct optimizer *optimizer = optimizer_of(optim->name);
    int state = given_choice(job, "state_dtype");
    enum optim_state_type named = named_state(job);
    if (state < 0 || state == (int)named ||
        !job_is_sound(job, "optim", "name") ||
        !job_is_sound(job, "optim", "state_dtype"))
        return;
    if (named == OPTIM_STATE_8BIT) {
        tell(job, "state_dtype",
             "optim.name says 8-bit states, and state_dtype says otherwise");
        problem_help(&job->problems, "remove one of the two");
    } else if (state == OPTIM_STATE_8BIT) {
        tell(job, "state_dtype", "8-bit states come with the optimizer's name");
        if (optimizer->has_8bit)
            problem_help(
                    &job->problems, "name = \"%s%s_8bit\"",
                    optim->paged ? "paged_" : "", optimizer->name);
    } else if (!optimizer->has_bf16 || optim->paged) {
        tell(job, "state_dtype",
             "bf16 states are for optim.name = \"adamw\" alone");
    }
}
