/* embedded.h - files that the program carries: the job files of deploy/recipes,
 * and the tables of other trainers' keys (formats). */
#ifndef ZD_DAEMON_INIT_EMBEDDED_H
#define ZD_DAEMON_INIT_EMBEDDED_H

#include <stdio.h>

struct embedded {
    const char *name, *text; /* static */
};

extern const char embedded_recipes[], embedded_formats[]; /* embedded.S */

/* By number, from 0; `name` is NULL after the last. */
struct embedded embedded_at(const char *list, int index);
struct embedded embedded_find(const char *list, const char *name);
/* The first sentence of a recipe's comment. */
void recipe_put_title(const struct embedded *recipe, FILE *stream);

#endif
