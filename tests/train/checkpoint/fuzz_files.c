/* fuzz_files.c - files that come with a checkpoint or a download, or lie in a
 * shared cache, as someone may have changed them. Digests are right again, and
 * most headers of tensors are sound.
 *
 *   fuzz_files manifest|cache|quantized|adapter SECONDS [SEED]
 *
 * Beside what the sanitizers see: what is refused has a code and is
 * ZD_ERR_DATA, or ZD_ERR_NO_INPUT where a file that is named is missing; what
 * is taken can be read to its end, in memory that small files can need. */
#include "tests/train/checkpoint/fuzz_files.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/must.h"
#include "data/token_cache.h"
#include "data/tokenize.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/pieces.h"

static struct scratch scratch;
static uint64_t inputs; /* so far */

void fuzz_need(bool is_good, const char *what)
{
    if (is_good)
        return;
    fprintf(stderr, "fuzz_files: input %llu: %s: %s\n",
            (unsigned long long)inputs, what, zd_error_get()->what);
    abort();
}

void fuzz_need_refusal(enum zd_status status)
{
    bool is_known = status == ZD_ERR_DATA || status == ZD_ERR_NO_INPUT;
    fuzz_need(
            is_known && zd_error_get()->code[0] == 'E',
            "a refusal of another kind, or without a code");
    zd_error_clear();
}

size_t fuzz_mutate(char *data, size_t bytes, size_t max, uint64_t *state)
{
    static const char *const words[] = {
            "0",  "-1", "4294967296", "9223372036854775807", "1e308", "256",
            "\"", "{}", "[[",         "18446744073709551615"};
    size_t at = (size_t)(fuzz_next(state) % bytes);
    if (fuzz_next(state) % 4 == 0) {
        data[at] ^= (char)(1u << fuzz_next(state) % 8);
        return bytes;
    }
    const char *word = words[fuzz_next(state) % 10];
    size_t length = strlen(word), end;
    while (at < bytes && (data[at] < '0' || data[at] > '9'))
        at++;
    for (end = at; end < bytes && data[end] >= '0' && data[end] <= '9'; end++)
        ;
    if (at == bytes || bytes - (end - at) + length > max)
        return bytes;
    memmove(data + at + length, data + end, bytes - end);
    memcpy(data + at, word, length);
    return bytes - (end - at) + length;
}

/* --- a manifest and its shard --- */

enum { ELEMENTS = 512, COLUMNS = 512, ROWS = 4 };

static const char shard_name[] = "shard-00001-of-00001.safetensors";
static const char sound[] =
        "{\"format\": 6, \"step\": 2, \"world\": 1, \"stage\": 2, "
        "\"last_event\": 3, \"progress\": {\"samples_taken\": 8, "
        "\"tokens_seen\": 256, \"applied_steps\": 2, \"max_steps\": 9}, "
        "\"live\": {\"accumulation\": 2, \"global_batch\": 4, \"rate_set\": "
        "0.5, \"rate_base\": 0.5, \"max_grad_norm\": null}, \"tensors\": "
        "{\"b\": [4, 512]}, "
        "\"files\": [{\"name\": \"shard-00001-of-00001.safetensors\", "
        "\"bytes\": %llu, \"holds\": [\"a@0+512 master F32 0123456789abcdef m "
        "U8 0123456789abcdef m_scale F32 0123456789abcdef v_blocks F32 "
        "0123456789abcdef\", \"b[0:256]@0+512 master F32 0123456789abcdef m U8 "
        "0123456789abcdef m_scale F32 0123456789abcdef\", \"b[0:256]@512+512 "
        "master F32 0123456789abcdef m U8 0123456789abcdef m_scale F32 "
        "0123456789abcdef\", \"b[256:384,384:512]@0+1024 master F32 "
        "0123456789abcdef m U8 0123456789abcdef m_scale F32 "
        "0123456789abcdef\"]}]}";

