#include "train/text/text.h"

#include "base/file/fs.h"
#include "base/log.h"
#include "base/text_buffer.h"
#include "data/source.h"
#include "model/files/hf_names.h"

#include <limits.h>
#include <string.h>

static bool has_file(const char *dir, const char *name)
{
    return fs_exists(fs_in(dir, name).text);
}

/* A byte tokenizer has no tokenizer.json: models trained with it are exported
 * with this file, so that they can be trained again. */
#define BYTES_KEY "zerod_tokenizer"
static const char bytes_config[] = "{\"" BYTES_KEY "\": \"bytes\"}\n";

static bool says_bytes(const char *dir)
{
    enum { CONFIG_BYTES_MAX = 16 << 20 };
    const struct fs_path path = fs_in(dir, "tokenizer_config.json");
    json_auto_t *config = NULL;
    if (!fs_exists(path.text))
        return false;
    if (json_parse_file(path.text, CONFIG_BYTES_MAX, &config) != ZD_OK)
        zd_error_clear(); /* unreadable: no */
    const char *word = json_string_at(config, BYTES_KEY);
    return word && text_is_bytes(word);
}

static enum zd_status open_bytes(struct text *text)
{
    text->config = bytes_config;
    return tokenizer_open_bytes(&text->tokenizer);
}

static bool all_tokens(const struct data_entry *entries, int count)
{
    for (int i = 0; i < count; i++)
        if (!source_is_tokens(
                    &entries[i], entries[i].path ? entries[i].path : ""))
            return false;
    return true;
}

static bool all_tokenized(const struct data_options *data)
{
    return all_tokens(data->train, data->train_count) &&
           all_tokens(data->eval, data->eval_count);
}

static enum zd_status check_vocabulary(
        const struct text *text, const struct model_config *config,
        const char *path)
{
    int ids = tokenizer_facts(text->tokenizer)->vocab_size;
    if (ids <= config->vocab_size)
        return ZD_OK;
    ZD_BAD("E0447",
           "the tokenizer (%s) has %d ids, the model's vocab_size is %d",
           tokenizer_facts(text->tokenizer)->describe, ids, config->vocab_size);
    if (path)
        zd_fail_where("%s", path);
    zd_fail_help(
            "use the model's own tokenizer, or a vocab_size of at least %d; "
            "with [lora], modules_to_save with the embedding adds rows",
            ids);
    return ZD_ERR_DATA;
}

/* `path`: the tokenizer's file; NULL for the byte tokenizer. */
static enum zd_status finish(
        struct text *text, const struct model_config *config, const char *path)
{
    enum zd_status status = ZD_OK;
    text->turn_end = -1;
    text->eos = text->tokenizer ? tokenizer_facts(text->tokenizer)->eos : -1;
    if (text->eos < 0)
        text->eos = config->eos_token_id;
    if (text->tokenizer)
        status = check_vocabulary(text, config, path);
    if (status != ZD_OK)
        text_close(text);
    return status;
}

bool text_is_bytes(const char *tokenizer)
{
    return strcmp(tokenizer, "bytes") == 0;
}

enum zd_status text_check(const struct train_job *job)
{
    const char *dir = job->model.path;
    struct text_buffer quoted = TEXT_BUFFER(2 * PATH_MAX);
    bool is_named = job->model.tokenizer && job->model.tokenizer[0];
    if (is_named || !dir || train_tokenizer(job) || says_bytes(dir) ||
        all_tokenized(&job->data))
        return ZD_OK;
    text_buffer_add_word(&quoted, dir);
    ZD_FAIL(ZD_ERR_NO_INPUT, "E0401",
            "%s has no tokenizer.json, and the data is text", dir);
    if (has_file(dir, "tokenizer.model") || has_file(dir, "vocab.json") ||
        has_file(dir, "tokenizer_config.json"))
        zd_fail_help(
                "python3 -c \"import sys, transformers as t; d = sys.argv[1]; "
                "t.AutoTokenizer.from_pretrained(d).save_pretrained(d)\" %s\n"
                "makes one of the files that are there; "
                "tokenizer = \"bytes\" in [model] takes bytes for tokens",
                quoted.out);
    else
        zd_fail_help("tokenizer = \"PATH\" in [model] names one; tokenizer = "
                     "\"bytes\" takes bytes for tokens");
    return ZD_ERR_NO_INPUT;
}

static void warn_of_rows(
        const struct train_job *job, const struct text *text,
        const struct model_config *config)
{
    int ids = tokenizer_facts(text->tokenizer)->vocab_size;
    if (job->model.config && ids < config->vocab_size &&
        !json_object_get(job->model.config, "vocab_size"))
        zd_log_warning(
                "[model.config] has no vocab_size: the model has %d rows, the "
                "default of %s, and the tokenizer %d ids",
                config->vocab_size, config->family->name, ids);
}

enum zd_status text_open(
        const struct train_job *job, const struct model_config *config,
        struct text *text)
{
    const char *named = job->model.tokenizer, *path = train_tokenizer(job);
    bool is_named = named && named[0];
    memset(text, 0, sizeof *text);
    ZD_TRY(text_check(job));
    if (path)
        ZD_TRY(tokenizer_open(path, &text->tokenizer));
    else if (is_named || !all_tokenized(&job->data))
        ZD_TRY(open_bytes(text));
    if (path && fs_is_dir(path))
        text->dir = path;
    ZD_TRY(finish(text, config, path));
    if (text->tokenizer)
        warn_of_rows(job, text, config);
    return ZD_OK;
}

struct dataset_request text_request(
        const struct train_job *job, const struct text *text, int vocab_size,
        bool eval)
{
    const struct data_options *data = &job->data;
    bool split = data->eval_count == 0 && data->val_split > 0;
    bool from_train = !eval || split;
    return (struct dataset_request){
            .options = data,
            .entries = from_train ? data->train : data->eval,
            .entry_count = from_train ? data->train_count : data->eval_count,
            .tokenizer = text->tokenizer,
            .eos = text->eos,
            .vocab_size = vocab_size,
            .template_date = data->template_date,
            .data_seed = job->job.data_seed,
            .shuffle = !eval && data->shuffle != SHUFFLE_NO,
            .from = eval && split ? 1.0 - data->val_split : 0.0,
            .to = !eval && split ? 1.0 - data->val_split : 1.0,
    };
}

enum zd_status text_open_dir(
        const char *dir, const struct model_config *config, struct text *text)
{
    memset(text, 0, sizeof *text);
    if (has_file(dir, "tokenizer.json")) {
        ZD_TRY(tokenizer_open(dir, &text->tokenizer));
        text->dir = dir;
    } else {
        if (!says_bytes(dir))
            zd_log_warning(
                    "%s has no tokenizer.json: bytes are its tokens", dir);
        ZD_TRY(open_bytes(text));
    }
    return finish(text, config, text->dir);
}

void text_close(struct text *text)
{
    tokenizer_close(text->tokenizer);
    text->tokenizer = NULL;
}

bool text_ends(
        const struct text *text, const struct model_config *config, int32_t id)
{
    const json_t *listed = json_object_get(
            text_config_of(config->json, config), "eos_token_id");
    if (id == text->eos || id == text->turn_end || id == config->eos_token_id)
        return true;
    JSON_EACH(value, listed)
        if (json_is_integer(value) && json_integer_value(value) == id)
            return true;
    return false;
}
