#include "daemon/init/embedded.h"

#include <string.h>

struct embedded embedded_at(const char *list, int index)
{
    const char *at = list;
    for (; index > 0 && *at; index--) {
        at += strlen(at) + 1; /* the name */
        at += strlen(at) + 1; /* the file */
    }
    if (!*at)
        return (struct embedded){NULL, NULL};
    return (struct embedded){at, at + strlen(at) + 1};
}

struct embedded embedded_find(const char *list, const char *name)
{
    struct embedded file;
    int i = 0;
    do {
        file = embedded_at(list, i++);
    } while (file.name && strcmp(file.name, name) != 0);
    return file;
}

/* Comment lines are joined; the sentence ends with a full stop and a blank, or
 * with the comment, and so does what follows a colon or a semicolon. */
void recipe_put_title(const struct embedded *recipe, FILE *stream)
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
