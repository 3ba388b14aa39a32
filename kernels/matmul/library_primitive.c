/* library_primitive.c - oneDNN's matmul primitives, for what sgemm does not
 * support: bf16 on a CPU with AMX tiles.
 *
 * oneDNN 2 and 3 create descriptors differently; only the first five functions
 * depend on the version.
 *
 * A primitive may run in several threads at once (ranks that are threads), so
 * each run passes its own scratchpad: the library's belongs to the thread that
 * created the primitive. */
#include "kernels/cpu/threads.h"
#include "kernels/matmul/library.h"
#include "kernels/matmul/scratch.h"

#include "zd_config.h"

#if ZD_HAVE_ONEDNN

#include <dnnl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static dnnl_status_t descriptor_init(
        dnnl_memory_desc_t *desc, const dnnl_dims_t dims, dnnl_data_type_t type,
        const dnnl_dims_t strides)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_memory_desc_create_with_strides(desc, 2, dims, type, strides);
#else
    return dnnl_memory_desc_init_by_strides(desc, 2, dims, type, strides);
#endif
}

static void descriptor_fini(dnnl_memory_desc_t *desc)
{
#if DNNL_VERSION_MAJOR >= 3
    dnnl_memory_desc_destroy(*desc);
#endif
}

static dnnl_status_t memory_create(
        dnnl_memory_t *memory, const dnnl_memory_desc_t *desc,
        dnnl_engine_t engine, const void *array)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_memory_create(memory, *desc, engine, (void *)(uintptr_t)array);
#else
    return dnnl_memory_create(memory, desc, engine, (void *)(uintptr_t)array);
#endif
}

/* desc: a, b, out, bias. */
static dnnl_status_t primitive_desc_create(
        dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
        const dnnl_memory_desc_t desc[4], bool has_bias,
        dnnl_primitive_attr_t attr)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_matmul_primitive_desc_create(
            pd, engine, desc[0], desc[1], has_bias ? desc[3] : NULL, desc[2],
            attr);
#else
    dnnl_matmul_desc_t op;
    dnnl_status_t status = dnnl_matmul_desc_init(
            &op, &desc[0], &desc[1], has_bias ? &desc[3] : NULL, &desc[2]);
    if (status != dnnl_success)
        return status;
    return dnnl_primitive_desc_create(pd, &op, attr, engine, NULL);
#endif
}

static size_t scratchpad_bytes(const_dnnl_primitive_desc_t pd)
{
    return dnnl_memory_desc_get_size(
            dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0));
}

/* Identifies a primitive. Compared as bytes, so padding must be zero. */
struct key {
    int M, N, K, stride, dtype, out_type; /* stride: between rows of a */
    int threads;
    bool trans_a, trans_b, accumulate, has_bias;
};

struct entry {
    struct entry *next;
    struct key key;
    dnnl_memory_desc_t desc[5]; /* a, b, out, bias, scratchpad */
    size_t scratch_bytes;       /* 0: no scratchpad */
    dnnl_primitive_t primitive; /* NULL: oneDNN has none for this CPU */
};

/* A training run has about twenty shapes; they are kept until the process ends.
 * Mutable globals, because operations have no object. */
static struct entry *entries;
static dnnl_engine_t engine;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static dnnl_data_type_t data_type(enum dtype type)
{
    return type == DTYPE_FP32   ? dnnl_f32
           : type == DTYPE_BF16 ? dnnl_bf16
                                : dnnl_f16;
}

static dnnl_status_t descriptors_init(struct entry *e)
{
    const struct key *k = &e->key;
    dnnl_data_type_t type = data_type((enum dtype)k->dtype);
    dnnl_dims_t dims[4] = {{k->M, k->K}, {k->K, k->N}, {k->M, k->N}, {1, k->N}};
    dnnl_dims_t strides[4] = {{k->stride, 1}, {k->N, 1}, {k->N, 1}, {k->N, 1}};
    dnnl_data_type_t types[4] = {
            type, type, data_type((enum dtype)k->out_type), type};
    if (k->trans_a)
        strides[0][0] = 1, strides[0][1] = k->stride;
    if (k->trans_b)
        strides[1][0] = 1, strides[1][1] = k->K;
    for (int i = 0; i < 4; i++) {
        dnnl_status_t status =
                descriptor_init(&e->desc[i], dims[i], types[i], strides[i]);
        if (status != dnnl_success) {
            while (i-- > 0)
                descriptor_fini(&e->desc[i]);
            return status;
        }
    }
    return dnnl_success;
}

