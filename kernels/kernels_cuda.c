#include "kernels/attention/attention_cuda.h"
#include "kernels/kernels.h"
#include "kernels/matmul/matmul_cuda.h"
#include "kernels/plain.h"

#include <pthread.h>
#include <stdio.h>

/* Logits and their gradients share memory, hence one type. */
#define TABLE(type, TYPE)                                                      \
    {                                                                          \
        .dtype = DTYPE_##TYPE, .logits_dtype = DTYPE_##TYPE,                   \
        KERNELS_EACH(OP_##TYPE).add_losses = add_losses_cuda,                  \
        .matmul = matmul_cuda,                                                 \
        .add_layernorm_forward = CUDA_NAME(add_layernorm_forward, type),       \
        .add_rmsnorm_forward = CUDA_NAME(add_rmsnorm_forward, type),           \
        .head_norm_rope_forward = CUDA_NAME(head_norm_rope_forward, type),     \
        .head_norm_rope_backward = CUDA_NAME(head_norm_rope_backward, type),   \
    }
#define OP_FP32(op) .op = CUDA_NAME(op, fp32),
#define OP_BF16(op) .op = CUDA_NAME(op, bf16),
#define OP_FP16(op) .op = CUDA_NAME(op, fp16),
static const struct kernels own_tables[] = {
        [DTYPE_FP32] = TABLE(fp32, FP32),
        [DTYPE_BF16] = TABLE(bf16, BF16),
        [DTYPE_FP16] = TABLE(fp16, FP16),
};
#undef OP_FP32
#undef OP_BF16
#undef OP_FP16
#undef TABLE

enum zd_status kernels_cuda(enum dtype dtype, const struct kernels **table_out)
{
    /* One table per type, filled again with the same values by later calls and
     * by ranks that are threads; GPUs of a process are alike. */
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct kernels tables[DTYPE_FP16 + 1];
    static char names[DTYPE_FP16 + 1][96];
    const char *products, *attention;
    struct kernels table = own_tables[dtype];
    struct attention_pair pair = {
            table.attention_forward, table.attention_backward};
    ZD_TRY(matmul_cuda_open(&products));
    ZD_TRY(attention_cuda_choose(dtype, &pair, &attention));
    table.attention_forward = pair.forward;
    table.attention_backward = pair.backward;

    pthread_mutex_lock(&lock);
    snprintf(
            names[dtype], sizeof names[dtype], "cuda %s (%s, %s)",
            dtype_name(dtype), products, attention);
    table.name = names[dtype];
    tables[dtype] = table;
    pthread_mutex_unlock(&lock);
    *table_out = &tables[dtype];
    return ZD_OK;
}
