/* cases.h - rows of a file in tests/model/cases: fields with " | " between
 * them; lines that begin with # are comments. */
#pragma once

#include "base/status.h"

#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of `row`: refused with this status, in words that hold `says`. The error is
 * cleared. */
static inline void expect_refused(
        enum zd_status status, enum zd_status wanted, const char *says,
        const char *row)
{
    const char *what = zd_error_get()->what;
    cr_expect_eq(status, wanted, "%s: %s", row, what);
    cr_expect(strstr(what, says), "%s: %s", row, what);
    zd_error_clear();
}

struct cases {
    FILE *file;
    int count; /* of rows so far */
    char line[4096];
    const char *fields[3]; /* NULL after the last */
};

static inline struct cases cases_open(const char *name)
{
    char path[4096];
    snprintf(
            path, sizeof path, "%s/../model/cases/%s", getenv("ZEROD_FIXTURES"),
            name);
    struct cases c = {.file = fopen(path, "r")};
    if (!c.file)
        abort();
    return c;
}

/* The next row; false: there is none, and the file is closed. */
static inline bool cases_next(struct cases *c)
{
    int count = 0;
    do {
        if (!fgets(c->line, sizeof c->line, c->file)) {
            fclose(c->file);
            if (!c->count)
                abort();
            return false;
        }
    } while (c->line[0] == '#');
    c->count++;
    c->line[strcspn(c->line, "\n")] = '\0';
    for (char *at = c->line, *end; at; at = end) {
        c->fields[count++] = at;
        end = count < 3 ? strstr(at, " | ") : NULL;
        if (end)
            *end = '\0', end += strlen(" | ");
    }
    for (; count < 3; count++)
        c->fields[count] = NULL;
    return true;
}
