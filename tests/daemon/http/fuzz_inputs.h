/* fuzz_inputs.h - inputs for fuzz_request.c where no other fuzzer makes them.
 */
#ifndef ZD_TESTS_DAEMON_HTTP_FUZZ_INPUTS_H
#define ZD_TESTS_DAEMON_HTTP_FUZZ_INPUTS_H

#include <stddef.h>
#include <stdint.h>

enum { INPUT_MAX = 160 << 10 };

enum { /* of the first byte */
       HOW_FRAMED = 1,
       HOW_PIECES = 2,  /* some bytes at a time */
       HOW_HALF = 4,    /* half is closed after the input */
       HOW_LEAVES = 16, /* closes without reading */
       HOW_BUSY = 32    /* no room for a command */
};

/* The same inputs follow the same number, which is not 0. */
void fuzz_begin(uint64_t seed);
/* A request as it is, first byte included; NULL after the last. */
const char *fuzz_seed(int i);
/* A mutated one into `input`, of INPUT_MAX bytes. Returns its bytes. */
size_t fuzz_make_input(uint8_t *input);

#endif
