/* record.c - records of a text, of a prompt and its completion, of Alpaca; the
 * names of their keys; the documents that they become. */
#include "data/format.h"

#include "base/must.h"

#include <stdlib.h>
#include <string.h>

struct data_options data_options_default(void)
{
    return (struct data_options){
            .cutoff_len = 2048,
            .packing = PACKING_AUTO,
            .shuffle = SHUFFLE_AUTO,
            .add_eos = true,
            .chat_template = CHAT_AUTO,
            .train_on = TRAIN_ON_ASSISTANT,
            .cache_dir = "auto",
            .prefetch = 4,
    };
}

struct data_entry data_entry_default(void)
{
    return (struct data_entry){
            .name = "",
            .split = "auto",
            .format = DATA_AUTO,
            .field = "text",
            .messages_field = "messages",
            .role_field = "role",
            .content_field = "content",
    };
}

const char *record_key(const struct data_entry *entry, const char *key)
{
    return strcmp(key, "text") == 0       ? entry->field
           : strcmp(key, "messages") == 0 ? entry->messages_field
                                          : key;
}

const json_t *record_get(const json_t *record, const char *key)
{
    const json_t *value = json_object_get(record, key);
    return json_is_null(value) ? NULL : value;
}

enum zd_status record_get_string(
        const json_t *object, const char *key, const json_t **string_out)
{
    const json_t *value = json_object_get(object, key);
    if (!value)
        return ZD_BAD("E0437", "there is no \"%s\"", key);
    if (!json_is_string(value))
        return ZD_BAD("E0437", "\"%s\" is not a string", key);
    *string_out = value;
    return ZD_OK;
}

/* --- what is refused --- */

