/* attention_choice.c - see attention_choice.h. */
#include "kernels/attention/attention_choice.h"

#include <limits.h>

/* Documents with a mean length below this stay with our own kernels: a block of
 * cuDNN's kernels computes 64 or 128 rows of one document. */
enum { LEAST_TOKENS = 16 };

/* Allowance for work space beyond the arrays that cudnn-frontend counts. */
enum { SPARE_BYTES = 1 << 20 };

static size_t whole_lines(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static size_t tokens_of(const struct attention_shape *shape)
{
    return (size_t)shape->B * (size_t)shape->T;
}

size_t attention_own_scratch_bytes(const struct attention_shape *shape)
{
    size_t rows = (size_t)shape->B * (size_t)attention_queries(shape).rows;
    return whole_lines(rows * (size_t)shape->H * sizeof(float));
}

int attention_bucket(const struct attention_shape *shape)
{
    int bucket = 1;
    if ((size_t)shape->documents > tokens_of(shape) / LEAST_TOKENS)
        return 0;
    while (bucket < shape->documents)
        bucket *= 2;
    return bucket;
}

/* --- what is refused ------------------------------------------------------ */

typedef const char *refusal_fn(
        const struct attention_shape *s, const struct attention_facts *f,
        int direction);

static bool is_older(const struct attention_facts *f, int version)
{
    return f->cudnn && f->cudnn < version;
}

static const char *refuses_kind(
        const struct attention_shape *s, const struct attention_facts *f,
        int direction)
{
    if (f->choice == ATTENTION_OWN)
        return "model.attn = \"own\"";
    if (f->dtype == DTYPE_FP32)
        return "cuDNN has no fp32 attention";
    if (s->queries.rows)
        return "queries are some of the tokens alone";
    if (!f->has_cudnn)
        return "cuDNN is not available";
    if (f->major && f->major < 8)
        return "cuDNN's attention needs sm_80 or later";
    return NULL;
}

static const char *refuses_head(
        const struct attention_shape *s, const struct attention_facts *f,
        int direction)
{
    int most = 256;
    if (direction == ATTENTION_BACKWARD && f->major && f->major != 9)
        most = f->major == 10 && !is_older(f, 92300) && s->D == 256 ? 256 : 128;
    if (s->D % 8 != 0)
        return "the head size is not a multiple of 8";
    return s->D > most ? "its heads are wider than cuDNN supports here" : NULL;
}

/* UNTESTED: windows by cuDNN have not run on a GPU. */
static const char *refuses_scores(
        const struct attention_shape *s, const struct attention_facts *f,
        int direction)
{
    if (s->softcap > 0)
        return "cuDNN's attention has no soft cap";
    if (attention_slides(s) && is_older(f, 90600))
        return "sliding windows need cuDNN 9.6";
    return NULL;
}

static bool is_packed(const struct attention_shape *s)
{
    return s->documents > s->B;
}

/* Offsets are int32, in elements. */
static bool offsets_fit(const struct attention_shape *s)
{
    int64_t row = s->q_stride > s->k_stride ? s->q_stride : s->k_stride;
    if (row < s->v_stride)
        row = s->v_stride;
    if (row < (int64_t)s->H * s->D)
        row = (int64_t)s->H * s->D;
    return (int64_t)tokens_of(s) <= INT32_MAX / row;
}

/* The first version that accepts empty documents. */
enum { PADDED = 92500 };

/* From 9.6 on, and with D % 16 == 0, the work space of packed documents grows
 * with the tokens; before, and on sm_8x and sm_12x, with the longest document
 * times the number of documents. */
static const char *refuses_packed(
        const struct attention_shape *s, const struct attention_facts *f,
        int direction)
{
    if (s->documents == 0)
        return "the number of documents is unknown";
    if (!is_packed(s))
        return NULL;
    if (attention_bucket(s) == 0)
        return "documents have fewer than 16 tokens on average";
    if (!offsets_fit(s))
        return "the micro-batch is too large for cuDNN's offsets";
    if (is_older(f, 90600))
        return "samples of several documents need cuDNN 9.6";
    if (is_older(f, PADDED) && attention_bucket(s) != s->documents)
        return "documents without tokens, which fill a list to the next power "
               "of two, need cuDNN 9.25";
    if (direction == ATTENTION_BACKWARD && is_older(f, 91800))
        return "the backward of samples of several documents needs cuDNN 9.18";
    if (direction == ATTENTION_BACKWARD && s->D % 16 != 0)
        return "samples of several documents need a head size that is a "
               "multiple of 16";
    if (direction == ATTENTION_BACKWARD && (f->major == 8 || f->major == 12))
        return "cuDNN's backward of samples of several documents takes too "
               "much memory on sm_8x and sm_12x";
    return NULL;
}

static const char *refuses_order(
        const struct attention_shape *s, const struct attention_facts *f,
        int direction)
{
    if (direction != ATTENTION_BACKWARD)
        return NULL;
    if (f->cudnn == 91000 || f->cudnn == 91001)
        return "cuDNN 9.10.0 and 9.10.1 have a faulty backward";
    if (f->choice == ATTENTION_CUDNN)
        return NULL;
    if (f->major == 9 && is_older(f, 92500))
        return "on Hopper cuDNN sums dq in a fixed order within O(T) memory "
               "from 9.25 on";
    if (f->major == 10 && is_older(f, 91800))
        return "on Blackwell cuDNN sums dq in a fixed order from 9.18 on";
    return NULL;
}

static const char *refusal(
        const struct attention_shape *s, const struct attention_facts *f,
        int direction)
{
    refusal_fn *const checks[] = {
            refuses_kind, refuses_head, refuses_scores, refuses_packed,
            refuses_order};
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        const char *why = checks[i](s, f, direction);
        if (why)
            return why;
    }
    return "";
}

