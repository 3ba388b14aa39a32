#include "base/must.h"
#include "cases.h"
#include "run.h"

#include "kernels/backend.h"

#include <stdlib.h>
#include <string.h>

/* On a CPU the most that any instruction set asks for: runners are of each. */
static size_t scratch_for(const struct attention_shape *shape, int which)
{
    static const char *const isas[] = {
            "base", "avx2", "avx512", "avx512bf16", "amx"};
    enum dtype dtype = pair_enter(which)->dtype;
    const struct runner *r = pair_runner(which);
    size_t most = r->attention_floats ? r->attention_floats(shape) : 0;
    if (r->device)
        return attention_scratch_bytes(shape, dtype, DEVICE_CUDA);
    for (int i = 0; i < 5; i++) {
        const struct cpu_backend *b = kernels_backend(isas[i], dtype);
        size_t floats = b ? b->attention_floats(shape) : 0;
        most = floats > most ? floats : most;
    }
    return most * sizeof(float);
}

static size_t most_scratch(const struct attention_shape *shape)
{
    int more = pair_runner(1)->threads >= pair_runner(0)->threads;
    size_t x = scratch_for(shape, more), y = scratch_for(shape, !more);
    /* asked for the larger number of threads last: it has parts for each */
    size_t z = scratch_for(shape, more);
    return x > y ? (x > z ? x : z) : (y > z ? y : z);
}

/* Scores are up to 30 or so, so that a cap of 5 bends most of them. */
static void attention_share_run(
        int T, int H, int KV, int D, bool documents, int window, float softcap,
        struct attention_queries queries)
{
    enum dtype type = pair_type();
    int B = 2;
    struct attention_shape s = {
            .B = B,
            .T = T,
            .H = H,
            .KV = KV,
            .D = D,
            .q_stride = (H + 2 * KV) * D,
            .k_stride = (H + 2 * KV) * D,
            .v_stride = (H + 2 * KV) * D,
            .scale = 1.0f / sqrtf((float)D),
            .window = window,
            .softcap = softcap,
            .queries = queries};
    size_t rows = (size_t)B * (size_t)T, fused = rows * (size_t)s.q_stride;
    struct attention_queries all = attention_queries(&s);
    size_t outs = rows * (size_t)(H * D), bytes = dtype_bytes(type);
    ZD_FREED int32_t *list = calloc(rows, sizeof *list);
    for (int i = 0; documents && i < B * all.rows; i++) {
        int t = attention_token(all, i % all.rows);
        int step = i < all.rows ? 13 : 150;
        list[i] = t / step * step;
    }
    pairs_begin();
    struct pair starts = pair_of_ints(list, rows);
    struct pair q = pair_of(type, fused, 2.0f, 1), k = q, v = q;
    struct pair dout = pair_of(type, outs, 1.0f, 2);
    struct pair out = pair_of(type, outs, 1.0f, 3);
    struct pair lse = pair_of(DTYPE_FP32, rows * (size_t)H, 1.0f, 4);
    struct pair dq = pair_of(type, fused, 1.0f, 5), dk = dq, dv = dq;
    size_t scratch_bytes = most_scratch(&s);
    struct pair scratch = pair_of_zeros(scratch_bytes);
    for (int i = 0; i < 2; i++) {
        if (!pair_runner(i)->device) /* NaN wherever it is read first */
            memset(scratch.of[i], 0xff, scratch_bytes);
        size_t k_at = (size_t)(H * D) * bytes;
        size_t v_at = k_at + (size_t)(KV * D) * bytes;
        k.of[i] = (char *)q.of[i] + k_at, v.of[i] = (char *)q.of[i] + v_at;
        dk.of[i] = (char *)dq.of[i] + k_at, dv.of[i] = (char *)dq.of[i] + v_at;
    }
    RUN(attention_forward(
            NULL, &(struct attention){
                          &s, q.of[r], k.of[r], v.of[r], starts.of[r],
                          scratch.of[r], out.of[r], lse.of[r]}));
    struct pair o = pair_of_first(&out), l = pair_of_first(&lse);
    RUN(attention_backward(
            NULL, &(struct attention){
                          &s, q.of[r], k.of[r], v.of[r], starts.of[r],
                          scratch.of[r], o.of[r], l.of[r], dout.of[r], dq.of[r],
                          dk.of[r], dv.of[r]}));
    PAIRS_COMPARE(out, lse, dq);
}

