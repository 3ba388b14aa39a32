/* embedded.h - files embedded in the program by the assembler: each a name and
 * a text, both NUL-terminated; an empty name ends the list. */
#pragma once

struct embedded {
    const char *name, *text; /* static */
};

/* By number, from 0; `name` is NULL after the last. */
struct embedded embedded_at(const char *list, int index);
struct embedded embedded_find(const char *list, const char *name);
