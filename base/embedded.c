#include "base/embedded.h"

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
