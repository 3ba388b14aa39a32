/* cudnn_door.h - attention by cuDNN's graphs, through the header-only C++ of
 * cudnn-frontend (cudnn_door.cpp). Where ZD_HAVE_CUDNN; libcudnn itself is
 * opened when it is asked for.
 *
 * What it does: causal attention, grouped queries, bf16 and fp16, D % 8 == 0,
 * every sample one document. A graph is built for a shape at its first use and
 * kept. Its work space is O(T); what would need more is declined. */
#ifndef ZD_KERNELS_ATTENTION_CUDNN_DOOR_H
#define ZD_KERNELS_ATTENTION_CUDNN_DOOR_H

#include "kernels/attention/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens libcudnn for the thread's current device, once; *name_out: "cuDNN
 * 9.19"; static. False: it is not there, too old, or refuses this device, and
 * `why` says it. */
bool cudnn_open(const char **name_out, char *why, size_t why_bytes);

/* Everything on the device. dq is NULL: forward, which writes out and lse. */
struct cudnn_attention {
    enum dtype dtype;
    const struct attention_shape *shape;
    const void *q, *k, *v, *dout;
    void *out, *dq, *dk, *dv;
    float *lse;
    void *workspace;
    size_t workspace_bytes;
    bool deterministic; /* the sums of dq in an order that never changes */
};

/* Queues it on a cudaStream_t. *done_out false: declined, nothing was queued,
 * and it will be declined again; *why_out says why the first time, else NULL
 * (static). Errors: ZD_ERR_DEVICE, E1223: the graph failed. */
enum zd_status cudnn_attention_run(
        void *stream, const struct cudnn_attention *a, bool *done_out,
        const char **why_out);

#ifdef __cplusplus
}
#endif

#endif
