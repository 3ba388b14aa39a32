/* cudnn_door.h - attention by cuDNN's graphs, through the header-only C++ of
 * cudnn-frontend (cudnn_door.cpp). Where ZD_HAVE_CUDNN; libcudnn itself is
 * opened when it is asked for.
 *
 * What it does: causal attention, also within a window, grouped queries, bf16
 * and fp16, D % 8 == 0, of whole samples or of packed documents; no soft cap. A
 * graph is built for a shape at its first use and kept. What wants more work
 * space than there is is declined. */
#pragma once

#include "kernels/attention/attention_choice.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens libcudnn for the thread's current device, once; *name_out: "cuDNN
 * 9.19"; static. *version_out: 91900. False: it is not there, too old, or
 * refuses this device, and `why` says it. */
bool cudnn_open(
        const char **name_out, int *version_out, char *why, size_t why_bytes);

/* Documents within the B*T tokens: tables of the device (enum packed_table),
 * `bucket` + 1 of each used, in elements but for the lengths. Documents without
 * tokens come last. The log-sum-exp of a backward lies (H, B*T), of a forward
 * (B, H, T). */
struct cudnn_documents {
    int bucket; /* 0: every sample is one document, and the rest is not read */
    const int32_t *tables; /* (PACKED_TABLES, plane) */
    size_t plane;
};

/* Everything on the device. dq is NULL: forward, which writes out and lse. Of
 * packed documents dq, dk and dv have rows without gaps. doc_start and scratch
 * are not read. */
struct cudnn_attention {
    struct attention of;
    enum dtype dtype;
    void *workspace;
    size_t workspace_bytes;
    bool deterministic; /* the sums of dq in an order that never changes */
    struct cudnn_documents documents;
};

/* Queues it on a cudaStream_t. DECLINED: nothing was queued, and it will be
 * declined again; *why_out says why the first time, else NULL (static).
 * UNCHECKED: its graph's results were not held against our own kernels' yet.
 * Errors: ZD_ERR_DEVICE, E1223: the graph failed. */
enum cudnn_outcome { CUDNN_DECLINED, CUDNN_UNCHECKED, CUDNN_DONE };
enum zd_status cudnn_attention_run(
        void *stream, const struct cudnn_attention *a,
        enum cudnn_outcome *outcome_out, const char **why_out);
/* The work space that its graph asks for, which is built; pointers say only
 * whether they are NULL. False: it is declined. */
bool cudnn_attention_bytes(const struct cudnn_attention *a, size_t *bytes_out);

/* They were held: a graph that does not agree is declined from now on. */
void cudnn_attention_checked(const struct cudnn_attention *a, bool agrees);

#ifdef __cplusplus
}
#endif
