/* words.h - parses sizes, percentages and durations as people write them
 * (false: not valid), and lists of words. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* "64MiB", "5 GB", "1.5e9" */
bool words_size(const char *text, double *bytes_out);
/* "90%" into 0.9 */
bool words_percent(const char *text, double *share_out);
/* "1h30m": numbers with units that become smaller */
bool words_duration(const char *text, double *seconds_out);

/* The next word of a list with any of `marks` between words, cut to `bytes`;
 * *list moves past it. false: no word is left, or *list is NULL. */
bool words_next(const char **list, const char *marks, char *out, size_t bytes);
bool words_have(const char *list, const char *marks, const char *word);
