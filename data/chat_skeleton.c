#include "data/chat_skeleton.h"

#include "base/must.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>

/* --- marks ---------------------------------------------------------------- */

/* White space as Python's str.strip knows it. */
static bool is_space(uint32_t c)
{
    bool is = c >= 0x1c && c <= 0x1f;
    for (int r = 0; r < unicode_spaces.count && !is; r++)
        is = c >= unicode_spaces.ranges[r].begin &&
             c <= unicode_spaces.ranges[r].end;
    return is;
}

static size_t spaces_before(const char *text, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t n = 0;
    unsigned step;
    while (n < bytes && is_space(utf8_read(at + n, &step)))
        n += step;
    return n;
}

size_t chat_strip_end(const char *text, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)text;
    unsigned step;
    while (bytes > 0) {
        size_t last = utf8_before(at, bytes);
        if (!is_space(utf8_read(at + last, &step)))
            break;
        bytes = last;
    }
    return bytes;
}

bool chat_is_mark(const char *text, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)text;
    return bytes >= MARK_BYTES && at[0] == 0xf3 && at[1] >= 0xb0 &&
           at[4] == 0xf4 && at[5] < 0x90;
}

size_t chat_mark_word(const char *text)
{
    unsigned step;
    const unsigned char *at = (const unsigned char *)text;
    return (size_t)(utf8_read(at, &step) - 0xf0000) << MARK_DIGITS |
           (size_t)(utf8_read(at + 4, &step) - 0x100000);
}

static void write_mark(size_t word, char out[MARK_BYTES])
{
    utf8_write(
            (unsigned char *)out, (uint32_t)(0xf0000 + (word >> MARK_DIGITS)));
    utf8_write(
            (unsigned char *)out + 4,
            (uint32_t)(0x100000 + (word & ((1u << MARK_DIGITS) - 1))));
}

/* What templates look for within a message. */
static const char *const kept[] = {
        "<think>",   "</think>", "<tool_response>", "</tool_response>",
        "/no_think", "/nothink", "/think"};

static size_t kept_bytes(const char *text, size_t bytes)
{
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        if (bytes >= strlen(kept[i]) &&
            memcmp(text, kept[i], strlen(kept[i])) == 0)
            return strlen(kept[i]);
    return 0;
}

struct bytes {
    char *data;
    size_t count, capacity;
};

static void append(struct bytes *to, const char *data, size_t count)
{
    if (count == 0)
        return;
    to->data = zd_grow(to->data, &to->capacity, to->count + count, 1);
    memcpy(to->data + to->count, data, count);
    to->count += count;
}

/* Text without a kept word. */
static void append_marked(
        struct skeleton *s, struct bytes *to, const char *text, size_t bytes,
        size_t message)
{
    char mark[MARK_BYTES];
    size_t before = spaces_before(text, bytes);
    size_t end = chat_strip_end(text, bytes);
    if (before >= end) {
        append(to, text, bytes);
        return;
    }
    s->words = zd_grow(
            s->words, &s->word_capacity, s->word_count + 1, sizeof *s->words);
    s->words[s->word_count] =
            (struct word){text + before, end - before, message};
    write_mark(s->word_count++, mark);
    append(to, text, before);
    append(to, mark, MARK_BYTES);
    append(to, text + end, bytes - end);
}

static json_t *marked_string(
        struct skeleton *s, const json_t *string, size_t message)
{
    const char *text = json_string_value(string);
    size_t bytes = json_string_length(string), from = 0;
    struct bytes out = {0};
    for (size_t at = 0; at < bytes;) {
        const char *next = strpbrk(text + at, "</");
        size_t skip =
                next ? kept_bytes(next, bytes - (size_t)(next - text)) : 0;
        if (!next)
            break;
        at = (size_t)(next - text);
        if (skip > 0) {
            append_marked(s, &out, text + from, at - from, message);
            append(&out, next, skip);
            from = at + skip;
        }
        at += skip > 0 ? skip : 1;
    }
    append_marked(s, &out, text + from, bytes - from, message);
    json_t *marked = json_stringn_nocheck(out.data ? out.data : "", out.count);
    free(out.data);
    return zd_must(marked);
}