static void attention_run(
        int T, int H, int KV, int D, bool documents, int window, float softcap)
{
    struct attention_queries all = {0};
    attention_share_run(T, H, KV, D, documents, window, softcap, all);
}

void attention_case(void)
{
    static const int widths[] = {16, 40, 64, 128};
    for (int i = 0; i < 8; i++)
        attention_run(37, i & 1 ? 3 : 6, 3, widths[i / 2], i & 1, 0, 0);
    attention_run(301, 3, 1, 16, false, 0, 0);
    attention_run(301, 2, 2, 40, true, 0, 0);
    attention_run(193, 1, 1, 20, false, 0, 0);
}

/* Windows of one token, within a block of keys, over the end of blocks and
 * beyond the sample; within documents; caps; heads of every width. */
void window_case(void)
{
    static const struct {
        int T, H, KV, D, window;
        bool documents;
        float softcap;
    } shapes[] = {
            {37, 2, 1, 16, 1, false, 0},    {301, 2, 1, 40, 7, false, 0},
            {301, 2, 2, 64, 100, false, 5}, {450, 1, 1, 20, 97, true, 0},
            {450, 2, 1, 24, 192, false, 0}, {129, 2, 1, 80, 33, true, 5},
            {65, 4, 2, 96, 64, false, 50},  {65, 1, 1, 112, 65, false, 0},
            {70, 2, 1, 128, 20, true, 30},  {97, 2, 1, 256, 24, false, 50},
            {33, 1, 1, 320, 9, false, 5},   {301, 3, 3, 16, 1000, true, 5},
            {12, 1, 1, 512, 0, false, 5},   {203, 6, 2, 64, 0, true, 2},
            {29, 4, 2, 37, 3, true, 2},     {130, 2, 1, 192, 33, false, 0},
            {300, 2, 1, 64, 1, false, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        attention_run(
                shapes[i].T, shapes[i].H, shapes[i].KV, shapes[i].D,
                shapes[i].documents, shapes[i].window, shapes[i].softcap);
}

/* A place's tokens: halves of a few and of many tiles, that end within one. */
void attention_share_case(void)
{
    static const struct {
        int T, places, H, KV, D, window;
        bool documents;
        float softcap;
    } shapes[] = {
            {36, 2, 2, 1, 16, 0, false, 0},    {36, 3, 2, 2, 40, 5, true, 0},
            {392, 2, 2, 1, 64, 0, true, 0},    {280, 4, 2, 1, 24, 97, false, 5},
            {228, 3, 1, 1, 128, 0, false, 0},  {200, 2, 1, 1, 96, 40, true, 0},
            {72, 4, 2, 1, 256, 24, false, 50}, {48, 2, 2, 1, 320, 0, true, 5},
            {40, 2, 1, 1, 20, 0, false, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int place = 0; place < shapes[i].places; place++)
            attention_share_run(
                    shapes[i].T, shapes[i].H, shapes[i].KV, shapes[i].D,
                    shapes[i].documents, shapes[i].window, shapes[i].softcap,
                    attention_share(shapes[i].T, shapes[i].places, place));
}

void decode_case(void)
{
    enum dtype type = pair_type();
    pairs_begin();
    for (int i = 0; i < 6; i++) {
        int n = i & 1 ? 37 : 1, past = i * 40, H = 6, KV = 3;
        int D = i < 2 ? 40 : i < 4 ? 64 : 160, stride = H * D + 8;
        size_t cache = (size_t)(past + n) * (size_t)(KV * D);
        struct pair q = pair_of(type, (size_t)(n * stride), 2.0f, 1);
        struct pair k = pair_of(type, cache, 2.0f, 2);
        struct pair v = pair_of(type, cache, 1.0f, 3);
        struct pair out = pair_of(type, (size_t)(n * H * D), 1.0f, 4);
        struct attention_shape s = {
                .H = H, .KV = KV, .D = D, .q_stride = stride, .scale = 0.2f};
        for (int j = 0; j < 4; j++) { /* window, cap, both */
            s.window = j & 1 ? 1 + 30 * i : 0;
            s.softcap = j & 2 ? 2.0f : 0.0f;
            RUN(attention_decode(
                    NULL,
                    &(struct attention){
                            &s, q.of[r], k.of[r], v.of[r], .out = out.of[r]},
                    n, past));
            pair_compare(out);
        }
    }
}
