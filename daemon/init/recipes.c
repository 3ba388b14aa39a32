#include "daemon/init/recipes.h"

#include <string.h>

extern const char recipes_bytes[]; /* recipes.S */

struct recipe_file recipe_at(int index)
{
    const char *at = recipes_bytes;
    for (; index > 0 && *at; index--) {
        at += strlen(at) + 1; /* the name */
        at += strlen(at) + 1; /* the file */
    }
    if (!*at)
        return (struct recipe_file){NULL, NULL};
    return (struct recipe_file){at, at + strlen(at) + 1};
}

struct recipe_file recipe_find(const char *name)
{
    struct recipe_file recipe;
    int i = 0;
    do {
        recipe = recipe_at(i++);
    } while (recipe.name && strcmp(recipe.name, name) != 0);
    return recipe;
}

/* Comment lines are joined; the sentence ends with a full stop and a blank, or
 * with the comment, and so does what follows a colon or a semicolon. */
void recipe_put_title(const struct recipe_file *recipe, FILE *stream)
{
    const char *at = recipe->text;
    while (*at) {
        if (at[0] == '\n') {
            if (strncmp(at, "\n# ", 3) != 0 || at[3] == ' ')
                return;
            fputc(' ', stream);
            at += 3;
            continue;
        }
        if (strchr(".:;", at[0]) && (at[1] == ' ' || at[1] == '\n'))
            return;
        if (!(at == recipe->text && at[0] == '#') &&
            !(at == recipe->text + 1 && at[0] == ' '))
            fputc(*at, stream);
        at++;
    }
}
