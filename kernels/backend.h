/* backend.h - the fast CPU paths, compiled per instruction set and type. */
#pragma once

#include "kernels/kernels.h"
#include "kernels/quant/quant.h"

struct cpu_backend {
    struct kernels ops; /* name is not set */
    /* Floats of scratch that attention needs with the current number of
     * threads. */
    size_t (*attention_floats)(const struct attention_shape *shape);
    /* Bytes of scratch for our own matmul on this many threads. */
    size_t (*gemm_scratch_bytes)(int threads);
};

extern const struct cpu_backend backend_cpu_fp32_base;
extern const struct cpu_backend backend_cpu_bf16_base;
extern const struct cpu_backend backend_cpu_fp16_base;
extern const struct cpu_backend backend_cpu_fp32_avx2;
extern const struct cpu_backend backend_cpu_bf16_avx2;
extern const struct cpu_backend backend_cpu_fp16_avx2;
extern const struct cpu_backend backend_cpu_fp32_avx512;
extern const struct cpu_backend backend_cpu_bf16_avx512;
extern const struct cpu_backend backend_cpu_fp16_avx512;
extern const struct cpu_backend backend_cpu_bf16_avx512bf16;
extern const struct cpu_backend backend_cpu_bf16_amx;

/* The fast paths for "base", "avx2", "avx512", "avx512bf16" or "amx"; NULL if
 * this machine or this build does not have them. For tests, which try them all.
 */
const struct cpu_backend *kernels_backend(const char *isa, enum dtype dtype);
