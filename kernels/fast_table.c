#include "kernels/cpu/fast.h"
#include "kernels/plain.h"

const struct cpu_backend FAST(backend) = {
        .ops = {.dtype = ELEM_DTYPE,
                .logits_dtype = DTYPE_FP32,
                .add_losses = add_losses_cpu,
#define OP(op) .op = FAST(op),
                KERNELS_EACH(OP)
#undef OP
        },
        .attention_floats = FAST(attention_floats),
        .gemm_scratch_bytes = FAST(gemm_scratch_bytes),
};
