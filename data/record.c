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

/* The value under `key`; NULL when it is absent or null. */
static const json_t *get(const json_t *record, const char *key)
{
    const json_t *value = json_object_get(record, key);
    return json_is_null(value) ? NULL : value;
}

enum data_format record_format(
        const json_t *record, const struct data_entry *entry)
{
    const json_t *messages = get(record, entry->messages_field);
    if (messages) {
        const json_t *first = json_array_get(messages, 0);
        return first && !json_object_get(first, entry->role_field) &&
                               json_object_get(first, "from")
                       ? DATA_SHAREGPT
                       : DATA_CHAT;
    }
    if (get(record, "conversations"))
        return DATA_SHAREGPT;
    if (get(record, "instruction") && get(record, "output"))
        return DATA_ALPACA;
    if (get(record, "prompt") && get(record, "completion"))
        return DATA_COMPLETION;
    if (get(record, entry->field))
        return DATA_TEXT;
    return DATA_AUTO;
}

/* --- what cannot be read one way alone --- */

/* Two forms that fit are two ways to train: nobody but the job says which. */
static enum zd_status check_forms(
        const json_t *record, const struct data_entry *entry)
{
    const struct {
        const char *key, *other, *format;
    } forms[] = {
            {entry->messages_field, NULL, "chat"},
            {"conversations", NULL, "sharegpt"},
            {"instruction", "output", "alpaca"},
            {"prompt", "completion", "completion"},
            {entry->field, NULL, "text"},
    };
    int first = -1;
    for (int i = 0; i < 5; i++) {
        bool is_same = i == 1 && strcmp(forms[0].key, forms[1].key) == 0;
        if (is_same || !get(record, forms[i].key) ||
            (forms[i].other && !get(record, forms[i].other)))
            continue;
        if (first < 0) {
            first = i;
            continue;
        }
        ZD_FAIL(ZD_ERR_DATA, "E0431",
                "the record fits two forms: it has \"%s\" and \"%s\"",
                forms[first].key, forms[i].key);
        zd_fail_help(
                "say which is meant: format = \"%s\", or format = \"%s\"",
                forms[first].format, forms[i].format);
        return ZD_ERR_DATA;
    }
    return ZD_OK;
}

static bool is_empty(const json_t *value)
{
    return !value || json_is_null(value) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static enum zd_status refuse_key(const char *what, const char *key)
{
    return ZD_FAIL(ZD_ERR_DATA, "E0437", "\"%s\" of %s is not used", key, what);
}

/* Rows for DPO, ORPO and reward models (chosen, rejected), or KTO (label). */
static enum zd_status refuse_preference(const char *keys)
{
    ZD_FAIL(ZD_ERR_DATA, "E0437",
            "a preference row, with %s: zerod trains on text, not on "
            "preferences",
            keys);
    zd_fail_help("to train on the preferred answers alone, keep those, as "
                 "\"messages\" or as \"prompt\" and \"completion\"");
    return ZD_ERR_DATA;
}

/* Keys that whoever wrote them expects to change what is trained. */
static enum zd_status check_keys(
        const json_t *record, const struct data_entry *entry,
        enum data_format format)
{
    static const char *const keys[] = {
            "labels", "loss_mask", "images", "videos", "audios"};
    static const char *const of_chats[] = {"tools", "functions"};
    const json_t *weight = json_object_get(record, "weight");
    const json_t *label = json_object_get(record, "label");
    bool is_chat = format == DATA_CHAT || format == DATA_SHAREGPT;
    bool is_asked = entry->format == DATA_CHAT ||
                    entry->format == DATA_SHAREGPT || format == DATA_TEXT;
    if (!is_asked && get(record, "chosen") && get(record, "rejected"))
        return refuse_preference("\"chosen\" and \"rejected\"");
    if (format != DATA_TEXT && json_is_boolean(label))
        return refuse_preference("a KTO \"label\"");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(keys[i], entry->field) != 0 &&
            !is_empty(json_object_get(record, keys[i])))
            return refuse_key("a record", keys[i]);
    for (size_t i = 0; is_chat && i < sizeof of_chats / sizeof of_chats[0]; i++)
        if (!is_empty(json_object_get(record, of_chats[i]))) {
            refuse_key("a conversation", of_chats[i]);
            zd_fail_help("no template renders tools yet: remove it, or write "
                         "the tools into the system message");
            return ZD_ERR_DATA;
        }
    if (weight && !json_is_null(weight) &&
        !(json_is_number(weight) && json_number_value(weight) == 1)) {
        refuse_key("a record", "weight");
        zd_fail_help("sources have a weight, in [[data.train]]; so have "
                     "messages, of 0 or 1");
        return ZD_ERR_DATA;
    }
    return ZD_OK;
}

