/* value_fail.c - what can be wrong with a value, as a problem of the job. */
#include "daemon/job/value_parts.h"

bool value_fail_type(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node)
{
    char accepts[256];
    schema_accepts(key, accepts, sizeof accepts);
    problem_add(
            &job->problems, ZD_ERR_CONFIG, "E0205", node->place, accepts,
            "`%s` in [%s] cannot be %s", key->name, key->section,
            toml_kind_name(node->kind));
    return false;
}

bool value_fail_range(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node)
{
    char accepts[256];
    double value = node->kind == TOML_INTEGER ? (double)node->integer
                   : node->kind == TOML_REAL  ? node->real
                                              : 0;
    if (key->max > 1e6 && value > key->max) /* few people meet it */
        snprintf(
                accepts, sizeof accepts, "%s %.17g",
                key->flags & SCHEMA_BELOW_MAX ? "below" : "at most", key->max);
    else
        schema_accepts(key, accepts, sizeof accepts);
    problem_add(
            &job->problems, ZD_ERR_CONFIG, "E0206", node->place, accepts,
            "`%s` in [%s] is out of range", key->name, key->section);
    return false;
}

bool value_fail_word(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node)
{
    char accepts[256];
    schema_accepts(key, accepts, sizeof accepts);
    problem_add(
            &job->problems, ZD_ERR_CONFIG, "E0207", node->place, accepts,
            "\"%.80s\" is no value for `%s` in [%s]", node->string, key->name,
            key->section);
    const char *near = schema_suggest_choice(key, node->string);
    if (near)
        problem_help(&job->problems, "did you mean \"%s\"?", near);
    return false;
}
