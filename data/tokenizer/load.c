/* load.c - model and added tokens of a tokenizer.json. */
#include "data/tokenizer/tokenizer_internal.h"

#include "base/log.h"
#include "base/must.h"
#include "data/tokenizer/utf8.h"

static enum zd_status broken(const char *what)
{
    return ZD_BAD("E0402", "broken tokenizer.json: %s", what);
}

/* ---- vocabulary ---- */

static enum zd_status token_id(
        const json_t *value, const char *token, int *id_out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return ZD_BAD(
                "E0404",
                "the id of token `%.200s` is not a whole number from 0", token);
    if (json_integer_value(value) >= TOKENIZER_IDS_MAX)
        return ZD_BAD(
                "E0404",
                "the id of token `%.200s` is %lld; ids have to be below %d",
                token, (long long)json_integer_value(value), TOKENIZER_IDS_MAX);
    *id_out = (int)json_integer_value(value);
    return ZD_OK;
}

/* Ids below which all tokens lie: those of the vocabulary, and as many more as
 * there are added tokens. */
static enum zd_status ids_needed(
        json_t *vocab, const json_t *added, int *capacity_out)
{
    size_t most = json_object_size(vocab), extra = json_array_size(added);
    JSON_MEMBERS(token, value, vocab) {
        int id;
        ZD_TRY(token_id(value, token, &id));
        if ((size_t)id >= most)
            most = (size_t)id + 1;
    }
    if (most + extra > TOKENIZER_IDS_MAX)
        return ZD_BAD(
                "E0404",
                "%zu ids and %zu added tokens: more than %d are not supported",
                most, extra, TOKENIZER_IDS_MAX);
    *capacity_out = (int)(most + extra);
    return ZD_OK;
}

static enum zd_status load_vocab(
        struct tokenizer *t, json_t *vocab, const json_t *added)
{
    const char *token;
    size_t bytes;
    json_t *value;
    int capacity = 0;
    if (!json_is_object(vocab))
        return broken("model.vocab is not an object");
    if (json_object_size(vocab) == 0)
        return broken("model.vocab is empty");
    ZD_TRY(ids_needed(vocab, added, &capacity));
    vocab_init(&t->vocab, capacity);
    json_object_keylen_foreach(vocab, token, bytes, value)
    {
        ZD_TRY(vocab_add(
                &t->vocab, &t->table, token, bytes,
                (int)json_integer_value(value)));
    }
    return ZD_OK;
}

/* ---- merges ---- */

static void merges_init(struct merges *merges, int count)
{
    int bits = 4;
    while ((UINT64_C(1) << bits) < (uint64_t)count * 3 / 2 + 1)
        bits++;
    size_t slots = (size_t)1 << bits;
    merges->slots = zd_array(slots, sizeof *merges->slots);
    merges->result = zd_array((size_t)count + 1, sizeof *merges->result);
    merges->shift = 64 - bits;
    merges->mask = slots - 1;
    merges->count = count;
    memset(merges->slots, 0xff, slots * sizeof *merges->slots);
}

/* After the last merge: fill byte_id, and `characters`. */
static void merges_finish(
        struct merges *merges, const struct vocab *vocab,
        const struct byte_table *table)
{
    merges->characters = table->is_fallback ? vocab : NULL;
    for (int b = 0; b < 256; b++) {
        unsigned char spelling[8];
        size_t bytes = table->is_fallback
                               ? (size_t)snprintf(
                                         (char *)spelling, sizeof spelling,
                                         "<0x%02X>", (unsigned)b)
                               : utf8_write(spelling, table->char_of[b]);
        merges->byte_id[b] = vocab_find(vocab, spelling, bytes);
    }
}

struct part { /* of a merge: left, right, result */
    const char *text;
    size_t bytes;
};

/* "left right", with exactly one space, or ["left", "right"]; false: it is
 * not. */
static bool split_merge(
        const json_t *merge, bool is_legacy, struct part parts[2])
{
    const char *text = json_string_value(merge);
    size_t bytes = json_string_length(merge);
    if (is_legacy) {
        const char *space = text ? memchr(text, ' ', bytes) : NULL;
        if (!space)
            return false;
        parts[0] = (struct part){text, (size_t)(space - text)};
        parts[1] = (struct part){space + 1, bytes - parts[0].bytes - 1};
        return !memchr(parts[1].text, ' ', parts[1].bytes);
    }
    for (size_t i = 0; i < 2; i++) {
        const json_t *item = json_array_get(merge, i);
        parts[i].text = json_string_value(item);
        parts[i].bytes = json_string_length(item);
    }
    return json_array_size(merge) == 2 && parts[0].text && parts[1].text;
}

