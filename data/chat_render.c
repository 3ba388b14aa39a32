/* chat_render.c - a conversation as a document: its text, and what of it is
 * trained. */
#include "data/chat_skeleton.h"

#include "base/log.h"
#include "base/must.h"
#include "base/text_buffer.h"
#include "data/format.h"

#include <string.h>

void chat_renderer_init(struct chat_renderer *renderer, const struct chat *chat)
{
    memset(renderer, 0, sizeof *renderer);
    if (!chat)
        return;
    renderer->chat = chat;
    renderer->context = zd_must(json_deep_copy(chat->variables));
    renderer->memory = zd_array(1, sizeof *renderer->memory);
}

void chat_renderer_fini(struct chat_renderer *renderer)
{
    json_decref(renderer->context);
    jinja_output_fini(&renderer->text);
    chat_memory_destroy(renderer->memory);
    memset(renderer, 0, sizeof *renderer);
}

/* Messages whose ranges are looked for: those that are trained or, where
 * everything else is, those that are not. False: there are none. */
static bool choose(struct chat_renderer *renderer, enum train_on train_on)
{
    struct chat_memory *memory = renderer->memory;
    const struct conversation *talk = renderer->talk;
    size_t count = json_array_size(talk->messages), last = count;
    bool has_any = false;
    memory->is_whole = train_on == TRAIN_ON_ALL;
    ZD_GROW(memory->wanted, memory->wanted_capacity, count + 1);
    for (size_t i = count; i-- > 0;) {
        const struct turn *turn = &talk->turns[i];
        last = turn->is_assistant && last == count ? i : last;
        memory->wanted[i] =
                memory->is_whole
                        ? turn->is_masked
                        : turn->is_assistant && !turn->is_masked &&
                                  (train_on != TRAIN_ON_LAST || i == last);
        has_any |= memory->wanted[i];
    }
    return has_any;
}

/* The ranges that the template marks, where each is of one message or all are
 * trained, in the shape. */
static bool take_tags(
        const struct chat_renderer *renderer, const struct jinja_output *text,
        struct shape *shape)
{
    const struct turn *turns = renderer->talk->turns;
    const bool *wanted = renderer->memory->wanted;
    size_t count = json_array_size(renderer->talk->messages);
    size_t assistants = 0, message = 0;
    bool wants_all = true;
    for (size_t i = 0; i < count; i++) {
        assistants += turns[i].is_assistant;
        wants_all &= wanted[i] || !turns[i].is_assistant;
    }
    if (!wants_all && assistants != text->span_count)
        return false;
    for (size_t i = 0; i < text->span_count; i++) {
        while (!wants_all && !turns[message].is_assistant)
            message++;
        if (wants_all || wanted[message++])
            shape_train(shape, text->spans[i].begin, text->spans[i].end);
    }
    return true;
}

/* Keep the shape of a conversation whose ranges need no search. One that has
 * other ranges is kept as one of no use. */
static void remember(
        struct chat_renderer *renderer, bool has_tags,
        const struct document *document)
{
    struct skeleton s = {.renderer = renderer};
    struct document again = {0};
    if (renderer->memory->key_bytes > SHAPE_BYTES)
        return;
    skeleton_make(&s, MARKS_ALL);
    if (s.status != ZD_OK)
        zd_error_clear();
    if (s.is_sound && has_tags)
        take_tags(renderer, &s.shape.text, &s.shape);
    if (s.is_sound)
        shape_apply(&s.shape, &again);
    s.shape.watch.depends |=
            !s.is_sound || again.trained_count != document->trained_count ||
            (again.trained_count > 0 &&
             memcmp(again.trained, document->trained,
                    again.trained_count * sizeof *again.trained) != 0);
    chat_keep_shape(renderer->memory, &s.shape);
    skeleton_fini(&s);
    document_fini(&again);
}

