/* json.h - the door to jansson. Duplicate keys are refused, depth is bounded by
 * the library, and errors name file, line and column. Values are counted before
 * the tree is built: a value of three bytes of text can take 250 bytes in the
 * tree.
 *
 * Files that include this one may use jansson's json_t getters directly;
 * reading text and turning jansson's errors into ours happens only here.
 *
 * A byte-order mark at the start is skipped. Integers beyond 64 bits become
 * reals (tokenizer_config.json has them). A string with a NUL (\u0000) is
 * refused, since C code would read a name only up to it; only text of data may
 * hold one. */
#pragma once

#include "base/status.h"

#include <jansson.h>
#include <stdint.h>

/* A member of an object; NULL or 0 when the object is NULL, has no such member,
 * or the member has another type. */
static inline const char *json_string_at(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}
static inline const char *json_text_of(
        const json_t *object, const char *key, const char *otherwise)
{
    const char *text = json_string_at(object, key);
    return text ? text : otherwise;
}
static inline json_int_t json_integer_at(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

/* Loops over the items of an array or the members of an object, which the body
 * must not change. NULL, or a value of another type, has none. */
#define JSON_EACH(item, array) JSON_EACH_AT(item##_index, item, array)
#define JSON_EACH_AT(i, item, array)                                           \
    for (json_t *item = (json_t *)(array), *item##_of = item; item##_of;       \
         item##_of = NULL)                                                     \
        for (size_t i = 0; (item = json_array_get(item##_of, i)); i++)
#define JSON_MEMBERS(key, value, object)                                       \
    for (json_t *value = (json_t *)(object), *value##_of = value; value##_of;  \
         value##_of = NULL)                                                    \
        for (const char *key =                                                 \
                     json_object_iter_key(json_object_iter(value##_of));       \
             (value = json_object_iter_value(json_object_key_to_iter(key)));   \
             key = json_object_iter_key(json_object_iter_next(                 \
                     value##_of, json_object_key_to_iter(key))))

/* How many values and keys a text may hold, unless its reader says otherwise
 * (json_parse_upto). */
enum { JSON_VALUES_MAX = 1000000 };

/* Parse `bytes` of text; errors become `status` (ZD_ERR_DATA for most files)
 * with "where" = name:line:column. The caller owns *json_out (json_decref). */
enum zd_status json_parse(
        const char *text, size_t bytes, const char *name, enum zd_status status,
        json_t **json_out);
/* The same for a record of data: any value, and strings may hold NUL. Read them
 * with json_string_length; the reader checks those that are names. */
enum zd_status json_parse_record(
        const char *text, size_t bytes, const char *name, enum zd_status status,
        json_t **json_out);
enum zd_status json_parse_file(
        const char *path, uint64_t max_bytes, json_t **json_out);
/* The same for texts of up to `most` values. */
enum zd_status json_parse_upto(
        const char *text, size_t bytes, size_t most, const char *name,
        enum zd_status status, json_t **json_out);
enum zd_status json_parse_file_upto(
        const char *path, uint64_t max_bytes, size_t most, json_t **json_out);
/* For a line of a JSONL file, or an answer, that may be cut off or come from
 * another program: NULL when it is not JSON or has too many values. The caller
 * owns the result. */
json_t *json_of_line(const char *text, size_t bytes);
/* From now on a failed allocation in jansson ends the process (base/must.h):
 * otherwise jansson would leave out values, or report valid text as invalid.
 * Programs call it before jansson's first use. */
void json_must_have_memory(void);
/* With two-space indent and a final newline; reals in the fewest digits that
 * read back exactly. The caller frees it. */
char *json_text(const json_t *json);
/* The same, durably (fs_write_file). */
enum zd_status json_write_file(const char *path, const json_t *json);
/* A real that is printed with enough digits to read back exactly; null when it
 * is not finite. New reference. */
json_t *json_number_or_null(double value);
/* Text of a user or a file, which need not be UTF-8: then every byte above
 * ASCII becomes '?'. null for NULL. New reference. */
json_t *json_string_or_null(const char *text);
