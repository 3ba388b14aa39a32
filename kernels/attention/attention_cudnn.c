/* attention_cudnn.c - see attention_cudnn.h. */
#include "kernels/attention/attention_cudnn.h"

#include "base/device/device_cuda.h"
#include "base/device/device_memory.h"
#include "base/log.h"
#include "kernels/attention/attention_packed.h"
#include "kernels/attention/cudnn_door.h"
#include "kernels/matmul/matmul_cuda.h"

#include <pthread.h>
#include <stdatomic.h>

/* --- a pass --------------------------------------------------------------- */

/* Warns, once per shape, that cuDNN declined what attention_choose expected it
 * to compute. */
static void warn_declined(const struct cudnn_attention *a, const char *why)
{
    const struct attention_shape *s = a->of.shape;
    zd_log_warning(
            "attention: our own, slower kernels run the %s of B=%d "
            "T=%d H=%d KV=%d D=%d%s; cuDNN: %s",
            a->of.dq ? "backward" : "forward", s->B, s->T, s->H, s->KV, s->D,
            a->documents.bucket ? ", packed" : "", why);
}

/* Logs each reason once. */
static void tell_refusal(const char *why)
{
    enum { REASONS = 32 };
    static const char *_Atomic told[REASONS];
    for (int i = 0; i < REASONS; i++) {
        const char *known = NULL;
        if (atomic_compare_exchange_strong(&told[i], &known, why)) {
            zd_log_info("attention: our own kernels instead of cuDNN: %s", why);
            return;
        }
        if (known == why)
            return;
    }
}

static void set_workspace(struct cudnn_attention *a)
{
    const struct attention_shape *s = a->of.shape;
    size_t own = attention_own_scratch_bytes(s), all = s->scratch_bytes;
    struct attention_facts facts = attention_cuda_facts(a->dtype);
    if (all == 0)
        all = own + attention_cudnn_bytes(s, &facts);
    a->workspace = (char *)a->of.scratch + own;
    a->workspace_bytes = all > own ? all - own : 0;
}

/* A pass as the caller requested it. */
struct pass {
    attention_fn *own; /* by our own kernels */
    struct stream *stream;
    struct cudnn_attention asked;
};

static int direction_of(const struct pass *pass)
{
    return pass->asked.of.dq ? ATTENTION_BACKWARD : ATTENTION_FORWARD;
}

/* --- a graph's first results -----------------------------------------------
 */

/* Allowed distance from our own results, in units of the type's rounding.
 * Gradients get more: if the keys of a document are similar, a gradient is the
 * small difference of large sums. A graph that mixes up documents, or writes
 * nothing, is off by about 1. */
static bool is_near(const struct pass *pass, float worst, bool is_result)
{
    float unit = pass->asked.dtype == DTYPE_BF16 ? 0x1p-8f : 0x1p-11f;
    return worst <= unit * (is_result ? 8 : 64);
}

enum { COMPARED = 3 }; /* out and lse; dq, dk and dv */

struct comparison {
    int count;
    struct {
        enum dtype dtype;
        struct packed_rows own, got;
        int heads, D;
        int64_t tokens;
    } arrays[COMPARED];
};

static void *beyond(const void *array, size_t elements)
{
    return array ? (char *)(uintptr_t)array + elements * 2 : NULL;
}

/* The pass over sample `b` alone, with shape `s`. */
static struct attention sample_of(
        const struct attention *a, int b, const struct attention_shape *s)
{
    size_t token = (size_t)b * (size_t)s->T, row = (size_t)(s->H * s->D);
    size_t q = token * (size_t)s->q_stride, k = token * (size_t)s->k_stride;
    size_t v = token * (size_t)s->v_stride;
    return (struct attention){
            .shape = s,
            .q = beyond(a->q, q),
            .k = beyond(a->k, k),
            .v = beyond(a->v, v),
            .doc_start = a->doc_start + token,
            .scratch = a->scratch,
            .out = beyond(a->out, token * row),
            .lse = a->lse + token * (size_t)s->H,
            .dout = beyond(a->dout, token * row),
            .dq = beyond(a->dq, q),
            .dk = beyond(a->dk, k),
            .dv = beyond(a->dv, v)};
}

/* Computes our own results of a sample, to compare with cuDNN's in `got`. They
 * go to the workspace; with `in_place` (gradients of rows with gaps, where
 * cuDNN's are in the room), to the caller's arrays. */
