#include "model/config_keys.h"
#include "base/must.h"
#include "base/suggest.h"
#include "base/words.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* Keys of every family, after its own. */
static const struct config_key common[] = {
        {"initializer_range", CONFIG_REAL, CONFIG_AT(initializer_range), 0.02,
         0, CONFIG_WRITTEN},
        {"model_type"},
        {"architectures"},
        {"dtype"},
        {"torch_dtype"},
        {"transformers_version"},
        {"use_cache"},
        {"pad_token_id"},
        {"quantization_config", CONFIG_NULL},
        {"num_experts", CONFIG_FALSE},
        {"num_local_experts", CONFIG_FALSE},
        {"n_routed_experts", CONFIG_FALSE},
        {"moe_intermediate_size", CONFIG_FALSE},
        {"vision_config", CONFIG_NULL},
        {"text_config", CONFIG_NULL},
        {"pruned_heads", CONFIG_FALSE},
        {"is_encoder_decoder", CONFIG_FALSE},
        {"add_cross_attention", CONFIG_FALSE},
        {"use_bidirectional_attention", CONFIG_FALSE},
        {"final_logit_softcapping", CONFIG_NULL},
        {"attn_logit_softcapping", CONFIG_NULL},
        {"logit_scale", CONFIG_ONE},
        {"logits_scaling", CONFIG_ONE},
        {"embedding_multiplier", CONFIG_ONE},
        {"residual_multiplier", CONFIG_ONE},
        {"attention_multiplier", CONFIG_NULL},
        {0},
};

/* Keys of any model in transformers 4 and 5: outputs of a class, generation,
 * labels. None changes the arithmetic. */
static const char generic_keys[] =
        "_attn_implementation _name_or_path attn_implementation auto_map"
        " bad_words_ids begin_suppress_tokens chunk_size_feed_forward"
        " cross_attention_hidden_size decoder_start_token_id diversity_penalty"
        " do_sample early_stopping encoder_no_repeat_ngram_size"
        " exponential_decay_length_penalty finetuning_task forced_bos_token_id"
        " forced_eos_token_id id2label is_decoder label2id length_penalty"
        " max_length min_length no_repeat_ngram_size num_beam_groups num_beams"
        " num_return_sequences output_attentions output_hidden_states"
        " output_scores prefix problem_type remove_invalid_values"
        " repetition_penalty return_dict return_dict_in_generate sep_token_id"
        " suppress_tokens task_specific_params temperature tf_legacy_loss"
        " tie_encoder_decoder tokenizer_class top_k top_p torchscript typical_p"
        " use_bfloat16";

/* The row after `key` in both tables (NULL: the first row). The first row of a
 * name counts. */
static const struct config_key *next_key(
        const struct model_family *family, const struct config_key *key)
{
    const struct config_key *row;
    do {
        key = key ? key + 1 : family->keys;
        if (key == common + sizeof common / sizeof *common - 1)
            return NULL;
        key = key->name ? key : common;
        row = family->keys;
        while (row->name && row != key && strcmp(row->name, key->name) != 0)
            row++;
    } while (row->name && row != key);
    return key;
}

const char *config_text(const json_t *value, char out[CONFIG_TEXT])
{
    memset(out, 0, CONFIG_TEXT);
    json_dumpb(value, out, CONFIG_TEXT - 1, JSON_ENCODE_ANY | JSON_COMPACT);
    return out[0] ? out : "absent";
}

enum zd_status config_wrong(
        const struct config_reader *r, const char *key, const char *expected)
{
    char text[CONFIG_TEXT];
    return config_fail(
            r, r->wrong, "`%s` must be %s, not %s", key, expected,
            config_text(json_object_get(r->json, key), text));
}

/* --- values --------------------------------------------------------------- */

const json_t *config_get(const struct config_reader *r, const char *key)
{
    const json_t *value = json_object_get(r->json, key);
    return json_is_null(value) ? NULL : value;
}

