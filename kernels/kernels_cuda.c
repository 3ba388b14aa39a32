#include "kernels/attention/attention_cuda.h"
#include "kernels/kernels.h"
#include "kernels/matmul/matmul_cuda.h"

#include <pthread.h>
#include <stdio.h>

#define OP(op) extern op##_fn *const op##_cuda[];
KERNELS_EACH(OP)
OP(head_norm_rope_forward)
OP(head_norm_rope_backward)
#undef OP

static struct kernels own_table(enum dtype dtype)
{
    return (struct kernels){
            .dtype = dtype,
            .logits_dtype = dtype, /* logits and dlogits share memory */
            .adds_narrow = true,
            .matmul = matmul_cuda,
            .add_losses = add_losses_cuda,
#define OP(op) .op = op##_cuda[dtype],
            KERNELS_EACH(OP) OP(head_norm_rope_forward)
                    OP(head_norm_rope_backward)
#undef OP
    };
}

enum zd_status kernels_cuda(enum dtype dtype, const struct kernels **table_out)
{
    /* One table per type. Later calls, also by ranks that are threads, write
     * the same values again; the GPUs of a process are alike. */
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct kernels tables[DTYPE_FP16 + 1];
    static char names[DTYPE_FP16 + 1][96];
    const char *products, *attention;
    struct kernels table = own_table(dtype);
    attention_fn *by_library;
    ZD_TRY(matmul_cuda_open(&products));
    ZD_TRY(attention_cuda_choose(dtype, &by_library, &attention));
    if (by_library)
        table.attention_forward = table.attention_backward = by_library;

    pthread_mutex_lock(&lock);
    ZD_PRINT(
            names[dtype], "cuda %s (%s, %s)", dtype_name(dtype), products,
            attention);
    table.name = names[dtype];
    tables[dtype] = table;
    pthread_mutex_unlock(&lock);
    *table_out = &tables[dtype];
    return ZD_OK;
}