static enum zd_status own_sample(
        const struct pass *pass, const struct cudnn_attention *got, int b,
        bool in_place, struct comparison *out)
{
    enum dtype type = got->dtype;
    struct attention_shape s = *got->of.shape;
    struct attention one = sample_of(&pass->asked.of, b, &s);
    int64_t T = s.T, q = (int64_t)s.H * s.D, kv = (int64_t)s.KV * s.D;
    size_t q_bytes = ((size_t)(T * q) * 2 + 255) / 256 * 256;
    size_t kv_bytes = ((size_t)(T * kv) * 2 + 255) / 256 * 256;
    size_t of_q = (size_t)(b * T * q), of_kv = (size_t)(b * T * kv);
    char *room = got->workspace;
    s.B = 1;
    s.documents = 0;
    s.first_tokens = NULL;
    if (!one.dq) {
        const void *theirs = one.out, *lse = one.lse;
        one.out = room;
        one.lse = (float *)(void *)(room + q_bytes);
        *out = (struct comparison){
                2,
                {{type, {one.out, q}, {theirs, q}, s.H, s.D, T},
                 {DTYPE_FP32, {one.lse, 1}, {lse, 1}, 1, 1, T * s.H}}};
        return pass->own(pass->stream, &one);
    }
    if (!in_place) {
        one.dq = room;
        one.dk = room + q_bytes;
        one.dv = room + q_bytes + kv_bytes;
    }
    struct packed_rows dq = {beyond(got->of.dq, of_q), q};
    struct packed_rows dk = {beyond(got->of.dk, of_kv), kv};
    struct packed_rows dv = {beyond(got->of.dv, of_kv), kv};
    *out = (struct comparison){
            3,
            {{type, {one.dq, s.q_stride}, dq, s.H, s.D, T},
             {type, {one.dk, s.k_stride}, dk, s.KV, s.D, T},
             {type, {one.dv, s.v_stride}, dv, s.KV, s.D, T}}};
    return pass->own(pass->stream, &one);
}

enum verdict { UNDECIDED, AGREES, DIFFERS };

/* Compares and waits for the device. `worst`: device memory that the graph no
 * longer uses. */
static enum zd_status judge(
        const struct pass *pass, const struct comparison *c, float *worst,
        enum verdict *verdict)
{
    float found[COMPARED];
    bool is_decided = true;
    void *on = device_cuda_stream(pass->stream);
    for (int i = 0; i < c->count; i++)
        ZD_TRY(attention_packed_compare(
                on, worst + i, c->arrays[i].dtype, c->arrays[i].own,
                c->arrays[i].got, c->arrays[i].heads, c->arrays[i].D,
                c->arrays[i].tokens));
    ZD_TRY(device_read(found, worst, (size_t)c->count * sizeof *found));
    for (int i = 0; i < c->count; i++) {
        is_decided = is_decided && found[i] >= 0;
        if (!is_near(pass, found[i], !pass->asked.of.dq))
            *verdict = DIFFERS;
    }
    if (is_decided && *verdict == UNDECIDED)
        *verdict = AGREES;
    return ZD_OK;
}

/* At a graph's first use, compares its results with our own kernels'. If the
 * results decide nothing (all zeros, not finite), the next use compares. */
static enum zd_status check(
        const struct pass *pass, const struct cudnn_attention *got,
        char *tables, bool in_place, enum verdict *verdict)
{
    struct comparison c;
    float *worst = (float *)(void *)tables;
    *verdict = UNDECIDED;
    for (int b = 0; b < got->of.shape->B; b++) {
        ZD_TRY(own_sample(pass, got, b, in_place, &c));
        ZD_TRY(judge(pass, &c, worst, verdict));
    }
    if (*verdict != UNDECIDED)
        cudnn_attention_checked(got, *verdict == AGREES);
    return ZD_OK;
}

/* --- packed documents ------------------------------------------------------
 */

/* Builds the tables, runs the graph, and copies its results to the caller's
 * arrays. If the graph is going to decline, the tables are not built. */
