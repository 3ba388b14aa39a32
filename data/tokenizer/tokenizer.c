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

void tokenizer_close(struct tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    token_vector_fini(&tokenizer->prefix);
    token_vector_fini(&tokenizer->suffix);
    free(tokenizer->chat.source);
    free(tokenizer->chat.with_tools);
    free(tokenizer->chat.path);
    json_decref(tokenizer->chat.tokens);
    free(tokenizer->classes);
    vocab_fini(&tokenizer->vocab);
    merges_fini(&tokenizer->merges);
    added_set_fini(&tokenizer->added_raw);
    added_set_fini(&tokenizer->added_normalized);
    splitter_fini(&tokenizer->splitter);
    free(tokenizer);
}

static struct tokenizer *create(void)
{
    struct tokenizer *tokenizer = zd_array(1, sizeof *tokenizer);
    tokenizer->eos = -1;
    byte_table_init(&tokenizer->table);
    tokenizer->classes = unicode_classes_create();
    return tokenizer;
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
    const json_t *item;
    size_t i;
    if (json_is_string(template) && strcmp(wanted, "default") == 0)
        return template;
    json_array_foreach(template, i, item)
    {
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

/* A template in its own file, if there is one beside `config`. */
static enum zd_status load_template(
        const char *config, const char *name, char **template, char **path)
{
    char file[PATH_MAX], *text;
    size_t bytes;
    find_beside(config, name, file);
    if (!fs_exists(file))
        return ZD_OK;
    ZD_TRY(fs_read_file(file, TEMPLATE_FILE_MAX, &text, &bytes));
    free(*template);
    *template = text;
    if (!path)
        return ZD_OK;
    free(*path);
    *path = zd_must(strdup(file));
    return ZD_OK;
}

static char *copy_text(const json_t *text)
{
    return json_is_string(text) ? zd_must(strdup(json_string_value(text)))
                                : NULL;
}

/* `path`: of tokenizer_config.json; `config` may be NULL. */
static enum zd_status load_chat(
        struct tokenizer *tokenizer, const json_t *config, const char *path)
{
    struct tokenizer_chat *chat = &tokenizer->chat;
    chat->tokens = load_tokens(config);
    chat->source = copy_text(template_of(config, "default"));
    chat->with_tools = copy_text(template_of(config, "tool_use"));
    chat->path = zd_must(strdup(path));
    ZD_TRY(load_template(
            path, "chat_template.jinja", &chat->source, &chat->path));
    return load_template(
            path, "additional_chat_templates/tool_use.jinja", &chat->with_tools,
            NULL);
}

/* eos_token of tokenizer_config.json, if there is such a file. */
static enum zd_status load_config(struct tokenizer *tokenizer, const char *path)
{
    json_t *config;
    enum zd_status status = ZD_OK;
    if (!fs_exists(path))
        return load_chat(tokenizer, NULL, path);
    ZD_TRY(json_parse_file(path, TOKENIZER_FILE_MAX, &config));
    if (!json_is_object(config))
        status = ZD_FAIL(
                ZD_ERR_DATA, "E0402",
                "broken tokenizer_config.json: it is not a JSON object");
    const json_t *eos = token_of(config, "eos_token");
    const char *text = json_string_value(eos);
    if (text)
        tokenizer->eos = vocab_find(&tokenizer->vocab, text, strlen(text));
    if (text && tokenizer->eos < 0)
        status = ZD_FAIL(
                ZD_ERR_DATA, "E0408",
                "eos_token `%.200s` is not a token of tokenizer.json", text);
    else if (!text && !json_is_absent(eos))
        status = ZD_FAIL(
                ZD_ERR_DATA, "E0408",
                "eos_token is neither a string nor an object with content");
    if (status != ZD_OK)
        zd_fail_where("%s", path);
    else
        status = load_chat(tokenizer, config, path);
    json_decref(config);
    return status;
}

static enum zd_status load_parts(
        struct tokenizer *tokenizer, const json_t *root)
{
    if (!json_is_object(root))
        return ZD_FAIL(
                ZD_ERR_DATA, "E0402",
                "broken tokenizer.json: it is not a JSON object");
    ZD_TRY(tokenizer_load_pipeline(tokenizer, root));
    ZD_TRY(tokenizer_load_model(tokenizer, root));
    ZD_TRY(tokenizer_load_added(tokenizer, root));
    return tokenizer_load_around(tokenizer, root);
}

static enum zd_status load_file(struct tokenizer *tokenizer, const char *path)
{
    char *text;
    size_t bytes;
    json_t *root = NULL;
    ZD_TRY(fs_read_file(path, TOKENIZER_FILE_MAX, &text, &bytes));
    char digest[HASH_HEX + sizeof rules];
    hash_bytes(text, bytes, digest);
    memcpy(digest + HASH_HEX, rules, sizeof rules);
    hash_bytes(digest, sizeof digest, tokenizer->digest);
    enum zd_status status =
            json_parse_upto(text, bytes, VALUES_MAX, path, ZD_ERR_DATA, &root);
    free(text);
    if (status == ZD_OK)
        status = load_parts(tokenizer, root);
    if (status != ZD_OK)
        zd_fail_where("%s", path);
    json_decref(root);
    return status;
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
        snprintf(file, sizeof file, "%s", path);
        find_beside(path, "tokenizer_config.json", config);
    }
    struct tokenizer *tokenizer = create();
    enum zd_status status = load_file(tokenizer, file);
    if (status == ZD_OK)
        status = load_config(tokenizer, config);
    if (status != ZD_OK) {
        tokenizer_close(tokenizer);
        return status;
    }
    snprintf(
            tokenizer->describe, sizeof tokenizer->describe,
            "%s, %d tokens, %d merges",
            tokenizer->table.is_fallback ? "BPE with byte fallback"
                                         : "byte-level BPE",
            tokenizer->vocab.count, tokenizer->merges.count);
    *out = tokenizer;
    return ZD_OK;
}

enum zd_status tokenizer_open_bytes(struct tokenizer **out)
{
    struct tokenizer *tokenizer = create();
    tokenizer->is_bytes = true;
    tokenizer->eos = BYTES_EOS;
    vocab_init(&tokenizer->vocab, BYTES_VOCAB);
    for (int id = 0; id < BYTES_VOCAB; id++) {
        unsigned char spelling[4];
        size_t bytes = 0; /* end of text stands for no byte */
        if (id < BYTES_EOS)
            bytes = utf8_write(spelling, tokenizer->table.char_of[id]);
        vocab_add(
                &tokenizer->vocab, &tokenizer->table, (const char *)spelling,
                bytes, id);
    }
    hash_bytes(byte_rules, sizeof byte_rules, tokenizer->digest);
    snprintf(
            tokenizer->describe, sizeof tokenizer->describe,
            "bytes, 256 is end of text");
    *out = tokenizer;
    return ZD_OK;
}

int tokenizer_vocab_size(const struct tokenizer *tokenizer)
{
    return tokenizer->vocab.ids;
}

int tokenizer_eos(const struct tokenizer *tokenizer)
{
    return tokenizer->eos;
}

const struct token_vector *tokenizer_prefix(const struct tokenizer *tokenizer)
{
    return &tokenizer->prefix;
}

const struct token_vector *tokenizer_suffix(const struct tokenizer *tokenizer)
{
    return &tokenizer->suffix;
}

struct tokenizer_chat tokenizer_chat(const struct tokenizer *tokenizer)
{
    return tokenizer->chat;
}

int tokenizer_token_id(const struct tokenizer *tokenizer, const char *token)
{
    return vocab_find(&tokenizer->vocab, token, strlen(token));
}

const char *tokenizer_digest(const struct tokenizer *tokenizer)
{
    return tokenizer->digest;
}

const char *tokenizer_describe(const struct tokenizer *tokenizer)
{
    return tokenizer->describe;
}

enum zd_status tokenizer_token_bytes(
        const struct tokenizer *tokenizer, int32_t id, const char **bytes_out,
        size_t *count_out)
{
    const struct vocab *vocab = &tokenizer->vocab;
    if (id < 0 || id >= vocab->ids || !vocab->tokens[id].present)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0409",
                "%d is not a token id; the vocabulary has %d tokens, the last "
                "is %d",
                id, vocab->count, vocab->ids - 1);
    *bytes_out = (const char *)vocab->text.data + vocab->tokens[id].decoded;
    *count_out = vocab->tokens[id].decoded_bytes;
    return ZD_OK;
}
