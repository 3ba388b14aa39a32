/* samples.c - which words a sample of an entry has. */
#include "data/dataset_internal.h"

/* Append words [begin, begin + count) to the `filled` ones of the sample. */
static enum zd_status append_words(
        struct dataset *dataset, struct dataset_part *part,
        const struct pack_piece *piece, size_t *filled)
{
    uint32_t *words = dataset->words + *filled;
    bool *starts = dataset->starts + *filled;
    size_t count = (size_t)piece->count;
    ZD_TRY(corpus_words(&part->corpus, piece->begin, count, words));
    for (size_t i = 0; i < count; i++)
        starts[i] = words[i] & WORD_FIRST;
    if (count > 0)
        starts[0] = true;
    if (piece->continues) /* not a target of the document before it */
        words[0] &= ~WORD_TRAIN;
    *filled += count;
    return ZD_OK;
}

/* The file's owner may have written to it since it was opened. */
static enum zd_status fail_index(
        const struct dataset_part *part, int64_t sample)
{
    return ZD_FAIL(
            ZD_ERR_DATA, "E0450",
            "%s is damaged: sample %lld lies beyond its end, or is too long",
            part->index.path, (long long)sample);
}

static enum zd_status read_indexed(
        struct dataset *dataset, struct dataset_part *part, int64_t sample,
        size_t *filled)
{
    const uint64_t *samples = part->index.docs + sample;
    uint64_t at = samples[0], end = samples[1];
    struct pack_piece piece;
    if (at > end || end > part->index.word_count)
        return fail_index(part, sample);
    token_cache_touch(&part->index, (size_t)(end - at) * sizeof(uint32_t));
    while (at < end) {
        ZD_TRY(pack_read(&part->pack, &part->index, &at, end, &piece));
        if (piece.count > (uint64_t)dataset->T + 1 - *filled)
            return fail_index(part, sample);
        ZD_TRY(append_words(dataset, part, &piece, filled));
    }
    return ZD_OK;
}

enum zd_status dataset_read(
        struct dataset *dataset, struct dataset_part *part, int64_t sample,
        int *count_out)
{
    struct pack_piece piece = {.count = (uint64_t)dataset->T + 1};
    size_t filled = 0;
    enum zd_status status;
    if (part->corpus.packing == PACKING_STREAM) {
        piece.begin = (uint64_t)sample * (uint64_t)dataset->T;
        status = append_words(dataset, part, &piece, &filled);
    } else {
        status = read_indexed(dataset, part, sample, &filled);
    }
    *count_out = (int)filled;
    return status;
}
