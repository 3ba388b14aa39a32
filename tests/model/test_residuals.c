/* test_residuals - the residual stream visits the host between forward and
 * backward: the same bits as if it had stayed, the bytes that were planned. A
 * plain program (TAP) that runs under a thread sanitizer too. */
#include "tests/model/shapes.h"
#include "tests/model/tiny.h"
#include "tests/support/tap.h"

#include <math.h>
#include <unistd.h>

enum { B = 2, T = 13, MICROS = 3 };

struct streams_case {
    const char *name;
    bool given;
    enum stream_mode mode;
};

/* A slow way: who does not wait for it computes from what is not there. */
static void dawdle(void *ctx, int64_t microseconds)
{
    (void)ctx;
    usleep((useconds_t)microseconds);
}

static double slow_step(
        struct tiny *t, const struct model_batch *batches, int count,
        const struct model_streams *streams)
{
    stream_call(streams->down, dawdle, NULL, 3000);
    tiny_must(model_forward(t->model, batches, count, 0.1f, &t->hooks));
    stream_call(streams->up, dawdle, NULL, 3000);
    tiny_must(model_backward(t->model, &t->hooks));
    return tiny_loss(t);
}

/* Micro-batches, the last one smaller, with an evaluation between them; or all
 * of them by layer. */
static double train(struct tiny *t, const struct model_streams *streams)
{
    struct tokens tokens[MICROS];
    struct model_batch batches[MICROS];
    int at_once = t->shape.micros > 1 ? MICROS : 1;
    double sum = 0;
    tiny_step_begin(t);
    for (int m = 0; m < MICROS; m++) {
        int samples = m == MICROS - 1 ? 1 : B;
        tokens_fill(
                &tokens[m], (uint64_t)m + 1, samples, T, t->config.vocab_size);
        batches[m] = tokens[m].batch;
    }
    for (int m = 0; m < MICROS; m++) {
        if (m % at_once == 0)
            sum += slow_step(t, &batches[m], at_once, streams);
        sum += tiny_evaluate(t, &batches[m]);
    }
    return sum;
}

/* Of all micro-batches: segments but the last two, one way. By layer: but the
 * last one, and of the one before it the first micro-batch stays, too. */
static uint64_t predicted(const struct tiny *t, int segments)
{
    bool by_layer = t->shape.micros > 1;
    int stay = by_layer ? 1 : 2;
    int moved = segments > stay ? segments - stay : 0;
    size_t row = (size_t)t->config.hidden_size * dtype_bytes(t->shape.dtype);
    int samples = moved * ((MICROS - 1) * B + 1) - (by_layer && moved ? B : 0);
    return (uint64_t)samples * row * T;
}

struct run {
    const char *config, *freeze;
    struct checkpointing checkpointing;
    enum dtype dtype;
    int segments; /* that have a backward */
    bool by_layer;
};

static bool same_bits(const struct run *run, const struct streams_case *mode)
{
    const struct kernels *kernels = tiny_plain(run->dtype);
    struct tiny here, there;
    struct model_streams streams = {NULL, NULL}, none = {NULL, NULL};
    if (mode->given) {
        tiny_must(stream_create("down", mode->mode, &streams.down));
        tiny_must(stream_create("up", mode->mode, &streams.up));
    }
    struct model_shape shape = tiny_shape(B, T, run->checkpointing);
    shape.dtype = run->dtype;
    shape.micros = run->by_layer ? MICROS : 1;
    tiny_init(&here, run->config, run->freeze, &shape, kernels);
    shape.offload_activations = true;
    tiny_init(&there, run->config, run->freeze, &shape, kernels);
    model_set_streams(there.model, &streams);
    double a = train(&here, &none), b = train(&there, &streams);
    struct model_offload_report report = model_offload_report_take(there.model);
    struct model_offload_report again = model_offload_report_take(there.model);
    uint64_t bytes = predicted(&there, run->segments);
    bool same = isfinite(a) && a == b && tiny_same_grads(&here, &there);
    bool counted = report.down_bytes == bytes && report.up_bytes == bytes &&
                   again.down_bytes == 0 && again.up_bytes == 0 &&
                   again.wait_seconds == 0;
    if (!same || !counted)
        printf("# %s %s: same %d, %llu and %llu bytes of %llu\n", mode->name,
               run->freeze ? run->freeze : "all trained", same,
               (unsigned long long)report.down_bytes,
               (unsigned long long)report.up_bytes, (unsigned long long)bytes);
    if (mode->given && mode->mode == STREAM_THREAD && bytes)
        counted = counted && report.wait_seconds > 0;
    tiny_fini(&there);
    tiny_fini(&here);
    stream_destroy(streams.down);
    stream_destroy(streams.up);
    return same && counted;
}

