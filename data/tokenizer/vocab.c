#include "data/tokenizer/tokenizer_internal.h"

#include "base/must.h"
#include "data/tokenizer/utf8.h"

#include <stdlib.h>

static bool is_printable(int byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) ||
           byte >= 0xae;
}

void byte_table_init(struct byte_table *table)
{
    int others = 0;
    for (int c = 0; c < BYTE_CHARS; c++)
        table->byte_of[c] = -1;
    for (int b = 0; b < 256; b++) {
        int c = is_printable(b) ? b : 256 + others++;
        table->char_of[b] = (uint16_t)c;
        table->byte_of[c] = (int16_t)b;
    }
}

/* The byte that "<0xNN>" is, or -1. */
static int fallback_byte(const unsigned char *token, size_t count)
{
    static const char digits[] = "0123456789ABCDEF";
    if (count != 6 || memcmp(token, "<0x", 3) != 0 || token[5] != '>' ||
        !token[3] || !token[4])
        return -1;
    const char *high = strchr(digits, token[3]);
    const char *low = strchr(digits, token[4]);
    return high && low ? (int)((high - digits) << 4 | (low - digits)) : -1;
}

static size_t decode_fallback(
        const unsigned char *token, size_t count, unsigned char *out)
{
    size_t used = 0;
    int byte = fallback_byte(token, count);
    if (byte >= 0) {
        out[0] = (unsigned char)byte;
        return 1;
    }
    for (size_t i = 0; i < count;) {
        bool is_space = count - i >= META_BYTES &&
                        memcmp(token + i, META_SPACE, META_BYTES) == 0;
        out[used++] = is_space ? ' ' : token[i];
        i += is_space ? META_BYTES : 1;
    }
    return used;
}

/* The bytes a token stands for: those of its characters when all of them are in
 * the table, else its own UTF-8. `out` has room for `count` bytes. */
static size_t byte_table_decode(
        const struct byte_table *table, const unsigned char *token,
        size_t count, unsigned char *out)
{
    size_t used = 0;
    unsigned step;
    if (table->is_fallback)
        return decode_fallback(token, count, out);
    for (size_t i = 0; i < count; i += step) {
        uint32_t c = utf8_read(token + i, &step);
        if (c >= BYTE_CHARS || table->byte_of[c] < 0) {
            memcpy(out, token, count);
            return count;
        }
        out[used++] = (unsigned char)table->byte_of[c];
    }
    return used;
}

void byte_buffer_append(
        struct byte_buffer *buffer, const void *data, size_t bytes)
{
    ZD_GROW(buffer->data, buffer->capacity, buffer->count + bytes);
    if (bytes > 0)
        memcpy(buffer->data + buffer->count, data, bytes);
    buffer->count += bytes;
}

void byte_buffer_fini(struct byte_buffer *buffer)
{
    free(buffer->data);
    memset(buffer, 0, sizeof *buffer);
}

void token_vector_push(struct token_vector *vector, int32_t id)
{
    if (vector->count == vector->capacity)
        ZD_GROW(vector->ids, vector->capacity, vector->count + 1);
    vector->ids[vector->count++] = id;
}

void token_vector_append(
        struct token_vector *vector, const int32_t *ids, size_t count)
{
    ZD_GROW(vector->ids, vector->capacity, vector->count + count);
    if (count > 0)
        memcpy(vector->ids + vector->count, ids, count * sizeof *ids);
    vector->count += count;
}

void token_vector_fini(struct token_vector *vector)
{
    free(vector->ids);
    *vector = (struct token_vector){0};
}

/* --- vocabulary ---------------------------------------------------------- */

void vocab_init(struct vocab *vocab, int capacity)
{
    uint32_t slots = 1024;
    while (slots < 2 * (uint32_t)capacity)
        slots *= 2;
    vocab->tokens = zd_array((size_t)capacity + 1, sizeof *vocab->tokens);
    vocab->slots = zd_array(slots, sizeof *vocab->slots);
    vocab->slot_mask = slots - 1;
    vocab->capacity = capacity;
}

void vocab_fini(struct vocab *vocab)
{
    free(vocab->tokens);
    free(vocab->slots);
    byte_buffer_fini(&vocab->text);
}

