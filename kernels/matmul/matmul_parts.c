#include "kernels/matmul/matmul.h"

enum zd_status matmul_by_parts(
        const struct matmul_parts *parts, struct stream *stream,
        const struct matmul *m)
{
    struct matmul plain = *m;
    size_t count = (size_t)m->M * (size_t)m->N;
    plain.epilogue = MATMUL_PLAIN;
    plain.aux = NULL; /* a GPU's plan depends on its alignment */
    if (m->epilogue == MATMUL_GELU)
        plain.out.data = m->aux;
    ZD_TRY(parts->matmul(stream, &plain));
    switch (m->epilogue) {
    case MATMUL_GELU:
        return parts->gelu_forward(stream, m->out.data, m->aux, count);
    case MATMUL_DGELU:
        return parts->gelu_backward(
                stream, m->out.data, m->out.data, m->aux, count);
    case MATMUL_SUM_A:
        return parts->reduce_rows(
                stream, m->aux, m->a.data, m->K, m->M, m->accumulate);
    case MATMUL_SUM_B:
        return parts->reduce_rows(
                stream, m->aux, m->b.data, m->K, m->N, m->accumulate);
    default:
        return ZD_OK;
    }
}
