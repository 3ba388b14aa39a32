/* fast_table.c - the fast paths of one instruction set and type, by name. For
 * AMX only attention is compiled; its table takes every other operation from
 * OTHERS_ISA. */
#include "kernels/attention/attention_cpu.h"
#include "kernels/backend.h"
#include "kernels/matmul/matmul_cpu.h"

#ifdef OTHERS_ISA
#define OTHERS(op) JOIN4(op, _cpu_, bf16_, OTHERS_ISA)
attention_forward_fn FAST(attention_forward);
attention_backward_fn FAST(attention_backward);
size_t OTHERS(gemm_scratch_bytes)(int threads);
#pragma GCC diagnostic ignored "-Woverride-init"
#else
#define OTHERS FAST
#endif

#define OP(op) op##_fn OTHERS(op);
KERNELS_EACH(OP)
OP(matmul)
#undef OP

const struct cpu_backend FAST(backend) = {
        .ops = {.dtype = ELEM_DTYPE,
                .logits_dtype = DTYPE_FP32,
                .add_losses = add_losses_cpu,
                .matmul = OTHERS(matmul),
#define OP(op) .op = OTHERS(op),
                KERNELS_EACH(OP)
#undef OP
#ifdef OTHERS_ISA
                .attention_forward = FAST(attention_forward),
                .attention_backward = FAST(attention_backward),
#endif
        },
        .attention_floats = FAST(attention_floats),
        .gemm_scratch_bytes = OTHERS(gemm_scratch_bytes),
};
