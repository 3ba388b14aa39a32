/* chat_key.c - a conversation's messages as JSON with marks in place of words.
 */
#include "data/chat_skeleton.h"

#include "base/must.h"
#include "data/tokenizer/utf8.h"

#include <string.h>

size_t chat_strip_end(const char *text, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)text;
    unsigned step;
    while (bytes > 0) {
        size_t last = utf8_before(at, bytes);
        if (!jinja_is_space(utf8_read(at + last, &step)))
            break;
        bytes = last;
    }
    return bytes;
}

/* The end of the key, with room for so many bytes. */
static char *reserve(struct chat_memory *to, size_t bytes)
{
    if (to->key_bytes + bytes > to->key_capacity)
        ZD_GROW(to->key, to->key_capacity, to->key_bytes + bytes);
    return to->key + to->key_bytes;
}

static inline void put(struct chat_memory *to, const char *text, size_t bytes)
{
    memcpy(reserve(to, bytes), text, bytes);
    to->key_bytes += bytes;
}

/* Within the quotes of JSON; a part at a time, so that room for escapes is
 * little. */
static void put_escaped(struct chat_memory *to, const char *text, size_t bytes)
{
    enum { PART_BYTES = 4096, ESCAPE_BYTES = 6 };
    static const char digits[] = "0123456789abcdef";
    const char *end = text + bytes;
    while (text < end) {
        size_t left = (size_t)(end - text);
        size_t part = left < PART_BYTES ? left : PART_BYTES;
        char *out = reserve(to, ESCAPE_BYTES * part);
        for (const char *stop = text + part; text < stop; text++) {
            unsigned char c = (unsigned char)*text;
            if (c >= ' ' && c != '"' && c != '\\') {
                *out++ = *text;
                continue;
            }
            memcpy(out, "\\u00", 4);
            out[4] = digits[c >> 4];
            out[5] = digits[c & 15];
            out += ESCAPE_BYTES;
        }
        to->key_bytes = (size_t)(out - to->key);
    }
}

/* What templates look for within a message. */
static const char *const kept[] = {
        "<think>",   "</think>", "<tool_response>", "</tool_response>",
        "/no_think", "/nothink", "/think"};

static size_t kept_bytes(const char *text, size_t bytes)
{
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        if (text[1] == kept[i][1] && bytes >= strlen(kept[i]) &&
            memcmp(text, kept[i], strlen(kept[i])) == 0)
            return strlen(kept[i]);
    return 0;
}

static void put_mark(struct chat_memory *to, struct word word)
{
    if (to->word_count == to->word_capacity)
        ZD_GROW(to->words, to->word_capacity, to->word_count + 1);
    to->words[to->word_count] = word;
    jinja_write_mark(to->word_count++, reserve(to, MARK_BYTES));
    to->key_bytes += MARK_BYTES;
}

static void put_whole_word(
        struct chat_memory *to, const char *text, size_t bytes, size_t message)
{
    size_t before = jinja_blanks(text, bytes);
    size_t end = before < bytes ? chat_strip_end(text, bytes) : 0;
    if (before >= end) {
        put_escaped(to, text, bytes);
        return;
    }
    put_escaped(to, text, before);
    put_mark(to, (struct word){text + before, end - before, message, false});
    put_escaped(to, text + end, bytes - end);
}

static bool is_escaped(uint32_t c)
{
    return c == '"' || c == '\'' || c == '\\' || !jinja_is_printable(c);
}

/* Text without a kept word. */
static void put_word(
        struct chat_memory *to, const char *text, size_t bytes, size_t message)
{
    size_t from = 0;
    unsigned step;
    for (size_t at = 0; to->in_pieces && at < bytes; at += step)
        if (is_escaped(utf8_read((const unsigned char *)text + at, &step))) {
            put_whole_word(to, text + from, at - from, message);
            put_escaped(to, text + at, step);
            from = at + step;
        }
    put_whole_word(to, text + from, bytes - from, message);
}

/* The words of a text, and what is kept between them. */
static void put_words(
        struct chat_memory *to, const char *text, size_t bytes, size_t message)
{
    bool may = memchr(text, '<', bytes) || memchr(text, '/', bytes);
    size_t from = 0, at = may ? strcspn(text, "</") : bytes, skip;
    for (; at < bytes; at += strcspn(text + at, "</")) {
        skip = kept_bytes(text + at, bytes - at);
        if (skip > 0) {
            put_word(to, text + from, at - from, message);
            put(to, text + at, skip);
            from = at + skip;
        }
        at += skip > 0 ? skip : 1;
    }
    put_word(to, text + from, bytes - from, message);
}

