/* data_case.h - a small job for tests of data: a folder, a tokenizer, one
 * entry. */
#pragma once

#include "data/corpus.h"
#include "tests/support/scratch.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

struct data_case {
    struct scratch scratch;
    char path[PATH_MAX], cache[PATH_MAX];
    struct tokenizer *tokenizer;
    struct data_options options;
    struct data_entry entry;
    struct dataset_request request;
};

/* `fixture`: a folder of tests/fixtures/tokenizers, or NULL for bytes.
 * Unshuffled, one stream, T = 8, one thread. */
void data_case_init(struct data_case *test, const char *fixture);
void data_case_fini(struct data_case *test);
/* Write a file and make it the entry's path. */
void data_case_file(
        struct data_case *test, const char *name, const void *data,
        size_t bytes);
void data_case_text(struct data_case *test, const char *name, const char *text);

/* Find and open the entry; it is checked. */
enum zd_status data_case_corpus(struct data_case *test, struct corpus *corpus);
/* All words of the entry as text, for comparison: | before a document, [ ]
 * around what the loss does not count, $ for end of text, <N> for an added
 * token of id N, and the bytes of any other token. NULL on failure. The caller
 * frees it. */
char *data_case_words(struct data_case *test);
/* Open and render, or the recorded error. */
struct dataset *data_case_open(struct data_case *test); /* NULL: failed */
/* Number of files in the cache folder. */
int data_case_cached(const struct data_case *test);
