/* internal.h - what the files of the stand-in for cuBLASLt share. */
#ifndef ZD_TESTS_CUDA_CUBLASLT_INTERNAL_H
#define ZD_TESTS_CUDA_CUBLASLT_INTERNAL_H

#include "tests/cuda/cublaslt/cublaslt_standin.h"
#include "tests/cuda/stand_in/stand_in.h"

#include <cublasLt.h>

namespace cublaslt
{

/* With the defaults and sizes of cublasLt.h's attributes. */
struct desc {
    uint32_t magic;
    int32_t compute, scale, pointer_mode, trans_a, trans_b;
    uint32_t epilogue;
    const void *bias;
    int64_t bias_stride;
    int32_t bias_type;
    void *aux;
    int64_t aux_ld, aux_stride;
    int32_t aux_type;
    int32_t sm_target;
};

struct layout {
    uint32_t magic;
    uint32_t type;
    int32_t order;
    uint64_t rows, columns;
    int64_t ld;
    int32_t batch;
    int64_t stride;
};

struct preference {
    uint32_t magic;
    uint32_t search, schemes;
    uint64_t workspace, implementations;
    uint32_t alignment[4];
};

/* One product: copies, because descriptors may change before it runs. */
struct call {
    struct desc desc;
    struct layout a, b, c, d;
    const void *alpha, *beta;
    float alpha_value,
            beta_value; /* of pointer mode HOST, when it was queued */
    const void *a_data, *b_data, *c_data;
    void *d_data, *workspace;
    size_t workspace_bytes;
    int algorithm;
    bool is_slow;
};

inline size_t type_bytes(uint32_t type)
{
    return type == CUDA_R_32F ? 4 : 2;
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

void read_scalars(struct call *call);
/* On the stream's thread. Arrays that the device cannot reach make it fail for
 * good, as a GPU would. */
void product(const struct call &call);

} // namespace cublaslt

#endif
