/* axolotl_data.c - data sets of axolotl's files. */
#include "daemon/init/axolotl_data.h"
#include "daemon/init/trainer_words.h"

#include <stdlib.h>
#include <string.h>

/* Their prompts (0.19): ours makes the same text, or `why` not. */
static const struct prompt {
    const char *type, *format, *why;
} prompts[] = {
        {"alpaca", "alpaca_instruct"},
        {"alpaca_instruct.load", "alpaca_instruct"},
        {"chat_template", "chat"},
        {"chat_template.default", "chat"},
        {"completion", "text"},
        {"pretrain", "text"},
        {"sharegpt", NULL,
         "axolotl itself refuses it, and made a prompt of Vicuna's of it "
         "before: write type: chat_template, with field_messages: "
         "conversations, and message_property_mappings of role: from and "
         "content: value"}};

static const struct prompt *find_prompt(const char *type)
{
    for (size_t i = 0; type && i < sizeof prompts / sizeof prompts[0]; i++)
        if (!strcmp(type, prompts[i].type))
            return &prompts[i];
    return NULL;
}

/* Whether a value is written so. */
static bool is_text(const json_t *value, const char *text)
{
    char *written = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    bool is = written && !strcmp(written, text);
    free(written);
    return is;
}

/* A key of one of their data sets. */
static void take_source_key(
        struct foreign *foreign, const char *name, json_t *source,
        const char *key, const json_t *value)
{
    static const struct {
        const char *theirs, *ours; /* NULL: nothing to do .. */
        const char *same;          /* .. if it is this; NULL: whatever it is */
        const char *why;           /* .. and else */
    } keys[] = {
            {"path", "path"},
            {"data_files", "path"},
            {"field", "field"},
            {"text_column", "field"},
            {"field_messages", "messages_field"},
            {"message_field_role", "role_field"},
            {"message_property_mappings.role", "role_field"},
            {"message_field_content", "content_field"},
            {"message_property_mappings.content", "content_field"},
            {"ds_type", NULL},
            {"trust_remote_code", NULL},
            {"preprocess_shards", NULL},
            {"split", NULL, "\"train\"",
             "a file is read whole: keep that part in a file of its own"},
            {"shards", NULL, "1",
             "a file is read whole: keep that part in a file of its own"},
            {"roles_to_train", NULL, "[\"assistant\"]",
             "data.train_on is \"assistant\" or \"all\""},
            {"train_on_eos", NULL, "\"turn\"",
             "the ends of the turns that are trained on are learned"}};
    char full[200];
    const char *part;
    json_t *inner;
    snprintf(full, sizeof full, "%s.%s", name, key);
    if (foreign_is_open(value))
        return;
    if (!strcmp(key, "type")) {
        const struct prompt *prompt = find_prompt(json_string_value(value));
        if (prompt && prompt->format)
            draft_set_entry(
                    source, "format", json_string(prompt->format), full);
        else
            foreign_refuse(
                    foreign, full, value,
                    prompt ? prompt->why
                           : "zerod does not make this prompt; it makes those "
                             "of alpaca, alpaca_instruct.load, chat_template, "
                             "completion and pretrain");
        return;
    }
    if (json_is_object(value)) {
        json_object_foreach((json_t *)value, part, inner)
        {
            snprintf(full, sizeof full, "%s.%s", key, part);
            if (strcmp(part, "role") != 0 && strcmp(part, "content") != 0)
                foreign_refuse(foreign, full, inner, "a message has no more");
            else
                take_source_key(foreign, name, source, full, inner);
        }
        return;
    }
    const json_t *one =
            json_array_size(value) == 1 ? json_array_get(value, 0) : value;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (strcmp(keys[i].theirs, key) != 0)
            continue;
        if (!keys[i].ours && keys[i].same && !is_text(value, keys[i].same))
            foreign_refuse(foreign, full, value, keys[i].why);
        else if (!keys[i].ours)
            draft_note(foreign->draft, full, "as here");
        else if (json_is_string(one)) {
            draft_set_entry(source, keys[i].ours, json_deep_copy(one), full);
            if (!strcmp(key, "path"))
                words_tell_hub_data(foreign, json_string_value(one));
        } else
            foreign_refuse(foreign, full, value, "one name is read here");
        return;
    }
    foreign_refuse(
            foreign, full, value,
            "unsupported key; ignoring it could change training");
}

static void take_sources(
        struct foreign *foreign, const char *name, const json_t *list,
        json_t *sources)
{
    size_t i;
    json_t *item, *value;
    const char *key;
    char full[100];
    json_array_foreach((json_t *)list, i, item)
    {
        json_t *source = json_object();
        snprintf(full, sizeof full, "%s[%zu]", name, i);
        json_array_append_new(sources, source);
        json_object_foreach(item, key, value)
                take_source_key(foreign, full, source, key, value);
        if (!json_object_get(item, "type") && strcmp(name, "datasets") != 0)
            draft_set_entry(
                    source, "format", json_string("text"), "their default");
        else if (!json_object_get(item, "type"))
            foreign_refuse(
                    foreign, full, item,
                    "it has no type, which says the prompt");
        if (!json_object_get(source, "path"))
            foreign_refuse(foreign, full, item, "it has no path");
    }
}

void axolotl_datasets(
        struct foreign *foreign, const char *name, const json_t *value)
{
    struct draft *draft = foreign->draft;
    if (foreign_is_open(value))
        return;
    if (!json_is_array(value))
        foreign_refuse(foreign, name, value, "it is a list");
    else if (!strcmp(name, "test_datasets"))
        take_sources(foreign, name, value, draft->eval);
    else if (json_array_size(draft->train))
        draft_note(draft, name, "overridden by --data");
    else
        take_sources(foreign, name, value, draft->train);
}
