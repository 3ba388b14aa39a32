/* update_cuda.cu - Adam-mini, Lion and SGD on a GPU, and which code updates a
 * span there. */
#include "optim/update_cuda.cuh"

extern "C" {
#include "optim/device_cuda.h"
}

enum zd_status update_launch_others(
        const struct update_args *args, enum optim_name name)
{
    const enum optim_format *lane = args->span.layout.lane;
    if (lane[OPTIM_V] == OPTIM_BLOCKS)
        return update_launch_m<RULE_ADAM_MINI, OPTIM_BLOCKS>(args);
    if (name == OPTIM_LION)
        return update_launch_m<RULE_LION, OPTIM_NONE>(args);
    if (lane[OPTIM_M] != OPTIM_NONE)
        return update_launch_m<RULE_MOMENTUM, OPTIM_NONE>(args);
    return update_launch<RULE_SGD, OPTIM_NONE, OPTIM_NONE>(args);
}

static enum zd_status launch(
        const struct update_args *args, enum optim_name name)
{
    enum optim_format v = args->span.layout.lane[OPTIM_V];
    if (v == OPTIM_NONE || v == OPTIM_BLOCKS)
        return update_launch_others(args, name);
    return update_launch_adamw(args);
}

/* May four elements be read at once, from every array? */
static bool arrays_are_aligned(const struct optim_span *span)
{
    uintptr_t bits = (uintptr_t)span->master | (uintptr_t)span->grad |
                     (uintptr_t)span->param;
    for (int lane = 0; lane < OPTIM_LANES; lane++)
        bits |= (uintptr_t)span->lanes.state[lane];
    return bits % 16 == 0;
}

/* 16-bit weights into the front of fp32 gradients: the weights of qblocks a ..
 * b lie over gradients a/2 .. b/2, so each launch takes as many as have been
 * read before it. */
static enum zd_status launch_doubling(
        struct update_args *args, enum optim_name name)
{
    size_t end = args->end;
    for (size_t first = 0, next = 1; first < end; first = next, next *= 2) {
        args->first = first;
        args->end = next < end ? next : end;
        ZD_TRY(launch(args, name));
    }
    return ZD_OK;
}

extern "C" enum zd_status optim_update_cuda(
        const struct optim_span *span, const struct optim_step *step)
{
    struct update_args args = {};
    args.span = *span;
    args.factors = optim_factors_of(span, step);
    args.seed = step->seed;
    args.t = step->t;
    args.end = (span->count + OPTIM_QBLOCK - 1) / OPTIM_QBLOCK;
    args.is_aligned = arrays_are_aligned(span);
    if (span->layout.lane[OPTIM_V] == OPTIM_BLOCKS)
        args.blocks = *span->blocks;
    args.span.blocks = NULL;
    assert(span->begin % OPTIM_QBLOCK == 0);
    if (!span->count)
        return ZD_OK;
    bool narrows = span->param == span->grad &&
                   dtype_bytes(span->param_type) < dtype_bytes(span->grad_type);
    return narrows ? launch_doubling(&args, step->options->name)
                   : launch(&args, step->options->name);
}
