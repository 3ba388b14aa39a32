/* Everything in data that has threads, for the thread sanitizer: tokenizing by
 * several, and the loader. Prints TAP. */
#include "base/must.h"
#include "tests/data/data_case.h"
#include "tests/support/tap.h"

enum { B = 2, T = 8, BATCHES = 300 };

static int64_t sample_of(void *ctx, int64_t batch, int b)
{
    return batch * B + b;
}

/* Read batches to the end, or leave after `leave` of them. */
static bool load(struct dataset *dataset, int prefetch, int leave)
{
    struct loader *loader;
    struct loader_batch batch;
    int64_t sum = 0;
    bool ok = true;
    ZD_FREED void *memory = malloc(loader_bytes(2 * prefetch, B, T));
    if (loader_create(
                dataset, (struct loader_order){sample_of, NULL}, 0, BATCHES, B,
                T, prefetch, prefetch, memory, &loader) != ZD_OK)
        return false;
    for (int i = 0; i < leave && ok; i++) {
        ok = loader_next(loader, &batch) == ZD_OK && batch.token_count == B * T;
        for (int t = 0; ok && t < B * T; t++)
            sum += batch.tokens[t] + batch.targets[t] + batch.doc_start[t];
    }
    loader_destroy(loader);
    return ok && (leave == 0 || sum > 0);
}

static char *make_lines(size_t bytes, bool is_broken, size_t *used_out)
{
    char *text = malloc(bytes + 2000);
    size_t used = 0;
    for (int i = 0; used < bytes; i++) {
        used += (size_t)sprintf(text + used, "{\"text\":\"%d ", i);
        memset(text + used, 'a' + i % 26, 900);
        used += 900;
        used += (size_t)sprintf(text + used, "\"}\n");
    }
    if (is_broken)
        text[used / 2] = '\xff';
    *used_out = used;
    return text;
}

int main(void)
{
    struct data_case test;
    size_t bytes;
    data_case_init(&test, "llama3");
    test.options.preprocessing_threads = 4;

    char *lines = make_lines(3 << 20, false, &bytes);
    data_case_file(&test, "a.jsonl", lines, bytes);
    struct dataset *dataset = data_case_open(&test);
    tap_ok(dataset != NULL, "four threads tokenize lines");
    free(lines);
    tap_ok(dataset && load(dataset, 1, BATCHES), "a loader with one buffer");
    tap_ok(dataset && load(dataset, 4, BATCHES), "a loader with four");
    bool ok = true;
    for (int leave = 0; leave < 6; leave++)
        ok = ok && dataset && load(dataset, 4, leave);
    tap_ok(ok, "a loader that is left early");
    dataset_close(dataset);

    lines = make_lines(3 << 20, true, &bytes);
    data_case_file(&test, "a.jsonl", lines, bytes);
    dataset = data_case_open(&test);
    tap_ok(!dataset && zd_error_get()->status == ZD_ERR_DATA,
           "an error while threads work");
    dataset_close(dataset);
    free(lines);
    data_case_fini(&test);
    return tap_done();
}