enum zd_status record_check(
        const json_t *record, const struct data_entry *entry,
        enum data_format format)
{
    if (entry->format == DATA_AUTO)
        ZD_TRY(check_forms(record, entry));
    return check_keys(record, entry, format);
}

/* --- text in pieces --- */

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

/* Whether the loss counts what comes before the answer. */
static bool trains_prompt(const struct recipe *recipe)
{
    return recipe->train_on == TRAIN_ON_ALL;
}

static enum zd_status read_completion(
        const struct recipe *recipe, const json_t *record,
        struct document *document)
{
    const json_t *prompt = NULL, *completion = NULL;
    ZD_TRY(get_string(record, "prompt", &prompt));
    ZD_TRY(get_string(record, "completion", &completion));
    document->end_of_text = true;
    ZD_TRY(add_string(
            document, prompt, ENCODE_ADDED_TOKENS, trains_prompt(recipe)));
    return add_string(document, completion, ENCODE_ADDED_TOKENS, true);
}

/* Keys of some Alpaca files that we would have to drop in silence. */
static enum zd_status refuse_filled(const json_t *record, const char *key)
{
    if (is_empty(json_object_get(record, key)))
        return ZD_OK;
    refuse_key("an Alpaca record", key);
    zd_fail_help("write such records as \"messages\", one for each turn");
    return ZD_ERR_DATA;
}

/* What stands around the instruction and the input of an Alpaca record. */
struct alpaca_prompt {
    const char *begin_with_input, *begin, *between, *end;
};

static const struct alpaca_prompt alpaca_plain = {"", "", "\n", "\n"};
/* AlpacaPrompter of axolotl 0.19, style "instruct". */
static const struct alpaca_prompt alpaca_instruct = {
        "Below is an instruction that describes a task, paired with an input "
        "that provides further context. Write a response that appropriately "
        "completes the request.\n\n### Instruction:\n",
        "Below is an instruction that describes a task. Write a response that "
        "appropriately completes the request.\n\n### Instruction:\n",
        "\n\n### Input:\n", "\n\n### Response:\n"};

