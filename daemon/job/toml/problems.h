/* problems.h - all errors of a job file, reported together:
 *
 *     error[E0203]: unknown key `learning_rat` in [optim]
 *       --> job.toml:31:1
 *        |
 *     31 | learning_rat = 2e-5
 *        | ^^^^^^^^^^^^ did you mean `learning_rate`?
 *
 * One line that begins with "error" per problem. Text of the file is shown with
 * its control bytes escaped, and a long line only around the place. */
#pragma once

#include "base/file/json.h"
#include "daemon/job/toml/toml_door.h"

struct problem {
    enum zd_status status;
    char code[8];
    struct toml_place place;
    char *where; /* owned; the place inside the file that the key at `place`
                    names, or NULL */
    char *what, *label, *help; /* owned; label follows the caret */
};

struct problems {
    struct problem *items;
    int count;
    size_t capacity;
};

/* Add one; `label` (a hint after the caret) may be NULL. */
void problem_add(
        struct problems *problems, enum zd_status status, const char *code,
        struct toml_place place, const char *label, const char *format, ...)
        __attribute__((format(printf, 6, 7)));
/* Text for the "= help:" lines of the problem added last. */
void problem_help(struct problems *problems, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
/* Move this thread's error record here, at `place`. An error inside a file that
 * the key at `place` names keeps its position in that file. */
void problem_take_record(struct problems *problems, struct toml_place place);

/* In the order of the files and their lines. */
void problems_sort(struct problems *problems);
/* An array of {"code", "message", "where", "file", "line", "column", "help"}:
 * `where` is the place inside a file that the line names. What is not known is
 * null. New reference. */
json_t *problems_json(const struct problems *problems);
void problems_print(const struct problems *problems, FILE *stream);
/* The exit status: ZD_ERR_CONFIG if any problem has it, else the first one's;
 * ZD_OK without problems. */
enum zd_status problems_status(const struct problems *problems);
void problems_fini(struct problems *problems);

/* --- values between TOML and JSON --- */

/* New reference. What JSON has no value for, a date or inf, is a problem; then
 * NULL. */
json_t *toml_json(const struct toml_node *node, struct problems *problems);

/* A key, in quotes where it needs them. */
void toml_write_key(FILE *stream, const char *key);
/* As TOML; no null. Reals in the fewest digits that come back exactly. */
void toml_write(FILE *stream, const json_t *value);