/* `known`: the shape of its key, where there was one. */
static enum zd_status render_whole(
        struct chat_renderer *renderer, bool has_any, struct shape *known,
        struct document *document)
{
    bool may_have_tags = has_any && renderer->chat->has_tags;
    struct shape tagged = {0};
    ZD_TRY(chat_render_text(renderer, NULL, false, &renderer->text));
    document_append(document, renderer->text.text, renderer->text.bytes);
    bool has_tags = may_have_tags && !renderer->memory->is_whole &&
                    take_tags(renderer, &renderer->text, &tagged);
    shape_apply(&tagged, document);
    shape_fini(&tagged);
    if (has_any && !has_tags)
        return chat_find_spans(
                renderer, may_have_tags ? NULL : known, document);
    if (!known)
        remember(renderer, has_tags, document);
    return ZD_OK;
}

/* Everything but the ranges, in place. */
static void train_others(struct document *document)
{
    size_t from = 0;
    for (size_t i = 0; i < document->trained_count; i++) {
        struct text_range *range = &document->trained[i];
        size_t end = range->end;
        *range = (struct text_range){from, range->begin};
        from = end;
    }
    document_train(document, from, document->bytes);
}

/* Has a message something under the key; `as_parts`: a list? */
static bool have(const json_t *messages, const char *key, bool as_parts)
{
    bool has = false;
    JSON_EACH(message, messages) {
        const json_t *value = json_object_get(message, key);
        has |= as_parts ? json_is_array(value) : !record_is_empty(value);
    }
    return has;
}

/* What the conversation has and the template does not read. */
static unsigned find_ignored(const struct chat_renderer *renderer)
{
    const json_t *messages = renderer->talk->messages;
    bool has_tools = renderer->talk->tools != NULL;
    unsigned ignored = has_tools ? renderer->chat->ignored_with_tools
                                 : renderer->chat->ignored;
    unsigned found = (unsigned)has_tools << ROW_TOOLS;
    if (ignored >> ROW_CALLS & 1)
        found |= (unsigned)have(messages, "tool_calls", false) << ROW_CALLS;
    if (ignored >> ROW_THOUGHTS & 1)
        found |= (unsigned)have(messages, "thinking", false) << ROW_THOUGHTS;
    if (ignored >> ROW_PARTS & 1)
        found |= (unsigned)have(messages, "content", true) << ROW_PARTS;
    return found & ignored;
}

enum zd_status chat_render(
        struct chat_renderer *renderer, const struct conversation *conversation,
        enum train_on train_on, struct document *document)
{
    struct chat_memory *memory = renderer->memory;
    renderer->talk = conversation;
    bool has_any = choose(renderer, train_on);
    chat_write_key(renderer, MARKS_ALL);
    struct shape *known = chat_find_shape(memory);
    document_clear(document);
    if (known && shape_fill(known, memory, document)) {
        shape_apply(known, document);
        document->ignored = known->ignored;
    } else {
        document->ignored = memory->ignored = find_ignored(renderer);
        ZD_TRY(render_whole(renderer, has_any, known, document));
    }
    if (memory->is_whole)
        train_others(document);
    document->is_chat = true;
    document->adds_prefix = renderer->chat->is_layout;
    return ZD_OK;
}

enum zd_status chat_render_prompt(
        struct chat_renderer *renderer, const char *content, const char *answer,
        struct document *document)
{
    static const char *const roles[] = {"user", "assistant"};
    const char *const contents[] = {content, answer};
    ZD_SCOPED(conversation_fini) struct conversation talk = {0};
    for (int i = 0; i < 2 && contents[i]; i++)
        conversation_add(
                &talk,
                json_pack(
                        "{s:s, s:s}", "role", roles[i], "content", contents[i]),
                false);
    renderer->talk = &talk;
    if (answer)
        return chat_render(renderer, &talk, TRAIN_ON_LAST, document);
    ZD_TRY(chat_render_text(renderer, NULL, true, &renderer->text));
    document_clear(document);
    document_append(document, renderer->text.text, renderer->text.bytes);
    document->is_chat = true;
    document->adds_prefix = renderer->chat->is_layout;
    return ZD_OK;
}

/* --- which template renders, and how it differs from the model's own ------ */

