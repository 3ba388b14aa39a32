/* train_cpu.c - tokens/s and model FLOP/s of whole training steps on the CPU.
 *
 *   train_cpu [--dtype fp32|bf16] [--B 4] [--T 256] [--steps 8] [--threads 2]
 *             [--layers 12] [--width 768] [--family gpt2|llama]
 *
 * The shape is GPT-2's 124M (12 layers, 768 wide, vocabulary 50257, tied) or a
 * llama of that width (a third of the heads for keys and values, SwiGLU of 8/3
 * of the width, no biases), random weights, random tokens, fp32 AdamW, clipping
 * at 1.0: the step of `zerod --job` as a user runs it, including data loading
 * and metrics, on one rank. The first two steps are a warm-up; reports the
 * median of the others. bench/peers/torch_train.py runs the same work in
 * PyTorch. */
#include "base/file/fs.h"
#include "base/number/rng.h"
#include "model/files/config.h"
#include "train/train.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WARM = 2, VOCABULARY = 50257, HEAD = 64, STEPS_MAX = 1000 };

struct timing {
    double seconds[STEPS_MAX];
    int count;
    double last_loss;
    const char *kernels;
    struct train_step_report last;
};

static void on_step(void *ctx, const struct train_step_report *report)
{
    struct timing *timing = ctx;
    if (report->step > WARM && timing->count < STEPS_MAX)
        timing->seconds[timing->count++] = report->step_seconds;
    timing->last = *report;
}

