/* raw.h - pre-tokenized files, read where they are.
 *
 *   megatron   x.bin (tokens) and x.idx (which of them make documents)
 *   llm.c      1024 bytes of header, then uint16 (GPT-2) or uint32 (Llama 3)
 *   nanoGPT    uint16 from the first byte
 *
 * The tokens of all files form one stream.
 *
 * Source:  Megatron-LM indexed_dataset.py, llm.c dataloader.h, nanoGPT. */
#pragma once

#include "data/source.h"

struct cache_writer; /* token_cache.h */

struct raw_file {
    const char *path; /* borrowed from the list of files */
    int fd;
    uint64_t bytes;
    uint64_t data_offset;  /* bytes before the first token */
    uint64_t begin, count; /* in the stream */
    int width;             /* bytes of a token */
    bool is_signed;
};

struct raw {
    struct raw_file *files;
    int file_count;
    uint64_t count; /* tokens of the stream */
    unsigned char *scratch;
    size_t scratch_bytes;
};

/* Open and check the files' headers and sizes. A Megatron index is read
 * through, checked, and where its documents begin is written to `documents`
 * (may be NULL). The list
 * must outlive `raw`. */
enum zd_status raw_open(
        struct raw *raw, const struct file_list *list,
        struct cache_writer *documents);
void raw_close(struct raw *raw);

/* Tokens [at, at + count) of the stream. An id that is not below `vocab_size`
 * is ZD_ERR_DATA naming file and position. */
enum zd_status raw_read(
        struct raw *raw, uint64_t at, size_t count, int vocab_size,
        uint32_t *ids);
/* Is `position` the first token of a file? */
bool raw_begins_file(const struct raw *raw, uint64_t position);
