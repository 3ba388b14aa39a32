/* pipeline.c - normalizer, pre_tokenizer, post_processor and decoder
 * of a tokenizer.json. What is not supported is refused by name: a text cut in
 * another way would train a model on ids that nobody else makes. */
#include "data/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

static bool is_absent(const json_t *value)
{
    return !value || json_is_null(value);
}

static const char *type_of(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    return type ? type : "(none)";
}

static bool is_type(const json_t *part, const char *type)
{
    return strcmp(type_of(part), type) == 0;
}

static enum zd_status refuse(const char *key, const char *what)
{
    return ZD_FAIL(
            ZD_ERR_DATA, "E0403", "%s %.200s is not supported", key, what);
}

/* ---- normalizer ---- */

static enum zd_status load_normalizer(
        struct tokenizer *tokenizer, const json_t *part)
{
    if (is_absent(part))
        return ZD_OK;
    if (!is_type(part, "NFC"))
        return refuse("normalizer", type_of(part));
    tokenizer->nfc = true;
    return ZD_OK;
}

/* ---- pre_tokenizer ---- */

/* The pattern of a Split, borrowed from the JSON. */
static enum zd_status split_pattern(const json_t *part, const char **out)
{
    const json_t *pattern = json_object_get(part, "pattern");
    const json_t *regex = json_object_get(pattern, "Regex");
    const char *behavior = json_string_value(json_object_get(part, "behavior"));
    if (!json_is_string(regex))
        return refuse("pre_tokenizer", "Split without a Regex");
    if (strlen(json_string_value(regex)) != json_string_length(regex))
        return refuse("pre_tokenizer", "Split with a zero byte");
    if (!behavior || strcmp(behavior, "Isolated") != 0)
        return refuse("pre_tokenizer", "Split with a behavior but Isolated");
    if (!json_is_false(json_object_get(part, "invert")) &&
        json_object_get(part, "invert"))
        return refuse("pre_tokenizer", "Split with invert");
    *out = json_string_value(regex);
    return ZD_OK;
}

static enum zd_status byte_level_flags(
        const json_t *part, bool *add_prefix_space, bool *use_regex)
{
    const json_t *prefix = json_object_get(part, "add_prefix_space");
    const json_t *regex = json_object_get(part, "use_regex");
    if (!json_is_boolean(prefix) || (regex && !json_is_boolean(regex)))
        return ZD_FAIL(
                ZD_ERR_DATA, "E0402",
                "broken tokenizer.json: a ByteLevel pre_tokenizer needs "
                "add_prefix_space, true or false, and may have use_regex");
    *add_prefix_space = json_is_true(prefix);
    *use_regex = !regex || json_is_true(regex);
    return ZD_OK;
}

/* Sequence: one Split, then ByteLevel without its own pattern. */
static enum zd_status sequence_pattern(
        const json_t *sequence, const char **pattern_out)
{
    const json_t *parts = json_object_get(sequence, "pretokenizers");
    const json_t *split = json_array_get(parts, 0);
    const json_t *bytes = json_array_get(parts, 1);
    bool add_prefix_space = false, use_regex = false;
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        if (!is_type(part, "Split") && !is_type(part, "ByteLevel"))
            return refuse("pre_tokenizer", type_of(part));
    }
    if (json_array_size(parts) != 2 || !is_type(split, "Split") ||
        !is_type(bytes, "ByteLevel"))
        return refuse(
                "pre_tokenizer",
                "Sequence of anything but one Split and one ByteLevel");
    ZD_TRY(split_pattern(split, pattern_out));
    ZD_TRY(byte_level_flags(bytes, &add_prefix_space, &use_regex));
    if (use_regex || add_prefix_space)
        return refuse(
                "pre_tokenizer",
                "ByteLevel behind a Split with use_regex or add_prefix_space");
    return ZD_OK;
}

static enum zd_status load_pre_tokenizer(
        struct tokenizer *tokenizer, const json_t *part)
{
    const char *pattern = NULL;
    bool use_regex = false;
    if (is_absent(part))
        return refuse("pre_tokenizer", "null");
    if (is_type(part, "ByteLevel")) {
        ZD_TRY(byte_level_flags(
                part, &tokenizer->add_prefix_space, &use_regex));
        if (use_regex)
            pattern = split_pattern_gpt2;
    } else if (is_type(part, "Sequence")) {
        ZD_TRY(sequence_pattern(part, &pattern));
    } else {
        return refuse("pre_tokenizer", type_of(part));
    }
    return splitter_init(&tokenizer->splitter, pattern, false);
}

