/* attention_cudnn.c - see attention_cudnn.h. */
#include "kernels/attention/attention_cudnn.h"

#include "base/device/device_cuda.h"
#include "base/log.h"
#include "kernels/attention/attention_packed.h"
#include "kernels/attention/cudnn_door.h"

#include <pthread.h>
#include <stdatomic.h>

/* --- a pass --------------------------------------------------------------- */

/* Told once for a shape: what attention_choose expected cuDNN to do. */
static void warn_declined(const struct cudnn_attention *a, const char *why)
{
    zd_log_warning(
            "attention: our own kernels, which are slower, do the %s of B=%d "
            "T=%d H=%d KV=%d D=%d%s; cuDNN: %s",
            a->dq ? "backward" : "forward", a->shape->B, a->shape->T,
            a->shape->H, a->shape->KV, a->shape->D,
            a->documents.bucket ? ", packed" : "", why);
}

/* Once for each reason that has to do with documents; the others are those of
 * attention_cuda_choose. */
static void tell_refusal(const char *why)
{
    static const char *_Atomic told;
    if (atomic_exchange(&told, why) != why)
        zd_log_info("attention: our own kernels where cuDNN is not: %s", why);
}

static void set_workspace(struct cudnn_attention *a, void *scratch)
{
    const struct attention_shape *s = a->shape;
    size_t own = attention_own_scratch_bytes(s);
    size_t all = s->scratch_bytes ? s->scratch_bytes
                                  : attention_cuda_scratch_bytes(s, a->dtype);
    a->workspace = (char *)scratch + own;
    a->workspace_bytes = all > own ? all - own : 0;
}

static struct cudnn_documents tables_at(
        const int32_t *tables, const struct packed_room *room)
{
    const int32_t *at[PACKED_TABLES];
    for (int i = 0; i < PACKED_TABLES; i++)
        at[i] = tables ? tables + (size_t)i * room->plane : NULL;
    return (struct cudnn_documents){
            .bucket = room->bucket,
            .lengths = at[PACKED_LENGTHS],
            .q = at[PACKED_Q],
            .k = at[PACKED_K],
            .v = at[PACKED_V],
            .out = at[PACKED_OUT],
            .kv = at[PACKED_KV],
            .lse = at[PACKED_LSE],
    };
}

/* Packed documents: tables before the graph, and its results behind it put
 * where ours lie. Nothing is read that the graph does not have when it
 * declines. */
static enum zd_status run_packed(
        struct stream *stream, struct cudnn_attention *a, bool *done,
        const char **why)
{
    void *on = device_cuda_stream(stream);
    const struct attention_shape *s = a->shape;
    int direction = a->dq ? ATTENTION_BACKWARD : ATTENTION_FORWARD;
    struct packed_room room = attention_packed_room(s, direction);
    char *base = a->workspace;
    void *results[] = {a->dq, a->dk, a->dv};
    a->documents = tables_at((int32_t *)base, &room);
    *why = NULL;
    if (a->workspace_bytes < room.graph) {
        tell_refusal("it wants more memory than in proportion to the tokens");
        return ZD_OK;
    }
    a->workspace = base + room.graph;
    a->workspace_bytes -= room.graph;
    size_t asked;
    if (cudnn_attention_bytes(a, &asked) && asked <= a->workspace_bytes) {
        ZD_TRY(attention_packed_tables(
                on, (int32_t *)base, &room, s, a->dq != NULL));
        if (a->dq && s->B > 1) {
            float *by_head = (float *)(base + room.lse);
            ZD_TRY(attention_packed_lse(on, by_head, a->lse, s));
            a->lse = by_head;
        }
    }
    bool moves = a->dq && room.graph > room.dq;
    if (moves) {
        a->dq = base + room.dq;
        a->dk = base + room.dk;
        a->dv = base + room.dv;
    }
    ZD_TRY(cudnn_attention_run(on, a, done, why));
    if (*done && moves)
        ZD_TRY(attention_packed_results(
                on, results, (const void *const[]){a->dq, a->dk, a->dv}, s));
    return ZD_OK;
}

