/* value_choice.c - values that are words: one of a list, or one of a list with
 * something else beside it. */
#include "daemon/job/value_parts.h"

#include "base/log.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* true and false may be words among others, as in `auto | true | false`. */
static const struct schema_choice *find_bool(
        const struct schema_key *key, bool value)
{
    for (const struct schema_choice *c = key->choices; c->name; c++)
        if (strcmp(c->name, value ? "true" : "false") == 0)
            return c;
    return NULL;
}

static const struct schema_choice *find_choice(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node)
{
    if (node->kind == TOML_BOOL && find_bool(key, node->boolean))
        return find_bool(key, node->boolean);
    if (node->kind != TOML_STRING) {
        value_fail_type(job, key, node);
        return NULL;
    }
    for (const struct schema_choice *c = key->choices; c->name; c++) {
        if (strcasecmp(c->name, node->string) != 0)
            continue;
        if (!c->note || c->note[0] != '!')
            return c;
        char accepts[256];
        schema_accepts(key, accepts, sizeof accepts);
        problem_add(
                &job->problems, ZD_ERR_CONFIG, "E0208", node->place, accepts,
                "%s = \"%s\" in [%s] is not available in this version",
                key->name, c->name, key->section);
        return NULL;
    }
    value_fail_word(job, key, node);
    return NULL;
}

bool value_read_choice(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *base)
{
    const struct schema_choice *choice = find_choice(job, key, node);
    if (!choice)
        return false;
    if (key->type == SCHEMA_WORD)
        *FIELD(const char *, base, key->offset) = choice->name;
    else if (key->type == SCHEMA_DTYPE) {
        *FIELD(bool, base, key->offset) = choice->value < 0;
        if (choice->value >= 0)
            *FIELD(enum dtype, base, key->offset2) = (enum dtype)choice->value;
    } else if (key->flags & SCHEMA_AS_BOOL)
        *FIELD(bool, base, key->offset) = choice->value != 0;
    else
        *FIELD(int, base, key->offset) = choice->value;
    return true;
}

/* Name, type of states and paging together; other names say what they became.
 */
bool value_read_optimizer(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *base)
{
    const struct schema_choice *choice = find_choice(job, key, node);
    struct optim_options *optim =
            FIELD(struct optim_options, base, key->offset);
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

bool value_read_resume(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *base)
{
    static const char *const modes[] = {"auto", "never", "must"};
    if (node->kind != TOML_STRING)
        return value_fail_type(job, key, node);
    if (!node->string[0])
        return value_fail_word(job, key, node);
    enum resume_mode mode = RESUME_PATH;
    for (int i = 0; i < 3; i++)
        if (strcasecmp(node->string, modes[i]) == 0)
            mode = (enum resume_mode)(RESUME_AUTO + i);
    *FIELD(enum resume_mode, base, key->offset) = mode;
    *FIELD(const char *, base, key->offset2) =
            mode == RESUME_PATH ? job_string(job, "%s", node->string) : NULL;
    return true;
}

/* A word without a slash is more likely a word that we do not know. */
bool value_read_socket(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *base)
{
    static const char *const words[] = {"auto", "none"};
    if (node->kind != TOML_STRING)
        return value_fail_type(job, key, node);
    enum control_socket what = CONTROL_PATH;
    if (strcasecmp(node->string, words[0]) == 0)
        what = CONTROL_AUTO;
    else if (strcasecmp(node->string, words[1]) == 0)
        what = CONTROL_NONE;
    else if (!strchr(node->string, '/'))
        return value_fail_word(job, key, node);
    *FIELD(enum control_socket, base, key->offset) = what;
    *FIELD(const char *, base, key->offset2) =
            what == CONTROL_PATH ? job_string(job, "%s", node->string) : NULL;
    return true;
}

bool value_read_checkpointing(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *base)
{
    static const struct {
        const char *name;
        enum checkpointing_mode mode;
    } modes[] = {
            {"none", CHECKPOINTING_NONE},
            {"selective", CHECKPOINTING_SELECTIVE},
            {"full", CHECKPOINTING_FULL},
            {"sqrt", CHECKPOINTING_SQRT},
            {"auto", CHECKPOINTING_AUTO}};
    struct checkpointing *out = FIELD(struct checkpointing, base, key->offset);
    if (node->kind != TOML_STRING)
        return value_fail_type(job, key, node);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
        if (strcasecmp(node->string, modes[i].name) == 0) {
            *out = (struct checkpointing){modes[i].mode, 0};
            return true;
        }
    if (strncasecmp(node->string, "every:", 6) != 0 ||
        !isdigit((unsigned char)node->string[6]))
        return value_fail_word(job, key, node);
    char *end;
    long every = strtol(node->string + 6, &end, 10);
    if (*end || every < 1 || every > 100000)
        return value_fail_range(job, key, node);
    *out = (struct checkpointing){CHECKPOINTING_EVERY, (int)every};
    return true;
}
