/* delays.h - makes hand-overs late, at random under a seed. The program is
 * linked with --wrap of the functions that hand memory over; each of them calls
 * the real one, and where the seed says so its actor is late:
 *
 *   stream down, up    each copy, call, record and wait: the stream itself
 *   workers            before and after a chunk
 *   compute stream     at each hook of the model, and what it then moves
 *   collectives        at their begin, and while they are waited for
 *
 * A seed makes one to three kinds late, the first of them by turns, each a
 * number of times that suits how late it is. Shared by all threads of the
 * process. */
#pragma once

#include <stdint.h>

/* Nothing is late; hand-overs are counted from now on. */
void delays_count(void);
/* As many hand-overs as were counted come again: which are late is up to the
 * seed. */
void delays_begin(uint64_t seed);
/* What the seed has made late, for who looks for the cause; static. */
const char *delays_say(void);
