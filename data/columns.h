/* columns.h - records whose keys and roles have other names than ours. */
#ifndef ZD_DATA_COLUMNS_H
#define ZD_DATA_COLUMNS_H

#include "base/file/json.h"
#include "data/dataset.h"

/* ZD_ERR_CONFIG for an item of entry->columns or entry->roles that is not
 * "theirs=ours". */
enum zd_status columns_check(const struct data_entry *entry);
/* The record as the formats know it. With entry->columns it has these alone,
 * under our names; a role of entry->roles gets our name in every message.
 * Messages of ShareGPT have their role and text under "from" and "value",
 * whatever entry->role_field and content_field called them. Takes the reference
 * to `record` and returns one. */
json_t *columns_apply(const struct data_entry *entry, json_t *record);

#endif
