/* section_optim.c - [optim]: what follows from the optimizer's name, and which
 * keys mean nothing to it. */
#include "daemon/job/job_internal.h"

#include "optim/optimizers.h"

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
    struct train_job *options = &job->options;
    struct optim_options *optim = &options->optim;
    struct job_key *key = job_key(job, "optim.state_dtype");
    const struct toml_node *name = job_key(job, "optim.name")->given;
    if (name && name->kind == TOML_STRING)
        options->optimizer = name->string;
    job->named_state = optim->state_type;
    options->names_states = key->given && !key->refused;
    if (options->names_states)
        optim->state_type = options->state_dtype;
    else if (name)
        key->derived = "from optim.name";
    options->state_dtype = optim->state_type;
    settle_params(job);
}

void job_check_optim(struct job *job)
{
    const struct optim_options *optim = &job->options.optim;
    const struct optimizer *optimizer = optimizer_of(optim->name);
    enum optim_state_type named = job->named_state, state = optim->state_type;
    if (state == named || job_key(job, "optim.name")->refused)
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
