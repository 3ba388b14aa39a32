#include "model/files/export_hf.h"

#include "base/file/safetensors.h"
#include "base/must.h"
#include "model/files/hf_names.h"
#include "tests/model/opened.h"
#include "tests/support/scratch.h"

#include <criterion/criterion.h>

#include <glob.h>
#include <sys/stat.h>

static const char *const fixtures[] = {
        "gemma",   "gemma2", "gemma3",    "gemma3_text", "glm4",    "gpt2",
        "granite", "llama",  "llama_odd", "ministral3",  "mistral", "olmo2",
        "phi3",    "qwen2",  "qwen3",     "smollm3"};
enum { FIXTURES = sizeof fixtures / sizeof fixtures[0] };

struct exporting {
    struct opened model;
    struct scratch scratch;
    char out[PATH_MAX - 64];
};

static void setup(struct exporting *o, const char *name)
{
    opened_base(&o->model, name);
    scratch_init(&o->scratch);
    ZD_PRINT(o->out, "%s/hf", o->scratch.dir);
}

static void teardown(struct exporting *o)
{
    scratch_fini(&o->scratch);
    opened_fini(&o->model);
}

static enum zd_status export(
        struct exporting *o, enum dtype dtype, uint64_t shard_bytes,
        const char *copy_from) {
    const struct hf_export_job job =
            {
                    .dir = o->out,
                    .config = &o->model.config,
                    .table = &o->model.table,
                    .dtype = dtype,
                    .max_shard_bytes = shard_bytes,
                    .copy_from = copy_from,
                    .file_prefix = true,
                    .others_from = copy_from,
            };
    return weights_export(&job, EXPORT_ALL, &o->model.source, 0, 1);
}

/* A file of a folder; borrowed until the call after the next. */
static const char *in(const char *dir, const char *name)
{
    static char paths[2][PATH_MAX];
    static int turn;
    turn = !turn;
    fs_join(paths[turn], PATH_MAX, dir, name);
    return paths[turn];
}

/* Do both have these values of the tensor, the last of it? */
static void expect_same_values(
        const struct opened *model, const struct weight_source *again, int id)
{
    float a[64], b[64];
    size_t count = model->table.params[id].count, n = count < 64 ? count : 64;
    tiny_must(model->source.read(model->source.ctx, id, count - n, n, a));
    tiny_must(again->read(again->ctx, id, count - n, n, b));
    cr_expect(
            memcmp(a, b, n * sizeof *a) == 0, "%s",
            model->table.params[id].name);
}

/* Raw bytes of a tensor, from whichever file of the folder holds it; the caller
 * frees them. */
static char *tensor_bytes(const char *dir, const char *name, size_t *bytes)
{
    char *data = NULL;
    glob_t files;
    cr_assert(glob(in(dir, "model*.safetensors"), 0, NULL, &files) == 0);
    for (size_t i = 0; i < files.gl_pathc && !data; i++) {
        struct st_file *file;
        tiny_must(st_open(files.gl_pathv[i], &file));
        const struct st_tensor *tensor = st_find(file, name);
        if (tensor) {
            *bytes = tensor->bytes;
            data = malloc(tensor->bytes);
            tiny_must(st_read_bytes(file, tensor, 0, tensor->bytes, data));
        }
        st_close(file);
    }
    globfree(&files);
    return data;
}

static bool same_file(const char *a, const char *b, const char *name)
{
    char *data_a, *data_b;
    size_t bytes_a, bytes_b;
    tiny_must(fs_read_file(in(a, name), 1 << 26, &data_a, &bytes_a));
    tiny_must(fs_read_file(in(b, name), 1 << 26, &data_b, &bytes_b));
    bool same = bytes_a == bytes_b && memcmp(data_a, data_b, bytes_a) == 0;
    free(data_a);
    free(data_b);
    return same;
}

Test(model_export, what_was_read_comes_back_byte_for_byte)
{
    for (int i = 0; i < FIXTURES; i++) {
        struct exporting o;
        setup(&o, fixtures[i]);
        tiny_must(export(&o, o.model.storage, 1 << 30, o.model.dir));
        for (int id = 0; id < o.model.table.count; id++) {
            char name[HF_NAME_BYTES];
            size_t bytes_in = 0, bytes_out = 0;
            hf_name_in_files(
                    &o.model.config, o.model.table.params[id].name, true, name);
            ZD_FREED char *in = tensor_bytes(o.model.dir, name, &bytes_in);
            ZD_FREED char *out = tensor_bytes(o.out, name, &bytes_out);
            cr_assert(in && out && bytes_in == bytes_out, "%s", name);
            cr_expect(
                    memcmp(in, out, bytes_in) == 0, "%s: %s", fixtures[i],
                    name);
        }
        cr_expect(same_file(o.model.dir, o.out, "tokenizer.json"));
        cr_expect(same_file(o.model.dir, o.out, "generation_config.json"));
        teardown(&o);
    }
}

