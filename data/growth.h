/* growth.h - a cache file of text that is read while it is written.
 *
 * One rank of a host writes it on its own thread, under its temporary
 * name; all ranks of the host read it by that name. Its header says how far it
 * is (words are appended only, and by write, so that readers see them):
 *
 *   state              the header                       readers may take
 *   GROWING            blank                            what the file holds
 *   WHOLE              reserved = WHOLE, word_count     word_count words
 *   (finished)         that of a cache file             the same
 *   FAILED             reserved = FAILED, word_count    word_count words; the
 *                                                       error follows them
 *   STOPPED            reserved = STOPPED, word_count   the same, no error
 *
 * States follow each other downward; only the writer's thread changes them, and
 * what a state promises is written before it. A STOPPED file becomes KEY.part,
 * and the next one begins with its words (cache_writer_resume). */
#pragma once

#include "base/progress.h"
#include "data/corpus.h"

struct growth;

/* Wait until there are `words` words, or no more will come: *count_out, and
 * then *is_whole_out. `progress` counts that words come meanwhile. The writer's
 * error, where it failed before; ZD_ERR_STOPPED once *stop is set. */
enum zd_status growth_wait(
        struct growth *growth, uint64_t words, const atomic_bool *stop,
        struct progress *progress, uint64_t *count_out, bool *is_whole_out);
enum zd_status growth_read(
        struct growth *growth, uint64_t at, size_t count, uint32_t *words);
void growth_end(struct growth *growth);
