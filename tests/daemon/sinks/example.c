/* example.c - what the sinks write of a run that was resumed, for readers that
 * others wrote (test_readers.sh).
 *
 *   example DIR     DIR/metrics.txt, DIR/metrics.openmetrics,
 * DIR/text/zerod_tiny.prom, DIR/tensorboard/..., and what TensorBoard should
 * show of it: DIR/scalars ("TAG STEP VALUE"), DIR/texts ("TAG STEP")
 */
#include "daemon/sinks/sink.h"
#include "tests/daemon/sinks/state_case.h"

#include <math.h>

enum { FIRST_STEPS = 60, RESUMED_FROM = 40, LAST_STEP = 80 };

static struct state_case c;
static FILE *scalars, *texts;

static void told(const char *tag, double value)
{
    fprintf(scalars, "%s %lld %.9g\n", tag, (long long)c.state.step.step,
            (float)value);
}

/* What the step's numbers are; `seen`: they are not undone by the resume. */
static void make_step(struct sinks *sinks, int64_t number, bool seen)
{
    struct train_step_report *step = &c.state.step;
    state_case_step(&c, 3 + sin((double)number));
    step->step = number;
    step->grad_norm = 1 / (double)number;
    step->learning_rate = 1e-4 * (double)number / 7;
    step->forward_seconds = 0.07 + (seen ? 0 : 1);
    sinks_take(sinks, SINK_STEP, &c.state);
    if (seen) {
        told("train/loss", step->loss);
        told("train/grad_norm", step->grad_norm);
        told("train/learning_rate", step->learning_rate);
        told("perf/forward", step->forward_seconds);
    }
    if (number % 20 != 0)
        return;
    c.state.eval_loss = 2 + 1 / (double)number;
    c.state.eval_step = number;
    sinks_take(sinks, SINK_EVAL, &c.state);
    state_case_sample(&c, "Once", " upon a time");
    sinks_take(sinks, SINK_SAMPLE, &c.state);
    if (seen) {
        told("eval/loss", c.state.eval_loss);
        fprintf(texts, "samples/Once %lld\n", (long long)number);
    }
}

/* A process of the run: steps first + 1 .. last, of which `undone` and later
 * are made again. */
static void run(int64_t first, int64_t last, int64_t undone)
{
    struct sinks *sinks = sinks_open(&c.job, NULL);
    c.state.facts.first_step = first;
    for (int64_t step = first + 1; step <= last; step++)
        make_step(sinks, step, step < undone);
    sinks_take(sinks, SINK_TICK, &c.state);
    c.state.state = last == LAST_STEP ? RUN_DONE : RUN_RUNNING;
    sinks_close(sinks, &c.state);
}

static void write_metrics(
        const char *dir, const char *name, enum prometheus_form form)
{
    char path[PATH_MAX];
    size_t bytes;
    char *text = prometheus_write(&c.state, form, &bytes);
    fs_join(path, sizeof path, dir, name);
    if (fs_write_file(path, text, bytes) != ZD_OK)
        abort();
    free(text);
}

static FILE *open_list(const char *dir, const char *name)
{
    char path[PATH_MAX];
    fs_join(path, sizeof path, dir, name);
    FILE *file = fopen(path, "w");
    if (!file)
        abort();
    return file;
}

int main(int argc, char **argv)
{
    char prom[PATH_MAX];
    if (argc != 2)
        return 64;
    state_case_init(&c);
    fs_join(prom, sizeof prom, argv[1], "text");
    if (fs_make_dirs(prom) != ZD_OK)
        return 73;
    c.job.job.output_dir = argv[1];
    c.job.report.tensorboard = true;
    c.job.report.prometheus_textfile = prom;
    c.job.model.path = "a \"model\\ of\nmine";
    c.state.max_steps = c.state.step.max_steps = LAST_STEP;
    scalars = open_list(argv[1], "scalars");
    texts = open_list(argv[1], "texts");
    write_metrics(argv[1], "metrics.txt", PROMETHEUS_TEXT);
    write_metrics(argv[1], "metrics.openmetrics", PROMETHEUS_OPEN_METRICS);
    run(0, FIRST_STEPS, RESUMED_FROM + 1);
    run(RESUMED_FROM, LAST_STEP, LAST_STEP + 1);
    fclose(scalars);
    fclose(texts);
    state_case_fini(&c);
    return 0;
}