/* ---- post_processor ---- */

static enum zd_status add_prefix(
        struct tokenizer *tokenizer, const json_t *ids, const char *name)
{
    size_t count = json_array_size(ids), i;
    json_t *id;
    int32_t *grown = realloc(
            tokenizer->prefix,
            ((size_t)tokenizer->prefix_count + count + 1) * sizeof *grown);
    if (!grown)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0410", "no memory for a prefix");
    tokenizer->prefix = grown;
    json_array_foreach(ids, i, id)
    {
        json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 ||
            value >= tokenizer->vocab.ids ||
            !tokenizer->vocab.tokens[value].present)
            return ZD_FAIL(
                    ZD_ERR_DATA, "E0407",
                    "post_processor: an id of `%.200s` is no token", name);
        tokenizer->prefix[tokenizer->prefix_count++] = (int32_t)value;
    }
    return ZD_OK;
}

/* `single`: special tokens, then the text. */
static enum zd_status load_template(
        struct tokenizer *tokenizer, const json_t *part)
{
    const json_t *single = json_object_get(part, "single");
    const json_t *tokens = json_object_get(part, "special_tokens");
    json_t *piece;
    size_t i;
    bool has_text = false;
    if (!json_is_array(single))
        return refuse("post_processor", "TemplateProcessing without a list");
    json_array_foreach(single, i, piece)
    {
        const json_t *special = json_object_get(piece, "SpecialToken");
        const json_t *text = json_object_get(piece, "Sequence");
        const char *name = json_string_value(json_object_get(special, "id"));
        if (has_text)
            return refuse(
                    "post_processor",
                    "TemplateProcessing with something behind the text");
        if (json_is_object(text)) {
            has_text = true;
            continue;
        }
        const json_t *ids = json_object_get(
                name ? json_object_get(tokens, name) : NULL, "ids");
        if (!json_is_array(ids))
            return ZD_FAIL(
                    ZD_ERR_DATA, "E0407",
                    "post_processor: special token `%.200s` has no ids",
                    name ? name : "?");
        ZD_TRY(add_prefix(tokenizer, ids, name));
    }
    if (!has_text)
        return refuse("post_processor", "TemplateProcessing without the text");
    return ZD_OK;
}

static enum zd_status load_post_processor(
        struct tokenizer *tokenizer, const json_t *part)
{
    const json_t *processors = json_object_get(part, "processors");
    size_t i;
    json_t *inner;
    int templates = 0;
    if (is_absent(part) || is_type(part, "ByteLevel"))
        return ZD_OK;
    if (is_type(part, "TemplateProcessing"))
        return load_template(tokenizer, part);
    if (!is_type(part, "Sequence"))
        return refuse("post_processor", type_of(part));
    json_array_foreach(processors, i, inner)
    {
        if (is_type(inner, "ByteLevel"))
            continue;
        if (!is_type(inner, "TemplateProcessing"))
            return refuse("post_processor", type_of(inner));
        if (templates++ > 0)
            return refuse("post_processor", "Sequence of two templates");
        ZD_TRY(load_template(tokenizer, inner));
    }
    return ZD_OK;
}

/* ---- the rest ---- */

static enum zd_status check_others(const json_t *root)
{
    static const char *const keys[] = {"truncation", "padding"};
    const json_t *decoder = json_object_get(root, "decoder");
    if (!is_type(decoder, "ByteLevel"))
        return refuse(
                "decoder", is_absent(decoder) ? "null" : type_of(decoder));
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        if (is_absent(json_object_get(root, keys[k])))
            continue;
        enum zd_status status = refuse(keys[k], "(not null)");
        zd_fail_help("set %s to null in the file", keys[k]);
        return status;
    }
    return ZD_OK;
}

enum zd_status tokenizer_load_pipeline(
        struct tokenizer *tokenizer, const json_t *root)
{
    ZD_TRY(load_normalizer(tokenizer, json_object_get(root, "normalizer")));
    ZD_TRY(load_pre_tokenizer(
            tokenizer, json_object_get(root, "pre_tokenizer")));
    return check_others(root);
}

enum zd_status tokenizer_load_prefix(
        struct tokenizer *tokenizer, const json_t *root)
{
    return load_post_processor(
            tokenizer, json_object_get(root, "post_processor"));
}
