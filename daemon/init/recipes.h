/* recipes.h - the job files of deploy/recipes, which the program has with it.
 */
#ifndef ZD_DAEMON_INIT_RECIPES_H
#define ZD_DAEMON_INIT_RECIPES_H

#include <stdio.h>

struct recipe_file {
    const char *name, *text; /* static */
};

/* By number, from 0; `name` NULL behind the last. */
struct recipe_file recipe_at(int index);
struct recipe_file recipe_find(const char *name);
/* What the first sentence of its comment says. */
void recipe_put_title(const struct recipe_file *recipe, FILE *stream);

#endif