/* Vision's, of a multimodal model, whatever the type of the weights: as many as
 * there were, and no other. */
Test(model_export, tensors_of_vision_pass_through_untouched)
{
    struct exporting o;
    struct st_file *before, *after;
    int passed = 0;
    setup(&o, "ministral3");
    tiny_must(export(&o, DTYPE_FP32, 1 << 30, o.model.dir));
    tiny_must(st_open(in(o.model.dir, "model.safetensors"), &before));
    tiny_must(st_open(in(o.out, "model.safetensors"), &after));
    cr_expect_eq(before->tensor_count, after->tensor_count);
    ZD_EACH(a, before->tensors, before->tensor_count) {
        const struct st_tensor *b = st_find(after, a->name);
        size_t bytes_in, bytes_out;
        cr_assert(b, "%s", a->name);
        if (!text_config_passes(&o.model.config, a->name))
            continue;
        char *in = tensor_bytes(o.model.dir, a->name, &bytes_in);
        char *out = tensor_bytes(o.out, a->name, &bytes_out);
        cr_expect_str_eq(a->dtype, b->dtype);
        cr_expect(a->dims == b->dims && bytes_in == bytes_out);
        cr_expect(memcmp(a->shape, b->shape, sizeof a->shape) == 0);
        cr_expect(memcmp(in, out, bytes_in) == 0, "%s", a->name);
        free(in);
        free(out);
        passed++;
    }
    cr_expect_geq(passed, 10);
    st_close(before);
    st_close(after);
    teardown(&o);
}

/* `model.language_model.X`, where the other files have
 * `language_model.model.X`; and whether the head is tied is seen in files where
 * no key says it. */
Test(model_export, the_names_of_transformers_5_are_written_and_read)
{
    json_t *json;
    struct exporting o;
    struct weight_source again;
    struct model_config config;
    setup(&o, "ministral3");
    const struct hf_export_job job = {
            .dir = o.out,
            .config = &o.model.config,
            .table = &o.model.table,
            .dtype = DTYPE_BF16,
            .max_shard_bytes = 1 << 30,
            .copy_from = o.model.dir,
            .others_from = o.model.dir};
    cr_expect(weights_hf_has_prefix(o.model.dir, &o.model.config));
    tiny_must(weights_export(&job, EXPORT_ALL, &o.model.source, 0, 1));
    cr_expect(!weights_hf_has_prefix(o.out, &o.model.config));
    cr_expect(weights_hf_has(o.out, "model.language_model.norm.weight"));
    cr_expect(weights_hf_has(o.out, "lm_head.weight"));
    cr_expect(weights_hf_has(o.out, "vision_tower.patch_conv.weight"));
    tiny_must(weights_open_hf(
            o.out, &o.model.config, &o.model.table, NULL, &again));
    expect_same_values(
            &o.model, &again,
            param_table_find(&o.model.table, "model.norm.weight"));
    weights_close(&again);

    tiny_must(json_parse_file(in(o.out, "config.json"), 1 << 20, &json));
    json_object_del(json, "tie_word_embeddings");
    json_object_del(
            json_object_get(json, "text_config"), "tie_word_embeddings");
    tiny_must(json_write_file(in(o.out, "config.json"), json));
    json_decref(json);
    for (int tied = 0; tied < 2; tied++) {
        tiny_must(model_config_read(o.out, false, &config));
        cr_expect_eq(config.tied, tied);
        model_config_fini(&config);
        remove(in(o.out, "model.safetensors"));
    }
    teardown(&o);
}

Test(model_export, the_configuration_is_kept_but_for_the_type)
{
    json_t *before, *after;
    struct exporting o;
    setup(&o, "qwen3");
    tiny_must(export(&o, DTYPE_BF16, 1 << 30, o.model.dir));
    tiny_must(
            json_parse_file(in(o.model.dir, "config.json"), 1 << 20, &before));
    tiny_must(json_parse_file(in(o.out, "config.json"), 1 << 20, &after));
    const char *key =
            json_object_get(before, "dtype") ? "dtype" : "torch_dtype";
    cr_expect_str_eq(json_string_at(after, key), "bfloat16");
    json_object_del(before, key);
    json_object_del(after, key);
    cr_expect(json_equal(before, after));
    json_decref(before);
    json_decref(after);
    teardown(&o);
}

