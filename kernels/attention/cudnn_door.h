/* cudnn_door.h - attention by cuDNN's graphs, through the header-only C++ of
 * cudnn-frontend (cudnn_door.cpp). Only with ZD_HAVE_CUDNN; libcudnn itself is
 * opened on demand.
 *
 * Supported: causal attention, with or without a window, grouped queries, bf16
 * and fp16, D % 8 == 0, whole samples or packed documents; no soft cap. A
 * shape's graph is built at its first use and kept. A graph that needs more
 * work space than it gets is declined. */
#pragma once

#include "kernels/attention/attention_choice.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens libcudnn for the thread's current device, once; *name_out: "cuDNN
 * 9.19"; static. *version_out: 91900. False: it is missing, too old, or refuses
 * this device; `why` says which. */
bool cudnn_open(
        const char **name_out, int *version_out, char *why, size_t why_bytes);

/* Documents within the B*T tokens: tables in device memory (enum packed_table),
 * `bucket` + 1 entries of each used; offsets are in elements, lengths in
 * tokens. Empty documents come last. The log-sum-exp is (H, B*T) in backward,
 * (B, H, T) in forward. */
struct cudnn_documents {
    int bucket;            /* 0: every sample is one document, no tables */
    const int32_t *tables; /* (PACKED_TABLES, plane) */
    size_t plane;
};

/* All arrays are in device memory. With dq NULL: forward, which writes out and
 * lse. For packed documents rows of dq, dk and dv are dense. doc_start and
 * scratch are not read. */
struct cudnn_attention {
    struct attention of;
    enum dtype dtype;
    void *workspace;
    size_t workspace_bytes;
    bool deterministic; /* sum dq in a fixed order */
    struct cudnn_documents documents;
};

/* Queues a pass on a cudaStream_t. DECLINED: nothing was queued, and later
 * calls will be declined too; *why_out (static) is set the first time, else
 * NULL. UNCHECKED: the graph's results have not been compared with our own
 * kernels' yet. Errors: ZD_ERR_DEVICE, E1223: the graph failed. */
enum cudnn_outcome { CUDNN_DECLINED, CUDNN_UNCHECKED, CUDNN_DONE };
enum zd_status cudnn_attention_run(
        void *stream, const struct cudnn_attention *a,
        enum cudnn_outcome *outcome_out, const char **why_out);
/* Builds the graph and returns its work space; of dq only NULL or not matters.
 * False: the graph is declined. */
bool cudnn_attention_bytes(const struct cudnn_attention *a, size_t *bytes_out);

/* Records the comparison: a graph that does not agree is declined from then
 * on. */
void cudnn_attention_checked(const struct cudnn_attention *a, bool agrees);

#ifdef __cplusplus
}
#endif