static enum zd_status add_merge(
        struct tokenizer *t, struct part parts[3], struct byte_buffer *joined,
        size_t number, int rank)
{
    static const char *const names[] = {"left part", "right part", "result"};
    int ids[3];
    joined->count = 0;
    byte_buffer_append(joined, parts[0].text, parts[0].bytes);
    byte_buffer_append(joined, parts[1].text, parts[1].bytes);
    parts[2] = (struct part){(const char *)joined->data, joined->count};
    for (int i = 0; i < 3; i++) {
        size_t bytes = parts[i].bytes;
        ids[i] = vocab_find(&t->vocab, parts[i].text, bytes);
        if (ids[i] < 0)
            return ZD_BAD(
                    "E0405",
                    "merge %zu: its %s `%.*s` is not in the vocabulary", number,
                    names[i], (int)(bytes < 200 ? bytes : 200), parts[i].text);
    }
    /* the same pair again: the later rank counts */
    uint64_t key = (uint64_t)ids[0] << 21 | (uint64_t)ids[1];
    *merges_slot(&t->merges, ids[0], ids[1]) = key << 22 | (uint64_t)rank;
    t->merges.result[rank] = ids[2];
    return ZD_OK;
}

static enum zd_status load_each_merge(
        struct tokenizer *t, const json_t *merges, struct byte_buffer *joined)
{
    static const char version[] = "#version";
    bool is_legacy = json_is_string(json_array_get(merges, 0));
    int rank = 0;
    JSON_EACH_AT(number, merge, merges) {
        struct part parts[3];
        if (is_legacy && json_is_string(merge) &&
            strncmp(json_string_value(merge), version, strlen(version)) == 0)
            continue;
        if (!split_merge(merge, is_legacy, parts))
            return ZD_BAD(
                    "E0405", "merge %zu is not %s", number,
                    is_legacy ? "two parts with one space between"
                              : "an array of two strings");
        ZD_TRY(add_merge(t, parts, joined, number, rank++));
    }
    return ZD_OK;
}

static enum zd_status load_merges(struct tokenizer *t, const json_t *merges)
{
    ZD_SCOPED(byte_buffer_fini) struct byte_buffer joined = {0};
    if (!json_is_array(merges))
        return broken("model.merges is not an array");
    if (json_array_size(merges) >= TOKENIZER_MERGES_MAX)
        return ZD_BAD(
                "E0405", "%zu merges: only %d are supported",
                json_array_size(merges), TOKENIZER_MERGES_MAX - 1);
    merges_init(&t->merges, (int)json_array_size(merges));
    ZD_TRY(load_each_merge(t, merges, &joined));
    merges_finish(&t->merges, &t->vocab, &t->table);
    return ZD_OK;
}

/* ---- model ---- */

/* `taken`: the value that a key may have, if it has one. */
static enum zd_status check_setting(
        const json_t *model, const char *key, const char *taken)
{
    const json_t *value = json_object_get(model, key);
    if (json_is_absent(value))
        return ZD_OK;
    char text[200] = "";
    json_dumpb(value, text, sizeof text - 1, JSON_ENCODE_ANY | JSON_COMPACT);
    return strcmp(taken, text) == 0
                   ? ZD_OK
                   : ZD_BAD("E0403", "model.%s = %s is not supported", key,
                            text);
}

/* Finds the bytes after which some token continues with "▁". Text may be cut
 * before any other "▁" without changing ids, unless whole-word tokens skip the
 * merges: then only the pre-tokenizer cuts. */
static void find_joins(struct tokenizer *t)
{
    struct splitter *splitter = &t->splitter;
    const struct vocab *vocab = &t->vocab;
    if (!t->table.is_fallback || splitter->count > 0)
        return;
    if (!t->ignore_merges)
        splitter_push(splitter, SPLIT_META);
    for (int i = 0; i < t->merges.count; i++) {
        const struct vocab_token *token = &vocab->tokens[t->merges.result[i]];
        const unsigned char *text = vocab->text.data + token->spelling;
        for (size_t at = 1; at + META_BYTES <= token->spelling_bytes; at++)
            if (memcmp(text + at, META_SPACE, META_BYTES) == 0)
                splitter->joins[text[at - 1]] = true;
    }
}

/* `is_fallback`: spaces are "▁", and the vocabulary holds characters. */
static enum zd_status check_settings(const json_t *model, bool is_fallback)
{
    const json_t *type = json_object_get(model, "type");
    const json_t *ignore = json_object_get(model, "ignore_merges");
    if (type && !json_is_string(type))
        return broken("model.type is not a string");
    if (type && strcmp(json_string_value(type), "BPE") != 0)
        return ZD_BAD(
                "E0403", "model.type \"%.100s\" is not supported, only \"BPE\"",
                json_string_value(type));
    ZD_TRY(check_setting(model, "dropout", ""));
    ZD_TRY(check_setting(model, "continuing_subword_prefix", "\"\""));
    ZD_TRY(check_setting(model, "end_of_word_suffix", "\"\""));
    if (is_fallback && !json_is_true(json_object_get(model, "byte_fallback")))
        return ZD_BAD(
                "E0403", "a tokenizer that makes spaces \"" META_SPACE
                         "\" without model.byte_fallback is not supported");
    if (!is_fallback)
        ZD_TRY(check_setting(model, "byte_fallback", "false"));
    if (!json_is_absent(ignore) && !json_is_boolean(ignore))
        return broken("model.ignore_merges is neither true nor false");
    return ZD_OK;
}