/* The slot that holds the spelling, or the free one where it belongs. */
static uint32_t *slot_of(
        const struct vocab *vocab, const void *spelling, size_t bytes)
{
    uint32_t at = (uint32_t)(text_hash(spelling, bytes) >> 32);
    for (;; at++) {
        uint32_t *slot = &vocab->slots[at & vocab->slot_mask];
        if (*slot == 0)
            return slot;
        const struct vocab_token *token = &vocab->tokens[*slot - 1];
        if (token->spelling_bytes == bytes &&
            memcmp(vocab->text.data + token->spelling, spelling, bytes) == 0)
            return slot;
    }
}

int vocab_find(const struct vocab *vocab, const void *spelling, size_t bytes)
{
    return (int)*slot_of(vocab, spelling, bytes) - 1;
}

void vocab_set_decoded(
        struct vocab *vocab, const struct byte_table *table,
        const void *spelling, size_t bytes, int id)
{
    struct vocab_token *token = &vocab->tokens[id];
    struct byte_buffer *text = &vocab->text;
    size_t begin = text->count;
    byte_buffer_append(text, spelling, bytes); /* as much at most */
    token->decoded = (uint32_t)begin;
    token->decoded_bytes = (uint32_t)byte_table_decode(
            table, spelling, bytes, text->data + begin);
    text->count = begin + token->decoded_bytes;
}

enum zd_status vocab_add(
        struct vocab *vocab, const struct byte_table *table,
        const char *spelling, size_t bytes, int id)
{
    struct vocab_token *token = &vocab->tokens[id];
    struct byte_buffer *text = &vocab->text;
    size_t begin = text->count;
    if (token->present)
        return ZD_BAD(
                "E0404", "tokens `%.*s` and `%.*s` have one id, %d",
                (int)token->spelling_bytes, text->data + token->spelling,
                (int)bytes, spelling, id);
    byte_buffer_append(text, spelling, bytes);
    *slot_of(vocab, spelling, bytes) = (uint32_t)id + 1;
    token->present = true;
    token->spelling = (uint32_t)begin;
    token->spelling_bytes = (uint32_t)bytes;
    vocab_set_decoded(vocab, table, spelling, bytes, id);
    if (id >= vocab->ids)
        vocab->ids = id + 1;
    if ((int)bytes > vocab->longest)
        vocab->longest = (int)bytes;
    vocab->count++;
    return ZD_OK;
}

void merges_fini(struct merges *merges)
{
    free(merges->slots);
    free(merges->result);
}

/* --- added tokens in a text ------------------------------------------------
 *
 * A scan is leftmost-longest without overlap. A match that fails single_word is
 * dropped, and the scan goes on after it. Stripped spaces belong to the token,
 * but the scan goes on after the content: the next match may begin within the
 * spaces that rstrip took, and then hands them out a second time. This is what
 * the reference does. */