enum zd_status config_read_int(
        const struct config_reader *r, const char *key, int absent, int max,
        int *out)
{
    const json_t *value = config_get(r, key);
    *out = absent;
    if (!value)
        return ZD_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 1 ||
        json_integer_value(value) > max) {
        char expected[64];
        ZD_PRINT(expected, "an integer from 1 to %d", max);
        return config_wrong(r, key, expected);
    }
    *out = (int)json_integer_value(value);
    return ZD_OK;
}

enum zd_status config_read_real(
        const struct config_reader *r, const char *key, double absent,
        double *out)
{
    const json_t *value = config_get(r, key);
    *out = absent;
    if (!value)
        return ZD_OK;
    if (!json_is_number(value) || !isfinite(json_number_value(value)) ||
        json_number_value(value) < 0)
        return config_wrong(r, key, "a number, not negative");
    *out = json_number_value(value);
    return ZD_OK;
}

/* The default of transformers' class is not used where the vocabulary is too
 * small for it. */
static enum zd_status read_token(
        const struct config_reader *r, const struct config_key *key,
        int vocab_size, int *out)
{
    const json_t *value = json_object_get(r->json, key->name);
    *out = value || key->absent >= vocab_size ? -1 : (int)key->absent;
    if (json_is_array(value))
        value = json_array_get(value, 0);
    if (!value || json_is_null(value))
        return ZD_OK;
    if (!json_is_integer(value) || json_integer_value(value) < -1 ||
        json_integer_value(value) > INT_MAX)
        return config_wrong(r, key->name, "a token id or a list of them");
    *out = (int)json_integer_value(value);
    return ZD_OK;
}

static enum zd_status read_value(
        const struct config_reader *r, const struct config_key *key,
        struct model_config *config)
{
    double dropout;
    const json_t *value = config_get(r, key->name);
    void *out = (char *)config + key->field;
    bool derives = key->flags & CONFIG_NULL_DERIVES &&
                   json_object_get(r->json, key->name);
    switch (key->kind) {
    case CONFIG_INT:
        return config_read_int(
                r, key->name, derives ? 0 : (int)key->absent, key->max, out);
    case CONFIG_BOOL:
        *(bool *)out = value ? json_is_true(value) : key->absent != 0;
        return !value || json_is_boolean(value)
                       ? ZD_OK
                       : config_wrong(r, key->name, "true or false");
    case CONFIG_REAL:
        return config_read_real(r, key->name, derives ? 0 : key->absent, out);
    case CONFIG_TOKEN:
        return read_token(r, key, config->vocab_size, out);
    case CONFIG_DROPOUT:
        ZD_TRY(config_read_real(r, key->name, key->absent, &dropout));
        config->has_dropout |= dropout > 0;
        return ZD_OK;
    default:
        return ZD_OK;
    }
}

/* --- keys that we do not support, or do not know -------------------------- */

/* All names that transformers has for one function. */
static const char *activation_names(enum config_kind kind)
{
    return kind == CONFIG_SILU ? "silu, swish"
           : kind == CONFIG_GELU_TANH
                   ? "gelu_pytorch_tanh, gelu_new, gelu_fast, gelu_accurate, "
                     "gelu_python_tanh"
                   : NULL;
}

bool config_is_neutral(const json_t *value, enum config_kind kind)
{
    if (!value || json_is_null(value))
        return true;
    switch (kind) {
    case CONFIG_NULL:
        return false;
    case CONFIG_FALSE:
        return json_is_false(value) ||
               (json_is_number(value) && json_number_value(value) == 0) ||
               (json_is_array(value) && json_array_size(value) == 0) ||
               (json_is_object(value) && json_object_size(value) == 0);
    case CONFIG_ONE:
        return json_is_true(value) ||
               (json_is_number(value) && json_number_value(value) == 1);
    case CONFIG_SILU:
    case CONFIG_GELU_TANH:
        return json_is_string(value) &&
               words_have(
                       activation_names(kind), ", ", json_string_value(value));
    default:
        return true;
    }
}

