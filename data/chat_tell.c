/* chat_tell.c - which template renders conversations, and how it differs from
 * the model's own. */
#include "data/chat.h"

#include "base/log.h"
#include "base/text_buffer.h"

#include <string.h>

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
    bool is_same = chat_render_text(&a, &talk, NULL, false, &a.text) == ZD_OK &&
                   chat_render_text(&b, &talk, NULL, false, &b.text) == ZD_OK;
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

static void name(const struct chat *chat, bool has_own)
{
    if (chat->is_own)
        zd_log_info("chat template: the model's own, %s", chat->name);
    else
        zd_log_info(
                "chat template: %s%s", chat->name,
                has_own ? "" : "; the model has none");
}

/* Markers like <|im_start|> that are no tokens of the tokenizer. */
static void tell_markers(
        const struct chat *chat, const struct tokenizer *tokenizer)
{
    char lacks[300] = "", marker[64];
    struct text_buffer text = {.out = lacks, .bytes = sizeof lacks};
    struct document document = {0};
    struct chat_renderer renderer;
    chat_renderer_init(&renderer, chat);
    chat_render_prompt(&renderer, "x", "x", &document);
    const char *at = document.text, *end = at + document.bytes;
    for (; at && (at = memmem(at, (size_t)(end - at), "<|", 2)); at += 2) {
        size_t left = (size_t)(end - at);
        size_t most = left < sizeof marker - 1 ? left : sizeof marker - 1;
        const char *close = memmem(at, most, "|>", 2);
        snprintf(
                marker, sizeof marker, "%.*s",
                close ? (int)(close + 2 - at) : 0, at);
        if (close && !strstr(lacks, marker) &&
            tokenizer_token_id(tokenizer, marker) < 0)
            text_buffer_add(&text, "%s%s", lacks[0] ? ", " : "", marker);
    }
    if (lacks[0])
        zd_log_warning(
                "data.chat_template = \"%s\" writes %s, which the tokenizer "
                "(%s) does not have as tokens: each becomes several, at which "
                "a server does not stop; add them to the tokenizer, or use a "
                "template whose markers it has",
                chat->name, lacks, tokenizer_describe(tokenizer));
    zd_error_clear();
    document_fini(&document);
    chat_renderer_fini(&renderer);
}

void chat_tell(
        const struct chat *chat, const struct tokenizer *tokenizer, bool names)
{
    const struct chat_choice choice = {.name = CHAT_AUTO};
    bool has_own = tokenizer_chat(tokenizer).source != NULL;
    struct chat *own = NULL;
    if (names)
        name(chat, has_own);
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
                chat->name, tokenizer_chat(tokenizer).path);
    zd_error_clear();
    chat_destroy(own);
}
