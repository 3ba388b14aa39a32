#include "tests/data/data_case.h"

#include <glob.h>

void data_case_init(struct data_case *test, const char *fixture)
{
    char path[PATH_MAX];
    memset(test, 0, sizeof *test);
    scratch_init(&test->scratch);
    snprintf(test->cache, sizeof test->cache, "%s/cache", test->scratch.dir);
    snprintf(
            path, sizeof path, "%s/tokenizers/%s", ZD_FIXTURES,
            fixture ? fixture : "");
    if ((fixture ? tokenizer_open(path, &test->tokenizer)
                 : tokenizer_open_bytes(&test->tokenizer)) != ZD_OK)
        abort();
    test->options = data_options_default();
    test->options.cutoff_len = 8;
    test->options.packing = PACKING_STREAM;
    test->options.cache_dir = test->cache;
    test->options.preprocessing_threads = 1;
    test->entry = data_entry_default();
    test->request = (struct dataset_request){
            .options = &test->options,
            .entries = &test->entry,
            .entry_count = 1,
            .tokenizer = test->tokenizer,
            .eos = tokenizer_facts(test->tokenizer)->eos,
            .vocab_size = tokenizer_facts(test->tokenizer)->vocab_size,
            .data_seed = 1,
            .depth = DATA_CHECK,
            .to = 1,
    };
}

void data_case_fini(struct data_case *test)
{
    tokenizer_close(test->tokenizer);
    scratch_fini(&test->scratch);
    zd_error_clear();
}

void data_case_file(
        struct data_case *test, const char *name, const void *data,
        size_t bytes)
{
    scratch_file(&test->scratch, name, data, bytes);
    strcpy(test->path, test->scratch.path);
    test->entry.path = test->path;
}

void data_case_text(struct data_case *test, const char *name, const char *text)
{
    data_case_file(test, name, text, strlen(text));
}

static void render(
        FILE *out, const struct data_case *test, const uint32_t *words,
        size_t count)
{
    bool masked = false;
    for (size_t i = 0; i < count; i++) {
        int32_t id = (int32_t)(words[i] & WORD_ID);
        bool trained = words[i] & WORD_TRAIN;
        const char *bytes;
        size_t length;
        if (masked && (trained || words[i] & WORD_FIRST)) {
            fputc(']', out);
            masked = false;
        }
        if (words[i] & WORD_FIRST)
            fputc('|', out);
        if (!trained && !masked) {
            fputc('[', out);
            masked = true;
        }
        if (tokenizer_token_bytes(test->tokenizer, id, &bytes, &length) !=
            ZD_OK)
            abort();
        if (id == test->request.eos)
            fputc('$', out);
        else if (length > 2 && bytes[0] == '<')
            fprintf(out, "<%d>", id);
        else
            fwrite(bytes, 1, length, out);
    }
    if (masked)
        fputc(']', out);
}

enum zd_status data_case_corpus(struct data_case *test, struct corpus *corpus)
{
    enum zd_status status = corpus_find(&test->request, &test->entry, corpus);
    ZD_THEN(status, corpus_open(corpus, &test->request));
    if (status != ZD_OK)
        corpus_close(corpus);
    return status;
}

char *data_case_words(struct data_case *test)
{
    struct corpus corpus;
    char *text = NULL;
    size_t bytes;
    if (data_case_corpus(test, &corpus) != ZD_OK)
        return NULL;
    uint32_t *words = calloc(corpus.count + 1, sizeof *words);
    FILE *out = open_memstream(&text, &bytes);
    if (!words || !out)
        abort();
    enum zd_status status =
            corpus_words(&corpus, 0, (size_t)corpus.count, words);
    if (status == ZD_OK)
        render(out, test, words, (size_t)corpus.count);
    fclose(out);
    free(words);
    corpus_close(&corpus);
    if (status == ZD_OK)
        return text;
    free(text);
    return NULL;
}

struct dataset *data_case_open(struct data_case *test)
{
    struct dataset *dataset = NULL;
    return dataset_open(&test->request, &dataset) == ZD_OK ? dataset : NULL;
}

int data_case_cached(const struct data_case *test)
{
    char pattern[PATH_MAX + 8];
    glob_t found = {0};
    snprintf(pattern, sizeof pattern, "%s/*", test->cache);
    int count = glob(pattern, 0, NULL, &found) == 0 ? (int)found.gl_pathc : 0;
    globfree(&found);
    return count;
}
