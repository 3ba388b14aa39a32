#include "kernels/attention/attention_mma.cuh"

template enum zd_status mma_forward<bf16>(
        cudaStream_t, const attention_pass<bf16> &);
template enum zd_status mma_backward<bf16>(
        cudaStream_t, const attention_pass<bf16> &);
