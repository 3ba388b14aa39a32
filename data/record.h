/* record.h - what the readers of records share, and other names of keys. */
#pragma once

#include "base/file/json.h"
#include "data/dataset.h"

/* What this entry calls the key "text" or "messages"; any other is itself. */
const char *record_key(const struct data_entry *entry, const char *key);
/* The value under `key`; NULL when it is absent or null. */
const json_t *record_get(const json_t *record, const char *key);
/* The string under `key`; ZD_ERR_DATA when it is missing or not a string. */
enum zd_status record_get_string(
        const json_t *object, const char *key, const json_t **string_out);

/* The strings of an Alpaca record; `input` NULL: there is none. ZD_ERR_DATA as
 * above. */
struct alpaca {
    const json_t *instruction, *input, *output;
};
enum zd_status record_get_alpaca(
        const json_t *record, struct alpaca *alpaca_out);

/* Absent, null, "", [] or {}. */
bool record_is_empty(const json_t *value);
/* ZD_ERR_DATA: `key` of `what` is not used. `help` may be NULL. */
enum zd_status record_refuse_key(
        const char *key, const char *what, const char *help);
/* The same, unless there is nothing under the key. */
enum zd_status record_refuse_filled(
        const json_t *record, const char *key, const char *what,
        const char *help);
/* Rows for DPO, ORPO and reward models (chosen, rejected), or KTO (label). */
enum zd_status record_check_preference(const json_t *record);
enum zd_status record_refuse_preference(const char *keys);

/* Records whose keys and roles have other names than ours. */

/* ZD_ERR_CONFIG for an item of entry->columns or entry->roles that is not
 * "theirs=ours". */
enum zd_status columns_check(const struct data_entry *entry);
/* The record as the formats know it. With entry->columns it has these alone,
 * under our names; a role of entry->roles gets our name in every message.
 * Messages of ShareGPT have their role and text under "from" and "value",
 * whatever entry->role_field and content_field called them. Takes the reference
 * to `record` and returns one. */
json_t *columns_apply(const struct data_entry *entry, json_t *record);
