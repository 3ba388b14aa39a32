/* value_choice.c - values that are words: one of a list, or one of a list with
 * something else beside it. */
#include "daemon/job/value.h"

#include "base/log.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* true and false may be words among others, as in `auto | true | false`. */
const struct schema_choice *value_find_choice(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, bool may_be_other)
{
    const char *word = node->kind == TOML_STRING ? node->string
                       : node->kind != TOML_BOOL ? NULL
                       : node->boolean           ? "true"
                                                 : "false";
    const struct schema_choice *c = key->choices;
    while (word && c->name && strcasecmp(c->name, word) != 0)
        c++;
    if (word && c->name && (!c->note || c->note[0] != '!'))
        return c;
    if (word && c->name) {
        char accepts[256];
        schema_accepts(key, accepts, sizeof accepts);
        problem_add(
                &job->problems, ZD_ERR_CONFIG, "E0208", node->place, accepts,
                "%s = \"%s\" in [%s] is not available in this version",
                key->name, c->name, key->section);
    } else if (node->kind != TOML_STRING) {
        value_fail(job, key, node, VALUE_TYPE);
    } else if (!may_be_other) {
        value_fail(job, key, node, VALUE_WORD);
    }
    return NULL;
}

json_t *value_choice_json(const struct schema_key *key, int value)
{
    for (const struct schema_choice *c = key->choices; c->name; c++)
        if (c->value == value && !c->note)
            return json_string(c->name);
    return json_string("?");
}

bool value_read_enum(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *field, void *field2)
{
    const struct schema_choice *choice =
            value_find_choice(job, key, node, false);
    if (choice)
        *(int *)field = choice->value;
    return choice != NULL;
}

json_t *value_write_enum(
        const struct schema_key *key, const void *field, const void *field2)
{
    return value_choice_json(key, *(const int *)field);
}

/* -1 is "auto", which leaves the type as it is. */
bool value_read_dtype(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *field, void *field2)
{
    const struct schema_choice *choice =
            value_find_choice(job, key, node, false);
    if (!choice)
        return false;
    *(bool *)field = choice->value < 0;
    if (choice->value >= 0)
        *(enum dtype *)field2 = (enum dtype)choice->value;
    return true;
}

json_t *value_write_dtype(
        const struct schema_key *key, const void *field, const void *field2)
{
    bool is_auto = *(const bool *)field;
    return value_choice_json(
            key, is_auto ? -1 : (int)*(const enum dtype *)field2);
}

/* Name, type of states and paging together; other names say what they became.
 */
bool value_read_optimizer(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *field, void *field2)
{
    const struct schema_choice *choice =
            value_find_choice(job, key, node, false);
    struct optim_options *optim = field;
    if (!choice)
        return false;
    optim->name = (enum optim_name)(choice->value & 0xff);
    optim->state_type = choice->value & SCHEMA_STATES_8BIT ? OPTIM_STATE_8BIT
                                                           : OPTIM_STATE_FP32;
    optim->paged = choice->value & SCHEMA_STATES_PAGED;
    if (choice->note)
        for (const struct schema_choice *c = key->choices; c->name; c++)
            if (c->value == choice->value && !c->note)
                zd_log_info(
                        "note: `%s = \"%s\"` in [%s] is read as \"%s\"",
                        key->name, choice->name, key->section, c->name);
    return true;
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
    return value_choice_json(key, value);
}

/* What the last choice, which has no name, stands for: a path. With
 * SCHEMA_SLASH a word without a slash is more likely a word that we do not
 * know. */
static int path_value(const struct schema_key *key)
{
    const struct schema_choice *c = key->choices;
    while (c->name)
        c++;
    return c->value;
}

bool value_read_word_or_path(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *field, void *field2)
{
    const struct schema_choice *choice =
            value_find_choice(job, key, node, true);
    if (!choice && node->kind != TOML_STRING)
        return false;
    bool is_path = node->string && node->string[0] &&
                   (!(key->flags & SCHEMA_SLASH) || strchr(node->string, '/'));
    if (!choice && !is_path)
        return value_fail(job, key, node, VALUE_WORD);
    *(int *)field = choice ? choice->value : path_value(key);
    *(const char **)field2 =
            choice ? NULL : job_string(job, "%s", node->string);
    return true;
}

json_t *value_write_word_or_path(
        const struct schema_key *key, const void *field, const void *field2)
{
    int value = *(const int *)field;
    if (value != path_value(key))
        return value_choice_json(key, value);
    json_t *path = json_string(*(const char *const *)field2);
    return path ? path : json_string("(not UTF-8)");
}

bool value_read_checkpointing(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *field, void *field2)
{
    struct checkpointing *out = field;
    const struct schema_choice *choice =
            value_find_choice(job, key, node, true);
    if (choice) {
        *out = (struct checkpointing){
                (enum checkpointing_mode)choice->value, 0};
        return true;
    }
    if (node->kind != TOML_STRING)
        return false;
    if (strncasecmp(node->string, "every:", 6) != 0 ||
        !isdigit((unsigned char)node->string[6]))
        return value_fail(job, key, node, VALUE_WORD);
    char *end;
    long every = strtol(node->string + 6, &end, 10);
    if (*end || every < 1 || every > 100000)
        return value_fail(job, key, node, VALUE_RANGE);
    *out = (struct checkpointing){CHECKPOINTING_EVERY, (int)every};
    return true;
}

json_t *value_write_checkpointing(
        const struct schema_key *key, const void *field, const void *field2)
{
    const struct checkpointing *is = field;
    if (is->mode != CHECKPOINTING_EVERY)
        return value_choice_json(key, (int)is->mode);
    return json_sprintf("every:%d", is->every);
}
