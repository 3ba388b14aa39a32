#include "kernels/attention/attention_mma.cuh"

template enum zd_status mma_forward<fp16>(
        cudaStream_t, const attention_pass<fp16> &);
template enum zd_status mma_backward<fp16>(
        cudaStream_t, const attention_pass<fp16> &);
