/* words.h - times, counts and sizes in few characters, as a struct: write
 * report_short(x).text where the text is needed. */
#pragma once

#include <stddef.h>

struct words {
    char text[32];
};
struct words report_duration(double seconds); /* "1h02m", "3m20s", "12.3s" */
/* "12.3k", "1.24M": four characters or so, for rates and counts. */
struct words report_short(double value);
struct words report_bytes(size_t bytes); /* "5.1 MiB", "3.25 GiB" */