static int by_content(const void *left, const void *right)
{
    const struct added_token *a = left, *b = right;
    int order = memcmp(
            a->content, b->content, a->bytes < b->bytes ? a->bytes : b->bytes);
    if (order != 0)
        return order;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    /* Two that are the same once normalized: the reference lists special ones
     * first and takes the first. Ids grow in the order of the file. */
    if (a->special != b->special)
        return a->special ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

void added_set_finish(struct added_set *set)
{
    int at = 0;
    if (set->count > 0)
        qsort(set->tokens, (size_t)set->count, sizeof *set->tokens, by_content);
    for (int b = 0; b <= 256; b++) {
        set->first[b] = at;
        while (at < set->count && b < 256 && set->tokens[at].content[0] == b)
            at++;
    }
}

void added_set_fini(struct added_set *set)
{
    for (int i = 0; i < set->count; i++)
        free(set->tokens[i].content);
    free(set->tokens);
    memset(set, 0, sizeof *set);
}

/* First of tokens[from..to-1], which agree up to `depth`, whose byte there is
 * at least `byte`; the shortest ones, that end there, come first. */
static int lower_bound(
        const struct added_set *set, int from, int to, size_t depth, int byte)
{
    while (from < to) {
        int middle = from + (to - from) / 2;
        const struct added_token *token = &set->tokens[middle];
        if (token->bytes <= depth || token->content[depth] < byte)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* The longest token that the text has at `at`, or NULL. */
static const struct added_token *longest_at(
        const struct added_scan *s, size_t at)
{
    const struct added_set *set = s->set;
    const struct added_token *found = NULL;
    int from = set->first[s->text[at]];
    int to = set->first[s->text[at] + 1];
    for (size_t depth = 1; from < to; depth++) {
        if (set->tokens[from].bytes == depth) {
            found = &set->tokens[from];
            while (from < to && set->tokens[from].bytes == depth)
                from++;
        }
        if (at + depth == s->bytes)
            break;
        int byte = s->text[at + depth];
        from = lower_bound(set, from, to, depth, byte);
        to = lower_bound(set, from, to, depth, byte + 1);
    }
    return found;
}

static uint8_t class_at(const struct added_scan *s, size_t at, unsigned *step)
{
    return s->classes[utf8_read(s->text + at, step)];
}

static bool touches_word(const struct added_scan *s, size_t begin, size_t end)
{
    unsigned step;
    size_t before = begin > 0 ? utf8_before(s->text, begin) : 0;
    return (begin > 0 && class_at(s, before, &step) & UNICODE_WORD) ||
           (end < s->bytes && class_at(s, end, &step) & UNICODE_WORD);
}

static size_t strip_left(const struct added_scan *s, size_t begin)
{
    unsigned step;
    while (begin > s->begin) {
        size_t before = utf8_before(s->text, begin);
        if (!(class_at(s, before, &step) & UNICODE_SPACE))
            break;
        begin = before;
    }
    /* the match before may have taken spaces, and this one's place, already */
    return begin > s->begin ? begin : s->begin;
}

static size_t strip_right(const struct added_scan *s, size_t end)
{
    unsigned step;
    while (end < s->bytes && class_at(s, end, &step) & UNICODE_SPACE)
        end += step;
    return end;
}

/* The next match that counts, from s->at on. */
static const struct added_token *next_match(
        struct added_scan *s, size_t *begin_out, size_t *end_out)
{
    const struct added_set *set = s->set;
    while (set->count > 0 && s->at < s->bytes) {
        size_t begin = s->at;
        const struct added_token *token = longest_at(s, begin);
        if (!token) {
            s->at++;
            continue;
        }
        size_t end = begin + token->bytes;
        s->at = end;
        if (token->single_word && touches_word(s, begin, end))
            continue;
        *begin_out = token->lstrip ? strip_left(s, begin) : begin;
        *end_out = token->rstrip ? strip_right(s, end) : end;
        return token;
    }
    return NULL;
}

bool added_scan_next(struct added_scan *s, struct added_piece *piece_out)
{
    size_t begin, end;
    if (!s->pending) {
        s->pending = next_match(s, &begin, &end);
        if (!s->pending)
            begin = end = s->bytes;
        s->pending_end = end;
        if (s->begin < begin) {
            *piece_out = (struct added_piece){.begin = s->begin, .end = begin};
            s->begin = begin;
            return true;
        }
    }
    if (!s->pending)
        return false;
    *piece_out = (struct added_piece){
            .token = s->pending, .begin = s->begin, .end = s->pending_end};
    s->begin = s->pending_end;
    s->pending = NULL;
    return true;
}

int64_t tokenizer_count_specials(
        const struct tokenizer *tokenizer, const char *text, size_t bytes)
{
    const struct added_set *set = &tokenizer->added_raw;
    struct added_scan s = {
            set, tokenizer->classes, (const unsigned char *)text, bytes};
    struct added_piece piece;
    int64_t count = 0;
    char first = set->count > 0 ? set->tokens[0].content[0] : 0;
    /* most often all begin with "<", which few texts have; they are sorted */
    if (set->count == 0 || (set->tokens[set->count - 1].content[0] == first &&
                            !memchr(text, first, bytes)))
        return 0;
    while (added_scan_next(&s, &piece))
        count += piece.token && piece.token->special;
    return count;
}