static enum zd_status read_alpaca(
        const struct recipe *recipe, const struct alpaca_prompt *prompt,
        const json_t *record, struct document *document)
{
    const json_t *instruction = NULL, *input = NULL, *output = NULL;
    ZD_TRY(get_string(record, "instruction", &instruction));
    ZD_TRY(get_string(record, "output", &output));
    ZD_TRY(refuse_filled(record, "system"));
    ZD_TRY(refuse_filled(record, "history"));
    if (get(record, "input"))
        ZD_TRY(get_string(record, "input", &input));
    bool has_input = input && json_string_length(input) > 0;
    const char *begin = has_input ? prompt->begin_with_input : prompt->begin;
    const struct {
        const char *text;
        size_t bytes;
    } parts[] = {
            {begin, strlen(begin)},
            {json_string_value(instruction), json_string_length(instruction)},
            {prompt->between, has_input ? strlen(prompt->between) : 0},
            {json_string_value(input),
             has_input ? json_string_length(input) : 0},
            {prompt->end, strlen(prompt->end)}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        ZD_TRY(document_add(
                document, parts[i].text, parts[i].bytes, ENCODE_ADDED_TOKENS,
                trains_prompt(recipe)));
    document->end_of_text = true;
    if (prompt == &alpaca_instruct)
        document_cut(document); /* as axolotl does, whatever is trained */
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

/* What a template would render, and what would mask a turn, by names other than
 * ours. */
static enum zd_status check_message_keys(size_t index, const json_t *value)
{
    static const struct {
        const char *key;
        bool is_mask;
    } keys[] = {
            {"tool_calls", false},
            {"function_call", false},
            {"reasoning_content", false},
            {"reasoning", false},
            {"thinking", false},
            {"images", false},
            {"audio", false},
            {"train", true},
            {"training", true},
            {"train_detail", true},
            {"loss", true},
            {"loss_mask", true},
            {"mask", true},
    };
    char what[40];
    snprintf(what, sizeof what, "message %zu", index + 1);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (is_empty(json_object_get(value, keys[i].key)))
            continue;
        refuse_key(what, keys[i].key);
        if (keys[i].is_mask)
            zd_fail_help("\"weight\": 0 keeps a message out of the loss");
        else
            zd_fail_help(
                    "no template renders it yet: without it the model would "
                    "learn to leave it out. Remove the record, or write what "
                    "it says into the content");
        return ZD_ERR_DATA;
    }
    return ZD_OK;
}

/* OpenAI's form: 0 keeps a message out of the loss, 1 says nothing. */
static enum zd_status read_weight(
        size_t index, const json_t *value, struct chat_message *message)
{
    const json_t *weight = get(value, "weight");
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
    ZD_TRY(check_message_keys(index, value));
    enum zd_status status = get_string(value, role_key, &role);
    if (status == ZD_OK)
        status = get_string(value, content_key, &content);
    if (status != ZD_OK) {
        if (format == DATA_SHAREGPT && json_object_get(value, "role"))
            zd_fail_help("messages with \"role\" and \"content\" are chat: "
                         "messages_field = \"conversations\"");
        return status;
    }
    message->content = json_string_value(content);
    message->content_bytes = json_string_length(content);
    ZD_TRY(read_weight(index, value, message));
    return read_role(index, role, message);
}

/* ShareGPT has the system's words beside the conversation; they come first. */
static enum zd_status read_system(
        const json_t *record, const struct chat_message *first,
        struct chat_message *message)
{
    const json_t *system = get(record, "system");
    if (is_empty(system))
        return ZD_OK;
    ZD_TRY(get_string(record, "system", &system));
    if (strcmp(first->role, "system") == 0)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0437",
                "the record has a \"system\", and its conversation begins with "
                "a system message too");
    message->role = "system";
    message->content = json_string_value(system);
    message->content_bytes = json_string_length(system);
    return ZD_OK;
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
    if (!list && get(record, "chosen") && get(record, "rejected"))
        return refuse_preference("\"chosen\" and \"rejected\"");
    if (!json_is_array(list) || json_array_size(list) == 0)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0437",
                list ? "\"%s\" is not a list of messages"
                     : "the record has no \"%s\"",
                key);
    size_t count = json_array_size(list);
    /* the first is that of a system */
    struct chat_message *messages = calloc(count + 1, sizeof *messages);
    if (!messages)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602", "out of memory reading a document");
    enum zd_status status = ZD_OK;
    for (size_t i = 0; i < count && status == ZD_OK; i++)
        status = read_message(
                recipe->entry, format, i, json_array_get(list, i),
                &messages[i + 1]);
    if (status == ZD_OK)
        status = read_system(record, &messages[1], &messages[0]);
    bool has_system = messages[0].role;
    if (status == ZD_OK)
        status = chat_render(
                recipe, messages + !has_system, count + has_system, document);
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
    ZD_TRY(record_check(record, recipe->entry, format));
    switch (format) {
    case DATA_TEXT:
        return read_text(recipe, record, document);
    case DATA_CHAT:
    case DATA_SHAREGPT:
        return read_chat(recipe, format, record, document);
    case DATA_ALPACA:
        return read_alpaca(recipe, &alpaca_plain, record, document);
    case DATA_ALPACA_INSTRUCT:
        return read_alpaca(recipe, &alpaca_instruct, record, document);
    case DATA_COMPLETION:
        return read_completion(recipe, record, document);
    default:
        return ZD_FAIL(ZD_ERR_BUG, "E0901", "a format was not resolved");
    }
}