/* --- work space ----------------------------------------------------------- */

/* Whether rows of q, k and v are contiguous. cuDNN then writes packed gradients
 * in place; its sums in fp32 have the strides of the result, so it gets dense
 * rows otherwise. */
static bool rows_are_dense(const struct attention_shape *s)
{
    int64_t q = (int64_t)s->H * s->D, kv = (int64_t)s->KV * s->D;
    return s->q_stride == q && s->k_stride == kv && s->v_stride == kv;
}

struct packed_room attention_packed_room(
        const struct attention_shape *s, int direction)
{
    struct packed_room room = {.bucket = attention_bucket(s)};
    size_t tokens = tokens_of(s), at;
    size_t q = whole_lines(tokens * (size_t)s->H * (size_t)s->D * 2);
    size_t kv = whole_lines(tokens * (size_t)s->KV * (size_t)s->D * 2);
    room.plane = whole_lines(((size_t)room.bucket + 1) * sizeof(int32_t)) /
                 sizeof(int32_t);
    at = PACKED_TABLES * room.plane * sizeof(int32_t);
    if (direction == ATTENTION_BACKWARD) {
        room.lse = at;
        at += s->B > 1 ? attention_own_scratch_bytes(s) : 0;
        room.dq = at;
        room.dk = room.dq + q;
        room.dv = room.dk + kv;
        at = rows_are_dense(s) ? at : room.dv + kv;
    }
    room.graph = at;
    return room;
}

size_t attention_check_bytes(const struct attention_shape *s, int direction)
{
    size_t T = (size_t)s->T;
    size_t q = whole_lines(T * (size_t)s->H * (size_t)s->D * 2);
    size_t kv = whole_lines(T * (size_t)s->KV * (size_t)s->D * 2);
    if (direction == ATTENTION_FORWARD)
        return q + whole_lines(T * (size_t)s->H * sizeof(float));
    /* with gaps cuDNN's are in the room, so ours go to the caller's arrays */
    return rows_are_dense(s) ? q + 2 * kv : 0;
}

/* A backward needs dq in fp32, two sums per row, and with grouped queries dk
 * and dv of every query head (fp32 if documents are packed). Without packed
 * documents T is rounded up to tiles of 128. */
static size_t graph_bytes(const struct attention_shape *s, int direction)
{
    size_t T = (size_t)s->T, row = ((size_t)s->D + 2) * sizeof(float);
    if (direction == ATTENTION_FORWARD)
        return SPARE_BYTES;
    if (!is_packed(s))
        T = (T + 127) / 128 * 128;
    if (s->KV != s->H)
        row += 2 * (size_t)s->D * (is_packed(s) ? sizeof(float) : 2);
    return (size_t)s->B * (size_t)s->H * T * row + SPARE_BYTES;
}

struct attention_answer attention_choose(
        const struct attention_shape *shape,
        const struct attention_facts *facts)
{
    struct attention_answer answer = {.is_packed = is_packed(shape)};
    for (int i = 0; i < ATTENTION_DIRECTIONS; i++) {
        answer.why[i] = refusal(shape, facts, i);
        if (*answer.why[i])
            continue;
        answer.work_bytes[i] = graph_bytes(shape, i);
        if (!answer.is_packed)
            continue;
        size_t check = attention_check_bytes(shape, i);
        if (answer.work_bytes[i] < check)
            answer.work_bytes[i] = check;
        answer.work_bytes[i] += attention_packed_room(shape, i).graph;
    }
    return answer;
}

/* Versions that do not accept empty documents get a full bucket. */
struct attention_shape attention_packed_case(
        const struct attention_shape *shape,
        const struct attention_facts *facts)
{
    struct attention_shape packed = *shape;
    int most = (int)(tokens_of(shape) / LEAST_TOKENS), full = 1;
    while (2 * full <= most)
        full *= 2;
    packed.documents = is_older(facts, PADDED) ? full : most;
    return packed;
}

static size_t most_of(const struct attention_answer *answer)
{
    const size_t *bytes = answer->work_bytes;
    return bytes[0] > bytes[1] ? bytes[0] : bytes[1];
}

size_t attention_work_bound(
        const struct attention_shape *shape,
        const struct attention_facts *facts)
{
    struct attention_shape alone = *shape;
    struct attention_shape packed = attention_packed_case(shape, facts);
    alone.documents = alone.B;
    struct attention_answer one = attention_choose(&alone, facts);
    struct attention_answer many = attention_choose(&packed, facts);
    size_t a = most_of(&one), b = most_of(&many);
    return a > b ? a : b;
}