enum zd_status config_refuse(
        const struct config_reader *reader, const char *key,
        enum config_kind kind)
{
    const char *names = activation_names(kind);
    if (strcmp(key, "quantization_config") == 0) {
        config_lacks(
                reader,
                "the model is quantized (`quantization_config`), and quantized "
                "weights cannot be trained");
        return zd_fail_help("[lora] with enabled = true trains adapters on it");
    }
    char text[CONFIG_TEXT];
    enum zd_status status = config_lacks(
            reader, "`%s` = %s is not supported", key,
            config_text(json_object_get(reader->json, key), text));
    return names ? zd_fail_help(
                           "a model of this type can have %s, which are one "
                           "function",
                           names)
                 : status;
}

enum zd_status config_unknown(
        const struct config_reader *reader, struct model_config *config,
        const char *name, const char *nearest)
{
    size_t used = strlen(config->unknown);
    if (reader->on_error != ZD_ERR_CONFIG) {
        snprintf(
                config->unknown + used, sizeof config->unknown - used,
                "%s`%.64s`", used ? ", " : "", name);
        return ZD_OK;
    }
    enum zd_status status =
            config_fail(reader, "E0305", "unknown key `%.80s`", name);
    return nearest ? zd_fail_help("did you mean `%s`?", nearest) : status;
}

static enum zd_status check_known(
        const struct config_reader *reader, struct model_config *config,
        const char *name)
{
    const char *nearest = NULL;
    int distance = 4; /* at this distance it is another word */
    for (const struct config_key *key = NULL;
         (key = next_key(config->family, key));) {
        int d = edit_distance(name, key->name);
        if (strcmp(name, key->name) == 0)
            return ZD_OK;
        if (d < distance)
            distance = d, nearest = key->name;
    }
    return words_have(generic_keys, " ", name)
                   ? ZD_OK
                   : config_unknown(reader, config, name, nearest);
}

/* --- a configuration ------------------------------------------------------ */

enum zd_status config_keys_read(
        const struct config_reader *reader, struct model_config *config)
{
    const struct model_family *family = config->family;
    const struct config_key *key;
    for (key = NULL; (key = next_key(family, key));)
        if (!config_is_neutral(
                    json_object_get(reader->json, key->name), key->kind))
            return config_refuse(reader, key->name, key->kind);
    JSON_MEMBERS(name, value, reader->json)
        ZD_TRY(check_known(reader, config, name));
    for (key = NULL; (key = next_key(family, key));)
        ZD_TRY(read_value(reader, key, config));
    return ZD_OK;
}

static json_t *token_or_null(int id)
{
    return id < 0 ? json_null() : json_integer(id);
}

/* Adds the key unless it exists; takes ownership of `value`. */
static void add_missing(json_t *json, const char *key, json_t *value)
{
    if (json_object_get(json, key))
        json_decref(value);
    else
        json_object_set_new(json, key, value);
}

json_t *config_keys_complete(
        const struct config_reader *reader, const struct model_config *config)
{
    const struct model_family *family = config->family;
    json_t *json = zd_must(json_deep_copy(reader->json));
    add_missing(json, "model_type", json_string(family->name));
    add_missing(json, "architectures", json_pack("[s]", family->architecture));
    for (const struct config_key *key = NULL; (key = next_key(family, key));) {
        const void *field = (const char *)config + key->field;
        if (key->flags & CONFIG_WRITTEN)
            add_missing(
                    json, key->name,
                    key->kind == CONFIG_INT ? json_integer(*(const int *)field)
                    : key->kind == CONFIG_REAL
                            ? json_real(*(const double *)field)
                            : json_boolean(*(const bool *)field));
    }
    if (config->rope_count == 1 && !json_object_get(json, "rope_parameters"))
        json_object_set_new(
                json, "rope_theta", json_real(config->ropes[0].theta));
    add_missing(json, "bos_token_id", token_or_null(config->bos_token_id));
    add_missing(json, "eos_token_id", token_or_null(config->eos_token_id));
    if (family->window == WINDOW_ALL && reader->on_error == ZD_ERR_CONFIG)
        add_missing(json, "sliding_window", json_null());
    return json;
}