static uint64_t write_shard(void)
{
    static const struct st_entry entries[] = {
            {"v_blocks/a@0", "F32", 1, {3}},
            {"master/a@0", "F32", 1, {ELEMENTS}},
            {"m/a@0", "U8", 1, {ELEMENTS}},
            {"m_scale/a@0", "F32", 1, {2}},
            {"master/b[0:256]@0", "F32", 1, {512}},
            {"m/b[0:256]@0", "U8", 1, {512}},
            {"m_scale/b[0:256]@0", "F32", 1, {2}},
            {"master/b[0:256]@512", "F32", 1, {512}},
            {"m/b[0:256]@512", "U8", 1, {512}},
            {"m_scale/b[0:256]@512", "F32", 1, {2}},
            {"master/b[256:384,384:512]@0", "F32", 1, {1024}},
            {"m/b[256:384,384:512]@0", "U8", 1, {1024}},
            {"m_scale/b[256:384,384:512]@0", "F32", 1, {4}}};
    enum { ENTRIES = sizeof entries / sizeof *entries };
    static const float zero[ELEMENTS * ROWS];
    struct st_writer *writer;
    uint64_t bytes;
    fuzz_need(
            st_writer_create(
                    scratch_path(&scratch, shard_name), entries, ENTRIES, NULL,
                    &writer) == ZD_OK,
            "the shard");
    for (int i = 0; i < ENTRIES; i++)
        fuzz_need(
                st_writer_add(
                        writer, i, zero,
                        (size_t)entries[i].shape[0] *
                                (entries[i].dtype[0] == 'U' ? 1 : 4)) == ZD_OK,
                "the shard");
    fuzz_need(st_writer_finish(writer, NULL, &bytes) == ZD_OK, "the shard");
    return bytes;
}

/* Files that were not changed must be read. */
static void judge_read(enum zd_status status)
{
    fuzz_need(inputs % 4 || status == ZD_OK, "a sound one is refused");
    if (status != ZD_OK)
        fuzz_need_refusal(status);
}

static void read_range(
        const struct checkpoint *checkpoint, const struct pieces_range *range)
{
    ZD_FREED float *values = malloc(range->count * sizeof *values);
    ZD_FREED float *scales =
            malloc(range->count / OPTIM_QBLOCK * sizeof *scales);
    judge_read(pieces_read_weights(checkpoint, range, values));
    if (pieces_format(checkpoint, OPTIM_M, range->name) != OPTIM_NONE)
        judge_read(
                pieces_read_lane(checkpoint, OPTIM_M, range, values, scales));
}

