/* draft.h - a job file before it is written: values and their reasons, what has
 * no key here of another trainer's file, and errors.
 *
 * Text and values are jansson's, whose memory is had (json_must_have_memory).
 */
#pragma once

#include "daemon/job/job.h"

enum { DRAFT_SOURCES = 4 };

struct draft {
    json_t *values;    /* {"optim.learning_rate": {"value", "why"}} */
    json_t *train;     /* of [[data.train]]: {"path": {"value", "why"}} each */
    json_t *eval;      /* of [[data.eval]] */
    json_t *head;      /* lines of the comment on top */
    json_t *notes;     /* {"their.key": "why it needs none"} */
    json_t *differs;   /* {"their.key": "what is not the same here"} */
    json_t *told;      /* {their key}: named in a comment or a problem */
    json_t *defaults;  /* [their key]: those that are "auto" or null */
    json_t *automatic; /* {"our.key"}: "auto" in their file */
    struct problems problems;                  /* why there can be no job */
    struct toml_source sources[DRAFT_SOURCES]; /* the files; texts are owned */
    int source_count;
};

void draft_init(struct draft *draft);
void draft_fini(struct draft *draft);

void draft_remove(struct draft *draft, const char *key);
/* `key` is "section.name". Takes the reference. The first value that is set
 * stays. */
void draft_set(
        struct draft *draft, const char *key, json_t *value, const char *why);
void draft_replace(
        struct draft *draft, const char *key, json_t *value, const char *why);
bool draft_has(const struct draft *draft, const char *key);
const char *draft_text(
        const struct draft *draft, const char *key);             /* or NULL */
double draft_number(const struct draft *draft, const char *key); /* or 0 */
/* A source's path, set and split, but for what is NULL; `why` of the path. */
void draft_set_source(
        json_t *entry, const char *path, const char *why, const char *name,
        const char *split);
/* Into an entry of data. Takes the reference. */
void draft_set_entry(
        json_t *entry, const char *key, json_t *value, const char *why);
/* A key of theirs is named: by a value's reason. Notes and problems tell it
 * themselves. */
void draft_tell(struct draft *draft, const char *theirs);
/* The first of [[data.train]], made if there is none. Borrowed. */
json_t *draft_source(struct draft *draft);
void draft_say(struct draft *draft, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
void draft_note(struct draft *draft, const char *theirs, const char *why);
void draft_differ(struct draft *draft, const char *theirs, const char *how);
/* `theirs`: the key that it is about, or NULL. */
void draft_refuse(
        struct draft *draft, const char *theirs, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

/* The job file. The caller frees it. */
char *draft_write(const struct draft *draft);
/* Add the problems of the draft's text to its own, each at the key of their
 * file that it comes from; one that comes from none is left out if there are
 * others. */
void draft_find_problems(
        struct draft *draft, const struct job_request *request);
