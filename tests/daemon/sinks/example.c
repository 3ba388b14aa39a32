/* example.c - what the sinks write of a run that was resumed, for readers that
 * others wrote (test_readers.sh).
 *
 *   example DIR     DIR/metrics.txt, DIR/text/zerod_tiny.prom,
 * DIR/tensorboard/..., and in DIR/expected the lines
 * of read_events.py for the last */
#include "base/must.h"
#include "daemon/sinks/sink.h"
#include "tests/daemon/sinks/state_case.h"

#include <math.h>

enum { FIRST_STEPS = 60, RESUMED_FROM = 40, LAST_STEP = 80 };

static struct state_case c;
static FILE *expected;

static void told(const char *tag, double value)
{
    fprintf(expected, "scalar %s %lld %.9g\n", tag,
            (long long)c.state.step.step, (float)value);
}

static void told_step(const struct train_step_report *step)
{
    told("train/loss", step->loss);
    told("train/grad_norm", step->grad_norm);
    told("train/learning_rate", step->learning_rate);
    told("perf/tokens_per_second", 18204.5);
    told("perf/step_seconds", 0.225);
    told("perf/data_wait", 0.001);
    told("perf/forward", step->forward_seconds);
    told("perf/backward", 0.14);
    told("perf/reduce", 0.005);
    told("perf/update", 0.006);
    told("perf/gather", 0.003);
    told("comm/exposed_seconds", 0.005 + 0.003);
    told("memory/resident_gib", 510000000 / 1073741824.0);
    if (step->step > RESUMED_FROM) {
        told("train/loss_scale", 1024);
        told("perf/offload_wait", 0.03);
    }
}

/* Evaluations, and samples with what a tag or Markdown could not take as it
 * is. */
static void make_eval(struct sinks *sinks, int64_t number, bool seen)
{
    static const char *const samples[][4] = {
            {"Once", " upon a time", "Once", "    Once upon a time"},
            {"Once\nupon", " a time\n\nthere was", "Once upon",
             "    Once|    upon a time|    |    there was"},
            {"", "# no heading", "(no prompt)", "    # no heading"},
            /* the tag ends before a character that would be cut */
            {"0123456789012345678901234567890123456789012345678901234\xc3\xa4",
             "", "0123456789012345678901234567890123456789012345678901234",
             "    0123456789012345678901234567890123456789012345678901234"
             "\xc3\xa4"}};
    const char *const *sample = samples[number / 20 - 1];
    c.state.facts.eval_loss = 2 + 1 / (double)number;
    c.state.eval_step = number;
    sinks_take(sinks, "eval", &c.state);
    state_case_sample(&c, sample[0], sample[1]);
    sinks_take(sinks, "sample", &c.state);
    if (seen) {
        told("eval/loss", c.state.facts.eval_loss);
        fprintf(expected, "text samples/%s %lld %s\n", sample[2],
                (long long)number, sample[3]);
    }
}

/* What the step's numbers are; `seen`: they are not undone by the resume.
 * log.logging_steps changes on the way. */
static void make_step(struct sinks *sinks, int64_t number, bool seen)
{
    struct train_step_report *step = &c.state.step;
    int every = number <= 12 ? 10 : number <= 30 ? 2 : 7;
    state_case_step(
            &c, number == 14   ? NAN
                : number == 16 ? INFINITY
                               : 3 + sin((double)number));
    step->step = number;
    step->settings[SET_LOGGING_STEPS] = every;
    step->grad_norm = 1 / (double)number;
    step->learning_rate = 1e-4 * (double)number / 7;
    step->forward_seconds = 0.07 + (seen ? 0 : 1);
    if (number > RESUMED_FROM) {
        step->loss_scale.scale = 1024;
        step->offload.active = true;
        step->offload.engine.wait_host_seconds = 0.03;
    }
    sinks_take(sinks, "step", &c.state);
    if (seen && (number == 1 || number == LAST_STEP || number % every == 0))
        told_step(step);
    if (number % 20 == 0)
        make_eval(sinks, number, seen);
}

/* A process of the run: steps first + 1 .. last, of which `undone` and later
 * are made again. */
static void run(int64_t first, int64_t last, int64_t undone)
{
    struct sinks *sinks = sinks_open(&c.job);
    c.state.facts.first_step = first;
    for (int64_t step = first + 1; step <= last; step++)
        make_step(sinks, step, step < undone);
    sinks_take(sinks, "tick", &c.state);
    c.state.state = last == LAST_STEP ? RUN_DONE : RUN_RUNNING;
    sinks_close(sinks, &c.state);
}

static void write_metrics(const char *dir)
{
    char path[PATH_MAX];
    size_t bytes;
    ZD_FREED char *text = prometheus_write(&c.state, &bytes);
    fs_join(path, sizeof path, dir, "metrics.txt");
    if (fs_write_file(path, text, bytes) != ZD_OK)
        abort();
}

int main(int argc, char **argv)
{
    char text[PATH_MAX], list[PATH_MAX];
    if (argc != 2)
        return 64;
    state_case_init(&c);
    fs_join(text, sizeof text, argv[1], "text");
    if (fs_make_dirs(text) != ZD_OK)
        return 73;
    c.job.job.output_dir = argv[1];
    c.job.report.tensorboard = true;
    c.job.report.prometheus_textfile = text;
    c.job.model.path = "a \"model\\ of\nmine";
    c.state.facts.max_steps = c.state.step.max_steps = LAST_STEP;
    c.job.log.logging_first_step = true;
    fs_join(list, sizeof list, argv[1], "expected");
    expected = fopen(list, "w");
    if (!expected)
        abort();
    write_metrics(argv[1]);
    run(0, FIRST_STEPS, RESUMED_FROM + 1);
    run(RESUMED_FROM, LAST_STEP, LAST_STEP + 1);
    fclose(expected);
    state_case_fini(&c);
    return 0;
}
