/* attention_cudnn.c - which attention a table on a GPU has: cuDNN's where it
 * can do a shape, else our own. */
#include "kernels/attention/attention_cuda.h"

#include "base/device/device_cuda.h"
#include "base/log.h"

#include "zd_config.h"

#include <stdatomic.h>
#include <stdio.h>

/* Once in a process. */
static void say_once(atomic_flag *said, const char *what, const char *why)
{
    if (!atomic_flag_test_and_set(said))
        zd_log_info("attention: %s%s", what, why);
}

#if ZD_HAVE_CUDNN
#include "kernels/attention/cudnn_door.h"

/* cuDNN knows nothing of documents within a sample. */
static bool may_try(const struct attention_shape *s)
{
    static atomic_flag several = ATOMIC_FLAG_INIT;
    if (s->documents == s->B)
        return s->D % 8 == 0;
    say_once(
            &several,
            "samples of several documents are done by our own kernels, "
            "not by cuDNN",
            "");
    return false;
}

/* Behind what our own kernels use. */
static void set_workspace(struct cudnn_attention *a, void *scratch)
{
    size_t own = attention_own_scratch_bytes(a->shape);
    a->workspace = (char *)scratch + own;
    a->workspace_bytes = attention_cuda_scratch_bytes(a->shape, a->dtype) - own;
}

/* Told once for a shape. On an H100 our own backward takes 3 to 4 times as long
 * as cuDNN's without a fixed order: 11 % of a step of Llama-3.2-1B at T = 4096,
 * 3 % of one of GPT-2 124M at T = 1024 (docs/gpu.md). */
static void warn_declined(const struct cudnn_attention *a, const char *why)
{
    zd_log_warning(
            "attention: our own kernels, which are slower, do the %s of B=%d "
            "T=%d H=%d KV=%d D=%d; cuDNN: %s%s",
            a->dq ? "backward" : "forward", a->shape->B, a->shape->T,
            a->shape->H, a->shape->KV, a->shape->D, why,
            a->dq && a->deterministic
                    ? "; cuDNN 9.25 needs less, and model.attn = \"cudnn\" sums "
                      "in no fixed order"
                    : "");
}

static enum zd_status run(
        struct stream *stream, struct cudnn_attention *a, void *scratch,
        bool *done)
{
    const char *why;
    *done = false;
    if (!may_try(a->shape))
        return ZD_OK;
    set_workspace(a, scratch);
    ZD_TRY(cudnn_attention_run(device_cuda_stream(stream), a, done, &why));
    if (why)
        warn_declined(a, why);
    return ZD_OK;
}

static enum zd_status forward(
        enum dtype dtype, attention_forward_fn *own, struct stream *stream,
        void *out, float *lse, const void *q, const void *k, const void *v,
        const int32_t *doc_start, void *scratch,
        const struct attention_shape *shape)
{
    struct cudnn_attention a = {
            .dtype = dtype,
            .shape = shape,
            .q = q,
            .k = k,
            .v = v,
            .out = out,
            .lse = lse,
    };
    bool done;
    ZD_TRY(run(stream, &a, scratch, &done));
    return done ? ZD_OK
                : own(stream, out, lse, q, k, v, doc_start, scratch, shape);
}

static enum zd_status backward(
        enum dtype dtype, attention_backward_fn *own, struct stream *stream,
        void *dq, void *dk, void *dv, const void *dout, const void *out,
        const float *lse, const void *q, const void *k, const void *v,
        const int32_t *doc_start, void *scratch,
        const struct attention_shape *shape)
{
    struct cudnn_attention a = {
            .dtype = dtype,
            .shape = shape,
            .q = q,
            .k = k,
            .v = v,
            .dout = dout,
            .out = (void *)out, /* read only, here */
            .dq = dq,
            .dk = dk,
            .dv = dv,
            .lse = (float *)lse,
            .deterministic = kernels_attention() != ATTENTION_CUDNN,
    };
    bool done;
    ZD_TRY(run(stream, &a, scratch, &done));
    return done ? ZD_OK
                : own(stream, dq, dk, dv, dout, out, lse, q, k, v, doc_start,
                      scratch, shape);
}

#define CUDNN(type, TYPE)                                                      \
    static enum zd_status attention_forward_cudnn_##type(                      \
            struct stream *stream, void *out, float *lse, const void *q,       \
            const void *k, const void *v, const int32_t *doc_start,            \
            void *scratch, const struct attention_shape *shape)                \
    {                                                                          \
        return forward(                                                        \
                DTYPE_##TYPE, CUDA_NAME(attention_forward, type), stream, out, \
                lse, q, k, v, doc_start, scratch, shape);                      \
    }                                                                          \
    static enum zd_status attention_backward_cudnn_##type(                     \
            struct stream *stream, void *dq, void *dk, void *dv,               \
            const void *dout, const void *out, const float *lse,               \
            const void *q, const void *k, const void *v,                       \
            const int32_t *doc_start, void *scratch,                           \
            const struct attention_shape *shape)                               \
    {                                                                          \
        return backward(                                                       \
                DTYPE_##TYPE, CUDA_NAME(attention_backward, type), stream, dq, \
                dk, dv, dout, out, lse, q, k, v, doc_start, scratch, shape);   \
    }
CUDNN(bf16, BF16)
CUDNN(fp16, FP16)
#undef CUDNN

static bool open_cudnn(const char **name_out, char *why, size_t why_bytes)
{
    static char name[64];
    const char *library;
    if (!cudnn_open(&library, why, why_bytes))
        return false;
    snprintf(name, sizeof name, "%s attention", library);
    *name_out = name;
    return true;
}

static void take_cudnn(enum dtype dtype, struct attention_pair *pair)
{
    if (dtype == DTYPE_BF16) {
        pair->forward = attention_forward_cudnn_bf16;
        pair->backward = attention_backward_cudnn_bf16;
    } else {
        pair->forward = attention_forward_cudnn_fp16;
        pair->backward = attention_backward_cudnn_fp16;
    }
}
#else
static bool open_cudnn(const char **name_out, char *why, size_t why_bytes)
{
    snprintf(why, why_bytes, "this program was built without cudnn-frontend");
    return false;
}

static void take_cudnn(enum dtype dtype, struct attention_pair *pair)
{
}
#endif

enum zd_status attention_cuda_choose(
        enum dtype dtype, struct attention_pair *pair, const char **name_out)
{
    static atomic_flag not_there = ATOMIC_FLAG_INIT;
    enum attention_choice choice = kernels_attention();
    char why[256] = "it has no fp32 attention";
    *name_out = "own attention";
    if (choice == ATTENTION_OWN)
        return ZD_OK;
    if (dtype != DTYPE_FP32 && open_cudnn(name_out, why, sizeof why)) {
        take_cudnn(dtype, pair);
        return ZD_OK;
    }
    if (choice == ATTENTION_CUDNN) {
        ZD_FAIL(ZD_ERR_UNFIT, "E1224", "attention by cuDNN: %s", why);
        zd_fail_help("model.attn = \"auto\" takes our own kernels where cuDNN "
                     "cannot be had");
        return ZD_ERR_UNFIT;
    }
    if (dtype != DTYPE_FP32)
        say_once(&not_there, "our own kernels; cuDNN: ", why);
    return ZD_OK;
}
