/* message.c - a message of a record, checked, as a template gets it. */
#include "data/record.h"

#include <string.h>

static const char masks_help[] =
        "\"train\": false or \"weight\": 0 keeps a message out of the loss";

/* The role as templates spell it, or NULL: a misspelled "assistant" would be
 * left out of the loss without a word. */
static const char *known_role(const char *role, bool is_sharegpt)
{
    static const struct {
        const char *written, *means, *in_sharegpt;
    } roles[] = {
            {"system", "system", NULL},
            {"developer", "developer", NULL},
            {"user", "user", NULL},
            {"human", "user", NULL},
            {"assistant", "assistant", NULL},
            {"gpt", "assistant", NULL},
            {"tool", "tool", NULL},
            {"function", "function", NULL},
            {"ipython", "ipython", NULL},
            {"observation", "observation", "tool"},
            {"function_call", NULL, "function_call"},
    };
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(role, roles[i].written) == 0)
            return is_sharegpt && roles[i].in_sharegpt ? roles[i].in_sharegpt
                                                       : roles[i].means;
    return NULL;
}

/* What would mask a turn by names other than ours, or is no text. */
static enum zd_status check_message_keys(const json_t *value)
{
    static const struct {
        const char *key, *help;
    } keys[] = {{"images", NULL},
                {"audio", NULL},
                {"videos", NULL},
                {"function_call", "write it as \"tool_calls\""},
                {"training", masks_help},
                {"train_detail", masks_help},
                {"loss", masks_help},
                {"loss_mask", masks_help},
                {"mask", masks_help}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        ZD_TRY(record_refuse_filled(
                value, keys[i].key, "a message", keys[i].help));
    return ZD_OK;
}

static enum zd_status fail(const char *what)
{
    return ZD_FAIL(ZD_ERR_DATA, "E0437", "%s", what);
}

/* OpenAI's "weight", 0 or 1, and axolotl's "train". */
static enum zd_status read_mask(const json_t *value, bool *is_masked_out)
{
    const json_t *weight = record_get(value, "weight");
    const json_t *train = record_get(value, "train");
    double number = json_is_number(weight) ? json_number_value(weight) : -1;
    if (weight && number != 0 && number != 1)
        return fail("\"weight\" is neither 0 nor 1");
    if (train && !json_is_boolean(train))
        return fail("\"train\" is neither true nor false");
    *is_masked_out = number == 0 || json_is_false(train);
    return ZD_OK;
}

/* A role is a name: one with a NUL in it is another. */
static enum zd_status read_role(
        const struct message_names *names, const json_t *value,
        const char **role_out)
{
    const json_t *role = NULL;
    enum zd_status status = record_get_string(value, names->role, &role);
    if (status != ZD_OK) {
        if (names->is_sharegpt && json_object_get(value, "role"))
            zd_fail_help("messages with \"role\" and \"content\" are chat: "
                         "messages_field = \"conversations\"");
        return status;
    }
    const char *name = json_string_value(role);
    bool has_nul = strlen(name) != json_string_length(role);
    *role_out = has_nul ? NULL : known_role(name, names->is_sharegpt);
    if (*role_out)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_DATA, "E0438", "the unknown role \"%s%s\"", name,
            has_nul ? "\\u0000..." : "");
    return zd_fail_help("roles are system, user, assistant and tool");
}

static bool is_text_part(const json_t *part)
{
    const json_t *type = json_object_get(part, "type");
    return json_is_string(part) ||
           (json_is_string(json_object_get(part, "text")) &&
            (!type || strcmp(json_string_value(type), "text") == 0));
}

/* A text, parts that are texts, or nothing beside calls of tools. */
static enum zd_status check_content(
        const struct message_names *names, const json_t *value)
{
    const json_t *content = record_get(value, names->content), *part;
    size_t i;
    if (!content && !record_is_empty(json_object_get(value, "tool_calls")))
        return ZD_OK;
    if (!json_is_array(content))
        return record_get_string(value, names->content, &content);
    json_array_foreach(content, i, part)
    {
        const char *type = json_string_at(part, "type");
        if (!is_text_part(part))
            return ZD_FAIL(
                    ZD_ERR_DATA, "E0437", "part %zu is \"%s\", not \"text\"",
                    i + 1, type ? type : "?");
    }
    return ZD_OK;
}

