/* pack.h - whole documents in samples of at most T + 1 tokens: T inputs and the
 * target of the last one.
 *
 *   documents   |aaaaa|bb|ccccccccc|d|     T + 1 = 8
 *   samples     |aaaaabbd|cccccccc|
 *
 * Best fit decreasing: documents in the order of (length, the longest first;
 * index) go each into the fullest sample that has room (of several, the one
 * that was filled last), else into a new one.
 * Only the documents' lengths decide. A sample keeps its documents in file
 * order, and samples are numbered in the order of their first document.
 *
 * A document longer than T + 1 tokens is cut there, is left out, or is split:
 * piece c is its tokens cT .. cT + T, so that every token but the first is a
 * target once. Pieces of T + 1 tokens are a sample each.
 *
 * The result is a cache file (token_cache.h). A word is the number of a
 * document; WORD_FIRST begins a sample. A word with WORD_TRAIN is the number
 * c > 0 of a piece of the document before it.
 *
 * Time: documents + tokens / T. Memory: 20 bytes a document.
 * Source: Johnson et al. 1974, Worst-case performance bounds for simple
 *         one-dimensional packing algorithms. */
#pragma once

#include "data/corpus.h"

struct pack {
    const struct corpus *corpus; /* with documents */
    int T;
    enum long_documents long_documents;
    bool joins; /* false: a piece is a sample */
};

/* Find or make the index of samples. */
enum zd_status pack_obtain(
        const struct pack *pack, const struct dataset_request *request,
        struct token_cache *index_out);
/* What ids and documents of such an index may be. */
struct cache_limits pack_limits(const struct pack *pack);

/* Tokens [begin, begin + count) of the stream. */
struct pack_piece {
    uint64_t begin, count;
    bool continues; /* a document, whose beginning is in another sample */
};
/* The piece at words[*at] of the index, below `end`; *at is moved on.
 * ZD_ERR_DATA for one that no document has. */
enum zd_status pack_read(
        const struct pack *pack, const struct token_cache *index, uint64_t *at,
        uint64_t end, struct pack_piece *piece_out);
