/* must.h - calls of the program in tests of Criterion: those that the test
 * needs, and those that have to be refused. */
#pragma once

#include "base/status.h"

#include <criterion/criterion.h>
#include <string.h>

/* Where the call fails the test ends, with the error's text. */
#define MUST(call) cr_assert_eq((call), ZD_OK, "%s", zd_error_get()->what)

/* The call fails with this status and code, and has this part of a text in its
 * error, which is cleared. */
#define REFUSED(call, status_, code_, text)                                    \
    do {                                                                       \
        cr_expect_eq((call), (status_));                                       \
        cr_expect_str_eq(zd_error_get()->code, (code_));                       \
        cr_expect(                                                             \
                strstr(zd_error_get()->what, (text)), "%s",                    \
                zd_error_get()->what);                                         \
        zd_error_clear();                                                      \
    } while (0)
