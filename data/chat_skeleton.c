#include "data/chat_skeleton.h"

#include "base/must.h"
#include "data/tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>

/* --- messages as JSON with marks in place of words ------------------------ */

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

static void put_mark(
        struct chat_memory *to, const char *text, size_t bytes, bool is_blank)
{
    if (to->word_count == to->word_capacity)
        ZD_GROW(to->words, to->word_capacity, to->word_count + 1);
    to->words[to->word_count] =
            (struct word){text, bytes, to->message, is_blank};
    jinja_write_mark(to->word_count++, reserve(to, MARK_BYTES));
    to->key_bytes += MARK_BYTES;
}

static void put_whole_word(
        struct chat_memory *to, const char *text, size_t bytes)
{
    size_t before = jinja_blanks(text, bytes);
    size_t end = before < bytes ? chat_strip_end(text, bytes) : 0;
    if (before >= end) {
        put_escaped(to, text, bytes);
        return;
    }
    put_escaped(to, text, before);
    put_mark(to, text + before, end - before, false);
    put_escaped(to, text + end, bytes - end);
}

static bool is_escaped(uint32_t c)
{
    return c == '"' || c == '\'' || c == '\\' || !jinja_is_printable(c);
}

/* Text without a kept word. */
static void put_word(struct chat_memory *to, const char *text, size_t bytes)
{
    size_t from = 0;
    unsigned step;
    for (size_t at = 0; to->in_pieces && at < bytes; at += step)
        if (is_escaped(utf8_read((const unsigned char *)text + at, &step))) {
            put_whole_word(to, text + from, at - from);
            put_escaped(to, text + at, step);
            from = at + step;
        }
    put_whole_word(to, text + from, bytes - from);
}

