/* cublaslt.h - loads cuBLASLt, NVIDIA's matmul library.
 *
 * It is opened at run time (ZEROD_CUBLASLT names the file; else by
 * base/library.h) and never linked, so this program also starts on machines
 * without it or without a GPU. The table has only the functions that we call;
 * the types come from cublasLt.h. */
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

/* The first call opens the library, once per process; any thread may call.
 * Errors: ZD_ERR_UNFIT (E1220: not found, E1221: a function is missing), each
 * with a fix. */
enum zd_status cublaslt_open(const struct cublaslt **api_out);

/* Converts a status of cuBLASLt to ours and reports the call: ZD_ERR_MEMORY if
 * an allocation failed, else ZD_ERR_DEVICE. */
enum zd_status cublaslt_check(
        const struct cublaslt *api, cublasStatus_t status, const char *call);
#define ZD_CUBLAS(api, call) ZD_TRY(cublaslt_check((api), (api)->call, #call))
