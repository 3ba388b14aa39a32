/* chat_spans.c - which text of a rendered conversation is whose, for templates
 * without {% generation %}.
 *
 *   text <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nNo.<|im_end|>\n
 *   skeleton
 * <|im_start|>user\n[0]<|im_end|>\n<|im_start|>assistant\n[1]<|im_end|>\n
 *   prompt    <|im_start|>user\n[0]<|im_end|>\n<|im_start|>assistant\n
 *
 * The skeleton is the same conversation with marks in place of what the
 * messages say. A mark keeps what templates look for: space around a text, and
 * the words of `kept`. With the texts put back it has to be the text, byte by
 * byte; so it tells where in the text each message's words are, and which text
 * is the template's own.
 *
 * A message's range begins where the prompt ends, which is the skeleton of the
 * messages before it with add_generation_prompt, and ends where the skeleton of
 * the messages up to it does, without the white space at its end. A template
 * that looks ahead (Qwen3 drops thoughts of earlier turns) makes other text of
 * these; then only what they add to the last mark is looked for around the
 * message's marks.
 *
 * A template that looks into the words of users is tried again with marks for
 * the assistant alone, one that looks into all of them without any. */
#include "data/chat.h"

#include "base/must.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>

enum marked { MARKS_ALL, MARKS_ASSISTANT, MARKS_NONE };

/* A mark is two characters of planes 15 and 16, which are for private use. */
enum { MARK_BYTES = 8, MARK_DIGITS = 15, NO_PLACE = -1 };
enum { SHAPE_MESSAGES = 1000 }; /* longer ones are not kept */

struct word { /* what a mark stands for */
    const char *text;
    size_t bytes;
    size_t message;
};

struct place { /* where the skeleton has a mark */
    size_t at, text_begin, text_end;
    size_t word;
};

struct message_place { /* its first and last mark, among the places */
    size_t first, last;
    bool has;
};

struct skeleton {
    struct chat_renderer *renderer;
    const struct conversation *conversation;
    enum marked marked;
    json_t *messages;
    struct word *words;
    size_t word_count, word_capacity;
    struct jinja_output text;
    struct place *places;
    size_t place_count, place_capacity;
    struct message_place *of; /* (messages) */
};

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

static size_t without_spaces_after(const char *text, size_t bytes)
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

static bool is_mark(const char *text, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)text;
    return bytes >= MARK_BYTES && at[0] == 0xf3 && at[1] >= 0xb0 &&
           at[4] == 0xf4 && at[5] < 0x90;
}

static size_t mark_word(const char *text)
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
    size_t end = without_spaces_after(text, bytes);
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

static bool is_assistant(const json_t *message)
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
static enum zd_status render(
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
               !is_mark(mark, (size_t)(end - mark)))
            mark++;
        size_t fixed = (size_t)((mark ? mark : end) - from);
        if (fixed > text->bytes - at ||
            memcmp(text->text + at, from, fixed) != 0)
            return false;
        at += fixed;
        if (!mark)
            break;
        size_t n = mark_word(mark), left = text->bytes - at, taken;
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
static size_t in_text(const struct skeleton *s, size_t at)
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

