#include "data/tokenizer/tokenizer.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "data/tokenizer/tokenizer_internal.h"
#include "data/tokenizer/utf8.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Goes into the digest: change it when the same file gives other ids. */
static const char rules[] = "zerod byte-level BPE 1";
static const char byte_rules[] = "zerod bytes 1";

enum { BYTES_EOS = 256, BYTES_VOCAB = 257, TEMPLATE_FILE_MAX = 1 << 20 };
enum { VALUES_MAX = 4000000 }; /* of tokenizer.json: four for each merge */

void tokenizer_close(struct tokenizer *t)
{
    if (!t)
        return;
    token_vector_fini(&t->facts.prefix);
    token_vector_fini(&t->facts.suffix);
    json_decref(t->texts);
    json_decref(t->facts.chat.tokens);
    free(t->classes);
    vocab_fini(&t->vocab);
    merges_fini(&t->merges);
    added_set_fini(&t->added_raw);
    added_set_fini(&t->added_normalized);
    splitter_fini(&t->splitter);
    free(t);
}

static struct tokenizer *create(void)
{
    struct tokenizer *t = zd_array(1, sizeof *t);
    t->facts.eos = -1;
    byte_table_init(&t->table);
    t->classes = unicode_classes_create();
    return t;
}

/* A token as tokenizer_config.json has it: its text, or an object of it. */
static const json_t *token_of(const json_t *config, const char *key)
{
    const json_t *token = json_object_get(config, key);
    return json_is_object(token) ? json_object_get(token, "content") : token;
}

/* The template of this name among several; else NULL. A single one is the
 * "default". */
static const json_t *template_of(const json_t *config, const char *wanted)
{
    const json_t *template = json_object_get(config, "chat_template");
    if (json_is_string(template) && strcmp(wanted, "default") == 0)
        return template;
    JSON_EACH(item, template) {
        const char *name = json_string_at(item, "name");
        if (name && strcmp(name, wanted) == 0)
            return json_object_get(item, "template");
    }
    return NULL;
}

static json_t *load_tokens(const json_t *config)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token",
                                        "sep_token", "pad_token", "cls_token",
                                        "mask_token"};
    json_t *tokens = json_object();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const json_t *token = token_of(config, names[i]);
        if (json_is_string(token))
            json_object_set(tokens, names[i], (json_t *)token);
    }
    return tokens;
}

