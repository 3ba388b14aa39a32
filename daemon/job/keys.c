/* keys.c - every key of the tree against the schema. */
#include "daemon/job/job_internal.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

/* --- what keys of other trainers are called here --- */

extern const char foreign_keys_text[]; /* foreign_keys.toml */

static struct toml_node *read_foreign(void)
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

static const char *find_foreign(const struct toml_node *table, const char *name)
{
    for (int i = 0; table && i < table->count; i++)
        if (table->items[i]->kind == TOML_STRING &&
            strcasecmp(table->items[i]->key, name) == 0)
            return table->items[i]->string;
    return NULL;
}

/* A hint for a key of `section`, or a section (NULL), that zerod does not know:
 * "did you mean `dtype` in [train]?". false: there is none. */
static bool foreign_hint(
        const char *section, const char *name, char *hint, size_t bytes)
{
    struct toml_node *root = read_foreign();
    hint[0] = '\0';
    for (int i = 0; i < root->count && !hint[0]; i++) {
        const struct toml_node *table = root->items[i];
        const char *where = table->key, *here = find_foreign(table, name);
        bool is_array = strncmp(where, "data.", 5) == 0;
        if (!here && section)
            here = find_foreign(toml_find(table, section), name);
        if (!here || !strcmp(where, "sections") != !section)
            continue;
        if (!section)
            snprintf(hint, bytes, "did you mean %s?", here);
        else if (!strcmp(where, "nowhere"))
            snprintf(hint, bytes, "%s", here);
        else if (!strcmp(where, section))
            snprintf(hint, bytes, "did you mean `%s`?", here);
        else
            snprintf(
                    hint, bytes,
                    is_array ? "did you mean `%s` in [[%s]]?"
                             : "did you mean `%s` in [%s]?",
                    here, where);
    }
    toml_free(root);
    return hint[0] != '\0';
}

/* --- what is unknown --- */

/* "[optim]" or "[[data.train]]" for people; keys above all sections have
 * none. */
static const char *in_section(struct job *job, const char *section)
{
    if (!section[0])
        return "the part above all sections";
    bool is_array = strncmp(section, "data.", 5) == 0;
    return job_string(job, is_array ? "[[%s]]" : "[%s]", section);
}

static void tell_unknown(
        struct job *job, const char *section, const struct toml_node *item)
{
    const char *here = in_section(job, section);
    const struct schema_key *key = schema_find_elsewhere(section, item->key);
    char found[SCHEMA_NAME_MAX];
    char label[160] = "";
    if (key) {
        job_tell(
                job, "E0204", item->key_place, NULL,
                "`%s` belongs in %s, not %s", item->key,
                in_section(job, key->section), here);
        return;
    }
    if (job->problems.count < 100 && /* a file full of nonsense */
        !foreign_hint(section, item->key, label, sizeof label) &&
        (key = schema_suggest(section, item->key, found))) {
        if (strcmp(key->section, section) == 0)
            ZD_PRINT(label, "did you mean `%s`?", found);
        else
            ZD_PRINT(
                    label, "did you mean `%s` in %s?", found,
                    in_section(job, key->section));
    }
    job_tell(
            job, "E0203", item->key_place, label, "unknown key `%.80s` in %s",
            item->key, here);
}

/* --- a value that is refused --- */

/* What is wrong in an array of the right kind: its first item of another. */
static const struct toml_node *wrong_part(
        const struct schema_key *key, const struct toml_node *node)
{
    enum toml_kind kind =
            key->type == SCHEMA_LAYERS ? TOML_INTEGER : TOML_STRING;
    bool is_list = key->type == SCHEMA_STRINGS || key->type == SCHEMA_MODULES ||
                   key->type == SCHEMA_LAYERS;
    for (int i = 0; is_list && node->kind == TOML_ARRAY && i < node->count; i++)
        if (node->items[i]->kind != kind)
            return node->items[i];
    return node;
}

static void tell(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, enum value_fault fault)
{
    char accepts[256], what[400];
    static const char *const codes[] = {
            [VALUE_TYPE] = "E0205",
            [VALUE_RANGE] = "E0206",
            [VALUE_WORD] = "E0207"};
    double value = node->kind == TOML_INTEGER ? (double)node->integer
                   : node->kind == TOML_REAL  ? node->real
                                              : 0;
    schema_accepts(key, accepts, sizeof accepts);
    if (fault == VALUE_RANGE && key->max > 1e6 && value > key->max)
        snprintf(/* few people meet it */
                 accepts, sizeof accepts, "%s %.17g",
                 key->flags & SCHEMA_BELOW_MAX ? "below" : "at most", key->max);
    if (fault == VALUE_TYPE)
        ZD_PRINT(
                what, "`%s` in [%s] cannot be %s", key->name, key->section,
                toml_kind_name(node->kind));
    else if (fault == VALUE_RANGE)
        ZD_PRINT(
                what,
                key->type == SCHEMA_NAME ? "`%s` in [%s] is not a name"
                                         : "`%s` in [%s] is out of range",
                key->name, key->section);
    else
        ZD_PRINT(
                what, "\"%.80s\" is not a value of `%s` in [%s]", node->string,
                key->name, key->section);
    job_tell(job, codes[fault], node->place, accepts, "%s", what);
    const struct schema_choice *near =
            fault == VALUE_WORD ? schema_suggest_choice(key, node->string)
                                : NULL;
    if (near && schema_is_elsewhere(near))
        problem_help(&job->problems, "%s", near->note);
    else if (near)
        problem_help(&job->problems, "did you mean \"%s\"?", near->name);
}