static enum zd_status run(
        struct stream *stream, struct cudnn_attention *a, void *scratch,
        bool *done)
{
    const char *why = NULL;
    int direction = a->dq ? ATTENTION_BACKWARD : ATTENTION_FORWARD;
    struct attention_facts facts = attention_cuda_facts(a->dtype);
    struct attention_answer answer = attention_choose(a->shape, &facts);
    *done = false;
    if (answer.engine[direction] != ATTENTION_BY_CUDNN) {
        tell_refusal(answer.why[direction]);
        return ZD_OK;
    }
    set_workspace(a, scratch);
    if (!answer.is_packed)
        ZD_TRY(cudnn_attention_run(device_cuda_stream(stream), a, done, &why));
    else if (a->shape->first_tokens)
        ZD_TRY(run_packed(stream, a, done, &why));
    if (why)
        warn_declined(a, why);
    return ZD_OK;
}
static enum zd_status forward(
        enum dtype dtype, attention_forward_fn *own, struct stream *stream,
        void *out, float *lse, const void *q, const void *k, const void *v,
        const int32_t *doc_start, void *scratch,
        const struct attention_shape *shape)
{
    struct cudnn_attention a = {
            .dtype = dtype,
            .shape = shape,
            .q = q,
            .k = k,
            .v = v,
            .out = out,
            .lse = lse,
    };
    bool done;
    ZD_TRY(run(stream, &a, scratch, &done));
    return done ? ZD_OK
                : own(stream, out, lse, q, k, v, doc_start, scratch, shape);
}

static enum zd_status backward(
        enum dtype dtype, attention_backward_fn *own, struct stream *stream,
        void *dq, void *dk, void *dv, const void *dout, const void *out,
        const float *lse, const void *q, const void *k, const void *v,
        const int32_t *doc_start, void *scratch,
        const struct attention_shape *shape)
{
    struct cudnn_attention a = {
            .dtype = dtype,
            .shape = shape,
            .q = q,
            .k = k,
            .v = v,
            .dout = dout,
            .out = (void *)out, /* read only, here */
            .dq = dq,
            .dk = dk,
            .dv = dv,
            .lse = (float *)lse,
            .deterministic = kernels_attention() != ATTENTION_CUDNN,
    };
    bool done;
    ZD_TRY(run(stream, &a, scratch, &done));
    return done ? ZD_OK
                : own(stream, dq, dk, dv, dout, out, lse, q, k, v, doc_start,
                      scratch, shape);
}

#define CUDNN(type, TYPE)                                                      \
    static enum zd_status attention_forward_cudnn_##type(                      \
            struct stream *stream, void *out, float *lse, const void *q,       \
            const void *k, const void *v, const int32_t *doc_start,            \
            void *scratch, const struct attention_shape *shape)                \
    {                                                                          \
        return forward(                                                        \
                DTYPE_##TYPE, CUDA_NAME(attention_forward, type), stream, out, \
                lse, q, k, v, doc_start, scratch, shape);                      \
    }                                                                          \
    static enum zd_status attention_backward_cudnn_##type(                     \
            struct stream *stream, void *dq, void *dk, void *dv,               \
            const void *dout, const void *out, const float *lse,               \
            const void *q, const void *k, const void *v,                       \
            const int32_t *doc_start, void *scratch,                           \
            const struct attention_shape *shape)                               \
    {                                                                          \
        return backward(                                                       \
                DTYPE_##TYPE, CUDA_NAME(attention_backward, type), stream, dq, \
                dk, dv, dout, out, lse, q, k, v, doc_start, scratch, shape);   \
    }
CUDNN(bf16, BF16)
CUDNN(fp16, FP16)
#undef CUDNN

void attention_cudnn_take(enum dtype dtype, struct attention_pair *pair)
{
    if (dtype == DTYPE_BF16) {
        pair->forward = attention_forward_cudnn_bf16;
        pair->backward = attention_backward_cudnn_bf16;
    } else {
        pair->forward = attention_forward_cudnn_fp16;
        pair->backward = attention_backward_cudnn_fp16;
    }
}

/* --- the plan ------------------------------------------------------------- */

/* Plans of one process ask for few shapes; a search for what would fit asks for
 * thousands, and a graph takes up to a second to be built. */
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
           k->scale == s->scale && known->facts.dtype == f->dtype &&
           known->facts.choice == f->choice;
}

static size_t ask_direction(
        const struct attention_shape *s, const struct attention_facts *f,
        const struct attention_answer *answer, int direction)
{
    struct packed_room room = {0};
    struct cudnn_attention a = {
            .dtype = f->dtype,
            .shape = s,
            .deterministic = f->choice != ATTENTION_CUDNN,
    };
    size_t asked, bound = answer->work_bytes[direction];
    if (answer->engine[direction] != ATTENTION_BY_CUDNN)
        return 0;
    if (answer->is_packed)
        room = attention_packed_room(s, direction);
    a.documents.bucket = room.bucket;
    a.dq = direction == ATTENTION_BACKWARD ? &a : NULL;
    if (!cudnn_attention_bytes(&a, &asked))
        return 0; /* declined: a run says why */
    asked += room.graph;
    return asked < 2 * bound ? asked : 0; /* more than O(T): declined too */
}

static size_t ask(
        const struct attention_shape *s, const struct attention_facts *f)
{
    struct attention_shape cases[] = {*s, attention_packed_case(s)};
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
