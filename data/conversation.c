/* conversation.c - records of conversations: chat and ShareGPT. */
#include "data/format.h"

#include "data/chat.h"
#include "data/record.h"

#include <string.h>

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
        return ZD_FAIL(
                ZD_ERR_DATA, "E0437",
                json_is_array(list) ? "\"%s\" is empty"
                : list              ? "\"%s\" is not a list of messages"
                                    : "the record has no \"%s\"",
                key);
    for (size_t i = 0; i < count; i++)
        ZD_TRY(message_read(
                names, i, json_array_get(list, i), is_masked, conversation));
    return ZD_OK;
}

static void add_text(
        struct conversation *conversation, const char *role,
        const json_t *content, bool is_masked)
{
    conversation_add(
            conversation,
            json_pack("{s:s, s:O}", "role", role, "content", content),
            is_masked);
}

/* ShareGPT has the system's words beside the conversation; they come first. */
static enum zd_status read_system(
        const json_t *record, struct conversation *conversation)
{
    const json_t *system = NULL;
    if (record_is_empty(json_object_get(record, "system")))
        return ZD_OK;
    ZD_TRY(record_get_string(record, "system", &system));
    add_text(conversation, "system", system, false);
    return ZD_OK;
}

/* A list, or its JSON in a string. */
static enum zd_status read_list(
        const json_t *record, const char *key, json_t **list_out)
{
    const json_t *value = record_get(record, key);
    json_t *list = NULL;
    enum zd_status status = ZD_OK;
    if (record_is_empty(value))
        return ZD_OK;
    if (json_is_string(value))
        status = json_parse_record(
                json_string_value(value), json_string_length(value), key,
                ZD_ERR_DATA, &list);
    else
        list = json_incref((json_t *)value);
    if (status == ZD_OK && json_is_null(list)) {
        json_decref(list);
        return ZD_OK;
    }
    bool is_good = status == ZD_OK && json_is_array(list);
    json_t *item;
    size_t i;
    json_array_foreach(list, i, item) is_good &= json_is_object(item);
    if (!is_good) {
        json_decref(list);
        zd_error_clear();
        return ZD_FAIL(
                ZD_ERR_DATA, "E0437",
                "\"%s\" is neither a list of objects nor its JSON in a string",
                key);
    }
    if (json_array_size(list) > 0)
        *list_out = list;
    else
        json_decref(list);
    return ZD_OK;
}

/* What stands beside the messages. */
static enum zd_status read_beside(
        const json_t *record, struct conversation *conversation)
{
    conversation->variables = json_object_get(record, "chat_template_kwargs");
    if (!json_is_object(conversation->variables))
        conversation->variables = NULL;
    ZD_TRY(read_list(record, "documents", &conversation->documents));
    return read_list(record, "tools", &conversation->tools);
}

/* Special tokens in the strings of messages. */
static int64_t count_specials(
        const struct tokenizer *tokenizer, const json_t *value)
{
    int64_t count = 0;
    const char *key;
    json_t *item;
    size_t i;
    if (json_is_string(value))
        return tokenizer_count_specials(
                tokenizer, json_string_value(value), json_string_length(value));
    json_array_foreach(value, i, item) count += count_specials(tokenizer, item);
    json_object_foreach((json_t *)value, key, item) count +=
            strcmp(key, "thinking") == 0 ? 0 : count_specials(tokenizer, item);
    return count;
}

/* The document of a conversation that was read with `status`. */
static enum zd_status finish(
        const struct reading *reading, enum zd_status status,
        struct conversation *talk)
{
    if (status == ZD_OK)
        status = read_beside(reading->record, talk);
    if (status == ZD_OK)
        status = chat_render(
                reading->renderer, talk, reading->recipe->train_on,
                reading->document);
    reading->document->specials =
            count_specials(reading->recipe->tokenizer, talk->messages);
    conversation_fini(talk);
    return status;
}

