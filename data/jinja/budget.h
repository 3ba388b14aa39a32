/* budget.h - what one rendering of a template may take. A template comes with a
 * model from the network, so it may be hostile: deep, endless or huge.
 *
 *   depth   blocks, expressions, calls and printed values within others
 *   steps   tokens read, nodes evaluated, items visited, 64 bytes copied
 *   bytes   values made, text written
 *
 * Parser, evaluator, comparison and output all charge this one budget. What it
 * does not cover is refused with JINJA_OVER before it is done. Every walk over
 * values is charged and bounded in depth: a namespace may hold itself.
 *
 * A step takes about 20 ns, the whole budget a second or two. A message of a
 * conversation takes 20 to 200 steps. */
#ifndef ZD_DATA_JINJA_BUDGET_H
#define ZD_DATA_JINJA_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    JINJA_NESTING_MAX = 100, /* in the text of a template */
    JINJA_DEPTH_MAX = 1000,  /* while it is rendered */
    JINJA_STEPS_MAX = 50000000,
    JINJA_BYTES_MAX = 1 << 30
};

struct jinja_budget { /* what is left */
    int depth, most_depth;
    size_t steps, bytes;
};

struct jinja;

struct jinja_budget jinja_budget_whole(int depth);
/* False: over budget, or stopped before. The rendering has stopped then. */
static inline bool jinja_charge(struct jinja *j, size_t steps, size_t bytes);
/* So many bytes are looked at. */
bool jinja_read(struct jinja *j, size_t bytes);
/* Whether so many bytes, or steps and bytes of so many things of one size, are
 * left, before any is taken; false as above. */
bool jinja_affords(struct jinja *j, uint64_t count, size_t bytes);
/* One level down, in every function that recurses; jinja_leave follows only if
 * this was true. */
static inline bool jinja_enter(struct jinja *j);
static inline void jinja_leave(struct jinja *j);
/* Both for what is not left: say so, and false. */
bool jinja_refuse(struct jinja *j, size_t steps);
bool jinja_too_deep(struct jinja *j);
/* Memory that lives as long as the parsed template or the rendering; never
 * NULL. Over budget it is still had, in small: what asks for much charges it
 * first. */
void *jinja_alloc(struct jinja *j, size_t bytes);
void jinja_release(struct jinja *j); /* all of it */
/* Memory that begins with the `used` bytes at `base` and has room for `more`.
 * Where `base` was made here and ends there, it is `base` itself: appending to
 * the same text or list again and again takes linear time. NULL: stopped. */
void *jinja_extend(struct jinja *j, const void *base, size_t used, size_t more);

#endif
