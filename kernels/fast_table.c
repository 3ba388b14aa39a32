/* fast_table.c - the fast paths of one instruction set and type, by name. */
#include "kernels/attention/attention_cpu.h"
#include "kernels/backend.h"
#include "kernels/matmul/matmul_cpu.h"

#define OP(op) op##_fn FAST(op);
KERNELS_EACH(OP)
OP(matmul)
#undef OP

const struct cpu_backend FAST(backend) = {
        .ops = {.dtype = ELEM_DTYPE,
                .logits_dtype = DTYPE_FP32,
                .add_losses = add_losses_cpu,
                .matmul = FAST(matmul),
#define OP(op) .op = FAST(op),
                KERNELS_EACH(OP)
#undef OP
        },
        .attention_floats = FAST(attention_floats),
        .gemm_scratch_bytes = FAST(gemm_scratch_bytes),
};