static void on_banner(void *ctx, const struct train_banner *banner)
{
    struct timing *timing = ctx;
    timing->kernels = banner->kernels;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static enum zd_status write_tokens(const char *path, size_t count)
{
    uint16_t *tokens = malloc(count * sizeof *tokens);
    if (!tokens)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    for (size_t i = 0; i < count; i++)
        tokens[i] = (uint16_t)(rng_u64(1, 2, i) % VOCABULARY);
    enum zd_status status = fs_write_file(path, tokens, count * sizeof *tokens);
    free(tokens);
    return status;
}

struct shape {
    enum dtype dtype;
    int B, T, steps, threads, layers, width;
    bool is_llama;
};

static json_t *config_of(const struct shape *shape)
{
    int positions = shape->T > 1024 ? shape->T : 1024;
    int heads = shape->width / HEAD;
    if (!shape->is_llama)
        return json_pack(
                "{s:s, s:i, s:i, s:i, s:i, s:i}", "model_type", "gpt2",
                "vocab_size", VOCABULARY, "n_embd", shape->width, "n_layer",
                shape->layers, "n_head", heads, "n_positions", positions);
    return json_pack(
            "{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:b}",
            "model_type", "llama", "vocab_size", VOCABULARY, "hidden_size",
            shape->width, "num_hidden_layers", shape->layers,
            "num_attention_heads", heads, "num_key_value_heads",
            heads % 3 ? heads : heads / 3, "intermediate_size",
            shape->width * 8 / 3, "max_position_embeddings", positions,
            "rms_norm_eps", 1e-6, "rope_theta", 1e4, "tie_word_embeddings", 1);
}

static enum zd_status train(
        const struct shape *shape, const char *dir, struct timing *timing)
{
    char data[256], out[256], cache[256];
    struct train_job job = train_job_default();
    struct data_entry entry = data_entry_default();
    struct comm *comm;
    struct train_observer observer = {
            .ctx = timing, .step = on_step, .banner = on_banner};
    size_t per_step = (size_t)shape->B * (size_t)shape->T;

    snprintf(data, sizeof data, "%s/tokens.bin", dir);
    snprintf(out, sizeof out, "%s/out", dir);
    snprintf(cache, sizeof cache, "%s/cache", dir);
    ZD_TRY(write_tokens(data, per_step * (size_t)shape->steps + 1));
    entry.path = data;
    entry.format = DATA_NANOGPT;
    job.job.name = "train_cpu";
    job.job.output_dir = out;
    job.run.resume = RESUME_NEVER;
    job.device.cpu_threads = shape->threads;
    job.model.config = config_of(shape);
    job.data.cache_dir = cache;
    job.data.cutoff_len = shape->T;
    job.data.train = &entry;
    job.data.train_count = 1;
    job.train.max_steps = shape->steps;
    job.train.per_device_train_batch_size = shape->B;
    job.train.dtype = shape->dtype;
    job.train.gradient_checkpointing.mode = CHECKPOINTING_NONE;
    job.optim.learning_rate = 3e-4;
    job.eval.eval_strategy = EVAL_NO;
    job.sample.steps = 0;
    job.checkpoint.save_strategy = SAVE_NO;
    job.checkpoint.export = EXPORT_NONE;
    job.log.rank_logs = RANK_LOGS_NONE;
    job.log.step_breakdown = true;
    ZD_TRY(comm_local_create(1, &job.comm, &comm));
    enum zd_status status = train_run(&job, comm, &observer);
    comm_destroy(comm);
    json_decref(job.model.config);
    return status;
}

static void report(const struct shape *shape, struct timing *timing)
{
    struct model_config config;
    struct param_table table;
    json_t *json = config_of(shape);
    const struct train_step_report *last = &timing->last;

    qsort(timing->seconds, (size_t)timing->count, sizeof(double), ascending);
    double median = timing->seconds[timing->count / 2];
    double tokens = (double)shape->B * shape->T / median;
    if (model_config_parse(json, "bench", ZD_ERR_BUG, &config) != ZD_OK ||
        param_table_build(&config, NULL, 0, &table) != ZD_OK)
        return;
    double flops = model_flops_per_token(&config, &table, shape->T);
    printf("zerod %s %s B=%d T=%d threads=%d: %.1f tokens/s, %.1f model "
           "GFLOP/s, step %.3f s (min %.3f, max %.3f, %d steps), last loss "
           "%.4f\n",
           shape->is_llama ? "llama" : "gpt2", dtype_name(shape->dtype),
           shape->B, shape->T, shape->threads, tokens, tokens * flops * 1e-9,
           median, timing->seconds[0], timing->seconds[timing->count - 1],
           timing->count, last->loss);
    printf("  last step: data %.3f forward %.3f backward %.3f reduce %.3f "
           "update %.3f gather %.3f s\n",
           last->data_seconds, last->forward_seconds, last->backward_seconds,
           last->reduce_seconds, last->update_seconds, last->gather_seconds);
    param_table_fini(&table);
    model_config_fini(&config);
    json_decref(json);
}

static enum dtype parse_dtype(const char *name)
{
    if (strcmp(name, "fp32") == 0)
        return DTYPE_FP32;
    if (strcmp(name, "bf16") == 0)
        return DTYPE_BF16;
    fprintf(stderr, "--dtype is fp32 or bf16, not %s\n", name);
    exit(64);
}

static bool parse_family(const char *name)
{
    if (strcmp(name, "gpt2") == 0 || strcmp(name, "llama") == 0)
        return name[0] == 'l';
    fprintf(stderr, "--family is gpt2 or llama, not %s\n", name);
    exit(64);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
            {"dtype", required_argument, NULL, 'd'},
            {"B", required_argument, NULL, 'B'},
            {"T", required_argument, NULL, 'T'},
            {"steps", required_argument, NULL, 's'},
            {"threads", required_argument, NULL, 't'},
            {"layers", required_argument, NULL, 'l'},
            {"width", required_argument, NULL, 'w'},
            {"family", required_argument, NULL, 'f'},
            {0}};
    struct shape shape = {
            .dtype = DTYPE_FP32,
            .B = 4,
            .T = 256,
            .steps = 8,
            .threads = 2,
            .layers = 12,
            .width = 768};
    static struct timing timing;
    char dir[] = "/tmp/zerod-bench-XXXXXX";
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'd':
            shape.dtype = parse_dtype(optarg);
            break;
        case 'B':
            shape.B = atoi(optarg);
            break;
        case 'T':
            shape.T = atoi(optarg);
            break;
        case 's':
            shape.steps = atoi(optarg);
            break;
        case 't':
            shape.threads = atoi(optarg);
            break;
        case 'l':
            shape.layers = atoi(optarg);
            break;
        case 'w':
            shape.width = atoi(optarg);
            break;
        case 'f':
            shape.is_llama = parse_family(optarg);
            break;
        default:
            return 64;
        }
    }
    if (shape.B < 1 || shape.T < 1 || shape.steps <= WARM ||
        shape.steps > STEPS_MAX || shape.layers < 1 || shape.width < HEAD ||
        shape.width % HEAD) {
        fprintf(stderr,
                "B, T, layers from 1; width in multiples of %d; steps from %d "
                "to %d\n",
                HEAD, WARM + 1, STEPS_MAX);
        return 64;
    }
    if (!mkdtemp(dir))
        return 74;
    struct zd_log_options quiet = {.level = ZD_LOG_WARNING, .rank = 0};
    zd_log_configure(&quiet);
    enum zd_status status = train(&shape, dir, &timing);
    fs_remove_tree(dir);
    if (status == ZD_OK)
        report(&shape, &timing);
    else
        zd_error_print(stderr, zd_error_get());
    return zd_exit_code(status);
}
