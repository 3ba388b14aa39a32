/* dataset_info.c - LLaMA-Factory's description of data sets, as our entry's
 * fields. Its records keep the keys that the set names, and no others. */
#include "data/folder.h"

#include "base/file/fs.h"
#include "base/must.h"

#include <limits.h>
#include <string.h>

enum { FILE_MAX = 16 << 20, PAIRS_MAX = 8 };

struct taker {
    const char *file, *name; /* for messages */
    const json_t *set;
    struct file_list *list;
};

static enum zd_status refuse(const struct taker *taker, const char *what)
{
    return ZD_BAD(
            "E0454", "the set \"%s\" of %s %s", taker->name, taker->file, what);
}

static bool is_set(const json_t *value)
{
    static const char *const keys[] = {"file_name",  "hf_hub_url",
                                       "ms_hub_url", "om_hub_url",
                                       "script_url", "cloud_file_name"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (json_object_get(value, keys[i]))
            return true;
    return false;
}

enum zd_status dataset_info_read(const char *folder, json_t **sets_out)
{
    const struct fs_path path = fs_in(folder, "dataset_info.json");
    json_auto_t *root = NULL;
    *sets_out = NULL;
    if (!fs_exists(path.text))
        return ZD_OK;
    ZD_TRY(json_parse_file(path.text, FILE_MAX, &root));
    bool is_theirs = json_object_size(root) > 0;
    JSON_MEMBERS(key, set, root)
        is_theirs &= is_set(set);
    if (is_theirs)
        *sets_out = json_incref(root);
    return ZD_OK;
}

/* --- columns and tags ----------------------------------------------------- */

/* A key of theirs, what we call what it names, and its value in a set without
 * such a table; where there is a table, a key that it lacks has none. A list
 * ends with a row without a key. */
struct names {
    const char *theirs, *ours, *fallback;
};

static const char *column_of(const json_t *table, const struct names *name)
{
    return table ? json_string_at(table, name->theirs) : name->fallback;
}

/* What is in the table and has no row of `names`. */
static enum zd_status check_known(
        const struct taker *taker, const json_t *table,
        const struct names *names)
{
    JSON_MEMBERS(key, value, table) {
        char what[120];
        const struct names *name = names;
        while (name->theirs && strcmp(name->theirs, key) != 0)
            name++;
        if (name->theirs || json_is_null(value) || json_is_false(value))
            continue;
        ZD_PRINT(what, "has the key \"%.60s\", which zerod does not use", key);
        return refuse(taker, what);
    }
    return ZD_OK;
}

static const char **keep_pairs(
        struct taker *taker, const json_t *table, const struct names *names,
        bool only_changed, int *count_out)
{
    char pair[400];
    const char **pairs = zd_array(PAIRS_MAX, sizeof *pairs);
    *count_out = 0;
    for (; names->theirs; names++) {
        const char *column = column_of(table, names);
        if (!names->ours || !column ||
            (only_changed && strcmp(column, names->fallback) == 0))
            continue;
        ZD_PRINT(pair, "%.300s=%s", column, names->ours);
        pairs[(*count_out)++] = list_keep(taker->list, pair);
    }
    return pairs;
}

static enum zd_status take_alpaca(struct taker *taker, const json_t *columns)
{
    static const struct names names[] = {
            {"prompt", "instruction", "instruction"},
            {"query", "input", "input"},
            {"response", "output", "output"},
            {"history", "history", NULL},
            {"system", "system", NULL},
            {"tools", "tools", NULL},
            {NULL}};
    struct data_entry *entry = &taker->list->entry;
    ZD_TRY(check_known(taker, columns, names));
    entry->columns = taker->list->columns =
            keep_pairs(taker, columns, names, false, &entry->column_count);
    if (columns && !json_string_at(columns, "response")) { /* plain text */
        const char *text = json_string_at(columns, "prompt");
        if (!text)
            return refuse(taker, "names no \"prompt\" column");
        entry->column_count = 0;
        entry->field = list_keep(taker->list, text);
        entry->format = DATA_TEXT;
    }
    return ZD_OK;
}

static enum zd_status take_conversations(
        struct taker *taker, bool is_sharegpt, const json_t *columns,
        const json_t *tags)
{
    const char *role = tags ? json_string_at(tags, "role_tag") : NULL;
    /* with the keys of OpenAI it is no ShareGPT, by whatever name */
    is_sharegpt &= !role || strcmp(role, "role") != 0;
    const struct names names[] = {
            {"messages", is_sharegpt ? "conversations" : "messages",
             "conversations"},
            {"system", "system", NULL},
            {"tools", "tools", NULL},
            {NULL}};
    const struct names roles[] = {
            {"role_tag", NULL, "from"},
            {"content_tag", NULL, "value"},
            {"user_tag", "user", "human"},
            {"assistant_tag", "assistant", "gpt"},
            {"observation_tag", is_sharegpt ? "observation" : "tool",
             "observation"},
            {"function_tag", "function_call", "function_call"},
            {"system_tag", "system", "system"},
            {NULL}};
    struct data_entry *entry = &taker->list->entry;
    ZD_TRY(check_known(taker, columns, names));
    ZD_TRY(check_known(taker, tags, roles));
    if (columns && !json_string_at(columns, "messages"))
        return refuse(taker, "names no \"messages\" column");
    entry->columns = taker->list->columns =
            keep_pairs(taker, columns, names, false, &entry->column_count);
    entry->roles = taker->list->roles =
            keep_pairs(taker, tags, roles, is_sharegpt, &entry->role_count);
    const char *content = column_of(tags, &roles[1]);
    entry->role_field = list_keep(taker->list, role ? role : "from");
    entry->content_field = list_keep(taker->list, content ? content : "value");
    return ZD_OK;
}

/* --- a set ---------------------------------------------------------------- */

static enum zd_status take_format(struct taker *taker)
{
    const char *formatting = json_string_at(taker->set, "formatting");
    const json_t *columns = json_object_get(taker->set, "columns");
    const json_t *tags = json_object_get(taker->set, "tags");
    if (!formatting || strcmp(formatting, "alpaca") == 0)
        return take_alpaca(taker, columns);
    bool is_sharegpt = strcmp(formatting, "sharegpt") == 0;
    if (is_sharegpt || strcmp(formatting, "openai") == 0)
        return take_conversations(taker, is_sharegpt, columns, tags);
    return refuse(
            taker, "has a formatting that is not alpaca, sharegpt or openai");
}

static enum zd_status check_set(const struct taker *taker)
{
    static const struct names known[] = {
            {"file_name"}, {"formatting"}, {"columns"},    {"tags"},
            {"split"},     {"hf_hub_url"}, {"ms_hub_url"}, {"om_hub_url"},
            {"ranking"},   {NULL}};
    if (json_is_true(json_object_get(taker->set, "ranking")))
        return refuse(
                taker,
                "ranks answers: zerod trains on text, not on preferences");
    return check_known(taker, taker->set, known);
}

/* What is elsewhere comes with how to get it. */
static enum zd_status refuse_hub(const struct taker *taker)
{
    const char *url = json_string_at(taker->set, "hf_hub_url");
    refuse(taker, "has no file in the folder");
    if (url)
        zd_fail_help(
                "hf download %s --repo-type dataset --local-dir %s, and give "
                "that folder as the path, or its file as file_name",
                url, url);
    return ZD_ERR_DATA;
}

enum zd_status dataset_info_take(
        const char *folder, const char *name, const json_t *set,
        struct file_list *list, const char **path_out)
{
    char path[PATH_MAX];
    const char *file = json_string_at(set, "file_name");
    const char *split = json_string_at(set, "split");
    const char *info = list_keep(list, fs_in(folder, "dataset_info.json").text);
    struct taker taker = {info, name, set, list};
    ZD_TRY(check_set(&taker));
    if (!file || ZD_PRINT(path, "%s/%s", folder, file) >= (int)sizeof path ||
        !fs_exists(path))
        return refuse_hub(&taker);
    if (split && !list->entry.is_eval && strcmp(list->entry.split, "auto") == 0)
        list->entry.split = list_keep(list, split);
    *path_out = list_keep(list, path);
    return take_format(&taker);
}