/* Strings of an argument at any depth, of parts their text, and what is under
 * the other names in `keys`. */
static json_t *marked_value(
        struct skeleton *s, const json_t *value, size_t message, bool is_all)
{
    static const char *const keys[] = {
            "content",  "text",      "reasoning_content",
            "thinking", "reasoning", "tool_calls",
            "function", "name",      "arguments"};
    if (json_is_string(value) && is_all)
        return marked_string(s, value, message);
    if (json_is_array(value)) {
        json_t *list = json_array(), *item;
        size_t i;
        json_array_foreach(value, i, item) json_array_append_new(
                list, marked_value(s, item, message, is_all));
        return list;
    }
    if (!json_is_object(value))
        return json_incref((json_t *)value);
    json_t *object = json_object(), *item;
    const char *key;
    json_object_foreach((json_t *)value, key, item)
    {
        bool is = is_all, goes_in = is_all;
        for (size_t i = 0; i < sizeof keys / sizeof keys[0] && !is; i++)
            if (strcmp(key, keys[i]) == 0) {
                goes_in = true;
                is = json_is_string(item) || strcmp(key, "arguments") == 0;
            }
        json_object_set_new_nocheck(
                object, key,
                goes_in ? marked_value(s, item, message, is)
                        : json_incref(item));
    }
    return object;
}

bool chat_is_assistant(const json_t *message)
{
    const char *role = json_string_at(message, "role");
    return role && strcmp(role, "assistant") == 0;
}

/* A message's own name is no word of its. */
static json_t *marked_message(
        struct skeleton *s, const json_t *message, size_t index)
{
    json_t *marked = marked_value(s, message, index, false);
    json_t *name = json_object_get(message, "name");
    if (name)
        json_object_set(marked, "name", name);
    return marked;
}

/* --- the skeleton --------------------------------------------------------- */

/* Of the first `count` messages. */
enum zd_status skeleton_render(
        struct skeleton *s, size_t count, bool add_generation_prompt,
        struct jinja_output *out)
{
    json_t *messages = s->messages;
    if (count < json_array_size(s->messages)) {
        messages = json_array();
        for (size_t i = 0; i < count; i++)
            json_array_append(messages, json_array_get(s->messages, i));
    }
    enum zd_status status = chat_render_text(
            s->renderer, s->conversation, messages, add_generation_prompt, out);
    if (messages != s->messages)
        json_decref(messages);
    return status;
}

/* As JSON has it within a string; returns what it takes of `at`, 0: that is
 * other text. */
static size_t match_escaped(
        const char *at, size_t left, const char *word, size_t bytes)
{
    static const char plain[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf";
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)word[i];
        const char *found = c ? strchr(plain, c) : NULL;
        char text[8] = {word[i], 0};
        size_t count = 1;
        if (found)
            count = (size_t)snprintf(
                    text, sizeof text, "\\%c", letters[found - plain]);
        else if (c < 0x20)
            count = (size_t)snprintf(text, sizeof text, "\\u%04x", c);
        if (count > left - n || memcmp(at + n, text, count) != 0)
            return 0;
        n += count;
    }
    return n;
}

/* Is it the text with marks for words? Then `places` are known. */
static bool explains(struct skeleton *s)
{
    const struct jinja_output *text = &s->renderer->text;
    const char *from = s->text.text, *end = from + s->text.bytes;
    size_t at = 0;
    s->place_count = 0;
    while (from < end) {
        const char *mark = from;
        while ((mark = memchr(mark, 0xf3, (size_t)(end - mark))) &&
               !chat_is_mark(mark, (size_t)(end - mark)))
            mark++;
        size_t fixed = (size_t)((mark ? mark : end) - from);
        if (fixed > text->bytes - at ||
            memcmp(text->text + at, from, fixed) != 0)
            return false;
        at += fixed;
        if (!mark)
            break;
        size_t n = chat_mark_word(mark), left = text->bytes - at, taken;
        if (n >= s->word_count)
            return false;
        const struct word *word = &s->words[n];
        bool is_plain = word->bytes <= left &&
                        memcmp(text->text + at, word->text, word->bytes) == 0;
        taken = is_plain ? word->bytes
                         : match_escaped(
                                   text->text + at, left, word->text,
                                   word->bytes);
        if (taken == 0)
            return false;
        s->places =
                zd_grow(s->places, &s->place_capacity, s->place_count + 1,
                        sizeof *s->places);
        s->places[s->place_count++] = (struct place){
                (size_t)(mark - s->text.text), at, at + taken, n};
        at += taken;
        from = mark + MARK_BYTES;
    }
    return at == text->bytes;
}