/* The file of this name in the folder that `path` is in. */
static void find_beside(const char *path, const char *name, char out[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    snprintf(
            out, PATH_MAX, "%.*s%s", slash ? (int)(slash - path) + 1 : 0, path,
            name);
}

/* Text that lives as long as the tokenizer. */
static const char *keep_text(struct tokenizer *t, const char *text)
{
    json_t *kept = json_string_nocheck(text);
    json_array_append_new(t->texts, kept);
    return json_string_value(kept);
}

/* A template in its own file, if there is one beside `config`. */
static enum zd_status load_template(
        struct tokenizer *t, const char *config, const char *name,
        const char **template)
{
    char file[PATH_MAX];
    ZD_FREED char *text = NULL;
    size_t bytes;
    find_beside(config, name, file);
    if (!fs_exists(file))
        return ZD_OK;
    ZD_TRY(fs_read_file(file, TEMPLATE_FILE_MAX, &text, &bytes));
    if (template == &t->facts.chat.source)
        t->facts.chat.path = keep_text(t, file);
    *template = keep_text(t, text);
    return ZD_OK;
}

/* `path`: of tokenizer_config.json; `config` may be NULL. */
static enum zd_status load_chat(
        struct tokenizer *t, json_t *config, const char *path)
{
    struct tokenizer_chat *chat = &t->facts.chat;
    t->texts = json_array();
    chat->path = keep_text(t, path);
    json_array_append(t->texts, config); /* whose texts are borrowed */
    chat->tokens = load_tokens(config);
    chat->source = json_string_value(template_of(config, "default"));
    chat->with_tools = json_string_value(template_of(config, "tool_use"));
    ZD_TRY(load_template(t, path, "chat_template.jinja", &chat->source));
    return load_template(
            t, path, "additional_chat_templates/tool_use.jinja",
            &chat->with_tools);
}

/* eos_token of tokenizer_config.json, if there is such a file. */
static enum zd_status load_config(struct tokenizer *t, const char *path)
{
    json_auto_t *config = NULL;
    if (!fs_exists(path))
        return load_chat(t, NULL, path);
    ZD_TRY(json_parse_file(path, TOKENIZER_FILE_MAX, &config));
    const json_t *eos = token_of(config, "eos_token");
    const char *text = json_string_value(eos);
    if (text)
        t->facts.eos = vocab_find(&t->vocab, text, strlen(text));
    if (!json_is_object(config))
        ZD_BAD("E0402",
               "broken tokenizer_config.json: it is not a JSON object");
    else if (text && t->facts.eos < 0)
        ZD_BAD("E0408", "eos_token `%.200s` is not a token of tokenizer.json",
               text);
    else if (!text && !json_is_absent(eos))
        ZD_BAD("E0408",
               "eos_token is neither a string nor an object with content");
    else
        return load_chat(t, config, path);
    return zd_fail_where("%s", path);
}

static enum zd_status load_parts(struct tokenizer *t, const json_t *root)
{
    if (!json_is_object(root))
        return ZD_BAD(
                "E0402", "broken tokenizer.json: it is not a JSON object");
    ZD_TRY(tokenizer_load_pipeline(t, root));
    ZD_TRY(tokenizer_load_model(t, root));
    ZD_TRY(tokenizer_load_added(t, root));
    return tokenizer_load_around(t, root);
}

static enum zd_status load_file(struct tokenizer *t, const char *path)
{
    ZD_FREED char *text = NULL;
    size_t bytes;
    json_auto_t *root = NULL;
    ZD_TRY(fs_read_file(path, TOKENIZER_FILE_MAX, &text, &bytes));
    char digest[HASH_HEX + sizeof rules];
    hash_bytes(text, bytes, digest);
    memcpy(digest + HASH_HEX, rules, sizeof rules);
    hash_bytes(digest, sizeof digest, t->facts.digest);
    if (json_parse_upto(text, bytes, VALUES_MAX, path, ZD_ERR_DATA, &root) !=
                ZD_OK ||
        load_parts(t, root) != ZD_OK)
        return zd_fail_where("%s", path);
    return ZD_OK;
}

enum zd_status tokenizer_open(const char *path, struct tokenizer **out)
{
    char file[PATH_MAX], config[PATH_MAX];
    if (strlen(path) + sizeof "/tokenizer_config.json" > PATH_MAX)
        return ZD_FAIL(
                ZD_ERR_NO_INPUT, "E0401", "path of a tokenizer is too long");
    if (fs_is_dir(path)) {
        fs_join(file, sizeof file, path, "tokenizer.json");
        fs_join(config, sizeof config, path, "tokenizer_config.json");
    } else {
        ZD_PRINT(file, "%s", path);
        find_beside(path, "tokenizer_config.json", config);
    }
    struct tokenizer *t = create();
    if (load_file(t, file) != ZD_OK || load_config(t, config) != ZD_OK) {
        tokenizer_close(t);
        return zd_error_get()->status;
    }
    t->facts.vocab_size = t->vocab.ids;
    ZD_PRINT(
            t->facts.describe, "%s, %d tokens, %d merges",
            t->table.is_fallback ? "BPE with byte fallback" : "byte-level BPE",
            t->vocab.count, t->merges.count);
    *out = t;
    return ZD_OK;
}

enum zd_status tokenizer_open_bytes(struct tokenizer **out)
{
    struct tokenizer *t = create();
    t->is_bytes = true;
    t->facts.eos = BYTES_EOS;
    t->facts.vocab_size = BYTES_VOCAB;
    vocab_init(&t->vocab, BYTES_VOCAB);
    for (int id = 0; id < BYTES_VOCAB; id++) {
        unsigned char spelling[4];
        size_t bytes = 0; /* end of text stands for no byte */
        if (id < BYTES_EOS)
            bytes = utf8_write(spelling, t->table.char_of[id]);
        vocab_add(&t->vocab, &t->table, (const char *)spelling, bytes, id);
    }
    hash_bytes(byte_rules, sizeof byte_rules, t->facts.digest);
    ZD_PRINT(t->facts.describe, "bytes, 256 is end of text");
    *out = t;
    return ZD_OK;
}

const struct tokenizer_facts *tokenizer_facts(const struct tokenizer *t)
{
    return &t->facts;
}

int tokenizer_token_id(const struct tokenizer *t, const char *token)
{
    return vocab_find(&t->vocab, token, strlen(token));
}

enum zd_status tokenizer_token_bytes(
        const struct tokenizer *t, int32_t id, const char **bytes_out,
        size_t *count_out)
{
    const struct vocab *vocab = &t->vocab;
    if (id < 0 || id >= vocab->ids || !vocab->tokens[id].present)
        return ZD_BAD(
                "E0409",
                "%d is not a token id; the vocabulary has %d tokens, the last "
                "is %d",
                id, vocab->count, vocab->ids - 1);
    *bytes_out = (const char *)vocab->text.data + vocab->tokens[id].decoded;
    *count_out = vocab->tokens[id].decoded_bytes;
    return ZD_OK;
}
