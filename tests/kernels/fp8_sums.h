/* fp8_sums.h - how far sums of FP8 products may be from the definition's.
 *
 * A Hopper's tensor core cuts what it adds 13 bits below the largest of it,
 * and fast sums so far are among that (about 14 bits: DeepSeek-V3,
 * arXiv:2412.19437, section 3.5.2). Sums of the tests are of the order of 1: a
 * few such cuts. 1.7e-4 and 2.2e-4 were seen on an H200. */
#pragma once

#include "tests/cuda/cublaslt/cublaslt_standin.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>

#define FP8_CUTS 0x1p-11

/* A real cuBLASLt is open, and the stand-in for it is not. */
static inline bool tensor_cores_add(void)
{
    void *library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_NOLOAD);
    return library && !dlsym(library, "cublaslt_standin_counters");
}

static inline double fp8_sum_tolerance(double of_others)
{
    return tensor_cores_add() && of_others < FP8_CUTS ? FP8_CUTS : of_others;
}
