/* value.h - the types of values: what each accepts, how it is read from TOML
 * into a field, and how a field is written as JSON. One row a type (value.c).
 */
#pragma once

#include "daemon/job/job_internal.h"

enum value_fault {
    VALUE_FINE,
    VALUE_TYPE, /* TOML of another kind */
    VALUE_RANGE,
    VALUE_WORD, /* a string that is none of the accepted ones */
    VALUE_TOLD  /* a problem is there already */
};

/* `field` and `field2` are those of the key. */
typedef enum value_fault value_reader(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *field, void *field2);
/* New reference; NULL for keys that have no field. */
typedef json_t *value_writer(
        const struct schema_key *key, const void *field, const void *field2);

struct value_type {
    const char *accepts; /* for people; of a number what it is; NULL: choices */
    bool has_range;
    value_reader *read;  /* NULL: others read it (tree.c, keys.c) */
    value_writer *write; /* NULL: it has no value */
};

const struct value_type *value_type_of(const struct schema_key *key);

/* value_choice.c */
extern value_reader value_read_enum, value_read_dtype, value_read_optimizer,
        value_read_word_or_path, value_read_checkpointing;
extern value_writer value_write_enum, value_write_dtype, value_write_optimizer,
        value_write_word_or_path, value_write_checkpointing;