static enum zd_status run_packed(
        const struct pass *pass, struct cudnn_attention *a, bool *done,
        const char **why)
{
    void *on = device_cuda_stream(pass->stream);
    struct attention *of = &a->of;
    const struct attention_shape *s = of->shape;
    int direction = direction_of(pass);
    struct packed_room room = attention_packed_room(s, direction);
    char *base = a->workspace;
    void *results[] = {of->dq, of->dk, of->dv};
    a->documents = (struct cudnn_documents){
            room.bucket, (const int32_t *)base, room.plane};
    *why = NULL;
    if (a->workspace_bytes < room.graph + attention_check_bytes(s, direction)) {
        tell_refusal("its memory is not proportional to the tokens");
        return ZD_OK;
    }
    a->workspace = base + room.graph;
    a->workspace_bytes -= room.graph;
    size_t asked;
    if (cudnn_attention_bytes(a, &asked) && asked <= a->workspace_bytes) {
        ZD_TRY(attention_packed_tables(
                on, (int32_t *)base, &room, s, of->dq != NULL));
        if (of->dq && s->B > 1) {
            float *by_head = (float *)(base + room.lse);
            ZD_TRY(attention_packed_lse(on, by_head, of->lse, s));
            of->lse = by_head;
        }
    }
    bool moves = of->dq && room.graph > room.dq;
    if (moves) {
        of->dq = base + room.dq;
        of->dk = base + room.dk;
        of->dv = base + room.dv;
    }
    enum cudnn_outcome outcome;
    ZD_TRY(cudnn_attention_run(on, a, &outcome, why));
    *done = outcome != CUDNN_DECLINED;
    if (outcome == CUDNN_UNCHECKED) {
        enum verdict verdict;
        ZD_TRY(check(pass, a, base, moves, &verdict));
        *done = verdict != DIFFERS;
        *why = *done ? NULL : "its results differ from our kernels'";
    }
    if (*done && moves)
        ZD_TRY(attention_packed_results(
                on, results, (const void *const[]){of->dq, of->dk, of->dv}, s));
    return ZD_OK;
}

/* --- which of the two ----------------------------------------------------- */

/* *done is false if cuDNN declines or its results are wrong. */
static enum zd_status run_cudnn(
        const struct pass *pass, bool is_packed, bool *done)
{
    const char *why = NULL;
    struct cudnn_attention a = pass->asked;
    *done = false;
    set_workspace(&a);
    if (!is_packed) {
        enum cudnn_outcome outcome;
        ZD_TRY(cudnn_attention_run(
                device_cuda_stream(pass->stream), &a, &outcome, &why));
        *done = outcome != CUDNN_DECLINED;
    } else if (a.of.shape->first_tokens)
        ZD_TRY(run_packed(pass, &a, done, &why));
    if (why)
        warn_declined(&a, why);
    return ZD_OK;
}

struct timed_pass {
    const struct pass *pass;
    bool is_packed;
};

static enum zd_status run_way(const void *work, int way, bool *refused_out)
{
    const struct timed_pass *timed = work;
    const struct pass *pass = timed->pass;
    bool done = true;
    if (way == 0)
        ZD_TRY(run_cudnn(pass, timed->is_packed, &done));
    else
        ZD_TRY(pass->own(pass->stream, &pass->asked.of));
    *refused_out = !done;
    return ZD_OK;
}

/* What the time of a pass depends on, in the fields of a matmul's key. */
static struct matmul_key way_key(const struct pass *pass, bool is_packed)
{
    const struct attention_shape *s = pass->asked.of.shape;
    return (struct matmul_key){
            .m = s->B,
            .n = s->T,
            .k = s->D,
            .lda = s->H,
            .ldb = s->KV,
            .ldd = attention_slides(s) ? s->window : 0,
            .dtype = pass->asked.dtype,
            .out_type = is_packed ? attention_bucket(s) : 0,
            .epilogue = pass->asked.of.dq ? KEY_ATTENTION_BACKWARD
                                          : KEY_ATTENTION_FORWARD,
    };
}

static enum zd_status run(const struct pass *pass)
{
    int direction = direction_of(pass);
    struct attention_facts facts = attention_cuda_facts(pass->asked.dtype);
    struct attention_answer answer =
            attention_choose(pass->asked.of.shape, &facts);
    struct timed_pass timed = {pass, answer.is_packed};
    bool is_allowed = !*answer.why[direction];
    bool declined = false;
    int way = is_allowed ? 0 : 1;
    if (!is_allowed)
        tell_refusal(answer.why[direction]);
    else if (facts.choice == ATTENTION_AUTO)
        ZD_TRY(matmul_choose_way(
                pass->stream,
                &(struct two_ways){
                        way_key(pass, answer.is_packed), run_way, &timed},
                &way));
    ZD_TRY(run_way(&timed, way, &declined));
    return declined ? run_way(&timed, 1, &declined) : ZD_OK;
}

