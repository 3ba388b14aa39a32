#include "tests/support/tap.h"

#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

static int tests, failures;

void tap_ok(bool passed, const char *format, ...)
{
    va_list args;
    printf("%sok %d - ", passed ? "" : "not ", ++tests);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    if (!passed && zd_error_get()->status != ZD_OK)
        printf("# %s\n", zd_error_get()->what);
    fflush(stdout);
    failures += !passed;
}

void tap_again(const char *format, ...)
{
    va_list args;
    printf("# again: ");
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    fflush(stdout);
}

int tap_done(void)
{
    printf("1..%d\n", tests);
    return failures ? 1 : 0;
}
