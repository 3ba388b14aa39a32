/* Records of JSONL files: which format they are in, and their text in pieces.
 */
#include "data/document.h"

#include <stdlib.h>
#include <string.h>

/* A key that is given its usual name for ShareGPT unless the job names another.
 */
static const char *name_or(
        const char *given, const char *usual, const char *sharegpt,
        enum data_format format)
{
    return format == DATA_SHAREGPT && strcmp(given, usual) == 0 ? sharegpt
                                                                : given;
}

enum data_format record_format(
        const json_t *record, const struct data_entry *entry)
{
    const json_t *messages = json_object_get(record, entry->messages_field);
    if (messages) {
        const json_t *first = json_array_get(messages, 0);
        return first && !json_object_get(first, entry->role_field) &&
                               json_object_get(first, "from")
                       ? DATA_SHAREGPT
                       : DATA_CHAT;
    }
    if (json_object_get(record, "conversations"))
        return DATA_SHAREGPT;
    if (json_object_get(record, "instruction") &&
        json_object_get(record, "output"))
        return DATA_ALPACA;
    if (json_object_get(record, "prompt") &&
        json_object_get(record, "completion"))
        return DATA_COMPLETION;
    if (json_object_get(record, entry->field))
        return DATA_TEXT;
    return DATA_AUTO;
}

/* The string under `key`; an error when it is missing or no string. */
static enum zd_status get_string(
        const json_t *object, const char *key, const json_t **string_out)
{
    const json_t *value = json_object_get(object, key);
    if (!value)
        return ZD_FAIL(ZD_ERR_DATA, "E0437", "the record has no \"%s\"", key);
    if (!json_is_string(value))
        return ZD_FAIL(ZD_ERR_DATA, "E0437", "\"%s\" is not a string", key);
    *string_out = value;
    return ZD_OK;
}

static enum zd_status add_string(
        struct document *document, const json_t *string, unsigned flags,
        bool train)
{
    return document_add(
            document, json_string_value(string), json_string_length(string),
            flags, train);
}

static enum zd_status read_text(
        const struct recipe *recipe, const json_t *record,
        struct document *document)
{
    const json_t *text = NULL;
    ZD_TRY(get_string(record, recipe->entry->field, &text));
    document->end_of_text = true;
    return add_string(document, text, ENCODE_ADDED_TOKENS, true);
}

static enum zd_status read_completion(
        const json_t *record, struct document *document)
{
    const json_t *prompt = NULL, *completion = NULL;
    ZD_TRY(get_string(record, "prompt", &prompt));
    ZD_TRY(get_string(record, "completion", &completion));
    document->end_of_text = true;
    ZD_TRY(add_string(document, prompt, ENCODE_ADDED_TOKENS, false));
    return add_string(document, completion, ENCODE_ADDED_TOKENS, true);
}

/* Keys of some Alpaca files that we would have to drop in silence. */
static enum zd_status refuse_filled(const json_t *record, const char *key)
{
    const json_t *value = json_object_get(record, key);
    bool is_empty = !value || json_is_null(value) ||
                    (json_is_string(value) && json_string_length(value) == 0) ||
                    (json_is_array(value) && json_array_size(value) == 0);
    if (is_empty)
        return ZD_OK;
    enum zd_status status =
            ZD_FAIL(ZD_ERR_DATA, "E0437",
                    "\"%s\" of an Alpaca record is not used", key);
    zd_fail_help("write such records as \"messages\", one for each turn");
    return status;
}

