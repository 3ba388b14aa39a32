#include "kernels/attention/attention_cuda.h"

#include "zd_config.h"

/* Set at start, before a plan is made. */
static _Atomic int chosen = ATTENTION_AUTO;

void kernels_set_attention(enum attention_choice choice)
{
    chosen = choice;
}

enum attention_choice kernels_attention(void)
{
    return (enum attention_choice)chosen;
}

static size_t whole_lines(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* delta of every row; what lies behind it begins at a whole line. */
size_t attention_own_scratch_bytes(const struct attention_shape *shape)
{
    size_t rows = (size_t)shape->B * (size_t)shape->H * (size_t)shape->T;
    return whole_lines(rows * sizeof(float));
}

/* Of cuDNN's backward: dq in fp32, two sums of a row, and dk and dv of every
 * query head where heads share theirs; T in whole tiles of 128. What a graph
 * asks beyond it makes us decline the graph. */
static size_t cudnn_scratch_bytes(const struct attention_shape *shape)
{
    size_t T = ((size_t)shape->T + 127) / 128 * 128;
    size_t rows = (size_t)shape->B * (size_t)shape->H * T;
    size_t row = ((size_t)shape->D + 2) * sizeof(float);
    if (shape->KV != shape->H)
        row += 2 * (size_t)shape->D * 2;
    return rows * row + (1 << 20);
}

size_t attention_cuda_scratch_bytes(
        const struct attention_shape *shape, enum dtype dtype)
{
    size_t bytes = attention_own_scratch_bytes(shape);
    bool may_be_cudnn = ZD_HAVE_CUDNN && chosen != ATTENTION_OWN &&
                        dtype != DTYPE_FP32 && shape->D % 8 == 0;
    return may_be_cudnn ? bytes + cudnn_scratch_bytes(shape) : bytes;
}
