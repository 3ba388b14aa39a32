#include "daemon/command/completions_internal.h"

#include "daemon/job/schema.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* --- placeholders --- */

static bool is_one_of(const char *word, const char *list)
{
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += length)
        if ((at == list || at[-1] == ' ') &&
            (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

static void add_part(
        const struct completion_keys *keys, const char *part,
        struct completion_value *value)
{
    size_t used = strlen(value->words);
    if (!part[0])
        return;
    for (; keys && keys->placeholder; keys++)
        if (strcmp(part, keys->placeholder) == 0) {
            value->is_key = !keys->words;
            value->more = keys->words ? keys->words : "";
            return;
        }
    if (is_one_of(part, "FILE PATH CHECKPOINT SOCKET"))
        value->is_file = true;
    else if (is_one_of(part, "DIR OUT"))
        value->is_dir = true;
    else if (strcmp(part, "JOB") == 0)
        value->is_job = true;
    else if (islower((unsigned char)part[0]))
        snprintf(
                value->words + used, sizeof value->words - used, "%s%s",
                used ? " " : "", part);
}

struct completion_value completion_value_of(
        const struct completion_keys *keys, const char *placeholder)
{
    struct completion_value value = {.more = ""};
    char text[256], *rest = text;
    size_t used = 0;
    for (const char *c = placeholder ? placeholder : ""; *c; c++)
        if (!strchr("[]", *c) && used < sizeof text - 1)
            text[used++] = *c;
    while (used && text[used - 1] == '.')
        used--;
    text[used] = '\0';
    for (char *part; (part = strsep(&rest, "|"));)
        add_part(keys, part, &value);
    return value;
}

bool completion_begins_group(
        const struct cli_program *program, int index, char *group_out,
        size_t bytes)
{
    const char *name = program->commands[index].name;
    const char *space = strchr(name, ' ');
    if (!space)
        return false;
    size_t length = (size_t)(space - name) + 1;
    if (index && strncmp(program->commands[index - 1].name, name, length) == 0)
        return false;
    snprintf(group_out, bytes, "%.*s", (int)length - 1, name);
    return true;
}

static void put_valued(
        FILE *stream, const struct cli_program *program, const char *between)
{
    bool is_first = true;
    for (int i = 0; i < program->option_count; i++) {
        const struct cli_option *option = &program->options[i];
        if (!option->value)
            continue;
        fprintf(stream, "%s--%s", is_first ? "" : between, option->name);
        if (option->letter)
            fprintf(stream, "%s-%c", between, option->letter);
        is_first = false;
    }
}

void completion_put_script(
        FILE *stream, const struct cli_program *program, const char *script,
        const char *between)
{
    static const char name[] = "NAME", valued[] = "VALUED";
    for (const char *c = script; *c;) {
        if (strncmp(c, name, strlen(name)) == 0) {
            fputs(program->name, stream);
            c += strlen(name);
        } else if (strncmp(c, valued, strlen(valued)) == 0) {
            put_valued(stream, program, between);
            c += strlen(valued);
        } else
            fputc(*c++, stream);
    }
}

void completion_put_quoted(FILE *stream, const char *text)
{
    fputc('\'', stream);
    for (const char *c = text; *c; c++)
        fprintf(stream, *c == '\'' ? "'\"'\"'" : "%c", *c);
    fputc('\'', stream);
}

const struct completion_keys *completion_find_keys(
        const struct completion_keys *keys)
{
    for (; keys && keys->placeholder; keys++)
        if (!keys->words)
            return keys;
    return NULL;
}

enum zd_status completions_print(
        const struct cli_program *program, const struct completion_keys *keys,
        const char *shell, FILE *stream)
{
    static const struct {
        const char *name;
        completion_shell_fn *put;
    } shells[] = {
            {"bash", completion_put_bash},
            {"zsh", completion_put_zsh},
            {"fish", completion_put_fish}};
    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++)
        if (strcmp(shells[i].name, shell) == 0) {
            shells[i].put(stream, program, keys);
            return ZD_OK;
        }
    ZD_FAIL(ZD_ERR_USAGE, "E0101", "no completions for `%s`", shell);
    zd_fail_help("bash, zsh or fish");
    return ZD_ERR_USAGE;
}

/* --- the keys of job.toml --- */

static bool may_be_set(const struct schema_key *key)
{
    return key->section[0] && strncmp(key->section, "data.", 5) != 0 &&
           key->type != SCHEMA_ENTRIES && key->type != SCHEMA_TABLE &&
           !(key->flags & SCHEMA_UNAVAILABLE);
}

/* The words among what a key accepts: "auto | every:N | a path" has one. */
static char *words_of(const struct schema_key *key)
{
    char accepts[1024], *rest = accepts, *words = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&words, &bytes);
    if (!stream)
        abort();
    schema_accepts(key, accepts, sizeof accepts);
    bool is_list = strstr(accepts, " | ");
    for (char *word; is_list && (word = strsep(&rest, "|"));) {
        word += strspn(word, " ");
        word[strcspn(word, " ")] = '\0';
        if (strlen(word) > 1 && !strchr(word, ':')) /* "a path", "every:N" */
            fprintf(stream, "%s%s", ftell(stream) ? " " : "", word);
    }
    if (key->flags & SCHEMA_AUTO)
        fputs("auto", stream);
    fclose(stream);
    return words;
}

struct completion_keys *completion_job_keys(void)
{
    struct completion_keys *all = calloc(2, sizeof *all);
    struct completion_key *keys = calloc((size_t)schema_count, sizeof *keys);
    int count = 0;
    if (!all || !keys)
        abort();
    for (int i = 0; i < schema_count; i++) {
        const struct schema_key *key = &schema_table[i];
        char *name;
        if (!may_be_set(key))
            continue;
        if (asprintf(&name, "%s.%s", key->section, key->name) < 0)
            abort();
        keys[count++] = (struct completion_key){
                .name = name,
                .values = words_of(key),
                .is_file = (key->type == SCHEMA_STRING &&
                            !(key->flags & SCHEMA_NAMES)) ||
                           key->type == SCHEMA_RESUME ||
                           key->type == SCHEMA_SOCKET};
    }
    all[0] = (struct completion_keys){
            .placeholder = "SECTION.KEY=VALUE", .keys = keys, .count = count};
    return all;
}

void completion_job_keys_free(struct completion_keys *keys)
{
    for (int i = 0; i < keys->count; i++) {
        free((char *)keys->keys[i].name);
        free((char *)keys->keys[i].values);
    }
    free((struct completion_key *)keys->keys);
    free(keys);
}
