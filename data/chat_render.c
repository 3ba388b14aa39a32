/* chat_render.c - a conversation as a document: its text, and what of it is
 * trained. */
#include "data/chat.h"

#include "base/must.h"
#include "data/record.h"

#include <stdlib.h>
#include <string.h>

static bool is_assistant(const json_t *message)
{
    const char *role = json_string_at(message, "role");
    return role && strcmp(role, "assistant") == 0;
}

/* The ranges that the template marks, where each is of one message or all are
 * trained. */
static bool take_tags(
        const struct jinja_output *text, const bool *wanted, size_t count,
        const json_t *messages, bool wants_all, struct document *document)
{
    size_t assistants = 0, n = 0;
    for (size_t i = 0; i < count; i++)
        assistants += is_assistant(json_array_get(messages, i));
    if (!wants_all && assistants != text->span_count)
        return false;
    for (size_t i = 0; wants_all && i < text->span_count; i++)
        document_train(document, text->spans[i].begin, text->spans[i].end);
    for (size_t i = 0; !wants_all && i < count; i++) {
        if (!is_assistant(json_array_get(messages, i)))
            continue;
        if (wanted[i])
            document_train(document, text->spans[n].begin, text->spans[n].end);
        n++;
    }
    return true;
}

/* Everything but what the masked messages add. */
static enum zd_status train_others(
        struct chat_renderer *renderer, const struct conversation *conversation,
        bool has_masked, struct document *document)
{
    size_t from = 0;
    if (has_masked)
        ZD_TRY(chat_find_spans(
                renderer, conversation, conversation->is_masked, true,
                document));
    /* turned inside out, in place */
    for (size_t i = 0; i < document->trained_count; i++) {
        struct text_range *range = &document->trained[i];
        size_t end = range->end;
        *range = (struct text_range){from, range->begin};
        from = end;
    }
    document_train(document, from, document->bytes);
    return ZD_OK;
}

static bool has_key(const json_t *messages, const char *key)
{
    const json_t *message;
    size_t i;
    json_array_foreach(messages, i, message)
    {
        if (!record_is_empty(json_object_get(message, key)))
            return true;
    }
    return false;
}

/* What the conversation has and the template does not read. */
static unsigned find_ignored(
        const struct chat *chat, const struct conversation *conversation)
{
    const json_t *messages = conversation->messages;
    bool has_tools = conversation->tools != NULL;
    unsigned ignored = has_tools ? chat->ignored_with_tools : chat->ignored;
    unsigned found = (unsigned)has_tools << ROW_TOOLS;
    if (ignored >> ROW_CALLS & 1)
        found |= (unsigned)has_key(messages, "tool_calls") << ROW_CALLS;
    if (ignored >> ROW_THOUGHTS & 1)
        found |= (unsigned)has_key(messages, "thinking") << ROW_THOUGHTS;
    return found & ignored;
}

static void take_text(
        const struct chat_renderer *renderer, struct document *document)
{
    document_clear(document);
    document_add(
            document, renderer->text.text, renderer->text.bytes,
            ENCODE_ADDED_TOKENS, false);
    document->is_chat = true;
    document->adds_prefix = renderer->chat->is_layout;
}

enum zd_status chat_render(
        struct chat_renderer *renderer, const struct conversation *conversation,
        enum train_on train_on, struct document *document)
{
    const json_t *messages = conversation->messages;
    size_t count = json_array_size(messages), last = count;
    bool has_masked = false;
    ZD_TRY(chat_render_text(
            renderer, conversation, NULL, false, &renderer->text));
    take_text(renderer, document);
    document->ignored = find_ignored(renderer->chat, conversation);
    for (size_t i = 0; i < count; i++) {
        has_masked |= conversation->is_masked[i];
        if (is_assistant(json_array_get(messages, i)))
            last = i;
    }
    if (train_on == TRAIN_ON_ALL)
        return train_others(renderer, conversation, has_masked, document);
    bool *wanted = zd_array(count + 1, sizeof *wanted), wants_all = true;
    for (size_t i = 0; i < count; i++) {
        bool is = is_assistant(json_array_get(messages, i));
        wanted[i] = is && !conversation->is_masked[i] &&
                    (train_on != TRAIN_ON_LAST || i == last);
        wants_all &= wanted[i] || !is;
    }
    enum zd_status status = ZD_OK;
    if (!renderer->chat->has_tags ||
        !take_tags(
                &renderer->text, wanted, count, messages, wants_all, document))
        status = chat_find_spans(
                renderer, conversation, wanted, false, document);
    free(wanted);
    return status;
}

enum zd_status chat_render_prompt(
        struct chat_renderer *renderer, const char *content, const char *answer,
        struct document *document)
{
    static const char *const roles[] = {"user", "assistant"};
    const char *const contents[] = {content, answer};
    struct conversation talk = {0};
    for (int i = 0; i < 2 && contents[i]; i++)
        conversation_add(
                &talk,
                json_pack(
                        "{s:s, s:s}", "role", roles[i], "content", contents[i]),
                false);
    enum zd_status status =
            answer ? chat_render(renderer, &talk, TRAIN_ON_LAST, document)
                   : chat_render_text(
                             renderer, &talk, NULL, true, &renderer->text);
    if (status == ZD_OK && !answer)
        take_text(renderer, document);
    conversation_fini(&talk);
    return status;
}
