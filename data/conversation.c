/* conversation.c - records of conversations: chat and ShareGPT. */
#include "data/format.h"

#include "base/must.h"

#include <string.h>

/* --- a message, checked, as a template gets it ---------------------------- */

/* What the keys of a conversation and of its messages are. */
struct message_names {
    const char *list, *role, *content;
    bool is_sharegpt;
};

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
    return ZD_BAD("E0437", "%s", what);
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
    ZD_BAD("E0438", "the unknown role \"%s%s\"", name,
           has_nul ? "\\u0000..." : "");
    return zd_fail_help("roles are system, user, assistant and tool");
}

/* A text, parts that are texts, or nothing beside calls of tools. */
static enum zd_status check_content(
        const struct message_names *names, const json_t *value)
{
    const json_t *content = record_get(value, names->content);
    if (!content && !record_is_empty(json_object_get(value, "tool_calls")))
        return ZD_OK;
    if (!json_is_array(content))
        return record_get_string(value, names->content, &content);
    JSON_EACH_AT(i, part, content) {
        const char *type = json_string_at(part, "type");
        bool has_type = json_object_get(part, "type") != NULL;
        bool has_text = json_is_string(json_object_get(part, "text")) &&
                        (!has_type || (type && strcmp(type, "text") == 0));
        if (!json_is_string(part) && !has_text)
            return ZD_BAD(
                    "E0437", "part %zu is \"%s\", not \"text\"", i + 1,
                    type ? type : "?");
    }
    return ZD_OK;
}

/* ShareGPT's function_call: the text is JSON, a call or a list of them. */
static enum zd_status read_calls(const json_t *content, json_t *message)
{
    const char *text = json_string_value(content);
    json_auto_t *calls = NULL;
    json_t *list = json_array();
    if (json_parse(
                text, json_string_length(content), "function_call", ZD_ERR_DATA,
                &calls) == ZD_OK &&
        json_is_object(calls))
        calls = json_pack("[o]", calls);
    JSON_EACH(call, calls) {
        if (json_string_at(call, "name"))
            json_array_append_new(
                    list, json_pack(
                                  "{s:s, s:O}", "type", "function", "function",
                                  call));
    }
    bool is_good = json_array_size(list) > 0 &&
                   json_array_size(list) == json_array_size(calls);
    json_object_set_new(message, "content", json_string(""));
    json_object_set_new(message, "tool_calls", list);
    zd_error_clear();
    return is_good ? ZD_OK
                   : fail("it is a function_call, but its text is not JSON "
                          "with a \"name\" and \"arguments\"");
}

/* As transformers gives it to a template: without keys that are null, with the
 * reasoning under both of its names. */
