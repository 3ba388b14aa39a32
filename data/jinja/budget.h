/* budget.h - what one rendering of a template may take. A template comes with a
 * model from the network, so it may be hostile: deep, endless or huge.
 *
 *   depth   blocks, expressions, comparisons and printed values within others
 *   steps   tokens read, values visited, 64 bytes of text searched or copied
 *   bytes   values made, text written
 *
 * Parser, evaluator, comparison and output all charge this one budget. What it
 * does not cover is refused with JINJA_OVER before it is done. Values cannot
 * form a cycle (internal.h), so every walk over them ends or is over budget.
 *
 * A step takes about 0.2 us, the whole budget less than a second. A
 * conversation of 1,000 messages takes a tenth of it. */
#ifndef ZD_DATA_JINJA_BUDGET_H
#define ZD_DATA_JINJA_BUDGET_H

#include <stdbool.h>
#include <stddef.h>

enum {
    JINJA_DEPTH_MAX = 100,
    JINJA_STEPS_MAX = 2000000,
    JINJA_BYTES_MAX = 64 << 20
};

struct jinja_budget { /* what is left */
    int depth;
    size_t steps, bytes;
};

struct jinja;

struct jinja_budget jinja_budget_whole(void);
/* False: over budget, or stopped before. The rendering has stopped then. */
bool jinja_charge(struct jinja *j, size_t steps, size_t bytes);
/* So many bytes are looked at. */
bool jinja_read(struct jinja *j, size_t bytes);
/* One level down, in every function that recurses; jinja_leave follows only if
 * this was true. */
bool jinja_enter(struct jinja *j);
void jinja_leave(struct jinja *j);
void jinja_too_deep(struct jinja *j);

#endif
