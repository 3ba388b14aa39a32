#include "data/document.h"

#include "base/must.h"

#include <stdlib.h>
#include <string.h>

void document_clear(struct document *document)
{
    document->bytes = 0;
    document->piece_count = 0;
    document->trained_count = 0;
    document->end_of_text = document->is_cut = false;
    document->is_chat = document->adds_prefix = false;
    document->ignored = 0;
    document->specials = 0;
}

void document_fini(struct document *document)
{
    free(document->text);
    free(document->pieces);
    free(document->trained);
    memset(document, 0, sizeof *document);
}

void document_add(
        struct document *document, const char *text, size_t bytes, bool train)
{
    if (bytes == 0)
        return;
    document->text = zd_grow(
            document->text, &document->capacity, document->bytes + bytes, 1);
    memcpy(document->text + document->bytes, text, bytes);
    struct piece piece = {document->bytes, document->bytes + bytes, train};
    document->bytes += bytes;
    struct piece *last = document->piece_count
                                 ? &document->pieces[document->piece_count - 1]
                                 : NULL;
    if (last && !document->is_cut && last->train == train) {
        last->end = piece.end;
        return;
    }
    document->is_cut = false;
    document->pieces =
            zd_grow(document->pieces, &document->piece_capacity,
                    (size_t)document->piece_count + 1, sizeof piece);
    document->pieces[document->piece_count++] = piece;
}

void document_train(struct document *document, size_t begin, size_t end)
{
    document->trained =
            zd_grow(document->trained, &document->trained_capacity,
                    document->trained_count + 1, sizeof *document->trained);
    document->trained[document->trained_count++] =
            (struct text_range){begin, end};
}
