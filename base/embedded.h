/* embedded.h - files that a program carries, put there by the assembler: a name
 * and a text each, both with a NUL after them; an empty name ends a list. */
#pragma once

struct embedded {
    const char *name, *text; /* static */
};

/* By number, from 0; `name` is NULL after the last. */
struct embedded embedded_at(const char *list, int index);
struct embedded embedded_find(const char *list, const char *name);
