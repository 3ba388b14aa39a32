/* rfc3339.h - moments as text: "2026-11-22T08:00:00Z", with an offset like
 * +01:00, a blank for the T, and fractions of a second, as RFC 3339 has them.
 * Seconds are counted from 1970-01-01T00:00:00Z, without leap seconds. */
#ifndef ZD_BASE_RFC3339_H
#define ZD_BASE_RFC3339_H

#include <stdbool.h>

enum { RFC3339_BYTES = 32 };

/* False for anything else, a moment without an offset too. */
bool rfc3339_parse(const char *text, double *seconds_out);
/* In UTC; whole seconds. */
void rfc3339_print(double seconds, char out[RFC3339_BYTES]);

#endif
