/* reshard.h - a checkpoint as so many ranks would have saved it, of one that a
 * single rank has: what would take a thousand processes. */
#pragma once

#include <stdbool.h>

/* Cut FROM, of one rank, into `shards` files of about as many elements each, as
 * TO, whose manifest states `format`. False: it has fewer than 256 elements for
 * each. */
bool reshard(const char *from, const char *to, int shards, int format);