static void skeleton_fini(struct skeleton *s)
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
    ZD_TRY(render(s, json_array_size(s->messages), false, &s->text));
    if (!is_known || json_array_size(s->messages) > SHAPE_MESSAGES)
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
static enum zd_status skeleton_make(
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
                  (marked == MARKS_ASSISTANT && is_assistant(message));
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

/* --- the edges of a message ----------------------------------------------- */

/* Of the template's own text around a message, in the skeleton. */
struct around {
    size_t before, first; /* between the mark before it and its first one */
    size_t last, after;   /* between its last one and the next */
};

/* Of a message with marks; false: those of others are among them. */
static bool find_around(
        const struct skeleton *s, size_t message, struct around *out)
{
    const struct message_place *of = &s->of[message];
    for (size_t p = of->first; p <= of->last; p++)
        if (s->words[s->places[p].word].message != message)
            return false;
    out->before = of->first > 0 ? s->places[of->first - 1].at + MARK_BYTES : 0;
    out->first = s->places[of->first].at;
    out->last = s->places[of->last].at + MARK_BYTES;
    out->after = of->last + 1 < s->place_count ? s->places[of->last + 1].at
                                               : s->text.bytes;
    return true;
}

static bool is_prefix(
        const struct jinja_output *text, const struct jinja_output *of)
{
    return text->bytes <= of->bytes &&
           (text->bytes == 0 || memcmp(text->text, of->text, text->bytes) == 0);
}

/* `length` bytes of `text` that go on otherwise: without what may be the begin
 * of a marker, as "<|" is. */
static size_t without_begun_marker(const char *text, size_t length)
{
    for (size_t at = length; at-- > 0 && text[at] != '>';)
        if (text[at] == '<')
            return at;
    return length;
}

/* Its role, those beside it, and what it has. */
static size_t kind_of(const struct skeleton *s, size_t message)
{
    static const char *const keys[] = {
            "content", "reasoning_content", "tool_calls", "thinking"};
    const json_t *it = json_array_get(s->messages, message);
    size_t count = json_array_size(s->messages);
    const char *roles[] = {
            message > 0
                    ? json_string_at(
                              json_array_get(s->messages, message - 1), "role")
                    : "^",
            json_string_at(it, "role"),
            message + 1 < count
                    ? json_string_at(
                              json_array_get(s->messages, message + 1), "role")
                    : "$"};
    uint64_t kind = s->conversation->tools != NULL;
    for (size_t i = 0; i < 3; i++)
        if (roles[i])
            kind = hash_64(roles[i], strlen(roles[i]), kind + 1);
    for (size_t i = 0; i < 4; i++)
        kind = kind * 2 + (json_object_get(it, keys[i]) != NULL);
    return (size_t)kind;
}

/* The bytes of a known edge, or 0. */
static size_t known_edge(
        const struct skeleton *s, const struct chat_edge *edges, size_t kind,
        const char *text, size_t bytes)
{
    for (size_t i = 0; i < CHAT_EDGES && !s->conversation->variables; i++)
        if (edges[i].text && edges[i].kind == kind && edges[i].bytes <= bytes &&
            memcmp(edges[i].text, text, edges[i].bytes) == 0)
            return edges[i].bytes;
    return 0;
}

static void learn(
        const struct skeleton *s, struct chat_edge *edges, size_t *count,
        size_t kind, const char *text, size_t bytes)
{
    struct chat_edge *edge = &edges[*count % CHAT_EDGES];
    if (bytes == 0 || s->conversation->variables)
        return;
    ++*count;
    free(edge->text);
    *edge = (struct chat_edge){kind, bytes, zd_must(malloc(bytes))};
    memcpy(edge->text, text, bytes);
}

/* Where the generation prompt ends in [from, to). What it begins with its last
 * markers may be missing there, as <think> is in earlier turns. NO_PLACE: not
 * found. */
static int64_t find_prompt(
        const char *prompt, size_t prompt_bytes, const char *text, size_t from,
        size_t to)
{
    for (size_t length = prompt_bytes; length > 0;) {
        for (size_t at = to; at-- > from;)
            if (at + length <= to && memcmp(text + at, prompt, length) == 0)
                return (int64_t)(at + length);
        do
            length--;
        while (length > 0 && prompt[length] != '<');
    }
    return NO_PLACE;
}

/* A template may refuse a part of a conversation. */
static bool is_refusal(enum zd_status status)
{
    bool is = status != ZD_OK && strcmp(zd_error_get()->code, "E0415") == 0;
    if (is)
        zd_error_clear();
    return is;
}

/* What add_generation_prompt adds after the first `count` messages, or where
 * these are refused after one of a user: `out` from *from_out on. */
static enum zd_status generation_prompt(
        struct skeleton *s, size_t count, struct jinja_output *out,
        size_t *from_out)
{
    struct jinja_output before = {0};
    enum zd_status status = render(s, count, true, out);
    if (status == ZD_OK)
        status = render(s, count, false, &before);
    if (is_refusal(status)) {
        json_t *one = json_pack("[{s:s, s:s}]", "role", "user", "content", "x");
        status = chat_render_text(s->renderer, s->conversation, one, true, out);
        if (status == ZD_OK)
            status = chat_render_text(
                    s->renderer, s->conversation, one, false, &before);
        json_decref(one);
    }
    size_t same = 0;
    while (same < out->bytes && same < before.bytes &&
           out->text[same] == before.text[same])
        same++;
    *from_out =
            same < before.bytes ? without_begun_marker(out->text, same) : same;
    jinja_output_fini(&before);
    return status;
}

/* In the skeleton; NO_PLACE: not found. */
static enum zd_status find_begin(
        struct skeleton *s, size_t message, const struct around *around,
        int64_t *at_out)
{
    struct jinja_output prompt = {0};
    const char *text = s->text.text;
    size_t from = 0, kind = kind_of(s, message);
    size_t bytes = around->first - around->before;
    size_t known = known_edge(
            s, s->renderer->begins, kind, text + around->before, bytes);
    *at_out = (int64_t)(around->before + known);
    if (known > 0)
        return ZD_OK;
    *at_out = NO_PLACE;
    enum zd_status status = generation_prompt(s, message, &prompt, &from);
    if (status == ZD_OK && is_prefix(&prompt, &s->text) &&
        prompt.bytes >= around->before && prompt.bytes <= around->first) {
        *at_out = (int64_t)prompt.bytes;
        learn(s, s->renderer->begins, &s->renderer->begin_count, kind, text + around->before,
              prompt.bytes - around->before);
    } else if (status == ZD_OK) {
        *at_out = find_prompt(
                prompt.text + from, prompt.bytes - from, text, around->before,
                around->first);
    }
    jinja_output_fini(&prompt);
    return status;
}

/* Bytes of the end mark at `text`, of which `alone` follows the message where
 * it is the last one; NO_PLACE: it cannot be told. */
static int64_t end_mark(
        const char *text, size_t bytes, const char *alone, size_t alone_bytes)
{
    size_t same = 0;
    alone_bytes = without_spaces_after(alone, alone_bytes);
    while (same < bytes && same < alone_bytes && text[same] == alone[same])
        same++;
    if (same == alone_bytes)
        return (int64_t)same;
    size_t spaces = without_begun_marker(alone, same);
    same = without_spaces_after(alone, spaces);
    if (same > 0)
        return (int64_t)same;
    /* another mark, as gpt-oss has <|return|> and <|end|> */
    const char *close = spaces < bytes && text[spaces] == '<'
                                ? memchr(text + spaces, '>', bytes - spaces)
                                : NULL;
    return close ? close + 1 - text : NO_PLACE;
}

static enum zd_status find_end(
        struct skeleton *s, size_t message, const struct around *around,
        int64_t *at_out)
{
    const char *text = s->text.text;
    size_t kind = kind_of(s, message), bytes = around->after - around->last;
    size_t count = json_array_size(s->messages);
    struct jinja_output upto = {0};
    size_t known = known_edge(
            s, s->renderer->ends, kind, text + around->last, bytes);
    *at_out = (int64_t)(around->last + known);
    if (known > 0)
        return ZD_OK;
    *at_out = NO_PLACE;
    if (message + 1 == count) {
        *at_out =
                (int64_t)(around->last + without_spaces_after(text + around->last, bytes));
        return ZD_OK;
    }
    ZD_TRY(render(s, message + 1, false, &upto));
    size_t last = upto.bytes;
    while (last >= MARK_BYTES &&
           !is_mark(upto.text + last - MARK_BYTES, MARK_BYTES))
        last--;
    bool is_of_it =
            last >= MARK_BYTES &&
            mark_word(upto.text + last - MARK_BYTES) < s->word_count &&
            s->words[mark_word(upto.text + last - MARK_BYTES)].message ==
                    message;
    int64_t mark = is_of_it ? end_mark(
                                      text + around->last, bytes,
                                      upto.text + last, upto.bytes - last)
                            : NO_PLACE;
    jinja_output_fini(&upto);
    if (mark == NO_PLACE)
        return ZD_OK;
    *at_out = (int64_t)around->last + mark;
    if (mark > 0)
        learn(s, s->renderer->ends, &s->renderer->end_count, kind, text + around->last, (size_t)mark);
    return ZD_OK;
}

/* --- ranges --------------------------------------------------------------- */

/* By the texts before and up to a message, where both begin the skeleton, or
 * are the same since the template prints nothing of the message. */
static enum zd_status find_by_prefixes(
        struct skeleton *s, size_t message, bool is_whole, bool *found_out,
        size_t *begin_out, size_t *end_out)
{
    struct jinja_output plain = {0}, prompt = {0}, upto = {0};
    const struct jinja_output *before = is_whole ? &plain : &prompt;
    enum zd_status status = ZD_OK;
    if (message > 0)
        status = render(s, message, false, &plain);
    if (status == ZD_OK && !is_whole)
        status = render(s, message, true, &prompt);
    if (status == ZD_OK)
        status = render(s, message + 1, false, &upto);
    *begin_out = *end_out = before->bytes;
    *found_out = status == ZD_OK && message > 0 && plain.bytes == upto.bytes &&
                 is_prefix(&plain, &upto);
    if (status == ZD_OK && !*found_out && is_prefix(before, &s->text) &&
        is_prefix(&upto, &s->text)) {
        size_t end = is_whole ? upto.bytes
                              : without_spaces_after(upto.text, upto.bytes);
        *found_out = true;
        if (end > before->bytes)
            *end_out = end;
    }
    if (*begin_out > s->text.bytes)
        *begin_out = *end_out = s->text.bytes;
    jinja_output_fini(&plain);
    jinja_output_fini(&prompt);
    jinja_output_fini(&upto);
    return status;
}

/* The end of the n-th generation prompt in [from, to), where there are
 * `count`. */
static int64_t find_nth_prompt(
        const char *prompt, size_t prompt_bytes, const char *text, size_t from,
        size_t to, size_t n, size_t count)
{
    int64_t found = NO_PLACE;
    size_t seen = 0;
    for (size_t at = from; prompt_bytes > 0 && at + prompt_bytes <= to;) {
        bool is = memcmp(text + at, prompt, prompt_bytes) == 0;
        at += is ? prompt_bytes : 1;
        if (is && seen++ == n)
            found = (int64_t)at;
    }
    return seen == count ? found : NO_PLACE;
}

/* Of a message without words, between the marks of its neighbors: its
 * generation prompt, and what follows it. */
static enum zd_status find_bare(
        struct skeleton *s, size_t message, bool *found_out, size_t *begin_out,
        size_t *end_out)
{
    struct jinja_output prompt = {0}, upto = {0};
    const char *text = s->text.text;
    size_t p = 0, begins = 0, n = 0, count = 0;
    while (p < s->place_count && s->words[s->places[p].word].message < message)
        p++;
    size_t from = p > 0 ? s->places[p - 1].at + MARK_BYTES : 0;
    size_t to = p < s->place_count ? s->places[p].at : s->text.bytes;
    size_t before = p > 0 ? s->words[s->places[p - 1].word].message + 1 : 0;
    size_t after = p < s->place_count ? s->words[s->places[p].word].message + 1
                                      : json_array_size(s->messages);
    for (size_t i = before; i < after; i++) {
        bool is = is_assistant(json_array_get(s->messages, i));
        n += is && i < message;
        count += is;
    }
    enum zd_status status = generation_prompt(s, message, &prompt, &begins);
    if (status == ZD_OK)
        status = render(s, message + 1, false, &upto);
    if (status == ZD_OK) {
        const char *mark = prompt.text + begins;
        size_t bytes = prompt.bytes - begins;
        int64_t end = NO_PLACE, begin = NO_PLACE;
        while (bytes > 0 && begin == NO_PLACE) {
            begin = find_nth_prompt(mark, bytes, text, from, to, n, count);
            do /* without its last marker, as in find_prompt */
                bytes -= begin == NO_PLACE;
            while (begin == NO_PLACE && bytes > 0 && mark[bytes] != '<');
        }
        int64_t alone = find_prompt(mark, bytes, upto.text, 0, upto.bytes);
        if (begin != NO_PLACE && alone != NO_PLACE)
            end = end_mark(
                    text + begin, to - (size_t)begin, upto.text + alone,
                    upto.bytes - (size_t)alone);
        *found_out = end != NO_PLACE;
        *begin_out = (size_t)begin;
        *end_out = (size_t)(begin + end);
    }
    jinja_output_fini(&prompt);
    jinja_output_fini(&upto);
    return status;
}

static enum zd_status find_range(
        struct skeleton *s, size_t message, bool is_whole, bool *found_out,
        size_t *begin_out, size_t *end_out)
{
    struct around around;
    int64_t begin = NO_PLACE, end = NO_PLACE;
    if (is_whole || !s->of[message].has) {
        enum zd_status status = find_by_prefixes(
                s, message, is_whole, found_out, begin_out, end_out);
        if (status != ZD_OK && !is_refusal(status))
            return status;
        return *found_out || is_whole || s->marked == MARKS_NONE
                       ? ZD_OK
                       : find_bare(s, message, found_out, begin_out, end_out);
    }
    if (!find_around(s, message, &around))
        return ZD_OK;
    ZD_TRY(find_begin(s, message, &around, &begin));
    if (begin != NO_PLACE)
        ZD_TRY(find_end(s, message, &around, &end));
    *found_out = begin != NO_PLACE && end != NO_PLACE;
    *begin_out = (size_t)begin;
    *end_out = (size_t)end;
    return ZD_OK;
}

/* *missing_out: the message, from 1, whose range is not found; 0: none. */
static enum zd_status find_ranges(
        struct skeleton *s, const bool *wanted, bool is_whole,
        struct document *document, size_t *missing_out)
{
    size_t count = json_array_size(s->messages), begin = 0, end = 0;
    *missing_out = 0;
    for (size_t i = 0; i < count; i++) {
        bool found = false;
        if (!wanted[i])
            continue;
        enum zd_status status =
                find_range(s, i, is_whole, &found, &begin, &end);
        if (status != ZD_OK && !is_refusal(status))
            return status;
        if (!found) {
            *missing_out = i + 1;
            return ZD_OK;
        }
        if (begin < end || is_whole)
            document_train(document, in_text(s, begin), in_text(s, end));
    }
    return ZD_OK;
}

static enum zd_status fail_missing(const struct chat *chat, size_t message)
{
    ZD_FAIL(ZD_ERR_DATA, "E0417",
            "it cannot be told which text of the chat template is of message "
            "%zu (%s)",
            message, chat->name);
    zd_fail_help(
            "\"train\": false leaves the message out of the loss; a template "
            "with {%% generation %%} around the assistant's text "
            "(data.chat_template = \"PATH\") says what to train; "
            "data.train_on = \"all\" trains everything");
    return ZD_ERR_DATA;
}

enum zd_status chat_find_spans(
        struct chat_renderer *renderer, const struct conversation *conversation,
        const bool *wanted, bool is_whole, struct document *document)
{
    size_t missing = 1, first = 0;
    for (int marked = MARKS_ALL; missing && marked <= MARKS_NONE; marked++) {
        struct skeleton skeleton = {
                .renderer = renderer, .conversation = conversation};
        bool is_sound = false;
        document->trained_count = 0;
        enum zd_status status =
                skeleton_make(&skeleton, (enum marked)marked, &is_sound);
        if (status == ZD_OK && is_sound)
            status = find_ranges(
                    &skeleton, wanted, is_whole, document, &missing);
        skeleton_fini(&skeleton);
        if (status != ZD_OK && !is_refusal(status))
            return status;
        if (!first && is_sound)
            first = missing;
    }
    return missing ? fail_missing(renderer->chat, first ? first : 1) : ZD_OK;
}
