/* tree.c - from files and overrides to one tree of TOML. */
#include "daemon/job/job_internal.h"

#include "base/file/fs.h"
#include "base/must.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { EXTENDS_MAX = 16 }; /* files in a chain */

struct chain { /* the files being read, to find a cycle */
    char *paths[EXTENDS_MAX];
    int count;
};

/* --- aliases --- */

/* Give every key of one file its real name, before files are merged: a file may
 * override `lr` of its base with `learning_rate`. */
static void resolve_section(
        struct job *job, const char *name, struct toml_node *section)
{
    for (int i = 0; i < section->count; i++) {
        struct toml_node *item = section->items[i];
        const struct schema_key *key;
        if (schema_find(name, item->key) ||
            !(key = schema_find_alias(name, item->key)))
            continue;
        toml_take(section, i--);
        if (toml_find(section, key->name)) {
            job_tell(
                    job, "E0209", item->key_place, "remove one of the two",
                    "`%s` and `%s` in [%s] are one setting given twice",
                    item->key, key->name, name);
            toml_free(item);
            continue;
        }
        job_note(
                job, "note: `%s` in [%s] is read as `%s`", item->key, name,
                key->name);
        toml_rename(item, key->name);
        toml_put(section, item);
    }
}

static void resolve_aliases(struct job *job, struct toml_node *root)
{
    for (int i = 0; i < root->count; i++)
        if (root->items[i]->kind == TOML_TABLE)
            resolve_section(job, root->items[i]->key, root->items[i]);
}

/* --- files --- */

static bool read_source(
        struct job *job, const char *path, struct toml_place from,
        struct toml_source **source_out)
{
    struct toml_source *source = job_source(job, path);
    enum zd_status status =
            fs_read_file(path, TOML_MAX_BYTES, &source->text, &source->bytes);
    if (status == ZD_ERR_DATA && !strcmp(zd_error_get()->code, "E0704")) {
        zd_error_clear();
        status = ZD_FAIL(
                ZD_ERR_CONFIG, "E0201",
                "%s is larger than the 1 MiB that a job file may have", path);
    }
    if (status != ZD_OK) {
        job->is_partial = true;
        if (!from.source)
            from.source = source;
        problem_take_record(&job->problems, from);
        return false;
    }
    *source_out = source;
    return true;
}

static struct toml_node *parse_source(
        struct job *job, const struct toml_source *source)
{
    struct toml_node *root = NULL;
    struct toml_error error;
    enum zd_status status = toml_parse(source, &error, &root);
    if (status == ZD_OK)
        return root;
    job->is_partial = true;
    struct toml_place place = {source, error.line, error.column, 1};
    problem_add(
            &job->problems, status, "E0201", place, NULL, "not valid TOML: %s",
            error.what);
    return NULL;
}

static struct toml_node *read_file(
        struct job *job, const char *path, struct toml_place from,
        struct chain *chain);

/* Tables merge key by key, but the keys of [lora] describe one adapter. A file
 * that names its own lora.path takes that adapter's configuration, not the
 * base's; a rank_pattern or alpha_pattern replaces the base's. */
static void drop_overridden_lora(
        struct toml_node *base, const struct toml_node *root)
{
    struct toml_node *old = toml_find(base, "lora");
    const struct toml_node *new = toml_find(root, "lora");
    if (!old || !new || old->kind != TOML_TABLE || new->kind != TOML_TABLE)
        return;
    bool has_path = toml_find(new, "path") != NULL;
    for (int i = old->count - 1; i >= 0; i--) {
        const char *name = old->items[i]->key;
        const struct schema_key *key = schema_find("lora", name);
        bool is_pattern = strstr(name, "_pattern") && toml_find(new, name);
        if (is_pattern || (has_path && key && key->flags & SCHEMA_ADAPTER))
            toml_free(toml_take(old, i));
    }
}

/* Read what `extends` names and put `root` over it. */
static struct toml_node *read_base(
        struct job *job, const char *path, struct toml_node *root,
        struct chain *chain)
{
    const struct toml_node *extends = toml_find(root, "extends");
    if (!extends)
        return root;
    bool is_text = extends->kind == TOML_STRING;
    if (!is_text || !extends->string[0]) {
        job_tell(
                job, is_text ? "E0206" : "E0205", extends->place,
                "the path of a job file",
                is_text ? "`extends` is empty" : "`extends` must be a string");
        return root;
    }
    const char *slash = strrchr(path, '/');
    int dir_bytes =
            slash && extends->string[0] != '/' ? (int)(slash - path) + 1 : 0;
    const char *base_path =
            job_string(job, "%.*s%s", dir_bytes, path, extends->string);
    struct toml_node *base = read_file(job, base_path, extends->place, chain);
    if (!base)
        return root;
    drop_overridden_lora(base, root);
    toml_merge(base, root);
    return base;
}

