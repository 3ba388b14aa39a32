/* section_optim.c - [optim]: what follows from the optimizer's name, and which
 * keys mean nothing to it. */
#include "daemon/job/job_internal.h"

#include "optim/optimizers.h"

#include <string.h>
#include <strings.h>

/* The value that a key was given, -1 when it was not. Both keys that name the
 * states write one field, so the field does not tell. */
static int given_choice(const struct job *job, const char *name)
{
    struct job_key *key = job_key(job, name);
    const struct toml_node *node = key->given;
    const struct schema_choice *c = schema_table[key - job->keys].choices;
    if (!node || node->kind != TOML_STRING)
        return -1;
    while (c->name && strcasecmp(c->name, node->string) != 0)
        c++;
    return c->name ? c->value : -1;
}

static enum optim_state_type named_state(const struct job *job)
{
    int name = given_choice(job, "optim.name");
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
        const char *name = job_string(job, "optim.%s", key);
        if (optimizer->values[i] != 0 && !job_key(job, name)->given) {
            *optim_param_value(optim, (enum optim_param)i) =
                    optimizer->values[i];
            job_key(job, name)->derived = "from optim.name";
        }
        if (!optimizer->reads[i])
            job_idle(
                    job, name,
                    job_string(job, "not used by %s", optimizer->name),
                    !job_key(job, "optim.name")->refused, "remove this line",
                    job_string(
                            job, "`%s` has no effect with optim.name = \"%s\"",
                            key, optimizer->name));
    }
}

void job_settle_optim(struct job *job)
{
    struct optim_options *optim = &job->options.optim;
    const struct toml_node *name = job_key(job, "optim.name")->given;
    if (name && name->kind == TOML_STRING)
        job->options.optimizer = name->string;
    int state = given_choice(job, "optim.state_dtype");
    job->options.names_states = state >= 0;
    optim->state_type =
            state >= 0 ? (enum optim_state_type)state : named_state(job);
    if (state < 0 && name)
        job_key(job, "optim.state_dtype")->derived = "from optim.name";
    settle_params(job);
}

void job_check_optim(struct job *job)
{
    const struct optim_options *optim = &job->options.optim;
    const struct optimizer *optimizer = optimizer_of(optim->name);
    int state = given_choice(job, "optim.state_dtype");
    enum optim_state_type named = named_state(job);
    if (state < 0 || state == (int)named ||
        job_key(job, "optim.name")->refused ||
        job_key(job, "optim.state_dtype")->refused)
        return;
    const char *key = "optim.state_dtype", *with = NULL;
    if (optimizer->has_8bit)
        with = job_string(
                job, "name = \"%s%s_8bit\"", optim->paged ? "paged_" : "",
                optimizer->name);
    if (named == OPTIM_STATE_8BIT)
        job_refuse(
                job, "E0213", key, "remove one of the two",
                "optim.name says 8-bit states, and state_dtype says otherwise");
    else if (state == OPTIM_STATE_8BIT)
        job_refuse(
                job, "E0213", key, with,
                "8-bit states come with the optimizer's name");
    else if (!optimizer->has_bf16 || optim->paged)
        job_refuse(
                job, "E0213", key, NULL,
                "bf16 states are for optim.name = \"adamw\" alone");
}
