/* status.h - what a function returns when the world does not cooperate.
 *
 * Everything that can fail returns an `enum zd_status`; the process exit code
 * is a function of it (zd_exit_code). The function that first knows the cause
 * says it once, with ZD_FAIL; its callers pass the status up in silence, and
 * the outermost caller prints the record with zd_error_print.
 *
 * The record is thread-local: one failure at a time in one thread. A second
 * ZD_FAIL before the first was taken keeps the first (it is the cause).
 *
 * Form of a printed error (one line that begins with "error" per cause):
 *
 *     error[E0203]: unknown key `learning_rat` in [train]
 *       --> job.toml:31:1
 *       = help: did you mean `learning_rate`?
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum zd_status {
    ZD_OK = 0,
    ZD_ERR_USAGE,    /* 64 the command line itself */
    ZD_ERR_DATA,     /* 65 wrong inside a model, tokenizer, data, checkpoint */
    ZD_ERR_NO_INPUT, /* 66 a path that does not exist */
    ZD_ERR_UNFIT,    /* 69 this machine cannot run the job: memory, device */
    ZD_ERR_BUG,      /* 70 our own mistake */
    ZD_ERR_CREATE,   /* 73 cannot create, or locked by another job */
    ZD_ERR_IO,       /* 74 read or write failed */
    ZD_ERR_STOPPED,  /* 75 stopped early, start again to resume */
    ZD_ERR_PEER,     /* 75 another rank failed; that rank says why */
    ZD_ERR_DENIED,   /* 77 permission */
    ZD_ERR_CONFIG,   /* 78 job.toml, [model.config], a --set value */
    ZD_ERR_NUMERICS, /* 79 divergence: do not restart */
    ZD_ERR_DEVICE,   /* 69 a launch or a library call was refused */
    ZD_ERR_MEMORY,   /* 69 the system refused an allocation */
};

/* The first failure of this thread. */
struct zd_error {
    enum zd_status status;
    char code[8];    /* "E0203" */
    char what[1024]; /* one sentence: what, which, how much */
    char where[512]; /* "job.toml:31:1", "model.safetensors", or empty */
    char help[1024]; /* a fix to paste, or empty; may hold several lines */
};

/* Exit code of the process that ends with `status` (see the table above). */
int zd_exit_code(enum zd_status status);

/* Record a failure and return `status`. `code` is "E" and four digits; every
 * code is used for one kind of mistake and is listed in docs/errors.md. */
enum zd_status zd_fail(
        enum zd_status status, const char *code, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

/* Add to the new record where it happened, or how to fix it; both return its
 * status. */
enum zd_status zd_fail_where(const char *format, ...)
        __attribute__((format(printf, 1, 2)));
enum zd_status zd_fail_help(const char *format, ...)
        __attribute__((format(printf, 1, 2)));

/* The record of this thread (status ZD_OK when there is none). Borrowed. */
const struct zd_error *zd_error_get(void);
/* Replace this thread's record, e.g. by one that came from another rank. */
void zd_error_set(const struct zd_error *error);
void zd_error_clear(void);
/* Print the record in the form above; prints nothing when there is none. */
void zd_error_print(FILE *stream, const struct zd_error *error);

#define ZD_FAIL(status, code, ...) zd_fail((status), (code), __VA_ARGS__)
/* The most frequent failure: bad data, ZD_ERR_DATA. */
#define ZD_BAD(code, ...) zd_fail(ZD_ERR_DATA, (code), __VA_ARGS__)

/* Return from the calling function when `call` failed. For functions that own
 * nothing at that point; the others use goto labels named for what they undo.
 */
#define ZD_TRY(call)                                                           \
    do {                                                                       \
        enum zd_status zd_try_status_ = (call);                                \
        if (zd_try_status_ != ZD_OK)                                           \
            return zd_try_status_;                                             \
    } while (0)

/* For acquiring functions, which go on to their cleanup: makes the call only if
 * `status` is still ZD_OK. */
#define ZD_THEN(status, call)                                                  \
    do {                                                                       \
        if ((status) == ZD_OK)                                                 \
            (status) = (call);                                                 \
    } while (0)

/* Prints into an array of characters, cut to its size. */
#define ZD_PRINT(array, ...) snprintf((array), sizeof(array), __VA_ARGS__)

/* A loop over the elements of an array, whose count is taken before it. */
#define ZD_EACH(item, array, count)                                            \
    for (__typeof__(&*(array)) item = (array), item##_end = item + (count);    \
         item < item##_end; item++)
