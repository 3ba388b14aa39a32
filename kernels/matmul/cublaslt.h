/* cublaslt.h - the door to cuBLASLt, NVIDIA's matmul library.
 *
 * It is opened at run time (ZEROD_CUBLASLT names the file; else by
 * base/library.h) and never linked: a machine without it, or without a GPU,
 * starts this program all the same. Only what we call is in the table; the
 * types are those of cublasLt.h. */
#pragma once

#include "base/status.h"

#include <cublasLt.h>

#define CUBLASLT_CALLS(CALL)                                                   \
    CALL(cublasLtCreate, create)                                               \
    CALL(cublasLtDestroy, destroy)                                             \
    CALL(cublasLtGetStatusName, status_name)                                   \
    CALL(cublasLtGetStatusString, status_string)                               \
    CALL(cublasLtGetVersion, version)                                          \
    CALL(cublasLtMatmulDescCreate, desc_create)                                \
    CALL(cublasLtMatmulDescDestroy, desc_destroy)                              \
    CALL(cublasLtMatmulDescSetAttribute, desc_set)                             \
    CALL(cublasLtMatrixLayoutCreate, layout_create)                            \
    CALL(cublasLtMatrixLayoutDestroy, layout_destroy)                          \
    CALL(cublasLtMatmulPreferenceCreate, preference_create)                    \
    CALL(cublasLtMatmulPreferenceDestroy, preference_destroy)                  \
    CALL(cublasLtMatmulPreferenceSetAttribute, preference_set)                 \
    CALL(cublasLtMatmulAlgoGetHeuristic, heuristic)                            \
    CALL(cublasLtMatmulAlgoCheck, algo_check)                                  \
    CALL(cublasLtMatmulAlgoCapGetAttribute, algo_cap)                          \
    CALL(cublasLtMatmulAlgoConfigGetAttribute, algo_config)                    \
    CALL(cublasLtMatmul, matmul)

struct cublaslt {
#define CALL(call, field) __typeof__(call) *field;
    CUBLASLT_CALLS(CALL)
#undef CALL
    char name[32]; /* "cuBLASLt 13.1.0" */
};

/* Opened at the first call, once per process; any thread may call. Errors:
 * ZD_ERR_UNFIT (E1220: there is none, E1221: it lacks a function), each with a
 * fix. */
enum zd_status cublaslt_open(const struct cublaslt **api_out);

/* The door: a status of cuBLASLt becomes ours, once, with what was called.
 * ZD_ERR_MEMORY for an allocation it was refused, else ZD_ERR_DEVICE. */
enum zd_status cublaslt_check(
        const struct cublaslt *api, cublasStatus_t status, const char *call);
#define ZD_CUBLAS(api, call) ZD_TRY(cublaslt_check((api), (api)->call, #call))
