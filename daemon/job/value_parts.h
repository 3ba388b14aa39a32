/* value_parts.h - what the files of value_read share. */
#ifndef ZD_DAEMON_JOB_VALUE_PARTS_H
#define ZD_DAEMON_JOB_VALUE_PARTS_H

#include "daemon/job/job_internal.h"

#define FIELD(type, base, offset) ((type *)((char *)(base) + (offset)))

/* What can be wrong, as a problem of the job; false, to be returned. */
bool value_fail_type(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node);
bool value_fail_range(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node);
/* A string that is none of the accepted ones. */
bool value_fail_word(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node);

/* value_choice.c; as value_read. */
bool value_read_choice(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *base);
bool value_read_optimizer(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *base);
bool value_read_resume(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *base);
bool value_read_socket(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *base);
bool value_read_checkpointing(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *base);

#endif