static enum zd_status read_talk(
        const struct reading *reading, const struct message_names *names)
{
    const json_t *record = reading->record;
    struct conversation talk = {0};
    const json_t *first =
            json_array_get(json_object_get(record, names->list), 0);
    const char *role = json_string_at(first, names->role);
    enum zd_status status = read_system(record, &talk);
    if (status == ZD_OK && talk.messages && role && strcmp(role, "system") == 0)
        status =
                ZD_FAIL(ZD_ERR_DATA, "E0437",
                        "the record has a \"system\", and its conversation "
                        "begins with a system message too");
    if (status == ZD_OK)
        status = read_messages(names, record, names->list, false, &talk);
    return finish(reading, status, &talk);
}

static struct message_names names_of(const struct reading *reading)
{
    const struct data_entry *entry = reading->recipe->entry;
    return (struct message_names){
            entry->messages_field, entry->role_field, entry->content_field,
            false};
}

enum zd_status record_chat(const struct reading *reading)
{
    const struct message_names names = names_of(reading);
    return read_talk(reading, &names);
}

/* Its names, where the job does not give others. */
enum zd_status record_sharegpt(const struct reading *reading)
{
    const struct data_entry usual = data_entry_default();
    struct message_names names = names_of(reading);
    names.is_sharegpt = true;
    if (strcmp(names.list, usual.messages_field) == 0 &&
        !json_object_get(reading->record, names.list))
        names.list = "conversations";
    if (strcmp(names.role, usual.role_field) == 0)
        names.role = "from";
    if (strcmp(names.content, usual.content_field) == 0)
        names.content = "value";
    return read_talk(reading, &names);
}

/* --- records of other forms as conversations --- */

static enum zd_status read_history(
        const json_t *record, struct conversation *talk)
{
    const json_t *turn;
    size_t i;
    json_array_foreach(record_get(record, "history"), i, turn)
    {
        const json_t *user = json_array_get(turn, 0);
        const json_t *answer = json_array_get(turn, 1);
        if (!json_is_string(user) || !json_is_string(answer))
            return ZD_FAIL(
                    ZD_ERR_DATA, "E0437",
                    "\"history\" is not a list of pairs of strings");
        add_text(talk, "user", user, false);
        add_text(talk, "assistant", answer, false);
    }
    return ZD_OK;
}

enum zd_status record_alpaca_talk(const struct reading *reading)
{
    struct conversation talk = {0};
    struct alpaca alpaca;
    ZD_TRY(record_get_alpaca(reading->record, &alpaca));
    enum zd_status status = read_system(reading->record, &talk);
    if (status == ZD_OK)
        status = read_history(reading->record, &talk);
    json_t *question = json_incref((json_t *)alpaca.instruction);
    if (alpaca.input) {
        json_decref(question);
        question = json_pack(
                "s%++%", json_string_value(alpaca.instruction),
                json_string_length(alpaca.instruction), "\n",
                json_string_value(alpaca.input),
                json_string_length(alpaca.input));
    }
    add_text(&talk, "user", question, false);
    json_decref(question);
    add_text(&talk, "assistant", alpaca.output, false);
    return finish(reading, status, &talk);
}

enum zd_status record_completion_talk(const struct reading *reading)
{
    static const struct message_names names = {NULL, "role", "content", false};
    const json_t *record = reading->record;
    const json_t *prompt = record_get(record, "prompt"), *completion = NULL;
    bool trains_prompt = reading->recipe->train_on == TRAIN_ON_ALL;
    struct conversation talk = {0};
    enum zd_status status = ZD_OK;
    if (json_is_array(prompt)) { /* messages, as TRL has them */
        status = read_messages(&names, record, "prompt", !trains_prompt, &talk);
        if (status == ZD_OK)
            status = read_messages(&names, record, "completion", false, &talk);
    } else {
        ZD_TRY(record_get_string(record, "prompt", &prompt));
        ZD_TRY(record_get_string(record, "completion", &completion));
        add_text(&talk, "user", prompt, false);
        add_text(&talk, "assistant", completion, false);
    }
    return finish(reading, status, &talk);
}
