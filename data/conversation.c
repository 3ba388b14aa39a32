/* conversation.c - records of conversations: chat and ShareGPT. */
#include "data/format.h"

#include "base/must.h"
#include "data/record.h"

#include <stdlib.h>
#include <string.h>

/* What the keys of a conversation and of its messages are. */
struct names {
    const char *list, *role, *content;
    bool is_sharegpt;
};

static bool has_turns_of_sharegpt(
        const json_t *record, const struct data_entry *entry)
{
    const json_t *first =
            json_array_get(json_object_get(record, entry->messages_field), 0);
    return first && !json_object_get(first, entry->role_field) &&
           json_object_get(first, "from");
}

bool record_is_chat(const json_t *record, const struct data_entry *entry)
{
    return record_get(record, entry->messages_field) &&
           !has_turns_of_sharegpt(record, entry);
}

bool record_is_sharegpt(const json_t *record, const struct data_entry *entry)
{
    return record_get(record, entry->messages_field)
                   ? has_turns_of_sharegpt(record, entry)
                   : record_get(record, "conversations") != NULL;
}

/* The role as templates spell it, or NULL: a misspelled "assistant" would be
 * left out of the loss without a word. */
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

/* What a template would render, and what would mask a turn, by names other than
 * ours. */
static enum zd_status check_message_keys(size_t index, const json_t *value)
{
    static const char *const rendered[] = {
            "tool_calls", "function_call", "reasoning_content",
            "reasoning",  "thinking",      "images",
            "audio"};
    static const char *const masks[] = {"train", "training",  "train_detail",
                                        "loss",  "loss_mask", "mask"};
    char what[40];
    snprintf(what, sizeof what, "message %zu", index + 1);
    for (size_t i = 0; i < sizeof rendered / sizeof rendered[0]; i++)
        ZD_TRY(record_refuse_filled(
                value, rendered[i], what,
                "no template renders it yet: without it the model would learn "
                "to leave it out. Remove the record, or write what it says "
                "into the content"));
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++)
        ZD_TRY(record_refuse_filled(
                value, masks[i], what,
                "\"weight\": 0 keeps a message out of the loss"));
    return ZD_OK;
}

/* OpenAI's form: 0 keeps a message out of the loss, 1 says nothing. */
static enum zd_status read_weight(
        size_t index, const json_t *value, struct chat_message *message)
{
    const json_t *weight = record_get(value, "weight");
    double number = json_is_number(weight) ? json_number_value(weight) : -1;
    if (!weight)
        return ZD_OK;
    if (number != 0 && number != 1)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0437",
                "\"weight\" of message %zu is neither 0 nor 1", index + 1);
    message->is_masked = number == 0;
    return ZD_OK;
}

/* A role is a name: one with a NUL in it is another. */
static enum zd_status read_role(
        size_t index, const json_t *role, struct chat_message *message)
{
    const char *name = json_string_value(role);
    bool has_nul = strlen(name) != json_string_length(role);
    message->role = has_nul ? NULL : known_role(name);
    if (message->role)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_DATA, "E0438", "message %zu has the unknown role \"%s%s\"",
            index + 1, name, has_nul ? "\\u0000..." : "");
    zd_fail_help("roles are system, user, assistant and tool");
    return ZD_ERR_DATA;
}

static void set_content(struct chat_message *message, const json_t *content)
{
    message->content = json_string_value(content);
    message->content_bytes = json_string_length(content);
}

static enum zd_status read_message(
        const struct names *names, size_t index, const json_t *value,
        struct chat_message *message)
{
    const json_t *role = NULL, *content = NULL;
    if (!json_is_object(value))
        return ZD_FAIL(
                ZD_ERR_DATA, "E0437", "message %zu is not an object",
                index + 1);
    ZD_TRY(check_message_keys(index, value));
    enum zd_status status = record_get_string(value, names->role, &role);
    if (status == ZD_OK)
        status = record_get_string(value, names->content, &content);
    if (status != ZD_OK) {
        if (names->is_sharegpt && json_object_get(value, "role"))
            zd_fail_help("messages with \"role\" and \"content\" are chat: "
                         "messages_field = \"conversations\"");
        return status;
    }
    set_content(message, content);
    ZD_TRY(read_weight(index, value, message));
    return read_role(index, role, message);
}

/* ShareGPT has the system's words beside the conversation; they come first.
 * *message stays without a role if there are none. */
static enum zd_status read_system(
        const json_t *record, const struct chat_message *first,
        struct chat_message *message)
{
    const json_t *system = NULL;
    if (record_is_empty(json_object_get(record, "system")))
        return ZD_OK;
    ZD_TRY(record_get_string(record, "system", &system));
    if (strcmp(first->role, "system") == 0)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0437",
                "the record has a \"system\", and its conversation begins with "
                "a system message too");
    message->role = "system";
    set_content(message, system);
    return ZD_OK;
}

static enum zd_status read_list(
        const struct recipe *recipe, const struct names *names,
        const json_t *record, struct document *document)
{
    const json_t *list = json_object_get(record, names->list);
    if (!list)
        ZD_TRY(record_check_preference(record));
    size_t count = json_array_size(list);
    if (count == 0)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0437",
                list ? "\"%s\" is not a list of messages"
                     : "the record has no \"%s\"",
                names->list);
    /* the first is that of a system */
    struct chat_message *messages =
            zd_must(calloc(count + 1, sizeof *messages));
    enum zd_status status = ZD_OK;
    for (size_t i = 0; i < count && status == ZD_OK; i++)
        status = read_message(
                names, i, json_array_get(list, i), &messages[i + 1]);
    if (status == ZD_OK)
        status = read_system(record, &messages[1], &messages[0]);
    bool has_system = messages[0].role;
    if (status == ZD_OK)
        chat_render(
                recipe, messages + !has_system, count + has_system, document);
    free(messages);
    return status;
}

enum zd_status record_chat(
        const struct recipe *recipe, const json_t *record,
        struct document *document)
{
    const struct data_entry *entry = recipe->entry;
    const struct names names = {
            entry->messages_field, entry->role_field, entry->content_field,
            false};
    return read_list(recipe, &names, record, document);
}

/* Its names, where the job does not give others. */
enum zd_status record_sharegpt(
        const struct recipe *recipe, const json_t *record,
        struct document *document)
{
    const struct data_entry *entry = recipe->entry;
    const struct data_entry usual = data_entry_default();
    struct names names = {
            entry->messages_field, entry->role_field, entry->content_field,
            true};
    if (strcmp(names.list, usual.messages_field) == 0 &&
        !json_object_get(record, names.list))
        names.list = "conversations";
    if (strcmp(names.role, usual.role_field) == 0)
        names.role = "from";
    if (strcmp(names.content, usual.content_field) == 0)
        names.content = "value";
    return read_list(recipe, &names, record, document);
}