static json_t *as_template(
        const struct message_names *names, const json_t *value,
        const char *role)
{
    static const char *const reasons[] = {
            "reasoning_content", "thinking", "reasoning"};
    json_t *message = json_object(), *reasoning = NULL;
    for (size_t i = 0; i < 3 && !reasoning; i++)
        reasoning = (json_t *)record_get(value, reasons[i]);
    if (reasoning)
        json_object_set(message, "thinking", reasoning);
    JSON_MEMBERS(key, item, value) {
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
    const json_t *calls = record_get(value, "tool_calls");
    const char *role = NULL;
    bool is_left_out = false, are_calls = !calls || json_is_array(calls);
    if (!json_is_object(value))
        return fail("it is not an object");
    ZD_TRY(check_message_keys(value));
    ZD_TRY(read_role(names, value, &role));
    ZD_TRY(check_content(names, value));
    JSON_EACH(call, calls)
        are_calls &= json_is_object(call);
    if (!are_calls)
        return fail("\"tool_calls\" is not a list of objects");
    ZD_TRY(read_mask(value, &is_left_out));
    bool is_call = strcmp(role, "function_call") == 0;
    const json_t *content = record_get(value, names->content);
    json_t *message = as_template(names, value, is_call ? "assistant" : role);
    conversation_add(conversation, message, is_masked || is_left_out);
    return is_call && json_is_string(content) ? read_calls(content, message)
                                              : ZD_OK;
}

/* The error that was just made is of this message. */
static enum zd_status fail_message(size_t index)
{
    struct zd_error error = *zd_error_get();
    ZD_PRINT(
            error.what, "message %zu: %.*s", index + 1,
            (int)sizeof error.what - 40, zd_error_get()->what);
    zd_error_set(&error);
    return error.status;
}

/* --- chat and ShareGPT ---------------------------------------------------- */

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

static enum zd_status read_messages(
        const struct message_names *names, const json_t *record,
        const char *key, bool is_masked, struct conversation *conversation)
{
    const json_t *list = json_object_get(record, key);
    size_t count = json_array_size(list);
    if (!list)
        ZD_TRY(record_check_preference(record));
    if (count == 0)
        return ZD_BAD(
                "E0437",
                json_is_array(list) ? "\"%s\" is empty"
                : list              ? "\"%s\" is not a list of messages"
                                    : "the record has no \"%s\"",
                key);
    for (size_t i = 0; i < count; i++)
        if (read_message(
                    names, json_array_get(list, i), is_masked, conversation) !=
            ZD_OK)
            return fail_message(i);
    return ZD_OK;
}

static void add_text(
        struct conversation *talk, const char *role, const json_t *content)
{
    conversation_add(
            talk, json_pack("{s:s, s:O}", "role", role, "content", content),
            false);
}

/* ShareGPT has the system's words beside the conversation; they come first. */
static enum zd_status read_system(
        const json_t *record, struct conversation *conversation)
{
    const json_t *system = NULL;
    if (record_is_empty(json_object_get(record, "system")))
        return ZD_OK;
    ZD_TRY(record_get_string(record, "system", &system));
    add_text(conversation, "system", system);
    return ZD_OK;
}

/* A list, or its JSON in a string. */
static enum zd_status read_list(
        const json_t *record, const char *key, json_t **list_out)
{
    const json_t *value = record_get(record, key);
    json_t *list = NULL;
    if (!json_is_string(value))
        list = json_incref((json_t *)value);
    else if (
            json_parse_record(
                    json_string_value(value), json_string_length(value), key,
                    ZD_ERR_DATA, &list) != ZD_OK)
        zd_error_clear();
    bool is_good =
            record_is_empty(value) || json_is_null(list) || json_is_array(list);
    JSON_EACH(item, list)
        is_good &= json_is_object(item);
    if (is_good && json_array_size(list) > 0)
        *list_out = list;
    else
        json_decref(list);
    return is_good ? ZD_OK
                   : ZD_BAD("E0437",
                            "\"%s\" is neither a list of objects nor its JSON "
                            "in a string",
                            key);
}

/* Special tokens in the strings of messages. */
static int64_t count_specials(
        const struct tokenizer *tokenizer, const json_t *value)
{
    int64_t count = 0;
    if (json_is_string(value))
        return tokenizer_count_specials(
                tokenizer, json_string_value(value), json_string_length(value));
    JSON_EACH(item, value)
        count += count_specials(tokenizer, item);
    JSON_MEMBERS(key, item, value)
        count += strcmp(key, "thinking") == 0 ? 0
                                              : count_specials(tokenizer, item);
    return count;
}

/* The document of a conversation. */
static enum zd_status finish(
        const struct reading *reading, struct conversation *talk)
{
    talk->variables = json_object_get(reading->record, "chat_template_kwargs");
    if (!json_is_object(talk->variables))
        talk->variables = NULL;
    ZD_TRY(read_list(reading->record, "documents", &talk->documents));
    ZD_TRY(read_list(reading->record, "tools", &talk->tools));
    ZD_TRY(chat_render(
            reading->renderer, talk, reading->recipe->train_on,
            reading->document));
    reading->document->specials =
            count_specials(reading->recipe->tokenizer, talk->messages);
    return ZD_OK;
}

static enum zd_status read_talk(const struct reading *reading, bool is_sharegpt)
{
    const struct data_entry usual = data_entry_default();
    const struct data_entry *entry = reading->recipe->entry;
    const json_t *record = reading->record;
    struct message_names names = {
            entry->messages_field, entry->role_field, entry->content_field,
            is_sharegpt};
    ZD_SCOPED(conversation_fini) struct conversation talk = {0};
    /* its names, where the job does not give others */
    if (is_sharegpt && strcmp(names.list, usual.messages_field) == 0 &&
        !json_object_get(record, names.list))
        names.list = "conversations";
    if (is_sharegpt && strcmp(names.role, usual.role_field) == 0)
        names.role = "from";
    if (is_sharegpt && strcmp(names.content, usual.content_field) == 0)
        names.content = "value";
    const json_t *first =
            json_array_get(json_object_get(record, names.list), 0);
    const char *role = json_string_at(first, names.role);
    ZD_TRY(read_system(record, &talk));
    if (talk.messages && role && strcmp(role, "system") == 0)
        return fail("the record has a \"system\", and its conversation "
                    "begins with a system message too");
    ZD_TRY(read_messages(&names, record, names.list, false, &talk));
    return finish(reading, &talk);
}

enum zd_status record_chat(const struct reading *reading)
{
    return read_talk(reading, false);
}

enum zd_status record_sharegpt(const struct reading *reading)
{
    return read_talk(reading, true);
}

/* --- records of other forms as conversations --- */

static enum zd_status read_history(
        const json_t *record, struct conversation *talk)
{
    JSON_EACH(turn, record_get(record, "history")) {
        const json_t *user = json_array_get(turn, 0);
        const json_t *answer = json_array_get(turn, 1);
        if (!json_is_string(user) || !json_is_string(answer))
            return fail("\"history\" is not a list of pairs of strings");
        add_text(talk, "user", user);
        add_text(talk, "assistant", answer);
    }
    return ZD_OK;
}

enum zd_status record_alpaca_talk(const struct reading *reading)
{
    ZD_SCOPED(conversation_fini) struct conversation talk = {0};
    struct alpaca alpaca;
    ZD_TRY(record_get_alpaca(reading->record, &alpaca));
    ZD_TRY(read_system(reading->record, &talk));
    ZD_TRY(read_history(reading->record, &talk));
    json_auto_t *question = NULL;
    if (alpaca.input)
        question = json_pack(
                "s%++%", json_string_value(alpaca.instruction),
                json_string_length(alpaca.instruction), "\n",
                json_string_value(alpaca.input),
                json_string_length(alpaca.input));
    add_text(&talk, "user", question ? question : alpaca.instruction);
    add_text(&talk, "assistant", alpaca.output);
    return finish(reading, &talk);
}

enum zd_status record_completion_talk(const struct reading *reading)
{
    static const struct message_names names = {NULL, "role", "content", false};
    const json_t *record = reading->record;
    const json_t *prompt = record_get(record, "prompt"), *completion = NULL;
    bool trains_prompt = reading->recipe->train_on == TRAIN_ON_ALL;
    ZD_SCOPED(conversation_fini) struct conversation talk = {0};
    if (json_is_array(prompt)) { /* messages, as TRL has them */
        ZD_TRY(read_messages(&names, record, "prompt", !trains_prompt, &talk));
        ZD_TRY(read_messages(&names, record, "completion", false, &talk));
    } else {
        ZD_TRY(record_get_string(record, "prompt", &prompt));
        ZD_TRY(record_get_string(record, "completion", &completion));
        add_text(&talk, "user", prompt);
        add_text(&talk, "assistant", completion);
    }
    return finish(reading, &talk);
}
