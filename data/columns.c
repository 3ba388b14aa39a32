#include "data/columns.h"

#include <string.h>

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
    size_t i;
    json_t *message;
    if (!json_is_object(record))
        return record;
    if (entry->column_count > 0)
        record = rename_columns(entry, record);
    json_t *messages = json_object_get(record, entry->messages_field);
    if (!messages)
        messages = json_object_get(record, "conversations");
    json_array_foreach(messages, i, message)
    {
        bool is_from = !json_object_get(message, entry->role_field);
        rename_role(entry, is_from ? "from" : entry->role_field, message);
    }
    return record;
}
