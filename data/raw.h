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
