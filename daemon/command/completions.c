#include "daemon/command/completions_internal.h"

#include "base/must.h"
#include "base/text_stream.h"
#include "daemon/job/schema.h"

#include <stdlib.h>
#include <string.h>

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
    int count = 0;
    FILE *stream = text_stream_open(&words, &bytes);
    schema_accepts(key, accepts, sizeof accepts);
    bool is_list = strstr(accepts, " | ");
    for (char *word; is_list && (word = strsep(&rest, "|"));) {
        word += strspn(word, " ");
        word[strcspn(word, " ")] = '\0';
        if (strlen(word) > 1 && !strchr(word, ':')) /* "a path", "every:N" */
            fprintf(stream, "%s%s", count++ ? " " : "", word);
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
        zd_out_of_memory();
    for (int i = 0; i < schema_count; i++) {
        const struct schema_key *key = &schema_table[i];
        char *name;
        if (!may_be_set(key))
            continue;
        if (asprintf(&name, "%s.%s", key->section, key->name) < 0)
            zd_out_of_memory();
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
