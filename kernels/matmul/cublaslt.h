/* cublaslt.h - the door to cuBLASLt, NVIDIA's matmul library.
 *
 * It is opened at run time (ZEROD_CUBLASLT names the file; else by
 * base/library.h) and never linked: a machine without it, or without a GPU,
 * starts this program all the same. Only what we call is in the table; the
 * types are those of cublasLt.h. */
#ifndef ZD_KERNELS_MATMUL_CUBLASLT_H
#define ZD_KERNELS_MATMUL_CUBLASLT_H

#include "base/status.h"

#include <cublasLt.h>

struct cublaslt {
    __typeof__(cublasLtCreate) *create;
    __typeof__(cublasLtDestroy) *destroy;
    __typeof__(cublasLtGetStatusName) *status_name;
    __typeof__(cublasLtGetStatusString) *status_string;
    __typeof__(cublasLtGetVersion) *version;
    __typeof__(cublasLtMatmulDescCreate) *desc_create;
    __typeof__(cublasLtMatmulDescDestroy) *desc_destroy;
    __typeof__(cublasLtMatmulDescSetAttribute) *desc_set;
    __typeof__(cublasLtMatrixLayoutCreate) *layout_create;
    __typeof__(cublasLtMatrixLayoutDestroy) *layout_destroy;
    __typeof__(cublasLtMatmulPreferenceCreate) *preference_create;
    __typeof__(cublasLtMatmulPreferenceDestroy) *preference_destroy;
    __typeof__(cublasLtMatmulPreferenceSetAttribute) *preference_set;
    __typeof__(cublasLtMatmulAlgoGetHeuristic) *heuristic;
    __typeof__(cublasLtMatmulAlgoCheck) *algo_check;
    __typeof__(cublasLtMatmulAlgoCapGetAttribute) *algo_cap;
    __typeof__(cublasLtMatmulAlgoConfigGetAttribute) *algo_config;
    __typeof__(cublasLtMatmul) *matmul;
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

#endif
