#include "tests/daemon/sinks/state_case.h"

#include "base/clock.h"
#include "base/log.h"

#include <math.h>

static void fill_rank(struct train_rank_report *rank, int number)
{
    *rank = (struct train_rank_report){
            .rank = number,
            .local_rank = number,
            .pid = 4711 + number,
            .threads = 2,
            .host = "node1",
            .device = "cpu",
            .cpus = "0-1",
            .step = 120,
            .heartbeat = 1795200030.5,
            .gpu = {.name = "NVIDIA \"H200\"",
                    .uuid = "GPU-1",
                    .pci = "0000:3b:00.0",
                    .total = 150000000000,
                    .used = 140000000000,
                    .held = 130000000000,
                    .planned = 120000000001},
            .resident = 510000000 + (uint64_t)number,
            .resident_peak = 520000000 + (uint64_t)number,
            .step_seconds = 0.22,
            .down_bytes = 1001,
            .up_bytes = 1002,
            .disk_read_bytes = 1003,
            .disk_written_bytes = 1004,
            .wire = {{2001, 2002, 2004, 2003}},
            .groups.group[ZERO_CP].bytes[COMM_ALL_TO_ALL] = 2004,
    };
    for (int memory = 0; memory < ARENA_MEMORIES; memory++) {
        rank->planned[memory] = 300000 + 1000 * (uint64_t)memory;
        rank->taken[memory] = 300000 + 1000 * (uint64_t)memory + 1;
        rank->limit[memory] = memory == ARENA_DEVICE ? 12884901888u : 0;
        for (int kind = 0; kind < SPAN_KINDS; kind++)
            rank->kinds[memory][kind] =
                    40000 + 100 * (uint64_t)memory + (uint64_t)kind;
    }
    for (int phase = 0; phase < PHASES; phase++)
        rank->phase_seconds[phase] = 10.5 + phase + 100 * number;
}

static void fill_steps(struct run_state *state)
{
    static const double bounds[STEP_BUCKETS] = {
            0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
            0.5,   1,      2.5,   5,    10,    25,   60,  300};
    state->step = (struct train_step_report){
            .step = 120,
            .max_steps = 400,
            .loss = 2.3125,
            .grad_norm = 0.84375,
            .learning_rate = 0.00029,
            .tokens = 4096,
            .step_seconds = 0.225,
            .tokens_per_second = 18204.5,
            .data_seconds = 0.001,
            .forward_seconds = 0.07,
            .backward_seconds = 0.14,
            .reduce_seconds = 0.005,
            .update_seconds = 0.006,
            .gather_seconds = 0.003,
            .settings = {[SET_LOGGING_STEPS] = 1},
    };
    state->facts.settings[SET_LEARNING_RATE] = 0.00029;
    state->mean_step_seconds = 0.22;
    series_add(state->series, 120, &step_metrics, &state->step, 1);
    state->facts.tokens = 491520;
    state->facts.samples_taken = 3840;
    state->skipped[SKIP_NONFINITE] = 3;
    state->skipped[SKIP_NO_TARGETS] = 1;
    for (int phase = 0; phase < PHASES; phase++)
        state->phase_seconds[phase] = 0.25 + phase;
    memcpy(state->step_histogram.bound, bounds, sizeof bounds);
    memcpy(state->checkpoint_histogram.bound, bounds, sizeof bounds);
    state->step_histogram.count[7] = 110;
    state->step_histogram.count[8] = 9;
    state->step_histogram.count[STEP_BUCKETS] = 1;
    state->step_histogram.sum = 326.5;
    state->checkpoint_histogram.count[9] = 2;
    state->checkpoint_histogram.sum = 1.5;
}