static bool enter(
        struct job *job, const char *path, struct toml_place from,
        struct chain *chain)
{
    const char *what = NULL;
    char *real = realpath(path, NULL);
    if (!real) /* reading it says why */
        real = zd_must(strdup(path));
    if (chain->count == EXTENDS_MAX)
        what = job_string(
                job, "more than %d files extend each other", EXTENDS_MAX);
    for (int i = 0; i < chain->count; i++)
        if (strcmp(chain->paths[i], real) == 0)
            what = job_string(
                    job, "`extends` goes in a circle through %s", path);
    if (!what) {
        chain->paths[chain->count++] = real;
        return true;
    }
    job_tell(job, "E0212", from, NULL, "%s", what);
    free(real);
    job->is_partial = true;
    return false;
}

static struct toml_node *read_file(
        struct job *job, const char *path, struct toml_place from,
        struct chain *chain)
{
    struct toml_source *source;
    struct toml_node *root = NULL;
    if (!enter(job, path, from, chain))
        return NULL;
    if (read_source(job, path, from, &source))
        root = parse_source(job, source);
    if (root) {
        resolve_aliases(job, root);
        root = read_base(job, path, root, chain);
    }
    free(chain->paths[--chain->count]);
    return root;
}

/* --- overrides --- */

/* An override has no lines: its name is the place of everything in it. */
static void set_places(struct toml_node *node, struct toml_place place)
{
    node->place = node->key_place = place;
    for (int i = 0; i < node->count; i++)
        set_places(node->items[i], place);
}

/* The tree of "key = value"; NULL: not TOML. */
static struct toml_node *parse_setting(
        struct job *job, const char *key, const char *value)
{
    struct toml_source *source = job_source(job, key);
    struct toml_node *root = NULL;
    struct toml_error error;
    if (asprintf(&source->text, "%s = %s", key, value) < 0)
        zd_out_of_memory();
    source->bytes = strlen(source->text);
    bool is_one = source->bytes <= TOML_MAX_BYTES &&
                  toml_parse(source, &error, &root) == ZD_OK &&
                  root->count == 1;
    if (is_one)
        return root;
    toml_free(root);
    return NULL;
}

/* The same with the value as it is. */
static struct toml_node *text_setting(
        struct job *job, const char *key, const char *value)
{
    struct toml_node *root = parse_setting(job, key, "0"), *item = root;
    while (item && item->kind == TOML_TABLE)
        item = item->items[0];
    if (item) {
        item->kind = TOML_STRING;
        item->string = zd_must(strdup(value));
    }
    return root;
}

static const char *trimmed(struct job *job, const char *text, size_t bytes)
{
    while (bytes && isspace((unsigned char)*text)) {
        text++;
        bytes--;
    }
    while (bytes && isspace((unsigned char)text[bytes - 1]))
        bytes--;
    return job_string(job, "%.*s", (int)bytes, text);
}

/* Put an override over what `tree` holds, under the name that it was given. */
static void add_override(
        struct job *job, const struct job_override *set, struct toml_node *tree)
{
    const char *key = set->key, *value = set->value, *name = value;
    if (!key) {
        const char *equals = strchr(value, '=');
        key = trimmed(job, value, (size_t)(equals - value));
        value = trimmed(job, equals + 1, strlen(equals + 1));
        name = job_string(job, "%s=%s", key, value);
    }
    name = job_string(job, "%s %s", set->origin, name);
    struct toml_place place = {.source = job_source(job, name)};
    bool is_extends = strcmp(key, "extends") == 0;
    struct toml_node *item =
            set->is_text || is_extends ? NULL : parse_setting(job, key, value);
    if (!item && !is_extends)
        item = text_setting(job, key, value);
    if (!item) {
        job_tell(
                job, "E0203", place, NULL,
                is_extends ? "`extends` is for job files: what it would bring "
                             "came too late here"
                           : "unknown key `%.80s`",
                key);
        return;
    }
    set_places(item, place);
    toml_merge(tree, item);
}

/* All --set together are read like one file: one setting under two names is
 * refused. Other options override them. */
static void apply_overrides(struct job *job, const struct job_request *request)
{
    for (int pass = 0; pass < 2; pass++) {
        struct toml_node *tree =
                toml_new(TOML_TABLE, NULL, (struct toml_place){0});
        for (int i = 0; i < request->override_count; i++)
            if (!request->overrides[i].key == (pass == 0))
                add_override(job, &request->overrides[i], tree);
        resolve_aliases(job, tree);
        toml_merge(job->root, tree);
    }
}

static struct toml_node *read_text(
        struct job *job, const struct job_request *request)
{
    struct toml_source *source = job_source(job, request->path);
    source->text = zd_must(strdup(request->text));
    source->bytes = strlen(source->text);
    return parse_source(job, source);
}

void job_read_tree(struct job *job, const struct job_request *request)
{
    struct chain chain = {0};
    const struct toml_place nowhere = {0};
    job->root = request->text ? read_text(job, request)
                              : read_file(job, request->path, nowhere, &chain);
    if (job->root)
        apply_overrides(job, request);
}
