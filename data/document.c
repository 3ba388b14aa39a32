#include "data/document.h"

#include <stdlib.h>
#include <string.h>

void document_clear(struct document *document)
{
    document->bytes = 0;
    document->piece_count = 0;
    document->end_of_text = document->is_cut = false;
}

void document_fini(struct document *document)
{
    free(document->text);
    free(document->pieces);
    memset(document, 0, sizeof *document);
}

static enum zd_status fail_memory(void)
{
    return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory reading a document");
}

static enum zd_status reserve_text(struct document *document, size_t bytes)
{
    size_t capacity = document->capacity ? document->capacity : 4096;
    while (capacity - document->bytes < bytes)
        capacity *= 2;
    if (capacity == document->capacity)
        return ZD_OK;
    char *text = realloc(document->text, capacity);
    if (!text)
        return fail_memory();
    document->text = text;
    document->capacity = capacity;
    return ZD_OK;
}

static enum zd_status push_piece(
        struct document *document, const struct piece *piece)
{
    if (document->piece_count == document->piece_capacity) {
        int capacity =
                document->piece_capacity ? 2 * document->piece_capacity : 16;
        struct piece *pieces =
                realloc(document->pieces, (size_t)capacity * sizeof *pieces);
        if (!pieces)
            return fail_memory();
        document->pieces = pieces;
        document->piece_capacity = capacity;
    }
    document->pieces[document->piece_count++] = *piece;
    return ZD_OK;
}

enum zd_status document_add(
        struct document *document, const char *text, size_t bytes,
        unsigned flags, bool train)
{
    if (bytes == 0)
        return ZD_OK;
    ZD_TRY(reserve_text(document, bytes));
    memcpy(document->text + document->bytes, text, bytes);
    struct piece piece = {
            document->bytes, document->bytes + bytes, flags, train};
    struct piece *last = document->piece_count
                                 ? &document->pieces[document->piece_count - 1]
                                 : NULL;
    document->bytes += bytes;
    if (last && last->flags == flags && last->train == train &&
        !document->is_cut) {
        last->end = piece.end;
        return ZD_OK;
    }
    document->is_cut = false;
    return push_piece(document, &piece);
}
