/* words.h - sizes, shares and times as people write them. false: the text
 * is none. */
#pragma once

#include <stdbool.h>

/* "64MiB", "5 GB", "1.5e9" */
bool words_size(const char *text, double *bytes_out);
/* "90%" into 0.9 */
bool words_percent(const char *text, double *share_out);
/* "1h30m": numbers with units that become smaller */
bool words_duration(const char *text, double *seconds_out);