static void fill_state(struct state_case *c)
{
    struct run_state *state = &c->state;
    state->job = &c->job;
    state->series = calloc(SERIES_MAX, sizeof *state->series);
    state->socket_path = "/run/user/1000/zerod/tiny.sock";
    state->started = 1795200000.25;
    state->updated = 1795200031.5;
    state->state = RUN_RUNNING;
    state->state_since = clock_wall_seconds();
    state->has_banner = true;
    state->facts.world = STATE_CASE_RANKS;
    state->facts.zero_stage = 3;
    state->facts.per_device = 4;
    state->facts.accumulation = 4;
    state->facts.global_batch = 32;
    state->facts.parameters = 9000000;
    state->facts.max_steps = 400;
    state->facts.samples_per_epoch = 12288;
    state->facts.flops_per_token = 54000000;
    state->facts.peak = 2e12;
    strcpy(state->facts.host, "node1");
    fill_steps(state);
    state->facts.eval_loss = 2.40625;
    state->facts.best_eval_loss = 2.375;
    state->last_checkpoint_step = 100;
    state->last_checkpoint_time = 1795200025.75;
    state->checkpoint_stall_seconds = 0.125;
    state->checkpoint_write_seconds = 1.375;
    state->checkpoint_bytes = 108000000;
    state->checkpoint_failures = 2;
    strcpy(state->last_checkpoint, "out/tiny/checkpoint-000100");
    state->ranks = c->ranks;
    state->rank_count = STATE_CASE_RANKS;
    state->samples = json_array();
    state->warnings = json_array();
    state->queue_dropped = 5;
}

void state_case_init(struct state_case *c)
{
    struct zd_log_options log = {.level = ZD_LOG_INFO, .rank = -1};
    memset(c, 0, sizeof *c);
    scratch_init(&c->scratch);
    zd_log_configure(&log);
    if (zd_log_open(scratch_path(&c->scratch, "log")) != ZD_OK)
        abort();
    c->job = train_job_default();
    c->job.job.name = "tiny";
    c->job.job.run_name = "";
    c->job.job.output_dir = c->scratch.dir;
    c->job.optimizer = "adamw";
    for (int r = 0; r < STATE_CASE_RANKS; r++)
        fill_rank(&c->ranks[r], r);
    fill_state(c);
}

void state_case_fini(struct state_case *c)
{
    json_decref(c->state.samples);
    json_decref(c->state.warnings);
    series_free(c->state.series);
    zd_log_open(NULL);
    scratch_fini(&c->scratch);
}

void state_case_step(struct state_case *c, double loss)
{
    struct run_state *state = &c->state;
    state->step.step++;
    state->step.loss = loss;
    series_add(state->series, state->step.step, &step_metrics, &state->step, 1);
    state->updated += 0.25;
}

void state_case_sample(
        struct state_case *c, const char *prompt, const char *text)
{
    json_array_insert_new(
            c->state.samples, 0,
            json_pack(
                    "{s:I, s:f, s:s, s:s}", "step",
                    (json_int_t)c->state.step.step, "time", c->state.updated,
                    "prompt", prompt, "text", text));
}

static bool has_labels(const char *line, size_t bytes, const char *labels)
{
    char copy[256], word[300], *rest = copy, *pair;
    ZD_PRINT(copy, "%s", labels);
    while ((pair = strsep(&rest, ",")) && *pair) {
        char *value = strchr(pair, '=');
        *value = '\0';
        ZD_PRINT(word, "%s=\"%s\"", pair, value + 1);
        if (!memmem(line, bytes, word, strlen(word)))
            return false;
    }
    return true;
}

double state_case_metric(const char *text, const char *name, const char *labels)
{
    double value = NAN;
    size_t length = strlen(name), bytes;
    int count = 0;
    for (const char *line = text; *line; line += bytes + 1) {
        bytes = strcspn(line, "\n");
        if (strncmp(line, name, length) != 0 || !strchr("{ ", line[length]) ||
            !has_labels(line, bytes, labels))
            continue;
        const char *number = memrchr(line, ' ', bytes);
        value = strtod(number, NULL);
        count++;
    }
    return count == 1 ? value : NAN;
}

int state_case_log_count(struct state_case *c, const char *word)
{
    char *text, *rest;
    size_t bytes;
    int count = 0;
    if (fs_read_file(
                scratch_path(&c->scratch, "log"), SIZE_MAX, &text, &bytes) !=
        ZD_OK)
        abort();
    rest = text;
    for (char *line; (line = strsep(&rest, "\n"));)
        count += strstr(line, word) != NULL;
    free(text);
    return count;
}
