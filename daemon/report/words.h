/* words.h - times and counts in few characters. */
#ifndef ZD_DAEMON_REPORT_WORDS_H
#define ZD_DAEMON_REPORT_WORDS_H

#include <stddef.h>

/* "1h02m", "3m20s", "12.3s" */
void report_duration(double seconds, char *out, size_t out_bytes);
/* "12.3k", "1.24M": four characters or so, for rates and counts. */
void report_short(double value, char *out, size_t out_bytes);

#endif
