/* The built-in chat templates. Jinja is not among them: a tokenizer's own
 * chat_template is not run. */
#include "data/document.h"

#include <string.h>

static const char default_system[] = "You are a helpful assistant.";

static bool has_token(const struct tokenizer *tokenizer, const char *token)
{
    return tokenizer_token_id(tokenizer, token) >= 0;
}

enum zd_status chat_template_resolve(
        enum chat_template wanted, const struct tokenizer *tokenizer,
        enum chat_template *template_out)
{
    if (wanted == CHAT_MISTRAL)
        return ZD_FAIL(
                ZD_ERR_CONFIG, "E0434",
                "data.chat_template = \"mistral\" is not available");
    if (wanted != CHAT_AUTO) {
        *template_out = wanted;
        return ZD_OK;
    }
    if (has_token(tokenizer, "<|start_header_id|>") &&
        has_token(tokenizer, "<|end_header_id|>") &&
        has_token(tokenizer, "<|eot_id|>")) {
        *template_out = CHAT_LLAMA3;
        return ZD_OK;
    }
    if (has_token(tokenizer, "<|im_start|>") &&
        has_token(tokenizer, "<|im_end|>")) {
        *template_out = CHAT_CHATML;
        return ZD_OK;
    }
    enum zd_status status =
            ZD_FAIL(ZD_ERR_CONFIG, "E0434",
                    "data.chat_template = \"auto\", but the tokenizer (%s) has "
                    "the markers of no template",
                    tokenizer_describe(tokenizer));
    zd_fail_help("set data.chat_template to chatml, llama3, qwen or none");
    return status;
}

enum zd_status chat_recipe_resolve(
        enum chat_template wanted, struct recipe *recipe)
{
    int count, bos = tokenizer_token_id(recipe->tokenizer, "<|begin_of_text|>");
    const int32_t *prefix = tokenizer_prefix(recipe->tokenizer, &count);
    recipe->chat_bos = count == 0 || prefix[0] != bos;
    return chat_template_resolve(
            wanted, recipe->tokenizer, &recipe->chat_template);
}

const char *chat_template_name(enum chat_template chat_template)
{
    static const char *const names[] = {"auto",    "chatml", "llama3",
                                        "mistral", "qwen",   "none"};
    return names[chat_template];
}

static enum zd_status add_marker(
        struct document *document, const char *marker, bool train)
{
    return document_add(
            document, marker, strlen(marker), ENCODE_ADDED_TOKENS, train);
}

static enum zd_status add_words(
        struct document *document, const char *text, bool train)
{
    return document_add(document, text, strlen(text), 0, train);
}

/* What surrounds the content: the role, the marks of the template. */
static bool is_trained_whole(
        const struct recipe *recipe, const struct chat_message *message)
{
    return recipe->train_on == TRAIN_ON_ALL && !message->is_masked;
}

static bool is_trained(
        const struct recipe *recipe, const struct chat_message *message)
{
    return !message->is_masked && (recipe->train_on == TRAIN_ON_ALL ||
                                   strcmp(message->role, "assistant") == 0);
}

/* What stands before the content. */
static enum zd_status open_turn(
        const struct recipe *recipe, const char *role, bool train,
        struct document *document)
{
    bool is_llama3 = recipe->chat_template == CHAT_LLAMA3;
    ZD_TRY(add_marker(
            document, is_llama3 ? "<|start_header_id|>" : "<|im_start|>",
            train));
    ZD_TRY(add_words(document, role, train));
    if (is_llama3)
        ZD_TRY(add_marker(document, "<|end_header_id|>", train));
    return add_words(document, is_llama3 ? "\n\n" : "\n", train);
}

static enum zd_status render_chatml(
        const struct recipe *recipe, const struct chat_message *message,
        struct document *document)
{
    bool all = is_trained_whole(recipe, message);
    bool train = is_trained(recipe, message);
    ZD_TRY(open_turn(recipe, message->role, all, document));
    ZD_TRY(document_add(
            document, message->content, message->content_bytes, 0, train));
    ZD_TRY(add_marker(document, "<|im_end|>", train));
    return add_words(document, "\n", all);
}

