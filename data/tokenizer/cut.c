/* cut.c - where a long text may be cut without changing its ids.
 *
 * A place after a letter or a number and before a space or a newline is a
 * border of pre-tokens for each of the known patterns, whatever surrounds it:
 * no alternative runs from a letter or a number into white space, and none
 * looks back. NFC composes nothing across it, as white space is not a mark. Of
 * a tokenizer that makes spaces "▁" a place before a space is one, if no
 * merge joins "▁" to what is before it. An added token could only change that
 * if it holds white space after something else, asks what is before its white
 * space (single_word), or takes what follows it (rstrip). */
#include "data/tokenizer/tokenizer_internal.h"
#include "data/tokenizer/utf8.h"

static bool keeps_spaces(const struct added_set *set, const uint8_t *classes)
{
    enum { META = 0x2581 };
    for (int i = 0; i < set->count; i++) {
        const struct added_token *token = &set->tokens[i];
        bool is_word = false; /* the character before is no white space */
        unsigned step;
        for (size_t at = 0; at < token->bytes; at += step) {
            uint32_t c = utf8_read(token->content + at, &step);
            bool is_space = (classes[c] & UNICODE_SPACE) || c == META;
            if (is_space && (is_word || token->single_word))
                return false;
            is_word = !is_space;
            if (at + step == token->bytes && token->rstrip &&
                classes[c] & (UNICODE_LETTER | UNICODE_NUMBER))
                return false;
        }
    }
    return true;
}

/* Does a letter or a number end before `at`, one that NFC leaves alone? The
 * text may still be no UTF-8. */
static bool ends_word(
        const struct tokenizer *tokenizer, const unsigned char *text, size_t at)
{
    size_t begin = utf8_before(text, at);
    unsigned step;
    if (utf8_valid_prefix((const char *)text + begin, at - begin) != at - begin)
        return false;
    int class = tokenizer->classes[utf8_read(text + begin, &step)];
    return (class & (UNICODE_LETTER | UNICODE_NUMBER)) &&
           !(class & UNICODE_NFC_TRIGGER);
}

/* Digits cuts no words, and of a pattern nothing is known. */
static bool has_border(const struct splitter *splitter, bool *is_meta_out)
{
    bool has_words = false;
    *is_meta_out = false;
    for (int i = 0; i < splitter->count; i++) {
        enum split_kind kind = splitter->stages[i].kind;
        if (kind == SPLIT_PATTERN)
            return false;
        *is_meta_out |= kind == SPLIT_META;
        has_words |= kind != SPLIT_DIGITS && kind != SPLIT_EACH_DIGIT;
    }
    return has_words;
}

size_t tokenizer_cut(
        const struct tokenizer *tokenizer, const char *chars, size_t bytes)
{
    const unsigned char *text = (const unsigned char *)chars;
    if (bytes == 0)
        return 0;
    if (tokenizer->is_bytes)
        return utf8_before(text, bytes); /* the last character may be cut */
    const struct splitter *splitter = &tokenizer->splitter;
    bool is_meta, is_known = has_border(splitter, &is_meta);
    if (!is_known || !keeps_spaces(&tokenizer->added_raw, tokenizer->classes) ||
        !keeps_spaces(&tokenizer->added_normalized, tokenizer->classes))
        return 0;
    for (size_t at = bytes - 1; at > 0; at--) {
        /* a part that begins with a newline would be given a prefix space */
        bool is_place =
                is_meta ? text[at] == ' ' && !splitter->joins[text[at - 1]]
                        : text[at] == ' ' || (text[at] == '\n' &&
                                              !tokenizer->add_prefix_space);
        if (is_place && ends_word(tokenizer, text, at))
            return at;
    }
    return 0;
}
