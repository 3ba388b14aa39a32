#include "daemon/job/foreign_keys.h"

#include "daemon/job/toml/toml_tree.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

extern const char foreign_keys_text[]; /* foreign_keys.toml */

static struct toml_node *read_keys(void)
{
    struct toml_source source = {
            .name = (char *)"foreign_keys.toml",
            .text = (char *)foreign_keys_text,
            .bytes = strlen(foreign_keys_text)};
    struct toml_error error;
    struct toml_node *root = NULL;
    enum zd_status status = toml_parse(&source, &error, &root);
    assert(status == ZD_OK);
    (void)status;
    return root;
}

static const char *find(const struct toml_node *table, const char *name)
{
    for (int i = 0; table && i < table->count; i++)
        if (table->items[i]->kind == TOML_STRING &&
            strcasecmp(table->items[i]->key, name) == 0)
            return table->items[i]->string;
    return NULL;
}

bool foreign_key_hint(
        const char *section, const char *name, char *hint, size_t bytes)
{
    struct toml_node *root = read_keys();
    hint[0] = '\0';
    for (int i = 0; i < root->count && !hint[0]; i++) {
        const struct toml_node *table = root->items[i];
        const char *here = find(table, name);
        if (!here)
            here = find(toml_find(table, section), name);
        bool is_array = strncmp(table->key, "data.", 5) == 0;
        if (!here || !strcmp(table->key, "sections"))
            continue;
        if (!strcmp(table->key, "nowhere"))
            snprintf(hint, bytes, "%s", here);
        else if (!strcmp(table->key, section))
            snprintf(hint, bytes, "did you mean `%s`?", here);
        else
            snprintf(
                    hint, bytes,
                    is_array ? "did you mean `%s` in [[%s]]?"
                             : "did you mean `%s` in [%s]?",
                    here, table->key);
    }
    toml_free(root);
    return hint[0] != '\0';
}

bool foreign_section_hint(const char *name, char *hint, size_t bytes)
{
    struct toml_node *root = read_keys();
    const char *here = find(toml_find(root, "sections"), name);
    if (here)
        snprintf(hint, bytes, "did you mean %s?", here);
    toml_free(root);
    return here != NULL;
}