/* A place of the template's own text in the skeleton, in the text. */
size_t skeleton_place(const struct skeleton *s, size_t at)
{
    size_t low = 0, high = s->place_count;
    while (low < high) { /* places before it */
        size_t middle = low + (high - low) / 2;
        if (s->places[middle].at < at)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return at;
    const struct place *before = &s->places[low - 1];
    return before->text_end + (at - before->at - MARK_BYTES);
}

static void place_messages(struct skeleton *s)
{
    for (size_t p = 0; p < s->place_count; p++) {
        struct message_place *of = &s->of[s->words[s->places[p].word].message];
        if (!of->has)
            of->first = p;
        of->last = p;
        of->has = true;
    }
}

void skeleton_fini(struct skeleton *s)
{
    json_decref(s->messages);
    jinja_output_fini(&s->text);
    free(s->words);
    free(s->places);
    free(s->of);
}

static void copy_output(
        const struct jinja_output *from, struct jinja_output *to)
{
    *to = (struct jinja_output){
            .text = zd_must(malloc(from->bytes + 1)), .bytes = from->bytes};
    memcpy(to->text, from->text, from->bytes);
    to->text[from->bytes] = '\0';
}

/* That of an earlier conversation with the same marks, where there is one:
 * explains() sees whether it is right for this one. */
static enum zd_status render_skeleton(struct skeleton *s, enum marked marked)
{
    struct chat_renderer *renderer = s->renderer;
    bool is_known = marked == MARKS_ALL && !s->conversation->variables &&
                    !s->conversation->tools && !s->conversation->documents;
    for (size_t i = 0; is_known && i < CHAT_SHAPES; i++)
        if (renderer->shapes[i].messages &&
            json_equal(renderer->shapes[i].messages, s->messages)) {
            copy_output(&renderer->shapes[i].text, &s->text);
            return ZD_OK;
        }
    ZD_TRY(skeleton_render(s, json_array_size(s->messages), false, &s->text));
    if (!is_known || json_array_size(s->messages) > SHAPE_MESSAGES ||
        s->text.bytes > SHAPE_BYTES)
        return ZD_OK;
    struct chat_shape *shape =
            &renderer->shapes[renderer->shape_count++ % CHAT_SHAPES];
    json_decref(shape->messages);
    jinja_output_fini(&shape->text);
    shape->messages = json_incref(s->messages);
    copy_output(&s->text, &shape->text);
    return ZD_OK;
}

/* *sound_out: it explains the text. */
enum zd_status skeleton_make(
        struct skeleton *s, enum marked marked, bool *sound_out)
{
    const json_t *messages = s->conversation->messages;
    size_t count = json_array_size(messages);
    s->marked = marked;
    s->messages = json_array();
    s->of = zd_array(count + 1, sizeof *s->of);
    for (size_t i = 0; i < count; i++) {
        json_t *message = json_array_get(messages, i);
        bool is = marked == MARKS_ALL ||
                  (marked == MARKS_ASSISTANT && chat_is_assistant(message));
        json_array_append_new(
                s->messages,
                is ? marked_message(s, message, i) : json_incref(message));
    }
    ZD_TRY(render_skeleton(s, marked));
    *sound_out = explains(s);
    if (*sound_out)
        place_messages(s);
    return ZD_OK;
}
