/* internal.h - what the files of the stand-in for cuBLASLt share. */
#pragma once

#include "tests/cuda/cublaslt/cublaslt_standin.h"
#include "tests/cuda/stand_in/stand_in.h"

#include <cublasLt.h>

namespace cublaslt
{

/* With the defaults and sizes of cublasLt.h's attributes. */
struct desc {
    uint32_t magic;
    int32_t compute, scale, trans_a, trans_b;
    uint32_t epilogue;
    const void *bias;
    void *aux;
    int64_t aux_ld;
    int32_t sm_target;
    const void *a_scales, *b_scales;
    int32_t a_scale_mode, b_scale_mode;
    int8_t fast_accum;
};

struct layout {
    uint32_t magic;
    uint32_t type;
    uint64_t rows, columns;
    int64_t ld;
};

struct preference {
    uint32_t magic;
    uint32_t schemes;
    uint64_t workspace;
    uint32_t alignment[4];
};

/* One product: copies, because descriptors may change before it runs. */
struct call {
    struct desc desc;
    struct layout a, b, d; /* C is D, before */
    float alpha, beta;
    const void *a_data, *b_data;
    void *d_data, *workspace;
    size_t workspace_bytes;
    int algorithm;
    int capability; /* of the GPU: 90 is 9.0 */
    bool is_slow;
};

/* What cublasLtMatmulAlgo_t holds. */
struct algorithm {
    uint64_t magic;
    int32_t id, split;
    uint32_t scheme, alignment;
    uint64_t workspace, implementation;
    uint64_t types; /* that it was made for */
    uint64_t spare[2];
};
static_assert(sizeof(struct algorithm) == sizeof(cublasLtMatmulAlgo_t), "");

inline bool is_fp8(uint32_t type)
{
    return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

inline size_t type_bytes(uint32_t type)
{
    return type == CUDA_R_32F ? 4 : is_fp8(type) ? 1 : 2;
}

inline bool is_bgrad(uint32_t epilogue)
{
    return epilogue == CUBLASLT_EPILOGUE_BGRADA ||
           epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

inline bool has_aux(uint32_t epilogue)
{
    return epilogue == CUBLASLT_EPILOGUE_GELU_AUX ||
           epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
           epilogue == CUBLASLT_EPILOGUE_DGELU;
}

inline bool has_bias(uint32_t epilogue)
{
    return epilogue == CUBLASLT_EPILOGUE_BIAS || is_bgrad(epilogue) ||
           epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

inline bool is_aligned_to(const void *pointer, size_t alignment)
{
    return (uintptr_t)pointer % alignment == 0;
}

/* --- failures and counters (cublaslt_standin.cpp) ------------------------ */

struct failures {
    bool empty, refuse, no_bgrad, no_gelu, no_fp8_bias, create;
    bool slow_epilogue, slow_plain;
    uint64_t fail_at; /* products until one fails; 0: none */
};
const struct failures &asked_failures(void);
void count_heuristic(void);

/* --- attributes and descriptors (descriptors.cpp) ------------------------ */

/* One attribute: where it lies and how long it is. NULL: there is no such. */
struct place {
    void *at;
    size_t bytes;
};

template <typename T> struct place place_of(T *field)
{
    return {field, sizeof(T)};
}

cublasStatus_t read_place(
        struct place place, void *value, size_t bytes, size_t *written);

/* Copies what the handles stand for, and the thread's GPU; false: one of them
 * is none. */
bool gather(
        struct call *c, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
        cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t cc,
        cublasLtMatrixLayout_t d);

/* --- what is supported (support.cpp, algorithms.cpp) --------------------- */

/* Types, shapes and epilogue. */
cublasStatus_t check_call(const struct call &c);
/* The addresses, for an algorithm that wants operands so aligned. */
cublasStatus_t check_pointers(const struct call &c, size_t alignment);
struct algorithm algorithm_of(int id, const struct call &c);
/* Whether this algorithm can do it at all, whatever the pointers. */
cublasStatus_t check_algorithm(const struct algorithm &a, const struct call &c);

/* --- the product (product.cpp) ------------------------------------------- */

/* On the stream's thread. Arrays that the device cannot reach make it fail for
 * good, as a GPU would. */
void product(const struct call &call);

} // namespace cublaslt