static void read_pieces(const struct checkpoint *checkpoint)
{
    static const struct param columns = {
            .shape = {ROWS, COLUMNS / 2},
            .slice = {1, true, {ROWS, COLUMNS}, {{256, 0, 256, false}}}};
    static const struct param rows = {
            .shape = {ROWS, COLUMNS},
            .slice = {1, false, {ROWS, COLUMNS}, {{1, 0, 3, false}}}};
    const struct pieces_range ranges[] = {
            {"a", NULL, 0, ELEMENTS},
            {"a", NULL, OPTIM_QBLOCK, OPTIM_QBLOCK},
            {"b", NULL, 0, ELEMENTS * ROWS},
            {"b", NULL, 3 * OPTIM_QBLOCK, 2 * OPTIM_QBLOCK},
            {"b", &columns, OPTIM_QBLOCK, 3 * OPTIM_QBLOCK},
            {"b", &rows, 0, ELEMENTS * ROWS}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        read_range(checkpoint, &ranges[i]);
    for (size_t count = 1; count < 9; count++) {
        ZD_FREED float *v = malloc(count * sizeof *v);
        enum zd_status status = pieces_read_blocks(checkpoint, "a", count, v);
        if (status != ZD_OK)
            fuzz_need_refusal(status);
    }
}

static void try_manifest(const char *text, size_t bytes)
{
    json_auto_t *json = NULL;
    struct checkpoint *checkpoint;
    if (json_parse(text, bytes, "manifest", ZD_ERR_DATA, &json) != ZD_OK) {
        zd_error_clear();
        return;
    }
    json_object_del(json, "manifest_xxh3_128");
    if (json_is_object(json)) {
        manifest_seal(json);
        char *sealed = json_dumps(json, 0);
        scratch_file(&scratch, CHECKPOINT_MANIFEST, sealed, strlen(sealed));
        free(sealed);
        enum zd_status status =
                checkpoint_open(scratch.dir, CHECKPOINT_TRUSTED, &checkpoint);
        if (status == ZD_OK) {
            struct train_state state = checkpoint_state(checkpoint);
            fuzz_need(state.step >= 0 && state.samples_taken >= 0, "a count");
            double accumulation = state.live.value[SET_ACCUMULATION];
            fuzz_need(
                    accumulation >= 0 && accumulation <= INT32_MAX,
                    "an accumulation");
            read_pieces(checkpoint);
            checkpoint_close(checkpoint);
        } else {
            fuzz_need_refusal(status);
        }
    }
}

/* --- a token cache --- */

static size_t write_cache(char *out, size_t max)
{
    static const uint32_t words[] = {
            1 | WORD_FIRST, 2, 3 | WORD_TRAIN, 4 | WORD_FIRST, 5};
    struct cache_writer *writer;
    char path[PATH_MAX], *data;
    size_t bytes;
    fuzz_need(
            cache_writer_create(scratch.dir, "key", NULL, NULL, &writer) ==
                            ZD_OK &&
                    cache_writer_words(writer, words, 5) == ZD_OK &&
                    cache_writer_finish(writer, 0) == ZD_OK,
            "the cache");
    cache_path(path, scratch.dir, "key");
    fuzz_need(fs_read_file(path, max, &data, &bytes) == ZD_OK, "the cache");
    memcpy(out, data, bytes);
    free(data);
    return bytes;
}

static void try_cache(char *data, size_t bytes, bool seals)
{
    struct cache_limits limits = {.ids = 100};
    char path[PATH_MAX];
    if (seals && bytes >= sizeof(struct cache_header)) {
        struct cache_header header;
        memcpy(&header, data, sizeof header);
        cache_header_seal(&header);
        memcpy(data, &header, sizeof header);
    }
    cache_path(path, scratch.dir, "key");
    scratch_file(&scratch, strrchr(path, '/') + 1, data, bytes);
    for (int by_time = 0; by_time < 2; by_time++) {
        limits.is_by_time = by_time;
        struct token_cache cache = {0};
        enum zd_status status =
                token_cache_open(scratch.dir, "key", &limits, &cache);
        if (status != ZD_OK) {
            fuzz_need_refusal(status);
            continue;
        }
        uint64_t sum = 0;
        for (uint64_t i = 0; cache.map && i < cache.header.word_count; i++)
            sum += cache.words[i];
        for (uint64_t i = 0; cache.map && i < cache.header.doc_count; i++)
            fuzz_need(
                    cache.docs[i] <= cache.docs[i + 1],
                    "documents out of order");
        fuzz_need(sum < UINT64_MAX, "words");
        token_cache_close(&cache);
    }
}

int main(int argc, char **argv)
{
    enum { MAX = 4096 };
    static char first[MAX], data[MAX];
    const char *kind = argc > 1 ? argv[1] : "manifest";
    bool is_cache = strcmp(kind, "cache") == 0;
    bool is_adapter = strcmp(kind, "adapter") == 0;
    bool is_download = is_adapter || strcmp(kind, "quantized") == 0;
    double end = clock_seconds() + (argc > 2 ? strtod(argv[2], NULL) : 1);
    uint64_t state = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    zd_log_configure(
            &(struct zd_log_options){.level = ZD_LOG_ERROR, .rank = -1});
    scratch_init(&scratch);
    size_t whole = is_cache ? write_cache(first, MAX)
                            : (size_t)snprintf(
                                      first, MAX, sound,
                                      (unsigned long long)write_shard());
    for (; clock_seconds() < end; inputs++) {
        size_t bytes = whole;
        if (is_download) {
            fuzz_download(is_adapter, &scratch, inputs, &state);
            continue;
        }
        memcpy(data, first, whole);
        for (uint64_t n = inputs % 4; n > 0; n--)
            bytes = fuzz_mutate(data, bytes, MAX, &state);
        if (is_cache)
            try_cache(data, bytes, fuzz_next(&state) % 2);
        else
            try_manifest(data, bytes);
    }
    scratch_fini(&scratch);
    printf("1..1\nok 1 - %llu inputs\n", (unsigned long long)inputs);
    return 0;
}
