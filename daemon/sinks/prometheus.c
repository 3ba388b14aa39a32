/* prometheus.c - a run's numbers as metrics; docs/metrics.md lists them.
 *
 * Every sample has the label zerod_job: node_exporter's folder has
 * files of several jobs, and the name `job` is Prometheus' own. */
#include "daemon/sinks/prometheus.h"

#include "base/log.h"
#include "base/text_stream.h"
#include "daemon/sinks/exposition.h"
#include "daemon/sinks/sink.h"
#include "zd_config.h"

#include <math.h>
#include <stdlib.h>

/* A rank of a running job that was not heard for so long is down. */
enum { HEARTBEAT_SECONDS = 60, HEARTBEAT_STEPS = 10 };

/* --- the job --- */

static const char *model_of(const struct train_job *job)
{
    const char *type =
            json_string_value(json_object_get(job->model.config, "model_type"));
    return job->model.path ? job->model.path : type ? type : "";
}

static void put_job(struct exposition *to, const struct run_state *state)
{
    const struct train_job *job = state->job;
    char stage[16] = "", world[16] = "";
    if (state->has_banner) {
        snprintf(stage, sizeof stage, "%d", state->facts.zero_stage);
        snprintf(world, sizeof world, "%d", state->facts.world);
    }
    const char *matmul = ZD_HAVE_ONEDNN ? "onednn" : "openblas";
    const char *const build[] = {"version", ZD_VERSION, "matmul", matmul, NULL};
    const char *const facts[] = {
            "run_name",   job->job.run_name ? job->job.run_name : "",
            "model",      model_of(job),
            "optimizer",  train_optimizer_name(job->optim.name),
            "zero_stage", stage,
            "world_size", world,
            "dtype",      dtype_name(job->train.dtype),
            NULL};
    family_open(
            to, "zerod_build", FAMILY_INFO, "What this program was built of.");
    family_sample(to, 1, build);
    family_open(to, "zerod_job", FAMILY_INFO, "What the job trains, and how.");
    family_sample(to, 1, facts);
}

/* --- ranks --- */

/* Ranks report between steps: while the run evaluates, saves or is paused, an
 * old heartbeat means nothing. */
static bool is_up(
        const struct run_state *state, const struct train_rank_report *rank)
{
    double limit =
            fmax(HEARTBEAT_SECONDS, HEARTBEAT_STEPS * state->mean_step_seconds);
    double since = fmax(rank->heartbeat, state->state_since);
    if (state->state >= RUN_DONE)
        return false;
    bool is_asked = state->state == RUN_RUNNING || state->state == RUN_STALLED;
    return !is_asked || run_state_now() - since < limit;
}

static void put_life(struct exposition *to, const struct run_state *state)
{
    char number[16];
    if (state->rank_count > 0)
        family_open(
                to, "zerod_rank_up", FAMILY_GAUGE,
                "1 while the rank answers; 0 when it was not heard for a "
                "minute and ten steps, and after the end.");
    for (int r = 0; r < state->rank_count; r++) {
        const struct train_rank_report *rank = &state->ranks[r];
        snprintf(number, sizeof number, "%d", rank->rank);
        family_sample(
                to, is_up(state, rank),
                (const char *[]){"rank", number, "host", rank->host, NULL});
    }
}

/* All ranks have a GPU, or none has. Labelled by its UUID, as dcgm-exporter's
 * series are. */
static void put_gpus(struct exposition *to, const struct run_state *state)
{
    char number[16];
    if (state->rank_count == 0 || !state->ranks[0].gpu.name[0])
        return;
    family_open(to, "zerod_gpu", FAMILY_INFO, "The GPU of a rank.");
    for (int r = 0; r < state->rank_count; r++) {
        const struct train_gpu_report *gpu = &state->ranks[r].gpu;
        snprintf(number, sizeof number, "%d", state->ranks[r].rank);
        family_sample(
                to, 1,
                (const char *[]){
                        "rank", number, "gpu", gpu->uuid, "name", gpu->name,
                        "pci", gpu->pci, NULL});
    }
}

/* --- the whole --- */

char *prometheus_write(
        const struct run_state *state, enum prometheus_form form,
        size_t *bytes_out)
{
    char *text;
    struct exposition to = {
            .out = text_stream_open(&text, bytes_out),
            .open_metrics = form == PROMETHEUS_OPEN_METRICS,
            .job = state->job->job.name};
    bool has_step = state->step_histogram.sum > 0;
    put_job(&to, state);
    exposition_table(&to, &run_metrics, state, sizeof *state, 1);
    exposition_table(
            &to, &step_metrics, &state->step, sizeof state->step, has_step);
    put_life(&to, state);
    put_gpus(&to, state);
    exposition_table(
            &to, &rank_metrics, state->ranks, sizeof *state->ranks,
            state->rank_count);
    if (form != PROMETHEUS_TEXTFILE)
        exposition_process(&to);
    exposition_end(&to);
    return fclose(to.out) == 0 ? text : NULL;
}

char *prometheus_text(
        const struct run_state *state, bool open_metrics, size_t *bytes_out)
{
    return prometheus_write(
            state, open_metrics ? PROMETHEUS_OPEN_METRICS : PROMETHEUS_TEXT,
            bytes_out);
}
