/* gives.h - calls of the CUDA runtime that succeed, or give an error. */
#pragma once

#include <criterion/criterion.h>

#define OK(call)           cr_assert_eq((call), cudaSuccess)
#define GIVES(error, call) cr_expect_eq((call), cuda##error)