/* Bytes of the white space character at `text`, as Python's str.strip knows it;
 * 0 when it is none. */
static size_t space_bytes(const char *text, size_t bytes)
{
    const unsigned char *c = (const unsigned char *)text;
    if (bytes >= 1 &&
        ((c[0] >= 0x09 && c[0] <= 0x0d) || (c[0] >= 0x1c && c[0] <= 0x20)))
        return 1;
    if (bytes >= 2 && c[0] == 0xc2 && (c[1] == 0x85 || c[1] == 0xa0))
        return 2;
    if (bytes < 3)
        return 0;
    unsigned code = (c[0] & 15u) << 12 | (c[1] & 63u) << 6 | (c[2] & 63u);
    bool three = c[0] >> 4 == 14;
    return three && (code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
                     code == 0x2028 || code == 0x2029 || code == 0x202f ||
                     code == 0x205f || code == 0x3000)
                   ? 3
                   : 0;
}

static void trim(const char **text, size_t *bytes)
{
    size_t width;
    while ((width = space_bytes(*text, *bytes)) > 0) {
        *text += width;
        *bytes -= width;
    }
    for (bool trimmed = true; trimmed;) {
        trimmed = false;
        for (width = 1; width <= 3 && width <= *bytes; width++)
            if (space_bytes(*text + *bytes - width, width) == width) {
                *bytes -= width;
                trimmed = true;
                break;
            }
    }
}

static enum zd_status render_llama3(
        const struct recipe *recipe, const struct chat_message *message,
        struct document *document)
{
    bool all = is_trained_whole(recipe, message);
    bool train = is_trained(recipe, message);
    const char *content = message->content;
    size_t bytes = message->content_bytes;
    trim(&content, &bytes);
    ZD_TRY(open_turn(recipe, message->role, all, document));
    ZD_TRY(document_add(document, content, bytes, 0, train));
    return add_marker(document, "<|eot_id|>", train);
}

static enum zd_status render_message(
        const struct recipe *recipe, const struct chat_message *message,
        struct document *document)
{
    switch (recipe->chat_template) {
    case CHAT_CHATML:
    case CHAT_QWEN:
        return render_chatml(recipe, message, document);
    case CHAT_LLAMA3:
        return render_llama3(recipe, message, document);
    case CHAT_NONE:
        return document_add(
                document, message->content, message->content_bytes, 0,
                is_trained(recipe, message));
    case CHAT_AUTO:
    case CHAT_MISTRAL:
        break;
    }
    return ZD_FAIL(ZD_ERR_BUG, "E0901", "a chat template was not resolved");
}

enum zd_status chat_render(
        const struct recipe *recipe, const struct chat_message *messages,
        size_t count, struct document *document)
{
    if (recipe->chat_template == CHAT_LLAMA3 && recipe->chat_bos)
        ZD_TRY(add_marker(
                document, "<|begin_of_text|>",
                recipe->train_on == TRAIN_ON_ALL));
    if (recipe->chat_template == CHAT_QWEN && count > 0 &&
        strcmp(messages[0].role, "system") != 0) {
        struct chat_message system = {
                "system", default_system, sizeof default_system - 1, false};
        ZD_TRY(render_message(recipe, &system, document));
    }
    for (size_t i = 0; i < count; i++)
        ZD_TRY(render_message(recipe, &messages[i], document));
    return ZD_OK;
}

enum zd_status chat_render_prompt(
        const struct recipe *recipe, const char *content,
        struct document *document, int32_t *end_out)
{
    struct chat_message user = {"user", content, strlen(content), false};
    *end_out = tokenizer_token_id(
            recipe->tokenizer,
            recipe->chat_template == CHAT_LLAMA3 ? "<|eot_id|>" : "<|im_end|>");
    ZD_TRY(chat_render(recipe, &user, 1, document));
    return open_turn(recipe, "assistant", false, document);
}
