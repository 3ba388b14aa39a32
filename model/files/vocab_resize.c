#include "model/files/vocab_resize.h"
#include "model/files/weights_hf.h"

#include "base/file/fs.h"
#include "base/file/safetensors.h"
#include "base/must.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES_MAX = 16 << 20, LINES = 64 };

struct grown {
    struct param_table stored; /* as the files have it; `params` is owned */
    struct weight_source inner;
    pthread_mutex_t lock;
    float **means; /* (table->count) (columns) once asked for; owned */
};

void model_config_resize_vocab(struct model_config *config, int rows)
{
    if (!config->stored_rows)
        config->stored_rows = config->vocab_size;
    config->vocab_size = rows;
    json_object_set_new(
            config->json, "vocab_size", zd_must(json_integer(rows)));
}

enum zd_status model_config_resize_vocab_for(
        const char *adapter_dir, struct model_config *config)
{
    char path[PATH_MAX];
    struct st_file *file;
    const char *prefix = config->family->file_prefix;
    char name[2 * PARAM_NAME_MAX];
    fs_join(path, sizeof path, adapter_dir, "adapter_model.safetensors");
    if (!fs_exists(path)) /* told by who opens it */
        return ZD_OK;
    ZD_TRY(st_open(path, &file));
    snprintf(
            name, sizeof name, "base_model.model.%s%s", prefix ? prefix : "",
            config->family->embeddings[0].name);
    const struct st_tensor *embedding = st_find(file, name);
    int64_t rows = embedding && embedding->dims == 2 ? embedding->shape[0] : 0;
    st_close(file);
    if (rows > config->vocab_size && rows <= INT_MAX)
        model_config_resize_vocab(config, (int)rows);
    return ZD_OK;
}

static bool has_vocabulary(const struct param *param)
{
    return param->role == ROLE_TOKENS || param->role == ROLE_HEAD;
}

/* --- the rows beyond ------------------------------------------------------ */

/* Sums are taken in double, a row after the other. */
static enum zd_status find_mean(
        const struct grown *grown, int id, double *sum, float *lines,
        float *mean)
{
    const struct param *param = &grown->stored.params[id];
    size_t rows = (size_t)param->shape[0], columns = (size_t)param->shape[1];
    memset(sum, 0, columns * sizeof *sum);
    for (size_t row = 0; row < rows; row += LINES) {
        size_t count = rows - row < LINES ? rows - row : LINES;
        ZD_TRY(grown->inner.read(
                grown->inner.ctx, id, row * columns, count * columns, lines));
        for (size_t i = 0; i < count * columns; i++)
            sum[i % columns] += lines[i];
    }
    for (size_t i = 0; i < columns; i++)
        mean[i] = (float)(sum[i] / (double)rows);
    return ZD_OK;
}

static enum zd_status make_mean(struct grown *grown, int id)
{
    size_t columns = (size_t)grown->stored.params[id].shape[1];
    double *sum = malloc(columns * sizeof *sum);
    float *lines = malloc(LINES * columns * sizeof *lines);
    float *mean = malloc(columns * sizeof *mean);
    enum zd_status status =
            sum && lines && mean
                    ? find_mean(grown, id, sum, lines, mean)
                    : ZD_FAIL(ZD_ERR_MEMORY, "E0602",
                              "no memory for rows of the vocabulary");
    free(sum);
    free(lines);
    if (status == ZD_OK)
        grown->means[id] = mean;
    else
        free(mean);
    return status;
}

static enum zd_status mean_of(struct grown *grown, int id, const float **out)
{
    pthread_mutex_lock(&grown->lock);
    enum zd_status status = grown->means[id] ? ZD_OK : make_mean(grown, id);
    *out = grown->means[id];
    pthread_mutex_unlock(&grown->lock);
    return status;
}

/* --- the source ----------------------------------------------------------- */

static enum zd_status grown_read(
        void *ctx, int id, size_t begin, size_t count, float *out)
{
    struct grown *grown = ctx;
    const struct param *param = &grown->stored.params[id];
    const float *mean;
    size_t end = begin + count, there = param->count;
    size_t stored = begin >= there ? 0 : (end < there ? end : there) - begin;
    if (stored)
        ZD_TRY(grown->inner.read(grown->inner.ctx, id, begin, stored, out));
    if (stored == count)
        return ZD_OK;
    ZD_TRY(mean_of(grown, id, &mean));
    for (size_t i = stored; i < count; i++)
        out[i] = mean[(begin + i) % (size_t)param->shape[1]];
    return ZD_OK;
}

static const struct quantized *grown_stored(void *ctx, int id)
{
    const struct grown *grown = ctx;
    return grown->inner.stored ? grown->inner.stored(grown->inner.ctx, id)
                               : NULL;
}

static void grown_close(void *ctx)
{
    struct grown *grown = ctx;
    weights_close(&grown->inner);
    for (int id = 0; grown->means && id < grown->stored.count; id++)
        free(grown->means[id]);
    pthread_mutex_destroy(&grown->lock);
    free(grown->means);
    free(grown->stored.params);
    free(grown);
}

static enum zd_status stored_rows(const char *dir, int64_t *rows_out)
{
    char path[PATH_MAX];
    json_t *json;
    fs_join(path, sizeof path, dir, "config.json");
    ZD_TRY(json_parse_file(path, CONFIG_BYTES_MAX, &json));
    *rows_out = json_integer_value(json_object_get(json, "vocab_size"));
    json_decref(json);
    return ZD_OK;
}

static enum zd_status copy_table(
        struct grown *grown, const struct param_table *table, int64_t rows)
{
    size_t count = (size_t)table->count;
    grown->stored = *table;
    grown->stored.params = malloc(count * sizeof *table->params);
    grown->means = calloc(count, sizeof *grown->means);
    if (!grown->stored.params || !grown->means)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for a tensor table");
    memcpy(grown->stored.params, table->params, count * sizeof *table->params);
    for (int id = 0; id < table->count; id++) {
        struct param *param = &grown->stored.params[id];
        if (!has_vocabulary(param))
            continue;
        param->shape[0] = rows;
        param->count = (size_t)(rows * param->shape[1]);
    }
    return ZD_OK;
}

enum zd_status weights_open_resized(
        const char *dir, const struct model_config *config,
        const struct param_table *table, enum dtype *storage_out,
        struct weight_source *source_out)
{
    int64_t rows;
    ZD_TRY(stored_rows(dir, &rows));
    if (rows >= config->vocab_size || rows < 1)
        return weights_open_hf(dir, config, table, storage_out, source_out);
    struct grown *grown = calloc(1, sizeof *grown);
    if (!grown)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for a model");
    pthread_mutex_init(&grown->lock, NULL);
    enum zd_status status = copy_table(grown, table, rows);
    if (status == ZD_OK)
        status = weights_open_hf(
                dir, config, &grown->stored, storage_out, &grown->inner);
    if (status != ZD_OK) {
        grown_close(grown);
        return status;
    }
    *source_out = (struct weight_source){
            grown_read, grown_close, grown, grown_stored};
    return ZD_OK;
}
