/* units.h - numbers and sizes as people read them: plain digits, no exponents.
 */
#pragma once

#include <stdint.h>

enum { UNITS_TEXT = 32 };

/* `value` to so many significant digits: "0.03", "120"; from ten thousand on in
 * thousands: "28k", "70.55G". */
const char *units_number(double value, int digits, char out[UNITS_TEXT]);
/* The fewest digits that read back exactly: "0.1", "1e-06". */
const char *units_exact(double value, char out[UNITS_TEXT]);
/* "300 bytes", "1.50 MiB"; the second rounds up, and uses at least KiB. */
const char *units_bytes(uint64_t bytes, char out[UNITS_TEXT]);
const char *units_bytes_up(uint64_t bytes, char out[UNITS_TEXT]);
/* Seconds in the unit that suits: "0.03 s", "12 min", "3 h", "100 days". */
const char *units_time(double seconds, int digits, char out[UNITS_TEXT]);

/* The same in memory that lives as long as the block. */
#define UNITS_NUMBER(value, digits)                                            \
    units_number((value), (digits), (char[UNITS_TEXT]){""})
#define UNITS_BYTES(bytes) units_bytes((bytes), (char[UNITS_TEXT]){""})

static inline double units_mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}
static inline double units_gib(uint64_t bytes)
{
    return (double)bytes / (1 << 30);
}
