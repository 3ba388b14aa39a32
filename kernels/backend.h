/* backend.h - the fast paths as compiled for one instruction set and type. */
#pragma once

#include "kernels/kernels.h"
#include "kernels/quant/quant.h"

struct cpu_backend {
    struct kernels ops; /* name is not set */
    /* Floats of scratch that attention needs on the threads now set. */
    size_t (*attention_floats)(const struct attention_shape *shape);
    /* Bytes that our own matmul borrows on so many threads. */
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

/* The fast paths for "base", "avx2", "avx512" or "avx512bf16", or NULL where
 * this machine cannot run them or this build has none: for tests, which try
 * them all. */
const struct cpu_backend *kernels_backend(const char *isa, enum dtype dtype);