enum zd_status tokenizer_load_model(struct tokenizer *t, const json_t *root)
{
    const json_t *model = json_object_get(root, "model");
    if (!json_is_object(model))
        return broken("it has no model");
    ZD_TRY(check_settings(model, t->table.is_fallback));
    ZD_TRY(load_vocab(
            t, json_object_get(model, "vocab"),
            json_object_get(root, "added_tokens")));
    ZD_TRY(load_merges(t, json_object_get(model, "merges")));
    t->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    find_joins(t);
    /* the unknown token stands for bytes that the vocabulary lacks */
    int byte = 0;
    while (byte < 256 && t->merges.byte_id[byte] >= 0)
        byte++;
    if (byte == 256)
        return ZD_OK;
    if (t->table.is_fallback)
        return ZD_BAD(
                "E0403",
                "model.byte_fallback without a token for each of the bytes "
                "<0x00> to <0xFF> is not supported");
    return check_setting(model, "unk_token", "");
}

/* ---- added tokens ---- */

static enum zd_status read_flag(
        const json_t *token, const char *key, bool fallback, bool *out)
{
    const json_t *value = json_object_get(token, key);
    *out = fallback;
    if (!value)
        return ZD_OK;
    if (!json_is_boolean(value))
        return ZD_BAD(
                "E0406", "added token `%.200s`: %s is neither true nor false",
                json_string_at(token, "content"), key);
    *out = json_is_true(value);
    return ZD_OK;
}

/* The id that the reference gives: the vocabulary's own, else the next free one
 * in the order of the file. What the file says is only compared. */
static enum zd_status added_id(
        struct tokenizer *t, const char *content, size_t bytes, int listed,
        int *most, int *id_out)
{
    struct vocab *vocab = &t->vocab;
    int id = vocab_find(vocab, content, bytes);
    if (id < 0) {
        id = *most >= t->model_tokens ? *most + 1 : t->model_tokens;
        ZD_TRY(vocab_add(vocab, &t->table, content, bytes, id));
    }
    if (id > *most)
        *most = id;
    if (id != listed)
        zd_log_warning(
                "tokenizer.json lists added token `%.200s` as %d, but Hugging "
                "Face tokenizers numbers it %d; so does zerod",
                content, listed, id);
    *id_out = id;
    return ZD_OK;
}

/* What a token is matched by: its content, normalized if it is matched so. Then
 * this is also what it decodes as. */
static void matched_content(
        struct tokenizer *t, const char *content, size_t bytes,
        struct added_token *token)
{
    struct byte_buffer normal = {0};
    if (token->normalized &&
        tokenizer_normalize(
                t, (const unsigned char *)content, bytes, true, &normal))
        vocab_set_decoded(
                &t->vocab, &t->table, normal.data, normal.count, token->id);
    else
        byte_buffer_append(&normal, content, bytes);
    token->content = normal.data;
    token->bytes = normal.count;
}

static enum zd_status load_one(
        struct tokenizer *t, const json_t *item, int *most)
{
    const json_t *content = json_object_get(item, "content");
    struct added_token token = {0};
    int listed;
    if (!json_is_string(content))
        return ZD_BAD("E0406", "an added token has no content");
    const char *text = json_string_value(content);
    size_t bytes = json_string_length(content);
    ZD_TRY(token_id(json_object_get(item, "id"), text, &listed));
    ZD_TRY(read_flag(item, "special", false, &token.special));
    ZD_TRY(read_flag(item, "normalized", !token.special, &token.normalized));
    ZD_TRY(read_flag(item, "single_word", false, &token.single_word));
    ZD_TRY(read_flag(item, "lstrip", false, &token.lstrip));
    ZD_TRY(read_flag(item, "rstrip", false, &token.rstrip));
    if (bytes == 0)
        return ZD_OK; /* as the reference: it matches nothing */
    ZD_TRY(added_id(t, text, bytes, listed, most, &token.id));
    matched_content(t, text, bytes, &token);
    struct added_set *set =
            token.normalized ? &t->added_normalized : &t->added_raw;
    ZD_GROW(set->tokens, set->capacity, set->count + 1);
    set->tokens[set->count++] = token;
    return ZD_OK;
}

enum zd_status tokenizer_load_added(struct tokenizer *t, const json_t *root)
{
    const json_t *added = json_object_get(root, "added_tokens");
    int most = -1;
    t->model_tokens = t->vocab.count;
    if (!json_is_absent(added) && !json_is_array(added))
        return broken("added_tokens is not an array");
    JSON_EACH(item, added)
        ZD_TRY(load_one(t, item, &most));
    added_set_finish(&t->added_raw);
    added_set_finish(&t->added_normalized);
    return ZD_OK;
}
