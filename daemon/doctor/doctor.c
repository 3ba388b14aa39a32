/* doctor.c - see doctor.h. */
#include "daemon/doctor/doctor.h"

#include "base/must.h"
#include "kernels/attention/attention_cuda.h"
#include "model/activations.h"

#include <string.h>

/* --- the job -------------------------------------------------------------- */

/* What attention_choose says of layers like this one, with one document a
 * sample and with several. */
static void tell_layer(
        json_t *list, struct attention_shape shape,
        const struct attention_facts *facts)
{
    for (int i = 0; i < 2 * ATTENTION_DIRECTIONS; i++) {
        int pass = i % ATTENTION_DIRECTIONS;
        bool packed = i >= ATTENTION_DIRECTIONS;
        shape.documents = packed ? 2 * shape.B : shape.B;
        struct attention_answer answer = attention_choose(&shape, facts);
        const char *why = answer.why[pass];
        if (!*why && facts->choice == ATTENTION_AUTO)
            why = "or own, where timing finds it faster";
        json_t *row = json_pack(
                "{s:s, s:s, s:s, s:s, s:I}", "documents",
                packed ? "several in a sample" : "one in a sample", "pass",
                pass ? "backward" : "forward", "engine",
                *answer.why[pass] ? "own" : "cuDNN", "why", why, "work_bytes",
                (json_int_t)answer.work_bytes[pass]);
        if (shape.window)
            json_object_set_new(row, "window", json_integer(shape.window));
        json_array_append_new(list, row);
    }
}

/* Once for each window that layers have. */
static void tell_attention(struct doctor *doctor, const struct job_plan *plan)
{
    const struct model_config *c = &plan->config;
    struct attention_facts facts = attention_cuda_facts(plan->shape.dtype);
    json_t *list = json_array();
    for (int i = 0, known; i < c->layers; i++) {
        for (known = 0; known < i; known++)
            if (c->layer_attention[known].window ==
                c->layer_attention[i].window)
                break;
        if (known == i)
            tell_layer(
                    list,
                    activations_attention(
                            c, &plan->shape, i + 1, plan->shape.B,
                            plan->shape.T),
                    &facts);
    }
    doctor_put(doctor, "attention", list);
}

static void check_plan(struct doctor *doctor, struct comm *comm)
{
    struct job_plan plan;
    if (job_plan_build(
                doctor->job, comm_size(comm), comm_local_size(comm), NULL,
                &plan) != ZD_OK) {
        doctor_stop(doctor);
        return;
    }
    if (plan.backend == DEVICE_CUDA)
        tell_attention(doctor, &plan);
    job_plan_fini(&plan);
}

/* What the key asks for by name. */
static void check_named(struct doctor *doctor)
{
    const struct train_job *job = doctor->job;
    const struct kernels *table;
    if (doctor->device && kernels_device(job->train.dtype, &table) != ZD_OK)
        doctor_stop(doctor);
    const char *name;
    if (job->comm.backend == COMM_NCCL && comm_nccl_library(&name) != ZD_OK)
        doctor_stop(doctor);
}

void doctor_examine(
        struct doctor *doctor, const struct train_job *job, bool has_job,
        struct comm *comm)
{
    *doctor = (struct doctor){
            .report = zd_must(json_object()), .job = job, .has_job = has_job};
    doctor_put(doctor, "ranks", json_integer(comm_size(comm)));
    doctor_put(doctor, "findings", json_array());
    doctor_host(doctor);
    doctor_devices(doctor, comm_local_rank(comm), comm_local_size(comm));
    if (has_job) {
        kernels_set_attention(job->model.attn);
        check_named(doctor);
        check_plan(doctor, comm);
    }
}

bool doctor_stops(const struct doctor *doctor)
{
    return json_is_true(json_object_get(doctor->report, "stops"));
}

void doctor_fini(struct doctor *doctor)
{
    device_close(doctor->device);
    json_decref(doctor->report);
    memset(doctor, 0, sizeof *doctor);
}