static bool read_value(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *base)
{
    enum value_fault fault = value_read(job, key, node, base);
    if (fault != VALUE_FINE && fault != VALUE_TOLD)
        tell(job, key, fault == VALUE_TYPE ? wrong_part(key, node) : node,
             fault);
    return fault == VALUE_FINE;
}

/* --- keys and sections --- */

static void read_key(
        struct job *job, const struct schema_key *key,
        const struct toml_node *item, void *base);

/* Known keys into `base`; a table whose name makes a section is walked too. */
static void read_section(
        struct job *job, const char *section, const struct toml_node *table,
        void *base)
{
    for (int i = 0; i < table->count; i++) {
        const struct toml_node *item = table->items[i];
        const struct schema_key *key = schema_find(section, item->key);
        char inner[SCHEMA_NAME_MAX * 2];
        ZD_PRINT(inner, "%s.%.60s", section, item->key);
        if (key)
            read_key(job, key, item, base);
        else if (schema_is_section(inner) && item->kind == TOML_TABLE)
            read_section(job, inner, item, base);
        else
            tell_unknown(job, section, item);
    }
}

/* [[data.train]]: one struct per table. */
static bool read_entries(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *base)
{
    char section[SCHEMA_NAME_MAX];
    ZD_PRINT(section, "%s.%s", key->section, key->name);
    bool is_array = node->kind == TOML_ARRAY;
    for (int i = 0; is_array && i < node->count; i++)
        is_array = node->items[i]->kind == TOML_TABLE;
    if (!is_array) {
        char accepts[128];
        schema_accepts(key, accepts, sizeof accepts);
        job_tell(
                job, "E0205", node->place, accepts,
                "[%s] must be an array of tables", section);
        problem_help(
                &job->problems, "write [[%s]], in double brackets", section);
        return false;
    }
    struct data_entry *entries =
            job_alloc(job, (size_t)(node->count + 1) * sizeof *entries);
    for (int i = 0; i < node->count; i++) {
        const struct toml_node *table = node->items[i];
        entries[i] = data_entry_default();
        entries[i].is_eval = strcmp(key->name, "eval") == 0;
        read_section(job, section, table, &entries[i]);
        const struct toml_node *path = toml_find(table, "path");
        if (!path || (path->kind == TOML_STRING && !path->string[0]))
            job_tell(
                    job, "E0210", path ? path->place : table->place, NULL,
                    "[[%s]] needs a `path`", section);
    }
    *(struct data_entry **)((char *)base + key->offset) = entries;
    *(int *)((char *)base + key->offset2) = node->count;
    return true;
}

static void read_key(
        struct job *job, const struct schema_key *key,
        const struct toml_node *item, void *base)
{
    /* kept even when its value is refused: it was given, so it is not missing
     */
    if (base == &job->options)
        job->keys[schema_index(key)].given = item;
    bool is_read = key->type == SCHEMA_ENTRIES
                           ? read_entries(job, key, item, base)
                           : read_value(job, key, item, base);
    if (base == &job->options)
        job->keys[schema_index(key)].refused = !is_read;
}

static void tell_no_table(struct job *job, const struct toml_node *item)
{
    job_tell(
            job, "E0205", item->place, NULL, "[%s] is a section, not %s",
            item->key, toml_kind_name(item->kind));
}

static void tell_section(struct job *job, const struct toml_node *item)
{
    char hint[160] = "";
    const char *near = NULL;
    if (job->problems.count < 100 && /* a file full of nonsense */
        !foreign_hint(NULL, item->key, hint, sizeof hint))
        near = schema_suggest_section(item->key);
    if (near)
        ZD_PRINT(hint, "did you mean [%s]?", near);
    job_tell(
            job, "E0202", item->key_place, hint, "unknown section [%.80s]",
            item->key);
}

/* Dotted names are sections only below their own section: ["data.train"] is not
 * [data.train]. */
static bool is_top_section(const char *name)
{
    return name[0] && !strchr(name, '.') && schema_is_section(name);
}

void job_read_quietly(struct job *job, const char *section)
{
    const struct toml_node *table =
            job->root ? toml_find(job->root, section) : NULL;
    struct problems told = job->problems;
    job->problems = (struct problems){0};
    if (table && table->kind == TOML_TABLE)
        read_section(job, section, table, &job->options);
    problems_fini(&job->problems);
    job->problems = told;
}

void job_read_values(struct job *job)
{
    for (int i = 0; i < job->root->count; i++) {
        const struct toml_node *item = job->root->items[i];
        const struct schema_key *key = schema_find("", item->key);
        if (key)
            read_key(job, key, item, &job->options);
        else if (is_top_section(item->key) && item->kind == TOML_TABLE)
            read_section(job, item->key, item, &job->options);
        else if (is_top_section(item->key))
            tell_no_table(job, item);
        else if (item->kind == TOML_TABLE)
            tell_section(job, item);
        else
            tell_unknown(job, "", item);
    }
}