/* A question and its answer, after a system message or not. */
static bool renders_as(
        const struct chat *chat, const struct chat *own, bool has_system)
{
    struct chat_renderer a, b;
    struct conversation talk = {
            .messages = json_pack(
                    "[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}]", "role", "system",
                    "content", "Be brief.", "role", "user", "content",
                    "What is 2 + 2?", "role", "assistant", "content", "Four.")};
    if (!has_system)
        json_array_remove(talk.messages, 0);
    chat_renderer_init(&a, chat);
    chat_renderer_init(&b, own);
    a.talk = b.talk = &talk;
    bool is_same = chat_render_text(&a, NULL, false, &a.text) == ZD_OK &&
                   chat_render_text(&b, NULL, false, &b.text) == ZD_OK;
    const char *bos = json_string_at(own->variables, "bos_token");
    size_t skip = bos ? strlen(bos) : 0;
    if (is_same && (!bos || strncmp(b.text.text, bos, skip) != 0 ||
                    strncmp(a.text.text, bos, skip) == 0))
        skip = 0;
    is_same = is_same && a.text.bytes + skip == b.text.bytes &&
              memcmp(a.text.text, b.text.text + skip, a.text.bytes) == 0;
    zd_error_clear();
    chat_renderer_fini(&a);
    chat_renderer_fini(&b);
    conversation_fini(&talk);
    return is_same;
}

/* Markers like <|im_start|> that are no tokens of the tokenizer. */
static void tell_markers(
        const struct chat *chat, const struct tokenizer *tokenizer)
{
    char marker[64];
    struct text_buffer lacks = TEXT_BUFFER(300);
    struct document document = {0};
    struct chat_renderer renderer;
    chat_renderer_init(&renderer, chat);
    chat_render_prompt(&renderer, "x", "x", &document);
    const char *at = document.text, *end = at + document.bytes;
    for (; at && (at = memmem(at, (size_t)(end - at), "<|", 2)); at += 2) {
        size_t left = (size_t)(end - at);
        size_t most = left < sizeof marker - 1 ? left : sizeof marker - 1;
        const char *close = memmem(at, most, "|>", 2);
        ZD_PRINT(marker, "%.*s", close ? (int)(close + 2 - at) : 0, at);
        if (close && !strstr(lacks.out, marker) &&
            tokenizer_token_id(tokenizer, marker) < 0)
            text_buffer_add(&lacks, "%s%s", lacks.used ? ", " : "", marker);
    }
    if (lacks.used)
        zd_log_warning(
                "data.chat_template = \"%s\" writes %s, which the tokenizer "
                "(%s) does not have as tokens: each becomes several, at which "
                "a server does not stop; add them to the tokenizer, or use a "
                "template whose markers it has",
                chat->name, lacks.out, tokenizer_facts(tokenizer)->describe);
    zd_error_clear();
    document_fini(&document);
    chat_renderer_fini(&renderer);
}

void chat_tell(
        const struct chat *chat, const struct tokenizer *tokenizer, bool names)
{
    const struct chat_choice choice = {.name = CHAT_AUTO};
    bool has_own = tokenizer_facts(tokenizer)->chat.source != NULL;
    struct chat *own = NULL;
    if (names)
        zd_log_info(
                "chat template: %s%s%s",
                chat->is_own ? "the model's own, " : "", chat->name,
                chat->is_own || has_own ? "" : "; the model has none");
    if (!chat->is_own)
        tell_markers(chat, tokenizer);
    if (chat->is_own || !has_own)
        return;
    bool is_read = chat_create(&choice, tokenizer, false, &own) == ZD_OK;
    if (!is_read || !renders_as(chat, own, true) ||
        !renders_as(chat, own, false))
        zd_log_warning(
                "data.chat_template = \"%s\" renders conversations differently "
                "from the model's own template (%s), which it will be served "
                "with; data.chat_template = \"auto\" uses that",
                chat->name, tokenizer_facts(tokenizer)->chat.path);
    zd_error_clear();
    chat_destroy(own);
}