static void every_mode_gives_the_same_bits(void)
{
    static const struct streams_case modes[] = {
            {"no streams", false, STREAM_INLINE},
            {"inline streams", true, STREAM_INLINE},
            {"streams that are threads", true, STREAM_THREAD}};
    /* clang-format off */
    static const struct run runs[] = {
            {"gpt2", NULL, {CHECKPOINTING_FULL, 0}, DTYPE_FP32, 5},
            {"llama", NULL, {CHECKPOINTING_FULL, 0}, DTYPE_FP32, 5},
            {"qwen3", NULL, {CHECKPOINTING_FULL, 0}, DTYPE_BF16, 5},
            {"llama", NULL, {CHECKPOINTING_EVERY, 1}, DTYPE_BF16, 5},
            {"gpt2", NULL, {CHECKPOINTING_EVERY, 2}, DTYPE_FP32, 3},
            {"gpt2", NULL, {CHECKPOINTING_SQRT, 0}, DTYPE_FP32, 3},
            {"gpt2", NULL, {CHECKPOINTING_EVERY, 3}, DTYPE_FP32, 2},
            {"gpt2", NULL, {CHECKPOINTING_EVERY, 9}, DTYPE_FP32, 1},
            /* the tables, and the layers 1 to 2 below them */
            {"gpt2", "wte", {CHECKPOINTING_FULL, 0}, DTYPE_FP32, 5},
            {"gpt2", "[wh]*[e01].*", {CHECKPOINTING_FULL, 0}, DTYPE_FP32, 3},
            {"gpt2", "[wh]*[e012].*", {CHECKPOINTING_FULL, 0}, DTYPE_FP32, 2},
            {"gpt2", "[wh]*", {CHECKPOINTING_FULL, 0}, DTYPE_FP32, 0},
            {"gpt2", NULL, {CHECKPOINTING_FULL, 0}, DTYPE_FP32, 5, true},
            {"llama", NULL, {CHECKPOINTING_EVERY, 2}, DTYPE_BF16, 3, true},
            {"qwen3", NULL, {CHECKPOINTING_EVERY, 3}, DTYPE_FP32, 2, true},
            {"gpt2", NULL, {CHECKPOINTING_EVERY, 9}, DTYPE_FP32, 1, true},
            {"gpt2", "[wh]*[e01].*", {CHECKPOINTING_FULL}, DTYPE_FP32, 3, true},
            {"gpt2", "[wh]*", {CHECKPOINTING_FULL, 0}, DTYPE_FP32, 0, true},
    };
    /* clang-format on */
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
        bool same = true;
        for (size_t r = 0; r < sizeof runs / sizeof *runs; r++)
            same = same_bits(&runs[r], &modes[m]) && same;
        tap_ok(same, "as if nothing left, and as many bytes as predicted: %s",
               modes[m].name);
    }
}

struct bytes {
    size_t device, host;
};

static struct bytes planned(int layers, int every, bool offload)
{
    char text[160];
    struct tiny t;
    struct model_shape shape = tiny_shape(
            B, T, (struct checkpointing){CHECKPOINTING_EVERY, every});
    shape.dtype = DTYPE_BF16;
    shape.offload_activations = offload;
    ZD_PRINT(
            text,
            "{\"model_type\":\"gpt2\",\"vocab_size\":16,\"n_embd\":64,"
            "\"n_layer\":%d,\"n_head\":4,\"n_positions\":40}",
            layers);
    tiny_plan(&t, text, NULL, &shape);
    struct bytes bytes = {
            t.plan.bytes[ARENA_DEVICE], t.plan.bytes[ARENA_PINNED]};
    tiny_fini(&t);
    return bytes;
}

static void the_device_does_not_see_the_depth(void)
{
    size_t residual = (size_t)B * T * 64 * 2;
    struct bytes shallow = planned(3, 1, true), deep = planned(48, 1, true);
    tap_ok(shallow.device == deep.device && deep.host == 46 * residual,
           "the device holds two inputs whatever the depth");
    struct bytes kept = planned(48, 1, false);
    tap_ok(kept.host == 0 && kept.device == deep.device + 46 * residual,
           "what it no longer holds lies on the host");
    struct bytes parts = planned(48, 4, true);
    tap_ok(parts.host == 10 * residual, "of segments their inputs");
    struct bytes two = planned(2, 1, true), two_kept = planned(2, 1, false);
    tap_ok(two.host == 0 && two.device == two_kept.device,
           "two segments stay where they are");
}

int main(void)
{
    every_mode_gives_the_same_bits();
    the_device_does_not_see_the_depth();
    return tap_done();
}