enum depth { NO_WORDS, BY_KEY, ALL_WORDS, BLANK };

/* What of a value is words: under these keys texts, parts that have them, and
 * every string of arguments. */
static enum depth depth_of(const char *key, const json_t *item)
{
    static const char *const keys[] = {
            "content",  "text",      "reasoning_content",
            "thinking", "reasoning", "tool_calls",
            "function", "name",      "arguments"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (key[0] == keys[i][0] && key[1] == keys[i][1] &&
            strcmp(key, keys[i]) == 0)
            return json_is_string(item) || i == 8 ? ALL_WORDS : BY_KEY;
    return NO_WORDS;
}

static bool is_blank(const json_t *message, bool beside_calls)
{
    const char *key;
    json_t *item, *content = NULL;
    /* found as the key is written, without a look into the object's table */
    json_object_foreach((json_t *)message, key, item)
    {
        if (key[0] == 'c' && strcmp(key, "content") == 0)
            content = item;
    }
    size_t bytes = json_string_length(content);
    return json_is_string(content) &&
           jinja_blanks(json_string_value(content), bytes) == bytes &&
           (beside_calls || (!json_object_get(message, "tool_calls") &&
                             !json_object_get(message, "thinking")));
}

static void put_value(
        struct chat_memory *to, const json_t *value, size_t message,
        enum depth depth);

static void put_object(
        struct chat_memory *to, const json_t *value, size_t message,
        enum depth depth, bool is_message)
{
    const char *key, *before = "{\"";
    json_t *item;
    json_object_foreach((json_t *)value, key, item)
    {
        enum depth under = depth == BY_KEY ? depth_of(key, item) : depth;
        if (is_message && key[0] == 'n' && strcmp(key, "name") == 0)
            under = NO_WORDS; /* is no word of its */
        if (depth == BLANK)
            under = strcmp(key, "content") == 0 ? BLANK : NO_WORDS;
        put(to, before, 2);
        put_escaped(to, key, strlen(key));
        put(to, "\":", 2);
        put_value(to, item, message, under);
        before = ",\"";
    }
    put(to, "{}", before[0] == '{' ? 2 : 0);
    put(to, "}", before[0] == ',');
}

static void put_value(
        struct chat_memory *to, const json_t *value, size_t message,
        enum depth depth)
{
    const char *text = json_string_value(value);
    size_t bytes = json_string_length(value), i;
    json_t *item;
    if (json_is_object(value)) {
        put_object(to, value, message, depth, false);
    } else if (json_is_array(value)) {
        put(to, "[", 1);
        json_array_foreach(value, i, item)
        {
            put(to, ",", i > 0);
            put_value(to, item, message, depth);
        }
        put(to, "]", 1);
    } else if (text) {
        put(to, "\"", 1);
        if (depth == BLANK)
            put_mark(to, (struct word){text, bytes, message, true});
        else if (depth == ALL_WORDS)
            put_words(to, text, bytes, message);
        else
            put_escaped(to, text, bytes);
        put(to, "\"", 1);
    } else {
        char number[64];
        put(to, number,
            json_dumpb(value, number, sizeof number, JSON_ENCODE_ANY));
    }
}

void chat_write_key(
        struct chat_memory *memory, const struct conversation *conversation,
        enum marked marked)
{
    const json_t *beside[] = {
            conversation->tools, conversation->documents,
            conversation->variables};
    json_t *message;
    size_t i;
    memory->key_bytes = memory->word_count = 0;
    memory->has_blank = false;
    memory->in_pieces = marked == MARKS_PIECES || marked == MARKS_BLANK;
    json_array_foreach(conversation->messages, i, message)
    {
        bool is_assistant = conversation->turns[i].is_assistant;
        bool is = marked == MARKS_ALL || (marked < MARKS_NONE && is_assistant);
        bool blank = is_assistant && is_blank(message, marked == MARKS_BLANK);
        enum depth depth = !is ? NO_WORDS : blank ? BLANK : BY_KEY;
        memory->has_blank |= depth == BLANK;
        put(memory, i > 0 ? "," : "[", 1);
        put_object(memory, message, i, depth, true);
    }
    put(memory, "]", 1);
    memory->messages_bytes = memory->key_bytes;
    for (i = 0; i < 3; i++) {
        put(memory, "\n", 1);
        if (beside[i])
            put_value(memory, beside[i], 0, NO_WORDS);
    }
    for (i = 0; memory->has_blank && i < memory->word_count; i++)
        put(memory, memory->words[i].is_blank ? "-" : "+", 1);
    put(memory, (const char *)&memory->is_whole, sizeof memory->is_whole);
    put(memory, (const char *)memory->wanted,
        json_array_size(conversation->messages));
}