/* The words of a text, and what is kept between them. */
static void put_words(struct chat_memory *to, const char *text, size_t bytes)
{
    bool may = memchr(text, '<', bytes) || memchr(text, '/', bytes);
    size_t from = 0, at = may ? strcspn(text, "</") : bytes, skip;
    for (; at < bytes; at += strcspn(text + at, "</")) {
        skip = kept_bytes(text + at, bytes - at);
        if (skip > 0) {
            put_word(to, text + from, at - from);
            put(to, text + at, skip);
            from = at + skip;
        }
        at += skip > 0 ? skip : 1;
    }
    put_word(to, text + from, bytes - from);
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
    json_t *content = NULL;
    /* found as the key is written, without a look into the object's table */
    JSON_MEMBERS(key, item, message) {
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
        struct chat_memory *to, const json_t *value, enum depth depth);

static void put_object(
        struct chat_memory *to, const json_t *value, enum depth depth,
        bool is_message)
{
    const char *before = "{\"";
    JSON_MEMBERS(key, item, value) {
        enum depth under = depth == BY_KEY ? depth_of(key, item) : depth;
        if (is_message && key[0] == 'n' && strcmp(key, "name") == 0)
            under = NO_WORDS; /* is no word of its */
        if (depth == BLANK)
            under = strcmp(key, "content") == 0 ? BLANK : NO_WORDS;
        put(to, before, 2);
        put_escaped(to, key, strlen(key));
        put(to, "\":", 2);
        put_value(to, item, under);
        before = ",\"";
    }
    put(to, "{}", before[0] == '{' ? 2 : 0);
    put(to, "}", before[0] == ',');
}

static void put_value(
        struct chat_memory *to, const json_t *value, enum depth depth)
{
    const char *text = json_string_value(value);
    size_t bytes = json_string_length(value);
    if (json_is_object(value)) {
        put_object(to, value, depth, false);
    } else if (json_is_array(value)) {
        put(to, "[", 1);
        JSON_EACH_AT(i, item, value) {
            put(to, ",", i > 0);
            put_value(to, item, depth);
        }
        put(to, "]", 1);
    } else if (text) {
        put(to, "\"", 1);
        if (depth == BLANK)
            put_mark(to, text, bytes, true);
        else if (depth == ALL_WORDS)
            put_words(to, text, bytes);
        else
            put_escaped(to, text, bytes);
        put(to, "\"", 1);
    } else {
        char number[64];
        put(to, number,
            json_dumpb(value, number, sizeof number, JSON_ENCODE_ANY));
    }
}

void chat_write_key(struct chat_renderer *renderer, enum marked marked)
{
    struct chat_memory *memory = renderer->memory;
    const struct conversation *talk = renderer->talk;
    const json_t *beside[] = {talk->tools, talk->documents, talk->variables};
    memory->key_bytes = memory->word_count = 0;
    memory->has_blank = false;
    memory->in_pieces = marked == MARKS_PIECES || marked == MARKS_BLANK;
    JSON_EACH_AT(i, message, talk->messages) {
        bool is_assistant = talk->turns[i].is_assistant;
        bool is = marked == MARKS_ALL || (marked < MARKS_NONE && is_assistant);
        bool blank = is_assistant && is_blank(message, marked == MARKS_BLANK);
        enum depth depth = !is ? NO_WORDS : blank ? BLANK : BY_KEY;
        memory->has_blank |= depth == BLANK;
        put(memory, i > 0 ? "," : "[", 1);
        memory->message = i;
        put_object(memory, message, depth, true);
    }
    put(memory, "]", 1);
    memory->messages_bytes = memory->key_bytes;
    for (int i = 0; i < 3; i++) {
        put(memory, "\n", 1);
        if (beside[i])
            put_value(memory, beside[i], NO_WORDS);
    }
    for (size_t i = 0; memory->has_blank && i < memory->word_count; i++)
        put(memory, memory->words[i].is_blank ? "-" : "+", 1);
    put(memory, (const char *)&memory->is_whole, sizeof memory->is_whole);
    put(memory, (const char *)memory->wanted, json_array_size(talk->messages));
}

/* --- a conversation, or some messages of it, rendered --------------------- */

#define REFUSED "E0415" /* the template does, or fails on, the conversation */
static enum zd_status fail_rendering(
        const struct chat *chat, enum jinja_result result, const char *why)
{
    if (result == JINJA_OVER) {
        ZD_BAD("E0414", "the chat template %s", why);
        zd_fail_help("no chat template needs as much: the template is broken "
                     "or hostile, or the conversation too long");
    } else if (result == JINJA_UNKNOWN) {
        ZD_BAD("E0416", "the chat template cannot be used: %s", why);
    } else {
        ZD_BAD(REFUSED, "the chat template %s: %s (%s)",
               result == JINJA_RAISED ? "refuses the conversation"
                                      : "fails on the conversation",
               why, chat->name);
    }
    return ZD_ERR_DATA;
}

static void set(json_t *context, const char *key, const json_t *value)
{
    json_object_set(context, key, value ? (json_t *)value : json_null());
}

/* A conversation is rendered up to some 50 times, a value of it in 5 to 100
 * steps each time, and its texts are copied. A template that takes more is
 * hostile: it would take it for each row of a file. MOST_STEPS take about 2 s,
 * whatever the conversation. */
enum {
    MOST_STEPS = 100000000,
    BASE_STEPS = 2000000,
    VALUE_STEPS = 5000,
    BYTE_STEPS = 4,
    BASE_BYTES = 32 << 20,
    VALUE_BYTES = 8 << 10,
    BYTE_BYTES = 64
};

/* JSON that was parsed, so its depth is bounded. */
static void allow(const json_t *value, struct jinja_limits *limits)
{
    size_t bytes = json_string_length(value);
    limits->steps += VALUE_STEPS + BYTE_STEPS * bytes;
    limits->bytes += VALUE_BYTES + BYTE_BYTES * bytes;
    JSON_EACH(item, value)
        allow(item, limits);
    JSON_MEMBERS(key, item, value)
        allow(item, limits);
}

static struct jinja_limits limits_of(const struct conversation *talk)
{
    struct jinja_limits limits = {.steps = BASE_STEPS, .bytes = BASE_BYTES};
    allow(talk->messages, &limits);
    allow(talk->tools, &limits);
    allow(talk->documents, &limits);
    allow(talk->variables, &limits);
    if (limits.steps > MOST_STEPS)
        limits.steps = MOST_STEPS;
    limits.most_steps = limits.steps;
    return limits;
}

enum zd_status chat_render_text(
        struct chat_renderer *renderer, const json_t *messages,
        bool add_generation_prompt, struct jinja_output *out)
{
    const struct chat *chat = renderer->chat;
    const struct conversation *talk = renderer->talk;
    json_t *context = renderer->context;
    char why[300] = "";
    if (!messages)
        renderer->limits = limits_of(talk);
    if (talk->variables) { /* of this conversation alone */
        context = zd_must(json_copy(context));
        json_object_update(context, (json_t *)talk->variables);
    }
    set(context, "messages", messages ? messages : talk->messages);
    set(context, "tools", talk->tools);
    set(context, "documents", talk->documents);
    set(context, "add_generation_prompt", json_boolean(add_generation_prompt));
    jinja_output_fini(out);
    enum jinja_result result = jinja_render(
            talk->tools && chat->with_tools ? chat->with_tools : chat->template,
            context, &renderer->limits, out, why, sizeof why);
    set(context, "messages", NULL);
    if (talk->variables)
        json_decref(context);
    return result == JINJA_DONE ? ZD_OK : fail_rendering(chat, result, why);
}

/* --- shapes --------------------------------------------------------------- */

/* Where the key's shape is, or its place; *found_out: is it there? */
static struct shape **slot(struct chat_memory *memory, bool *found_out)
{
    uint64_t hash = hash_64(memory->key, memory->key_bytes, 0);
    struct shape **at = NULL;
    *found_out = false;
    for (size_t i = 0; i < CHAT_PROBES && !*found_out; i++) {
        at = &memory->shapes[(hash + i) % CHAT_SHAPES];
        if (!*at)
            break;
        *found_out = (*at)->key_bytes == memory->key_bytes &&
                     memcmp((*at)->key, memory->key, memory->key_bytes) == 0;
    }
    return at;
}

struct shape *chat_find_shape(struct chat_memory *memory)
{
    bool found;
    struct shape **at = slot(memory, &found);
    return found ? *at : NULL;
}

void shape_fini(struct shape *shape)
{
    jinja_output_fini(&shape->text);
    free(shape->key);
    free(shape->places);
    free(shape->ranges);
    free(shape->watch.is_quoted);
    memset(shape, 0, sizeof *shape);
}

static void drop(struct shape **at)
{
    if (*at)
        shape_fini(*at);
    free(*at);
    *at = NULL;
}

void chat_keep_shape(struct chat_memory *memory, struct shape *shape)
{
    size_t bytes = memory->key_bytes + shape->text.bytes;
    bool found;
    if (bytes > SHAPE_BYTES)
        return;
    memory->shapes_bytes += bytes;
    if (memory->shapes_bytes > SHAPES_BYTES) {
        for (int i = 0; i < CHAT_SHAPES; i++)
            drop(&memory->shapes[i]);
        memory->shapes_bytes = bytes;
    }
    struct shape **at = slot(memory, &found);
    drop(at);
    *at = zd_array(1, sizeof **at);
    **at = *shape;
    (*at)->key_bytes = memory->key_bytes;
    (*at)->ignored = memory->ignored;
    (*at)->key = zd_must(malloc(memory->key_bytes));
    memcpy((*at)->key, memory->key, memory->key_bytes);
    memset(shape, 0, sizeof *shape);
}

void chat_memory_destroy(struct chat_memory *memory)
{
    if (!memory)
        return;
    for (size_t i = 0; i < CHAT_SHAPES; i++)
        drop(&memory->shapes[i]);
    free(memory->key);
    free(memory->words);
    free(memory->wanted);
    free(memory);
}

/* False: there is a mark that we have not written. */
static bool find_places(struct shape *shape, size_t word_count)
{
    const char *begin = shape->text.text, *end = begin + shape->text.bytes;
    for (const char *at = begin; (at = jinja_find_mark(at, (size_t)(end - at)));
         at += MARK_BYTES) {
        size_t word = jinja_mark_word(at);
        if (word >= word_count)
            return false;
        ZD_GROW(shape->places, shape->place_capacity, shape->place_count + 1);
        shape->places[shape->place_count++] =
                (struct place){.at = (size_t)(at - begin), .word = word};
    }
    return true;
}

bool shape_explains(
        struct shape *shape, const struct chat_memory *memory,
        const struct jinja_output *text)
{
    const char *from = shape->text.text, *to = text->text;
    size_t at = 0, done = 0, bytes = text->bytes;
    for (size_t p = 0; p <= shape->place_count; p++) {
        bool is_last = p == shape->place_count;
        struct place *place = is_last ? NULL : &shape->places[p];
        size_t fixed = (place ? place->at : shape->text.bytes) - done;
        if (fixed > bytes - at || memcmp(to + at, from + done, fixed) != 0)
            return false;
        at += fixed;
        if (!place)
            break;
        const struct word *word = &memory->words[place->word];
        bool is_there = word->bytes <= bytes - at &&
                        memcmp(to + at, word->text, word->bytes) == 0;
        if (!is_there && !word->is_blank)
            return false;
        at += is_there ? word->bytes : 0;
        done += fixed + MARK_BYTES;
        place->text_end = at;
    }
    return at == bytes;
}

bool shape_fill(
        struct shape *shape, const struct chat_memory *memory,
        struct document *document)
{
    size_t done = 0;
    if (shape->watch.depends)
        return false;
    for (size_t i = 0; i < memory->word_count; i++)
        if (!jinja_watch_allows(
                    &shape->watch, i, memory->words[i].text,
                    memory->words[i].bytes))
            return false;
    ZD_EACH(place, shape->places, shape->place_count) {
        const struct word *word = &memory->words[place->word];
        document_append(document, shape->text.text + done, place->at - done);
        document_append(document, word->text, word->bytes);
        place->text_end = document->bytes;
        done = place->at + MARK_BYTES;
    }
    document_append(
            document, shape->text.text + done, shape->text.bytes - done);
    return true;
}

/* A place of the template's own text in the skeleton, in the text. */
static size_t shape_place(const struct shape *shape, size_t at)
{
    size_t low = 0, high = shape->place_count;
    while (low < high) { /* places before it */
        size_t middle = low + (high - low) / 2;
        if (shape->places[middle].at < at)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return at;
    const struct place *before = &shape->places[low - 1];
    return before->text_end + (at - before->at - MARK_BYTES);
}

void shape_train(struct shape *shape, size_t begin, size_t end)
{
    ZD_GROW(shape->ranges, shape->range_capacity, shape->range_count + 1);
    shape->ranges[shape->range_count++] = (struct text_range){begin, end};
}

void shape_apply(const struct shape *shape, struct document *document)
{
    document->trained_count = 0;
    for (size_t i = 0; i < shape->range_count; i++)
        document_train(
                document, shape_place(shape, shape->ranges[i].begin),
                shape_place(shape, shape->ranges[i].end));
}

/* --- the skeleton of a conversation --------------------------------------- */

/* Render messages of the key. A template may refuse a part of a conversation:
 * that is no error. */
static bool render(
        struct skeleton *s, const json_t *messages, bool add_generation_prompt,
        struct jinja_watch *watch, struct jinja_output *out)
{
    struct jinja_limits *limits = &s->renderer->limits;
    limits->watch = watch;
    enum zd_status status =
            chat_render_text(s->renderer, messages, add_generation_prompt, out);
    limits->watch = NULL;
    if (status != ZD_OK && strcmp(zd_error_get()->code, REFUSED) == 0)
        zd_error_clear();
    else
        s->status = status;
    return status == ZD_OK;
}

const struct jinja_output *skeleton_text(
        struct skeleton *s, size_t count, bool add_generation_prompt)
{
    struct jinja_limits *limits = &s->renderer->limits;
    struct jinja_watch marks_alone = {.depends = true};
    bool is_user = count == A_USER;
    struct prefix *prefix =
            &s->prefixes[is_user ? 2 : count % 2][add_generation_prompt];
    if (s->status != ZD_OK)
        return NULL;
    if (count == json_array_size(s->messages) && !add_generation_prompt)
        return &s->shape.text;
    if (prefix->text.text && prefix->count == count)
        return &prefix->text;
    json_auto_t *messages = json_array();
    if (is_user)
        json_array_append_new(
                messages,
                json_pack("{s:s, s:s}", "role", "user", "content", "x"));
    else /* what the list takes */
        limits->steps -= count < limits->steps ? count : limits->steps;
    for (size_t i = 0; !is_user && i < count; i++)
        json_array_append(messages, json_array_get(s->messages, i));
    prefix->count = count;
    return render(s, messages, add_generation_prompt, &marks_alone,
                  &prefix->text)
                   ? &prefix->text
                   : NULL;
}

static void place_messages(struct skeleton *s)
{
    const struct word *words = s->renderer->memory->words;
    const struct place *places = s->shape.places;
    for (size_t p = 0; p < s->shape.place_count; p++) {
        struct message_place *of = &s->of[words[places[p].word].message];
        size_t q = of->has ? of->first : p;
        of->first = q;
        while (q < p && places[q].word != places[p].word)
            q++;
        of->repeats |= q < p;
        of->is_torn |= q == p && of->has && p > of->last + 1;
        if (!of->has || p == of->last + 1)
            of->last = p;
        of->has = true;
    }
}

void skeleton_fini(struct skeleton *s)
{
    for (int i = 0; i < 6; i++)
        jinja_output_fini(&s->prefixes[i / 2][i % 2].text);
    json_decref(s->messages);
    shape_fini(&s->shape);
    free(s->of);
}

void skeleton_make(struct skeleton *s, enum marked marked)
{
    const struct chat_memory *memory = s->renderer->memory;
    struct jinja_watch *watch = &s->shape.watch;
    s->marked = marked;
    s->messages = json_loadb(
            memory->key, memory->messages_bytes, JSON_ALLOW_NUL, NULL);
    if (!s->messages)
        return;
    s->of = zd_array(json_array_size(s->messages) + 1, sizeof *s->of);
    watch->is_quoted = zd_array(memory->word_count + 1, sizeof(bool));
    watch->word_count = memory->word_count;
    watch->depends = memory->has_blank;
    s->is_sound = render(s, s->messages, false, watch, &s->shape.text) &&
                  find_places(&s->shape, memory->word_count) &&
                  shape_explains(&s->shape, memory, &s->renderer->text);
    if (s->is_sound)
        place_messages(s);
}