/* Attributes: the caller's scratchpad, and the sum for accumulation. */
static dnnl_status_t attr_create(
        const struct key *key, dnnl_primitive_attr_t *attr)
{
    dnnl_post_ops_t ops;
    dnnl_status_t status = dnnl_primitive_attr_create(attr);
    if (status != dnnl_success)
        return status;
    status = dnnl_primitive_attr_set_scratchpad_mode(
            *attr, dnnl_scratchpad_mode_user);
    if (status != dnnl_success || !key->accumulate)
        return status;
    if ((status = dnnl_post_ops_create(&ops)) != dnnl_success)
        return status;
#if DNNL_VERSION_MAJOR >= 3
    status = dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_f32);
#else
    status = dnnl_post_ops_append_sum(ops, 1.0f);
#endif
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(*attr, ops);
    dnnl_post_ops_destroy(ops);
    return status;
}

static dnnl_status_t scratchpad_init(
        struct entry *e, const_dnnl_primitive_desc_t pd)
{
    size_t bytes = scratchpad_bytes(pd);
    dnnl_dims_t dims = {1, (dnnl_dim_t)bytes}, strides = {(dnnl_dim_t)bytes, 1};
    if (!bytes)
        return dnnl_success;
    dnnl_status_t status = descriptor_init(&e->desc[4], dims, dnnl_u8, strides);
    if (status == dnnl_success)
        e->scratch_bytes = bytes;
    return status;
}

static void entry_make(struct entry *e)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    if (!engine && dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success)
        return;
    if (descriptors_init(e) != dnnl_success)
        return;
    if (attr_create(&e->key, &attr) == dnnl_success &&
        primitive_desc_create(&pd, engine, e->desc, e->key.has_bias, attr) ==
                dnnl_success &&
        scratchpad_init(e, pd) == dnnl_success &&
        dnnl_primitive_create(&e->primitive, pd) != dnnl_success)
        e->primitive = NULL;
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
}

static const struct entry *entry_find(const struct key *key)
{
    pthread_mutex_lock(&lock);
    struct entry *e = entries;
    while (e && memcmp(&e->key, key, sizeof *key) != 0)
        e = e->next;
    if (!e && (e = calloc(1, sizeof *e))) {
        e->key = *key;
        entry_make(e);
        e->next = entries;
        entries = e;
    }
    pthread_mutex_unlock(&lock);
    return e;
}

/* arrays: a, b, out, bias, scratchpad; NULL: none. */
static dnnl_status_t entry_run(const struct entry *e, const void *arrays[5])
{
    static const int roles[5] = {
            DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS,
            DNNL_ARG_SCRATCHPAD};
    int count = 0;
    dnnl_exec_arg_t args[5];
    dnnl_stream_t stream = NULL;
    dnnl_status_t status =
            dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);
    for (int i = 0; status == dnnl_success && i < 5; i++) {
        if (!arrays[i])
            continue;
        args[count].arg = roles[i];
        status = memory_create(
                &args[count].memory, &e->desc[i], engine, arrays[i]);
        count += status == dnnl_success;
    }
    if (status == dnnl_success)
        status = dnnl_primitive_execute(e->primitive, stream, count, args);
    if (status == dnnl_success)
        status = dnnl_stream_wait(stream);
    while (count-- > 0)
        dnnl_memory_destroy(args[count].memory);
    if (stream)
        dnnl_stream_destroy(stream);
    return status;
}

static enum zd_status primitive_run(
        const struct key *key, const void *arrays[4])
{
    const struct entry *e = entry_find(key);
    if (!e || !e->primitive)
        return ZD_ERR_UNFIT;
    struct scratch *scratch = NULL;
    if (e->scratch_bytes)
        ZD_TRY(scratch_acquire(e->scratch_bytes, &scratch));
    dnnl_status_t refused = entry_run(
            e, (const void *[5]){
                       arrays[0], arrays[1], arrays[2], arrays[3],
                       scratch ? scratch_floats(scratch) : NULL});
    if (scratch)
        scratch_release(scratch);
    if (refused != dnnl_success)
        return ZD_FAIL(
                ZD_ERR_DEVICE, "E0612",
                "oneDNN refused a matmul of %d x %d x %d: status %d", key->M,
                key->N, key->K, (int)refused);
    return ZD_OK;
}

enum zd_status library_primitive(const struct matmul *m, int threads)
{
    struct key key;
    memset(&key, 0, sizeof key);
    key.M = m->M, key.N = m->N, key.K = m->K, key.stride = matmul_stride_a(m);
    key.dtype = (int)m->a.type, key.out_type = (int)m->out.type;
    key.threads = kernels_library_threads(threads);
    key.trans_a = m->a.transposed, key.trans_b = m->b.transposed;
    key.accumulate = m->accumulate, key.has_bias = m->bias != NULL;
    return primitive_run(
            &key,
            (const void *[4]){m->a.data, m->b.data, m->out.data, m->bias});
}

#else

enum zd_status library_primitive(const struct matmul *m, int threads)
{
    return ZD_ERR_UNFIT;
}

#endif
