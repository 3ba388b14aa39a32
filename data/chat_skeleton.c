#include "data/chat_skeleton.h"

#include "base/must.h"

#include <stdlib.h>
#include <string.h>

/* --- a conversation, or some messages of it, rendered ----------------------
 */

bool chat_is_refusal(enum zd_status status)
{
    bool is = status != ZD_OK && strcmp(zd_error_get()->code, "E0415") == 0;
    if (is)
        zd_error_clear();
    return is;
}

static enum zd_status fail_rendering(
        const struct chat *chat, enum jinja_result result, const char *why)
{
    if (result == JINJA_OVER) {
        ZD_FAIL(ZD_ERR_DATA, "E0414", "the chat template %s", why);
        zd_fail_help("no chat template needs as much: the template is broken "
                     "or hostile, or the conversation too long");
    } else if (result == JINJA_UNKNOWN) {
        ZD_FAIL(ZD_ERR_DATA, "E0416", "the chat template cannot be used: %s",
                why);
    } else {
        ZD_FAIL(ZD_ERR_DATA, "E0415", "the chat template %s: %s (%s)",
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
    const char *key;
    json_t *item;
    size_t i, bytes = json_string_length(value);
    limits->steps += VALUE_STEPS + BYTE_STEPS * bytes;
    limits->bytes += VALUE_BYTES + BYTE_BYTES * bytes;
    json_array_foreach(value, i, item) allow(item, limits);
    json_object_foreach((json_t *)value, key, item) allow(item, limits);
}

static struct jinja_limits limits_of(const struct conversation *conversation)
{
    struct jinja_limits limits = {.steps = BASE_STEPS, .bytes = BASE_BYTES};
    allow(conversation->messages, &limits);
    allow(conversation->tools, &limits);
    allow(conversation->documents, &limits);
    allow(conversation->variables, &limits);
    if (limits.steps > MOST_STEPS)
        limits.steps = MOST_STEPS;
    limits.most_steps = limits.steps;
    return limits;
}

enum zd_status chat_render_text(
        struct chat_renderer *renderer, const struct conversation *conversation,
        const json_t *messages, bool add_generation_prompt,
        struct jinja_output *out)
{
    const struct chat *chat = renderer->chat;
    json_t *context = renderer->context;
    char why[300] = "";
    if (conversation->variables) { /* of this conversation alone */
        context = zd_must(json_copy(context));
        json_object_update(context, (json_t *)conversation->variables);
    }
    set(context, "messages", messages ? messages : conversation->messages);
    set(context, "tools", conversation->tools);
    set(context, "documents", conversation->documents);
    json_object_set_new(
            context, "add_generation_prompt",
            json_boolean(add_generation_prompt));
    jinja_output_fini(out);
    if (out == &renderer->text)
        renderer->limits = limits_of(conversation);
    enum jinja_result result = jinja_render(
            conversation->tools && chat->with_tools ? chat->with_tools
                                                    : chat->template,
            context, &renderer->limits, out, why, sizeof why);
    set(context, "messages", NULL);
    if (conversation->variables)
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
        struct shape *shape, const struct chat_memory *memory, const char *text,
        size_t bytes)
{
    const char *from = shape->text.text;
    size_t at = 0, done = 0;
    for (size_t p = 0; p <= shape->place_count; p++) {
        bool is_last = p == shape->place_count;
        struct place *place = is_last ? NULL : &shape->places[p];
        size_t fixed = (place ? place->at : shape->text.bytes) - done;
        if (fixed > bytes - at || memcmp(text + at, from + done, fixed) != 0)
            return false;
        at += fixed;
        if (!place)
            break;
        const struct word *word = &memory->words[place->word];
        bool is_there = word->bytes <= bytes - at &&
                        memcmp(text + at, word->text, word->bytes) == 0;
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
    for (size_t p = 0; p < shape->place_count; p++) {
        struct place *place = &shape->places[p];
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

enum zd_status skeleton_render(
        struct skeleton *s, size_t count, bool add_generation_prompt,
        struct jinja_output *out)
{
    struct jinja_limits *limits = &s->renderer->limits;
    struct jinja_watch marks_alone = {.depends = true}, *watch = limits->watch;
    json_t *messages = s->messages;
    if (count < json_array_size(s->messages)) {
        /* what the list takes */
        limits->steps -= count < limits->steps ? count : limits->steps;
        messages = json_array();
        for (size_t i = 0; i < count; i++)
            json_array_append(messages, json_array_get(s->messages, i));
    }
    limits->watch = watch ? watch : &marks_alone;
    enum zd_status status = chat_render_text(
            s->renderer, s->conversation, messages, add_generation_prompt, out);
    limits->watch = watch;
    if (messages != s->messages)
        json_decref(messages);
    return status;
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
    json_decref(s->messages);
    shape_fini(&s->shape);
    free(s->of);
}

enum zd_status skeleton_make(
        struct skeleton *s, enum marked marked, bool *sound_out)
{
    struct chat_renderer *renderer = s->renderer;
    const struct chat_memory *memory = renderer->memory;
    struct jinja_watch *watch = &s->shape.watch;
    s->marked = marked;
    s->messages = json_loadb(
            memory->key, memory->messages_bytes, JSON_ALLOW_NUL, NULL);
    *sound_out = false;
    if (!s->messages)
        return ZD_OK;
    s->of = zd_array(json_array_size(s->messages) + 1, sizeof *s->of);
    watch->is_quoted = zd_array(memory->word_count + 1, sizeof(bool));
    watch->word_count = memory->word_count;
    watch->depends = memory->has_blank;
    renderer->limits.watch = watch;
    enum zd_status status = skeleton_render(
            s, json_array_size(s->messages), false, &s->shape.text);
    renderer->limits.watch = NULL;
    *sound_out = status == ZD_OK &&
                 find_places(&s->shape, memory->word_count) &&
                 shape_explains(
                         &s->shape, memory, renderer->text.text,
                         renderer->text.bytes);
    if (*sound_out)
        place_messages(s);
    return status;
}