/* Forward and backward: a->dq says which. */
static enum zd_status run_type(
        enum dtype dtype, struct stream *stream, const struct attention *a)
{
    struct pass pass = {
            .own = a->dq ? attention_backward_cuda[dtype]
                         : attention_forward_cuda[dtype],
            .stream = stream,
            .asked = {
                    .of = *a,
                    .dtype = dtype,
                    .deterministic = kernels_attention() != ATTENTION_CUDNN}};
    return run(&pass);
}

static enum zd_status run_bf16(struct stream *stream, const struct attention *a)
{
    return run_type(DTYPE_BF16, stream, a);
}

static enum zd_status run_fp16(struct stream *stream, const struct attention *a)
{
    return run_type(DTYPE_FP16, stream, a);
}

attention_fn *attention_cudnn(enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? run_bf16 : run_fp16;
}

/* --- the plan ------------------------------------------------------------- */

/* Limits the graphs built for plans: a plan asks for few shapes, but a search
 * for what fits asks for thousands, and building one takes up to a second. */
enum { MOST_ASKED = 16 };

struct asked_shape {
    struct attention_shape shape;
    struct attention_facts facts;
    size_t bytes;
};

static bool is_same(
        const struct asked_shape *known, const struct attention_shape *s,
        const struct attention_facts *f)
{
    const struct attention_shape *k = &known->shape;
    return k->B == s->B && k->T == s->T && k->H == s->H && k->KV == s->KV &&
           k->D == s->D && k->q_stride == s->q_stride &&
           k->k_stride == s->k_stride && k->v_stride == s->v_stride &&
           k->scale == s->scale && k->window == s->window &&
           k->softcap == s->softcap && known->facts.dtype == f->dtype &&
           known->facts.choice == f->choice;
}

static size_t ask_direction(
        const struct attention_shape *s, const struct attention_facts *f,
        const struct attention_answer *answer, int direction)
{
    struct packed_room room = {0};
    struct cudnn_attention a = {
            .of.shape = s,
            .dtype = f->dtype,
            .deterministic = f->choice != ATTENTION_CUDNN,
    };
    size_t asked, bound = answer->work_bytes[direction];
    if (*answer->why[direction])
        return 0;
    if (answer->is_packed)
        room = attention_packed_room(s, direction);
    a.documents.bucket = room.bucket;
    a.of.dq = direction == ATTENTION_BACKWARD ? &a : NULL;
    if (!cudnn_attention_bytes(&a, &asked))
        return 0; /* declined: the run will say why */
    if (answer->is_packed) {
        size_t check = attention_check_bytes(s, direction);
        asked = (asked < check ? check : asked) + room.graph;
    }
    return asked < 2 * bound ? asked : 0; /* more than O(T): declined too */
}

static size_t ask(
        const struct attention_shape *s, const struct attention_facts *f)
{
    struct attention_shape cases[] = {*s, attention_packed_case(s, f)};
    size_t most = 0;
    cases[0].documents = s->B;
    for (int i = 0; i < 2; i++) {
        struct attention_answer answer = attention_choose(&cases[i], f);
        for (int j = 0; j < ATTENTION_DIRECTIONS; j++) {
            size_t bytes = ask_direction(&cases[i], f, &answer, j);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

size_t attention_cudnn_bytes(
        const struct attention_shape *shape,
        const struct attention_facts *facts)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct asked_shape known[MOST_ASKED];
    static int count;
    size_t bytes = attention_work_bound(shape, facts);
    if (bytes == 0)
        return 0;
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < count && !is_same(&known[i], shape, facts))
        i++;
    if (i == count && count < MOST_ASKED)
        known[count++] = (struct asked_shape){
                .shape = *shape, .facts = *facts, .bytes = ask(shape, facts)};
    if (i < count)
        bytes = known[i].bytes;
    pthread_mutex_unlock(&lock);
    return bytes;
}
