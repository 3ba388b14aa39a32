/* format.c - which format a record has, and reading it. */
#include "data/format.h"

#include "base/file/fs.h"
#include "base/text_buffer.h"
#include "data/record.h"

#include <string.h>

static const struct format formats[] = {
#define FORMAT(value, word, help, ...) [value] = {.name = word, __VA_ARGS__},
#include "data/formats.inc"
#undef FORMAT
};

enum { FORMATS = sizeof formats / sizeof formats[0] };

const struct format *format_of(enum data_format format)
{
    return &formats[format];
}

/* --- recognized by their keys --- */

static bool has_keys(
        const json_t *record, const struct data_entry *entry,
        const struct format *format)
{
    for (int i = 0; i < 2 && format->keys[i]; i++)
        if (!record_get(record, record_key(entry, format->keys[i])))
            return false;
    return format->keys[0] != NULL;
}

enum data_format format_recognize(
        const json_t *record, const struct data_entry *entry)
{
    for (int i = 0; i < FORMATS; i++)
        if (formats[i].fits ? formats[i].fits(record, entry)
                            : has_keys(record, entry, &formats[i]))
            return (enum data_format)i;
    return DATA_AUTO;
}

void format_keys(const struct data_entry *entry, char *out, size_t bytes)
{
    struct text_buffer text = {.out = out, .bytes = bytes};
    for (int i = 0; i < FORMATS; i++)
        for (int k = 0; k < 2 && formats[i].keys[k]; k++)
            text_buffer_add(
                    &text, "%s\"%s\"",
                    k           ? " and "
                    : text.used ? ", "
                                : "",
                    record_key(entry, formats[i].keys[k]));
}

enum data_format format_recognize_tokens(const char *path, int32_t magic)
{
    char index[PATH_MAX];
    megatron_index_path(path, index);
    for (int i = 0; i < FORMATS; i++) {
        bool is_it = formats[i].has_index && fs_exists(index);
        for (int m = 0; m < 3 && magic; m++)
            is_it |= magic == formats[i].magics[m];
        if (is_it)
            return (enum data_format)i;
    }
    return DATA_AUTO;
}

/* Two formats that fit are two ways to train: only the job can say which. */
static enum zd_status check_one_fits(
        const json_t *record, const struct data_entry *entry)
{
    const char *key = NULL;
    int first = 0;
    for (int i = 0; i < FORMATS; i++) {
        if (!has_keys(record, entry, &formats[i]))
            continue;
        const char *other = record_key(entry, formats[i].keys[0]);
        bool is_same = formats[first].is_chat && formats[i].is_chat &&
                       strcmp(key, other) == 0;
        if (key && !is_same) {
            ZD_FAIL(ZD_ERR_DATA, "E0431",
                    "the record fits two forms: it has \"%s\" and \"%s\"", key,
                    other);
            return zd_fail_help(
                    "say which is meant: format = \"%s\", or format = \"%s\"",
                    formats[first].name, formats[i].name);
        }
        key = other;
        first = i;
    }
    return ZD_OK;
}

/* Keys that their author expects to change what is trained. */
static enum zd_status check_keys(
        const json_t *record, const struct data_entry *entry,
        enum data_format format)
{
    static const char *const keys[] = {
            "labels", "loss_mask", "images", "videos", "audios"};
    const json_t *weight = record_get(record, "weight");
    bool is_named = formats[entry->format].is_chat || format == DATA_TEXT;
    if (!is_named)
        ZD_TRY(record_check_preference(record));
    if (format != DATA_TEXT &&
        json_is_boolean(json_object_get(record, "label")))
        return record_refuse_preference("a KTO \"label\"");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(keys[i], entry->field) != 0)
            ZD_TRY(record_refuse_filled(record, keys[i], "a record", NULL));
    if (formats[format].is_chat)
        ZD_TRY(record_refuse_filled(
                record, "functions", "a conversation",
                "write them as \"tools\""));
    if (weight && !(json_is_number(weight) && json_number_value(weight) == 1))
        return record_refuse_key(
                "weight", "a record",
                "sources have a weight, in [[data.train]]; so have messages, "
                "of 0 or 1");
    return ZD_OK;
}

enum zd_status format_check(
        const json_t *record, const struct data_entry *entry,
        enum data_format format)
{
    if (entry->format == DATA_AUTO)
        ZD_TRY(check_one_fits(record, entry));
    return check_keys(record, entry, format);
}

/* Are its records rendered as conversations by this template (NULL: none)? */
static bool format_talks(
        enum data_format format, const struct data_entry *entry,
        const struct chat *chat)
{
    return formats[format].is_chat ||
           (formats[format].talk && entry->format == DATA_AUTO && chat &&
            !chat->is_layout);
}

static enum zd_status fail_no_object(const json_t *record)
{
    static const char *const types[] = {"an object", "an array", "a string",
                                        "a number",  "a number", "true",
                                        "false",     "null"};
    ZD_FAIL(ZD_ERR_DATA, "E0436", "the row is %s, not a JSON object",
            types[json_typeof(record)]);
    return zd_fail_help("a row has to be an object: {\"text\": \"...\"}");
}

enum zd_status format_read(
        const struct reading *reading, enum data_format format)
{
    const struct format *it = &formats[format];
    const struct recipe *recipe = reading->recipe;
    const json_t *record = reading->record;
    document_clear(reading->document);
    if (!json_is_object(record))
        return fail_no_object(record);
    ZD_TRY(format_check(record, recipe->entry, format));
    bool is_messages = format == DATA_COMPLETION &&
                       json_is_array(json_object_get(record, "prompt"));
    if (is_messages && !recipe->chat)
        return chat_fail_none(recipe->tokenizer, ZD_ERR_DATA);
    bool talks =
            is_messages || format_talks(format, recipe->entry, recipe->chat);
    return talks && it->talk ? it->talk(reading) : it->read(reading);
}