static enum zd_status read_alpaca(
        const json_t *record, struct document *document)
{
    const json_t *instruction = NULL, *input = NULL, *output = NULL;
    const json_t *given = json_object_get(record, "input");
    ZD_TRY(get_string(record, "instruction", &instruction));
    ZD_TRY(get_string(record, "output", &output));
    ZD_TRY(refuse_filled(record, "system"));
    ZD_TRY(refuse_filled(record, "history"));
    if (given && !json_is_null(given))
        ZD_TRY(get_string(record, "input", &input));
    document->end_of_text = true;
    ZD_TRY(add_string(document, instruction, ENCODE_ADDED_TOKENS, false));
    ZD_TRY(document_add(document, "\n", 1, ENCODE_ADDED_TOKENS, false));
    if (input && json_string_length(input) > 0) {
        ZD_TRY(add_string(document, input, ENCODE_ADDED_TOKENS, false));
        ZD_TRY(document_add(document, "\n", 1, ENCODE_ADDED_TOKENS, false));
    }
    return add_string(document, output, ENCODE_ADDED_TOKENS, true);
}

/* The role as templates spell it, or NULL: a misspelt "assistant" would be left
 * out of the loss without a word. */
static const char *known_role(const char *role)
{
    static const struct {
        const char *written, *means;
    } roles[] = {
            {"system", "system"},       {"developer", "developer"},
            {"user", "user"},           {"human", "user"},
            {"assistant", "assistant"}, {"gpt", "assistant"},
            {"tool", "tool"},           {"function", "function"},
            {"ipython", "ipython"},     {"observation", "observation"},
    };
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(role, roles[i].written) == 0)
            return roles[i].means;
    return NULL;
}

static enum zd_status read_message(
        const struct data_entry *entry, enum data_format format, size_t index,
        const json_t *value, struct chat_message *message)
{
    const char *role_key = name_or(entry->role_field, "role", "from", format);
    const char *content_key =
            name_or(entry->content_field, "content", "value", format);
    const json_t *role = NULL, *content = NULL;
    if (!json_is_object(value))
        return ZD_FAIL(
                ZD_ERR_DATA, "E0437", "message %zu is not an object",
                index + 1);
    ZD_TRY(get_string(value, role_key, &role));
    ZD_TRY(get_string(value, content_key, &content));
    message->role = known_role(json_string_value(role));
    message->content = json_string_value(content);
    message->content_bytes = json_string_length(content);
    if (message->role)
        return ZD_OK;
    enum zd_status status =
            ZD_FAIL(ZD_ERR_DATA, "E0438",
                    "message %zu has the unknown role "
                    "\"%s\"",
                    index + 1, json_string_value(role));
    zd_fail_help("roles are system, user, assistant and tool");
    return status;
}

static enum zd_status read_chat(
        const struct recipe *recipe, enum data_format format,
        const json_t *record, struct document *document)
{
    const char *key = recipe->entry->messages_field;
    if (format == DATA_SHAREGPT && strcmp(key, "messages") == 0 &&
        !json_object_get(record, key))
        key = "conversations";
    const json_t *list = json_object_get(record, key);
    if (!json_is_array(list) || json_array_size(list) == 0)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0437",
                list ? "\"%s\" is not a list of messages"
                     : "the record has no \"%s\"",
                key);
    size_t count = json_array_size(list);
    struct chat_message *messages = calloc(count, sizeof *messages);
    if (!messages)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602", "out of memory reading a document");
    enum zd_status status = ZD_OK;
    for (size_t i = 0; i < count && status == ZD_OK; i++)
        status = read_message(
                recipe->entry, format, i, json_array_get(list, i),
                &messages[i]);
    if (status == ZD_OK)
        status = chat_render(recipe, messages, count, document);
    free(messages);
    return status;
}

enum zd_status record_read(
        const struct recipe *recipe, enum data_format format,
        const json_t *record, struct document *document)
{
    document_clear(document);
    if (!json_is_object(record))
        return ZD_FAIL(ZD_ERR_DATA, "E0436", "the line is not a JSON object");
    switch (format) {
    case DATA_TEXT:
        return read_text(recipe, record, document);
    case DATA_CHAT:
    case DATA_SHAREGPT:
        return read_chat(recipe, format, record, document);
    case DATA_ALPACA:
        return read_alpaca(record, document);
    case DATA_COMPLETION:
        return read_completion(record, document);
    default:
        return ZD_FAIL(ZD_ERR_BUG, "E0901", "a format was not resolved");
    }
}