bool record_is_empty(const json_t *value)
{
    return !value || json_is_null(value) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

enum zd_status record_refuse_key(
        const char *key, const char *what, const char *help)
{
    ZD_BAD("E0437", "\"%s\" of %s is not used", key, what);
    if (help)
        zd_fail_help("%s", help);
    return ZD_ERR_DATA;
}

enum zd_status record_refuse_filled(
        const json_t *record, const char *key, const char *what,
        const char *help)
{
    return record_is_empty(json_object_get(record, key))
                   ? ZD_OK
                   : record_refuse_key(key, what, help);
}

enum zd_status record_refuse_preference(const char *keys)
{
    ZD_BAD("E0437",
           "a preference row, with %s: zerod trains on text, not on "
           "preferences",
           keys);
    return zd_fail_help("to train on the preferred answers alone, keep those, "
                        "as \"messages\" or as \"prompt\" and \"completion\"");
}

enum zd_status record_check_preference(const json_t *record)
{
    return record_get(record, "chosen") && record_get(record, "rejected")
                   ? record_refuse_preference("\"chosen\" and \"rejected\"")
                   : ZD_OK;
}

/* --- the readers --- */

static void document_add(
        struct document *doc, const char *text, size_t bytes, bool train)
{
    size_t begin = doc->bytes;
    struct text_range *last =
            doc->trained_count ? &doc->trained[doc->trained_count - 1] : NULL;
    if (bytes == 0)
        return;
    document_append(doc, text, bytes);
    if (train && last && last->end == begin && !doc->is_cut)
        last->end = doc->bytes;
    else if (train)
        document_train(doc, begin, doc->bytes);
    doc->is_cut = false;
}

static void add_string(struct document *doc, const json_t *string, bool train)
{
    document_add(
            doc, json_string_value(string), json_string_length(string), train);
}

enum zd_status record_text(const struct reading *reading)
{
    const json_t *text = NULL;
    ZD_TRY(record_get_string(
            reading->record, reading->recipe->entry->field, &text));
    reading->document->end_of_text = true;
    add_string(reading->document, text, true);
    return ZD_OK;
}

/* Whether the loss counts what comes before the answer. */
static bool trains_prompt(const struct reading *reading)
{
    return reading->recipe->train_on == TRAIN_ON_ALL;
}

enum zd_status record_completion(const struct reading *reading)
{
    const json_t *prompt = NULL, *completion = NULL;
    ZD_TRY(record_get_string(reading->record, "prompt", &prompt));
    ZD_TRY(record_get_string(reading->record, "completion", &completion));
    reading->document->end_of_text = true;
    add_string(reading->document, prompt, trains_prompt(reading));
    add_string(reading->document, completion, true);
    return ZD_OK;
}

enum zd_status record_get_alpaca(
        const json_t *record, struct alpaca *alpaca_out)
{
    *alpaca_out = (struct alpaca){.input = NULL};
    ZD_TRY(record_get_string(record, "instruction", &alpaca_out->instruction));
    ZD_TRY(record_get_string(record, "output", &alpaca_out->output));
    if (record_get(record, "input"))
        ZD_TRY(record_get_string(record, "input", &alpaca_out->input));
    if (json_string_length(alpaca_out->input) == 0)
        alpaca_out->input = NULL;
    return ZD_OK;
}

/* What stands around the instruction and the input of an Alpaca record. */
struct alpaca_prompt {
    const char *begin_with_input, *begin, *between, *end;
    bool is_cut; /* before the output, whatever is trained */
};

static void add_prompt(const struct reading *reading, const char *text)
{
    document_add(reading->document, text, strlen(text), trains_prompt(reading));
}

static enum zd_status read_prompted(
        const struct reading *reading, const struct alpaca_prompt *prompt)
{
    static const char help[] =
            "write such records as \"messages\", one for each turn";
    const json_t *record = reading->record;
    struct document *doc = reading->document;
    struct alpaca alpaca;
    bool trains = trains_prompt(reading);
    ZD_TRY(record_get_alpaca(record, &alpaca));
    ZD_TRY(record_refuse_filled(record, "system", "an Alpaca record", help));
    ZD_TRY(record_refuse_filled(record, "history", "an Alpaca record", help));
    add_prompt(
            reading, alpaca.input ? prompt->begin_with_input : prompt->begin);
    add_string(doc, alpaca.instruction, trains);
    if (alpaca.input) {
        add_prompt(reading, prompt->between);
        add_string(doc, alpaca.input, trains);
    }
    add_prompt(reading, prompt->end);
    doc->end_of_text = true;
    doc->is_cut = prompt->is_cut;
    add_string(doc, alpaca.output, true);
    return ZD_OK;
}

enum zd_status record_alpaca(const struct reading *reading)
{
    static const struct alpaca_prompt prompt = {"", "", "\n", "\n", false};
    return read_prompted(reading, &prompt);
}

/* AlpacaPrompter of axolotl 0.19, style "instruct". */
enum zd_status record_alpaca_instruct(const struct reading *reading)
{
    static const struct alpaca_prompt prompt = {
            "Below is an instruction that describes a task, paired with an "
            "input that provides further context. Write a response that "
            "appropriately completes the request.\n\n### Instruction:\n",
            "Below is an instruction that describes a task. Write a response "
            "that appropriately completes the request.\n\n### Instruction:\n",
            "\n\n### Input:\n", "\n\n### Response:\n", true};
    return read_prompted(reading, &prompt);
}

/* --- records whose keys and roles have other names than ours ------------- */

/* Where "ours" begins in "theirs=ours", or NULL. */
static const char *find_ours(const char *pair)
{
    const char *equals = strrchr(pair, '=');
    return equals && equals > pair && equals[1] ? equals + 1 : NULL;
}

enum zd_status columns_check(const struct data_entry *entry)
{
    const char *const *const lists[] = {entry->columns, entry->roles};
    const int counts[] = {entry->column_count, entry->role_count};
    for (int list = 0; list < 2; list++)
        for (int i = 0; i < counts[list]; i++) {
            if (find_ours(lists[list][i]))
                continue;
            ZD_FAIL(ZD_ERR_CONFIG, "E0448",
                    "\"%s\" in %s of %s is not \"their name=our name\"",
                    lists[list][i], list ? "roles" : "columns", entry->path);
            return zd_fail_help(
                    list ? "roles = [\"human=user\", \"bot=assistant\"]"
                         : "columns = [\"question=prompt\", "
                           "\"answer=completion\"]");
        }
    return ZD_OK;
}

static json_t *rename_columns(const struct data_entry *entry, json_t *record)
{
    json_t *renamed = json_object();
    for (int i = 0; i < entry->column_count; i++) {
        const char *ours = find_ours(entry->columns[i]);
        size_t bytes = (size_t)(ours - 1 - entry->columns[i]);
        json_t *value = json_object_getn(record, entry->columns[i], bytes);
        if (value)
            json_object_set(renamed, ours, value);
    }
    json_decref(record);
    return renamed;
}

static void rename_role(
        const struct data_entry *entry, const char *key, json_t *message)
{
    const char *role = json_string_at(message, key);
    for (int i = 0; role && i < entry->role_count; i++) {
        const char *ours = find_ours(entry->roles[i]);
        size_t bytes = (size_t)(ours - 1 - entry->roles[i]);
        if (strlen(role) != bytes || strncmp(role, entry->roles[i], bytes) != 0)
            continue;
        json_object_set_new(message, key, json_string(ours));
        return;
    }
}

json_t *columns_apply(const struct data_entry *entry, json_t *record)
{
    if (!json_is_object(record))
        return record;
    if (entry->column_count > 0)
        record = rename_columns(entry, record);
    json_t *messages = json_object_get(record, entry->messages_field);
    if (!messages)
        messages = json_object_get(record, "conversations");
    JSON_EACH(message, messages) {
        bool is_from = !json_object_get(message, entry->role_field);
        rename_role(entry, is_from ? "from" : entry->role_field, message);
    }
    return record;
}

/* --- documents ----------------------------------------------------------- */

void document_clear(struct document *doc)
{
    doc->bytes = 0;
    doc->trained_count = 0;
    doc->end_of_text = doc->is_cut = false;
    doc->is_chat = doc->adds_prefix = false;
    doc->ignored = 0;
    doc->specials = 0;
}

void document_fini(struct document *doc)
{
    free(doc->text);
    free(doc->trained);
    memset(doc, 0, sizeof *doc);
}

void document_append(struct document *doc, const char *text, size_t bytes)
{
    if (doc->bytes + bytes > doc->capacity)
        ZD_GROW(doc->text, doc->capacity, doc->bytes + bytes);
    if (bytes > 0)
        memcpy(doc->text + doc->bytes, text, bytes);
    doc->bytes += bytes;
}

void document_train(struct document *doc, size_t begin, size_t end)
{
    ZD_GROW(doc->trained, doc->trained_capacity, doc->trained_count + 1);
    doc->trained[doc->trained_count++] = (struct text_range){begin, end};
}
