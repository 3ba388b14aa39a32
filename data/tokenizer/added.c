/* added.c - find added tokens in a text.
 *
 * A scan is leftmost-longest without overlap. A match that fails single_word is
 * dropped, and the scan goes on after it. Stripped spaces belong to the token,
 * but the scan goes on after the content: the next match may begin within the
 * spaces that rstrip took, and then hands them out a second time. This is what
 * the reference does. */
#include "data/tokenizer/tokenizer_internal.h"

#include "data/tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>

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