Test(model_export, shards_and_their_index_hold_the_same_values)
{
    struct exporting o;
    struct weight_source again;
    setup(&o, "llama");
    tiny_must(export(&o, DTYPE_FP32, 20000, NULL));
    cr_expect(
            !fs_exists(in(o.out, "model.safetensors")),
            "either one file or an index");
    tiny_must(weights_open_hf(
            o.out, &o.model.config, &o.model.table, NULL, &again));
    for (int id = 0; id < o.model.table.count; id++)
        expect_same_values(&o.model, &again, id);
    weights_close(&again);
    struct model_config config;
    tiny_must(model_config_read(o.out, false, &config));
    cr_expect_eq(config.layers, o.model.config.layers);
    model_config_fini(&config);
    teardown(&o);
}

Test(model_export, an_export_of_ours_is_replaced)
{
    struct exporting o;
    setup(&o, "qwen2");
    tiny_must(export(&o, DTYPE_FP32, 20000, o.model.dir));
    tiny_must(export(&o, DTYPE_FP32, 1 << 30, o.model.dir));
    cr_expect(
            !fs_exists(in(o.out, "model.safetensors.index.json")),
            "nothing of the old one is left");
    cr_expect(!fs_exists(in(o.scratch.dir, "hf.tmp")));
    teardown(&o);
}

Test(model_export, a_folder_of_someone_else_is_left_alone)
{
    static const char *const names[] = {"notes.txt", "model.safetensors"};
    for (int i = 0; i < 2; i++) {
        struct exporting o;
        setup(&o, "mistral");
        cr_assert(mkdir(o.out, 0777) == 0);
        tiny_must(fs_write_file(in(o.out, names[i]), "precious", 8));
        cr_expect_eq(
                export(&o, DTYPE_FP32, 1 << 30, o.model.dir), ZD_ERR_CREATE);
        cr_expect(fs_exists(in(o.out, names[i])));
        zd_error_clear();
        teardown(&o);
    }
}

Test(model_export, what_an_interrupted_export_left_is_swept_away)
{
    struct exporting o;
    setup(&o, "llama");
    cr_assert(mkdir(in(o.scratch.dir, "hf.tmp"), 0777) == 0);
    tiny_must(fs_write_file(
            in(o.scratch.dir, "hf.tmp/model.safetensors"), "torn", 4));
    /* written, and not yet renamed */
    tiny_must(fs_write_file(
            in(o.scratch.dir, "hf.tmp/config.json.tmp"), "torn", 4));
    cr_expect_eq(export(&o, DTYPE_BF16, 1 << 30, o.model.dir), ZD_OK);
    teardown(&o);
}

/* Each process writes its part of one or of several files; an element is then
 * never read twice, and the files are those of one process. */
static size_t elements_read;

static enum zd_status counting_read(
        void *ctx, int id, size_t begin, size_t count, float *out)
{
    const struct weight_source *source = ctx;
    elements_read += count;
    return source->read(source->ctx, id, begin, count, out);
}

Test(model_export, parts_make_the_files_of_one_process)
{
    static const uint64_t limits[] = {1 << 30, 40000};
    static const char *const names[][3] = {
            {"model.safetensors"},
            {"model-00001-of-00004.safetensors",
             "model-00003-of-00004.safetensors",
             "model.safetensors.index.json"}};
    for (int parts = 2; parts <= 7; parts += 5)
        for (int i = 0; i < 2; i++) {
            struct exporting one, many;
            setup(&one, "llama_odd");
            setup(&many, "llama_odd");
            tiny_must(export(&one, DTYPE_BF16, limits[i], one.model.dir));
            struct weight_source counted = {
                    .read = counting_read, .ctx = &many.model.source};
            struct hf_export_job job = {
                    .dir = many.out,
                    .config = &many.model.config,
                    .table = &many.model.table,
                    .dtype = DTYPE_BF16,
                    .max_shard_bytes = limits[i],
                    .copy_from = many.model.dir};
            elements_read = 0;
            tiny_must(weights_export(&job, EXPORT_BEGIN, NULL, 0, parts));
            for (int part = parts - 1; part >= 0; part--)
                tiny_must(weights_export(
                        &job, EXPORT_PART, &counted, part, parts));
            cr_expect_not(fs_exists(many.out), "it was there before its end");
            tiny_must(weights_export(&job, EXPORT_END, NULL, 0, parts));
            cr_expect_eq(elements_read, many.model.table.total);
            for (int k = 0; k < 3 && names[i][k]; k++)
                cr_expect(
                        same_file(one.out, many.out, names[i][k]), "%s of %d",
                        names[i][k], parts);
            teardown(&one);
            teardown(&many);
        }
}
