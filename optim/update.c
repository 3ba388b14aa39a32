/* update.c - which code updates a span, and how a span is cut for threads. */
#include "optim/elements.h"
#include "optim/lanes.h"
#include "optim/simd.h"

static void *after(const void *array, size_t bytes)
{
    return array ? (char *)(uintptr_t)array + bytes : NULL;
}

/* Elements begin .. begin + count - 1 of a span; begin a multiple of 256. */
static struct optim_span part(
        const struct optim_span *span, size_t begin, size_t count)
{
    struct optim_span p = *span;
    p.master = after(p.master, begin * dtype_bytes(p.master_type));
    p.grad = after(p.grad, begin * dtype_bytes(p.grad_type));
    p.param = after(p.param, begin * dtype_bytes(p.param_type));
    p.lanes = optim_lanes_from(&p.layout, &p.lanes, begin);
    p.begin += begin;
    p.count = count;
    return p;
}

/* --- which code ----------------------------------------------------------- */

/* The vector code for a span, or NULL. */
static simd_adamw_fn *simd_adamw_of(
        const struct simd_code *code, const struct optim_span *span,
        const struct optim_step *step)
{
    const enum optim_format *lane = span->layout.lane;
    if (!code ||
        optim_rule_of(step->options, &span->layout) != OPTIM_RULE_ADAMW ||
        span->master_type != DTYPE_FP32 || lane[OPTIM_M] != lane[OPTIM_V])
        return NULL;
    if (lane[OPTIM_M] == OPTIM_8BIT)
        return code->adamw_8bit;
    return lane[OPTIM_M] == OPTIM_FP32 ? code->adamw_fp32 : NULL;
}

void optim_update(const struct optim_span *span, const struct optim_step *step)
{
    struct optim_span rest = *span;
    simd_adamw_fn *simd_adamw =
            simd_adamw_of(simd_code_of(isa_best()), span, step);
    if (simd_adamw) {
        struct optim_factors factors = optim_factors_of(span, step);
        size_t whole = span->count - span->count % OPTIM_QBLOCK;
        simd_adamw(span, &factors, whole);
        rest = part(span, whole, span->count - whole);
    }
    if (rest.count)
        optim_update_plain(&rest, step);
}

/* --- threads -------------------------------------------------------------- */

/* Elements of one turn of a thread: all arrays of it lie in a second-level
 * cache, and starting a thread costs far less than a turn. */
enum { TURN = 16384 };

static void update_turns(
        const struct optim_span *span, const struct optim_step *step,
        size_t begin, size_t end)
{
    size_t turns = (end - begin + TURN - 1) / TURN;
#pragma omp parallel for schedule(static) if (turns > 1)
    for (size_t turn = 0; turn < turns; turn++) {
        size_t at = begin + turn * TURN;
        struct optim_span p = part(span, at, end - at < TURN ? end - at : TURN);
        optim_update(&p, step);
    }
}

/* 16-bit weights into the front of fp32 gradients: the weights of elements
 * a .. b lie over gradients a/2 .. b/2, so each round of turns doubles what has
 * been read. */
static void update_rounds(
        const struct optim_span *span, const struct optim_step *step)
{
    for (size_t begin = 0, end = TURN; begin < span->count;
         begin = end, end *= 2)
        update_turns(span, step, begin, end < span->count ? end : span->count);
}

enum zd_status optim_update_threads(
        const struct optim_span *span, const struct optim_step *step)
{
    bool narrows = span->param == span->grad &&
                   dtype_bytes(span->param_type) < dtype_bytes(span->grad_type);
    if (narrows)
        update_rounds(span, step);
    else
        update_turns(span, step, 0, span->count);
    return ZD_OK;
}
