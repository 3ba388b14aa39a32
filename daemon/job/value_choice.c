/* value_choice.c - values that are words: one of a list, or one of a list or
 * something else. */
#include "daemon/job/value.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* true and false may be words among others, as in `auto | true | false`. */
static enum value_fault find_choice(
        const struct schema_key *key, const struct toml_node *node,
        const struct schema_choice **out)
{
    const char *word = node->kind == TOML_STRING ? node->string
                       : node->kind != TOML_BOOL ? NULL
                       : node->boolean           ? "true"
                                                 : "false";
    const struct schema_choice *c = key->choices;
    while (word && c->name && strcasecmp(c->name, word) != 0)
        c++;
    if (!word || !c->name || schema_is_elsewhere(c))
        return node->kind == TOML_STRING ? VALUE_WORD : VALUE_TYPE;
    *out = c;
    return VALUE_FINE;
}

static json_t *choice_json(const struct schema_key *key, int value)
{
    for (const struct schema_choice *c = key->choices; c->name; c++)
        if (c->value == value && !c->note)
            return strcmp(c->name, "true") == 0    ? json_true()
                   : strcmp(c->name, "false") == 0 ? json_false()
                                                   : json_string(c->name);
    return json_string("?");
}

enum value_fault value_read_enum(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *field, void *field2)
{
    const struct schema_choice *choice;
    enum value_fault fault = find_choice(key, node, &choice);
    if (fault == VALUE_FINE)
        *(int *)field = choice->value;
    return fault;
}

json_t *value_write_enum(
        const struct schema_key *key, const void *field, const void *field2)
{
    return choice_json(key, *(const int *)field);
}

/* -1 is "auto", which leaves the type as it is. */
enum value_fault value_read_dtype(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *field, void *field2)
{
    const struct schema_choice *choice;
    enum value_fault fault = find_choice(key, node, &choice);
    if (fault != VALUE_FINE)
        return fault;
    *(bool *)field = choice->value < 0;
    if (choice->value >= 0)
        *(enum dtype *)field2 = (enum dtype)choice->value;
    return VALUE_FINE;
}

json_t *value_write_dtype(
        const struct schema_key *key, const void *field, const void *field2)
{
    bool is_auto = *(const bool *)field;
    return choice_json(key, is_auto ? -1 : (int)*(const enum dtype *)field2);
}

/* Name, type of states and paging together; other names say what they became.
 */
enum value_fault value_read_optimizer(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *field, void *field2)
{
    const struct schema_choice *choice;
    struct optim_options *optim = field;
    enum value_fault fault = find_choice(key, node, &choice);
    if (fault != VALUE_FINE)
        return fault;
    optim->name = (enum optim_name)(choice->value & 0xff);
    optim->state_type = choice->value & SCHEMA_STATES_8BIT ? OPTIM_STATE_8BIT
                                                           : OPTIM_STATE_FP32;
    optim->paged = choice->value & SCHEMA_STATES_PAGED;
    if (choice->note)
        for (const struct schema_choice *c = key->choices; c->name; c++)
            if (c->value == choice->value && !c->note)
                job_note(
                        job, "note: `%s = \"%s\"` in [%s] is read as \"%s\"",
                        key->name, choice->name, key->section, c->name);
    return VALUE_FINE;
}

json_t *value_write_optimizer(
        const struct schema_key *key, const void *field, const void *field2)
{
    const struct optim_options *optim = field;
    int value = (int)optim->name;
    if (optim->state_type == OPTIM_STATE_8BIT)
        value |= SCHEMA_STATES_8BIT;
    if (optim->paged)
        value |= SCHEMA_STATES_PAGED;
    return choice_json(key, value);
}

/* The value of the last choice, which has no name: a path. With SCHEMA_SLASH a
 * word without a slash is taken for an unknown word. */
static int path_value(const struct schema_key *key)
{
    const struct schema_choice *c = key->choices;
    while (c->name)
        c++;
    return c->value;
}

enum value_fault value_read_word_or_path(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *field, void *field2)
{
    const struct schema_choice *choice = NULL;
    enum value_fault fault = find_choice(key, node, &choice);
    bool is_path = fault == VALUE_WORD && node->string[0] &&
                   (!(key->flags & SCHEMA_SLASH) || strchr(node->string, '/'));
    if (fault != VALUE_FINE && !is_path)
        return fault;
    *(int *)field = choice ? choice->value : path_value(key);
    *(const char **)field2 =
            choice ? NULL : job_string(job, "%s", node->string);
    return VALUE_FINE;
}

json_t *value_write_word_or_path(
        const struct schema_key *key, const void *field, const void *field2)
{
    int value = *(const int *)field;
    if (value != path_value(key))
        return choice_json(key, value);
    return json_string_or_null(*(const char *const *)field2);
}

enum value_fault value_read_checkpointing(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *field, void *field2)
{
    struct checkpointing *out = field;
    const struct schema_choice *choice;
    enum value_fault fault = find_choice(key, node, &choice);
    if (fault == VALUE_FINE)
        *out = (struct checkpointing){
                (enum checkpointing_mode)choice->value, 0};
    if (fault != VALUE_WORD || strncasecmp(node->string, "every:", 6) != 0 ||
        !isdigit((unsigned char)node->string[6]))
        return fault;
    char *end;
    long every = strtol(node->string + 6, &end, 10);
    if (*end || every < 1 || every > 100000)
        return VALUE_RANGE;
    *out = (struct checkpointing){CHECKPOINTING_EVERY, (int)every};
    return VALUE_FINE;
}

json_t *value_write_checkpointing(
        const struct schema_key *key, const void *field, const void *field2)
{
    const struct checkpointing *is = field;
    if (is->mode != CHECKPOINTING_EVERY)
        return choice_json(key, (int)is->mode);
    return json_sprintf("every:%d", is->every);
}