static enum zd_status check_calls(const json_t *value)
{
    const json_t *calls = record_get(value, "tool_calls"), *call;
    size_t i;
    bool is_good = !calls || json_is_array(calls);
    json_array_foreach(calls, i, call) is_good &= json_is_object(call);
    return is_good ? ZD_OK : fail("\"tool_calls\" is not a list of objects");
}

/* ShareGPT's function_call: the text is JSON, a call or a list of them. */
static enum zd_status read_calls(const json_t *content, json_t *message)
{
    const char *text = json_string_value(content);
    json_t *calls = NULL, *call, *list = json_array();
    size_t i;
    if (json_parse(
                text, json_string_length(content), "function_call", ZD_ERR_DATA,
                &calls) == ZD_OK &&
        json_is_object(calls)) {
        json_t *one = json_pack("[o]", calls);
        calls = one;
    }
    json_array_foreach(calls, i, call)
    {
        if (json_string_at(call, "name"))
            json_array_append_new(
                    list, json_pack(
                                  "{s:s, s:O}", "type", "function", "function",
                                  call));
    }
    bool is_good = json_array_size(list) > 0 && json_array_size(list) == i;
    json_object_set_new(message, "content", json_string(""));
    json_object_set_new(message, "tool_calls", list);
    json_decref(calls);
    zd_error_clear();
    return is_good ? ZD_OK
                   : fail("it is a function_call, but its text is not JSON "
                          "with a \"name\" and \"arguments\"");
}

/* As transformers gives it to a template: without keys that are null, with the
 * reasoning under both of its names. */
static json_t *template_message(
        const struct message_names *names, const json_t *value,
        const char *role)
{
    static const char *const reasons[] = {
            "reasoning_content", "thinking", "reasoning"};
    json_t *message = json_object(), *item, *reasoning = NULL;
    const char *key;
    for (size_t i = 0; i < 3 && !reasoning; i++)
        reasoning = (json_t *)record_get(value, reasons[i]);
    if (reasoning)
        json_object_set(message, "thinking", reasoning);
    json_object_foreach((json_t *)value, key, item)
    {
        bool is_role = strcmp(key, names->role) == 0;
        bool is_content = strcmp(key, names->content) == 0;
        if (json_is_null(item))
            continue;
        if (is_role)
            json_object_set_new(message, "role", json_string(role));
        else
            json_object_set(message, is_content ? "content" : key, item);
    }
    if (reasoning)
        json_object_set(message, "reasoning_content", reasoning);
    return message;
}

static enum zd_status read_message(
        const struct message_names *names, const json_t *value, bool is_masked,
        struct conversation *conversation)
{
    const char *role = NULL;
    bool is_left_out = false;
    if (!json_is_object(value))
        return fail("it is not an object");
    ZD_TRY(check_message_keys(value));
    ZD_TRY(read_role(names, value, &role));
    ZD_TRY(check_content(names, value));
    ZD_TRY(check_calls(value));
    ZD_TRY(read_mask(value, &is_left_out));
    bool is_call = strcmp(role, "function_call") == 0;
    const json_t *content = record_get(value, names->content);
    json_t *message =
            template_message(names, value, is_call ? "assistant" : role);
    conversation_add(conversation, message, is_masked || is_left_out);
    return is_call && json_is_string(content) ? read_calls(content, message)
                                              : ZD_OK;
}

enum zd_status message_read(
        const struct message_names *names, size_t index, const json_t *value,
        bool is_masked, struct conversation *conversation)
{
    enum zd_status status = read_message(names, value, is_masked, conversation);
    if (status == ZD_OK)
        return ZD_OK;
    struct zd_error error = *zd_error_get();
    snprintf(
            error.what, sizeof error.what, "message %zu: %.*s", index + 1,
            (int)sizeof error.what - 40, zd_error_get()->what);
    zd_error_set(&error);
    return status;
}
