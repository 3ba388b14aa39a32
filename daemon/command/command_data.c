/* command_data.c - text to token ids and back. */
#include "base/file/fs.h"
#include "base/printable.h"
#include "daemon/command/cli.h"
#include "data/tokenizer/tokenizer.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX_BYTES ((uint64_t)1 << 40)

/* Lines before `offset`, from 1. */
static size_t line_at(const char *text, size_t offset)
{
    size_t line = 1;
    const char *end = text + offset;
    while ((text = memchr(text, '\n', (size_t)(end - text)))) {
        line++;
        text++;
    }
    return line;
}

static enum zd_status encode(
        const struct tokenizer *tokenizer, const char *path, const char *text,
        size_t bytes)
{
    struct token_vector ids = {0};
    size_t bad = utf8_valid_prefix(text, bytes);
    if (bad < bytes) {
        ZD_FAIL(ZD_ERR_DATA, "E0422",
                "invalid UTF-8 in line %zu, byte offset %zu",
                line_at(text, bad), bad);
        zd_fail_where("%s:%zu", path, line_at(text, bad));
        return ZD_ERR_DATA;
    }
    struct encoder *encoder = encoder_create(tokenizer);
    enum zd_status status = encoder_encode(
            encoder, text, bytes, ENCODE_ADDED_TOKENS, &ids, NULL);
    for (size_t i = 0; status == ZD_OK && i < ids.count; i++)
        printf("%d\n", ids.ids[i]);
    token_vector_fini(&ids);
    encoder_destroy(encoder);
    return status;
}

enum zd_status command_data_encode(
        struct cli_args *args, int *argc, char ***argv)
{
    const char *path = args->line.operands[0];
    struct tokenizer *tokenizer;
    char *text;
    size_t bytes;
    ZD_TRY(tokenizer_open(args->tokenizer, &tokenizer));
    enum zd_status status = fs_read_file(path, FILE_MAX_BYTES, &text, &bytes);
    if (status == ZD_OK) {
        status = encode(tokenizer, path, text, bytes);
        free(text);
    }
    tokenizer_close(tokenizer);
    return status;
}

/* --- decode --- */

static enum zd_status parse_id(
        const char *text, const char *path, size_t line, int32_t *id_out)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    size_t length = strlen(text);
    if (errno || !isdigit((unsigned char)text[0]) || end != text + length ||
        value > INT32_MAX) {
        ZD_FAIL(ZD_ERR_DATA, "E0423", "`%.40s` is not a token id", text);
        zd_fail_where("%s:%zu", path, line);
        return ZD_ERR_DATA;
    }
    *id_out = (int32_t)value;
    return ZD_OK;
}

/* Look up every id before writing: a bad one must not leave half a text. */
static enum zd_status read_ids(
        const struct tokenizer *tokenizer, const char *path, char *text,
        size_t bytes, struct token_vector *ids)
{
    size_t line = 0;
    for (char *at = text, *end = text + bytes; at < end;) {
        char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((newline ? newline : end) - at);
        const char *token;
        size_t count;
        int32_t id;
        line++;
        at[length] = '\0'; /* the text is NUL-terminated */
        for (size_t i = length; i && strchr(" \t\r", at[i - 1]); i--)
            at[i - 1] = '\0';
        if (at[0]) {
            ZD_TRY(parse_id(at, path, line, &id));
            if (tokenizer_token_bytes(tokenizer, id, &token, &count) != ZD_OK) {
                zd_fail_where("%s:%zu", path, line);
                return ZD_ERR_DATA;
            }
            token_vector_push(ids, id);
        }
        at += length + 1;
    }
    return ZD_OK;
}

enum zd_status command_data_decode(
        struct cli_args *args, int *argc, char ***argv)
{
    const char *path = args->line.operands[0], *token;
    struct token_vector ids = {0};
    struct printable to = printable_to(stdout);
    struct tokenizer *tokenizer;
    char *text;
    size_t bytes, count;
    ZD_TRY(tokenizer_open(args->tokenizer, &tokenizer));
    enum zd_status status = fs_read_file(path, FILE_MAX_BYTES, &text, &bytes);
    if (status == ZD_OK) {
        status = read_ids(tokenizer, path, text, bytes, &ids);
        free(text);
    }
    for (size_t i = 0; status == ZD_OK && i < ids.count; i++) {
        status = tokenizer_token_bytes(tokenizer, ids.ids[i], &token, &count);
        bool strips = status == ZD_OK && i == 0 && count > 0 &&
                      token[0] == ' ' && tokenizer_strips_space(tokenizer);
        if (status == ZD_OK)
            printable_put(&to, token + strips, count - strips);
    }
    printable_end(&to);
    token_vector_fini(&ids);
    tokenizer_close(tokenizer);
    return status;
}
